/* Stacks: 3-D trajectories whose readouts keep their kz. Each partition is a 2-D trajectory with a formula of its own.
 */
#include "gridding/traj/dcf_shape.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

/* How far a readout's samples, and the readouts of one partition, may lie from one kz, as a share of the stack's
 * extent in kz. A stack has at most NUFFT_SIZE_MOST partitions, 5e-4 of it apart. */
static const double level = 1e-4;

/* A stack's readouts by partition. */
struct partitions {
    size_t partitions;
    struct dcf_place *readouts; /* .at: kz; .sample: number of the readout; by kz */
    size_t *first;              /* [partitions + 1]: of each partition, in `readouts` */
};

static void partitions_free(struct partitions *stack)
{
    free(stack->first);
    free(stack->readouts);
}

/* Returns 1; 0 if the readouts are no stack; -1 without memory. The caller frees `stack` in any case. */
static int partitions_find(size_t readouts, size_t samples, const float *k, struct partitions *stack)
{
    float lowest = INFINITY, highest = -INFINITY;
    for (size_t m = 0; m < readouts * samples; m++) {
        lowest = fminf(lowest, k[3 * m + 2]);
        highest = fmaxf(highest, k[3 * m + 2]);
    }
    double near = level * ((double)highest - (double)lowest);
    *stack = (struct partitions){.readouts = malloc(readouts * sizeof *stack->readouts),
                                 .first = malloc((readouts + 1) * sizeof *stack->first)};
    if (!stack->readouts || !stack->first)
        return -1;
    for (size_t r = 0; r < readouts; r++) {
        const float *kz = k + 3 * r * samples + 2;
        stack->readouts[r] = (struct dcf_place){kz[0], r};
        for (size_t i = 1; i < samples; i++)
            if (!(fabs((double)kz[3 * i] - (double)kz[0]) <= near))
                return 0;
    }
    qsort(stack->readouts, readouts, sizeof *stack->readouts, dcf_place_order);
    for (size_t r = 0; r < readouts; r++)
        if (r == 0 || stack->readouts[r].at - stack->readouts[stack->first[stack->partitions - 1]].at > near)
            stack->first[stack->partitions++] = r;
    stack->first[stack->partitions] = readouts;
    return stack->partitions > 1;
}

/* kx and ky of the readouts of partition p. */
static void partition_gather(const struct partitions *stack, size_t p, size_t samples, const float *k, float *plane)
{
    for (size_t r = stack->first[p]; r < stack->first[p + 1]; r++)
        for (size_t i = 0; i < samples; i++, plane += 2)
            memcpy(plane, k + 3 * (stack->readouts[r].sample * samples + i), 2 * sizeof *plane);
}

/* Half the distance to both neighbouring partitions; the outermost extend outwards as far as inwards. */
static double thickness(const struct partitions *stack, size_t p)
{
    double at = stack->readouts[stack->first[p]].at;
    double below = p > 0 ? at - stack->readouts[stack->first[p - 1]].at : 0;
    double above = p + 1 < stack->partitions ? stack->readouts[stack->first[p + 1]].at - at : below;
    return ((p > 0 ? below : above) + above) / 2;
}

/* Call the function for each partition with its kx and ky. Returns the shape that all share, or unknown; with weights,
 * their errors. */
static int partitions_visit(size_t readouts, size_t samples, const float *k, enum traj_shape *shape, float *weights)
{
    struct partitions stack;
    int found = partitions_find(readouts, samples, k, &stack), rc = 0;
    float *plane = found > 0 ? malloc(readouts * samples * 3 * sizeof *plane) : NULL;
    if (found < 0 || (found > 0 && !plane))
        rc = err_no_memory("the density weights of %zu readouts", readouts);
    enum traj_shape known = weights ? *shape : TRAJ_SHAPE_UNKNOWN;
    for (size_t p = 0; found > 0 && rc == 0 && p < stack.partitions; p++) {
        size_t count = stack.first[p + 1] - stack.first[p];
        float *own = plane + 2 * count * samples;
        partition_gather(&stack, p, samples, k, plane);
        if (!weights) {
            enum traj_shape here = dcf_shape(2, count, samples, plane);
            if (here == TRAJ_SHAPE_UNKNOWN || (p > 0 && here != known))
                found = 0;
            known = here;
            continue;
        }
        rc = dcf_weights(known, 2, count, samples, plane, own);
        double scale = thickness(&stack, p);
        for (size_t r = 0; r < count && rc == 0; r++)
            for (size_t i = 0; i < samples; i++)
                weights[stack.readouts[stack.first[p] + r].sample * samples + i] =
                    (float)(scale * own[r * samples + i]);
    }
    *shape = found > 0 ? known : TRAJ_SHAPE_UNKNOWN;
    free(plane);
    partitions_free(&stack);
    return rc;
}

enum traj_shape traj_shape_find(int dim, size_t readouts, size_t samples, const float *k)
{
    enum traj_shape shape = dcf_shape(dim, readouts, samples, k), plane;
    if (shape != TRAJ_SHAPE_UNKNOWN || dim != 3 || readouts < 2 || samples < 4 ||
        partitions_visit(readouts, samples, k, &plane, NULL) != 0 || plane == TRAJ_SHAPE_UNKNOWN)
        return shape;
    return plane == TRAJ_SHAPE_RADIAL ? TRAJ_SHAPE_STACK_RADIAL : TRAJ_SHAPE_STACK_SPIRAL;
}

int dcf_analytic(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights)
{
    bool stack = dim == 3 && (shape == TRAJ_SHAPE_STACK_RADIAL || shape == TRAJ_SHAPE_STACK_SPIRAL);
    enum traj_shape plane = shape == TRAJ_SHAPE_STACK_RADIAL ? TRAJ_SHAPE_RADIAL : TRAJ_SHAPE_SPIRAL;
    if (!stack || readouts == 0 || samples < 2)
        return dcf_weights(stack ? plane : shape, dim, readouts, samples, k, weights);
    int rc = partitions_visit(readouts, samples, k, &plane, weights);
    if (rc == 0 && plane == TRAJ_SHAPE_UNKNOWN)
        rc = err_set(ERR_DCF_INVALID,
                     "The trajectory is not a stack: its readouts do not keep their kz. Pass dcf=pipe.");
    return rc;
}
