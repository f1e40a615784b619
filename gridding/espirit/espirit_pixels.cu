/* The maps pixel by pixel: the operator of each pixel from its lags, one axis after the other, and its first
 * eigenvector.
 *
 * A group of 8, 16 or 32 threads has a pixel's matrix in its registers. It goes along a row of pixels, each from the
 * vector of the one before. */
#include "gridding/espirit/espirit_vector.cuh"

enum { THREADS = 128, RUN = 8 /* pixels of a group, one after the other */ };
static const char what[] = "ESPIRiT's coil maps";

/* G's norm is at least its first eigenvalue: a pixel whose norm is below this share of `crop` has no map, whatever the
 * rounding. */
#define NORM_SHARE 0.99f

/* turns[x][l] = exp(2 pi i (x - floor(n/2)) l / n), l = -(lags - 1) / 2 .. */
static __global__ void turns_fill(int n, int lags, float2 *turns)
{
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= n * lags)
        return;
    const double2 turn = espirit_turn((at / lags - n / 2) * (at % lags - lags / 2), n);
    turns[at] = make_float2((float)turn.x, (float)turn.y);
}

/* out[set][r][inner] = sum over lags l of exp(2 pi i l r / n) in[set][l][inner], for r = first + blockIdx.y. */
static __global__ void __launch_bounds__(THREADS)
    lags_turn(int n, int lags, int first, size_t inner, const float2 *in, float2 *out)
{
    __shared__ float2 turns[ESPIRIT_LAGS_MOST];
    const size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x, set = blockIdx.z;
    const int r = first + (int)blockIdx.y;
    if (threadIdx.x < lags) {
        const double2 turn = espirit_turn((r - n / 2) * ((int)threadIdx.x - lags / 2), n);
        turns[threadIdx.x] = make_float2((float)turn.x, (float)turn.y);
    }
    __syncthreads();
    if (at >= inner)
        return;
    float2 sum = make_float2(0, 0);
    for (int l = 0; l < lags; l++) {
        const float2 v = in[(set * lags + l) * inner + at], w = turns[l];
        sum.x += w.x * v.x - w.y * v.y;
        sum.y += w.x * v.y + w.y * v.x;
    }
    out[(set * gridDim.y + blockIdx.y) * inner + at] = sum;
}

struct pixels_task {
    int nx, lags, coils;
    size_t first, pixels;                    /* the first row of pixels of the slab; of an image */
    const float2 *turns, *lines, *reference; /* lines: of the slab's rows */
    float2 *maps;
    float crop;
    struct espirit_state *state;
};

/* Row `lane` of pixel x's operator. */
template <int LANES>
static __device__ void row_fill(const struct pixels_task *t, const float2 *line, int x, int lane, float2 (&row)[LANES])
{
#pragma unroll
    for (int j = 0; j < LANES; j++)
        row[j] = make_float2(0, 0);
    for (int l = 0; l < t->lags; l++) {
        const float2 w = t->turns[x * t->lags + l];
#pragma unroll
        for (int j = 0; j < LANES; j++) {
            const float2 v = line[(l * LANES + j) * LANES + lane];
            row[j].x += w.x * v.x;
            row[j].y += w.x * v.y;
            row[j].x -= w.y * v.y;
            row[j].y += w.y * v.x;
        }
    }
#pragma unroll
    for (int j = 0; j < LANES; j++)
        row[j].y = j == lane ? 0 : row[j].y;
}

/* The vector, with the phase that makes its product with the reference positive. */
template <int LANES> static __device__ float2 phase_turn(float2 vector, float2 reference)
{
    const float re = lanes_sum<LANES>(reference.x * vector.x + reference.y * vector.y);
    const float im = lanes_sum<LANES>(reference.x * vector.y - reference.y * vector.x);
    const float size = hypotf(re, im), c = size > 0 ? re / size : 1, s = size > 0 ? im / size : 0;
    return make_float2(vector.x * c + vector.y * s, vector.y * c - vector.x * s);
}

