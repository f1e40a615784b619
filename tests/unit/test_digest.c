/* Digests of bodies against known digests (RFC 9530's examples, sha1sum, md5sum). */
#include "daemon/http/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const char body[] = "{\"hello\": \"world\"}\n"; /* RFC 9530, appendix D */

static bool content_is(const char *header, const char *text)
{
    struct digest digest;
    assert_int_equal(digest_begin_content(&digest, header), 0);
    /* In two pieces. */
    digest_add(&digest, text, strlen(text) / 2);
    digest_add(&digest, text + strlen(text) / 2, strlen(text) - strlen(text) / 2);
    return digest_end(&digest);
}

static void test_content(void **state)
{
    (void)state;
    static const char good[] = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
    static const char strong[] = "sha-256=:AAAA0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:, "
                                 "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCs"
                                 "yRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:";
    assert_true(content_is(good, body));
    assert_false(content_is(good, "{\"hello\": \"World\"}\n"));
    assert_true(content_is(strong, body));                        /* the strongest algorithm counts */
    assert_true(content_is("unixsum=30637, adler=:AAAA:", body)); /* unknown ones are ignored */
    assert_true(content_is(NULL, body));
}

static void test_tus(void **state)
{
    (void)state;
    struct digest digest;
    static const char *const good[] = {"sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", "md5 XrY7u+Ae7tCTyyK7j1rNww==",
                                       "sha256 uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(digest_begin_tus(&digest, good[i]), 0);
        digest_add(&digest, "hello world", 11);
        assert_true(digest_end(&digest));
        assert_int_equal(digest_begin_tus(&digest, good[i]), 0);
        digest_add(&digest, "hello worle", 11);
        assert_false(digest_end(&digest));
    }
    assert_int_equal(digest_begin_tus(&digest, NULL), 0);
    assert_true(digest_end(&digest));
}

static void test_malformed(void **state)
{
    (void)state;
    struct digest digest;
    static const char *const content[] = {"sha-256=RK/0qy18", "sha-256=::", "sha-256=:AAAA:", "sha-256=:%%%%:",
                                          "sha-512=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"};
    static const char *const tus[] = {
        "", " ", "sha1", "sha1 ", "sha3 AAAA", "sha1 AAAA", "sha Kq5sNclPz7QV2+lfQIuc6R7oRu0="};
    for (size_t i = 0; i < sizeof content / sizeof *content; i++) {
        assert_int_equal(digest_begin_content(&digest, content[i]), ERR_BAD_REQUEST);
        assert_null(digest.state);
    }
    for (size_t i = 0; i < sizeof tus / sizeof *tus; i++) {
        assert_int_equal(digest_begin_tus(&digest, tus[i]), ERR_BAD_REQUEST);
        assert_null(digest.state);
    }
}

static void test_given_up(void **state)
{
    (void)state;
    struct digest digest;
    assert_int_equal(digest_begin_tus(&digest, "sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0="), 0);
    digest_free(&digest);
    digest_free(&digest);
    assert_true(digest_end(&digest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_tus),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
