/* The sandboxes seen from inside: what code in a decoder or a worker can still do. */
#include "gridding/base/err.h"
#include "recon/codec/sandbox.h"
#include "tests/unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Make the folder of files that a worker must not reach. */
static int setup(void **state)
{
    *state = malloc(FOLDER);
    return *state && folder_make(*state, "sandbox") ? 0 : -1;
}

static int teardown(void **state)
{
    int rc = folder_drop(*state);
    free(*state);
    return rc;
}

/* Run `act` in a child inside the sandbox; returns its wait status. */
static int inside(int (*act)(void))
{
    const struct sandbox_limits limits = {1 << 30, 1 << 30, 1 << 20, 10};
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(sandbox_limit(&limits) == 0 && sandbox_enter(3, -1) == 0 ? act() : 99);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int act_nothing(void)
{
    char *p = malloc(1 << 20);
    if (!p)
        return 1;
    memset(p, 3, 1 << 20);
    int rc = p[77] == 3 ? 0 : 1;
    free(p);
    return rc;
}

static int act_open(void)
{
    return open("/etc/passwd", O_RDONLY) < 0 && errno == EACCES ? 42 : 0;
}

static int act_create(void)
{
    return open("/tmp/escaped", O_WRONLY | O_CREAT, 0600) < 0 && errno == EACCES ? 42 : 0;
}

static int act_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int act_exec(void)
{
    return execl("/bin/true", "true", (char *)NULL);
}

static int act_fork(void)
{
    return (int)fork();
}

static int act_kill(void)
{
    return kill(getppid(), 0);
}

static int act_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static int act_dup(void)
{
    return dup(1);
}

/* Limits can be lowered but not raised, even by root. */
static int act_limits(void)
{
    struct rlimit limit = {1 << 10, 1 << 10}, more = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || setrlimit(RLIMIT_FSIZE, &more) == 0 || errno != EPERM)
        return 1;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_max == 1 << 10 ? 42 : 2;
}

static int act_limit_of_parent(void)
{
    return prlimit(getppid(), RLIMIT_FSIZE, NULL, &(struct rlimit){0});
}

static void the_sandbox_holds(void **state)
{
    (void)state;
    int (*const killed[])(void) = {act_socket, act_exec, act_fork, act_kill, act_code, act_dup, act_limit_of_parent};
    int status = inside(act_nothing);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = inside(act_open);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = inside(act_create);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = inside(act_limits);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    for (size_t i = 0; i < sizeof killed / sizeof *killed; i++) {
        status = inside(killed[i]);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
            fail_msg("act %zu ended with status %x", i, (unsigned)status);
    }
}

#if SANDBOX_SANITIZED
/* A sanitizer's report from inside the sandbox is not lost. */
static void sanitizer_reports_come_out(void **state)
{
    (void)state;
    char report[4096] = "";
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        volatile size_t beyond = 16;
        volatile char *p = malloc(beyond);
        dup2(pipes[1], 2);
        if (sandbox_enter(3, -1) == 0 && p)
            p[beyond] = 1;
        _exit(99);
    }
    close(pipes[1]);
    size_t used = 0;
    for (ssize_t got; used < sizeof report - 1; used += (size_t)got)
        if ((got = read(pipes[0], report + used, sizeof report - 1 - used)) <= 0)
            break;
    close(pipes[0]); /* excess text is dropped */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 99);
    assert_non_null(strstr(report, "heap-buffer-overflow"));
}
#endif

enum { HELD = 42, NO_LANDLOCK = 43 }; /* exit statuses of confined children */

/* Whether a file can be opened; a file created this way is empty. */
static bool opens(const char *folder, const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Whether opening it fails with a permission error. */
static bool forbidden(const char *folder, const char *name, int flags)
{
    return !opens(folder, name, flags) && errno == EACCES;
}

static int act_on_calls(void)
{
    static const int families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (socket(families[i], SOCK_DGRAM, 0) >= 0 || errno != EAFNOSUPPORT)
            return 2;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 || socket(AF_UNIX, SOCK_STREAM, 0) < 0)
        return 3;
    if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM || syscall(SYS_io_uring_setup, 1, NULL) == 0 || errno != EPERM)
        return 4;
    /* A worker can change its own limits and priority, but not those of another process. */
    struct rlimit limit, zero = {0, 0};
    pid_t parent = getppid();
    if (prlimit(parent, RLIMIT_FSIZE, &zero, NULL) == 0 || errno != EPERM || getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 7;
    if (setpriority(PRIO_PROCESS, (id_t)parent, 19) == 0 || errno != EPERM || setpriority(PRIO_PROCESS, 0, 0) != 0 ||
        sched_setscheduler(parent, SCHED_IDLE, &(struct sched_param){0}) == 0 || errno != EPERM)
        return 8;
    char byte = 0;
    struct iovec here = {&byte, 1};
    if (process_vm_readv(getpid(), &here, 1, &here, 1, 0) >= 0 || errno != EPERM)
        return 5;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? HELD : 6;
}

