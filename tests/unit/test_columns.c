/* FFTs of columns on the CPU against sums in double precision: every radix and products of them, all numbers of
 * columns, both signs, every instruction set of this processor, rows with gaps between them. */
#include "gridding/base/err.h"
#include "gridding/fft/columns.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { APART = 5 }; /* gap between the rows of the input, which are then not aligned */

static struct c32 *values_take(int n, int columns)
{
    const size_t bytes = ((size_t)n * (size_t)columns * sizeof(struct c32) + 63) / 64 * 64;
    struct c32 *values = aligned_alloc(64, bytes);
    assert_non_null(values);
    return values;
}

static struct c32 *input_make(int n, size_t pitch)
{
    const size_t count = (size_t)n * pitch;
    struct c32 *in = allocate(count, sizeof *in);
    for (size_t i = 0; i < count; i++)
        in[i] = (struct c32){(float)(uniform(2 * i) - 0.5), (float)(uniform(2 * i + 1) - 0.5)};
    return in;
}

/* Relative l2 error of column c of `got`. */
static double error_of(const struct c32 *got, const struct c32 *in, int n, int columns, size_t pitch, int sign, int c)
{
    double off = 0, all = 0;
    for (int m = 0; m < n; m++) {
        double complex sum = 0;
        for (int j = 0; j < n; j++) {
            const struct c32 v = in[(size_t)j * pitch + (size_t)c];
            sum += (v.re + v.im * I) * cexp(sign * 2 * M_PI * I * (double)(j * m % n) / n);
        }
        const struct c32 v = got[m * columns + c];
        off += pow(cabs(sum - (v.re + v.im * I)), 2);
        all += pow(cabs(sum), 2);
    }
    return sqrt(off / all);
}

/* Each stage adds a random error of about 6e-8 to each value; 12 stages stay below 1e-6. */
static const double allowed = 1e-6;

static void size_check(int n, int columns, int sign)
{
    struct fft_columns *fft;
    const size_t pitch = (size_t)columns + APART;
    struct c32 *in = input_make(n, pitch), *kept = allocate((size_t)n * pitch, sizeof *kept);
    struct c32 *a = values_take(n, columns), *b = values_take(n, columns);
    memcpy(kept, in, (size_t)n * pitch * sizeof *kept);
    assert_int_equal(fft_columns_create(&fft, n, columns, sign), 0);
    const struct c32 *apart = fft_columns_run(fft, in, pitch, a, b);
    assert_true(apart == a || apart == b);
    assert_memory_equal(in, kept, (size_t)n * pitch * sizeof *in);
    for (int c = 0; c < columns; c += columns - 1)
        assert_true(error_of(apart, in, n, columns, pitch, sign, c) < allowed);
    /* The same columns as the second panel must give the same bits. */
    struct c32 *first = values_take(n, columns);
    memcpy(first, apart, (size_t)n * (size_t)columns * sizeof *first);
    for (int j = 0; j < n; j++)
        memcpy(b + j * columns, in + (size_t)j * pitch, (size_t)columns * sizeof *b);
    assert_memory_equal(fft_columns_run(fft, b, (size_t)columns, a, b), first,
                        (size_t)n * (size_t)columns * sizeof *first);
    fft_columns_free(fft);
    free(first);
    free(a);
    free(b);
    free(kept);
    free(in);
}

static void transforms_match_the_sum(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 10, 14, 18, 30, 98, 128, 270, 350, 480};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int columns = 4; columns <= 16; columns *= 2)
            for (int sign = -1; sign <= 1; sign += 2)
                size_check(sizes[i], columns, sign);
}

/* One stage of a radix, as the first stage and as a later one, by the code of one instruction set, against a sum
 * written out here. */
static void stage_check(const struct columns_leaf *leaf, int radix, int done)
{
    enum { COLUMNS = 8 };
    const int n = radix * done;
    struct columns_twiddle *twiddle = allocate((size_t)(done * radix), sizeof *twiddle), *to = twiddle;
    for (int j = 0; j < done; j++)
        for (int r = 1; r < radix; r++, to++) {
            const float re = (float)cos(2 * M_PI * j * r / n), im = (float)sin(2 * M_PI * j * r / n);
            *to = (struct columns_twiddle){{re, re}, {-im, im}};
        }
    const struct columns_stage stage = {n, COLUMNS, radix, done, 1, twiddle};
    struct c32 *in = input_make(n, COLUMNS), *out = values_take(n, COLUMNS);
    leaf->run(&stage, in, COLUMNS, out);
    for (int j = 0; j < done; j++)
        for (int m = 0; m < radix; m++)
            for (int c = 0; c < COLUMNS; c++) {
                double complex sum = 0;
                for (int r = 0; r < radix; r++) {
                    const struct c32 v = in[(j + r * done) * COLUMNS + c];
                    sum += (v.re + v.im * I) * cexp(2 * M_PI * I * (double)r * ((double)j / n + (double)m / radix));
                }
                const struct c32 v = out[(j + m * done) * COLUMNS + c];
                assert_true(cabs(sum - (v.re + v.im * I)) < allowed * radix);
            }
    free(twiddle);
    free(in);
    free(out);
}

static void every_instruction_set_matches_the_sum(void **state)
{
    (void)state;
    static const int radices[] = {2, 3, 4, 5, 6, 7, 8, 10};
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    for (size_t i = 0; i < sizeof radices / sizeof *radices; i++)
        for (int done = 1; done <= 7; done += 6) {
            stage_check(&columns_leaf_sse2, radices[i], done);
            if (avx2)
                stage_check(&columns_leaf_avx2, radices[i], done);
            if (avx512)
                stage_check(&columns_leaf_avx512, radices[i], done);
        }
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    struct fft_columns *fft = NULL;
    assert_int_equal(fft_columns_create(&fft, 11, 8, 1), ERR_BAD_PARAMETER);
    assert_int_equal(fft_columns_create(&fft, 1, 8, 1), ERR_BAD_PARAMETER);
    assert_int_equal(fft_columns_create(&fft, 8, 5, 1), ERR_BAD_PARAMETER);
    assert_null(fft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transforms_match_the_sum),
        cmocka_unit_test(every_instruction_set_matches_the_sum),
        cmocka_unit_test(bad_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
