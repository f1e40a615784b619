/* The table of kinds: defaults, ranges, error messages. */
#include "recon/recon.h"
#include "recon/mri/recon_job.h"

#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"
#include "gridding/traj/traj.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct kind *recon;
static struct param_values values;

static int fresh(void **state)
{
    (void)state;
    recon = kind_find("recon");
    assert_non_null(recon);
    param_values_init(recon, &values);
    return 0;
}

static int set(const char *name, const char *text)
{
    return param_values_set(recon, &values, name, text);
}

static void every_default_is_accepted_by_its_parameter(void **state)
{
    (void)state;
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++) {
        struct param_values given;
        param_values_init(kind, &given);
        assert_true(kind->help && *kind->help && kind->inputs[0].name && kind->results[0].name);
        size_t count = 0;
        for (const struct param *param = kind->params; param->name; param++, count++) {
            assert_true(param->help && *param->help);
            assert_false(given.value[count].given);
            assert_int_equal(param_values_set(kind, &given, param->name, param->fallback), 0);
            assert_true(given.value[count].given);
            assert_false(param_changed(kind, &given, (int)count));
        }
        assert_true(count <= KIND_MAX_PARAMS);
        double shares = 0;
        for (int i = 0; i < kind_steps(kind); i++) {
            assert_true(*kind->steps[i].help && kind->steps[i].share > 0);
            assert_int_equal(kind_step_find(kind, kind->steps[i].name), i);
            shares += kind->steps[i].share;
        }
        assert_true(fabs(shares - 1) < 1e-9);
        assert_int_equal(kind_step_find(kind, "nothing"), -1);
        assert_ptr_equal(kind_find(kind->name), kind);
    }
    assert_null(kind_find("recons"));
}

static void choices_match_their_enums(void **state)
{
    (void)state;
    assert_int_equal(set("dcf", "pipe"), 0);
    assert_int_equal(values.value[RECON_DCF].integer, DCF_PIPE);
    assert_int_equal(set("dcf", "none"), 0);
    assert_int_equal(values.value[RECON_DCF].integer, DCF_NONE);
    assert_int_equal(set("traj_units", "per_metre"), 0);
    assert_int_equal(values.value[RECON_TRAJ_UNITS].integer, TRAJ_UNIT_PER_METRE);
    assert_int_equal(set("kernel", "radial"), 0);
    assert_int_equal(values.value[RECON_KERNEL].integer, NUFFT_RADIAL);
    assert_int_equal(set("coils", "adaptive"), 0);
    assert_int_equal(values.value[RECON_COILS].integer, RECON_COILS_ADAPTIVE);
    assert_int_equal(set("coils", "sense"), 0);
    assert_int_equal(values.value[RECON_COILS].integer, RECON_COILS_SENSE);
    assert_int_equal(set("coils", "none"), 0);
    assert_int_equal(values.value[RECON_COILS].integer, RECON_COILS_NONE);
    assert_int_equal(set("virtual_coils", "none"), 0);
    assert_int_equal(values.value[RECON_VIRTUAL_COILS].integer, RECON_VIRTUAL_COILS_NONE);
    assert_int_equal(set("virtual_coils", "auto"), 0);
    assert_int_equal(values.value[RECON_VIRTUAL_COILS].integer, RECON_VIRTUAL_COILS_AUTO);
    assert_int_equal(set("output", "phase"), 0);
    assert_int_equal(values.value[RECON_OUTPUT].integer, RECON_OUTPUT_PHASE);
    assert_int_equal(set("output", "complex"), 0);
    assert_int_equal(values.value[RECON_OUTPUT].integer, RECON_OUTPUT_COMPLEX);
    assert_int_equal(set("matrix", "encoded"), 0);
    assert_int_equal(values.value[RECON_MATRIX].integer, RECON_MATRIX_ENCODED);
    assert_int_equal(values.value[RECON_OVERFLOW].integer, NUFFT_SPLIT);
    assert_int_equal(set("overflow", "cpu"), 0);
    assert_int_equal(values.value[RECON_OVERFLOW].integer, NUFFT_OVERFLOW_CPU);
}

