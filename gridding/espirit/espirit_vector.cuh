/* espirit_vector.cuh: first eigenvectors of small Hermitian matrices by power iteration, a group of LANES threads for
 * each: lane i has row i of the matrix, and number i of the vector. A warp's threads call these together. The constants
 * and steps are those of recon/mri/maps_pixel.c. Only espirit_*.cu include this. */
#ifndef MRIRECON_ESPIRIT_VECTOR_CUH
#define MRIRECON_ESPIRIT_VECTOR_CUH

#include "gridding/espirit/espirit_gpu.cuh"

enum { VECTOR_STEPS_MOST = 40 };
static const unsigned VECTOR_WARP = 0xffffffffu;
#define VECTOR_RESIDUAL 1e-6f
#define VECTOR_SMALLEST 1e-30f

template <int LANES> static __device__ inline float lanes_sum(float value)
{
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(VECTOR_WARP, value, distance, LANES);
    return value;
}

template <int LANES> static __device__ inline float2 vector_multiply(const float2 (&row)[LANES], float2 vector)
{
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int j = 0; j < LANES; j++) {
        const float re = __shfl_sync(VECTOR_WARP, vector.x, j, LANES),
                    im = __shfl_sync(VECTOR_WARP, vector.y, j, LANES);
        sum.x += row[j].x * re;
        sum.y += row[j].x * im;
        sum.x -= row[j].y * im;
        sum.y += row[j].y * re;
    }
    return sum;
}

/* The initial vector: the matrix's column with the largest diagonal entry. */
template <int LANES> static __device__ inline float2 vector_begin(const float2 (&row)[LANES], int lane)
{
    float most = 0;
    float2 vector = make_float2(0, 0);
    int at = lane;
#pragma unroll
    for (int j = 0; j < LANES; j++)
        most = j == lane ? row[j].x : most;
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(VECTOR_WARP, most, distance, LANES);
        const int there = __shfl_xor_sync(VECTOR_WARP, at, distance, LANES);
        if (other > most || (other == most && there < at)) {
            most = other;
            at = there;
        }
    }
#pragma unroll
    for (int j = 0; j < LANES; j++)
        vector = j == at ? row[j] : vector;
    const float square = lanes_sum<LANES>(vector.x * vector.x + vector.y * vector.y);
    const float scale = square > VECTOR_SMALLEST ? 1 / sqrtf(square) : 0;
    return scale > 0 ? make_float2(scale * vector.x, scale * vector.y) : make_float2(lane == 0 ? 1 : 0, 0);
}

/* The first eigenvector, from *vector (of norm 1), where `runs`, which is the same in all lanes of a group. Returns the
 * eigenvalue; 0 for a matrix of zeros. */
template <int LANES>
static __device__ inline float vector_first(const float2 (&row)[LANES], int lane, bool runs, float2 *vector)
{
    float value = 0;
    for (int step = 0; step < VECTOR_STEPS_MOST && __any_sync(VECTOR_WARP, runs); step++) {
        const float2 next = vector_multiply<LANES>(row, *vector);
        const float square = lanes_sum<LANES>(next.x * next.x + next.y * next.y);
        const float along = lanes_sum<LANES>(next.x * vector->x + next.y * vector->y);
        const bool empty = !(square > VECTOR_SMALLEST);
        if (__any_sync(VECTOR_WARP, runs && empty && step == 0)) { /* orthogonal to the initial vector */
            const float2 fresh = vector_begin<LANES>(row, lane);
            if (runs && empty)
                *vector = fresh;
        }
        if (runs && empty && step > 0) {
            value = 0;
            runs = false;
        }
        if (runs && !empty) {
            const float scale = 1 / sqrtf(square);
            *vector = make_float2(scale * next.x, scale * next.y);
            value = along;
            runs = !(square - along * along <= VECTOR_RESIDUAL * along * along);
        }
    }
    return value;
}

#endif
