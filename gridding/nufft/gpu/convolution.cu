/* convolution.cu: circular convolution of images on the GPU: pruned FFT passes. Those along x are one pass, which also
 * multiplies by the kernel's transform; in 3-D the passes along y and x process some planes of all images at a time,
 * because the intermediate result of all planes would be as large as the grid.
 *
 * Layouts: planes[z][image][y][x] of n[] x n[] pixels and grid[] frequencies along z (3-D only), and rows[plane or
 * image][y][x] of n[] pixels along x and grid[] frequencies along y. */
#include "gridding/fft/fft_halves.cuh"
#include "gridding/nufft/normal.h"
#include "gridding/nufft/nufft_leaf.h"

#include <algorithm>
#include <cstdlib>

/* A CUDA graph of the last call: a repeated call, as in an iteration, is one launch. */
struct call {
    int batch;
    const struct c32 *image;
    struct c32 *result;
    cudaGraphExec_t graph; /* NULL: the call was not repeated */
};

struct convolution_gpu {
    struct gpu *gpu;
    int dim, n[3], grid[3];
    int group; /* images at a time */
    int sets;  /* planes (in 2-D images) in rows[] */
    size_t cells, pixels, plane, row_plane;
    struct fft_plan fft[3];
    struct c32 *planes;
    struct c32 *rows;
    float *spectrum; /* [cells], an even number */
    struct call call;
};

static void call_forget(struct call *call)
{
    if (call->graph)
        (void)cudaGraphExecDestroy(call->graph);
    *call = {};
}

static void destroy(void *state)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    if (!c)
        return;
    if (gpu_enter(c->gpu) == 0) {
        call_forget(&c->call);
        for (int d = 0; d < c->dim; d++)
            fft_plan_free(&c->fft[d], c->gpu);
        gpu_release(c->gpu, c->planes);
        gpu_release(c->gpu, c->rows);
        gpu_release(c->gpu, c->spectrum);
    }
    free(c);
}

/* Passes of precompiled sizes take half the time, and those in halves less than others on up to a fifth fewer
 * cells. */
static int axis_size(int axis, int cells)
{
    const int in_halves = fft_two_stage_size(cells);
    if (in_halves != 0 && 5 * in_halves <= 6 * cells)
        return in_halves;
    if (axis == 0) {
        const int size = fft_rows_size(cells);
        return size ? size : cells;
    }
    const int size = fft_known_size(cells);
    return size != 0 && 2 * size <= 3 * cells ? size : cells;
}

/* Grids may use half of the free memory, because the caller's images need memory, too; at least one image. */
static int make_grids(struct convolution_gpu *c, int batch)
{
    enum { SETS_MOST = 65535 };
    size_t available, total;
    int cache = 0, rc = gpu_available(c->gpu, &available, &total);
    if (!rc)
        rc = gpu_check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, c->gpu->index), "Asking for the cache");
    if (rc)
        return rc;
    /* Four times the cache: shorter launches lose more at their tails than the cache saves. */
    const size_t rows = c->row_plane * sizeof *c->rows,
                 together = std::max((size_t)1, std::min((size_t)cache * 4, available / 8) / rows);
    const size_t each = c->dim == 3 ? c->plane * c->grid[2] * sizeof *c->planes : rows;
    const size_t fits = std::max((size_t)1, available / 2 / each);
    c->group = (int)std::min({fits, (size_t)batch, (size_t)SETS_MOST});
    const size_t sets = c->dim == 3 ? (size_t)c->group * std::max((size_t)1, together / c->group)
                                    : std::min(together, (size_t)c->group);
    c->sets = (int)std::min({sets, (size_t)c->group * c->grid[2], (size_t)SETS_MOST / c->group * c->group});
    if (c->dim == 3)
        rc = gpu_array(c->gpu, c->plane * c->grid[2] * c->group, &c->planes, "The convolution's grid");
    if (!rc)
        rc = gpu_array(c->gpu, c->row_plane * c->sets, &c->rows, "The convolution's rows");
    return rc ? rc : gpu_array(c->gpu, c->cells + c->cells % 2, &c->spectrum, "The convolution's kernel");
}

