/* bench_nufft: the NUFFT on one device: JSON lines, one per measurement.
 *
 *   bench_nufft [--cpu] [--cases a,b,c,d,e] [--tolerances 1e-3,1e-5] [--width W] [--oversampling S] [--coils N]
 *               [--threads N] [--runs 11] [--no-error] [--ask] [--search]
 *
 * --search: what the choice of width, oversampling and method is worth: every one of them that keeps the tolerance is
 * tried and told, and then the fastest adjoint and forward transform, and both together, beside those of the plans that
 * are chosen for them, these and the fastest timed again in turn.
 *
 * --ask: the CPU asks about once per millisecond whether to go on, as in a job (gridding/base/ask.h).
 *
 * Cases: tests/bench/nufft_cases.h.
 * --coils: transforms a call, in all cases. A time is a call's, from samples on the device to the finished image on the
 * device (or back), a plan for that way reused; create_ms is the plan's, from a trajectory in ordinary memory; bins_ms
 * is the part of it that the device takes to bin the trajectory once it is there; both are medians of 5 after the
 * first, which create_first_ms is of. The error is the image's, relative l2, at 200 random pixels, against a double sum
 * over all samples. peak_mib is the process'. */
#include "gridding/base/ask.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/nufft/normal.h"
#include "gridding/nufft/nufft_leaf.h"
#include "tests/bench/nufft_cases.h"

#include <string.h>
#include <sys/resource.h>

enum { PIXELS_CHECKED = 200, PLANS = 5, CPU_FRAME = 16 };

static size_t pixels_of(const struct bench_case *c)
{
    return (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
}

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
    bool error, cpu, ask, search;
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
    for (int i = -2; i < o->runs; i++) {
        double start = clock_seconds();
        must(normal_apply(normal, c->batch, device_image, device_result), "normal_apply");
        must(dev_finish(dev), "dev_finish");
        times[i < 0 ? 0 : i] = clock_seconds() - start;
    }
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
    report(o, c, dev, params->tolerance, "normal (error: against forward and adjoint)", "convolution", &shown,
           (struct creation){create, create}, times, sqrt(off / all));
}

/* ---- the search ---- */

enum { PURPOSES = 3, OVERSAMPLINGS_MOST = 64, PLANS_MOST = 2000 };
static const char *const purpose_names[PURPOSES] = {"adjoint", "forward", "both"};

/* A plan for a purpose: the one that is chosen, or the fastest that the search found. */
struct fastest {
    double seconds;
    struct nufft_info info;
    struct nufft_params params; /* that make it again */
};

/* Median times of an adjoint, a forward transform, and their sum; INFINITY: more than twice that of the fastest.
 * Returns false if the plan does not use the requested method or does not meet the tolerance. */
static bool time_plan(struct dev *dev, const struct bench_case *c, const struct nufft_params *params, const float *k,
                      const struct fastest best[PURPOSES], struct c32 *data, struct c32 *image, struct nufft_info *info,
                      double seconds[PURPOSES])
{
    enum { RUNS = 7, RUNS_MOST = 41 };
    const double brief = 1e-3; /* s: of transforms below it there are more runs */
    struct nufft *plan;
    must(nufft_create(&plan, dev, params, c->samples, k), "nufft_create");
    nufft_describe(plan, info);
    bool counts = info->expected_error <= params->tolerance && (params->method == 0 || info->method == params->method);
    seconds[NUFFT_FOR_BOTH] = 0;
    for (int way = 0; counts && way < 2; way++) {
        double times[RUNS_MOST], most = 0;
        int runs = RUNS;
        for (int i = -2; i < runs && most < 2 * best[way].seconds; i++) {
            double start = clock_seconds();
            must(way ? nufft_forward(plan, c->batch, image, data) : nufft_adjoint(plan, c->batch, data, image),
                 "a transform");
            times[i < 0 ? 0 : i] = clock_seconds() - start;
            most = i == -1 ? times[0] : i < 0 ? 0 : most;
            runs = most > 0 && most < brief ? RUNS_MOST : RUNS;
        }
        seconds[way] = most < 2 * best[way].seconds ? median(times, runs) : INFINITY;
        seconds[NUFFT_FOR_BOTH] += seconds[way];
    }
    nufft_free(plan);
    return counts;
}

static void tell_search(const struct bench_case *c, double tolerance, const char *what, const struct fastest *ours,
                        const struct fastest *best, int tried)
{
    const struct nufft_info *a = &ours->info, *b = &best->info;
    printf("{\"case\":\"%s\",\"what\":\"search, %s\",\"tolerance\":%g,\"plans\":%d,\"ms\":%.3f,\"method\":\"%s\","
           "\"products\":%d,\"width\":%d,\"grid\":[%d,%d,%d],\"best_ms\":%.3f,\"best_method\":\"%s\","
           "\"best_products\":%d,\"best_width\":%d,\"best_grid\":[%d,%d,%d],\"over_best\":%.3f}\n",
           c->id, what, tolerance, tried, ours->seconds * 1e3, nufft_method_name(a->method), a->products, a->width,
           a->grid[0], a->grid[1], a->grid[2], best->seconds * 1e3, nufft_method_name(b->method), b->products, b->width,
           b->grid[0], b->grid[1], b->grid[2], ours->seconds / best->seconds);
    fflush(stdout);
}

