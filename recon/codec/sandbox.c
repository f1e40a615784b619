#include "recon/codec/sandbox.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <linux/capability.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Landlock as of ABI 7, in numbers because headers are older than kernels. Unknown bits are left out by the ABI's
 * version. */
struct landlock_rules {
    uint64_t files, network, scope;
};
static const struct {
    int since;
    struct landlock_rules rules;
} landlock_known[] = {
    {1, {.files = (UINT64_C(1) << 13) - 1}}, /* execute, read, write, make and remove files of any type */
    {2, {.files = UINT64_C(1) << 13}},       /* link and rename across directories */
    {3, {.files = UINT64_C(1) << 14}},       /* truncate */
    {4, {.network = 3}},                     /* bind and connect TCP */
    {5, {.files = UINT64_C(1) << 15}},       /* ioctl of devices */
    {6, {.scope = 3}},                       /* abstract unix sockets, signals */
};
enum {
    LANDLOCK_CREATE = 444,
    LANDLOCK_ADD = 445,
    LANDLOCK_RESTRICT = 446,
    LANDLOCK_VERSION = 1,
    LANDLOCK_BENEATH = 1,
    LANDLOCK_PORT = 2
};

static int sandbox_failed(const char *what)
{
    return err_set(
        ERR_INTERNAL,
        "The sandbox cannot be closed: %s failed (%s). Scans are only read and reconstructed inside it: run on "
        "a kernel with seccomp, and let the service's container allow it.",
        what, strerror(errno));
}

/* `most`: what the process itself may raise it to. */
static int limit_set(__rlimit_resource_t resource, uint64_t value, uint64_t most)
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
    int rc = limit_set(RLIMIT_FSIZE, limits->file_bytes, limits->file_bytes);
    /* At the soft limit comes SIGXCPU, at the hard one SIGKILL, which may also be somebody else's. */
    if (rc == 0)
        rc = limit_set(RLIMIT_CPU, seconds, seconds + 1);
    /* The address sanitizer maps terabytes of shadow. */
    if (rc == 0 && !SANDBOX_SANITIZED)
        rc = limit_set(RLIMIT_AS, limits->mapped_bytes + heap, limits->mapped_bytes + heap);
    if (rc == 0 && !SANDBOX_SANITIZED)
        rc = limit_set(RLIMIT_DATA, heap, heap);
    return rc;
}

void sandbox_follow_parent(int socket)
{
    struct pollfd other = {.fd = socket};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (poll(&other, 1, 0) > 0 && (other.revents & POLLHUP))
        _exit(0);
}

/* ---- filters around the service ---- */

/* The calls by which a process shuts itself in. With these arguments the kernel does nothing. */
static const struct {
    const char *name;
    long number, arguments[3];
    bool needed; /* seccomp: without landlock the sandbox is looser, and says so */
} shutting_in[] = {
    {"seccomp", SCMP_SYS(seccomp), {-1, 0, 0}, true},
    {"landlock_create_ruleset", LANDLOCK_CREATE, {0, 0, LANDLOCK_VERSION}, false},
    {"landlock_add_rule", LANDLOCK_ADD, {-1, 0, 0}, false},
    {"landlock_restrict_self", LANDLOCK_RESTRICT, {-1, 0, 0}, false},
};

/* Whether a filter of the service's unit or container refuses the call, by an error or by death. It is tried in a
 * child: of a process that a filter killed nobody can tell the call. */