static int create(void **state, struct dev *dev, int dim, const int n[3], const int grid[3], int batch)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (rc)
        return rc;
    struct convolution_gpu *c = (struct convolution_gpu *)calloc(1, sizeof *c);
    if (!c)
        return err_no_memory("a convolution");
    c->gpu = gpu;
    c->dim = dim;
    c->cells = c->pixels = 1;
    for (int d = 0; d < 3; d++) {
        c->n[d] = n[d];
        c->grid[d] = grid[d];
        c->pixels *= (size_t)n[d];
        c->cells *= (size_t)grid[d];
    }
    c->plane = (size_t)n[0] * n[1];
    c->row_plane = (size_t)n[0] * grid[1];
    for (int d = 0; !rc && d < dim; d++)
        rc = fft_plan_make(&c->fft[d], gpu, grid[d]);
    if (!rc)
        rc = make_grids(c, batch);
    if (rc)
        destroy(c);
    else
        *state = c;
    return rc;
}

static size_t bytes(const void *state)
{
    const struct convolution_gpu *c = (const struct convolution_gpu *)state;
    const size_t planes = c->planes ? c->plane * c->grid[2] * c->group : 0;
    return (planes + c->row_plane * c->sets) * sizeof(struct c32) + c->cells * sizeof *c->spectrum;
}

/* ---- the kernel ---- */

/* The transform of an image of n[] on the whole grid, [cells]. */
static int transform(const struct convolution_gpu *c, const int n[3], const struct c32 *image, struct c32 *values)
{
    const size_t nx = (size_t)c->grid[0], plane = nx * c->grid[1], image_plane = (size_t)n[0] * n[1];
    const struct fft_view view[3] = {{1, nx, plane}, {nx, 1, plane}, {plane, 1, nx}};
    int rc = 0;
    for (int d = c->dim - 1; !rc && d >= 0; d--) {
        struct fft_pass pass = {};
        pass.kind = FFT_FORTH;
        pass.in = pass.out = (float2 *)values;
        pass.in_view = pass.out_view = view[d];
        pass.kept = n[d];
        pass.volume = c->dim == 3;
        pass.lines = d == 0 ? c->grid[1] : n[0];
        pass.sets = d == 2 ? n[1] : c->grid[2];
        if (d == c->dim - 1) {
            pass.in = (const float2 *)image;
            pass.in_view = d == 2 ? fft_view{image_plane, 1, (size_t)n[0]} : fft_view{(size_t)n[0], 1, image_plane};
        }
        rc = fft_run(c->gpu, &c->fft[d], &pass);
    }
    return rc;
}

/* Blocks of 256; a thread owns one cell. place[nx]: where the frequencies along x go. */
static __global__ void real_parts(size_t cells, int nx, const int *place, const float2 *values, float scale, float *to)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, row = i / nx;
    if (i < cells)
        to[row * nx + place[i - row * nx]] = values[i].x * scale;
}

/* fft_rows_place() of the frequencies along x, on the device. */
static int make_places(const struct convolution_gpu *c, int **place)
{
    const int nx = c->grid[0];
    int *host = (int *)malloc((size_t)nx * sizeof *host);
    if (!host)
        return err_no_memory("the order of a convolution's kernel");
    for (int f = 0; f < nx; f++)
        host[f] = fft_rows_place(nx, f);
    int rc = gpu_array(c->gpu, (size_t)nx, place, "The order of the convolution's kernel");
    if (!rc)
        rc = gpu_upload(c->gpu, *place, host, (size_t)nx * sizeof *host);
    free(host);
    return rc;
}

static int set_kernel(void *state, const int kernel_n[3], const struct c32 *kernel, float scale)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    struct c32 *values = NULL;
    int *place = NULL, rc = gpu_enter(c->gpu);
    if (!rc)
        rc = gpu_array(c->gpu, c->cells, &values, "The transform of the convolution's kernel");
    if (!rc)
        rc = make_places(c, &place);
    if (!rc)
        rc = transform(c, kernel_n, kernel, values);
    if (!rc) {
        real_parts<<<gpu_blocks(c->cells, 256), 256, 0, c->gpu->stream>>>(c->cells, c->grid[0], place,
                                                                          (const float2 *)values, scale, c->spectrum);
        rc = gpu_launched("Keeping the convolution's kernel");
    }
    gpu_release(c->gpu, values);
    gpu_release(c->gpu, place);
    return rc ? rc : gpu_finish(c->gpu, "Keeping the convolution's kernel");
}

