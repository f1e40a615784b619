/* worker_results.h: the files of a job's results, which came as descriptors with its message (daemon/wire.h). */
#ifndef MRIRECON_WORKER_RESULTS_H
#define MRIRECON_WORKER_RESULTS_H

#include "recon/kind_run.h"

#include <jansson.h>

/* Files to be written; the first is the native one of the job's default result. */
struct result_files {
    const struct kind *kind;
    struct result_file file[KIND_MAX_FILES];
    int fds[KIND_MAX_FILES]; /* the caller's */
    int count;
};

/* Where the images of a job are shown as soon as they are made (daemon/queue/live.h). One thread. */
struct live_file {
    int fd; /* the caller's; -1: nothing is shown */
    int socket;
    const char *id;
    size_t shown;  /* images that are in the file, or cannot be shown */
    int64_t bytes; /* that were told of, also by an attempt before this one */
};

/* For struct job_show: append images, and tell the daemon. Those that cannot be written come with the job's end. */
void live_file_show(void *file, size_t count, size_t bytes, int (*write)(const void *of, size_t part, int fd),
                    const void *of);

/* Read the message's names of `count` files: ["image.h5", ...]. Fails with ERR_BAD_REQUEST. */
int result_files_read(struct result_files *out, const struct kind *kind, const json_t *names, const int *fds,
                      int count);

/* Write the job's results, and put the time that it took into its report. Not synced: the daemon does. Fails as
 * job_result.write(), disk_failed(), and with ERR_INTERNAL: the job lacks a result, or wrote more than it said it
 * would. */
int result_files_write(const struct result_files *files, const struct job_outcome *outcome);

#endif
