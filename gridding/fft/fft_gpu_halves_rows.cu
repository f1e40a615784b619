/* The pass along rows of a convolution in halves: both transforms, and the multiplication by the spectrum. */
#include "gridding/fft/fft_halves_lines.cuh"

/* A thread computes its cells of both halves, one half after the other, so that nothing passes between threads of
 * different warps: no block waits at a barrier, and values need no more than 128 registers. */
enum { ROW_THREADS = 128, ROW_BLOCKS = 4 };

struct halves_rows_args {
    float2 *values;
    int kept, cells, lines, sets_per_plane; /* cells: along a line, as frequencies */
    const float *spectrum;
    size_t spectrum_step; /* between planes */
    const int *running;   /* [planes]; NULL: all */
    const float2 *turns;
};

/* A row's transform in shared memory: element (t, k1) is at row_step t + k1, so that a thread's elements of one t are
 * pairs of 16 bytes, those of eight threads cover all banks, and the rows of half a warp are at different banks. */
template <int A> static constexpr int row_step = (A + 1) / 4 * 4 + 2;

template <int A, int B, int T> static __host__ __device__ constexpr int row_room()
{
    const int elements = B * row_step<A>;
    return T == 16 ? elements : (elements + 7) / 16 * 16 + 8;
}

template <int T> static constexpr int rows_in_block = ROW_THREADS / T;

/* Twiddle factors that a block copies to shared memory: those of long rows. For short ones, a warp's four rows read the
 * same 128 bytes, which is faster without. */
template <int A, int B, int T> static constexpr int shared_turns = T == 16 ? turns_count(A, B) : 0;

/* Element (k1, k2) of one half of a row of the spectrum: neighbouring threads have neighbouring k1, and each reads four
 * of its k2 at once if B is a multiple of four. */
template <int B> static constexpr int spectrum_step = B % 4 == 0 ? 4 : 1;

template <int A, int B> static __host__ __device__ constexpr int spectrum_place(int k1, int k2)
{
    return (k2 / spectrum_step<B> * A + k1) * spectrum_step<B> + k2 % spectrum_step<B>;
}

/* v[k2] of element k1 + OFF times the spectrum there, conjugated. `half` points to element k1. */
template <int A, int B, int OFF>
static __device__ __forceinline__ void times_spectrum(const float *half, float2 (&v)[B])
{
    constexpr int step = spectrum_step<B>;
#pragma unroll
    for (int k2 = 0; k2 < B; k2 += step) {
        const float *from = half + spectrum_place<A, B>(OFF, k2);
        float f[step];
        if constexpr (step == 4) {
            const float4 four = __ldg((const float4 *)from);
            f[0] = four.x;
            f[1] = four.y;
            f[2] = four.z;
            f[3] = four.w;
        } else {
            f[0] = __ldg(from);
        }
#pragma unroll
        for (int i = 0; i < step; i++)
            v[k2 + i] = make_float2(v[k2 + i].x * f[i], -v[k2 + i].y * f[i]);
    }
}

/* The last stage forth, the multiplication, and the first stage back, in a thread's registers. `mine` and `half` point
 * to the thread's first k1. */
template <int A, int B, int T, int ROUND = 0>
static __device__ __forceinline__ void multiply_spectrum(float2 *mine, const float *half, int k1)
{
    if constexpr (ROUND < rounds<A, T>) {
        if (A % T != 0 && k1 + T * ROUND >= A)
            return;
        float2 v[B];
#pragma unroll
        for (int t = 0; t < B; t++)
            v[t] = mine[row_step<A> * t + T * ROUND];
        dft<B>(v);
        times_spectrum<A, B, T * ROUND>(half, v);
        dft<B>(v);
#pragma unroll
        for (int t = 0; t < B; t++)
            mine[row_step<A> * t + T * ROUND] = v[t];
        multiply_spectrum<A, B, T, ROUND + 1>(mine, half, k1);
    }
}

template <int N> static __device__ __forceinline__ void put_pairs(float2 *to, const float2 (&v)[N])
{
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2)
        *(float4 *)(to + i) = make_float4(v[i].x, v[i].y, v[i + 1].x, v[i + 1].y);
    if (N % 2)
        to[N - 1] = v[N - 1];
}

template <int N> static __device__ __forceinline__ void get_pairs(const float2 *from, float2 (&v)[N])
{
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
        const float4 two = *(const float4 *)(from + i);
        v[i] = make_float2(two.x, two.y);
        v[i + 1] = make_float2(two.z, two.w);
    }
    if (N % 2)
        v[N - 1] = from[N - 1];
}

/* The kept cells of both halves' sums: out at the thread's first, of `left` to the row's end. */
template <int A, int B, bool WHOLE, int R = 0>
static __device__ __forceinline__ void rows_join(float2 *out, int left, const float2 (&even)[A], const float2 (&odd)[A])
{
    if constexpr (R < A) {
        if (WHOLE || B * R < left)
            out[B * R] = joined<A, R>(even[R], odd[R]);
        rows_join<A, B, WHOLE, R + 1>(out, left, even, odd);
    }
}

/* A thread's sums over r: `kept` cells of the row, `values` at the thread's first. */
template <int A, int B, bool WHOLE>
static __device__ __forceinline__ void rows_begin(const float2 *values, int kept, int t, int q, float2 (&v)[A])
{
#pragma unroll
    for (int r = 0; r < A; r++)
        v[r] = WHOLE || t + B * r < kept ? conj(values[B * r]) : make_float2(0.f, 0.f);
    dft_half<A>(v, q);
}

