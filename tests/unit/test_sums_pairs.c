/* Sums over pairs of points on the CPU (gridding/range/sums.h): pairs_cases.h; and the tables that map a distance to
 * its interval. */
#include "gridding/range/intervals.h"
#include "tests/unit/pairs_cases.h"
#include "tests/unit/pencils_leaves.h"

/* ---- tables of intervals ---- */

enum { EDGES_MOST = 201, DISTANCES = 20000 };

/* The interval that a table gives for distance r in float32; `error` is the error of that distance. */
static int looked_up(const struct interval_octaves *o, const uint16_t *table, double r)
{
    const float r2 = (float)(r * r);
    int32_t place;
    memcpy(&place, &r2, sizeof place);
    place = (place >> o->shift) - o->first;
    return r2 < o->limit ? table[place > 0 ? place : 0] : INTERVAL_FAR;
}

/* Distances up to `longest` with the largest possible error: none may get a wrong interval. Returns how many are
 * doubtful. */
static int count_doubtful(int edges, const double *edge, double longest, const struct interval_error *error)
{
    double edge2[EDGES_MOST];
    uint64_t seed = 11;
    int doubts = 0;
    for (int e = 0; e < edges; e++)
        edge2[e] = edge[e] * edge[e];
    const struct interval_octaves octaves = interval_octaves(edges, edge2, error);
    uint16_t *table = allocate((size_t)octaves.places, sizeof *table);
    assert_true(octaves.places <= INTERVAL_PLACES_MOST);
    interval_table(edges, edge2, error, octaves.places, interval_octaves_end, &octaves, table);
    for (int i = 0; i < DISTANCES; i++) {
        const double r = i % 10 ? longest * uniform_next(&seed) : edge[i / 10 % edges];
        const double wrong = (error->relative * r + error->absolute) * (2 * uniform_next(&seed) - 1);
        const int told = looked_up(&octaves, table, r + wrong), exact = interval_of(edges, edge2, r * r);
        doubts += told == INTERVAL_DOUBT && i % 10;
        if (told != INTERVAL_DOUBT && told != (exact < 0 ? INTERVAL_FAR : exact))
            fail_msg("%d edges: %.9g gets interval %d, and lies in %d", edges, r, told, exact);
    }
    free(table);
    return doubts;
}

/* Points may crowd within a hundredth of the longest distance, and doubtful pairs take ten times as long. */
static void interval_tables_are_correct_and_leave_few_doubtful(void **state)
{
    (void)state;
    static const double longest[] = {1.1, 0.1, 0.02};
    const struct interval_error error = {5e-7, 1e-10};
    double edge[EDGES_MOST];
    for (int edges = 21; edges <= EDGES_MOST; edges += 180)
        for (int kind = 0; kind < 3; kind++) {
            for (int e = 0; e < edges; e++)
                edge[e] = kind == 0   ? (double)e / (edges - 1)
                          : kind == 1 ? 0.01 + 0.99 * e / (edges - 1)
                                      : pow(10, -3.0 * (edges - 1 - e) / (edges - 1));
            for (int l = 0; l < 3; l++) {
                const int doubts = count_doubtful(edges, edge, longest[l], &error);
                if (doubts > DISTANCES / 12)
                    fail_msg("%d edges of kind %d: %d of %d distances up to %g are in doubt", edges, kind, doubts,
                             DISTANCES, longest[l]);
            }
        }
}

/* ---- a block of points and a run ---- */

enum { PADDED = PAIR_BLOCK + PAIR_RUN + PAIR_BLOCK + PENCIL_LANES }; /* a block before a run, and one after it */

/* Counts of squared distances below 1 and up to 2, and the pairs up to 4, which are in doubt: their number, and the sum
 * of their points' numbers. */
struct met {
    uint64_t counts[2 * PAIR_COPIES], doubts, points;
};

static void note_doubt(void *of, size_t i, size_t j)
{
    struct met *m = of;
    m->doubts++;
    m->points += 1000003 * i + j;
}

static float lattice[3][PADDED]; /* eighths, whose distances float32 holds */

/* Point i of the block is point self + i of the run, which begins at point `begin` of the lattice, and has pairs with
 * those after it. */
