/* Plans of the NUFFT on a GPU at random, in two and three dimensions, with both kernels: none errs by more than it
 * expects. Prints TAP; skips everything, loudly, where there is no GPU.
 *
 *   test_gpu_plans [PLANS [SEED]]   500 by default; the worst one is told */
#include "tests/gpu/tap.h"
#include "tests/plans.h"

int main(int argc, char **argv)
{
    const int plans = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 500;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 4711;
    struct dev *gpu = tap_gpu();
    double worst;
    char name[100], why[100];
    const int beyond = plans_try(gpu, plans, seed, 60000, 1e-30, &worst);
    must(beyond < 0, "a plan at random");
    snprintf(name, sizeof name, "%d plans at random err by what they expect at most", plans);
    snprintf(why, sizeof why, "%d do not, the worst by %.2f times as much", beyond, worst);
    verdict(beyond == 0, name, why);
    dev_free(gpu);
    return tap_end();
}
