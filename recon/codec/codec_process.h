/* codec_process.h: inside recon/codec/: processes of mrirecon-codec, and the template that they are forked from.
 *
 * The template (recon/codec/codec.h) has linked and warmed up the readers, reads no file, and forks. A forked process
 * is a child of this process, not of the template, and has a copy of the template's memory; it enters its sandbox and
 * waits for its upload. Without a template, a process is started from the program, which takes ten times as long.
 *
 * Everything here belongs to one thread; the processes end with it.
 */
#ifndef MRIRECON_CODEC_PROCESS_H
#define MRIRECON_CODEC_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct codec_process {
    pid_t pid;  /* 0: none */
    int socket; /* our end */
};

struct codec_template {
    const char *codec;            /* path of mrirecon-codec */
    struct codec_process process; /* .pid 0: none */
};

/* Start the template, unless it runs. Does not wait until it is warm. Fails with ERR_INTERNAL, ERR_IO. */
int codec_template_start(struct codec_template *codec);

/* Start a process: forked from the template if that runs (waits until it is warm), else from the program. A template
 * that does not fork is killed; *status is then its wait status, else 0. Fails with ERR_INTERNAL, ERR_IO. */
int codec_process_start(struct codec_process *out, struct codec_template *codec, int *status);

/* Send a message with `count` descriptors (at most 2) over `socket`. Returns whether it was sent whole; errno else. */
bool codec_send(int socket, const void *message, size_t bytes, const int *fds, int count);

/* Kill and collect a process. Returns its wait status. */
int codec_process_end(struct codec_process *process);

#endif
