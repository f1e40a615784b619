/* sums_cases.h: sums of limited range between points and grids (gridding/range/sums.h) against sums in double
 * precision, on the device that the program names by SUMS_DEVICE: the potential of charges (CutCP), blobs with a radius
 * each; open and periodic edges, cut-offs and bin faces hit exactly, bins from empty to very dense; parts. */
#ifndef MRIRECON_TESTS_SUMS_CASES_H
#define MRIRECON_TESTS_SUMS_CASES_H

#include "tests/unit/sums_fixture.h"

/* ---- points and grids ---- */

struct grid_case {
    const char *name;
    const struct law_case *law;
    struct range_box box;
    size_t count;
    enum spread spread;
    bool scaled;
    int channels;
};

static const struct grid_case grids[] = {
    {"potential, open", &potential, {3, {37, 15, 11}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3}, 40, AROUND, false, 1},
    {"potential, periodic", &potential, {3, {20, 9, 14}, {0, 0, 0}, {0.5, 0.9, 0.6}, PERIODIC3}, 30, AROUND, false, 2},
    {"potential, long rows",
     &potential,
     {3, {300, 3, 4}, {0, 0, 0}, {0.1, 0.5, 0.5}, {true, false, false}},
     25,
     EVERYWHERE,
     false,
     1},
    {"blobs, open", &blob, {3, {45, 14, 19}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 50, AROUND, true, 1},
    {"blobs, periodic, a short axis",
     &blob,
     {3, {30, 12, 3}, {5, 5, 5}, {0.4, 0.5, 0.8}, PERIODIC3},
     40,
     EVERYWHERE,
     true,
     5},
    {"blobs, clustered", &blob, {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 3000, CLUSTERED, true, 1},
    {"cubes", &cube, {3, {21, 18, 17}, {0, 0, 0}, {0.5, 0.4, 0.5}, {true, false, true}}, 40, AROUND, true, 3},
    {"cubes, 2-D", &cube, {2, {70, 90, 1}, {0, 0, 0}, {0.2, 0.2, 1}, PERIODIC3}, 60, EVERYWHERE, false, 2},
    {"blobs, 1-D", &blob, {1, {400, 1, 1}, {-1, 0, 0}, {0.02, 1, 1}, {true}}, 30, AROUND, true, 1},
    {"on the cut-off", &within, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 90, LATTICE, false, 1},
    {"on the cut-off, periodic",
     &within,
     {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3},
     90,
     LATTICE,
     false,
     1},
    {"balls, on the cut-off", &bell_ball, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 90, LATTICE, false, 1},
    {"balls, on the cut-off, periodic",
     &bell_ball,
     {3, {12, 5, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3},
     90,
     LATTICE,
     false,
     1},
    {"boxes, on the cut-off",
     &bell_box,
     {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3},
     90,
     LATTICE,
     false,
     1},
    {"potential, on nodes", &potential, {3, {12, 13, 40}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 90, LATTICE, false, 1},
    {"potential, scaled", &potential, {3, {37, 15, 11}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3}, 40, AROUND, true, 1},
    {"potential, close to nodes",
     &potential,
     {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3},
     3000,
     CLUSTERED,
     false,
     1},
    {"shifted, close to nodes",
     &shifted,
     {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3},
     3000,
     CLUSTERED,
     false,
     1},
    {"shifted, without scales",
     &shifted,
     {3, {37, 15, 11}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3},
     40,
     AROUND,
     false,
     1},
    {"shifted, open", &shifted, {3, {37, 15, 11}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3}, 40, AROUND, true, 1},
    {"shifted, periodic", &shifted, {3, {20, 9, 14}, {0, 0, 0}, {0.5, 0.9, 0.6}, PERIODIC3}, 30, AROUND, false, 1},
    {"shifted, on nodes", &shifted, {3, {12, 13, 40}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 90, LATTICE, false, 1},
    {"shifted, clustered", &shifted, {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 3000, CLUSTERED, true, 1},
    {"shifted, two", &shifted, {3, {20, 9, 14}, {0, 0, 0}, {0.5, 0.9, 0.6}, PERIODIC3}, 30, AROUND, false, 2},
    {"no point", &blob, {3, {5, 5, 5}, {0, 0, 0}, {1, 1, 1}, OPEN3}, 0, EVERYWHERE, false, 1},
    {"one node", &blob, {3, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, OPEN3}, 20, CLUSTERED, false, 1},
};
enum { GRIDS = sizeof grids / sizeof *grids };

static void scatter_case(const struct grid_case *g)
{
    struct cloud c = cloud_make(&g->box, g->count, g->spread, g->scaled, g->channels);
    struct range_law law = law_of(g->law);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    float *grid = allocate((size_t)c.channels * c.nodes, sizeof *grid);
    for (size_t i = 0; i < (size_t)c.channels * c.nodes; i++)
        grid[i] = 0;
    scatter(dev, points, &law, &c, grid);
    set_gives(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node++) {
        double sum[8] = {0}, size[8] = {0};
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node, i, from);
            double value = over_images(g->law, &c.box, from, scale_of(&c, i), -1);
            for (int channel = 0; channel < c.channels && value != 0; channel++) {
                double v = (double)c.values[(size_t)channel * c.count + i];
                sum[channel] += v * value;
                size[channel] += fabs(v * value) + fit_size(g->law, v);
            }
        }
        for (int channel = 0; channel < c.channels; channel++)
            close_to(g->name, grid[(size_t)channel * c.nodes + node], sum[channel], size[channel]);
    }
    free(grid);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

static void points_to_grids(void **state)
{
    (void)state;
    for (int g = 0; g < GRIDS; g++)
        scatter_case(&grids[g]);
}

/* Gathering is the transpose of scattering: sum_nodes scatter(v) g = sum_points v gather(g), channel by channel. */
static void gather_case(const struct grid_case *g)
{
    struct cloud c = cloud_make(&g->box, g->count, g->spread, g->scaled, g->channels);
    struct range_law law = law_of(g->law);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    size_t all = (size_t)c.channels * c.nodes;
    float *grid = allocate(all, sizeof *grid), *sums = allocate(all, sizeof *sums);
    float *gathered = allocate((size_t)c.channels * c.count + 1, sizeof *gathered);
    uint64_t seed = 5;
    for (size_t i = 0; i < all; i++) {
        grid[i] = (float)(uniform_next(&seed) - 0.4);
        sums[i] = 0;
    }
    scatter(dev, points, &law, &c, sums);
    gather(dev, points, &law, &c, grid, gathered);
    for (int channel = 0; channel < c.channels; channel++) {
        double there = 0, back = 0, size = 0;
        for (size_t i = 0; i < c.nodes; i++) {
            double term = (double)sums[(size_t)channel * c.nodes + i] * (double)grid[(size_t)channel * c.nodes + i];
            there += term;
            size += fabs(term);
        }
        for (size_t i = 0; i < c.count; i++) {
            double term =
                (double)c.values[(size_t)channel * c.count + i] * (double)gathered[(size_t)channel * c.count + i];
            back += term;
            size += fabs(term);
        }
        close_to(g->name, (float)there, back, size);
    }
    free(grid);
    free(sums);
    free(gathered);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

static void grids_to_points_are_the_transpose(void **state)
{
    (void)state;
    for (int g = 0; g < GRIDS; g++)
        gather_case(&grids[g]);
}

/* A NaN node affects the points that reach it, and no others. */
static void nodes_beyond_reach_have_no_effect(void **state)
{
    (void)state;
    const struct range_box box = {3, {40, 4, 4}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3};
    const float at[6] = {5.1f, 1, 1, 12.3f, 1, 1};
    struct cloud c = {.box = box, .count = 2, .nodes = 640, .at = (float *)(uintptr_t)at, .channels = 1};
    struct range_law law = law_of(&blob);
    struct dev *dev;
    struct range_points *points = points_of(&c, 1, law.params.reach, &dev);
    float grid[640], values[2];
    for (size_t i = 0; i < 640; i++)
        grid[i] = i % 40 == 15 ? NAN : 1; /* x = 7.5, 2.4 from one point, 4.8 from the other */
    gather(dev, points, &law, &c, grid, values);
    assert_true(isfinite(values[0]) && values[0] > 0 && isfinite(values[1]) && values[1] > 0);
    for (size_t i = 0; i < 640; i++)
        grid[i] = i % 40 == 14 ? NAN : 1;
    gather(dev, points, &law, &c, grid, values);
    assert_true(isnan(values[0]) && isfinite(values[1]));
    range_points_free(points);
    dev_free(dev);
}

/* CutCP's exclusion: nodes nearer than a radius to a charged atom are found with a law whose value is 1 within the
 * radius. */
static void exclusion_is_a_law(void **state)
{
    (void)state;
    const struct range_box box = {3, {16, 16, 16}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3};
    struct cloud c = cloud_make(&box, 60, EVERYWHERE, false, 1);
    struct law_case near = within;
    near.params.reach = 1;
    struct range_law law = law_of(&near);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, 3.1, &dev);
    float *inside = calloc(c.nodes, sizeof *inside);
    for (size_t i = 0; i < c.count; i++)
        c.values[i] = i % 3 != 0; /* the rest have no charge */
    scatter(dev, points, &law, &c, inside);
    for (size_t node = 0; node < c.nodes; node++) {
        int held = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node, i, from);
            held += i % 3 != 0 && from[0] * from[0] + from[1] * from[1] + from[2] * from[2] < 1;
        }
        assert_true(inside[node] == (float)held);
    }
    free(inside);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- partition ---- */

static void parts_sum_to_the_whole(void **state)
{
    (void)state;
    const struct range_box box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3};
    struct cloud c = cloud_make(&box, 5000, CLUSTERED, true, 1);
    for (size_t i = 0; i < 1500; i++)
        c.at[3 * i] = (float)i * 0.008f; /* many bins have several points */
    struct range_law law = law_of(&blob);
    struct dev *dev;
    struct range_points *all = points_of(&c, 2, law.params.reach, &dev);
    struct range_points_info info;
    range_points_info(all, &info);
    assert_true(info.inputs == 5000 && info.count == 5000 && info.largest_bin > 1000 && info.occupied_bins > 3);
    float *whole = calloc(c.nodes, sizeof *whole), *parts = calloc(c.nodes, sizeof *parts);
    scatter(dev, all, &law, &c, whole);
    for (size_t depth = 0; depth <= 6000; depth = depth ? 8 * depth : 1) {
        struct range_points *part[2];
        struct range_points_info of[2];
        assert_int_equal(range_partition(all, depth, &part[0], &part[1]), 0);
        memset(parts, 0, c.nodes * sizeof *parts);
        for (int p = 0; p < 2; p++) {
            range_points_info(part[p], &of[p]);
            scatter(dev, part[p], &law, &c, parts);
        }
        assert_int_equal(of[0].count + of[1].count, 5000);
        assert_int_equal(of[0].largest_bin, depth < info.largest_bin ? depth : info.largest_bin);
        assert_int_equal(of[1].largest_bin, depth < info.largest_bin ? info.largest_bin - depth : 0);
        for (size_t i = 0; i < c.nodes; i++)
            close_to("parts", parts[i], (double)whole[i], 5000 * exp(2.5) * 0.02 + fabs((double)whole[i]));
        range_points_free(part[0]);
        range_points_free(part[1]);
    }
    free(whole);
    free(parts);
    range_points_free(all);
    dev_free(dev);
    cloud_free(&c);
}

#endif
