/* The parts of the split of kind cutcp (recon/cutcp/cutcp_split.h): its functions against integrals, its tables, its
 * rounding, and the choice of its parameters. */
#include "gridding/range/kernel.h"
#include "recon/cutcp/cutcp_split.h"
#include "tests/unit/cutcp_fixture.h"

/* s rises from 0 to 1 within the radius. */
static void test_rise(void **state)
{
    (void)state;
    const struct cutcp_split split = {.cell = 0.5, .taper = 12, .radius = 12 * 0.5 / M_PI};
    double before = 0;
    for (double r = 0.05; r < split.radius; r += 0.05) {
        const double s = r * cutcp_split_rise(&split, r);
        assert_true(s > before && s < 1.001);
        before = s;
    }
    for (double r = split.radius; r < 20; r *= 1.3)
        assert_true(fabs(r * cutcp_split_rise(&split, r) - 1) < 1e-4);
}

/* Integral of f(x, of) from `from` to `to` by Simpson's rule. */
static double simpson(double (*f)(double x, const void *of), const void *of, double from, double to)
{
    enum { STEPS = 4000 };
    double sum = 0;
    for (int i = 0; i <= STEPS; i++)
        sum += (i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2) * f(from + (to - from) * i / STEPS, of);
    return sum * (to - from) / (3 * STEPS);
}

struct tapered {
    const struct cutcp_split *split;
    double r, k;
};

static double tapered_wave(double k, const void *of)
{
    const struct tapered *t = of;
    const double x = k * t->split->cell / M_PI, c = t->split->taper;
    return kernel_bessel_i0(c * sqrt(fmax(0, 1 - x * x))) / kernel_bessel_i0(c) *
           (k * t->r > 1e-6 ? sin(k * t->r) / (k * t->r) : 1);
}

/* s(r) / r is the sum of the taper's waves. */
static void test_rise_is_of_the_tapers_waves(void **state)
{
    (void)state;
    for (double taper = 5; taper <= 15; taper += 5) {
        const struct cutcp_split split = {.cell = 0.3, .taper = taper};
        for (double r = 0; r < 12; r = 1.4 * r + 0.05) {
            const struct tapered of = {&split, r, 0};
            const double expected = 2 / M_PI * simpson(tapered_wave, &of, 0, M_PI / split.cell);
            /* Simpson's rule at 0.03 radians a step: 0.03^4 / 180 of the largest value. */
            assert_true(fabs(cutcp_split_rise(&split, r) - expected) < 5e-9 * 2 / split.cell);
        }
    }
}

/* r near(r) and r smooth(r), times sin(k r) / k. */
static double near_wave(double r, const void *of)
{
    const struct tapered *t = of;
    const struct cutcp_split *s = t->split;
    const double fall = s->form == CUTCP_THESIS ? 1 - pow(r / s->cutoff, 2) : 1;
    return fall * fall * (1 - r * cutcp_split_rise(s, r)) * (t->k > 0 ? sin(t->k * r) / t->k : r);
}

static double law_wave(double r, const void *of)
{
    const struct tapered *t = of;
    const double rc = t->split->cutoff, fall = 1 - pow(r / rc, 2);
    return (t->split->form == CUTCP_THESIS ? fall * fall : 1 - r * cutcp_taylor2(&rc, fall)) *
           (t->k > 0 ? sin(t->k * r) / t->k : r);
}

/* The table's values are the transform of the smooth part. The cubics between values of the near part, 0.05 / a apart,
 * err by at most 3/128 0.05^4 / a^4 times the fourth derivative of sin(k r) / k, which is at most r^5 / 5: 3e-8 of the
 * near part's integral. Simpson's rule: 4000 steps of at most 0.2 radians, (0.2^4 / 180) of the largest value, which
 * is that of the law's at k = 0, over k; float32 rounds by 6e-8. */
static void test_waves(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++)
        for (double taper = 5; taper <= 15; taper += 5) {
            struct cutcp_split split = {.form = (enum cutcp_form)form, .cutoff = 9, .cell = 0.4, .taper = taper};
            struct cutcp_waves waves;
            split.radius = taper * split.cell / M_PI;
            for (int d = 0; d < 3; d++) {
                split.mesh[d] = 64 + 16 * d;
                split.length[d] = 64 * split.cell;
            }
            assert_int_equal(cutcp_waves_create(&waves, &split), 0);
            assert_int_equal(waves.count, cutcp_waves_count(&split));
            for (size_t i = 0; i < waves.count; i = 2 * i + 1) {
                const struct tapered of = {&split, 0, (double)i * waves.step}, still = {&split, 0, 0};
                const double law = 4 * M_PI * simpson(law_wave, &of, 0, split.cutoff),
                             near = 4 * M_PI * simpson(near_wave, &of, 0, split.radius),
                             size = 4 * M_PI * simpson(near_wave, &still, 0, split.radius);
                const double most = 3e-8 * size + 6e-8 * fabs(law - near) + 1e-9 * fabs(law);
                if (!(fabs((double)waves.value[i] - (law - near)) < most))
                    fail_msg("form %d, taper %g, value %zu: %.9g, expected %.9g (law %g, near %g)", form, taper, i,
                             (double)waves.value[i], law - near, law, near);
            }
            cutcp_waves_free(&waves);
        }
}

