/* sandbox_fixture.h: children of a test that confine themselves, and what they can open. */
#ifndef MRIRECON_TESTS_SANDBOX_FIXTURE_H
#define MRIRECON_TESTS_SANDBOX_FIXTURE_H

#include "tests/unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Make the folder of files that a worker must not reach. */
static inline int setup(void **state)
{
    *state = malloc(FOLDER);
    return *state && folder_make(*state, "sandbox") ? 0 : -1;
}

static inline int teardown(void **state)
{
    int rc = folder_drop(*state);
    free(*state);
    return rc;
}

enum { HELD = 42, NO_LANDLOCK = 43 }; /* exit statuses of confined children */

/* Whether a file can be opened; a file created this way is empty. */
static inline bool opens(const char *folder, const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Whether opening it fails with a permission error. */
static inline bool forbidden(const char *folder, const char *name, int flags)
{
    return !opens(folder, name, flags) && errno == EACCES;
}

/* Run `act` in a child; returns its exit status. */
static inline int confined(int (*act)(const char *folder), const char *folder)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(act(folder));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
