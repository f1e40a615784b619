/* nufft_leaf.h: the part of a NUFFT that differs between devices. Only nufft.c and the leaves include this.
 *
 * nufft.c does once what is the same everywhere: checks, the choice of width, oversampling and grid size, kernel
 * constants, apodisation tables, the loop over batches. A leaf does the work on its device: binning, scatter and
 * gather, FFT, crop and deapodisation.
 */
#ifndef MRIRECON_NUFFT_LEAF_H
#define MRIRECON_NUFFT_LEAF_H

#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct overflow_ops; /* gridding/range/overflow.h */
struct normal_coils; /* gridding/nufft/normal.h */

/* A plan's parameters, chosen by nufft.c. Constant for the life of the plan. */
struct nufft_shape {
    int dim, n[3], grid[3]; /* in 2-D n[2] = grid[2] = 1 */
    int width;              /* W, full, in grid cells */
    double beta;
    enum nufft_kernel kernel;
    double aliasing;        /* expected relative l2 error due to the kernel alone, averaged over an image */
    double corner_aliasing; /* .. in its corners, which may contain all of an image, if half of its energy is from
                               samples with the same position between cells */
    double tolerance;       /* requested: a leaf may use cheaper arithmetic that meets it */
    int batch;              /* the most transforms passed to a leaf at a time */
    int bin_depth;          /* as in nufft_params */
    enum nufft_overflow overflow;
    enum nufft_method method;   /* likewise */
    enum nufft_purpose purpose; /* likewise */
    double centre; /* the share of the samples in the fullest box of 1 / n of k-space, if more than chance explains */
    double filled; /* the part of k-space that the samples fill: spokes leave corners empty */
    double apart;  /* pixels between a sample and the next one, in the mean, up to 4: how scattered an array of data is
                      accessed in the order of the grid */
    const struct overflow_ops *overflow_ops; /* the CPU's half of NUFFT_OVERFLOW_CPU, for a leaf that cannot link it */
    /* 1 / (transform of the kernel), host memory of nufft.c. Separable: the image is multiplied by
     * deapodise[0][x] deapodise[1][y] deapodise[2][z], each [n[d]]. Radial: by deapodise_radial[z][y][x] of the whole
     * image, which is symmetric; the separable ones are then NULL. */
    const float *deapodise[3];
    const float *deapodise_radial;
};

/* Grid cells per pixel, minimum over the axes: determines beta and the errors. */
static inline double nufft_oversampling(const struct nufft_shape *shape)
{
    double least = (double)shape->grid[0] / shape->n[0];
    for (int d = 1; d < shape->dim; d++)
        if ((double)shape->grid[d] / shape->n[d] < least)
            least = (double)shape->grid[d] / shape->n[d];
    return least;
}

/* The smallest even number >= n whose prime factors are 2, 3, 5, 7: for which FFTs are fast. */
int nufft_smooth_size(double n);

/* A plan's bins. first and order are the caller's, host memory. */
struct nufft_bins {
    int axis[3];   /* bins of each axis; bin i has the base cells from floor(i grid / axis) on */
    bool pairs[3]; /* or from twice floor(i (grid / 2) / axis) on */
    bool by_cell;  /* a bin's samples are sorted by base z cell, in 2-D by square (range/layout.h), then in the caller's
                      order; else in the caller's */
    uint32_t *first; /* [bins + 1]: bin (y * axis[2] + z) * axis[0] + x has the sorted indices from first[bin] on */
    uint32_t *order; /* [samples]: sorted index -> the caller's */
};

/* Adjoints in parts (nufft_parts.h), if a leaf does more for them than keep the samples. */
struct parts_leaf {
    int (*create)(void **parts, void *state, int batch, int count, const size_t *first, const float *k,
                  const float *weights);
    void (*destroy)(void *parts);
    size_t (*bytes)(const void *parts);
    int (*begin)(void *parts);
    int (*add)(void *parts, int part, const struct c32 *data); /* [batch][samples of the part] */
    int (*finish)(void *parts, struct c32 *image, float *squares);
};

/* What is expected of a shape. */
struct nufft_cost {
    double seconds; /* for its purpose: by any monotonic model, calibrated by a line in docs/notebook/gpu-choices.md */
    double error;   /* relative l2 error of the image, including aliasing */
    bool as_asked;  /* false: not by shape->method, which does not support it or does not keep the tolerance */
};

