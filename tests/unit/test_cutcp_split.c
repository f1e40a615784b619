/* The split of kind cutcp (recon/cutcp/cutcp_split.h): potentials within the tolerance of sums in double precision, of
 * neutral and charged boxes, open and periodic, by both laws; when the direct sum is taken instead. */
#include "recon/cutcp/cutcp_split.h"
#include "tests/unit/cutcp_fixture.h"

enum { POINTS = 150 }; /* points of a lattice that are compared with the oracle */

/* Water at a density of 1 g/cm^3, with randomly rotated molecules: neutral, with charges of both signs close
 * together. */
static struct charges water_make(size_t side, uint64_t seed)
{
    static const double bond = 0.957, spacing = 3.1, charge[3] = {-0.834, 0.417, 0.417};
    struct charges c = charges_create(1, 3 * side * side * side);
    for (size_t i = 0; i < c.count; i++) {
        const size_t molecule = i / 3, place[3] = {molecule % side, molecule / side % side, molecule / side / side};
        double way[3], length = 0;
        for (size_t d = 0; d < 3; d++) {
            way[d] = uniform_next(&seed) - 0.5;
            length += way[d] * way[d];
        }
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = i % 3 == 0 ? spacing * ((double)place[d] + 0.3 * uniform_next(&seed))
                                         : c.at[3 * (i - i % 3) + d] + bond * way[d] / sqrt(length);
        c.q[i] = charge[i % 3];
    }
    return c;
}

/* Random charges of one sign. */
static struct charges ions_make(size_t count, double length, uint64_t seed)
{
    struct charges c = charges_create(1, count);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = length * uniform_next(&seed);
        c.q[i] = 0.3 * uniform_next(&seed);
    }
    return c;
}

static const char *decision_of(const struct run *run, const char *what, const char *member)
{
    size_t i;
    json_t *decision;
    json_array_foreach (json_object_get(run->outcome.report, "decisions"), i, decision)
        if (strcmp(json_string_value(json_object_get(decision, "what")), what) == 0)
            return json_string_value(json_object_get(decision, member));
    return "";
}

/* The root mean square of the differences at some points, without excluded ones, which are 0. */
static double error_of(const struct run *run, const struct oracle *o, const struct charges *c)
{
    const struct volume *v = run->volume;
    const size_t nodes = v->size[0] * v->size[1] * v->size[2];
    double squares = 0;
    size_t count = 0;
    for (size_t k = 0; k < POINTS; k++) {
        const size_t i = k * 7919 % nodes;
        const size_t place[3] = {i % v->size[0], i / v->size[0] % v->size[1], i / v->size[0] / v->size[1]};
        double node[3];
        for (int d = 0; d < 3; d++)
            node[d] = v->origin[d] + (double)place[d] * v->spacing[d];
        const struct exact e = exact_at(o, c, 0, node, 0);
        if (e.excluded) {
            assert_true(v->data[i] == 0);
            continue;
        }
        squares += pow((double)v->data[i] - e.value, 2);
        count++;
    }
    assert_true(count > POINTS / 4);
    return sqrt(squares / (double)count);
}

/* Each tolerance must be met by its job; the reported error agrees with that measured here at other points. */
static void tolerances_try(const struct charges *c, const char *query, const struct oracle *o)
{
    static const double tolerances[] = {1e-2, 1e-3, 1e-4, 1e-5};
    for (size_t i = 0; i < sizeof tolerances / sizeof *tolerances; i++) {
        char text[MOST_QUERY];
        snprintf(text, sizeof text, "%s tolerance=%g", query, tolerances[i]);
        struct run run = run_charges(c, text);
        const bool split = strcmp(decision_of(&run, "method", "value"), "split") == 0;
        const double error = error_of(&run, o, c);
        const double told = json_number_value(json_object_get(run.outcome.report, "error"));
        print_message("# %s: %s, error %.2g, reported %.2g\n", text, split ? "split" : "direct", error, told);
        assert_true(error <= tolerances[i]);
        if (i < 3)
            assert_true(split);
        if (split)
            assert_true(told > 0 && told < 1.4 * error && told > error / 1.4);
        job_outcome_free(&run.outcome);
    }
}

static void test_water(void **state)
{
    (void)state;
    struct charges c = water_make(9, 3);
    tolerances_try(&c, "exclusion=0", &(struct oracle){.cutoff = 12});
    tolerances_try(&c, "form=taylor2 exclusion=1", &(struct oracle){.cutoff = 12, .exclusion = 1, .taylor2 = true});
    charges_free(&c);
}

