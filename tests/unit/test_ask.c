/* Long computations on the CPU ask whether to go on, and end when the answer is no (gridding/base/ask.h). */
#include "gridding/base/ask.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "gridding/fft/fft.h"
#include "gridding/nufft/normal.h"
#include "gridding/nufft/nufft_parts.h"
#include "gridding/sparse/sparse.h"
#include "gridding/traj/traj.h"
#include "tests/unit/allocate.h"
#include "tests/unit/nufft_fixture.h"

enum { N = 40, PIXELS = N * N * N, SAMPLES = 160000, PARTS = 2, FROM = SAMPLES / 3, WAVES = 1 << 17 };

/* Everything on the CPU, whose memory is the host's. */
struct scene {
    struct dev *dev;
    struct nufft *plan;
    struct normal *normal;
    struct nufft_parts *parts;
    struct fft *fft;
    float *k, *weights, *floats;
    struct c32 *data, *image, *out;
    size_t bytes; /* of `out`, that the computation has written */
};

static const struct nufft_params params = {.dim = 3, .n = {N, N, N}, .tolerance = 1e-3, .batch = 1};
static const size_t firsts[PARTS + 1] = {0, FROM, SAMPLES};

static void scene_create(struct scene *s, enum spread spread, int threads)
{
    *s = (struct scene){.k = make_k(3, SAMPLES, spread), .weights = make_weights(SAMPLES)};
    s->data = make_values(SAMPLES, 3);
    s->image = make_values(PIXELS, 4);
    s->out = allocate(2 * SAMPLES, sizeof *s->out);
    s->floats = (float *)s->out;
    assert_int_equal(dev_create(&s->dev, DEV_CPU, 0, threads), 0);
    assert_int_equal(nufft_create(&s->plan, s->dev, &params, SAMPLES, s->k), 0);
    assert_int_equal(nufft_set_weights(s->plan, s->weights), 0);
    assert_int_equal(normal_create(&s->normal, s->dev, &params, SAMPLES, s->k, s->weights), 0);
    assert_int_equal(nufft_parts_create(&s->parts, s->plan, 1, PARTS, firsts, s->k, s->weights), 0);
    assert_int_equal(fft_create(&s->fft, s->dev, N), 0);
}

static void scene_free(struct scene *s)
{
    fft_free(s->fft);
    nufft_parts_free(s->parts);
    normal_free(s->normal);
    nufft_free(s->plan);
    dev_free(s->dev);
    free(s->out);
    free(s->image);
    free(s->data);
    free(s->weights);
    free(s->k);
}

/* ---- computations ---- */

static int plan(struct scene *s)
{
    struct nufft *made = NULL;
    const int rc = nufft_create(&made, s->dev, &params, SAMPLES, s->k);
    s->bytes = 0;
    assert_true((made != NULL) == (rc == 0));
    nufft_free(made);
    return rc;
}

static int weights(struct scene *s)
{
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++) /* a millisecond each */
        rc = nufft_set_weights(s->plan, s->weights);
    s->bytes = 0;
    return rc;
}

static int adjoint(struct scene *s)
{
    s->bytes = PIXELS * sizeof *s->out;
    return nufft_adjoint(s->plan, 1, s->data, s->out);
}

static int squares(struct scene *s)
{
    s->bytes = PIXELS * sizeof *s->floats;
    memset(s->floats, 0, s->bytes);
    return nufft_adjoint_squares(s->plan, 1, s->data, s->floats);
}

static int forward(struct scene *s)
{
    s->bytes = SAMPLES * sizeof *s->out;
    return nufft_forward(s->plan, 1, s->image, s->out);
}

static int convolve(struct scene *s)
{
    s->bytes = SAMPLES * sizeof *s->floats;
    return nufft_convolve(s->plan, s->weights, s->floats);
}

static int parts(struct scene *s)
{
    s->bytes = PIXELS * sizeof *s->out;
    int rc = nufft_parts_begin(s->parts);
    for (int p = 0; p < PARTS && rc == 0; p++) {
        memcpy(nufft_parts_data(s->parts, 0), s->data + firsts[p], (firsts[p + 1] - firsts[p]) * sizeof *s->data);
        rc = nufft_parts_add(s->parts);
    }
    return rc ? rc : nufft_parts_image(s->parts, s->out);
}

static int normal(struct scene *s)
{
    struct normal *made = NULL;
    const int rc = normal_create_of(&made, s->dev, &params, s->plan, s->k, NULL);
    s->bytes = 0;
    assert_true((made != NULL) == (rc == 0));
    normal_free(made);
    return rc;
}

static int apply(struct scene *s)
{
    s->bytes = PIXELS * sizeof *s->out;
    return normal_apply(s->normal, 1, s->image, s->out);
}

static int pipe_menon(struct scene *s)
{
    s->bytes = SAMPLES * sizeof *s->floats;
    return dcf_pipe(s->dev, 3, params.n, SAMPLES, s->k, NULL, 2, s->floats, NULL, NULL);
}

static int axis(struct scene *s)
{
    int rc = 0;
    s->bytes = PIXELS * sizeof *s->out;
    memcpy(s->out, s->image, s->bytes);
    for (int i = 0; i < 8 && rc == 0; i++)
        rc = fft_centred(s->fft, 1, N * N, s->out);
    return rc;
}

static int waves(struct scene *s)
{
    s->bytes = WAVES * sizeof *s->out;
    return vec_wave(s->dev, WAVES, 0.3, (const float *)s->data, s->out);
}

/* As of 64 coils with the same map, which are many vectors in one call. */
static int coils(struct scene *s)
{
    int rc = 0;
    s->bytes = PIXELS * sizeof *s->out;
    memset(s->out, 0, s->bytes);
    for (int i = 0; i < 64 && rc == 0; i++)
        rc = vec_multiply_conj_add(s->dev, PIXELS, 1, s->data, s->image, s->out);
    return rc;
}

