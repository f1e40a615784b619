/* The pass along rows of a convolution in halves: both transforms, and the multiplication by the spectrum. */
#include "gridding/fft/fft_halves_lines.cuh"

enum { ROW_THREADS = 256 };

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

template <int T> static constexpr int rows_in_block = ROW_THREADS / (2 * T);

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

/* Values for the other half's thread. Q: this thread's half. */
template <int A, int Q> static __device__ __forceinline__ void rows_give(float2 *mine, const float2 (&v)[A])
{
    constexpr int count = joins<A, 1 - Q>;
    float2 given[count];
#pragma unroll
    for (int i = 0; i < count; i++)
        given[i] = v[2 * i + 1 - Q];
    put_pairs<count>(mine, given);
}

template <int A, int B, int Q, bool WHOLE, int I = 0>
static __device__ __forceinline__ void rows_join(float2 *out, int left, const float2 (&given)[joins<A, Q>],
                                                 const float2 (&v)[A])
{
    if constexpr (I < joins<A, Q>) {
        constexpr int r = 2 * I + Q;
        if (WHOLE || B * r < left)
            out[B * r] = joined<A, r>(Q ? given[I] : v[r], Q ? v[r] : given[I]);
        rows_join<A, B, Q, WHOLE, I + 1>(out, left, given, v);
    }
}

/* left: number of kept cells from the thread's first on. */
template <int A, int B, int Q, bool WHOLE>
static __device__ __forceinline__ void rows_finish(float2 *out, int left, const float2 *other, const float2 (&v)[A])
{
    float2 given[joins<A, Q>];
    get_pairs<joins<A, Q>>(other, given);
    rows_join<A, B, Q, WHOLE>(out, left, given, v);
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
    if constexpr (TURNS != 0)
        if (threadIdx.x < TURNS / 2)
            ((float4 *)shared)[threadIdx.x] = __ldg((const float4 *)turns + threadIdx.x);
}

/* A line of the plane's spectrum. */
static __device__ __forceinline__ const float *plane_line(const struct halves_rows_args &a, int line)
{
    return a.spectrum + blockIdx.y * a.spectrum_step + (size_t)line * a.cells;
}

/* Blocks of ROW_THREADS. A block's rows are the same line of adjacent sets of a plane, if there are several, so that
 * they share reads of the spectrum. WHOLE: kept is L, and every block is full. */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(ROW_THREADS, WHOLE ? RESIDENT_THREADS / ROW_THREADS : 3)
    rows_convolve(const __grid_constant__ struct halves_rows_args a)
{
    extern __shared__ __align__(16) float2 shared[];
    constexpr int L = A * B, ROWS = rows_in_block<T>, ROOM = row_room<A, B, T>(), TURNS = shared_turns<A, B, T>;
    const int t = threadIdx.x % T, row = threadIdx.x / T % ROWS, q = threadIdx.x / (T * ROWS);
    const int index = blockIdx.x * ROWS + row, line = index / a.sets_per_plane, set = index - line * a.sets_per_plane;
    const int kept = WHOLE ? L : a.kept;
    const bool there = WHOLE || line < a.lines, works = there && (T == B || t < B);
    float2 *all = shared + TURNS, *mine = all + (q * ROWS + row) * ROOM;
    const float2 *other = all + ((1 - q) * ROWS + row) * ROOM;
    const float2 *turns = turns_of<A, B>(TURNS ? shared : a.turns, q, t);
    float2 *values = a.values + (((size_t)blockIdx.y * a.sets_per_plane + set) * a.lines + line) * kept + t;
    const float *half = plane_line(a, line) + q * L + spectrum_step<B> * t;
    float2 v[A];
    turns_load<TURNS>(a.turns, shared);
    begin_after_last_pass();
    if (a.running && !a.running[blockIdx.y])
        return;
    if (works)
        rows_begin<A, B, WHOLE>(values, kept, t, q, v);
    if constexpr (TURNS != 0)
        __syncthreads();
    if (works) {
        turn_between<A, B>(turns, v);
        put_pairs<A>(mine + row_step<A> * t, v);
    }
    __syncwarp();
    if (there)
        multiply_spectrum<A, B, T>(mine + t, half, t);
    __syncwarp();
    if (works) {
        get_pairs<A>(mine + row_step<A> * t, v);
        turn_between<A, B>(turns, v);
        dft<A>(v);
        if (q)
            rows_give<A, 1>(mine + row_step<A> * t, v);
        else
            rows_give<A, 0>(mine + row_step<A> * t, v);
    }
    __syncthreads();
    if (works && q)
        rows_finish<A, B, 1, WHOLE>(values, kept - t, other + row_step<A> * t, v);
    else if (works)
        rows_finish<A, B, 0, WHOLE>(values, kept - t, other + row_step<A> * t, v);
}

struct size {
    int n, radix_a, rows; /* of a block */
    size_t bytes;
    void (*convolve[2])(struct halves_rows_args); /* any rows, and WHOLE */
    int (*place)(int k1, int k2);
};

template <int A, int B, int T> static constexpr size_t block_bytes()
{
    static_assert(shared_turns<A, B, T> <= 2 * ROW_THREADS, "a thread copies two");
    return (2 * rows_in_block<T> * row_room<A, B, T>() + shared_turns<A, B, T>)*sizeof(float2);
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
