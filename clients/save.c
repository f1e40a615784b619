#include "clients/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct save {
    char *path, *temporary; /* temporary: NULL if `path` is written directly */
    int fd;
    bool standard; /* standard output: not to be closed */
};

/* Advice for an errno of a path. */
static int not_written(const char *path)
{
    return err_set(ERR_IO, "%s cannot be written: %s. Choose a file in an existing folder that you can write to.", path,
                   strerror(errno));
}

int save_check(const char *path)
{
    struct stat there;
    if (strcmp(path, "-") == 0)
        return 0;
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        return err_set(ERR_IO, "%s is a folder. Name the file to write.", path);
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return access(path, W_OK) < 0 ? not_written(path) : 0;
    const char *end = strrchr(path, '/');
    char *folder = end ? strndup(path, (size_t)(end - path) + 1) : strdup(".");
    int rc = !folder ? err_no_memory("writing %s", path) : access(folder, W_OK | X_OK) < 0 ? not_written(path) : 0;
    free(folder);
    return rc;
}

int save_create(struct save **out, const char *path)
{
    struct stat there;
    int rc = save_check(path);
    if (rc)
        return rc;
    struct save *save = calloc(1, sizeof *save);
    if (!save || !(save->path = strdup(path))) {
        free(save);
        return err_no_memory("writing %s", path);
    }
    save->fd = -1;
    if (strcmp(path, "-") == 0) {
        save->fd = STDOUT_FILENO;
        save->standard = true;
    } else if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        save->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else if (asprintf(&save->temporary, "%s.part-XXXXXX", path) < 0) {
        save->temporary = NULL;
        rc = err_no_memory("writing %s", path);
    } else {
        save->fd = mkostemp(save->temporary, O_CLOEXEC);
    }
    if (!rc && save->fd < 0) {
        rc = not_written(path);
        free(save->temporary);
        save->temporary = NULL;
    }
    if (rc) {
        save_free(save);
        return rc;
    }
    *out = save;
    return 0;
}

int save_fd(const struct save *save)
{
    return save->fd;
}

int save_commit(struct save *save)
{
    if (!save->temporary)
        return 0;
    /* mkostemp makes files for the owner alone; this one gets the permissions of the user's other files. */
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(save->fd, 0666 & ~mask) < 0 || fsync(save->fd) < 0 || rename(save->temporary, save->path) < 0)
        return not_written(save->path);
    free(save->temporary);
    save->temporary = NULL;
    return 0;
}

void save_free(struct save *save)
{
    if (!save)
        return;
    if (save->temporary)
        unlink(save->temporary);
    if (save->fd >= 0 && !save->standard)
        close(save->fd);
    free(save->temporary);
    free(save->path);
    free(save);
}
