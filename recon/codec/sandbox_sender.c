/* The sandbox of a sender: a client of HTTPS, or DCMTK's storescu, which the sender starts. */
#include "recon/codec/sandbox.h"
#include "recon/codec/sandbox_parts.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DNS_PORT = 53, DESCRIPTORS = 64 };

/* Libraries, the files of name resolution, trusted certificates, and DCMTK's dictionaries. */
static const struct sandbox_place sender_places[] = {
    {"/usr/lib", LANDLOCK_READ},
    {"/usr/local/lib", LANDLOCK_READ},
    {"/lib", LANDLOCK_READ},
    {"/lib64", LANDLOCK_READ},
    {"/etc/ld.so.cache", LANDLOCK_READ},
    {"/etc/resolv.conf", LANDLOCK_READ},
    {"/etc/hosts", LANDLOCK_READ},
    {"/etc/host.conf", LANDLOCK_READ},
    {"/etc/gai.conf", LANDLOCK_READ},
    {"/etc/nsswitch.conf", LANDLOCK_READ},
    {"/etc/services", LANDLOCK_READ},
    {"/run/systemd/resolve", LANDLOCK_READ},
    {"/etc/ssl/certs", LANDLOCK_READ},
    {"/usr/share/ca-certificates", LANDLOCK_READ},
    {"/usr/local/share/ca-certificates", LANDLOCK_READ},
    {"/etc/gnutls", LANDLOCK_READ},
    {"/etc/dcmtk", LANDLOCK_READ},
    {"/usr/share/dcmtk*", LANDLOCK_READ},
    {"/usr/share/libdcmtk*", LANDLOCK_READ},
    {"/dev/null", LANDLOCK_READ | LANDLOCK_WRITE},
    {"/dev/random", LANDLOCK_READ},
    {"/dev/urandom", LANDLOCK_READ},
#if SANDBOX_SANITIZED
    {"/proc", LANDLOCK_READ},
#endif
    {.pattern = NULL},
};
/* What the kernel runs first to start a program. */
static const struct sandbox_place loaders[] = {
    {"/lib*/ld-*.so*", LANDLOCK_READ_FILE | LANDLOCK_EXECUTE},
    {"/lib/*/ld-*.so*", LANDLOCK_READ_FILE | LANDLOCK_EXECUTE},
    {.pattern = NULL},
};

/* Landlock is absent on some kernels; seccomp then confines alone. */
static int landlock_enter_sender(const struct sandbox_sender *sender)
{
    struct landlock landlock;
    int rc = landlock_open(&landlock);
    if (rc != 0)
        return rc;
    sandbox_places_allow(&landlock, sender_places);
    for (const char *const *path = sender->readable; *path; path++)
        landlock_allow(&landlock, *path, LANDLOCK_READ);
    landlock_allow_port(&landlock, sender->port);
    landlock_allow_port(&landlock, DNS_PORT);
    if (sender->program) {
        landlock_allow(&landlock, sender->program, LANDLOCK_READ_FILE | LANDLOCK_EXECUTE);
        sandbox_places_allow(&landlock, loaders);
    }
    return landlock_enter(&landlock);
}

/* ---- seccomp ---- */

/* Files, memory, threads, time, and sockets that exist. */
static const int sender_calls[] = {
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getdents64),
    SCMP_SYS(getcwd),
    SCMP_SYS(fcntl),
    SCMP_SYS(pipe),
    SCMP_SYS(pipe2),
    SCMP_SYS(eventfd2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(connect),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getrusage),
    SCMP_SYS(times),
#if SANDBOX_SANITIZED /* the leak check, in a process that traces this one */
    SCMP_SYS(ptrace),
    SCMP_SYS(prctl),
    SCMP_SYS(clone),
    SCMP_SYS(wait4),
    SCMP_SYS(kill),
    SCMP_SYS(ioctl),
    SCMP_SYS(getdents),
    SCMP_SYS(dup),
