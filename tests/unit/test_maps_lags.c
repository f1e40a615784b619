/* The sums of ESPIRiT's kernels over their lags, compared with their definition. */
#include "recon/mri/maps_inner.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <complex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* maps_lags_sum() by its definition: P[(c, p)][(c', p')], its sum over p - p' = lag. In double, so that the results
 * differ by the rounding of the values to float32, 6e-8 of them, and of sums in double; the largest value is about 1.
 */
static void lags_check(const struct maps_work *work, const struct maps_vectors *v, const struct maps_lags *lags)
{
    const size_t coils = (size_t)work->params->coils;
    size_t offsets = 1;
    for (int d = 0; d < 3; d++)
        offsets *= (size_t)lags->width[d];
    const size_t n = coils * offsets, all = (size_t)(lags->count[0] * lags->count[1] * lags->count[2]);
    double complex *direct = allocate(all * lags->pairs, sizeof *direct);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < (i / offsets + 1) * offsets; j++) {
            size_t p = i % offsets, q = j % offsets, lag = 0, stride = 1;
            for (int d = 0; d < 3; d++) {
                const size_t w = (size_t)lags->width[d];
                lag += (p % w + w - 1 - q % w) * stride;
                stride *= (size_t)lags->count[d];
                p /= w;
                q /= w;
            }
            const size_t a = i / offsets, pair = a * (a + 1) / 2 + j / offsets;
            for (size_t t = 0; t < v->count; t++)
                direct[lag * lags->pairs + pair] += conj(v->re[t * n + i] + I * v->im[t * n + i]) *
                                                    (v->re[t * n + j] + I * v->im[t * n + j]) / (double)offsets;
        }
    for (size_t i = 0; i < all * lags->pairs; i++)
        assert_true(cabs(direct[i] - ((double)lags->values.re[i] + I * (double)lags->values.im[i])) < 1e-6);
    free(direct);
}

/* Kernels of equal and of different widths, one along which nothing moves, more vectors than are transformed together,
 * more pairs than are. */
static void test_lags(void **state)
{
    (void)state;
    const struct {
        int coils, width[3];
        size_t count;
    } cases[] = {{1, {6, 6, 1}, 3}, {12, {6, 6, 1}, 40}, {3, {5, 5, 5}, 17}, {2, {3, 1, 4}, 16}, {4, {1, 1, 1}, 1}};
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        const int coils = cases[at].coils, *w = cases[at].width;
        const struct maps_params params = {.coils = coils};
        const struct maps_work work = {.params = &params, .threads = 2};
        struct maps_lags lags = {.pairs = (size_t)(coils * (coils + 1) / 2)};
        for (int d = 0; d < 3; d++) {
            lags.width[d] = w[d];
            lags.count[d] = 2 * w[d] - 1;
        }
        const size_t values = cases[at].count * (size_t)(coils * w[0] * w[1] * w[2]);
        double *re = allocate(values, sizeof *re), *im = allocate(values, sizeof *im);
        uint64_t seed = at;
        for (size_t i = 0; i < values; i++) {
            re[i] = uniform_next(&seed) - 0.5;
            im[i] = uniform_next(&seed) - 0.5;
        }
        const struct maps_vectors v = {cases[at].count, re, im, 1, NULL};
        assert_int_equal(maps_lags_sum(&work, &v, 0, 1, &lags), 0);
        lags_check(&work, &v, &lags);
        free(lags.values.re);
        free(im);
        free(re);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
