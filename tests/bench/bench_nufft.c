/* bench_nufft: the gridding of one device on the cases of docs/benchmarks.md, one JSON line each.
 *
 *   bench_nufft [case=a|b|c|d|e|small] [tolerance=1e-3] [threads=N] [repeats=N] [width=W] [oversampling=S]
 * [device=cpu|gpu]
 *
 * create: bins, tables, FFT plans; adjoint and forward: medians of `repeats`, the plan reused; error: relative l2 of
 * the adjoint's image against a double sum over all samples at 200 pixels (first transform); peak: of the process.
 */
#include "gridding/base/err.h"
#include "gridding/nufft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PI 3.14159265358979323846

struct work {
    const char *name;
    int dim, n[3], batch;
    size_t samples;
    float *k;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double uniform(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

static double gaussian(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(2 * PI * uniform());
}

/* Golden-means kooshball (doi:10.1002/mrm.21166): full-diameter spokes of `length` samples. */
static void kooshball(struct work *w, size_t length)
{
    for (size_t m = 0; m < w->samples; m++) {
        double spoke = (double)(m / length), z = fmod(spoke * 0.4656, 1), turn = 2 * PI * fmod(spoke * 0.6823, 1);
        double r = ((double)(m % length) - (double)(length / 2)) / (double)length, s = sqrt(1 - z * z);
        w->k[3 * m] = (float)(r * s * cos(turn));
        w->k[3 * m + 1] = (float)(r * s * sin(turn));
        w->k[3 * m + 2] = (float)(r * z);
    }
}

static void golden(struct work *w, size_t length)
{
    for (size_t m = 0; m < w->samples; m++) {
        double angle = (double)(m / length) * 111.246117975 * PI / 180;
        double r = ((double)(m % length) - (double)(length / 2)) / (double)length;
        w->k[2 * m] = (float)(r * cos(angle));
        w->k[2 * m + 1] = (float)(r * sin(angle));
    }
}

static int make_work(struct work *w, const char *name)
{
    static const struct work table[] = {
        {"a", 3, {128, 128, 128}, 1, 2655910, NULL},  {"b", 3, {288, 288, 288}, 1, 30144488, NULL},
        {"c", 3, {64, 64, 64}, 1, 30144488, NULL},    {"d", 2, {256, 256, 1}, 16, (size_t)402 * 512, NULL},
        {"e", 3, {256, 256, 256}, 1, 10000000, NULL}, {"small", 2, {128, 128, 1}, 1, (size_t)201 * 256, NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            *w = table[i];
    if (w->name == NULL)
        return -1;
    size_t numbers = w->samples * (size_t)w->dim;
    w->k = malloc(numbers * sizeof *w->k);
    if (w->k == NULL)
        return -1;
    if (*name == 'a' || *name == 'b')
        kooshball(w, *name == 'a' ? 256 : 576);
    else if (*name == 'd' || *name == 's')
        golden(w, *name == 'd' ? 512 : 256);
    else
        for (size_t i = 0; i < numbers; i++)
            do
                w->k[i] = (float)(*name == 'c' ? gaussian() * 16 / 128 : uniform() - 0.5);
            while (fabsf(w->k[i]) >= 0.5f);
    return 0;
}

static double error_at_pixels(const struct work *w, const struct c32 *data, const struct c32 *image)
{
    double off = 0, all = 0;
    for (int probe = 0; probe < 200; probe++) {
        int at[3] = {0, 0, 0};
        for (int d = 0; d < w->dim; d++)
            at[d] = (int)(uniform() * w->n[d]);
        double re = 0, im = 0;
#pragma omp parallel for reduction(+ : re, im)
        for (size_t m = 0; m < w->samples; m++) {
            double turns = 0;
            for (int d = 0; d < w->dim; d++)
                turns += (double)w->k[m * (size_t)w->dim + (size_t)d] * (at[d] - w->n[d] / 2);
            float angle = (float)(2 * PI * (turns - rint(turns)));
            float c = cosf(angle), s = sinf(angle);
            re += (double)data[m].re * c - (double)data[m].im * s;
            im += (double)data[m].re * s + (double)data[m].im * c;
        }
        struct c32 got = image[((size_t)at[2] * (size_t)w->n[1] + (size_t)at[1]) * (size_t)w->n[0] + (size_t)at[0]];
        off += (re - got.re) * (re - got.re) + (im - got.im) * (im - got.im);
        all += re * re + im * im;
    }
    return sqrt(off / all);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static const char *option(int argc, char **argv, const char *name, const char *fallback)
{
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
    return fallback;
}

int main(int argc, char **argv)
{
    enum { MOST = 99 };
    struct work w = {0};
    if (make_work(&w, option(argc, argv, "case", "small")) != 0) {
        fprintf(stderr, "bench_nufft: case is a, b, c, d, e or small\n");
        return 2;
    }
    int repeats = atoi(option(argc, argv, "repeats", "11"));
    repeats = repeats < 1 ? 1 : repeats > MOST ? MOST : repeats;
    struct dev *dev = NULL;
    struct nufft *plan = NULL;
    bool gpu = strcmp(option(argc, argv, "device", "cpu"), "gpu") == 0;
    if (dev_create(&dev, gpu ? DEV_GPU : DEV_CPU, 0, atoi(option(argc, argv, "threads", "0"))) != 0)
        goto failed;
    struct nufft_params params = {.dim = w.dim,
                                  .n = {w.n[0], w.n[1], w.n[2]},
                                  .tolerance = atof(option(argc, argv, "tolerance", "1e-3")),
                                  .width = atoi(option(argc, argv, "width", "0")),
                                  .oversampling = atof(option(argc, argv, "oversampling", "0")),
                                  .batch = w.batch};
    size_t pixels = (size_t)w.n[0] * (size_t)w.n[1] * (size_t)w.n[2], batch = (size_t)w.batch;
    size_t data_bytes = batch * w.samples * sizeof(struct c32), image_bytes = batch * pixels * sizeof(struct c32);
    struct c32 *host = malloc(data_bytes), *image = malloc(image_bytes);
    void *data = NULL, *pixels_there = NULL;
    if (host == NULL || image == NULL || dev_alloc(dev, data_bytes, &data) != 0 ||
        dev_alloc(dev, image_bytes, &pixels_there) != 0)
        goto failed;
    for (size_t i = 0; i < batch * w.samples; i++)
        host[i] = (struct c32){(float)(uniform() - 0.5), (float)(uniform() - 0.5)};
    double create[MOST], adjoint[MOST], forward[MOST], first = 0;
    for (int i = 0; i < (repeats < 3 ? repeats : 3); i++) {
        nufft_free(plan);
        plan = NULL;
        double start = now();
        if (nufft_create(&plan, dev, &params, w.samples, w.k) != 0)
            goto failed;
        create[i] = now() - start;
        first = i == 0 ? create[0] : first;
    }
    if (dev_upload(dev, data, host, data_bytes) != 0)
        goto failed;
    for (int i = -1; i < repeats; i++) {
        double start = now();
        if (nufft_adjoint(plan, w.batch, data, pixels_there) != 0)
            goto failed;
        adjoint[i < 0 ? 0 : i] = now() - start;
    }
    if (dev_download(dev, image, pixels_there, image_bytes) != 0)
        goto failed;
    for (int i = -1; i < repeats; i++) {
        double start = now();
        if (nufft_forward(plan, w.batch, pixels_there, data) != 0)
            goto failed;
        forward[i < 0 ? 0 : i] = now() - start;
    }
    struct nufft_info info;
    struct rusage usage;
    nufft_describe(plan, &info);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"case\": \"%s\", \"device\": \"%s\", \"tolerance\": %g, \"width\": %d, \"oversampling\": %.3f, \"grid\": "
           "[%d, %d, %d], "
           "\"transforms\": %d, \"samples\": %zu, \"create_first_s\": %.5f, \"create_s\": %.5f, \"adjoint_s\": %.5f, "
           "\"forward_s\": %.5f, "
           "\"error\": %.2e, \"plan_mib\": %.1f, \"peak_mib\": %.1f}\n",
           w.name, dev_name(dev), params.tolerance, info.width, info.oversampling, info.grid[0], info.grid[1],
           info.grid[2], w.batch, w.samples, first, median(create, repeats < 3 ? repeats : 3), median(adjoint, repeats),
           median(forward, repeats), error_at_pixels(&w, host, image), (double)info.bytes / 1048576,
           (double)usage.ru_maxrss / 1024);
    dev_release(dev, data);
    dev_release(dev, pixels_there);
    free(host);
    free(image);
    free(w.k);
    nufft_free(plan);
    dev_free(dev);
    return 0;
failed:
    fprintf(stderr, "bench_nufft: %s\n", err_last()->text);
    return 1;
}
