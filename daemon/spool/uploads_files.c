/* The files of an upload, as read by requests, upkeep and --check-state. */
#include "daemon/spool/uploads_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *upload_file(char name[UPLOAD_NAME], const char *id, const char *ending)
{
    snprintf(name, UPLOAD_NAME, "%.*s%s", JOB_ID - 1, id, ending);
    return name;
}

int upload_files_remove(int folder, const char *id)
{
    char name[UPLOAD_NAME];
    /* First of all, because what remains without it is a leftover. */
    const bool gone = unlinkat(folder, upload_file(name, id, ".json"), 0) == 0;
    if (!gone && errno != ENOENT)
        return -1;
    unlinkat(folder, upload_file(name, id, ".chunk"), 0);
    unlinkat(folder, upload_file(name, id, ""), 0);
    return gone;
}

int upload_forget(struct spool *spool, const char *id)
{
    atomic_fetch_add(&spool->uploads_unlinking, 1);
    const int gone = upload_files_remove(spool->uploads, id);
    if (gone < 0)
        spool_failed(spool, "removing an upload");
    if (gone > 0)
        atomic_fetch_add(&spool->uploads_unlinked, 1);
    else
        atomic_fetch_sub(&spool->uploads_unlinking, 1);
    return gone < 0 ? err_last()->code : 0;
}

