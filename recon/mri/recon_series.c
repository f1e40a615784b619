/* Iterative methods of a series: all images of one position, which differ only in time, are solved together. Of images
 * t:
 *
 *   S     from the mean over t of the coil images    coil maps: motion is the same for all coils
 *   b_t   = s_t sum_j conj(S_j) A_t' W_t y_tj         the right sides
 *   N     = diag(s_t N_t), s_t = L / L_t              the normal operators, each with its optimal step: L_t is
 * the largest eigenvalue of N_t, L the largest of these x     = argmin sum_t s_t |A_t S x_t - y_t|^2_W + g(x)
 *
 * Coil images of all t are kept from the maps to b where that is a small part of the memory; else they are gridded
 * twice, because they would take more than everything else: the same bits. Images on one trajectory share its normal
 * operator's kernel, unless the device applies the operators of several images at a time, each with its own. */
#include "recon/mri/recon_iterative_inner.h"
#include "recon/mri/series_window.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A series' progress after gridding the images for the maps, after the maps, and after the right sides. */
static const double done_images = 0.15, done_maps = 0.20, done_sides = 0.30;

enum { ASK_PIXELS = 1 << 25 }; /* of all coils, between which a cancel is noticed */

/* A trajectory of a series that keeps its coil images. */
struct path {
    size_t samples;
    float *k; /* [samples][dim] */
};

struct series {
    struct iterative *it;
    struct series_window window;
    size_t count, kernels;
    const size_t *image; /* [count]: places in job->frames, in time */
    size_t *visit;       /* [count]: 0 .. count - 1, those of one trajectory in a row */
    size_t *kernel_of;   /* [count] */
    struct c32 **kernel; /* [kernels]: on the device */
    struct c32 *each; /* device, where g->at_once: [count][elements], a kernel for each image; kernel[k] is one of it */
    double *largest;  /* [kernels]: L_t */
    bool own;         /* each image has a kernel of its own, in `each` */
    struct path *path; /* [paths] */
    size_t paths;
    size_t used;            /* the kernel that the operator holds */
    struct band band;       /* of all trajectories */
    struct iterative_op op; /* of one image */
};

/* ---- the images of a series ---- */

static const struct scan_readout *first_of(const struct recon_job *job, size_t f)
{
    return &job->scan.readouts[job->frames->readouts[job->frames->frame[f].first]];
}

/* Whether time is the repetition; else it is the phase of the cardiac cycle. */
static bool time_is_repetition(const struct recon_job *job)
{
    for (size_t f = 1; f < job->frames->count; f++)
        if (job->frames->frame[f].repetition != job->frames->frame[0].repetition)
            return true;
    return false;
}

static bool same_series(const struct recon_job *job, bool repetition, size_t a, size_t b)
{
    static const enum scan_index fixed[] = {SCAN_CONTRAST, SCAN_SET, SCAN_SLICE, SCAN_AVERAGE};
    const uint16_t *ia = first_of(job, a)->idx, *ib = first_of(job, b)->idx;
    const bool separate = recon_choice(job, RECON_AVERAGES) == RECON_AVERAGES_SEPARATE;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (ia[fixed[i]] != ib[fixed[i]] && (fixed[i] != SCAN_AVERAGE || separate))
            return false;
    return repetition ? ia[SCAN_PHASE] == ib[SCAN_PHASE]
                      : job->frames->frame[a].repetition == job->frames->frame[b].repetition;
}

bool series_leads(const struct recon_job *job, size_t f)
{
    const bool repetition = time_is_repetition(job);
    for (size_t before = 0; before < f; before++)
        if (same_series(job, repetition, before, f))
            return false;
    return true;
}

