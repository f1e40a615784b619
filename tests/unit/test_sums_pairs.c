/* Sums over pairs of points on the CPU (gridding/range/sums.h): pairs_cases.h. */
#include "tests/unit/pairs_cases.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_sums),
        cmocka_unit_test(pair_counts),
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(one_pass_equals_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