struct nufft_leaf {
    struct nufft_cost (*cost)(const struct dev *dev, const struct nufft_shape *shape, size_t samples);

    /* The smallest grid size >= cells of those that its FFT transforms fastest; 0: none. NULL: there are no such. */
    int (*fast_size)(int cells);

    /* Check that k[samples][dim] (host, cycles per pixel, any range: periodic) is finite, bin it, and create everything
     * that transforms need. */
    int (*create)(void **state, struct dev *dev, const struct nufft_shape *shape, size_t samples, const float *k);
    void (*destroy)(void *state);
    void (*describe)(const void *state,
                     struct nufft_info *info);               /* the members that do not follow from shape and samples */
    int (*bins)(const void *state, struct nufft_bins *bins); /* NULL: not available */
    int (*set_weights)(void *state, const float *weights);   /* host, [samples], or NULL */

    /* At most shape->batch transforms. Device memory, as in nufft.h. Adjoints may return before they are done. */
    int (*adjoint)(void *state, int batch, const struct c32 *data, struct c32 *image);
    int (*adjoint_squares)(void *state, int batch, const struct c32 *data, float *squares);
    /* Wait for adjoints, and return the times of those since the last call. NULL: adjoints are synchronous. */
    int (*finish)(void *state, struct nufft_times *times);
    int (*forward)(void *state, int batch, const struct c32 *image, struct c32 *data);
    int (*convolve)(void *state, const float *weights, float *convolved); /* host memory */
    const struct parts_leaf *parts;                                       /* NULL: none */
};

/* Circular convolution of zero-padded images: the device's part of normal.c. */
struct convolution_leaf {
    /* The size of a grid axis of at least `cells` (a product of 2, 3, 5, 7); larger if the device is then faster. */
    int (*axis_size)(int axis, int cells);

    /* Images of n[] on a grid of grid[] >= n[] cells, sizes of axis_size(), at most `batch` at a time. */
    int (*create)(void **state, struct dev *dev, int dim, const int n[3], const int grid[3], int batch);
    void (*destroy)(void *state);
    size_t (*bytes)(const void *state);

    /* The convolution's kernel, [kernel_n] of it around 0 as an image (device memory), Hermitian except for rounding:
     * stored as the real part of its transform, times `scale`. */
    int (*set_kernel)(void *state, const int kernel_n[3], const struct c32 *kernel, float scale);

    /* At most `batch` images; in place is allowed. */
    int (*apply)(void *state, int batch, const struct c32 *image, struct c32 *result);

    /* The kernel of set_kernel(), for copying: the grid's cells as floats, rounded up to an even number. NULL: not
     * available. */
    struct c32 *(*kernel)(void *state);

    /* normal_apply_coils(), with kernels of kernel_elements each; and whether it can be called. NULL: never. */
    bool (*takes_coils)(int dim, const int grid[3]);
    int (*apply_coils)(void *state, const struct normal_coils *coils, size_t kernel_elements, const struct c32 *image,
                       struct c32 *result);
};

/* Value `value` of k[samples][dim], the first of its kind, is not finite. */
static inline int nufft_nonfinite(size_t value, int dim)
{
    return err_set(ERR_TRAJ_NONFINITE, "Sample %zu of the trajectory is not finite in dimension %zu.",
                   value / (size_t)dim, value % (size_t)dim);
}

/* What a plan is made of, for nufft_parts.c. */
struct nufft_inside {
    struct dev *dev;
    const struct nufft_leaf *leaf;
    void *state;
    size_t samples;
};
void nufft_inside(const struct nufft *plan, struct nufft_inside *out);

/* What a plan would be, without making it, for the search of plans (tests/bench/bench_plans.c). Fails as
 * nufft_create(), with ERR_BAD_PARAMETER. */
struct nufft_expected {
    int width, grid[3];
    double error;   /* of an adjoint's image */
    double seconds; /* of a transform, by the model of the leaf's cost() */
};
int nufft_expect(struct dev *dev, const struct nufft_params *params, size_t samples, const float *k,
                 struct nufft_expected *out);

/* A plan's bins, for tests. Fails with ERR_BAD_PARAMETER (not a GPU's plan), ERR_DEVICE. */
int nufft_bins(const struct nufft *plan, struct nufft_bins *bins);

extern const struct nufft_leaf nufft_leaf_cpu;
extern const struct convolution_leaf convolution_leaf_cpu;

#ifdef __cplusplus
}
#endif
#endif
