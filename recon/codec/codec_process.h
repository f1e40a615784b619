/* codec_process.h: inside recon/codec/: processes of mrirecon-codec, and the template that they are forked from.
 *
 * The template (recon/codec/codec.h) has linked and warmed up what a reader of files needs, reads no file, and forks.
 * What it forks is a child of this process, not its own, with a copy of its memory; it shuts itself in and waits for
 * its upload. Where there is no template, a process starts from the program, which takes ten times as long.
 *
 * Everything here belongs to one thread, with which the processes end.
 */
#ifndef MRIRECON_CODEC_PROCESS_H
#define MRIRECON_CODEC_PROCESS_H

#include <sys/types.h>

struct codec_process {
    pid_t pid;  /* 0: none */
    int socket; /* our end */
};

struct codec_template {
    const char *codec;            /* path of mrirecon-codec */
    struct codec_process process; /* .pid 0: there is none */
};

/* Start the template, unless it runs. Does not wait until it is warm. Fails with ERR_INTERNAL, ERR_IO. */
int codec_template_start(struct codec_template *codec);

/* Start a process: forked from the template where that runs, for which this waits until that is warm; else from the
 * program. A template that forks nothing is ended; *status is then its wait status, else 0. Fails with ERR_INTERNAL,
 * ERR_IO. */
int codec_process_start(struct codec_process *out, struct codec_template *codec, int *status);

/* End and collect a process; its wait status. */
int codec_process_end(struct codec_process *process);

#endif
