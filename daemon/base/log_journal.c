/* Entries of systemd's journal: journalctl can select by job, client and code. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include "daemon/base/log.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

enum { FIELDS = 6, FIELD = 96, ENTRY = 1400 };

static bool journal_send(int syslog, const struct log_about *about, const char *message)
{
    /* sd_journal_send() reports success if there is no journal. */
    if (access("/run/systemd/journal/socket", W_OK) != 0)
        return false;
    char entry[ENTRY], field[FIELDS][FIELD];
    const char *const values[][2] = {
        {"JOB", about->job}, {"CLIENT", about->client}, {"CODE", about->code ? err_name(about->code) : NULL}};
    struct iovec parts[FIELDS];
    int count = 2;
    snprintf(field[0], FIELD, "PRIORITY=%d", syslog);
    snprintf(field[1], FIELD, "SYSLOG_IDENTIFIER=mrirecond");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][1])
            snprintf(field[count++], FIELD, "%s=%s", values[i][0], values[i][1]);
    snprintf(entry, sizeof entry, "MESSAGE=%s", message);
    for (int i = 0; i < count; i++)
        parts[i] = (struct iovec){field[i], strlen(field[i])};
    parts[count] = (struct iovec){entry, strlen(entry)};
    return sd_journal_sendv(parts, count + 1) == 0;
}

void log_to_journal(struct log *log)
{
    if (log->journal && !log->json)
        log->send = journal_send;
}
