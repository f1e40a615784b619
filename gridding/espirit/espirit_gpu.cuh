/* espirit_gpu.cuh: ESPIRiT's maps on a GPU: its memory, and its stages. Only espirit_*.cu include this.
 *
 * Everything is computed on the device, in its stream; the host waits once at the end, and between slabs of a volume.
 * The stages are in the order of their declarations. All sums have a fixed order. */
#ifndef MRIRECON_ESPIRIT_GPU_CUH
#define MRIRECON_ESPIRIT_GPU_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/espirit/espirit_leaf.h"

enum {
    ESPIRIT_COILS_MOST = 32, /* a pixel's matrix lies in the registers of at most one warp */
    ESPIRIT_LAGS_MOST = 63,
    ESPIRIT_SIDE_MOST = 4096
};

/* The calibration matrix A has a row for each coil and offset of a kernel, and a column for each place of the kernel in
 * the centre. Its signal space follows from the smaller of A' A and A A', with e = (threshold s_0)^2 added:
 *
 *   P = A (A' A + e I)^-1 A' = I - e (A A' + e I)^-1 */
struct espirit_sizes {
    size_t offsets, places, rows; /* of a kernel; columns of A; rows of A: coils x offsets */
    bool by_places;               /* A' A is the smaller one */
    size_t side;                  /* of that: places or rows */
};

/* What the device finds. */
struct espirit_state {
    double trace, cut;          /* of A A'; e = (threshold s_0)^2 */
    unsigned long long support; /* number of pixels with maps */
    int finite;                 /* whether the images are */
};

struct espirit_work {
    struct gpu *gpu;
    struct espirit_params p;
    struct espirit_sizes s;
    int lags[3]; /* along an axis: 2 width - 1 */
    size_t centre_size, pixels, all, pairs, total;
    int lanes;                   /* threads of a pixel: 8, 16 or 32, at least `coils` */
    size_t slots;                /* lanes^2 */
    size_t batch;                /* vectors transformed at a time */
    size_t slab;                 /* planes of pixels at a time */
    struct espirit_state *state; /* all of these on the device: */
    float2 *between[2];          /* the centre of k-space along x; along x and y */
    float2 *turns;               /* of one axis at a time: [n][m]; then along x: [nx][lags x] */
    float2 *centre;              /* [coils][mz][my][mx] */
    double2 *covariance;         /* [coils][coils], of the centre */
    float2 *reference;           /* [coils]: the combination with phase 0 */
    double2 *vector[2];          /* [side]: of a power iteration */
    double2 *matrix;             /* [side + rows][side]: A' A or A A', and below it A or I */
    float2 *waves;               /* [k][batch][coils] */
    double2 *sums;               /* [k][pairs] */
    float2 *values;              /* [lags][lanes][lanes]: lag l of G[i][j] at [l][j][i] */
    float2 *planes, *lines;      /* [slab][lags y][lags x][slots], [slab][ny][lags x][slots] */
};

/* The centre of k-space; the reference; whether the data are finite (espirit_centre.cu). */
int espirit_centre(const struct espirit_work *w, const float2 *images);

/* The matrix; its largest eigenvalue and e (espirit_gram.cu). */
int espirit_gram(const struct espirit_work *w);

/* The rows below the matrix become X = B R^-H, where R R^H = matrix + e I (espirit_factor.cu). */
int espirit_factor(const struct espirit_work *w);

/* The lags of P = X X^H or I - e X X^H (espirit_lags.cu). */
int espirit_lags(const struct espirit_work *w);

/* The maps of planes [first, first + count) (espirit_pixels.cu). */
int espirit_pixels(const struct espirit_work *w, size_t first, size_t count, float2 *maps);

/* exp(2 pi i turns / n) */
static __device__ inline double2 espirit_turn(int turns, int n)
{
    double2 turn;
    sincospi(2.0 * (turns % n) / n, &turn.y, &turn.x);
    return turn;
}

/* The sum of `value` over a block of THREADS threads, in each of them. */
template <int THREADS> static __device__ inline double espirit_block_sum(double value, double *shared)
{
    const int t = threadIdx.x;
    __syncthreads(); /* `shared` may be in use */
    shared[t] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half)
            shared[t] += shared[t + half];
        __syncthreads();
    }
    return shared[0];
}

#endif