/* The block's twiddle factors to its shared memory. */
template <int TURNS> static __device__ __forceinline__ void turns_load(const float2 *turns, float2 *shared)
{
#pragma unroll
    for (int i = 0; i < TURNS / 2; i += ROW_THREADS)
        if (i + (int)threadIdx.x < TURNS / 2)
            ((float4 *)shared)[i + threadIdx.x] = __ldg((const float4 *)turns + i + threadIdx.x);
}

/* A line of the plane's spectrum. */
static __device__ __forceinline__ const float *plane_line(const struct halves_rows_args &a, int line)
{
    return a.spectrum + blockIdx.y * a.spectrum_step + (size_t)line * a.cells;
}

/* A thread's row: where its cells, its elements in shared memory and its line of the spectrum begin. */
struct row {
    const float2 *values, *turns;
    float2 *mine;
    const float *spectrum;
    int kept, t;
    bool there, works;
};

/* Half Q of a row, as far as the thread's sums over k1. */
template <int A, int B, int T, bool WHOLE, int Q>
static __device__ __forceinline__ void convolve_half(const struct row &row, float2 (&v)[A])
{
    const float2 *turns = turns_of<A, B>(row.turns, Q, row.t);
    float2 *own = row.mine + row_step<A> * row.t;
    if (row.works) {
        rows_begin<A, B, WHOLE>(row.values, row.kept, row.t, Q, v);
        turn_between<A, B>(turns, v);
        put_pairs<A>(own, v);
    }
    __syncwarp();
    if (row.there)
        multiply_spectrum<A, B, T>(row.mine + row.t, row.spectrum + Q * A * B + spectrum_step<B> * row.t, row.t);
    __syncwarp();
    if (row.works) {
        get_pairs<A>(own, v);
        turn_between<A, B>(turns, v);
        dft<A>(v);
    }
}

/* Blocks of ROW_THREADS. A block's rows are the same line of adjacent sets of a plane, if there are several, so that
 * they share reads of the spectrum. WHOLE: kept is L, and every block is full. */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    rows_convolve(const __grid_constant__ struct halves_rows_args a)
{
    extern __shared__ __align__(16) float2 shared[];
    constexpr int ROWS = rows_in_block<T>, TURNS = shared_turns<A, B, T>;
    const int t = threadIdx.x % T, index = blockIdx.x * ROWS + threadIdx.x / T;
    const int line = index / a.sets_per_plane, set = index - line * a.sets_per_plane, kept = WHOLE ? A * B : a.kept;
    const bool there = WHOLE || line < a.lines;
    float2 *values = a.values + (((size_t)blockIdx.y * a.sets_per_plane + set) * a.lines + line) * kept + t;
    const struct row row = {values,
                            TURNS ? shared : a.turns,
                            shared + TURNS + threadIdx.x / T * row_room<A, B, T>(),
                            plane_line(a, line),
                            kept,
                            t,
                            there,
                            there && (T == B || t < B)};
    float2 even[A], odd[A];
    turns_load<TURNS>(a.turns, shared);
    gpu_begin_behind();
    if (a.running && !a.running[blockIdx.y])
        return;
    if constexpr (TURNS != 0)
        __syncthreads();
    convolve_half<A, B, T, WHOLE, 0>(row, even);
    convolve_half<A, B, T, WHOLE, 1>(row, odd);
    if (row.works)
        rows_join<A, B, WHOLE>(values, kept - t, even, odd);
}

struct size {
    int n, radix_a, rows; /* of a block */
    size_t bytes;
    void (*convolve[2])(struct halves_rows_args); /* any rows, and WHOLE */
    int (*place)(int k1, int k2);
};

template <int A, int B, int T> static constexpr size_t block_bytes()
{
    return (rows_in_block<T> * row_room<A, B, T>() + shared_turns<A, B, T>)*sizeof(float2);
}

static const struct size sizes[] = {
#define SIZE(N, A, B, T)                                            \
    {N,                                                             \
     A,                                                             \
     rows_in_block<T>,                                              \
     block_bytes<A, B, T>(),                                        \
     {rows_convolve<A, B, T, false>, rows_convolve<A, B, T, true>}, \
     spectrum_place<A, B>},
    HALVES(SIZE)
#undef SIZE
};

int fft_halves_place(int n, int f)
{
    const struct size *size = halves_of(sizes, n);
    const int k = f / 2;
    return f % 2 * (n / 2) + size->place(k % size->radix_a, k / size->radix_a);
}

static int launch(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows, size_t spectrum_step,
                  const int *running)
{
    const struct size *size = halves_of(sizes, plan->n);
    const size_t all = (size_t)rows->lines * rows->sets_per_plane;
    const bool whole = rows->kept * 2 == plan->n && all % size->rows == 0;
    struct halves_rows_args args = {rows->values,   rows->kept,    plan->n, rows->lines, rows->sets_per_plane,
                                    rows->spectrum, spectrum_step, running, plan->turns};
    const dim3 blocks(gpu_blocks(all, (unsigned)size->rows), (unsigned)(rows->sets / rows->sets_per_plane));
    return fft_halves_launch(gpu, (const void *)size->convolve[whole], blocks, ROW_THREADS, size->bytes, &args);
}

int fft_halves_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows)
{
    return launch(gpu, plan, rows, (size_t)rows->lines * plan->n, NULL);
}

int fft_halves_rows_of_coils(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows,
                             const struct fft_coils *coils)
{
    return launch(gpu, plan, rows, coils->spectrum_step, coils->running);
}
