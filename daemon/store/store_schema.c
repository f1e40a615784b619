/* The tables of the store, and the migration from earlier versions. */
#include "daemon/store/store_parts.h"

#include <stdio.h>

/* Step i migrates version i to i + 1. A released step is never changed. States are the values of enum job_state. */
static const char *const steps[] = {
    "CREATE TABLE job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), kind TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,"
    " attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, parameters TEXT NOT NULL,"
    " formats TEXT NOT NULL, error TEXT, results TEXT, report TEXT);"
    "CREATE INDEX job_state ON job (state, sequence)",
    /* Priorities are the values of enum job_priority. */
    "ALTER TABLE job ADD COLUMN client TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE job ADD COLUMN priority INTEGER NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2);"
    "CREATE INDEX job_queue ON job (client, priority, sequence) WHERE state = 0",
    /* kept: bytes on the disk once the job has ended. */
    "ALTER TABLE job ADD COLUMN deadline INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE job ADD COLUMN idempotency_key TEXT;"
    "ALTER TABLE job ADD COLUMN digest TEXT;"
    "ALTER TABLE job ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;"
    "UPDATE job SET kept = coalesce((SELECT sum(json_extract(value, '$.bytes')) FROM json_each(results)), 0)"
    " WHERE results IS NOT NULL;"
    "CREATE UNIQUE INDEX job_key ON job (client, idempotency_key) WHERE idempotency_key IS NOT NULL;"
    "CREATE INDEX job_deadline ON job (deadline) WHERE state = 0 AND deadline > 0;"
    "CREATE INDEX job_ended ON job (finished) WHERE state > 2",
    /* For a client with few of many jobs; filtered by state within the index. */
    "CREATE INDEX job_client ON job (client, sequence, state)",
    /* kept_scan: the scan's part of `kept`. job_search: covering index of searches by name or time. */
    "ALTER TABLE job ADD COLUMN name TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE job ADD COLUMN kept_scan INTEGER NOT NULL DEFAULT 0;"
    "UPDATE job SET kept_scan = bytes WHERE state > 2 AND"
    " kept >= bytes + coalesce((SELECT sum(json_extract(value, '$.bytes')) FROM json_each(results)), 0);"
    "CREATE INDEX job_search ON job (sequence, state, client, name, created, finished);"
    "CREATE INDEX job_scan ON job (finished) WHERE kept_scan > 0",
    /* Searches by kind, too. */
    "DROP INDEX job_search; CREATE INDEX job_search ON job (sequence, state, client, kind, name, created, finished)",
    /* The outbox. job.asked: destinations that the sender named. States are the values of enum delivery_state. */
    "ALTER TABLE job ADD COLUMN asked TEXT NOT NULL DEFAULT '';"
    "CREATE TABLE delivery (sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE, destination TEXT NOT NULL,"
    " state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3), attempts INTEGER NOT NULL DEFAULT 0,"
    " created INTEGER NOT NULL, due INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,"
    " answer TEXT NOT NULL DEFAULT '', UNIQUE (job, destination));"
    "CREATE INDEX delivery_due ON delivery (due) WHERE state = 0;"
    "CREATE INDEX delivery_open ON delivery (state, created) WHERE state <> 2",
    /* quota: the sender's own quota of bytes, which limits the job's results, too; 0: the server's. job_kept: which
     * client keeps most, and its jobs that end first. */
    "ALTER TABLE job ADD COLUMN quota INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX job_kept ON job (client, finished, kept)"
    " WHERE kept > 0",
};
enum { SCHEMA = sizeof steps / sizeof *steps };

int schema_version(struct connection *connection, int64_t *version)
{
    return sql_number(connection, sql_prepare(connection, "PRAGMA user_version", ""), version);
}

bool schema_is_newer(int64_t version)
{
    return version < 0 || version > SCHEMA;
}

int schema_refuse(int64_t version)
{
    return err_set(ERR_STORE,
                   "The job store has version %lld; this program knows versions up to %d. Run the newer program, or "
                   "use another --state-dir.",
                   (long long)version, SCHEMA);
}

int schema_touch(struct connection *connection)
{
    char set[48];
    snprintf(set, sizeof set, "PRAGMA user_version = %d", SCHEMA);
    return sql_run(connection->db, set, "noting its version");
}

int schema_make(struct connection *connection)
{
    sqlite3 *db = connection->db;
    int64_t version = 0;
    int rc = schema_version(connection, &version);
    if (rc)
        return rc;
    if (schema_is_newer(version))
        return schema_refuse(version);
    if (version == SCHEMA)
        return 0;
    /* One transaction: an interrupted migration leaves the old store. */
    rc = sql_run(db, "BEGIN IMMEDIATE", "making its tables");
    for (int i = (int)version; !rc && i < SCHEMA; i++)
        rc = sql_run(db, steps[i], "making its tables");
    if (!rc)
        rc = schema_touch(connection);
    if (!rc)
        rc = sql_run(db, "COMMIT", "making its tables");
    if (rc && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}
