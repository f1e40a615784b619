/* worker.h: shared by the worker program's two modes, serving a daemon and running one job. */
#ifndef MRIRECON_WORKER_H
#define MRIRECON_WORKER_H

#include "gridding/base/dev.h"
#include "recon/kind_run.h"

/* A worker's options. */
struct worker_options {
    enum dev_kind device;
    int device_index, threads;
    int joined, joined_index[DEV_PARTS_MOST - 1]; /* GPUs that share jobs with the first */
    const char *codec;                            /* path of mrirecon-codec */
    uint64_t memory_bytes;                        /* limit of an input in memory; 0: as the free memory allows */
    double decode_seconds;                        /* 0: kind_run.h's default */
};

/* A job's request, from its parameters and the worker's options. */
static inline struct job_request worker_request(const struct worker_options *options, const struct kind *kind,
                                                const struct param_values *values, int input, struct decoder *decoder)
{
    return (struct job_request){
        .kind = kind,
        .values = values,
        .input = input,
        .decoder = decoder,
        .memory_bytes = options->memory_bytes,
        .decode_seconds = options->decode_seconds,
    };
}

/* Test the device with a small image of known value before it gets jobs. Fails with ERR_DEVICE (also: the value is
 * wrong), ERR_NO_MEMORY, ERR_GPU_OOM, and as nufft_create(). */
int worker_probe(struct dev *dev);

/* Serve the daemon at the other end of `socket` (daemon/wire.h) until the daemon closes its end or the device fails.
 * `landlock`: from sandbox_enter_worker(). Returns the exit status of the process. */
int worker_serve(int socket, struct dev *dev, const struct worker_options *options, bool landlock);

#endif
