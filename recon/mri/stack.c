#include "recon/mri/stack.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "recon/mri/recon_gridder.h"
#include "recon/mri/recon_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void stack_free(struct stack *stack, struct dev *dev)
{
    if (!stack)
        return;
    fft_free(stack->fft);
    dev_release(dev, stack->volume);
    dev_release(dev, stack->data);
    free(stack->staging);
    free(stack->lead);
    free(stack->first);
    free(stack->row);
    free(stack);
}

/* The partition of a readout whose kz is that of a grid of N, to 1e-4 of a step: 3e-4 of a turn at the image's edge
 * times a half; -1: none. */
static int partition_of(const float *k, size_t samples, int n)
{
    const double step = (double)k[2] * n, nearest = nearbyint(step);
    if (!(fabs(step - nearest) < 1e-4) || fabs(nearest) > n)
        return -1;
    for (size_t s = 1; s < samples; s++)
        if (fabs(((double)k[3 * s + 2] - (double)k[2]) * n) > 1e-4)
            return -1;
    return ((int)nearest % n + n) % n;
}

/* Each readout's partition and position. False: not a stack on the grid. */
static bool rows_find(struct stack *stack, const size_t *offsets, const float *k)
{
    size_t filled[SCAN_MAX_MATRIX] = {0};
    for (size_t i = 0; i < stack->count; i++) {
        const size_t samples = offsets[i + 1] - offsets[i];
        const int row = samples ? partition_of(k + 3 * offsets[i], samples, stack->partitions) : -1;
        if (row < 0)
            return false;
        stack->row[i] = (size_t)row;
        stack->first[i] = filled[row];
        filled[row] += samples;
    }
    stack->samples = filled[0];
    return true;
}

/* Why the partitions do not share one trajectory; NULL: they do. */
static const char *difference(struct stack *stack, const size_t *offsets, const float *k)
{
    const size_t n = (size_t)stack->partitions, each = stack->count / n;
    size_t seen[SCAN_MAX_MATRIX] = {0};
    if (stack->count % n != 0 || each == 0)
        return "partitions are missing, or have different numbers of readouts";
    for (size_t i = 0; i < stack->count; i++)
        if (stack->row[i] == 0) {
            if (seen[0] == each)
                return "partitions are missing, or have different numbers of readouts";
            stack->lead[seen[0]++] = i;
        }
    if (seen[0] != each)
        return "partitions are missing, or have different numbers of readouts";
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < stack->count; i++) {
        const size_t number = seen[stack->row[i]]++, samples = offsets[i + 1] - offsets[i];
        const size_t lead = number < each ? stack->lead[number] : SIZE_MAX;
        if (lead == SIZE_MAX || samples != offsets[lead + 1] - offsets[lead])
            return "partitions are missing, or have different numbers of readouts";
        const float *a = k + 3 * offsets[i], *b = k + 3 * offsets[lead];
        for (size_t s = 0; s < samples; s++)
            if (a[3 * s] != b[3 * s] || a[3 * s + 1] != b[3 * s + 1])
                return "the trajectory in the plane changes from partition to partition";
    }
    return NULL;
}

/* Why the job cannot use an FFT along kz; NULL: it can. */
static const char *unsuited(const struct gridder *g)
{
    const struct recon_job *job = g->job;
    if (recon_series(job))
        return "the images of a series share one operator, and may differ in their partitions";
    if (dev_is_gpu(job->dev) && !recon_iterates(job) && !g->field)
        return "a GPU grids three dimensions, beside the upload, faster than the samples are ordered by partitions";
    if (!fft_serves(job->dev, job->n[2]))
        return "the GPU has no Fourier transform of as many partitions";
    if (job->out_k[2] != 1 || g->n[2] > job->n[2])
        return "the image's z is not that of the partitions";
    return NULL;
}

static int memory_take(struct stack *stack, const struct gridder *g)
{
    const size_t coil = (size_t)stack->partitions * stack->samples;
    stack->staging = malloc(coil * sizeof *stack->staging);
    if (!stack->staging)
        return err_no_memory_bytes(coil * sizeof *stack->staging, "the partitions of a coil");
    int rc = dev_alloc(g->job->dev, (size_t)g->batch * coil * sizeof *stack->data, (void **)&stack->data);
    if (rc == 0 && recon_squares(g->job) && !recon_iterates(g->job))
        rc = dev_alloc(g->job->dev, g->pixels * sizeof *stack->volume, (void **)&stack->volume);
    return rc == 0 ? fft_create(&stack->fft, g->job->dev, stack->partitions) : rc;
}