static int hash_compare(const void *pa, const void *pb)
{
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

/* The number of different trajectories among all images, of which at most `longest` are kept at a time. */
static int kernels_count(struct gridder *g)
{
    const struct recon_job *job = g->job;
    const size_t count = job->frames->count;
    uint64_t *hash = malloc(count * sizeof *hash);
    size_t kernels = 0;
    if (!hash)
        return err_no_memory("comparing %zu images", count);
    memcpy(hash, job->hash, count * sizeof *hash);
    qsort(hash, count, sizeof *hash, hash_compare);
    for (size_t f = 0; f < count; f++)
        kernels += f == 0 || hash[f] != hash[f - 1];
    free(hash);
    kernels = kernels > 1 && g->at_once ? 2 * kernels : kernels; /* as own_kernels() says */
    g->kernels = kernels < g->longest ? kernels : g->longest;
    return 0;
}

/* Set g->keeps. */
static int keeps_find(struct gridder *g)
{
    size_t room, bytes, other;
    int rc = iterative_room(g, &room);
    g->keeps = true;
    g->keeps = rc == 0 && iterative_bytes(g, &bytes, &other) && bytes <= room;
    return rc;
}

int series_sizes(struct gridder *g)
{
    struct recon_job *job = g->job;
    const bool repetition = time_is_repetition(job);
    g->longest = 0;
    for (size_t f = 0; f < job->frames->count; f++) {
        size_t images = 0;
        if (!series_leads(job, f))
            continue;
        for (size_t i = f; i < job->frames->count; i++) {
            const bool same = same_series(job, repetition, f, i);
            images += same;
            if (same && job->frames->frame[i].coils != job->frames->frame[f].coils)
                return err_set(ERR_COILS_DIFFER,
                               "Parameter method=%s needs as many coils in every image of a series, but image %zu has "
                               "%d and image %zu %d. method=tv computes each image alone.",
                               job->request->values->value[RECON_METHOD].text, i, job->frames->frame[i].coils, f,
                               job->frames->frame[f].coils);
        }
        g->longest = images > g->longest ? images : g->longest;
    }
    if (g->longest < 2)
        return err_set(
            ERR_BAD_PARAMETER,
            "Parameter method=%s is for series, and the scan has one image of each place. Divide its readouts "
            "in time (frames=N or frame_readouts=N), or pass method=tv.",
            job->request->values->value[RECON_METHOD].text);
    const size_t most = (size_t)recon_choice(job, RECON_WINDOW_FRAMES);
    const char *time = repetition ? "repetition" : "phase, because there is one repetition";
    if (most > 0)
        recon_report_decide(job, "time", repetition ? "repetition" : "phase",
                            "Images that differ only in the %s are solved together, %zu at a time; windows overlap by "
                            "%zu.",
                            time, most, series_overlap(most));
    else
        recon_report_decide(job, "time", repetition ? "repetition" : "phase",
                            "%zu images, which differ only in the %s, are solved together.", g->longest, time);
    g->longest = most > 0 && most < g->longest ? most : g->longest;
    iterative_at_once(g);
    int rc = kernels_count(g);
    return rc == 0 ? keeps_find(g) : rc;
}

/* ---- one series ---- */

static int visit_compare(const void *pa, const void *pb, void *context)
{
    const struct series *s = context;
    const size_t a = *(const size_t *)pa, b = *(const size_t *)pb;
    const uint64_t *hash = s->it->job->hash, ha = hash[s->image[a]], hb = hash[s->image[b]];
    return ha != hb ? (ha < hb ? -1 : 1) : (a > b) - (a < b);
}

static void series_close(struct series *s)
{
    for (size_t k = 0; k < s->kernels && !s->each; k++)
        dev_release(s->it->job->dev, s->kernel[k]);
    for (size_t p = 0; p < s->paths; p++)
        free(s->path[p].k);
    dev_release(s->it->job->dev, s->each);
    s->it->images = s->it->all_images;
    free(s->path);
    free(s->largest);
    free(s->kernel);
    free(s->kernel_of);
    free(s->visit);
}

/* Whether each image has a kernel of its own, so that all are applied at once: they take at most twice the memory. That
 * depends on the window's trajectories alone, for the sums over coils have other bits. */
static bool own_kernels(const struct series *s)
{
    const uint64_t *hash = s->it->job->hash;
    size_t kernels = 1;
    for (size_t i = 1; i < s->count; i++)
        kernels += hash[s->image[s->visit[i]]] != hash[s->image[s->visit[i - 1]]];
    return s->it->g->at_once && kernels > 1 && 2 * kernels >= s->count;
}

/* `image`: of the whole series. */
static int series_open(struct series *s, struct iterative *it, const size_t *image, const struct series_window *window)
{
    const struct recon_job *job = it->job;
    *s = (struct series){.it = it, .used = SIZE_MAX, .band = {.shape = BAND_ELLIPSOID, .dim = job->dim}};
    s->window = *window;
    s->image = image + window->first;
    s->visit = malloc(it->g->longest * sizeof *s->visit);
    s->kernel_of = malloc(it->g->longest * sizeof *s->kernel_of);
    s->kernel = calloc(it->g->longest, sizeof *s->kernel);
    s->largest = calloc(it->g->longest, sizeof *s->largest);
    s->path = calloc(it->g->longest, sizeof *s->path);
    if (!s->visit || !s->kernel_of || !s->kernel || !s->largest || !s->path)
        return err_no_memory("a series of %zu images", it->g->longest);
    for (; s->count < window->count; s->count++)
        s->visit[s->count] = s->count;
    qsort_r(s->visit, s->count, sizeof *s->visit, visit_compare, s);
    s->own = own_kernels(s);
    it->images_solved = s->count;
    it->images_kept = 0;
    for (size_t t = window->from; t < window->until; t++)
        it->images_kept += !job->made[image[t]];
    it->base = (double)it->g->coils_done / (double)it->g->coils;
    it->span = (double)it->images_kept * job->frames->frame[image[0]].coils / (double)it->g->coils;
    return 0;
}

/* Memory for the next kernel, of image t: *kernel. */
static int kernel_alloc(struct series *s, size_t t, struct c32 **kernel)
{
    struct dev *dev = s->it->job->dev;
    const size_t elements = iterative_kernel_elements(s->it), bytes = elements * sizeof **kernel;
    if (!s->own)
        return dev_alloc(dev, bytes, (void **)kernel);
    int rc = s->each ? 0 : dev_alloc(dev, s->count * bytes, (void **)&s->each);
    *kernel = rc == 0 ? s->each + t * elements : NULL;
    return rc;
}

/* The plan's trajectory, of which the operator was made. */
static int path_keep(struct series *s)
{
    const struct gridder *g = s->it->g;
    struct path *path = &s->path[s->paths];
    const size_t bytes = g->planned->samples * (size_t)s->band.dim * sizeof *path->k;
    band_extend(&s->band, g->planned->samples, gridder_k(g));
    if (!g->keeps)
        return 0;
    path->k = malloc(bytes);
    if (!path->k)
        return err_no_memory("a trajectory of %zu samples", g->planned->samples);
    memcpy(path->k, gridder_k(g), bytes);
    path->samples = g->planned->samples;
    s->paths++;
    return 0;
}

/* The normal operator's kernel and eigenvalue of the plan's trajectory, unless they are the last image's. */
static int kernel_keep(struct series *s, size_t t)
{
    struct iterative *it = s->it;
    bool made = false;
    int rc = iterative_normal(it, &made);
    made = made || s->kernels == 0;
    if (rc == 0 && (made || s->own)) {
        struct c32 **kernel = &s->kernel[s->kernels];
        rc = kernel_alloc(s, t, kernel);
        if (rc == 0)
            rc = it->kernels ? vec_copy(it->job->dev, iterative_kernel_elements(it), it->kernels, *kernel)
                             : normal_kernel_keep(it->normal, *kernel);
        if (rc == 0)
            s->largest[s->kernels] = it->largest;
        s->kernels += *kernel != NULL;
    }
    s->kernel_of[t] = s->kernels - 1;
    return rc == 0 && made ? path_keep(s) : rc;
}

/* The coil images of the i-th visited image; progress runs from `from` over all of `span`. */
static int grid(struct series *s, size_t i, double from, double span)
{
    struct iterative *it = s->it;
    const size_t f = s->image[s->visit[i]];
    const double each = span / (double)s->count, begin = from + each * (double)i;
    int rc = gridder_plan(it->g, f, it->base + it->span * begin, it->span * each / 2);
    if (rc == 0)
        rc = iterative_grid(it, &it->job->frames->frame[f], begin + each / 2, begin + each);
    return rc == 0 ? iterative_tell(it, begin + each, 0, 0) : rc;
}

/* it->images = the place of the i-th visited image's coil images. */
static void images_place(struct series *s, size_t i, int coils)
{
    s->it->images = s->it->all_images + (s->it->g->keeps ? i * (size_t)coils * s->it->g->pixels : 0);
}

/* it->maps from the mean of all coil images; and the kernels. */
static int maps_make(struct series *s, int coils)
{
    struct iterative *it = s->it;
    struct dev *dev = it->job->dev;
    const size_t all = (size_t)coils * it->g->pixels;
    int rc = dev_zero(dev, it->maps, all * sizeof *it->maps);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        images_place(s, i, coils);
        rc = grid(s, i, 0, done_images);
        if (rc == 0)
            rc = vec_axpy(dev, all, 1 / (float)s->count, it->images, it->maps);
        if (rc == 0)
            rc = kernel_keep(s, s->visit[i]);
    }
    if (rc == 0)
        rc = iterative_maps(it, coils, it->maps, done_images, done_maps);
    for (size_t t = s->window.from; t < s->window.until && rc == 0; t++)
        rc = iterative_store_maps(it, s->image[t - s->window.first], coils);
    return rc;
}

