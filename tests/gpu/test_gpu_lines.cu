/* The lines along x of a 3-D grid that no sample reaches (gridding/nufft/gpu/lines.cu): the list that a plan makes of
 * the others, and that the FFT's pass along x leaves out those that are not in it. Linked with the GPU's code itself,
 * because no result shows what a pass has left out. Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/base/dev.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/kernel.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

extern "C" const struct dev_leaf *mrirecon_gpu_leaf(void);

/* What samples cover: spokes through the centre; a ball around the centre; balls around a corner and around the middle
 * of an edge, both of which wrap; everything. */
enum spread { SPOKES, BALL, CORNER, EDGE, EVERYWHERE };

struct lines_case {
    const char *name;
    int n[3], grid[3], width;
    enum nufft_method method;
    enum spread spread;
    size_t samples;
};

static const struct lines_case cases[] = {
    {"slots, spokes", {48, 40, 44}, {96, 80, 90}, 4, NUFFT_METHOD_BRICK8, SPOKES, 40000},
    {"slots, a corner", {48, 40, 44}, {96, 80, 90}, 3, NUFFT_METHOD_BRICK8, CORNER, 500},
    {"16^3 bricks, spokes", {48, 40, 44}, {96, 80, 90}, 5, NUFFT_METHOD_BRICK16, SPOKES, 40000},
    {"16^3 bricks, spokes, 7 cells", {40, 48, 56}, {64, 72, 84}, 7, NUFFT_METHOD_BRICK16, SPOKES, 40000},
    {"16^3 bricks, a ball", {40, 48, 56}, {64, 72, 84}, 8, NUFFT_METHOD_BRICK16, BALL, 900},
    {"16^3 bricks, a corner", {40, 48, 56}, {64, 72, 84}, 6, NUFFT_METHOD_BRICK16, CORNER, 900},
    {"16^3 bricks, an edge", {40, 48, 56}, {64, 72, 84}, 6, NUFFT_METHOD_BRICK16, EDGE, 900},
    {"dense bricks, spokes", {48, 40, 44}, {72, 60, 70}, 6, NUFFT_METHOD_BRICK_DENSE, SPOKES, 40000},
    {"dense bricks, a corner", {48, 40, 44}, {72, 60, 70}, 7, NUFFT_METHOD_BRICK_DENSE, CORNER, 900},
    {"tiles, a ball", {48, 40, 44}, {96, 80, 90}, 9, NUFFT_METHOD_TILES, BALL, 900},
    {"tiles, one sample", {24, 24, 24}, {48, 48, 48}, 6, NUFFT_METHOD_TILES, CORNER, 1},
    {"16^3 bricks, everywhere", {40, 48, 56}, {64, 72, 84}, 6, NUFFT_METHOD_BRICK16, EVERYWHERE, 60000},
};

static void sample_of(const struct lines_case *c, size_t i, uint64_t *seed, double k[3])
{
    double middle[3] = {0, 0, 0};
    const double radius = c->spread == EVERYWHERE ? 1 : 0.06;
    if (c->spread == SPOKES) {
        const double z = uniform_next(seed) * 2 - 1, turn = 2 * M_PI * uniform_next(seed), across = sqrt(1 - z * z);
        const double r = uniform_next(seed) - 0.5;
        k[0] = r * across * cos(turn);
        k[1] = r * across * sin(turn);
        k[2] = r * z;
        return;
    }
    if (c->spread == CORNER)
        middle[0] = middle[1] = middle[2] = 0.5;
    if (c->spread == EDGE)
        middle[1] = 0.5;
    for (int d = 0; d < 3; d++) /* the first in the middle itself */
        k[d] = middle[d] + (i == 0 ? 0 : radius * (uniform_next(seed) - 0.5));
}

/* ---- which lines samples reach, without bins ---- */

static int wrapped(int cell, int cells)
{
    return (cell % cells + cells) % cells;
}

/* Mark the lines (y, z) at most `before` cells below the first and `after` above the last cell that a sample's kernel
 * reaches along y and z. Without a margin of a thousandth of a cell, in which the kernel is 0 to five digits, the
 * comparison would depend on how positions are rounded. */
