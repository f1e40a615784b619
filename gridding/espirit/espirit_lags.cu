/* P = X X^H, or I - e X X^H, summed over equal lags, by a transform of each vector of X over a kernel's offsets
 * (recon/mri/maps_lags.c):
 *
 *   G_s[i][k] = sum over offsets p of X[(i, p)][s] exp(-2 pi i k p / L),  L = 2 width - 1
 *   c_ij[l] = L^-d sum over k of exp(2 pi i k l / L) sum over s of G_s[i][k] conj(G_s[j][k]) */
#include "gridding/espirit/espirit_gpu.cuh"

enum { THREADS = 128, PAIR_THREADS = 256, TOGETHER = 16 /* vectors in shared memory */ };
static const char what[] = "ESPIRiT's kernels";

struct lags_task {
    int width[3], lags[3], coils, lanes;
    size_t offsets, all, pairs, side;
    size_t first, count, batch; /* vectors */
    bool by_places;
    const double2 *matrix;
    float2 *waves, *values;
    double2 *sums;
    const struct espirit_state *state;
};

/* Along the middle axis: in [outer][from][inner], out [outer][lags][inner]; out number t is that of exp(turn 2 pi i
 * (t - shift) f / lags). circle[j] = exp(2 pi i j / lags). */
static __device__ void axis_turn(int outer, int from, int lags, int inner, int shift, int sign, const double2 *circle,
                                 const double2 *in, double2 *out)
{
    for (int at = threadIdx.x; at < outer * lags * inner; at += THREADS) {
        const int i = at % inner, t = at / inner % lags, o = at / inner / lags;
        const int turn = (sign * (t - shift) % lags + lags) % lags;
        double2 sum = make_double2(0, 0);
        for (int f = 0, place = 0; f < from; f++) {
            const double2 v = in[(o * from + f) * inner + i], w = circle[place];
            sum.x += w.x * v.x - w.y * v.y;
            sum.y += w.x * v.y + w.y * v.x;
            place = place + turn < lags ? place + turn : place + turn - lags;
        }
        out[at] = sum;
    }
    __syncthreads();
}

static __device__ void circles_fill(const struct lags_task *t, double2 (*circle)[ESPIRIT_LAGS_MOST + 1])
{
    for (int d = 0; d < 3; d++)
        for (int j = threadIdx.x; j < t->lags[d]; j += THREADS)
            circle[d][j] = espirit_turn(j, t->lags[d]);
}

/* A block for a vector and a coil: G_s[i] of all k. */
static __global__ void __launch_bounds__(THREADS) vectors_turn(struct lags_task t)
{
    extern __shared__ double2 memory[]; /* [2][all] */
    __shared__ double2 circle[3][ESPIRIT_LAGS_MOST + 1];
    double2 *a = memory, *b = memory + t.all;
    const size_t s = blockIdx.x, i = blockIdx.y;
    const int *w = t.width, *l = t.lags;
    circles_fill(&t, circle);
    for (size_t p = threadIdx.x; p < t.offsets; p += THREADS)
        a[p] = t.matrix[(t.side + i * t.offsets + p) * t.side + t.first + s];
    __syncthreads();
    axis_turn(1, w[2], l[2], w[1] * w[0], 0, -1, circle[2], a, b);
    axis_turn(l[2], w[1], l[1], w[0], 0, -1, circle[1], b, a);
    axis_turn(l[2] * l[1], w[0], l[0], 1, 0, -1, circle[0], a, b);
    for (size_t k = threadIdx.x; k < t.all; k += THREADS)
        t.waves[(k * t.batch + s) * t.coils + i] = make_float2((float)b[k].x, (float)b[k].y);
}