static struct met met_by(const struct pencils_leaf *leaf, size_t begin, size_t count, size_t self, size_t block)
{
    static const uint16_t table[] = {0, 1, INTERVAL_DOUBT, INTERVAL_FAR};
    struct met m = {0};
    const struct pair_run run = {.at = {lattice[0] + begin, lattice[1] + begin, lattice[2] + begin}, .count = count};
    const float *at[3];
    for (int d = 0; d < 3; d++)
        at[d] = lattice[d] + (self == SIZE_MAX / 2 ? 0 : begin + self);
    const struct pair_block of = {.at = {at[0], at[1], at[2]}, .count = block, .self = self, .reach2 = 1e3};
    const struct pair_counts to = {{23, 126, 4, 8}, table, m.counts, note_doubt, &m};
    leaf->count(3, &of, &run, &to);
    for (int c = 1; c < PAIR_COPIES; c++)
        for (int interval = 0; interval < 2; interval++)
            m.counts[interval * PAIR_COPIES] += m.counts[interval * PAIR_COPIES + c];
    return m;
}

static struct met met_plainly(size_t begin, size_t count, size_t self, size_t block)
{
    struct met m = {0};
    for (size_t i = 0; i < block; i++)
        for (size_t j = 0; j < count; j++) {
            const size_t place = self == SIZE_MAX / 2 ? i : begin + self + i;
            float r2 = 0;
            for (int d = 0; d < 3; d++)
                r2 += powf(lattice[d][begin + j] - lattice[d][place], 2);
            if (self != SIZE_MAX / 2 && (ptrdiff_t)j <= (ptrdiff_t)(self + i))
                continue;
            m.counts[0] += r2 < 1;
            m.counts[PAIR_COPIES] += r2 >= 1 && r2 < 2;
            if (r2 >= 2 && r2 < 4)
                note_doubt(&m, i, j);
        }
    return m;
}

/* Runs shorter and longer than vectors, up to the longest; the block lies in the run, across its ends, or apart. */
static void every_instruction_set_counts_all_pairs_of_a_run(void **state)
{
    (void)state;
    static const size_t runs[] = {1, 3, 4, 5, 8, 9, 15, 16, 17, 33, 300, PAIR_RUN};
    const struct pencils_leaf *leaves[3];
    const int count = pencils_leaves(leaves);
    for (size_t i = 0; i < PADDED; i++)
        for (int d = 0; d < 3; d++)
            lattice[d][i] = floorf((float)(24 * uniform(3 * i + (size_t)d))) / 8;
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        const size_t selves[] = {SIZE_MAX / 2, 0, runs[r] - 1, runs[r] / 2, (size_t)-2, (size_t)-100};
        for (size_t s = 0; s < sizeof selves / sizeof *selves; s++)
            for (size_t block = 1; block <= PAIR_BLOCK; block = block < 5 ? block + 2 : block + 123) {
                const struct met wanted = met_plainly(PAIR_BLOCK, runs[r], selves[s], block);
                for (int l = 0; l < count; l++) {
                    const struct met m = met_by(leaves[l], PAIR_BLOCK, runs[r], selves[s], block);
                    if (m.counts[0] != wanted.counts[0] || m.counts[PAIR_COPIES] != wanted.counts[PAIR_COPIES] ||
                        m.doubts != wanted.doubts || m.points != wanted.points)
                        fail_msg("instruction set %d, run of %zu, block of %zu at %zd", l, runs[r], block,
                                 (ssize_t)selves[s]);
                }
            }
    }
}

/* The lists of points near a box, of two runs one after the other: all that are within the distance, and no other, in
 * their order. Coordinates are eighths, and so are the sides of the box. */
