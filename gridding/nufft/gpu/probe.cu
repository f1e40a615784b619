/* Chooses the depth of bins by measurements on this machine with this trajectory. Plans of three depths run on
 * artificial data; a model (gridding/range/overflow.h) is fitted to their times and predicts those of any depth. */
#include "gridding/base/clock.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/base/clock.h"

#include <algorithm>
#include <cstdlib>

enum {
    PROBE_RUNS = 4,       /* the first is a warm-up; the fastest of the others is used */
    PROBE_SHARE = 16,     /* 1 / PROBE_SHARE of the samples overflow in one probe, enough to measure the CPU's time */
    PROBE_TRANSFORMS = 16 /* as many as the CPU sums together */
};

struct prober {
    struct dev *dev;
    const struct nufft_leaf *leaf; /* the device's leaf, whose plans call this file for a depth */
    struct nufft_shape shape;
    size_t samples;
    const float *k;
    int transforms;
    struct c32 *data; /* [transforms][samples] */
    float *squares;
    double least_total; /* of the adjoint without overflow */
};

/* Measure one transform of a plan with this depth. Times of one prober are relative to its first. */
static int measure(struct prober *p, struct nufft_gpu *plan, struct overflow_probe *probe)
{
    struct nufft_times times;
    double least = 1e30;
    int rc = 0;
    for (int run = 0; !rc && run < PROBE_RUNS; run++) {
        double start = clock_seconds();
        rc = p->leaf->adjoint_squares(plan, p->transforms, p->data, p->squares);
        if (!rc)
            rc = p->leaf->finish(plan, &times);
        double total = (clock_seconds() - start) / p->transforms;
        if (run == 0 || total >= least)
            continue;
        least = total;
        probe->gpu = times.gpu / p->transforms;
        probe->cpu = times.cpu / p->transforms;
        probe->merge = times.merge / p->transforms;
    }
    probe->overflowed = nufft_gpu_overflowed(plan);
    probe->kept = (double)p->samples - probe->overflowed;
    if (probe->overflowed == 0)
        p->least_total = least - probe->gpu;
    probe->total = least - p->least_total;
    return rc;
}

static int probe_depth(struct prober *p, int depth, struct overflow_probe *probe, struct nufft_gpu **keep)
{
    void *state = NULL;
    p->shape.bin_depth = depth;
    int rc = p->leaf->create(&state, p->dev, &p->shape, p->samples, p->k);
    if (!rc)
        rc = measure(p, (struct nufft_gpu *)state, probe);
    if (!rc && keep)
        *keep = (struct nufft_gpu *)state;
    else
        p->leaf->destroy(state);
    return rc;
}

/* The bins of a plan without overflow. */
static int bins_of(struct nufft_gpu *plan, uint32_t **first, size_t *count)
{
    *count = plan->bins.count;
    *first = (uint32_t *)malloc((*count + 1) * sizeof **first);
    if (!*first)
        return err_no_memory("the counts of %zu bins", *count);
    return gpu_download(plan->gpu, *first, plan->bins.first, (*count + 1) * sizeof **first);
}

static int choose(struct prober *p, int *depth)
{
    struct overflow_costs costs = {};
    struct nufft_gpu *plan = NULL;
    uint32_t *first = NULL;
    size_t bins = 0;
    int rc = probe_depth(p, NUFFT_DEPTH_NONE, &costs.all, &plan);
    if (!rc)
        rc = bins_of(plan, &first, &bins);
    p->leaf->destroy(plan);
    if (!rc) {
        uint32_t few = overflow_depth_of(first, bins, 0),
                 some = overflow_depth_of(first, bins, p->samples / PROBE_SHARE);
        *depth = NUFFT_DEPTH_NONE;
        if (some > 0 && some < few - 1) {
            rc = probe_depth(p, (int)some, &costs.some, NULL);
            if (!rc)
                rc = probe_depth(p, (int)few - 1, &costs.few, NULL);
            uint32_t best = rc ? few : overflow_choose(&costs, first, bins);
            *depth = best < few ? (int)best : NUFFT_DEPTH_NONE;
        }
    }
    free(first);
    return rc;
}

int nufft_gpu_choose_depth(struct dev *dev, const struct nufft_shape *shape, size_t samples, const float *k, int *depth)
{
    struct gpu *gpu = gpu_of(dev);
    struct prober p = {};
    size_t available, total, pixels = (size_t)shape->n[0] * shape->n[1] * shape->n[2];
    int rc = gpu_available(gpu, &available, &total);
    p.dev = dev;
    p.leaf = dev->leaf->nufft;
    p.shape = *shape;
    p.samples = samples;
    p.k = k;
    if (rc)
        return rc;
    size_t fits = available / 8 / (samples + 1) / sizeof(struct c32);
    p.transforms = (int)std::max<size_t>(1, std::min<size_t>(fits, std::min((int)PROBE_TRANSFORMS, shape->batch)));
    p.shape.batch = p.transforms;
    rc = gpu_array(gpu, (size_t)p.transforms * samples, &p.data, "Made-up samples");
    if (!rc)
        rc = gpu_array(gpu, pixels, &p.squares, "An image of made-up samples");
    if (!rc && samples > 0) /* all bytes equal: values of about 0.01 */
        rc = gpu_check(cudaMemsetAsync(p.data, 0x3c, (size_t)p.transforms * samples * sizeof *p.data, gpu->stream),
                       "Making up samples");
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(p.squares, 0, pixels * sizeof *p.squares, gpu->stream), "Making up samples");
    if (!rc)
        rc = choose(&p, depth);
    gpu_release(gpu, p.squares);
    gpu_release(gpu, p.data);
    return rc;
}
