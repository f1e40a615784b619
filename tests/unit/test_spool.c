/* daemon/spool/spool.h: uploads, limits, results, and recovery after a crash. */
#include "daemon/spool/spool.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    char folder[FOLDER];
    struct spool *spool;
};

enum { BODY = 1000, LIMIT = 2500 };

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    return folder_make(f->folder, "spool") ? spool_create(&f->spool, f->folder, BODY, LIMIT, 0) : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    spool_free(f->spool);
    int result = folder_drop(f->folder);
    free(f);
    return result;
}

static bool exists(const struct fixture *f, const char *format, const char *id)
{
    char path[160];
    int used = snprintf(path, sizeof path, "%s/", f->folder);
    snprintf(path + used, sizeof path - (size_t)used, format, id);
    return access(path, F_OK) == 0;
}

static void put(const struct fixture *f, const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* As put(), with `pattern` that contains %s for an id. */
static void put_of(const struct fixture *f, const char *pattern, const char *id, const char *text)
{
    char name[96];
    const char *at = strstr(pattern, "%s");
    snprintf(name, sizeof name, "%.*s%s%s", (int)(at - pattern), pattern, id, at + 2);
    put(f, name, text);
}

/* A job's results as a worker leaves them; `picture` is NULL if none was requested. */
static int size_set(const struct fixture *f, const char *name, int64_t bytes)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return truncate(path, bytes);
}

static void results_put(struct fixture *f, const char *id, const char *image, const char *picture)
{
    const char *texts[] = {image, picture};
    int files[KIND_MAX_FILES], count = picture ? 2 : 1;
    json_t *names = picture ? json_pack("[ss]", "image.h5", "image.png") : json_pack("[s]", "image.h5");
    assert_int_equal(spool_results_begin(f->spool, id, names, files), 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(write(files[i], texts[i], strlen(texts[i])), (int)strlen(texts[i]));
        close(files[i]);
    }
    json_decref(names);
}

static void an_upload_is_kept_byte_for_byte(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    unsigned char data[BODY], back[BODY];
    for (int i = 0; i < BODY; i++)
        data[i] = (unsigned char)(i * 7 + i / 256);
    assert_int_equal(spool_begin(f->spool, -1, &file), 0);
    assert_int_equal(spool_append(&file, data, 1), 0);
    assert_int_equal(spool_append(&file, data + 1, BODY - 1), 0);
    assert_int_equal(spool_finish(&file), 0);
    assert_true(f->spool->used == BODY);
    int fd;
    assert_int_equal(spool_open(f->spool, file.id, &fd), 0);
    struct stat there;
    assert_int_equal(fstat(fd, &there), 0);
    assert_int_equal(there.st_size, BODY);
    assert_int_equal(there.st_mode & 0777, 0600);
    assert_int_equal(read(fd, back, BODY), BODY);
    assert_memory_equal(back, data, BODY);
    close(fd);
    spool_remove(f->spool, file.id);
    spool_remove(f->spool, file.id); /* removing it again is no error */
    assert_true(f->spool->used == 0);
    assert_int_equal(spool_open(f->spool, file.id, &fd), ERR_SCAN_GONE);
}

