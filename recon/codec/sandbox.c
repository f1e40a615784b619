#include "recon/codec/sandbox.h"

#include "recon/codec/sandbox_parts.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int sandbox_limit_set(__rlimit_resource_t resource, uint64_t value, uint64_t most)
{
    struct rlimit now, limit = {.rlim_cur = value, .rlim_max = most};
    if (getrlimit(resource, &now) == 0 && now.rlim_max != RLIM_INFINITY) {
        limit.rlim_cur = value < now.rlim_max ? value : now.rlim_max;
        limit.rlim_max = most < now.rlim_max ? most : now.rlim_max;
    }
    return setrlimit(resource, &limit) == 0 ? 0 : sandbox_failed("setrlimit");
}

int sandbox_limit(const struct sandbox_limits *limits)
{
    enum { OWN_BYTES = 256 << 20 }; /* libraries, stack */
    uint64_t seconds = (uint64_t)limits->cpu_seconds + 1, heap = limits->heap_bytes + OWN_BYTES;
    int rc = sandbox_limit_set(RLIMIT_FSIZE, limits->file_bytes, limits->file_bytes);
    /* The soft limit sends SIGXCPU, which names the cause; the hard limit SIGKILL, which may have others. */
    if (rc == 0)
        rc = sandbox_limit_set(RLIMIT_CPU, seconds, seconds + 1);
    /* The address sanitizer maps terabytes of shadow memory. */
    if (rc == 0 && !SANDBOX_SANITIZED)
        rc = sandbox_limit_set(RLIMIT_AS, limits->mapped_bytes + heap, limits->mapped_bytes + heap);
    if (rc == 0 && !SANDBOX_SANITIZED)
        rc = sandbox_limit_set(RLIMIT_DATA, heap, heap);
    return rc;
}

void sandbox_follow_parent(int socket)
{
    struct pollfd other = {.fd = socket};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (poll(&other, 1, 0) > 0 && (other.revents & POLLHUP))
        _exit(0);
}

/* ---- the codec's sandbox ---- */

/* Landlock is a second barrier: the seccomp filter already forbids every call that landlock restricts, so a kernel
 * without landlock will do. */
static int landlock_enter_codec(void)
{
    struct landlock landlock;
    int rc = landlock_open(&landlock);
    return rc == 0 ? landlock_enter(&landlock) : rc;
}

/* Calls on memory and on open descriptors. */
static const int allowed[] = {
    SCMP_SYS(read),          SCMP_SYS(pread64),         SCMP_SYS(write),
    SCMP_SYS(writev),        SCMP_SYS(pwrite64),        SCMP_SYS(pwritev),
    SCMP_SYS(lseek),         SCMP_SYS(fstat),           SCMP_SYS(close),
    SCMP_SYS(munmap),        SCMP_SYS(mremap),          SCMP_SYS(madvise),
    SCMP_SYS(brk),           SCMP_SYS(futex),           SCMP_SYS(exit),
    SCMP_SYS(exit_group),    SCMP_SYS(rt_sigreturn),    SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),    SCMP_SYS(getpid),
    SCMP_SYS(gettid),        SCMP_SYS(getcwd),          SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),  SCMP_SYS(sigaltstack),     SCMP_SYS(sched_yield),
    SCMP_SYS(sysinfo),                                  /* qsort() of a large array asks how much memory there is */
    SCMP_SYS(nanosleep),     SCMP_SYS(clock_nanosleep), /* readers of an upload that arrives wait for more of it */
};
/* libhdf5 and libxml2 try these calls, and continue if they fail. */
static const int refused[] = {
    SCMP_SYS(open),  SCMP_SYS(openat),     SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(stat),
    SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),  SCMP_SYS(readlink),  SCMP_SYS(readlinkat),
#if SANDBOX_SANITIZED
    SCMP_SYS(ioctl), /* a report first asks whether stderr has colours */
#endif
};

/* Allow `call` on the descriptor `fd`. */
static int seccomp_allow_on(scmp_filter_ctx filter, int call, int fd)
{
    return fd < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1, SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)fd, 0));
}

static int seccomp_enter(int socket, int output)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!filter)
        return sandbox_failed("seccomp_init");
    int rc = 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), refused[i], 0);
    /* The upload arrives in the parent's only message. */
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(recvmsg), socket);
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(ftruncate), output);
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(fsync), output);
    /* No new code: memory is mapped without PROT_EXEC. abort() may signal this process only. */
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    /* The message with the upload sets this process's limits. */
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A0_32(SCMP_CMP_EQ, 0, 0));
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                              SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    errno = -rc;
    return rc == 0 ? 0 : sandbox_failed("seccomp_load");
}

/* A process without any skips capset(), which a service's unit may forbid. */
int sandbox_capabilities_drop(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    struct __user_cap_data_struct now[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, now) == 0 && memcmp(now, none, sizeof now) == 0)
        return 0;
    return syscall(SYS_capset, &header, none) == 0 ? 0 : sandbox_failed("capset");
}

int sandbox_enter(int socket, int output)
{
    int rc = sandbox_limit_set(RLIMIT_CORE, 0, 0);
    if (rc == 0)
        rc = sandbox_limit_set(RLIMIT_NPROC, 0, 0);
    if (rc == 0)
        rc = sandbox_capabilities_drop();
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rc = sandbox_failed("no_new_privs");
    if (rc == 0)
        rc = landlock_enter_codec();
    return rc == 0 ? seccomp_enter(socket, output) : rc;
}
