/* ESPIRiT's coil maps on a GPU: compared with their definition in double precision, which the CPU's are compared with,
 * too; the same bits on every run; sizes that the host computes; images that have no maps; memory; a cancel. Prints
 * TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_maps [CASE]   one case of the comparison alone, or, from the number of cases on, the rest */
#include "gridding/base/err.h"
#include "recon/mri/maps.h"
#include "tests/gpu/device_vector.h"
#include "tests/maps_oracle.h"
#include "tests/maps_scene.h"

#include <string.h>

static struct c32 *on_device(struct dev *dev, const struct c32 *host, size_t count)
{
    void *out = NULL;
    must(dev_alloc(dev, count * sizeof *host, &out), "dev_alloc");
    must(dev_upload(dev, out, host, count * sizeof *host), "dev_upload");
    return out;
}

/* Maps of the host's images, which the caller frees; NULL if that failed. In place: the same memory. */
static struct c32 *estimate(struct dev *dev, const struct maps_params *params, const struct c32 *images, bool in_place,
                            double *support, int *rc)
{
    const size_t count = (size_t)params->coils * (size_t)params->n[0] * (size_t)params->n[1] * (size_t)params->n[2];
    struct c32 *host = take(count * sizeof *host), *from = on_device(dev, images, count);
    struct c32 *to = in_place ? from : on_device(dev, host, count);
    *rc = maps_estimate(dev, params, from, to, support);
    if (*rc == 0)
        must(dev_download(dev, host, to, count * sizeof *host), "dev_download");
    if (!in_place)
        dev_release(dev, to);
    dev_release(dev, from);
    if (*rc == 0)
        return host;
    free(host);
    return NULL;
}

static const struct maps_scene_case cases[] = {
    {"by rows", 2, 24, 4, 12, 4},
    {"by places", 2, 30, 9, 10, 4},
    {"a small centre", 2, 20, 2, 14, 4},
    {"12 coils", 2, 20, 12, 12, 4},
    {"20 coils", 2, 16, 20, 9, 3},
    {"32 coils", 2, 18, 32, 8, 3},
    {"a volume", 3, 12, 3, 7, 3},
    {"a volume of 9 coils", 3, 10, 9, 7, 3},
    {"one coil", 2, 33, 1, 12, 4},
    {"images of the centre alone", 2, 9, 3, 24, 6},
    {"the default centre", 2, 40, 6, 24, 6},
};

static void compare(struct dev *gpu, struct dev *cpu, const struct maps_scene_case *c)
{
    struct maps_scene scene;
    maps_scene_create(&scene, c, 0.05);
    struct maps_oracle oracle;
    double support = 0, again = 0, there = 0;
    size_t checked = 0, most = 0;
    int rc;
    char name[160], why[160];
    oracle_create(&oracle, &scene.params, scene.images);
    struct c32 *maps = estimate(gpu, &scene.params, scene.images, false, &support, &rc);
    must(rc, "maps_estimate");
    struct c32 *second = estimate(gpu, &scene.params, scene.images, true, &again, &rc);
    must(rc, "maps_estimate");
    struct c32 *host = estimate(cpu, &scene.params, scene.images, false, &there, &rc);
    must(rc, "maps_estimate");
    const size_t bytes = (size_t)scene.params.coils * oracle.pixels * sizeof *maps;
    size_t kept = 0;
    for (size_t r = 0; r < oracle.pixels; r++) {
        bool any = false;
        for (int i = 0; i < oracle.coils; i++)
            any = any || maps[(size_t)i * oracle.pixels + r].re != 0 || maps[(size_t)i * oracle.pixels + r].im != 0;
        kept += any;
    }
    const size_t wrong = oracle_compare(&oracle, maps, 3, &checked);
    const size_t wrong_there = oracle_compare(&oracle, host, 3, &most);
    snprintf(name, sizeof name, "maps, %s: by their definition", c->name);
    snprintf(why, sizeof why, "GPU %zu, CPU %zu of %zu pixels are wrong", wrong, wrong_there, checked);
    verdict(maps_on_device(gpu, &scene.params) && wrong == 0 && wrong_there == 0 && checked > oracle.pixels / 12, name,
            why);
    snprintf(name, sizeof name, "maps, %s: the same bits again, in place", c->name);
    verdict(memcmp(maps, second, bytes) == 0 && support == again, name, "bits differ");
    snprintf(name, sizeof name, "maps, %s: the support is what has maps", c->name);
    snprintf(why, sizeof why, "%g, %zu of %zu", support, kept, oracle.pixels);
    verdict(fabs(support * (double)oracle.pixels - (double)kept) < 1e-6, name, why);
    free(host);
    free(second);
    free(maps);
    oracle_free(&oracle);
    maps_scene_free(&scene);
}

