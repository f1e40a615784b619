/* Kind cutcp (recon/cutcp/), from a file through the codec to the volume, against sums in double precision: unequal
 * charges, uneven positions, edges, periodic faces, charges exactly on the cutoff or a lattice point, spacings that do
 * not divide the box; and against a third party's lattice of a water box. */
#include "tests/unit/cutcp_fixture.h"

/* ---- tests ---- */

static void test_every_spacing(void **state)
{
    (void)state;
    static const double spacing[] = {0.3, 0.4, 0.5, 0.75, 1, 2.9, 7};
    struct charges c = charges_random(1, 150, 9, 5);
    for (size_t i = 0; i < sizeof spacing / sizeof *spacing; i++)
        for (int form = 0; form < 2; form++) {
            char query[MOST_QUERY];
            snprintf(query, sizeof query, "spacing=%g cutoff=2.7 padding=1.1 exclusion=0.6 form=%s", spacing[i],
                     form ? "taylor2" : "thesis");
            struct run run = run_charges(&c, query);
            for (size_t d = 0; d < 3; d++) {
                double low = INFINITY, high = -INFINITY;
                for (size_t k = 0; k < c.count; k++) {
                    low = fmin(low, c.at[3 * k + d]);
                    high = fmax(high, c.at[3 * k + d]);
                }
                assert_true(run.volume->origin[d] == low - 1.1 && run.volume->spacing[d] == spacing[i]);
                assert_int_equal(run.volume->size[d], (size_t)floor((high + 1.1 - (low - 1.1)) / spacing[i]) + 1);
            }
            compare(&run, &(struct oracle){.cutoff = 2.7, .exclusion = 0.6, .taylor2 = form}, &c, 7);
            job_outcome_free(&run.outcome);
        }
    charges_free(&c);
}

/* Charges on lattice points, and charges exactly a cutoff or an exclusion radius from others or on the edge; all
 * positions are exact in binary. */
static void test_exact_distances(void **state)
{
    (void)state;
    struct charges c = charges_create(1, 40);
    uint64_t seed = 3;
    for (size_t i = 0; i < c.count; i++) {
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = rint(4 * 6 * uniform_next(&seed)) / 4;
        c.q[i] = uniform_next(&seed) - 0.5;
    }
    for (size_t d = 0; d < 3; d++)
        c.at[d] = 0, c.at[3 + d] = 6;
    struct run run = run_charges(&c, "spacing=0.5 cutoff=2.5 padding=0.5 exclusion=0");
    assert_int_equal(run.volume->size[0], 15); /* (6 + 1) / 0.5 + 1 */
    compare(&run, &(struct oracle){.cutoff = 2.5}, &c, 1);
    assert_non_null(strstr(warning_of(&run), "charges lie on lattice points"));
    job_outcome_free(&run.outcome);
    run = run_charges(&c, "spacing=0.5 cutoff=2.5 padding=0.5 exclusion=1");
    compare(&run, &(struct oracle){.cutoff = 2.5, .exclusion = 1}, &c, 1);
    assert_string_equal(warning_of(&run), "");
    job_outcome_free(&run.outcome);
    charges_free(&c);
}

/* Boxes larger and smaller than the cutoff; atoms outside the box are images of atoms inside. */
static void test_periodic(void **state)
{
    (void)state;
    struct charges c = charges_random(1, 24, 20, 9);
    struct run run = run_charges(&c, "spacing=0.5 cutoff=3 periodic=yes box=7.2,5,8 exclusion=0.4");
    assert_true(run.volume->size[0] == 14 && run.volume->size[1] == 10 && run.volume->size[2] == 16);
    assert_true(run.volume->spacing[0] == 7.2 / 14 && run.volume->spacing[1] == 0.5);
    compare(&run, &(struct oracle){.cutoff = 3, .exclusion = 0.4, .box = {7.2, 5, 8}}, &c, 11);
    job_outcome_free(&run.outcome);
    run = run_charges(&c, "spacing=1 cutoff=5.5 periodic=yes box=4,2.5,8 exclusion=0 form=taylor2");
    compare(&run, &(struct oracle){.cutoff = 5.5, .taylor2 = true, .box = {4, 2.5, 8}}, &c, 5);
    job_outcome_free(&run.outcome);
    charges_free(&c);
}

/* 400,000 charges: all but one in a single bin, the last alone in a wide lattice, out of reach of the others. */
static void test_dense(void **state)
{
    (void)state;
    struct charges c = charges_create(1, 400000);
    uint64_t seed = 1;
    for (size_t i = 0; i < c.count; i++) {
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = i ? 0.2 + 0.6 * uniform_next(&seed) : 4;
        c.q[i] = uniform_next(&seed) - 0.25;
    }
    struct run run = run_charges(&c, "spacing=1.5 cutoff=1.25 padding=0.25 exclusion=0");
    compare(&run, &(struct oracle){.cutoff = 1.25}, &c, 1);
    job_outcome_free(&run.outcome);
    charges_free(&c);
}

