/* bench_nufft: the NUFFT on one device: JSON lines, one per measurement.
 *
 *   bench_nufft [--cpu] [--cases a,b,c,d,e] [--tolerances 1e-3,1e-5] [--width W] [--oversampling S] [--coils N]
 *               [--threads N] [--runs 11] [--no-error] [--ask]
 *
 * --ask: the CPU asks about once per millisecond whether to go on, as in a job (gridding/base/ask.h).
 *
 * Cases: tests/bench/nufft_cases.h.
 * --coils: transforms a call, in all cases. A time is a call's, from samples on the device to the finished image on the
 * device (or back), a plan for that way reused; create_ms is the plan's, from a trajectory in ordinary memory; bins_ms
 * is the part of it that the device takes to bin the trajectory once it is there; both are medians of 5 after the
 * first, which create_first_ms is of. "normal, in a chain of 20" (GPU): a call's share of 20 that are submitted one
 * after the other and waited for once, as an iterative solver's are. The error is the image's, relative l2, at 200
 * random pixels, against a double sum over all samples. peak_mib is the process'. */
#include "gridding/base/ask.h"
#include "gridding/nufft/normal.h"
#include "tests/bench/nufft_cases.h"

#include <sys/resource.h>

enum { PIXELS_CHECKED = 200, PLANS = 5, CHAIN = 20 };

