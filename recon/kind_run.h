/* kind_run.h: running jobs: the running half of a kind, whose table half is in recon/recon.h. Links the engines and
 * formats of all kinds.
 */
#ifndef MRIRECON_KIND_RUN_H
#define MRIRECON_KIND_RUN_H

#include "recon/checkpoint.h"
#include "recon/codec/decoder.h"
#include "recon/recon.h"

struct dev;
struct json_t; /* libjansson's */

/* A job's progress. */
struct step_progress {
    int step;                      /* index into kind->steps */
    double fraction;               /* of the job, 0..1; never less than before */
    int64_t iteration, iterations; /* units of the step done, and in all; 0 of 0: it has none */
};

/* A running job's reports to its caller. Called in the running thread, as often as once per iteration: the callee must
 * return at once, and limits the rate of messages. */
struct job_listener {
    void *context;
    int (*progress)(void *context, const struct step_progress *now); /* non-zero: stop (canceled) */
};

/* A file to which a kind has written what depends on no value of the result, while these were computed. */
struct job_begun {
    /* Write the rest, in place of job_result.write(), which it fails as; `of` is the result's, and the file's offset
     * may be anywhere. NULL: the file was not begun. */
    int (*finish)(const void *of, int fd, int64_t at);
    int64_t at; /* the kind's */
};

/* The space that the files of a job's results may use together. Kinds compute the largest size of their files
 * beforehand. */
struct job_room {
    const struct result_file *files; /* the files to write; none: the native one of each requested result */
    int count;
    uint64_t most;       /* the limit: more fails with ERR_RESULT_TOO_LARGE; 0: any */
    const char *most_of; /* the limit's name, for the sentence: "option result-limit" */
    uint64_t free;       /* free at present: more fails with ERR_SPOOL_FULL; 0: any */
    /* The files [count], open for reading and writing; NULL: they do not exist yet. run() may begin one that is empty,
     * and then fills its begun[count], all zero before. If run() fails, none is begun, and they are empty again. */
    const int *fds;
    struct job_begun *begun;
};

/* The parts of a job's default result, for example the images of a series, if its form can be sent in parts. */
struct job_parts {
    size_t bytes; /* of each part */
    /* A part's bytes from `at` on, as many as lie together (*count), which stay there until the next call; NULL: they
     * cannot be sent. */
    const void *(*piece)(void *of, size_t part, size_t at, size_t *count);
    void *of;
};

/* Receives them as they are completed. */
struct job_show {
    void *context;
    /* Parts 0 .. count - 1 and the first `more` bytes of part `count` will not change. Called in the running thread;
     * they never become fewer, unless the computation began anew. */
    void (*show)(void *context, const struct job_parts *parts, size_t count, size_t more);
};

struct job_request {
    const struct kind *kind;
    const struct param_values *values;
    int input;               /* the uploaded file, read-only; stays the caller's */
    bool input_stays;        /* the file does not change as long as its decoded form exists */
    struct decoder *decoder; /* the decoding processes */
    uint64_t memory_bytes;   /* limit of the decoded input in host memory; 0: three quarters of the free memory */
    double decode_seconds;   /* of processor time for decoding, in addition to one for each MiB of the file; 0: 5 */
    const _Atomic bool *arriving; /* NULL: the input is complete; else as in struct decode_limits */
    _Atomic int *live;            /* likewise */
    double begun;                 /* clock_seconds() at the start of the job; 0: when run() is called */
    void *cache;                  /* of kind_run.cache_create(); NULL: no cache */
    struct job_room room;
    /* Of a kind that keeps checkpoints, and a job that may be repeated; else NULL. Set for run(); removed when the job
     * has ended. */
    const struct checkpoint *checkpoint;
    const struct job_show *show; /* NULL: no part is needed before the end */
    const void *ahead;           /* of kind_run.ahead_create(), for this job; NULL: none */
};

/* One result of a job, by its name in the kind's table. */
struct job_result {
    const char *name;
    void *of;
    /* Write it to `fd` (open for writing, at offset 0) in that format of its form. Several threads may call this at a
     * time, each with its own file. Fails with ERR_IO, ERR_NO_MEMORY, ERR_SPOOL_FULL, ERR_LIMIT, ERR_CANCELED
     * (result_cancel_by()) and, for formats other than the native one, ERR_NOT_ACCEPTABLE (the result cannot be
     * converted; nothing is written). */
    int (*write)(const void *of, int format, int fd);
    void (*free)(void *of);
};

struct job_outcome {
    struct job_result result[KIND_MAX_RESULTS]; /* all requested results */
    int results;
    uint64_t most_bytes;   /* promised size of all files of job_room; 0: none promised */
    struct json_t *report; /* stage times (seconds), device, decisions and reasons, warnings: "stages" and the like */
};

/* Frees its contents; all zero is allowed. */
void job_outcome_free(struct job_outcome *outcome);
/* The result with this name; NULL: none. */
const struct job_result *job_outcome_find(const struct job_outcome *outcome, const char *name);

/* The functions of a kind. `input`, `cache` and `ahead` point to structs of its own. */
struct kind_run {
    const struct kind *kind;
    /* Read request->input. Uses no device, and may run in another thread and before the job begins: request->begun,
     * ->cache and ->room are not yet set. Fails with the codes of "the file", ERR_CANCELED and ERR_NO_MEMORY. */
    int (*read)(void **input, const struct job_request *request, const struct job_listener *listener);
    void (*input_free)(void *input); /* NULL is allowed */
    /* Run the job on the input that was read, which stays the caller's; request->input and ->decoder are no longer
     * valid. On failure *out is unchanged and the cache stays valid. Fails with any code of "the machine", "the file"
     * and "the scan" in err.h. */
    int (*run)(struct job_outcome *out, struct dev *dev, const struct job_request *request,
               const struct job_listener *listener, const void *input);
    /* The cache: kept from job to job on one device, by the thread that owns the device; freed before the device. Both
     * may be NULL: no cache. Fails with ERR_NO_MEMORY. */
    int (*cache_create)(void **cache);
    void (*cache_free)(void *cache);
    /* Computing ahead, from an input that still arrives, by the thread that owns the device. All three may be NULL. It
     * changes only the time: run() reuses results of request->ahead that it would compute identically. ahead_create:
     * `memory` (taken) is from decode_limits.live. ahead_go: compute what has become complete, and report it to
     * request->show; *more: there was more than at the last call; *over: nothing more will come. Fail as run(); after a
     * failure other than ERR_CANCELED ahead_go() is not called again. */
    int (*ahead_create)(void **ahead, int memory);
    int (*ahead_go)(void *ahead, struct dev *dev, const struct job_request *request,
                    const struct job_listener *listener, bool *more, bool *over);
    void (*ahead_free)(void *ahead);
};

/* For read(): a job's limits of decoding, and the poll function for recon/codec/decoder.h, which reports the reading
 * step to the listener (the context; may be NULL) and returns whether it cancels. */
struct decode_limits job_decode_limits(const struct job_request *request);
int job_decode_canceled(void *listener);

/* All kinds; ends with NULL. */
extern const struct kind_run *const kind_runs[];
/* The running half of a kind in the table of kinds. */
const struct kind_run *kind_run_find(const struct kind *kind);

/* run->read(); if the file is of no format of the kind, the sentence also says which kinds read such files. */
int kind_run_read(void **out, const struct kind_run *run, const struct job_request *request,
                  const struct job_listener *listener);

/* Check the parameters, read the input and run the job. Fails as these steps do. */
int kind_run_job(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                 const struct job_listener *listener);

#endif
