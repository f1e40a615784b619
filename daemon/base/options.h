/* options.h: mrirecond's options, one table for --help, the sample configuration and the parser of both.
 *
 * A configuration file has lines "key = value"; # begins a comment line. The command line has --key VALUE or
 * --key=VALUE and overrides the file.
 */
#ifndef MRIRECON_DAEMON_OPTIONS_H
#define MRIRECON_DAEMON_OPTIONS_H

#include "gridding/base/err.h"

#include <stdio.h>

enum { OPTION_TEXT = 256 };

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
enum keep_scans { KEEP_NONE, KEEP_FAILED, KEEP_ALL };
enum job_names { NAMES_NONE, NAMES_JOBS, NAMES_LOG };

struct options {
    char listen[OPTION_TEXT], port_file[OPTION_TEXT], state_dir[OPTION_TEXT], worker[OPTION_TEXT], codec[OPTION_TEXT],
        devices[OPTION_TEXT], tokens[OPTION_TEXT], tls_certificate[OPTION_TEXT], tls_key[OPTION_TEXT],
        host_names[OPTION_TEXT], web_dir[OPTION_TEXT], mrd_listen[OPTION_TEXT], mrd_clients[OPTION_TEXT],
        mrd_configs[OPTION_TEXT], destinations[OPTION_TEXT], sender[OPTION_TEXT];
    int64_t threads, http_threads, connections, address_connections, mrd_sessions, log_format;
    int64_t upload_rate, body_limit, spool_limit, spool_reserve;                                        /* bytes */
    int64_t header_timeout, idle_timeout, start_timeout, convert_timeout, upload_lifetime, decode_time; /* seconds */
    /* Live options: options_reload() changes them while other threads read them. */
    _Atomic int64_t queue_limit, client_jobs, keep_scans, job_names, log_level;
    _Atomic int64_t client_bytes, keep_bytes, result_limit, work_reserve; /* bytes */
    /* keep_bytes below 0: per cent of the disk */
    _Atomic int64_t keep_jobs, priority_ageing, wait_limit, job_time_limit, cancel_grace, worker_timeout,
        progress_timeout, drain_time, mrd_idle_timeout; /* seconds */
};

/* What to do, from the command line. */
enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_SAMPLE, OPTIONS_VERSION };

/* All defaults. */
void options_init(struct options *options);

/* Set one option from text; `where` ("mrirecond.conf:12" or "command line") begins the failure's sentence. Fails with
 * ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER. */
int options_set(struct options *options, const char *key, const char *text, const char *where);

/* Read a configuration file, called `name` in failures. Fails as options_set, and with ERR_BAD_REQUEST (a line that is
 * not "key = value", or a key given twice), ERR_IO. */
int options_read(struct options *options, FILE *file, const char *name);

/* Read the file of --config, if given, then the command line. Fails as above. */
int options_parse(struct options *options, int argc, char *const argv[], enum options_action *action);

/* Read the same command line and file again, and copy the live options into *options. *asked: the previous values,
 * replaced by the new ones; *restart: the changed options that need a restart, separated by commas. Fails as
 * options_parse; nothing is changed then. */
int options_reload(struct options *options, struct options *asked, int argc, char *const argv[], char *restart,
                   size_t size);

void options_help(FILE *out);
void options_sample(FILE *out);

#endif
