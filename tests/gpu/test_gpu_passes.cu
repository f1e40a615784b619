/* Every kernel of the FFT's passes (gridding/fft/), each called by itself for so few lines that it has one or two
 * blocks and racecheck ends (sanitize.py): every size that it was compiled for and some others, along rows and columns,
 * of grids, slots and bricks, and the passes of a convolution. Compared with double sums. Linked with the GPU's code.
 * TAP.
 *
 *   test_gpu_passes [all|back|forth|sums|rows|halves|coils [LEAST [MOST]]]   some of it, lines of LEAST to MOST cells
 */
#include "gridding/base/dev.h"
#include "gridding/fft/fft_halves.cuh"
#include "gridding/fft/fft_two.cuh"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

extern "C" const struct dev_leaf *mrirecon_gpu_leaf(void);

typedef std::complex<double> value;
enum { CHECKED = 24 /* elements of each line that are compared with sums over the line */ };

static uint64_t seed = 20261127;
static std::vector<float2> random_values(size_t count)
{
    std::vector<float2> v(count);
    for (float2 &x : v)
        x = make_float2((float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3));
    return v;
}

static std::vector<float> random_factors(size_t count)
{
    std::vector<float> v(count);
    for (float &x : v)
        x = (float)(0.5 + uniform_next(&seed));
    return v;
}

template <class T> static T *device_array(struct gpu *gpu, const std::vector<T> &of)
{
    T *out = NULL;
    must(gpu_array(gpu, of.size(), &out, "an array"), "gpu_array");
    must(gpu_upload(gpu, out, of.data(), of.size() * sizeof(T)), "gpu_upload");
    return out;
}

template <class T> static std::vector<T> host_array(struct gpu *gpu, const T *of, size_t count)
{
    std::vector<T> out(count);
    must(gpu_download(gpu, out.data(), of, count * sizeof(T)), "gpu_download");
    return out;
}

static value value_of(float2 v)
{
    return value(v.x, v.y);
}
/* exp(2 pi i j / n), j = 0 .. n - 1. */
static std::vector<value> turns_of(int n)
{
    std::vector<value> turns((size_t)n);
    for (int j = 0; j < n; j++)
        turns[(size_t)j] = std::polar(1., 2 * M_PI * j / n);
    return turns;
}

/* sum over j < count of in[j] exp(sign 2 pi i (first + j) to / n) */
static value line_sum(const std::vector<value> &turns, const std::vector<value> &in, int sign, long first, long to)
{
    const long n = (long)turns.size(), step = ((sign * to) % n + n) % n;
    long at = ((first % n + n) * step) % n;
    value sum = 0;
    for (const value &v : in) {
        sum += v * turns[(size_t)at];
        at += step;
        at -= at >= n ? n : 0;
    }
    return sum;
}

/* The relative error of what was compared. The factors between stages are up to the 24th power of a float32 number,
 * whose roundings, of 6e-8 at most each, add up to 1.4e-6 at most; those of the two to eight stages, which are
 * independent, to 2e-7. */
struct comparison {
    double off = 0, all = 0;

    void add(float2 got, value wanted)
    {
        off += std::norm(value_of(got) - wanted);
        all += std::norm(wanted);
    }
    void tell(const char *name) const
    {
        char why[80];
        const double error = sqrt(off / all);
        snprintf(why, sizeof why, "the error is %.3g, allowed 2e-6", error);
        verdict(error <= 2e-6, name, why); /* false for NaN, too */
    }
};

/* Element i of CHECKED of a line of `count`: the first, the last, and others at random. */
static int checked(int i, int count)
{
    return i == 0 ? 0 : i == 1 ? count - 1 : (int)(uniform_next(&seed) * count);
}

/* ---- passes over grids ---- */

/* Lines of a set, as rows or as columns, in a box that has some elements more than a line. */
struct layout {
    int elements, lines;
    bool rows;

    struct fft_view view() const
    {
        const size_t whole = (size_t)elements * lines;
        return rows ? fft_view{1, (size_t)elements, whole} : fft_view{(size_t)lines, 1, whole};
    }
    size_t at(int set, int line, int element) const
    {
        const struct fft_view v = view();
        return set * v.set + line * v.line + element * v.step;
    }
    size_t count(int sets) const
    {
        return (size_t)elements * lines * sets;
    }
};

static const char *const kind_names[] = {"back",          "back to images", "forth", "forth of images",
                                         "back of slots", "back of bricks"};

static bool is_back(enum fft_kind kind)
{
    return kind != FFT_FORTH && kind != FFT_FORTH_IMAGE;
}