/* ---- images ---- */

/* The columns of an axis, with the layouts `kept` if cropped and `whole` as frequencies. */
static int along(const struct convolution_gpu *c, int axis, enum fft_kind kind, const struct fft_view &kept,
                 const struct fft_view &whole, int lines, int sets, const struct c32 *in, struct c32 *out)
{
    struct fft_pass pass = {};
    pass.kind = kind;
    pass.in = (const float2 *)in;
    pass.out = (float2 *)out;
    pass.in_view = kind == FFT_FORTH ? kept : whole;
    pass.out_view = kind == FFT_FORTH ? whole : kept;
    pass.kept = c->n[axis];
    pass.volume = c->dim == 3;
    pass.lines = lines;
    pass.sets = sets;
    return fft_convolve_columns(c->gpu, &c->fft[axis], &pass);
}

/* Along z: images to planes, or planes to images. */
static int along_z(const struct convolution_gpu *c, enum fft_kind kind, int images, const struct c32 *in,
                   struct c32 *out)
{
    const struct fft_view image = {c->plane, 1, c->pixels}, planes = {c->plane * images, 1, c->plane};
    return along(c, 2, kind, image, planes, (int)c->plane, images, in, out);
}

/* Along y: planes to rows, or rows to planes. */
static int along_y(const struct convolution_gpu *c, enum fft_kind kind, int sets, const struct c32 *in, struct c32 *out)
{
    const struct fft_view plane = {(size_t)c->n[0], 1, c->plane}, rows = {(size_t)c->n[0], 1, c->row_plane};
    return along(c, 1, kind, plane, rows, c->n[0], sets, in, out);
}

/* Planes to planes: `shared` adjacent ones use one plane of the spectrum. */
static int planes_convolve(const struct convolution_gpu *c, int count, int shared, const struct c32 *in,
                           struct c32 *out)
{
    const int most = shared > c->sets ? c->sets : c->sets / shared * shared;
    int rc = 0;
    for (int first = 0; !rc && first < count; first += most) {
        const int sets = std::min(most, count - first);
        const struct fft_rows rows = {(float2 *)c->rows,
                                      c->n[0],
                                      c->grid[1],
                                      sets,
                                      c->spectrum + (size_t)(first / shared) * c->grid[0] * c->grid[1],
                                      std::min(shared, sets)};
        rc = along_y(c, FFT_FORTH, sets, in + first * c->plane, c->rows);
        if (!rc)
            rc = fft_convolve_rows(c->gpu, &c->fft[0], &rows);
        if (!rc)
            rc = along_y(c, FFT_BACK, sets, c->rows, out + first * c->plane);
    }
    return rc;
}

/* All launches of a call. */
static int convolve(const struct convolution_gpu *c, int batch, const struct c32 *image, struct c32 *result)
{
    int rc = 0;
    for (int first = 0; !rc && first < batch; first += c->group) {
        const int images = std::min(c->group, batch - first);
        const struct c32 *from = image + first * c->pixels;
        struct c32 *to = result + first * c->pixels;
        if (c->dim == 2) {
            rc = planes_convolve(c, images, images, from, to);
            continue;
        }
        rc = along_z(c, FFT_FORTH, images, from, c->planes);
        if (!rc)
            rc = planes_convolve(c, images * c->grid[2], images, c->planes, c->planes);
        if (!rc)
            rc = along_z(c, FFT_BACK, images, c->planes, to);
    }
    return rc;
}

/* The launches of the call as a graph. */
static int call_record(struct convolution_gpu *c)
{
    cudaGraph_t graph = NULL;
    int rc = gpu_check(cudaStreamBeginCapture(c->gpu->stream, cudaStreamCaptureModeThreadLocal), "Recording a call");
    if (rc)
        return rc;
    rc = convolve(c, c->call.batch, c->call.image, c->call.result);
    const int ended = gpu_check(cudaStreamEndCapture(c->gpu->stream, &graph), "Recording a call");
    rc = rc ? rc : ended;
    if (!rc)
        rc = gpu_check(cudaGraphInstantiate(&c->call.graph, graph, 0), "Recording a call");
    if (graph)
        (void)cudaGraphDestroy(graph);
    return rc;
}

