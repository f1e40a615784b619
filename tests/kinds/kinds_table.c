/* The kinds of job of the programs in build/kinds: those of the product, and one for the tests. */
#include "recon/mri/recon_kind.h"
#include "tests/kinds/histogram/histogram.h"

const struct kind *const kinds[] = {&recon_kind, &histogram_kind, NULL};
