/* gridding/base/err.h: error messages. */
#include "gridding/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

/* The result of err_set() for quoted text. */
static const char *quoted(const char *text)
{
    assert_int_equal(err_set(ERR_BAD_REQUEST, "%s", text), ERR_BAD_REQUEST);
    return err_last()->text;
}

static void readable_text_is_unchanged(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "plain ~", "\xc3\xa9", "\xc2\xa0", "\xe2\x82\xac", "\xe2\x80\x9c", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_string_equal(quoted(good[i]), good[i]);
}

static void control_characters_are_replaced(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"a\nb\tc\x7f", "a?b?c?"},    /* control characters */
        {"\x1b[31m", "?[31m"},        /* one that terminals act on */
        {"\xc2\x85", "??"},           /* and one of the second set */
        {"\xff\xfe", "??"},           /* never valid in UTF-8 */
        {"\xc0\xaf", "??"},           /* an overlong encoding */
        {"\xe0\x82\x80", "???"},      /* another */
        {"\xf0\x82\x82\xac", "????"}, /* and another */
        {"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond the last code point */
        {"\xe2\x80\xae", "???"},      /* reverses text (right-to-left override) */
        {"\xd8\x9c", "??"},           /* Arabic letter mark */
        {"\xef\xbb\xbf", "???"},      /* byte order mark */
        {"x\xe2\x82", "x??"},         /* cut inside a character */
        {"\xe2\x82"
         "\xc3\xa9",
         "??\xc3\xa9"}, /* cut before another character */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(quoted(bad[i][0]), bad[i][1]);
}

static void a_truncated_sentence_ends_with_a_whole_character(void **state)
{
    (void)state;
    char text[sizeof err_last()->text + 1];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 3, "\xc3\xa9", 3);
    const char *last = quoted(text) + sizeof text - 3;
    assert_string_equal(last, "?");
}

static void copies_and_prefixes_replace_the_same_characters(void **state)
{
    (void)state;
    struct err failure = {.code = ERR_IO, .text = "one\ntwo"};
    assert_int_equal(err_restore(&failure), ERR_IO);
    assert_string_equal(err_last()->text, "one?two");
    assert_int_equal(err_prefix("a\rb: "), ERR_IO);
    assert_string_equal(err_last()->text, "a?b: one?two");
}

static void no_memory_has_one_wording(void **state)
{
    (void)state;
    assert_int_equal(err_no_memory("a plan"), ERR_NO_MEMORY);
    assert_string_equal(err_last()->text, "Not enough memory for a plan.");
    assert_int_equal(err_last()->required, -1);
    assert_int_equal(err_no_memory_bytes(4096, "the bins of %d\nsamples", 12), ERR_NO_MEMORY);
    assert_string_equal(err_last()->text, "Not enough memory for the bins of 12?samples.");
    assert_int_equal(err_last()->required, 4096);
    assert_int_equal(err_last()->available, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readable_text_is_unchanged),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(a_truncated_sentence_ends_with_a_whole_character),
        cmocka_unit_test(copies_and_prefixes_replace_the_same_characters),
        cmocka_unit_test(no_memory_has_one_wording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