static int apply(void *state, int batch, const struct c32 *image, struct c32 *result)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    const bool again = c->call.batch == batch && c->call.image == image && c->call.result == result;
    int rc = gpu_enter(c->gpu);
    if (!rc && !again) {
        call_forget(&c->call);
        c->call = {batch, image, result, NULL};
        rc = convolve(c, batch, image, result);
    } else if (!rc) {
        if (!c->call.graph)
            rc = call_record(c);
        if (!rc)
            rc = gpu_check(cudaGraphLaunch(c->call.graph, c->gpu->stream), "The convolution");
    }
    return rc;
}

static struct c32 *kernel(void *state)
{
    return (struct c32 *)((struct convolution_gpu *)state)->spectrum;
}

/* ---- coils of frames ---- */

static bool takes_coils(int dim, const int grid[3])
{
    return dim == 2 && fft_in_halves(grid[0]) && fft_in_halves(grid[1]);
}

/* `of` from frame `first` on. */
static int frames_convolve(const struct convolution_gpu *c, const struct fft_coils &of, const float *spectrum,
                           const struct c32 *image, struct c32 *result)
{
    const fft_view images = {(size_t)c->n[0], 1, c->plane}, in_rows = {(size_t)c->n[0], 1, c->row_plane};
    const struct fft_rows rows = {(float2 *)c->rows, c->n[0], c->grid[1], of.frames * of.coils, spectrum, of.coils};
    struct fft_pass pass = {};
    pass.kind = FFT_FORTH;
    pass.in = (const float2 *)image;
    pass.out = (float2 *)c->rows;
    pass.in_view = images;
    pass.out_view = in_rows;
    pass.kept = c->n[1];
    pass.lines = c->n[0];
    int rc = fft_halves_columns_of_coils(c->gpu, &c->fft[1], &pass, &of);
    if (!rc)
        rc = fft_halves_rows_of_coils(c->gpu, &c->fft[0], &rows, &of);
    pass.kind = FFT_BACK;
    pass.in = (const float2 *)c->rows;
    pass.out = (float2 *)result;
    pass.in_view = in_rows;
    pass.out_view = images;
    return rc ? rc : fft_halves_columns_to_sums(c->gpu, &c->fft[1], &pass, &of);
}

static int apply_coils(void *state, const struct normal_coils *coils, size_t kernel_elements, const struct c32 *image,
                       struct c32 *result)
{
    const struct convolution_gpu *c = (const struct convolution_gpu *)state;
    const int most = c->sets / coils->coils;
    if (most < 1)
        return err_set(
            ERR_GPU_OOM,
            "A normal operator of %d x %d pixels has room for %d coils at a time, and %d were asked for: the "
            "GPU's memory is nearly full. Run the job when less is running.",
            c->n[0], c->n[1], c->sets, coils->coils);
    int rc = gpu_enter(c->gpu);
    for (int first = 0; !rc && first < coils->frames; first += most) {
        struct fft_coils of = {};
        of.frames = std::min(most, coils->frames - first);
        of.coils = coils->coils;
        of.maps = (const float2 *)coils->maps + first * coils->maps_step;
        of.maps_step = coils->maps_step;
        of.map = c->plane;
        of.running = coils->running ? coils->running + first : NULL;
        of.spectrum_step = coils->kernels ? 2 * kernel_elements : 0;
        const float *spectrum = coils->kernels ? (const float *)coils->kernels + first * of.spectrum_step : c->spectrum;
        rc = frames_convolve(c, of, spectrum, image + first * c->plane, result + first * c->plane);
    }
    return rc;
}

extern "C" const struct convolution_leaf convolution_leaf_gpu;
const struct convolution_leaf convolution_leaf_gpu = {axis_size, create, destroy,     bytes,      set_kernel,
                                                      apply,     kernel, takes_coils, apply_coils};
