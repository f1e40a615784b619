/* The sandboxes of programs that need files and devices: the worker's and the sender's. */
#include "recon/codec/landlock.h"
#include "recon/codec/sandbox.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

/* Fails if a filter already in force refuses calls that the sandbox needs, or would kill the process. */
static int calls_try(void)
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

/* ---- seccomp: refused calls ---- */

/* Calls that no reconstruction needs, and that a compromised process could use against other processes or the kernel.
 * Drivers need ioctl, files, mappings, unix sockets, threads and memory policies, so these are allowed. */
static const int worker_refused[] = {
#if !SANDBOX_SANITIZED /* the leak check traces its own process */
    SCMP_SYS(ptrace),
#endif
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(io_uring_setup), /* its requests bypass seccomp filters */
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsmount),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(open_by_handle_at),
    /* these take a path, and landlock does not restrict them, or not in every kernel */
    SCMP_SYS(truncate),
    SCMP_SYS(chmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(chown),
    SCMP_SYS(lchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(utimensat),
    SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(removexattr),
    SCMP_SYS(lremovexattr),
    452, /* fchmodat2, setxattrat, removexattrat: newer than libseccomp's tables */
    463,
    466,
};

/* Calls that change any process of the same account, or the calling one if this argument is 0. */
static const struct {
    int call;
    unsigned argument;
} worker_own[] = {
    {SCMP_SYS(prlimit64), 0},          {SCMP_SYS(setpriority), 1},    {SCMP_SYS(ioprio_set), 1},
    {SCMP_SYS(sched_setscheduler), 0}, {SCMP_SYS(sched_setparam), 0}, {SCMP_SYS(sched_setattr), 0},
    {SCMP_SYS(migrate_pages), 0},      {SCMP_SYS(move_pages), 0},
};

enum { DNS_PORT = 53 };

/* Files that a process may open; pattern NULL ends a list. */
struct sandbox_place {
    const char *pattern;
    uint64_t rights;
};
/* Files that a worker's libraries and a GPU's driver open at any time. */
static const struct sandbox_place worker_places[] = {
    {"/usr", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/lib", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/lib64", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/etc/ld.so.cache", LANDLOCK_READ}, /* nothing else of /etc: it may hold keys */
    {"/etc/nvidia", LANDLOCK_READ},
    {"/proc", LANDLOCK_READ},
    {"/proc/self/task",
     LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_TRUNCATE}, /* CUDA names its threads, and aborts if it cannot */
    {"/sys", LANDLOCK_READ},
    {"/dev/null", LANDLOCK_READ | LANDLOCK_WRITE},
    {"/dev/zero", LANDLOCK_READ},
    {"/dev/random", LANDLOCK_READ},
    {"/dev/urandom", LANDLOCK_READ},
    {"/dev/nvidia*", LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_DEVICE},
    {"/dev/dxg", LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_DEVICE}, /* a GPU under WSL */
    {"/dev/shm", LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_MAKE},
    {.pattern = NULL},
};
/* Programs and libraries, the files of name resolution, and trusted certificates. */
static const struct sandbox_place sender_places[] = {
    {"/usr", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/lib", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/lib64", LANDLOCK_READ | LANDLOCK_EXECUTE},
    {"/etc/ld.so.cache", LANDLOCK_READ},
    {"/etc/resolv.conf", LANDLOCK_READ},
    {"/etc/hosts", LANDLOCK_READ},
    {"/etc/host.conf", LANDLOCK_READ},
    {"/etc/gai.conf", LANDLOCK_READ},
    {"/etc/nsswitch.conf", LANDLOCK_READ},
    {"/etc/services", LANDLOCK_READ},
    {"/etc/ssl/certs", LANDLOCK_READ},
    {"/etc/gnutls", LANDLOCK_READ},
    {"/etc/dcmtk", LANDLOCK_READ},
    {"/run/systemd/resolve", LANDLOCK_READ},
    {"/dev/null", LANDLOCK_READ | LANDLOCK_WRITE},
    {"/dev/random", LANDLOCK_READ},
    {"/dev/urandom", LANDLOCK_READ},
#if SANDBOX_SANITIZED
    {"/proc", LANDLOCK_READ},
#endif
    {.pattern = NULL},
};

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

/* `port`: TCP connections to it and to DNS are allowed; 0: none. */
static int landlock_enter_places(const struct sandbox_place *places, const char *const *readable, int port,
                                 bool *confined)
{
    struct landlock landlock;
    const char *cache = port ? NULL : getenv("CUDA_CACHE_PATH"), *folders = getenv("LD_LIBRARY_PATH");
    int rc = landlock_open(&landlock);
    *confined = landlock.files != 0;
    if (rc != 0 || !*confined)
        return rc;
    for (; places->pattern; places++)
        pattern_allow(&landlock, places->pattern, places->rights);
    if (port) {
        landlock_allow_port(&landlock, port);
        landlock_allow_port(&landlock, DNS_PORT);
    }
    for (; *readable; readable++)
        landlock_allow(&landlock, *readable, LANDLOCK_READ | LANDLOCK_EXECUTE);
    dl_iterate_phdr(library_allow, &landlock);
    if (folders)
        library_path_allow(&landlock, folders);
    if (cache && *cache == '/')
        landlock_allow(&landlock, cache, LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_MAKE);
    return landlock_enter(&landlock);
}

/* Refuse all sockets except unix ones and, with `network`, internet ones. */
static int sockets_refuse(scmp_filter_ctx filter, bool network)
{
    const int most = network ? AF_INET6 : AF_UNIX;
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0_32(SCMP_CMP_GT, (scmp_datum_t)most, 0));
    for (int family = 0; family < most && rc == 0; family++)
        if (family != AF_UNIX && family != AF_INET)
            rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                  SCMP_A0_32(SCMP_CMP_EQ, (scmp_datum_t)family, 0));
    return rc;
}

static int places_enter(const struct sandbox_place *places, const char *const *readable, int port, bool *landlock)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return sandbox_failed("no_new_privs");
    int rc = calls_try();
    if (rc == 0)
        rc = landlock_enter_places(places, readable, port, landlock);
    if (rc != 0)
        return rc;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return sandbox_failed("seccomp_init");
    for (size_t i = 0; i < sizeof worker_refused / sizeof *worker_refused && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), worker_refused[i], 0);
    for (size_t i = 0; i < sizeof worker_own / sizeof *worker_own && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), worker_own[i].call, 1,
                              SCMP_CMP32(worker_own[i].argument, SCMP_CMP_NE, 0, 0));
    if (rc == 0)
        rc = sockets_refuse(filter, port != 0);
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    errno = -rc;
    return rc == 0 ? 0 : sandbox_failed("seccomp_load");
}

int sandbox_enter_worker(const char *const *readable, bool *landlock)
{
    return places_enter(worker_places, readable, 0, landlock);
}

int sandbox_enter_sender(const char *const *readable, int port, bool *landlock)
{
    return places_enter(sender_places, readable, port, landlock);
}
