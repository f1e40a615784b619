/* Memory of iterative methods on a GPU that is nearly full: fewer coils at a time, to the same bits; with less than the
 * fewest need the job is refused before any launch, and the GPU remains usable. Without a GPU, reports everything as
 * skipped. */
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/recon_fixture.h"

enum { SIDE = 96, PIXELS = SIDE * SIDE * SIDE, COILS = 8, READOUTS = 64, SAMPLES = 400 };

static const char parameters[] = "dcf=given method=cg-sense iterations=2 virtual_coils=none";

/* Of all of the device's memory but `left`. */
static void *ballast_take(size_t left)
{
    size_t available, total;
    void *ballast = NULL;
    assert_int_equal(dev_memory(dev, &available, &total), 0);
    assert_true(available > left);
    assert_int_equal(dev_alloc(dev, available - left, &ballast), 0);
    return ballast;
}

static void little_memory(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome roomy, tight, again;
    random_reset(NULL);
    flat_init(&flat, SIDE, SIDE, SIDE);
    for (int r = 0; r < READOUTS; r++)
        random_readout(&flat, SAMPLES, COILS, 4, 3);
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    succeed(&flat, parameters, &roomy);
    const double bytes = (double)reported(&roomy, "device_memory_bytes");
    assert_true(bytes > 2.0 * COILS * PIXELS * sizeof(struct c32)); /* images and maps alone */

    void *ballast = ballast_take((size_t)(0.75 * bytes));
    succeed(&flat, parameters, &tight);
    const double fewer = (double)reported(&tight, "device_memory_bytes");
    assert_true(fewer <= 0.75 * bytes);
    assert_memory_equal(images_of(&roomy)->data, images_of(&tight)->data, PIXELS * sizeof(float));
    dev_release(dev, ballast);

    ballast = ballast_take((size_t)(0.2 * bytes));
    refuse(&flat, parameters, ERR_GPU_OOM, -1);
    assert_true(err_last()->required > err_last()->available);
    assert_non_null(strstr(err_last()->text, "the GPU's memory"));
    dev_release(dev, ballast);

    succeed(&flat, parameters, &again);
    assert_memory_equal(images_of(&roomy)->data, images_of(&again)->data, PIXELS * sizeof(float));
    printf("# %.0f MB, %.0f MB where 3/4 of it are free\n", 1e-6 * bytes, 1e-6 * fewer);
    drop(&again);
    drop(&tight);
    drop(&roomy);
    dev_free(dev);
    flat_free(&flat);
}

int main(void)
{
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(little_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
