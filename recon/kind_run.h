/* kind_run.h: how the kinds of job are run: the running half of recon/recon.h. Links the engines and formats of all
 * kinds.
 */
#ifndef MRIRECON_KIND_RUN_H
#define MRIRECON_KIND_RUN_H

#include "recon/checkpoint.h"
#include "recon/codec/decoder.h"
#include "recon/recon.h"

struct dev;
struct json_t; /* libjansson's */

/* How far a job is. */
struct step_progress {
    int step;                      /* its place in kind->steps */
    double fraction;               /* of the job, 0..1; never less than before */
    int64_t iteration, iterations; /* of the step's unit: how many are done, of how many; 0 of 0: it has none */
};

/* How a running job speaks to whoever started it. Called from the running thread, once an iteration: the callee sees to
 * it that this costs nothing, and that nobody is told more often than is of use. */
struct job_listener {
    void *context;
    int (*progress)(void *context, const struct step_progress *now); /* non-zero: stop (canceled) */
};

/* The room that the files of a job's results may take, together. What they will take at most is known before they are
 * computed. */
struct job_room {
    const struct result_file *files; /* that are to be written; none: the native one of each result that is wanted */
    int count;
    uint64_t most;       /* for good: more fails with ERR_RESULT_TOO_LARGE; 0: any */
    const char *most_of; /* whose limit that is, for the sentence: "option result-limit" */
    uint64_t free;       /* for now: more fails with ERR_SPOOL_FULL; 0: any */
};

/* Who is shown the parts of a job's default result, as its form sends them one by one, as soon as they are there: the
 * images of a series. */
struct job_show {
    void *context;
    /* Parts 0 .. count - 1 of `of` are there and will stay as they are; write() appends one to a file, as `bytes`
     * bytes. Called in the running thread, with a count that grows. */
    void (*show)(void *context, size_t count, size_t bytes, int (*write)(const void *of, size_t part, int fd),
                 const void *of);
};

struct job_request {
    const struct kind *kind;
    const struct param_values *values;
    int input;               /* the uploaded file, read-only; stays the caller's */
    bool input_stays;        /* nobody changes the file as long as what was read of it is there */
    struct decoder *decoder; /* processes that read files */
    uint64_t memory_bytes;   /* the most host memory that what was read may take; 0: three quarters of what is free */
    double decode_seconds;   /* of processor time for decoding, beside one for each MiB of the file; 0: 5 */
    const _Atomic bool *arriving; /* NULL: the input is complete; else as struct decode_limits has it */
    _Atomic int *live;            /* likewise */
    double begun;                 /* when the job began, CLOCK_MONOTONIC in seconds; 0: when it is run */
    void *cache;                  /* of kind_run.cache_create(); may be NULL: nothing is kept */
    struct job_room room;
    /* Of a kind that keeps one, and a job that may be repeated; NULL: none is kept. There from run() on; it is removed
     * when the job has ended. */
    const struct checkpoint *checkpoint;
    const struct job_show *show; /* NULL: nobody is shown anything before the end */
    const void *ahead;           /* of kind_run.ahead_create(), for this job; NULL: nothing was computed ahead */
};

/* One result of a job, by its name in the kind's table. */
struct job_result {
    const char *name;
    void *of;
    /* Write it to `fd` (a file opened for writing, at 0) as that format of its form. Several threads may do so at a
     * time, each to a file of its own. Fails with ERR_IO, ERR_NO_MEMORY, ERR_SPOOL_FULL, ERR_LIMIT, and, not of the
     * native format, with ERR_NOT_ACCEPTABLE: the result cannot be brought into this one, and nothing is written. */
    int (*write)(const void *of, int format, int fd);
    void (*free)(void *of);
};

struct job_outcome {
    struct job_result result[KIND_MAX_RESULTS]; /* all that the parameters ask for */
    int results;
    uint64_t most_bytes;   /* that the files of job_room may take together, as was told before; 0: nothing was */
    struct json_t *report; /* stage times (seconds), device, decisions and reasons, warnings: "stages" and the like */
};

/* Frees what it holds; all zero is allowed. */
void job_outcome_free(struct job_outcome *outcome);
/* The result of this name; NULL: none. */
const struct job_result *job_outcome_find(const struct job_outcome *outcome, const char *name);

/* One kind's. Values of `input` and `cache` are the kind's own. */
struct kind_run {
    const struct kind *kind;
    /* Read request->input. Touches no device, and may run in another thread and before the job begins: request->begun,
     * ->cache and ->room are not there yet. Fails with the codes of "the file", ERR_CANCELED and ERR_NO_MEMORY. */
    int (*read)(void **input, const struct job_request *request, const struct job_listener *listener);
    void (*input_free)(void *input); /* NULL is allowed */
    /* Run the job to its end on what was read, which stays the caller's; request->input and ->decoder are not there any
     * more. On failure *out is untouched and nothing is kept. Fails with any code of "the machine", "the file" and "the
     * scan" in err.h. */
    int (*run)(struct job_outcome *out, struct dev *dev, const struct job_request *request,
               const struct job_listener *listener, const void *input);
    /* What is kept from job to job on one device, of the thread that owns the device; freed before the device. Both may
     * be NULL: nothing is. Fails with ERR_NO_MEMORY. */
    int (*cache_create)(void **cache);
    void (*cache_free)(void *cache);
    /* What is computed of an input while it arrives, by the thread that owns the device. All three may be NULL: nothing
     * is. It changes nothing but time: run() takes from request->ahead what it would compute alike.
     * ahead_create: `memory` (taken) is what decode_limits.live gave. ahead_go: compute what has become complete, and
     * tell request->show; *over: there is nothing more to come. Fail as run(); after another failure than ERR_CANCELED
     * ahead_go() is not called again. */
    int (*ahead_create)(void **ahead, int memory);
    int (*ahead_go)(void *ahead, struct dev *dev, const struct job_request *request,
                    const struct job_listener *listener, bool *over);
    void (*ahead_free)(void *ahead);
};

/* For read(): the limits that a job sets to decoding its input, and the poll of recon/codec/decoder.h that tells its
 * listener (the context; may be NULL) that the input is read, and asks whether to stop. */
struct decode_limits job_decode_limits(const struct job_request *request);
int job_decode_canceled(void *listener);

/* All kinds'; ends with NULL. */
extern const struct kind_run *const kind_runs[];
/* Of a kind in the table of kinds, which has one. */
const struct kind_run *kind_run_find(const struct kind *kind);

/* Check the parameters, read the input and run the job: what fails, fails as these do. */
int kind_run_job(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                 const struct job_listener *listener);

#endif
