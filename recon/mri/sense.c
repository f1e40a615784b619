#include "recon/mri/sense.h"

#include "gridding/base/vec.h"

enum {
    GROUP = 8,                  /* coils: four groups of 32 leave two devices little to send each other */
    GROUP_PIXELS = 64 * 64 * 64 /* of images whose coils are summed in groups: smaller ones are computed at once */
};

int sense_group(size_t pixels, int coils)
{
    return pixels >= GROUP_PIXELS && coils > GROUP ? GROUP : coils;
}

int sense_groups(size_t pixels, int coils)
{
    const int group = sense_group(pixels, coils);
    return (coils + group - 1) / group;
}

static int coils_until(const struct sense *s, int group)
{
    return group * s->group < s->coils ? group * s->group : s->coils;
}

/* Memory of a part for at most `groups`. */
static int part_open(const struct sense *s, struct sense_part *part, int groups)
{
    const size_t image = s->pixels * sizeof(struct c32);
    const int most = groups * s->group, coils = most < s->coils ? most : s->coils;
    int rc = dev_alloc(part->dev, (size_t)s->batch * image, (void **)&part->scratch);
    if (part == &s->part[0])
        return rc;
    if (rc == 0)
        rc = dev_alloc(part->dev, (size_t)coils * image, (void **)&part->copy);
    if (rc == 0)
        rc = dev_alloc(part->dev, image, (void **)&part->x);
    return rc == 0 ? dev_alloc(part->dev, (size_t)groups * image, (void **)&part->sums) : rc;
}

int sense_open(struct sense *sense, struct dev *dev, size_t pixels, int coils, int batch, bool divide)
{
    const int group = sense_group(pixels, coils), groups = sense_groups(pixels, coils);
    const int most = divide ? dev_parts(dev) : 1, parts = most < groups ? most : groups;
    *sense = (struct sense){.dev = dev, .pixels = pixels, .coils = coils, .group = group};
    sense->batch = batch < group ? batch : group;
    int rc = groups > 1 ? dev_alloc(dev, pixels * sizeof *sense->sum, (void **)&sense->sum) : 0;
    for (int p = 0; p < parts && rc == 0; p++) {
        struct sense_part *part = &sense->part[sense->opened++];
        part->dev = dev_part(dev, p);
        rc = part_open(sense, part, (groups + parts - 1) / parts);
    }
    return rc;
}

int sense_maps(struct sense *sense, int coils, const struct c32 *maps)
{
    const int groups = sense_groups(sense->pixels, coils);
    int rc = 0;
    sense->coils = coils;
    sense->group = sense_group(sense->pixels, coils);
    sense->maps = maps;
    sense->parts = sense->opened < groups ? sense->opened : groups;
    for (int p = 0; p < sense->parts && rc == 0; p++) {
        struct sense_part *part = &sense->part[p];
        part->first = p * groups / sense->parts;
        part->groups = (p + 1) * groups / sense->parts - part->first;
        const int from = coils_until(sense, part->first), until = coils_until(sense, part->first + part->groups);
        part->maps = p == 0 ? maps : part->copy;
        if (p > 0)
            rc = dev_copy(part->dev, part->copy, sense->dev, maps + (size_t)from * sense->pixels,
                          (size_t)(until - from) * sense->pixels * sizeof *maps);
    }
    return rc;
}

int sense_normal(struct sense *sense, struct normal *normal, int planes)
{
    int rc = 0;
    sense->planes = planes;
    sense->part[0].normal = normal;
    for (int p = 1; p < sense->parts && rc == 0; p++)
        rc = normal_copy(&sense->part[p].normal, sense->part[p].dev, normal);
    return rc;
}

void sense_close(struct sense *sense)
{
    for (int p = 0; p < sense->opened; p++) {
        struct sense_part *part = &sense->part[p];
        dev_release(part->dev, part->sums);
        dev_release(part->dev, part->x);
        dev_release(part->dev, part->copy);
        dev_release(part->dev, part->scratch);
        if (p > 0)
            normal_free(part->normal);
    }
    dev_release(sense->dev, sense->sum);
    sense->sum = NULL;
    sense->parts = sense->opened = 0;
}

/* out = the sum of one of the part's groups. */
static int group_sum(const struct sense *s, const struct sense_part *part, int group, const struct c32 *x,
                     struct c32 *out)
{
    const int begin = coils_until(s, part->first), until = coils_until(s, group + 1);
    int rc = vec_zero(part->dev, s->pixels, out);
    for (int first = coils_until(s, group); first < until && rc == 0; first += s->batch) {
        const int count = until - first < s->batch ? until - first : s->batch;
        const struct c32 *maps = part->maps + (size_t)(first - begin) * s->pixels;
        rc = s->ask ? s->ask(s->context) : 0;
        if (rc == 0)
            rc = vec_multiply(part->dev, s->pixels, count, maps, x, part->scratch); /* S_c x */
        if (rc == 0)
            rc = normal_apply(part->normal, count * s->planes, part->scratch, part->scratch); /* A' W A S_c x */
        if (rc == 0)
            rc = vec_multiply_conj_add(part->dev, s->pixels, count, maps, part->scratch,
                                       out); /* out + conj(S_c) A' W A S_c x */
    }
    return rc;
}

/* The other parts begin before the first is given its own groups; their sums are fetched after that. */
static int apply(void *of, const struct c32 *x, struct c32 *r)
{
    struct sense *s = of;
    const struct sense_part *own = &s->part[0];
    int rc = 0;
    for (int p = 1; p < s->parts && rc == 0; p++) {
        const struct sense_part *part = &s->part[p];
        rc = dev_copy(part->dev, part->x, s->dev, x, s->pixels * sizeof *x);
        for (int g = 0; g < part->groups && rc == 0; g++)
            rc = group_sum(s, part, part->first + g, part->x, part->sums + (size_t)g * s->pixels);
    }
    if (rc == 0)
        rc = group_sum(s, own, 0, x, r);
    for (int g = 1; g < own->groups && rc == 0; g++) {
        rc = group_sum(s, own, g, x, s->sum);
        if (rc == 0)
            rc = vec_axpy(s->dev, s->pixels, 1, s->sum, r);
    }
    for (int p = 1; p < s->parts; p++)
        for (int g = 0; g < s->part[p].groups && rc == 0; g++) {
            rc = dev_copy(s->dev, s->sum, s->part[p].dev, s->part[p].sums + (size_t)g * s->pixels,
                          s->pixels * sizeof *r);
            if (rc == 0)
                rc = vec_axpy(s->dev, s->pixels, 1, s->sum, r);
        }
    return rc;
}

struct op sense_op(struct sense *sense)
{
    return (struct op){.of = sense, .domain = sense->pixels, .range = sense->pixels, .normal = apply};
}

static int apply_frames(void *of, const int *running, const struct c32 *x, struct c32 *r)
{
    struct sense_frames *frames = of;
    frames->coils.running = running;
    return normal_apply_coils(frames->normal, &frames->coils, x, r);
}

struct op_frames sense_frames_op(struct sense_frames *frames, size_t pixels)
{
    const struct normal_coils *coils = &frames->coils;
    return (struct op_frames){.of = frames,
                              .domain = pixels,
                              .frames = coils->frames,
                              .work = pixels * (size_t)coils->coils * (size_t)coils->frames,
                              .normal = apply_frames};
}

int sense_combine(struct sense *sense, int first, int count, const struct c32 *images, struct c32 *x)
{
    return vec_multiply_conj_add(sense->dev, sense->pixels, count, sense->maps + (size_t)first * sense->pixels, images,
                                 x);
}
