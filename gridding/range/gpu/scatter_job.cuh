/* scatter_job.cuh: the way to sum a law, and the arguments of its kernel (scatter.cu). */
#ifndef MRIRECON_SCATTER_JOB_CUH
#define MRIRECON_SCATTER_JOB_CUH

#include "gridding/range/gpu/scatter_cubes.cuh"
#include "gridding/range/gpu/scatter_spheres.cuh"

#include <cstring>

namespace
{

/* t^2 / r and no more. */
inline bool is_coulomb(const struct range_law *law)
{
    const struct range_law_params *p = &law->params;
    return p->form == RANGE_INVERSE && p->power == 1 && p->least == 0 && p->soft == 0 && p->spline == 0 &&
           law->degree == 2 && law->c[0] > 0 && fabsf(law->c[1] / law->c[0] - 2) < 1e-6f &&
           fabsf(law->c[2] / law->c[0] - 1) < 1e-6f;
}

/* 1 / r less that polynomial: 15/8 - 5/4 u2 + 3/8 u2^2 over the reach, here in powers of 1 - 2 u2. */
inline bool is_shifted(const struct range_law *law)
{
    static const double powers[] = {1.34375, 0.4375, 0.09375};
    const struct range_law_params *p = &law->params;
    bool same = p->form == RANGE_SHORT && p->power == 1 && p->least == 0 && p->soft == 0 && p->spline == 0 &&
                p->fall == 0 && law->degree == 2;
    for (int i = 0; i <= 2 && same; i++)
        same = fabs(law->c[i] * p->reach / powers[i] - 1) < 1e-6;
    return same;
}

/* From which error on cubes are summed by tensor cores: each of four roundings to halves has 2e-4 (rms). */
const double TENSOR_TOLERANCE = 5e-4;

/* quick: points can be packed; scaled: they have scales. */
inline enum way way_of(const struct range_law *law, bool quick, bool scaled)
{
    if (law->params.form == RANGE_SEPARABLE)
        return quick && law->exponential && law->params.tolerance >= TENSOR_TOLERANCE ? WAY_CUBES : WAY_SEPARABLE;
    if (law->params.form == RANGE_RADIAL)
        return quick && law->exponential && law->rate < SPHERE_RATE_MOST ? WAY_GAUSSIAN : WAY_RADIAL;
    return !quick || scaled ? WAY_INVERSE : is_coulomb(law) ? WAY_COULOMB : is_shifted(law) ? WAY_SHIFTED : WAY_INVERSE;
}

inline bool is_packed(enum way way)
{
    return way == WAY_GAUSSIAN || way == WAY_COULOMB || way == WAY_SHIFTED || way == WAY_CUBES;
}

/* The nodes of a tile, and its warps, along each axis. */
inline void lay_tiles(const struct range_box *box, enum way way, struct scatter_job *job)
{
    static const int warps[3][3] = {{8, 1, 1}, {2, 4, 1}, {2, 2, 2}};
    static const int edges[3][3] = {{32, 8, 1}, {32, 8, 1}, {8, 4, 8}};
    static const int wide[3] = {CUBE_WIDE, CUBE_SIDE, CUBE_SIDE};
    for (int d = 0; d < 3; d++) {
        job->warp[d] = warps[box->dim - 1][d];
        job->tile[d] = way == WAY_CUBES                           ? wide[d]
                       : way == WAY_GAUSSIAN                      ? (int)SPHERE_TILE
                       : way == WAY_COULOMB || way == WAY_SHIFTED ? (int)NODES_TILE
                                                                  : job->warp[d] * edges[box->dim - 1][d];
        job->tiles[d] = (box->cells[d] + job->tile[d] - 1) / job->tile[d];
    }
    job->slot =
        (size_t)(is_packed(way) ? 1 : TOGETHER) * (size_t)job->tile[0] * (size_t)job->tile[1] * (size_t)job->tile[2];
}

enum { PACKED_BITS_LEAST = 19, PACKED_BITS_MOST = 24, ROWS_MOST = 1 << 30 };

/* The binary digits of a node's part that a packed place has; 0: points cannot be packed so that float32 would lose no
 * more, or they have more rows of bins near a tile than 32 bits can number, or images than image_word() can. */
inline int packed_bits(const struct points_gpu *p, double widest)
{
    const struct points_view *v = &p->view;
    double rows = 1;
    int bits = PACKED_BITS_MOST;
    for (int d = 0; d < 3; d++) {
        const double cells = v->box.cells[d], reach = widest / v->box.spacing[d];
        const double range = (v->box.periodic[d] ? 2 : 1) * cells + 2 * reach + 68;
        while (bits > 0 && ldexp(range, bits) > 2147483647.0)
            bits--;
        if (v->box.periodic[d] && (CUBE_WIDE + reach) / cells + 2 > IMAGES / 2)
            bits = 0;
        rows *= ((double)CUBE_WIDE + 2 * reach) * v->box.spacing[d] / v->edge[d] + 3;
    }
    return bits < PACKED_BITS_LEAST || rows > ROWS_MOST ? 0 : bits;
}

inline struct scatter_job job_of(const struct points_gpu *p, const struct range_law *law)
{
    struct scatter_job job;
    memset(&job, 0, sizeof job);
    job.points = p->view;
    job.law = law_gpu_of(law);
    job.widest = law->params.reach * (double)p->widest;
    job.nodes = 1;
    for (int d = 0; d < 3; d++) {
        job.bins_of[d] = 1 / p->view.edge[d];
        job.bin_nodes[d] = (float)(p->view.edge[d] / p->view.box.spacing[d]);
        job.node_bins[d] = (float)(p->view.box.spacing[d] / p->view.edge[d]);
        job.widest_bins[d] = (float)(job.widest / p->view.edge[d]);
        job.spacing[d] = d < p->view.box.dim ? p->view.box.spacing[d] : 0;
        job.spacing2[d] = (float)(job.spacing[d] * job.spacing[d]);
        job.width[d] = (float)job.spacing[d];
        job.nodes_of[d] = 1 / p->view.box.spacing[d];
        job.margin[d] = job.widest * job.nodes_of[d] + 2;
        job.nodes *= (size_t)p->view.box.cells[d];
    }
    job.reach = (float)law->params.reach;
    job.per_reach = (float)(1 / law->params.reach);
    job.root_rate = (float)(sqrt((double)job.law.rate) / law->params.reach);
    if (law->exponential && law->rate < SPHERE_RATE_MOST)
        scale_products(job);
    job.bits = packed_bits(p, job.widest);
    job.step = (float)ldexp(1, -job.bits);
    for (int d = 0; d < 3; d++) {
        job.reach_steps[d] = (float)ldexp(law->params.reach / p->view.box.spacing[d], job.bits);
        job.per_box[d] = ldexp(1.0 / p->view.box.cells[d], -job.bits);
    }
    return job;
}

inline size_t tiles_of(const struct scatter_job *job)
{
    return (size_t)job->tiles[0] * (size_t)job->tiles[1] * (size_t)job->tiles[2];
}

} // namespace

#endif