static void numbers_must_be_within_their_range(void **state)
{
    (void)state;
    assert_int_equal(set("tolerance", "1e-5"), 0);
    assert_true(values.value[RECON_TOLERANCE].real == 1e-5);
    assert_string_equal(values.value[RECON_TOLERANCE].text, "1e-5");
    assert_int_equal(set("width", "6"), 0);
    assert_int_equal(values.value[RECON_WIDTH].integer, 6);
    assert_int_equal(set("encoding", "0"), 0);
    assert_int_equal(values.value[RECON_ENCODING].integer, 0);
    assert_int_equal(set("oversampling", "1.125"), 0);
    assert_true(values.value[RECON_OVERSAMPLING].real == 1.125);
    static const char *const bad[][2] = {
        {"tolerance", "0"},
        {"tolerance", "0.2"},
        {"tolerance", ""},
        {"tolerance", " 1e-3"},
        {"tolerance", "1e-3x"},
        {"tolerance", "nan"},
        {"tolerance", "inf"},
        {"width", "11"},
        {"width", "-1"},
        {"width", "1"},
        {"oversampling", "1"},
        {"oversampling", "0.5"},
        {"oversampling", "Auto"},
        {"width", "4.5"},
        {"width", "99999999999999999999"},
        {"width", ""},
        {"encoding", "64"},
        {"encoding", "-2"},
        {"bin_depth", "0"},
        {"bin_depth", "-1"},
        {"bin_depth", "Auto"},
        {"bin_depth", "2147483648"},
        {"bin_depth", ""},
        {"overflow", "gpu"},
        {"coils", "RSS"},
        {"coils", ""},
        {"group", "a\nb"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct param_values before = values;
        assert_int_equal(set(bad[i][0], bad[i][1]), ERR_BAD_PARAMETER);
        assert_non_null(strstr(err_last()->text, bad[i][0]));
        assert_memory_equal(&before, &values, sizeof values);
    }
}

static void a_number_is_stored_exactly_or_refused(void **state)
{
    (void)state;
    char text[sizeof values.value[0].text + 1];
    memset(text, '0', sizeof text);
    strcpy(text + sizeof text - 3, "6");
    assert_int_equal(set("width", text), 0);
    assert_int_equal(values.value[RECON_WIDTH].integer, 6);
    assert_string_equal(values.value[RECON_WIDTH].text, text);
    memset(text, '0', sizeof text);
    strcpy(text + sizeof text - 2, "6");
    struct param_values before = values;
    assert_int_equal(set("width", text), ERR_BAD_PARAMETER);
    assert_string_equal(err_last()->text, "Parameter width has 128 characters; it takes at most 127.");
    assert_memory_equal(&before, &values, sizeof values);
}

static void words_stand_for_numbers_below_the_range(void **state)
{
    (void)state;
    assert_int_equal(values.value[RECON_BIN_DEPTH].integer, NUFFT_DEPTH_AUTO);
    assert_int_equal(set("bin_depth", "none"), 0);
    assert_int_equal(values.value[RECON_BIN_DEPTH].integer, NUFFT_DEPTH_NONE);
    assert_string_equal(values.value[RECON_BIN_DEPTH].text, "none");
    assert_int_equal(set("bin_depth", "auto"), 0);
    assert_int_equal(values.value[RECON_BIN_DEPTH].integer, NUFFT_DEPTH_AUTO);
    assert_int_equal(set("bin_depth", "2147483647"), 0);
    assert_int_equal(values.value[RECON_BIN_DEPTH].integer, 2147483647);
    assert_int_equal(set("bin_depth", "none of it"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "it takes auto, none or a whole number from 1 to 2147483647"));
    assert_int_equal(set("width", "none"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "it takes auto or a whole number from 2 to 10 (default auto)"));
    assert_int_equal(set("oversampling", "3"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "it takes auto or a number from 1.125 to 2 (default auto)"));
    assert_int_equal(set("dcf_iterations", "0"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "it takes auto or a whole number from 1 to 1000 (default auto)"));
    /* If a range contains 0, the words stand for numbers below it. */
    assert_int_equal(set("encoding", "auto"), 0);
    assert_int_equal(values.value[RECON_ENCODING].integer, -1);
    assert_true(values.value[RECON_ENCODING].real == -1);
    assert_int_equal(set("oversampling", "auto"), 0);
    assert_true(values.value[RECON_OVERSAMPLING].real == 0);
}

static void text_has_a_maximum_length(void **state)
{
    (void)state;
    char text[129];
    memset(text, 'g', sizeof text);
    text[128] = '\0';
    assert_int_equal(set("group", text), ERR_BAD_PARAMETER);
    text[127] = '\0';
    assert_int_equal(set("group", text), 0);
    assert_string_equal(values.value[RECON_GROUP].text, text);
}

static void an_error_lists_the_accepted_values(void **state)
{
    (void)state;
    assert_int_equal(set("dcf", "ramp"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "auto, given, none, analytic, pipe"));
    assert_int_equal(set("tolerance", "2"), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "from 1e-06 to 0.1"));
}

static void an_error_suggests_the_nearest_name(void **state)
{
    (void)state;
    assert_int_equal(set("tolerence", "1e-3"), ERR_UNKNOWN_PARAMETER);
    assert_non_null(strstr(err_last()->text, "Did you mean \"tolerance\"?"));
    assert_int_equal(set("dcf_iter", "3"), ERR_UNKNOWN_PARAMETER);
    assert_non_null(strstr(err_last()->text, "Did you mean \"dcf_iterations\"?"));
    assert_int_equal(set("COIL", "rss"), ERR_UNKNOWN_PARAMETER);
    assert_non_null(strstr(err_last()->text, "Did you mean \"coils\"?"));
    assert_int_equal(set("zzzzzzzzzzzzzzzzzzz", "1"), ERR_UNKNOWN_PARAMETER);
    assert_null(strstr(err_last()->text, "Did you mean"));
    assert_non_null(strstr(err_last()->text, "oversampling"));
}