static bool call_refused(size_t i)
{
    pid_t pid = fork();
    if (pid == 0) {
        const long *argument = shutting_in[i].arguments;
        long rc = syscall(shutting_in[i].number, argument[0], argument[1], argument[2]);
        _exit(rc < 0 && errno == EPERM && shutting_in[i].needed);
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
    for (size_t i = 0; i < sizeof shutting_in / sizeof *shutting_in; i++)
        if (call_refused(i)) {
            size_t length = strlen(names);
            snprintf(names + length, sizeof names - length, "%s%s (%ld)", length ? ", " : "", shutting_in[i].name,
                     shutting_in[i].number);
        }
    return *names == '\0' ? 0
                          : err_set(ERR_INTERNAL,
                                    "A filter of system calls around this program refuses %s, by which it confines "
                                    "itself: allow them, in the service's unit (SystemCallFilter=) or in the seccomp "
                                    "profile of its container.",
                                    names);
}

/* ---- landlock ---- */

/* What the kernel's landlock can watch; all zero where it has none. */
static struct landlock_rules landlock_rules_known(void)
{
    long abi = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_VERSION);
    struct landlock_rules rules = {0};
    for (size_t i = 0; i < sizeof landlock_known / sizeof *landlock_known; i++)
        if (abi >= landlock_known[i].since) {
            rules.files |= landlock_known[i].rules.files;
            rules.network |= landlock_known[i].rules.network;
            rules.scope |= landlock_known[i].rules.scope;
        }
    return rules;
}

static int landlock_create(const struct landlock_rules *rules, int *ruleset)
{
    *ruleset = (int)syscall(LANDLOCK_CREATE, rules, sizeof *rules, 0);
    return *ruleset >= 0 ? 0 : sandbox_failed("landlock_create_ruleset");
}

/* Enter the landlock domain, and close `ruleset`. */
static int landlock_enter(int ruleset)
{
    long rc = syscall(LANDLOCK_RESTRICT, ruleset, 0);
    close(ruleset);
    return rc == 0 ? 0 : sandbox_failed("landlock_restrict_self");
}

/* Landlock is the second lock of a codec: seccomp below already forbids every call it watches, so a kernel without it
 * will do. */
static int landlock_enter_codec(void)
{
    const struct landlock_rules rules = landlock_rules_known();
    int ruleset, rc = rules.files ? landlock_create(&rules, &ruleset) : 0;
    return rules.files && rc == 0 ? landlock_enter(ruleset) : rc;
}

/* ---- seccomp ---- */

/* Calls that work on memory and on descriptors that are already open. */
static const int allowed[] = {
    SCMP_SYS(read),          SCMP_SYS(pread64),      SCMP_SYS(write),
    SCMP_SYS(writev),        SCMP_SYS(pwrite64),     SCMP_SYS(pwritev),
    SCMP_SYS(lseek),         SCMP_SYS(fstat),        SCMP_SYS(close),
    SCMP_SYS(munmap),        SCMP_SYS(mremap),       SCMP_SYS(madvise),
    SCMP_SYS(brk),           SCMP_SYS(futex),        SCMP_SYS(exit),
    SCMP_SYS(exit_group),    SCMP_SYS(rt_sigreturn), SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getpid),
    SCMP_SYS(gettid),        SCMP_SYS(getcwd),       SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),  SCMP_SYS(sigaltstack),  SCMP_SYS(sched_yield),
    SCMP_SYS(sysinfo), /* qsort() of a large array asks how much memory there is */
};
/* libhdf5 and libxml2 try these and go on when refused. */
static const int refused[] = {
    SCMP_SYS(open),      SCMP_SYS(openat),          SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(stat),
    SCMP_SYS(lstat),     SCMP_SYS(newfstatat),      SCMP_SYS(statx),  SCMP_SYS(readlink),  SCMP_SYS(readlinkat),
    SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), /* after a checksum that is wrong, as if it were being written */
#if SANDBOX_SANITIZED
    SCMP_SYS(ioctl), /* what a report begins with: whether stderr has colours */
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
    /* The parent's message is the way in for the one upload; it sends no second. */
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(recvmsg), socket);
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(ftruncate), output);
    if (rc == 0)
        rc = seccomp_allow_on(filter, SCMP_SYS(fsync), output);
    /* No new code: memory is mapped without PROT_EXEC. abort() may signal this process and no other. */
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    /* The limits of this process come with the upload. */
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

/* Root's, by which it could raise its limits again. Without any this is not asked for: a service's unit may forbid it.
 */