template <int LANES> static __global__ void __launch_bounds__(THREADS) pixels_map(struct pixels_task t)
{
    extern __shared__ float2 line[]; /* [lags][LANES][LANES] */
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES, length = t.lags * LANES * LANES;
    const int begin = (blockIdx.x * (THREADS / LANES) + group) * RUN;
    const size_t at = (t.first + blockIdx.y) * t.nx;
    const float2 reference = lane < t.coils ? t.reference[lane] : make_float2(0, 0);
    const float2 *from = t.lines + blockIdx.y * (size_t)length;
    unsigned long long support = 0;
    float2 vector = make_float2(0, 0);
    bool follows = false;
    for (int i = threadIdx.x; i < length; i += THREADS)
        line[i] = from[i];
    __syncthreads();
    for (int x = begin; x < begin + RUN; x++) {
        const bool inside = x < t.nx;
        float2 row[LANES];
        float square = 0;
        row_fill<LANES>(&t, line, inside ? x : t.nx - 1, lane, row);
#pragma unroll
        for (int j = 0; j < LANES; j++)
            square += row[j].x * row[j].x + row[j].y * row[j].y;
        square = lanes_sum<LANES>(square);
        const bool runs = inside && square >= NORM_SHARE * NORM_SHARE * t.crop * t.crop;
        const float2 fresh = vector_begin<LANES>(row, lane);
        vector = follows ? vector : fresh;
        const float value = vector_first<LANES>(row, lane, runs, &vector);
        const bool kept = runs && value > 0 && value >= t.crop;
        const float2 map = phase_turn<LANES>(vector, reference);
        if (inside && lane < t.coils)
            t.maps[lane * t.pixels + at + x] = kept ? map : make_float2(0, 0);
        support += kept && lane == 0;
        follows = runs;
    }
    if (support > 0)
        atomicAdd(&t.state->support, support); /* a number of pixels: any order gives the same */
}

template <int LANES> static int pixels_run(const struct espirit_work *w, const struct pixels_task *t, unsigned rows)
{
    const size_t bytes = (size_t)w->lags[0] * LANES * LANES * sizeof(float2);
    const dim3 blocks(gpu_blocks((size_t)w->p.n[0], THREADS / LANES * RUN), rows);
    int rc = gpu_check(cudaFuncSetAttribute(pixels_map<LANES>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                       what);
    if (rc)
        return rc;
    pixels_map<LANES><<<blocks, THREADS, bytes, w->gpu->stream>>>(*t);
    return gpu_launched(what);
}

int espirit_pixels(const struct espirit_work *w, size_t first, size_t count, float2 *maps)
{
    const int *n = w->p.n, *lags = w->lags;
    const size_t line = (size_t)lags[0] * w->slots, plane = (size_t)lags[1] * line;
    cudaStream_t stream = w->gpu->stream;
    struct pixels_task t = {n[0],     lags[0],      w->p.coils, first * (size_t)n[1], w->pixels, w->turns,
                            w->lines, w->reference, maps,       (float)w->p.crop,     w->state};
    if (first == 0)
        turns_fill<<<gpu_blocks((size_t)n[0] * (size_t)lags[0], THREADS), THREADS, 0, stream>>>(n[0], lags[0],
                                                                                                w->turns);
    if (w->planes)
        lags_turn<<<dim3(gpu_blocks(plane, THREADS), (unsigned)count), THREADS, 0, stream>>>(
            n[2], lags[2], (int)first, plane, w->values, w->planes);
    lags_turn<<<dim3(gpu_blocks(line, THREADS), (unsigned)n[1], (unsigned)count), THREADS, 0, stream>>>(
        n[1], lags[1], 0, line, w->planes ? w->planes : w->values, w->lines);
    const int rc = gpu_launched(what);
    const unsigned rows = (unsigned)(count * (size_t)n[1]);
    if (rc)
        return rc;
    return w->lanes == 8    ? pixels_run<8>(w, &t, rows)
           : w->lanes == 16 ? pixels_run<16>(w, &t, rows)
                            : pixels_run<32>(w, &t, rows);
}
