/* recon.h: the kinds of job: what each is called, what it takes and what it gives. A table of plain data that the
 * daemon, the client, the worker and the documentation read; how a kind is run is told by recon/kind_run.h, which only
 * the worker links.
 *
 * A kind is a folder of recon/ and a row in each of recon/kinds_table.c and recon/kind_runs.c; docs/architecture.md, "A
 * new kind", says what to write.
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
    /* NULL-terminated. PARAM_CHOICE, PARAM_SET: all there is; values below are indexes into it, or a bit for each.
     * PARAM_INT, PARAM_REAL, optional: words beside the numbers. They stand for the whole numbers 0, -1, -2, .. in this
     * order, or from min - 1 down where 0 is in the range. */
    const char *const *choices;
    /* The first word as earlier versions spelt it, with which jobs may still lie in a store; NULL: there was none.
     * Taken as that word, and told to nobody. */
    const char *former;
    const char *help; /* one or more sentences for users */
};
/* In a row of a table of parameters: its choices, or the words beside its numbers. */
#define PARAM_WORDS(...)             \
    .choices = (const char *const[]) \
    {                                \
        __VA_ARGS__, NULL            \
    }

enum { KIND_MAX_PARAMS = 40, KIND_MAX_RESULTS = 8, KIND_MAX_FILES = 16, KIND_FILE_NAME = 64 };

/* The values of one job's parameters, in the order of kind->params. */
struct param_values {
    struct {
        /* Set by param_values_set(); false: the default. Always true in a job of the daemon, which keeps and hands on
         * the values of all parameters, defaults too: engines ask param_changed() instead. */
        bool given;
        int64_t
            integer; /* PARAM_INT: the number, or what its word stands for; PARAM_CHOICE: the index; PARAM_SET: bits */
        double real; /* PARAM_REAL and PARAM_INT: the number, or what its word stands for */
        char text[128]; /* as given, or the default; never a word's former spelling; PARAM_SET: in the table's order */
    } value[KIND_MAX_PARAMS];
};

/* ---- kinds ---- */

/* A step of a job, as its progress is told. */
struct kind_step {
    const char *name, *help;
    const char *unit; /* what it goes through one by one, in the singular; NULL: it does not */
    double share;     /* of a job's time, roughly; all steps add up to 1 */
    bool writes;      /* the results are written: told by whoever has the job run. At most one step, the last */
};

/* A format of files that a kind reads. */
struct kind_input {
    const char *name; /* as metrics tell it, and as recon/codec/codec.h names what reads it */
    const char *help, *ending, *media;
};

/* A format of files, of which `name` is the ending, too. */
struct file_format {
    const char *name, *media;
};

/* What a result can be had as. Jobs write the first format, the native one. The others are derived from it, on request,
 * by mrirecon-codec (recon/codec_formats.c), and written by the job itself where its sender waits for one. A form
 * belongs to those who write it (recon/image/ has that of images); kinds share forms. */
struct result_form {
    const char *name;                  /* as mrirecon-codec knows it */
    const struct file_format *formats; /* ends with .name = NULL */
    bool views;                        /* mrirecon-codec draws one slice of it as a picture (struct result_view) */
};

/* What a kind gives. Results are files NAME.FORMAT, served as /v1/jobs/ID/results/NAME. */
struct kind_result {
    const char *name, *help; /* name: letters, digits, dashes */
    const struct result_form *form;
};

struct kind {
    const char *name, *help;
    const struct param *params;      /* ends with .name = NULL */
    const struct kind_input *inputs; /* likewise */
    /* Which of the inputs the file in `fd`, of `bytes`, is: its name. Fails with ERR_UNKNOWN_FORMAT (the sentence says
     * what it seems to be), ERR_EMPTY_BODY, ERR_IO. */
    int (*sniff)(const char **name, int fd, uint64_t bytes);
    /* Likewise; at most KIND_MAX_RESULTS. A kind of several has a parameter `results`, a PARAM_SET of their names in
     * this order; the first of those that a job is asked for is its default result. */
    const struct kind_result *results;
    const struct kind_step *steps; /* likewise, in their order; the first reads the input */
    /* The rules between parameters, for kind_check(); NULL: there are none, every combination is accepted. */
    int (*check)(const struct param_values *values);
    /* Its jobs keep a checkpoint (recon/checkpoint.h), from which a repeated attempt goes on. */
    bool checkpoints;
};

