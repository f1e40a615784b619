#include "daemon/base/log.h"

#include "daemon/base/clock.h"
#include "gridding/base/err.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

void log_init(struct log *log, enum log_level most, bool json)
{
    log->most = most;
    log->json = json;
    log->journal = false;
    log->send = NULL;
    /* JOURNAL_STREAM names device and inode of the journal's stream; stderr may have been redirected since. */
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long device, inode;
    struct stat there;
    if (stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2 && fstat(STDERR_FILENO, &there) == 0)
        log->journal = there.st_dev == device && there.st_ino == inode;
}

enum { MESSAGE = 1200, JOB_LEAD = 48, LINE = 2 * MESSAGE + 256 }; /* JSON escapes quotes and backslashes */

static const struct {
    const char *word;
    int syslog;
} levels[] = {{"info", 6}, {"error", 3}, {"warning", 4}, {"info", 6}, {"debug", 7}}; /* from LOG_LEVEL_AUDIT on */

static void line_write(const char *line, size_t length)
{
    /* A failure to write the log cannot be reported. */
    if (write(STDERR_FILENO, line, length) < 0)
        return;
}

static void json_line(const char *lead, enum log_level level, const char *time, const struct log_about *about,
                      const char *message)
{
    char line[LINE];
    json_t *object = json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:s*}", "time", time, "level",
                               levels[level - LOG_LEVEL_AUDIT].word, "message", message, "job", about->job, "client",
                               about->client, "code", about->code ? err_name(about->code) : NULL);
    size_t used = (size_t)snprintf(line, sizeof line, "%s", lead);
    size_t length = object ? json_dumpb(object, line + used, sizeof line - 1 - used, JSON_COMPACT) : 0;
    json_decref(object);
    if (length == 0 || length > sizeof line - 1 - used)
        return;
    line[used + length] = '\n';
    line_write(line, used + length + 1);
}

static void plain_line(const char *lead, const char *time, const char *word, const char *message)
{
    char line[LINE];
    int length = *lead ? snprintf(line, sizeof line, "%s%s\n", lead, message)
                       : snprintf(line, sizeof line, "%s %s: %s\n", time, word, message);
    line_write(line, (size_t)length);
}

static void line_log(const struct log *log, enum log_level level, const struct log_about *about, const char *format,
                     va_list arguments)
{
    char message[MESSAGE], time[CLOCK_TEXT], lead[8] = "", whole[MESSAGE + JOB_LEAD];
    int syslog = levels[level - LOG_LEVEL_AUDIT].syslog;
    vsnprintf(message, sizeof message, format, arguments);
    err_clean(message);
    clock_print(clock_milliseconds(), time);
    if (log->journal)
        snprintf(lead, sizeof lead, "<%d>", syslog);
    if (log->json) {
        json_line(lead, level, time, about, message);
        return;
    }
    snprintf(whole, sizeof whole, "%s%.40s%s%s", about->job ? "job=" : "", about->job ? about->job : "",
             about->job ? " " : "", message);
    if (!log->send || !log->send(syslog, about, whole))
        plain_line(lead, time, levels[level - LOG_LEVEL_AUDIT].word, whole);
}

void log_line_about(const struct log *log, enum log_level level, const struct log_about *about, const char *format, ...)
{
    if ((int)level > log->most)
        return;
    va_list arguments;
    va_start(arguments, format);
    line_log(log, level, about, format, arguments);
    va_end(arguments);
}

void log_line(const struct log *log, enum log_level level, const char *job, const char *format, ...)
{
    if ((int)level > log->most)
        return;
    va_list arguments;
    va_start(arguments, format);
    line_log(log, level, &(struct log_about){.job = job}, format, arguments);
    va_end(arguments);
}
