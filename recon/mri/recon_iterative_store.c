/* What iterative methods store: images and maps, cut to the job's field of view. */
#include "recon/mri/recon_iterative_inner.h"

#include <math.h>
#include <string.h>

/* A row of the job's image within the image on the host, which may be larger. */
static const struct c32 *row_of(const struct iterative *it, int row)
{
    const int *n = it->g->n, *out = it->job->out_n;
    const size_t y = (size_t)(row % out[1] + n[1] / 2 - out[1] / 2);
    const size_t z = (size_t)(row / out[1] + n[2] / 2 - out[2] / 2);
    return it->host + (z * (size_t)n[1] + y) * (size_t)n[0] + (size_t)(n[0] / 2 - out[0] / 2);
}

int iterative_store(struct iterative *it, size_t f, const struct c32 *image)
{
    const struct recon_job *job = it->job;
    const struct image_series *series = job->images;
    const size_t wide = (size_t)job->out_n[0];
    const int rows = job->out_n[1] * job->out_n[2];
    float *to = series->data + f * (size_t)rows * wide * (series->complex_valued ? 2 : 1);
    int rc = dev_download(job->dev, it->host, image, it->g->pixels * sizeof *it->host);
    for (int row = 0; row < rows && rc == 0; row++) {
        const struct c32 *from = row_of(it, row);
        if (series->complex_valued)
            memcpy(to, from, wide * sizeof *from);
        for (size_t x = 0; x < wide && !series->complex_valued; x++)
            to[x] = series->phases ? atan2f(from[x].im, from[x].re) : hypotf(from[x].re, from[x].im);
        to += wide * (series->complex_valued ? 2 : 1);
    }
    return rc;
}

int iterative_store_maps(struct iterative *it, size_t f, int coils)
{
    const struct recon_job *job = it->job;
    const size_t wide = (size_t)job->out_n[0];
    const int rows = job->out_n[1] * job->out_n[2];
    int rc = 0;
    for (int c = 0; c < coils && job->maps && rc == 0; c++) {
        struct c32 *to = (struct c32 *)job->maps->data + (f * job->maps->channels + (size_t)c) * (size_t)rows * wide;
        rc = dev_download(job->dev, it->host, it->maps + (size_t)c * it->g->pixels, it->g->pixels * sizeof *it->host);
        for (int row = 0; row < rows && rc == 0; row++)
            memcpy(to + (size_t)row * wide, row_of(it, row), wide * sizeof *to);
    }
    return rc;
}
