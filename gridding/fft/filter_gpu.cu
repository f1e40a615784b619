/* filter_gpu.cu: convolutions of a real field on a GPU.
 *
 * Passes over waves[z][y][x], of which x has only the half that a real field needs, without that of half the nodes.
 * Along x, two real rows are one complex line. Along z, one pass transforms, multiplies and transforms back if field
 * and result have as many nodes there; otherwise two do. Each transform back adds up the waves that the result's nodes
 * do not tell apart as it reads them, and leaves only what is kept. All lines of a block are in shared memory; all
 * passes but the first and the last work in place. */
#include "gridding/fft/filter_gpu.cuh"
#include "gridding/fft/filter_lines.cuh"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace
{

const char what[] = "A convolution";

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

template <class PLAN, bool ROWS_> constexpr int block_most()
{
    return PLAN::N ? PLAN::THREADS * lines_of(PLAN::THREADS, ROWS_) : (int)LINE_MOST;
}

template <class PLAN, bool ROWS_> constexpr int blocks_least()
{
    return PLAN::N == 0 || PLAN::LARGEST > 10 || block_most<PLAN, ROWS_>() > BLOCK_MOST ? 1 : 2;
}

struct device_factors {
    const float *axis[3], *radial;
    float place[3]; /* of one period along each axis: steps of radial */
    int last;
};

struct pass_args {
    struct fft_plan plan;
    int lines_per_block, lines, waves_x; /* waves_x: waves along x, the pitch of a row */
    int from[3], to[3], kept[3];
    size_t plane;                    /* of the waves */
    size_t step, line, set;          /* columns: of an element, a line, a set */
    int set_axis, along, n_to, keep; /* columns: which axis is along, and its lengths */
    struct device_factors factors;
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
              lines = PLAN::N && !ROWS_ ? lines_of(threads, false) : a.lines_per_block;
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

/* The factor of the wave at index k along z (0 for that of half the nodes), less what a line has in common. */
__device__ __forceinline__ float factor_at(const pass_args &a, int k, float across, float scale)
{
    const device_factors &f = a.factors;
    const int n = a.from[2], wave = 2 * k > n ? n - k : k;
    const float along = (float)wave * f.place[2];
    return 2 * k == n
               ? 0.f
               : scale * __ldg(f.axis[2] + wave) * filter_radial(f.radial, f.last, sqrtf(fmaf(along, along, across)));
}

/* Of line x of set y: its places along x and y, squared and added up, and its factors. */
__device__ __forceinline__ void line_factor(const pass_args &a, int x, int y, float &across, float &scale)
{
    const device_factors &f = a.factors;
    const int n = a.from[1], wave = 2 * y > n ? n - y : y;
    const float px = (float)x * f.place[0], py = (float)wave * f.place[1];
    across = px * px + py * py;
    scale = 2 * y == n || x >= a.waves_x ? 0.f : __ldg(f.axis[0] + x) * __ldg(f.axis[1] + wave);
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
    float across = 0, scale = 1;
    if (FACTORS)
        line_factor(a, line, blockIdx.y, across, scale);
    const auto load = [&](int k) { return conj(at[(size_t)k * a.step]); };
    const auto store = [&](int k, float2 v) {
        const float f = FACTORS ? factor_at(a, k, across, scale) : 1.f;
        at[(size_t)k * a.step] = make_float2(v.x * f, -v.y * f);
    };
    PLAN::template run<ENDS_OUTSIDE>(a.plan, p, memory, load, store);
}

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

template <class PLAN>
__global__ void __launch_bounds__(block_most<PLAN, false>(), blocks_least<PLAN, false>())
    columns_back(const __grid_constant__ pass_args a)
{
    line_place p;
    lines_memory<false> memory;
    int line;
    place_of<PLAN, false>(a, p, memory, line);
    float2 *at = a.waves + blockIdx.y * a.set + line;
    const int from = a.from[a.along], keep = a.kept[a.along];
    const auto wave = [&](int w) { return at[(size_t)(w < 0 ? w + from : w) * a.step]; };
    const auto load = [&](int k) { return folded(k, from, p.n, wave); };
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
    float across, scale;
    const int keep = a.kept[2];
    line_factor(a, line, blockIdx.y, across, scale);
    const auto load = [&](int k) { return conj(at[(size_t)k * a.step]); };
    const auto multiplied = [&](int k, float2 v) {
        const float f = factor_at(a, k, across, scale);
        memory.at(k) = make_float2(v.x * f, -v.y * f);
    };
    const auto again = [&](int k) { return memory.at(k); };
    const auto store = [&](int k, float2 v) {
        if (k < keep)
            at[(size_t)k * a.step] = v;
    };
    PLAN::template run<WRITES_SHARED>(a.plan, p, memory, load, multiplied);
    PLAN::template run<READS_SHARED>(a.plan, p, memory, again, store);
}

/* A line: the waves of two rows of the result, which are its real and its imaginary part. */
template <class PLAN>
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
    const auto load = [&](int k) { return folded(k, a.from[0], p.n, wave); };
    const auto store = [&](int k, float2 v) {
        if (k < keep) {
            to[k] = v.x;
            if (two)
                to[keep + k] = v.y;
        }
    };
    PLAN::template run<ENDS_OUTSIDE>(a.plan, p, memory, load, store);
}

/* ---- the kernels of a size ---- */

using pass_kernel = void (*)(pass_args);
enum pass_kind { ROWS_FORTH, COLUMNS_FORTH, COLUMNS_FORTH_FACTORS, COLUMNS_FILTER, COLUMNS_BACK, ROWS_BACK };

template <class PLAN> pass_kernel kernel_of(pass_kind kind)
{
    switch (kind) {
    case ROWS_FORTH:
        return rows_forth<PLAN>;
    case COLUMNS_FORTH:
        return columns_forth<PLAN, false>;
    case COLUMNS_FORTH_FACTORS:
        return columns_forth<PLAN, true>;
    case COLUMNS_FILTER:
        return columns_filter<PLAN>;
    case COLUMNS_BACK:
        return columns_back<PLAN>;
    default:
        return rows_back<PLAN>;
    }
}

pass_kernel kernel_for(int n, pass_kind kind)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3) \
    case N:                     \
        return kernel_of<plan_known<R0, R1, R2, R3>>(kind);
        FILTER_SIZES(SIZE)