static int capabilities_drop(void)
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
    int rc = limit_set(RLIMIT_CORE, 0, 0);
    if (rc == 0)
        rc = limit_set(RLIMIT_NPROC, 0, 0);
    if (rc == 0)
        rc = capabilities_drop();
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rc = sandbox_failed("no_new_privs");
    if (rc == 0)
        rc = landlock_enter_codec();
    return rc == 0 ? seccomp_enter(socket, output) : rc;
}

/* Calls that no reconstruction needs, and by which a process that was taken over reaches others or the kernel's darker
 * corners. What drivers of devices use (ioctl, files, mappings, unix sockets, threads, memory policies) is not here. */
static const int worker_refused[] = {
#if !SANDBOX_SANITIZED /* whose leak check traces its own process */
    SCMP_SYS(ptrace),
#endif
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(io_uring_setup), /* its requests pass by every filter */
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
    /* by name, and not watched by landlock, or not by every kernel's */
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
    452, /* fchmodat2, setxattrat, removexattrat: newer than the library */
    463,
    466,
};

/* Calls that change a process of the same account by its number, or, where the argument is 0, the calling one. */
static const struct {
    int call;
    unsigned argument;
} worker_own[] = {
    {SCMP_SYS(prlimit64), 0},          {SCMP_SYS(setpriority), 1},    {SCMP_SYS(ioprio_set), 1},
    {SCMP_SYS(sched_setscheduler), 0}, {SCMP_SYS(sched_setparam), 0}, {SCMP_SYS(sched_setattr), 0},
    {SCMP_SYS(migrate_pages), 0},      {SCMP_SYS(move_pages), 0},
};

enum { DNS_PORT = 53 };

/* Rights of landlock. */
enum {
    EXECUTE = 1 << 0,
    WRITE = 1 << 1,
    READ = 1 << 2 | 1 << 3,                     /* files and folders */
    TRUNCATE = 1 << 14,                         /* also what opening a file to be written anew takes */
    MAKE = 1 << 5 | 1 << 7 | 1 << 8 | TRUNCATE, /* make and remove files, make folders */
    DEVICE = 1 << 15,                           /* ioctl */
    CONNECT = 1 << 1,                           /* of the network's rights */
    OF_FILES = EXECUTE | WRITE | 1 << 2 | TRUNCATE | DEVICE
};

/* Where a process may open files; pattern NULL ends a list. */
struct sandbox_place {
    const char *pattern;
    uint64_t rights;
};
/* Where a worker's libraries, and the driver of a GPU, open files whenever they come to need them. */
static const struct sandbox_place worker_places[] = {
    {"/usr", READ | EXECUTE},
    {"/lib", READ | EXECUTE},
    {"/lib64", READ | EXECUTE},
    {"/etc/ld.so.cache", READ}, /* and no more of /etc: there may be keys */
    {"/etc/nvidia", READ},
    {"/proc", READ},
    {"/proc/self/task", READ | WRITE | TRUNCATE}, /* threads are given names, which is fatal to CUDA where it fails */
    {"/sys", READ},
    {"/dev/null", READ | WRITE},
    {"/dev/zero", READ},
    {"/dev/random", READ},
    {"/dev/urandom", READ},
    {"/dev/nvidia*", READ | WRITE | DEVICE},
    {"/dev/dxg", READ | WRITE | DEVICE}, /* a GPU under Windows' Linux */
    {"/dev/shm", READ | WRITE | MAKE},
    {.pattern = NULL},
};
/* Programs and libraries, what names of hosts are looked up in, and the certificates that are trusted. */
static const struct sandbox_place sender_places[] = {
    {"/usr", READ | EXECUTE},
    {"/lib", READ | EXECUTE},
    {"/lib64", READ | EXECUTE},
    {"/etc/ld.so.cache", READ},
    {"/etc/resolv.conf", READ},
    {"/etc/hosts", READ},
    {"/etc/host.conf", READ},
    {"/etc/gai.conf", READ},
    {"/etc/nsswitch.conf", READ},
    {"/etc/services", READ},
    {"/etc/ssl/certs", READ},
    {"/etc/gnutls", READ},
    {"/etc/dcmtk", READ},
    {"/run/systemd/resolve", READ},
    {"/dev/null", READ | WRITE},
    {"/dev/random", READ},
    {"/dev/urandom", READ},
#if SANDBOX_SANITIZED
    {"/proc", READ},
#endif
    {.pattern = NULL},
};

