/* Vectors, differences, wavelets and low rank on a GPU: compared with the CPU, whose unit tests compare them with
 * formulas in double precision; adjointness; the same bits on every run. Prints TAP; without a GPU, reports everything
 * as skipped.
 */
#include "gridding/base/vec.h"
#include "gridding/sparse/sparse.h"
#include "tests/gpu/device_vector.h"

#include <math.h>
#include <string.h>

enum { COILS = 3, RUNS = 4 };

/* A sequence of calls on x[2 n], which leaves its results there and in *number. */
struct work {
    const char *name;
    void (*run)(struct dev *dev, struct c32 *x, double *number);
    size_t n;
    double allowed; /* allowed relative difference of the results: a few float32 roundings of each */
};

static void vectors(struct dev *dev, struct c32 *x, double *number)
{
    enum { N = 300007 };
    double part = 0;
    struct c32 *m = device_vector(dev, COILS * N, 3), *ym = device_vector(dev, COILS * N, 4), *y = x + N;
    float *squares = (float *)device_vector(dev, N, 5);
    must(vec_axpy(dev, N, 0.5f, x, y), "vec_axpy");
    must(vec_xpay(dev, N, x, -2, y), "vec_xpay");
    must(vec_scale(dev, N, 3, y), "vec_scale");
    must(vec_multiply(dev, N, COILS, m, x, ym), "vec_multiply");
    must(vec_multiply_conj_add(dev, N, COILS, m, ym, y), "vec_multiply_conj_add");
    must(vec_squares_add(dev, N, COILS, ym, squares), "vec_squares_add");
    must(vec_wave(dev, N, 0.37, squares, m), "vec_wave");
    must(vec_soft(dev, N, 0.4f, x), "vec_soft");
    must(vec_dot(dev, N, x, y, number), "vec_dot");
    must(vec_size_sum(dev, N, ym, &part), "vec_size_sum");
    *number += part;
    must(vec_multiply_conj_add(dev, N, 1, m, y, x), "vec_multiply_conj_add");
    dev_release(dev, squares);
    dev_release(dev, m);
    dev_release(dev, ym);
}

/* One map for several vectors, as of the field's segments. */
static void one_map(struct dev *dev, struct c32 *x, double *number)
{
    enum { N = 70001 };
    struct c32 *m = device_vector(dev, COILS * N, 3), *ym = device_vector(dev, COILS * N, 4);
    must(vec_multiply_each(dev, N, COILS, x, m, ym), "vec_multiply_each");
    must(vec_multiply_conj_add_each(dev, N, COILS, x + N, ym, m), "vec_multiply_conj_add_each");
    must(vec_dot(dev, COILS * N, ym, ym, number), "vec_dot");
    must(vec_multiply_conj_add(dev, N, COILS, m, ym, x), "vec_multiply_conj_add");
    dev_release(dev, m);
    dev_release(dev, ym);
}

/* Differences along some axes, the dual step, and the adjoint, in x. *number is g . D x less D' g . x on one device,
 * which is 0 up to rounding. */
static void differences_of(struct dev *dev, const int n[SPARSE_AXES], unsigned axes, struct c32 *x, double *number)
{
    const size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3];
    const int count = __builtin_popcount(axes);
    const size_t all = (size_t)count * pixels;
    struct c32 *g = device_vector(dev, all, 6), *p = device_vector(dev, all, 7), *r = device_vector(dev, all, 8);
    double left = 0, right = 0;
    must(sparse_difference(dev, n, axes, x, g), "sparse_difference");
    must(sparse_tv_step(dev, pixels, count, 0.3f, g, 0.4f, p, r), "sparse_tv_step");
    must(vec_dot(dev, all, g, r, &left), "vec_dot");
    must(sparse_difference_adjoint(dev, n, axes, NULL, 1, r, x + pixels), "sparse_difference_adjoint");
    must(vec_dot(dev, pixels, x, x + pixels, &right), "vec_dot");
    *number = left;
    verdict(fabs(left - right) < 1e-6 * (double)all, "differences are adjoint", dev_name(dev));
    must(sparse_difference_adjoint(dev, n, axes, x, -0.2f, p, x), "sparse_difference_adjoint");
    dev_release(dev, g);
    dev_release(dev, p);
    dev_release(dev, r);
}

static void differences_2d(struct dev *dev, struct c32 *x, double *number)
{
    differences_of(dev, (const int[]){201, 97, 1, 1}, 3, x, number);
}

static void differences_4d(struct dev *dev, struct c32 *x, double *number)
{
    differences_of(dev, (const int[]){9, 7, 5, 11}, 13, x, number);
}

static void differences_in_time(struct dev *dev, struct c32 *x, double *number)
{
    differences_of(dev, (const int[]){33, 20, 1, 17}, 8, x, number);
}

/* W x beside x, and W' of that shifted; |W x|^2 = |x|^2. */
static void wavelets_of(struct dev *dev, const int n[SPARSE_AXES], const int levels[SPARSE_AXES], struct c32 *x,
                        double *number)
{
    const size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3];
    double before = 0;
    must(vec_dot(dev, pixels, x, x, &before), "vec_dot");
    must(sparse_roll(dev, n, (const int[]){5, -3, 2, 1}, x, x + pixels), "sparse_roll");
    must(sparse_wavelet(dev, n, levels, x + pixels), "sparse_wavelet");
    must(vec_dot(dev, pixels, x + pixels, x + pixels, number), "vec_dot");
    verdict(fabs(*number - before) < 1e-5 * before, "wavelets are orthonormal", dev_name(dev));
    must(sparse_wavelet_inverse(dev, n, levels, x), "sparse_wavelet_inverse");
}

