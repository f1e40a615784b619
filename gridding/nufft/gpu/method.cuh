/* method.cuh: the methods by which a GPU's plan sums samples into the grid, a row of a table each (methods.cu). plan.cu
 * chooses by walking the table; nothing else tells them apart. A new method is a file with its kernels and a row. */
#ifndef MRIRECON_NUFFT_METHOD_CUH
#define MRIRECON_NUFFT_METHOD_CUH

#include "gridding/nufft/nufft_leaf.h"
#include "gridding/range/layout.h"

struct gpu;
struct nufft_gpu;
struct nufft_gather;

struct nufft_gpu_method {
    enum nufft_method id;
    bool tensor;   /* on tensor cores: one product, or three of numbers split in two (`split`); otherwise float32 */
    bool sparse;   /* faster than tiles however few samples there are */
    int degree[2]; /* of the kernel's polynomial, for one product and for three; 0: by the tolerance */
    int gather_threads; /* of a block that reads a bin's tile, in 3-D */
    int overflow_chunk; /* transforms that the CPU sums at a time, at most; 0: the CPU's bins cannot be these */

    bool (*serves)(const struct nufft_shape *shape);

    /* The relative error that its arithmetic leaves in an image; gain: by how much an error of single cells grows there
     * on each axis. */
    double (*error)(const struct nufft_shape *shape, bool split, const double gain[3]);

    /* Seconds of an adjoint and of a forward transform (NULL: as of an adjoint); passes: of the FFT, in the time that
     * one of a known size takes. */
    double (*seconds)(const struct nufft_shape *shape, size_t samples, double passes, bool split);
    double (*forward_seconds)(const struct nufft_shape *shape, size_t samples, double passes, bool split);

    /* Its bins: the axes, and what else differs from what plan.cu has filled in. */
    void (*bins)(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape, size_t samples,
                 bool split);

    /* Transforms on the grid at a time, where each takes `each` bytes of which `available` are free; NULL: one. */
    size_t (*group)(const struct nufft_gpu *plan, size_t each, size_t available);

    int (*make)(struct nufft_gpu *plan); /* its workspace */

    /* data[transforms][samples] in the caller's order, times weights (sorted, or NULL), onto plan->grid, whose old
     * content does not matter. At most plan->group. */
    int (*to_grid)(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

    /* To images, or (image NULL) to squares, with the plan's weights and without a grid: at most plan->together, where
     * make() has set plan->gridless. NULL: it has no such path. */
    int (*to_image)(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image, float *squares);

    /* The way back, where gathers() says so; NULL: gather.cu's, in float32. */
    bool (*gathers)(const struct nufft_shape *shape);
    int (*gather)(struct nufft_gpu *plan, const struct nufft_gather *gather);
};

/* The last one serves every shape, exactly. */
enum { NUFFT_GPU_METHODS = 5 };
extern const struct nufft_gpu_method nufft_gpu_methods[NUFFT_GPU_METHODS];

#endif
