/* fft_lines.cuh: the work of a block of threads on its lines: reading, the stages, writing. Only the files of the FFT
 * include this. */
#ifndef MRIRECON_FFT_LINES_CUH
#define MRIRECON_FFT_LINES_CUH

#include "gridding/base/launch_gpu.cuh"
#include "gridding/fft/dft_gpu.cuh"
#include "gridding/fft/fft_gpu.cuh"

struct lines_args {
    struct fft_pass pass;
    int n, stages, radix[FFT_STAGES_MOST], threads, lines_per_block;
    size_t in_step, out_step; /* from one transform to the next (blockIdx.z; fft_several.cuh) */
    const float2 *twiddles;
};

/* A thread's line, and its butterfly. */
struct place {
    int line_in_block, thread;
    bool there;
    const float2 *in;
    size_t out, full; /* index of the line's element 0 */
    float factor;     /* the line's and the set's */
};

static __device__ __forceinline__ struct place place_of(const struct lines_args &a, bool rows, int lines_per_block,
                                                        int threads)
{
    const struct fft_pass &p = a.pass;
    struct place at;
    at.line_in_block = rows ? threadIdx.x / threads : threadIdx.x % lines_per_block;
    at.thread = rows ? threadIdx.x % threads : threadIdx.x / lines_per_block;
    size_t line = (size_t)blockIdx.x * lines_per_block + at.line_in_block, set = blockIdx.y;
    at.there = line < (size_t)p.lines;
    if (rows && p.list && at.there)
        line = __ldg(p.list + line);
    at.in = p.in + line * p.in_view.line + set * p.in_view.set + blockIdx.z * a.in_step;
    at.out = line * p.out_view.line + set * p.out_view.set + blockIdx.z * a.out_step;
    at.full = line * p.full_view.line + set * p.full_view.set;
    at.factor = at.there && p.line ? p.line[line] : 1.f;
    at.factor *= p.set ? p.set[set] : 1.f;
    return at;
}

/* FFT position -> element of a line with `kept` elements; -1: not kept. */
static __device__ __forceinline__ int kept_element(int position, int n, int kept)
{
    int low = kept / 2;
    if (position < kept - low)
        return position + low;
    return position >= n - low ? position - (n - low) : -1;
}

static __device__ __forceinline__ float factor_of(const struct fft_pass &p, const struct place &at, int e)
{
    return at.factor * (p.full ? __ldg(p.full + at.full + (size_t)e * p.full_view.step) : __ldg(p.element + e));
}

template <fft_kind KIND>
static __device__ __forceinline__ float2 load(const struct fft_pass &p, const struct place &at, int n, int position)
{
    if (KIND == FFT_BACK || KIND == FFT_BACK_IMAGE)
        return at.in[(size_t)position * p.in_view.step];
    int e = kept_element(position, n, p.kept);
    if (e < 0)
        return make_float2(0.f, 0.f);
    float2 v = at.in[(size_t)e * p.in_view.step];
    float f = KIND == FFT_FORTH_IMAGE ? factor_of(p, at, e) : 1.f;
    return make_float2(v.x * f, -v.y * f); /* a pass forth is a pass back between conjugates */
}

template <fft_kind KIND>
static __device__ __forceinline__ void store(const struct fft_pass &p, const struct place &at, int n, int position,
                                             float2 v)
{
    if (KIND == FFT_FORTH || KIND == FFT_FORTH_IMAGE) {
        float f = p.full && KIND == FFT_FORTH ? __ldg(p.full + at.full + (size_t)position * p.full_view.step) : 1.f;
        p.out[at.out + (size_t)position * p.out_view.step] = make_float2(v.x * f, -v.y * f);
        return;
    }
    int e = kept_element(position, n, p.kept);
    if (e < 0)
        return;
    size_t to = at.out + (size_t)e * p.out_view.step;
    if (KIND != FFT_BACK_IMAGE) {
        p.out[to] = v;
        return;
    }
    float f = factor_of(p, at, e);
    v = make_float2(v.x * f, v.y * f);
    if (p.squares)
        p.squares[to] += v.x * v.x + v.y * v.y;
    else
        p.out[to] = v;
}

/* A line's floats in shared memory. Rows are padded so that strides of 8 and 16 spread over the banks. */
static __host__ __device__ constexpr int line_room(bool rows, int n)
{
    return rows ? n + n / 16 + 1 : n;
}

static __device__ __forceinline__ int slot_of(bool rows, int n, int lines_per_block, const struct place &at, int k)
{
    return rows ? at.line_in_block * line_room(true, n) + k + (k >> 4) : k * lines_per_block + at.line_in_block;
}

/* Add up the slots of a block's lines into shared memory, each line by its own threads, with several bins of a thread
 * in flight; false: all are empty. */