/* Of a volume whose matrix has more rows along either side than the definition can be computed for: CPU and GPU give
 * the same. Each iterates its vectors until |G v - mu v| <= 0.001 mu. In the object the second eigenvalue is that of
 * the noise, which outside of it is the first and stays below the crop of 0.8: a vector's angle is off by 0.001 / 0.2
 * at most, and two vectors differ by 0.01. Of pixels whose eigenvalue is next to the crop, rounding to float32 may give
 * some to one alone: 1 in 1000. Where small singular values are left out on one side, 6 in 100 are. */
static void many_coils(struct dev *gpu, struct dev *cpu)
{
    const struct maps_scene_case many = {"12 coils", 3, 20, 12, 16, 5};
    struct maps_scene scene;
    double here, there, most = 0;
    size_t apart = 0;
    int rc;
    char why[160];
    maps_scene_create(&scene, &many, 0.2);
    struct c32 *a = estimate(gpu, &scene.params, scene.images, false, &here, &rc);
    must(rc, "maps_estimate");
    struct c32 *b = estimate(cpu, &scene.params, scene.images, false, &there, &rc);
    must(rc, "maps_estimate");
    const int *n = scene.params.n;
    for (size_t r = 0; r < scene.pixels; r++) {
        const double x = (double)(r % (size_t)n[0]) / n[0] - 0.5,
                     y = (double)(r / (size_t)n[0] % (size_t)n[1]) / n[1] - 0.5,
                     z = (double)(r / (size_t)n[0] / (size_t)n[1]) / n[2] - 0.5;
        double square = 0, sizes[2] = {0, 0};
        for (size_t i = r; i < 12 * scene.pixels; i += scene.pixels) {
            square += pow(a[i].re - b[i].re, 2) + pow(a[i].im - b[i].im, 2);
            sizes[0] += pow(a[i].re, 2) + pow(a[i].im, 2);
            sizes[1] += pow(b[i].re, 2) + pow(b[i].im, 2);
        }
        apart += (sizes[0] > 0) != (sizes[1] > 0);
        if (sizes[0] > 0 && sizes[1] > 0 && x * x + 1.3 * y * y + z * z < 0.12)
            most = fmax(most, sqrt(square));
    }
    snprintf(why, sizeof why, "support %g and %g, %zu pixels in one alone, maps differ by %g", here, there, apart,
             most);
    verdict(maps_on_device(gpu, &scene.params) && apart <= scene.pixels / 1000 && most <= 0.01,
            "maps, a volume of 12 coils: the CPU's", why);
    printf("# %s\n", why);
    free(b);
    free(a);
    maps_scene_free(&scene);
}

/* More coils than the device takes: the host's maps, to the bit. */
static void on_the_host(struct dev *gpu, struct dev *cpu)
{
    const struct maps_scene_case many = {"33 coils", 2, 16, 33, 8, 3};
    struct maps_scene scene;
    double here, there;
    int rc;
    maps_scene_create(&scene, &many, 0.05);
    struct c32 *a = estimate(gpu, &scene.params, scene.images, false, &here, &rc);
    must(rc, "maps_estimate");
    struct c32 *b = estimate(cpu, &scene.params, scene.images, false, &there, &rc);
    must(rc, "maps_estimate");
    verdict(!maps_on_device(gpu, &scene.params) && maps_device_bytes(gpu, &scene.params) == 0 && here == there &&
                memcmp(a, b, 33 * scene.pixels * sizeof *a) == 0,
            "more coils than the device takes: the host's maps", "other maps");
    scene.params.method = MAPS_WALSH;
    verdict(!maps_on_device(gpu, &scene.params), "Walsh's maps are the host's", "");
    free(b);
    free(a);
    maps_scene_free(&scene);
}