/* A set is stored in the order of its table, and contains each of its words once. */
static void a_set_is_a_list_of_its_words(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", ",", "image,", ",image", "image,,maps", "image,image", "images", "Image", "image maps", "image,maps,image"};
    static const struct {
        const char *given, *kept;
        int64_t bits;
    } right[] = {
        {"image", "image", 1}, {"maps", "maps", 2}, {"image,maps", "image,maps", 3}, {"maps,image", "image,maps", 3}};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_int_equal(set("results", right[i].given), 0);
        assert_int_equal(values.value[RECON_RESULTS_WANTED].integer, right[i].bits);
        assert_string_equal(values.value[RECON_RESULTS_WANTED].text, right[i].kept);
        assert_int_equal(kind_results_wanted(recon, right[i].given), right[i].bits);
    }
    assert_int_equal(kind_result_default(recon, "image,maps"), RECON_RESULT_IMAGE);
    assert_int_equal(kind_result_default(recon, "maps"), RECON_RESULT_MAPS);
    assert_int_equal(kind_results_wanted(recon, NULL), 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct param_values before = values;
        assert_int_equal(set("results", wrong[i]), ERR_BAD_PARAMETER);
        assert_non_null(strstr(err_last()->text, "one or more, with commas, of image, maps"));
        assert_memory_equal(&before, &values, sizeof values);
        assert_int_equal(kind_results_wanted(recon, wrong[i]), 1);
    }
}

/* Every result file of every kind is recognised by its name, which the spool uses; no other name is. */
static void files_of_results_are_known_by_name(void **state)
{
    (void)state;
    static const char *const others[] = {"image",        "image.",    ".h5",     "image.H5",
                                         "image.h5.png", "images.h5", "imag.h5", ""};
    struct result_file found;
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++) {
        int count = 0;
        for (; kind->results[count].name; count++) {
            const struct kind_result *result = &kind->results[count];
            assert_int_equal(kind_result_find(kind, result->name), count);
            assert_int_equal(strcspn(result->name, "./"), strlen(result->name));
            for (int f = 0; result->form->formats[f].name; f++) {
                char name[KIND_FILE_NAME];
                kind_file_name(kind, (struct result_file){count, f}, name);
                assert_true(kind_file_find(kind, name, &found) && found.result == count && found.format == f);
                assert_string_equal(kind_file_media(kind, name), result->form->formats[f].media);
                assert_int_equal(form_format_find(result->form, result->form->formats[f].media), f);
            }
        }
        assert_true(count > 0 && count <= KIND_MAX_RESULTS);
        for (const struct param *param = kind->params; count > 1 && param->name; param++)
            for (int i = 0; strcmp(param->name, "results") == 0 && i <= count; i++)
                assert_true(i < count ? strcmp(param->choices[i], kind->results[i].name) == 0 : !param->choices[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(kind_file_find(recon, others[i], &found));
    assert_string_equal(kind_file_media(recon, "log.json"), "application/json");
    assert_string_equal(kind_file_media(NULL, "image.h5"), "application/octet-stream");
}

static void text_breaks_at_spaces(void **state)
{
    (void)state;
    assert_int_equal(text_line("", 10), 0);
    assert_int_equal(text_line("one two", 10), 7);
    assert_int_equal(text_line("one two", 7), 7);
    assert_int_equal(text_line("one two", 6), 3);
    assert_int_equal(text_line("one two three", 7), 7);
    assert_int_equal(text_line("one two three", 12), 7);
    assert_int_equal(text_line("longest two", 5), 7); /* a word is never broken */
    assert_int_equal(text_line("longest", 5), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_default_is_accepted_by_its_parameter, fresh),
        cmocka_unit_test_setup(choices_match_their_enums, fresh),
        cmocka_unit_test_setup(numbers_must_be_within_their_range, fresh),
        cmocka_unit_test_setup(a_number_is_stored_exactly_or_refused, fresh),
        cmocka_unit_test_setup(words_stand_for_numbers_below_the_range, fresh),
        cmocka_unit_test_setup(text_has_a_maximum_length, fresh),
        cmocka_unit_test_setup(a_set_is_a_list_of_its_words, fresh),
        cmocka_unit_test_setup(files_of_results_are_known_by_name, fresh),
        cmocka_unit_test_setup(an_error_lists_the_accepted_values, fresh),
        cmocka_unit_test_setup(an_error_suggests_the_nearest_name, fresh),
        cmocka_unit_test_setup(text_breaks_at_spaces, fresh),
    };
    return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
