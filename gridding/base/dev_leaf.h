/* dev_leaf.h: the functions of a kind of device, behind dev.h. Only dev.c and the device leaves include this.
 *
 * The CPU's leaves are linked in. The GPU's are in a shared object, mrirecon-gpu.so, which dev.c loads at run time, so
 * a machine without CUDA runs the same binaries.
 */
#ifndef MRIRECON_DEV_LEAF_H
#define MRIRECON_DEV_LEAF_H

#include "gridding/base/dev.h"
#include "gridding/base/vec_cg.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nufft_leaf; /* gridding/nufft/nufft_leaf.h */
struct convolution_leaf;
struct range_leaf;   /* gridding/range/sums_leaf.h */
struct sparse_leaf;  /* gridding/sparse/sparse_leaf.h */
struct fft_leaf;     /* gridding/fft/fft_leaf.h */
struct split_leaf;   /* gridding/split/split_leaf.h */
struct espirit_leaf; /* gridding/espirit/espirit_leaf.h */

/* The functions of vec.h for this device. */
struct vec_leaf {
    int (*zero)(struct dev *dev, size_t n, struct c32 *x);
    int (*copy)(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y);
    int (*axpy)(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y);
    int (*xpay)(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y);
    int (*scale)(struct dev *dev, size_t n, float a, struct c32 *x);
    int (*dot)(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *dot);
    int (*size_sum)(struct dev *dev, size_t n, const struct c32 *x, double *sum);
    int (*multiply)(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y);
    int (*multiply_conj_add)(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                             struct c32 *x);
    int (*multiply_each)(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y);
    int (*multiply_conj_add_each)(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                                  struct c32 *x);
    int (*wave)(struct dev *dev, size_t n, double a, const float *f, struct c32 *y);
    int (*squares_add)(struct dev *dev, size_t n, int count, const struct c32 *x, float *squares);
    int (*soft)(struct dev *dev, size_t n, float t, struct c32 *x);
    int (*cg_begin)(struct dev *dev, const struct vec_cg *cg, const struct c32 *b);
    int (*cg_step)(struct dev *dev, const struct vec_cg *cg);
};

struct dev_leaf {
    int abi; /* DEV_LEAF_ABI */
    /* Open device `index` (of a GPU; DEV_ANY: the first usable one; ignored for the CPU) into dev->state, and write
     * dev->name; a GPU's writes dev->gpus, also when it fails. */
    int (*open)(struct dev *dev, int index);
    void (*close)(struct dev *dev);
    int (*memory)(struct dev *dev, size_t *available, size_t *total);
    int (*alloc)(struct dev *dev, size_t bytes, void **out);
    void (*release)(struct dev *dev, void *memory);
    int (*upload)(struct dev *dev, void *device, const void *host, size_t bytes);
    int (*upload_begin)(struct dev *dev, void *device, const void *host, size_t bytes);
    int (*upload_order)(struct dev *dev);
    void (*fill_begin)(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill);
    int (*fill_end)(struct dev *dev);
    int (*download)(struct dev *dev, void *host, const void *device, size_t bytes);
    int (*zero)(struct dev *dev, void *device, size_t bytes);
    int (*finish)(struct dev *dev);
    int (*copy)(struct dev *to, void *there, struct dev *from, const void *here, size_t bytes);
    const struct nufft_leaf *nufft;
    const struct convolution_leaf *convolution;
    const struct vec_leaf *vec;         /* NULL: this device has no vector arithmetic */
    const struct range_leaf *range;     /* NULL: this device has no sums of limited range except a NUFFT's */
    const struct sparse_leaf *sparse;   /* NULL: this device has no wavelets and differences */
    const struct fft_leaf *fft;         /* NULL: this device has no transforms of one axis */
    const struct split_leaf *split;     /* NULL: this device has no sums in two parts */
    const struct espirit_leaf *espirit; /* NULL: the host computes coil maps */
};

enum { DEV_LEAF_ABI = 19, DEV_ANY = -1 };

struct dev {
    const struct dev_leaf *leaf;
    void *state; /* the leaf's */
    bool gpu;
    int threads;   /* CPU threads to use, >= 1 */
    uint64_t gpus; /* dev_gpus() */
    int parts;     /* 1: itself alone */
    struct dev *part[DEV_PARTS_MOST - 1];
    char name[128], note[256];
};

extern const struct dev_leaf dev_leaf_cpu;
extern const struct vec_leaf vec_leaf_cpu, vec_leaf_gpu;
/* Parts of these. */
int vec_cg_begin_cpu(struct dev *dev, const struct vec_cg *cg, const struct c32 *b);
int vec_cg_step_cpu(struct dev *dev, const struct vec_cg *cg);
int vec_cg_begin_gpu(struct dev *dev, const struct vec_cg *cg, const struct c32 *b);
int vec_cg_step_gpu(struct dev *dev, const struct vec_cg *cg);
/* Declared here, defined in higher rooms. */
extern const struct sparse_leaf sparse_leaf_cpu, sparse_leaf_gpu;
extern const struct fft_leaf fft_leaf_cpu, fft_leaf_gpu;
extern const struct split_leaf split_leaf_cpu, split_leaf_gpu;
extern const struct espirit_leaf espirit_leaf_gpu;
extern const struct nufft_leaf nufft_leaf_cpu, nufft_leaf_gpu;
extern const struct convolution_leaf convolution_leaf_cpu, convolution_leaf_gpu;
extern const struct range_leaf range_leaf_cpu, range_leaf_gpu;
/* False in a build without FFTW (gridding/fft): the CPU is then not available as a device. */
bool fft_cpu_available(void);

/* The only symbol that mrirecon-gpu.so exports. It calls the err_ functions of the host program. */
#define DEV_GPU_SYMBOL "mrirecon_gpu_leaf"
const struct dev_leaf *mrirecon_gpu_leaf(void);

#ifdef __cplusplus
}
#endif
#endif
