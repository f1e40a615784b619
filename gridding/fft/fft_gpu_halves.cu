/* The passes of a convolution on a grid of twice L cells, of which an image fills L at most.
 *
 * With w = exp(2 pi i / 2L), frequency 2 k + q of such a line is
 *
 *   sum_j (cell[j] w^(q j)) w^(2 j k),   j, k = 0 .. L - 1:
 *
 * two transforms of L cells, and back likewise. Each is done in two stages of radices A and B, L = A B, by threads of
 * its own, with j = t + B r and k = k1 + A k2: the sum over r by thread t, a turn by w^(t (2 k1 + q)), the sum over t
 * by thread k1; back, the sum over k2 by thread k1, the same turn, the sum over k1 by thread t. The turns w^(q B r) of
 * odd frequencies at the image's side are constants. A thread holds 16 values or fewer: columns leave a multiprocessor
 * room for 1,024 threads, rows, which would spill registers then, for 768. */
#include "gridding/base/host_device.h"
#include "gridding/fft/dft_gpu.cuh"
#include "gridding/fft/fft_halves.cuh"

/* 2 L, A, B, threads of a transform (8 or 16: whole parts of a warp). */
#define HALVES(X)      \
    X(128, 8, 8, 8)    \
    X(160, 10, 8, 8)   \
    X(192, 12, 8, 8)   \
    X(224, 16, 7, 8)   \
    X(240, 15, 8, 8)   \
    X(256, 16, 8, 8)   \
    X(288, 9, 16, 16)  \
    X(320, 10, 16, 16) \
    X(384, 12, 16, 16) \
    X(480, 15, 16, 16) \
    X(512, 16, 16, 16)

enum { COLUMNS = 16, ROW_THREADS = 256, RESIDENT_THREADS = 1024, ROW_BLOCKS = 3 };

