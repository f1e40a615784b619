/* rival_range_engine.c: the same sums by the project's own engine, gridding/range/sums.h, on either device. */
#include "tests/bench/rival_range.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"

#include <math.h>
#include <stdlib.h>

static double potential(const void *of, double t)
{
    (void)of;
    return t * t;
}

static double blob(const void *of, double t)
{
    const struct rival_sum *sum = of;
    const double cut = (double)sum->cut;
    return exp((double)sum->blobbiness * (cut * cut * (1 - t) - 1));
}

static double one(const void *of, double t)
{
    (void)of, (void)t;
    return 1;
}

static int law_of(struct range_law *law, const struct rival_sum *of)
{
    const double reach = (double)of->reach, error = 1e-6;
    if (of->law == RIVAL_POTENTIAL)
        return range_law_make(
            law, &(struct range_law_params){.form = RANGE_INVERSE, .reach = reach, .power = 1, .error = error},
            potential, of);
    if (of->law == RIVAL_BLOB)
        return range_law_make(
            law, &(struct range_law_params){.form = RANGE_RADIAL, .reach = (double)of->cut, .error = error}, blob, of);
    return range_law_make(
        law,
        &(struct range_law_params){
            .form = RANGE_INVERSE, .reach = reach, .soft = (double)of->soft, .power = 3, .error = error},
        one, of);
}

struct rival_engine {
    struct rival_sum of;
    struct dev *dev; /* owned by the caller */
    size_t count, outputs;
    struct range_points *from, *to; /* to: for forces */
    struct range_law law;
    void *value, *sums; /* on the device */
};

/* Positions, radii and strengths in the engine's layout. */
struct columns {
    float *at, *scale, *value;
};

static void columns_free(struct columns *c)
{
    free(c->at);
    free(c->scale);
    free(c->value);
}

static int columns_make(struct columns *c, enum rival_law law, const struct rival_sample *samples, size_t count)
{
    *c = (struct columns){malloc((3 * count + 1) * sizeof *c->at), NULL, malloc((count + 1) * sizeof *c->value)};
    if (law == RIVAL_BLOB)
        c->scale = malloc((count + 1) * sizeof *c->scale);
    if (!c->at || !c->value || (law == RIVAL_BLOB && !c->scale))
        return err_set(ERR_NO_MEMORY, "no memory for %zu sources", count);
    for (size_t i = 0; i < count; i++) {
        c->at[3 * i] = samples[i].x, c->at[3 * i + 1] = samples[i].y, c->at[3 * i + 2] = samples[i].z;
        c->value[i] = samples[i].re;
        if (c->scale)
            c->scale[i] = 1 / sqrtf(samples[i].density);
    }
    return 0;
}

/* `value`: where the sources' strengths go, or NULL. */
static int points_make(struct range_points **out, struct rival_engine *e, const struct rival_sample *samples,
                       size_t count, void **value)
{
    struct columns c;
    int rc = columns_make(&c, e->of.law, samples, count);
    struct range_points_params params = {
        .box = {.dim = 3}, .reach = (double)e->of.reach, .inputs = count, .at = c.at, .scale = c.scale};
    const int nodes = e->of.law == RIVAL_FORCE ? 1 : e->of.nodes;
    for (int d = 0; d < 3; d++) {
        params.box.cells[d] = e->of.grid * nodes;
        params.box.spacing[d] = 1.0 / nodes;
    }
    if (!rc)
        rc = range_points_create(out, e->dev, &params, NULL);
    if (!rc && value)
        rc = dev_alloc(e->dev, (count + 1) * sizeof *c.value, value);
    if (!rc && value)
        rc = dev_upload(e->dev, *value, c.value, count * sizeof *c.value);
    columns_free(&c);
    return rc;
}

int rival_engine_create(struct rival_engine **out, struct dev *dev, const struct rival_sum *of,
                        const struct rival_sample *sources, size_t source_count, const struct rival_sample *bodies,
                        size_t count)
{
    struct rival_engine *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(ERR_NO_MEMORY, "no memory for the engine's sums");
    *e = (struct rival_engine){.of = *of, .dev = dev, .count = count, .outputs = rival_outputs(of, count)};
    int rc = law_of(&e->law, of);
    if (!rc)
        rc = points_make(&e->from, e, sources, source_count, &e->value);
    if (!rc && of->law == RIVAL_FORCE)
        rc = points_make(&e->to, e, bodies, count, NULL);
    if (!rc)
        rc = dev_alloc(dev, e->outputs * sizeof(float), &e->sums);
    if (rc)
        rival_engine_free(e);
    else
        *out = e;
    return rc;
}

void rival_engine_free(struct rival_engine *e)
{
    if (!e)
        return;
    range_points_free(e->from);
    range_points_free(e->to);
    dev_release(e->dev, e->value);
    dev_release(e->dev, e->sums);
    free(e);
}

int rival_engine_sum(struct rival_engine *e)
{
    if (e->of.law == RIVAL_FORCE) {
        const struct range_pair_sums pairs = {.vector_law = &e->law, .vectors = e->sums};
        return range_pairs(e->to, e->from, &pairs, 1, e->value, NULL);
    }
    int rc = dev_zero(e->dev, e->sums, e->outputs * sizeof(float));
    return rc ? rc : range_scatter(e->from, &e->law, 1, e->value, e->sums, NULL);
}

int rival_engine_fetch(struct rival_engine *e, float *sums)
{
    if (e->of.law != RIVAL_FORCE)
        return dev_download(e->dev, sums, e->sums, e->outputs * sizeof *sums);
    /* The engine's vectors are [3][count]. */
    float *vectors = malloc((e->outputs + 1) * sizeof *vectors);
    if (!vectors)
        return err_set(ERR_NO_MEMORY, "no memory for forces");
    int rc = dev_download(e->dev, vectors, e->sums, e->outputs * sizeof *vectors);
    for (size_t i = 0; !rc && i < e->outputs; i++)
        sums[i] = vectors[i / 3 + i % 3 * e->count];
    free(vectors);
    return rc;
}