#undef SIZE
    default:
        return kernel_of<plan_any>(kind);
    }
}

} // namespace

bool filter_gpu_serves(int n)
{
    int rest = n;
    for (int prime = 2; prime <= 7; prime++)
        while (rest % prime == 0)
            rest /= prime;
    return n >= 4 && n <= 2048 && rest == 1;
}

struct filter_gpu {
    struct gpu *gpu;
    struct filter_shape shape;
    struct fft_plan forth[3], back[3];
    float *tables;
    struct device_factors factors;
    float2 *waves;
    int waves_x;
    size_t rows, planes; /* of the waves */
};

namespace
{

void lay(struct filter_gpu *f, const struct filter_shape *shape)
{
    f->shape = *shape;
    f->waves_x = filter_gpu_waves_x(shape);
    f->rows = (size_t)std::max(shape->from[1], shape->kept[1]);
    f->planes = (size_t)std::max(shape->from[2], shape->kept[2]);
}

size_t table_count(const struct filter_shape *shape, size_t radial)
{
    size_t count = radial;
    for (int d = 0; d < 3; d++)
        count += (size_t)shape->from[d] / 2 + 1;
    return count;
}

/* The factors, in device memory, one table after the other. */
int factors_copy(struct filter_gpu *f, const struct filter_factors *factors)
{
    const size_t count = table_count(&f->shape, factors->count);
    float *host = (float *)malloc(count * sizeof *host);
    if (!host)
        return err_no_memory("the factors of a convolution");
    int rc = gpu_array(f->gpu, count, &f->tables, what);
    size_t at = 0;
    for (int d = 0; d < 3; d++) {
        const size_t n = (size_t)f->shape.from[d] / 2 + 1;
        memcpy(host + at, factors->axis[d], n * sizeof *host);
        f->factors.axis[d] = f->tables + at;
        f->factors.place[d] = (float)(factors->wave[d] / factors->step);
        at += n;
    }
    memcpy(host + at, factors->radial, factors->count * sizeof *host);
    f->factors.radial = f->tables + at;
    f->factors.last = (int)factors->count - 2;
    if (!rc)
        rc = gpu_upload(f->gpu, f->tables, host, count * sizeof *host);
    free(host);
    return rc;
}

} // namespace

