/* Sensitivity encoding of several frames at once on a GPU: the normal operator over frames and coils, compared with the
 * CPU's coil by coil; conjugate gradients over frames, compared with the CPU's; a frame's bits alone and among others;
 * frames that end, fail and are canceled. Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "gridding/nufft/normal.h"
#include "recon/solve/solve.h"
#include "tests/distance.h"
#include "tests/gpu/device_vector.h"

#include <math.h>
#include <string.h>

static struct c32 *downloaded(struct dev *dev, const struct c32 *of, size_t n)
{
    struct c32 *host = take(n * sizeof *host);
    must(dev_download(dev, host, of, n * sizeof *host), "dev_download");
    return host;
}

/* ---- the normal operator ---- */

static const struct coils_case {
    const char *name;
    int nx, ny, coils, frames, batch;
    bool own; /* each frame has its own kernel */
} cases[] = {
    {"two frames at a time", 64, 61, 3, 5, 7, true},
    {"one kernel", 128, 128, 4, 3, 12, false},
    {"one coil", 79, 80, 1, 3, 3, true},
    {"many blocks", 256, 256, 2, 9, 18, true},
    {"edges", 250, 251, 3, 10, 30, false},
};

enum { SAMPLES = 3000 };

static void kernel_make(struct normal **out, struct dev *dev, const struct nufft_params *params, int frame)
{
    uint64_t seed = 7 + (uint64_t)frame;
    float *k = take(2 * SAMPLES * sizeof *k);
    for (int i = 0; i < 2 * SAMPLES; i++)
        k[i] = (float)(uniform_next(&seed) - 0.5);
    must(normal_create(out, dev, params, SAMPLES, k, NULL), "normal_create");
    free(k);
}

/* Frame `f` coil by coil: [pixels]. */
static struct c32 *apart(struct dev *dev, const struct coils_case *c, const struct c32 *maps, const struct c32 *image,
                         int f)
{
    const struct nufft_params params = {.dim = 2, .n = {c->nx, c->ny, 1}, .tolerance = 1e-5, .batch = c->coils};
    const size_t pixels = (size_t)c->nx * (size_t)c->ny, all = pixels * (size_t)c->coils;
    struct c32 *coils = device_vector(dev, all, 1), *x = device_vector(dev, pixels, 1);
    struct c32 *zero = take(pixels * sizeof *zero), *m = device_vector(dev, all, 1);
    struct normal *normal = NULL;
    memset(zero, 0, pixels * sizeof *zero);
    kernel_make(&normal, dev, &params, c->own ? f : 0);
    must(dev_upload(dev, m, maps + (size_t)f * all, all * sizeof *m), "dev_upload");
    must(dev_upload(dev, x, image + (size_t)f * pixels, pixels * sizeof *x), "dev_upload");
    must(vec_multiply(dev, pixels, c->coils, m, x, coils), "vec_multiply");
    must(normal_apply(normal, c->coils, coils, coils), "normal_apply");
    must(dev_upload(dev, x, zero, pixels * sizeof *x), "dev_upload");
    must(vec_multiply_conj_add(dev, pixels, c->coils, m, coils, x), "vec_multiply_conj_add");
    struct c32 *host = downloaded(dev, x, pixels);
    normal_free(normal);
    dev_release(dev, m);
    dev_release(dev, x);
    dev_release(dev, coils);
    free(zero);
    return host;
}

