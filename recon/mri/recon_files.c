/* Files of the results, begun while the images are computed: a GPU computes then, and most of a native file, by
 * libhdf5, depends on no pixel. */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"
#include "recon/image/image.h"
#include "recon/result_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int native_finish(const void *images, int fd, int64_t at)
{
    return image_finish_h5(images, fd, at);
}

struct recon_files {
    const struct job_room *room;
    const struct image_series *series[RECON_RESULTS];
    atomic_bool stop; /* the job has failed */
    pthread_t thread;
};

/* The file is empty again. If it was not begun because that failed, it is written as a whole, which says why; so it is
 * if this fails. */
static void take_back(const struct job_room *room, int i)
{
    if (room->begun[i].finish && ftruncate(room->fds[i], 0) == 0)
        lseek(room->fds[i], 0, SEEK_SET);
    room->begun[i] = (struct job_begun){.finish = NULL};
}

static void *files_begin(void *context)
{
    struct recon_files *files = context;
    const struct job_room *room = files->room;
    result_cancel_by(&files->stop);
    for (int i = 0; i < room->count && !files->stop; i++) {
        const struct image_series *series = files->series[room->files[i].result];
        if (!series || room->files[i].format != IMAGE_H5 || lseek(room->fds[i], 0, SEEK_END) != 0)
            continue;
        room->begun[i] = (struct job_begun){native_finish, 0};
        if (image_begin_h5(series, room->fds[i], &room->begun[i].at) != 0)
            take_back(room, i);
    }
    result_cancel_by(NULL);
    return NULL;
}

void recon_files_begin(struct recon_job *job)
{
    const struct job_room *room = &job->request->room;
    if (!room->fds || !dev_is_gpu(job->dev))
        return;
    struct recon_files *files = calloc(1, sizeof *files);
    if (!files)
        return;
    files->room = room;
    files->series[RECON_RESULT_IMAGE] = job->images;
    files->series[RECON_RESULT_MAPS] = job->maps;
    if (pthread_create(&files->thread, NULL, files_begin, files) == 0)
        job->files = files;
    else
        free(files);
}

void recon_files_end(struct recon_job *job, bool failed)
{
    if (!job->files)
        return;
    if (failed)
        job->files->stop = true;
    pthread_join(job->files->thread, NULL);
    for (int i = 0; i < job->files->room->count && failed; i++)
        take_back(job->files->room, i);
    free(job->files);
    job->files = NULL;
}
