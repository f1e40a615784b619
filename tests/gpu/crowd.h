/* crowd.h: points of which most lie in one bin, for the tests of sums of limited range on a GPU. */
#ifndef MRIRECON_TESTS_CROWD_H
#define MRIRECON_TESTS_CROWD_H

#include "tests/unit/sums_fixture.h"

static const struct range_box crowded_box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}};

/* Points of which nine tenths crowd in one bin. */
static inline struct cloud crowd_make(size_t count, bool scaled, int channels)
{
    struct cloud c = cloud_make(&crowded_box, count, EVERYWHERE, scaled, channels);
    uint64_t seed = 3;
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < 3 && i % 10 > 0; d++)
            c.at[3 * i + d] = (float)(6.05 + 0.2 * uniform_next(&seed));
    return c;
}

static inline struct range_points *points_with(const struct cloud *c, struct dev *dev, double reach, int depth,
                                               enum range_excess overflow)
{
    const struct range_points_params params = {.box = c->box,
                                               .reach = reach,
                                               .inputs = c->count,
                                               .at = c->at,
                                               .scale = c->scale,
                                               .bin_depth = depth,
                                               .overflow = overflow};
    struct range_points *points;
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    return points;
}

#endif