/* Compare CHECKED elements of each line with double sums. in[]: before the pass. */
static void compare_pass(const struct fft_pass &pass, int n, const struct layout &from, const struct layout &to,
                         const std::vector<float2> &in, const std::vector<float> &element,
                         const std::vector<float2> &out, const char *name)
{
    const std::vector<value> turns = turns_of(n);
    const bool back = is_back(pass.kind), image = pass.kind == FFT_BACK_IMAGE || pass.kind == FFT_FORTH_IMAGE;
    const int low = pass.kept / 2;
    struct comparison error;
    for (int set = 0; set < pass.sets; set++)
        for (int line = 0; line < pass.lines; line++) {
            std::vector<value> values((size_t)from.elements);
            for (int j = 0; j < from.elements; j++)
                values[(size_t)j] =
                    value_of(in[from.at(set, line, j)]) * (image && !back ? (double)element[(size_t)j] : 1.);
            for (int i = 0; i < CHECKED; i++) {
                const int e = checked(i, to.elements);
                const value sum = back ? line_sum(turns, values, 1, 0, e - low) : line_sum(turns, values, -1, -low, e);
                error.add(out[to.at(set, line, e)], sum * (image && back ? (double)element[(size_t)e] : 1.));
            }
        }
    error.tell(name);
}

static void test_pass(struct gpu *gpu, int n, bool rows, enum fft_kind kind, int kept, bool volume)
{
    const bool back = is_back(kind);
    const int lines = rows ? 3 : 5, sets = 2;
    const struct layout grid = {n, lines, rows}, image = {kept, lines, rows};
    const struct layout &from = back ? grid : image, &to = back ? image : grid;
    const std::vector<float2> in = random_values(from.count(sets));
    const std::vector<float> element = random_factors((size_t)kept);
    float2 *const device_in = device_array(gpu, in), *const device_out =
                                                         device_array(gpu, random_values(to.count(sets)));
    float *const device_element = device_array(gpu, element);
    struct fft_plan plan;
    struct fft_pass pass = {};
    char name[120];
    pass.kind = kind;
    pass.in = device_in;
    pass.out = device_out;
    pass.in_view = from.view();
    pass.out_view = to.view();
    pass.kept = kept;
    pass.volume = volume;
    pass.lines = lines;
    pass.sets = sets;
    pass.element = device_element;
    must(fft_plan_make(&plan, gpu, n), "fft_plan_make");
    must(fft_run(gpu, &plan, &pass), "fft_run");
    snprintf(name, sizeof name, "%s, %s of %d cells%s, %d kept", kind_names[kind], rows ? "rows" : "columns", n,
             volume ? " of a volume" : "", kept);
    compare_pass(pass, n, from, to, in, element, host_array(gpu, device_out, to.count(sets)), name);
    fft_plan_free(&plan, gpu);
    gpu_release(gpu, device_element);
    gpu_release(gpu, device_out);
    gpu_release(gpu, device_in);
}

/* Half of a line kept, whose other half is not computed, and more; of planes, and if volumes have another kernel, of
 * these. */
static void test_passes(struct gpu *gpu, int n, bool back)
{
    const bool other = fft_two_serves(n, FFT_BACK) && !fft_two_serves_planes(n, FFT_BACK);
    for (int kept : {n / 2 - 1, n - n / 4})
        for (int volume = 0; volume <= other; volume++) {
            test_pass(gpu, n, true, back ? FFT_BACK : FFT_FORTH, kept, volume);
            test_pass(gpu, n, false, back ? FFT_BACK : FFT_FORTH, kept, volume);
            test_pass(gpu, n, false, back ? FFT_BACK_IMAGE : FFT_FORTH_IMAGE, kept, volume);
        }
}

/* ---- passes over slots and bricks ---- */

static void run_sums(struct gpu *gpu, int n, struct fft_pass *pass, const std::vector<float2> &line_values)
{
    const int lines = pass->lines, kept = pass->kept;
    const struct layout from = {n, lines, true}, to = {kept, lines, true};
    struct fft_plan plan;
    char name[120];
    float2 *const out = device_array(gpu, random_values(to.count(1)));
    pass->out = out;
    pass->out_view = to.view();
    pass->sets = 1;
    must(fft_plan_make(&plan, gpu, n), "fft_plan_make");
    must(fft_run(gpu, &plan, pass), "fft_run");
    snprintf(name, sizeof name, "%s of %d cells", kind_names[pass->kind], n);
    compare_pass(*pass, n, from, to, line_values, {}, host_array(gpu, out, to.count(1)), name);
    fft_plan_free(&plan, gpu);
    gpu_release(gpu, out);
}