json_t *upload_note_read(int folder, const char *id)
{
    char name[UPLOAD_NAME];
    int fd = spool_is_id(id) ? openat(folder, upload_file(name, id, ".json"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0) {
        errno = spool_is_id(id) ? errno : ENOENT;
        return NULL;
    }
    FILE *file = fdopen(fd, "r"); /* json_loadfd() calls read() for each byte */
    json_t *note = file ? json_loadf(file, 0, NULL) : NULL;
    const int error = !file ? ENOMEM : ferror(file) ? EIO : ENOENT;
    if (file)
        fclose(file);
    else
        close(fd);
    if (note && json_is_integer(json_object_get(note, "length")) && json_is_object(json_object_get(note, "job")))
        return note;
    json_decref(note);
    errno = error;
    return NULL;
}

json_t *upload_note_pack(const struct job *job, const char *metadata)
{
    return json_pack("{s:I, s:{s:s, s:s, s:s, s:s, s:{s:I, s:I}, s:I, s:s, s:O, s:O, s:s*}}", "length",
                     (json_int_t)job->bytes, "job", "kind", job->kind, "client", job->client, "name", job->name,
                     "destination", job->destination, "quota", "jobs", (json_int_t)job->quota.jobs, "bytes",
                     (json_int_t)job->quota.bytes, "patience", (json_int_t)job->patience, "priority",
                     job_priority_name(job->priority), "parameters", job->parameters, "formats", job->formats,
                     "metadata", metadata);
}

int upload_job(const struct upload *upload, struct job *job)
{
    const char *kind = json_string_value(json_object_get(upload->job, "kind"));
    json_t *parameters = json_object_get(upload->job, "parameters"), *formats = json_object_get(upload->job, "formats");
    const char *client = json_string_value(json_object_get(upload->job, "client")),
               *name = json_string_value(json_object_get(upload->job, "name")),
               *destination = json_string_value(json_object_get(upload->job, "destination")),
               *priority = json_string_value(json_object_get(upload->job, "priority"));
    const json_t *quota = json_object_get(upload->job, "quota");
    int rank = priority ? job_priority_find(priority) : -1;
    if (!kind || !client || rank < 0 || !json_is_object(parameters) || !json_is_array(formats))
        return err_set(ERR_IO, "The metadata of upload %s are damaged. Remove the upload, and send the scan again.",
                       upload->id);
    memcpy(job->id, upload->id, JOB_ID);
    snprintf(job->kind, sizeof job->kind, "%s", kind);
    snprintf(job->client, sizeof job->client, "%s", client);
    snprintf(job->name, sizeof job->name, "%s", name ? name : ""); /* earlier versions stored none */
    snprintf(job->destination, sizeof job->destination, "%s", destination ? destination : "");
    job->quota.jobs = json_integer_value(json_object_get(quota, "jobs"));
    job->quota.bytes = json_integer_value(json_object_get(quota, "bytes"));
    job->priority = (enum job_priority)rank;
    job->patience = json_integer_value(json_object_get(upload->job, "patience"));
    job->bytes = upload->length;
    job->parameters = json_incref(parameters);
    job->formats = json_incref(formats);
    return 0;
}

int64_t upload_chunk_read(int folder, const char *id)
{
    char name[UPLOAD_NAME], text[24] = "", *end = text;
    int fd = openat(folder, upload_file(name, id, ".chunk"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? CHUNK_NONE : CHUNK_UNREAD;
    const ssize_t length = read(fd, text, sizeof text - 1);
    const int error = errno;
    close(fd);
    errno = error;
    if (length < 0)
        return CHUNK_UNREAD;
    const bool marked = *text == '@';
    char *last = strchr(text, '\n');
    if (!*text || (marked && !last))
        return CHUNK_NONE;
    if (marked)
        *last = '\0';
    int64_t offset = strtoll(text + marked, &end, 10);
    return !*end && offset >= 0 ? offset : CHUNK_MALFORMED;
}

int64_t upload_arrived(int64_t chunk, int64_t size)
{
    return chunk == CHUNK_NONE ? size : chunk <= size ? chunk : CHUNK_MALFORMED;
}

enum upload_fault upload_examine(int folder, const char *id, int64_t *arrived)
{
    char name[UPLOAD_NAME];
    struct stat bytes, note_file;
    const enum disk_sight noted = disk_look(folder, upload_file(name, id, ".json"), &note_file);
    if (noted != DISK_THERE)
        return noted == DISK_MISSING ? UPLOAD_LEFTOVER : UPLOAD_UNREAD;
    const enum disk_sight found = disk_look(folder, id, &bytes);
    if (found == DISK_UNSEEN)
        return UPLOAD_UNREAD;
    const bool there = found == DISK_THERE && S_ISREG(bytes.st_mode);
    *arrived = there ? upload_arrived(upload_chunk_read(folder, id), bytes.st_size) : CHUNK_MALFORMED;
    if (*arrived == CHUNK_UNREAD)
        return UPLOAD_UNREAD;
    json_t *note = upload_note_read(folder, id);
    if (!note && errno != ENOENT)
        return UPLOAD_UNREAD;
    struct upload upload = {.length = json_integer_value(json_object_get(note, "length")),
                            .job = json_object_get(note, "job")};
    struct job job = {.state = JOB_QUEUED};
    bool says = note && upload_job(&upload, &job) == 0;
    job_clear(&job);
    json_decref(note);
    if (!says) /* incomplete: the start of the upload was interrupted */
        return there && bytes.st_size > 0 ? UPLOAD_BAD_NOTE : UPLOAD_LEFTOVER;
    if (!there)
        return UPLOAD_NO_BYTES;
    if (bytes.st_size > upload.length)
        return UPLOAD_TOO_LONG;
    return *arrived < 0 ? UPLOAD_BAD_CHUNK : UPLOAD_SOUND;
}

static int id_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int uploads_each(int folder, void (*each)(void *context, const char *id), void *context)
{
    struct disk_names names;
    size_t count = 0;
    int rc = disk_names_read(folder, "reading the uploads", &names);
    if (rc)
        return rc;
    char(*id)[JOB_ID] = malloc(names.bytes + sizeof *id); /* each is a name, or begins one */
    for (const char *name = NULL; id && (name = disk_names_next(&names, name));) {
        snprintf(id[count], JOB_ID, "%.*s", JOB_ID - 1, name);
        const char *ending = name + strlen(id[count]);
        count += spool_is_id(id[count]) && (!*ending || strcmp(ending, ".json") == 0);
    }
    disk_names_free(&names);
    if (!id)
        return err_no_memory("the list of uploads; try again later");
    qsort(id, count, sizeof *id, id_compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(id[i - 1], id[i]) != 0)
            each(context, id[i]);
    free(id);
    return 0;
}
