/* low_rank_gpu.cu: soft thresholding of the singular values of blocks of a series (low_rank.h), one block of threads
 * for each: first its Gram matrix and the rotations, in shared memory if that is large enough, then a thread for each
 * column.
 */
#include "gridding/base/dev_gpu.cuh"
#include "gridding/sparse/low_rank.h"
#include "gridding/sparse/sparse_leaf.h"

enum { THREADS = 2 * SPARSE_BLOCK_MOST /* one for each column of G and V^H */ };

struct task {
    int n[SPARSE_AXES], size[3];
    size_t first, rows; /* the first block; of the largest block */
    float t;
    struct c32 *x;
    double *memory; /* [blocks][4 rows rows]; NULL: it is shared memory */
};

/* G and V^H, side by side: [rows][2 rows]. */
struct gram {
    double *re, *im;
    int rows;
};

/* Entry [row][column] of a block's matrix in the array. */
static __device__ size_t entry(const struct low_rank_block *b, const struct task *task, const size_t *pixel, int row,
                               int column)
{
    const size_t plane = (size_t)task->n[0] * task->n[1] * task->n[2];
    return b->by_frames ? row * plane + pixel[column] : column * plane + pixel[row];
}

/* Set G, and V^H to the unit matrix. */
static __device__ void gram_fill(const struct low_rank_block *b, const struct task *task, const size_t *pixel,
                                 const struct gram *g)
{
    const int rows = g->rows, wide = 2 * rows;
    for (int k = threadIdx.x; k < rows * rows; k += THREADS) {
        const int i = k / rows, j = k % rows;
        double re = 0, im = 0;
        for (int c = 0; c < (int)b->columns && j <= i; c++) {
            const struct c32 v = task->x[entry(b, task, pixel, i, c)], w = task->x[entry(b, task, pixel, j, c)];
            re += (double)v.re * w.re + (double)v.im * w.im;
            im += (double)v.im * w.re - (double)v.re * w.im;
        }
        if (j <= i) {
            g->re[i * wide + j] = g->re[j * wide + i] = re;
            g->im[i * wide + j] = i == j ? 0 : im;
            g->im[j * wide + i] = i == j ? 0 : -im;
        }
        g->re[i * wide + rows + j] = i == j;
        g->im[i * wide + rows + j] = 0;
    }
}

/* Thread k rotates column k of rows p and q and, since G is Hermitian, row k of columns p and q. */
static __device__ void rotate(const struct gram *g, int p, int q)
{
    const int k = threadIdx.x, rows = g->rows, wide = 2 * rows;
    double *pr = g->re + p * wide, *pi = g->im + p * wide, *qr = g->re + q * wide, *qi = g->im + q * wide;
    const double a = pr[p], b = qr[q];
    const struct rotation r = rotation_of(a, b, pr[q], pi[q]);
    __syncthreads(); /* all have read */
    if (k < wide && k != p && k != q) {
        rotation_turn(&r, &pr[k], &pi[k], &qr[k], &qi[k]);
        if (k < rows) {
            g->re[k * wide + p] = pr[k];
            g->im[k * wide + p] = -pi[k];
            g->re[k * wide + q] = qr[k];
            g->im[k * wide + q] = -qi[k];
        }
    } else if (k == p) {
        pr[p] = a - r.move;
        qr[q] = b + r.move;
        pr[q] = qr[p] = pi[q] = qi[p] = pi[p] = qi[q] = 0;
    }
    __syncthreads();
}

static __device__ void diagonalise(const struct gram *g, double negligible)
{
    const int wide = 2 * g->rows;
    for (int sweep = 0, turned = 1; sweep < LOW_RANK_SWEEPS && turned; sweep++) {
        turned = 0;
        for (int p = 0; p + 1 < g->rows; p++)
            for (int q = p + 1; q < g->rows; q++)
                if (hypot(g->re[p * wide + q], g->im[p * wide + q]) > negligible) {
                    rotate(g, p, q);
                    turned = 1;
                }
    }
}