static int act_worker(const char *folder)
{
    (void)folder;
    bool landlock;
    return sandbox_enter_worker((const char *const[]){NULL}, &landlock) == 0 ? act_on_calls() : 1;
}

/* `folder` holds state/{secret,scan,result}, installed/{bin,lib}, cache/. */
static int act_on_files(const char *folder)
{
    char path[128], installed[96], cache[96], again[32], held[8] = "";
    struct stat there;
    bool landlock;
    snprintf(installed, sizeof installed, "%s/installed", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("CUDA_CACHE_PATH", cache, 1);
    snprintf(path, sizeof path, "%s/state/scan", folder);
    int scan = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/state/result", folder);
    int result = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (sandbox_enter_worker((const char *const[]){installed, "/nonexistent", NULL}, &landlock) != 0)
        return 1;
    if (!landlock)
        return NO_LANDLOCK;
    /* The descriptors that it was given can be used. */
    if (read(scan, held, sizeof held) != 4 || write(result, "image", 5) != 5 || ftruncate(result, 3) != 0 ||
        fstat(result, &there) != 0 || there.st_size != 3)
        return 2;
    /* Neither these files nor others can be opened by name or linked to. */
    snprintf(again, sizeof again, "/proc/self/fd/%d", scan);
    if (open(again, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
        return 3;
    if (!forbidden(folder, "state/secret", O_RDONLY) || !forbidden(folder, "state/result", O_WRONLY) ||
        !forbidden(folder, "state/new", O_WRONLY | O_CREAT) || !forbidden(folder, "state", O_RDONLY | O_DIRECTORY) ||
        !forbidden("/etc", "passwd", O_RDONLY) || !forbidden("/", "tmp", O_RDONLY | O_DIRECTORY) ||
        !forbidden("/", "home", O_RDONLY | O_DIRECTORY))
        return 4;
    snprintf(path, sizeof path, "%s/state/secret", folder);
    snprintf(again, sizeof again, "/dev/shm/%d", (int)getpid());
    if (unlink(path) == 0 || rename(path, again) == 0 || link(path, again) == 0 || truncate(path, 0) == 0 ||
        chmod(path, 0777) == 0 || execl(path, path, (char *)NULL) == 0)
        return 5;
    /* Everything that a reconstruction needs works. */
    if (!opens(folder, "installed/lib", O_RDONLY) || !forbidden(folder, "installed/lib", O_WRONLY) ||
        !opens(folder, "cache/made", O_RDWR | O_CREAT) || !opens("/dev", "null", O_RDWR) ||
        !opens("/proc/self", "maps", O_RDONLY) || !opens("/sys", "devices", O_RDONLY | O_DIRECTORY) ||
        !opens("/usr", "lib", O_RDONLY | O_DIRECTORY) || !forbidden("/usr/bin", "env", O_WRONLY))
        return 6;
    /* CUDA names its threads this way, and does not start if it cannot. */
    snprintf(again, sizeof again, "task/%d/comm", (int)getpid());
    if (!opens("/proc/self", again, O_WRONLY | O_TRUNC))
        return 8;
    snprintf(path, sizeof path, "%s/installed/bin", folder);
    execl(path, path, (char *)NULL);
    return 7;
}

/* A kernel without landlock: the system call does not exist. */
static int act_without_landlock(const char *folder)
{
    char path[128];
    bool landlock = true;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset), 0) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || seccomp_load(filter) != 0)
        return 1;
    seccomp_release(filter);
    if (sandbox_enter_worker((const char *const[]){NULL}, &landlock) != 0 || landlock)
        return 7;
    snprintf(path, sizeof path, "%s/state/secret", folder);
    if (!opens(folder, "state/secret", O_RDWR) || truncate(path, 0) == 0 || errno != EPERM)
        return 8;
    return act_on_calls();
}

