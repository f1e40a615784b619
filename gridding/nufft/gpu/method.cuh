/* method.cuh: the methods by which a GPU's plan sums samples into the grid, each a row of a table (methods.cu). plan.cu
 * chooses from the table; no other code distinguishes methods. A new method is a file with its kernels, and a row. */
#ifndef MRIRECON_NUFFT_METHOD_CUH
#define MRIRECON_NUFFT_METHOD_CUH

#include "gridding/nufft/nufft_leaf.h"
#include "gridding/range/layout.h"

struct gpu;
struct nufft_gpu;
struct nufft_gather;

struct nufft_gpu_method {
    enum nufft_method id;
    bool tensor;        /* on tensor cores: one product, or three with split operands (`split`); otherwise float32 */
    bool sparse;        /* faster than tiles for any number of samples */
    int degree[2];      /* of the kernel's polynomial, for one product and for three; 0: by the tolerance */
    int gather_threads; /* of a block that reads a bin's tile, in 3-D */
    int overflow_chunk; /* the most transforms that the CPU sums at a time; 0: no overflow to the CPU */

    bool (*serves)(const struct nufft_shape *shape);

    /* The relative error of its arithmetic in an image; gain: the factor by which deapodisation amplifies errors of
     * single cells on each axis. */
    double (*error)(const struct nufft_shape *shape, bool split, const double gain[3]);
    /* That of its own interpolation in the data of a forward transform; NULL: it interpolates in float32. */
    double (*forward_error)(const struct nufft_shape *shape, bool split, const double gain[3]);
    /* That of pixels around an image's centre, where aliasing is small, if it is larger there; NULL: it is not. */
    double (*centre_error)(const struct nufft_shape *shape, bool split, const double gain[3]);

    /* Seconds of an adjoint and of a forward transform (costs.cuh). */
    double (*seconds)(const struct nufft_shape *shape, size_t samples, bool split, double memory);
    double (*forward_seconds)(const struct nufft_shape *shape, size_t samples, bool split, double memory);

    /* Set the axes of its bins, and other members that differ from plan.cu's defaults. */
    void (*bins)(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape, size_t samples,
                 bool split);

    /* The number of transforms on the grid at a time, if each needs `each` bytes and `available` are free; NULL: one.
     */
    size_t (*group)(const struct nufft_gpu *plan, size_t each, size_t available);

    int (*make)(struct nufft_gpu *plan); /* its workspace */

    /* data[transforms][samples] in the caller's order, times weights (sorted, or NULL), summed into plan->grid, which
     * is overwritten. At most plan->group transforms. */
    int (*to_grid)(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

    /* To images, or (image NULL) to squares, with the plan's weights and without a grid: at most plan->together
     * transforms, if make() has set plan->gridless. NULL: no such path. */
    int (*to_image)(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image, float *squares);

    /* Its own interpolation, used if gathers() returns true; NULL: gather.cu's, in float32. */
    bool (*gathers)(const struct nufft_shape *shape);
    int (*gather)(struct nufft_gpu *plan, const struct nufft_gather *gather);
};

/* The last one supports every shape, without additional error. */
enum { NUFFT_GPU_METHODS = 5 };
extern const struct nufft_gpu_method nufft_gpu_methods[NUFFT_GPU_METHODS];

#endif