/* Error of the last transform of the batch. */
static double image_error(const struct bench_case *c, const float *k, const struct c32 *data, const struct c32 *image)
{
    double off = 0, all = 0;
    size_t pixels = pixels_of(c);
    data += (size_t)(c->batch - 1) * c->samples;
    image += (size_t)(c->batch - 1) * pixels;
    for (int i = 0; i < PIXELS_CHECKED; i++) {
        size_t at[3], pixel = 0;
        double r[3] = {0, 0, 0}, re = 0, im = 0;
        for (int d = c->dim - 1; d >= 0; d--) {
            at[d] = (size_t)(uniform(31337 + (uint64_t)(i * 3 + d)) * c->n[d]);
            r[d] = (double)at[d] - c->n[d] / 2;
            pixel = pixel * (size_t)c->n[d] + at[d];
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

struct options {
    const char *cases, *tolerances;
    int width, coils, threads, runs;
    double oversampling;
    bool no_error, cpu, ask;
};

/* Seconds that creating plans took. */
struct creation {
    double first, median;
};

static void report(const struct options *o, const struct bench_case *c, struct dev *dev, double tolerance,
                   const char *what, const char *method, const struct nufft_info *info, struct creation create,
                   double *times, double error)
{
    double middle = median(times, o->runs);
    struct rusage usage;
    char digits[32];
    getrusage(RUSAGE_SELF, &usage);
    snprintf(digits, sizeof digits, "%.3g", error);
    printf(
        "{\"case\":\"%s\",\"coils\":%d,\"device\":\"%s\",\"threads\":%d,\"what\":\"%s\",\"tolerance\":%g,"
        "\"method\":\"%s\",\"products\":%d,\"width\":%d,"
        "\"oversampling\":%.3f,\"grid\":[%d,%d,%d],\"median_ms\":%.3f,\"least_ms\":%.3f,\"most_ms\":%.3f,\"runs\":%d,"
        "\"create_first_ms\":%.1f,\"create_ms\":%.1f,\"bins_ms\":%.3f,\"plan_mb\":%.1f,\"peak_mib\":%.1f,"
        "\"bins\":%zu,\"occupied\":%zu,\"largest_bin\":%zu,\"error\":%s}\n",
        c->id, c->batch, dev_name(dev), dev_threads(dev), what, tolerance, method, info->products, info->width,
        info->oversampling, info->grid[0], info->grid[1], info->grid[2], middle * 1e3, times[0] * 1e3,
        times[o->runs - 1] * 1e3, o->runs, create.first * 1e3, create.median * 1e3, info->binning * 1e3,
        (double)info->bytes / 1e6, (double)usage.ru_maxrss / 1024, info->bins, info->occupied_bins, info->largest_bin,
        isnan(error) ? "null" : digits);
    fflush(stdout);
}

/* Seconds that an application of the normal operator takes in a chain of `count`, waited for once; o->runs times. */
static void time_normal(struct dev *dev, const struct options *o, struct normal *normal, int batch, int count,
                        const struct c32 *image, struct c32 *result, double *times)
{
    for (int i = -2; i < o->runs; i++) {
        double start = clock_seconds();
        for (int n = 0; n < count; n++)
            must(normal_apply(normal, batch, image, result), "normal_apply");
        must(dev_finish(dev), "dev_finish");
        times[i < 0 ? 0 : i] = (clock_seconds() - start) / count;
    }
}

/* The normal operator's result on device_image compared with `expected`, computed with forward and adjoint. */
static void run_normal(struct dev *dev, const struct options *o, const struct bench_case *c,
                       const struct nufft_params *params, const float *k, const struct c32 *device_image,
                       struct c32 *device_result, const struct c32 *expected, double *times)
{
    struct normal *normal;
    struct normal_info info;
    double create = clock_seconds(), off = 0, all = 0;
    must(normal_create(&normal, dev, params, c->samples, k, NULL), "normal_create");
    create = clock_seconds() - create;
    normal_describe(normal, &info);
    double *chain = take((size_t)o->runs * sizeof *chain);
    time_normal(dev, o, normal, c->batch, 1, device_image, device_result, times);
    if (!o->cpu)
        time_normal(dev, o, normal, c->batch, CHAIN, device_image, device_result, chain);
    normal_free(normal);
    size_t values = (size_t)c->batch * pixels_of(c);
    struct c32 *result = take(values * sizeof *result);
    must(dev_download(dev, result, device_result, values * sizeof *result), "dev_download");
    for (size_t i = 0; i < values; i++) {
        off += pow((double)result[i].re - expected[i].re, 2) + pow((double)result[i].im - expected[i].im, 2);
        all += pow((double)expected[i].re, 2) + pow((double)expected[i].im, 2);
    }
    free(result);
    const struct nufft_info shown = {.grid = {info.grid[0], info.grid[1], info.grid[2]}, .bytes = info.bytes};
    const struct creation creation = {create, create};
    report(o, c, dev, params->tolerance, "normal (error: against forward and adjoint)", "convolution", &shown, creation,
           times, sqrt(off / all));
    if (!o->cpu) {
        char what[64];
        snprintf(what, sizeof what, "normal, in a chain of %d", CHAIN);
        report(o, c, dev, params->tolerance, what, "convolution", &shown, creation, chain, sqrt(off / all));
    }
    free(chain);
}

/* ---- a case ---- */

/* Creates several plans and returns the last; records its properties and the times of creation. */
static struct nufft *make_plan(struct dev *dev, const struct bench_case *c, const struct nufft_params *params,
                               const float *k, struct nufft_info *info, struct creation *create)
{
    double creates[PLANS], binnings[PLANS];
    struct nufft *plan = NULL;
    for (int i = -1; i < PLANS; i++) {
        nufft_free(plan);
        double start = clock_seconds();
        must(nufft_create(&plan, dev, params, c->samples, k), "nufft_create");
        start = clock_seconds() - start;
        create->first = i < 0 ? start : create->first;
        creates[i < 0 ? 0 : i] = start;
        nufft_describe(plan, info);
        binnings[i < 0 ? 0 : i] = info->binning;
    }
    create->median = median(creates, PLANS);
    info->binning = median(binnings, PLANS);
    return plan;
}

static void run_case(struct dev *dev, const struct options *o, const struct bench_case *c)
{
    size_t pixels = pixels_of(c), batch = (size_t)c->batch;
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
    for (const char *t = o->tolerances; t; t = next_of(t)) {
        struct nufft_params params = {
            .dim = c->dim, .n = {c->n[0], c->n[1], c->n[2]}, .tolerance = atof(t), .batch = c->batch};
        struct nufft_info info;
        struct nufft *plan;
        double error = NAN;
        struct creation create;
        params.width = o->width;
        params.oversampling = o->oversampling > 0 ? o->oversampling : o->width ? 2 : 0;
        plan = make_plan(dev, c, &params, k, &info, &create);
        for (int i = -2; i < o->runs; i++) {
            double start = clock_seconds();
            must(nufft_adjoint(plan, c->batch, device_data, device_image), "nufft_adjoint");
            times[i < 0 ? 0 : i] = clock_seconds() - start;
        }
        must(dev_download(dev, image, device_image, image_bytes), "dev_download");
        if (!o->no_error)
            error = image_error(c, k, data, image);
        const char *method = nufft_method_name(info.method);
        report(o, c, dev, params.tolerance, "adjoint", method, &info, create, times, error);
        nufft_free(plan);
        params.purpose = NUFFT_FOR_FORWARD;
        plan = make_plan(dev, c, &params, k, &info, &create);
        method = nufft_method_name(info.method);
        void *device_back, *device_back_image;
        must(dev_alloc(dev, data_bytes, &device_back), "dev_alloc");
        must(dev_alloc(dev, image_bytes, &device_back_image), "dev_alloc");
        for (int i = -2; i < o->runs; i++) {
            double start = clock_seconds();
            must(nufft_forward(plan, c->batch, device_image, device_back), "nufft_forward");
            times[i < 0 ? 0 : i] = clock_seconds() - start;
        }
        report(o, c, dev, params.tolerance, "forward", method, &info, create, times, NAN);
        /* The normal operator is compared with adjoint(forward(image)). */
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

/* As a worker's progress, which reads the clock. */
static int go_on(void *asked)
{
    *(double *)asked = clock_seconds();
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.cases = "a,b,c,d,e", .tolerances = "1e-3", .runs = 11};
    const struct bench_option known[] = {{"--no-error", .flag = &o.no_error},
                                         {"--cpu", .flag = &o.cpu},
                                         {"--ask", .flag = &o.ask},
                                         {"--cases", .text = &o.cases},
                                         {"--tolerances", .text = &o.tolerances},
                                         {"--width", .number = &o.width},
                                         {"--coils", .number = &o.coils},
                                         {"--threads", .number = &o.threads},
                                         {"--runs", .number = &o.runs},
                                         {"--oversampling", .real = &o.oversampling},
                                         {.name = NULL}};
    options_read(argc, argv, known);
    o.runs = o.runs > 0 ? o.runs : 1;
    struct dev *dev;
    double asked = 0;
    const struct dev_ask ask = {&asked, go_on};
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, o.threads), "dev_create");
    dev_ask_set(dev, o.ask ? &ask : NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (named(o.cases, cases[i].id)) {
            const struct bench_case c = with_coils(cases[i], o.coils, o.cpu);
            run_case(dev, &o, &c);
        }
    dev_free(dev);
    return 0;
}