static void test_same_bits(void **state)
{
    (void)state;
    struct charges c = charges_random(2, 3000, 15, 2);
    struct run one, many;
    int fd = file_of(&c);
    assert_int_equal(job_run(&one, fd, "cutoff=4", 1, NULL, NULL), 0);
    for (int threads = 2; threads <= 7; threads += 5) {
        assert_int_equal(job_run(&many, fd, "cutoff=4", threads, NULL, NULL), 0);
        const struct volume *a = one.volume, *b = many.volume;
        assert_memory_equal(a->size, b->size, sizeof a->size);
        assert_memory_equal(a->data, b->data, a->frames * a->size[0] * a->size[1] * a->size[2] * sizeof *a->data);
        job_outcome_free(&many.outcome);
    }
    job_outcome_free(&one.outcome);
    close(fd);
    charges_free(&c);
}

static void test_frames_and_units(void **state)
{
    (void)state;
    struct charges c = charges_random(3, 60, 6, 8);
    struct run each = run_charges(&c, "cutoff=3 exclusion=0.5"),
               mean = run_charges(&c, "cutoff=3 exclusion=0.5 frames=mean");
    struct run warm = run_charges(&c, "cutoff=3 exclusion=0.5 units=kT/e");
    compare(&each, &(struct oracle){.cutoff = 3, .exclusion = 0.5}, &c, 7);
    const struct volume *v = each.volume, *m = mean.volume, *w = warm.volume;
    const size_t nodes = v->size[0] * v->size[1] * v->size[2];
    assert_true(v->frames == 3 && m->frames == 1 && w->frames == 3);
    assert_string_equal(v->title, "Electrostatic potential, e/A");
    assert_string_equal(w->title, "Electrostatic potential, kT/e");
    for (size_t i = 0; i < nodes; i++) {
        const double sum = (double)v->data[i] + (double)v->data[nodes + i] + (double)v->data[2 * nodes + i];
        assert_true(fabs((double)m->data[i] - sum / 3) <= FLT_EPSILON * fabs(sum / 3));
        /* Each sum of about 60 charges is rounded again in the other unit. */
        assert_true(fabs((double)w->data[i] - 560.47254 * (double)v->data[i]) <= 560.5 * 60 * 2 * (double)FLT_EPSILON);
    }
    job_outcome_free(&each.outcome);
    job_outcome_free(&mean.outcome);
    job_outcome_free(&warm.outcome);
    struct run first = run_charges(&c, "cutoff=3 exclusion=0.5 frames=first");
    assert_int_equal(first.volume->frames, 1);
    compare(&first, &(struct oracle){.cutoff = 3, .exclusion = 0.5}, &c, 3);
    job_outcome_free(&first.outcome);
    charges_free(&c);
}

/* Progress never falls, and a listener can cancel the sum half way. With one thread, the number of calls does not
 * depend on scheduling. */
struct watcher {
    double fraction, stop;
    int told;
};

static int watch(void *context, const struct step_progress *now)
{
    struct watcher *watcher = context;
    assert_true(now->fraction >= watcher->fraction && now->fraction <= 1);
    watcher->fraction = now->fraction;
    watcher->told += now->step == 1;
    return now->fraction >= watcher->stop;
}

static void test_progress(void **state)
{
    (void)state;
    struct charges c = charges_random(2, 2000, 30, 4);
    struct watcher whole = {.stop = 2}, half = {.stop = 0.4};
    struct run run;
    int fd = file_of(&c);
    assert_int_equal(job_run(&run, fd, "cutoff=6", 1, &(struct job_listener){&whole, watch}, NULL), 0);
    assert_true(whole.told > 10);
    job_outcome_free(&run.outcome);
    assert_int_equal(job_run(&run, fd, "cutoff=6", 1, &(struct job_listener){&half, watch}, NULL), ERR_CANCELED);
    assert_true(half.told > 1 && half.told < whole.told && half.fraction < 0.6);
    close(fd);
    charges_free(&c);
}

