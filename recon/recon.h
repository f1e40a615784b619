/* recon.h: the kinds of job: what each is called and takes (a table of plain data that the daemon, the client and the
 * documentation read), and the one function that runs a job.
 *
 * The table half (recon/kinds.c) links nothing; the running half (recon/mri/run.c and below) links the engine and the
 * formats.
 */
#ifndef MRIRECON_RECON_H
#define MRIRECON_RECON_H

#include "gridding/base/dev.h"

/* ---- the table ---- */

enum param_type { PARAM_CHOICE, PARAM_INT, PARAM_REAL, PARAM_TEXT };

struct param {
    const char *name, *help;
    enum param_type type;
    const char *fallback; /* the default, as text */
    double min, max;      /* PARAM_INT, PARAM_REAL: inclusive range; PARAM_TEXT: max = longest length in bytes */
    /* NULL-terminated. PARAM_CHOICE: all there is; values below are indexes into it. PARAM_INT, PARAM_REAL, optional:
     * words beside the numbers. They stand for the whole numbers 0, -1, -2, .. in this order, or from min - 1 down
     * where 0 is in the range. */
    const char *const *choices;
    /* The first word as earlier versions spelt it, with which jobs may still lie in a store; NULL: there was none.
     * Taken as that word, and told to nobody. */
    const char *former;
};

struct param_values;

enum { KIND_MAX_PARAMS = 24 };

/* A step of the pipeline, as its progress is told. */
struct kind_step {
    const char *name, *help;
    const char *unit; /* what it goes through one by one, in the singular; NULL: it does not */
    double share;     /* of a job's time, roughly; all steps add up to 1 */
};

struct kind {
    const char *name, *help;
    const struct param *params; /* ends with .name = NULL */
    const char *const *inputs;  /* media types and endings it takes, for people; NULL-terminated */
    /* In their order; ends with .name = NULL. The first reads the scan; the last writes the results, and is told by
     * whoever has the job run. */
    const struct kind_step *steps;
    /* The rules between parameters, each of which param_values_set() took: what passes, the job's engine takes,
     * whatever scan comes. Needs no scan and no device: the client asks before it sends anything, the daemon before it
     * takes the scan, the worker before it reads it. Fails with ERR_BAD_PARAMETER. */
    int (*check)(const struct param_values *values);
};

/* All kinds; ends with .name = NULL. */
extern const struct kind recon_kinds[];
const struct kind *recon_kind_find(const char *name); /* NULL: none */

int kind_steps(const struct kind *kind);                       /* how many */
int kind_step_find(const struct kind *kind, const char *name); /* its place; -1: none */

/* The values of one job's parameters, in the order of kind->params. */
struct param_values {
    struct {
        bool given;      /* by the sender; false: the default */
        int64_t integer; /* PARAM_INT: the number, or what its word stands for; PARAM_CHOICE: the index */
        double real;     /* PARAM_REAL and PARAM_INT: the number, or what its word stands for */
        char text[128];  /* as given, or the default; never a word's former spelling */
    } value[KIND_MAX_PARAMS];
};

/* All defaults. */
void param_values_init(const struct kind *kind, struct param_values *values);

/* Set one parameter from text. Fails with ERR_UNKNOWN_PARAMETER (the sentence lists those there are and the nearest
 * name) or ERR_BAD_PARAMETER (the sentence gives the range or the choices). */
int param_values_set(const struct kind *kind, struct param_values *values, const char *name, const char *text);

/* `text` as it is spelt today: the word where it is the word's former spelling, else `text` itself. */
const char *param_spelling(const struct param *param, const char *text);

/* ---- running ---- */

/* How far a job is. */
struct recon_progress {
    int step;                      /* its place in kind->steps */
    double fraction;               /* of the job, 0..1; never less than before */
    int64_t iteration, iterations; /* of the step's unit: how many are done, of how many; 0 of 0: it has none */
};

/* How a running job speaks to whoever started it. Called from the running thread, once an iteration: the callee sees to
 * it that this costs nothing, and that nobody is told more often than is of use. */
struct recon_listener {
    void *context;
    int (*progress)(void *context, const struct recon_progress *now); /* non-zero: stop (canceled) */
};

struct json_t; /* libjansson's */
struct decoder;

/* What is kept from job to job on one device: the last plan, with its density weights, for jobs of the same trajectory
 * and parameters. Of the thread that owns the device; freed before the device. Fails with ERR_NO_MEMORY. */
struct recon_cache;
int recon_cache_create(struct recon_cache **out);
void recon_cache_free(struct recon_cache *cache);

/* The room that the files of a job's images may take, together. What they will take at most is known before they are
 * computed. */
struct recon_room {
    unsigned forms;      /* a bit for each enum image_format that is to be written; 0: the first */
    uint64_t most;       /* for good: more fails with ERR_RESULT_TOO_LARGE; 0: any */
    const char *most_of; /* whose limit that is, for the sentence: "option result-limit" */
    uint64_t free;       /* for now: more fails with ERR_SPOOL_FULL; 0: any */
};

struct recon_request {
    const struct kind *kind;
    const struct param_values *values;
    int input;                 /* the uploaded file, read-only; stays the caller's */
    struct decoder *decoder;   /* recon/scan/decoder.h */
    uint64_t memory_bytes;     /* the most host memory the flat scan may take; 0: three quarters of what is free */
    double decode_seconds;     /* of processor time for decoding, beside one for each MiB of the file; 0: 5 */
    double begun;              /* when the job began, CLOCK_MONOTONIC in seconds; 0: when it is run */
    struct recon_cache *cache; /* may be NULL: nothing is kept */
    struct recon_room room;
};

struct recon_outcome {
    struct image_series *images; /* recon/image/image.h; the caller's, image_series_free() */
    struct json_t *report; /* stage times (seconds), device, samples, decisions and reasons, warnings; the caller's */
};

/* Run one job on `dev` to its end. On failure *out is untouched and nothing is kept.
 * Fails with any code of "the machine", "the file" and "the scan" in err.h. */
int recon_run(struct recon_outcome *out, struct dev *dev, const struct recon_request *request,
              const struct recon_listener *listener);

/* The same in two parts, of which the first touches no device and may run in another thread, before the job begins:
 * read the scan in request->input, and run a job on a scan that was read (which stays the caller's; request->input and
 * ->decoder are not used). recon_read() fails with the codes of "the file", ERR_CANCELED and ERR_NO_MEMORY. */
struct recon_input;
int recon_read(struct recon_input **out, const struct recon_request *request, const struct recon_listener *listener);
void recon_input_free(struct recon_input *input);
int recon_run_input(struct recon_outcome *out, struct dev *dev, const struct recon_request *request,
                    const struct recon_listener *listener, const struct recon_input *input);

#endif
