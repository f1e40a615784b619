/* Low rank: singular values of blocks against matrices with known ones, the proximal operator's shifts and scale, and
 * the same bits for any number of threads. */
#include "gridding/base/err.h"
#include "recon/solve/prox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/op_test.h"

enum { RANK = 4 };

static struct dev *open_cpu(int threads)
{
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    return dev;
}

/* RANK orthonormal vectors of `length` (Gram-Schmidt, twice): out[RANK][length]. */
static void orthonormal(size_t length, uint64_t seed, double complex *out)
{
    for (int i = 0; i < RANK; i++) {
        double complex *v = out + (size_t)i * length;
        for (size_t k = 0; k < length; k++)
            v[k] = uniform_next(&seed) - 0.5 + I * (uniform_next(&seed) - 0.5);
        for (int pass = 0; pass < 2; pass++) {
            double square = 0;
            for (int j = 0; j < i; j++) {
                double complex dot = 0;
                for (size_t k = 0; k < length; k++)
                    dot += conj(out[(size_t)j * length + k]) * v[k];
                for (size_t k = 0; k < length; k++)
                    v[k] -= dot * out[(size_t)j * length + k];
            }
            for (size_t k = 0; k < length; k++)
                square += creal(v[k]) * creal(v[k]) + cimag(v[k]) * cimag(v[k]);
            for (size_t k = 0; k < length; k++)
                v[k] /= sqrt(square);
        }
    }
}

/* The values of x[frames][plane] in one block, and the expected result with singular values lowered by t. */
struct known {
    size_t frames, pixels, plane;
    size_t at[64]; /* [pixels]: index in a frame */
    double complex frame_vectors[RANK * 64], pixel_vectors[RANK * 64];
};

static void known_write(const struct known *k, const double *values, double t, struct c32 *x)
{
    for (size_t f = 0; f < k->frames; f++)
        for (size_t p = 0; p < k->pixels; p++) {
            double complex sum = 0;
            for (int i = 0; i < RANK; i++)
                sum += fmax(0, values[i] - t) * k->frame_vectors[(size_t)i * k->frames + f] *
                       conj(k->pixel_vectors[(size_t)i * k->pixels + p]);
            x[f * k->plane + k->at[p]] = (struct c32){(float)creal(sum), (float)cimag(sum)};
        }
}

/* Both more and fewer frames than pixels; blocks cut by the array's edge; singular values that are equal, that equal
 * the threshold, and that are all below it. float32 input and output: 1e-6 of the largest value. */
static void test_known_singular_values(void **state)
{
    (void)state;
    static const int sizes[][4] = {{13, 9, 1, 6}, {13, 9, 1, 64}, {6, 5, 7, 11}};
    static const double values[][RANK] = {{9, 4, 2, 1}, {5, 5, 5, 1.5}, {3, 1.4, 1.4, 0.2}, {1, 0.5, 0.2, 0.1}};
    const double t = 1.5;
    struct dev *dev = open_cpu(2);
    for (size_t s = 0; s < 3; s++) {
        const int *n = sizes[s], block[3] = {4, 4, n[2] > 1 ? 4 : 1};
        const size_t plane = (size_t)n[0] * (size_t)n[1] * (size_t)n[2], all = plane * (size_t)n[3];
        struct c32 *x = calloc(all, sizeof *x), *expected = calloc(all, sizeof *x);
        size_t index = 0;
        for (int z = 0; z < n[2]; z += block[2])
            for (int y = 0; y < n[1]; y += block[1])
                for (int cut = 0; cut < n[0]; cut += block[0], index++) {
                    struct known k = {.frames = (size_t)n[3], .plane = plane};
                    for (int c = z; c < n[2] && c < z + block[2]; c++)
                        for (int b = y; b < n[1] && b < y + block[1]; b++)
                            for (int a = cut; a < n[0] && a < cut + block[0]; a++)
                                k.at[k.pixels++] = (size_t)((c * n[1] + b) * n[0] + a);
                    double own[RANK];
                    for (int i = 0; i < RANK; i++) /* blocks with fewer pixels than RANK have fewer values */
                        own[i] = (size_t)i < k.pixels && (size_t)i < k.frames ? values[index % 4][i] : 0;
                    orthonormal(k.frames, 11 + index, k.frame_vectors);
                    orthonormal(k.pixels, 97 + index, k.pixel_vectors);
                    known_write(&k, own, 0, x);
                    known_write(&k, own, t, expected);
                }
        assert_int_equal(sparse_blocks(n, block), index);
        assert_int_equal(sparse_low_rank(dev, n, block, 0, index, (float)t, x), 0);
        for (size_t i = 0; i < all; i++)
            if (hypot((double)x[i].re - expected[i].re, (double)x[i].im - expected[i].im) > 9e-6)
                fail_msg("size %zu, element %zu: %g %g instead of %g %g", s, i, x[i].re, x[i].im, expected[i].re,
                         expected[i].im);
        free(x);
        free(expected);
    }
    dev_free(dev);
}