/* One column of V f V^H M, in place. */
static __device__ void column_lower(const struct low_rank_block *b, const struct task *task, const size_t *pixel,
                                    const struct gram *g, int column)
{
    const int rows = g->rows, wide = 2 * rows;
    const double square = (double)task->t * task->t;
    float re[SPARSE_BLOCK_MOST], im[SPARSE_BLOCK_MOST];
    for (int r = 0; r < rows; r++)
        re[r] = im[r] = 0;
    for (int i = 0; i < rows; i++) {
        const double value = g->re[i * wide + i], *vr = g->re + i * wide + rows, *vi = g->im + i * wide + rows;
        if (!(value > square))
            continue;
        const float f = (float)(1 - (double)task->t / sqrt(value));
        float sum_re = 0, sum_im = 0;
        for (int r = 0; r < rows; r++) {
            const struct c32 m = task->x[entry(b, task, pixel, r, column)];
            const float wr = (float)vr[r], wi = (float)vi[r];
            sum_re += wr * m.re - wi * m.im;
            sum_im += wr * m.im + wi * m.re;
        }
        for (int r = 0; r < rows; r++) {
            const float wr = f * (float)vr[r], wi = -f * (float)vi[r];
            re[r] += wr * sum_re - wi * sum_im;
            im[r] += wr * sum_im + wi * sum_re;
        }
    }
    for (int r = 0; r < rows; r++)
        task->x[entry(b, task, pixel, r, column)] = {re[r], im[r]};
}

static __global__ void __launch_bounds__(THREADS) lower(struct task task)
{
    extern __shared__ double shared[];
    __shared__ size_t pixel[SPARSE_BLOCK_MOST];
    const size_t entries = 2 * task.rows * task.rows;
    double *memory = task.memory ? task.memory + blockIdx.x * 2 * entries : shared;
    const struct low_rank_block b = block_at(task.n, task.size, task.first + blockIdx.x);
    const struct gram g = {memory, memory + entries, (int)b.rows};
    const double square = (double)task.t * task.t;
    double trace = 0;
    if (threadIdx.x < b.pixels)
        pixel[threadIdx.x] = block_pixel(&b, task.n, threadIdx.x);
    __syncthreads();
    gram_fill(&b, &task, pixel, &g);
    __syncthreads();
    for (int i = 0; i < g.rows; i++)
        trace += g.re[i * 2 * g.rows + i];
    __syncthreads(); /* all have read */
    if (!isfinite(trace))
        return;
    if (trace > square) /* else no s exceeds t */
        diagonalise(&g, LOW_RANK_NEGLIGIBLE * square);
    __syncthreads();
    /* Without rotations G is not diagonal; but then no entry of its diagonal exceeds t^2 either. */
    for (int column = threadIdx.x; column < (int)b.columns; column += THREADS)
        column_lower(&b, &task, pixel, &g, column);
}

int sparse_low_rank_gpu(struct dev *dev, const int *n, const int *block, size_t first, size_t count, float t,
                        struct c32 *x)
{
    struct gpu *gpu = gpu_of(dev);
    struct task task = {{n[0], n[1], n[2], n[3]}, {block[0], block[1], block[2]}, first, 1, t, x, NULL};
    for (int d = 0; d < 3; d++)
        task.rows *= (size_t)(n[d] < block[d] ? n[d] : block[d]);
    task.rows = (size_t)n[3] < task.rows ? (size_t)n[3] : task.rows;
    const size_t each = 4 * task.rows * task.rows, bytes = each * sizeof *task.memory;
    const bool shared = bytes + SPARSE_BLOCK_MOST * sizeof(size_t) <= gpu->shared_most;
    int rc = gpu_enter(gpu);
    if (!rc && !shared)
        rc = gpu_array(gpu, count * each, &task.memory, "The singular values of a series");
    if (!rc && shared)
        rc = gpu_check(cudaFuncSetAttribute(lower, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                       "The singular values of a series");
    if (!rc) {
        lower<<<(unsigned)count, THREADS, shared ? bytes : 0, gpu->stream>>>(task);
        rc = gpu_launched("The singular values of a series");
    }
    gpu_release(gpu, task.memory);
    return rc;
}
