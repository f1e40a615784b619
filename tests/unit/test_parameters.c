/* The table of kinds accepts exactly what the engine accepts: every limit of every gridding parameter, in all
 * combinations, is passed to both. */
#include "tests/unit/recon_fixture.h"

#include "gridding/nufft/nufft.h"

static const struct kind *kind;

/* The smallest and largest numbers that the table accepts, the first beyond them, "auto", and both sides of each rule's
 * limit. */
static const char *const tolerances[] = {"1e-6", "2e-6", "1e-4", "7e-4", "9e-4", "1e-3", "1e-1", NULL};
static const char *const widths[] = {"auto", "2", "3", "4", "5", "7", "9", "10", NULL};
static const char *const oversamplings[] = {"auto",  "1.125",  "1.2",  "1.25", "1.4999", "1.5000",
                                            "1.625", "1.7499", "1.75", "2",    NULL};
static const char *const kernels[] = {"separable", "radial", NULL};
static const char *const depths[] = {"auto", "none", "1", "2147483647", NULL};

static void put(struct param_values *values, const char *name, const char *text)
{
    if (param_values_set(kind, values, name, text) != 0)
        fail_msg("%s", err_last()->text);
}

/* Make a plan with these numbers, as recon/mri/recon_plan.c does. */
static int engine(const struct param_values *values, const int n[3], struct nufft_info *info)
{
    static const float k[] = {0, 0, 0, 0.25f, -0.5f, 0.125f};
    struct nufft *plan = NULL;
    const struct nufft_params params = {.dim = n[2] > 1 ? 3 : 2,
                                        .n = {n[0], n[1], n[2]},
                                        .tolerance = values->value[RECON_TOLERANCE].real,
                                        .kernel = (enum nufft_kernel)values->value[RECON_KERNEL].integer,
                                        .width = (int)values->value[RECON_WIDTH].integer,
                                        .oversampling = values->value[RECON_OVERSAMPLING].real,
                                        .batch = 1,
                                        .bin_depth = (int)values->value[RECON_BIN_DEPTH].integer,
                                        .overflow = (enum nufft_overflow)values->value[RECON_OVERFLOW].integer};
    int rc = nufft_create(&plan, dev, &params, 2, k);
    if (rc == 0)
        nufft_describe(plan, info);
    nufft_free(plan);
    return rc;
}

static void agree(const struct param_values *values, int counts[2])
{
    static const int sizes[][3] = {{16, 12, 1}, {8, 6, 10}, {1, 1, 1}, {2, 3, 2}, {22, 5, 1}};
    const double asked = values->value[RECON_OVERSAMPLING].real;
    int said = kind_check(kind, values);
    const struct err why = *err_last();
    counts[said == 0]++;
    assert_true(said == 0 || said == ERR_BAD_PARAMETER);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct nufft_info info = {0};
        int done = engine(values, sizes[i], &info);
        if (done != said)
            fail_msg("tolerance=%s width=%s oversampling=%s kernel=%s on %d x %d x %d: the check says %s (%s), the "
                     "engine %s (%s)",
                     values->value[RECON_TOLERANCE].text, values->value[RECON_WIDTH].text,
                     values->value[RECON_OVERSAMPLING].text, values->value[RECON_KERNEL].text, sizes[i][0], sizes[i][1],
                     sizes[i][2], err_name(said), said ? why.text : "", err_name(done), done ? err_last()->text : "");
        if (done != 0)
            continue;
        bool radial_3d = sizes[i][2] > 1 && values->value[RECON_KERNEL].integer == NUFFT_RADIAL;
        assert_true(info.oversampling >= asked && isfinite(info.expected_error));
        assert_true(info.oversampling >= (radial_3d ? 1.75 : 1.125));
    }
}

static int fresh(void **state)
{
    (void)state;
    kind = kind_find("recon");
    return kind && dev_create(&dev, DEV_CPU, 0, 1) == 0 ? 0 : -1;
}

