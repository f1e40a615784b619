/* The GPU's bins, sample by sample: compared with a naive reference, and with the CPU engine's bins if both have the
 * same size. Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/nufft/nufft_leaf.h"
#include "gridding/range/range.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <string.h>

static void verdict_at(bool good, const char *which, const char *what, size_t at)
{
    char name[200], why[60];
    snprintf(name, sizeof name, "bins, %s: %s", which, what);
    snprintf(why, sizeof why, "first seen at %zu", at);
    verdict(good, name, why);
}

struct test_case {
    const char *name;
    int dim, n[3], width;
    size_t samples;
    int cpu_tile[3]; /* CPU engine's bins of the same size as the GPU's; 0: none */
    int batch;       /* of the plan */
};

/* Oversampling 2. */
static const struct test_case cases[] = {
    {"3-D, width 4, as on the CPU", 3, {32, 40, 48}, 4, 60000, {4, 5, 12}, 1},
    {"3-D, width 4, odd numbers of bins", 3, {27, 35, 50}, 4, 60000, {0}, 1},
    {"3-D, width 3", 3, {30, 24, 20}, 3, 30001, {0}, 1},
    {"3-D, width 7", 3, {24, 20, 32}, 7, 30000, {0}, 1},
    {"3-D, width 5, a flat grid", 3, {40, 75, 20}, 5, 30000, {0}, 1},
    {"3-D, one sample", 3, {32, 32, 32}, 4, 1, {0}, 1},
    {"2-D, width 4", 2, {64, 48, 1}, 4, 50000, {0}, 1},
    {"2-D, width 5", 2, {90, 75, 1}, 5, 50001, {0}, 1},
    {"2-D, width 7, many transforms: by squares", 2, {90, 75, 1}, 7, 50001, {0}, 16},
    {"2-D, width 10, a large grid", 2, {2048, 2000, 1}, 10, 50000, {0}, 1},
};

/* Coordinates that are random, on cells and half cells, next to these, and float32's extremes around 0 and far out. */
static float place(uint64_t seed, int cells)
{
    static const float special[] = {0.f,    -0.f,    1e-45f, -1e-45f, 1e-30f,      -1e-30f,      3e-17f, -3e-17f,
                                    1e-13f, -1e-13f, 1e-12f, -1e-12f, 0x1p-40f,    -0x1p-40f,    1e-7f,  -1e-7f,
                                    0.5f,   -0.5f,   1.f,    -1.f,    0.49999997f, -0.49999997f, 3.25f,  -7.375f,
                                    1e4f,   -1e4f,   3e7f,   -3e7f,   1e30f,       123.456f,     -77.7f, 0.25f};
    double u = uniform(seed);
    uint64_t kind = splitmix(seed + 1) % 10;
    float on_grid = (float)((floor(u * 2 * cells) - cells) / 2 / cells);
    switch (kind) {
    case 0:
        return special[splitmix(seed + 2) % (sizeof special / sizeof *special)];
    case 1:
        return on_grid;
    case 2:
        return nextafterf(on_grid, INFINITY);
    case 3:
        return nextafterf(on_grid, -INFINITY);
    case 4:
        return (float)(0.02 * (u - 0.5)); /* heavy bins */
    case 5:
        return (float)(8 * (u - 0.5));
    default:
        return (float)(u - 0.5);
    }
}

struct entry {
    uint32_t bin, cell, source; /* cell: sort key of a bin's samples */
};

static int by_bin(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->bin != y->bin)
        return x->bin < y->bin ? -1 : 1;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* The base cell by its definition: the lowest of the cells at or above position - width / 2, wrapped; a position within
 * 2^-40 of a whole turn counts as that turn. */
static int base_cell(float k, int cells, int width)
{
    long double turns = (long double)k - rintl((long double)k);
    if (fabsl(turns) < 0x1p-40L)
        turns = 0;
    int base = (int)ceill(turns * cells - width / 2.0L) % cells;
    return base < 0 ? base + cells : base;
}

static int64_t first_cell(const struct nufft_bins *bins, int d, int bin, int cells)
{
    return bins->pairs[d] ? (int64_t)bin * (cells / 2) / bins->axis[d] * 2 : (int64_t)bin * cells / bins->axis[d];
}

