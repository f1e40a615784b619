#include "daemon/queue/convert.h"

#include "daemon/base/child.h"
#include "daemon/base/clock.h"
#include "daemon/base/pool.h"
#include "recon/codec/codec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* s that a failure is remembered: long enough for every request that waited for it */
#define FAILURE_SECONDS 10.0

/* Concurrent conversions: a client's large result must not delay those of others. They have lower priority than the
 * threads that serve connections. */
static const struct pool_limits pool_limits = {.threads = 3, .client = 1, .niceness = 10};

struct task {
    struct pool_task run; /* first: a task of the pool is this */
    struct task *next;
    struct converter *converter;
    uint64_t ticket;
    struct conversion what;
    int asked; /* requests waiting for it */
    int stop;  /* eventfd, while it runs: readable when no request waits any longer; -1: it does not run */
    bool failed;
    double forget; /* clock_seconds() */
    struct err failure;
};

struct converter {
    const char *codec;
    int64_t seconds;
    struct spool *spool;
    struct store *store;
    struct waiters *waiters;
    const struct log *log;
    struct pool *pool;
    pthread_mutex_t lock; /* of the members below */
    struct task *first;
    uint64_t ticket;
    bool stopping;
};

/* Between a result's name and a view. */
#define VIEW_MARK ".view-"

void conversion_name(const struct conversion *conversion, char name[SPOOL_NAME])
{
    const struct kind_result *result = &conversion->kind->results[conversion->file.result];
    if (*conversion->view)
        snprintf(name, SPOOL_NAME, "%.36s" VIEW_MARK "%s.png", result->name, conversion->view);
    else
        kind_file_name(conversion->kind, conversion->file, name);
}

void conversion_key(const struct conversion *conversion, char key[WAITER_KEY])
{
    snprintf(key, WAITER_KEY, "%s/%d/%d/%s", conversion->id, conversion->file.result, conversion->file.format,
             conversion->view);
}

