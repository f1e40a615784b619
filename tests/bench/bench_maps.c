/* bench_maps: ESPIRiT's coil maps on one device: JSON lines.
 *
 *   bench_maps [--cpu] [--threads 0] [--matrix 256x256x1] [--coils 8,16] [--noise 0.02] [--runs 11]
 *
 * Images of an object with smooth maps, with noise. What is timed is maps_estimate(), from images to maps in the
 * device's memory; `first` is the first call of the process. `bits`: whether all runs gave the same. */
#include "gridding/base/dev.h"
#include "recon/mri/maps.h"
#include "tests/bench/bench.h"

#include <math.h>

enum { RUNS_MOST = 1000 };

struct options {
    bool cpu;
    int threads, n[3], runs;
    double noise;
    const char *coils;
};

/* Maps as those of coils around the object; their squares sum to 1. */
static void fill_images(const int n[3], int coils, double noise, struct c32 *images)
{
    const size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < pixels; i++) {
        const double x = (double)(i % (size_t)n[0]) / n[0] - 0.5,
                     y = (double)(i / (size_t)n[0] % (size_t)n[1]) / n[1] - 0.5;
        const double z = n[2] > 1 ? (double)(i / (size_t)n[0] / (size_t)n[1]) / n[2] - 0.5 : 0;
        const double r = sqrt(x * x + y * y / 1.2 + z * z);
        const double object = r < 0.38 ? 0.6 + 0.3 * cos(40 * x + 7 * y) * cos(23 * y + 30 * z) : r < 0.41 ? 1 : 0;
        double size[256], sum = 0;
        for (int c = 0; c < coils; c++) {
            const double turn = 2 * M_PI * c / coils, high = 0.4 * sin(3 * turn);
            size[c] = 1 / (0.3 + sqrt(pow(x - 0.6 * cos(turn), 2) + pow(y - 0.6 * sin(turn), 2) + pow(z - high, 2)));
            sum += size[c] * size[c];
        }
        for (int c = 0; c < coils; c++) {
            const double turn = 2 * M_PI * c / coils, phase = 3 * (x * sin(turn) + y * cos(turn) + z) + c;
            const struct c32 random = random_data(i + (size_t)c * pixels);
            const double value = object * size[c] / sqrt(sum);
            images[(size_t)c * pixels + i].re = (float)(value * cos(phase) + noise * (double)random.re);
            images[(size_t)c * pixels + i].im = (float)(value * sin(phase) + noise * (double)random.im);
        }
    }
}

static void measure(struct dev *dev, const struct options *o, int coils)
{
    const size_t count = (size_t)coils * (size_t)o->n[0] * (size_t)o->n[1] * (size_t)o->n[2];
    const struct maps_params params = maps_defaults(MAPS_ESPIRIT, coils, o->n);
    struct c32 *host = take(count * sizeof *host), *now = take(count * sizeof *now), *images = NULL, *maps = NULL;
    double times[RUNS_MOST], first = 0, support = 0;
    bool same = true;
    fill_images(o->n, coils, o->noise, host);
    must(dev_alloc(dev, count * sizeof *images, (void **)&images), "dev_alloc");
    must(dev_alloc(dev, count * sizeof *maps, (void **)&maps), "dev_alloc");
    must(dev_upload(dev, images, host, count * sizeof *images), "dev_upload");
    for (int run = -1; run < o->runs; run++) {
        const double start = clock_seconds();
        must(maps_estimate(dev, &params, images, maps, &support), "maps_estimate");
        must(dev_finish(dev), "dev_finish");
        *(run < 0 ? &first : &times[run]) = 1e3 * (clock_seconds() - start);
        must(dev_download(dev, now, maps, count * sizeof *now), "dev_download");
        same = same && (run < 0 || memcmp(now, host, count * sizeof *now) == 0);
        memcpy(host, now, count * sizeof *now);
    }
    const double middle = median(times, o->runs);
    printf("{\"device\": \"%s\", \"on_device\": %s, \"coils\": %d, \"n\": [%d, %d, %d], \"noise\": %g, \"ms\": %.3f, "
           "\"least\": %.3f, \"most\": %.3f, \"first\": %.3f, \"support\": %.4f, \"bits\": \"%s\"}\n",
           dev_name(dev), maps_on_device(dev, &params) ? "true" : "false", coils, o->n[0], o->n[1], o->n[2], o->noise,
           middle, times[0], times[o->runs - 1], first, support, same ? "same" : "DIFFERENT");
    fflush(stdout);
    dev_release(dev, maps);
    dev_release(dev, images);
    free(now);
    free(host);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_maps [--cpu] [--threads 0] [--matrix 256x256x1] [--coils 8,16] [--noise 0.02] "
                    "[--runs 11]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct options o = {.runs = 11, .noise = 0.02, .coils = "8,16"};
    struct dev *dev = NULL;
    const char *matrix = "256x256x1";
    const struct bench_option known[] = {{"--cpu", .flag = &o.cpu},
                                         {"--threads", .number = &o.threads},
                                         {"--matrix", .text = &matrix},
                                         {"--coils", .text = &o.coils},
                                         {"--noise", .real = &o.noise},
                                         {"--runs", .number = &o.runs},
                                         {.name = NULL}};
    options_read(argc, argv, known);
    if (sscanf(matrix, "%dx%dx%d", &o.n[0], &o.n[1], &o.n[2]) != 3 || o.runs < 1 || o.runs > RUNS_MOST)
        return usage();
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, o.threads), "dev_create");
    for (const char *at = o.coils; at; at = next_of(at)) {
        const int coils = atoi(at);
        if (coils < 1 || coils > 256)
            return usage();
        measure(dev, &o, coils);
    }
    dev_free(dev);
    return 0;
}
