/* Views in recon/recon.h: their parameters, converted to text and back; and the view of a volume of signed values. */
#include "recon/image/picture.h"
#include "recon/recon.h"
#include "recon/volume/volume.h"

#include "gridding/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_view_is_recovered_from_its_text(void **state)
{
    (void)state;
    static const char *const windows[] = {"1%,99%", "0%,100%", "0.5,1",       "-3e-20,1e20",
                                          "+1,2",   ".5,.25",  "1.23456789,2"};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct result_view view, back;
        char text[VIEW_TEXT], again[VIEW_TEXT];
        view_init(&view);
        assert_int_equal(view_set(&view, "window", windows[i]), 0);
        assert_int_equal(view_set(&view, "frame", "9999999"), 0);
        assert_int_equal(view_set(&view, "size", "4096"), 0);
        view_print(&view, text);
        assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-"), strlen(text)); /* file names */
        assert_true(view_read(text, &back));
        view_print(&back, again);
        assert_string_equal(text, again);
        assert_true(back.frame == 9999999 && back.slice == VIEW_MIDDLE && back.size == 4096);
        assert_int_equal(back.percent, strchr(windows[i], '%') != NULL);
    }
    struct result_view view;
    static const char *const no_views[] = {"",
                                           "f0",
                                           "f0_s0_c0_z0_p1_99x",
                                           "f0_s0_c0_z0_p1_99 ",
                                           "f00_s0_c0_z0_p1_99",
                                           "f0_s0_c0_z0_q1_99",
                                           "f 0_s0_c0_z0_p1_99",
                                           "f0_s0_c0_z0_p+1_99",
                                           "f0_s0_c0_z0_p1_nan0"};
    for (size_t i = 0; i < sizeof no_views / sizeof *no_views; i++)
        assert_false(view_read(no_views[i], &view));
}

static uint8_t *view_of(const struct volume *volume, const struct result_view *view, int *width, int *height)
{
    FILE *in = tmpfile(), *out = tmpfile();
    assert_true(in && out);
    assert_int_equal(volume_write(volume, VOLUME_NPY, fileno(in)), 0);
    rewind(in);
    lseek(fileno(in), 0, SEEK_SET);
    assert_int_equal(volume_view(fileno(in), view, fileno(out)), 0);
    rewind(out);
    png_image png = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_stdio(&png, out));
    assert_int_equal(png.format, PNG_FORMAT_GRAY);
    uint8_t *grey = malloc(PNG_IMAGE_SIZE(png));
    assert_true(png_image_finish_read(&png, NULL, grey, 0, NULL));
    *width = (int)png.width;
    *height = (int)png.height;
    fclose(in);
    fclose(out);
    return grey;
}

static void views_of_a_volume_have_signed_values_and_square_pixels(void **state)
{
    (void)state;
    struct volume *volume;
    struct result_view view;
    int width, height;
    assert_int_equal(volume_create(&volume, 2, (const size_t[3]){4, 3, 2}), 0);
    for (int d = 0; d < 3; d++) {
        volume->origin[d] = 0;
        volume->spacing[d] = d == 1 ? 2 : 1; /* nodes are twice as far apart in y */
    }
    strcpy(volume->title, "test");
    for (int i = 0; i < 48; i++)
        volume->data[i] = (float)(i - 24);
    view_init(&view);
    assert_int_equal(view_set(&view, "frame", "1"), 0);
    assert_int_equal(view_set(&view, "slice", "0"), 0);
    assert_int_equal(view_set(&view, "window", "0,48"), 0); /* -24..24 */
    uint8_t *grey = view_of(volume, &view, &width, &height);
    assert_true(width == 4 && height == 6);
    for (int y = 0; y < 6; y++)
        for (int x = 0; x < 4; x++) {
            double value = 24 + y / 2 * 4 + x; /* of -24..23, from -24 on */
            assert_int_equal(grey[y * 4 + x], (int)(value / 48 * 255 + 0.5));
        }
    free(grey);
    assert_int_equal(view_set(&view, "window", "0%,100%"), 0); /* of both frames: -24..23 */
    grey = view_of(volume, &view, &width, &height);
    assert_int_equal(grey[0], (int)(24.0 / 47 * 255 + 0.5));
    free(grey);
    FILE *in = tmpfile(), *out = tmpfile();
    assert_int_equal(volume_write(volume, VOLUME_NPY, fileno(in)), 0);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"frame", "slice", "channel"};
        view_init(&view);
        assert_int_equal(view_set(&view, names[i], "2"), 0);
        lseek(fileno(in), 0, SEEK_SET);
        assert_int_equal(volume_view(fileno(in), &view, fileno(out)), ERR_NOT_ACCEPTABLE);
    }
    fclose(in);
    fclose(out);
    volume_free(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_is_recovered_from_its_text),
        cmocka_unit_test(views_of_a_volume_have_signed_values_and_square_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
