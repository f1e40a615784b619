/* frames_follow() of recon/mri/frames.h: the images of a scan that arrives are those of the readouts that have come,
 * and each readout is looked at once. */
#include "recon/mri/frames.h"
#include "tests/random.h"
#include "tests/unit/flat_scan.h"

#include "gridding/base/err.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { READOUTS = 90 };

static uint64_t random_state = 3;

static unsigned below(unsigned n)
{
    return (unsigned)(n * uniform_next(&random_state));
}

static void same(const struct frames *a, const struct frames *b, const struct scan *scan)
{
    assert_int_equal(a->encoding, b->encoding);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->used, b->used);
    assert_int_equal(a->elsewhere, b->elsewhere);
    assert_int_equal(a->placed, b->placed);
    assert_memory_equal(a->ignored, b->ignored, sizeof a->ignored);
    assert_memory_equal(a->readouts, b->readouts, a->used * sizeof *a->readouts);
    for (size_t f = 0; f < a->count; f++) {
        const struct frame *x = &a->frame[f], *y = &b->frame[f];
        assert_true(x->first == y->first && x->count == y->count && x->repetition == y->repetition);
        assert_true(x->samples == y->samples && x->coils == y->coils && x->one_place == y->one_place);
        assert_true(x->averages == y->averages && x->partitions == y->partitions);
    }
    for (size_t i = 0; i < a->used && a->kept; i++)
        assert_int_equal(a->kept[i], frames_kept(&scan->readouts[a->readouts[i]]));
}

/* The images of `readouts` are those of frames_create(), or the failure is the same. Returns whether they ascend. */
static bool followed(struct flat *flat, struct frames_grown **grown, size_t readouts, int encoding, bool averages)
{
    struct frames *one = NULL, *other = NULL;
    const struct scan *scan = flat_scan(flat);
    flat->header.readouts = readouts;
    const int rc = frames_follow(&one, grown, scan, encoding, averages);
    assert_int_equal(rc, frames_create(&other, scan, encoding, averages, NULL));
    if (rc == 0)
        same(one, other, scan);
    const bool ascends = rc == 0 && one->ascends;
    assert_true(rc != 0 || ascends == (one->kept != NULL));
    frames_free(one);
    frames_free(other);
    return ascends;
}

/* What may happen in a scan: `strange` of 0 to 5 is something that makes frames_create() sort anew, or fail. */
static void readout_change(struct scan_readout *r, unsigned i, unsigned strange)
{
    r->idx[SCAN_AVERAGE] = (uint16_t)below(3);
    r->idx[SCAN_STEP2] = (uint16_t)below(4);
    r->idx[SCAN_REPETITION] = (uint16_t)(i / 40);
    r->idx[SCAN_SLICE] = (uint16_t)(i / 20 % 2);
    r->discard_pre = (uint16_t)below(3);
    r->discard_post = (uint16_t)below(3);
    r->encoding = (uint16_t)(below(8) == 0);
    r->position[2] = i == 25 ? 1 : 0;
    if (below(6) == 0)
        r->flags = UINT64_C(1) << (below(2) ? SCAN_NOISE - 1 : SCAN_NAVIGATION - 1);
    if (i % 37 != 30 || r->flags)
        return;
    r->idx[SCAN_SLICE] = strange == 1 ? 5 : strange == 2 ? 0 : r->idx[SCAN_SLICE];
    r->coils = strange == 3 ? 1 : r->coils;
    r->discard_pre = strange == 4 ? r->samples : r->discard_pre;
    r->discard_post = strange == 4 ? 0 : r->discard_post;
}

static void beginnings_have_the_images_of_their_readouts(void **state)
{
    (void)state;
    int ascending = 0, others = 0;
    for (unsigned round = 0; round < 60; round++) {
        struct flat flat;
        struct frames_grown *grown = NULL;
        const int encoding = (int)below(3) - 1;
        const bool averages = round % 4 == 3; /* which come in no order: such images are sorted */
        flat_init(&flat, 16, 16, 1);
        flat.header.encodings = 2;
        for (unsigned i = 0; i < READOUTS; i++)
            readout_change(flat_add(&flat, 8, 2, i < 5 ? 0 : 3), i, round % 6);
        for (size_t count = 0; count <= READOUTS; count += 1 + below(9))
            if (followed(&flat, &grown, count, encoding, averages))
                ascending++;
            else
                others++;
        frames_grown_free(grown);
        flat_free(&flat);
    }
    assert_true(ascending > 100 && others > 100);
}

/* Earlier readouts are not read again: what would now be noise stays an image's. */
static void readouts_are_looked_at_once(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    struct frames_grown *grown = NULL;
    flat_init(&flat, 16, 16, 1);
    for (unsigned i = 0; i < READOUTS; i++)
        flat_add(&flat, 8, 2, 3)->idx[SCAN_REPETITION] = (uint16_t)(i / 40);
    assert_true(followed(&flat, &grown, 50, -1, false));
    for (unsigned i = 1; i < 49; i++)
        flat.readouts[i].flags = UINT64_C(1) << (SCAN_NOISE - 1);
    flat.header.readouts = READOUTS;
    assert_int_equal(frames_follow(&frames, &grown, flat_scan(&flat), -1, false), 0);
    assert_true(frames->ascends && frames->used == READOUTS && frames->count == 3 && frames->frame[1].count == 40);
    frames_free(frames);
    frames_grown_free(grown);
    flat_free(&flat);
}

/* Readouts of another encoding space come first, which is taken only until one with a trajectory has come. */
static void an_encoding_space_with_a_trajectory_comes_later(void **state)
{
    (void)state;
    struct flat flat;
    struct frames_grown *grown = NULL;
    flat_init(&flat, 16, 16, 1);
    flat.header.encodings = 2;
    for (unsigned i = 0; i < 10; i++)
        flat_add(&flat, 8, 2, i < 4 ? 0 : 3)->encoding = i < 4;
    assert_true(followed(&flat, &grown, 3, -1, false));
    assert_false(followed(&flat, &grown, 10, -1, false));
    frames_grown_free(grown);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginnings_have_the_images_of_their_readouts),
        cmocka_unit_test(readouts_are_looked_at_once),
        cmocka_unit_test(an_encoding_space_with_a_trajectory_comes_later),
    };
    return cmocka_run_group_tests_name("frames that follow", tests, NULL, NULL);
}