static int wavelet(struct scene *s)
{
    const int n[SPARSE_AXES] = {N, N, N, 1}, levels[SPARSE_AXES] = {2, 2, 2, 0};
    s->bytes = PIXELS * sizeof *s->out;
    memcpy(s->out, s->image, s->bytes);
    int rc = sparse_wavelet(s->dev, n, levels, s->out);
    return rc ? rc : sparse_wavelet_inverse(s->dev, n, levels, s->out);
}

/* Copies of large memory. */
static int copies(struct scene *s)
{
    const size_t bytes = 2 * SAMPLES * sizeof *s->out;
    struct c32 *other = allocate(2 * SAMPLES, sizeof *other);
    s->bytes = PIXELS * sizeof *s->out;
    int rc = vec_copy(s->dev, PIXELS, s->image, s->out);
    if (rc == 0)
        rc = dev_upload(s->dev, other, s->out, bytes);
    if (rc == 0)
        rc = dev_zero(s->dev, other, bytes);
    free(other);
    return rc;
}

/* Two differences of 2^16 pixels. */
static int tv_step(struct scene *s)
{
    const size_t pixels = WAVES / 2;
    struct c32 *p = s->out, *r = s->out + WAVES;
    int rc = 0;
    s->bytes = 2 * WAVES * sizeof *s->out;
    memset(s->out, 0, s->bytes);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = sparse_tv_step(s->dev, pixels, 2, 0.3f, s->data, 0.4f, p, r);
    return rc;
}

static const struct work {
    const char *name;
    int (*run)(struct scene *s);
} works[] = {
    {"plan", plan},       {"weights", weights},       {"adjoint", adjoint}, {"squares", squares},
    {"forward", forward}, {"convolve", convolve},     {"parts", parts},     {"normal operator", normal},
    {"normal", apply},    {"Pipe-Menon", pipe_menon}, {"axis", axis},       {"waves", waves},
    {"coils", coils},     {"wavelet", wavelet},       {"tv", tv_step},      {"copies", copies},
};
enum { WORKS = sizeof works / sizeof *works, GRIDDING = 6 /* the first of them */ };

/* ---- who is asked ---- */

struct asked {
    int count, no_at; /* questions; the one that is answered with no, or -1 */
};

static int answer(void *context)
{
    struct asked *asked = context;
    return ++asked->count == asked->no_at ? err_set(ERR_CANCELED, "Enough.") : 0;
}

static int run_asked(struct scene *s, const struct work *work, int no_at, int *count)
{
    struct asked asked = {.no_at = no_at};
    const struct dev_ask ask = {&asked, answer};
    dev_ask_set(s->dev, &ask);
    const int rc = work->run(s);
    dev_ask_set(s->dev, NULL);
    *count = asked.count;
    return rc;
}

/* Questions are asked, and change no bit of a result; after a no there is none, and the computation fails; the next
 * one, which nobody ends, is as before. */
static void work_check(struct scene *s, const struct work *work, struct c32 *before, bool alone)
{
    int all = 0, count = 0;
    assert_int_equal(work->run(s), 0);
    memcpy(before, s->out, s->bytes);
    assert_int_equal(run_asked(s, work, -1, &all), 0);
    assert_memory_equal(before, s->out, s->bytes);
    if (alone && all < 2)
        fail_msg("%s asks %d times", work->name, all);
    /* Alone, a thread asks at the same places each time. Thread 0 of a team may have no share, and then asks nothing.
     */
    for (int at = 1; at <= (alone ? all : 1); at += all > 2 ? all / 2 : 1) {
        const int rc = run_asked(s, work, at, &count);
        const bool told = alone || count > 0;
        if (rc != (told ? ERR_CANCELED : 0) || (told && count != at))
            fail_msg("%s: %d after question %d, asked %d", work->name, rc, at, count);
        assert_true(!told || strcmp(err_last()->text, "Enough.") == 0);
    }
    assert_int_equal(work->run(s), 0);
    assert_memory_equal(before, s->out, s->bytes);
}

static void scene_check(enum spread spread, int threads)
{
    struct scene s;
    scene_create(&s, spread, threads);
    struct c32 *before = allocate(2 * SAMPLES, sizeof *before);
    for (int w = 0; w < (spread == UNIFORM ? WORKS : GRIDDING); w++)
        work_check(&s, &works[w], before, threads == 1);
    free(before);
    scene_free(&s);
}

static void test_alone(void **state)
{
    (void)state;
    scene_check(UNIFORM, 1);
}

static void test_team(void **state)
{
    (void)state;
    scene_check(UNIFORM, 3);
}

/* Crowded bins are cut into parts. */
static void test_crowded(void **state)
{
    (void)state;
    scene_check(ONE_PLACE, 1);
}

/* Also those of a joined device, and nobody asks the asker of a GPU, which has none. */
static void test_parts_of_device(void **state)
{
    (void)state;
    struct dev *dev = NULL;
    struct asked asked = {.no_at = -1};
    const struct dev_ask ask = {&asked, answer};
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    assert_int_equal(dev_join(dev, 0), 0);
    dev_ask_set(dev, &ask);
    assert_true(asker_stopped(dev_asker(dev_part(dev, 1)), ASK_EVERY) == false && asked.count == 1);
    asked.no_at = 2;
    assert_true(asker_stopped(dev_asker(dev_part(dev, 1)), ASK_EVERY) && asked.count == 2);
    assert_true(asker_stopped(NULL, ASK_EVERY) == false && asker_rc(NULL) == 0);
    dev_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_team),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_parts_of_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