template <int BINS>
static __device__ __forceinline__ bool sum_lines(const struct lines_args &a, const struct place &at, float2 *shared,
                                                 int n, int threads)
{
    const struct slots &p = a.pass.slots;
    const int quads = p.columns / 4, step = threads / quads, x0 = at.thread / quads, quad = at.thread - x0 * quads;
    const int line = blockIdx.x * (blockDim.x / threads) + at.line_in_block;
    const struct slots_line from = slots_line_of(p, a.pass.first_line + min(line, a.pass.lines - 1), blockIdx.y);
    if (__syncthreads_and(slots_line_empty(p, from)))
        return false;
    const int size = p.x.cells % p.x.bins || p.x.shift ? 0 : p.x.cells / p.x.bins; /* of all bins, if it is the same */
    float2 *to = shared + at.line_in_block * line_room(true, n);
    for (int x = at.there && x0 < step ? x0 : p.x.bins; x < p.x.bins; x += BINS * step) {
        float4 sum[BINS][2];
        slots_sum(p, from, x, step, quad, sum);
#pragma unroll
        for (int b = 0; b < BINS; b++) {
            int bin = x + b * step;
            if (bin >= p.x.bins)
                break;
            int first = size ? bin * size : axis_first(p.x, bin), k = first + 4 * quad;
            int cells = (size ? size : axis_size(p.x, bin)) - 4 * quad;
            const float2 v[4] = {{sum[b][0].x, sum[b][0].y},
                                 {sum[b][0].z, sum[b][0].w},
                                 {sum[b][1].x, sum[b][1].y},
                                 {sum[b][1].z, sum[b][1].w}};
            if (size == 4) { /* four neighbours never straddle the padding */
#pragma unroll
                for (int i = 0; i < 4; i++)
                    to[k + (k >> 4) + i] = v[i];
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (i < cells)
                    to[k + i + ((k + i) >> 4)] = v[i];
        }
    }
    __syncthreads();
    return true;
}

/* Add up the bricks of a block's lines into shared memory; a thread adds pairs of cells of all bricks. */
static __device__ __forceinline__ void sum_bricks(const struct lines_args &a, float2 *shared, int n, int lines)
{
    const struct bricks &b = a.pass.bricks;
    const float4 *pairs = b.pairs + blockIdx.y * b.step;
    const int first = blockIdx.x * lines, row = n / 2, count = min(lines, a.pass.lines - first) * row;
#pragma unroll 2
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int line = i / row, pair = i - line * row;
        const float4 v = bricks_sum(brick_shares_of(b, first + line, pair), pairs);
        float2 *to = shared + line * line_room(true, n) + 2 * pair + (pair >> 3);
        to[0] = make_float2(v.x, v.y);
        to[1] = make_float2(v.z, v.w);
    }
    __syncthreads();
}

/* The lines of a block whose slots are all empty. */
static __device__ __forceinline__ void clear_lines(const struct fft_pass &p, const struct place &at, int threads)
{
    for (int e = at.thread; at.there && e < p.kept; e += threads)
        p.out[at.out + (size_t)e * p.out_view.step] = make_float2(0.f, 0.f);
}

/* One Stockham stage: thread t does butterfly t. `done` is the product of the radices before. The first stage reads
 * device memory (for slots and bricks: the added-up lines in shared memory), the last writes it; in between a line is
 * in shared memory. */
enum stage_step { STAGE_FIRST, STAGE_INNER, STAGE_LAST };

/* The last stage of a butterfly. HALF: at most half of a line is kept, and the outputs in the other half are not
 * computed. */
template <int R, bool HALF, fft_kind KIND>
static __device__ __forceinline__ void finish(const struct lines_args &a, const struct place &at, int n, int first,
                                              int step, float2 (&v)[R])
{
    dft<R>(v);
#pragma unroll
    for (int r = 0; r < R; r++)
        if (!HALF || 4 * r < R || 4 * (r + 1) > 3 * R)
            store<KIND>(a.pass, at, n, first + r * step, v[r]);
}

template <int R, bool ROWS, fft_kind KIND, stage_step STEP>
static __device__ __forceinline__ void stage(const struct lines_args &a, const struct place &at, float2 *shared, int n,
                                             int lines_per_block, int done)
{
    constexpr bool forth = KIND == FFT_FORTH || KIND == FFT_FORTH_IMAGE;
    int apart = n / R, t = at.thread, block = t / done, j = t - block * done;
    constexpr bool from_shared = STEP != STAGE_FIRST || KIND == FFT_BACK_SLOTS || KIND == FFT_BACK_BRICKS;
    bool works = at.there && t < apart;
    float2 v[R];
    if (works) {
#pragma unroll
        for (int r = 0; r < R; r++)
            v[r] = from_shared ? shared[slot_of(ROWS, n, lines_per_block, at, t + r * apart)]
                               : load<KIND>(a.pass, at, n, t + r * apart);
        if (STEP != STAGE_FIRST) {
            float2 w = __ldg(a.twiddles + j * (apart / done)), power = w;
#pragma unroll
            for (int r = 1; r < R; r++) {
                v[r] = mul(v[r], power);
                power = mul(power, w);
            }
        }
    }
    int first = block * done * R + j;
    if (STEP == STAGE_LAST) {
        if (works && !forth && 2 * a.pass.kept <= n)
            finish<R, !forth, KIND>(a, at, n, first, done, v);
        else if (works)
            finish<R, false, KIND>(a, at, n, first, done, v);
        return;
    }
    if (works)
        dft<R>(v);
    if (from_shared)
        __syncthreads();
    if (works) {
#pragma unroll
        for (int r = 0; r < R; r++)
            shared[slot_of(ROWS, n, lines_per_block, at, first + r * done)] = v[r];
    }
    __syncthreads();
}

#endif
