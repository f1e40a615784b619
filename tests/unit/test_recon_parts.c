/* recon/mri/recon_parts.h: images of streams gridded in parts: bit-identical whenever the stream arrives, equal to the
 * whole image within the tolerance, and without anything added ahead if the trajectory turns out to differ. */
#include "recon/mri/plan_cache.h"
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_parts.h"
#include "tests/random.h"
#include "tests/unit/stream_fixture.h"

/* 33,800 samples: parts of 130, 65, 33, 16, 8, 4, 2, 1 and 1 readouts. */
enum { MANY = 260, LONG = 130, HALF = 131, NEARLY = 225, PARTS = 9 };

static struct recon_cache *cache;

static void begin_of(struct job *job, struct stream *s, unsigned readouts)
{
    stream_begin_of(s, "", readouts, LONG, 1);
    s->flat.header.streamed = s->builder.header.streamed = 1;
    job_begin(job, s, "coils", "rss");
    assert_int_equal(param_values_set(job->request.kind, &job->values, "tolerance", "1e-3"), 0);
    job->request.cache = cache;
}

/* Three repetitions of the same trajectory. */
static void begin_series(struct job *job, struct stream *s, bool slices)
{
    stream_begin_of(s, slices ? "<slice><maximum>2</maximum></slice>" : "", MANY, LONG, 3);
    s->flat.header.streamed = s->builder.header.streamed = 1;
    for (size_t i = MANY; i < 3 * MANY; i++)
        memcpy(s->flat.traj + s->flat.readouts[i].traj, s->flat.traj + s->flat.readouts[i % MANY].traj,
               (size_t)LONG * s->flat.readouts[i].traj_dims * sizeof(float));
    for (size_t i = 0; i < 3 * MANY && slices; i++) {
        s->flat.readouts[i].idx[SCAN_SLICE] = s->flat.readouts[i].idx[SCAN_REPETITION];
        s->flat.readouts[i].idx[SCAN_REPETITION] = 0;
        s->flat.readouts[i].flags |= (uint64_t)(i % MANY == MANY - 1) << (SCAN_LAST_IN_SLICE - 1);
    }
    job_begin(job, s, "coils", "rss");
    assert_int_equal(param_values_set(job->request.kind, &job->values, "tolerance", "1e-3"), 0);
    job->request.cache = cache;
}

static void begin(struct job *job, struct stream *s)
{
    begin_of(job, s, MANY);
}

static void end(struct job *job, struct stream *s)
{
    recon_ahead_free(job->ahead);
    free(job->sent);
    stream_end(s);
}

/* Different data on the same trajectory. */
static void data_change(struct stream *s, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < s->flat.header.data_count; i++)
        s->flat.data[i] = (struct c32){(float)(uniform_next(&state) - 0.5), (float)uniform_next(&state)};
}

/* The whole stream arrives, then its image is computed. */
static void run_all(struct job *job, struct stream *s)
{
    stream_close(s);
    assert_true(job_step(job));
    assert_int_equal(job->shown, 1);
}

static double distance(const struct image_series *a, const struct image_series *b)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < a->size[0] * a->size[1]; i++) {
        off += pow((double)a->data[i] - (double)b->data[i], 2);
        all += pow((double)b->data[i], 2);
    }
    return sqrt(off / all);
}

/* A number of the report, or -1 if it has none of this name. */
static int64_t told(const struct job_outcome *out, const char *name)
{
    return json_object_get(out->report, name) ? reported(out, name) : -1;
}

/* The stream's image equals that of the same stream without anything computed ahead, bit for bit, and that of the whole
 * scan. `parts`: number of parts of the image, -1 if it was not gridded in parts; `ahead`: how many of them were added
 * before the end, likewise. */
