/* low_rank.h: soft thresholding of singular values, the part for all devices: blocks of an array as matrices, and the
 * rotations that diagonalise their Gram matrices. Only the leaves of gridding/sparse/ include this.
 *
 * A block M is [rows][columns], frames by pixels or pixels by frames, with the fewer as rows. With G = M M^H = V
 * diag(s^2) V^H, the result is V f V^H M, f = max(0, 1 - t / s). V is computed by Jacobi rotations (Golub and Van Loan,
 * Matrix Computations, 4th ed., 8.5) in a fixed order, without a library: the bits of LAPACK's eigensolvers depend on
 * the number of their threads. */
#ifndef MRIRECON_LOW_RANK_H
#define MRIRECON_LOW_RANK_H

#include "gridding/base/host_device.h"
#include "gridding/sparse/sparse.h"

#include <math.h>

enum { LOW_RANK_SWEEPS = 30 };

/* Relative to t^2: a smaller entry of the Gram matrix changes f by less than a float32 rounding. */
#define LOW_RANK_NEGLIGIBLE 1e-7

/* A block in an array: its first pixel, its size, and which of pixels and frames are its rows. */
struct low_rank_block {
    size_t at[3], size[3], frames, pixels, rows, columns;
    bool by_frames;
};

HOST_DEVICE static inline struct low_rank_block block_at(const int *n, const int *size, size_t index)
{
    struct low_rank_block b;
    b.frames = (size_t)n[3];
    b.pixels = 1;
    for (int d = 0; d < 3; d++) {
        const size_t blocks = ((size_t)n[d] + (size_t)size[d] - 1) / (size_t)size[d];
        b.at[d] = index % blocks * (size_t)size[d];
        b.size[d] = (size_t)n[d] - b.at[d] < (size_t)size[d] ? (size_t)n[d] - b.at[d] : (size_t)size[d];
        b.pixels *= b.size[d];
        index /= blocks;
    }
    b.by_frames = b.frames <= b.pixels;
    b.rows = b.by_frames ? b.frames : b.pixels;
    b.columns = b.by_frames ? b.pixels : b.frames;
    return b;
}

/* The index of pixel p of a block in a frame. */
HOST_DEVICE static inline size_t block_pixel(const struct low_rank_block *b, const int *n, size_t p)
{
    const size_t x = p % b->size[0], y = p / b->size[0] % b->size[1], z = p / b->size[0] / b->size[1];
    return ((b->at[2] + z) * (size_t)n[1] + b->at[1] + y) * (size_t)n[0] + b->at[0] + x;
}

/* The rotation that makes G[p][q] = re + i im zero, with G[p][p] = a and G[q][q] = b: rows become c p - s e q and
 * s p + c e q, and the two diagonal entries a - move and b + move. */
struct rotation {
    double er, ei, c, s, move;
};

HOST_DEVICE static inline struct rotation rotation_of(double a, double b, double re, double im)
{
    const double size = hypot(re, im), tau = (b - a) / (2 * size);
    const double t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau));
    struct rotation r;
    r.er = re / size;
    r.ei = im / size;
    r.c = 1 / sqrt(1 + t * t);
    r.s = t * r.c;
    r.move = t * size;
    return r;
}

/* Column k of rows p and q. */
HOST_DEVICE static inline void rotation_turn(const struct rotation *r, double *pr, double *pi, double *qr, double *qi)
{
    const double ur = r->er * *qr - r->ei * *qi, ui = r->er * *qi + r->ei * *qr; /* e^(i phi) row q */
    const double vr = *pr, vi = *pi;
    *pr = r->c * vr - r->s * ur;
    *pi = r->c * vi - r->s * ui;
    *qr = r->s * vr + r->c * ur;
    *qi = r->s * vi + r->c * ui;
}

#endif
