/* Series in time: readouts divided into images, and methods that reconstruct a series as a whole. */
#include "tests/unit/recon_fixture.h"

/* Each image is the direct sum of its own readouts, and counts in time. */
static void test_a_series_is_divided(void **state)
{
    (void)state;
    enum { SIZE = 12, READOUTS = 14 };
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, SIZE, SIZE, 1);
    for (unsigned r = 0; r < READOUTS; r++)
        random_readout(&flat, 40, 2, 2, 2)->idx[SCAN_REPETITION] = (uint16_t)r;
    succeed(&flat, "frame_readouts=4 frame_window=1.5 dcf=none", &out);
    static const uint64_t masks[] = {0x3f, 0x1f8, 0x1f80};
    const struct image_series *images = images_of(&out);
    assert_int_equal(images->count, 3);
    assert_int_equal(reported(&out, "images"), 3);
    assert_string_equal(decided(&out, "frames"), "3");
    for (size_t f = 0; f < 3; f++) {
        const int n[3] = {SIZE, SIZE, 1};
        assert_int_equal(images->info[f].repetition, f);
        assert_true(rss_error(&flat, masks[f], 2, 2, -1, n, whole, images->data + f * SIZE * SIZE) < TOLERANCE);
    }
    drop(&out);
    refuse(&flat, "frames=15", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frames=3 frame_readouts=4", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frame_by=time", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frame_window=2", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frames=2 averages=separate", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_series_is_divided, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
