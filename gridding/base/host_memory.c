#include "gridding/base/host_memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN (SIZE_MAX / 2)
enum { TEXT_MOST = 8192 };

/* The beginning of a file of the kernel's, which gives that much at once; "" if it cannot be read. Looks are frequent,
 * some before a job's work: no more calls than these. */
static void text_read(const char *path, char text[TEXT_MOST])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = fd >= 0 ? read(fd, text, TEXT_MOST - 1) : 0;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* The number after `name` at the beginning of a line; if `name` is "", the number at the text's beginning. UNKNOWN if
 * there is none, or "max". */
static size_t number_after(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, name, length) != 0)
            continue;
        char *end;
        const unsigned long long number = strtoull(line + length, &end, 10);
        return end != line + length && number < UNKNOWN ? (size_t)number : UNKNOWN;
    }
    return UNKNOWN;
}

static size_t number_read(const char *path)
{
    char text[TEXT_MOST];
    text_read(path, text);
    return number_after(text, "");
}

/* The names of a control-group version's files. */
struct cgroup_files {
    const char *mount;
    const char *limits[2], *usage; /* of version 1 one limit */
    const char *cache[2];          /* lines of memory.stat: page cache that can be reclaimed */
};
static const struct cgroup_files versions[] = {
    /* 2, 1 */
    {"/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file"}},
    {"/sys/fs/cgroup/memory",
     {"memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     {"total_active_file", "total_inactive_file"}},
};

/* Apply the limits of the group in `folder`. */
static void group_count(const struct cgroup_files *files, const char *folder, size_t *available, size_t *total)
{
    char path[PATH_MAX + 64], text[TEXT_MOST];
    size_t limit = UNKNOWN;
    for (int i = 0; i < 2 && files->limits[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files->limits[i]);
        size_t one = number_read(path);
        limit = one < limit ? one : limit;
    }
    if (limit >= *total) /* true also without a limit, which version 1 shows as about 2^63 */
        return;
    snprintf(path, sizeof path, "%s/%s", folder, files->usage);
    size_t used = number_read(path);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    text_read(path, text);
    for (int i = 0; i < 2 && used != UNKNOWN; i++) {
        size_t cache = number_after(text, files->cache[i]);
        used -= cache == UNKNOWN ? 0 : cache < used ? cache : used;
    }
    size_t left = used == UNKNOWN ? limit : used < limit ? limit - used : 0;
    *total = limit;
    *available = left < *available ? left : *available;
}

/* Apply the limits of the group `name` ("/system.slice/mrirecond.service") and of all above it. In a container, `name`
 * may be the group's name outside, which is not mounted; then the root of the mount is the container's group. */
static void groups_count(const struct cgroup_files *files, const char *root, const char *name, size_t *available,
                         size_t *total)
{
    char folder[PATH_MAX];
    int mount = snprintf(folder, sizeof folder, "%s%s", root, files->mount);
    if (mount + strlen(name) >= sizeof folder)
        return;
    snprintf(folder + mount, sizeof folder - (size_t)mount, "%s", name);
    for (char *end = folder + strlen(folder); end; end = strrchr(folder + mount, '/')) {
        *end = '\0';
        group_count(files, folder, available, total);
    }
}

void host_memory_below(const char *root, size_t *available, size_t *total)
{
    char path[PATH_MAX], text[TEXT_MOST];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    text_read(path, text);
    *available = number_after(text, "MemAvailable:");
    *total = number_after(text, "MemTotal:");
    *available = *available < UNKNOWN / 1024 ? *available * 1024 : UNKNOWN;
    *total = *total < UNKNOWN / 1024 ? *total * 1024 : UNKNOWN;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    text_read(path, text);
    /* 4:cpu,memory:/user.slice for version 1, 0::/user.slice for version 2. */
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        char *controllers = strchr(line, ':'), *name = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!name)
            continue;
        *controllers++ = *name++ = '\0';
        bool memory = false;
        for (char *rest = NULL, *word = strtok_r(controllers, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
            memory = memory || strcmp(word, "memory") == 0;
        if (memory || strcmp(line, "0") == 0)
            groups_count(&versions[memory], root, strcmp(name, "/") == 0 ? "" : name, available, total);
    }
}

void host_memory(size_t *available, size_t *total)
{
    host_memory_below("", available, total);
}

size_t host_memory_available(void)
{
    size_t available, total;
    host_memory(&available, &total);
    return available;
}