/* A block for a k and up to 256 pairs of coils: their products, summed over the vectors. */
static __global__ void __launch_bounds__(PAIR_THREADS) products_sum(struct lags_task t)
{
    __shared__ double2 tile[TOGETHER][ESPIRIT_COILS_MOST];
    const size_t k = blockIdx.x, pair = blockIdx.y * (size_t)PAIR_THREADS + threadIdx.x;
    const float2 *waves = t.waves + k * t.batch * t.coils;
    int i = 0, j = (int)pair;
    double2 sum = make_double2(0, 0);
    for (; j > i; i++)
        j -= i + 1;
    const bool mine = pair < t.pairs;
    if (mine && t.first > 0)
        sum = t.sums[k * t.pairs + pair];
    for (size_t s = 0; s < t.count; s += TOGETHER) {
        const int now = t.count - s < TOGETHER ? (int)(t.count - s) : TOGETHER;
        __syncthreads();
        for (int at = threadIdx.x; at < now * t.coils; at += PAIR_THREADS) {
            const float2 v = waves[s * t.coils + at];
            tile[at / t.coils][at % t.coils] = make_double2(v.x, v.y);
        }
        __syncthreads();
        for (int r = 0; r < now && mine; r++) {
            const double2 x = tile[r][i], y = tile[r][j];
            sum.x += x.x * y.x + x.y * y.y;
            sum.y += x.y * y.x - x.x * y.y;
        }
    }
    if (mine)
        t.sums[k * t.pairs + pair] = sum;
}

/* A block for a pair of coils: its lags, and those of the pair in the other order. */
static __global__ void __launch_bounds__(THREADS) pairs_turn(struct lags_task t)
{
    extern __shared__ double2 memory[]; /* [2][all] */
    __shared__ double2 circle[3][ESPIRIT_LAGS_MOST + 1];
    double2 *a = memory, *b = memory + t.all;
    const int *l = t.lags, *w = t.width;
    const size_t pair = blockIdx.x, slots = (size_t)t.lanes * t.lanes;
    int i = 0, j = (int)pair;
    for (; j > i; i++)
        j -= i + 1;
    circles_fill(&t, circle);
    for (size_t k = threadIdx.x; k < t.all; k += THREADS)
        a[k] = t.sums[k * t.pairs + pair];
    __syncthreads();
    axis_turn(1, l[2], l[2], l[1] * l[0], w[2] - 1, 1, circle[2], a, b);
    axis_turn(l[2], l[1], l[1], l[0], w[1] - 1, 1, circle[1], b, a);
    axis_turn(l[2] * l[1], l[0], l[0], 1, w[0] - 1, 1, circle[0], a, b);
    const double cut = t.state->cut, scale = (t.by_places ? 1 : -cut) / ((double)t.all * (double)t.offsets);
    for (size_t lag = threadIdx.x; lag < t.all; lag += THREADS) {
        const double one = !t.by_places && i == j && lag == t.all / 2;
        const float2 value =
            cut > 0 ? make_float2((float)(one + scale * b[lag].x), (float)(scale * b[lag].y)) : make_float2(0, 0);
        t.values[(t.all - 1 - lag) * slots + i * t.lanes + j] = make_float2(value.x, -value.y);
        if (i != j)
            t.values[lag * slots + j * t.lanes + i] = value;
    }
}

int espirit_lags(const struct espirit_work *w)
{
    struct lags_task t = {};
    for (int d = 0; d < 3; d++) {
        t.width[d] = w->p.width[d];
        t.lags[d] = w->lags[d];
    }
    t.coils = w->p.coils;
    t.lanes = w->lanes;
    t.offsets = w->s.offsets;
    t.all = w->all;
    t.pairs = w->pairs;
    t.side = w->s.side;
    t.batch = w->batch;
    t.by_places = w->s.by_places;
    t.matrix = w->matrix;
    t.waves = w->waves;
    t.values = w->values;
    t.sums = w->sums;
    t.state = w->state;
    const size_t bytes = 2 * w->all * sizeof(double2);
    cudaStream_t stream = w->gpu->stream;
    int rc =
        gpu_check(cudaFuncSetAttribute(vectors_turn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), what);
    if (!rc)
        rc = gpu_check(cudaFuncSetAttribute(pairs_turn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), what);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(w->values, 0, w->all * w->slots * sizeof *w->values, stream), what);
    if (rc)
        return rc;
    const dim3 tiles((unsigned)w->all, gpu_blocks(w->pairs, PAIR_THREADS));
    for (t.first = 0; t.first < t.side; t.first += t.batch) {
        t.count = t.side - t.first < t.batch ? t.side - t.first : t.batch;
        vectors_turn<<<dim3((unsigned)t.count, (unsigned)t.coils), THREADS, bytes, stream>>>(t);
        products_sum<<<tiles, PAIR_THREADS, 0, stream>>>(t);
    }
    pairs_turn<<<(unsigned)w->pairs, THREADS, bytes, stream>>>(t);
    return gpu_launched(what);
}