static void tell_plan(const struct bench_case *c, double tolerance, const struct nufft_info *info,
                      const double seconds[PURPOSES])
{
    printf("{\"case\":\"%s\",\"what\":\"plan\",\"tolerance\":%g,\"method\":\"%s\",\"products\":%d,\"width\":%d,"
           "\"grid\":[%d,%d,%d],\"bins\":%zu",
           c->id, tolerance, nufft_method_name(info->method), info->products, info->width, info->grid[0], info->grid[1],
           info->grid[2], info->bins);
    for (int way = 0; way < 2; way++)
        if (isfinite(seconds[way]))
            printf(",\"%s_ms\":%.3f", purpose_names[way], seconds[way] * 1e3);
    printf("}\n");
    fflush(stdout);
}

/* The plans chosen by default, one per purpose, into ours[] and best[]. */
static bool time_chosen(struct dev *dev, const struct bench_case *c, struct nufft_params params, const float *k,
                        struct c32 *data, struct c32 *image, struct fastest ours[PURPOSES],
                        struct fastest best[PURPOSES])
{
    for (int purpose = 0; purpose < PURPOSES; purpose++)
        ours[purpose] = best[purpose] = (struct fastest){.seconds = INFINITY};
    for (int purpose = 0; purpose < PURPOSES; purpose++) {
        const struct fastest none[PURPOSES] = {{.seconds = INFINITY}, {.seconds = INFINITY}, {.seconds = INFINITY}};
        double seconds[PURPOSES];
        struct nufft_info info;
        params.purpose = (enum nufft_purpose)purpose;
        if (!time_plan(dev, c, &params, k, none, data, image, &info, seconds))
            return false;
        ours[purpose] = (struct fastest){seconds[purpose], info, params};
        for (int way = 0; way < PURPOSES; way++)
            if (seconds[way] < best[way].seconds)
                best[way] = (struct fastest){seconds[way], info, params};
    }
    return true;
}

/* Time the chosen plan and the fastest in turn: that of many which had the luckiest median is not the fastest. */
static void time_again(struct dev *dev, const struct bench_case *c, int purpose, const float *k, struct c32 *data,
                       struct c32 *image, struct fastest *ours, struct fastest *best)
{
    enum { ROUNDS = 5 };
    const struct fastest none[PURPOSES] = {{.seconds = INFINITY}, {.seconds = INFINITY}, {.seconds = INFINITY}};
    double of_ours[ROUNDS], of_best[ROUNDS], seconds[PURPOSES];
    const bool same = memcmp(&ours->info.grid, &best->info.grid, sizeof ours->info.grid) == 0 &&
                      ours->info.width == best->info.width && ours->info.method == best->info.method;
    for (int i = 0; i < ROUNDS; i++) {
        struct nufft_info info;
        time_plan(dev, c, &ours->params, k, none, data, image, &info, seconds);
        of_ours[i] = of_best[i] = seconds[purpose];
        if (!same) {
            time_plan(dev, c, &best->params, k, none, data, image, &info, seconds);
            of_best[i] = seconds[purpose];
        }
    }
    ours->seconds = median(of_ours, ROUNDS);
    best->seconds = median(of_best, ROUNDS);
}

/* Some oversamplings, and those of all sizes of the longest axis that the device's FFT transforms faster than others;
 * returns their number. */
static int oversamplings_of(struct dev *dev, const struct bench_case *c, double to[OVERSAMPLINGS_MOST])
{
    static const double some[] = {1.2, 1.25, 1.3, 1.375, 1.5, 1.625, 5. / 3, 1.75, 16. / 9, 15. / 8, 2};
    int (*const fast_size)(int) = dev->leaf->nufft->fast_size;
    int count = 0, longest = 1;
    for (; count < (int)(sizeof some / sizeof *some); count++)
        to[count] = some[count];
    for (int d = 0; d < c->dim; d++)
        longest = c->n[d] > longest ? c->n[d] : longest;
    int size = fast_size ? fast_size((int)ceil(some[0] * longest)) : 0;
    for (; size != 0 && size <= 2 * longest && count < OVERSAMPLINGS_MOST; size = fast_size(size + 1)) {
        const double ratio = (double)size / longest;
        bool known = false;
        for (int i = 0; i < count; i++)
            known = known || fabs(to[i] - ratio) < 1e-9;
        if (!known)
            to[count++] = ratio;
    }
    return count;
}

/* Whether a plan with these parameters uses the requested method, keeps the tolerance and is not among the `count` in
 * seen[], to which it is added. Asked of a plan of few samples: making one of all takes longer than a transform, and
 * most plans are not wanted. */