static void coils_compare(struct dev *gpu, struct dev *cpu, const struct coils_case *c)
{
    const struct nufft_params params = {.dim = 2, .n = {c->nx, c->ny, 1}, .tolerance = 1e-5, .batch = c->batch};
    const size_t pixels = (size_t)c->nx * (size_t)c->ny, all = pixels * (size_t)c->coils, frames = (size_t)c->frames;
    struct c32 *maps = device_vector(gpu, frames * all, 2), *image = device_vector(gpu, frames * pixels, 3);
    struct c32 *result = device_vector(gpu, frames * pixels, 4), *kernels = NULL;
    struct normal *normal = NULL;
    int *running = NULL, runs[16];
    char name[200];
    bool same = true, left = true;
    double error = 0;
    for (int f = c->own ? c->frames - 1 : 0; f >= 0; f--) {
        normal_free(normal);
        kernel_make(&normal, gpu, &params, f);
        if (!kernels)
            kernels = device_vector(gpu, frames * normal_kernel_elements(normal), 5);
        must(normal_kernel_keep(normal, kernels + (size_t)f * normal_kernel_elements(normal)), "normal_kernel_keep");
    }
    struct normal_coils coils = {.frames = c->frames, .coils = c->coils, .maps = maps, .maps_step = all};
    coils.kernels = c->own ? kernels : NULL;
    must(normal_apply_coils(normal, &coils, image, result), "normal_apply_coils");
    struct c32 *here = downloaded(gpu, result, frames * pixels), *host_maps = downloaded(gpu, maps, frames * all);
    struct c32 *host_image = downloaded(gpu, image, frames * pixels);
    for (int f = 0; f < c->frames; f += 2) { /* also the last one */
        const size_t at = (size_t)f * pixels;
        struct normal_coils one = {.frames = 1, .coils = c->coils, .maps = maps + (size_t)f * all};
        one.kernels = c->own ? kernels + (size_t)f * normal_kernel_elements(normal) : NULL;
        must(normal_apply_coils(normal, &one, image + at, result), "normal_apply_coils");
        struct c32 *alone = downloaded(gpu, result, pixels), *there = apart(cpu, c, host_maps, host_image, f);
        same = same && memcmp(alone, here + at, pixels * sizeof *alone) == 0;
        error = fmax(error, distance(here + at, there, pixels));
        free(there);
        free(alone);
    }
    /* Frames that do not run keep their results. */
    dev_release(gpu, result);
    result = device_vector(gpu, frames * pixels, 6);
    struct c32 *before = downloaded(gpu, result, frames * pixels);
    for (int f = 0; f < c->frames; f++)
        runs[f] = f % 2;
    must(dev_alloc(gpu, frames * sizeof *running, (void **)&running), "dev_alloc");
    must(dev_upload(gpu, running, runs, frames * sizeof *running), "dev_upload");
    coils.running = running;
    must(normal_apply_coils(normal, &coils, image, result), "normal_apply_coils");
    struct c32 *after = downloaded(gpu, result, frames * pixels);
    for (size_t f = 0; f < frames; f++)
        left = left && memcmp(after + f * pixels, (runs[f] ? here : before) + f * pixels, pixels * sizeof *after) == 0;
    snprintf(name, sizeof name, "the normal operator over frames and coils, %s: as on the CPU", c->name);
    char why[60];
    snprintf(why, sizeof why, "%.3g, allowed 2e-5", error);
    verdict(error <= 2e-5, name, why); /* two results within 1e-5 of the exact one */
    snprintf(name, sizeof name, "the normal operator over frames and coils, %s: a frame alone", c->name);
    verdict(same, name, "bits differ");
    snprintf(name, sizeof name, "the normal operator over frames and coils, %s: frames that ended", c->name);
    verdict(left, name, "bits differ");
    free(after);
    free(before);
    free(host_image);
    free(host_maps);
    free(here);
    normal_free(normal);
    dev_release(gpu, running);
    dev_release(gpu, kernels);
    dev_release(gpu, result);
    dev_release(gpu, image);
    dev_release(gpu, maps);
}