static void check(struct job *job, struct stream *s, int64_t parts, int64_t ahead)
{
    struct job_outcome plain = {0}, quick = {0}, one = {0};
    job->request.show = NULL;
    job->request.ahead = job->ahead;
    assert_int_equal(recon_run_scan(&quick, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    assert_int_equal(reported(&quick, "images_ahead"), 1);
    assert_true(json_is_real(json_object_get(json_object_get(quick.report, "ahead_stages"), "gridding")));
    assert_int_equal(told(&quick, "parts"), parts);
    assert_int_equal(told(&quick, "parts_ahead"), ahead);
    job->request.ahead = NULL;
    assert_int_equal(recon_run_scan(&plain, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    assert_int_equal(told(&plain, "parts_ahead"), ahead < 0 ? -1 : 0);
    job->request.cache = NULL;
    s->flat.header.streamed = 0;
    assert_int_equal(recon_run_scan(&one, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    assert_int_equal(told(&one, "parts"), -1);
    const struct image_series *a = images_of(&quick), *b = images_of(&plain), *c = images_of(&one);
    assert_memory_equal(a->data, b->data, a->size[0] * a->size[1] * sizeof(float));
    assert_true(distance(a, c) < 1e-5); /* the same float32 sums in a different order */
    drop(&plain);
    drop(&quick);
    drop(&one);
}

/* A first stream, whose plan is kept for those that follow. */
static void first_stream_of_its_trajectory(void)
{
    struct stream s;
    struct job job;
    recon_cache_free(cache);
    assert_int_equal(recon_cache_create(&cache), 0);
    begin(&job, &s);
    stream_put(&s, HALF);
    assert_false(job_step(&job));
    run_all(&job, &s);
    check(&job, &s, PARTS, 0);
    end(&job, &s);
}

static void parts_are_added_ahead_once_the_trajectory_is_known(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    first_stream_of_its_trajectory();
    begin(&job, &s);
    data_change(&s, 5);
    for (size_t count = 10; count <= NEARLY; count += 43) {
        stream_put(&s, count);
        assert_false(job_step(&job));
    }
    assert_int_equal(job.shown, 0);
    run_all(&job, &s);
    assert_int_equal(recon_begun_of(job.ahead)->seen.compared, MANY); /* each readout once */
    assert_int_equal(recon_begun_of(job.ahead)->seen.joined, MANY);
    check(&job, &s, PARTS, 2);
    end(&job, &s);
}

static void all_parts_may_be_added_before_the_end(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    first_stream_of_its_trajectory();
    begin(&job, &s);
    data_change(&s, 6);
    stream_put(&s, MANY);
    assert_false(job_step(&job));
    run_all(&job, &s);
    check(&job, &s, PARTS, PARTS);
    end(&job, &s);
}

/* The job begins before the end of the stream was noticed: it uses the parts that were added. */
static void the_job_uses_the_parts_that_were_added(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    struct job_outcome quick = {0}, plain = {0};
    first_stream_of_its_trajectory();
    begin(&job, &s);
    data_change(&s, 10);
    stream_put(&s, NEARLY);
    assert_false(job_step(&job));
    job.request.show = NULL;
    job.request.ahead = job.ahead;
    assert_int_equal(recon_run_scan(&quick, dev, &job.request, NULL, flat_scan(&s.flat)), 0);
    assert_int_equal(told(&quick, "images_ahead"), -1);
    assert_int_equal(told(&quick, "parts_ahead"), 2);
    job.request.ahead = NULL;
    assert_int_equal(recon_run_scan(&plain, dev, &job.request, NULL, flat_scan(&s.flat)), 0);
    const struct image_series *a = images_of(&quick), *b = images_of(&plain);
    assert_memory_equal(a->data, b->data, a->size[0] * a->size[1] * sizeof(float));
    drop(&quick);
    drop(&plain);
    end(&job, &s);
}

/* A spoke that differs, within the first part or after what was added; and noise that arrives late and changes the
 * mixing of coils. */
static void parts_of_a_scan_that_turns_out_different_are_not_used(void **state)
{
    (void)state;
    for (int row = 0; row < 3; row++) {
        struct stream s;
        struct job job;
        first_stream_of_its_trajectory();
        begin(&job, &s);
        data_change(&s, 7);
        const size_t place = row == 0 ? 3 : NEARLY + 5;
        if (row < 2)
            s.flat.traj[s.flat.readouts[place].traj] += 1e-3f;
        else
            for (size_t i = place; i < place + 9; i++)
                s.flat.readouts[i].flags = UINT64_C(1) << (SCAN_NOISE - 1);
        stream_put(&s, NEARLY);
        assert_false(job_step(&job));
        run_all(&job, &s);
        check(&job, &s, row < 2 ? PARTS : PARTS - 1, 0);
        end(&job, &s);
    }
}

/* The whole stream arrives; its images equal those of the same stream without anything ahead, bit for bit. */
static void check_bits_of(struct job *job, struct stream *s, struct job_outcome *plain)
{
    struct job_outcome quick = {0};
    stream_close(s);
    assert_true(job_step(job));
    job->request.show = NULL;
    job->request.ahead = job->ahead;
    assert_int_equal(recon_run_scan(&quick, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    job->request.ahead = NULL;
    if (plain->results == 0)
        assert_int_equal(recon_run_scan(plain, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    const struct image_series *a = images_of(&quick), *b = images_of(plain);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->data, b->data, a->count * a->size[0] * a->size[1] * sizeof(float));
    drop(&quick);
}

static void check_bits(struct job *job, struct stream *s)
{
    struct job_outcome plain = {0};
    check_bits_of(job, s, &plain);
    drop(&plain);
}

/* Noise after the image: the trajectory equals the last job's up to its end, but the noise changes the mixing of
 * coils. */
static void parts_of_differently_mixed_coils_are_not_used(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    first_stream_of_its_trajectory();
    begin_of(&job, &s, MANY + 9);
    data_change(&s, 11);
    for (size_t i = MANY; i < MANY + 9; i++)
        s.flat.readouts[i].flags = UINT64_C(1) << (SCAN_NOISE - 1);
    stream_put(&s, NEARLY);
    assert_false(job_step(&job));
    check_bits(&job, &s);
    end(&job, &s);
}

/* Slice 1 comes before slice 0 on the same trajectory: the parts belong to the slice that turns out to be the
 * second. */
static void parts_of_other_readouts_are_not_used(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    first_stream_of_its_trajectory();
    begin_of(&job, &s, 2 * MANY);
    data_change(&s, 12);
    for (size_t i = 0; i < MANY; i++) {
        const struct scan_readout *second = &s.flat.readouts[i + MANY];
        s.flat.readouts[i].idx[SCAN_SLICE] = 1;
        memcpy(s.flat.traj + second->traj, s.flat.traj + s.flat.readouts[i].traj, LONG * 2 * sizeof *s.flat.traj);
    }
    stream_put(&s, NEARLY);
    assert_false(job_step(&job));
    check_bits(&job, &s);
    end(&job, &s);
}

/* A job that runs in between, on the same plan or another, discards what was added. */
static void a_job_in_between_discards_the_parts(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct stream s, t;
        struct job job, between;
        first_stream_of_its_trajectory();
        begin(&job, &s);
        data_change(&s, 8);
        stream_put(&s, HALF);
        assert_false(job_step(&job));
        begin(&between, &t);
        data_change(&t, 9);
        if (other)
            t.flat.traj[0] += 1e-3f;
        run_all(&between, &t);
        end(&between, &t);
        stream_put(&s, NEARLY);
        assert_false(job_step(&job));
        run_all(&job, &s);
        check(&job, &s, PARTS, other ? 0 : 2); /* readouts that arrived are added again if the plan still exists */
        end(&job, &s);
    }
}

/* Images of one trajectory, of which the first is that of an earlier job or of none: repetitions, slices one after the
 * other, or a series by the number of readouts. Each image but the first is gridded while it arrives. */
static void images_of_a_series_are_added_one_after_the_other(void **state)
{
    (void)state;
    for (int row = 0; row < 4; row++) {
        struct stream s;
        struct job job;
        struct job_outcome quick = {0}, plain = {0};
        if (row == 1)
            first_stream_of_its_trajectory();
        begin_series(&job, &s, row == 2);
        for (size_t i = 0; i < 3 * MANY && row == 3; i++)
            s.flat.readouts[i].idx[SCAN_REPETITION] = 0;
        if (row == 3)
            assert_int_equal(param_values_set(job.request.kind, &job.values, "frame_readouts", "260"), 0);
        for (size_t f = 0; f < 3; f++) {
            stream_put(&s, f * MANY + HALF);
            assert_false(job_step(&job));
            assert_int_equal(job.shown, f);
            stream_put(&s, f * MANY + NEARLY);
            assert_false(job_step(&job));
        }
        stream_close(&s);
        assert_true(job_step(&job));
        assert_int_equal(job.shown, 3);
        job.request.show = NULL;
        job.request.ahead = job.ahead;
        assert_int_equal(recon_run_scan(&quick, dev, &job.request, NULL, flat_scan(&s.flat)), 0);
        assert_int_equal(reported(&quick, "images_ahead"), 3);
        assert_int_equal(told(&quick, "parts_ahead"), 2); /* of the last image */
        job.request.ahead = NULL;
        assert_int_equal(recon_run_scan(&plain, dev, &job.request, NULL, flat_scan(&s.flat)), 0);
        assert_int_equal(told(&plain, "parts_ahead"), 0);
        const struct image_series *a = images_of(&quick), *b = images_of(&plain);
        assert_memory_equal(a->data, b->data, 3 * a->size[0] * a->size[1] * sizeof(float));
        drop(&quick);
        drop(&plain);
        end(&job, &s);
        recon_cache_free(cache);
        assert_int_equal(recon_cache_create(&cache), 0);
    }
}

/* Few samples, single coils, and scans that are not streams are gridded as a whole. */
static void scans_without_parts_are_gridded_as_a_whole(void **state)
{
    (void)state;
    for (int row = 0; row < 2; row++) {
        struct stream s;
        struct job job;
        begin(&job, &s);
        if (row == 0)
            s.flat.header.streamed = s.builder.header.streamed = 0;
        else
            assert_int_equal(param_values_set(job.request.kind, &job.values, "coils", "adaptive"), 0);
        stream_put(&s, NEARLY);
        assert_false(job_step(&job));
        run_all(&job, &s);
        check(&job, &s, -1, -1);
        end(&job, &s);
    }
}

static void divisions(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    size_t offsets[COUNT + 1], ends[PARTS_MOST + 1];
    for (size_t i = 0; i <= COUNT; i++)
        offsets[i] = i * 512;
    assert_int_equal(recon_parts_divide(offsets, 1, ends), 1);
    assert_int_equal(ends[1], 1);
    assert_int_equal(recon_parts_divide(offsets, 402, ends), 9);
    for (int p = 0; p < 9; p++)
        assert_int_equal(ends[p + 1], ((const size_t[]){201, 302, 352, 377, 390, 396, 399, 401, 402})[p]);
    for (size_t i = 0; i <= COUNT; i++)
        offsets[i] = i * 100000;
    assert_int_equal(recon_parts_divide(offsets, COUNT, ends), PARTS_MOST);
    assert_int_equal(ends[PARTS_MOST], COUNT);
    assert_int_equal(recon_parts_divide(offsets, 1, ends), 1);
    assert_int_equal(recon_parts_divide(offsets, 2, ends), 2);
}

/* A number of questions that are answered before one is refused. */
static int questions_left(void *left, const struct step_progress *now)
{
    (void)now;
    return --*(int *)left < 0;
}

static void begin_long(struct job *job, struct stream *s, uint64_t seed)
{
    const unsigned samples =
        500; /* parts take more than a millisecond, by the costs that are assumed: they are asked about */
    stream_begin_of(s, "", MANY, samples, 1);
    s->flat.header.streamed = s->builder.header.streamed = 1;
    job_begin(job, s, "coils", "rss");
    job->request.cache = cache;
    data_change(s, seed);
}

/* Another job stops the worker at any of its questions, also while it adds a part: of which no sample is added twice.
 * The streams after the first have the same data, and the trajectory of the one before, which the cache has. */
static void a_part_that_was_interrupted_is_added_anew(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    struct job_outcome plain = {0};
    bool interrupted = true;
    begin_long(&job, &s, 20);
    run_all(&job, &s);
    end(&job, &s);
    for (int asked = 0; interrupted; asked++) {
        int left = asked;
        bool over = false, more = false;
        const struct job_listener listener = {&left, questions_left};
        begin_long(&job, &s, 21);
        stream_put(&s, MANY);
        const int rc = recon_ahead_go(job.ahead, dev, &job.request, &listener, &more, &over);
        assert_true(rc == 0 || rc == ERR_CANCELED);
        interrupted = rc != 0;
        assert_false(job_step(&job));
        check_bits_of(&job, &s, &plain);
        end(&job, &s);
    }
    drop(&plain);
}

/* Coils are gathered by several threads; the failure is that of the first coil, with its sentence. */
static void data_that_are_not_finite_are_refused_whichever_thread_finds_them(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    struct job_outcome out = {0};
    const unsigned samples = 600; /* parts of 78,000 samples and less, of two coils */
    stream_begin_of(&s, "", MANY, samples, 1);
    s.flat.header.streamed = 1;
    job_begin(&job, &s, "coils", "rss");
    s.flat.data[s.flat.readouts[50].data + samples].re = NAN; /* coil 1 */
    s.flat.data[s.flat.readouts[100].data].im = INFINITY;     /* coil 0 */
    for (int i = 0; i < 8; i++) {
        err_set(ERR_CANCELED, "of before");
        assert_int_equal(recon_run_scan(&out, dev, &job.request, NULL, flat_scan(&s.flat)), ERR_DATA_NONFINITE);
        assert_int_equal(err_last()->code, ERR_DATA_NONFINITE);
        assert_int_equal(err_last()->acquisition, 100);
    }
    end(&job, &s);
}

static int cache_make(void **state)
{
    (void)state;
    return recon_cache_create(&cache);
}

static int cache_drop(void **state)
{
    (void)state;
    recon_cache_free(cache);
    cache = NULL;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_make, cache_drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divisions),
        TEST(a_part_that_was_interrupted_is_added_anew),
        TEST(parts_are_added_ahead_once_the_trajectory_is_known),
        TEST(all_parts_may_be_added_before_the_end),
        TEST(images_of_a_series_are_added_one_after_the_other),
        TEST(the_job_uses_the_parts_that_were_added),
        TEST(parts_of_a_scan_that_turns_out_different_are_not_used),
        TEST(parts_of_differently_mixed_coils_are_not_used),
        TEST(parts_of_other_readouts_are_not_used),
        TEST(a_job_in_between_discards_the_parts),
        TEST(data_that_are_not_finite_are_refused_whichever_thread_finds_them),
        TEST(scans_without_parts_are_gridded_as_a_whole),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
