/* nbody_gravity.h: gravity between bodies: their accelerations and potentials, by pairs of limited range
 * (gridding/range/sums.h) and a particle-mesh.
 *
 * Body j at r = x_j - x_i gives body i the acceleration G m_j s(r) r, with a softened s:
 *
 *   Plummer   s = (r^2 + eps^2)^(-3/2), potential -(r^2 + eps^2)^(-1/2)
 *   spline    1 / r^3 beyond h = 2.8 eps; within, that of a mass smoothed by the cubic spline of radius h: the
 *             potential at r = 0 is -1 / eps (V. Springel, N. Yoshida, S.D.M. White, New Astron. 6, 79, 2001,
 *             doi:10.1016/S1384-1076(01)00042-2)
 *
 * P3M splits 1 / r by r_s (P.P. Ewald; R.W. Hockney, J.W. Eastwood, Computer Simulation Using Particles, 1988,
 * doi:10.1201/9780367806934; as GADGET-2 does, V. Springel, MNRAS 364, 1105, 2005,
 * doi:10.1111/j.1365-2966.2005.09655.x): with u = r / (2 r_s), the mesh computes
 *
 *   potential erf(u) / r, acceleration (1 - w(u)) / r^3,   w = erfc(u) + 2 u / sqrt(pi) exp(-u^2)
 *
 * and the sum over pairs within the cut-off uses the softened law minus these, so that the total is the softened law
 * for any r_s. (GADGET multiplies the softened law by w instead, which is the same if eps is small compared with r_s.)
 * The mesh's part is approximated by a polynomial in r^2, as in HACC (S. Habib et al., New Astron. 42, 49, 2016,
 * doi:10.1016/j.newast.2015.06.003); its error is NBODY_ERFC's 1e-6 or NBODY_POLYNOMIAL's 1.5e-3 of its largest value.
 *
 * The mesh: masses are spread by a Kaiser-Bessel window of NBODY_WINDOW cells, transformed, multiplied by Green's
 * function 4 pi G / k^2 exp(-k^2 r_s^2) over the square of the window's transform (which corrects for spreading and
 * interpolation), differentiated by i k, transformed back, and interpolated with the same window, so that bodies have
 * no self-force and forces are equal and opposite. In open space, the mesh has 2.75 times the side, and Green's
 * function is that of a kernel truncated beyond the box's diagonal (F. Vico, L. Greengard, M. Ferrando, J. Comput.
 * Phys. 323, 191, 2016, doi:10.1016/j.jcp.2016.07.028): there are no periodic images.
 *
 * Periodic potentials have mean 0. Units are the caller's; sums are in float32, in units of the box and the largest
 * mass. The result is the same to the bit for any number of threads.
 */
#ifndef MRIRECON_NBODY_GRAVITY_H
#define MRIRECON_NBODY_GRAVITY_H

#include "gridding/base/dev.h"

enum nbody_method {
    NBODY_P3M,
    NBODY_DIRECT,
    NBODY_SHORT
}; /* pairs and mesh; all pairs, in open space only; near pairs only */
enum nbody_law { NBODY_ERFC, NBODY_POLYNOMIAL, NBODY_CUT }; /* NBODY_CUT: no split, only with NBODY_SHORT */
enum nbody_softening { NBODY_SPLINE, NBODY_PLUMMER };

enum { NBODY_WINDOW = 6, NBODY_MESH_LEAST = 8, NBODY_MESH_MOST = 512 };

struct nbody_setup {
    enum nbody_method method;
    enum nbody_law law;
    enum nbody_softening softening;
    double eps; /* >= 0 */
    double g;   /* > 0 */
    bool periodic;
    double box;           /* side of a periodic box, which begins at 0 */
    int mesh;             /* cells of the box along an axis, even */
    double split;         /* r_s in cells */
    double cutoff;        /* cut-off of near pairs, in r_s; NBODY_CUT: a length */
    bool host_transforms; /* of the mesh, beside a GPU: slower, and without their memory on the GPU */
};

/* The smallest mesh size of at least `cells`: even, with no prime factor above 5. */
int nbody_mesh_round(int cells);

struct nbody_gravity;

/* mass[count] (0: a test particle, which exerts no force) is copied. The device must support sums of limited range.
 * Fails with ERR_NO_MEMORY, ERR_BAD_PARAMETER, ERR_NO_DEVICE. */
int nbody_gravity_create(struct nbody_gravity **out, struct dev *dev, const struct nbody_setup *setup, size_t count,
                         const double *mass);
void nbody_gravity_free(struct nbody_gravity *gravity);
int nbody_gravity_threads(const struct nbody_gravity *gravity); /* of its device */

/* Upper bounds of the device memory and the host memory that a struct nbody_gravity of bodies at at[count][3] and its
 * evaluation need; on a CPU, their sum is needed. Fails as range_memory(). */
int nbody_gravity_memory(struct dev *dev, const struct nbody_setup *setup, size_t count, const double (*at)[3],
                         uint64_t *device, uint64_t *host);

/* Whether the device is a GPU that transforms the mesh. */
bool nbody_gravity_on_gpu(const struct dev *dev, const struct nbody_setup *setup);

/* Called between the parts of an evaluation, and regularly by sums and transforms, with the part of it that is
 * complete: 0..1, never decreasing. Non-zero cancels it. */
struct nbody_poll {
    int (*stop)(void *context, double complete);
    void *context;
};

/* acceleration[count][3] and potential[count] (NULL: not wanted) of bodies at at[count][3]; with NBODY_SHORT, only the
 * near part. In open space, the bodies' positions also determine the box. Fails with ERR_NO_MEMORY, ERR_CANCELED,
 * ERR_BAD_PARAMETER (two bodies so close that float32 overflows; the message names one of them). */
int nbody_gravity_evaluate(struct nbody_gravity *gravity, const double (*at)[3], double (*acceleration)[3],
                           double *potential, const struct nbody_poll *poll);

#endif
