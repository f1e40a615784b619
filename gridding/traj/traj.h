/* traj.h: k-space trajectories: the unit a file's trajectory is in, analytic trajectories, density compensation.
 * k is in cycles per pixel of the encoded matrix throughout, [-0.5, 0.5). Host memory only. */
#ifndef MRIRECON_TRAJ_H
#define MRIRECON_TRAJ_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- units ---- */

enum traj_unit {
    TRAJ_UNIT_AUTO,
    TRAJ_UNIT_PIXEL,     /* cycles per pixel, -0.5 .. 0.5 */
    TRAJ_UNIT_GRID,      /* cycles per field of view, -N/2 .. N/2 */
    TRAJ_UNIT_RADIANS,   /* radians per pixel, -pi .. pi */
    TRAJ_UNIT_PER_METRE, /* cycles per metre, centimetre, millimetre */
    TRAJ_UNIT_PER_CM,
    TRAJ_UNIT_PER_MM,
    TRAJ_UNIT_RADIANS_PER_METRE, /* radians per metre, centimetre, millimetre */
    TRAJ_UNIT_RADIANS_PER_CM,
    TRAJ_UNIT_RADIANS_PER_MM,
    TRAJ_UNITS
};

/* In the spelling of parameter traj_units: "auto", "pixel", ... */
const char *traj_unit_name(enum traj_unit unit);

struct traj_unit_found {
    enum traj_unit unit;
    double scale[3];   /* per column: factor to cycles per pixel */
    double coverage;   /* largest |k| of the best-covered axis; 1: the edge of the encoded k-space */
    char reason[512];  /* one sentence: the evidence and the conclusion */
    char warning[512]; /* what the sender of the scan should check; "": no doubt */
};

/* Find the unit of k[samples][stride] (the first `dim` columns are used) of an encoded matrix `n` (x, y, z) and field
 * of view `fov_m` (metres; 0 = unknown: lengths are then no unit). TRAJ_UNIT_AUTO chooses the only unit in which the
 * trajectory covers at least 45 % and at most 110 % of the encoded k-space. If several units do, but their images
 * differ by less than half a pixel, it chooses one with a warning; cycles per pixel, which are usual in ISMRMRD, are
 * chosen, with a warning, if the trajectory then ends at the edge of k-space to 2 %. With another `asked`, only the
 * range in that unit is checked. A sample may exceed the encoded k-space by 2 %; coverage below 90 % is a warning.
 * Fails with ERR_TRAJ_NONFINITE, ERR_TRAJ_AMBIGUOUS, ERR_TRAJ_RANGE (the text gives the largest |k| per axis),
 * ERR_TRAJ_MISSING (all k are 0), ERR_TRAJ_DIMENSIONS (dim not 2 or 3, or more than the columns), ERR_BAD_PARAMETER (a
 * unit of length without a field of view). */
int traj_unit_find(enum traj_unit asked, int dim, const int n[3], const double fov_m[3], size_t samples, int stride,
                   const float *k, struct traj_unit_found *found);

/* ---- analytic trajectories ---- */

enum traj_kind { TRAJ_RADIAL, TRAJ_GOLDEN, TRAJ_SPIRAL, TRAJ_STACK_OF_STARS, TRAJ_KOOSHBALL, TRAJ_CONES };

struct traj_params {
    enum traj_kind kind;
    int n[3];     /* encoded matrix x, y, z */
    int readouts; /* spokes, arms, curves on cones (per partition in a stack); 0: enough to sample fully */
    int samples;  /* per readout; 0: enough to sample fully (of a spiral: for its number of arms; fewer arms turn more
                     often) */
};

/* An analytic trajectory. */
struct traj {
    int dim;                  /* columns of k */
    size_t readouts, samples; /* samples are per readout */
    float *k;                 /* [readouts][samples][dim] */
};

/* radial, golden: 2-D spokes through 0 (golden: 111.246 degrees apart); spiral: 2-D Archimedean arms from 0; stack of
 * stars: 3-D, golden spokes per z partition; kooshball: 3-D golden-means spokes through 0 (doi:10.1002/mrm.21166) each
 * of which contains k = 0; cones: 3-D spirals from 0 on cones about z. Fails with ERR_BAD_PARAMETER, ERR_NO_MEMORY. */
int traj_create(struct traj **out, const struct traj_params *params);
void traj_free(struct traj *traj);
const char *
traj_kind_name(enum traj_kind kind); /* "radial", "golden", "spiral", "stack-of-stars", "kooshball", "cones" */

