/* A job's progress while it runs, and the report of every job: steps with their times, decisions with reasons,
 * warnings. */
#include "recon/mri/recon_gridder.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    MOST_ENTRIES = 32 /* limit of decisions and of warnings: a series of a thousand images must not add a thousand */
};

static int recon_ask(const struct job_listener *listener, const struct step_progress *now)
{
    if (listener && listener->progress && listener->progress(listener->context, now) != 0)
        return err_set(ERR_CANCELED, "The job was canceled while it was running.");
    return 0;
}

int recon_asked(void *of)
{
    const struct recon_job *job = of;
    return recon_ask(job->listener, job->told);
}

int recon_tell(const struct recon_job *job, enum recon_step step, double fraction, int64_t iteration,
               int64_t iterations)
{
    const struct step_progress now = {(int)step, job->done + job->share * fmin(1, fmax(0, fraction)), iteration,
                                      iterations};
    if (job->told)
        *job->told = now;
    return recon_ask(job->listener, &now);
}

int gridder_tell(struct gridder *g, double fraction, int coils)
{
    g->told = fraction;
    g->told_coils = g->coils_done + coils;
    return gridder_ask(g);
}

int gridder_ask(void *of)
{
    const struct gridder *g = of;
    return recon_tell(g->job, RECON_STEP_GRIDDING, g->told, g->told_coils, g->coils);
}

int recon_report_create(json_t **out)
{
    json_t *report = json_pack("{s:{}, s:[], s:[]}", "stages", "decisions", "warnings");
    if (!report)
        return err_no_memory("the job's report");
    *out = report;
    return 0;
}

void recon_report_stage(struct recon_job *job, const char *name, double seconds)
{
    json_t *stages = json_object_get(job->report, "stages"), *old = json_object_get(stages, name);
    json_object_set_new(stages, name, json_real(seconds + (old ? json_number_value(old) : 0)));
}

void recon_report_number(struct recon_job *job, const char *name, double value)
{
    bool whole = value >= -1e15 && value <= 1e15 && value == (double)(int64_t)value;
    json_object_set_new(job->report, name, whole ? json_integer((json_int_t)value) : json_real(value));
}

static bool list_has(const json_t *list, const json_t *entry)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), entry))
            return true;
    return false;
}

/* Takes ownership of `entry`. Equal entries are added once. */
static void list_add(struct recon_job *job, const char *list, json_t *entry)
{
    json_t *there = json_object_get(job->report, list);
    if (json_array_size(there) < MOST_ENTRIES && !list_has(there, entry))
        json_array_append(there, entry);
    json_decref(entry);
}

void recon_report_decide(struct recon_job *job, const char *what, const char *value, const char *reason, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    list_add(job, "decisions", json_pack("{s:s, s:s, s:s}", "what", what, "value", value, "reason", text));
}

json_t *recon_report_aside(struct recon_job *job)
{
    json_t *before = json_incref(json_object_get(job->report, "decisions"));
    json_object_set_new(job->report, "decisions", json_array());
    return before;
}

json_t *recon_report_back(struct recon_job *job, json_t *before)
{
    json_t *own = json_incref(json_object_get(job->report, "decisions"));
    json_object_set_new(job->report, "decisions", before);
    recon_report_repeat(job, own);
    return own;
}

void recon_report_repeat(struct recon_job *job, const json_t *decisions)
{
    for (size_t i = 0; i < json_array_size(decisions); i++)
        list_add(job, "decisions", json_incref(json_array_get(decisions, i)));
}

void recon_report_warn(struct recon_job *job, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    list_add(job, "warnings", json_string(text));
}

enum { LISTED = 256 /* values of a counter, and frames, in a report, which the daemon limits */ };

/* The values of a counter, in order: they are those of the frames at which it changes while the counters before it have
 * their first value. */
static json_t *values_list(const struct image_frames *frames, int counter)
{
    json_t *values = json_array();
    size_t step = 1;
    for (int i = counter + 1; i < IMAGE_COUNTERS; i++)
        step *= frames->size[i];
    for (size_t v = 0; v < frames->size[counter]; v++)
        json_array_append_new(values, json_integer(frames->counters[v * step][counter]));
    return values;
}

static json_t *axes_list(const struct image_frames *frames)
{
    json_t *axes = json_array();
    for (int i = 0; i < IMAGE_COUNTERS; i++) {
        if (frames->size[i] < 2)
            continue;
        json_t *axis = json_pack("{s:s, s:I}", "counter", image_counter_name((enum image_counter)i), "size",
                                 (json_int_t)frames->size[i]);
        if (frames->size[i] <= LISTED)
            json_object_set_new(axis, "values", values_list(frames, i));
        json_array_append_new(axes, axis);
    }
    return axes;
}

static json_t *each_list(const struct image_frames *frames)
{
    json_t *each = json_array();
    for (size_t f = 0; f < frames->count; f++) {
        json_t *frame = json_object();
        for (int i = 0; i < IMAGE_COUNTERS; i++)
            if (frames->size[i] > 1)
                json_object_set_new(frame, image_counter_name((enum image_counter)i),
                                    json_integer(frames->counters[f][i]));
        json_array_append_new(each, frame);
    }
    return each;
}

int recon_report_frames(struct recon_job *job)
{
    struct image_frames frames;
    const int rc = image_frames_find(&frames, job->images);
    if (rc != 0)
        return rc;
    if (frames.count > 1) {
        json_t *told = json_pack("{s:I}", "count", (json_int_t)frames.count);
        if (frames.grid)
            json_object_set_new(told, "axes", axes_list(&frames));
        else if (frames.count <= LISTED)
            json_object_set_new(told, "each", each_list(&frames));
        json_object_set_new(job->report, "frames", told);
    }
    free(frames.counters);
    return 0;
}