/* Weight each image's part by s_t, and set it->largest to L. */
static int kernels_scale(struct series *s)
{
    struct iterative *it = s->it;
    int rc = 0;
    it->largest = 0;
    for (size_t k = 0; k < s->kernels; k++)
        it->largest = fmax(it->largest, s->largest[k]);
    for (size_t k = 0; k < s->kernels && rc == 0 && s->largest[k] > 0; k++)
        rc = vec_scale(it->job->dev, iterative_kernel_elements(it), (float)(it->largest / s->largest[k]), s->kernel[k]);
    return rc;
}

/* The coil images of the i-th visited image again. */
static int images_again(struct series *s, size_t i, int coils)
{
    const struct gridder *g = s->it->g;
    const double span = done_sides - done_maps;
    images_place(s, i, coils);
    if (g->keeps)
        return iterative_tell(s->it, done_maps + span * (double)(i + 1) / (double)s->count, 0, 0);
    int rc = grid(s, i, done_maps, span);
    if (rc == 0)
        band_fit(&s->band, g->planned->samples, gridder_k(g));
    return rc;
}

/* it->b of all images; and the band's shape. */
static int sides_make(struct series *s, int coils)
{
    struct iterative *it = s->it;
    const size_t pixels = it->g->pixels;
    int rc = dev_zero(it->job->dev, it->b, s->count * pixels * sizeof *it->b);
    for (size_t p = 0; p < s->paths; p++)
        band_fit(&s->band, s->path[p].samples, s->path[p].k);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        const size_t t = s->visit[i];
        const double own = s->largest[s->kernel_of[t]];
        rc = images_again(s, i, coils);
        if (rc == 0)
            rc = sense_combine(&it->sense, 0, coils, it->images, it->b + t * pixels);
        if (rc == 0 && own > 0)
            rc = vec_scale(it->job->dev, pixels, (float)(it->largest / own), it->b + t * pixels);
    }
    it->maps_until = done_sides;
    return rc;
}

