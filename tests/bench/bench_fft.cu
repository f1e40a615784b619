/* bench_fft: the project's FFT passes over a grid compared with cuFFT's transform: JSON lines, one for each size.
 *
 *   bench_fft [LIBCUFFT]     libcufft.so.12 by default: loaded if present, because the product does not link it
 *
 * Grids of n^2 x batch or n^3 cells, in place, medians of 11 after 3. own_ms: all cells; pruned_ms: 2/3 of each axis
 * are kept, as for an image with an oversampling of 1.5; cufft_ms: an inverse transform of all cells, without cropping.
 * `known`: whether the size was a compile-time constant. */
#include "gridding/base/dev.h"
#include "gridding/fft/fft_gpu.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

extern "C" const struct dev_leaf *mrirecon_gpu_leaf(void);

enum { RUNS = 11, WARM = 3, CUFFT_C2C = 0x29, CUFFT_INVERSE = 1 };

struct cufft {
    int (*plan_many)(int *plan, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                     int odist, int type, int batch);
    int (*set_stream)(int plan, cudaStream_t stream);
    int (*exec)(int plan, void *in, void *out, int direction);
    int (*destroy)(int plan);
};

struct grid {
    int dim, n, batch;
    struct gpu *gpu;
    float2 *cells;
    struct fft_plan plan;
    const struct cufft *cufft;
    int cufft_plan;
};

static void must(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "bench_fft: %s: %d %s\n", what, code, err_last()->text);
        exit(1);
    }
}

static bool load(struct cufft *c, const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return false;
    *(void **)&c->plan_many = dlsym(library, "cufftPlanMany");
    *(void **)&c->set_stream = dlsym(library, "cufftSetStream");
    *(void **)&c->exec = dlsym(library, "cufftExecC2C");
    *(void **)&c->destroy = dlsym(library, "cufftDestroy");
    return c->plan_many && c->set_stream && c->exec && c->destroy;
}

static void own_passes(const struct grid *g, int kept)
{
    const size_t n = (size_t)g->n, plane = n * n;
    const struct fft_view view[3] = {{1, n, plane}, {n, 1, plane}, {plane, 1, n}};
    for (int d = 0; d < g->dim; d++) {
        struct fft_pass pass = {};
        pass.kind = FFT_BACK;
        pass.in = pass.out = g->cells;
        pass.in_view = pass.out_view = view[d];
        pass.kept = kept;
        pass.volume = g->dim == 3;
        pass.lines = d == 0 ? g->n : kept;
        pass.sets = g->dim == 2 ? g->batch : d == 2 ? kept : g->n;
        must(fft_run(g->gpu, &g->plan, &pass), "fft_run");
    }
}

static double milliseconds(const struct grid *g, int kept)
{
    cudaEvent_t start, end;
    double times[RUNS];
    must(cudaEventCreate(&start), "an event");
    must(cudaEventCreate(&end), "an event");
    for (int i = -WARM; i < RUNS; i++) {
        float ms;
        must(cudaEventRecord(start, g->gpu->stream), "an event");
        if (kept)
            own_passes(g, kept);
        else
            must(g->cufft->exec(g->cufft_plan, g->cells, g->cells, CUFFT_INVERSE), "cufftExecC2C");
        must(cudaEventRecord(end, g->gpu->stream), "an event");
        must(cudaEventSynchronize(end), "an event");
        must(cudaEventElapsedTime(&ms, start, end), "an event");
        times[i < 0 ? 0 : i] = ms;
    }
    must(cudaEventDestroy(start), "an event");
    must(cudaEventDestroy(end), "an event");
    std::sort(times, times + RUNS);
    return times[RUNS / 2];
}

static void run(struct gpu *gpu, const struct cufft *cufft, int dim, int n, int batch)
{
    size_t cells = (size_t)n * n * (dim == 3 ? n : batch);
    int size[3] = {n, n, n};
    struct grid g = {dim, n, batch, gpu, NULL, {}, cufft, 0};
    must(gpu_array(gpu, cells, &g.cells, "a grid"), "gpu_array");
    must(cudaMemsetAsync(g.cells, 0, cells * sizeof *g.cells, gpu->stream), "a grid");
    must(fft_plan_make(&g.plan, gpu, n), "fft_plan_make");
    const double own = milliseconds(&g, n), pruned = milliseconds(&g, 2 * n / 3);
    double theirs = 0;
    if (cufft) {
        must(cufft->plan_many(&g.cufft_plan, dim, size, size, 1, dim == 3 ? n * n * n : n * n, size, 1,
                              dim == 3 ? n * n * n : n * n, CUFFT_C2C, dim == 3 ? 1 : batch),
             "cufftPlanMany");
        must(cufft->set_stream(g.cufft_plan, gpu->stream), "cufftSetStream");
        theirs = milliseconds(&g, 0);
        must(cufft->destroy(g.cufft_plan), "cufftDestroy");
    }
    printf("{\"dim\":%d,\"n\":%d,\"batch\":%d,\"known\":%s,\"own_ms\":%.4f,\"pruned_ms\":%.4f,\"cufft_ms\":%.4f}\n",
           dim, n, batch, fft_size_known(n) ? "true" : "false", own, pruned, theirs);
    fflush(stdout);
    fft_plan_free(&g.plan, gpu);
    gpu_release(gpu, g.cells);
}

int main(int argc, char **argv)
{
    static const int flat[] = {32,  48,  64,  96,  112, 120, 128, 192,  224,  256,  288,  320,  360,  384,  400, 448,
                               512, 576, 640, 672, 768, 896, 960, 1008, 1024, 1200, 1296, 1536, 1792, 2048, 4096};
    static const int deep[] = {32,  48,  64,  72,  80,  90,  96,  100, 108, 112, 120, 128, 160, 180, 192, 216,
                               224, 256, 288, 336, 360, 384, 400, 432, 448, 480, 486, 500, 512, 576, 640};
    static const int batches[] = {1, 8, 64};
    struct dev dev = {};
    struct cufft cufft;
    const bool have = load(&cufft, argc > 1 ? argv[1] : "libcufft.so.12");
    if (!have)
        fprintf(stderr, "bench_fft: no cuFFT: %s\n", dlerror());
    dev.threads = 1;
    must(mrirecon_gpu_leaf()->open(&dev, DEV_ANY), "opening the GPU");
    struct gpu *gpu = gpu_of(&dev);
    for (int n : deep)
        run(gpu, have ? &cufft : NULL, 3, n, 1);
    for (int n : flat)
        for (int batch : batches)
            if ((size_t)n * n * batch <= (size_t)1 << 28)
                run(gpu, have ? &cufft : NULL, 2, n, batch);
    return 0;
}
