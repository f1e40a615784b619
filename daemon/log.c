#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void log_init(struct log *log, enum log_level most)
{
    log->most = most;
    log->journal = false;
    /* systemd says which device and inode the journal's stream is; stderr may have been redirected since. */
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long device, inode;
    struct stat there;
    if (stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2 && fstat(STDERR_FILENO, &there) == 0)
        log->journal = there.st_dev == device && there.st_ino == inode;
}

void log_line(const struct log *log, enum log_level level, const char *job, const char *format, ...)
{
    static const struct {
        const char *word;
        int syslog;
    } levels[] = {{"error", 3}, {"warning", 4}, {"info", 6}, {"debug", 7}};
    char line[1400];
    size_t used;
    if (level > log->most)
        return;
    if (log->journal) {
        used = (size_t)snprintf(line, sizeof line, "<%d>", levels[level].syslog);
    } else {
        struct timespec now;
        struct tm utc;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
        used += (size_t)snprintf(line + used, sizeof line - used, ".%03dZ %s: ", (int)(now.tv_nsec / 1000000),
                                 levels[level].word);
    }
    if (job)
        used += (size_t)snprintf(line + used, sizeof line - used, "job=%s ", job);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line + used, sizeof line - 1 - used, format, arguments);
    va_end(arguments);
    if (wanted > 0)
        used += (size_t)wanted < sizeof line - 1 - used ? (size_t)wanted : sizeof line - 2 - used;
    line[used++] = '\n';
    /* There is no one left to tell that the log cannot be written. */
    if (write(STDERR_FILENO, line, used) < 0)
        return;
}