/* Wait for the child's end (0), the time limit (ERR_TIMEOUT), or the stop (ERR_CANCELED). */
static int child_wait(const struct task *task, int pidfd)
{
    double end = clock_seconds() + (double)task->converter->seconds;
    struct pollfd fds[] = {{.fd = pidfd, .events = POLLIN}, {.fd = task->stop, .events = POLLIN}};
    for (;;) {
        double left = end - clock_seconds();
        int ready = poll(fds, 2, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (fds[0].revents)
            return 0;
        if (ready > 0)
            return ERR_CANCELED;
        if (ready == 0 && left <= 0)
            return ERR_TIMEOUT;
    }
}

/* The codec wrote an error in place of the file: this file does not exist. The codec processes untrusted input, so its
 * text is checked. */
static int codec_refused(const struct converter *converter, const char *part)
{
    char text[CODEC_REASON + 1];
    int fd = openat(converter->spool->results, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return err_set(ERR_INTERNAL, "The result was refused in this format, and the reason cannot be read.");
    text[length] = '\0';
    err_clean(text);
    return err_set(ERR_NOT_ACCEPTABLE, "%s", text);
}

/* Run the codec with the time limit; its output, the file `name`, is `part`, in the folder of results. */
static int codec_run(const struct task *task, const char *name, const char *part, char *const argv[])
{
    const struct converter *converter = task->converter;
    char how[CHILD_HOW] = "", refused[32];
    pid_t pid;
    int pidfd, rc = child_start(argv, -1, &pid, &pidfd);
    if (rc != 0)
        return rc;
    int stopped = child_wait(task, pidfd);
    if (stopped)
        kill(pid, SIGKILL);
    child_collect(pid, how, sizeof how);
    close(pidfd);
    int64_t left = 0;
    if (stopped == ERR_CANCELED)
        return err_set(ERR_CANCELED, "No client is waiting for %s any more.", name);
    if (stopped)
        return err_set(ERR_TIMEOUT, "Writing %s took longer than %lld s.", name, (long long)converter->seconds);
    if (strcmp(how, "ended with status 0") == 0)
        return 0;
    snprintf(refused, sizeof refused, "ended with status %d", CODEC_REFUSED);
    if (strcmp(how, refused) == 0)
        return codec_refused(converter, part);
    if (spool_free_bytes(converter->spool, &left) == 0 && left + converter->spool->reserve < 1 << 16)
        return err_set(ERR_SPOOL_FULL, "The disk is full; %s cannot be written.", name);
    return err_set(ERR_INTERNAL, "%s could not be written: the codec %s.", name, how);
}

static int job_gone(const struct task *task, const char *name)
{
    return err_set(ERR_NOT_FOUND, "Job %s was deleted while its result %s was written.", task->what.id, name);
}

/* Remove the oldest views of the job beyond CONVERT_VIEWS; returns their bytes. A client may ask for any number of
 * them. */
static int64_t views_drop(const struct converter *converter, const struct task *task)
{
    int64_t bytes = 0;
    for (int views = CONVERT_VIEWS + 1; views > CONVERT_VIEWS;) {
        struct stat about, oldest = {.st_size = 0};
        char name[SPOOL_NAME] = "";
        int folder = openat(converter->spool->results, task->what.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = folder < 0 ? NULL : fdopendir(folder);
        if (!list && folder >= 0)
            close(folder);
        if (!list)
            return bytes;
        views = 0;
        for (const struct dirent *entry; (entry = readdir(list));) {
            if (!strstr(entry->d_name, VIEW_MARK) || strlen(entry->d_name) >= SPOOL_NAME ||
                fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) < 0)
                continue;
            views++;
            if (*name &&
                (about.st_mtim.tv_sec > oldest.st_mtim.tv_sec ||
                 (about.st_mtim.tv_sec == oldest.st_mtim.tv_sec && about.st_mtim.tv_nsec >= oldest.st_mtim.tv_nsec)))
                continue;
            memcpy(name, entry->d_name, strlen(entry->d_name) + 1);
            oldest = about;
        }
        const bool many = views > CONVERT_VIEWS, dropped = many && unlinkat(folder, name, 0) == 0;
        const bool stays = many && !dropped && errno != ENOENT; /* the disk fails */
        bytes += dropped ? oldest.st_size : 0;
        closedir(list);
        if (stays)
            return bytes;
    }
    return bytes;
}

/* fsync the codec's output, rename it into the job's results, and count its bytes. */
static int file_keep(const struct converter *converter, const struct task *task, const char *name, const char *part)
{
    char path[JOB_ID + SPOOL_NAME + 1];
    struct stat written;
    int results = converter->spool->results, fd = openat(results, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
    snprintf(path, sizeof path, "%s/%s", task->what.id, name);
    if (fd < 0 || fstat(fd, &written) < 0 || fsync(fd) < 0 || renameat(results, part, results, path) < 0)
        rc = errno == ENOENT ? job_gone(task, name)
                             : spool_failed(converter->spool, "keeping a result in another format");
    if (fd >= 0)
        close(fd);
    int64_t dropped = !rc && *task->what.view ? views_drop(converter, task) : 0;
    if (!rc && store_kept_add(converter->store, task->what.id, written.st_size - dropped) == ERR_NOT_FOUND) {
        spool_results_remove(converter->spool, task->what.id); /* the job's removal found the folder not empty */
        rc = job_gone(task, name);
    }
    return rc;
}

/* Whether an earlier conversion, which ended between a request's look for the file and its question, has written it. */
static bool is_written(const struct task *task, const char *name)
{
    char path[JOB_ID + SPOOL_NAME + 1];
    snprintf(path, sizeof path, "%s/%s", task->what.id, name);
    return faccessat(task->converter->spool->results, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Run the codec on the native file with a temporary output name that is never served, then rename. */
static int codec_convert(const struct task *task)
{
    const struct converter *converter = task->converter;
    const struct result_form *form = task->what.kind->results[task->what.file.result].form;
    char name[SPOOL_NAME], native[KIND_FILE_NAME];
    char folder[32], in[JOB_ID + KIND_FILE_NAME + 40], part[JOB_ID + SPOOL_NAME + 8];
    char out[JOB_ID + SPOOL_NAME + 48];
    conversion_name(&task->what, name);
    if (is_written(task, name))
        return 0;
    kind_file_name(task->what.kind, (struct result_file){task->what.file.result, 0}, native);
    /* The child inherits no descriptor; it reaches the folder through /proc/PID/fd of this process and needs no path of
     * the state folder. */
    snprintf(folder, sizeof folder, "/proc/%d/fd/%d", (int)getpid(), converter->spool->results);
    snprintf(in, sizeof in, "%s/%s/%s", folder, task->what.id, native);
    /* Beside the jobs' folders, so that the next start finds the leftover of a crash without opening each of them. */
    snprintf(part, sizeof part, ".%s.%s", task->what.id, name);
    snprintf(out, sizeof out, "%s/%s", folder, part);
    char *const argv[] = {(char *)converter->codec,
                          "convert",
                          (char *)form->name,
                          in,
                          (char *)form->formats[task->what.file.format].name,
                          out,
                          *task->what.view ? (char *)(uintptr_t)task->what.view : NULL,
                          NULL};
    unlinkat(converter->spool->results, part, 0);
    int rc = codec_run(task, name, part, argv);
    if (rc == 0)
        rc = file_keep(converter, task, name, part);
    if (rc != 0)
        unlinkat(converter->spool->results, part, 0);
    return rc;
}

static void task_remove(struct converter *converter, struct task *task)
{
    struct task **link = &converter->first;
    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    free(task);
}

/* Drop old failures. Under the lock. */
static void failures_forget(struct converter *converter)
{
    double now = clock_seconds();
    for (struct task *task = converter->first, *next; task; task = next) {
        next = task->next;
        if (task->failed && task->forget <= now)
            task_remove(converter, task);
    }
}

/* Whether a request still waits for it. From now on it can be stopped. */
static bool task_begin(struct task *task)
{
    pthread_mutex_lock(&task->converter->lock);
    bool wanted = task->asked > 0 && !task->converter->stopping;
    if (wanted)
        task->stop = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_unlock(&task->converter->lock);
    return wanted;
}

/* In a thread of the pool. Only a failure that someone waited for is remembered. */
static void task_run(struct pool_task *run)
{
    struct task *task = (struct task *)run;
    struct converter *converter = task->converter;
    char key[WAITER_KEY];
    conversion_key(&task->what, key);
    int rc = task_begin(task) ? codec_convert(task) : ERR_CANCELED;
    if (rc != 0 && rc != ERR_CANCELED)
        log_line(converter->log, rc == ERR_NOT_ACCEPTABLE ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, task->what.id, "%s",
                 err_last()->text);
    pthread_mutex_lock(&converter->lock);
    if (task->stop >= 0)
        close(task->stop);
    task->stop = -1;
    if (rc != 0 && rc != ERR_CANCELED) {
        task->failed = true;
        task->forget = clock_seconds() + FAILURE_SECONDS;
        task->failure = *err_last();
    } else {
        task_remove(converter, task);
    }
    pthread_mutex_unlock(&converter->lock);
    waiters_wake(converter->waiters, key);
}

int converter_create(struct converter **out, const char *codec, int64_t seconds, struct spool *spool,
                     struct store *store, struct waiters *waiters, const struct log *log)
{
    struct converter *converter = calloc(1, sizeof *converter);
    if (!converter)
        return err_no_memory("the converter");
    *converter = (struct converter){
        .codec = codec, .seconds = seconds, .spool = spool, .store = store, .waiters = waiters, .log = log};
    pthread_mutex_init(&converter->lock, NULL);
    int rc = pool_create(&converter->pool, &pool_limits);
    if (rc != 0) {
        pthread_mutex_destroy(&converter->lock);
        free(converter);
        return rc;
    }
    *out = converter;
    return 0;
}

static void task_stop(const struct task *task)
{
    if (task->stop >= 0)
        eventfd_write(task->stop, 1);
}

void converter_free(struct converter *converter)
{
    if (!converter)
        return;
    pthread_mutex_lock(&converter->lock);
    converter->stopping = true;
    for (const struct task *task = converter->first; task; task = task->next)
        task_stop(task);
    pthread_mutex_unlock(&converter->lock);
    pool_free(converter->pool);
    while (converter->first)
        task_remove(converter, converter->first);
    pthread_mutex_destroy(&converter->lock);
    free(converter);
}

/* Add a task; NULL: no memory. Under the lock. */
static struct task *task_add(struct converter *converter, const struct conversion *what, const char *client)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    *task = (struct task){.run.run = task_run,
                          .next = converter->first,
                          .converter = converter,
                          .ticket = ++converter->ticket,
                          .what = *what,
                          .stop = -1};
    converter->first = task;
    if (pool_run(converter->pool, &task->run, client))
        return task;
    task_remove(converter, task);
    return NULL;
}

static bool is_of(const struct task *task, const struct conversion *what)
{
    return task->what.file.result == what->file.result && task->what.file.format == what->file.format &&
           strcmp(task->what.id, what->id) == 0 && strcmp(task->what.view, what->view) == 0;
}

int converter_ask(struct converter *converter, const struct conversion *conversion, const char *client,
                  uint64_t *ticket)
{
    int rc = 0;
    pthread_mutex_lock(&converter->lock);
    failures_forget(converter);
    struct task *task = converter->first;
    while (task && !is_of(task, conversion))
        task = task->next;
    if (!task && !(task = task_add(converter, conversion, client)))
        rc = err_no_memory("a request for a result in another format");
    else if (task->failed)
        rc = err_restore(&task->failure);
    else if (*ticket != task->ticket)
        task->asked++;
    *ticket = task ? task->ticket : 0;
    pthread_mutex_unlock(&converter->lock);
    return rc;
}

void converter_leave(struct converter *converter, uint64_t ticket)
{
    pthread_mutex_lock(&converter->lock);
    struct task *task = converter->first;
    while (task && task->ticket != ticket)
        task = task->next;
    if (task && task->asked > 0 && --task->asked == 0)
        task_stop(task);
    pthread_mutex_unlock(&converter->lock);
}
