/* daemon/http/http_fields.h: parsing Accept-Encoding (RFC 9110, 12.5.3). */
#include "daemon/http/http_fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void a_coding_has_the_weight_of_its_element(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int gzip, br;
    } cases[] = {
        {NULL, 0, 0},
        {"", 0, 0},
        {"gzip", 1000, 0},
        {"GZip , br", 1000, 1000},
        {"gzip;q=0.5,br;q=0.25", 500, 250},
        {"gzip ; q=0.123", 123, 0},
        {"gzip;Q=1.000", 1000, 0},
        {"gzip;q=1.5", 1000, 0}, /* weights above 1 are 1 */
        {"*;q=0.3", 300, 300},
        {"*, gzip;q=0", 0, 1000},
        {"gzip;q=0, *", 0, 1000},
        {"x-gzip, gzipp", 0, 0},
        {"gzip;q", 0, 0},
        {"gzip;q=", 0, 0},
        {"gzip;q=,br", 0, 1000},
        {"gzip;x=1", 0, 0},
        {",,;,=;q=1", 0, 0},
        {"gzip;q=0.", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(coding_quality(cases[i].header, "gzip"), cases[i].gzip);
        assert_int_equal(coding_quality(cases[i].header, "br"), cases[i].br);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coding_has_the_weight_of_its_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
