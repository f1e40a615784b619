/* How often a stream asks for the host's memory: to find it, the files of all control groups are read, which takes 0.15
 * to 0.3 ms, and at the end of a stream its image waits for that. */
#include "gridding/base/host_memory.h"
#include "recon/mri/plan_cache.h"
#include "tests/unit/stream_fixture.h"

static const size_t plenty = (size_t)1 << 40;
static size_t at_first; /* bytes that are available when it is asked for once; then plenty */
static int asked;

/* In place of those of gridding/base/host_memory.c. */
void host_memory(size_t *available, size_t *total)
{
    *available = asked++ == 0 ? at_first : plenty;
    *total = SIZE_MAX / 2;
}

void host_memory_below(const char *root, size_t *available, size_t *total)
{
    (void)root;
    host_memory(available, total);
}

size_t host_memory_available(void)
{
    size_t available, total;
    host_memory(&available, &total);
    return available;
}

static struct recon_cache *cache;

/* A stream of the trajectory that the cache knows, in one look. Returns how often it asked. */
static int whole_stream(size_t available)
{
    struct stream s;
    struct job job;
    stream_begin_of(&s, "", 4, SAMPLES, 1);
    job_begin(&job, &s, "coils", "rss");
    job.request.cache = cache;
    stream_close(&s);
    at_first = available;
    asked = 0;
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 1);
    recon_ahead_free(job.ahead);
    free(job.sent);
    stream_end(&s);
    return asked;
}

/* A look asks before it copies what has come. Its image asks again only if that was too little for it. */
static void what_a_look_knows_is_asked_for_once(void **state)
{
    enum { LITTLE = 120 << 10 }; /* the copy may take a sixteenth of that, and takes less; the image has 128 KiB */
    (void)state;
    images_x = 2048;
    assert_int_equal(recon_cache_create(&cache), 0);
    whole_stream(plenty); /* makes the plan, for which it asks, too */
    assert_int_equal(whole_stream(plenty), 1);
    assert_int_equal(whole_stream(LITTLE), 2);
    recon_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_look_knows_is_asked_for_once),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