/* Bins of four cells along x, one along y and z; the last lines' bins of cells before them, too. A bin has no slot, one
 * or two. */
static void test_slots(struct gpu *gpu, int n)
{
    enum { LINES = 3, COLUMNS = 4, ROWS = 2 * LINES };
    const struct range_axis x = {n, (n + COLUMNS - 1) / COLUMNS, 0};
    std::vector<struct slot_cell> y, z = {{0, 0, 0, -1}};
    std::vector<uint32_t> slot = {0};
    struct fft_pass pass = {};
    for (int line = 0; line < LINES; line++)
        y.push_back({0, line, 0, line == LINES - 1 ? line + LINES : -1});
    for (int bin = 0; bin < x.bins; bin++)
        slot.push_back(slot.back() + (uint32_t)(bin % 3));
    const std::vector<float2> slots = random_values((size_t)slot.back() * ROWS * COLUMNS);
    std::vector<float2> lines((size_t)LINES * n, make_float2(0.f, 0.f));
    for (int line = 0; line < LINES; line++)
        for (int bin = 0; bin < x.bins; bin++)
            for (int i = 0; i < axis_size(x, bin); i++)
                for (uint32_t s = slot[(size_t)bin]; s < slot[(size_t)bin + 1]; s++)
                    for (int row : {line, y[(size_t)line].before_offset}) {
                        if (row < 0)
                            continue;
                        const float2 v = slots[((size_t)s * ROWS + row) * COLUMNS + i];
                        float2 *to = &lines[(size_t)line * n + axis_first(x, bin) + i];
                        *to = make_float2(to->x + v.x, to->y + v.y);
                    }
    struct slot_cell *const device_y = device_array(gpu, y), *const device_z = device_array(gpu, z);
    uint32_t *const device_slot = device_array(gpu, slot);
    float2 *const device_slots = device_array(gpu, slots);
    pass.kind = FFT_BACK_SLOTS;
    pass.kept = n / 2;
    pass.lines = LINES;
    pass.slots = {x, 1, device_y, device_z, COLUMNS, ROWS, 1, device_slot, device_slots, -1, 0, 0};
    run_sums(gpu, n, &pass, lines);
    gpu_release(gpu, device_slots);
    gpu_release(gpu, device_slot);
    gpu_release(gpu, device_z);
    gpu_release(gpu, device_y);
}

/* Bins of 8 cells along x, whose bricks of 16 overlap, and one along y. A bin has up to two bricks. */
static void test_bricks(struct gpu *gpu, int n)
{
    enum { LINES = 3, SIZE = 8 };
    const struct range_axis x = {n, n / SIZE, 1};
    std::vector<struct slot_cell> columns, y;
    std::vector<struct brick_list> of_bin;
    struct fft_pass pass = {};
    for (int pair = 0; pair < n / 2; pair++)
        columns.push_back(slot_cell_of(x, BRICK_EDGE - axis_largest(x), 2 * pair));
    for (int line = 0; line < LINES; line++)
        y.push_back({0, line, 0, -1});
    uint32_t bricks = 0;
    for (int bin = 0; bin < x.bins; bricks += of_bin.back().count, bin++)
        of_bin.push_back({bricks, (uint32_t)(bin % 3)});
    const std::vector<float2> cells = random_values((size_t)bricks * BRICK_EDGE * BRICK_EDGE);
    std::vector<float2> lines((size_t)LINES * n, make_float2(0.f, 0.f));
    for (int line = 0; line < LINES; line++)
        for (int cell = 0; cell < n; cell++) {
            const struct slot_cell &c = columns[(size_t)cell / 2];
            for (int i = 0; i < 2; i++) {
                const struct brick_list held = of_bin[(size_t)(i ? c.before : c.bin)];
                const int at = i ? c.before_offset : c.offset;
                for (uint32_t b = 0; at >= 0 && b < held.count; b++) {
                    const float2 v = cells[((size_t)(held.first + b) * BRICK_EDGE + line) * BRICK_EDGE + at + cell % 2];
                    float2 *to = &lines[(size_t)line * n + cell];
                    *to = make_float2(to->x + v.x, to->y + v.y);
                }
            }
        }
    struct slot_cell *const device_x = device_array(gpu, columns), *const device_y = device_array(gpu, y);
    struct brick_list *const device_of_bin = device_array(gpu, of_bin);
    float2 *const device_cells = device_array(gpu, cells);
    pass.kind = FFT_BACK_BRICKS;
    pass.kept = n / 2;
    pass.lines = LINES;
    pass.bricks = {x.bins, device_x, device_y, device_of_bin, (const float4 *)device_cells, 0};
    run_sums(gpu, n, &pass, lines);
    gpu_release(gpu, device_cells);
    gpu_release(gpu, device_of_bin);
    gpu_release(gpu, device_y);
    gpu_release(gpu, device_x);
}