size_t filter_gpu_bytes(const struct filter_shape *shape, size_t factors)
{
    struct filter_gpu f;
    lay(&f, shape);
    size_t bytes = f.planes * f.rows * (size_t)f.waves_x * sizeof(float2) + table_count(shape, factors) * sizeof(float);
    for (int d = 0; d < 3; d++) /* turns, and those of halves (fft_gpu.cuh) */
        bytes += 2 * ((size_t)shape->from[d] + (size_t)shape->to[d]) * sizeof(float2);
    return bytes;
}

int filter_gpu_create(struct filter_gpu **out, struct gpu *gpu, const struct filter_shape *shape,
                      const struct filter_factors *factors)
{
    for (int d = 0; d < 3; d++)
        if (!filter_gpu_serves(shape->from[d]) || !filter_gpu_serves(shape->to[d]))
            return err_set(
                ERR_BAD_PARAMETER,
                "A mesh of %d nodes along an axis, filtered to %d, cannot be transformed on a GPU: both must "
                "be products of 2, 3, 5 and 7, from 4 to 2048.",
                shape->from[d], shape->to[d]);
    struct filter_gpu *f = (struct filter_gpu *)calloc(1, sizeof *f);
    if (!f)
        return err_no_memory("a convolution");
    f->gpu = gpu;
    lay(f, shape);
    int rc = gpu_enter(gpu);
    for (int d = 0; d < 3 && !rc; d++) {
        rc = fft_plan_make(&f->forth[d], gpu, shape->from[d]);
        if (!rc)
            rc = fft_plan_make(&f->back[d], gpu, shape->to[d]);
    }
    if (!rc && factors)
        rc = factors_copy(f, factors);
    if (!rc)
        rc = gpu_array(gpu, f->planes * f->rows * (size_t)f->waves_x, &f->waves, what);
    if (rc)
        filter_gpu_free(f);
    else
        *out = f;
    return rc;
}

void filter_gpu_free(struct filter_gpu *f)
{
    if (!f)
        return;
    if (gpu_enter(f->gpu) == 0) {
        for (int d = 0; d < 3; d++) {
            fft_plan_free(&f->forth[d], f->gpu);
            fft_plan_free(&f->back[d], f->gpu);
        }
        gpu_release(f->gpu, f->tables);
        gpu_release(f->gpu, f->waves);
    }
    free(f);
}

namespace
{

int launch(struct filter_gpu *f, const struct fft_plan *plan, pass_kind kind, struct pass_args *a, int lines, int sets)
{
    const bool rows = kind == ROWS_FORTH || kind == ROWS_BACK;
    const pass_kernel kernel = kernel_for(plan->n, kind);
    a->plan = *plan;
    a->lines = lines;
    a->lines_per_block = lines_of(plan->threads, rows);
    const size_t line = (size_t)(rows ? lines_memory<true>::room(plan->n) : lines_memory<false>::room(plan->n));
    while (!filter_quick(plan->n) && a->lines_per_block > 1 &&
           line * a->lines_per_block * sizeof(float2) > f->gpu->shared_most)
        a->lines_per_block /= 2;
    const size_t shared = line * a->lines_per_block * sizeof(float2);
    int rc = gpu_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)std::max(shared, (size_t)48 * 1024)),
                       what);
    if (rc)
        return rc;
    kernel<<<dim3(gpu_blocks((size_t)lines, (unsigned)a->lines_per_block), (unsigned)sets),
             (unsigned)(a->lines_per_block * plan->threads), shared, f->gpu->stream>>>(*a);
    return gpu_launched(what);
}

