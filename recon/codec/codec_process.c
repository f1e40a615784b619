#include "recon/codec/codec_process.h"

#include "gridding/base/err.h"
#include "recon/codec/codec.h"
#include "recon/codec/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEMPLATE_MS = 60000 }; /* limit of a template's fork; its start takes some 10 */

static int no_files(void)
{
    return err_set(ERR_IO, "No more files can be opened (%s).", strerror(errno));
}

/* Move a descriptor above the child's fixed number, so that dup2 does not replace one still needed. */
static int move_away(int fd)
{
    enum { FREE_FROM = 16 };
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, FREE_FROM);
    return moved >= 0 ? moved : no_files();
}

static int spawn(pid_t *pid, const char *codec, const char *verb, int socket)
{
    /* Allocate the memory for a small scan at once, in huge pages if the kernel has them, and keep it: page faults take
     * longer than decoding. */
    char malloc_tuned[] = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=12582912:"
                          "glibc.malloc.mmap_threshold=4194304:glibc.malloc.trim_threshold=1073741824";
    char *const environment[] = {malloc_tuned, NULL};
    char name[] = "mrirecon-codec", words_verb[16] = "";
    strncpy(words_verb, verb, sizeof words_verb - 1);
    char *const words[] = {name, words_verb, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    /* Its stderr is used by the sanitizers only. */
    for (int fd = 0; fd < (SANDBOX_SANITIZED ? 2 : 3); fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, socket, CODEC_FD);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error = posix_spawn(pid, codec, &actions, &attributes, words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? 0
                      : err_set(ERR_INTERNAL, "The decoder %s cannot be started (%s). Is the installation complete?",
                                codec, strerror(error));
}

static int pair_make(int pair[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : no_files();
}

/* Start the program with the argument `verb`. */
static int program_start(struct codec_process *out, const char *codec, const char *verb)
{
    int pair[2], rc = pair_make(pair);
    if (rc != 0)
        return rc;
    struct codec_process process = {.socket = pair[0]};
    int moved = move_away(pair[1]);
    rc = moved < 0 ? moved : spawn(&process.pid, codec, verb, moved);
    if (moved >= 0)
        close(moved);
    close(pair[1]);
    if (rc == 0)
        *out = process;
    else
        close(pair[0]);
    return rc;
}

bool codec_send(int socket, const void *message, size_t bytes, const int *fds, int count)
{
    const size_t size = (size_t)count * sizeof *fds;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof *fds)];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(head), fds, size);
    return sendmsg(socket, &packet, MSG_NOSIGNAL) == (ssize_t)bytes;
}

int codec_process_end(struct codec_process *process)
{
    int status = 0;
    kill(process->pid, SIGKILL);
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(process->socket);
    *process = (struct codec_process){0};
    return status;
}

/* ---- the template ---- */

int codec_template_start(struct codec_template *codec)
{
    return codec->process.pid ? 0 : program_start(&codec->process, codec->codec, CODEC_TEMPLATE);
}

static bool fork_ask(int template, int socket)
{
    const struct codec_head request = {CODEC_FORK_MAGIC, CODEC_VERSION};
    return codec_send(template, &request, sizeof request, &socket, 1);
}

/* The pid of the process that the template has forked; 0: it failed. */
static pid_t fork_answer(int template)
{
    struct pollfd socket = {.fd = template, .events = POLLIN};
    struct codec_forked answer = {.pid = 0};
    int ready;
    while ((ready = poll(&socket, 1, TEMPLATE_MS)) < 0 && errno == EINTR)
        ;
    bool known = ready > 0 && recv(template, &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer &&
                 answer.head.magic == CODEC_FORK_MAGIC && answer.head.version == CODEC_VERSION;
    return known && answer.pid > 0 ? (pid_t)answer.pid : 0;
}

int codec_process_start(struct codec_process *out, struct codec_template *codec, int *status)
{
    *status = 0;
    if (codec->process.pid) {
        int pair[2], rc = pair_make(pair);
        if (rc != 0)
            return rc;
        pid_t pid = fork_ask(codec->process.socket, pair[1]) ? fork_answer(codec->process.socket) : 0;
        close(pair[1]);
        if (pid) {
            *out = (struct codec_process){.pid = pid, .socket = pair[0]};
            return 0;
        }
        close(pair[0]);
        *status = codec_process_end(&codec->process);
    }
    return program_start(out, codec->codec, CODEC_DECODE);
}
