/* The centre of k-space of coil images, by sums over one axis after the other, and what follows from it alone: the
 * combination of coils with the most signal, and whether the data are finite. */
#include "gridding/espirit/espirit_vector.cuh"

static const unsigned THREADS = 256;
static const int REFERENCE_ROUNDS = 64; /* of a power iteration, of at least one step */
static const char what[] = "The centre of k-space of coil images";

/* turns[r][k] = exp(-2 pi i r k / n), r = -floor(n/2) .., k = -floor(m/2) .. */
static __global__ void turns_fill(int n, int m, float2 *turns)
{
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= n * m)
        return;
    const double2 turn = espirit_turn((at / m - n / 2) * (at % m - m / 2), n);
    turns[at] = make_float2((float)turn.x, (float)-turn.y);
}

/* The sums over one axis: out[outer][to][inner] = sum_f turns[f][to] in[outer][f][inner]. */
static __global__ void __launch_bounds__(THREADS)
    axis_sum(size_t outputs, size_t inner, size_t from, size_t to, const float2 *turns, const float2 *in, float2 *out)
{
    const size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (at >= outputs)
        return;
    const size_t t = at / inner % to, first = at / inner / to * from * inner + at % inner;
    float re = 0, im = 0;
#pragma unroll 4
    for (size_t f = 0; f < from; f++) {
        const float2 v = in[first + f * inner], turn = turns[f * to + t];
        re += turn.x * v.x - turn.y * v.y;
        im += turn.x * v.y + turn.y * v.x;
    }
    out[at] = make_float2(re, im);
}

static int axis_run(const struct espirit_work *w, int d, const float2 *in, float2 *out)
{
    const int *n = w->p.n, *m = w->p.m;
    size_t inner = 1, outer = (size_t)w->p.coils;
    for (int e = 0; e < 3; e++)
        *(e < d ? &inner : &outer) *= e == d ? 1 : (size_t)(e < d ? m[e] : n[e]);
    const size_t outputs = outer * (size_t)m[d] * inner;
    turns_fill<<<gpu_blocks((size_t)n[d] * (size_t)m[d], THREADS), THREADS, 0, w->gpu->stream>>>(n[d], m[d], w->turns);
    axis_sum<<<gpu_blocks(outputs, THREADS), THREADS, 0, w->gpu->stream>>>(outputs, inner, (size_t)n[d], (size_t)m[d],
                                                                           w->turns, in, out);
    return gpu_launched(what);
}

/* A block for each pair of coils. */
static __global__ void __launch_bounds__(THREADS)
    covariance_sum(int coils, size_t size, const float2 *centre, double2 *covariance)
{
    __shared__ double shared[THREADS];
    const int i = blockIdx.x, j = blockIdx.y;
    const float2 *a = centre + i * size, *b = centre + j * size;
    double re = 0, im = 0;
    if (j > i)
        return;
    for (size_t q = threadIdx.x; q < size; q += THREADS) {
        re += (double)a[q].x * b[q].x + (double)a[q].y * b[q].y;
        im += (double)a[q].y * b[q].x - (double)a[q].x * b[q].y;
    }
    re = espirit_block_sum<THREADS>(re, shared);
    im = espirit_block_sum<THREADS>(im, shared);
    if (threadIdx.x == 0) {
        covariance[j * coils + i] = make_double2(re, -im);
        covariance[i * coils + j] = make_double2(re, i == j ? 0 : im);
    }
}

/* One warp. */
static __global__ void reference_find(int coils, const double2 *covariance, float2 *reference,
                                      struct espirit_state *state)
{
    const int lane = threadIdx.x;
    float2 row[ESPIRIT_COILS_MOST];
    double trace = 0;
    for (int i = 0; i < coils; i++)
        trace += covariance[i * coils + i].x;
    const double scale = trace > 0 ? 1 / trace : 0;
#pragma unroll
    for (int j = 0; j < ESPIRIT_COILS_MOST; j++) {
        const double2 value = lane < coils && j < coils ? covariance[lane * coils + j] : make_double2(0, 0);
        row[j] = make_float2((float)(scale * value.x), (float)(scale * value.y));
    }
    float2 vector = vector_begin<ESPIRIT_COILS_MOST>(row, lane);
    for (int round = 0; round < REFERENCE_ROUNDS; round++)
        vector_first<ESPIRIT_COILS_MOST>(row, lane, true, &vector);
    if (lane < coils)
        reference[lane] = vector;
    if (lane == 0) {
        state->support = 0;
        state->finite = isfinite(trace);
    }
}

int espirit_centre(const struct espirit_work *w, const float2 *images)
{
    const bool volume = w->p.n[2] > 1;
    const unsigned coils = (unsigned)w->p.coils;
    int rc = axis_run(w, 0, images, w->between[0]);
    if (!rc)
        rc = axis_run(w, 1, w->between[0], volume ? w->between[1] : w->centre);
    if (!rc && volume)
        rc = axis_run(w, 2, w->between[1], w->centre);
    if (rc)
        return rc;
    covariance_sum<<<dim3(coils, coils), THREADS, 0, w->gpu->stream>>>(w->p.coils, w->centre_size, w->centre,
                                                                       w->covariance);
    reference_find<<<1, ESPIRIT_COILS_MOST, 0, w->gpu->stream>>>(w->p.coils, w->covariance, w->reference, w->state);
    return gpu_launched(what);
}