static void no_maps(struct dev *gpu)
{
    struct maps_scene scene;
    double support = 1;
    int rc;
    maps_scene_create(&scene, &cases[0], 0.05);
    const size_t count = (size_t)scene.params.coils * scene.pixels;
    scene.images[17].re = NAN;
    free(estimate(gpu, &scene.params, scene.images, false, &support, &rc));
    verdict(rc == ERR_DATA_NONFINITE, "images that are not finite", said_of(rc));
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        memset(scene.images, 0, count * sizeof *scene.images);
        scene.params.calibration = by_rows ? 24 : 8;
        struct c32 *maps = estimate(gpu, &scene.params, scene.images, false, &support, &rc);
        must(rc, "maps_estimate");
        bool zero = true;
        for (size_t i = 0; i < count; i++)
            zero = zero && maps[i].re == 0 && maps[i].im == 0;
        verdict(zero && support == 0, "images of zeros", "maps that are not 0");
        free(maps);
    }
    maps_scene_free(&scene);
}

/* The promised memory suffices, with 96 MiB for what the driver cannot give in one piece; half of it does not. */
static void memory(void)
{
    const int n[3] = {64, 64, 64};
    struct maps_params params = maps_defaults(MAPS_ESPIRIT, 32, n);
    const size_t bytes = 32 * sizeof(struct c32) << 18;
    for (int half = 0; half < 2; half++) {
        struct dev *gpu = NULL;
        size_t available, total;
        double support;
        void *ballast = NULL, *images = NULL;
        must(dev_create(&gpu, DEV_GPU, 0, 0), "dev_create");
        must(dev_alloc(gpu, bytes, &images), "dev_alloc");
        must(dev_zero(gpu, images, bytes), "dev_zero");
        const size_t promised = maps_device_bytes(gpu, &params);
        const size_t left = half ? promised / 2 : promised + ((size_t)96 << 20);
        must(dev_memory(gpu, &available, &total), "dev_memory");
        must(dev_alloc(gpu, available - left, &ballast), "dev_alloc");
        must(dev_memory(gpu, &available, &total), "dev_memory");
        const int rc = maps_estimate(gpu, &params, images, images, &support);
        char why[1000];
        snprintf(why, sizeof why,
                 "maps_estimate() returned %d (%s): it promised %zu bytes, and %zu were left; %zu were meant to be", rc,
                 said_of(rc), promised, available, left);
        verdict(rc == (half ? ERR_GPU_OOM : 0),
                half ? "half of the promised memory is not enough" : "the promised memory is enough", why);
        dev_release(gpu, ballast);
        dev_release(gpu, images);
        dev_free(gpu);
    }
}

struct asked {
    int count, no_at;
};

static int ask(void *context, double done)
{
    struct asked *asked = context;
    (void)done;
    return ++asked->count == asked->no_at;
}

/* At the start, before the pixels, and at the end; each of them may end it. */
static void canceled(struct dev *gpu)
{
    struct maps_scene scene;
    double support;
    int rc;
    maps_scene_create(&scene, &cases[0], 0.05);
    struct asked asked = {.no_at = -1};
    scene.params.progress = ask;
    scene.params.context = &asked;
    free(estimate(gpu, &scene.params, scene.images, false, &support, &rc));
    must(rc, "maps_estimate");
    bool ends = asked.count >= 3;
    for (int at = asked.count; at > 0; at--) {
        asked = (struct asked){.no_at = at};
        free(estimate(gpu, &scene.params, scene.images, false, &support, &rc));
        ends = ends && rc == ERR_CANCELED && asked.count == at;
    }
    verdict(ends, "a cancel", "it went on");
    maps_scene_free(&scene);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof cases / sizeof *cases, only = argc > 1 ? strtoul(argv[1], NULL, 10) : count;
    struct dev *gpu = tap_gpu(), *cpu = NULL;
    must(dev_create(&cpu, DEV_CPU, 0, 0), "dev_create");
    for (size_t i = 0; i < count; i++)
        if (argc == 1 || i == only)
            compare(gpu, cpu, &cases[i]);
    if (only >= count) {
        many_coils(gpu, cpu);
        on_the_host(gpu, cpu);
        no_maps(gpu);
        canceled(gpu);
    }
    dev_free(cpu);
    dev_free(gpu);
    if (only >= count)
        memory();
    return tap_end();
}
