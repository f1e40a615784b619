/* store_fixture.h: shared by the tests of the store: a store in a temporary folder, jobs by number, and claiming them
 * in order. */
#ifndef MRIRECON_TESTS_STORE_FIXTURE_H
#define MRIRECON_TESTS_STORE_FIXTURE_H

#include "daemon/base/clock.h"
#include "daemon/store/store.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fixture {
    char folder[FOLDER], path[48];
    struct store *store;
};

/* Wait until the wall clock, by which the store tells the times of jobs, has advanced by so many milliseconds. */
static inline void moments_pass(int milliseconds)
{
    const int64_t end = clock_milliseconds() + milliseconds;
    while (clock_milliseconds() < end)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!folder_make(f->folder, "store"))
        return -1;
    snprintf(f->path, sizeof f->path, "%s/jobs.db", f->folder);
    *state = f;
    return store_create(&f->store, f->path);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    store_free(f->store);
    int result = folder_drop(f->folder);
    free(f);
    return result;
}

/* Submit job number `i` of a client. */
static inline int submit_of(struct store *store, int i, int64_t limit, const char *client, enum job_priority priority,
                            int64_t bytes)
{
    struct job job = {.bytes = bytes, .priority = priority};
    strcpy(job.client, client);
    snprintf(job.id, sizeof job.id, "%026d", i);
    strcpy(job.kind, "recon");
    job.parameters = json_pack("{s:s}", "dcf", i % 2 ? "none" : "given");
    job.formats = json_pack("[s]", "png");
    int result = store_submit(store, &job, limit);
    if (!result)
        assert_true(job.state == JOB_QUEUED && job.sequence > 0 && job.created > 0);
    job_clear(&job);
    return result;
}

static inline int submit(struct store *store, int i, int64_t limit)
{
    return submit_of(store, i, limit, "one", PRIORITY_NORMAL, 1000 + i);
}

static inline const char *id_of(int i, char id[JOB_ID])
{
    snprintf(id, JOB_ID, "%026d", i);
    return id;
}

static inline enum job_state state_of(struct store *store, int i)
{
    char id[JOB_ID];
    struct job job;
    assert_int_equal(store_get(store, id_of(i, id), &job), 0);
    enum job_state state = job.state;
    job_clear(&job);
    return state;
}

static inline int64_t kept_bytes(struct store *store)
{
    struct kept kept;
    store_kept(store, &kept);
    return kept.scan_bytes + kept.result_bytes;
}

static inline void take(struct store *store, int expected)
{
    char id[JOB_ID];
    struct job job;
    bool found;
    assert_int_equal(store_claim(store, NULL, NULL, &job, &found), 0);
    assert_true(found);
    assert_string_equal(job.id, id_of(expected, id));
    assert_int_equal(job.state, JOB_RUNNING);
    job_clear(&job);
}

/* Claim all jobs and compare their numbers, in the order of claiming, with `expected`. */
static inline void taken_in_order(struct store *store, const int *expected, int count)
{
    for (int i = 0; i < count; i++)
        take(store, expected[i]);
    struct job job;
    bool found = true;
    assert_int_equal(store_claim(store, NULL, NULL, &job, &found), 0);
    assert_false(found);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
