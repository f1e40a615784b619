/* The scan's coil maps, transformed to the job's coils: mixed as the samples are, by whitening and compression, and
 * scaled so that their squares sum to 1 inside their support, as maps of recon/mri/maps.h. */
#include "recon/mri/recon_gridder.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

/* The index of a pixel of the matrix in an image of n[] with the same voxels: both have their centre at floor(n / 2).
 * SIZE_MAX: outside. */
static size_t place_of(const int from[3], const int n[3], size_t pixel)
{
    const size_t nx = (size_t)from[0], ny = (size_t)from[1];
    const int at[3] = {(int)(pixel % nx), (int)(pixel / nx % ny), (int)(pixel / nx / ny)};
    int to[3];
    for (int d = 0; d < 3; d++) {
        to[d] = at[d] - from[d] / 2 + n[d] / 2;
        if (to[d] < 0 || to[d] >= n[d])
            return SIZE_MAX;
    }
    return ((size_t)to[2] * (size_t)n[1] + (size_t)to[1]) * (size_t)n[0] + (size_t)to[0];
}

/* One pixel's coils, mixed: out[coils], from map values `step` apart. */
static void mix(const struct recon_job *job, int coils, const struct c32 *values, size_t step, struct c32 *out)
{
    for (int c = 0; c < coils; c++) {
        double re = 0, im = 0;
        for (int k = 0; k < job->mixed_coils; k++) {
            const struct c32 m = job->mix[(size_t)c * (size_t)job->mixed_coils + (size_t)k],
                             v = values[(size_t)k * step];
            re += (double)m.re * (double)v.re - (double)m.im * (double)v.im;
            im += (double)m.re * (double)v.im + (double)m.im * (double)v.re;
        }
        out[c] = job->mixed_coils ? (struct c32){(float)re, (float)im} : values[(size_t)c * step];
    }
}

/* Scale a pixel's coils; false: a value is not finite. */
static bool scale(int coils, struct c32 *values, bool *any)
{
    double square = 0;
    for (int c = 0; c < coils; c++)
        square += (double)values[c].re * (double)values[c].re + (double)values[c].im * (double)values[c].im;
    const float by = square > 0 ? (float)(1 / sqrt(square)) : 0;
    for (int c = 0; c < coils; c++)
        values[c] = (struct c32){by * values[c].re, by * values[c].im};
    *any = square > 0;
    return isfinite(square);
}

static int coils_differ(const struct recon_job *job, int coils)
{
    return err_set(
        ERR_COILS_DIFFER,
        "The scan has maps of %d coils, and its k-space has %d coils. Give a map for each coil, or leave the "
        "maps out: they are then estimated from the scan.",
        (int)job->scan.header->map_coils, coils);
}

int recon_given_check(const struct recon_job *job, const char *what)
{
    const uint32_t *first = job->scan.encodings[0].matrix;
    for (int d = 0; d < 3; d++)
        if (first[d] != (uint32_t)job->n[d])
            return err_set(ERR_MALFORMED_FILE,
                           "The scan's %s is of the first encoding's %u x %u x %u pixels, and encoding %d, which is "
                           "reconstructed, has %d x %d x %d. Send a scan of one encoding with it, or leave it out.",
                           what, first[0], first[1], first[2], job->frames->encoding, job->n[0], job->n[1], job->n[2]);
    return 0;
}

int recon_given_maps(const struct recon_job *job, int coils, const int n[3], struct c32 *maps, double *support)
{
    const size_t from = (size_t)job->n[0] * (size_t)job->n[1] * (size_t)job->n[2];
    const size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2], bytes = (size_t)coils * pixels * sizeof *maps;
    const int given = job->mixed_coils ? job->mixed_coils : coils;
    if ((uint64_t)given != job->scan.header->map_coils)
        return coils_differ(job, given);
    int rc = recon_given_check(job, "coil maps (sensitivities)");
    if (rc != 0)
        return rc;
    struct c32 *host = calloc((size_t)coils * pixels, sizeof *host), *pixel = calloc((size_t)coils, sizeof *pixel);
    rc = host && pixel ? 0 : err_no_memory_bytes(bytes, "the maps of %d coils", coils);
    size_t covered = 0;
    for (size_t i = 0; i < from && rc == 0; i++) {
        const size_t to = place_of(job->n, n, i);
        bool any = false;
        mix(job, coils, job->scan.maps + i, from, pixel);
        if (!scale(coils, pixel, &any))
            rc = err_set(ERR_DATA_NONFINITE,
                         "The coil maps (sensitivities) have a value that is not finite at pixel %zu, %zu, %zu (x, y, "
                         "z).",
                         i % (size_t)job->n[0], i / (size_t)job->n[0] % (size_t)job->n[1],
                         i / (size_t)job->n[0] / (size_t)job->n[1]);
        covered += any && to != SIZE_MAX;
        for (int c = 0; c < coils && to != SIZE_MAX; c++)
            host[(size_t)c * pixels + to] = pixel[c];
    }
    if (rc == 0)
        rc = dev_upload(job->dev, maps, host, bytes);
    *support = (double)covered / (double)pixels;
    free(pixel);
    free(host);
    return rc;
}
