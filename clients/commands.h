/* commands.h: the rows of the client's two tables, which drive dispatch, help and completion. */
#ifndef MRIRECON_COMMANDS_H
#define MRIRECON_COMMANDS_H

#include "clients/client.h"

#include <stddef.h>

struct option_row {
    const char *name, *value, *help; /* value: NULL for a switch; "FILE" is the name of one */
    unsigned bit;                    /* the option's own bit, or EVERYWHERE */
    size_t place;                    /* offset in struct client_options */
};

struct command_row {
    const char *name, *words, *help; /* words: its arguments; "SCAN ..." and "DIR ..." begin with a file or a folder */
    int least, most;                 /* number of arguments */
    unsigned options;                /* bits of options */
    /* NULL: it parses its own command line */
    int (*run)(struct server *server, const struct client_options *options);
};

struct command_tables {
    const struct command_row *commands;
    int command_count;
    const struct option_row *options;
    int option_count;
    unsigned everywhere; /* bit of the options of all commands */
};

/* Print the completion of a shell, "bash" or "zsh". The exit status of a program: CLIENT_OK, CLIENT_USAGE. */
int completion_print(const char *shell, const struct command_tables *tables);

#endif
