/* The sandbox of a sender seen from inside: what code that sends to other machines can still do. */
#include "gridding/base/err.h"
#include "recon/codec/sandbox.h"
#include "tests/unit/sandbox_fixture.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sender_is_confined)};
    return cmocka_run_group_tests_name("sandbox of a sender", tests, setup, teardown);
}
