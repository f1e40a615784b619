#include "recon/mri/recon_made.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

/* Everything that an image depends on besides its readouts and the parameters. Compared as bytes: set it to 0 before.
 */
struct made_key {
    int64_t dim, columns, coordinates, has_weights, mixed_coils, compressed, encoding, batch, complex_valued;
    int64_t n[3], out_n[3], channels;
    double out_fov_mm[3], out_k[3], scale[3], delay[3];
};

/* What tells an image from all others, in a beginning of the scan and in the whole: windows of a series may begin with
 * the same readout. */
struct made_image {
    uint32_t readout; /* its first */
    uint16_t repetition;
    size_t image;
};

struct recon_made {
    struct made_key key;
    struct frames *frames;
    struct made_image *first; /* [frames], sorted */
    struct image_series *images;
    struct c32 *mix;
    size_t mix_count;
    bool *coil_lives, *made; /* [coils], [frames] */
    int coils, plans;
    struct solve_tally tally;
    double overflowed, seconds;
    json_t *report; /* of the job; its decisions and warnings are those of the images only */
};

void recon_made_free(struct recon_made *made)
{
    if (!made)
        return;
    frames_free(made->frames);
    image_series_free(made->images);
    json_decref(made->report);
    free(made->first);
    free(made->mix);
    free(made->coil_lives);
    free(made->made);
    free(made);
}

static void key_fill(struct made_key *key, const struct gridder *g)
{
    const struct recon_job *job = g->job;
    memset(key, 0, sizeof *key);
    key->dim = job->dim;
    key->columns = job->columns;
    key->coordinates = job->coordinates;
    key->has_weights = job->has_weights;
    key->mixed_coils = job->mixed_coils;
    key->compressed = job->compressed;
    key->encoding = job->frames->encoding;
    key->batch = g->batch;
    key->complex_valued = job->images->complex_valued;
    key->channels = (int64_t)job->images->channels;
    for (int d = 0; d < 3; d++) {
        key->n[d] = job->n[d];
        key->out_n[d] = job->out_n[d];
        key->out_fov_mm[d] = job->out_fov_mm[d];
        key->out_k[d] = job->out_k[d];
        key->scale[d] = job->scale[d];
        key->delay[d] = job->delay[d];
    }
}

/* The matrix that mixes the scan's coils: [coils or virtual coils][mixed_coils]. */
static size_t mix_count(const struct recon_job *job)
{
    return job->mix ? (size_t)job->frames->frame[0].coils * (size_t)job->mixed_coils : 0;
}

static bool frame_is_same(const struct frames *a, size_t f, const struct frames *b, size_t g)
{
    const struct frame *x = &a->frame[f], *y = &b->frame[g];
    return x->count == y->count && x->samples == y->samples && x->repetition == y->repetition && x->coils == y->coils &&
           x->averages == y->averages && x->partitions == y->partitions &&
           memcmp(a->readouts + x->first, b->readouts + y->first, x->count * sizeof *a->readouts) == 0;
}

static int image_compare(const void *pa, const void *pb)
{
    const struct made_image *a = pa, *b = pb;
    if (a->readout != b->readout)
        return a->readout < b->readout ? -1 : 1;
    return (a->repetition > b->repetition) - (a->repetition < b->repetition);
}

static struct made_image image_of(const struct frames *frames, size_t f)
{
    return (struct made_image){frames->readouts[frames->frame[f].first], frames->frame[f].repetition, f};
}

/* The image of `before` that may be image `f`, or SIZE_MAX: images of a beginning may lie elsewhere in the whole. */
static size_t image_before(const struct recon_made *before, const struct recon_job *job, size_t f)
{
    const struct made_image wanted = image_of(job->frames, f);
    const struct made_image *found =
        bsearch(&wanted, before->first, before->frames->count, sizeof wanted, image_compare);
    return found && before->made[found->image] ? found->image : SIZE_MAX;
}

bool recon_made_before(const struct recon_job *job, size_t f)
{
    const struct recon_made *before = job->before;
    const size_t b = before ? image_before(before, job, f) : SIZE_MAX;
    if (b == SIZE_MAX)
        return false;
    const struct frame *x = &job->frames->frame[f], *y = &before->frames->frame[b];
    return x->count == y->count && memcmp(job->frames->readouts + x->first, before->frames->readouts + y->first,
                                          x->count * sizeof *before->frames->readouts) == 0;
}

/* Add the report's entries about the reused images' plan and decisions, unless they are present. */
static void report_take(struct recon_job *job, const json_t *before)
{
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach ((json_t *)(uintptr_t)before, name, value)
        if (!json_object_get(job->report, name))
            json_object_set(job->report, name, value);
    recon_report_repeat(job, json_object_get(before, "decisions"));
    json_array_foreach (json_object_get(before, "warnings"), i, value)
        recon_report_warn(job, "%s", json_string_value(value));
}

