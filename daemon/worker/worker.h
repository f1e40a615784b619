/* worker.h: the worker program: what its two ways of running share. */
#ifndef MRIRECON_WORKER_H
#define MRIRECON_WORKER_H

#include "gridding/base/dev.h"
#include "recon/kind_run.h"

/* How a worker was started. */
struct worker_options {
    enum dev_kind device;
    int device_index, threads;
    const char *codec;     /* path of mrirecon-codec */
    uint64_t memory_bytes; /* of what is read; 0: what is free allows */
    double decode_seconds; /* 0: kind_run.h's default */
};

/* What a job asks for, and how this worker was started. */
struct job_request worker_request(const struct worker_options *options, const struct kind *kind,
                                  const struct param_values *values, int input, struct decoder *decoder);

/* Have the device compute a small image whose value is known, before it is trusted with jobs. Fails with ERR_DEVICE
 * (also: the value is another), ERR_NO_MEMORY, ERR_GPU_OOM, and as nufft_create(). */
int worker_probe(struct dev *dev);

/* Serve the daemon at the other end of `socket` (daemon/wire.h) until it closes it or the device fails. `landlock`:
 * what sandbox_enter_worker() said. The exit status of the process. */
int worker_serve(int socket, struct dev *dev, const struct worker_options *options, bool landlock);

#endif