/* Columns along an axis, of as many sets. */
int columns(struct filter_gpu *f, pass_kind kind, int along, int sets, struct pass_args *a)
{
    const size_t row = (size_t)f->waves_x;
    a->along = along;
    a->step = along == 1 ? row : a->plane;
    a->set = along == 1 ? a->plane : row;
    return launch(f, kind == COLUMNS_BACK ? &f->back[along] : &f->forth[along], kind, a, f->waves_x, sets);
}

struct pass_args args_of(const struct filter_gpu *f, const float *field, float2 *waves, float *result)
{
    const struct filter_shape *s = &f->shape;
    struct pass_args a;
    memset(&a, 0, sizeof a);
    a.waves_x = f->waves_x;
    a.plane = f->rows * (size_t)f->waves_x;
    memcpy(a.from, s->from, sizeof a.from);
    memcpy(a.to, s->to, sizeof a.to);
    memcpy(a.kept, s->kept, sizeof a.kept);
    a.factors = f->factors;
    a.waves = waves;
    a.field = field;
    a.result = result;
    return a;
}

int run(struct filter_gpu *f, pass_kind kind, int along, struct pass_args *a)
{
    const struct filter_shape *s = &f->shape;
    const int rc = gpu_enter(f->gpu);
    if (rc)
        return rc;
    if (kind == ROWS_FORTH)
        return launch(f, &f->forth[0], kind, a, (s->from[1] + 1) / 2, s->from[2]);
    if (kind == ROWS_BACK)
        return launch(f, &f->back[0], kind, a, (s->kept[1] + 1) / 2, s->kept[2]);
    return columns(f, kind, along, along == 2 ? s->from[1] : kind == COLUMNS_BACK ? s->kept[2] : s->from[2], a);
}

} // namespace

int filter_gpu_pass(struct filter_gpu *f, int pass, const float *field, float *result)
{
    struct pass_args a = args_of(f, field, f->waves, result);
    if (pass == 0)
        return run(f, ROWS_FORTH, 0, &a);
    if (pass == 1)
        return run(f, COLUMNS_FORTH, 1, &a);
    if (pass == 2 && f->shape.from[2] == f->shape.to[2])
        return run(f, COLUMNS_FILTER, 2, &a);
    if (pass > 2)
        return pass == 3 ? run(f, COLUMNS_BACK, 1, &a) : run(f, ROWS_BACK, 0, &a);
    const int rc = run(f, COLUMNS_FORTH_FACTORS, 2, &a);
    return rc ? rc : run(f, COLUMNS_BACK, 2, &a);
}

int filter_gpu_forth(struct filter_gpu *f, const float *field, const float2 **waves)
{
    struct pass_args a = args_of(f, field, f->waves, NULL);
    int rc = run(f, ROWS_FORTH, 0, &a);
    for (int along = 1; along < 3 && !rc; along++)
        rc = run(f, COLUMNS_FORTH, along, &a);
    *waves = f->waves;
    return rc;
}

int filter_gpu_back(struct filter_gpu *f, float2 *waves, float *result)
{
    struct pass_args a = args_of(f, NULL, waves, result);
    int rc = 0;
    for (int along = 2; along > 0 && !rc; along--)
        rc = run(f, COLUMNS_BACK, along, &a);
    return rc ? rc : run(f, ROWS_BACK, 0, &a);
}
