/* Every grid size that the GPU's FFT supports, along rows and along columns: transforms of long, narrow images compared
 * with double sums. Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/base/dev_leaf.h"
#include "gridding/nufft/nufft_leaf.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <complex.h>
#include <string.h>

enum { NARROW = 18, SAMPLES = 200, CELLS_MOST = 2 * NUFFT_SIZE_MOST, CELLS_LEAST = 32 };

static double complex turn(double turns)
{
    turns -= floor(turns);
    return cos(2 * M_PI * turns) + I * sin(2 * M_PI * turns);
}

static double complex product(double complex a, double complex b)
{
    return creal(a) * creal(b) - cimag(a) * cimag(b) + I * (creal(a) * cimag(b) + cimag(a) * creal(b));
}

struct problem {
    int n[2];
    size_t pixels;
    float k[2 * SAMPLES];
    struct c32 data[SAMPLES], *image;
};

static double complex phase_of(const struct problem *p, size_t m, int d, int i)
{
    return turn((double)p->k[2 * m + (size_t)d] * (i - p->n[d] / 2));
}

/* The larger relative l2 error of adjoint and forward transform. */
static double error_of(const struct problem *p, const struct c32 *image, const struct c32 *data)
{
    double complex *x = take((size_t)p->n[0] * sizeof *x), *wanted = take(p->pixels * sizeof *wanted);
    double off = 0, all = 0, off_data = 0, all_data = 0;
    for (size_t m = 0; m < SAMPLES; m++) {
        double complex sum = 0;
        for (int i = 0; i < p->n[0]; i++)
            x[i] = phase_of(p, m, 0, i);
        for (int j = 0; j < p->n[1]; j++) {
            const double complex y = phase_of(p, m, 1, j), value = product(y, p->data[m].re + p->data[m].im * I);
            for (int i = 0; i < p->n[0]; i++) {
                const struct c32 v = p->image[(size_t)j * (size_t)p->n[0] + (size_t)i];
                wanted[(size_t)j * (size_t)p->n[0] + (size_t)i] += product(value, x[i]);
                sum += product(v.re + v.im * I, conj(product(y, x[i])));
            }
        }
        off_data += pow(data[m].re - creal(sum), 2) + pow(data[m].im - cimag(sum), 2);
        all_data += pow(creal(sum), 2) + pow(cimag(sum), 2);
    }
    for (size_t i = 0; i < p->pixels; i++) {
        off += pow(image[i].re - creal(wanted[i]), 2) + pow(image[i].im - cimag(wanted[i]), 2);
        all += pow(creal(wanted[i]), 2) + pow(cimag(wanted[i]), 2);
    }
    free(x);
    free(wanted);
    return fmax(sqrt(off / all), sqrt(off_data / all_data));
}

static void *upload(struct dev *gpu, const void *host, size_t bytes)
{
    void *device;
    must(dev_alloc(gpu, bytes, &device), "dev_alloc");
    must(dev_upload(gpu, device, host, bytes), "dev_upload");
    return device;
}

/* A grid of `cells` along axis d. */
static void run_size(struct dev *gpu, int cells, int d)
{
    struct problem p = {.n = {NARROW, NARROW}};
    struct nufft *plan;
    struct nufft_info info;
    char name[100], why[100];
    p.n[d] = cells / 2;
    p.pixels = (size_t)p.n[0] * (size_t)p.n[1];
    p.image = take(p.pixels * sizeof *p.image);
    for (size_t i = 0; i < 2 * SAMPLES; i++)
        p.k[i] = (float)(uniform(17 * i + (uint64_t)cells) - 0.5);
    for (size_t i = 0; i < SAMPLES; i++)
        p.data[i] = (struct c32){(float)(uniform(5000 + 2 * i) - 0.5), (float)(uniform(5001 + 2 * i) - 0.5)};
    for (size_t i = 0; i < p.pixels; i++)
        p.image[i] = (struct c32){(float)(uniform(9000 + 2 * i) - 0.5), (float)(uniform(9001 + 2 * i) - 0.5)};
    const struct nufft_params params = {
        .dim = 2, .n = {p.n[0], p.n[1], 1}, .tolerance = 1e-5, .width = 7, .oversampling = 2, .batch = 1};
    must(nufft_create(&plan, gpu, &params, SAMPLES, p.k), "nufft_create");
    nufft_describe(plan, &info);
    struct c32 *image = take(p.pixels * sizeof *image), *data = take(sizeof p.data);
    memset(image, 0xff, p.pixels * sizeof *image);
    void *from_data = upload(gpu, p.data, sizeof p.data), *to_data = upload(gpu, p.data, sizeof p.data);
    void *from_image = upload(gpu, p.image, p.pixels * sizeof *image),
         *to_image = upload(gpu, image, p.pixels * sizeof *image);
    must(nufft_adjoint(plan, 1, from_data, to_image), "nufft_adjoint");
    must(nufft_forward(plan, 1, from_image, to_data), "nufft_forward");
    must(dev_download(gpu, image, to_image, p.pixels * sizeof *image), "dev_download");
    must(dev_download(gpu, data, to_data, sizeof p.data), "dev_download");
    const double error = error_of(&p, image, data);
    snprintf(name, sizeof name, "%d cells along %c", cells, "xy"[d]);
    snprintf(why, sizeof why, "the grid has %d; error %.3g, allowed 1e-5", info.grid[d], error);
    verdict(info.grid[d] == cells && error <= 1e-5, name, why);
    void *held[] = {from_data, to_data, from_image, to_image};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        dev_release(gpu, held[i]);
    nufft_free(plan);
    free(image);
    free(data);
    free(p.image);
}

/* Images of sizes whose usual oversamplings lead to no size that the GPU's passes are compiled for. */
static void test_choice(struct dev *gpu)
{
    static const int n[] = {225, 500, 1100, 1500, 2000};
    const float k[2] = {0.1f, 0.2f};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        const struct nufft_params params = {.dim = 2, .n = {n[i], n[i], 1}, .tolerance = 1e-3, .batch = 1};
        struct nufft *plan;
        struct nufft_info info;
        char name[100], why[100];
        must(nufft_create(&plan, gpu, &params, 1, k), "nufft_create");
        nufft_describe(plan, &info);
        nufft_free(plan);
        snprintf(name, sizeof name, "an image of %d x %d: a grid of a compiled size", n[i], n[i]);
        snprintf(why, sizeof why, "the grid has %d x %d", info.grid[0], info.grid[1]);
        verdict(gpu->leaf->nufft->fast_size(info.grid[0]) == info.grid[0] &&
                    gpu->leaf->nufft->fast_size(info.grid[1]) == info.grid[1],
                name, why);
    }
}

int main(void)
{
    struct dev *gpu = tap_gpu();
    for (int cells = CELLS_LEAST; cells <= CELLS_MOST; cells = nufft_smooth_size(cells + 2))
        for (int d = 0; d < 2; d++)
            run_size(gpu, cells, d);
    test_choice(gpu);
    dev_free(gpu);
    return tap_end();
}