/* Inputs 5 a + 3 b mod 15, outputs 10 a + 6 b mod 15: no twiddles. */
template <> __device__ __forceinline__ void dft<15>(float2 *v)
{
#pragma unroll
    for (int b = 0; b < 5; b++)
        dft3(v[3 * b], v[(5 + 3 * b) % 15], v[(10 + 3 * b) % 15]);
#pragma unroll
    for (int a = 0; a < 3; a++)
        dft5(v[5 * a], v[(5 * a + 3) % 15], v[(5 * a + 6) % 15], v[(5 * a + 9) % 15], v[(5 * a + 12) % 15]);
    float2 t[15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        t[(10 * (k / 5) + 6 * (k % 5)) % 15] = v[(5 * (k / 5) + 3 * (k % 5)) % 15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        v[k] = t[k];
}

/* exp(pi i r / A), r = 0 .. A - 1. */
template <int A> struct half_turns {
    float re[A], im[A];
};

static __host__ __device__ constexpr double power_series(double x, int first)
{
    double term = first ? x : 1, sum = term;
    for (int i = first + 1; i < 40; i += 2) {
        term *= -x * x / (i * (i + 1.0));
        sum += term;
    }
    return sum;
}

template <int A> static __host__ __device__ constexpr struct half_turns<A> half_turns_make() {
    struct half_turns<A> w = {
    };
    for (int r = 0; r < A; r++) {
        const double angle = 3.14159265358979323846 * r / A;
        w.re[r] = (float)power_series(angle, 0);
        w.im[r] = (float)power_series(angle, 1);
    }
    return w;
}

/* v[r] w^(B r). */
template <int A>
static __device__ __forceinline__ void turn_odd(float2 (&v)[A])
{
    constexpr struct half_turns<A> w = half_turns_make<A>();
#pragma unroll
    for (int r = 1; r < A; r++)
        v[r] = 2 * r == A ? mul_i(v[r]) : mul(v[r], make_float2(w.re[r], w.im[r]));
}

/* The pass after this one may begin as soon as every block of this one has, but for what it reads and writes: it waits
 * for the whole of the one before. So the launch of a pass hides behind the pass before it. */
static __device__ __forceinline__ void begin_after_last_pass()
{
    if constexpr (DEVICE_ARCH >= 900) {
        cudaTriggerProgrammaticLaunchCompletion();
        cudaGridDependencySynchronize();
    }
}

static __device__ __forceinline__ float2 conj(float2 a)
{
    return make_float2(a.x, -a.y);
}

/* Sums over t or k2 that a thread does. */
template <int A, int T> static constexpr int rounds = (A + T - 1) / T;

/* ---- columns ---- */

struct columns_args {
    const float2 *in;
    float2 *out;
    size_t in_step, in_set, out_step, out_set;
    int kept, lines;
    const float2 *twiddles; /* [2 L]: w^j */
};

/* A thread's part of a block's 16 columns. Neighbouring lanes have neighbouring columns; a warp is of one q. */
template <int A, int B, int T> struct column_place {
    int column, t, q;
    bool there;
    size_t in, out; /* of the column's first element */
    float2 *shared; /* of its transform: element (k1, t) lies at COLUMNS * (B k1 + t) */

    __device__ __forceinline__ column_place(const struct columns_args &a, float2 *all)
    {
        const int in_block = threadIdx.x % COLUMNS;
        t = threadIdx.x / COLUMNS % T;
        q = threadIdx.x / (COLUMNS * T);
        column = blockIdx.x * COLUMNS + in_block;
        there = column < a.lines;
        in = (size_t)blockIdx.y * a.in_set + column;
        out = (size_t)blockIdx.y * a.out_set + column;
        shared = all + q * (A * B * COLUMNS) + in_block;
    }
};

/* Turn v[k1], of thread t, by w^(t (2 k1 + q)). */
template <int A>
static __device__ __forceinline__ void turn_between(const float2 *twiddles, int t, int q, float2 (&v)[A])
{
#pragma unroll
    for (int k1 = 0; k1 < A; k1++)
        v[k1] = mul(v[k1], __ldg(twiddles + t * (2 * k1 + q)));
}

/* Exponent -, which is exponent + between conjugates: `kept` cells to all frequencies. */
template <int A, int B, int T>
static __global__ void __launch_bounds__(2 * T * COLUMNS, RESIDENT_THREADS / (2 * T * COLUMNS))
    columns_forth(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(a, shared);
    begin_after_last_pass();
    if (at.there && (T == B || at.t < B)) {
        float2 v[A];
#pragma unroll
        for (int r = 0; r < A; r++) {
            const int j = at.t + B * r;
            v[r] = j < a.kept ? conj(a.in[at.in + (size_t)j * a.in_step]) : make_float2(0.f, 0.f);
        }
        if (at.q)
            turn_odd<A>(v);
        dft<A>(v);
        turn_between<A>(a.twiddles, at.t, at.q, v);
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            at.shared[COLUMNS * (B * k1 + at.t)] = v[k1];
    }
    __syncthreads();
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        const int k1 = at.t + T * round;
        if (!at.there || (A % T != 0 && k1 >= A))
            break;
        float2 v[B];
#pragma unroll
        for (int t = 0; t < B; t++)
            v[t] = at.shared[COLUMNS * (B * k1 + t)];
        dft<B>(v);
#pragma unroll
        for (int k2 = 0; k2 < B; k2++)
            a.out[at.out + (size_t)(2 * (k1 + A * k2) + at.q) * a.out_step] = conj(v[k2]);
    }
}

/* What the other half's thread stores: every second element. Q: this thread's half. */
template <int A, int B, int Q>
static __device__ __forceinline__ void give(float2 *mine, int apart, const float2 (&v)[A])
{
#pragma unroll
    for (int r = 1 - Q; r < A; r += 2)
        mine[apart * r] = v[r];
}

/* Exponent +: all frequencies to the cells that are kept. */
template <int A, int B, int T>
static __global__ void __launch_bounds__(2 * T * COLUMNS, RESIDENT_THREADS / (2 * T * COLUMNS))
    columns_back(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(a, shared);
    begin_after_last_pass();
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        const int k1 = at.t + T * round;
        if (!at.there || (A % T != 0 && k1 >= A))
            break;
        float2 v[B];
#pragma unroll
        for (int k2 = 0; k2 < B; k2++)
            v[k2] = a.in[at.in + (size_t)(2 * (k1 + A * k2) + at.q) * a.in_step];
        dft<B>(v);
#pragma unroll
        for (int t = 0; t < B; t++)
            at.shared[COLUMNS * (B * k1 + t)] = v[t];
    }
    __syncthreads();
    const bool works = at.there && (T == B || at.t < B);
    float2 v[A], *mine = at.shared + COLUMNS * at.t;
    const float2 *other = mine + (at.q ? -A * B * COLUMNS : A * B * COLUMNS);
    if (works) {
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            v[k1] = mine[COLUMNS * B * k1];
        turn_between<A>(a.twiddles, at.t, at.q, v);
        dft<A>(v);
        if (at.q) {
            turn_odd<A>(v);
            give<A, B, 1>(mine, COLUMNS * B, v);
        } else {
            give<A, B, 0>(mine, COLUMNS * B, v);
        }
    }
    __syncthreads();
    if (!works)
        return;
#pragma unroll
    for (int r = 0; r < A; r++) {
        const int j = at.t + B * r;
        if (r % 2 == at.q && j < a.kept)
            a.out[at.out + (size_t)j * a.out_step] = add(v[r], other[COLUMNS * B * r]);
    }
}

