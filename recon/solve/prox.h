/* prox.h: proximal operators, prox(t)(v) = argmin_u t g(u) + |u - v|^2 / 2, for fista_solve(). Device memory and
 * threads: as in solve.h.
 */
#ifndef MRIRECON_PROX_H
#define MRIRECON_PROX_H

#include "gridding/sparse/sparse.h"
#include "recon/solve/solve.h"

/* g(x) = lambda |W x|_1, W being Daubechies' wavelets of 4 taps, orthonormal and periodic, shifted by another
 * pseudo-random offset in every iteration, which takes away the blocks of a fixed one (random cycle spinning:
 * Figueiredo and Nowak 2003, doi:10.1109/TIP.2003.814255). The shifts follow from `seed` and the iteration alone. */
struct prox_wavelet {
    struct dev *dev;
    double lambda;
    int n[SPARSE_AXES], levels[SPARSE_AXES];
    uint64_t seed;
    struct c32 *rolled;
};

/* Axes of at least 32 have levels, until 16 are left, at most WAVELET_LEVELS; their n must be a multiple of
 * wavelet_multiple(n). Allocates one vector. Fails as dev_alloc(). */
enum { WAVELET_LEVELS = 4, WAVELET_VECTORS = 1 };
int wavelet_levels(int n);
int wavelet_multiple(int n); /* 2^wavelet_levels(n) */
int prox_wavelet_open(struct prox_wavelet *p, struct dev *dev, const int n[SPARSE_AXES], double lambda, uint64_t seed);
void prox_wavelet_close(struct prox_wavelet *p);
struct prox prox_wavelet(struct prox_wavelet *p);

/* g(x) = lambda sum over pixels of |D x|, D being the differences along `axes` (isotropic total variation: Rudin et al.
 * 1992, doi:10.1016/0167-2789(92)90242-F), by a few steps of the dual method FGP (Beck and Teboulle 2009,
 * doi:10.1109/TIP.2009.2028645), which begins where the last call ended. */
struct prox_tv {
    struct dev *dev;
    double lambda;
    int n[SPARSE_AXES], count;
    unsigned axes;
    size_t pixels;
    struct c32 *p, *r, *g, *v; /* [count][pixels] each, but v: [pixels] */
};

enum { TV_STEPS = 8 };
int tv_vectors(unsigned axes); /* that prox_tv_open() allocates */
int prox_tv_open(struct prox_tv *p, struct dev *dev, const int n[SPARSE_AXES], unsigned axes, double lambda);
void prox_tv_close(struct prox_tv *p);
struct prox prox_tv(struct prox_tv *p);

#endif
