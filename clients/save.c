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
    char *path, *temporary; /* temporary: NULL where `path` is written directly */
    int fd;
    bool standard; /* standard output: not ours to close */
};

int save_create(struct save **out, const char *path)
{
    struct stat there;
    int failure = 0;
    struct save *save = calloc(1, sizeof *save);
    if (!save || !(save->path = strdup(path))) {
        free(save);
        return err_set(ERR_NO_MEMORY, "There is no memory to write %s.", path);
    }
    save->fd = -1;
    if (strcmp(path, "-") == 0) {
        save->fd = STDOUT_FILENO;
        save->standard = true;
    } else if (stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
        failure = err_set(ERR_IO, "%s is a folder. Name the file to write.", path);
    } else if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        save->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else if (asprintf(&save->temporary, "%s.part-XXXXXX", path) < 0) {
        save->temporary = NULL;
        failure = err_set(ERR_NO_MEMORY, "There is no memory to write %s.", path);
    } else {
        save->fd = mkostemp(save->temporary, O_CLOEXEC);
    }
    if (!failure && save->fd < 0) {
        failure = err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(errno));
        free(save->temporary);
        save->temporary = NULL;
    }
    if (failure) {
        save_free(save);
        return failure;
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
    /* mkostemp makes files for the owner alone; this one is to be like any other that the user makes. */
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(save->fd, 0666 & ~mask) < 0 || fsync(save->fd) < 0 || rename(save->temporary, save->path) < 0)
        return err_set(ERR_IO, "%s cannot be written: %s.", save->path, strerror(errno));
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
