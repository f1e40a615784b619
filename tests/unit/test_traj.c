/* The unit of a file's trajectory, analytic trajectories, and their shapes. */
#include "gridding/base/err.h"
#include "gridding/traj.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two samples whose largest |k| per axis are mx, my, mz, the way traj_unit_find is asked. */
struct unit_case {
    const char *name;
    int dim, n[3];
    double fov_m[3];
    float m[3];
    enum traj_unit asked, found;
    int code;
};

#define BRAIN 0.24, 0.24, 0.24

static const struct unit_case unit_cases[] = {
    /* The largest |k| of the three published scans beside this repository. */
    {"spiral scan", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {0.49982354f, 0.49982354f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"cardiac scan", 2, {384, 384, 1}, {0.384, 0.384, 0.006}, {0.5f, 0.49901336f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"lung scan", 3, {64, 64, 64}, {0.4, 0.4, 0.4}, {0.4987f, 0.49869f, 0.49878f}, 0, TRAJ_UNIT_PIXEL, 0},
    /* The same spiral as other tools would write it. */
    {"spiral, grid", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {129.95f, 179.94f}, 0, TRAJ_UNIT_GRID, 0},
    {"spiral, radians", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {3.1405f, 3.1405f}, 0, TRAJ_UNIT_RADIANS, 0},
    {"spiral, per metre", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {499.8f, 499.8f}, 0, TRAJ_UNIT_PER_METRE, 0},
    {"2 % beyond the edge", 2, {128, 128, 1}, {BRAIN}, {0.509f, 0.5f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"half of k-space, pixel", 2, {128, 128, 1}, {BRAIN}, {0.25f, 0.25f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"half of k-space, radians", 2, {128, 128, 1}, {BRAIN}, {1.5f, 1.5f}, 0, TRAJ_UNIT_RADIANS, 0},
    {"stack with few partitions", 3, {128, 128, 16}, {BRAIN}, {64, 64, 3}, 0, TRAJ_UNIT_GRID, 0},
    {"one partition", 3, {128, 128, 1}, {BRAIN}, {0.5f, 0.5f, 0}, 0, TRAJ_UNIT_PIXEL, 0},
    {"field of view unknown", 2, {128, 128, 1}, {0, 0, 0}, {64, 64}, 0, TRAJ_UNIT_GRID, 0},
    /* Two units explain it. 128 over 0.24 m: full in cycles per metre is 267, in cycles per field of view 64. */
    {"grid or per metre, both partial", 2, {128, 128, 1}, {BRAIN}, {50, 50}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"grid left by a little", 2, {128, 128, 1}, {BRAIN}, {70, 70}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"field of view of 0.9 m", 2, {128, 128, 1}, {0.9, 0.9, 0.9}, {64, 64}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"matrix of 8: pi is nearly 4", 2, {8, 8, 1}, {0, 0, 0}, {3.1f, 3.1f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"pixel left by a fifth", 2, {128, 128, 1}, {BRAIN}, {0.6f, 0.6f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"next to nothing covered", 2, {128, 128, 1}, {BRAIN}, {0.05f, 0.05f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"260 x 360 in grid units of the wrong axis",
     2,
     {260, 360, 1},
     {0.26, 0.36, 0.005},
     {180, 180},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    /* None does. */
    {"beyond everything", 2, {128, 128, 1}, {BRAIN}, {1000, 1000}, 0, 0, ERR_TRAJ_RANGE},
    /* Asked for: taken, but for its range. */
    {"asked pixel", 2, {128, 128, 1}, {BRAIN}, {0.05f, 0.02f}, TRAJ_UNIT_PIXEL, TRAJ_UNIT_PIXEL, 0},
    {"asked grid", 2, {128, 128, 1}, {BRAIN}, {50, 50}, TRAJ_UNIT_GRID, TRAJ_UNIT_GRID, 0},
    {"asked per metre", 2, {128, 128, 1}, {BRAIN}, {50, 50}, TRAJ_UNIT_PER_METRE, TRAJ_UNIT_PER_METRE, 0},
    {"asked radians", 2, {8, 8, 1}, {BRAIN}, {3.1f, 3.1f}, TRAJ_UNIT_RADIANS, TRAJ_UNIT_RADIANS, 0},
    {"asked pixel, 3 % beyond", 2, {128, 128, 1}, {BRAIN}, {0.5f, 0.515f}, TRAJ_UNIT_PIXEL, 0, ERR_TRAJ_RANGE},
    {"asked grid, one axis beyond", 2, {260, 360, 1}, {BRAIN}, {180, 180}, TRAJ_UNIT_GRID, 0, ERR_TRAJ_RANGE},
    {"asked per metre, no field of view",
     2,
     {128, 128, 1},
     {0, 0, 0},
     {50, 50},
     TRAJ_UNIT_PER_METRE,
     0,
     ERR_BAD_PARAMETER},
    /* Not trajectories. */
    {"all zero", 2, {128, 128, 1}, {BRAIN}, {0, 0}, 0, 0, ERR_TRAJ_MISSING},
    {"all zero, asked", 2, {128, 128, 1}, {BRAIN}, {0, 0}, TRAJ_UNIT_GRID, 0, ERR_TRAJ_MISSING},
    {"nan", 2, {128, 128, 1}, {BRAIN}, {0.5f, NAN}, 0, 0, ERR_TRAJ_NONFINITE},
    {"inf, asked", 3, {128, 128, 64}, {BRAIN}, {0.5f, 0.5f, INFINITY}, TRAJ_UNIT_PIXEL, 0, ERR_TRAJ_NONFINITE},
};

static void test_units(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof unit_cases / sizeof *unit_cases; i++) {
        const struct unit_case *c = &unit_cases[i];
        /* A column of weights stands beside the coordinates and must not be looked at. */
        float k[3][4] = {{0, 0, 0, NAN}, {-c->m[0], c->m[1] / 2, 0, 1e9f}, {c->m[0] / 3, c->m[1], -c->m[2], 7}};
        if (c->dim == 2)
            k[1][2] = NAN;
        enum traj_unit found = TRAJ_UNIT_AUTO;
        double scale[3] = {0};
        char reason[256] = "";
        int code =
            traj_unit_find(c->asked, c->dim, c->n, c->fov_m, 3, 4, &k[0][0], &found, scale, reason, sizeof reason);
        if (code != c->code || found != c->found)
            fail_msg("%s: code %s, unit %d; %s", c->name, err_name(code), found, code != 0 ? err_last()->text : reason);
        if (code == 0) {
            assert_non_null(strstr(reason, "largest |k|"));
            const double full[] = {0, 0.5, c->n[1] / 2.0, M_PI, c->fov_m[1] > 0 ? 0.5 * c->n[1] / c->fov_m[1] : 0};
            assert_true(fabs(scale[1] * full[found] - 0.5) < 1e-12);
        } else if (code == ERR_TRAJ_AMBIGUOUS) {
            assert_non_null(strstr(err_last()->text, "traj_units="));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
