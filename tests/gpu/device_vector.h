/* device_vector.h: random vectors on a device. */
#ifndef MRIRECON_GPU_DEVICE_VECTOR_H
#define MRIRECON_GPU_DEVICE_VECTOR_H

#include "gridding/base/num.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

/* n values from a seed, with a mean other than 0 so that their sums are not near 0 either. Free them with
 * dev_release(). */
static inline struct c32 *device_vector(struct dev *dev, size_t n, uint64_t seed)
{
    struct c32 *host = take(n * sizeof *host);
    void *out = NULL;
    for (size_t i = 0; i < n; i++)
        host[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
    must(dev_alloc(dev, n * sizeof *host, &out), "dev_alloc");
    must(dev_upload(dev, out, host, n * sizeof *host), "dev_upload");
    free(host);
    return out;
}

#endif