static void uploads_over_a_limit_are_refused_and_leave_nothing(void **state)
{
    struct fixture *f = *state;
    struct spool_file file, others[2];
    char data[BODY + 1];
    memset(data, 'q', sizeof data);
    assert_int_equal(spool_begin(f->spool, BODY + 1, &file), ERR_TOO_LARGE);
    assert_true(err_last()->required == BODY + 1 && err_last()->available == BODY);
    assert_int_equal(spool_begin(f->spool, -1, &file), 0);
    assert_int_equal(spool_append(&file, data, BODY), 0);
    assert_int_equal(spool_append(&file, data, 1), ERR_TOO_LARGE);
    spool_abort(&file);
    spool_abort(&file); /* a second call has no effect */
    assert_true(f->spool->used == 0);
    /* Announced bytes count at once, others as they arrive. */
    assert_int_equal(spool_begin(f->spool, BODY, &others[0]), 0);
    assert_int_equal(spool_begin(f->spool, BODY, &others[1]), 0);
    assert_int_equal(spool_begin(f->spool, BODY, &file), ERR_SPOOL_FULL);
    assert_int_equal(spool_begin(f->spool, -1, &file), 0);
    assert_int_equal(spool_append(&file, data, LIMIT - 2 * BODY), 0);
    assert_int_equal(spool_append(&file, data, 1), ERR_SPOOL_FULL);
    spool_abort(&file);
    spool_abort(&others[0]);
    assert_int_equal(spool_begin(f->spool, BODY, &file), 0);
    spool_abort(&file);
    spool_abort(&others[1]);
    assert_true(f->spool->used == 0);
    /* A reserve larger than any disk. */
    f->spool->reserve = INT64_MAX / 2;
    assert_int_equal(spool_begin(f->spool, 1, &file), ERR_SPOOL_FULL);
    assert_true(f->spool->used == 0);
}

static void ids_are_ordered_by_time_and_differ(void **state)
{
    (void)state;
    char ids[200][JOB_ID];
    for (int i = 0; i < 200; i++) {
        assert_int_equal(spool_new_id(ids[i]), 0);
        assert_true(spool_is_id(ids[i]));
        assert_true(i == 0 || strncmp(ids[i - 1], ids[i], 10) <= 0);
        for (int j = 0; j < i; j++)
            assert_true(strcmp(ids[i] + 10, ids[j] + 10) != 0);
    }
    static const char *const bad[] = {"",
                                      "x",
                                      "0123456789abcdefghjkmnpqr",
                                      "0123456789abcdefghjkmnpqrst",
                                      "0123456789abcdefghjkmnpqri",
                                      "0123456789ABCDEFGHJKMNPQRS",
                                      "../../etc/passwd........."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(spool_is_id(bad[i]));
}

static void results_appear_complete_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    int fd;
    int64_t bytes, stamp;
    json_t *results = NULL;
    assert_int_equal(spool_new_id(id), 0);
    /* A success without an image is an error. */
    results_put(f, id, "", "a picture");
    assert_int_equal(spool_results_publish(f->spool, id, kind_find("recon"), 1, &results), ERR_INTERNAL);
    assert_int_equal(spool_result_open(f->spool, id, "image.png", &fd, &bytes, &stamp), ERR_NOT_FOUND);
    /* A format in which the image could not be written is an empty file, and is not listed as a result. */
    results_put(f, id, "an image", "");
    assert_int_equal(spool_results_publish(f->spool, id, kind_find("recon"), 1, &results), 0);
    assert_int_equal(json_array_size(results), 1);
    assert_false(exists(f, "results/%s/image.png", id));
    json_decref(results);
    results = NULL;
    spool_results_remove(f->spool, id);
    /* Leftovers of an earlier run do not interfere. */
    results_put(f, id, "half", "half");
    assert_int_equal(spool_result_open(f->spool, id, "image.h5", &fd, &bytes, &stamp), ERR_NOT_FOUND);
    results_put(f, id, "an image", "a picture");
    assert_int_equal(spool_results_publish(f->spool, id, kind_find("recon"), 1, &results), 0);
    assert_false(exists(f, "results/%s.tmp", id));
    assert_int_equal(json_array_size(results), 2);
    size_t i;
    json_t *result;
    json_array_foreach (results, i, result) {
        bool h5 = strcmp(json_string_value(json_object_get(result, "name")), "image.h5") == 0;
        assert_int_equal(json_integer_value(json_object_get(result, "bytes")), h5 ? 8 : 9);
        assert_string_equal(json_string_value(json_object_get(result, "type")),
                            h5 ? "application/x-hdf5" : "image/png");
    }
    json_decref(results);
    assert_int_equal(spool_result_open(f->spool, id, "image.h5", &fd, &bytes, &stamp), 0);
    assert_int_equal(bytes, 8);
    close(fd);
    spool_results_remove(f->spool, id);
    assert_false(exists(f, "results/%s", id));
}