static void wavelets_2d(struct dev *dev, struct c32 *x, double *number)
{
    wavelets_of(dev, (const int[]){256, 96, 1, 1}, (const int[]){4, 2, 0, 0}, x, number);
}

static void wavelets_3d(struct dev *dev, struct c32 *x, double *number)
{
    wavelets_of(dev, (const int[]){32, 8, 16, 2}, (const int[]){2, 0, 3, 1}, x, number);
}

static void wavelets_small(struct dev *dev, struct c32 *x, double *number)
{
    wavelets_of(dev, (const int[]){4, 2, 1, 1}, (const int[]){2, 1, 0, 0}, x, number);
}

/* Blocks cut by the array's edge; some lose all singular values, one is not finite. */
static void low_rank_of(struct dev *dev, const int n[SPARSE_AXES], const int block[3], struct c32 *x, double *number)
{
    const size_t blocks = sparse_blocks(n, block);
    const struct c32 bad = {NAN, 0};
    must(dev_upload(dev, x + 1, &bad, sizeof bad), "dev_upload");
    must(sparse_low_rank(dev, n, block, 0, blocks / 2, 1.5f, x), "sparse_low_rank");
    must(sparse_low_rank(dev, n, block, blocks / 2, blocks - blocks / 2, 2.5f, x), "sparse_low_rank");
    must(sparse_low_rank(dev, n, block, blocks - 1, 1, 1000, x), "sparse_low_rank");
    must(dev_upload(dev, x + 1, &(struct c32){0, 0}, sizeof bad), "dev_upload");
    *number = 1;
}

static void few_frames(struct dev *dev, struct c32 *x, double *number)
{
    low_rank_of(dev, (const int[]){43, 37, 1, 13}, (const int[]){8, 8, 1}, x, number);
}

static void many_frames(struct dev *dev, struct c32 *x, double *number)
{
    low_rank_of(dev, (const int[]){13, 9, 1, 70}, (const int[]){8, 8, 1}, x, number);
}

static void blocks_3d(struct dev *dev, struct c32 *x, double *number)
{
    low_rank_of(dev, (const int[]){9, 10, 7, 20}, (const int[]){4, 4, 4}, x, number);
}

static const struct work works[] = {
    {"vectors", vectors, 300007, 1e-6},
    {"one map for several vectors", one_map, 70001, 1e-6},
    {"differences, 2-D", differences_2d, 201 * 97, 1e-6},
    {"differences, 4-D", differences_4d, 9 * 7 * 5 * 11, 1e-6},
    {"differences in time", differences_in_time, 33 * 20 * 17, 1e-6},
    {"wavelets, 2-D", wavelets_2d, 256 * 96, 1e-6},
    {"wavelets, 3-D", wavelets_3d, 32 * 8 * 16 * 2, 1e-6},
    {"wavelets, shorter than their taps", wavelets_small, 8, 1e-6},
    {"low rank, few frames", few_frames, 43 * 37 * 13, 1e-5},
    {"low rank, more frames than pixels", many_frames, 13 * 9 * 70, 1e-5},
    {"low rank, blocks of a volume", blocks_3d, 9 * 10 * 7 * 20, 1e-5},
};

static struct c32 *run(struct dev *dev, const struct work *work, double *number)
{
    struct c32 *x = device_vector(dev, 2 * work->n, 1), *host = take(2 * work->n * sizeof *host);
    work->run(dev, x, number);
    must(dev_download(dev, host, x, 2 * work->n * sizeof *host), "dev_download");
    dev_release(dev, x);
    return host;
}

int main(void)
{
    struct dev *gpu = tap_gpu(), *cpu = NULL;
    must(dev_create(&cpu, DEV_CPU, 0, 0), "dev_create");
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
        const struct work *work = &works[w];
        double number[RUNS + 1] = {0}, difference = 0, norm = 0;
        char why[100];
        bool same = true;
        struct c32 *here = run(gpu, work, &number[0]), *there = run(cpu, work, &number[RUNS]);
        for (size_t i = 0; i < 2 * work->n; i++) {
            difference += pow((double)here[i].re - there[i].re, 2) + pow((double)here[i].im - there[i].im, 2);
            norm += pow(there[i].re, 2) + pow(there[i].im, 2);
        }
        snprintf(why, sizeof why, "differ by %g, numbers %.15g and %.15g", sqrt(difference / norm), number[0],
                 number[RUNS]);
        verdict(sqrt(difference / norm) < work->allowed &&
                    fabs(number[0] - number[RUNS]) <= 1e-6 * fabs(number[RUNS]) + 1e-6,
                work->name, why);
        for (int i = 1; i < RUNS; i++) {
            struct c32 *again = run(gpu, work, &number[i]);
            same = same && number[i] == number[0] && memcmp(here, again, 2 * work->n * sizeof *here) == 0;
            free(again);
        }
        verdict(same, "the same bits again", work->name);
        free(there);
        free(here);
    }
    dev_free(cpu);
    dev_free(gpu);
    return tap_end();
}
