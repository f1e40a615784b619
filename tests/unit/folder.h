/* folder.h: a temporary folder for one test. */
#ifndef MRIRECON_TESTS_FOLDER_H
#define MRIRECON_TESTS_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { FOLDER = 32 };

/* Make /tmp/test-WHAT-...; `what`: up to 12 characters. */
static inline bool folder_make(char path[FOLDER], const char *what)
{
    snprintf(path, FOLDER, "/tmp/test-%s-XXXXXX", what);
    return mkdtemp(path) != NULL;
}

/* Remove the folder and its contents; returns 0 on success. */
static inline int folder_drop(const char path[FOLDER])
{
    char command[FOLDER + 8];
    snprintf(command, sizeof command, "rm -r %s", path);
    return system(command);
}

#endif
