/* bench_solve: conjugate gradients of sensitivity encoding on one device, with everything made before: JSON lines.
 *
 *   bench_solve [--cpu] [--size 256] [--coils 16] [--frames 1,10,100] [--iterations 10] [--runs 11] [--own]
 *               [--together 16]
 *
 * Golden-angle spokes, 100 of 512 samples; smooth maps, each frame its own; --own: each frame also has its own
 * trajectory; --together: that many frames at most are in one call of the normal operator. What is timed is a solution
 * of all frames, from their right sides to their images, both on the device. Before that, each line's frames are
 * compared: the last one with itself alone (the same bits), and all with those that the CPU computes coil by coil
 * (relative l2). */
#include "gridding/base/vec.h"
#include "recon/mri/sense.h"
#include "recon/solve/solve.h"
#include "tests/bench/bench.h"
#include "tests/distance.h"

enum { SPOKES = 100, SAMPLES = 512, FRAMES_MOST = 1000, CHECKED = 2 };

struct options {
    bool cpu, own;
    int size, coils, iterations, runs, together;
    const char *frames;
};

struct problem {
    struct dev *dev;
    int n, coils, frames, iterations;
    bool own;
    size_t pixels;
    struct normal *normal;
    struct c32 *maps, *kernels, *b, *x; /* device */
    double lambda;
};

static void must_alloc(struct dev *dev, size_t count, struct c32 **out)
{
    must(dev_alloc(dev, count * sizeof **out, (void **)out), "dev_alloc");
}

/* Smooth maps, other ones for each frame, whose squares sum to 1. */
static void fill_maps(int n, int coils, int frame, struct c32 *maps)
{
    const size_t pixels = (size_t)n * (size_t)n;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < pixels; i++) {
        const double x = (double)(i % (size_t)n) / n - 0.5, y = (double)(i / (size_t)n) / n - 0.5;
        double sum = 0;
        for (int c = 0; c < coils; c++) {
            const double turn = 2 * M_PI * c / coils + 0.01 * frame;
            sum += pow(1 / (0.3 + hypot(x - 0.6 * cos(turn), y - 0.6 * sin(turn))), 2);
        }
        for (int c = 0; c < coils; c++) {
            const double turn = 2 * M_PI * c / coils + 0.01 * frame, phase = 3 * (x * sin(turn) + y * cos(turn)) + c;
            const double size = 1 / (0.3 + hypot(x - 0.6 * cos(turn), y - 0.6 * sin(turn))) / sqrt(sum);
            maps[(size_t)c * pixels + i] = (struct c32){(float)(size * cos(phase)), (float)(size * sin(phase))};
        }
    }
}

static void fill_k(int frame, float *k, float *weights)
{
    for (size_t m = 0; m < SPOKES * SAMPLES; m++) {
        double at[2];
        golden_sample(SAMPLES, m + (size_t)frame * SPOKES * SAMPLES, at);
        k[2 * m] = (float)at[0];
        k[2 * m + 1] = (float)at[1];
        weights[m] = (float)fmax(hypot(at[0], at[1]), 1. / SAMPLES) * (float)M_PI / SPOKES / SAMPLES;
    }
}

static void open_problem(struct problem *p, struct dev *dev, const struct options *o, int frames, int first)
{
    const int batch = dev_is_gpu(dev) ? o->together * o->coils : o->coils;
    const struct nufft_params params = {.dim = 2, .n = {o->size, o->size, 1}, .tolerance = 1e-4, .batch = batch};
    float *k = take(2 * SPOKES * SAMPLES * sizeof *k), *weights = take(SPOKES * SAMPLES * sizeof *weights);
    *p = (struct problem){.dev = dev, .n = o->size, .coils = o->coils, .frames = frames, .iterations = o->iterations};
    p->own = o->own;
    p->pixels = (size_t)o->size * (size_t)o->size;
    const size_t image = p->pixels, all = image * (size_t)o->coils;
    struct c32 *maps = take(all * sizeof *maps), *host = take(image * sizeof *host);
    must_alloc(dev, (size_t)frames * all, &p->maps);
    must_alloc(dev, (size_t)frames * image, &p->b);
    must_alloc(dev, (size_t)frames * image, &p->x);
    for (int f = 0; f < frames; f++) {
        fill_maps(o->size, o->coils, first + f, maps);
        must(dev_upload(dev, p->maps + (size_t)f * all, maps, all * sizeof *maps), "dev_upload");
        for (size_t i = 0; i < image; i++)
            host[i] = random_data(i + (size_t)(first + f) * image);
        must(dev_upload(dev, p->b + (size_t)f * image, host, image * sizeof *host), "dev_upload");
        if (f > 0 && !o->own)
            continue;
        normal_free(p->normal);
        fill_k(o->own ? first + f : 0, k, weights);
        must(normal_create(&p->normal, dev, &params, SPOKES * SAMPLES, k, weights), "normal_create");
        const size_t elements = normal_kernel_elements(p->normal);
        if (!p->kernels && o->own)
            must_alloc(dev, (size_t)frames * elements, &p->kernels);
        if (o->own)
            must(normal_kernel_keep(p->normal, p->kernels + (size_t)f * elements), "normal_kernel_keep");
    }
    p->lambda = 3e-3;
    free(host);
    free(maps);
    free(weights);
    free(k);
}

static void close_problem(struct problem *p)
{
    normal_free(p->normal);
    dev_release(p->dev, p->kernels);
    dev_release(p->dev, p->maps);
    dev_release(p->dev, p->b);
    dev_release(p->dev, p->x);
}