/* Results that can still be written, through a descriptor or a mapping, are not released. */
static void a_result_is_released_once_nobody_can_write_to_it(void **state)
{
    const struct fixture *f = *state;
    char id[JOB_ID];
    int files[KIND_MAX_FILES];
    json_t *names = json_pack("[ss]", "image.h5", "image.png");
    assert_int_equal(spool_new_id(id), 0);
    assert_int_equal(spool_results_begin(f->spool, id, names, files), 0);
    json_decref(names);
    assert_int_equal(ftruncate(files[1], 100), 0);
    void *mapped = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_SHARED, files[1], 0);
    assert_true(mapped != MAP_FAILED);
    assert_false(spool_results_released(f->spool, id));
    close(files[0]);
    assert_false(spool_results_released(f->spool, id));
    close(files[1]);
    assert_false(spool_results_released(f->spool, id));
    assert_int_equal(munmap(mapped, 100), 0);
    assert_true(spool_results_released(f->spool, id));
    spool_results_remove(f->spool, id);
}

static void the_list_of_result_files_is_limited_and_unique(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    int files[KIND_MAX_FILES];
    json_t *const bad[] = {json_pack("[ss]", "a.h5", "a.h5"), json_pack("[ss]", "a.h5", "../../secret"),
                           json_pack("[si]", "a.h5", 1), json_array()};
    for (int i = 0; i <= KIND_MAX_FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        json_array_append_new(bad[3], json_string(name));
    }
    assert_int_equal(spool_new_id(id), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(spool_results_begin(f->spool, id, bad[i], files), 0);
        json_decref(bad[i]);
    }
    assert_false(exists(f, "secret", ""));
}

static void result_names_open_no_other_file(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID], path[128], outside[64];
    int fd;
    int64_t bytes, stamp;
    assert_int_equal(spool_new_id(id), 0);
    put(f, "secret", "secret");
    results_put(f, id, "an image", NULL);
    json_t *results;
    assert_int_equal(spool_results_publish(f->spool, id, kind_find("recon"), 1, &results), 0);
    json_decref(results);
    snprintf(path, sizeof path, "%s/results/%s/link", f->folder, id);
    snprintf(outside, sizeof outside, "%s/secret", f->folder);
    assert_int_equal(symlink(outside, path), 0);
    put_of(f, "results/%s/.hidden", id, "there, and none of ours");
    static const char *const bad[] = {"../../secret", "..",      ".",   "",         "link",
                                      "/etc/passwd",  ".hidden", "a/b", "image.h5/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(spool_result_open(f->spool, id, bad[i], &fd, &bytes, &stamp), ERR_NOT_FOUND);
    assert_int_equal(spool_result_open(f->spool, "../spool", "x", &fd, &bytes, &stamp), ERR_NOT_FOUND);
}

/* The number of the descriptor that the next opened file gets. */
static int next_descriptor(void)
{
    int fd = dup(STDIN_FILENO);
    close(fd);
    return fd;
}

static void removed_files_of_any_size_are_closed(void **state)
{
    struct fixture *f = *state;
    int before = next_descriptor();
    for (int i = 0; i < 40; i++) { /* more large files than the freeing thread's queue holds */
        put(f, "spool/scan", "x");
        if (i > 0)
            assert_int_equal(size_set(f, "spool/scan", INT64_C(1) << 30), 0);
        assert_int_equal(disk_remove(&f->spool->freer, f->spool->scans, "scan"), 0);
        assert_false(exists(f, "spool/%s", "scan"));
    }
    assert_int_equal(disk_remove(&f->spool->freer, f->spool->scans, "scan"), -1);
    assert_int_equal(errno, ENOENT);
    disk_freer_end(&f->spool->freer);
    assert_int_equal(next_descriptor(), before);
    disk_freer_init(&f->spool->freer);
}

