#include "clients/batch_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static int scan_compare(const void *a, const void *b)
{
    return strcmp(((const struct scan_entry *)a)->name, ((const struct scan_entry *)b)->name);
}

static bool is_scan(const char *name)
{
    const char *ending = strrchr(name, '.');
    return ending && name[0] != '.' &&
           (strcasecmp(ending, ".h5") == 0 || strcasecmp(ending, ".mrd") == 0 || strcasecmp(ending, ".npz") == 0);
}

static int name_refused(const char *folder, const char *name)
{
    char shown[256];
    snprintf(shown, sizeof shown, "%s", name);
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    return err_set(ERR_IO, "%s contains a file whose name is not UTF-8, \"%s\". Rename it.", folder, shown);
}

static int scan_add(const char *folder, const char *name, const struct stat *there, struct scan_entry **entry,
                    int *count)
{
    json_t *text = json_string(name);
    json_decref(text);
    if (!text)
        return name_refused(folder, name);
    struct scan_entry *more = realloc(*entry, ((size_t)*count + 1) * sizeof *more);
    if (more)
        *entry = more;
    char *copy = more ? strdup(name) : NULL;
    if (!copy)
        return err_no_memory("the list of scans");
    int64_t changed = (int64_t)there->st_mtim.tv_sec * 1000000000 + there->st_mtim.tv_nsec;
    (*entry)[(*count)++] = (struct scan_entry){.name = copy, .bytes = there->st_size, .changed = changed};
    return 0;
}

/* Keep the whole file name for results whose names would be equal without the ending. A whole name may equal another
 * scan's result in turn: repeat until all differ. */
static int images_part(struct scan_entry *entry, int count)
{
    for (bool again = true; again;) {
        json_t *images = json_object();
        again = false;
        for (int i = 0; i < count; i++) {
            char *image = folder_image_path("", &entry[i], "");
            const json_t *other = image ? json_object_get(images, image) : NULL;
            int rc = image ? 0 : ERR_NO_MEMORY;
            if (other) {
                struct scan_entry *first = &entry[json_integer_value(other)];
                again = again || !first->whole_name || !entry[i].whole_name;
                first->whole_name = entry[i].whole_name = true;
            } else if (image && json_object_set_new(images, image, json_integer(i)) != 0) {
                rc = err_no_memory("the list of scans");
            }
            free(image);
            if (rc) {
                json_decref(images);
                return rc;
            }
        }
        json_decref(images);
    }
    return 0;
}

static int folder_unread(const char *folder)
{
    return err_set(ERR_IO, "The folder %s cannot be read: %s.", folder, strerror(errno));
}

int folder_read(const char *folder, struct scan_entry **entry, int *count)
{
    DIR *stream = opendir(folder);
    int rc = 0;
    *entry = NULL;
    *count = 0;
    if (!stream)
        return folder_unread(folder);
    for (struct dirent *item; !rc && (errno = 0, item = readdir(stream));) {
        struct stat there;
        if (!is_scan(item->d_name))
            continue;
        const bool seen = fstatat(dirfd(stream), item->d_name, &there, 0) == 0;
        if (!seen && errno != ENOENT && errno != ELOOP) /* else it is gone, or a link to nothing */
            rc = folder_unread(folder);
        else if (seen && S_ISREG(there.st_mode))
            rc = scan_add(folder, item->d_name, &there, entry, count);
    }
    if (!rc && errno)
        rc = folder_unread(folder);
    closedir(stream);
    if (!rc && *count > 0) {
        qsort(*entry, (size_t)*count, sizeof **entry, scan_compare);
        rc = images_part(*entry, *count);
    }
    return rc;
}

void folder_free(struct scan_entry *entry, int count)
{
    for (int i = 0; i < count; i++)
        free(entry[i].name);
    free(entry);
}

char *folder_path(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) >= 0)
        return path;
    err_no_memory("a path");
    return NULL;
}

char *folder_image_path(const char *folder, const struct scan_entry *scan, const char *ending)
{
    char *path = NULL;
    int stem = (int)(scan->whole_name ? (long)strlen(scan->name) : strrchr(scan->name, '.') - scan->name);
    if (asprintf(&path, "%s/%.*s.%s", folder, stem, scan->name, ending) >= 0)
        return path;
    err_no_memory("a path");
    return NULL;
}