/* Frames one after the other, coil images in memory. */
static void solve_apart(struct problem *p)
{
    const struct solve_stop stop = {.iterations = p->iterations};
    for (int f = 0; f < p->frames; f++) {
        struct solve_result result;
        struct sense sense;
        const size_t elements = normal_kernel_elements(p->normal), at = (size_t)f * p->pixels;
        if (p->own)
            must(normal_kernel_use(p->normal, p->kernels + (size_t)f * elements), "normal_kernel_use");
        must(sense_open(&sense, p->dev, p->pixels, p->coils, p->coils, false), "sense_open");
        must(sense_maps(&sense, p->coils, p->maps + at * (size_t)p->coils), "sense_maps");
        must(sense_normal(&sense, p->normal, 1), "sense_normal");
        const struct op op = sense_op(&sense);
        must(cg_solve(p->dev, &op, p->lambda, p->b + at, p->x + at, &stop, NULL, &result), "cg_solve");
        sense_close(&sense);
    }
}

static void solve_together(struct problem *p)
{
    const struct solve_stop stop = {.iterations = p->iterations};
    double lambda[FRAMES_MOST];
    struct solve_result result[FRAMES_MOST];
    struct sense_frames frames = {p->normal,
                                  {.frames = p->frames,
                                   .coils = p->coils,
                                   .maps = p->maps,
                                   .maps_step = p->pixels * (size_t)p->coils,
                                   .kernels = p->kernels}};
    const struct op_frames op = sense_frames_op(&frames, p->pixels);
    for (int f = 0; f < p->frames; f++)
        lambda[f] = p->lambda;
    must(cg_solve_frames(p->dev, &op, lambda, NULL, p->b, p->x, &stop, NULL, result), "cg_solve_frames");
}

static void download(const struct problem *p, int f, struct c32 *to)
{
    must(dev_download(p->dev, to, p->x + (size_t)f * p->pixels, p->pixels * sizeof *to), "dev_download");
}

/* The image of frame `f` alone. */
static void alone(const struct options *o, struct dev *dev, int f, void (*solve)(struct problem *), struct c32 *to)
{
    struct problem p;
    open_problem(&p, dev, o, 1, f);
    solve(&p);
    download(&p, 0, to);
    close_problem(&p);
}

static void time_solve(struct problem *p, const struct options *o, const char *what, void (*solve)(struct problem *))
{
    double *times = take((size_t)o->runs * sizeof *times), error = 0;
    const size_t bytes = p->pixels * sizeof(struct c32);
    struct c32 *image = take(bytes), *other = take(bytes);
    struct dev *cpu = NULL;
    size_t before, after, total;
    must(dev_memory(p->dev, &before, &total), "dev_memory");
    for (int i = -2; i < o->runs; i++) {
        const double start = clock_seconds();
        solve(p);
        must(dev_finish(p->dev), "dev_finish");
        times[i < 0 ? 0 : i] = clock_seconds() - start;
    }
    must(dev_memory(p->dev, &after, &total), "dev_memory");
    must(dev_create(&cpu, DEV_CPU, 0, 0), "dev_create");
    download(p, p->frames - 1, image);
    alone(o, p->dev, p->frames - 1, solve, other);
    const bool same = memcmp(image, other, bytes) == 0;
    for (int f = 0; f < p->frames && f < CHECKED; f++) {
        download(p, f, image);
        alone(o, cpu, f, solve_apart, other);
        error = fmax(error, distance(image, other, p->pixels));
    }
    dev_free(cpu);
    const double middle = median(times, o->runs);
    printf("{\"what\":\"%s\",\"device\":\"%s\",\"size\":%d,\"coils\":%d,\"frames\":%d,\"trajectories\":\"%s\","
           "\"iterations\":%d,\"median_ms\":%.3f,\"least_ms\":%.3f,\"most_ms\":%.3f,\"each_ms\":%.4f,\"runs\":%d,"
           "\"same_alone\":%s,\"error\":%.2e}\n",
           what, dev_name(p->dev), o->size, o->coils, p->frames, o->own ? "own" : "one", o->iterations, middle * 1e3,
           times[0] * 1e3, times[o->runs - 1] * 1e3, middle * 1e3 / p->frames, o->runs, same ? "true" : "false", error);
    fflush(stdout);
    free(times);
    free(image);
    free(other);
}

int main(int argc, char **argv)
{
    struct options o = {.size = 256, .coils = 16, .iterations = 10, .runs = 11, .together = 16, .frames = "1,10,100"};
    struct dev *dev = NULL;
    const struct bench_option known[] = {{"--cpu", .flag = &o.cpu},
                                         {"--own", .flag = &o.own},
                                         {"--size", .number = &o.size},
                                         {"--coils", .number = &o.coils},
                                         {"--frames", .text = &o.frames},
                                         {"--iterations", .number = &o.iterations},
                                         {"--together", .number = &o.together},
                                         {"--runs", .number = &o.runs},
                                         {.name = NULL}};
    options_read(argc, argv, known);
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, 0), "dev_create");
    for (const char *at = o.frames; at; at = next_of(at)) {
        struct problem p;
        open_problem(&p, dev, &o, atoi(at), 0);
        time_solve(&p, &o, "frames one after the other", solve_apart);
        if (normal_takes_coils(dev, &(struct nufft_params){.dim = 2, .n = {o.size, o.size, 1}, .batch = 1}))
            time_solve(&p, &o, "frames together", solve_together);
        close_problem(&p);
    }
    dev_free(dev);
    return 0;
}