/* The error of a split on a mesh of fixed size. */
static double split_error(const struct cutcp_sum *sum, const struct charges *c, int mesh, int width, double taper,
                          double beta)
{
    struct cutcp_split split = {.form = sum->form, .cutoff = sum->cutoff, .taper = taper, .beta = beta};
    struct split *parts;
    struct dev *dev;
    size_t nodes = 1;
    double error;
    for (int d = 0; d < 3; d++) {
        split.mesh[d] = mesh;
        split.extended[d] = sum->lattice.cells[d];
        split.length[d] = sum->lattice.cells[d] * sum->lattice.spacing[d];
        nodes *= (size_t)sum->lattice.cells[d];
    }
    split.cell = split.length[0] / mesh;
    split.radius = taper * split.cell / M_PI;
    split.reach = width / 2.0 * split.cell;
    float *grid = allocate(nodes, sizeof *grid), *values = allocate(c->count, sizeof *values);
    for (size_t i = 0; i < c->count; i++)
        values[i] = (float)c->q[i];
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(cutcp_parts_create(&parts, dev, &split, sum, 0), 0);
    assert_int_equal(split_sum(parts, c->at, values, grid, NULL), 0);
    assert_int_equal(cutcp_measure(sum, 1, 0, c->at, values, grid, 2, NULL, &error), 0);
    split_free(parts);
    dev_free(dev);
    free(grid);
    free(values);
    return error;
}

/* The window of 10 cells has so small waves in the corners of the mesh's that float32's rounding would drown them,
 * multiplied by 1e11. Without these, the error is the same as with a narrower window: that of the law's kink at the
 * cutoff, nine tenths of it. The rounding would make it 7 times as large. */
static void test_wide_windows_do_not_amplify_rounding(void **state)
{
    (void)state;
    struct charges c = charges_create(1, 600);
    uint64_t seed = 9;
    for (size_t i = 0; i < 4 * c.count; i++)
        *(i < c.count ? &c.q[i] : &c.at[i - c.count]) =
            i < c.count ? 2 * uniform_next(&seed) - 1 : 20 * uniform_next(&seed);
    struct cutcp_sum sum = {
        .form = CUTCP_THESIS,
        .cutoff = 8,
        .tolerance = 1e-3,
        .lattice = {.dim = 3, .cells = {40, 40, 40}, .spacing = {0.5, 0.5, 0.5}, .periodic = {true, true, true}},
        .count = c.count};
    const double narrow = split_error(&sum, &c, 90, 8, 13, 15.2), wide = split_error(&sum, &c, 90, 10, 14, 17.0),
                 widest = split_error(&sum, &c, 90, 10, 15, 18.0);
    print_message("# %.3g %.3g %.3g\n", narrow, wide, widest);
    assert_true(wide < 1.1 * narrow && widest < 1.1 * narrow);
    charges_free(&c);
}

/* The choice on a GPU agrees with whole sums that were measured there (docs/notebook/gpu.md): of 570,000 charges the
 * split is faster, but for thesis at 1e-5; of 100,000 where the tolerance is loose, of 6,000 the direct sum is. */
static void test_choice_on_a_gpu(void **state)
{
    (void)state;
    static const struct {
        enum cutcp_form form;
        int cells;
        double tolerance;
        bool split;
    } cases[] = {{CUTCP_THESIS, 368, 1e-2, true},    {CUTCP_THESIS, 368, 1.1e-4, true},
                 {CUTCP_THESIS, 368, 2.1e-5, true},  {CUTCP_THESIS, 368, 1e-5, false},
                 {CUTCP_TAYLOR2, 368, 1.1e-4, true}, {CUTCP_TAYLOR2, 368, 1e-5, true},
                 {CUTCP_THESIS, 206, 1e-2, true},    {CUTCP_THESIS, 206, 1e-5, false},
                 {CUTCP_TAYLOR2, 206, 2.1e-5, true}, {CUTCP_THESIS, 79, 1e-2, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int n = cases[i].cells;
        const double share = pow(n / 368.0, 3);
        /* Charges between -1 and 1 have a mean square of 1 / 3. */
        const struct cutcp_sum sum = {.form = cases[i].form,
                                      .cutoff = 12,
                                      .tolerance = cases[i].tolerance,
                                      .lattice = {.dim = 3, .cells = {n, n, n}, .spacing = {0.5, 0.5, 0.5}},
                                      .count = (size_t)(570000 * share),
                                      .squares = 570000 * share / 3};
        struct cutcp_split split = {.mesh = {0}};
        const char *why = cutcp_split_choose(&split, &sum, true);
        if (!why != cases[i].split)
            fail_msg("case %zu: %s, gain %.2f", i, why ? why : "the split", split.gain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rise),
        cmocka_unit_test(test_rise_is_of_the_tapers_waves),
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_wide_windows_do_not_amplify_rounding),
        cmocka_unit_test(test_choice_on_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