/* Every sample's bin, found by trying every bin. */
static struct entry *reference(const struct test_case *c, const struct nufft_info *info, const struct nufft_bins *bins,
                               const float *k)
{
    struct entry *entries = take(c->samples * sizeof *entries);
    for (size_t i = 0; i < c->samples; i++) {
        int cell[3] = {0, 0, 0}, bin[3] = {0, 0, 0};
        for (int d = 0; d < c->dim; d++) {
            cell[d] = base_cell(k[i * (size_t)c->dim + (size_t)d], info->grid[d], info->width);
            while (first_cell(bins, d, bin[d] + 1, info->grid[d]) <= cell[d])
                bin[d]++;
        }
        int64_t key = cell[2];
        if (c->dim == 2) { /* squares of 4 x 4 cells, ordered by row */
            const int64_t x = cell[0] - first_cell(bins, 0, bin[0], info->grid[0]),
                          y = cell[1] - first_cell(bins, 1, bin[1], info->grid[1]);
            key = y / 4 * 64 + x / 4;
        }
        entries[i] = (struct entry){(uint32_t)((bin[1] * bins->axis[2] + bin[2]) * bins->axis[0] + bin[0]),
                                    bins->by_cell ? (uint32_t)key : 0, (uint32_t)i};
    }
    qsort(entries, c->samples, sizeof *entries, by_bin);
    return entries;
}

static void check_reference(const struct test_case *c, const struct nufft_info *info, const struct nufft_bins *bins,
                            const float *k)
{
    struct entry *wanted = reference(c, info, bins, k);
    size_t count = info->bins, i = 0, off = 0;
    bool same = bins->first[0] == 0;
    for (size_t bin = 0; same && bin < count; bin++) {
        while (i < c->samples && wanted[i].bin == bin)
            i++;
        same = bins->first[bin + 1] == i;
        off = bin;
    }
    verdict_at(same && i == c->samples, c->name, "offsets are the reference's", off);
    for (off = 0, same = true; off < c->samples && same; off++)
        same = bins->order[off] == wanted[off].source;
    verdict_at(same, c->name, "so is the order within", off);
    free(wanted);
}

/* The CPU engine numbers its bins with x fastest, and keeps the caller's order within them. */
static void check_cpu(const struct test_case *c, const struct nufft_info *info, const struct nufft_bins *bins,
                      const float *k)
{
    struct range_bins *cpu;
    bool same = true;
    size_t off = 0;
    must(range_bins_create(&cpu, c->dim, info->grid, info->width, c->cpu_tile, c->samples, k, 1, NULL),
         "range_bins_create");
    for (int d = 0; d < c->dim; d++)
        same = same && cpu->tiles[d] == bins->axis[d] && !bins->pairs[d];
    verdict_at(same, c->name, "the CPU's bins are cut alike", 0);
    for (size_t bin = 0; same && bin < cpu->bins; bin++) {
        size_t x = bin % (size_t)bins->axis[0], y = bin / (size_t)bins->axis[0] % (size_t)bins->axis[1];
        size_t z = bin / (size_t)bins->axis[0] / (size_t)bins->axis[1];
        size_t ours = (y * (size_t)bins->axis[2] + z) * (size_t)bins->axis[0] + x,
               held = cpu->offset[bin + 1] - cpu->offset[bin];
        const struct range_point *point = cpu->point + cpu->offset[bin];
        struct entry *entries = take(held * sizeof *entries);
        for (size_t i = 0; i < held; i++)
            entries[i] = (struct entry){0, bins->by_cell ? point[i].cell[2] : 0, point[i].source};
        qsort(entries, held, sizeof *entries, by_bin);
        same = bins->first[ours + 1] - bins->first[ours] == held;
        for (size_t i = 0; same && i < held; i++)
            same = bins->order[bins->first[ours] + i] == entries[i].source;
        off = bin;
        free(entries);
    }
    verdict_at(same, c->name, "they hold the same samples in the same order", off);
    range_bins_free(cpu);
}

