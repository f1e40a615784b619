/* Every kernel of the convolutions of a real field (gridding/fft/filter_gpu.cuh), on meshes that are long along one
 * axis and short along the others: every length that has kernels of its own and one that has not, along each axis, to
 * meshes as fine, coarser and finer. Compared with the CPU's. So few blocks that racecheck ends
 * (tests/gpu/sanitize.py). Linked with the GPU's code itself. Prints TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_filter [LEAST [MOST]]   lengths of LEAST to MOST nodes; all by default */
#include "gridding/base/dev.h"
#include "gridding/fft/filter_gpu.cuh"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <climits>
#include <cmath>
#include <vector>

extern "C" {
#include "gridding/fft/filter_cpu.h"
const struct dev_leaf *mrirecon_gpu_leaf(void);
}

enum { RADIAL = 12 };

struct tables {
    std::vector<float> axis[3], radial;
    struct filter_factors factors;

    explicit tables(const struct filter_shape &s)
    {
        int longest = 0;
        factors = {};
        for (int d = 0; d < 3; d++) {
            for (int i = 0; i <= s.from[d] / 2; i++)
                axis[d].push_back((float)(1 + 0.5 * sin(0.3 * i + d)));
            longest = s.from[d] > longest ? s.from[d] : longest;
            factors.axis[d] = axis[d].data();
            factors.wave[d] = 0.8 + 0.1 * d;
        }
        for (int i = 0; i < RADIAL; i++)
            radial.push_back((float)(1 / (1 + 0.4 * i * i)));
        factors.radial = radial.data();
        factors.count = RADIAL;
        factors.step = (double)longest / (RADIAL - 2);
    }
};

static std::vector<float> on_gpu(struct gpu *gpu, const struct filter_shape &s, const struct tables &t,
                                 const std::vector<float> &field, size_t kept)
{
    std::vector<float> host(kept, NAN);
    struct filter_gpu *filter = NULL;
    float *from = NULL, *to = NULL;
    must(filter_gpu_create(&filter, gpu, &s, &t.factors), "filter_gpu_create");
    must(gpu_array(gpu, field.size(), &from, "the field"), "gpu_array");
    must(gpu_array(gpu, kept, &to, "the result"), "gpu_array");
    must(gpu_upload(gpu, from, field.data(), field.size() * sizeof(float)), "gpu_upload");
    must(gpu_upload(gpu, to, host.data(), kept * sizeof(float)), "gpu_upload");
    for (int pass = 0; pass < FILTER_PASSES; pass++)
        must(filter_gpu_pass(filter, pass, from, to), "filter_gpu_pass");
    must(gpu_download(gpu, host.data(), to, kept * sizeof(float)), "gpu_download");
    gpu_release(gpu, to);
    gpu_release(gpu, from);
    filter_gpu_free(filter);
    return host;
}

/* Each of the two float32 results errs by at most some 6e-7 of its root mean square, of two transforms along three
 * axes. */
static void compare(struct gpu *gpu, const struct filter_shape &s)
{
    const struct tables t(s);
    const size_t kept = (size_t)s.kept[0] * s.kept[1] * s.kept[2];
    std::vector<float> field((size_t)s.from[0] * s.from[1] * s.from[2]), wanted(kept);
    struct filter_cpu *filter = NULL;
    double off = 0, all = 0;
    uint64_t seed = 1 + field.size();
    char name[120], why[60];
    for (float &v : field)
        v = (float)(uniform_next(&seed) - 0.4);
    must(filter_cpu_create(&filter, &s, 1), "filter_cpu_create");
    must(filter_cpu_run(filter, field.data(), &t.factors, wanted.data(), NULL), "filter_cpu_run");
    filter_cpu_free(filter);
    const std::vector<float> got = on_gpu(gpu, s, t, field, kept);
    for (size_t i = 0; i < kept; i++) {
        off += pow((double)got[i] - (double)wanted[i], 2);
        all += pow((double)wanted[i], 2);
    }
    snprintf(name, sizeof name, "a field of %d x %d x %d to %d x %d x %d, of which %d x %d x %d", s.from[0], s.from[1],
             s.from[2], s.to[0], s.to[1], s.to[2], s.kept[0], s.kept[1], s.kept[2]);
    snprintf(why, sizeof why, "the error is %.3g, allowed 1.2e-6", sqrt(off / all));
    verdict(sqrt(off / all) <= 1.2e-6, name, why);
}

/* Meshes of n nodes along an axis of the field, of the result, or of both. */
static void compare_length(struct gpu *gpu, int n)
{
    enum { FEW = 8, MORE = 16 };
    const struct filter_shape shapes[] = {
        {{n, FEW, FEW}, {n, FEW, FEW}, {n - 1, FEW, FEW - 1}},
        {{FEW, n, FEW}, {FEW, n, FEW}, {FEW, n / 2, FEW}},
        {{FEW, FEW, n}, {FEW, FEW, n}, {FEW, FEW, n / 2}},
        {{FEW, FEW, n}, {FEW, FEW, FEW}, {FEW, FEW, FEW}},
        {{FEW, FEW, FEW}, {FEW, FEW, n}, {FEW, FEW - 1, n - 1}},
        {{FEW, FEW, FEW}, {n, FEW, FEW}, {n / 2, FEW, FEW}},
        /* coarser along y and z: folded */
        {{FEW, MORE, n}, {FEW, FEW, FEW}, {FEW, FEW, FEW}},
        {{FEW, MORE, 2 * n}, {FEW, FEW, n}, {FEW, FEW, n / 2}},
    };
    for (const struct filter_shape &shape : shapes)
        compare(gpu, shape);
}

int main(int argc, char **argv)
{
    const int least = argc > 1 ? atoi(argv[1]) : 1, most = argc > 2 ? atoi(argv[2]) : INT_MAX;
    struct dev dev = {};
    gpu_or_skip();
    dev.threads = dev.parts = 1;
    must(mrirecon_gpu_leaf()->open(&dev, DEV_ANY), "opening the GPU");
    for (int n = 100; n <= 1024; n++)
        if (least <= n && n <= most && (n == 100 || filter_quick(n)))
            compare_length(gpu_of(&dev), n);
    mrirecon_gpu_leaf()->close(&dev);
    return tap_end();
}