static int done(void **state)
{
    (void)state;
    dev_free(dev);
    return 0;
}

static void the_check_and_the_engine_agree(void **state)
{
    (void)state;
    struct param_values values;
    int counts[2] = {0, 0};
    param_values_init(kind, &values);
    for (int t = 0; tolerances[t]; t++)
        for (int w = 0; widths[w]; w++)
            for (int o = 0; oversamplings[o]; o++)
                for (int k = 0; kernels[k]; k++) {
                    put(&values, "tolerance", tolerances[t]);
                    put(&values, "width", widths[w]);
                    put(&values, "oversampling", oversamplings[o]);
                    put(&values, "kernel", kernels[k]);
                    agree(&values, counts);
                }
    /* Both answers occur often, so neither side gives a constant answer. */
    assert_true(counts[0] > 200 && counts[1] > 500);
    param_values_init(kind, &values);
    for (int d = 0; depths[d]; d++)
        for (int o = 0; o < 2; o++) {
            put(&values, "bin_depth", depths[d]);
            put(&values, "overflow", o ? "cpu" : "split");
            agree(&values, counts);
        }
}

/* The table's ranges are the engine's: one step beyond is refused by both. */
static void the_ranges_are_the_engines(void **state)
{
    (void)state;
    static const struct {
        enum recon_param param;
        const char *text;
        double number;
    } beyond[] = {
        {RECON_TOLERANCE, "0.9999999e-6", 0.9999999e-6},
        {RECON_TOLERANCE, "0.1000001", 0.1000001},
        {RECON_WIDTH, "1", 1},
        {RECON_WIDTH, "11", 11},
        {RECON_WIDTH, "-1", -1},
        {RECON_OVERSAMPLING, "1.1249999", 1.1249999},
        {RECON_OVERSAMPLING, "2.0000001", 2.0000001},
        {RECON_OVERSAMPLING, "0.5", 0.5},
        {RECON_OVERSAMPLING, "-1", -1},
        {RECON_BIN_DEPTH, "-2", -2},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        struct param_values values;
        struct nufft_info info;
        param_values_init(kind, &values);
        assert_int_equal(engine(&values, (const int[]){8, 8, 1}, &info), 0);
        assert_int_equal(param_values_set(kind, &values, kind->params[beyond[i].param].name, beyond[i].text),
                         ERR_BAD_PARAMETER);
        values.value[beyond[i].param].integer = (int64_t)beyond[i].number;
        values.value[beyond[i].param].real = beyond[i].number;
        assert_int_equal(engine(&values, (const int[]){8, 8, 1}, &info), ERR_BAD_PARAMETER);
        const char *text = err_last()->text;
        assert_true(text[0] >= 'A' && text[0] <= 'Z' && text[strlen(text) - 1] == '.');
    }
}

/* Accepted values pass through the whole pipeline, with the requested grid. */
static void accepted_parameters_make_an_image(void **state)
{
    (void)state;
    struct flat flat;
    flat_init(&flat, 16, 16, 1);
    spokes(&flat, 30, 32, 2);
    int images = 0;
    for (int w = 0; widths[w]; w++)
        for (int o = 0; oversamplings[o]; o++)
            for (int k = 0; kernels[k]; k++)
                for (int c = 0; c < (w == 0 ? 4 : 1); c++) {
                    char text[160];
                    struct param_values values;
                    struct job_outcome out = {0};
                    const char *coils = c % 2 ? "none" : "rss", *output = c / 2 ? "complex" : "magnitude";
                    param_values_init(kind, &values);
                    put(&values, "width", widths[w]);
                    put(&values, "oversampling", oversamplings[o]);
                    put(&values, "kernel", kernels[k]);
                    put(&values, "coils", coils);
                    put(&values, "output", output);
                    put(&values, "tolerance", "1e-3");
                    int said = kind_check(kind, &values);
                    assert_int_equal(said != 0, said == ERR_BAD_PARAMETER);
                    snprintf(text, sizeof text, "tolerance=1e-3 width=%s oversampling=%s kernel=%s coils=%s output=%s",
                             widths[w], oversamplings[o], kernels[k], coils, output);
                    assert_int_equal(run(&flat, text, &out, NULL), said);
                    images += said == 0;
                    drop(&out);
                }
    assert_true(images > 100);
    flat_free(&flat);
}