static void coils_refused(struct dev *gpu, struct dev *cpu)
{
    const struct nufft_params plane = {.dim = 2, .n = {64, 64, 1}, .tolerance = 1e-3, .batch = 2},
                              odd = {.dim = 2, .n = {40, 40, 1}, .tolerance = 1e-3, .batch = 2};
    struct normal *normal = NULL;
    struct c32 *x = device_vector(gpu, 3 * 64 * 64, 1), *r = device_vector(gpu, 64 * 64, 1);
    const struct normal_coils three = {.frames = 1, .coils = 3, .maps = x};
    verdict(normal_takes_coils(gpu, &plane) && !normal_takes_coils(gpu, &odd) && !normal_takes_coils(cpu, &plane),
            "which operators take coils", "");
    kernel_make(&normal, gpu, &plane, 0);
    int rc = normal_apply_coils(normal, &three, x, r);
    verdict(rc == ERR_GPU_OOM, "more coils than there is room for", said_of(rc));
    normal_free(normal);
    normal = NULL;
    kernel_make(&normal, gpu, &odd, 0);
    rc = normal_apply_coils(normal, &three, x, r);
    verdict(rc == ERR_INTERNAL, "sizes that do not take coils", said_of(rc));
    normal_free(normal);
    dev_release(gpu, r);
    dev_release(gpu, x);
}

/* ---- conjugate gradients ---- */

enum { FRAMES = 5, ITERATIONS = 12 };

/* Diagonal operators of FRAMES frames. */
struct diagonal {
    struct dev *dev;
    size_t n;
    int frames;
    struct c32 *value; /* [frames][n] */
};

static int diagonal_normal(void *of, const int *running, const struct c32 *x, struct c32 *r)
{
    const struct diagonal *d = of;
    int rc = 0;
    (void)running;
    for (int f = 0; f < d->frames && rc == 0; f++)
        rc = vec_multiply(d->dev, d->n, 1, d->value + (size_t)f * d->n, x + (size_t)f * d->n, r + (size_t)f * d->n);
    return rc;
}

/* Eigenvalues of frame f, and right sides: frame 1's operator is a multiple of the identity, and frame 2's right side
 * 0.
 */