/* ---- rows ---- */

struct halves_rows_args {
    float2 *values;
    int kept, lines, sets_per_plane;
    const float *spectrum;
    const float2 *twiddles;
};

/* A row's transform in shared memory: element (k1, t) lies at ROW_STEP * k1 + t, and the rows of a half of a warp at
 * different banks. */
template <int B> static constexpr int row_step = B | 1;

template <int A, int B, int T> static __host__ __device__ constexpr int row_room()
{
    const int elements = A * row_step<B>;
    return T == 16 ? elements : (elements + 7) / 16 * 16 + 8;
}

template <int T> static constexpr int rows_in_block = ROW_THREADS / (2 * T);

/* Element (k1, k2) of one half of a row of the spectrum: neighbouring threads have neighbouring k1, and each reads four
 * of its k2 at once where B has as many. */
template <int B> static constexpr int spectrum_step = B % 4 == 0 ? 4 : 1;

template <int A, int B> static __host__ __device__ constexpr int spectrum_place(int k1, int k2)
{
    return (k2 / spectrum_step<B> * A + k1) * spectrum_step<B> + k2 % spectrum_step<B>;
}

/* v[k2] times what stands there, conjugated. */
template <int A, int B> static __device__ __forceinline__ void times_spectrum(const float *half, int k1, float2 (&v)[B])
{
    constexpr int step = spectrum_step<B>;
#pragma unroll
    for (int k2 = 0; k2 < B; k2 += step) {
        const float *from = half + spectrum_place<A, B>(k1, k2);
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

/* The last stage forth, the multiplication, and the first stage back, in a thread's registers. */
template <int A, int B, int T>
static __device__ __forceinline__ void multiply_spectrum(float2 *mine, const float *half, int first)
{
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        const int k1 = first + T * round;
        if (A % T != 0 && k1 >= A)
            break;
        float2 v[B];
#pragma unroll
        for (int t = 0; t < B; t++)
            v[t] = mine[row_step<B> * k1 + t];
        dft<B>(v);
        times_spectrum<A, B>(half, k1, v);
        dft<B>(v);
#pragma unroll
        for (int t = 0; t < B; t++)
            mine[row_step<B> * k1 + t] = v[t];
    }
}

/* Blocks of 256 threads. A block's rows are the same line of neighbouring sets of a plane, as far as there are, so that
 * they share what they read of the spectrum. */
template <int A, int B, int T>
static __global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    rows_convolve(const __grid_constant__ struct halves_rows_args a)
{
    extern __shared__ float2 shared[];
    constexpr int L = A * B, ROWS = rows_in_block<T>, ROOM = row_room<A, B, T>();
    const int t = threadIdx.x % T, row = threadIdx.x / T % ROWS, q = threadIdx.x / (T * ROWS);
    const int index = blockIdx.x * ROWS + row, line = index / a.sets_per_plane, set = index - line * a.sets_per_plane;
    const bool there = line < a.lines, works = there && (T == B || t < B);
    float2 *turns = shared, *all = shared + 2 * L, *mine = all + (q * ROWS + row) * ROOM;
    const float2 *other = all + ((1 - q) * ROWS + row) * ROOM;
    float2 *values = a.values + (((size_t)blockIdx.y * a.sets_per_plane + set) * a.lines + line) * a.kept;
    float2 v[A];
    for (int i = threadIdx.x; i < 2 * L; i += ROW_THREADS) {
        const int of = i / L, k1 = i % L / B;
        turns[i] = __ldg(a.twiddles + i % B * (2 * k1 + of));
    }
    turns += q * L + t;
    begin_after_last_pass();
    if (works) {
#pragma unroll
        for (int r = 0; r < A; r++)
            v[r] = t + B * r < a.kept ? conj(values[t + B * r]) : make_float2(0.f, 0.f);
        if (q)
            turn_odd<A>(v);
        dft<A>(v);
    }
    __syncthreads();
    if (works) {
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            mine[row_step<B> * k1 + t] = mul(v[k1], turns[B * k1]);
    }
    __syncwarp();
    if (there)
        multiply_spectrum<A, B, T>(mine, a.spectrum + ((size_t)blockIdx.y * a.lines + line) * (2 * L) + q * L, t);
    __syncwarp();
    if (works) {
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            v[k1] = mul(mine[row_step<B> * k1 + t], turns[B * k1]);
        dft<A>(v);
        if (q) {
            turn_odd<A>(v);
            give<A, B, 1>(mine + t, row_step<B>, v);
        } else {
            give<A, B, 0>(mine + t, row_step<B>, v);
        }
    }
    __syncthreads();
    if (!works)
        return;
#pragma unroll
    for (int r = 0; r < A; r++)
        if (r % 2 == q && t + B * r < a.kept)
            values[t + B * r] = add(v[r], other[row_step<B> * r + t]);
}

/* ---- sizes ---- */

struct halves {
    int n, radix_a;
    int threads; /* of a transform */
    size_t row_bytes, rows;
    void (*forth)(struct columns_args);
    void (*back)(struct columns_args);
    void (*row)(struct halves_rows_args);
    int (*place)(int k1, int k2);
};

template <int A, int B, int T> static constexpr size_t row_bytes()
{
    return (2 * rows_in_block<T> * row_room<A, B, T>() + 2 * A * B) * sizeof(float2);
}

/* The smallest first. */
static const struct halves sizes[] = {
#define SIZE(N, A, B, T)     \
    {N,                      \
     A,                      \
     T,                      \
     row_bytes<A, B, T>(),   \
     rows_in_block<T>,       \
     columns_forth<A, B, T>, \
     columns_back<A, B, T>,  \
     rows_convolve<A, B, T>, \
     spectrum_place<A, B>},
    HALVES(SIZE)
#undef SIZE
};

/* NULL: no such size. */
static const struct halves *halves_of(int n)
{
    for (const struct halves &halves : sizes)
        if (halves.n == n)
            return &halves;
    return NULL;
}

bool fft_in_halves(int n)
{
    return halves_of(n) != NULL;
}

int fft_two_stage_size(int cells)
{
    for (const struct halves &halves : sizes)
        if (halves.n >= cells)
            return halves.n;
    return 0;
}

int fft_halves_place(int n, int f)
{
    const struct halves *halves = halves_of(n);
    const int k = f / 2;
    return f % 2 * (n / 2) + halves->place(k % halves->radix_a, k / halves->radix_a);
}

static int launch(struct gpu *gpu, const void *kernel, dim3 blocks, int threads, size_t shared, void *args)
{
    int rc = 0, major = 0;
    if (shared > 48 * 1024)
        rc = gpu_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                       "Preparing a convolution's pass");
    if (!rc)
        rc = gpu_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu->index),
                       "Preparing a convolution's pass");
    if (rc)
        return rc;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = gpu->stream;
    config.attrs = &early;
    config.numAttrs = major >= 9;
    return gpu_check(cudaLaunchKernelExC(&config, kernel, &args), "A convolution's pass");
}

