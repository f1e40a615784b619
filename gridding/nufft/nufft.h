/* nufft.h: the non-uniform Fourier transform between k-space samples and an image.
 *
 *   adjoint  image[r] = sum_m w_m data[m] exp(+2 pi i k_m . r)        (samples -> image)
 *   forward  data[m]  = w_m sum_r image[r] exp(-2 pi i k_m . r)       (image -> samples, its exact transpose)
 *
 * k in cycles per pixel, r integer, r_d = -floor(N_d/2) .. ceil(N_d/2)-1. Nothing is normalised. k is periodic with
 * period 1; [-0.5, 0.5) is the encoded k-space. Images are [batch][z][y][x], x fastest; a 2-D image has nz = 1.
 *
 * Method: Kaiser-Bessel gridding on an oversampled grid (Jackson 1991, doi:10.1109/42.97598; beta after Beatty 2005,
 * doi:10.1109/TMI.2005.848376) over compact bins (gridding/range/range.h), inverse FFT, crop, deapodisation.
 *
 * Samples, images and sums are float32: below a tolerance of about 5e-6 rounding dominates, whatever the kernel;
 * nufft_info.expected_error includes it. The scale of data and images, from 2^-122 to 2^98, does not change a
 * transform's relative error, except below 2^-112 that of a GPU's 2-D forward transform in plans of 4 or more.
 *
 * All data pointers are memory of the plan's device (dev_alloc), unless marked "host". A plan is used by one thread at
 * a time; several plans may share a device from the same thread. Same device, same input: the same bits, for any number
 * of threads.
 */
#ifndef MRIRECON_NUFFT_H
#define MRIRECON_NUFFT_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nufft;

enum nufft_kernel {
    NUFFT_SEPARABLE, /* product of 1-D Kaiser-Bessel functions */
    NUFFT_RADIAL     /* the thesis' spherical Kaiser-Bessel function of |u| */
};

enum { NUFFT_SIZE_MOST = 2048 };

/* How a plan sums samples into the grid: on a GPU all but tiles use tensor cores (gridding/nufft/gpu/nufft_gpu.cuh). */
enum nufft_method {
    NUFFT_METHOD_CPU,
    NUFFT_METHOD_TILES,      /* any kernel and grid, in float32 */
    NUFFT_METHOD_BRICK8,     /* 3-D, kernels of up to 4 cells */
    NUFFT_METHOD_BRICK2D,    /* 2-D */
    NUFFT_METHOD_BRICK16,    /* 3-D, 5 to 8 cells */
    NUFFT_METHOD_BRICK_DENSE /* the same, for several samples per grid cell */
};

/* The purpose of a plan: the transform for whose time its width, grid and method are chosen. Every plan does both. */
enum nufft_purpose {
    NUFFT_FOR_ADJOINT,
    NUFFT_FOR_FORWARD,
    NUFFT_FOR_BOTH /* both equally often, as in an iteration that applies the transforms themselves */
};

/* The treatment, on a GPU, of a bin's samples beyond its depth (the last ones, in the caller's order). Bins on the CPU
 * have no depth. */
enum nufft_overflow {
    NUFFT_SPLIT,       /* the bin is cut into parts of at most `depth` samples, each with threads of its own */
    NUFFT_OVERFLOW_CPU /* the CPU scatters them while the GPU grids the others, and both are added before the FFT */
};

/* Instead of a number of samples. AUTO: the expected optimum; with NUFFT_OVERFLOW_CPU after a measurement on this
 * machine with this trajectory. NONE: no limit. */
enum { NUFFT_DEPTH_AUTO = 0, NUFFT_DEPTH_NONE = -1 };

struct nufft_params {
    int dim;          /* 2 or 3 */
    int n[3];         /* image size x, y, z; n[2] = 1 in 2-D; 1..NUFFT_SIZE_MOST each */
    double tolerance; /* wanted relative l2 error of the image, 1e-6 .. 1e-1 */
    enum nufft_kernel kernel;
    int width;           /* full kernel width in grid cells, 2..10; 0: the fastest that meets `tolerance` */
    double oversampling; /* grid / image, 1.125 (radial: 1.5) .. 2; 0: likewise. Radial in 3-D: at least 1.75 is used */
    int batch;           /* the largest batch of a call, >= 1; determines the workspace */
    int bin_depth;       /* depth of bins on a GPU in samples, > 0, or one of NUFFT_DEPTH_ */
    enum nufft_overflow overflow;
    /* Of a GPU's plan; 0: the fastest. Of the widths and grids that are not given, those that it supports; tiles, if it
     * supports none of them, or none within the tolerance. */
    enum nufft_method method;
    enum nufft_purpose purpose;
};