static void run_case(struct dev *gpu, const struct test_case *c)
{
    struct nufft_params params = {
        .dim = c->dim, .tolerance = 1e-2, .width = c->width, .oversampling = 2, .batch = c->batch};
    struct nufft *plan;
    struct nufft_info info;
    struct nufft_bins bins;
    float *k = take(c->samples * (size_t)c->dim * sizeof *k);
    memcpy(params.n, c->n, sizeof params.n);
    for (size_t i = 0; i < c->samples * (size_t)c->dim; i++)
        k[i] = place(i * 3 + 77, 2 * c->n[i % (size_t)c->dim]);
    must(nufft_create(&plan, gpu, &params, c->samples, k), "nufft_create");
    nufft_describe(plan, &info);
    bins.first = take((info.bins + 1) * sizeof *bins.first);
    bins.order = take(c->samples * sizeof *bins.order);
    must(nufft_bins(plan, &bins), "nufft_bins");
    if (c->dim == 2)
        verdict_at(bins.by_cell == (c->batch > 1), c->name, "sorted by squares for many transforms", 0);
    check_reference(c, &info, &bins, k);
    if (c->cpu_tile[0])
        check_cpu(c, &info, &bins, k);
    nufft_free(plan);
    free(bins.first);
    free(bins.order);
    free(k);
}

/* The first nonfinite value in the caller's order is named, whichever block finds it. */
static void test_nonfinite(struct dev *gpu)
{
    enum { SAMPLES = 100000 };
    static const struct {
        size_t value;
        const char *said;
    } places[] = {{0, "Sample 0 of the trajectory is not finite in dimension 0"},
                  {4711 * 3 + 2, "Sample 4711 of the trajectory is not finite in dimension 2"},
                  {SAMPLES * 3 - 1, "Sample 99999 of the trajectory is not finite in dimension 2"}};
    struct nufft_params params = {.dim = 3, .n = {20, 20, 20}, .tolerance = 1e-3, .batch = 1};
    float *k = take(SAMPLES * 3 * sizeof *k);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct nufft *plan = NULL;
        for (size_t v = 0; v < SAMPLES * 3; v++)
            k[v] = v < places[i].value ? (float)(uniform(v) - 0.5) : v % 2 ? NAN : -INFINITY;
        int rc = nufft_create(&plan, gpu, &params, SAMPLES, k);
        verdict_at(rc == ERR_TRAJ_NONFINITE && plan == NULL && strstr(err_last()->text, places[i].said), "not finite",
                   places[i].said, places[i].value);
    }
    free(k);
}

/* The bytes that a plan reports equal the decrease of the device's free memory, up to the driver's rounding of each
 * allocation. */
static void test_bytes(struct dev *gpu)
{
    static const struct test_case held[] = {{"3-D, bricks", 3, {80, 80, 80}, 4, 300000, {0}, 1},
                                            {"3-D, tiles", 3, {48, 48, 48}, 7, 300000, {0}, 1},
                                            {"2-D, planes", 2, {128, 128, 1}, 5, 40000, {0}, 1}};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        const struct test_case *c = &held[i];
        struct nufft_params params = {
            .dim = c->dim, .tolerance = 1e-2, .width = c->width, .oversampling = 2, .batch = 16};
        struct nufft *plan;
        struct nufft_info info;
        size_t before, after, total, values = c->samples * (size_t)c->dim;
        float *k = take(values * sizeof *k);
        memcpy(params.n, c->n, sizeof params.n);
        for (size_t v = 0; v < values; v++)
            k[v] = (float)((uniform(v) - 0.5) * (v / 3 % 3 ? 0.05 : 1));
        must(dev_memory(gpu, &before, &total), "dev_memory");
        must(nufft_create(&plan, gpu, &params, c->samples, k), "nufft_create");
        nufft_describe(plan, &info);
        must(dev_memory(gpu, &after, &total), "dev_memory");
        long long off = (long long)(before - after) - (long long)info.bytes;
        printf("# %s: %.3f MB reported, %lld bytes more used\n", c->name, (double)info.bytes / 1e6, off);
        verdict_at(off >= 0 && off <= 32 * 512, c->name, "the plan's bytes are those that the device lacks",
                   (size_t)info.bytes);
        nufft_free(plan);
        free(k);
    }
}

int main(void)
{
    struct dev *gpu = tap_gpu();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(gpu, &cases[i]);
    test_nonfinite(gpu);
    test_bytes(gpu);
    dev_free(gpu);
    return tap_end();
}
