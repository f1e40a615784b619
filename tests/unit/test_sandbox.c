/* The sandboxes seen from inside: what code in a decoder or a worker can still do. */
#include "gridding/base/err.h"
#include "recon/codec/sandbox.h"
#include "tests/unit/sandbox_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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
        cmocka_unit_test(a_worker_on_a_kernel_without_landlock_is_confined_by_seccomp),
    };
    return cmocka_run_group_tests_name("sandbox", tests, setup, teardown);
}