static void two_daemons_do_not_share_a_folder(void **state)
{
    struct fixture *f = *state;
    struct spool *other = NULL;
    assert_int_equal(spool_create(&other, f->folder, BODY, LIMIT, 0), ERR_IO);
    assert_non_null(strstr(err_last()->text, f->folder));
    assert_null(other);
    /* A process that a killed daemon had just started keeps its descriptors for a moment. */
    pid_t child = fork();
    if (child == 0) {
        usleep(200000);
        _exit(0);
    }
    assert_true(child > 0);
    spool_free(f->spool);
    f->spool = NULL;
    assert_int_equal(spool_create(&f->spool, f->folder, BODY, LIMIT, 0), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Four jobs: queued with a scan, queued without, running with leftovers, succeeded; and files that belong to no job. */
static void a_start_removes_what_a_crash_left(void **state)
{
    struct fixture *f = *state;
    struct store *store;
    struct job job, taken;
    char path[160], ids[3][JOB_ID];
    struct spool_cleaned cleaned;
    bool found;
    json_t *results;
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    assert_int_equal(store_create(&store, path), 0);
    for (int i = 0; i < 3; i++) {
        job = (struct job){.parameters = json_object(), .formats = json_array()};
        spool_new_id(ids[i]);
        strcpy(job.id, ids[i]);
        strcpy(job.kind, "recon");
        job.bytes = 8;
        assert_int_equal(store_submit(store, &job, 10), 0);
        job_clear(&job);
        results_put(f, ids[i], "an image", NULL);
    }
    /* 0 succeeded; the results of 1 were renamed but not committed; those of 2 were being written. */
    assert_int_equal(store_claim(store, NULL, NULL, &taken, &found), 0);
    assert_int_equal(spool_results_publish(f->spool, ids[0], kind_find("recon"), 1, &results), 0);
    assert_int_equal(store_succeed(store, ids[0], results, NULL), 0);
    job_clear(&taken);
    json_decref(results);
    assert_int_equal(spool_results_publish(f->spool, ids[1], kind_find("recon"), 1, &results), 0);
    json_decref(results);
    put_of(f, "spool/%s", ids[1], "12345");
    put(f, "spool/0000000000000000000000zzzz", "an orphan");
    put(f, "spool/odd name", "an orphan");
    /* The scan of a successful job: the kill came between the commit of its row and the removal of the scan. */
    put_of(f, "spool/%s", ids[0], "its scan");
    put_of(f, "results/.%s.png", ids[0], "half an image");
    assert_int_equal(spool_clean(f->spool, store, true, &cleaned), 0);
    assert_int_equal(cleaned.removed, 6);
    assert_false(exists(f, "spool/%s", ids[0]) || exists(f, "results/.%s.png", ids[0]));
    assert_int_equal(cleaned.lost, 1); /* job 2 is queued and has no scan */
    assert_true(f->spool->used == 5);
    assert_true(exists(f, "results/%s/image.h5", ids[0]) && exists(f, "spool/%s", ids[1]));
    assert_false(exists(f, "results/%s", ids[1]));
    assert_false(exists(f, "results/%s.tmp", ids[2]));
    assert_int_equal(store_get(store, ids[2], &job), 0);
    assert_int_equal(job.state, JOB_FAILED);
    job_clear(&job);
    assert_int_equal(store_get(store, ids[1], &job), 0);
    assert_int_equal(job.state, JOB_QUEUED);
    job_clear(&job);
    /* Scans are kept if the options say so. */
    put_of(f, "spool/%s", ids[0], "its scan");
    store_set_kept_scans(store, true, true);
    assert_int_equal(spool_clean(f->spool, store, true, &cleaned), 0);
    assert_int_equal(cleaned.removed, 0);
    store_set_kept_scans(store, true, false);
    assert_int_equal(spool_clean(f->spool, store, true, &cleaned), 0);
    assert_int_equal(cleaned.removed, 1);
    /* What stays is not counted: a file in the place of a folder of results. */
    put(f, "results/odd", "a file");
    assert_int_equal(spool_clean(f->spool, store, true, &cleaned), 0);
    assert_true(exists(f, "results/%s", "odd"));
    assert_int_equal(cleaned.removed, 0);
    store_free(store);
}

static bool is_kept(const struct fixture *f, int64_t time, const char *name)
{
    char path[320];
    snprintf(path, sizeof path, "%s/found-%lld/%s", f->folder, (long long)time, name);
    return access(path, F_OK) == 0;
}

/* A queued job with a result but without a scan, as after the store lost its last changes; a scan and a result without
 * rows; an upload that was not complete, and one that belongs to a resumable upload, both with results that were
 * computed before they could be jobs. */
static void a_start_sets_aside_files_that_may_have_lost_their_row(void **state)
{
    struct fixture *f = *state;
    struct store *store;
    char path[160], ids[4][JOB_ID], name[128];
    struct spool_cleaned cleaned;
    json_t *results;
    struct job job = {.parameters = json_object(), .formats = json_array(), .bytes = 8};
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    assert_int_equal(store_create(&store, path), 0);
    for (int i = 0; i < 4; i++)
        spool_new_id(ids[i]);
    strcpy(job.id, ids[0]);
    strcpy(job.kind, "recon");
    assert_int_equal(store_submit(store, &job, 10), 0);
    job_clear(&job);
    for (int i = 0; i < 4; i++) {
        results_put(f, ids[i], "an image", NULL);
        assert_int_equal(spool_results_publish(f->spool, ids[i], kind_find("recon"), 1, &results), 0);
        json_decref(results);
    }
    put_of(f, "spool/%s", ids[1], "a scan");
    put_of(f, "spool/%s.part", ids[3], "half a scan");
    put_of(f, "uploads/%s", ids[2], "an upload");
    put_of(f, "spool/%s", ids[2], "an upload");
    assert_int_equal(spool_clean(f->spool, store, false, &cleaned), 0);
    assert_int_equal(cleaned.scans_found, 1);
    assert_int_equal(cleaned.results_found, 2);
    assert_int_equal(cleaned.removed, 3);
    assert_int_equal(cleaned.lost, 1);
    for (int i = 0; i < 4; i++)
        assert_false(exists(f, "results/%s", ids[i]));
    snprintf(name, sizeof name, "%s.scan", ids[1]);
    assert_true(is_kept(f, cleaned.time, name) && is_kept(f, cleaned.time, "README"));
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.results/image.h5", ids[i]);
        assert_true(is_kept(f, cleaned.time, name));
    }
    assert_int_equal(spool_found_count(f->spool), 3);
    /* Folders older than 30 days are removed, others are kept. */
    put(f, "spool/odd name", "a leftover");
    assert_true(spool_found_keep(f->spool, 1000, f->spool->scans, "odd name", "odd.scan"));
    assert_int_equal(spool_found_count(f->spool), 4);
    assert_int_equal(spool_found_expire(f->spool), 1);
    assert_false(exists(f, "found-%s", "1000"));
    assert_true(f->spool->found == 3 && spool_found_count(f->spool) == 3);
    store_free(store);
}

static void a_stop_was_clean_if_the_store_is_unchanged(void **state)
{
    struct fixture *f = *state;
    struct store *store;
    char path[160];
    bool clean = true;
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    assert_int_equal(spool_stop_take(f->spool, &clean), 0);
    assert_false(clean);
    spool_stop_note(f->spool); /* there is no store yet */
    assert_false(spool_stop_was_clean(f->spool));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_create(&store, path), 0);
        if (i == 0) { /* the tables were created, and are in the write-ahead log */
            spool_stop_note(f->spool);
            assert_false(spool_stop_was_clean(f->spool));
        }
        store_free(store);
        spool_stop_note(f->spool);
        assert_true(spool_stop_was_clean(f->spool));
        assert_int_equal(spool_stop_take(f->spool, &clean), 0);
        assert_true(clean && !spool_stop_was_clean(f->spool)); /* from now on the daemon may be killed */
    }
    spool_stop_note(f->spool);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0); /* another store, as from a backup */
    assert_false(spool_stop_was_clean(f->spool));
}

