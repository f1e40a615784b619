/* The store's layer over SQLite: connections with prepared statements, typed parameters, failures as sentences. */
#include "daemon/store/store_parts.h"

#include <stdarg.h>
#include <stdlib.h>

enum { BUSY_MS = 5000 };

int sql_failed(sqlite3 *db, const char *doing)
{
    int code = db ? sqlite3_errcode(db) : SQLITE_NOMEM;
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return err_set(ERR_STORE,
                       "The job store is damaged (%s, while %s). Restore it from a backup, or run mrirecond "
                       "--repair-state, which saves its readable part.",
                       sqlite3_errmsg(db), doing);
    if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY)
        return err_set(ERR_STORE,
                       "The job store cannot be written (%s, while %s). Allow this user to write to it and its folder, "
                       "or use another --state-dir.",
                       sqlite3_errmsg(db), doing);
    if (code == SQLITE_FULL)
        return err_set(ERR_SPOOL_FULL, "The disk of the job store is full (%s). Free some space.", doing);
    return err_set(ERR_STORE, "The job store failed while %s: %s.", doing, db ? sqlite3_errmsg(db) : "no memory");
}

int sql_run(sqlite3 *db, const char *sql, const char *doing)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_failed(db, doing);
}

/* The cached statement of this SQL, prepared at its first use. */
static sqlite3_stmt *statement_of(struct connection *connection, const char *sql)
{
    for (int i = 0; i < connection->cached; i++)
        if (connection->cache[i].sql == sql)
            return connection->cache[i].statement;
    sqlite3_stmt *statement = NULL;
    if (connection->cached == STATEMENTS) {
        err_set(ERR_INTERNAL, "The store has more statements than its cache. This is a bug in the server.");
        return NULL;
    }
    if (sqlite3_prepare_v3(connection->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) != SQLITE_OK) {
        sql_failed(connection->db, "reading its tables");
        return NULL;
    }
    connection->cache[connection->cached].sql = sql;
    connection->cache[connection->cached++].statement = statement;
    return statement;
}

static int bind_json(sqlite3_stmt *statement, int at, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (!text)
        return value ? SQLITE_NOMEM : sqlite3_bind_null(statement, at);
    return sqlite3_bind_text(statement, at, text, -1, free);
}

sqlite3_stmt *sql_prepare(struct connection *connection, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = statement_of(connection, sql);
    if (!statement)
        return NULL;
    va_list values;
    va_start(values, types);
    int bad = 0;
    for (int i = 0; types[i] && !bad; i++) {
        if (types[i] == 's')
            bad = sqlite3_bind_text(statement, i + 1, va_arg(values, const char *), -1, SQLITE_TRANSIENT);
        else if (types[i] == 'i')
            bad = sqlite3_bind_int64(statement, i + 1, va_arg(values, int64_t));
        else
            bad = bind_json(statement, i + 1, va_arg(values, const json_t *));
    }
    va_end(values);
    if (bad) {
        sql_failed(connection->db, "preparing a statement");
        sql_release(statement);
        return NULL;
    }
    return statement;
}

void sql_release(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement); /* texts may be long */
}

int sql_change(struct connection *connection, sqlite3_stmt *statement, int *changed)
{
    if (!statement)
        return err_last()->code;
    int rc = sqlite3_step(statement) == SQLITE_DONE ? 0 : sql_failed(connection->db, "changing a job");
    if (changed)
        *changed = sqlite3_changes(connection->db);
    sql_release(statement);
    return rc;
}

int sql_number(struct connection *connection, sqlite3_stmt *statement, int64_t *out)
{
    if (!statement)
        return err_last()->code;
    int step = sqlite3_step(statement), rc = 0;
    if (step == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    else if (step == SQLITE_DONE)
        *out = 0;
    else
        rc = sql_failed(connection->db, "reading jobs");
    sql_release(statement);
    return rc;
}

int connection_open(struct connection *connection, const char *path, int flags)
{
    if (sqlite3_open_v2(path, &connection->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return sql_failed(connection->db, "opening it");
    sqlite3_extended_result_codes(connection->db, 0);
    sqlite3_busy_timeout(connection->db, BUSY_MS);
    return 0;
}

void connection_close(struct connection *connection)
{
    for (int i = 0; i < connection->cached; i++)
        sqlite3_finalize(connection->cache[i].statement);
    sqlite3_close(connection->db);
}
