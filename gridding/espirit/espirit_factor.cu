/* Cholesky's decomposition of the matrix, 32 columns at a time, with further rows below it: rows B become B R^-H.
 * Nothing reads R itself afterwards: it is not stored. */
#include "gridding/espirit/espirit_gpu.cuh"

enum { WIDE = 32, THREADS = 256, EACH = 2 /* entries along each axis of a thread in an update */ };
static const unsigned WARP = 0xffffffffu;
static const char what[] = "ESPIRiT's signal space";

/* The columns of a step, [first, first + count), and the rows below. */
struct panel {
    double2 *matrix;
    size_t side, total, first;
    int count;
};

/* Row `lane` of the block on the diagonal, in registers, becomes R's; returns R[lane][lane]. Rows after the last are
 * those of the unit matrix. */
static __device__ double diagonal_factor(double2 (&row)[WIDE], int lane)
{
    double mine = 0;
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        const double pivot = __shfl_sync(WARP, row[j].x, j);
        const double scale = pivot > 0 ? 1 / sqrt(pivot) : 0;
        row[j] = make_double2(row[j].x * scale, row[j].y * scale);
        mine = lane == j ? scale : mine;
#pragma unroll
        for (int k = j + 1; k < WIDE; k++) {
            const double re = __shfl_sync(WARP, row[j].x, k), im = __shfl_sync(WARP, row[j].y, k);
            row[k].x -= row[j].x * re + row[j].y * im;
            row[k].y -= row[j].y * re - row[j].x * im;
        }
    }
    return mine;
}

/* A warp for 32 rows below the panel's diagonal block, which each warp factors itself. */
static __global__ void __launch_bounds__(WIDE) panel_solve(struct panel p, const struct espirit_state *state)
{
    __shared__ double2 factor[WIDE][WIDE + 1], rows[WIDE][WIDE + 1];
    __shared__ double inverse[WIDE];
    const int lane = threadIdx.x;
    const size_t below = p.first + p.count + blockIdx.x * (size_t)WIDE;
    double2 row[WIDE];
    for (int r = 0; r < WIDE; r++) {
        const bool in = r < p.count && lane <= r;
        factor[r][lane] = in ? p.matrix[(p.first + r) * p.side + p.first + lane] : make_double2(r == lane, 0);
        if (r == lane && r < p.count)
            factor[r][lane].x += state->cut;
        rows[r][lane] = below + r < p.total && lane < p.count ? p.matrix[(below + r) * p.side + p.first + lane]
                                                              : make_double2(0, 0);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < WIDE; j++)
        row[j] = factor[lane][j];
    inverse[lane] = diagonal_factor(row, lane);
#pragma unroll
    for (int j = 0; j < WIDE; j++)
        factor[lane][j] = row[j];
    __syncwarp();
    /* Row `lane` of those below: x_j = (b_j - sum over t < j of x_t conj(R_jt)) / R_jj */
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        double2 x = rows[lane][j];
#pragma unroll
        for (int t = 0; t < j; t++) {
            const double2 r = factor[j][t];
            x.x -= row[t].x * r.x + row[t].y * r.y;
            x.y -= row[t].y * r.x - row[t].x * r.y;
        }
        row[j] = make_double2(x.x * inverse[j], x.y * inverse[j]);
        rows[lane][j] = row[j];
    }
    __syncwarp();
    for (int r = 0; r < WIDE; r++)
        if (below + r < p.total && lane < p.count)
            p.matrix[(below + r) * p.side + p.first + lane] = rows[r][lane];
}

/* A block for 32 x 32 entries to the right of the panel: minus rows times conjugate rows. */
static __global__ void __launch_bounds__(THREADS) panel_update(struct panel p)
{
    __shared__ double2 left[WIDE][WIDE + 1], right[WIDE][WIDE + 1];
    const size_t begin = p.first + p.count, row = begin + blockIdx.y * (size_t)WIDE;
    const size_t column = begin + blockIdx.x * (size_t)WIDE;
    const int tx = threadIdx.x % (WIDE / EACH), ty = threadIdx.x / (WIDE / EACH);
    double2 sum[EACH][EACH] = {};
    if (column > row)
        return; /* above the diagonal */
    for (int at = threadIdx.x; at < WIDE * WIDE; at += THREADS) {
        const int r = at / WIDE, k = at % WIDE;
        left[r][k] = row + r < p.total ? p.matrix[(row + r) * p.side + p.first + k] : make_double2(0, 0);
        right[r][k] = column + r < p.side ? p.matrix[(column + r) * p.side + p.first + k] : make_double2(0, 0);
    }
    __syncthreads();
    for (int k = 0; k < WIDE; k++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const double2 a = left[ty + i * (WIDE / EACH)][k], b = right[tx + j * (WIDE / EACH)][k];
                sum[i][j].x += a.x * b.x + a.y * b.y;
                sum[i][j].y += a.y * b.x - a.x * b.y;
            }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const size_t r = row + ty + i * (WIDE / EACH), c = column + tx + j * (WIDE / EACH);
            if (r < p.total && c < p.side) {
                double2 *to = p.matrix + r * p.side + c;
                to->x -= sum[i][j].x;
                to->y -= sum[i][j].y;
            }
        }
}

int espirit_factor(const struct espirit_work *w)
{
    struct panel p = {w->matrix, w->s.side, w->total, 0, 0};
    for (; p.first < p.side; p.first += WIDE) {
        p.count = p.side - p.first < WIDE ? (int)(p.side - p.first) : WIDE;
        const size_t begin = p.first + p.count;
        const unsigned rows = gpu_blocks(p.total - begin, WIDE), columns = gpu_blocks(p.side - begin, WIDE);
        panel_solve<<<rows, WIDE, 0, w->gpu->stream>>>(p, w->state);
        if (columns > 0)
            panel_update<<<dim3(columns, rows), THREADS, 0, w->gpu->stream>>>(p);
    }
    return gpu_launched(what);
}
