/* Sums over pairs of points on the CPU (gridding/range/sums.h): pairs_cases.h; and the tables that map a distance to
 * its interval. */
#include "gridding/range/intervals.h"
#include "tests/unit/pairs_cases.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_sums),
        cmocka_unit_test(pair_counts),
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(one_pass_equals_two),
        cmocka_unit_test(interval_tables_are_correct_and_leave_few_doubtful),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
