#include "recon/mri/stack.h"

#include "gridding/base/err.h"
#include "recon/mri/recon_gridder.h"
#include "recon/mri/recon_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 64 /* that are Fourier transformed together: N x 64 x 8 bytes, in a core's cache */ };

void stack_free(struct stack *stack, struct dev *dev)
{
    if (!stack)
        return;
    fft_cpu_free(stack->fft);
    dev_release(dev, stack->planes);
    free(stack->data);
    free(stack->lead);
    free(stack->first);
    free(stack->row);
    free(stack);
}

/* The partition of a readout whose kz is that of a grid of N, to 1e-4 of a step: 3e-4 of a turn at the image's edge
 * times a half; -1: it has none. */
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

/* Each readout's partition and place. False: no stack on the grid. */
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

/* Why the job is not one for an FFT along kz; NULL: it is. */
static const char *unsuited(const struct gridder *g)
{
    const struct recon_job *job = g->job;
    if (recon_iterates(job))
        return "the method's normal operator is that of the 3-D transform";
    if (g->field)
        return "time segments are those of the 3-D transform";
    if (dev_is_gpu(job->dev))
        return "a GPU grids three dimensions faster than the CPU prepares two";
    if (job->out_k[2] != 1 || job->out_n[2] > job->n[2])
        return "the image's z is not that of the partitions";
    return NULL;
}

static int memory_take(struct stack *stack, const struct gridder *g)
{
    const size_t row = (size_t)g->batch * stack->samples;
    const size_t bytes = (size_t)stack->partitions * row * sizeof *stack->data;
    stack->data = malloc(bytes);
    if (!stack->data)
        return err_no_memory_bytes(bytes, "the partitions of %d coils", g->batch);
    int rc = dev_alloc(g->job->dev, (size_t)g->batch * (size_t)g->n[0] * (size_t)g->n[1] * sizeof *stack->planes,
                       (void **)&stack->planes);
    return rc == 0 ? fft_cpu_create(&stack->fft, stack->partitions, COLUMNS, 1) : rc;
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
        if (why)
            recon_report_decide(job, "kz transform", "gridding",
                                "The scan is a stack, and kz is gridded as kx and ky: %s.", why);
        else
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

/* Over the partitions of columns [0, all) of data[N][all]. */
static int columns_transform(const struct stack *stack, size_t all, int threads)
{
    const size_t n = (size_t)stack->partitions;
    bool failed = false;
#pragma omp parallel num_threads(threads) reduction(|| : failed)
    {
        struct c32 *work = aligned_alloc(64, n * COLUMNS * sizeof *work);
        failed = !work;
#pragma omp for schedule(static)
        for (size_t at = 0; at < all; at += COLUMNS) {
            const size_t count = all - at < COLUMNS ? all - at : COLUMNS;
            for (size_t j = 0; j < n && work; j++) {
                memcpy(work + j * COLUMNS, stack->data + j * all + at, count * sizeof *work);
                memset(work + j * COLUMNS + count, 0, (COLUMNS - count) * sizeof *work);
            }
            if (work)
                fft_cpu_run(stack->fft, work);
            for (size_t j = 0; j < n && work; j++)
                memcpy(stack->data + j * all + at, work + j * COLUMNS, count * sizeof *work);
        }
        free(work);
    }
    return failed ? err_no_memory("the transform over %zu partitions", n) : 0;
}

static int coils_gather(struct gridder *g, const struct frame *frame, int first, int count)
{
    const struct stack *stack = g->stack;
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++) {
        rc = recon_coil_gather(g->job, frame, g->offsets, first + c, g->staging);
        for (size_t i = 0; i < frame->count && rc == 0; i++)
            memcpy(stack->data + (stack->row[i] * (size_t)count + (size_t)c) * stack->samples + stack->first[i],
                   g->staging + g->offsets[i], (g->offsets[i + 1] - g->offsets[i]) * sizeof *g->staging);
    }
    return rc;
}

/* Row r of the transform is z = r from the centre on, modulo N. */
int stack_grid(struct gridder *g, const struct frame *frame, int first, int count, float *squares, struct c32 *images)
{
    const struct stack *stack = g->stack;
    const size_t plane = (size_t)g->n[0] * (size_t)g->n[1], all = (size_t)count * stack->samples;
    int rc = coils_gather(g, frame, first, count);
    if (rc == 0)
        rc = columns_transform(stack, all, recon_threads(g->job, frame->samples));
    for (int z = 0; z < g->n[2] && rc == 0; z++) {
        const int row = (z - g->n[2] / 2 + stack->partitions) % stack->partitions;
        struct c32 *data = g->data[0];
        rc = dev_upload(g->job->dev, data, stack->data + (size_t)row * all, all * sizeof *data);
        if (rc == 0 && squares)
            rc = nufft_adjoint_squares(g->plan, count, data, squares + (size_t)z * plane);
        else if (rc == 0)
            rc = nufft_adjoint(g->plan, count, data, stack->planes);
        for (int c = 0; c < count && rc == 0 && !squares; c++)
            memcpy(images + (size_t)c * g->pixels + (size_t)z * plane, stack->planes + (size_t)c * plane,
                   plane * sizeof *images);
    }
    return rc;
}
