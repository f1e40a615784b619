/* filter_gpu.cu: convolutions of a real field on a GPU.
 *
 * Passes over waves[z][y][x], of which x has only the half that a real field needs, without that of half the nodes.
 * Along x, two real rows are one complex line. Along z, one pass transforms, multiplies and transforms back if field
 * and result have as many nodes there; otherwise two do. Where the result has fewer nodes along y and z, the first of
 * the two adds up the waves that its nodes do not tell apart, so that the passes back have fewer lines; elsewhere each
 * transform back does that as it reads them. It leaves only what is kept. All lines of a block are in shared memory;
 * all passes but the first and the last work in place. */
#include "gridding/fft/filter_gpu.cuh"
#include "gridding/fft/filter_kernels.cuh"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace
{

const char what[] = "A convolution";

/* ---- the kernels of a size ---- */

using pass_kernel = void (*)(pass_args);
enum pass_kind {
    ROWS_FORTH,
    COLUMNS_FORTH,
    COLUMNS_FORTH_FACTORS,
    COLUMNS_FILTER,
    COLUMNS_FOLD,
    COLUMNS_BACK,
    COLUMNS_BACK_SAME,
    COLUMNS_BACK_FOLDED,
    ROWS_BACK,
    ROWS_BACK_SAME
};

bool is_rows(pass_kind kind)
{
    return kind == ROWS_FORTH || kind == ROWS_BACK || kind == ROWS_BACK_SAME;
}

bool is_back(pass_kind kind)
{
    return kind >= COLUMNS_BACK;
}

/* threads: of a line. */
struct kernel {
    pass_kernel run;
    int lines, threads;
};

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
    case COLUMNS_FOLD:
        return columns_fold<PLAN>;
    case COLUMNS_BACK:
        return columns_back<PLAN, WAVES_OTHER>;
    case COLUMNS_BACK_SAME:
        return columns_back<PLAN, WAVES_SAME>;
    case COLUMNS_BACK_FOLDED:
        return columns_back<PLAN, WAVES_FOLDED>;
    case ROWS_BACK_SAME:
        return rows_back<PLAN, WAVES_SAME>;
    default:
        return rows_back<PLAN, WAVES_OTHER>;
    }
}

template <class PLAN> struct kernel kernel_known(pass_kind kind)
{
    const struct kernel k = {kernel_of<PLAN>(kind),
                             is_rows(kind) ? lines_of_plan<PLAN, true>() : lines_of_plan<PLAN, false>(), PLAN::THREADS};
    return k;
}

/* A size whose fourth "radix" is 0 has two stages. */
template <int R0, int R1, int R2, int R3> struct plan_sized {
    using plan = plan_known<R0, R1, R2, R3>;
};

template <int R0, int R1> struct plan_sized<R0, R1, 0, 0> {
    using plan = plan_two<R0, R1>;
};

struct kernel kernel_for(const struct fft_plan *plan, pass_kind kind)
{
    switch (plan->n) {
#define SIZE(N, R0, R1, R2, R3) \
    case N:                     \
        return kernel_known<plan_sized<R0, R1, R2, R3>::plan>(kind);
        FILTER_SIZES(SIZE)
#undef SIZE
    default:
        const struct kernel k = {kernel_of<plan_any>(kind), lines_of(plan->threads, is_rows(kind)), plan->threads};
        return k;
    }
}

/* A plan for lines of n nodes. Kernels for any length have radices of up to 10; those of the FFT's passes are larger.
 */
int make_plan(struct fft_plan *plan, struct gpu *gpu, int n)
{
    const int rc = fft_plan_make(plan, gpu, n);
    if (rc || filter_quick(n))
        return rc;
    for (int s = 0; s < plan->stages; s++) {
        if (plan->radix[s] <= plan_any::LARGEST)
            continue;
        plan->radix[plan->stages++] = 4; /* of 12 and 16 */
        plan->radix[s] /= 4;
    }
    std::sort(plan->radix, plan->radix + plan->stages, std::greater<int>());
    plan->threads = n / plan->radix[plan->stages - 1];
    return 0;
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
    struct fft_plan forth[3], back[3]; /* copies of .. */
    struct fft_plan plan[6];           /* .. these, one of each length */
    int plans;
    float *table, *factors; /* the tables, one after the other; as in pass_args */
    struct factor_tables tables;
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
    a.tables = f->tables;
    a.factors = f->factors;
    a.waves = waves;
    a.field = field;
    a.result = result;
    return a;
}

