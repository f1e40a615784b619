/* Parsing and printing of views. */
#include "recon/recon.h"

#include "gridding/base/err.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MOST = 9999999 };

void view_init(struct result_view *view)
{
    *view = (struct result_view){.slice = VIEW_MIDDLE, .percent = true, .window = {0.5, 99.5}};
}

static int number_set(const char *name, const char *text, long least, long most, long *out)
{
    char *end;
    long value = isdigit((unsigned char)*text) && strlen(text) < 9 ? strtol(text, &end, 10) : -1;
    if (value < least || value > most || *end)
        return err_set(ERR_BAD_PARAMETER, "Parameter %s must be a whole number from %ld to %ld, not \"%.64s\".", name,
                       least, most, text);
    *out = value;
    return 0;
}

/* Parse a finite decimal number at *text, and advance; false: there is none. */
static bool real_read(const char **text, double *out)
{
    char word[32], *end;
    size_t length = strspn(*text, "+-.0123456789eE");
    if (length == 0 || length >= sizeof word)
        return false;
    memcpy(word, *text, length);
    word[length] = '\0';
    *text += length;
    *out = strtod(word, &end);
    return !*end && isfinite(*out) && fabs(*out) < 1e30;
}

static bool window_read(struct result_view *view, const char *text)
{
    double window[2];
    if (!real_read(&text, &window[0]))
        return false;
    bool percent = *text == '%';
    text += percent;
    if (*text++ != ',' || !real_read(&text, &window[1]))
        return false;
    if (percent && *text++ != '%')
        return false;
    bool fits = percent ? window[0] >= 0 && window[0] < window[1] && window[1] <= 100 : window[1] > 0;
    if (*text || !fits)
        return false;
    view->percent = percent;
    memcpy(view->window, window, sizeof window);
    return true;
}

bool view_has(const char *name)
{
    static const char *const names[] = {"frame", "slice", "channel", "size", "window"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

int view_set(struct result_view *view, const char *name, const char *text)
{
    if (strcmp(name, "frame") == 0)
        return number_set(name, text, 0, NUMBER_MOST, &view->frame);
    if (strcmp(name, "slice") == 0)
        return number_set(name, text, 0, NUMBER_MOST, &view->slice);
    if (strcmp(name, "channel") == 0)
        return number_set(name, text, 0, NUMBER_MOST, &view->channel);
    if (strcmp(name, "size") == 0)
        return number_set(name, text, 1, VIEW_SIZE_MOST, &view->size);
    return window_read(view, text)
               ? 0
               : err_set(ERR_BAD_PARAMETER,
                         "Parameter window must be two percentiles, such as 1%%,99%%, or the centre and the width of "
                         "the values that are shown, such as 0.5,1, not \"%.64s\".",
                         text);
}

void view_print(const struct result_view *view, char text[VIEW_TEXT])
{
    snprintf(text, VIEW_TEXT, "f%ld_s%ld_c%ld_z%ld_%c%.6g_%.6g", view->frame, view->slice, view->channel, view->size,
             view->percent ? 'p' : 'w', view->window[0], view->window[1]);
    /* For names of files. */
    for (char *at = text; (at = strchr(at, '+'));)
        memmove(at, at + 1, strlen(at));
}

bool view_read(const char *text, struct result_view *out)
{
    char kind, back[VIEW_TEXT];
    view_init(out);
    if (sscanf(text, "f%8ld_s%8ld_c%8ld_z%8ld_%c%lf_%lf", &out->frame, &out->slice, &out->channel, &out->size, &kind,
               &out->window[0], &out->window[1]) != 7)
        return false;
    out->percent = kind == 'p';
    view_print(out, back);
    return strcmp(text, back) == 0;
}

int view_place(const char *what, long asked, size_t there)
{
    if (asked >= 0 && (size_t)asked < there)
        return 0;
    return err_set(ERR_NOT_ACCEPTABLE, "There is no %s %ld: the result has %zu, numbered from 0.", what, asked, there);
}