/* In three dimensions a radial kernel gets the larger grid that it needs, and the report says so. */
static void a_radial_kernel_in_3d_gets_a_larger_grid(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 8, 8, 8);
    for (uint32_t i = 0; i < 60; i++)
        random_readout(&flat, 20, 1, 3, 3);
    succeed(&flat, "tolerance=1e-2 kernel=radial oversampling=1.5 dcf=none", &out);
    const json_t *warnings = json_object_get(out.report, "warnings");
    bool told = false;
    for (size_t i = 0; i < json_array_size(warnings); i++)
        told = told || strstr(json_string_value(json_array_get(warnings, i)), "a radial kernel needs 1.75 at least");
    assert_true(told);
    assert_true(json_number_value(json_object_get(out.report, "oversampling")) >= 1.75);
    drop(&out);
    flat_free(&flat);
}

static void jobs_of_earlier_versions_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        enum recon_param param;
        int64_t number;
    } former[] = {{"width", "0", RECON_WIDTH, 0},
                  {"oversampling", "0", RECON_OVERSAMPLING, 0},
                  {"encoding", "-1", RECON_ENCODING, -1}};
    for (size_t i = 0; i < sizeof former / sizeof *former; i++) {
        struct param_values values, plain;
        param_values_init(kind, &values);
        param_values_init(kind, &plain);
        put(&values, former[i].name, former[i].text);
        assert_string_equal(values.value[former[i].param].text, "auto");
        assert_int_equal(values.value[former[i].param].integer, former[i].number);
        assert_true(values.value[former[i].param].real == (double)former[i].number);
        assert_int_equal(plain.value[former[i].param].integer, former[i].number);
        assert_string_equal(plain.value[former[i].param].text, "auto");
        assert_string_equal(param_spelling(&kind->params[former[i].param], former[i].text), "auto");
        assert_string_equal(param_spelling(&kind->params[former[i].param], "3"), "3");
        assert_int_equal(kind_check(kind, &values), 0);
    }
}

static void a_refusal_names_the_accepted_values(void **state)
{
    (void)state;
    static const struct {
        const char *given[3][2], *said;
    } wrong[] = {
        {{{"output", "complex"}}, "output=complex needs coils=none"},
        {{{"kernel", "radial"}, {"oversampling", "1.25"}},
         "Parameter oversampling is 1.25; with kernel=radial it takes auto or a number from 1.5 to 2."},
        {{{"width", "2"}}, "With width=2 the gridding error is at least 0.068 of the image, above tolerance=0.001."},
        {{{"oversampling", "1.125"}, {"tolerance", "1e-6"}}, "With oversampling=1.125 the gridding error is at least "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct param_values values;
        param_values_init(kind, &values);
        for (int j = 0; j < 3 && wrong[i].given[j][0]; j++)
            put(&values, wrong[i].given[j][0], wrong[i].given[j][1]);
        assert_int_equal(kind_check(kind, &values), ERR_BAD_PARAMETER);
        if (!strstr(err_last()->text, wrong[i].said))
            fail_msg("\"%s\" is not in \"%s\"", wrong[i].said, err_last()->text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_check_and_the_engine_agree),
        cmocka_unit_test(the_ranges_are_the_engines),
        cmocka_unit_test(accepted_parameters_make_an_image),
        cmocka_unit_test(a_radial_kernel_in_3d_gets_a_larger_grid),
        cmocka_unit_test(jobs_of_earlier_versions_are_accepted),
        cmocka_unit_test(a_refusal_names_the_accepted_values),
    };
    return cmocka_run_group_tests_name("parameters", tests, fresh, done);
}