/* Run `act` in a child; returns its exit status. */
static int confined(int (*act)(const char *folder), const char *folder)
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

static void a_worker_is_confined(void **state)
{
    assert_int_equal(confined(act_worker, (const char *)*state), HELD);
}

/* Whether a child that confines itself as a decoder does requests landlock from the kernel, and gets it. Landlock has
 * no other visible effect behind seccomp, which permits no open. */
static bool restricts_itself(void)
{
    bool restricted = false;
    struct __ptrace_syscall_info call;
    uint64_t number = 0;
    int status;
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(sandbox_enter(3, -1) == 0 ? 0 : 99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    while (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) <= 0)
            continue;
        if (call.op == PTRACE_SYSCALL_INFO_ENTRY)
            number = call.entry.nr;
        else if (call.op == PTRACE_SYSCALL_INFO_EXIT)
            restricted |= number == SYS_landlock_restrict_self && call.exit.rval == 0;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return restricted;
}

static void a_decoder_is_under_landlock_too(void **state)
{
    (void)state;
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 1) {
        print_message("this kernel has no landlock\n");
        skip();
    }
    assert_true(restricts_itself());
}

static void a_worker_opens_no_file_but_the_system_s(void **state)
{
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && mkdir state installed cache && echo now > state/scan && echo x > state/secret && chmod +x "
             "state/secret &&"
             " printf '#!/bin/sh\nexit %d\n' > installed/bin && chmod +x installed/bin && echo x > installed/lib",
             (const char *)*state, HELD);
    assert_int_equal(system(command), 0);
    int said = confined(act_on_files, (const char *)*state);
    if (said == NO_LANDLOCK) {
        print_message("this kernel has no landlock, so the sandbox cannot be tested\n");
        skip();
    }
    assert_int_equal(said, HELD);
}

static void a_worker_on_a_kernel_without_landlock_is_confined_by_seccomp(void **state)
{
    assert_int_equal(confined(act_without_landlock, (const char *)*state), HELD);
}

/* ---- a sender ---- */

static int port_open(int family, int type, int protocol)
{
    int fd = socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -1;
}

/* errno of a TCP connection to this port of the machine; 0 if it is open. */
static int connects(int port)
{
    struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = connect(fd, (struct sockaddr *)&there, sizeof there) == 0 ? 0 : errno;
    close(fd);
    return error;
}

static void *thread_runs(void *context)
{
    *(int *)context = HELD;
    return NULL;
}

/* What TLS and name resolution need. */
static int act_works(void)
{
    struct addrinfo *found = NULL;
    pthread_t thread;
    int ran = 0, pair[2];
    if (pthread_create(&thread, NULL, thread_runs, &ran) != 0 || pthread_join(thread, NULL) != 0 || ran != HELD)
        return 20;
    if (getaddrinfo("localhost", "443", NULL, &found) != 0)
        return 21;
    freeaddrinfo(found);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 || port_open(AF_INET6, SOCK_DGRAM, 0) != 0)
        return 22;
    return opens("/etc/ssl/certs", ".", O_RDONLY | O_DIRECTORY) && opens("/usr", "lib", O_RDONLY | O_DIRECTORY) ? 0
                                                                                                                : 23;
}