/* ---- the passes of a convolution ---- */

/* Rows of `kept` cells, convolved in place; the spectrum is shared by both sets. */
static void test_rows(struct gpu *gpu, int n, int kept, int lines)
{
    enum { SETS = 2 };
    const std::vector<value> turns = turns_of(n);
    const std::vector<float2> in = random_values((size_t)kept * lines * SETS);
    const std::vector<float> natural = random_factors((size_t)n * lines);
    std::vector<float> spectrum(natural.size());
    struct fft_plan plan;
    struct comparison error;
    char name[120];
    for (int line = 0; line < lines; line++)
        for (int f = 0; f < n; f++)
            spectrum[(size_t)line * n + fft_rows_place(n, f)] = natural[(size_t)line * n + f];
    float2 *const values = device_array(gpu, in);
    float *const device_spectrum = device_array(gpu, spectrum);
    const struct fft_rows rows = {values, kept, lines, SETS, device_spectrum, SETS};
    must(fft_plan_make(&plan, gpu, n), "fft_plan_make");
    must(fft_convolve_rows(gpu, &plan, &rows), "fft_convolve_rows");
    const std::vector<float2> out = host_array(gpu, values, in.size());
    for (int set = 0; set < SETS; set++)
        for (int line = 0; line < lines; line += std::max(1, lines - 1)) {
            const size_t first = ((size_t)set * lines + line) * kept;
            std::vector<value> cells, frequencies;
            for (int j = 0; j < kept; j++)
                cells.push_back(value_of(in[first + j]));
            for (int f = 0; f < n; f++)
                frequencies.push_back(line_sum(turns, cells, -1, 0, f) * (double)natural[(size_t)line * n + f]);
            for (int i = 0; i < CHECKED; i++) {
                const int e = checked(i, kept);
                error.add(out[first + e], line_sum(turns, frequencies, 1, 0, e));
            }
        }
    snprintf(name, sizeof name, "convolution of %d rows of %d cells, %d kept", lines, n, kept);
    error.tell(name);
    fft_plan_free(&plan, gpu);
    gpu_release(gpu, device_spectrum);
    gpu_release(gpu, values);
}

/* Columns in halves. With coils: two frames of two coils, whose images exist within the passes only; `together`: a
 * block adds its frame's coils. */
struct columns_case {
    int n, kept, lines;
    bool coils, together;

    struct layout image() const
    {
        return {kept, lines, false};
    }
    struct layout grid() const
    {
        return {n, lines, false};
    }
};

enum { FRAMES = 2 };

/* What a case's passes take and give; cells: after the pass forth. */
struct columns_values {
    std::vector<float2> in, maps, cells, out;
};

static void tell_columns(const struct columns_case &c, const struct comparison &error, const char *way)
{
    char name[120];
    const char *coils = !c.coils ? "" : c.together ? ", coils together" : ", coils apart";
    snprintf(name, sizeof name, "%d columns of %d cells in halves%s, %d kept: %s", c.lines, c.n, coils, c.kept, way);
    error.tell(name);
}

/* The pass back is compared with sums over what the pass forth gave. */
static void compare_columns(const struct columns_case &c, const struct columns_values &v)
{
    const std::vector<value> turns = turns_of(c.n);
    const struct layout image = c.image(), grid = c.grid();
    struct comparison forth, back;
    for (int frame = 0; frame < FRAMES; frame++)
        for (int line = 0; line < c.lines; line++) {
            std::vector<value> sums(CHECKED);
            for (int set = frame * (1 + c.coils); set < (frame + 1) * (1 + c.coils); set++) {
                std::vector<value> values, frequencies;
                const auto map = [&](int e) { return c.coils ? value_of(v.maps[image.at(set, line, e)]) : value(1); };
                for (int j = 0; j < c.kept; j++)
                    values.push_back(value_of(v.in[image.at(frame, line, j)]) * map(j));
                for (int f = 0; f < c.n; f++)
                    frequencies.push_back(value_of(v.cells[grid.at(set, line, f)]));
                for (int i = 0; i < CHECKED; i++) {
                    const int f = i * (c.n - 1) / (CHECKED - 1), e = i * (c.kept - 1) / (CHECKED - 1);
                    forth.add(v.cells[grid.at(set, line, f)], line_sum(turns, values, -1, 0, f));
                    sums[(size_t)i] += line_sum(turns, frequencies, 1, 0, e) * std::conj(map(e));
                }
            }
            for (int i = 0; i < CHECKED; i++)
                back.add(v.out[image.at(frame, line, i * (c.kept - 1) / (CHECKED - 1))], sums[(size_t)i]);
        }
    tell_columns(c, forth, "forth");
    tell_columns(c, back, "back");
}

