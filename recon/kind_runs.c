/* The running halves of the kinds: one row each. Links their engines, so only programs that run jobs use this. */
#include "recon/kind_run.h"

#include "recon/blob/blob_kind.h"
#include "recon/cutcp/cutcp_kind.h"
#include "recon/mri/recon_kind.h"
#include "recon/nbody/nbody.h"

const struct kind_run *const kind_runs[] = {&recon_kind_run, &cutcp_kind_run, &blob_kind_run, &nbody_kind_run, NULL};