static void test_refused(void **state)
{
    (void)state;
    struct charges c = charges_random(1, 20, 6, 8);
    struct run run;
    int fd = file_of(&c);
    const struct job_room small = {.most = 1000, .most_of = "option result-limit"};
    assert_int_equal(job_run(&run, fd, "", 1, NULL, &small), ERR_RESULT_TOO_LARGE);
    assert_non_null(strstr(err_last()->text, "option result-limit"));
    const struct job_room full = {.free = 1000};
    assert_int_equal(job_run(&run, fd, "", 1, NULL, &full), ERR_SPOOL_FULL);
    assert_int_equal(job_run(&run, fd, "spacing=0.01 padding=900", 1, NULL, NULL), ERR_NO_MEMORY);
    assert_non_null(strstr(err_last()->text, "MB are free"));
    assert_int_equal(job_run(&run, fd, "periodic=yes", 1, NULL, NULL), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "the file contains none"));
    close(fd);
    static const char *const wrong[] = {"box=1,2,3", "box=1,2 periodic=yes", "box=1,2,-3 periodic=yes",
                                        "exclusion=3 cutoff=3", "cutoff=20000"};
    for (size_t i = 0; i < 4; i++) {
        const struct param_values values = values_of(wrong[i]);
        assert_int_equal(kind_check(&cutcp_kind, &values), ERR_BAD_PARAMETER);
    }
    charges_free(&c);
}

/* Points near a charge are 0, and no others, whatever the size of potentials: of large charges, of 20,000 in one spot
 * beside two of the other sign. Charges are refused beyond what float32 tells apart. */
static void test_exclusion_of_large_charges(void **state)
{
    (void)state;
    struct charges c = charges_random(1, 90, 8, 21);
    for (size_t i = 0; i < c.count; i++)
        c.q[i] *= 1e10;
    struct run run = run_charges(&c, "cutoff=3 exclusion=0.8 padding=2");
    compare(&run, &(struct oracle){.cutoff = 3, .exclusion = 0.8}, &c, 3);
    job_outcome_free(&run.outcome);
    for (size_t i = 0; i < c.count; i++)
        c.q[i] *= 100;
    int fd = file_of(&c);
    assert_int_equal(job_run(&run, fd, "cutoff=3 exclusion=0.8", 1, NULL, NULL), ERR_MALFORMED_FILE);
    assert_non_null(strstr(err_last()->text, "frame 1 add up to"));
    assert_int_equal(job_run(&run, fd, "cutoff=3 exclusion=0", 1, NULL, NULL), 0);
    job_outcome_free(&run.outcome);
    close(fd);
    charges_free(&c);
    c = charges_create(1, 20002);
    for (size_t i = 0; i < c.count; i++) {
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = i < 2 ? 3 - 6.0 * (double)i : 0.003 * (double)(i % 7);
        c.q[i] = i < 2 ? -5 : 0.01;
    }
    run = run_charges(&c, "cutoff=3 exclusion=1 padding=1");
    compare(&run, &(struct oracle){.cutoff = 3, .exclusion = 1}, &c, 5);
    job_outcome_free(&run.outcome);
    charges_free(&c);
}

/* Both planes that Parboil's cutcp gives for a water box, and its sum: ../shared/data/README.md. */
static void test_water_box(void **state)
{
    (void)state;
    enum { SIDE = 82 };
    const char *data = getenv("MRIRECON_DATA");
    char path[512];
    struct run run;
    float sum, plane[2][SIDE * SIDE];
    snprintf(path, sizeof path, "%s/particles/watbox.sl40.lattice.dat", data ? data : "../shared/data");
    FILE *reference = fopen(path, "rb");
    snprintf(path, sizeof path, "%s/particles/watbox.sl40.pqr", data ? data : "../shared/data");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!reference || fd < 0) {
        print_message("%s is not there (MRIRECON_DATA)\n", path);
        skip();
    }
    uint32_t count = 0;
    assert_true(fread(&sum, sizeof sum, 1, reference) == 1 && fread(&count, sizeof count, 1, reference) == 1);
    assert_int_equal(count, SIDE * SIDE);
    assert_int_equal(fread(plane, sizeof plane, 1, reference), 1);
    assert_int_equal(job_run(&run, fd, "spacing=0.5 cutoff=12 exclusion=1 padding=0.5", 2, NULL, NULL), 0);
    const struct volume *v = run.volume;
    assert_true(v->size[0] == SIDE && v->size[1] == SIDE && v->size[2] == SIDE);
    double all = 0;
    for (size_t i = 0; i < SIDE * SIDE; i++) {
        assert_true(fabsf(v->data[i] - plane[0][i]) <= 1e-5f);
        assert_true(fabsf(v->data[i + (size_t)SIDE * SIDE * (SIDE - 1)] - plane[1][i]) <= 1e-5f);
    }
    for (size_t i = 0; i < (size_t)SIDE * SIDE * SIDE; i++)
        all += fabs((double)v->data[i]);
    /* The reference's sum was accumulated in float32. */
    assert_true(fabs(all / (double)sum - 1) < 1e-5);
    job_outcome_free(&run.outcome);
    fclose(reference);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_spacing),
        cmocka_unit_test(test_exact_distances),
        cmocka_unit_test(test_periodic),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_frames_and_units),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_exclusion_of_large_charges),
        cmocka_unit_test(test_water_box),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