/* One image after the other. */
static int normal_each(struct series *s, const struct c32 *x, struct c32 *r)
{
    const struct op one = s->op.op;
    int rc = 0;
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        const size_t t = s->visit[i], kernel = s->kernel_of[t], at = t * s->it->g->pixels;
        s->op.with.kernels = s->kernel[kernel];
        if (!s->op.field && kernel != s->used)
            rc = normal_kernel_use(s->it->normal, s->kernel[kernel]);
        s->used = kernel;
        if (rc == 0)
            rc = one.normal(one.of, x + at, r + at);
    }
    return rc;
}

/* Many images at once. */
static int normal_together(struct series *s, const struct c32 *x, struct c32 *r)
{
    struct iterative *it = s->it;
    const size_t pixels = it->g->pixels, elements = normal_kernel_elements(it->normal);
    const size_t fit = ASK_PIXELS / (pixels * (size_t)it->sense.coils), most = fit > 1 ? fit : 1;
    int rc = s->each || s->used == 0 ? 0 : normal_kernel_use(it->normal, s->kernel[0]);
    s->used = 0;
    for (size_t t = 0; t < s->count && rc == 0; t += most) {
        const struct normal_coils coils = {.frames = (int)(s->count - t < most ? s->count - t : most),
                                           .coils = it->sense.coils,
                                           .maps = it->maps,
                                           .kernels = s->each ? s->each + t * elements : NULL};
        rc = iterative_ask(it);
        if (rc == 0)
            rc = normal_apply_coils(it->normal, &coils, x + t * pixels, r + t * pixels);
    }
    return rc;
}