/* `folder` contains scan and secret. */
static int act_sender(const char *folder)
{
    enum { PORT = 1, MPTCP = 262 };
    char scan[128];
    struct rlimit core, descriptors;
    snprintf(scan, sizeof scan, "%s/scan", folder);
    const struct sandbox_sender sender = {
        .readable = (const char *const[]){scan, NULL}, .port = PORT, .heap_bytes = 64 << 20, .cpu_seconds = 60};
    if (sandbox_enter_sender(&sender) != 0)
        return 1;
    int rc = act_works();
    if (rc)
        return rc;
    /* No program, and no process. */
    if (execl("/bin/true", "true", (char *)NULL) == 0 || (!SANDBOX_SANITIZED && fork() >= 0))
        return 2;
    /* No sockets other than those of UDP and TCP clients. */
    if (port_open(AF_UNIX, SOCK_STREAM, 0) == 0 || port_open(AF_NETLINK, SOCK_RAW, 0) == 0 ||
        port_open(AF_INET, SOCK_STREAM, MPTCP) == 0 || port_open(AF_INET, SOCK_RAW, IPPROTO_ICMP) == 0)
        return 3;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) == 0 || listen(fd, 1) == 0 ||
        sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&here, sizeof here) >= 0 || errno != ENOSYS)
        return 4;
    /* No access to another process, and no resources beyond its limits. */
    if (kill(getppid(), 0) == 0 || prlimit(getppid(), RLIMIT_CORE, NULL, &core) == 0 || unshare(CLONE_NEWUSER) == 0 ||
        getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0 || getrlimit(RLIMIT_NOFILE, &descriptors) != 0 ||
        descriptors.rlim_max > 64 || setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024}) == 0)
        return 5;
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) == 0 || errno != ENOSYS)
        return 6;
    return opens(folder, "secret", O_RDONLY) ? NO_LANDLOCK : HELD;
}

static int act_sender_on_files(const char *folder)
{
    enum { PORT = 1 };
    char scan[128];
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    snprintf(scan, sizeof scan, "%s/scan", folder);
    const struct sandbox_sender sender = {
        .readable = (const char *const[]){scan, NULL}, .port = PORT, .heap_bytes = 64 << 20, .cpu_seconds = 60};
    if (abi < 1)
        return NO_LANDLOCK;
    if (sandbox_enter_sender(&sender) != 0)
        return 1;
    if (!opens(folder, "scan", O_RDONLY) || !forbidden(folder, "scan", O_WRONLY) ||
        !forbidden(folder, "secret", O_RDONLY) || !forbidden(folder, "new", O_WRONLY | O_CREAT) ||
        !forbidden("/etc", "passwd", O_RDONLY) || !forbidden("/usr", "bin", O_RDONLY | O_DIRECTORY) ||
        !forbidden("/", "home", O_RDONLY | O_DIRECTORY))
        return 2;
    /* Port 1 is closed: connecting is allowed, and only the host refuses it. */
    return abi < 4 || (connects(PORT) == ECONNREFUSED && connects(2) == EACCES) ? HELD : 3;
}

/* With a program: only this one can be started, and it stays in the sandbox. */
static int act_sender_with_program(const char *folder)
{
    char secret[128], *const argv[] = {(char *)(uintptr_t) "cat", secret, NULL};
    const bool landlock = syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 1;
    int status;
    snprintf(secret, sizeof secret, "%s/secret", folder);
    const struct sandbox_sender sender = {.readable = (const char *const[]){NULL},
                                          .port = 1,
                                          .program = "/usr/bin/cat",
                                          .heap_bytes = 64 << 20,
                                          .cpu_seconds = 60};
    if (sandbox_enter_sender(&sender) != 0)
        return 1;
    if (landlock && (execl("/usr/bin/env", "env", (char *)NULL) == 0 || errno != EACCES))
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
        execv("/usr/bin/cat", argv);
        _exit(99);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 3;
    /* cat fails because it may not read the file. */
    return WEXITSTATUS(status) == 1 ? HELD : !landlock && WEXITSTATUS(status) == 0 ? NO_LANDLOCK : 4;
}

static void a_sender_is_confined(void **state)
{
    int (*const acts[])(const char *) = {act_sender, act_sender_on_files, act_sender_with_program};
    char command[256];
    snprintf(command, sizeof command, "cd %s && echo now > scan && echo x > secret", (const char *)*state);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        const int said = confined(acts[i], (const char *)*state);
        if (said == NO_LANDLOCK)
            print_message("this kernel has no landlock: what it holds cannot be tried\n");
        else
            assert_int_equal(said, HELD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if SANDBOX_SANITIZED
        cmocka_unit_test(sanitizer_reports_come_out),
#endif
        cmocka_unit_test(the_sandbox_holds),
        cmocka_unit_test(a_decoder_is_under_landlock_too),
        cmocka_unit_test(a_worker_is_confined),
        cmocka_unit_test(a_worker_opens_no_file_but_the_system_s),
        cmocka_unit_test(a_sender_is_confined),
        cmocka_unit_test(a_worker_on_a_kernel_without_landlock_is_confined_by_seccomp),
    };
    return cmocka_run_group_tests_name("sandbox", tests, setup, teardown);
}