static void every_instruction_set_lists_the_points_near_a_box(void **state)
{
    (void)state;
    enum { RUN = 333, ROOM = 2 * RUN + PENCIL_LANES };
    static float column[8][ROOM], value[PADDED], scale[PADDED];
    const struct pencils_leaf *leaves[3];
    const int count = pencils_leaves(leaves);
    for (size_t i = 0; i < PADDED; i++) {
        for (int d = 0; d < 3; d++)
            lattice[d][i] = floorf((float)(24 * uniform(3 * i + (size_t)d))) / 8;
        value[i] = (float)i;
        scale[i] = -(float)i;
    }
    for (int l = 0; l < count; l++)
        for (int dim = 2; dim <= 3; dim++)
            for (int rest = 0; rest < 2; rest++) {
                struct pair_near near = {.low = {1, 1.25f, 1}, .high = {1.5f, 1.25f, 2}, .reach2 = 0.25f};
                size_t wanted = 0;
                for (int d = 0; d < 3; d++) {
                    near.at[d] = column[d];
                    near.rest[d] = column[3 + d];
                }
                near.scale = column[6];
                near.value = column[7];
                for (size_t first = 0; first < 2 * RUN; first += RUN) {
                    struct pair_run run = {.scale = scale + first, .value = value + first, .count = RUN};
                    for (int d = 0; d < dim; d++) {
                        run.at[d] = lattice[d] + first;
                        run.rest[d] = rest ? lattice[(d + 1) % 3] + first : NULL;
                    }
                    leaves[l]->near(dim, &run, &near);
                }
                for (size_t i = 0; i < 2 * RUN; i++) {
                    float off2 = 0;
                    for (int d = 0; d < dim; d++) {
                        const float at = lattice[d][i], away = fmaxf(fmaxf(near.low[d] - at, at - near.high[d]), 0);
                        off2 += away * away;
                    }
                    if (off2 > near.reach2)
                        continue;
                    assert_true(near.value[wanted] == value[i] && near.scale[wanted] == scale[i]);
                    for (int d = 0; d < dim; d++) {
                        assert_true(near.at[d][wanted] == lattice[d][i]);
                        assert_true(!rest || near.rest[d][wanted] == lattice[(d + 1) % 3][i]);
                    }
                    wanted++;
                }
                assert_true(wanted > 0 && wanted < RUN);
                assert_int_equal(near.count, wanted);
            }
}

/* A bin of more points than a cut of a run, all in one place: a block lies across the cut. Points of the bin before
 * shift the cuts; their values are 0. */
static void points_of_a_block_across_a_cut_are_not_their_own_partners(void **state)
{
    (void)state;
    enum { BEFORE = 50, CROWD = PAIR_RUN + 300, COUNT = BEFORE + CROWD };
    const struct range_law law = law_make(RANGE_RADIAL, 0, 0, 1e-6, bell);
    double *fine = allocate(3 * COUNT, sizeof *fine);
    float *at = allocate(3 * COUNT, sizeof *at), *values = allocate(COUNT, sizeof *values);
    float *sums = allocate(COUNT, sizeof *sums);
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = i < BEFORE ? 0 : 1;
        for (size_t d = 0; d < 3; d++)
            fine[3 * i + d] = at[3 * i + d] = d == 0 && i < BEFORE ? 0.25f * (float)reach : 0.75f * (float)reach;
    }
    for (int doubles = 0; doubles < 2; doubles++) {
        const struct range_points_params params = {.box = {3, {4, 4, 4}, {0, 0, 0}, {reach, reach, reach}, OPEN3},
                                                   .reach = reach,
                                                   .inputs = COUNT,
                                                   .at = doubles ? NULL : at,
                                                   .at_double = doubles ? fine : NULL};
        const struct range_pair_sums wanted = {.scalar_law = &law, .scalars = sums};
        struct range_points_info info;
        struct range_points *points;
        struct dev *dev;
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
        assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
        range_points_info(points, &info);
        assert_int_equal(info.largest_bin, CROWD);
        assert_int_equal(range_pairs(points, points, &wanted, 1, values, NULL), 0);
        /* The law at 0 is 1, to 1e-6 as fitted; float32 sums of 256 ones per lane are exact up to its rounding. One
         * partner too many is 6e-5 of a sum. */
        for (size_t i = BEFORE; i < COUNT; i++)
            assert_true(fabs((double)sums[i] - (CROWD - 1)) <= 5e-6 * CROWD);
        range_points_free(points);
        dev_free(dev);
    }
    free(fine);
    free(at);
    free(values);
    free(sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_sums),
        cmocka_unit_test(pair_counts),
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(one_pass_equals_two),
        cmocka_unit_test(interval_tables_are_correct_and_leave_few_doubtful),
        cmocka_unit_test(every_instruction_set_counts_all_pairs_of_a_run),
        cmocka_unit_test(every_instruction_set_lists_the_points_near_a_box),
        cmocka_unit_test(points_of_a_block_across_a_cut_are_not_their_own_partners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
