/* The kinds of job: one row each. */
#include "recon/mri/recon_kind.h"

const struct kind *const kinds[] = {&recon_kind, NULL};