int fft_halves_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows)
{
    const struct halves *halves = halves_of(plan->n);
    struct halves_rows_args args = {rows->values,         rows->kept,     rows->lines,
                                    rows->sets_per_plane, rows->spectrum, plan->twiddles};
    const dim3 blocks(gpu_blocks((size_t)rows->lines * rows->sets_per_plane, (unsigned)halves->rows),
                      (unsigned)(rows->sets / rows->sets_per_plane));
    return launch(gpu, (const void *)halves->row, blocks, ROW_THREADS, halves->row_bytes, &args);
}

int fft_halves_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass)
{
    const struct halves *halves = halves_of(plan->n);
    void (*kernel)(struct columns_args) = pass->kind == FFT_FORTH ? halves->forth : halves->back;
    struct columns_args args = {pass->in,          pass->out,           pass->in_view.step,
                                pass->in_view.set, pass->out_view.step, pass->out_view.set,
                                pass->kept,        pass->lines,         plan->twiddles};
    const dim3 blocks(gpu_blocks((size_t)pass->lines, COLUMNS), (unsigned)pass->sets);
    return launch(gpu, (const void *)kernel, blocks, 2 * halves->threads * COLUMNS,
                  (size_t)plan->n * COLUMNS * sizeof(float2), &args);
}