static int series_normal(void *of, const struct c32 *x, struct c32 *r)
{
    struct series *s = of;
    const bool together = s->each || (s->it->g->at_once && s->kernels == 1);
    return together ? normal_together(s, x, r) : normal_each(s, x, r);
}

static int solve(struct series *s, int coils)
{
    struct iterative *it = s->it;
    const size_t all = s->count * it->g->pixels;
    const struct op op = {.of = s, .domain = all, .range = all, .normal = series_normal};
    int rc = sense_maps(&it->sense, coils, it->maps);
    if (rc == 0)
        rc = sense_normal(&it->sense, it->normal, it->planes);
    it->g->tally.parts = it->sense.parts;
    if (rc == 0)
        rc = iterative_op_open(&s->op, it, sense_op(&it->sense), NULL);
    if (rc == 0)
        rc = kernels_scale(s);
    if (rc == 0)
        rc = sides_make(s, coils);
    if (rc == 0)
        rc = iterative_limit(it, &s->band);
    const double start = clock_seconds();
    if (rc == 0)
        rc = iterative_solve(it, &op);
    iterative_op_close(&s->op);
    recon_report_stage(it->job, recon_steps[RECON_STEP_SOLVE].name, clock_seconds() - start);
    return rc;
}

/* One window of a series, whose places in job->frames are image[]. */
static int window_frames(struct iterative *it, const size_t *image, const struct series_window *window)
{
    struct recon_job *job = it->job;
    const int coils = job->frames->frame[image[0]].coils;
    struct series s;
    int rc = series_open(&s, it, image, window);
    it->planned = NULL; /* the operator holds another series' kernel */
    if (rc == 0 && it->images_kept > 0)
        rc = maps_make(&s, coils);
    if (rc == 0 && it->images_kept > 0)
        rc = solve(&s, coils);
    for (size_t t = window->from; t < window->until && rc == 0; t++) {
        if (job->made[image[t]])
            continue;
        rc = iterative_store(it, image[t], it->x + (t - window->first) * it->g->pixels);
        job->made[image[t]] = rc == 0;
        it->g->coils_done += coils;
    }
    series_close(&s);
    return rc;
}

int series_frames(struct iterative *it, size_t lead)
{
    const struct recon_job *job = it->job;
    const bool repetition = time_is_repetition(job);
    const size_t most = (size_t)recon_choice(job, RECON_WINDOW_FRAMES);
    struct series_window window = {.until = 0};
    size_t *image = malloc(job->frames->count * sizeof *image), images = 0;
    int rc = image ? 0 : err_no_memory("a series of %zu images", job->frames->count);
    for (size_t f = lead; f < job->frames->count && rc == 0; f++)
        if (same_series(job, repetition, lead, f))
            image[images++] = f;
    while (rc == 0 && window.until < images && series_window(&window, window.until, images, most, job->more != NULL)) {
        rc = window_frames(it, image, &window);
        if (rc == 0)
            gridder_show(it->g);
    }
    free(image);
    return rc;
}
