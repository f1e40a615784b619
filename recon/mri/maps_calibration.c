/* ESPIRiT (doi:10.1002/mrm.24751), from the centre of k-space to the operator on each pixel's coils.
 *
 * The calibration matrix A has a row for each coil c and offset p of a k-space kernel, n = coils x width^d, and a
 * column for each place of the kernel in the centre of k-space. P = M (M + e I)^-1, M = A A^H, projects onto its signal
 * space: singular vectors weighted by s_i^2 / (s_i^2 + e), e = (threshold s_0)^2. In image space P acts on each pixel's
 * coils alone, as
 *
 *   G(r)[c][c'] = width^-d  sum over p, p' of P[(c,p)][(c',p')] exp(2 pi i (p - p') r / N).
 *
 * P needs no eigenvectors (maps_dense.c), and the sum over p - p' = lag is a correlation (maps_lags.c). */
#include "recon/mri/maps_inner.h"

/* Progress after the vectors of the signal space. */
#define DONE_V (0.8 * MAPS_CALIBRATED)

/* Columns of A, and its rows; fills in the sizes of *out. */
struct matrix {
    size_t places, rows;
};

static struct matrix sizes_of(const struct maps_work *work, struct maps_lags *out)
{
    struct matrix a = {.places = 1, .rows = (size_t)work->params->coils};
    for (int d = 0; d < 3; d++) {
        out->width[d] = maps_width(work->params, d);
        out->count[d] = 2 * out->width[d] - 1;
        a.rows *= (size_t)out->width[d];
        a.places *= (size_t)(work->m[d] - out->width[d] + 1);
    }
    out->pairs = (size_t)work->params->coils * (size_t)(work->params->coils + 1) / 2;
    return a;
}

size_t maps_calibration_bytes(const struct maps_work *work, struct maps_lags *lags)
{
    const struct matrix a = sizes_of(work, lags);
    return maps_lags_bytes(work, lags) + maps_dense_bytes(work, a.places, a.rows);
}

int maps_calibrate(const struct maps_work *work, struct maps_lags *out)
{
    const struct matrix a = sizes_of(work, out);
    struct maps_vectors v = {.memory = NULL};
    int rc = maps_dense(work, a.places, a.rows, DONE_V, &v);
    if (rc == 0)
        rc = maps_lags_sum(work, &v, DONE_V, MAPS_CALIBRATED, out);
    if (rc == 0)
        rc = maps_tell(work, MAPS_CALIBRATED);
    free(v.memory);
    return rc;
}
