#include "daemon/queue/convert.h"

#include "daemon/base/child.h"
#include "daemon/base/clock.h"

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

/* How long a failure is remembered: long enough to be told to all who waited for it. */
#define FAILURE_SECONDS 10.0

struct task {
    struct task *next;
    char id[JOB_ID];
    enum image_format format;
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
    pthread_t thread;
    int stop;             /* eventfd: readable once the converter is to stop */
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t changed;
    struct task *first; /* in the order of asking */
    bool stopping;
};

void converter_key(const char *id, enum image_format format, char key[WAITER_KEY])
{
    snprintf(key, WAITER_KEY, "%s/%s", id, image_format_name(format));
}

/* Wait for the child's end, the time limit, or the stop; true: it ended by itself. */
static bool child_wait(const struct converter *converter, int pidfd)
{
    double end = clock_seconds() + (double)converter->seconds;
    struct pollfd fds[] = {{.fd = pidfd, .events = POLLIN}, {.fd = converter->stop, .events = POLLIN}};
    for (;;) {
        double left = end - clock_seconds();
        int ready = poll(fds, 2, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (fds[0].revents)
            return true;
        if (ready > 0 || (ready == 0 && left <= 0))
            return false;
    }
}

/* Run the codec to its end, in the time that it has. */
static int codec_run(const struct converter *converter, const char *format, char *const argv[])
{
    char how[CHILD_HOW] = "";
    pid_t pid;
    int pidfd, result = child_start(argv, -1, &pid, &pidfd);
    if (result)
        return result;
    bool ended = child_wait(converter, pidfd);
    if (!ended)
        kill(pid, SIGKILL);
    child_collect(pid, how, sizeof how);
    close(pidfd);
    int64_t left = 0;
    if (!ended)
        return err_set(ERR_TIMEOUT, "Writing the image as %s took longer than %lld s.", format,
                       (long long)converter->seconds);
    if (strcmp(how, "ended with status 0") == 0)
        return 0;
    if (spool_free_bytes(converter->spool, &left) == 0 && left + converter->spool->reserve < 1 << 16)
        return err_set(ERR_SPOOL_FULL, "The disk is full; the image cannot be written as %s.", format);
    return err_set(ERR_INTERNAL, "The image could not be written as %s: the codec %s.", format, how);
}

static int job_gone(const struct task *task)
{
    return err_set(ERR_NOT_FOUND, "Job %s was deleted while its image was written as %s.", task->id,
                   image_format_name(task->format));
}

/* What the codec wrote is on the disk, then in its place among the results, and counted. */
static int image_keep(const struct converter *converter, const struct task *task, const char *part)
{
    char name[SPOOL_NAME];
    struct stat written;
    int results = converter->spool->results, fd = openat(results, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), result = 0;
    snprintf(name, sizeof name, "%s/image.%s", task->id, image_format_name(task->format));
    if (fd < 0 || fstat(fd, &written) < 0 || fsync(fd) < 0 || renameat(results, part, results, name) < 0)
        result =
            errno == ENOENT ? job_gone(task) : spool_failed(converter->spool, "keeping an image in another format");
    if (fd >= 0)
        close(fd);
    if (!result && store_kept_add(converter->store, task->id, written.st_size) == ERR_NOT_FOUND) {
        spool_results_remove(converter->spool, task->id); /* which met a folder that was not empty any more */
        result = job_gone(task);
    }
    return result;
}

/* Run the codec on image.h5, into a name that is never served, and rename it. */
static int convert(const struct converter *converter, const struct task *task)
{
    const char *format = image_format_name(task->format);
    char folder[32], in[80], part[SPOOL_NAME + 8], out[JOB_ID + SPOOL_NAME + 48];
    /* The child shares no descriptor of ours but reaches the folder through us: it needs no path of the state folder.
     */
    snprintf(folder, sizeof folder, "/proc/%d/fd/%d", (int)getpid(), converter->spool->results);
    snprintf(in, sizeof in, "%s/%s/image.h5", folder, task->id);
    /* Beside the folders of jobs: what a crash leaves of it is found at the next start without a look into each. */
    snprintf(part, sizeof part, ".%s.%s", task->id, format);
    snprintf(out, sizeof out, "%s/%s", folder, part);
    char *const argv[] = {(char *)converter->codec, "convert", in, (char *)format, out, NULL};
    unlinkat(converter->spool->results, part, 0);
    int result = codec_run(converter, format, argv);
    if (!result)
        result = image_keep(converter, task, part);
    if (result)
        unlinkat(converter->spool->results, part, 0);
    return result;
}

/* Forget failures that are old; the first task that is to be run. Under the lock. */
static struct task *next_task(struct converter *converter)
{
    struct task *next = NULL;
    double now = clock_seconds();
    for (struct task **link = &converter->first; *link;) {
        struct task *task = *link;
        if (task->failed && task->forget <= now) {
            *link = task->next;
            free(task);
            continue;
        }
        if (!task->failed && !next)
            next = task;
        link = &task->next;
    }
    return next;
}

static void *converter_run(void *context)
{
    struct converter *converter = context;
    pthread_mutex_lock(&converter->lock);
    while (!converter->stopping) {
        struct task *task = next_task(converter);
        if (!task) {
            pthread_cond_wait(&converter->changed, &converter->lock);
            continue;
        }
        pthread_mutex_unlock(&converter->lock);
        int result = convert(converter, task);
        char key[WAITER_KEY];
        converter_key(task->id, task->format, key);
        if (result)
            log_line(converter->log, LOG_LEVEL_WARNING, task->id, "%s", err_last()->text);
        pthread_mutex_lock(&converter->lock);
        task->failed = true; /* of a success nothing is kept: it is forgotten at once */
        task->forget = result ? clock_seconds() + FAILURE_SECONDS : 0;
        task->failure = *err_last();
        next_task(converter);
        pthread_mutex_unlock(&converter->lock);
        waiters_wake(converter->waiters, key);
        pthread_mutex_lock(&converter->lock);
    }
    pthread_mutex_unlock(&converter->lock);
    return NULL;
}

int converter_create(struct converter **out, const char *codec, int64_t seconds, struct spool *spool,
                     struct store *store, struct waiters *waiters, const struct log *log)
{
    struct converter *converter = calloc(1, sizeof *converter);
    if (!converter)
        return err_set(ERR_NO_MEMORY, "No memory for the converter.");
    *converter = (struct converter){.codec = codec,
                                    .seconds = seconds,
                                    .spool = spool,
                                    .store = store,
                                    .waiters = waiters,
                                    .log = log,
                                    .stop = eventfd(0, EFD_CLOEXEC)};
    pthread_mutex_init(&converter->lock, NULL);
    pthread_cond_init(&converter->changed, NULL);
    int failed = converter->stop < 0 ? errno : pthread_create(&converter->thread, NULL, converter_run, converter);
    if (failed) {
        if (converter->stop >= 0)
            close(converter->stop);
        free(converter);
        return err_set(ERR_INTERNAL, "The converter's thread cannot be started: %s.", strerror(failed));
    }
    *out = converter;
    return 0;
}

void converter_free(struct converter *converter)
{
    if (!converter)
        return;
    pthread_mutex_lock(&converter->lock);
    converter->stopping = true;
    pthread_cond_signal(&converter->changed);
    pthread_mutex_unlock(&converter->lock);
    eventfd_write(converter->stop, 1);
    pthread_join(converter->thread, NULL);
    for (struct task *task = converter->first; task;) {
        struct task *next = task->next;
        free(task);
        task = next;
    }
    close(converter->stop);
    pthread_cond_destroy(&converter->changed);
    pthread_mutex_destroy(&converter->lock);
    free(converter);
}

int converter_ask(struct converter *converter, const char *id, enum image_format format)
{
    int result = 0;
    pthread_mutex_lock(&converter->lock);
    next_task(converter);
    struct task **link = &converter->first;
    while (*link && ((*link)->format != format || strcmp((*link)->id, id) != 0))
        link = &(*link)->next;
    if (*link && (*link)->failed) {
        result = err_restore(&(*link)->failure);
    } else if (!*link) {
        struct task *task = calloc(1, sizeof *task);
        if (task) {
            snprintf(task->id, sizeof task->id, "%s", id);
            task->format = format;
            *link = task;
            pthread_cond_signal(&converter->changed);
        } else {
            result = err_set(ERR_NO_MEMORY, "No memory to ask for an image as %s.", image_format_name(format));
        }
    }
    pthread_mutex_unlock(&converter->lock);
    return result;
}
