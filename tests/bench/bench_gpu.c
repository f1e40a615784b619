/* The NUFFT on a GPU: JSON lines, one per measurement.
 *
 *   bench_gpu [--cases abcde] [--tolerances 1e-3,1e-5] [--width W] [--coils N] [--runs 11] [--no-error]
 *             [--cpu]
 *
 * Cases (fixed seeds):
 *   a  2,655,910 samples, 3-D golden-means kooshball, full-diameter spokes of 256 samples, image 128^3
 *   b  30,144,488 samples, the same with spokes of 576, image 288^3
 *   c  30,144,488 Gaussian samples (sd 16/128 of k-space per axis, redrawn out of range), random order, image 64^3
 *   d  golden angle 111.25 degrees, 402 spokes x 512 samples, image 256^2, 16 coils x 100 frames on one trajectory
 *   e  10,000,000 uniform random samples, image 256^3
 * --coils: transforms a call, in all cases. A time is a call's, from samples on the device to the finished image on the
 * device (or back), plan reused; create_ms is the plan's, from a trajectory in ordinary memory; bins_ms is the part of
 * it that the device takes to bin the trajectory once it is there; both are medians of 5 after 1. The error is the
 * image's, relative l2, at 100 random pixels, against a double sum over all samples. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/normal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench_case {
    char id;
    int dim, n, batch, readout;
    size_t samples;
};

static const struct bench_case cases[] = {
    {'a', 3, 128, 1, 256, 2655910},   {'b', 3, 288, 1, 576, 30144488}, {'c', 3, 64, 1, 0, 30144488},
    {'d', 2, 256, 1600, 512, 205824}, {'e', 3, 256, 1, 0, 10000000},
};

static uint64_t splitmix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t seed)
{
    return ((double)(splitmix(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static double gaussian(uint64_t seed)
{
    return sqrt(-2 * log(uniform(2 * seed + 1))) * cos(2 * M_PI * uniform(2 * seed + 2));
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "bench_gpu: %s: %s: %s\n", what, err_name(code), err_last()->text);
        exit(1);
    }
}

static void *take(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) {
        fprintf(stderr, "bench_gpu: not enough memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static void fill_k(const struct bench_case *c, float *k)
{
#pragma omp parallel for schedule(static, 4096)
    for (size_t m = 0; m < c->samples; m++) {
        float *to = k + m * (size_t)c->dim;
        size_t spoke = c->readout ? m / (size_t)c->readout : 0, place = c->readout ? m % (size_t)c->readout : 0;
        double r = c->readout ? ((double)place - c->readout / 2) / c->readout : 0;
        if (c->id == 'd') {
            double angle = (double)spoke * 111.246117975 / 180 * M_PI;
            to[0] = (float)(r * cos(angle));
            to[1] = (float)(r * sin(angle));
        } else if (c->readout) {
            double z = fmod((double)spoke * 0.46557123187676802, 1),
                   turn = fmod((double)spoke * 0.68232780382801932, 1);
            double across = sqrt(1 - z * z);
            to[0] = (float)(r * across * cos(2 * M_PI * turn));
            to[1] = (float)(r * across * sin(2 * M_PI * turn));
            to[2] = (float)(r * z);
        } else {
            for (int d = 0; d < 3; d++) {
                uint64_t seed = (m * 3 + (size_t)d) * 16;
                double v = uniform(seed) - 0.5;
                if (c->id == 'c')
                    do
                        v = gaussian(seed++) * 16 / 128;
                    while (v < -0.5 || v >= 0.49999);
                to[d] = (float)v;
            }
        }
    }
}

static void fill_data(struct c32 *to, size_t count)
{
#pragma omp parallel for schedule(static, 4096)
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = splitmix(i + 123456789);
        to[i] = (struct c32){(float)(int32_t)bits * 0x1p-31f, (float)(int32_t)(bits >> 32) * 0x1p-31f};
    }
}

enum { PIXELS_CHECKED = 100, PLANS = 5 };

/* Of the last transform of the batch. */
static double image_error(const struct bench_case *c, const float *k, const struct c32 *data, const struct c32 *image)
{
    double off = 0, all = 0;
    size_t pixels = (size_t)c->n * (size_t)c->n * (size_t)(c->dim == 3 ? c->n : 1);
    data += (size_t)(c->batch - 1) * c->samples;
    image += (size_t)(c->batch - 1) * pixels;
    for (int i = 0; i < PIXELS_CHECKED; i++) {
        size_t at[3], pixel = 0;
        double r[3] = {0, 0, 0}, re = 0, im = 0;
        for (int d = c->dim - 1; d >= 0; d--) {
            at[d] = (size_t)(uniform(31337 + (uint64_t)(i * 3 + d)) * c->n);
            r[d] = (double)at[d] - c->n / 2;
            pixel = pixel * (size_t)c->n + at[d];
        }
#pragma omp parallel for reduction(+ : re, im)
        for (size_t m = 0; m < c->samples; m++) {
            double turns = 0, s, co;
            for (int d = 0; d < c->dim; d++)
                turns += (double)k[m * (size_t)c->dim + (size_t)d] * r[d];
            turns -= floor(turns);
            sincos(2 * M_PI * turns, &s, &co);
            re += data[m].re * co - data[m].im * s;
            im += data[m].re * s + data[m].im * co;
        }
        off += pow(image[pixel].re - re, 2) + pow(image[pixel].im - im, 2);
        all += re * re + im * im;
    }
    return sqrt(off / all);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct options {
    const char *cases, *tolerances;
    int width, coils, runs;
    bool error, cpu;
};

static void report(const struct options *o, const struct bench_case *c, struct dev *dev, double tolerance,
                   const char *what, const struct nufft_info *info, double create, double *times, double error)
{
    qsort(times, (size_t)o->runs, sizeof *times, by_value);
    printf("{\"case\":\"%c\",\"coils\":%d,\"device\":\"%s\",\"what\":\"%s\",\"tolerance\":%g,\"width\":%d,\"grid\":[%d,"
           "%d,%d],"
           "\"median_ms\":%.3f,"
           "\"least_ms\":%.3f,\"most_ms\":%.3f,\"runs\":%d,\"create_ms\":%.1f,\"bins_ms\":%.3f,\"device_mb\":%.1f,"
           "\"bins\":%zu,"
           "\"occupied\":%zu,"
           "\"largest_bin\":%zu,\"error\":%.3g}\n",
           c->id, c->batch, dev_name(dev), what, tolerance, info->width, info->grid[0], info->grid[1], info->grid[2],
           times[o->runs / 2] * 1e3, times[0] * 1e3, times[o->runs - 1] * 1e3, o->runs, create * 1e3,
           info->binning * 1e3, (double)info->bytes / 1e6, info->bins, info->occupied_bins, info->largest_bin, error);
    fflush(stdout);
}

/* The normal operator on device_image against `expected`, which forward and adjoint made of it. */
static void run_normal(struct dev *dev, const struct options *o, const struct bench_case *c,
                       const struct nufft_params *params, const float *k, const struct c32 *device_image,
                       struct c32 *device_result, const struct c32 *expected, double *times)
{
    struct normal *normal;
    struct normal_info info;
    double create = seconds(), off = 0, all = 0;
    must(normal_create(&normal, dev, params, c->samples, k, NULL), "normal_create");
    create = seconds() - create;
    normal_describe(normal, &info);
    for (int i = -2; i < o->runs; i++) {
        double start = seconds();
        must(normal_apply(normal, c->batch, device_image, device_result), "normal_apply");
        times[i < 0 ? 0 : i] = seconds() - start;
    }
    normal_free(normal);
    size_t values = (size_t)c->batch * (size_t)c->n * (size_t)c->n * (size_t)(c->dim == 3 ? c->n : 1);
    struct c32 *result = take(values * sizeof *result);
    must(dev_download(dev, result, device_result, values * sizeof *result), "dev_download");
    for (size_t i = 0; i < values; i++) {
        off += pow((double)result[i].re - expected[i].re, 2) + pow((double)result[i].im - expected[i].im, 2);
        all += pow((double)expected[i].re, 2) + pow((double)expected[i].im, 2);
    }
    free(result);
    const struct nufft_info shown = {.grid = {info.grid[0], info.grid[1], info.grid[2]}, .bytes = info.bytes};
    report(o, c, dev, params->tolerance, "normal (error: against forward and adjoint)", &shown, create, times,
           sqrt(off / all));
}

static void run_case(struct dev *dev, const struct options *o, const struct bench_case *c)
{
    size_t pixels = (size_t)c->n * (size_t)c->n * (size_t)(c->dim == 3 ? c->n : 1), batch = (size_t)c->batch;
    size_t data_bytes = batch * c->samples * sizeof(struct c32), image_bytes = batch * pixels * sizeof(struct c32);
    float *k = take(c->samples * (size_t)c->dim * sizeof *k);
    struct c32 *data = take(data_bytes), *image = take(image_bytes), *back = take(image_bytes);
    void *device_data, *device_image;
    double *times = take((size_t)o->runs * sizeof *times);
    fill_k(c, k);
    fill_data(data, batch * c->samples);
    must(dev_alloc(dev, data_bytes, &device_data), "dev_alloc");
    must(dev_alloc(dev, image_bytes, &device_image), "dev_alloc");
    must(dev_upload(dev, device_data, data, data_bytes), "dev_upload");
    for (const char *t = o->tolerances; t; t = strchr(t, ',') ? strchr(t, ',') + 1 : NULL) {
        struct nufft_params params = {
            .dim = c->dim, .n = {c->n, c->n, c->dim == 3 ? c->n : 1}, .tolerance = atof(t), .batch = c->batch};
        struct nufft_info info;
        struct nufft *plan = NULL;
        double create = 0, error = NAN;
        params.width = o->width;
        params.oversampling = o->width ? 2 : 0;
        double creates[PLANS], binnings[PLANS];
        for (int i = -1; i < PLANS; i++) {
            nufft_free(plan);
            double start = seconds();
            must(nufft_create(&plan, dev, &params, c->samples, k), "nufft_create");
            creates[i < 0 ? 0 : i] = seconds() - start;
            nufft_describe(plan, &info);
            binnings[i < 0 ? 0 : i] = info.binning;
        }
        qsort(creates, PLANS, sizeof *creates, by_value);
        qsort(binnings, PLANS, sizeof *binnings, by_value);
        create = creates[PLANS / 2];
        info.binning = binnings[PLANS / 2];
        for (int i = -2; i < o->runs; i++) {
            double start = seconds();
            must(nufft_adjoint(plan, c->batch, device_data, device_image), "nufft_adjoint");
            times[i < 0 ? 0 : i] = seconds() - start;
        }
        must(dev_download(dev, image, device_image, image_bytes), "dev_download");
        if (o->error)
            error = image_error(c, k, data, image);
        report(o, c, dev, params.tolerance, "adjoint", &info, create, times, error);
        void *device_back, *device_back_image;
        must(dev_alloc(dev, data_bytes, &device_back), "dev_alloc");
        must(dev_alloc(dev, image_bytes, &device_back_image), "dev_alloc");
        for (int i = -2; i < o->runs; i++) {
            double start = seconds();
            must(nufft_forward(plan, c->batch, device_image, device_back), "nufft_forward");
            times[i < 0 ? 0 : i] = seconds() - start;
        }
        report(o, c, dev, params.tolerance, "forward", &info, create, times, NAN);
        /* What the normal operator is compared with: adjoint(forward(image)). */
        must(nufft_adjoint(plan, c->batch, device_back, device_back_image), "nufft_adjoint");
        must(dev_download(dev, back, device_back_image, image_bytes), "dev_download");
        nufft_free(plan);
        dev_release(dev, device_back);
        run_normal(dev, o, c, &params, k, device_image, device_back_image, back, times);
        dev_release(dev, device_back_image);
    }
    dev_release(dev, device_data);
    dev_release(dev, device_image);
    free(times);
    free(k);
    free(data);
    free(image);
    free(back);
}

int main(int argc, char **argv)
{
    struct options o = {.cases = "abcde", .tolerances = "1e-3", .runs = 11, .error = true};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-error") == 0)
            o.error = false;
        else if (strcmp(argv[i], "--cpu") == 0)
            o.cpu = true;
        else if (strcmp(argv[i], "--cases") == 0 && ++i)
            o.cases = value;
        else if (strcmp(argv[i], "--tolerances") == 0 && ++i)
            o.tolerances = value;
        else if (strcmp(argv[i], "--width") == 0 && ++i)
            o.width = atoi(value);
        else if (strcmp(argv[i], "--coils") == 0 && ++i)
            o.coils = atoi(value);
        else if (strcmp(argv[i], "--runs") == 0 && ++i)
            o.runs = atoi(value) > 0 ? atoi(value) : 1;
        else {
            fprintf(stderr, "bench_gpu: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    struct dev *dev;
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, 0), "dev_create");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strchr(o.cases, cases[i].id)) {
            struct bench_case c = cases[i];
            c.batch = o.coils > 0 ? o.coils : c.batch;
            run_case(dev, &o, &c);
        }
    dev_free(dev);
    return 0;
}
