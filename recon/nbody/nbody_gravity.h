/* nbody_gravity.h: gravity between bodies: their accelerations and potentials, by pairs of limited range
 * (gridding/range/sums.h) and a particle-mesh.
 *
 * A body i feels, from each body j at r = x_j - x_i, the acceleration G m_j s(r) r; s is softened:
 *
 *   Plummer   s = (r^2 + eps^2)^(-3/2), potential -(r^2 + eps^2)^(-1/2)
 *   spline    1 / r^3 beyond h = 2.8 eps; within, that of a mass smoothed by the cubic spline of radius h: the
 *             potential at r = 0 is -1 / eps (V. Springel, N. Yoshida, S.D.M. White, New Astron. 6, 79, 2001,
 *             doi:10.1016/S1384-1076(01)00042-2)
 *
 * P3M splits 1 / r by r_s (P.P. Ewald; R.W. Hockney, J.W. Eastwood, Computer Simulation Using Particles, 1988,
 * doi:10.1201/9780367806934; as GADGET-2 does, V. Springel, MNRAS 364, 1105, 2005,
 * doi:10.1111/j.1365-2966.2005.09655.x): with u = r / (2 r_s) the mesh has
 *
 *   potential erf(u) / r, acceleration (1 - w(u)) / r^3,   w = erfc(u) + 2 u / sqrt(pi) exp(-u^2)
 *
 * and pairs nearer than the cut-off have the softened law less these: both add up to the softened law, whatever r_s is.
 * (GADGET multiplies the softened law by w instead: the same where eps is small beside r_s.) A polynomial in r^2 stands
 * for the mesh's part, so that of all of HACC's (S. Habib et al., New Astron. 42, 49, 2016,
 * doi:10.1016/j.newast.2015.06.003); its error is NBODY_ERFC's 1e-6 or NBODY_POLYNOMIAL's 1.5e-3 of its largest value.
 *
 * The mesh: masses are spread by a Kaiser-Bessel window of NBODY_WINDOW cells, transformed, multiplied by Green's
 * function 4 pi G / k^2 exp(-k^2 r_s^2) over the square of the window's transform (which takes out spreading and
 * interpolation), differentiated by i k, transformed back, and interpolated by the same window: no body acts on itself,
 * and forces between bodies are opposite. Open space has a mesh of 2.75 times the side and Green's function of a kernel
 * cut beyond the box's diagonal (F. Vico, L. Greengard, M. Ferrando, J. Comput. Phys. 323, 191, 2016,
 * doi:10.1016/j.jcp.2016.07.028): nothing repeats.
 *
 * Periodic potentials have mean 0. All units are the caller's; sums are in float32 in units of the box and the largest
 * mass. The same bits for any number of threads.
 */
#ifndef MRIRECON_NBODY_GRAVITY_H
#define MRIRECON_NBODY_GRAVITY_H

#include "gridding/base/dev.h"

enum nbody_method { NBODY_P3M, NBODY_DIRECT, NBODY_SHORT }; /* all; all pairs, open space alone; near pairs alone */
enum nbody_law { NBODY_ERFC, NBODY_POLYNOMIAL, NBODY_CUT }; /* NBODY_CUT: no split, of NBODY_SHORT alone */
enum nbody_softening { NBODY_SPLINE, NBODY_PLUMMER };

enum { NBODY_WINDOW = 6, NBODY_MESH_LEAST = 8, NBODY_MESH_MOST = 512 };

struct nbody_setup {
    enum nbody_method method;
    enum nbody_law law;
    enum nbody_softening softening;
    double eps; /* >= 0 */
    double g;   /* > 0 */
    bool periodic;
    double box;    /* side of a periodic box, which begins at 0 */
    int mesh;      /* cells of the box along an axis, even */
    double split;  /* r_s in cells */
    double cutoff; /* of near pairs, in r_s; NBODY_CUT: a length */
};

/* An even number with no prime factor above 5, at least `cells`: of which meshes are made. */
int nbody_mesh_round(int cells);

struct nbody_gravity;

/* mass[count] (> 0, or 0: feels and does not act) is copied. The device is one that has sums of limited range. Fails
 * with ERR_NO_MEMORY, ERR_BAD_PARAMETER, ERR_NO_DEVICE. */
int nbody_gravity_create(struct nbody_gravity **out, struct dev *dev, const struct nbody_setup *setup, size_t count,
                         const double *mass);
void nbody_gravity_free(struct nbody_gravity *gravity);

/* The most bytes that a struct nbody_gravity of bodies at at[count][3], and its evaluation, take of the device's memory
 * and of the host's beside; of a CPU, whose memory is one, they add up. Fails as range_memory(). */
int nbody_gravity_memory(struct dev *dev, const struct nbody_setup *setup, size_t count, const double (*at)[3],
                         uint64_t *device, uint64_t *host);

/* Asked between the parts of an evaluation, and as often as sums ask: non-zero ends it. */
struct nbody_poll {
    int (*stop)(void *context);
    void *context;
};

/* acceleration[count][3] and potential[count] (NULL: not wanted) of bodies at at[count][3]; of NBODY_SHORT the near
 * part alone. Open space: also where the bodies lie counts. Fails with ERR_NO_MEMORY, ERR_CANCELED, ERR_BAD_PARAMETER
 * (bodies so near each other that float32 has no number for it: the sentence names one). */
int nbody_gravity_evaluate(struct nbody_gravity *gravity, const double (*at)[3], double (*acceleration)[3],
                           double *potential, const struct nbody_poll *poll);

#endif
