/* log.h: lines on stderr, one write() each, so that lines of several threads and processes do not mix.
 *
 * Under systemd (JOURNAL_STREAM set) a line begins with its syslog level, "<6>"; else with the time and the level's
 * word, or is a JSON object. Nothing that a sender wrote, apart from checked parameter names and values, and names
 * of jobs where the option job-names says so, goes into the log: scans are patient data.
 */
#ifndef MRIRECON_DAEMON_LOG_H
#define MRIRECON_DAEMON_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

/* LOG_LEVEL_AUDIT: who did what; not dropped at any level. */
enum log_level { LOG_LEVEL_AUDIT = -1, LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Set by log_init(); `most` may change later. Read by any thread. */
struct log {
    bool journal, json;
    _Atomic int most; /* enum log_level; lines above this level are dropped */
};

/* `json`: each line is an object {time, level, job, message}. */
void log_init(struct log *log, enum log_level most, bool json);

/* Log one line; what it quotes cannot begin another. `job`: the id of the job that it is about, or NULL. */
void log_line(const struct log *log, enum log_level level, const char *job, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