/* Of one image. */
static size_t values_of(const struct image_series *images)
{
    return images->channels * images->size[0] * images->size[1] * images->size[2] * (images->complex_valued ? 2 : 1);
}

/* Whether the images of `before` are the job's first ones, in their order, and the job has their memory now, which has
 * become larger: a beginning follows a beginning many times, and copies of all images would take longer each time. If
 * the job fails, recon_made_return() gives it back. */
static bool data_lend(struct recon_job *job, const struct recon_made *before, size_t values)
{
    struct image_series *from = before->images, *to = job->images;
    const size_t first = before->frames->count, count = job->frames->count;
    bool same = job->keep && first <= count;
    for (size_t f = 0; f < count && same; f++) {
        const size_t b = image_before(before, job, f);
        same = b == SIZE_MAX || b == f;
    }
    float *data = same ? realloc(from->data, count * values * sizeof *data) : NULL;
    if (!data)
        return false;
    memset(data + first * values, 0, (count - first) * values * sizeof *data);
    from->data = NULL;
    free(to->data);
    to->data = data;
    job->lent = true;
    return true;
}

void recon_made_return(struct recon_job *job)
{
    if (!job->lent || !job->images)
        return;
    job->before->images->data = job->images->data;
    job->images->data = NULL;
    job->lent = false;
}

void recon_made_take(struct gridder *g)
{
    struct recon_job *job = g->job;
    const struct recon_made *before = job->before;
    struct made_key key;
    size_t taken = 0;
    if (!before)
        return;
    key_fill(&key, g);
    if (memcmp(&key, &before->key, sizeof key) != 0 || mix_count(job) != before->mix_count ||
        (job->mix && memcmp(job->mix, before->mix, before->mix_count * sizeof *job->mix) != 0))
        return;
    const size_t values = values_of(job->images);
    const bool lent = data_lend(job, before, values);
    for (size_t f = 0; f < job->frames->count; f++) {
        const size_t b = image_before(before, job, f);
        if (b == SIZE_MAX || !frame_is_same(job->frames, f, before->frames, b))
            continue;
        if (!lent)
            memcpy(job->images->data + f * values, before->images->data + b * values, values * sizeof(float));
        job->made[f] = true;
        g->coils_done += job->frames->frame[f].coils;
        taken++;
    }
    for (int c = 0; c < g->most_coils && c < before->coils && taken; c++)
        job->coil_lives[c] = job->coil_lives[c] || before->coil_lives[c];
    if (!taken)
        return;
    report_take(job, before->report);
    json_object_set(job->report, "ahead_stages", json_object_get(before->report, "stages"));
    g->tally = before->tally;
    g->plans = before->plans;
    g->overflowed = before->overflowed;
    recon_report_number(job, "images_ahead", (double)taken);
    recon_report_number(job, "ahead_seconds", before->seconds);
}

/* The entries of a list that were added for the images. */
static json_t *list_keep(const struct recon_job *job, const char *name, size_t before)
{
    const json_t *list = json_object_get(job->report, name);
    json_t *kept = json_array();
    for (size_t i = before; i < json_array_size(list); i++)
        json_array_append(kept, json_array_get(list, i));
    return kept;
}

static json_t *report_keep(const struct recon_job *job)
{
    json_t *report = json_copy(job->report);
    json_object_set_new(report, "decisions", list_keep(job, "decisions", job->decisions));
    json_object_set_new(report, "warnings", list_keep(job, "warnings", job->warnings));
    return report;
}

int recon_made_keep(struct gridder *g)
{
    struct recon_job *job = g->job;
    const size_t count = job->frames->count;
    struct recon_made *made = calloc(1, sizeof *made);
    struct made_image *first = malloc(count * sizeof *first);
    if (!made || !first) {
        free(made);
        free(first);
        return err_no_memory("images of a scan that arrives");
    }
    for (size_t f = 0; f < count; f++)
        first[f] = image_of(job->frames, f);
    qsort(first, count, sizeof *first, image_compare);
    made->first = first;
    key_fill(&made->key, g);
    made->mix_count = mix_count(job);
    made->coils = g->most_coils;
    made->tally = g->tally;
    made->plans = g->plans;
    made->overflowed = g->overflowed;
    made->seconds = (job->before ? job->before->seconds : 0) + clock_seconds() - job->begun;
    made->report = report_keep(job);
    made->frames = job->frames;
    made->images = job->images;
    made->mix = job->mix;
    made->coil_lives = job->coil_lives;
    made->made = job->made;
    job->frames = NULL;
    job->images = NULL;
    job->mix = NULL;
    job->coil_lives = NULL;
    job->made = NULL;
    *job->keep = made;
    return 0;
}

const struct recon_begun *recon_begun_of(const void *ahead)
{
    return ahead;
}
