/* log.h: log lines on stderr, one write() each, so that lines of several threads and processes do not mix.
 *
 * If stderr is systemd's journal (JOURNAL_STREAM), a line begins with its syslog level, "<6>"; after log_to_journal()
 * it is a journal entry instead, with the fields JOB, CLIENT and CODE. Otherwise it begins with the time and the name
 * of the level, or is a JSON object. Scans are patient data: no text from clients enters the log, except checked
 * parameter names and values, and job names if the option job-names allows it.
 */
#ifndef MRIRECON_DAEMON_LOG_H
#define MRIRECON_DAEMON_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

/* LOG_LEVEL_AUDIT: actions of clients; logged at any level. */
enum log_level { LOG_LEVEL_AUDIT = -1, LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* The subject of a line. */
struct log_about {
    const char *job, *client; /* NULL: none */
    int code;                 /* of err.h; 0: none */
};

/* Set by log_init() and log_to_journal(); `most` may change later. Read by any thread. */
struct log {
    bool journal, json;
    /* Send an entry to the journal, `syslog` its level; false: it was not accepted. NULL: write to stderr. */
    bool (*send)(int syslog, const struct log_about *about, const char *message);
    _Atomic int most; /* enum log_level; lines above this level are dropped */
};

/* `json`: each line is an object {time, level, job, client, code, message}; job, client and code may be missing. */
void log_init(struct log *log, enum log_level most, bool json);
/* If stderr is the journal and no JSON is asked for: write entries with fields. Entries that the journal does not
 * accept go to stderr. Only the daemon links libsystemd. */
void log_to_journal(struct log *log);

/* Log one line; quoted text cannot begin another. */
void log_line_about(const struct log *log, enum log_level level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, about one job (NULL: none). */
void log_line(const struct log *log, enum log_level level, const char *job, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