static void mark_reached(const struct lines_case *c, const std::vector<float> &k, const int more[3],
                         std::vector<uint8_t> *reached)
{
    const double margin = more[1] > 0 ? 0 : 1e-3;
    reached->assign((size_t)c->grid[1] * c->grid[2], 0);
    for (size_t i = 0; i < c->samples; i++) {
        int first[3], last[3];
        for (int d = 1; d < 3; d++) {
            const double at = ((double)k[3 * i + d] - floor((double)k[3 * i + d])) * c->grid[d];
            first[d] = (int)ceil(at - 0.5 * c->width + margin) - more[d];
            last[d] = (int)floor(at + 0.5 * c->width - margin) + more[d];
            last[d] = std::min(last[d], first[d] + c->grid[d] - 1);
        }
        for (int z = first[2]; z <= last[2]; z++)
            for (int y = first[1]; y <= last[1]; y++)
                (*reached)[(size_t)wrapped(z, c->grid[2]) * c->grid[1] + wrapped(y, c->grid[1])] = 1;
    }
}

/* ---- a plan ---- */

struct scene {
    const struct lines_case *c;
    struct nufft_gpu *plan;
    std::vector<float> k;
    std::vector<uint8_t> listed; /* [grid z][grid y] */
    struct c32 *data, *image;    /* device: [samples], [pixels]; values at random */
};

