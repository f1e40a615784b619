/* stack.h: a stack whose partitions share one trajectory in the plane:
 *
 *   image(x, y, z) = sum_m w_m exp(2 pi i k_m . (x, y)) sum_j d_mj exp(2 pi i (j - c) z / N)
 *
 * An FFT over the partitions j of each sample m of the plane, and then one 2-D plan for all z: fewer grid cells than a
 * 3-D plan by its oversampling along kz, and fewer products by the width of its kernel. The normal operator is that of
 * the plane, times N, for each z alone; a field map's time segments are those of the plane's samples. Only recon/mri/
 * includes this.
 */
#ifndef MRIRECON_STACK_H
#define MRIRECON_STACK_H

#include "gridding/fft/fft.h"
#include "recon/mri/recon_steps.h"

struct gridder;

struct stack {
    size_t samples;      /* of one partition: M */
    int partitions;      /* N, of the encoded matrix; all were acquired */
    size_t count;        /* readouts of the frame */
    size_t *row, *first; /* [count]: a readout's partition, 0 .. N - 1 from kz = 0 on, and its first sample in it */
    size_t *lead;        /* [count / N]: the readouts of the first partition, in the order of their samples */
    struct c32 *data;    /* device: [coils of a batch][N][M] */
    struct c32 *volume;  /* device: one coil's image [pixels], where squares are summed; else NULL */
    struct c32 *staging; /* host: one coil [N][M] */
    struct fft *fft;
};

/* *out: a stack, if frame `f` with its trajectory k[samples][3], in cycles per pixel of the encoding, is one and can be
 * transformed in this way; else NULL, and for a stack the report has the reason. Fails with ERR_NO_MEMORY,
 * ERR_NO_DEVICE. */
int stack_find(struct stack **out, const struct gridder *g, const struct frame *frame, const float *k);
void stack_free(struct stack *stack, struct dev *dev);

/* Whether weights[samples of the frame] are the same in all partitions, to float32. */
bool stack_weights_shared(const struct stack *stack, const size_t *offsets, const float *weights);

/* The first partition's part of values[samples of the frame][from]: out[M][width], the first `width` of each. */
void stack_plane(const struct stack *stack, const size_t *offsets, const float *values, size_t from, size_t width,
                 float *out);

/* Grid coils [first, first + count) of the frame with g->plan, the plane's: into `squares` [pixels] where that is not
 * NULL, else images[count][pixels]; by conjugate phase where there is a field map. Asks gridder_ask() coil by coil.
 * Fails as recon_coil_gather() and nufft_adjoint(), and with ERR_CANCELED. */
int stack_grid(struct gridder *g, const struct frame *frame, int first, int count, float *squares, struct c32 *images);

#endif
