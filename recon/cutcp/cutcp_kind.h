/* cutcp_kind.h: kind "cutcp", charges to their potential on a lattice: its rows in the tables of kinds. */
#ifndef MRIRECON_CUTCP_KIND_H
#define MRIRECON_CUTCP_KIND_H

#include "recon/recon.h"

extern const struct kind cutcp_kind;         /* recon/cutcp/cutcp_kind.c */
extern const struct kind_run cutcp_kind_run; /* recon/cutcp/cutcp_run.c; recon/kind_run.h */

#endif
