/* daemon/http/idempotency.h: claims, the syntax of keys, and the digest against the vectors of FIPS 180-2. */
#include "daemon/http/idempotency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    struct idempotency_keys *keys;
    int result = idempotency_keys_create(&keys);
    *state = keys;
    return result;
}

static int teardown(void **state)
{
    idempotency_keys_free(*state);
    return 0;
}

static void a_key_is_claimed_once_by_a_client(void **state)
{
    struct idempotency_keys *keys = *state;
    struct idempotency first, second, other, last;
    assert_int_equal(idempotency_begin(&first, keys, "a", "k"), 0);
    assert_int_equal(idempotency_begin(&second, keys, "a", "k"), ERR_KEY_IN_USE);
    assert_int_equal(idempotency_begin(&second, keys, "a", "\"k\""), ERR_KEY_IN_USE); /* with quotes */
    assert_int_equal(idempotency_begin(&other, keys, "b", "k"), 0);
    assert_int_equal(idempotency_begin(&last, keys, "a", "l"), 0);
    idempotency_end(&second); /* it holds no claim */
    idempotency_end(&other);  /* from the middle of the list */
    idempotency_end(&first);
    idempotency_end(&first); /* a second call is harmless */
    assert_int_equal(idempotency_begin(&second, keys, "a", "k"), 0);
    assert_int_equal(idempotency_begin(&first, keys, "a", "l"), ERR_KEY_IN_USE);
    idempotency_end(&last);
    idempotency_end(&second);
}

static void an_upload_is_found_by_its_key_while_it_is_in_progress(void **state)
{
    struct idempotency first, other;
    char id[JOB_ID] = "x";
    assert_int_equal(idempotency_begin(&first, *state, "a", "k"), 0);
    assert_int_equal(idempotency_begin(&other, *state, "b", "k"), 0);
    assert_false(idempotency_find(*state, "a", "k", id)); /* it has not begun */
    assert_string_equal(id, "");
    idempotency_name(&first, "01m82pkds516mzvffjqjcscwxq");
    idempotency_name(&other, "01m82pkds516mzvffjqjcscwxr");
    assert_true(idempotency_find(*state, "a", "k", id));
    assert_string_equal(id, "01m82pkds516mzvffjqjcscwxq");
    assert_false(idempotency_find(*state, "c", "k", id));
    assert_false(idempotency_find(*state, "a", "l", id));
    idempotency_end(&first);
    assert_false(idempotency_find(*state, "a", "k", id));
    assert_true(idempotency_find(*state, "b", "k", id));
    idempotency_end(&other);
}

static void without_a_header_there_is_no_key(void **state)
{
    struct idempotency first, second;
    assert_int_equal(idempotency_begin(&first, *state, "a", NULL), 0);
    assert_int_equal(idempotency_begin(&second, *state, "a", NULL), 0);
    assert_string_equal(first.key, "");
    idempotency_add(&first, "abc", 3);
    idempotency_end(&first);
    idempotency_end(&second);
}

static void keys_are_visible_ascii(void **state)
{
    char longest[JOB_KEY + 1];
    struct idempotency request;
    const char *const wrong[] = {"", "\"\"", "a b", "a\tb", "a\"b", "a\\b", "caf\xc3\xa9", "\x7f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(idempotency_begin(&request, *state, "a", wrong[i]), ERR_BAD_REQUEST);
    memset(longest, 'k', sizeof longest);
    longest[JOB_KEY] = '\0';
    assert_int_equal(idempotency_begin(&request, *state, "a", longest), ERR_BAD_REQUEST);
    longest[JOB_KEY - 1] = '\0';
    assert_int_equal(idempotency_begin(&request, *state, "a", longest), 0);
    assert_string_equal(request.key, longest);
    idempotency_end(&request);
}

static void the_digest_is_sha_256(void **state)
{
    char digest[JOB_DIGEST];
    struct idempotency request;
    assert_int_equal(idempotency_begin(&request, *state, "a", "k"), 0);
    idempotency_add(&request, "a", 1);
    idempotency_add(&request, "bc", 2);
    idempotency_digest(&request, digest);
    assert_string_equal(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    idempotency_end(&request);
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    assert_int_equal(idempotency_begin(&request, *state, "a", "k"), 0);
    idempotency_add(&request, million, 1000000);
    idempotency_digest(&request, digest);
    assert_string_equal(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    idempotency_end(&request);
    free(million);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_claimed_once_by_a_client),
        cmocka_unit_test(an_upload_is_found_by_its_key_while_it_is_in_progress),
        cmocka_unit_test(without_a_header_there_is_no_key),
        cmocka_unit_test(keys_are_visible_ascii),
        cmocka_unit_test(the_digest_is_sha_256),
    };
    return cmocka_run_group_tests_name("idempotency", tests, setup, teardown);
}
