/* Opens and closes a store. */
#include "daemon/store/store_parts.h"

#include "daemon/base/thread.h"

#include <stdlib.h>

static void locks_init(struct store *store)
{
    thread_cond_init(&store->news);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->tally_lock, NULL);
    pthread_mutex_init(&store->reader_lock, NULL);
    for (int i = 0; i < STORE_LISTS; i++)
        pthread_mutex_init(&store->lister[i].lock, NULL);
}

int store_create(struct store **out, const char *path)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return err_no_memory("the job store");
    store->last = &store->first;
    locks_init(store);
    int rc = connection_open(&store->writer, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (!rc)
        rc = sql_run(store->writer.db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
                     "opening it");
    if (!rc)
        rc = schema_make(&store->writer);
    if (!rc)
        rc = connection_open(&store->reader, path, SQLITE_OPEN_READONLY);
    for (int i = 0; i < STORE_LISTS && !rc; i++)
        rc = connection_open(&store->lister[i].connection, path, SQLITE_OPEN_READONLY);
    if (!rc)
        rc = tally_load(store);
    store_clock_start(store);
    if (!rc)
        rc = writer_start(store);
    if (rc) {
        err_prefix("%s: ", path);
        store_free(store);
        return rc;
    }
    *out = store;
    return 0;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    writer_stop(store);
    for (int i = 0; i < STORE_LISTS; i++) {
        connection_close(&store->lister[i].connection);
        pthread_mutex_destroy(&store->lister[i].lock);
    }
    connection_close(&store->reader);
    connection_close(&store->writer);
    pthread_mutex_destroy(&store->reader_lock);
    pthread_mutex_destroy(&store->tally_lock);
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->news);
    free(store->entry);
    free(store->client);
    free(store);
}