int stack_find(struct stack **out, const struct gridder *g, const struct frame *frame, const float *k)
{
    struct recon_job *job = g->job;
    *out = NULL;
    if (job->dim != 3)
        return 0;
    struct stack *stack = calloc(1, sizeof *stack);
    if (!stack)
        return err_no_memory("a stack");
    stack->count = frame->count;
    stack->partitions = job->n[2];
    stack->row = malloc(frame->count * sizeof *stack->row);
    stack->first = malloc(frame->count * sizeof *stack->first);
    stack->lead = malloc(frame->count * sizeof *stack->lead);
    int rc = stack->row && stack->first && stack->lead ? 0 : err_no_memory("a stack of %zu readouts", frame->count);
    if (rc == 0 && rows_find(stack, g->offsets, k)) {
        const char *why = unsuited(g);
        why = why ? why : difference(stack, g->offsets, k);
        if (!why && g->field)
            rc = field_times(g->field, frame, g->offsets, k, stack, &why);
        if (rc == 0 && why)
            recon_report_decide(job, "kz transform", "gridding",
                                "The scan is a stack, and kz is gridded as kx and ky: %s.", why);
        else if (rc == 0)
            rc = memory_take(stack, g);
        if (rc == 0 && !why) {
            *out = stack;
            return 0;
        }
    }
    stack_free(stack, job->dev);
    return rc;
}

bool stack_weights_shared(const struct stack *stack, const size_t *offsets, const float *weights)
{
    float *plane = malloc(stack->samples * sizeof *plane);
    bool shared = plane != NULL;
    if (plane)
        stack_plane(stack, offsets, weights, 1, 1, plane);
    for (size_t i = 0; i < stack->count && shared; i++)
        for (size_t s = 0; s < offsets[i + 1] - offsets[i] && shared; s++)
            shared = fabsf(weights[offsets[i] + s] - plane[stack->first[i] + s]) <=
                     1e-5f * fabsf(plane[stack->first[i] + s]);
    free(plane);
    return shared;
}

void stack_plane(const struct stack *stack, const size_t *offsets, const float *values, size_t from, size_t width,
                 float *out)
{
    for (size_t r = 0; r < stack->count / (size_t)stack->partitions; r++)
        for (size_t m = offsets[stack->lead[r]]; m < offsets[stack->lead[r] + 1]; m++, out += width)
            memcpy(out, values + m * from, width * sizeof *out);
}

/* Coils of the frame, ordered by partitions, on the device, transformed. */
static int coils_take(struct gridder *g, const struct frame *frame, int first, int count)
{
    const struct stack *stack = g->stack;
    const size_t coil = (size_t)stack->partitions * stack->samples;
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++) {
        rc = gridder_ask(g);
        if (rc == 0)
            rc = recon_coil_gather(g->job, frame, g->offsets, first + c, g->staging);
        for (size_t i = 0; i < frame->count && rc == 0; i++)
            memcpy(stack->staging + stack->row[i] * stack->samples + stack->first[i], g->staging + g->offsets[i],
                   (g->offsets[i + 1] - g->offsets[i]) * sizeof *g->staging);
        if (rc == 0)
            rc = dev_upload(g->job->dev, stack->data + (size_t)c * coil, stack->staging, coil * sizeof *stack->data);
    }
    return rc == 0 ? fft_centred(stack->fft, (size_t)count, stack->samples, stack->data) : rc;
}

/* z = 0 is plane floor(N / 2) of a coil's. */
int stack_grid(struct gridder *g, const struct frame *frame, int first, int count, float *squares, struct c32 *images)
{
    const struct stack *stack = g->stack;
    const size_t below = (size_t)(stack->partitions / 2 - g->n[2] / 2);
    const struct normal_ask ask = {gridder_ask, g};
    int rc = coils_take(g, frame, first, count);
    if (rc == 0 && g->field)
        rc = field_slice(g->field, frame);
    if (rc == 0 && g->field)
        rc = field_frame(g->field, frame, g->offsets, gridder_k(g), stack);
    for (int c = 0; c < count && rc == 0; c++) {
        const struct c32 *data = stack->data + ((size_t)c * (size_t)stack->partitions + below) * stack->samples;
        struct c32 *to = squares ? stack->volume : images + (size_t)c * g->pixels;
        rc = gridder_ask(g);
        if (rc == 0)
            rc = g->field ? field_adjoint(g->field, g->plan, 1, g->n[2], data, to, &ask)
                          : nufft_adjoint(g->plan, g->n[2], data, to);
        if (rc == 0 && squares)
            rc = vec_squares_add(g->job->dev, g->pixels, 1, to, squares);
    }
    return rc;
}