#endif
};
/* What starts a program and waits for it. */
static const int sender_program_calls[] = {
    SCMP_SYS(vfork), SCMP_SYS(execve), SCMP_SYS(wait4),      SCMP_SYS(dup2),
    SCMP_SYS(dup3),  SCMP_SYS(prctl),  SCMP_SYS(arch_prctl),
};

static int calls_allow(scmp_filter_ctx filter, const int *calls, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
    return rc;
}

/* UDP and TCP. Landlock does not restrict connections of other protocols (MPTCP), nor those that a message opens (TCP
 * Fast Open). */
static int network_allow(scmp_filter_ctx filter)
{
    static const int families[] = {AF_INET, AF_INET6}, protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP};
    static const struct {
        int call;
        unsigned flags;
    } sends[] = {{SCMP_SYS(sendto), 3}, {SCMP_SYS(sendmsg), 2}, {SCMP_SYS(sendmmsg), 3}};
    int rc = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (size_t p = 0; p < sizeof protocols / sizeof *protocols && rc == 0; p++)
            rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                                  SCMP_A0_32(SCMP_CMP_EQ, (scmp_datum_t)families[f], 0),
                                  SCMP_A2_32(SCMP_CMP_EQ, (scmp_datum_t)protocols[p], 0));
    for (size_t i = 0; i < sizeof sends / sizeof *sends && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, sends[i].call, 1,
                              SCMP_CMP32(sends[i].flags, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    return rc ? rc /* how threads of the HTTP client wake each other */
              : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0_32(SCMP_CMP_EQ, AF_UNIX, 0));
}

/* Calls that are allowed with certain arguments only. */
static int arguments_allow(scmp_filter_ctx filter)
{
    static const unsigned long controls[] = {FIONREAD, FIONBIO};
    int rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A0_32(SCMP_CMP_EQ, 0, 0));
    for (size_t i = 0; i < sizeof controls / sizeof *controls && rc == 0 && !SANDBOX_SANITIZED; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1_32(SCMP_CMP_EQ, controls[i], 0));
    /* abort() signals this process only. */
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                              SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
    return rc;
}

/* `starts`: processes, too, but in no namespace of their own; else threads only. clone3(), whose flags no filter sees,
 * fails: glibc then uses clone(). */
static int clone_allow(scmp_filter_ctx filter, bool starts)
{
    enum {
        NAMESPACES =
            CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
    };
    const scmp_datum_t mask = starts ? NAMESPACES : NAMESPACES | CLONE_THREAD, flags = starts ? 0 : CLONE_THREAD;
    if (SANDBOX_SANITIZED)
        return 0;
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0_64(SCMP_CMP_MASKED_EQ, mask, flags));
}

/* Other calls fail as on a kernel that lacks them, so that libraries fall back on older ones. */
static int seccomp_enter_sender(bool starts)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!filter)
        return sandbox_failed("seccomp_init");
    int rc = calls_allow(filter, sender_calls, sizeof sender_calls / sizeof *sender_calls);
    if (rc == 0 && starts)
        rc = calls_allow(filter, sender_program_calls, sizeof sender_program_calls / sizeof *sender_program_calls);
    if (rc == 0)
        rc = clone_allow(filter, starts);
    if (rc == 0)
        rc = network_allow(filter);
    if (rc == 0)
        rc = arguments_allow(filter);
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    errno = -rc;
    return rc == 0 ? 0 : sandbox_failed("seccomp_load");
}

int sandbox_enter_sender(const struct sandbox_sender *sender)
{
    const struct sandbox_limits limits = {UINT64_C(1) << 30, sender->heap_bytes, UINT64_MAX, sender->cpu_seconds};
    int rc = sandbox_limit(&limits);
    if (rc == 0)
        rc = sandbox_limit_set(RLIMIT_CORE, 0, 0);
    if (rc == 0)
        rc = sandbox_limit_set(RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS);
    if (rc == 0)
        rc = sandbox_capabilities_drop();
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rc = sandbox_failed("no_new_privs");
    if (rc == 0)
        rc = sandbox_calls_try();
    if (rc == 0)
        rc = landlock_enter_sender(sender);
    return rc == 0 ? seccomp_enter_sender(sender->program != NULL) : rc;
}
