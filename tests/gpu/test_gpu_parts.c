/* The normal operator of many coils divided among GPUs: bit-identical to that on one GPU, whether the parts are on the
 * same GPU twice or on several. Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/base/vec.h"
#include "recon/mri/sense.h"
#include "tests/gpu/device_vector.h"

#include <math.h>
#include <string.h>

enum { SIDE = 64, PIXELS = SIDE * SIDE * SIDE, COILS = 19, CALLS = 3 };

static double decay(const void *of, const double l[3])
{
    (void)of;
    return exp(-0.01 * (l[0] * l[0] + l[1] * l[1] + l[2] * l[2]));
}

/* The operator applied to its own result, CALLS times, on a device made of these GPUs. */
static struct c32 *run(int gpus, const int *index)
{
    const struct nufft_params params = {.dim = 3, .n = {SIDE, SIDE, SIDE}, .batch = 5};
    struct dev *dev = NULL;
    struct normal *normal = NULL;
    struct sense sense;
    must(dev_create(&dev, DEV_GPU, index[0], 0), "dev_create");
    for (int g = 1; g < gpus; g++)
        must(dev_join(dev, index[g]), "dev_join");
    must(normal_create_even(&normal, dev, &params, decay, NULL, NULL), "normal_create_even");
    struct c32 *maps = device_vector(dev, COILS * PIXELS, 1), *x = device_vector(dev, PIXELS, 2);
    struct c32 *r = device_vector(dev, PIXELS, 3), *host = take(PIXELS * sizeof *host);
    must(sense_open(&sense, dev, PIXELS, COILS, 5, true), "sense_open");
    must(sense_maps(&sense, COILS, maps), "sense_maps");
    must(sense_normal(&sense, normal, 1), "sense_normal");
    for (int call = 0; call < CALLS; call++) {
        must(sense_op(&sense).normal(&sense, x, r), "sense");
        must(vec_scale(dev, PIXELS, 1e-3f, r), "vec_scale");
        struct c32 *swap = x;
        x = r;
        r = swap;
    }
    must(dev_download(dev, host, x, PIXELS * sizeof *host), "dev_download");
    printf("# %s: %d parts\n", dev_name(dev), sense.parts);
    sense_close(&sense);
    dev_release(dev, maps);
    dev_release(dev, x);
    dev_release(dev, r);
    normal_free(normal);
    dev_free(dev);
    return host;
}

static void compare(const struct c32 *one, const char *name, int gpus, const int *index)
{
    bool same = true;
    for (int i = 0; i < 3; i++) {
        struct c32 *more = run(gpus, index);
        same = same && memcmp(one, more, PIXELS * sizeof *one) == 0;
        free(more);
    }
    verdict(same, name, "bits differ");
}

int main(void)
{
    struct dev *gpu = tap_gpu();
    const uint64_t machine = dev_gpus(gpu);
    dev_free(gpu);
    struct c32 *one = run(1, (const int[]){0});
    bool finite = true;
    for (size_t i = 0; i < PIXELS; i++)
        finite = finite && isfinite(one[i].re) && isfinite(one[i].im);
    verdict(finite && fabsf(one[PIXELS / 2].re) > 0, "a result", "0, or not finite");
    compare(one, "one GPU twice", 2, (const int[]){0, 0});
    compare(one, "one GPU three times", 3, (const int[]){0, 0, 0});
    if (machine >> 1 & 1) {
        compare(one, "two GPUs", 2, (const int[]){0, 1});
        compare(one, "two GPUs, the other way round", 2, (const int[]){1, 0});
    } else {
        printf("ok %d - two GPUs # SKIP this machine has one\n", ++tap.number);
    }
    free(one);
    return tap_end();
}
