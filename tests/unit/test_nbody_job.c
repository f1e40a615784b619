/* A job of kind nbody as a whole: its progress. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "recon/nbody/nbody.h"
#include "tests/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <png.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { BODIES = 300 };

static int file_of(void)
{
    const int fd = memfd_create("bodies", MFD_CLOEXEC);
    dprintf(fd, "x,y,z,mass\n");
    for (uint64_t i = 0; i < BODIES; i++)
        dprintf(fd, "%.6f,%.6f,%.6f,1\n", uniform(3 * i), uniform(3 * i + 1), uniform(3 * i + 2));
    return fd;
}

/* The last fraction reported of each step. */
struct seen {
    double last[NBODY_STEPS_ALL], before;
};

static int hear(void *context, const struct step_progress *now)
{
    struct seen *seen = context;
    assert_true(now->fraction >= seen->before && now->fraction <= 1);
    seen->last[now->step] = seen->before = now->fraction;
    return 0;
}

static struct seen run(const char *steps)
{
    char codec[256];
    const char *bin = getenv("MRIRECON_BIN");
    const int file = file_of();
    struct param_values values;
    struct decoder *decoder = NULL;
    struct dev *dev = NULL;
    struct job_outcome outcome = {.results = 0};
    struct seen seen = {.before = 0};
    const struct job_listener listener = {&seen, hear};
    param_values_init(&nbody_kind, &values);
    assert_int_equal(param_values_set(&nbody_kind, &values, "forces", "direct"), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "softening", "0.1"), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "steps", steps), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "boundary", "open"), 0);
    snprintf(codec, sizeof codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    assert_int_equal(decoder_create(&decoder, codec), 0);
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    const struct job_request request = {.kind = &nbody_kind, .values = &values, .input = file, .decoder = decoder};
    if (kind_run_job(&outcome, dev, &request, &listener) != 0)
        fail_msg("%s", err_last()->text);
    job_outcome_free(&outcome);
    dev_free(dev);
    decoder_free(decoder);
    close(file);
    return seen;
}

/* The shares of the steps are those of this job, not the table's: one evaluation each. */
static void progress_is_by_evaluations(void **state)
{
    (void)state;
    const double read = nbody_kind.steps[NBODY_STEP_READ].share, write = nbody_kind.steps[NBODY_STEP_WRITE].share;
    const double between = 1 - read - write;
    struct seen seen = run("0");
    assert_true(seen.last[NBODY_STEP_FORCES] > read + 0.8 * between);
    assert_true(seen.last[NBODY_STEP_FORCES] < 1 - write + 1e-9);
    assert_true(seen.last[NBODY_STEP_MOVE] == 0);
    seen = run("9");
    assert_true(seen.last[NBODY_STEP_FORCES] < read + 0.1 * between + 1e-9);
    assert_true(seen.last[NBODY_STEP_MOVE] > read + 0.9 * between);
    assert_true(seen.last[NBODY_STEP_MOVE] < 1 - write + 1e-9);
}

/* The picture as RGB, SIDE x SIDE; the caller's. */
enum { SIDE = 64 };

static uint8_t *picture_read(const struct nbody_outcome *o)
{
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    png_image png = {.version = PNG_IMAGE_VERSION};
    assert_int_equal(nbody_picture_write(o, 0, fd), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    FILE *file = fdopen(fd, "rb");
    assert_true(png_image_begin_read_from_stdio(&png, file));
    assert_true(png.width == SIDE && png.height == SIDE);
    png.format = PNG_FORMAT_RGB;
    uint8_t *rgb = malloc(PNG_IMAGE_SIZE(png));
    assert_true(png_image_finish_read(&png, NULL, rgb, 0, NULL));
    fclose(file);
    return rgb;
}

/* The picture shows the middle 99 % of the mass with a margin of a tenth, whatever the order and the signs of
 * positions: here a square, and not the few bodies far away. */
static void the_picture_shows_the_middle_of_the_mass(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct nbody_outcome *o;
    assert_int_equal(nbody_outcome_create(&o, MANY, 1), 0);
    o->picture = SIDE;
    for (size_t i = 0; i < MANY; i++) {
        const double far = i % 250 == 7 ? 1e6 : i % 250 == 130 ? -1e6 : 0; /* 0.4 % on each side */
        o->bodies.at[i][0] = far + uniform(2 * i) - 0.5;
        o->bodies.at[i][1] = far + uniform(2 * i + 1) - 3;
        o->bodies.at[i][2] = 0;
        o->bodies.mass[i] = 1;
    }
    uint8_t *rgb = picture_read(o);
    /* 0.1 % of the square on each side is beyond the quantiles: it is 64 / (1.1 * 0.998) = 58.3 pixels wide, with a
     * border of 2.9; a body is drawn into pixels half a pixel away from it. */
    int lit = 0;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const bool inside = x >= 4 && x < SIDE - 4 && y >= 4 && y < SIDE - 4;
            const bool border = x < 2 || x >= SIDE - 2 || y < 2 || y >= SIDE - 2;
            const int sum = rgb[3 * (y * SIDE + x)] + rgb[3 * (y * SIDE + x) + 1] + rgb[3 * (y * SIDE + x) + 2];
            lit += inside && sum > 0;
            assert_true(!border || sum == 0);
        }
    assert_true(lit > (SIDE - 8) * (SIDE - 8) * 9 / 10);
    free(rgb);
    nbody_outcome_free(o);
}

/* The picture of a canceled job does not pass over its bodies, which are not there. */
static void no_body_is_looked_at_after_a_cancel(void **state)
{
    (void)state;
    struct nbody_outcome *o;
    const atomic_bool cancel = true;
    assert_int_equal(nbody_outcome_create(&o, BODIES, 1), 0);
    o->picture = SIDE;
    double(*const kept)[3] = o->bodies.at;
    void *gone = mmap(NULL, BODIES * sizeof *kept, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(gone != MAP_FAILED);
    o->bodies.at = gone;
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    result_cancel_by(&cancel);
    assert_int_equal(nbody_picture_write(o, 0, fd), ERR_CANCELED);
    result_cancel_by(NULL);
    close(fd);
    munmap(gone, BODIES * sizeof *kept);
    o->bodies.at = kept;
    nbody_outcome_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_by_evaluations),
        cmocka_unit_test(the_picture_shows_the_middle_of_the_mass),
        cmocka_unit_test(no_body_is_looked_at_after_a_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
