/* Functions over the tables of kinds: look-up of names, parsing of parameters, names of result files. Links only err.c
 * and the kinds' tables. */
#include "recon/recon.h"

#include "gridding/base/err.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct kind *kind_find(const char *name)
{
    for (const struct kind *const *kind = kinds; *kind; kind++)
        if (strcmp((*kind)->name, name) == 0)
            return *kind;
    return NULL;
}

int kind_steps(const struct kind *kind)
{
    int count = 0;
    while (kind->steps[count].name)
        count++;
    return count;
}

int kind_step_find(const struct kind *kind, const char *name)
{
    for (int i = 0; kind->steps[i].name; i++)
        if (strcmp(kind->steps[i].name, name) == 0)
            return i;
    return -1;
}

int kind_step_writing(const struct kind *kind)
{
    int last = kind_steps(kind) - 1;
    return last >= 0 && kind->steps[last].writes ? last : -1;
}

/* ---- results ---- */

bool kind_reads(const struct kind *kind, const char *input)
{
    const struct kind_input *own = kind->inputs;
    while (own->name && strcmp(own->name, input) != 0)
        own++;
    return own->name != NULL;
}

int kind_result_find(const struct kind *kind, const char *name)
{
    for (int i = 0; kind->results[i].name; i++)
        if (strcmp(kind->results[i].name, name) == 0)
            return i;
    return -1;
}

int form_format_find(const struct result_form *form, const char *name)
{
    for (int i = 0; form->formats[i].name; i++)
        if (strcasecmp(form->formats[i].name, name) == 0 || strcasecmp(form->formats[i].media, name) == 0)
            return i;
    return -1;
}

void kind_file_name(const struct kind *kind, struct result_file file, char name[KIND_FILE_NAME])
{
    const struct kind_result *result = &kind->results[file.result];
    snprintf(name, KIND_FILE_NAME, "%s.%s", result->name, result->form->formats[file.format].name);
}

bool kind_file_find(const struct kind *kind, const char *name, struct result_file *out)
{
    for (int i = 0; kind->results[i].name; i++) {
        const char *result = kind->results[i].name;
        const struct file_format *formats = kind->results[i].form->formats;
        size_t length = strlen(result);
        for (int f = 0; strncmp(name, result, length) == 0 && name[length] == '.' && formats[f].name; f++)
            if (strcmp(name + length + 1, formats[f].name) == 0) {
                *out = (struct result_file){i, f};
                return true;
            }
    }
    return false;
}

const char *kind_file_media(const struct kind *kind, const char *name)
{
    const char *ending = strrchr(name, '.');
    struct result_file file;
    if (kind && kind_file_find(kind, name, &file))
        return kind->results[file.result].form->formats[file.format].media;
    if (ending && strcmp(ending, ".png") == 0) /* a view */
        return "image/png";
    return ending && strcmp(ending, ".json") == 0 ? "application/json" : "application/octet-stream";
}

/* ---- parameters ---- */

const char *param_spelling(const struct param *param, const char *text)
{
    return param->former && strcmp(param->former, text) == 0 ? param->choices[0] : text;
}

/* The index of `text` among the choices; -1: not found. */
static int choice_find(const struct param *param, const char *text)
{
    for (int i = 0; param->choices && param->choices[i]; i++)
        if (strcmp(param->choices[i], text) == 0)
            return i;
    return -1;
}

/* For PARAM_SET: the choices in `text` as bits; 0: an unknown or repeated one, or none. */
static int64_t set_parse(const struct param *param, const char *text)
{
    int64_t bits = 0;
    for (;;) {
        const size_t length = strcspn(text, ",");
        int i = 0;
        while (param->choices[i] &&
               (strlen(param->choices[i]) != length || strncmp(param->choices[i], text, length) != 0))
            i++;
        if (!param->choices[i] || (bits >> i & 1))
            return 0;
        bits |= INT64_C(1) << i;
        if (!text[length])
            return bits;
        text += length + 1;
    }
}

static void set_print(const struct param *param, int64_t bits, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; param->choices[i] && used < size; i++)
        if (bits >> i & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "", param->choices[i]);
}

/* Parse `text` as a value of `param`; ERR_BAD_PARAMETER, without a sentence, if it is invalid. */
static int value_parse(const struct param *param, const char *text, int64_t *integer, double *real)
{
    char *end = NULL;
    const int choice = choice_find(param, text);
    bool valid = *text && !isspace((unsigned char)*text);
    errno = 0;
    switch (param->type) {
    case PARAM_CHOICE:
        *integer = choice;
        return choice >= 0 ? 0 : ERR_BAD_PARAMETER;
    case PARAM_SET:
        *integer = set_parse(param, text);
        return *integer ? 0 : ERR_BAD_PARAMETER;
    case PARAM_INT:
    case PARAM_REAL:
        if (choice >= 0) {
            *integer = (param->min > 0 ? 0 : (int64_t)param->min - 1) - choice;
            *real = (double)*integer;
            return 0;
        }
        *integer = param->type == PARAM_INT ? strtoll(text, &end, 10) : 0;
        *real = param->type == PARAM_INT ? (double)*integer : strtod(text, &end);
        valid = valid && !*end && (param->type == PARAM_REAL || errno == 0);
        return valid && *real >= param->min && *real <= param->max ? 0 : ERR_BAD_PARAMETER;
    case PARAM_TEXT:
        valid = strlen(text) <= (size_t)param->max;
        for (size_t i = 0; valid && text[i]; i++)
            valid = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
        return valid ? 0 : ERR_BAD_PARAMETER;
    }
    return ERR_BAD_PARAMETER;
}