static struct c32 *random_values(struct gpu *gpu, size_t count, uint64_t seed)
{
    std::vector<struct c32> host(count);
    struct c32 *out = NULL;
    for (struct c32 &v : host)
        v = c32{(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
    must(gpu_array(gpu, count, &out, "values"), "gpu_array");
    must(gpu_upload(gpu, out, host.data(), count * sizeof *out), "gpu_upload");
    return out;
}

static void scene_make(struct scene *s, struct dev *dev, const struct lines_case *c)
{
    uint64_t seed = 20261126;
    struct nufft_shape shape = {};
    std::vector<float> ones((size_t)std::max({c->n[0], c->n[1], c->n[2]}), 1.f);
    void *state = NULL;
    s->c = c;
    s->k.resize(3 * c->samples);
    for (size_t i = 0; i < c->samples; i++) {
        double k[3];
        sample_of(c, i, &seed, k);
        for (int d = 0; d < 3; d++)
            s->k[3 * i + d] = (float)k[d];
    }
    shape.dim = 3;
    shape.width = c->width;
    shape.kernel = NUFFT_SEPARABLE;
    shape.tolerance = 1e-1; /* any: the list does not depend on the arithmetic */
    shape.batch = 1;
    shape.method = c->method;
    for (int d = 0; d < 3; d++) {
        shape.n[d] = c->n[d];
        shape.grid[d] = c->grid[d];
        shape.deapodise[d] = ones.data();
    }
    shape.beta = kernel_beta(c->width, nufft_oversampling(&shape));
    must(nufft_gpu_create(&state, dev, &shape, c->samples, s->k.data()), "nufft_gpu_create");
    s->plan = (struct nufft_gpu *)state;
    s->listed.assign((size_t)c->grid[1] * c->grid[2], s->plan->lines ? 0 : 1);
    if (s->plan->lines) {
        std::vector<uint32_t> list((size_t)s->plan->line_count);
        must(gpu_download(s->plan->gpu, list.data(), s->plan->lines, list.size() * sizeof list[0]), "gpu_download");
        for (uint32_t line : list)
            s->listed[line] = 1;
    }
    s->data = random_values(s->plan->gpu, c->samples, 4711);
    s->image = random_values(s->plan->gpu, s->plan->pixels, 4712);
}

static void scene_free(struct scene *s)
{
    gpu_release(s->plan->gpu, s->data);
    gpu_release(s->plan->gpu, s->image);
    nufft_gpu_destroy(s->plan);
}

/* ---- tests ---- */

static void tell(const struct lines_case *c, bool good, const char *what, const char *why)
{
    char name[160];
    snprintf(name, sizeof name, "%s: %s", c->name, what);
    verdict(good, name, why);
}

/* Every line that a sample reaches is listed, and none that is farther from all samples than their bins and kernels
 * are long. */
static void test_list(const struct scene *s)
{
    const struct lines_case *c = s->c;
    const int none[3] = {0, 0, 0};
    int longest[3];
    std::vector<uint8_t> least, most;
    size_t missing = 0, needless = 0, listed = 0;
    char why[120];
    for (int d = 0; d < 3; d++)
        longest[d] = axis_largest(s->plan->bins.geometry.axis[d]);
    mark_reached(c, s->k, none, &least);
    mark_reached(c, s->k, longest, &most);
    for (size_t i = 0; i < least.size(); i++) {
        missing += least[i] && !s->listed[i];
        needless += s->plan->lines && s->listed[i] && !most[i];
        listed += s->listed[i];
    }
    snprintf(why, sizeof why, "%zu lines are missing, %zu needless, of %zu", missing, needless, listed);
    tell(c, missing == 0 && needless == 0, "the lines listed are those near samples", why);
    tell(c, (s->plan->lines == NULL) == (c->spread == EVERYWHERE), "a list is made if lines can be left out", why);
}

/* NaN into the cells from `from` on of the lines that are not listed, or count those that are none there any more. */
static size_t mark_unlisted(const struct scene *s, int from, bool count)
{
    const int *grid = s->plan->shape.grid;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<struct c32> cells(s->plan->cells);
    size_t others = 0, bytes = cells.size() * sizeof cells[0];
    must(gpu_download(s->plan->gpu, cells.data(), s->plan->grid, bytes), "gpu_download");
    for (size_t line = 0; line < s->listed.size(); line++)
        for (int x = from; !s->listed[line] && x < grid[0]; x++) {
            struct c32 *cell = &cells[line * (size_t)grid[0] + (size_t)x];
            others += !std::isnan(cell->re) || !std::isnan(cell->im);
            if (!count)
                *cell = c32{nan, nan};
        }
    if (!count)
        must(gpu_upload(s->plan->gpu, s->plan->grid, cells.data(), bytes), "gpu_upload");
    return others;
}

/* The plan's image of the data, or its samples of the image; `lines`: by the list, or all. `poison`: with NaN where a
 * pass by the list neither reads nor writes. */
static std::vector<struct c32> result_of(const struct scene *s, bool forward, bool lines, bool poison, size_t *written)
{
    struct nufft_gpu *plan = s->plan;
    const size_t count = forward ? s->c->samples : plan->pixels;
    std::vector<struct c32> host(count);
    uint32_t *list = plan->lines;
    struct c32 *out = NULL;
    int rc;
    plan->lines = lines ? list : NULL;
    must(gpu_array(plan->gpu, count, &out, "a result"), "gpu_array");
    if (forward) {
        if (poison)
            mark_unlisted(s, plan->shape.n[0], false);
        rc = nufft_gpu_image_to_grid(plan, 1, s->image);
        if (poison)
            *written = mark_unlisted(s, plan->shape.n[0], true);
        rc = rc ? rc : nufft_gpu_gather(plan, 1, false, out);
    } else {
        rc = plan->method->to_grid(plan, 1, s->data, NULL);
        if (poison)
            mark_unlisted(s, plan->shape.n[0], false);
        rc = rc ? rc : nufft_gpu_grid_to_image(plan, 1, out, NULL);
    }
    must(rc, "a transform");
    must(gpu_download(plan->gpu, host.data(), out, count * sizeof *out), "gpu_download");
    gpu_release(plan->gpu, out);
    plan->lines = list;
    return host;
}

static bool same_bits(const std::vector<struct c32> &a, const std::vector<struct c32> &b)
{
    return memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

/* With the list and without it, transforms have the same bits; and with it, a pass along x does not touch other lines:
 * back, a NaN beyond the cells that are kept would reach the image; forth, it would be overwritten. Plans with slots
 * have no grid for adjoints. */
static void test_passes(const struct scene *s)
{
    size_t written = 0;
    tell(s->c, same_bits(result_of(s, true, true, false, NULL), result_of(s, true, false, false, NULL)),
         "samples have the same bits with all lines", "they differ");
    (void)result_of(s, true, true, true, &written);
    tell(s->c, written == 0, "a forward transform leaves out the other lines", "their cells were written");
    if (nufft_gpu_in_slots(s->plan))
        return;
    const std::vector<struct c32> all = result_of(s, false, false, false, NULL);
    tell(s->c, same_bits(result_of(s, false, true, false, NULL), all), "the image has the same bits with all lines",
         "it differs");
    tell(s->c, same_bits(result_of(s, false, true, true, NULL), all), "an adjoint leaves out the other lines",
         "their cells were read");
}

int main(void)
{
    struct dev dev = {};
    gpu_or_skip();
    dev.threads = dev.parts = 1;
    must(mrirecon_gpu_leaf()->open(&dev, DEV_ANY), "opening the GPU");
    dev.leaf = mrirecon_gpu_leaf();
    for (const struct lines_case &c : cases) {
        struct scene s;
        scene_make(&s, &dev, &c);
        test_list(&s);
        test_passes(&s);
        scene_free(&s);
    }
    dev.leaf->close(&dev);
    return tap_end();
}
