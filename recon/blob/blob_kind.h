/* blob_kind.h: kind "blob", molecules to their density and its surface: its rows in the tables of kinds. */
#ifndef MRIRECON_BLOB_KIND_H
#define MRIRECON_BLOB_KIND_H

#include "recon/recon.h"

extern const struct kind blob_kind;         /* recon/blob/blob_kind.c */
extern const struct kind_run blob_kind_run; /* recon/blob/blob_run.c */

#endif
