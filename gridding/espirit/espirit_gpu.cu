/* ESPIRiT's maps on a GPU: the leaf, its memory, and the order of the stages. */
#include "gridding/espirit/espirit_gpu.cuh"

static const size_t WAVES_BYTES = (size_t)16 << 20, LINES_BYTES = (size_t)32 << 20; /* at a time */
static const size_t ROWS_MOST = 32768;                                              /* of a grid of blocks */
static const size_t ALIGNED = 256;
static const char what[] = "ESPIRiT's coil maps";

static struct espirit_sizes sizes_of(const struct espirit_params *p)
{
    struct espirit_sizes s = {1, 1, 0, false, 0};
    for (int d = 0; d < 3; d++) {
        s.offsets *= (size_t)p->width[d];
        s.places *= (size_t)(p->m[d] - p->width[d] + 1);
    }
    s.rows = (size_t)p->coils * s.offsets;
    s.by_places = s.places < s.rows;
    s.side = s.by_places ? s.places : s.rows;
    return s;
}

/* Fills in what follows from the sizes. */
static void work_size(struct espirit_work *w, const struct espirit_params *params)
{
    w->p = *params;
    w->s = sizes_of(params);
    w->centre_size = w->pixels = w->all = 1;
    for (int d = 0; d < 3; d++) {
        w->lags[d] = 2 * params->width[d] - 1;
        w->centre_size *= (size_t)params->m[d];
        w->pixels *= (size_t)params->n[d];
        w->all *= (size_t)w->lags[d];
    }
    const size_t coils = (size_t)params->coils, ny = (size_t)params->n[1], nz = (size_t)params->n[2];
    w->pairs = coils * (coils + 1) / 2;
    w->total = w->s.side + w->s.rows;
    w->lanes = coils <= 8 ? 8 : coils <= 16 ? 16 : 32;
    w->slots = (size_t)(w->lanes * w->lanes);
    const size_t vectors = WAVES_BYTES / (w->all * coils * sizeof(float2)) + 1;
    const size_t planes = LINES_BYTES / (ny * (size_t)w->lags[0] * w->slots * sizeof(float2)) + 1;
    w->batch = vectors < w->s.side ? vectors : w->s.side;
    w->slab = planes < nz ? planes : nz;
    w->slab = w->slab * ny <= ROWS_MOST ? w->slab : ROWS_MOST / ny;
}

template <class T> static size_t part(char *memory, size_t at, size_t count, T **out)
{
    *out = (T *)(memory ? memory + at : NULL);
    return at + (count * sizeof(T) + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Divides the memory, or with NULL only counts it. */
static size_t work_divide(struct espirit_work *w, char *memory)
{
    const int *n = w->p.n, *m = w->p.m;
    const size_t coils = (size_t)w->p.coils, nz = (size_t)n[2], side = w->s.side;
    const size_t line = (size_t)w->lags[0] * w->slots;
    size_t at = 0, turns = (size_t)n[0] * (size_t)w->lags[0];
    for (int d = 0; d < 3; d++)
        turns = (size_t)n[d] * (size_t)m[d] > turns ? (size_t)n[d] * (size_t)m[d] : turns;
    at = part(memory, at, 1, &w->state);
    at = part(memory, at, coils * (size_t)m[0] * (size_t)n[1] * nz, &w->between[0]);
    at = part(memory, at, nz > 1 ? coils * (size_t)m[0] * (size_t)m[1] * nz : 0, &w->between[1]);
    at = part(memory, at, turns, &w->turns);
    at = part(memory, at, coils * w->centre_size, &w->centre);
    at = part(memory, at, coils * coils, &w->covariance);
    at = part(memory, at, coils, &w->reference);
    at = part(memory, at, side, &w->vector[0]);
    at = part(memory, at, side, &w->vector[1]);
    at = part(memory, at, w->total * side, &w->matrix);
    at = part(memory, at, w->all * w->batch * coils, &w->waves);
    at = part(memory, at, w->all * w->pairs, &w->sums);
    at = part(memory, at, w->all * w->slots, &w->values);
    at = part(memory, at, w->slab * (size_t)n[1] * line, &w->lines);
    if (nz > 1)
        at = part(memory, at, w->slab * (size_t)w->lags[1] * line, &w->planes);
    return at;
}

/* Block sizes that the launches and the shared memory allow. */
static bool available(const struct dev *dev, const struct espirit_params *params)
{
    struct espirit_work w = {};
    const struct gpu *gpu = (const struct gpu *)dev->state;
    if (params->coils < 1 || params->coils > ESPIRIT_COILS_MOST)
        return false;
    work_size(&w, params);
    const size_t fixed = 3 * (ESPIRIT_LAGS_MOST + 1) * sizeof(double2); /* circles of espirit_lags.cu */
    bool fits = w.centre_size * sizeof(double2) <= gpu->shared_most && w.s.side <= ESPIRIT_SIDE_MOST &&
                2 * w.all * sizeof(double2) + fixed <= gpu->shared_most &&
                (size_t)w.lags[0] * w.slots * sizeof(float2) <= gpu->shared_most;
    for (int d = 0; d < 3; d++)
        fits = fits && w.lags[d] <= ESPIRIT_LAGS_MOST && params->m[d] <= params->n[d];
    return fits;
}

static size_t memory_of(const struct dev *dev, const struct espirit_params *params)
{
    struct espirit_work w = {};
    (void)dev;
    work_size(&w, params);
    return work_divide(&w, NULL);
}

/* All of G's lags, without waiting. */
static int calibrate(const struct espirit_work *w, const float2 *images)
{
    int rc = espirit_centre(w, images);
    if (!rc)
        rc = espirit_gram(w);
    if (!rc)
        rc = espirit_factor(w);
    return rc ? rc : espirit_lags(w);
}

static int maps_make(const struct espirit_work *w, const float2 *images, float2 *maps, const struct listener *listener)
{
    const size_t nz = (size_t)w->p.n[2];
    int rc = calibrate(w, images);
    for (size_t first = 0; first < nz && !rc; first += w->slab) {
        const size_t count = nz - first < w->slab ? nz - first : w->slab;
        if (listener && nz > 1 && !rc)
            rc = gpu_finish(w->gpu, what);
        if (listener && !rc)
            rc = listener->progress(listener->context, first, nz);
        if (!rc)
            rc = espirit_pixels(w, first, count, maps);
    }
    return rc;
}

static int estimate(struct dev *dev, const struct espirit_params *params, const struct c32 *images, struct c32 *maps,
                    const struct listener *listener, size_t *support)
{
    struct espirit_work w = {};
    struct espirit_state state = {};
    char *memory = NULL;
    w.gpu = gpu_of(dev);
    work_size(&w, params);
    int rc = gpu_enter(w.gpu);
    if (!rc)
        rc = gpu_alloc(w.gpu, work_divide(&w, NULL), (void **)&memory, what);
    if (!rc)
        work_divide(&w, memory);
    if (!rc)
        rc = maps_make(&w, (const float2 *)images, (float2 *)maps, listener);
    if (!rc)
        rc = gpu_download(w.gpu, &state, w.state, sizeof state);
    gpu_release(w.gpu, memory);
    if (!rc && !state.finite)
        return err_set(ERR_DATA_NONFINITE,
                       "The coils' images have values that are not finite, so no coil maps can be estimated.");
    if (!rc)
        *support = (size_t)state.support;
    return rc;
}

extern "C" const struct espirit_leaf espirit_leaf_gpu;
const struct espirit_leaf espirit_leaf_gpu = {available, memory_of, estimate};