static bool wanted(struct dev *dev, const struct bench_case *c, const struct nufft_params *params, const float *k,
                   struct nufft_info *seen, int *count)
{
    enum { SAMPLES = 4096 };
    struct nufft_info info;
    struct nufft *plan;
    must(nufft_create(&plan, dev, params, c->samples < SAMPLES ? c->samples : SAMPLES, k), "nufft_create");
    nufft_describe(plan, &info);
    nufft_free(plan);
    if (info.expected_error > params->tolerance || info.method != params->method || *count == PLANS_MOST)
        return false;
    for (int i = 0; i < *count; i++)
        if (seen[i].method == info.method && seen[i].width == info.width &&
            memcmp(seen[i].grid, info.grid, sizeof info.grid) == 0)
            return false;
    seen[(*count)++] = info;
    return true;
}

static void search(struct dev *dev, const struct bench_case *c, double tolerance, const float *k, struct c32 *data,
                   struct c32 *image)
{
    struct nufft_info *seen = take(PLANS_MOST * sizeof *seen);
    double oversamplings[OVERSAMPLINGS_MOST];
    const int oversamplings_count = oversamplings_of(dev, c, oversamplings);
    struct nufft_params params = {
        .dim = c->dim, .n = {c->n[0], c->n[1], c->n[2]}, .tolerance = tolerance, .batch = c->batch};
    struct fastest ours[PURPOSES], best[PURPOSES];
    int tried = 0, count = 0;
    if (!time_chosen(dev, c, params, k, data, image, ours, best)) {
        free(seen);
        return;
    }
    const enum nufft_method first = dev_is_gpu(dev) ? NUFFT_METHOD_TILES : NUFFT_METHOD_CPU,
                            last = dev_is_gpu(dev) ? NUFFT_METHOD_BRICK_DENSE : NUFFT_METHOD_CPU;
    for (params.width = 3; params.width <= 9; params.width++)
        for (int i = 0; i < oversamplings_count; i++)
            for (params.method = first; params.method <= last; params.method++) {
                struct nufft_info info;
                double seconds[PURPOSES];
                params.oversampling = oversamplings[i];
                if (!wanted(dev, c, &params, k, seen, &count) ||
                    !time_plan(dev, c, &params, k, best, data, image, &info, seconds))
                    continue;
                tried++;
                tell_plan(c, tolerance, &info, seconds);
                for (int way = 0; way < PURPOSES; way++)
                    if (seconds[way] < best[way].seconds)
                        best[way] = (struct fastest){seconds[way], info, params};
            }
    free(seen);
    for (int purpose = 0; purpose < PURPOSES; purpose++) {
        time_again(dev, c, purpose, k, data, image, &ours[purpose], &best[purpose]);
        tell_search(c, tolerance, purpose_names[purpose], &ours[purpose], &best[purpose], tried);
    }
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
    for (const char *t = o->tolerances; o->search && t; t = strchr(t, ',') ? strchr(t, ',') + 1 : NULL)
        search(dev, c, atof(t), k, device_data, device_image);
    for (const char *t = o->tolerances; !o->search && t; t = strchr(t, ',') ? strchr(t, ',') + 1 : NULL) {
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
        if (o->error)
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

/* Whether `name` is in the comma-separated list. */
static bool named(const char *list, const char *name)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == strlen(name) && strncmp(at, name, strlen(name)) == 0)
            return true;
    return false;
}

/* As a worker's progress, which reads the clock. */
static int go_on(void *asked)
{
    *(double *)asked = clock_seconds();
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.cases = "a,b,c,d,e", .tolerances = "1e-3", .runs = 11, .error = true};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-error") == 0)
            o.error = false;
        else if (strcmp(argv[i], "--cpu") == 0)
            o.cpu = true;
        else if (strcmp(argv[i], "--ask") == 0)
            o.ask = true;
        else if (strcmp(argv[i], "--search") == 0)
            o.search = true;
        else if (strcmp(argv[i], "--cases") == 0 && ++i)
            o.cases = value;
        else if (strcmp(argv[i], "--tolerances") == 0 && ++i)
            o.tolerances = value;
        else if (strcmp(argv[i], "--width") == 0 && ++i)
            o.width = atoi(value);
        else if (strcmp(argv[i], "--coils") == 0 && ++i)
            o.coils = atoi(value);
        else if (strcmp(argv[i], "--threads") == 0 && ++i)
            o.threads = atoi(value);
        else if (strcmp(argv[i], "--oversampling") == 0 && ++i)
            o.oversampling = atof(value);
        else if (strcmp(argv[i], "--runs") == 0 && ++i)
            o.runs = atoi(value) > 0 ? atoi(value) : 1;
        else {
            fprintf(stderr, "bench_nufft: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    struct dev *dev;
    double asked = 0;
    const struct dev_ask ask = {&asked, go_on};
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, o.threads), "dev_create");
    dev_ask_set(dev, o.ask ? &ask : NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (named(o.cases, cases[i].id)) {
            struct bench_case c = cases[i];
            if (o.coils > 0)
                c.batch = o.coils;
            else if (o.cpu && c.batch > CPU_FRAME)
                c.batch = CPU_FRAME;
            run_case(dev, &o, &c);
        }
    dev_free(dev);
    return 0;
}