static void diagonal_fill(size_t n, int f, struct c32 *value, struct c32 *b)
{
    uint64_t seed = 31 + (uint64_t)f;
    for (size_t i = 0; i < n; i++) {
        value[i] = (struct c32){f == 1 ? 2 : (float)(1 + (3 + f) * uniform_next(&seed)), 0};
        b[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
        if (f == 2)
            b[i] = (struct c32){0, 0};
    }
}

static const size_t names[FRAMES] = {70, 71, 72, 73, 74};

/* Frames `first` to `first` + frames - 1. spoil(): changes values and right sides, [frames][n] on the host, before. */
static int solve(struct dev *dev, size_t n, int first, int frames, void (*spoil)(size_t n, struct c32 *, struct c32 *),
                 const struct solve_listener *listener, struct c32 *x, struct solve_result *result)
{
    const size_t all = n * (size_t)frames;
    const struct solve_stop stop = {.iterations = ITERATIONS, .tolerance = 1e-4};
    const double lambda[FRAMES] = {0, 0.5, 1, 2, 0.25};
    struct c32 *value = take(all * sizeof *value), *b = take(all * sizeof *b);
    struct diagonal d = {dev, n, frames, device_vector(dev, all, 1)};
    struct c32 *device_b = device_vector(dev, all, 1), *device_x = device_vector(dev, all, 1);
    for (int f = 0; f < frames; f++)
        diagonal_fill(n, first + f, value + (size_t)f * n, b + (size_t)f * n);
    if (spoil)
        spoil(n, value, b);
    must(dev_upload(dev, d.value, value, all * sizeof *value), "dev_upload");
    must(dev_upload(dev, device_b, b, all * sizeof *b), "dev_upload");
    const struct op_frames op = {&d, n, frames, all, diagonal_normal};
    const int rc =
        cg_solve_frames(dev, &op, lambda + first, names + first, device_b, device_x, &stop, listener, result);
    must(dev_download(dev, x, device_x, all * sizeof *x), "dev_download");
    dev_release(dev, device_x);
    dev_release(dev, device_b);
    dev_release(dev, d.value);
    free(b);
    free(value);
    return rc;
}

static void cg_compare(struct dev *gpu, struct dev *cpu, size_t n)
{
    struct c32 *here = take(FRAMES * n * sizeof *here), *there = take(FRAMES * n * sizeof *there);
    struct solve_result of_gpu[FRAMES], of_cpu[FRAMES], one;
    bool ends = true, same = true;
    double error = 0;
    char why[60];
    must(solve(gpu, n, 0, FRAMES, NULL, NULL, here, of_gpu), "cg_solve_frames");
    must(solve(cpu, n, 0, FRAMES, NULL, NULL, there, of_cpu), "cg_solve_frames");
    for (int f = 0; f < FRAMES; f++) {
        if (f != 2)
            error = fmax(error, distance(here + (size_t)f * n, there + (size_t)f * n, n));
        ends = ends && of_gpu[f].end == of_cpu[f].end && of_gpu[f].iterations == of_cpu[f].iterations;
    }
    ends = ends && of_gpu[1].iterations == 1 && of_gpu[1].end == SOLVE_TOLERANCE && of_gpu[2].end == SOLVE_ZERO &&
           of_gpu[0].iterations > 3;
    snprintf(why, sizeof why, "%zu elements: %.3g, allowed 1e-5", n, error);
    verdict(error <= 1e-5, "conjugate gradients over frames, as on the CPU", why); /* float32 roundings */
    verdict(ends, "each frame's own end", "other ends");
    for (int f = 0; f < FRAMES; f++) {
        must(solve(gpu, n, f, 1, NULL, NULL, there, &one), "cg_solve_frames");
        same = same && memcmp(there, here + (size_t)f * n, n * sizeof *here) == 0 &&
               one.iterations == of_gpu[f].iterations;
    }
    verdict(same, "a frame alone and among others", "bits differ");
    free(there);
    free(here);
}

static void not_finite(size_t n, struct c32 *value, struct c32 *b)
{
    (void)value;
    b[3 * n + 5].im = NAN;
}

static void operator_not_finite(size_t n, struct c32 *value, struct c32 *b)
{
    (void)b;
    value[4 * n + 5].re = INFINITY;
}

static void negative(size_t n, struct c32 *value, struct c32 *b)
{
    (void)b;
    for (size_t i = 0; i < n; i++)
        value[i].re = -10;
}

static int cancel(void *context, int done, int most)
{
    (void)context;
    (void)most;
    return done == 3 ? err_set(ERR_CANCELED, "The job was canceled.") : 0;
}

static void cg_fails(struct dev *gpu)
{
    enum { N = 5000 };
    struct c32 *x = take(FRAMES * N * sizeof *x);
    struct solve_result result[FRAMES];
    const struct solve_listener listener = {NULL, cancel};
    const struct {
        const char *name, *said;
        void (*spoil)(size_t, struct c32 *, struct c32 *);
    } rows[] = {{"a right side that is not finite", "iteration 1 of image 73", not_finite},
                {"an operator that is not finite", "iteration 1 of image 74", operator_not_finite},
                {"an operator that is not positive", "iteration 1 of image 70 is not positive", negative}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int rc = solve(gpu, N, 0, FRAMES, rows[i].spoil, NULL, x, result);
        verdict(rc == ERR_DIVERGED && strstr(err_last()->text, rows[i].said), rows[i].name, said_of(rc));
    }
    const int rc = solve(gpu, N, 0, FRAMES, NULL, &listener, x, result);
    verdict(rc == ERR_CANCELED, "a cancel", said_of(rc));
    free(x);
}

int main(void)
{
    struct dev *gpu = tap_gpu(), *cpu = NULL;
    must(dev_create(&cpu, DEV_CPU, 0, 0), "dev_create");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        coils_compare(gpu, cpu, &cases[i]);
    coils_refused(gpu, cpu);
    cg_compare(gpu, cpu, 777);
    cg_compare(gpu, cpu, 300007);
    cg_fails(gpu);
    dev_free(cpu);
    dev_free(gpu);
    return tap_end();
}