/* Boxes with unequal sides, one shorter than the cutoff, and different spacings along the axes. */
static void test_periodic_ions(void **state)
{
    (void)state;
    struct charges c = ions_make(1500, 20, 5);
    tolerances_try(&c, "periodic=yes box=24,22.1,10.3 spacing=0.49 cutoff=11.5 exclusion=0.6",
                   &(struct oracle){.cutoff = 11.5, .exclusion = 0.6, .box = {24, 22.1, 10.3}});
    tolerances_try(&c, "periodic=yes box=24,22.1,10.3 spacing=0.49 cutoff=11.5 exclusion=0 form=taylor2",
                   &(struct oracle){.cutoff = 11.5, .taylor2 = true, .box = {24, 22.1, 10.3}});
    charges_free(&c);
}

static bool volumes_same(const struct volume *a, const struct volume *b)
{
    const size_t nodes = a->frames * a->size[0] * a->size[1] * a->size[2];
    return memcmp(a->size, b->size, sizeof a->size) == 0 && memcmp(a->data, b->data, nodes * sizeof *a->data) == 0;
}

/* Charges in one spot add up in phase, which the estimated error does not include. The measured error exceeds the
 * tolerance, so the direct sum is used, with its bits, and progress does not fall. */
static int never_falls(void *context, const struct step_progress *now)
{
    double *before = context;
    assert_true(now->fraction >= *before && now->fraction <= 1);
    *before = now->fraction;
    return 0;
}

static void test_crowd(void **state)
{
    (void)state;
    struct charges c = ions_make(20000, 0.01, 7);
    for (size_t d = 0; d < 3; d++) {
        c.at[d] = -6;
        c.at[3 + d] = 6;
    }
    struct run direct = run_charges(&c, "cutoff=6 exclusion=0"), run;
    const char *query = "cutoff=6 exclusion=0 tolerance=0.1";
    double fraction = 0;
    int fd = file_of(&c);
    assert_int_equal(job_run(&run, fd, query, 2, &(struct job_listener){&fraction, never_falls}, NULL), 0);
    assert_string_equal(decision_of(&run, "method", "value"), "split"); /* the first decision; the second says direct */
    json_t *decisions = json_object_get(run.outcome.report, "decisions");
    json_t *last = json_array_get(decisions, json_array_size(decisions) - 1);
    assert_string_equal(json_string_value(json_object_get(last, "value")), "direct");
    assert_non_null(strstr(json_string_value(json_object_get(last, "reason")), "measured in frame 0"));
    assert_null(json_object_get(run.outcome.report, "error"));
    assert_true(volumes_same(direct.volume, run.volume));
    job_outcome_free(&direct.outcome);
    job_outcome_free(&run.outcome);
    close(fd);
    charges_free(&c);
}

/* If the split has no advantage, the bits are those without a tolerance. */
static void test_direct(void **state)
{
    (void)state;
    static const struct {
        const char *query, *reason;
    } cases[] = {
        {"cutoff=4 tolerance=0.01", "expected to take less time"},
        {"cutoff=12 tolerance=1e-9", "expected to take less time"},
        {"cutoff=12 periodic=yes box=23.5,24,24 tolerance=0.01", "have no FFT"},
        {"cutoff=12 periodic=yes box=24,24,1100 tolerance=0.01", "have no FFT"},
    };
    struct charges c = ions_make(60, 20, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char query[MOST_QUERY];
        snprintf(query, sizeof query, "%.*s", (int)(strstr(cases[i].query, " tolerance") - cases[i].query),
                 cases[i].query);
        struct run run = run_charges(&c, cases[i].query), plain = run_charges(&c, query);
        assert_string_equal(decision_of(&run, "method", "value"), "direct");
        assert_non_null(strstr(decision_of(&run, "method", "reason"), cases[i].reason));
        assert_string_equal(decision_of(&plain, "method", "value"), "");
        assert_true(volumes_same(run.volume, plain.volume));
        job_outcome_free(&run.outcome);
        job_outcome_free(&plain.outcome);
    }
    charges_free(&c);
}

/* Any number of threads gives the same bits; kT/e only scales the result; a mean is that of the frames. */
static void test_same_bits_and_units(void **state)
{
    (void)state;
    struct charges c = water_make(8, 11);
    struct run one, other;
    int fd = file_of(&c);
    assert_int_equal(job_run(&one, fd, "tolerance=1e-3", 1, NULL, NULL), 0);
    assert_string_equal(decision_of(&one, "method", "value"), "split");
    for (int threads = 2; threads <= 5; threads += 3) {
        assert_int_equal(job_run(&other, fd, "tolerance=1e-3", threads, NULL, NULL), 0);
        assert_true(volumes_same(one.volume, other.volume));
        job_outcome_free(&other.outcome);
    }
    assert_int_equal(job_run(&other, fd, "tolerance=1e-3 units=kT/e", 2, NULL, NULL), 0);
    for (size_t i = 0; i < one.volume->size[0] * one.volume->size[1] * one.volume->size[2]; i++)
        assert_true(fabs((double)other.volume->data[i] / CUTCP_KT_PER_E - (double)one.volume->data[i]) < 1e-4);
    const double in_e = json_number_value(json_object_get(one.outcome.report, "error")),
                 in_kt = json_number_value(json_object_get(other.outcome.report, "error"));
    assert_true(in_kt < 1.01 * in_e && in_kt > 0.99 * in_e);
    job_outcome_free(&other.outcome);
    job_outcome_free(&one.outcome);
    close(fd);
    charges_free(&c);
}

