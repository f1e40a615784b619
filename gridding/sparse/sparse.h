/* sparse.h: the transforms in which images are sparse: finite differences, wavelets and low rank, on device memory.
 *
 * Arrays are complex float32, [n[3]][n[2]][n[1]][n[0]], n[0] fastest; unused axes have n = 1. All operations are in an
 * order that depends only on the sizes: the same bits for any number of threads. A GPU may still compute when a
 * function returns; later work of the device is ordered after it. All functions fail with ERR_NO_DEVICE if
 * sparse_available() is false, and with ERR_DEVICE.
 */
#ifndef MRIRECON_SPARSE_H
#define MRIRECON_SPARSE_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPARSE_AXES = 4 };

/* Whether the device has these functions. The CPU and GPUs have. */
bool sparse_available(const struct dev *dev);

/* ---- finite differences ---- */

/* D: g[d][r] = x[r + e_d] - x[r] for each axis in `axes` (bit d: axis d), in ascending order; 0 at an axis' last pixel
 * (not periodic). |D|^2 <= 4 for each axis. */
int sparse_difference(struct dev *dev, const int n[SPARSE_AXES], unsigned axes, const struct c32 *x, struct c32 *g);

/* x = v + a D' g; v = NULL: 0. x may be v. */
int sparse_difference_adjoint(struct dev *dev, const int n[SPARSE_AXES], unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x);

/* The dual step of total variation (Beck and Teboulle 2009, doi:10.1109/TIP.2009.2028645, algorithm FGP) of `count`
 * differences of `pixels` each, with |.| of all differences of a pixel:
 *   q = r + c g;  q = q / max(1, |q|);  r = q + m (q - p);  p = q */
int sparse_tv_step(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r);

/* ---- wavelets ---- */

/* Daubechies' orthonormal wavelets of 4 taps (1988, doi:10.1002/cpa.3160410705), periodic, `levels[d]` times along axis
 * d, whose n must be a multiple of 2^levels: in place. Each level leaves [low | high] along each of its axes. The
 * inverse is the adjoint. */
int sparse_wavelet(struct dev *dev, const int n[SPARSE_AXES], const int levels[SPARSE_AXES], struct c32 *x);
int sparse_wavelet_inverse(struct dev *dev, const int n[SPARSE_AXES], const int levels[SPARSE_AXES], struct c32 *x);

/* y[(r + shift) mod n] = x[r]; x and y do not overlap; any shift. */
int sparse_roll(struct dev *dev, const int n[SPARSE_AXES], const int shift[SPARSE_AXES], const struct c32 *x,
                struct c32 *y);

/* ---- low rank ---- */

enum { SPARSE_BLOCK_MOST = 64 /* pixels */ };

/* The number of blocks of block[3] pixels (the last of an axis may be smaller) of an array. */
size_t sparse_blocks(const int n[SPARSE_AXES], const int block[3]);

/* Of `count` blocks from `first`: the singular values s of each, a matrix [frames][pixels of the block], become max(0,
 * s - t): the proximal operator of t times the sum of singular values (Cai et al. 2010, doi:10.1137/080738970). By the
 * eigenvectors of the smaller Gram matrix, in double, with eigenvalues accurate to 1e-6 t^2. t >= 0; a block that is
 * not finite is not changed. Fails with ERR_BAD_PARAMETER for a block of more than SPARSE_BLOCK_MOST pixels, and with
 * ERR_NO_MEMORY or ERR_GPU_OOM. */
int sparse_low_rank(struct dev *dev, const int n[SPARSE_AXES], const int block[3], size_t first, size_t count, float t,
                    struct c32 *x);

#ifdef __cplusplus
}
#endif
#endif
