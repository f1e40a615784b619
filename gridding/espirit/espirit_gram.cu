/* The matrix A' A or A A', and its largest eigenvalue.
 *
 * Entries with the same difference of place share their products: with T(u) = sum_c y_c(u) conj(y_c(u + d)), the entry
 * of places q + d and q of A' A is the sum of T(q + p) over a kernel's offsets p; in A A' offsets and places change
 * roles, for each pair of coils. */
#include "gridding/espirit/espirit_gpu.cuh"

enum { THREADS = 256, WARP = 32, POWER_STEPS = 12 /* to find s_0 within a few percent */ };
static const char what[] = "ESPIRiT's calibration matrix";

struct gram_task {
    int m[3], index[3], box[3]; /* of the centre; of the places that number the entries; of the sums */
    int coils;
    bool by_places;
    size_t side, size; /* size: of the centre */
    const float2 *centre;
    double2 *matrix;
};

/* x + y n_x + z n_x n_y */
static __device__ int linear(const int *at, const int *n)
{
    return (at[2] * n[1] + at[1]) * n[0] + at[0];
}

static __device__ void place_of(int index, const int *n, int *at)
{
    at[0] = index % n[0];
    at[1] = index / n[0] % n[1];
    at[2] = index / n[0] / n[1];
}

/* The product of two samples at a distance of `d`, or the sum over coils of it: T(u). */
static __device__ double2 product_of(const struct gram_task *g, int a, int b, const int *d, int index)
{
    int u[3], v[3];
    bool inside = true;
    double2 sum = make_double2(0, 0);
    place_of(index, g->m, u);
    for (int e = 0; e < 3; e++) {
        v[e] = u[e] + d[e];
        inside = inside && v[e] >= 0 && v[e] < g->m[e];
    }
    const int there = linear(v, g->m);
    for (int c = 0; c < (g->by_places ? g->coils : 1) && inside; c++) {
        const float2 x = g->centre[(g->by_places ? c : b) * g->size + index];
        const float2 y = g->centre[(g->by_places ? c : a) * g->size + there];
        sum.x += (double)x.x * y.x + (double)x.y * y.y;
        sum.y += (double)x.y * y.x - (double)x.x * y.y;
    }
    return g->by_places ? sum : make_double2(sum.x, -sum.y);
}

/* Block (difference, pair of coils): the entries of row (a, t + d) and column (b, t), and their mirror images. */
static __global__ void __launch_bounds__(THREADS) gram_sum(struct gram_task g)
{
    extern __shared__ double2 products[]; /* [centre] */
    int span[3], d[3], a = 0, b = blockIdx.y, offset[3];
    int boxes = 1, indices = 1;
    for (int e = 0; e < 3; e++) {
        span[e] = 2 * g.index[e] - 1;
        boxes *= g.box[e];
        indices *= g.index[e];
    }
    for (; b > a; a++)
        b -= a + 1;
    place_of(blockIdx.x, span, d);
    for (int e = 0; e < 3; e++)
        d[e] -= g.index[e] - 1;
    if (a == b && (d[2] < 0 || (d[2] == 0 && (d[1] < 0 || (d[1] == 0 && d[0] < 0)))))
        return; /* the mirror image of another block */
    for (int u = threadIdx.x; u < (int)g.size; u += THREADS)
        products[u] = product_of(&g, a, b, d, u);
    __syncthreads();
    for (int t = threadIdx.x; t < indices; t += THREADS) {
        int from[3], to[3];
        bool inside = true;
        double2 sum = make_double2(0, 0);
        place_of(t, g.index, from);
        for (int e = 0; e < 3; e++) {
            to[e] = from[e] + d[e];
            inside = inside && to[e] >= 0 && to[e] < g.index[e];
        }
        if (!inside)
            continue;
        const int first = linear(from, g.m);
        for (int s = 0; s < boxes; s++) {
            place_of(s, g.box, offset);
            const double2 value = products[first + linear(offset, g.m)];
            sum.x += value.x;
            sum.y += value.y;
        }
        const size_t row = (size_t)a * indices + linear(to, g.index), column = (size_t)b * indices + t;
        g.matrix[column * g.side + row] = make_double2(sum.x, -sum.y);
        g.matrix[row * g.side + column] = make_double2(sum.x, row == column ? 0 : sum.y);
    }
}

/* Below the matrix: A, or I. */
static __global__ void __launch_bounds__(THREADS) below_fill(struct gram_task g, size_t count)
{
    const size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (at >= count)
        return;
    const size_t row = at / g.side, column = at % g.side;
    double2 *to = g.matrix + g.side * g.side + at;
    int offset[3], place[3];
    if (!g.by_places) {
        *to = make_double2(row == column, 0);
        return;
    }
    const int offsets = g.box[0] * g.box[1] * g.box[2];
    place_of((int)(row % offsets), g.box, offset);
    place_of((int)column, g.index, place);
    const float2 value = g.centre[row / offsets * g.size + linear(place, g.m) + linear(offset, g.m)];
    *to = make_double2(value.x, value.y);
}

