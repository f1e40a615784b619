/* sandbox.h: confines the calling process to the descriptors and memory that it has and to what its parent sends it. */
#ifndef MRIRECON_SANDBOX_H
#define MRIRECON_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether this is built with the address sanitizer, whose shadow memory and reports a codec's sandbox must allow. */
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
    uint64_t file_bytes;   /* largest offset at which a file (or memfd) may be written */
    double cpu_seconds;    /* then SIGXCPU ends it, or a second later SIGKILL if it caught that */
};

/* Limit the calling process, before it reads anything. Limits are only ever lowered. Fails with ERR_INTERNAL. */
int sandbox_limit(const struct sandbox_limits *limits);

/* Have the kernel kill this process when the thread that started it ends, even if this process is stopped or hangs.
 * `socket` (-1: none) is one end of a pair whose other end the parent has: if that is closed already, the process exits
 * at once, because the parent may have ended before this call. */
void sandbox_follow_parent(int socket);

/* Enter: no core file, no children, no capabilities, no new privileges, landlock (files, network, signals: as far
 * as the kernel supports it), and a seccomp list of the calls a codec needs. Opening a file fails with EACCES, any
 * other call kills the process. It can still lower its limits, but not raise them, even as root. Messages with
 * descriptors can be received on `socket` (-1: none) only; only the file `output` (-1: none) can be truncated and
 * synced. The process must be single-threaded. It cannot leave the sandbox. Fails with ERR_INTERNAL if the kernel
 * cannot do it: then no untrusted file may be read. */
int sandbox_enter(int socket, int output);

/* A looser sandbox, for a worker and the processes it starts. By seccomp: no new privileges, no sockets but unix ones
 * (EAFNOSUPPORT), and EPERM for calls that reach into other processes (their limits and priorities included), mounts,
 * namespaces and the kernel, or change a file by its name. By landlock: files can be opened, made and removed (else
 * EACCES) only where a reconstruction on a CPU or a GPU needs it: system programs and libraries, /proc, /sys, devices
 * of GPUs, /dev/shm, the folders of CUDA_CACHE_PATH and LD_LIBRARY_PATH, and the list `readable` (files and folders to
 * read and execute; NULL-terminated; missing ones are ignored). Open and received descriptors stay usable. The sandbox
 * holds for the calling thread and those that it starts, so the process must be single-threaded; it cannot be left.
 * *landlock: whether the kernel has landlock; otherwise seccomp confines alone. Fails with ERR_INTERNAL, also if a
 * filter already in force refuses the calls that this needs, or kills the caller: the sentence names the calls. */
int sandbox_enter_worker(const char *const *readable, bool *landlock);

/* What a sender needs: it sends files to another host. */
struct sandbox_sender {
    const char *const *readable; /* files and folders to read; NULL-terminated; missing ones are ignored */
    int port;                    /* of the other host */
    const char *program;         /* the only program that it may start; NULL: none */
    uint64_t heap_bytes;         /* private memory, of each process */
    double cpu_seconds;          /* of each process */
};

/* A sandbox for a sender and the program it starts. No core file, no capabilities, no new privileges, limits of memory,
 * CPU time and descriptors. By seccomp, a list of the calls that a client of TLS or DICOM needs (ENOSYS for the rest):
 * sockets are UDP (name resolution) and TCP ones that connect and do not listen; without `program` no process can be
 * started, only threads. By landlock: TCP connections only to `port` and to DNS (Linux 6.7); libraries, the files of
 * name resolution, trusted certificates and DCMTK's dictionaries can be read, and the list `readable`; no file can be
 * written. The process must be single-threaded. Fails as sandbox_enter_worker(). */
int sandbox_enter_sender(const struct sandbox_sender *sender);

#endif
