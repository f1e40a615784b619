/* daemon/mrd/mrd_clients.h: the addresses of the option mrd-clients, and the names of their clients. */
#include "daemon/mrd/mrd_clients.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* The client at an address; NULL if it is refused. */
static const char *client_at(const char *list, const char *text)
{
    static char client[JOB_CLIENT];
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v4 = {.sin_family = AF_INET}};
    if (inet_pton(AF_INET, text, &address.v4.sin_addr) != 1) {
        address.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
        assert_int_equal(inet_pton(AF_INET6, text, &address.v6.sin6_addr), 1);
    }
    int rc = mrd_clients_find(list, &address.any, client);
    assert_true(rc == 0 || rc == ERR_FORBIDDEN);
    return rc ? NULL : client;
}

static void with_an_empty_list_clients_are_named_by_address(void **state)
{
    (void)state;
    assert_string_equal(client_at("", "192.0.2.7"), "192.0.2.7");
    assert_string_equal(client_at("", "2001:db8::1"), "2001:db8::1");
    assert_string_equal(client_at("", "::ffff:192.0.2.7"), "192.0.2.7");
}

static void the_first_matching_entry_counts(void **state)
{
    (void)state;
    const char *list = "192.168.2.1=scanner1, 10.1.0.0/16 ,2001:db8::/32=hall,192.168.2.0/31=others";
    assert_int_equal(mrd_clients_check(list), 0);
    assert_string_equal(client_at(list, "192.168.2.1"), "scanner1");
    assert_string_equal(client_at(list, "::ffff:192.168.2.1"), "scanner1");
    assert_string_equal(client_at(list, "192.168.2.0"), "others");
    assert_null(client_at(list, "192.168.2.2"));
    assert_string_equal(client_at(list, "10.1.255.3"), "10.1.255.3");
    assert_null(client_at(list, "10.2.0.0"));
    assert_string_equal(client_at(list, "2001:db8:ffff::9"), "hall");
    assert_null(client_at(list, "2001:db9::"));
    assert_string_equal(client_at("0.0.0.0/0=all", "203.0.113.5"), "all");
    assert_null(client_at("0.0.0.0/0=all", "2001:db8::1"));
}

static void malformed_entries_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"scanner", "192.168.2.1/33", "192.168.2.1/", "1.2.3.4=a b", "1.2.3.4=",
                                      "::1/129", "1.2.3",          "1.2.3.4, =x",  "1.2.3.4/-1",  "1.2.3.4/8x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mrd_clients_check(bad[i]), ERR_BAD_PARAMETER);
        assert_non_null(strstr(err_last()->text, "mrd-clients"));
    }
    assert_int_equal(mrd_clients_check(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_an_empty_list_clients_are_named_by_address),
        cmocka_unit_test(the_first_matching_entry_counts),
        cmocka_unit_test(malformed_entries_are_refused),
    };
    return cmocka_run_group_tests_name("mrd_clients", tests, NULL, NULL);
}