static void names_are_all_or_none_and_what_is_unseen_is_not_missing(void **state)
{
    enum { NAMES = 300 };
    struct fixture *f = *state;
    struct disk_names names;
    struct stat there;
    char name[300], seen[NAMES] = {0};
    for (int i = 0; i < NAMES; i++) { /* of several blocks of text */
        snprintf(name, sizeof name, "spool/%0*d", 1 + i % 100, i);
        put(f, name, "");
    }
    assert_int_equal(disk_names_read(f->spool->scans, "reading", &names), 0);
    for (const char *each = NULL; (each = disk_names_next(&names, each));)
        seen[atoi(each)]++;
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(seen[i], 1);
    disk_names_free(&names);
    assert_null(disk_names_next(&names, NULL));
    assert_int_equal(disk_names_read(-1, "reading", &names), ERR_IO);
    assert_null(disk_names_next(&names, NULL));
    disk_names_free(&names);

    assert_int_equal(disk_look(f->spool->scans, "0", &there), DISK_THERE);
    assert_true(S_ISREG(there.st_mode));
    assert_int_equal(disk_look(f->spool->scans, "none", &there), DISK_MISSING);
    assert_int_equal(disk_look(f->spool->scans, "0/none", &there), DISK_MISSING);
    memset(name, 'a', sizeof name - 1); /* a name longer than any stands for a disk that fails */
    name[sizeof name - 1] = '\0';
    assert_int_equal(disk_look(f->spool->scans, name, &there), DISK_UNSEEN);
}

