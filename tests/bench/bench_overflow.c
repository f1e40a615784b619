/* Bins of limited depth on a GPU, with the overflow gridded by the CPU: the time for every depth, for the depth that
 * the plan chooses, and for dividing heavy bins on the GPU instead. JSON lines.
 *
 *   bench_overflow [--scans kgu] [--samples 2000000] [--size 128] [--coils 1] [--tolerance 1e-3] [--radial] [--runs 7]
 *
 * Scans (fixed seeds), all 3-D:
 *   k  golden-means kooshball, full-diameter spokes of 2 x size samples
 *   g  Gaussian, sd 16/128 of k-space per axis, random order
 *   u  uniform
 * A time is nufft_adjoint's, samples and image on the device, plan reused: the median of the runs. The last line of a
 * scan compares the depth chosen with the best of the sweep. */
#include "gridding/nufft/nufft.h"
#include "tests/bench/bench.h"

struct options {
    const char *scans;
    size_t samples;
    int size, coils, runs;
    double tolerance;
    bool radial;
};

struct bench {
    const struct options *options;
    struct dev *dev;
    char scan;
    const float *k;
    void *data, *image;
};

static void fill_k(char scan, const struct options *o, float *k)
{
#pragma omp parallel for schedule(static, 4096)
    for (size_t m = 0; m < o->samples; m++) {
        double at[3];
        if (scan == 'k')
            koosh_sample(2 * (size_t)o->size, m, at);
        else
            for (int d = 0; d < 3; d++)
                at[d] = random_sample(m, d, scan == 'g' ? 16.0 / 128 : 0);
        for (int d = 0; d < 3; d++)
            k[3 * m + (size_t)d] = (float)at[d];
    }
}

/* Make a plan, run it and print a line; returns the median time. */
static double measure(const struct bench *b, enum nufft_overflow overflow, int depth, const char *name,
                      struct nufft_info *info)
{
    const struct options *o = b->options;
    struct nufft_params params = {.dim = 3, .n = {o->size, o->size, o->size}, .tolerance = o->tolerance};
    struct nufft *plan = NULL;
    struct nufft_times times = {0}, sum = {0};
    double *taken = take((size_t)o->runs * sizeof *taken), create = clock_seconds(), middle;
    params.kernel = o->radial ? NUFFT_RADIAL : NUFFT_SEPARABLE;
    params.batch = o->coils;
    params.overflow = overflow;
    params.bin_depth = depth;
    must(nufft_create(&plan, b->dev, &params, o->samples, b->k), "nufft_create");
    create = clock_seconds() - create;
    nufft_describe(plan, info);
    for (int i = -2; i < o->runs; i++) {
        double start = clock_seconds();
        must(nufft_adjoint(plan, o->coils, b->data, b->image), "nufft_adjoint");
        if (i < 0)
            continue;
        taken[i] = clock_seconds() - start;
        nufft_times(plan, &times);
        sum.gpu += times.gpu / o->runs;
        sum.cpu += times.cpu / o->runs;
        sum.merge += times.merge / o->runs;
        sum.hidden += times.hidden / o->runs;
    }
    nufft_free(plan);
    middle = median(taken, o->runs);
    printf("{\"scan\":\"%c\",\"samples\":%zu,\"size\":%d,\"coils\":%d,\"tolerance\":%g,\"kernel\":\"%s\",\"width\":%d,"
           "\"what\":\"%s\",\"depth\":%zu,\"overflowed\":%zu,\"largest_bin\":%zu,\"median_ms\":%.3f,\"least_ms\":%.3f,"
           "\"gpu_ms\":%.3f,\"cpu_ms\":%.3f,\"merge_ms\":%.3f,\"hidden\":%.3f,\"create_ms\":%.1f,\"runs\":%d,"
           "\"device\":\"%s\",\"threads\":%d}\n",
           b->scan, o->samples, o->size, o->coils, o->tolerance, o->radial ? "radial" : "separable", info->width, name,
           info->depth, info->overflowed, info->largest_bin, middle * 1e3, taken[0] * 1e3, sum.gpu * 1e3, sum.cpu * 1e3,
           sum.merge * 1e3, sum.cpu > 0 ? sum.hidden / sum.cpu : 0, create * 1e3, o->runs, dev_name(b->dev),
           dev_threads(b->dev));
    fflush(stdout);
    free(taken);
    return middle;
}

static void sweep(const struct bench *b)
{
    struct nufft_info info;
    double split = measure(b, NUFFT_SPLIT, NUFFT_DEPTH_AUTO, "split", &info);
    double best = measure(b, NUFFT_OVERFLOW_CPU, NUFFT_DEPTH_NONE, "none", &info);
    size_t best_depth = 0;
    for (size_t depth = 1, largest = info.largest_bin; depth < largest; depth *= 2) {
        double taken = measure(b, NUFFT_OVERFLOW_CPU, (int)depth, "cpu", &info);
        if (taken < best) {
            best = taken;
            best_depth = depth;
        }
    }
    double chosen = measure(b, NUFFT_OVERFLOW_CPU, NUFFT_DEPTH_AUTO, "auto", &info);
    printf("{\"scan\":\"%c\",\"what\":\"choice\",\"best_depth\":%zu,\"best_ms\":%.3f,\"auto_depth\":%zu,"
           "\"auto_ms\":%.3f,\"auto_over_best\":%.3f,\"split_ms\":%.3f}\n",
           b->scan, best_depth, best * 1e3, info.depth, chosen * 1e3, chosen / best, split * 1e3);
    fflush(stdout);
}

static void run_scan(struct dev *dev, const struct options *o, char scan)
{
    size_t coils = (size_t)o->coils, data_bytes = coils * o->samples * sizeof(struct c32),
           image_bytes = coils * (size_t)o->size * (size_t)o->size * (size_t)o->size * sizeof(struct c32);
    float *k = take(o->samples * 3 * sizeof *k);
    struct c32 *data = take(data_bytes);
    struct bench b = {o, dev, scan, k, NULL, NULL};
    fill_k(scan, o, k);
    for (size_t i = 0; i < coils * o->samples; i++)
        data[i] = random_data(i);
    must(dev_alloc(dev, data_bytes, &b.data), "dev_alloc");
    must(dev_alloc(dev, image_bytes, &b.image), "dev_alloc");
    must(dev_upload(dev, b.data, data, data_bytes), "dev_upload");
    sweep(&b);
    dev_release(dev, b.data);
    dev_release(dev, b.image);
    free(data);
    free(k);
}

int main(int argc, char **argv)
{
    struct options o = {.scans = "kgu", .samples = 2000000, .size = 128, .coils = 1, .runs = 7, .tolerance = 1e-3};
    const struct bench_option known[] = {{"--radial", .flag = &o.radial},   {"--scans", .text = &o.scans},
                                         {"--samples", .size = &o.samples}, {"--size", .number = &o.size},
                                         {"--coils", .number = &o.coils},   {"--tolerance", .real = &o.tolerance},
                                         {"--runs", .number = &o.runs},     {.name = NULL}};
    options_read(argc, argv, known);
    o.coils = o.coils > 0 ? o.coils : 1;
    o.runs = o.runs > 0 ? o.runs : 1;
    struct dev *dev;
    must(dev_create(&dev, DEV_GPU, 0, 0), "dev_create");
    for (const char *scan = o.scans; *scan; scan++)
        if (strchr("kgu", *scan))
            run_scan(dev, &o, *scan);
    dev_free(dev);
    return 0;
}