/* Whether the first pass back adds up waves along y and z. It then has few lines of many waves, for which it calculates
 * the factors: a table of all would be read more often than the waves. */
bool folds(const struct filter_shape *s)
{
    return s->from[1] > s->to[1] && s->from[2] > s->to[2];
}

size_t table_count(const struct filter_shape *shape, size_t radial)
{
    size_t count = 2 * radial;
    for (int d = 0; d < 3; d++)
        count += (size_t)shape->from[d] / 2 + 1;
    return count;
}

/* Of the waves; 0: no table of them is made. */
size_t factor_count(const struct filter_shape *shape)
{
    return folds(shape) ? 0
                        : ((size_t)shape->from[1] / 2 + 1) * ((size_t)shape->from[2] / 2 + 1) *
                              (size_t)filter_gpu_waves_x(shape);
}

/* Write the tables one after the other, as they will lie in f->table. */
void tables_write(struct filter_gpu *f, const struct filter_factors *factors, float *host)
{
    struct factor_tables *t = &f->tables;
    float2 *radial = (float2 *)host;
    size_t at = 2 * factors->count;
    for (size_t i = 0; i < factors->count; i++) {
        const float value = factors->radial[i];
        radial[i] = make_float2(value, i + 1 < factors->count ? factors->radial[i + 1] - value : 0.f);
    }
    t->radial = (const float2 *)f->table;
    t->last = (int)factors->count - 2;
    t->most = factors->most > 0 ? (float)factors->most : INFINITY;
    for (int d = 0; d < 3; d++) {
        const size_t n = (size_t)f->shape.from[d] / 2 + 1;
        memcpy(host + at, factors->axis[d], n * sizeof *host);
        t->axis[d] = f->table + at;
        t->place[d] = (float)(factors->wave[d] / factors->step);
        at += n;
    }
}

int tables_copy(struct filter_gpu *f, const struct filter_factors *factors)
{
    const size_t count = table_count(&f->shape, factors->count);
    float *host = (float *)malloc(count * sizeof *host);
    if (!host)
        return err_no_memory("the factors of a convolution");
    int rc = gpu_array(f->gpu, count, &f->table, what);
    tables_write(f, factors, host);
    if (!rc)
        rc = gpu_upload(f->gpu, f->table, host, count * sizeof *host);
    free(host);
    return rc;
}

/* The factors of all waves, each of which up to four waves of every sum have. */
int factors_fill(struct filter_gpu *f)
{
    enum { THREADS = 128 };
    const struct pass_args a = args_of(f, NULL, NULL, NULL);
    const dim3 blocks(gpu_blocks((size_t)f->waves_x, THREADS), (unsigned)(f->shape.from[2] / 2 + 1),
                      (unsigned)(f->shape.from[1] / 2 + 1));
    int rc = gpu_array(f->gpu, factor_count(&f->shape), &f->factors, what);
    if (rc)
        return rc;
    fill_factors<<<blocks, THREADS, 0, f->gpu->stream>>>(a, f->factors);
    return gpu_launched(what);
}

/* A plan of n, made once. */
int plan_take(struct filter_gpu *f, int n, struct fft_plan *plan)
{
    int i = 0, rc = 0;
    while (i < f->plans && f->plan[i].n != n)
        i++;
    if (i == f->plans)
        rc = make_plan(&f->plan[f->plans++], f->gpu, n);
    *plan = f->plan[i];
    return rc;
}

} // namespace

size_t filter_gpu_bytes(const struct filter_shape *shape, size_t factors)
{
    struct filter_gpu f;
    lay(&f, shape);
    size_t bytes = f.planes * f.rows * (size_t)f.waves_x * sizeof(float2);
    if (factors > 0)
        bytes += (table_count(shape, factors) + factor_count(shape)) * sizeof(float);
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
        rc = plan_take(f, shape->from[d], &f->forth[d]);
        if (!rc)
            rc = plan_take(f, shape->to[d], &f->back[d]);
    }
    if (!rc && factors)
        rc = tables_copy(f, factors);
    if (!rc && factors && factor_count(shape) > 0)
        rc = factors_fill(f);
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
        for (int i = 0; i < f->plans; i++)
            fft_plan_free(&f->plan[i], f->gpu);
        gpu_release(f->gpu, f->table);
        gpu_release(f->gpu, f->factors);
        gpu_release(f->gpu, f->waves);
    }
    free(f);
}