/* All kinds; ends with NULL. */
extern const struct kind *const kinds[];
const struct kind *kind_find(const char *name); /* NULL: none */

int kind_steps(const struct kind *kind);                       /* how many */
int kind_step_find(const struct kind *kind, const char *name); /* its place; -1: none */
int kind_step_writing(const struct kind *kind);                /* the place of that which writes; -1: none */

/* All defaults. */
void param_values_init(const struct kind *kind, struct param_values *values);

/* Set one parameter from text. Fails with ERR_UNKNOWN_PARAMETER (the sentence lists those there are and the nearest
 * name) or ERR_BAD_PARAMETER (the sentence gives the range or the choices). */
int param_values_set(const struct kind *kind, struct param_values *values, const char *name, const char *text);

/* Whether the value of kind->params[param] is another than the default; the default, spelt out, is no other. */
static inline bool param_changed(const struct kind *kind, const struct param_values *values, int param)
{
    return strcmp(values->value[param].text, kind->params[param].fallback) != 0;
}

/* Check the rules between parameters, each of which param_values_set() took: the kind's engine accepts what passes,
 * whatever the input. Needs no input and no device: the client calls it before it sends anything, the daemon before it
 * accepts the input, the worker before it reads it. Fails with ERR_BAD_PARAMETER. */
int kind_check(const struct kind *kind, const struct param_values *values);

/* `text` as it is spelt today: the word where it is the word's former spelling, else `text` itself. */
const char *param_spelling(const struct param *param, const char *text);

/* The bytes of the first line of `text`, if it is broken at spaces into lines of at most `columns`; a longer word stays
 * whole. Programs print the help of parameters so. */
size_t text_line(const char *text, size_t columns);

/* ---- results ---- */

/* A file of a result: places in kind->results, and in the formats of its form. */
struct result_file {
    int result, format;
};

int kind_result_find(const struct kind *kind, const char *name);        /* its place; -1: none */
int form_format_find(const struct result_form *form, const char *name); /* by name or media type; -1: none */

/* The results that a job gives whose parameter `results` is `text` (NULL: the default): a bit for each; all of them, of
 * a kind without this parameter. */
unsigned kind_results_wanted(const struct kind *kind, const char *text);
/* The first of them. */
int kind_result_default(const struct kind *kind, const char *text);

/* "image.png", and which file that is: false, where it is none of this kind's. */
void kind_file_name(const struct kind *kind, struct result_file file, char name[KIND_FILE_NAME]);
bool kind_file_find(const struct kind *kind, const char *name, struct result_file *out);
/* The media type of a file of this name; of one that is none of the kind's (NULL: of none that is known), by its
 * ending. */
const char *kind_file_media(const struct kind *kind, const char *name);

/* ---- views ---- */

/* One slice of a result as a grey picture (PNG). Numbers are from 0, as in the npy format. */
enum { VIEW_TEXT = 80, VIEW_MIDDLE = -1, VIEW_SIZE_MOST = 4096 };
struct result_view {
    long frame, slice, channel; /* slice: VIEW_MIDDLE is the middle one */
    long size;                  /* longest side of the picture in pixels, at most; it only shrinks; 0: VIEW_SIZE_MOST */
    bool percent;               /* what `window` is */
    double window[2];           /* black and white as percentiles of the whole result; else centre and width */
};
void view_init(
    struct result_view *view);   /* the middle slice of the first frame and channel, percentiles 0.5 and 99.5 */
bool view_has(const char *name); /* whether there is a parameter of this name */
/* Set frame, slice, channel, size or window from text. Fails with ERR_BAD_PARAMETER. */
int view_set(struct result_view *view, const char *name, const char *text);
/* The view as text that may be part of a file's name; equal views have equal texts. Back from it: false, if it is no
 * such text. */
void view_print(const struct result_view *view, char text[VIEW_TEXT]);
bool view_read(const char *text, struct result_view *out);
/* That number `asked` of `there` frames, slices or channels exists. Fails with ERR_NOT_ACCEPTABLE. */
int view_place(const char *what, long asked, size_t there);

#endif
