/* Memory of iterative methods on a host of which the test says how much is free. */
#include "gridding/base/host_memory.h"
#include "tests/unit/iterative_fixture.h"

enum { SIZE = 48, COILS = 4, FRAMES = 6, SPOKES = 8, SAMPLES = 96 };

static size_t available_bytes;

/* In place of those of gridding/base/host_memory.c. */
void host_memory(size_t *available, size_t *total)
{
    *available = available_bytes;
    *total = SIZE_MAX / 2;
}

void host_memory_below(const char *root, size_t *available, size_t *total)
{
    (void)root;
    host_memory(available, total);
}

size_t host_memory_available(void)
{
    return available_bytes;
}

static double promised(struct flat *flat, const char *parameters, size_t available, struct job_outcome *out)
{
    available_bytes = available;
    succeed(flat, parameters, out);
    return (double)reported(out, "memory_bytes");
}

/* A series keeps its coil images where these are a small part of the memory, and plans each trajectory once; else it
 * grids them twice, in less memory, to the same bits. With less than that it is refused, with numbers and advice. */
static void test_a_series_in_little_memory(void **state)
{
    (void)state;
    static const char *const parameters[] = {"method=temporal-tv frames=6 iterations=3",
                                             "method=llr frames=6 window_frames=4 iterations=3"};
    static const int plans[] = {FRAMES, 4 + 4};
    struct flat flat;
    flat_init(&flat, SIZE, SIZE, 1);
    spokes(&flat, FRAMES * SPOKES, SAMPLES, COILS);
    for (int i = 0; i < 2; i++) {
        struct job_outcome much = {0}, little = {0};
        const double most = promised(&flat, parameters[i], (size_t)1 << 40, &much);
        const double least = promised(&flat, parameters[i], (size_t)most, &little); /* a quarter of it is too little */
        const struct image_series *a = images_of(&much), *b = images_of(&little);
        assert_int_equal(reported(&much, "plans"), plans[i]);
        assert_int_equal(reported(&little, "plans"), 2 * plans[i]);
        assert_true(most - least >= (i == 0 ? FRAMES - 1 : 3) * COILS * SIZE * SIZE * (double)sizeof(struct c32));
        assert_int_equal(a->count, FRAMES);
        assert_memory_equal(a->data, b->data, FRAMES * SIZE * SIZE * sizeof(float));
        assert_string_equal(decided(&little, "k-space"), decided(&much, "k-space"));
        drop(&much);
        drop(&little);
        available_bytes = (size_t)least - 1;
        refuse(&flat, parameters[i], ERR_NO_MEMORY, -1);
        assert_int_equal(err_last()->required, (int64_t)least);
        assert_int_equal(err_last()->available, (int64_t)least - 1);
        assert_non_null(strstr(err_last()->text, "window_frames"));
    }
    flat_free(&flat);
}

/* The part of k-space that a series covers is that of all its trajectories, also where they are not planned again:
 * spokes, and in the last image samples up to the corners, which no ellipse covers. */
static void test_all_trajectories_are_covered(void **state)
{
    (void)state;
    static const char parameters[] = "method=temporal-tv frames=6 iterations=2 dcf=none";
    struct flat flat;
    struct job_outcome much = {0}, little = {0};
    flat_init(&flat, SIZE, SIZE, 1);
    spokes(&flat, (FRAMES - 1) * SPOKES, SAMPLES, COILS);
    for (int r = 0; r < SPOKES; r++)
        random_readout(&flat, SAMPLES, COILS, 2, 2);
    const double most = promised(&flat, parameters, (size_t)1 << 40, &much);
    promised(&flat, parameters, (size_t)most, &little);
    assert_int_equal(reported(&little, "plans"), 2 * FRAMES);
    assert_string_equal(decided(&much, "k-space"), ""); /* all of it */
    assert_string_equal(decided(&little, "k-space"), "");
    assert_memory_equal(images_of(&much)->data, images_of(&little)->data, FRAMES * SIZE * SIZE * sizeof(float));
    drop(&much);
    drop(&little);
    flat_free(&flat);
}

/* Of one image the advice is another. */
static void test_one_image_in_little_memory(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, SIZE, SIZE, 1);
    spokes(&flat, SPOKES, SAMPLES, COILS);
    const double bytes = promised(&flat, "method=cg-sense iterations=2", (size_t)1 << 40, &out);
    drop(&out);
    available_bytes = (size_t)bytes - 1;
    refuse(&flat, "method=cg-sense iterations=2", ERR_NO_MEMORY, -1);
    assert_non_null(strstr(err_last()->text, "virtual_coils"));
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_series_in_little_memory, random_reset),
        cmocka_unit_test_setup(test_all_trajectories_are_covered, random_reset),
        cmocka_unit_test_setup(test_one_image_in_little_memory, random_reset),
    };
    return cmocka_run_group_tests(tests, single_open, device_close);
}
