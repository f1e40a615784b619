/* The kinds of job: one row each. */
#include "recon/blob/blob_kind.h"
#include "recon/cutcp/cutcp_kind.h"
#include "recon/mri/recon_kind.h"
#include "recon/nbody/nbody.h"

const struct kind *const kinds[] = {&recon_kind, &cutcp_kind, &blob_kind, &nbody_kind, NULL};
