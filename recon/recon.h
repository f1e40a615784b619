/* recon.h: the kinds of job: name, parameters, inputs, results and steps of each. A table of plain data for the daemon,
 * the client, the worker and the documentation; running jobs is in recon/kind_run.h, which only the worker links.
 *
 * A kind is a folder of recon/ and a row in each of recon/kinds_table.c and recon/kind_runs.c; see
 * docs/architecture.md, "A new kind".
 */
#ifndef MRIRECON_RECON_H
#define MRIRECON_RECON_H

#include "gridding/base/num.h"

#include <string.h>

/* ---- parameters ---- */

/* PARAM_SET: one or more of the choices, separated by commas. */
enum param_type { PARAM_CHOICE, PARAM_INT, PARAM_REAL, PARAM_TEXT, PARAM_SET };

struct param {
    const char *name;
    enum param_type type;
    const char *fallback; /* the default, as text */
    double min, max;      /* PARAM_INT, PARAM_REAL: inclusive range; PARAM_TEXT: max = longest length in bytes */
    /* NULL-terminated. PARAM_CHOICE, PARAM_SET: the choices; values are indexes into them, or a bit for each.
     * PARAM_INT, PARAM_REAL: words that are accepted in addition to numbers (may be NULL). They stand for 0, -1, -2, ..
     * in this order, or, if 0 is in the range, for min - 1 and down. */
    const char *const *choices;
    /* An earlier spelling of the first word, which jobs in a store may still have; NULL: none. Accepted, but not
     * documented. */
    const char *former;
    const char *help; /* one or more sentences for users */
};
/* In a row of a table of parameters: its choices, or its words. */
#define PARAM_WORDS(...)             \
    .choices = (const char *const[]) \
    {                                \
        __VA_ARGS__, NULL            \
    }

enum { KIND_MAX_PARAMS = 40, KIND_MAX_RESULTS = 8, KIND_MAX_FILES = 16, KIND_FILE_NAME = 64 };

/* The values of one job's parameters, in the order of kind->params. */
struct param_values {
    struct {
        /* Set by param_values_set(); false: the default. Always true in a job of the daemon, which stores the values of
         * all parameters, also of defaults; engines use param_changed() instead. */
        bool given;
        int64_t integer; /* PARAM_INT: the number, or its word's; PARAM_CHOICE: the index; PARAM_SET: bits */
        double real;     /* PARAM_REAL and PARAM_INT: the number, or its word's */
        char text[128];  /* as sent, or the default; never a word's earlier spelling; PARAM_SET: in the table's order */
    } value[KIND_MAX_PARAMS];
};

/* ---- kinds ---- */

/* A step of a job, for progress. */
struct kind_step {
    const char *name, *help;
    const char *unit; /* the unit of its iterations, in the singular; NULL: none */
    double share;     /* approximate share of a job's time; all steps add up to 1 */
    bool writes;      /* the results are written: reported by the caller of run(). At most one step, the last */
};

/* A format of files that a kind reads. */
struct kind_input {
    const char *name; /* label in metrics, and name of its reader in recon/codec/codec.h */
    const char *help, *ending, *media;
};

/* A file format; `name` is also the files' ending. */
struct file_format {
    const char *name, *media;
};

/* A form of results: a set of formats. Jobs write the first format, the native one. mrirecon-codec converts it to the
 * others on request (recon/codec_formats.c); if the sender waits for one of them, the job writes it itself. A form is
 * defined beside its writers (that of images in recon/image/); kinds share forms. */
struct result_form {
    const char *name;                  /* for mrirecon-codec */
    const struct file_format *formats; /* ends with .name = NULL */
    bool views;                        /* mrirecon-codec can draw a slice of it as a picture (struct result_view) */
};

/* A result of a kind. Results are files NAME.FORMAT, served as /v1/jobs/ID/results/NAME. */
struct kind_result {
    const char *name, *help; /* name: letters, digits, dashes */
    const struct result_form *form;
};

struct kind {
    const char *name, *help;
    const struct param *params;      /* ends with .name = NULL */
    const struct kind_input *inputs; /* likewise */
    /* The name of the input format of the file `fd`, of `bytes`. Fails with ERR_UNKNOWN_FORMAT (the sentence says what
     * the file seems to be), ERR_EMPTY_BODY, ERR_IO. */
    int (*sniff)(const char **name, int fd, uint64_t bytes);
    /* Likewise; at most KIND_MAX_RESULTS. A kind with several has a parameter `results`, a PARAM_SET of their names in
     * this order; the first requested one is a job's default result. */
    const struct kind_result *results;
    const struct kind_step *steps; /* likewise, in order; the first reads the input */
    /* The rules between parameters, for kind_check(); NULL: every combination is accepted. */
    int (*check)(const struct param_values *values);
    /* Its jobs keep a checkpoint (recon/checkpoint.h), from which a repeated attempt continues. */
    bool checkpoints;
};

