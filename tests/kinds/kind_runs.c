/* The table of how the kinds of job in build/kinds are run. */
#include "recon/kind_run.h"

#include "recon/mri/recon_kind.h"
#include "tests/kinds/histogram/histogram.h"

const struct kind_run *const kind_runs[] = {&recon_kind_run, &histogram_kind_run, NULL};
