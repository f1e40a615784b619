/* daemon/base/pool.h: every accepted task runs, including those still waiting when the pool closes, and none after
 * that. Clients take turns. */
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
    pthread_barrier_t *together; /* NULL: the task does not wait for others */
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

static void closing_runs_waiting_tasks(void **state)
{
    struct pool *pool;
    struct counted counted[TASKS];
    atomic_int done = 0;
    (void)state;
    assert_int_equal(pool_create(&pool, &(struct pool_limits){.threads = THREADS, .client = THREADS}), 0);
    for (int i = 0; i < TASKS; i++) {
        counted[i] = (struct counted){.task.run = count, .done = &done};
        assert_true(pool_run(pool, &counted[i].task, "a"));
    }
    pool_close(pool);
    assert_int_equal(atomic_load(&done), TASKS);
    assert_false(pool_run(pool, &counted[0].task, "a"));
    pool_free(pool);
    assert_int_equal(atomic_load(&done), TASKS);
}

/* Each task waits for all the others: with fewer threads than promised, this would not return. */
static void tasks_run_concurrently(void **state)
{
    struct pool *pool;
    struct counted counted[THREADS];
    pthread_barrier_t together;
    atomic_int done = 0;
    (void)state;
    pthread_barrier_init(&together, NULL, THREADS);
    assert_int_equal(pool_create(&pool, &(struct pool_limits){.threads = THREADS, .client = THREADS}), 0);
    for (int i = 0; i < THREADS; i++) {
        counted[i] = (struct counted){.task.run = count, .done = &done, .together = &together};
        assert_true(pool_run(pool, &counted[i].task, "a"));
    }
    pool_free(pool);
    assert_int_equal(atomic_load(&done), THREADS);
    pthread_barrier_destroy(&together);
}

/* Tasks that record their client in the order in which they start. */
struct noted {
    struct pool_task task;
    char client;
    char *notes;
    atomic_int *used, *running, *most;
    pthread_barrier_t *gate; /* NULL: the task is not held back */
};

static void note(struct pool_task *task)
{
    struct noted *noted = (struct noted *)task;
    int running = atomic_fetch_add(noted->running, 1) + 1;
    if (running > atomic_load(noted->most))
        atomic_store(noted->most, running);
    noted->notes[atomic_fetch_add(noted->used, 1)] = noted->client;
    if (noted->gate) {
        pthread_barrier_wait(noted->gate); /* the task has started */
        pthread_barrier_wait(noted->gate); /* and may end */
    }
    atomic_fetch_sub(noted->running, 1);
}

static void clients_take_turns(void **state)
{
    struct pool *pool;
    struct noted noted[9];
    char notes[10] = "";
    const char clients[] = "aaaaabbcd"; /* in the order of submission */
    atomic_int used = 0, running = 0, most = 0;
    pthread_barrier_t gate;
    (void)state;
    pthread_barrier_init(&gate, NULL, 2);
    assert_int_equal(pool_create(&pool, &(struct pool_limits){.threads = 1, .client = 1}), 0);
    for (int i = 0; i < 9; i++) {
        noted[i] = (struct noted){.task.run = note,
                                  .client = clients[i],
                                  .notes = notes,
                                  .used = &used,
                                  .running = &running,
                                  .most = &most,
                                  .gate = i == 0 ? &gate : NULL};
        assert_true(pool_run(pool, &noted[i].task, (char[]){clients[i], '\0'}));
        if (i == 0)
            pthread_barrier_wait(&gate); /* all others are submitted while it runs */
    }
    pthread_barrier_wait(&gate);
    pool_free(pool);
    assert_string_equal(notes, "abcdabaaa");
    pthread_barrier_destroy(&gate);
}

/* One client's task is at its limit of threads: its other tasks wait although threads are free, and another client's
 * task runs. */
static void a_client_has_a_limit_of_threads(void **state)
{
    struct pool *pool;
    struct noted held[20], other;
    char notes[32] = "";
    atomic_int used = 0, running = 0, most = 0, other_running = 0, other_most = 0;
    pthread_barrier_t gate, other_gate;
    (void)state;
    pthread_barrier_init(&gate, NULL, 2);
    pthread_barrier_init(&other_gate, NULL, 2);
    assert_int_equal(pool_create(&pool, &(struct pool_limits){.threads = THREADS, .client = 1, .niceness = 1}), 0);
    for (int i = 0; i < 20; i++) {
        held[i] = (struct noted){.task.run = note,
                                 .client = 'a',
                                 .notes = notes,
                                 .used = &used,
                                 .running = &running,
                                 .most = &most,
                                 .gate = i == 0 ? &gate : NULL};
        assert_true(pool_run(pool, &held[i].task, "a"));
    }
    other = (struct noted){.task.run = note,
                           .client = 'b',
                           .notes = notes,
                           .used = &used,
                           .running = &other_running,
                           .most = &other_most,
                           .gate = &other_gate};
    assert_true(pool_run(pool, &other.task, "b"));
    for (int i = 0; i < 2; i++) /* it runs while the first client's task does */
        pthread_barrier_wait(&other_gate);
    for (int i = 0; i < 2; i++)
        pthread_barrier_wait(&gate);
    pool_free(pool);
    assert_int_equal(atomic_load(&most), 1);
    assert_int_equal(atomic_load(&used), 21);
    pthread_barrier_destroy(&gate);
    pthread_barrier_destroy(&other_gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(a_client_has_a_limit_of_threads),
        cmocka_unit_test(closing_runs_waiting_tasks),
        cmocka_unit_test(tasks_run_concurrently),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