namespace
{

int launch(struct filter_gpu *f, const struct fft_plan *plan, pass_kind kind, struct pass_args *a, int lines, int sets)
{
    const bool rows = is_rows(kind);
    const struct kernel kernel = kernel_for(plan, kind);
    a->plan = *plan;
    a->lines = lines;
    a->lines_per_block = kernel.lines;
    const size_t line = (size_t)(rows ? lines_memory<true>::room(plan->n) : lines_memory<false>::room(plan->n)) +
                        (kind == COLUMNS_FOLD ? (size_t)a->to[2] : 0);
    while (!filter_quick(plan->n) && a->lines_per_block > 1 &&
           line * a->lines_per_block * sizeof(float2) > f->gpu->shared_most)
        a->lines_per_block /= 2;
    const size_t shared = line * a->lines_per_block * sizeof(float2);
    int rc = gpu_check(cudaFuncSetAttribute((const void *)kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)std::max(shared, (size_t)48 * 1024)),
                       what);
    if (rc)
        return rc;
    kernel.run<<<dim3(gpu_blocks((size_t)lines, (unsigned)a->lines_per_block), (unsigned)sets),
                 (unsigned)(a->lines_per_block * kernel.threads), shared, f->gpu->stream>>>(*a);
    return gpu_launched(what);
}

/* Columns along an axis, of as many sets. */
int columns(struct filter_gpu *f, pass_kind kind, int along, int sets, struct pass_args *a)
{
    const size_t row = (size_t)f->waves_x;
    a->along = along;
    a->step = along == 1 ? row : a->plane;
    a->set = along == 1 ? a->plane : row;
    return launch(f, is_back(kind) ? &f->back[along] : &f->forth[along], kind, a, f->waves_x, sets);
}

int run(struct filter_gpu *f, pass_kind kind, int along, struct pass_args *a)
{
    const struct filter_shape *s = &f->shape;
    const int rc = gpu_enter(f->gpu);
    if (rc)
        return rc;
    if (kind == ROWS_FORTH)
        return launch(f, &f->forth[0], kind, a, (s->from[1] + 1) / 2, s->from[2]);
    if (kind == ROWS_BACK && s->from[0] == s->to[0])
        kind = ROWS_BACK_SAME;
    if (kind == COLUMNS_BACK && s->from[along] == s->to[along])
        kind = COLUMNS_BACK_SAME;
    if (is_rows(kind))
        return launch(f, &f->back[0], kind, a, (s->kept[1] + 1) / 2, s->kept[2]);
    const bool folded = kind == COLUMNS_BACK_FOLDED || kind == COLUMNS_FOLD;
    const int sets = along == 2 ? (folded ? s->to[1] : s->from[1]) : is_back(kind) ? s->kept[2] : s->from[2];
    return columns(f, kind, along, sets, a);
}

} // namespace

int filter_gpu_pass(struct filter_gpu *f, int pass, const float *field, float *result)
{
    const struct filter_shape *s = &f->shape;
    const bool fold = folds(s);
    struct pass_args a = args_of(f, field, f->waves, result);
    if (pass == 0)
        return run(f, ROWS_FORTH, 0, &a);
    if (pass == 1)
        return run(f, COLUMNS_FORTH, 1, &a);
    if (pass == 2 && s->from[2] == s->to[2])
        return run(f, COLUMNS_FILTER, 2, &a);
    if (pass > 2)
        return pass == 3 ? run(f, fold ? COLUMNS_BACK_FOLDED : COLUMNS_BACK, 1, &a) : run(f, ROWS_BACK, 0, &a);
    const int rc = run(f, fold ? COLUMNS_FOLD : COLUMNS_FORTH_FACTORS, 2, &a);
    return rc ? rc : run(f, fold ? COLUMNS_BACK_FOLDED : COLUMNS_BACK, 2, &a);
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
