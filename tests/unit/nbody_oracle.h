/* nbody_oracle.h: gravity in double precision, by plain sums: the reference for recon/nbody/. */
#ifndef MRIRECON_NBODY_ORACLE_H
#define MRIRECON_NBODY_ORACLE_H

#include "recon/nbody/nbody_gravity.h"

#include <math.h>

/* The softened law of nbody_gravity.h: acceleration = force * vector, and the potential (negative) of a unit mass. */
static inline void oracle_law(const struct nbody_setup *setup, double r, double *force, double *potential)
{
    const double eps = setup->eps, h = 2.8 * eps, x = h > 0 ? r / h : 2;
    if (setup->softening == NBODY_PLUMMER || x >= 1) {
        const double soft = setup->softening == NBODY_PLUMMER ? sqrt(r * r + eps * eps) : r;
        *force = 1 / (soft * soft * soft);
        *potential = -1 / soft;
    } else if (x < 0.5) {
        *force = (32.0 / 3 + x * x * (32 * x - 38.4)) / (h * h * h);
        *potential = (16.0 / 3 * x * x - 48.0 / 5 * pow(x, 4) + 32.0 / 5 * pow(x, 5) - 14.0 / 5) / h;
    } else {
        *force = (64.0 / 3 - 48 * x + 38.4 * x * x - 32.0 / 3 * x * x * x - 1 / (15 * x * x * x)) / (h * h * h);
        *potential = (1 / (15 * x) + 32.0 / 3 * x * x - 16 * x * x * x + 48.0 / 5 * pow(x, 4) - 32.0 / 15 * pow(x, 5) -
                      16.0 / 5) /
                     h;
    }
}

/* All pairs in open space. */
static inline void oracle_direct(const struct nbody_setup *setup, size_t count, const double *mass,
                                 const double (*at)[3], double (*acceleration)[3], double *potential)
{
    for (size_t i = 0; i < count; i++) {
        potential[i] = acceleration[i][0] = acceleration[i][1] = acceleration[i][2] = 0;
        for (size_t j = 0; j < count; j++) {
            double away[3], r2 = 0, force, well;
            for (int d = 0; d < 3; d++) {
                away[d] = at[j][d] - at[i][d];
                r2 += away[d] * away[d];
            }
            if (j == i)
                continue;
            oracle_law(setup, sqrt(r2), &force, &well);
            potential[i] += setup->g * mass[j] * well;
            for (int d = 0; d < 3; d++)
                acceleration[i][d] += setup->g * mass[j] * force * away[d];
        }
    }
}

/* Ewald's sum of the periodic images of a unit mass at `away`, unsoftened, less 1 / r of the nearest: a potential of
 * mean 0. Box of side 1. */
static inline void oracle_ewald(const double away[3], bool self, double force[3], double *potential)
{
    enum { IMAGES = 3, WAVES = 6 };
    const double a = 2.2;
    *potential = M_PI / (a * a) - (self ? -2 * a / sqrt(M_PI) : 0);
    force[0] = force[1] = force[2] = 0;
    for (int x = -IMAGES; x <= IMAGES; x++)
        for (int y = -IMAGES; y <= IMAGES; y++)
            for (int z = -IMAGES; z <= IMAGES; z++) {
                const double v[3] = {away[0] + x, away[1] + y, away[2] + z};
                const double r = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
                if (self && x == 0 && y == 0 && z == 0)
                    continue;
                const double w = erfc(a * r) + 2 * a * r / sqrt(M_PI) * exp(-a * a * r * r);
                *potential -= erfc(a * r) / r;
                for (int d = 0; d < 3; d++)
                    force[d] += w * v[d] / (r * r * r);
            }
    for (int x = -WAVES; x <= WAVES; x++)
        for (int y = -WAVES; y <= WAVES; y++)
            for (int z = -WAVES; z <= WAVES; z++) {
                const int k2 = x * x + y * y + z * z;
                if (k2 == 0)
                    continue;
                const double phase = 2 * M_PI * (x * away[0] + y * away[1] + z * away[2]);
                const double weight = exp(-M_PI * M_PI * k2 / (a * a)) / (M_PI * k2);
                *potential -= weight * cos(phase);
                const int k[3] = {x, y, z};
                for (int d = 0; d < 3; d++)
                    force[d] += 2 * M_PI * k[d] * weight * sin(phase);
            }
}

/* All pairs of a periodic box: Ewald's sum, with the nearest image's 1 / r softened. */
static inline void oracle_periodic(const struct nbody_setup *setup, size_t count, const double *mass,
                                   const double (*at)[3], double (*acceleration)[3], double *potential)
{
    const double box = setup->box;
    for (size_t i = 0; i < count; i++) {
        potential[i] = acceleration[i][0] = acceleration[i][1] = acceleration[i][2] = 0;
        for (size_t j = 0; j < count; j++) {
            double away[3], force[3], well, r2 = 0, soft_force, soft_well;
            for (int d = 0; d < 3; d++) {
                away[d] = (at[j][d] - at[i][d]) / box;
                away[d] -= rint(away[d]);
                r2 += away[d] * away[d];
            }
            oracle_ewald(away, i == j, force, &well);
            const double r = sqrt(r2), unit = setup->g * mass[j] / box;
            potential[i] += unit * well;
            for (int d = 0; d < 3; d++)
                acceleration[i][d] += unit / box * force[d];
            if (i == j)
                continue;
            oracle_law(setup, r * box, &soft_force, &soft_well);
            potential[i] += setup->g * mass[j] * (soft_well + 1 / (r * box));
            for (int d = 0; d < 3; d++)
                acceleration[i][d] +=
                    setup->g * mass[j] * away[d] * box * (soft_force - 1 / (r * r * r * box * box * box));
        }
    }
}

#endif