/* The blocks of an upload of BODY bytes of which none has come, and of a file for which they were allocated. */
static void blocks_measure(const char *folder, long long *upload, long long *allocated)
{
    struct spool *spool;
    struct spool_file file;
    struct stat there;
    char path[FOLDER + 8];
    assert_int_equal(spool_create(&spool, folder, BODY, LIMIT, 0), 0);
    assert_int_equal(spool_begin(spool, BODY, &file), 0);
    assert_return_code(fstat(file.fd, &there), errno);
    *upload = there.st_blocks;
    spool_abort(&file);
    spool_free(spool);
    snprintf(path, sizeof path, "%s/like", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, BODY) == 0 || errno == EOPNOTSUPP);
    assert_return_code(fstat(fd, &there), errno);
    *allocated = there.st_blocks;
    close(fd);
}

static void blocks_are_allocated_first_on_a_disk_only(void **state)
{
    (void)state;
    const char *const parent[] = {"/tmp", "/dev/shm"};
    for (int i = 0; i < 2; i++) {
        struct statfs system;
        char folder[FOLDER];
        long long upload, allocated;
        snprintf(folder, sizeof folder, "%s/test-blocks-XXXXXX", parent[i]);
        if (!mkdtemp(folder))
            skip();
        assert_return_code(statfs(folder, &system), errno);
        blocks_measure(folder, &upload, &allocated);
        assert_true(upload == (system.f_type == TMPFS_MAGIC ? 0 : allocated));
        assert_int_equal(folder_drop(folder), 0);
    }
}

int main(void)
{
#define WITH_SPOOL(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SPOOL(an_upload_is_kept_byte_for_byte),
        WITH_SPOOL(uploads_over_a_limit_are_refused_and_leave_nothing),
        WITH_SPOOL(ids_are_ordered_by_time_and_differ),
        WITH_SPOOL(results_appear_complete_or_not_at_all),
        WITH_SPOOL(a_result_is_released_once_nobody_can_write_to_it),
        WITH_SPOOL(the_list_of_result_files_is_limited_and_unique),
        WITH_SPOOL(result_names_open_no_other_file),
        WITH_SPOOL(two_daemons_do_not_share_a_folder),
        WITH_SPOOL(a_start_removes_what_a_crash_left),
        WITH_SPOOL(a_start_sets_aside_files_that_may_have_lost_their_row),
        WITH_SPOOL(a_stop_was_clean_if_the_store_is_unchanged),
        WITH_SPOOL(removed_files_of_any_size_are_closed),
        cmocka_unit_test(blocks_are_allocated_first_on_a_disk_only),
        WITH_SPOOL(names_are_all_or_none_and_what_is_unseen_is_not_missing),
    };
    return cmocka_run_group_tests_name("spool", tests, NULL, NULL);
}
