/* log.h: lines on stderr, one write() each, so that lines of several threads and processes do not mix.
 *
 * Where stderr is systemd's journal (JOURNAL_STREAM) a line begins with its syslog level, "<6>"; after
 * log_to_journal() it is an entry of the journal instead, with the fields JOB, CLIENT and CODE of what it is about.
 * Else it begins with the time and the level's word, or is a JSON object. Nothing that a sender wrote, apart from
 * checked parameter names and values, and names of jobs where the option job-names says so, goes into the log: scans
 * are patient data.
 */
#ifndef MRIRECON_DAEMON_LOG_H
#define MRIRECON_DAEMON_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

/* LOG_LEVEL_AUDIT: who did what; not dropped at any level. */
enum log_level { LOG_LEVEL_AUDIT = -1, LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* What a line is about. */
struct log_about {
    const char *job, *client; /* NULL: none */
    int code;                 /* of err.h; 0: none */
};

/* Set by log_init() and log_to_journal(); `most` may change later. Read by any thread. */
struct log {
    bool journal, json;
    /* Give the journal an entry, `syslog` its level; false: it did not take it. NULL: stderr it is. */
    bool (*send)(int syslog, const struct log_about *about, const char *message);
    _Atomic int most; /* enum log_level; lines above this level are dropped */
};

/* `json`: each line is an object {time, level, job, client, code, message}, of which job, client and code may be
 * missing. */
void log_init(struct log *log, enum log_level most, bool json);
/* Where stderr is the journal, and no JSON is asked for: write entries with fields. Entries that the journal does not
 * take go to stderr. For the daemon, which alone has libsystemd. */
void log_to_journal(struct log *log);

/* Log one line; what it quotes cannot begin another. */
void log_line_about(const struct log *log, enum log_level level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, about the job of this id, or none (NULL). */
void log_line(const struct log *log, enum log_level level, const char *job, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
