/* The sandbox of a worker, whose libraries and drivers need files and devices. */
#include "recon/codec/sandbox.h"
#include "recon/codec/sandbox_parts.h"

#include <errno.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

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

static int landlock_enter_worker(const char *const *readable, bool *confined)
{
    struct landlock landlock;
    const char *cache = getenv("CUDA_CACHE_PATH");
    int rc = landlock_open(&landlock);
    *confined = landlock.files != 0;
    if (rc != 0 || !*confined)
        return rc;
    sandbox_places_allow(&landlock, worker_places);
    for (; *readable; readable++)
        landlock_allow(&landlock, *readable, LANDLOCK_READ | LANDLOCK_EXECUTE);
    if (cache && *cache == '/')
        landlock_allow(&landlock, cache, LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_MAKE);
    return landlock_enter(&landlock);
}

/* Refuse all sockets except unix ones. */
static int sockets_refuse(scmp_filter_ctx filter)
{
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0_32(SCMP_CMP_GT, AF_UNIX, 0));
    return rc ? rc
              : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                 SCMP_A0_32(SCMP_CMP_EQ, AF_UNSPEC, 0));
}

int sandbox_enter_worker(const char *const *readable, bool *landlock)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return sandbox_failed("no_new_privs");
    int rc = sandbox_calls_try();
    if (rc == 0)
        rc = landlock_enter_worker(readable, landlock);
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
        rc = sockets_refuse(filter);
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    errno = -rc;
    return rc == 0 ? 0 : sandbox_failed("seccomp_load");
}
