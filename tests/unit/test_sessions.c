/* daemon/http/sessions.h: the owner of a session, its end, the limits of sessions and of attempts; and cookies. */
#include "daemon/http/http_fields.h"
#include "daemon/http/sessions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fixture {
    char path[64];
    struct tokens *tokens;
    struct sessions *sessions;
    unsigned char hash[2][TOKEN_HASH]; /* of the tokens of clients "one" and "two" */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    strcpy(f->path, "/tmp/mrirecond-sessions-XXXXXX");
    close(mkstemp(f->path));
    for (int i = 0; i < 2; i++) {
        char token[TOKEN_TEXT], header[TOKEN_TEXT + 8];
        if (token_add(f->path, i ? "two" : "one", i ? ROLE_VIEW : ROLE_SUBMIT, token))
            return -1;
        snprintf(header, sizeof header, "Bearer %s", token);
        if (tokens_hash(header, f->hash[i]))
            return -1;
    }
    return tokens_create(&f->tokens, f->path) || sessions_create(&f->sessions, f->tokens);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sessions_free(f->sessions);
    tokens_free(f->tokens);
    unlink(f->path);
    free(f);
    return 0;
}

static void a_session_identifies_its_client_until_it_ends(void **state)
{
    struct fixture *f = *state;
    char id[SESSION_TEXT], other[SESSION_TEXT];
    struct identity who;
    double end;
    assert_int_equal(sessions_open(f->sessions, f->hash[0], 100, id), 0);
    assert_int_equal(sessions_open(f->sessions, f->hash[1], 200, other), 0);
    assert_string_not_equal(id, other);
    assert_int_equal(sessions_identify(f->sessions, id, 100, &who, &end), 0);
    assert_true(who.role == ROLE_SUBMIT && strcmp(who.client, "one") == 0 && end == 100 + SESSION_SECONDS);
    assert_int_equal(sessions_identify(f->sessions, other, 300, &who, &end), 0);
    assert_string_equal(who.client, "two");
    assert_int_equal(sessions_count(f->sessions, 300), 2);
    assert_int_equal(sessions_identify(f->sessions, id, 99.9 + SESSION_SECONDS, &who, &end), 0);
    assert_int_equal(sessions_identify(f->sessions, id, 100 + SESSION_SECONDS, &who, &end), ERR_UNAUTHORIZED);
    assert_int_equal(who.role, ROLE_NOBODY);
    assert_int_equal(sessions_count(f->sessions, 150 + SESSION_SECONDS), 1);
    sessions_close(f->sessions, other);
    sessions_close(f->sessions, other);
    assert_int_equal(sessions_identify(f->sessions, other, 300, &who, &end), ERR_UNAUTHORIZED);
    static const char *const none[] = {"", "x", "0000000000000000000000000000000000000000000000000000000000000000"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(sessions_identify(f->sessions, none[i], 300, &who, &end), ERR_UNAUTHORIZED);
}

static void a_removed_token_ends_its_sessions(void **state)
{
    struct fixture *f = *state;
    char id[SESSION_TEXT];
    struct identity who;
    double end;
    int count;
    assert_int_equal(sessions_open(f->sessions, f->hash[0], 100, id), 0);
    assert_int_equal(truncate(f->path, 0), 0);
    assert_int_equal(tokens_reload(f->tokens, &count), 0);
    assert_int_equal(sessions_identify(f->sessions, id, 100, &who, &end), ERR_UNAUTHORIZED);
}

static void the_number_of_sessions_is_limited_and_the_oldest_ends(void **state)
{
    struct fixture *f = *state;
    static char ids[SESSIONS_MOST + 1][SESSION_TEXT];
    unsigned char hash[TOKEN_HASH] = {0};
    char lone[SESSION_TEXT];
    struct identity who;
    double end;
    assert_int_equal(sessions_open(f->sessions, f->hash[1], 1, lone), 0);
    for (int i = 0; i <= SESSIONS_TOKEN; i++)
        assert_int_equal(sessions_open(f->sessions, f->hash[0], 2 + i, ids[i]), 0);
    assert_int_equal(sessions_count(f->sessions, 100), SESSIONS_TOKEN + 1);
    assert_int_equal(sessions_identify(f->sessions, ids[0], 100, &who, &end), ERR_UNAUTHORIZED);
    assert_int_equal(sessions_identify(f->sessions, ids[1], 100, &who, &end), 0);
    assert_int_equal(sessions_identify(f->sessions, lone, 100, &who, &end), 0); /* another token's session stays */
    for (int i = 0; i < SESSIONS_MOST; i++) {
        hash[0] = (unsigned char)(i / SESSIONS_TOKEN + 1); /* sessions of many tokens */
        assert_int_equal(sessions_open(f->sessions, hash, 200 + i, ids[i]), 0);
    }
    assert_int_equal(sessions_count(f->sessions, 300), SESSIONS_MOST);
    assert_int_equal(sessions_identify(f->sessions, lone, 300, &who, &end), ERR_UNAUTHORIZED);
}

static void failures_of_an_address_are_counted_for_a_minute(void **state)
{
    struct fixture *f = *state;
    unsigned char address[LOGIN_ADDRESS] = {1}, other[LOGIN_ADDRESS] = {2};
    for (int i = 0; i < LOGIN_FAILURES; i++) {
        assert_int_equal(sessions_may_try(f->sessions, address, 100 + i), 0);
        sessions_failed(f->sessions, address, 100 + i);
    }
    assert_int_equal(sessions_may_try(f->sessions, address, 110), ERR_QUOTA);
    assert_int_equal(sessions_may_try(f->sessions, other, 110), 0);
    assert_int_equal(sessions_may_try(f->sessions, address, 99 + LOGIN_SECONDS), ERR_QUOTA);
    assert_int_equal(sessions_may_try(f->sessions, address, 100 + LOGIN_SECONDS), 0);
    /* More addresses than the table holds: the oldest entry is dropped, without any other effect. */
    for (int i = 0; i <= LOGIN_ADDRESSES; i++) {
        memcpy(address + 4, &i, sizeof i);
        for (int j = 0; j < LOGIN_FAILURES; j++)
            sessions_failed(f->sessions, address, 1000 + i * 1e-3);
    }
    assert_int_equal(sessions_may_try(f->sessions, address, 1001), ERR_QUOTA);
    memset(address + 4, 0, sizeof(int));
    assert_int_equal(sessions_may_try(f->sessions, address, 1001), 0);
}

static void a_cookie_is_found_by_its_whole_name(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int count;
        const char *value;
    } cases[] = {
        {NULL, 0, ""},         {"", 0, ""},
        {"m=1", 1, "1"},       {"a=b; m=1", 1, "1"},
        {"m=1;", 1, "1"},      {"xm=1", 0, ""},
        {"mx=1", 0, ""},       {"m", 0, ""},
        {"m=", 1, ""},         {"m=1; m=2", 2, ""},
        {"a=m=1", 0, ""},      {" ;; m=1 ", 1, "1"},
        {"m=12345678", 1, ""}, {"m=1234567", 1, "1234567"},
        {"M=1", 0, ""},        {"m =1", 0, ""},
        {"m=1 2", 1, "1"},
    };
    char value[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cookie_find(cases[i].header, "m", value, sizeof value), cases[i].count);
        assert_string_equal(value, cases[i].value);
    }
}

#define WITH_SESSIONS(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SESSIONS(a_session_identifies_its_client_until_it_ends),
        WITH_SESSIONS(a_removed_token_ends_its_sessions),
        WITH_SESSIONS(the_number_of_sessions_is_limited_and_the_oldest_ends),
        WITH_SESSIONS(failures_of_an_address_are_counted_for_a_minute),
        cmocka_unit_test(a_cookie_is_found_by_its_whole_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
