/* op.h: a linear operator on device vectors, for iterative reconstructions. */
#ifndef MRIRECON_OP_H
#define MRIRECON_OP_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A: C^domain -> C^range. All vectors are memory of the operator's device, complex float32; input and output do not
 * overlap. Used by one thread at a time. Outputs are overwritten. The functions return 0 or a code of err.h with its
 * sentence; NULL: the operator has no such function. */
struct op {
    void *of;             /* the operator's state, passed to each function; not owned */
    size_t domain, range; /* lengths */
    int (*forward)(void *of, const struct c32 *x, struct c32 *y); /* y = A x */
    int (*adjoint)(void *of, const struct c32 *y, struct c32 *x); /* x = A' y */
    int (*normal)(void *of, const struct c32 *x, struct c32 *r);  /* r = A' W A x, W being the operator's weights */
};

/* Operators N_f: C^domain -> C^domain of several frames, whose vectors lie one after the other: [frames][domain]. */
struct op_frames {
    void *of;
    size_t domain; /* of one frame */
    int frames;
    size_t work; /* numbers that applying all of them computes: how long it takes */
    /* r = A' W A x of each frame with running[f] != 0 (device memory); of others r is undefined. A frame's bits do not
     * depend on the others. */
    int (*normal)(void *of, const int *running, const struct c32 *x, struct c32 *r);
};

#ifdef __cplusplus
}
#endif
#endif