struct worker_rules {
    int ruleset;
    uint64_t known; /* rights that the kernel knows */
    int error;      /* errno of the first rule that failed */
};

/* Allow `rights` on the file, or beneath the folder, `path`; one that is not there is passed over. */
static void place_allow(struct worker_rules *rules, const char *path, uint64_t rights)
{
    struct stat there;
    struct {
        uint64_t rights;
        int32_t fd;
    } __attribute__((packed)) rule = {.rights = rights & rules->known, .fd = open(path, O_PATH | O_CLOEXEC)};
    if (rule.fd < 0)
        return;
    if (fstat(rule.fd, &there) == 0 && !S_ISDIR(there.st_mode))
        rule.rights &= OF_FILES;
    if (syscall(LANDLOCK_ADD, rules->ruleset, LANDLOCK_BENEATH, &rule, 0) != 0 && !rules->error)
        rules->error = errno;
    close(rule.fd);
}

static void pattern_allow(struct worker_rules *rules, const char *pattern, uint64_t rights)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            place_allow(rules, found.gl_pathv[i], rights);
    globfree(&found);
}

/* The codec loads the same libraries. */
static int library_allow(struct dl_phdr_info *library, size_t size, void *rules)
{
    (void)size;
    if (library->dlpi_name[0] == '/')
        place_allow(rules, library->dlpi_name, READ);
    return 0;
}

/* Where the loader looks for a driver's libraries. */
static void library_path_allow(struct worker_rules *rules, const char *folders)
{
    char path[PATH_MAX];
    for (size_t length; *folders; folders += length + (folders[length] == ':')) {
        length = strcspn(folders, ":");
        if (*folders == '/' && length < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)length, folders);
            place_allow(rules, path, READ);
        }
    }
}

/* Connecting by TCP to `port` is all that a sender may do, but for looking up names. */
static void port_allow(struct worker_rules *rules, uint64_t port)
{
    const struct {
        uint64_t rights, port;
    } rule = {.rights = CONNECT, .port = port};
    if (syscall(LANDLOCK_ADD, rules->ruleset, LANDLOCK_PORT, &rule, 0) != 0 && !rules->error)
        rules->error = errno;
}

/* `port`: that may be connected to; 0: none. */
static int landlock_enter_places(const struct sandbox_place *places, const char *const *readable, int port,
                                 bool *landlock)
{
    const struct landlock_rules known = landlock_rules_known();
    struct worker_rules rules = {.known = known.files};
    const char *cache = port ? NULL : getenv("CUDA_CACHE_PATH"), *folders = getenv("LD_LIBRARY_PATH");
    *landlock = known.files != 0;
    if (!*landlock)
        return 0;
    int rc = landlock_create(&known, &rules.ruleset);
    if (rc != 0)
        return rc;
    for (; places->pattern; places++)
        pattern_allow(&rules, places->pattern, places->rights);
    for (int i = 0; port && known.network && i < 2; i++)
        port_allow(&rules, (uint64_t)(i ? DNS_PORT : port));
    for (; *readable; readable++)
        place_allow(&rules, *readable, READ | EXECUTE);
    dl_iterate_phdr(library_allow, &rules);
    if (folders)
        library_path_allow(&rules, folders);
    if (cache && *cache == '/')
        place_allow(&rules, cache, READ | WRITE | MAKE);
    if (rules.error) {
        close(rules.ruleset);
        errno = rules.error;
        return sandbox_failed("landlock_add_rule");
    }
    return landlock_enter(rules.ruleset);
}

/* No sockets but unix ones, and with `network` those of the internet. */
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
