/* scatter_pack.cuh: positions as fixed-point numbers, used by the quick sums to grids: 16 bytes contain a point's
 * position and reach, and differences of positions are exact. Points whose reach may end exactly at a node are marked:
 * float32 and the fixed-point numbers cannot tell whether it is within. */
#ifndef MRIRECON_SCATTER_PACK_CUH
#define MRIRECON_SCATTER_PACK_CUH

#include "gridding/range/gpu/scatter_near.cuh"

namespace
{

/* sqrt(x), with an error of 2^-22. */
__device__ __forceinline__ float root_about(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x rounded to the nearest integer; |x| below 2^22. */
__device__ __forceinline__ float rounded(float x)
{
    return (x + 12582912.f) - 12582912.f;
}

/* Sphere: whether a node may lie exactly on the point's reach, within float32's precision; then the sign of .w is set.
 * The surface at the reach is followed along z, column by column of nodes. Lengths are nodes along z; x, y and z are
 * relative to the node next to the point. unit: 1 / reach^2, of squared distances in nodes along each axis. rate: the
 * binary logarithm of what a weight falls to at the reach.
 *
 * The bound of errors, relative to the squared reach: those of the sum (put_sphere()), that is, 6e-7 of the scale of
 * lengths, 4e-7 of products and sums along the axes and, of distances up to 7 nodes longer, 2.5e-6 over the reach in
 * nodes, 3.3e-6 over it of fixed-point positions, 4e-7 of the arguments of exponentials, 1.2e-6 over the rate of
 * exponentials and their products; and 1e-6 of this search. */
__device__ bool is_doubtful(float rate, const float from[3], const float unit[3])
{
    const float most = fmaxf(fmaxf(unit[0], unit[1]), unit[2]); /* 1 / (the shortest reach in nodes)^2 */
    const float over = 1 / unit[2], error = (2.4e-6f + 1.2e-6f / rate + 6e-6f * root_about(most)) * over;
    const float by_x = unit[0] * over, by_y = unit[1] * over, wide = 1 / by_x, root_x = sqrtf(by_x),
                off = fabsf(from[2]);
    const int y = (int)(1 / sqrtf(unit[1])) + 1;
    float least = INFINITY;
    if (over > 300.f * 300) /* columns that are tangent to the surface may be missed */
        return true;
    for (int j = -y; j <= y; j++) {
        const float dy = (float)j - from[1], rest = fmaf(-dy * by_y, dy, over);
        if (rest < -error)
            continue;
        const float half = root_about((rest + error) * wide) + 1e-3f;
        const float first = ceilf(from[0] - half);
        const int columns = (int)(floorf(from[0] + half) - first) + 1;
        const float low = (first - from[0]) * root_x;
        float at = 0;
#pragma unroll 4
        for (int i = 0; i < columns; i++, at += 1.f) {
            const float dx = fmaf(at, root_x, low), high = root_about(fabsf(fmaf(-dx, dx, rest)));
            /* A node is `away` from the surface, which is `high` above and below the point. */
            const float away = fabsf(fabsf(high - rounded(high)) - off);
            least = fminf(least, away * fmaf(2.f, high, -away));
        }
    }
    return least < error;
}

/* Cube: whether a node may lie exactly on the point's reach along an axis, within the precision of fixed-point numbers;
 * then the sign of .w is set. Positions and reaches are multiples of at most 2^-19, and a reach is rounded twice
 * before. from: the point's position relative to a node; nodes: its reach, in nodes. */
__device__ bool is_doubtful_cube(const float from[3], const float nodes[3])
{
    bool doubtful = false;
    for (int d = 0; d < 3; d++) {
        const float low = from[d] - nodes[d], high = from[d] + nodes[d], error = fmaf(3e-7f, nodes[d], 3e-6f);
        doubtful = doubtful || fabsf(low - rintf(low)) < error || fabsf(high - rintf(high)) < error;
    }
    return doubtful;
}

/* x rounded to the nearest integer, which 32 bits can hold, without the conversion unit. */
__device__ __forceinline__ int rounded_integer(double x)
{
    return __double2loint(x + 6755399441055744.0); /* 1.5 * 2^52 */
}

/* What is_doubtful() is asked of a block's points, in the order of their reaches, so that the threads of a warp have
 * alike much to do. */
enum { REACHES = 64 };

struct doubts {
    float from[3][THREADS], unit[3][THREADS];
    uint8_t owner[THREADS]; /* its thread */
    bool doubtful[THREADS];
    uint32_t places[REACHES]; /* points with each reach, in half nodes; then where they begin */
};

/* is_doubtful() of each thread's point, if it is `there`. Called by all threads. */
__device__ __forceinline__ bool doubtful_sphere(doubts &m, float rate, const float from[3], const float unit[3],
                                                bool there)
{
    const int i = threadIdx.x, least = REACHES - 1 - (int)fminf(2 * rsqrtf(unit[1]), (float)(REACHES - 1));
    if (i < REACHES)
        m.places[i] = 0;
    __syncthreads();
    const uint32_t own = atomicAdd(&m.places[least], 1u);
    __syncthreads();
    if (i < 32) {
        const uint32_t a = m.places[2 * i], b = m.places[2 * i + 1];
        uint32_t before = a + b;
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t added = __shfl_up_sync(~0u, before, step);
            before += i >= step ? added : 0;
        }
        m.places[2 * i] = before - a - b;
        m.places[2 * i + 1] = before - b;
    }
    __syncthreads();
    const uint32_t place = m.places[least] + own;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        m.from[d][place] = from[d];
        m.unit[d][place] = there ? unit[d] : INFINITY;
    }
    m.owner[place] = (uint8_t)i;
    __syncthreads();
    const float its[3] = {m.from[0][i], m.from[1][i], m.from[2][i]}, of[3] = {m.unit[0][i], m.unit[1][i], m.unit[2][i]};
    m.doubtful[m.owner[i]] = of[0] < INFINITY && is_doubtful(rate, its, of);
    __syncthreads();
    return m.doubtful[i];
}