/* All kinds; ends with NULL. */
extern const struct kind *const kinds[];
const struct kind *kind_find(const char *name);              /* NULL: none */
bool kind_reads(const struct kind *kind, const char *input); /* whether it has an input of this name */

int kind_steps(const struct kind *kind);                       /* their number */
int kind_step_find(const struct kind *kind, const char *name); /* its index; -1: none */
int kind_step_writing(const struct kind *kind);                /* index of the step that writes; -1: none */

/* All defaults. */
void param_values_init(const struct kind *kind, struct param_values *values);

/* Set one parameter from text. Fails with ERR_UNKNOWN_PARAMETER (the sentence lists the parameters and the nearest
 * name) or ERR_BAD_PARAMETER (the sentence gives the range or the choices). */
int param_values_set(const struct kind *kind, struct param_values *values, const char *name, const char *text);

/* Whether the value of kind->params[param] differs from the default. */
static inline bool param_changed(const struct kind *kind, const struct param_values *values, int param)
{
    return strcmp(values->value[param].text, kind->params[param].fallback) != 0;
}

/* Check the rules between parameters that param_values_set() has accepted: the kind's engine accepts all values that
 * pass, for any input. Needs no input and no device: the client calls it before it sends anything, the daemon before it
 * accepts the input, the worker before it reads it. Fails with ERR_BAD_PARAMETER. */
int kind_check(const struct kind *kind, const struct param_values *values);

/* The present spelling of `text`: if it is a word's earlier spelling, that word, else `text` itself. */
const char *param_spelling(const struct param *param, const char *text);

/* The length of the first line of `text` when it is broken at spaces into lines of at most `columns`; a longer word
 * stays whole. For printing the help of parameters. */
size_t text_line(const char *text, size_t columns);

/* ---- results ---- */

/* A file of a result: indexes into kind->results, and into the formats of its form. */
struct result_file {
    int result, format;
};

int kind_result_find(const struct kind *kind, const char *name);        /* its index; -1: none */
int form_format_find(const struct result_form *form, const char *name); /* by name or media type; -1: none */

/* The results, as bits, that the value `text` of the parameter `results` requests (NULL: the default); all of them if
 * the kind has no such parameter. */
unsigned kind_results_wanted(const struct kind *kind, const char *text);
/* The first of them. */
int kind_result_default(const struct kind *kind, const char *text);

/* The name of a file ("image.png"), and the reverse; false: the kind has no such file. */
void kind_file_name(const struct kind *kind, struct result_file file, char name[KIND_FILE_NAME]);
bool kind_file_find(const struct kind *kind, const char *name, struct result_file *out);
/* The media type of a file with this name; if it is not one of the kind's (or `kind` is NULL: unknown), by its ending.
 */
const char *kind_file_media(const struct kind *kind, const char *name);

/* ---- views ---- */

/* One slice of a result as a grey picture (PNG). Numbers start from 0, as in the npy format. */
enum { VIEW_TEXT = 80, VIEW_MIDDLE = -1, VIEW_SIZE_MOST = 4096 };
struct result_view {
    long frame, slice, channel; /* slice: VIEW_MIDDLE is the middle one */
    long size;        /* limit of the picture's longer side in pixels; 0: VIEW_SIZE_MOST; pictures are never enlarged */
    bool percent;     /* unit of `window` */
    double window[2]; /* black and white as percentiles of the whole result; else centre and width */
};
void view_init(
    struct result_view *view);   /* the middle slice of the first frame and channel, percentiles 0.5 and 99.5 */
bool view_has(const char *name); /* whether this is the name of a view's parameter */
/* Set frame, slice, channel, size or window from text. Fails with ERR_BAD_PARAMETER. */
int view_set(struct result_view *view, const char *name, const char *text);
/* The view as text that may be part of a file's name; equal views have equal texts. And the reverse; false: not such a
 * text. */
void view_print(const struct result_view *view, char text[VIEW_TEXT]);
bool view_read(const char *text, struct result_view *out);
/* Check that number `asked` of `there` frames, slices or channels exists. Fails with ERR_NOT_ACCEPTABLE. */
int view_place(const char *what, long asked, size_t there);

#endif
