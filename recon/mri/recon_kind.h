/* recon_kind.h: kind "recon", non-Cartesian MRI k-space to images: its rows in the tables of kinds. */
#ifndef MRIRECON_RECON_KIND_H
#define MRIRECON_RECON_KIND_H

#include "recon/recon.h"

extern const struct kind recon_kind;         /* recon/mri/recon_kind.c */
extern const struct kind_run recon_kind_run; /* recon/mri/recon_kind_run.c */

#endif
