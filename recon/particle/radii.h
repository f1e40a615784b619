/* radii.h: van der Waals radii of the elements. */
#ifndef MRIRECON_RADII_H
#define MRIRECON_RADII_H

/* The van der Waals radius of an element, angstroms; 0: unknown. Main groups: Mantina et al., Consistent van der Waals
 * radii for the whole main group, doi:10.1021/jp8111556, which has Bondi's (doi:10.1021/j100785a001) where these hold.
 * All others: Alvarez, A cartography of the van der Waals territories, doi:10.1039/c3dt50599e. */
double particle_radius(int number);

#endif
