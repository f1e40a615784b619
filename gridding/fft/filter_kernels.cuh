/* filter_kernels.cuh: the passes of a convolution (filter_gpu.cu, which alone includes this). */
#ifndef MRIRECON_FFT_FILTER_KERNELS_CUH
#define MRIRECON_FFT_FILTER_KERNELS_CUH

#include "gridding/fft/filter_gpu.cuh"
#include "gridding/fft/filter_two.cuh"

namespace
{

enum { COLUMNS = 8, COLUMNS_LEAST = 4, ROWS = 8, BLOCK_MOST = 640, LINE_MOST = 1024 };

/* Of a block. */
constexpr __host__ __device__ int lines_of(int threads, bool rows)
{
    int lines = rows ? (int)ROWS : (int)COLUMNS;
    while (lines > (rows ? 1 : (int)COLUMNS_LEAST) && lines * threads > BLOCK_MOST)
        lines /= 2;
    while (lines > 1 && lines * threads > LINE_MOST)
        lines /= 2;
    return lines;
}

/* Lines in two stages have few threads, of many registers each: more lines a block, whose columns are 128 bytes wide.
 */
template <class PLAN, bool ROWS_> constexpr __host__ __device__ int lines_of_plan()
{
    return PLAN::LARGEST > 10 ? (PLAN::THREADS <= 20 ? 16 : 8) : lines_of(PLAN::THREADS, ROWS_);
}

template <class PLAN, bool ROWS_> constexpr int block_most()
{
    return PLAN::N ? PLAN::THREADS * lines_of_plan<PLAN, ROWS_>() : (int)LINE_MOST;
}

/* Of a multiprocessor, at least: the compiler keeps to as many registers. */
template <class PLAN, bool ROWS_> constexpr int blocks_least()
{
    return PLAN::LARGEST > 10                                            ? (int)BLOCK_MOST / block_most<PLAN, ROWS_>()
           : PLAN::N == 0 || block_most<PLAN, ROWS_>() > (int)BLOCK_MOST ? 1
                                                                         : 2;
}

/* Tables of filter_factors, by which the factors of all waves are filled in. */
struct factor_tables {
    const float *axis[3];
    const float2 *radial; /* values, and the differences to the next */
    float place[3];       /* of one period along each axis: steps of radial */
    float most;           /* of the product of axis[] */
    int last;
};

struct pass_args {
    struct fft_plan plan;
    int lines_per_block, lines, waves_x; /* waves_x: waves along x, the pitch of a row */
    int from[3], to[3], kept[3];
    size_t plane;     /* of the waves */
    size_t step, set; /* columns: of an element, a set */
    int along;        /* columns: the axis */
    struct factor_tables tables;
    const float *factors; /* [|y|][|z|][x], of the field's waves; NULL: from the tables */
    float2 *waves;
    const float *field;
    float *result;
};

__device__ __forceinline__ float2 conj(float2 a)
{
    return make_float2(a.x, -a.y);
}

template <class PLAN, bool ROWS_>
__device__ __forceinline__ void place_of(const pass_args &a, line_place &p, lines_memory<ROWS_> &memory, int &line)
{
    extern __shared__ float2 shared[];
    const int threads = PLAN::threads(a.plan.threads),
              lines = PLAN::N && !ROWS_ ? lines_of_plan<PLAN, false>() : a.lines_per_block;
    memory.shared = shared;
    memory.lines = lines;
    memory.n = p.n = PLAN::size(a.plan.n);
    memory.line = ROWS_ ? threadIdx.x / threads : threadIdx.x % lines;
    p.thread = ROWS_ ? threadIdx.x % threads : threadIdx.x / lines;
    p.turns = a.plan.twiddles;
    line = blockIdx.x * lines + memory.line;
    p.there = line < a.lines;
}

/* Blocks: rows of field pairs x planes. A line: two rows of the field. */
template <class PLAN>
__global__ void __launch_bounds__(block_most<PLAN, true>(), blocks_least<PLAN, true>())
    rows_forth(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<true> memory;
    int line;
    place_of<PLAN, true>(a, p, memory, line);
    const size_t row = (size_t)blockIdx.y * a.from[1] + 2 * (size_t)line;
    const bool two = 2 * line + 1 < a.from[1];
    const float *first = a.field + row * p.n, *second = first + (two ? p.n : 0);
    /* A transform forth is a transform back between conjugates. */
    const auto load = [&](int k) { return make_float2(first[k], -second[k]); };
    const auto store = [&](int k, float2 v) { memory.at(k) = conj(v); };
    PLAN::template run<WRITES_SHARED>(a.plan, p, memory, load, store);
    if (!p.there)
        return;
    float2 *to = a.waves + (size_t)blockIdx.y * a.plane + 2 * (size_t)line * a.waves_x;
    for (int k = p.thread; k < a.waves_x; k += PLAN::threads(a.plan.threads)) {
        const float2 above = memory.at(k), below = memory.at(k ? p.n - k : 0);
        to[k] = make_float2(0.5f * (above.x + below.x), 0.5f * (above.y - below.y));
        if (two)
            to[a.waves_x + k] = make_float2(0.5f * (above.y + below.y), 0.5f * (below.x - above.x));
    }
}

/* sqrt(x), with an error of 2^-22. */
__device__ __forceinline__ float root_of(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* What the waves of a line have in common: of x and y, their places, squared and added up, and their factors; 0 for the
 * wave of half the nodes. */
struct line_factor {
    float across, axes;
};

__device__ __forceinline__ struct line_factor line_factor_of(const pass_args &a, int x, int y)
{
    const factor_tables &t = a.tables;
    const int n = a.from[1], wave = 2 * y > n ? n - y : y;
    const float px = (float)x * t.place[0], py = (float)wave * t.place[1];
    const struct line_factor line = {
        px * px + py * py, 2 * y == n || x >= a.waves_x ? 0.f : __ldg(t.axis[0] + x) * __ldg(t.axis[1] + wave)};
    return line;
}

/* The factor of the wave at index k along z. */
__device__ __forceinline__ float factor_of(const pass_args &a, const struct line_factor &line, int k)
{
    const factor_tables &t = a.tables;
    const int n = a.from[2], wave = 2 * k > n ? n - k : k;
    const float along = (float)wave * t.place[2], place = root_of(fmaf(along, along, line.across));
    const int below = min((int)place, t.last);
    const float2 radial = __ldg(t.radial + below);
    const float axes = line.axes * __ldg(t.axis[2] + wave);
    return 2 * k == n || axes > t.most ? 0.f : axes * filter_between(radial.x, radial.y, place - (float)below);
}

/* The factors of all waves. A thread: a wave; blocks: waves along x x |z| x |y|. */
__global__ void fill_factors(const __grid_constant__ pass_args a, float *to)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, z = blockIdx.y, y = blockIdx.z;
    if (x < a.waves_x)
        to[((size_t)y * gridDim.y + z) * a.waves_x + x] = factor_of(a, line_factor_of(a, x, y), z);
}

/* Of line x of set y: its factors, a.waves_x apart. */
__device__ __forceinline__ const float *line_factors(const pass_args &a, int x, int y)
{
    const int n = a.from[1], wave = 2 * y > n ? n - y : y;
    return a.factors + (size_t)wave * (a.from[2] / 2 + 1) * a.waves_x + min(x, a.waves_x - 1);
}

/* That of the wave at index k along z. */
__device__ __forceinline__ float factor_at(const pass_args &a, const float *line, int k)
{
    const int n = a.from[2], wave = 2 * k > n ? n - k : k;
    return __ldg(line + wave * a.waves_x);
}

/* Blocks: columns x sets. FACTORS: what is written is multiplied. */
template <class PLAN, bool FACTORS>
__global__ void __launch_bounds__(block_most<PLAN, false>(), blocks_least<PLAN, false>())
    columns_forth(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<false> memory;
    int line;
    place_of<PLAN, false>(a, p, memory, line);
    float2 *at = a.waves + blockIdx.y * a.set + line;
    const float *factors = FACTORS ? line_factors(a, line, blockIdx.y) : NULL;
    const auto load = [&](int k) { return conj(at[(size_t)k * a.step]); };
    const auto store = [&](int k, float2 v) {
        const float f = FACTORS ? factor_at(a, factors, k) : 1.f;
        at[(size_t)k * a.step] = make_float2(v.x * f, -v.y * f);
    };
    PLAN::template run<ENDS_OUTSIDE>(a.plan, p, memory, load, store);
}

/* What a transform back reads: the field's waves, of a result of as many nodes or of others; or waves that are added up
 * already, and lie where folded_place() says. */
enum back_waves { WAVES_SAME, WAVES_OTHER, WAVES_FOLDED };

/* The sum of the waves that a transform of `to` nodes has at i; wave(w) reads one. */
template <class WAVE> __device__ __forceinline__ float2 folded(int i, int from, int to, const WAVE &wave)
{
    float2 sum = make_float2(0, 0);
    if (from <= to) {
        const int w = i < (from + 1) / 2 ? i : i - to;
        return 2 * w < from && -2 * w < from ? wave(w) : sum;
    }
    for (int w = filter_lowest(i, from, to); 2 * w < from; w += to)
        sum = add(sum, wave(w));
    return sum;
}

/* Where waves lie that were added up for a transform of `to` nodes: at that of the smallest magnitude. */
__device__ __forceinline__ int folded_place(int i, int from, int to)
{
    return 2 * i < to ? i : i - to + from;
}

/* Along z, where the result has fewer nodes than the field along y and z. Blocks: columns x the result's nodes along y.
 * The lines of which waves are added up along y are transformed and multiplied one after the other; each is added up
 * along z in shared memory. */
template <class PLAN>
__global__ void __launch_bounds__(block_most<PLAN, false>(), blocks_least<PLAN, false>())
    columns_fold(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<false> memory;
    int line;
    place_of<PLAN, false>(a, p, memory, line);
    float2 *sums = memory.shared + memory.n * memory.lines + memory.line, *at = a.waves + line;
    const int threads = PLAN::threads(a.plan.threads), first = filter_lowest(blockIdx.y, a.from[1], a.to[1]);
    for (int w = first; 2 * w < a.from[1]; w += a.to[1]) {
        const int y = w < 0 ? w + a.from[1] : w;
        const struct line_factor factor = line_factor_of(a, line, y);
        size_t step = a.step;
        asm volatile("" : "+l"(step)); /* products with it are not to be kept from line to line: that takes registers */
        const float2 *from = at + y * a.set;
        const auto load = [&](int k) { return conj(from[(size_t)k * step]); };
        const auto store = [&](int k, float2 v) { memory.at(k) = v; };
        const auto wave = [&](int z) {
            const int k = z < 0 ? z + p.n : z;
            const float2 v = memory.at(k);
            const float f = factor_of(a, factor, k);
            return make_float2(v.x * f, -v.y * f);
        };
        PLAN::template run<READS_SHARED | WRITES_SHARED>(a.plan, p, memory, load, store);
#pragma unroll 4
        for (int k = p.thread; k < a.to[2]; k += threads) {
            const float2 v = folded(k, p.n, a.to[2], wave);
            sums[k * memory.lines] = w == first ? v : add(sums[k * memory.lines], v);
        }
    }
    const int y = folded_place(blockIdx.y, a.from[1], a.to[1]);
    for (int k = p.there ? p.thread : a.to[2]; k < a.to[2]; k += threads)
        at[(size_t)folded_place(k, p.n, a.to[2]) * a.step + y * a.set] = sums[k * memory.lines];
}

template <class PLAN, back_waves WAVES>
__global__ void __launch_bounds__(block_most<PLAN, false>(), blocks_least<PLAN, false>())
    columns_back(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<false> memory;
    int line;
    place_of<PLAN, false>(a, p, memory, line);
    const int set = WAVES == WAVES_FOLDED && a.along == 2 ? folded_place(blockIdx.y, a.from[1], a.to[1]) : blockIdx.y;
    float2 *at = a.waves + set * a.set + line;
    const int from = a.from[a.along], keep = a.kept[a.along];
    const auto wave = [&](int w) { return at[(size_t)(w < 0 ? w + from : w) * a.step]; };
    const auto load = [&](int k) {
        if (WAVES == WAVES_OTHER)
            return folded(k, from, p.n, wave);
        const float2 v = at[(size_t)(WAVES == WAVES_SAME ? k : folded_place(k, from, p.n)) * a.step];
        return WAVES == WAVES_SAME && 2 * k == p.n ? make_float2(0, 0) : v;
    };
    const auto store = [&](int k, float2 v) {
        if (k < keep)
            at[(size_t)k * a.step] = v;
    };
    PLAN::template run<ENDS_OUTSIDE>(a.plan, p, memory, load, store);
}

/* Along z, as many nodes of the result as of the field. */
template <class PLAN>
__global__ void __launch_bounds__(block_most<PLAN, false>(), blocks_least<PLAN, false>())
    columns_filter(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<false> memory;
    int line;
    place_of<PLAN, false>(a, p, memory, line);
    float2 *at = a.waves + blockIdx.y * a.set + line;
    const float *factors = line_factors(a, line, blockIdx.y);
    const int keep = a.kept[2];
    const auto load = [&](int k) { return conj(at[(size_t)k * a.step]); };
    const auto multiplied = [&](int k, float2 v) {
        const float f = factor_at(a, factors, k);
        return make_float2(v.x * f, -v.y * f);
    };
    const auto store = [&](int k, float2 v) {
        if (k < keep)
            at[(size_t)k * a.step] = v;
    };
    PLAN::run_twice(a.plan, p, memory, load, multiplied, store);
}

/* A line: the waves of two rows of the result, which are its real and its imaginary part. */
template <class PLAN, back_waves WAVES>
__global__ void __launch_bounds__(block_most<PLAN, true>(), blocks_least<PLAN, true>())
    rows_back(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<true> memory;
    int line;
    place_of<PLAN, true>(a, p, memory, line);
    const bool two = 2 * line + 1 < a.kept[1];
    const float2 *first = a.waves + (size_t)blockIdx.y * a.plane + 2 * (size_t)line * a.waves_x,
                 *second = first + (two ? a.waves_x : 0);
    float *to = a.result + ((size_t)blockIdx.y * a.kept[1] + 2 * (size_t)line) * a.kept[0];
    const int keep = a.kept[0];
    const auto wave = [&](int w) {
        const float2 u = first[abs(w)], v = second[abs(w)];
        return w < 0 ? make_float2(u.x + v.y, v.x - u.y) : make_float2(u.x - v.y, v.x + u.y);
    };
    const auto load = [&](int k) {
        if (WAVES == WAVES_OTHER)
            return folded(k, a.from[0], p.n, wave);
        const bool half = 2 * k == p.n;
        const float2 v = wave(half ? 0 : 2 * k < p.n ? k : k - p.n);
        return half ? make_float2(0, 0) : v;
    };
    const auto store = [&](int k, float2 v) {
        if (k < keep) {
            to[k] = v.x;
            if (two)
                to[keep + k] = v.y;
        }
    };
    PLAN::template run<ENDS_OUTSIDE>(a.plan, p, memory, load, store);
}

} // namespace

#endif