/* One block: the matrix's trace, and its column with the largest diagonal entry, divided by the trace. */
static __global__ void __launch_bounds__(THREADS)
    power_begin(size_t side, const double2 *matrix, double2 *vector, struct espirit_state *state)
{
    __shared__ double shared[THREADS];
    __shared__ int places[THREADS];
    double sum = 0, most = -1;
    int at = 0;
    for (size_t i = threadIdx.x; i < side; i += THREADS) {
        const double value = matrix[i * side + i].x;
        sum += value;
        if (value > most) {
            most = value;
            at = (int)i;
        }
    }
    const double trace = espirit_block_sum<THREADS>(sum, shared);
    __syncthreads();
    shared[threadIdx.x] = most;
    places[threadIdx.x] = at;
    __syncthreads();
    for (int t = 0; t < THREADS; t++) /* the first of equal ones */
        if (shared[t] > most || (shared[t] == most && places[t] < at)) {
            most = shared[t];
            at = places[t];
        }
    for (size_t i = threadIdx.x; i < side; i += THREADS) {
        const double2 value = matrix[i * side + (size_t)at];
        vector[i] = trace > 0 ? make_double2(value.x / trace, value.y / trace) : make_double2(0, 0);
    }
    if (threadIdx.x == 0)
        state->trace = trace;
}

/* out = matrix in / trace, a warp for each row */
static __global__ void __launch_bounds__(THREADS)
    power_step(size_t side, const double2 *matrix, const double2 *in, double2 *out, const struct espirit_state *state)
{
    const size_t row = blockIdx.x * (size_t)(THREADS / WARP) + threadIdx.x / WARP;
    double re = 0, im = 0;
    if (row >= side)
        return;
    for (size_t j = threadIdx.x % WARP; j < side; j += WARP) {
        const double2 m = matrix[row * side + j], v = in[j];
        re += m.x * v.x - m.y * v.y;
        im += m.x * v.y + m.y * v.x;
    }
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        re += __shfl_xor_sync(0xffffffffu, re, distance);
        im += __shfl_xor_sync(0xffffffffu, im, distance);
    }
    if (threadIdx.x % WARP == 0)
        out[row] = state->trace > 0 ? make_double2(re / state->trace, im / state->trace) : make_double2(0, 0);
}

/* One block: e = threshold^2 trace |last| / |before|. */
static __global__ void __launch_bounds__(THREADS)
    cut_find(size_t side, double threshold, const double2 *before, const double2 *last, struct espirit_state *state)
{
    __shared__ double shared[THREADS];
    double a = 0, b = 0;
    for (size_t i = threadIdx.x; i < side; i += THREADS) {
        a += before[i].x * before[i].x + before[i].y * before[i].y;
        b += last[i].x * last[i].x + last[i].y * last[i].y;
    }
    a = espirit_block_sum<THREADS>(a, shared);
    b = espirit_block_sum<THREADS>(b, shared);
    if (threadIdx.x == 0)
        state->cut = a > 0 ? threshold * threshold * state->trace * sqrt(b / a) : 0;
}

static int cut_run(const struct espirit_work *w)
{
    const size_t side = w->s.side;
    cudaStream_t stream = w->gpu->stream;
    double2 *now = w->vector[0], *next = w->vector[1];
    power_begin<<<1, THREADS, 0, stream>>>(side, w->matrix, now, w->state);
    for (int step = 1; step < POWER_STEPS; step++) {
        power_step<<<gpu_blocks(side, THREADS / WARP), THREADS, 0, stream>>>(side, w->matrix, now, next, w->state);
        double2 *before = now;
        now = next;
        next = before;
    }
    cut_find<<<1, THREADS, 0, stream>>>(side, w->p.threshold, next, now, w->state);
    return gpu_launched(what);
}

int espirit_gram(const struct espirit_work *w)
{
    const bool by_places = w->s.by_places;
    struct gram_task g = {{0}, {0}, {0}, w->p.coils, by_places, w->s.side, w->centre_size, w->centre, w->matrix};
    const size_t bytes = w->centre_size * sizeof(double2), below = w->s.rows * w->s.side;
    size_t differences = 1;
    for (int d = 0; d < 3; d++) {
        const int places = w->p.m[d] - w->p.width[d] + 1;
        g.m[d] = w->p.m[d];
        g.index[d] = by_places ? places : w->p.width[d];
        g.box[d] = by_places ? w->p.width[d] : places;
        differences *= (size_t)(2 * g.index[d] - 1);
    }
    int rc = gpu_check(cudaFuncSetAttribute(gram_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), what);
    if (rc)
        return rc;
    const dim3 blocks((unsigned)differences, by_places ? 1 : (unsigned)w->pairs);
    gram_sum<<<blocks, THREADS, bytes, w->gpu->stream>>>(g);
    below_fill<<<gpu_blocks(below, THREADS), THREADS, 0, w->gpu->stream>>>(g, below);
    rc = gpu_launched(what);
    return rc ? rc : cut_run(w);
}
