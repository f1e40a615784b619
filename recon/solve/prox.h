/* prox.h: proximal operators, prox(t)(v) = argmin_u t g(u) + |u - v|^2 / 2, for fista_solve(). Device memory and
 * threads: as in solve.h.
 */
#ifndef MRIRECON_PROX_H
#define MRIRECON_PROX_H

#include "gridding/sparse/sparse.h"
#include "recon/solve/solve.h"

/* Asked within an application that takes long, as it does of a series; a code other than 0 ends it with that. NULL:
 * nobody is asked. What prox_..._open() returned has none until the caller sets it. */
struct prox_ask {
    int (*ask)(void *context);
    void *context;
};

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
    struct prox_ask ask;
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

/* g(x) = lambda (sqrt B + sqrt T) times the sum of the singular values of all blocks of B pixels (8 x 8, or
 * 4 x 4 x 4 of volumes) in T = n[3] frames: locally low rank (Trzasko and Manduca 2011, ISMRM 19:4371; Zhang et al.
 * 2015, doi:10.1002/mrm.25421). sqrt B + sqrt T is what noise of standard deviation 1 has as its largest singular
 * value. The blocks are shifted as the wavelets are. */
struct prox_low_rank {
    struct dev *dev;
    double lambda;
    struct prox_ask ask;
    int n[SPARSE_AXES], block[3];
    uint64_t seed;
    struct c32 *rolled;
};

enum { LOW_RANK_SIDE = 8, LOW_RANK_SIDE_3D = 4, LOW_RANK_VECTORS = 1 };
/* Allocates one vector. Fails as dev_alloc(). */
int prox_low_rank_open(struct prox_low_rank *p, struct dev *dev, const int n[SPARSE_AXES], double lambda,
                       uint64_t seed);
void prox_low_rank_close(struct prox_low_rank *p);
struct prox prox_low_rank(struct prox_low_rank *p);

#endif