static void test_columns(struct gpu *gpu, const struct columns_case &c)
{
    const int coils = 1 + c.coils, sets = FRAMES * coils, multiprocessors = gpu->multiprocessors;
    const struct layout image = c.image(), grid = c.grid();
    struct columns_values v = {random_values(image.count(FRAMES)), random_values(image.count(sets)), {}, {}};
    float2 *const in = device_array(gpu, v.in), *const maps = device_array(gpu, v.maps),
                  *const cells = device_array(gpu, random_values(grid.count(sets))),
                  *const out = device_array(gpu, random_values(image.count(FRAMES)));
    const struct fft_coils of = {FRAMES, coils, maps, image.count(coils), image.count(1), NULL, 0};
    struct fft_plan plan;
    struct fft_pass forth = {}, back = {};
    forth.kind = FFT_FORTH;
    forth.in = in;
    back.in = forth.out = cells;
    back.out = out;
    forth.in_view = back.out_view = image.view();
    forth.out_view = back.in_view = grid.view();
    forth.kept = back.kept = c.kept;
    forth.lines = back.lines = c.lines;
    forth.sets = back.sets = sets;
    gpu->multiprocessors = c.together ? 1 : 1000; /* coils are added apart where there are few blocks */
    must(fft_plan_make(&plan, gpu, c.n), "fft_plan_make");
    must(c.coils ? fft_halves_columns_of_coils(gpu, &plan, &forth, &of) : fft_halves_columns(gpu, &plan, &forth),
         "columns forth");
    v.cells = host_array(gpu, cells, grid.count(sets));
    must(c.coils ? fft_halves_columns_to_sums(gpu, &plan, &back, &of) : fft_halves_columns(gpu, &plan, &back),
         "columns back");
    v.out = host_array(gpu, out, image.count(FRAMES));
    gpu->multiprocessors = multiprocessors;
    compare_columns(c, v);
    fft_plan_free(&plan, gpu);
    gpu_release(gpu, out);
    gpu_release(gpu, cells);
    gpu_release(gpu, maps);
    gpu_release(gpu, in);
}

/* ---- all sizes ---- */

/* Rows that fill their halves, in whole blocks, and others. */
static void test_size_in_halves(struct gpu *gpu, int n, bool coils)
{
    const int blocks[2][2] = {{n / 2, 16}, {n / 2 - 1, 5}};
    for (const auto &of : blocks) {
        const int kept = of[0], lines = of[1];
        if (!coils)
            test_rows(gpu, n, kept, lines);
        test_columns(gpu, {n, kept, lines, coils, false});
        if (coils)
            test_columns(gpu, {n, kept, lines, true, true});
    }
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 && strcmp(argv[1], "all") != 0 ? argv[1] : NULL;
    const int least = argc > 2 ? atoi(argv[2]) : 1, most = argc > 3 ? atoi(argv[3]) : INT_MAX;
    const auto asked = [only](const char *name) { return !only || strcmp(only, name) == 0; };
    const auto within = [least, most](int n) { return least <= n && n <= most; };
    struct dev dev = {};
    gpu_or_skip();
    dev.threads = dev.parts = 1;
    must(mrirecon_gpu_leaf()->open(&dev, DEV_ANY), "opening the GPU");
    struct gpu *gpu = gpu_of(&dev);
    gpu->multiprocessors = 1; /* lines are not spread over more blocks than they fill */
    std::vector<int> sizes = {36, 90, 350, 1350};
    for (int n = fft_known_size(1); n != 0; n = fft_known_size(n + 1))
        sizes.push_back(n);
    for (int n : sizes) {
        for (bool back : {true, false})
            if (asked(back ? "back" : "forth") && within(n))
                test_passes(gpu, n, back);
        if (asked("sums") && within(n)) {
            test_slots(gpu, n);
            test_bricks(gpu, n);
        }
    }
    for (int n = fft_rows_size(1); n != 0; n = fft_rows_size(n + 1))
        if (asked("rows") && within(n) && !fft_in_halves(n))
            test_rows(gpu, n, n / 2, 3);
    for (int n = fft_two_stage_size(1); n != 0; n = fft_two_stage_size(n + 1))
        for (bool coils : {false, true})
            if (asked(coils ? "coils" : "halves") && within(n))
                test_size_in_halves(gpu, n, coils);
    mrirecon_gpu_leaf()->close(&dev);
    return tap_end();
}
