/* sandbox.h: shuts the calling process in: it keeps the descriptors and memory it has and can get no others but those
 * that its parent sends it. */
#ifndef MRIRECON_SANDBOX_H
#define MRIRECON_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether this is built with the address sanitizer, whose shadow memory and reports the sandbox of a codec has to let
 * through. */
#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANDBOX_SANITIZED 1
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED 0
#endif

struct sandbox_limits {
    uint64_t mapped_bytes; /* address space beyond what the process needs for itself, e.g. the mapped input */
    uint64_t heap_bytes;   /* private memory */
    uint64_t file_bytes;   /* where a file (or memfd) may be written at most */
    double cpu_seconds;    /* then SIGXCPU ends it, and a second later SIGKILL where it caught that */
};

/* Limit the calling process, before it reads anything. Limits are only ever lowered. Fails with ERR_INTERNAL. */
int sandbox_limit(const struct sandbox_limits *limits);

/* Have the kernel kill this process when the thread that started it is gone, even where this one is stopped or hangs.
 * `socket` (-1: none) is one end of a pair whose other end the parent has: where that is closed already, the process
 * ends at once, for then the parent may have gone before it was told. */
void sandbox_follow_parent(int socket);

/* Enter: no core file, no children, no capabilities, no new privileges, landlock (files, network, signals: as much as
 * the kernel knows), and a seccomp list of the calls a codec needs; opening a file answers EACCES, any other call kills
 * the process. Its own limits can still be lowered, also by root, who can no longer raise them. On
 * `socket` (-1: none), and on no other, messages can be received with the descriptors that they carry; `output` (-1:
 * none), and no other file, can be truncated and synced. The process must be single-threaded. There is no way back.
 * Fails with ERR_INTERNAL where the kernel cannot do it: then nothing hostile may be read. */
int sandbox_enter(int socket, int output);

/* A looser one, for a worker and all that it starts. By seccomp: no new privileges, no sockets but unix ones
 * (EAFNOSUPPORT), and EPERM for calls that reach into other processes (their limits and priorities included), mounts,
 * namespaces and the kernel, or change a file by its name. By landlock: files can be opened, made and removed (else
 * EACCES) only where a reconstruction on a CPU or a GPU needs it: system programs and libraries, /proc, /sys, devices
 * of GPUs, /dev/shm, where CUDA_CACHE_PATH and LD_LIBRARY_PATH say, and what `readable` lists (files and folders to be
 * read and run; NULL-terminated; those that are not there are passed over). Descriptors that are open already, or are
 * received, stay usable. The sandbox holds for the calling thread and those that it starts, so the process must be
 * single-threaded; it cannot be left. *landlock: whether the kernel has landlock; otherwise seccomp confines alone.
 * Fails with ERR_INTERNAL, also if a filter already in force refuses the calls that this needs, or kills for them: the
 * sentence names the calls. */
int sandbox_enter_worker(const char *const *readable, bool *landlock);

/* The same for a process that sends files to another host: internet sockets are allowed, by TCP to `port` (not 0) and,
 * to look up names, to that of DNS (where the kernel's landlock watches TCP); files can be read only where programs,
 * libraries, the lookup of names and trusted certificates need it, and of `readable`. */
int sandbox_enter_sender(const char *const *readable, int port, bool *landlock);

#endif
