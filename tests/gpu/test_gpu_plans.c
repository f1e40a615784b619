/* Random NUFFT plans on a GPU, in two and three dimensions, with both kernels: no error exceeds the plan's estimate.
 * Prints TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_plans [PLANS [SEED [all]]]   500 by default; the worst one is printed, or all */
#include "tests/gpu/tap.h"
#include "tests/plans.h"

#include <string.h>

int main(int argc, char **argv)
{
    const struct plan_search search = {
        .plans = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 500,
        .seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 4711,
        .most_samples = 60000,
        .least_scale = 1e-30,
        .all = argc > 3 && strcmp(argv[3], "all") == 0,
    };
    struct dev *gpu = tap_gpu();
    double worst;
    char name[100], why[100];
    const int beyond = plans_try(gpu, &search, &worst);
    must(beyond < 0, "a plan at random");
    snprintf(name, sizeof name, "the errors of %d random plans are within their estimates", search.plans);
    snprintf(why, sizeof why, "%d are not, the worst by a factor of %.2f", beyond, worst);
    verdict(beyond == 0, name, why);
    dev_free(gpu);
    return tap_end();
}