/* Cancel while the mesh is filtered, and while the near part is summed. */
static int stop_at(void *context, const struct step_progress *now)
{
    return now->fraction >= *(const double *)context;
}

static void test_canceled(void **state)
{
    (void)state;
    struct charges c = water_make(8, 11);
    int fd = file_of(&c);
    for (double at = 0.2; at < 0.8; at += 0.25) {
        struct run run;
        assert_int_equal(job_run(&run, fd, "tolerance=1e-3 exclusion=0", 2, &(struct job_listener){&at, stop_at}, NULL),
                         ERR_CANCELED);
    }
    close(fd);
    charges_free(&c);
}

/* ---- the measured error ---- */

/* A grid of the oracle's potentials, each too large by `excess`. */
static float *grid_wrong(const struct cutcp_sum *sum, const struct charges *c, double excess)
{
    const int *n = sum->lattice.cells;
    const size_t x = (size_t)n[0], y = (size_t)n[1], nodes = x * y * (size_t)n[2];
    struct oracle o = {.cutoff = sum->cutoff, .taylor2 = sum->form == CUTCP_TAYLOR2};
    float *grid = allocate(nodes, sizeof *grid);
    for (int d = 0; d < 3; d++)
        o.box[d] = sum->lattice.periodic[d] ? n[d] * sum->lattice.spacing[d] : 0;
    for (size_t i = 0; i < nodes; i++) {
        const size_t place[3] = {i % x, i / x % y, i / x / y};
        double node[3];
        for (int d = 0; d < 3; d++)
            node[d] = (double)place[d] * sum->lattice.spacing[d];
        grid[i] = (float)(exact_at(&o, c, 0, node, 0).value + excess);
    }
    return grid;
}

/* The error of a grid that is wrong by as much everywhere is this, if the measurement adds up every charge that reaches
 * a point, once: the same bits for any number of threads. Boxes of 1 to 4 cells of the cutoff along the axes, periodic
 * ones and open ones, outside which charges lie, too. Tolerance: potentials are below 32 at the points that are
 * compared (charges of 0.3 at most, where float32 rounds by less than a tenth of 1e-3), so that a grid's value is
 * rounded by 2e-6 at most. */
static void test_measured(void **state)
{
    (void)state;
    static const struct {
        int cells[3];
        bool periodic[3];
    } boxes[] = {{{5, 9, 13}, {true, true, true}},    {{14, 3, 7}, {true, true, true}},
                 {{13, 17, 13}, {true, false, true}}, {{5, 9, 13}, {false, false, false}},
                 {{17, 12, 4}, {false, true, false}}, {{1, 20, 8}, {false, false, true}}};
    const double excess = 0.25;
    for (size_t i = 0; i < 2 * sizeof boxes / sizeof *boxes; i++) {
        struct cutcp_sum sum = {.form = i % 2 ? CUTCP_TAYLOR2 : CUTCP_THESIS,
                                .cutoff = 4,
                                .tolerance = 1e-3,
                                .lattice = {.dim = 3, .spacing = {1, 1, 1}},
                                .count = 200};
        memcpy(sum.lattice.cells, boxes[i / 2].cells, sizeof sum.lattice.cells);
        memcpy(sum.lattice.periodic, boxes[i / 2].periodic, sizeof sum.lattice.periodic);
        struct charges c = ions_make(sum.count, 24, i);
        float *grid, *values = allocate(sum.count, sizeof *values);
        double error = 0, again = 0;
        for (size_t k = 0; k < sum.count; k++) {
            c.q[k] = values[k] = (float)c.q[k];
            for (size_t d = 0; d < 3; d++)
                c.at[3 * k + d] -= 4.1;
        }
        grid = grid_wrong(&sum, &c, excess);
        assert_int_equal(cutcp_measure(&sum, 1, 0.05, c.at, values, grid, 1, NULL, &error), 0);
        assert_true(fabs(error - excess) < 2e-6);
        for (int threads = 2; threads <= 5; threads++) {
            assert_int_equal(cutcp_measure(&sum, 1, 0.05, c.at, values, grid, threads, NULL, &again), 0);
            assert_memory_equal(&again, &error, sizeof error);
        }
        free(grid);
        free(values);
        charges_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_water),    cmocka_unit_test(test_periodic_ions),       cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_direct),   cmocka_unit_test(test_same_bits_and_units), cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