/* Portions of the blocks change no other block; a threshold of 0 changes nothing, a huge one leaves zeros; a block that
 * is not finite is unchanged. */
static void test_portions_and_limits(void **state)
{
    (void)state;
    enum { ALL = 16 * 8 * 5 };
    const int n[] = {16, 8, 1, 5}, block[] = {8, 8, 1};
    struct dev *dev = open_cpu(1);
    struct c32 *v = op_test_random(dev, ALL, 5), *x = op_test_random(dev, ALL, 5);
    assert_int_equal(sparse_low_rank(dev, n, block, 0, 2, 0, x), 0);
    assert_memory_equal(x, v, ALL * sizeof *x);
    assert_int_equal(sparse_low_rank(dev, n, block, 1, 1, 1000, x), 0);
    for (int i = 0; i < ALL; i++)
        if (i % 16 < 8)
            assert_memory_equal(&x[i], &v[i], sizeof *x);
        else
            assert_true(x[i].re == 0 && x[i].im == 0);
    x[3].im = NAN;
    assert_int_equal(sparse_low_rank(dev, n, block, 0, 2, 1000, x), 0);
    assert_true(isnan(x[3].im) && x[4].re == v[4].re);
    dev_release(dev, v);
    dev_release(dev, x);
    dev_free(dev);
}

static int refuse_third(void *context)
{
    return ++*(int *)context > 2 ? err_set(ERR_CANCELED, "Canceled.") : 0;
}

/* The result is proportional to the input; the bits are the same for any number of threads and on every call; another
 * iteration shifts its blocks; a long application can be canceled. */
static void test_prox(void **state)
{
    (void)state;
    enum { ALL = 64 * 96 * 7 };
    const int n[] = {64, 96, 1, 7};
    struct c32 *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        struct dev *dev = open_cpu(threads);
        struct prox_low_rank p;
        struct c32 *x = op_test_random(dev, ALL, 5), *y = op_test_random(dev, ALL, 5);
        assert_int_equal(prox_low_rank_open(&p, dev, n, 0.05, 9), 0);
        const struct prox prox = prox_low_rank(&p);
        for (int i = 0; i < ALL; i++)
            y[i] = (struct c32){1024 * y[i].re, 1024 * y[i].im};
        assert_int_equal(prox.apply(prox.of, 2, 4, x), 0);
        p.lambda *= 1024;
        assert_int_equal(prox.apply(prox.of, 2, 4, y), 0);
        double change = 0;
        for (int i = 0; i < ALL; i++) {
            assert_true(y[i].re == 1024 * x[i].re && y[i].im == 1024 * x[i].im);
            change += x[i].re * x[i].re;
        }
        assert_true(change > 0);
        if (!first) {
            first = malloc(ALL * sizeof *first);
            memcpy(first, x, ALL * sizeof *first);
        }
        assert_memory_equal(first, x, ALL * sizeof *first);
        dev_release(dev, y);
        y = op_test_random(dev, ALL, 5);
        p.lambda /= 1024;
        assert_int_equal(prox.apply(prox.of, 2, 5, y), 0);
        assert_true(op_test_distance(dev, ALL, x, y) > 0.01);
        int asked = 0;
        p.ask = (struct prox_ask){refuse_third, &asked};
        p.block[0] = p.block[1] = 2; /* 1,536 blocks: the listener is called six times */
        assert_int_equal(prox.apply(prox.of, 2, 5, y), ERR_CANCELED);
        assert_int_equal(asked, 3);
        prox_low_rank_close(&p);
        dev_release(dev, x);
        dev_release(dev, y);
        dev_free(dev);
    }
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_singular_values),
        cmocka_unit_test(test_portions_and_limits),
        cmocka_unit_test(test_prox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
