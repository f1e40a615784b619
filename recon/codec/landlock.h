/* landlock.h: the kernel's landlock, for sandbox*.c: rule sets of files that may be opened and ports that may be
 * connected to. Defined here by number, because kernels are newer than the headers that programs are built with. */
#ifndef MRIRECON_LANDLOCK_H
#define MRIRECON_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* System calls, and the flag with which the first returns the version of the ABI. */
enum { LANDLOCK_CALL_CREATE = 444, LANDLOCK_CALL_ADD = 445, LANDLOCK_CALL_RESTRICT = 446, LANDLOCK_CREATE_VERSION = 1 };

/* Rights. */
enum {
    LANDLOCK_EXECUTE = 1 << 0,
    LANDLOCK_WRITE = 1 << 1,
    LANDLOCK_READ_FILE = 1 << 2,
    LANDLOCK_READ = LANDLOCK_READ_FILE | 1 << 3,        /* files and folders */
    LANDLOCK_TRUNCATE = 1 << 14,                        /* open() with O_TRUNC needs it, too */
    LANDLOCK_MAKE = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14, /* create and remove files, create folders, truncate */
    LANDLOCK_DEVICE = 1 << 15,                          /* ioctl */
};

struct landlock {
    uint64_t files; /* rights of files that this kernel can restrict; 0: it has no landlock */
    bool network;   /* it can restrict TCP connections */
    int ruleset;
    int error; /* errno of the first rule that could not be added */
};

/* A rule set that forbids all that the kernel can restrict: files, TCP ports, abstract sockets, signals to processes
 * outside. Without landlock in the kernel it is empty, and the functions below do nothing. Fails with ERR_INTERNAL. */
int landlock_open(struct landlock *landlock);

/* Allow `rights` for the file `path`, or for everything below the folder `path`. A path that does not exist is
 * ignored. */
void landlock_allow(struct landlock *landlock, const char *path, uint64_t rights);

/* Allow TCP connections to `port`. */
void landlock_allow_port(struct landlock *landlock, int port);

/* Restrict the calling thread by the rules, and close the rule set. Fails with ERR_INTERNAL, also if a rule could not
 * be added. */
int landlock_enter(struct landlock *landlock);

/* err_set() for `what`, a call that failed with errno while a sandbox was set up. Returns ERR_INTERNAL. */
int sandbox_failed(const char *what);

#endif
