/* What the sandboxes of workers and senders have in common: files that may be opened, and a check of the kernel. */
#include "recon/codec/sandbox_parts.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- filters around the service ---- */

/* The calls that set up a sandbox. With these arguments the kernel does nothing. */
static const struct {
    const char *name;
    long number, arguments[3];
    bool needed; /* without landlock the sandbox is looser, and reports that */
} setup_calls[] = {
    {"seccomp", SCMP_SYS(seccomp), {-1, 0, 0}, true},
    {"landlock_create_ruleset", LANDLOCK_CALL_CREATE, {0, 0, LANDLOCK_CREATE_VERSION}, false},
    {"landlock_add_rule", LANDLOCK_CALL_ADD, {-1, 0, 0}, false},
    {"landlock_restrict_self", LANDLOCK_CALL_RESTRICT, {-1, 0, 0}, false},
};

/* Whether a seccomp filter of the service's unit or container refuses the call, by an error or by killing the caller.
 * Tried in a child, because a killed process cannot report which call it was. */
static bool call_refused(size_t i)
{
    pid_t pid = fork();
    if (pid == 0) {
        const long *argument = setup_calls[i].arguments;
        long rc = syscall(setup_calls[i].number, argument[0], argument[1], argument[2]);
        _exit(rc < 0 && errno == EPERM && setup_calls[i].needed);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status != 0;
}

int sandbox_calls_try(void)
{
    char names[160] = "";
    for (size_t i = 0; i < sizeof setup_calls / sizeof *setup_calls; i++)
        if (call_refused(i)) {
            size_t length = strlen(names);
            snprintf(names + length, sizeof names - length, "%s%s (%ld)", length ? ", " : "", setup_calls[i].name,
                     setup_calls[i].number);
        }
    return *names == '\0'
               ? 0
               : err_set(ERR_INTERNAL,
                         "A filter of system calls around this program refuses %s, which it needs to "
                         "confine itself: allow them, in the service's unit (SystemCallFilter=) or in the seccomp "
                         "profile of its container.",
                         names);
}

/* ---- files ---- */

static void pattern_allow(struct landlock *landlock, const char *pattern, uint64_t rights)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            landlock_allow(landlock, found.gl_pathv[i], rights);
    globfree(&found);
}

/* The codec loads the same libraries. */
static int library_allow(struct dl_phdr_info *library, size_t size, void *landlock)
{
    (void)size;
    if (library->dlpi_name[0] == '/')
        landlock_allow(landlock, library->dlpi_name, LANDLOCK_READ);
    return 0;
}

/* The loader searches LD_LIBRARY_PATH for a driver's libraries. */
static void library_path_allow(struct landlock *landlock, const char *folders)
{
    char path[PATH_MAX];
    for (size_t length; *folders; folders += length + (folders[length] == ':')) {
        length = strcspn(folders, ":");
        if (*folders == '/' && length < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)length, folders);
            landlock_allow(landlock, path, LANDLOCK_READ);
        }
    }
}

void sandbox_places_allow(struct landlock *landlock, const struct sandbox_place *places)
{
    const char *folders = getenv("LD_LIBRARY_PATH");
    for (; places->pattern; places++)
        pattern_allow(landlock, places->pattern, places->rights);
    dl_iterate_phdr(library_allow, landlock);
    if (folders)
        library_path_allow(landlock, folders);
}