/* A plan's properties and choices. */
struct nufft_info {
    enum nufft_method method;
    int products; /* on tensor cores, per sample and weight: 1, or 3 with split operands; 0: float32 */
    int width, grid[3];
    double oversampling, beta;
    /* Relative l2 error of an adjoint's image. If the plan is for them, the data of a forward transform err by as much
     * for images in general, by up to three times for constant images and samples in one place, and by more for images
     * whose energy is in the corners, which deapodisation amplifies. Otherwise by more on tight grids: a GPU rounds
     * the grid that it reads. */
    double expected_error;
    int batch; /* transforms gridded together */
    size_t samples, bins, occupied_bins, largest_bin;
    size_t bytes;      /* device memory in use */
    double binning;    /* seconds of binning on a GPU, including allocations, without the upload; CPU: 0 */
    size_t depth;      /* the most samples of a bin, or of a part of one; 0: no limit */
    size_t overflowed; /* samples that the CPU scatters */
};

/* Times of the last adjoint, in seconds, of its whole batch. All 0 on the CPU. */
struct nufft_times {
    double gpu;    /* the GPU's gridding, with the FFT if both are one pass; 0 for default depth and overflow */
    double cpu;    /* the CPU's gridding of overflowed samples */
    double merge;  /* upload of the CPU's sums, and their addition to the GPU's */
    double hidden; /* the part of `cpu` that overlapped the GPU's work */
};

/* Create a plan for `samples` points k[samples][dim] (host memory, read during the call only). Binning, kernel tables
 * and FFT plans are computed here; transforms neither allocate nor bin. Fails with ERR_BAD_PARAMETER (sizes; a width or
 * an oversampling that cannot meet the tolerance in any number of dimensions), ERR_TRAJ_NONFINITE, ERR_NO_MEMORY,
 * ERR_GPU_OOM, ERR_DEVICE. */
int nufft_create(struct nufft **out, struct dev *dev, const struct nufft_params *params, size_t samples,
                 const float *k);
void nufft_free(struct nufft *plan);
void nufft_describe(const struct nufft *plan, struct nufft_info *info);
const char *nufft_method_name(enum nufft_method method); /* static, e.g. "brick16" */
void nufft_times(const struct nufft *plan, struct nufft_times *times);

/* Set w (host memory, [samples]; NULL: all 1). Copied. Fails with ERR_NO_MEMORY, ERR_DEVICE. */
int nufft_set_weights(struct nufft *plan, const float *weights);

/* data [batch][samples], image [batch][nz][ny][nx]; any batch >= 1, computed in the plan's batches. The output is
 * overwritten. Fails with ERR_DEVICE. */
int nufft_adjoint(struct nufft *plan, int batch, const struct c32 *data, struct c32 *image);
int nufft_forward(struct nufft *plan, int batch, const struct c32 *image, struct c32 *data);

/* squares[nz][ny][nx] += sum over the batch of |adjoint|^2, without storing the images of single coils. */
int nufft_adjoint_squares(struct nufft *plan, int batch, const struct c32 *data, float *squares);

/* Asynchronous forms of these two: a GPU may still compute when they return, until nufft_finish() returns. Do not touch
 * the plan, data and output in between; the CPU can meanwhile prepare the next data (dev_upload_begin). */
int nufft_adjoint_begin(struct nufft *plan, int batch, const struct c32 *data, struct c32 *image);
int nufft_adjoint_squares_begin(struct nufft *plan, int batch, const struct c32 *data, float *squares);
int nufft_finish(struct nufft *plan);

/* One step of Pipe-Menon density compensation (doi:10.1002/(SICI)1522-2594(199901)41:1<179::AID-MRM25>3.0.CO;2-V):
 * convolved[m] = sum_m' weights[m'] C(k_m - k_m'), C being the kernel interpolated through the grid (scatter, then
 * gather; no FFT). Both are host memory, [samples]. */
int nufft_convolve(struct nufft *plan, const float *weights, float *convolved);

#ifdef __cplusplus
}
#endif
#endif
