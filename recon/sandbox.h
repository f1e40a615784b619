/* sandbox.h: shuts the calling process in: it keeps the descriptors and memory it has and can get no others. */
#ifndef MRIRECON_SANDBOX_H
#define MRIRECON_SANDBOX_H

#include <stdint.h>

struct sandbox_limits {
    uint64_t mapped_bytes; /* address space beyond what the process needs for itself, e.g. the mapped input */
    uint64_t heap_bytes;   /* private memory */
    uint64_t file_bytes;   /* where a file (or memfd) may be written at most */
    double cpu_seconds;
};

/* Enter: resource limits, no new privileges, landlock (files, network, signals: as much as the kernel knows), and a
 * seccomp list of the calls a decoder needs; opening a file answers EACCES, any other call kills the process. The
 * process must be single-threaded. There is no way back. Fails with ERR_INTERNAL where the kernel cannot do it: then
 * nothing hostile may be read. */
int sandbox_enter(const struct sandbox_limits *limits);

#endif
