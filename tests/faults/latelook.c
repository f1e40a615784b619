/* latelook.so, to be preloaded: a thread of the HTTP library that has looked a job up goes on half a second later, when
 * the row that it saw may have changed. The delay comes after the lock of the look-up is released, and the scheduler's
 * own look-ups have none: the job goes on meanwhile.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

struct sqlite3_stmt;
const char *sqlite3_sql(struct sqlite3_stmt *statement);

static _Thread_local int looked;

int sqlite3_clear_bindings(struct sqlite3_stmt *statement)
{
    int (*next)(struct sqlite3_stmt *) = (int (*)(struct sqlite3_stmt *))dlsym(RTLD_NEXT, "sqlite3_clear_bindings");
    const char *sql = sqlite3_sql(statement);
    int result = next(statement);
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    looked = strncmp(name, "MHD", 3) == 0 && sql && strstr(sql, " FROM job WHERE id = ?") &&
             strncmp(sql, "SELECT id, state, ", 18) == 0;
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    int (*next)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int result = next(lock);
    if (looked) {
        looked = 0;
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    }
    return result;
}