/* ---- density compensation: weights[samples] ----
 *
 * An adjoint image[r] = sum_m w_m data[m] exp(2 pi i k_m . r) is the inverse transform, the integral of data(k)
 * exp(2 pi i k . r) over k-space [-0.5, 0.5)^dim, if w_m is the area (volume) of k-space that sample m represents. So
 * weights sum to the area (volume) that the trajectory covers: at most 1, pi / 4 for a full disc, pi / 6 for a full
 * ball; and the adjoint of a fully sampled object, data[m] = sum_r object[r] exp(-2 pi i k_m . r), is the object. */

enum dcf_method { DCF_AUTO, DCF_GIVEN, DCF_NONE, DCF_ANALYTIC, DCF_PIPE, DCF_VORONOI };

/* The shapes of trajectories that have an analytic formula. */
enum traj_shape {
    TRAJ_SHAPE_UNKNOWN,
    TRAJ_SHAPE_RADIAL,
    TRAJ_SHAPE_SPIRAL,       /* 2-D */
    TRAJ_SHAPE_STACK_RADIAL, /* 3-D: partitions of one kz each, which are radial or spiral in kx and ky */
    TRAJ_SHAPE_STACK_SPIRAL,
    TRAJ_SHAPE_CONES /* 3-D: curves from 0 on cones about the z axis, with any number of turns */
};

/* Find the shape of readouts k[readouts][samples][dim]: straight lines through or from 0 (radial), or curves that start
 * at 0 and turn, each a rotated copy of the first (spiral; 2-D). In 2-D angles may be uneven (no gap reaches three
 * times the mean), readouts may repeat, and spokes may reach less far on one side (partial echoes) if the other sides
 * go all around; in 3-D directions are spread evenly. Partitions of a stack may be rotated against each other, and may
 * differ in their number of readouts and in their distances. Every readout has `samples` samples. */
enum traj_shape traj_shape_find(int dim, size_t readouts, size_t samples, const float *k);

/* Radial: |k| (2-D) or |k|^2 (3-D) times the angle that a spoke owns, which in 2-D follows from the angles of its
 * neighbours and in 3-D is the same for all. Spiral: after Meyer 1992 (doi:10.1002/mrm.1910280204), |g| |sin(angle g -
 * angle k)|, as |k| d|k|, times the angle that the arm owns between its neighbours. Stack: these in each partition,
 * times the thickness of its layer of k-space. Cones: |k|^2 d|k| times the solid angle of an arm between its
 * neighbours. Coinciding samples of a readout share a weight, and so do coinciding readouts. At k = 0, where readouts
 * meet, a weight may be 0 (3-D). Fails with ERR_DCF_INVALID if `shape` has no formula in `dim` dimensions or the
 * weights are all 0, ERR_NO_MEMORY. */
int dcf_analytic(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights);

/* Areas of the Voronoi cells of k[samples][2], for any 2-D trajectory; the samples beside a gap own its area. Samples
 * at one place share its cell. At the edge of the trajectory a cell extends outwards as far as inwards. Fails with
 * ERR_DCF_INVALID (too many; all on one line), ERR_TRAJ_NONFINITE, ERR_NO_MEMORY. `ask` (may be NULL) is called many
 * times a second; a code other than 0 ends the computation, which fails with it. */
enum { DCF_VORONOI_MOST = 100000 }; /* takes some seconds */
int dcf_voronoi(size_t samples, const float *k, float *weights, int (*ask)(void *context), void *context);

/* Pipe-Menon (doi:10.1002/(SICI)1522-2594(199901)41:1<179::AID-MRM25>3.0.CO;2-V): `iterations` of w <- w / (C w), then
 * scaled. For any trajectory; n is the image size (x, y, z). 10 to 15 iterations suffice; more change little. The
 * initial weights are start[samples], above 0, on any scale (NULL: all 1), and may be `weights`: approximately correct
 * ones from a formula save iterations. `progress` (may be NULL) is called after each with the number completed; a
 * non-zero return stops with ERR_CANCELED. Fails with the codes of nufft_create and nufft_convolve, ERR_DCF_INVALID,
 * ERR_CANCELED, ERR_NO_MEMORY. */
int dcf_pipe(struct dev *dev, int dim, const int n[3], size_t samples, const float *k, const float *start,
             int iterations, float *weights, int (*progress)(void *context, int done), void *context);

#ifdef __cplusplus
}
#endif
#endif
