#include "daemon/http/page.h"

#include "daemon/http/http_fields.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MOST = 512, BYTES_MOST = 64 << 20, HASH = 32, HASH_TOLD = 16, NAME_HASH = 8 };

struct page {
    struct page_file file[FILES_MOST + 1]; /* the last entry is for the file that exceeds the limit */
    int count;
    size_t bytes;
};

/* Compressed files are sorted before their original; of two codings of the same quality the first is used. */
static const struct {
    const char *ending, *coding;
} codings[] = {{".br", "br"}, {".gz", "gzip"}, {"", NULL}};
enum { CODINGS = sizeof codings / sizeof *codings };

static const char *media_of(const char *name)
{
    static const char *const table[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".ico", "image/x-icon"},
        {".json", "application/json"},
        {".map", "application/json"},
        {".webmanifest", "application/manifest+json"},
        {".woff2", "font/woff2"},
        {".txt", "text/plain; charset=utf-8"},
    };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof table / sizeof *table; i++)
        if (strcmp(ending, table[i][0]) == 0)
            return table[i][1];
    return "application/octet-stream";
}

/* The entry of `name` + the ending of a coding. */
static const struct page_file *file_find(const struct page *page, const char *name, const char *ending)
{
    char whole[PAGE_NAME];
    if (snprintf(whole, sizeof whole, "%s%s", name, ending) >= (int)sizeof whole)
        return NULL;
    for (int i = 0; i < page->count; i++)
        if (strcmp(page->file[i].name, whole) == 0)
            return &page->file[i];
    return NULL;
}

/* "app-ABCD2345.js" */
static bool name_is_hashed(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && strspn(dash + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == NAME_HASH && dash[1 + NAME_HASH] == '.';
}

static int file_failed(const char *name, int error)
{
    return err_set(ERR_IO, "The page's file %s cannot be read: %s.", name, strerror(error));
}

/* Read `length` bytes of an open file; fails if it has become shorter. */
static int bytes_read(int fd, struct page_file *file)
{
    for (size_t got = 0; got < file->length;) {
        ssize_t count = read(fd, file->bytes + got, file->length - got);
        if (count <= 0 && !(count < 0 && errno == EINTR))
            return file_failed(file->name, count < 0 ? errno : EIO);
        got += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static int etag_make(struct page_file *file)
{
    unsigned char hash[HASH];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, file->bytes, file->length, hash) != 0)
        return err_set(ERR_INTERNAL, "The page's file %s cannot be hashed.", file->name);
    char *text = file->etag;
    *text++ = '"';
    for (int i = 0; i < HASH_TOLD; i++, text += 2)
        snprintf(text, 3, "%02x", hash[i]);
    memcpy(text, "\"", 2);
    return 0;
}

static int file_take(struct page *page, struct page_file *file, const char *name, int fd)
{
    memcpy(file->name, name, strlen(name) + 1);
    file->bytes = malloc(file->length + 1);
    int rc = file->bytes ? bytes_read(fd, file) : err_no_memory("the page's files");
    if (!rc)
        rc = etag_make(file);
    if (rc) {
        free(file->bytes);
        return rc;
    }
    page->count++;
    page->bytes += file->length;
    return 0;
}

/* Add a file of the folder, unless it is hidden or not a regular file. */
static int file_add(struct page *page, int folder, const char *name)
{
    struct page_file *file = &page->file[page->count];
    struct stat status;
    int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC), rc = 0;
    if (fd < 0 || fstat(fd, &status) < 0) {
        rc = file_failed(name, errno);
    } else if (S_ISREG(status.st_mode)) {
        *file = (struct page_file){.length = (size_t)status.st_size};
        if (strlen(name) >= PAGE_NAME || page->count == FILES_MOST || file->length > BYTES_MOST - page->bytes)
            rc = err_set(ERR_LIMIT,
                         "The page's file %.160s is one too many: a page has at most %d files, of %d MiB together, "
                         "with names below %d bytes.",
                         name, FILES_MOST, BYTES_MOST >> 20, PAGE_NAME);
        else
            rc = file_take(page, file, name, fd);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Link each file to its codings. */
static void files_sort_out(struct page *page)
{
    for (int i = 0; i < page->count; i++) {
        struct page_file *file = &page->file[i];
        char name[PAGE_NAME];
        memcpy(name, file->name, sizeof name);
        for (int c = 0; c < CODINGS && codings[c].coding && !file->coding; c++) {
            size_t length = strlen(file->name), ending = strlen(codings[c].ending);
            if (length > ending && strcmp(file->name + length - ending, codings[c].ending) == 0) {
                name[length - ending] = '\0';
                file->coding = codings[c].coding;
            }
        }
        for (int c = 0; c < CODINGS; c++)
            file->varies |= codings[c].coding && file_find(page, name, codings[c].ending);
        file->media = media_of(name);
        file->hashed = name_is_hashed(name);
    }
}

int page_create(struct page **out, const char *folder)
{
    DIR *list = opendir(folder);
    if (!list)
        return err_set(errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO,
                       "The page's folder %s cannot be read: %s.", folder, strerror(errno));
    struct page *page = calloc(1, sizeof *page);
    int rc = page ? 0 : err_no_memory("the page's files");
    for (struct dirent *entry; !rc && (errno = 0, entry = readdir(list));)
        if (entry->d_name[0] != '.')
            rc = file_add(page, dirfd(list), entry->d_name);
    if (!rc && errno)
        rc = err_set(ERR_IO, "The page's folder %s cannot be read: %s.", folder, strerror(errno));
    closedir(list);
    if (!rc && !file_find(page, "index.html", ""))
        rc = err_set(ERR_NOT_FOUND, "The page's folder %s has no index.html.", folder);
    if (rc) {
        page_free(page);
        return rc;
    }
    files_sort_out(page);
    *out = page;
    return 0;
}

void page_free(struct page *page)
{
    for (int i = 0; page && i < page->count; i++)
        free(page->file[i].bytes);
    free(page);
}

const struct page_file *page_find(const struct page *page, const char *name, const char *accepted)
{
    const struct page_file *best = NULL;
    int most = 0;
    if (!page || !(best = file_find(page, name, "")) || best->coding)
        return NULL; /* compressed files are not served by their own names */
    for (int i = 0; i < CODINGS && codings[i].coding; i++) {
        const struct page_file *file = file_find(page, name, codings[i].ending);
        int quality = file ? coding_quality(accepted, codings[i].coding) : 0;
        if (quality > most) {
            most = quality;
            best = file;
        }
    }
    return best;
}
