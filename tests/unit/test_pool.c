/* daemon/base/pool.h: every task that was taken is run, also those that wait when the pool closes; none after. */
#include "daemon/base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { TASKS = 200, THREADS = 4 };

struct counted {
    struct pool_task task;
    atomic_int *done;
    pthread_barrier_t *together; /* NULL: not met */
};

static void count(struct pool_task *task)
{
    struct counted *counted = (struct counted *)task;
    if (counted->together)
        pthread_barrier_wait(counted->together);
    else
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    atomic_fetch_add(counted->done, 1);
}

static void closing_runs_what_waits(void **state)
{
    struct pool *pool;
    struct counted counted[TASKS];
    atomic_int done = 0;
    (void)state;
    assert_int_equal(pool_create(&pool, THREADS), 0);
    for (int i = 0; i < TASKS; i++) {
        counted[i] = (struct counted){.task.run = count, .done = &done};
        assert_true(pool_run(pool, &counted[i].task));
    }
    pool_close(pool);
    assert_int_equal(atomic_load(&done), TASKS);
    assert_false(pool_run(pool, &counted[0].task));
    pool_free(pool);
    assert_int_equal(atomic_load(&done), TASKS);
}

/* Each of them waits for all the others: fewer threads than promised would never end. */
static void tasks_run_side_by_side(void **state)
{
    struct pool *pool;
    struct counted counted[THREADS];
    pthread_barrier_t together;
    atomic_int done = 0;
    (void)state;
    pthread_barrier_init(&together, NULL, THREADS);
    assert_int_equal(pool_create(&pool, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        counted[i] = (struct counted){.task.run = count, .done = &done, .together = &together};
        assert_true(pool_run(pool, &counted[i].task));
    }
    pool_free(pool);
    assert_int_equal(atomic_load(&done), THREADS);
    pthread_barrier_destroy(&together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_runs_what_waits),
        cmocka_unit_test(tasks_run_side_by_side),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