/* The values of a parameter, for a sentence: "one of auto, given" or "auto or a number from 1.125 to 2". */
static void range_describe(const struct param *param, char *text, size_t size)
{
    size_t used = 0;
    switch (param->type) {
    case PARAM_CHOICE:
    case PARAM_SET:
        used = (size_t)snprintf(text, size, param->type == PARAM_SET ? "one or more, with commas, of " : "one of ");
        for (int i = 0; param->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", param->choices[i]);
        break;
    case PARAM_INT:
    case PARAM_REAL:
        for (int i = 0; param->choices && param->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", param->choices[i],
                                     param->choices[i + 1] ? ", " : " or ");
        if (used < size)
            snprintf(text + used, size - used, "a %s from %.10g to %.10g",
                     param->type == PARAM_INT ? "whole number" : "number", param->min, param->max);
        break;
    case PARAM_TEXT:
        snprintf(text, size, "a text of at most %.0f bytes without control characters", param->max);
        break;
    }
}

/* The Levenshtein distance of two short names, in percent of the longer one's length. */
static int name_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    size_t na = strnlen(a, LONGEST), nb = strnlen(b, LONGEST);
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int replaced = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return na || nb ? 100 * row[nb] / (int)(na > nb ? na : nb) : 0;
}

static int name_unknown(const struct kind *kind, const char *name)
{
    char list[512] = "";
    size_t used = 0;
    const char *nearest = NULL;
    int least = 0;
    for (const struct param *param = kind->params; param->name; param++) {
        int distance = name_distance(name, param->name);
        if (!nearest || distance < least) {
            nearest = param->name;
            least = distance;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", param->name);
    }
    /* A name with a larger distance is not a misspelling. */
    if (nearest && least <= 50)
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "Kind %s has no parameter named \"%.64s\". Did you mean \"%s\"? It takes: %s.", kind->name, name,
                       nearest, list);
    return err_set(ERR_UNKNOWN_PARAMETER, "Kind %s has no parameter named \"%.64s\". It takes: %s.", kind->name, name,
                   list);
}

static void value_put(struct param_values *values, size_t i, bool given, int64_t integer, double real, const char *text)
{
    values->value[i].given = given;
    values->value[i].integer = integer;
    values->value[i].real = real;
    snprintf(values->value[i].text, sizeof values->value[i].text, "%s", text);
}

void param_values_init(const struct kind *kind, struct param_values *values)
{
    memset(values, 0, sizeof *values);
    for (size_t i = 0; kind->params[i].name; i++) {
        int64_t integer = 0;
        double real = 0;
        value_parse(&kind->params[i], kind->params[i].fallback, &integer, &real);
        value_put(values, i, false, integer, real, kind->params[i].fallback);
    }
}

int param_values_set(const struct kind *kind, struct param_values *values, const char *name, const char *text)
{
    for (size_t i = 0; kind->params[i].name; i++) {
        const struct param *param = &kind->params[i];
        if (strcmp(param->name, name) != 0)
            continue;
        int64_t integer = 0;
        double real = 0;
        /* Jobs are stored and passed on as text, and a truncated text would be another value. */
        const size_t room = sizeof values->value[i].text, length = strlen(text);
        if (length >= room)
            return err_set(ERR_BAD_PARAMETER, "Parameter %s has %zu characters; it takes at most %zu.", name, length,
                           room - 1);
        text = param_spelling(param, text);
        if (value_parse(param, text, &integer, &real) != 0) {
            char range[256];
            range_describe(param, range, sizeof range);
            return err_set(ERR_BAD_PARAMETER, "Parameter %s is \"%.64s\"; it takes %s (default %s).", name, text, range,
                           *param->fallback ? param->fallback : "empty");
        }
        value_put(values, i, true, integer, real, text);
        if (param->type == PARAM_SET)
            set_print(param, integer, values->value[i].text, sizeof values->value[i].text);
        return 0;
    }
    return name_unknown(kind, name);
}

int kind_check(const struct kind *kind, const struct param_values *values)
{
    return kind->check ? kind->check(values) : 0;
}

unsigned kind_results_wanted(const struct kind *kind, const char *text)
{
    int64_t bits = 0;
    double real;
    const struct param *param = kind->params;
    while (param->name && strcmp(param->name, "results") != 0)
        param++;
    if (param->name && (!text || value_parse(param, text, &bits, &real) != 0))
        value_parse(param, param->fallback, &bits, &real);
    for (int i = 0; !param->name && kind->results[i].name; i++)
        bits |= INT64_C(1) << i;
    return (unsigned)bits;
}

int kind_result_default(const struct kind *kind, const char *text)
{
    return __builtin_ctz(kind_results_wanted(kind, text));
}

size_t text_line(const char *text, size_t columns)
{
    size_t best = strcspn(text, " ");
    for (size_t end = best; text[end] && end <= columns; end += 1 + strcspn(text + end + 1, " "))
        best = end;
    return strlen(text) <= columns ? strlen(text) : best;
}
