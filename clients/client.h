/* client.h: the commands of mrirecon, and the parsed command line. */
#ifndef MRIRECON_CLIENT_H
#define MRIRECON_CLIENT_H

#include "clients/server.h"

#include <stdbool.h>
#include <stdio.h>

enum { CLIENT_OK = 0, CLIENT_FAILED = 1, CLIENT_USAGE = 2, CLIENT_INTERRUPTED = 130 };

/* The parsed command line. Strings are those of argv. */
struct client_options {
    const char *server, *token_file, *cacert, *out, *result, *format, *kind, *priority, *older, *state, *client, *name,
        *since;
    bool wait, json, retry, unnamed;
    int limit;   /* of jobs; 0: all */
    char **word; /* arguments other than options, after the command's name */
    int words;
};

int client_submit(struct server *server, const struct client_options *options);
int client_batch(struct server *server, const struct client_options *options);
int client_watch(struct server *server, const struct client_options *options);
int client_wait(struct server *server, const struct client_options *options);
int client_fetch(struct server *server, const struct client_options *options);
int client_list(struct server *server, const struct client_options *options);
int client_show(struct server *server, const struct client_options *options);
int client_resubmit(struct server *server, const struct client_options *options);
int client_purge(struct server *server, const struct client_options *options);
int client_cancel(struct server *server, const struct client_options *options);
int client_delete(struct server *server, const struct client_options *options);
int client_deliveries(struct server *server, const struct client_options *options);
int client_deliver(struct server *server, const struct client_options *options);
int client_kinds(struct server *server, const struct client_options *options);
int client_status(struct server *server, const struct client_options *options);

/* Print the calling thread's last failure on stderr; CLIENT_FAILED, or CLIENT_INTERRUPTED after Ctrl-C. */
int client_failed(void);

/* Print what is wrong with the command line on stderr; CLIENT_USAGE. */
int client_usage(const char *format, ...) ERR_PRINTF(1, 2);

/* Print `object` as indented JSON on stdout. */
void client_print_json(const json_t *object);

/* The text of a member, or "". */
const char *client_text(const json_t *object, const char *member);

/* Text from a server or a file, on one line, without control characters of terminals. */
void client_print_text(FILE *file, const char *text);

/* Print `text` on stdout, broken at spaces into lines of at most HELP_COLUMNS; the first line begins at the column
 * `indent`, where the cursor is, and so do the others. */
enum { HELP_COLUMNS = 100 };
void client_print_wrapped(const char *text, int indent);

#endif
