/* normal.h: the normal operator of a non-uniform Fourier transform, which iterative reconstructions apply again and
 * again:
 *
 *   result[r] = sum_m w_m exp(+2 pi i k_m . r) sum_r' image[r'] exp(-2 pi i k_m . r')   = adjoint(w forward(image))
 *
 * w_m appears once: it is the weight of the squared residual of sample m (the usual density compensation, not its
 * root).
 *
 * The operator depends only on r - r', so it is a convolution with the samples' point spread function over twice the
 * field of view (Wajer and Pruessmann 2001, "Major speedup of reconstruction for sensitivity encoding with arbitrary
 * trajectories"; Fessler et al. 2005, doi:10.1109/TSP.2005.853152): two pruned FFTs and a multiplication, whatever the
 * number of samples. It is Hermitian to the last bits of float32.
 *
 * Pointers, images and threads: as in nufft.h. Same device, same input: the same bits.
 */
#ifndef MRIRECON_NORMAL_H
#define MRIRECON_NORMAL_H

#include "gridding/nufft/nufft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct normal;

/* Called in the caller's thread from time to time while an operator is created, which takes seconds for a large image.
 * A code other than 0 cancels the creation, which fails with that code. As a parameter it may be NULL. */
struct normal_ask {
    int (*ask)(void *context);
    void *context;
};

struct normal_info {
    int grid[3];           /* of the convolution: at least twice the image */
    double expected_error; /* of the point spread function, relative l2 */
    size_t bytes;          /* device memory in use */
};

/* Of `params`, n (1..1024 each), tolerance, batch and dim apply to the operator; kernel, width and oversampling to the
 * temporary plan that computes its point spread function. k[samples][dim], weights [samples] (NULL: all 1): host
 * memory, read during the call only. Fails as nufft_create does. */
int normal_create(struct normal **out, struct dev *dev, const struct nufft_params *params, size_t samples,
                  const float *k, const float *weights);

/* The same from a plan of this `dev` for images of params->n and the samples k, with its weights: of `params`, dim, n
 * and batch are used. The plan stays the caller's. Half of the point spread function, of twice the image's size, is
 * computed by 2^(dim - 1) adjoints of the plan, the other half by symmetry. */
int normal_create_of(struct normal **out, struct dev *dev, const struct nufft_params *params, struct nufft *plan,
                     const float *k, const struct normal_ask *ask);

/* A convolution of images with an even function: result[r] = sum_r' value(r - r') image[r'], value(l) is called for l_d
 * >= 0 and is the same for -l_d, axis by axis. Of `params`, dim, n and batch are used. Fails as nufft_create does. */
int normal_create_even(struct normal **out, struct dev *dev, const struct nufft_params *params,
                       double (*value)(const void *of, const double l[3]), const void *of,
                       const struct normal_ask *ask);

void normal_free(struct normal *normal);
void normal_describe(const struct normal *normal, struct normal_info *info);

/* The kernel of an operator, the transform of its point spread function, is the only part that depends on the samples.
 * A series of trajectories can share one operator's grids: each trajectory has its own kernel, normal_kernel_elements()
 * of device memory, and sets it before use. Fail with ERR_NO_DEVICE if the device has no vector arithmetic
 * (gridding/base/vec.h), and with ERR_DEVICE. `kernel` may come from any operator of the same sizes. */
size_t normal_kernel_elements(const struct normal *normal);
int normal_kernel_keep(struct normal *normal, struct c32 *kernel);
int normal_kernel_use(struct normal *normal, const struct c32 *kernel);

/* Multiply the operator by a number. Fails as these. */
int normal_scale(struct normal *normal, float by);

/* *copy = the same operator on another device of the same kind, which is ordered after the earlier work of both. *copy:
 * NULL, or an earlier copy on `dev`, which is used again if its sizes are the same, and else freed. Fails as these, and
 * as nufft_create(); *copy may then be NULL. */
int normal_copy(struct normal **copy, struct dev *dev, struct normal *of);

/* image, result: [batch][nz][ny][nx], device memory, any batch >= 1; they may be the same. A GPU may still compute on
 * return; later work of the device is ordered after it. Fails with ERR_DEVICE. */
int normal_apply(struct normal *normal, int batch, const struct c32 *image, struct c32 *result);

/* Frames by sensitivity encoding, each of one image and of coils with maps S_c:
 *
 *   result[f] = sum over c of conj(S_c) A' W A S_c image[f],   c ascending
 *
 * without images of coils in memory, for images, maps and results in device memory. A frame's bits do not depend on the
 * number of frames, nor on the others. */
struct normal_coils {
    int frames, coils;
    const struct c32 *maps;    /* of frame f: maps + f maps_step, [coils][pixels] */
    size_t maps_step;          /* elements; 0: frames share their maps */
    const struct c32 *kernels; /* [frames][normal_kernel_elements()]; NULL: the operator's own, for all frames */
    const int *running;        /* device, [frames]: results of frames with 0 are left as they are; NULL: all run */
};

/* Whether the device does that for operators of these dim and n: GPUs, in 2-D, if both axes are transformed in halves.
 */
bool normal_takes_coils(struct dev *dev, const struct nufft_params *params);

/* image, result: [frames][pixels], not the same. `batch` of the operator's params is the largest number of coils of all
 * frames that are computed at a time, and at least those of one frame. Fails with ERR_DEVICE, ERR_GPU_OOM (no room for
 * a frame's coils), and ERR_INTERNAL if normal_takes_coils() is false. */
int normal_apply_coils(struct normal *normal, const struct normal_coils *coils, const struct c32 *image,
                       struct c32 *result);

#ifdef __cplusplus
}
#endif
#endif
