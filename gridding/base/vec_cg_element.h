/* vec_cg_element.h: the numbers of a frame of vec_cg.h, for every kind of device. Only vec_cg_cpu.c and vec_cg_gpu.cu
 * include this. */
#ifndef MRIRECON_VEC_CG_ELEMENT_H
#define MRIRECON_VEC_CG_ELEMENT_H

#include "gridding/base/vec_cg.h"
#include "gridding/base/vec_element.h"

#include <float.h>

HOST_DEVICE static inline bool cg_finite(double value)
{
    return fabs(value) <= DBL_MAX;
}

/* Whether a step can be made along p. */
HOST_DEVICE static inline bool cg_positive(double pq)
{
    return cg_finite(pq) && pq > 0;
}

/* bb: <b, b>. Returns whether the frame runs. */
HOST_DEVICE static inline int cg_frame_begin(struct vec_cg_frame *frame, double bb)
{
    frame->first = frame->rr = bb;
    frame->beta = 0;
    frame->iterations = 0;
    frame->state = !cg_finite(bb) ? VEC_CG_NONFINITE : bb > 0 ? VEC_CG_RUNNING : VEC_CG_ZERO;
    return frame->state == VEC_CG_RUNNING;
}

/* After a step: pq and rr of it. Returns whether the frame runs. */
HOST_DEVICE static inline int cg_frame_end(struct vec_cg_frame *frame, double pq, double rr, double tolerance)
{
    const double before = frame->rr;
    if (!cg_positive(pq)) {
        frame->state = cg_finite(pq) ? VEC_CG_NOT_POSITIVE : VEC_CG_NONFINITE;
        return 0;
    }
    if (!cg_finite(rr)) {
        frame->state = VEC_CG_NONFINITE;
        return 0;
    }
    frame->beta = rr / before; /* beta = <r, r> / <r, r> before */
    frame->rr = rr;
    frame->iterations++;
    frame->state = sqrt(rr / frame->first) <= tolerance ? VEC_CG_TOLERANCE : VEC_CG_RUNNING;
    return frame->state == VEC_CG_RUNNING;
}

#endif
