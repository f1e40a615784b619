#include "gridding/base/host_memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN (SIZE_MAX / 2)

/* The number after `name` at the beginning of a line of the file `path`; if `name` is "", the number at the file's
 * beginning. UNKNOWN if there is none, or "max". */
static size_t number_read(const char *path, const char *name)
{
    char line[256];
    size_t value = UNKNOWN, length = strlen(name);
    FILE *file = fopen(path, "re");
    while (file && value == UNKNOWN && fgets(line, sizeof line, file)) {
        unsigned long long number;
        if (strncmp(line, name, length) == 0 && sscanf(line + length, "%llu", &number) == 1 && number < UNKNOWN)
            value = (size_t)number;
    }
    if (file)
        fclose(file);
    return value;
}

/* The names of a control-group version's files. */
struct cgroup_files {
    const char *mount;
    const char *limits[2], *usage;
    const char *cache[2]; /* lines of memory.stat: page cache that can be reclaimed */
};
static const struct cgroup_files versions[] = {
    /* 2, 1 */
    {"/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file"}},
    {"/sys/fs/cgroup/memory",
     {"memory.limit_in_bytes", "memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     {"total_active_file", "total_inactive_file"}},
};

/* Apply the limits of the group in `folder`. */
static void group_count(const struct cgroup_files *files, const char *folder, size_t *available, size_t *total)
{
    char path[PATH_MAX + 64];
    size_t limit = UNKNOWN;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files->limits[i]);
        size_t one = number_read(path, "");
        limit = one < limit ? one : limit;
    }
    if (limit >= *total) /* true also without a limit, which version 1 shows as about 2^63 */
        return;
    snprintf(path, sizeof path, "%s/%s", folder, files->usage);
    size_t used = number_read(path, "");
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2 && used != UNKNOWN; i++) {
        size_t cache = number_read(path, files->cache[i]);
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
    char path[PATH_MAX], line[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    *available = number_read(path, "MemAvailable:");
    *total = number_read(path, "MemTotal:");
    *available = *available < UNKNOWN / 1024 ? *available * 1024 : UNKNOWN;
    *total = *total < UNKNOWN / 1024 ? *total * 1024 : UNKNOWN;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    /* 4:cpu,memory:/user.slice for version 1, 0::/user.slice for version 2. */
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *name = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!name)
            continue;
        *controllers++ = *name++ = '\0';
        name[strcspn(name, "\n")] = '\0';
        bool memory = false;
        for (char *rest = NULL, *word = strtok_r(controllers, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
            memory = memory || strcmp(word, "memory") == 0;
        if (memory || strcmp(line, "0") == 0)
            groups_count(&versions[memory], root, name, available, total);
    }
    if (file)
        fclose(file);
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