/* Packs points in the order of the bins. *largest: bits of the largest magnitude of a value. */
template <bool SPHERES>
__global__ void __launch_bounds__(THREADS)
    pack_points(const __grid_constant__ scatter_job job, int4 *place, float *value, unsigned *largest)
{
    __shared__ doubts m;
    const points_view &p = job.points;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool there = i < p.count;
    unsigned magnitude = 0;
    int at[3] = {0, 0, 0};
    float from[3] = {0, 0, 0}, unit[3] = {1, 1, 1}, nodes_within[3] = {0, 0, 0}, scale = 1, own = 0;
    if (there) {
        scale = p.scale ? p.scale[i] : 1;
        own = job.values[p.source[i]];
        const float reach = job.reach * scale;
        for (int d = 0; d < 3; d++) {
            const double nodes = (points_at(p, d, i) - p.box.origin[d]) * job.nodes_of[d];
            const double held = fmin(fmax(nodes, -job.margin[d]), p.box.cells[d] + job.margin[d]);
            at[d] = rounded_integer(held * (double)(1 << job.bits));
            from[d] = (float)(at[d] - ((at[d] + (1 << (job.bits - 1))) >> job.bits << job.bits)) * job.step;
            unit[d] = job.spacing2[d] / (reach * reach);
            nodes_within[d] = scale * job.reach_steps[d] * job.step;
        }
        magnitude = __float_as_uint(fabsf(own));
    }
    const bool marked = SPHERES ? doubtful_sphere(m, job.law.rate, from, unit, there)
                                : job.law.form == RANGE_SEPARABLE && is_doubtful_cube(from, nodes_within);
    if (there) {
        value[i] = own;
        place[i] = make_int4(at[0], at[1], at[2], __float_as_int(job.lean ? own : marked ? -scale : scale));
    }
    magnitude = __reduce_max_sync(~0u, magnitude);
    /* Atomics at one address wait for each other: few warps have more than what is there. */
    if ((threadIdx.x & 31) == 0 && magnitude > __ldcg(largest))
        atomicMax(largest, magnitude);
}

} // namespace

#endif
