/* Stands in for mrirecon-gpu.so, which a worker opens when it has confined itself: says on stderr what it can open of
 * the files in $INTRUDER_PATHS (with colons between) and of the daemon's own. It has no GPU, so the worker computes on
 * the CPU. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void visit(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    dprintf(STDERR_FILENO, "intruder: %s: %s\n", path, fd >= 0 ? "open" : strerror(errno));
    if (fd >= 0)
        close(fd);
}

__attribute__((constructor)) static void intrude(void)
{
    char path[4096];
    for (const char *next = getenv("INTRUDER_PATHS"); next && *next;) {
        size_t length = strcspn(next, ":");
        snprintf(path, sizeof path, "%.*s", (int)length, next);
        visit(path, O_RDONLY);
        strncat(path, ".made", sizeof path - strlen(path) - 1);
        visit(path, O_WRONLY | O_CREAT);
        next += length + (next[length] == ':');
    }
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    visit(path, O_RDONLY);
    visit("/proc/self/status", O_RDONLY);
}

static int no_gpu(struct dev *dev, int index)
{
    (void)dev;
    return err_set(ERR_NO_DEVICE, "There is no GPU %d.", index);
}

const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    static const struct dev_leaf leaf = {.abi = DEV_LEAF_ABI, .open = no_gpu};
    return &leaf;
}
