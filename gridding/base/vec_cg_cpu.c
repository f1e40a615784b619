/* vec_cg_cpu.c: conjugate gradients on the CPU: one frame after the other, a formula on each line. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/vec.h"
#include "gridding/base/vec_cg_element.h"

int vec_cg_begin_cpu(struct dev *dev, const struct vec_cg *cg, const struct c32 *b)
{
    const size_t n = cg->n;
    int rc = 0;
    for (int f = 0; f < cg->frames && rc == 0; f++) {
        const struct c32 *bf = b + (size_t)f * n;
        double bb = 0;
        rc = vec_copy(dev, n, bf, cg->r + (size_t)f * n); /* r = b */
        if (rc == 0)
            rc = vec_copy(dev, n, bf, cg->p + (size_t)f * n); /* p = r */
        if (rc == 0)
            rc = vec_dot(dev, n, bf, bf, &bb);
        if (rc == 0)
            rc = vec_zero(dev, n, cg->x + (size_t)f * n); /* x = 0 */
        cg->running[f] = cg_frame_begin(&cg->frame[f], bb);
    }
    return rc;
}

static int step(struct dev *dev, const struct vec_cg *cg, int f)
{
    const size_t n = cg->n, at = (size_t)f * n;
    struct vec_cg_frame *frame = &cg->frame[f];
    double pq = 0, rr = 0;
    int rc = vec_axpy(dev, n, (float)frame->lambda, cg->p + at, cg->q + at); /* q = (N + lambda) p */
    if (rc == 0)
        rc = vec_dot(dev, n, cg->p + at, cg->q + at, &pq);
    if (rc == 0 && cg_positive(pq)) {
        const double alpha = frame->rr / pq;                         /* alpha = <r, r> / <p, q> */
        rc = vec_axpy(dev, n, (float)alpha, cg->p + at, cg->x + at); /* x = x + alpha p */
        if (rc == 0)
            rc = vec_axpy(dev, n, (float)-alpha, cg->q + at, cg->r + at); /* r = r - alpha q */
        if (rc == 0)
            rc = vec_dot(dev, n, cg->r + at, cg->r + at, &rr);
    }
    if (rc == 0)
        cg->running[f] = cg_frame_end(frame, pq, rr, cg->tolerance);
    if (rc == 0 && cg->running[f])
        rc = vec_xpay(dev, n, cg->r + at, (float)frame->beta, cg->p + at); /* p = r + beta p */
    return rc;
}

int vec_cg_step_cpu(struct dev *dev, const struct vec_cg *cg)
{
    int rc = 0;
    for (int f = 0; f < cg->frames && rc == 0; f++)
        rc = cg->running[f] ? step(dev, cg, f) : 0;
    return rc;
}
