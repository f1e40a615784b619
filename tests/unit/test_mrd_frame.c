/* recon/scan/mrd_frame.h: every message is passed on once and in order, in whatever pieces it arrives; anything that is
 * not a message ends the stream; lengths from outside are counted but never allocated. */
#include "recon/scan/mrd_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void put(uint8_t *at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(number >> 8 * i);
}

/* One message of each number, with its length in bytes; the last is CLOSE. */
static size_t all_messages(uint8_t *to, size_t lengths[16], int *count)
{
    static const unsigned numbers[] = {1, 2, 3, 5, 6, 7, 1008, 1022, 1026, 4};
    size_t used = 0;
    *count = sizeof numbers / sizeof *numbers;
    for (int i = 0; i < *count; i++) {
        const int head = mrd_head_bytes(numbers[i]);
        uint8_t *at = to + used + 2;
        memset(at - 2, 0, 2 + 340);
        put(at - 2, numbers[i], 2);
        size_t body = 7;
        if (numbers[i] == 2 || numbers[i] == 3 || numbers[i] == 5) {
            put(at, body, 4);
        } else if (numbers[i] == 6 || numbers[i] == 7) {
            put(at + (numbers[i] == 6 ? 16 : 8), body, 8);
        } else if (numbers[i] == 1) {
            body = 1024;
        } else if (numbers[i] == 1008) {
            put(at + 34, 5, 2);
            put(at + 38, 3, 2);
            put(at + 176, 2, 2);
            body = 5 * (2 * 4 + 3 * 8);
        } else if (numbers[i] == 1022) {
            put(at + 2, 7, 2); /* complex64 */
            for (int d = 0; d < 3; d++)
                put(at + 16 + 2 * d, (uint64_t)d + 2, 2);
            put(at + 34, 2, 2);
            put(at + 198, 11, 8);
            body = 8 * 2 * 3 * 4 * 2 + 11;
        } else if (numbers[i] == 1026) {
            put(at + 28, 4, 2);
            put(at + 30, 3, 2);
            body = 4 * 4 * 3;
        } else {
            body = 0;
        }
        memset(at + head, 0x5a, body);
        lengths[i] = 2 + (size_t)head + body;
        used += lengths[i];
    }
    return used;
}

/* Feed the stream in pieces of `piece` bytes: the output must equal the input, split at the ends of its messages. */
static void fed_in_pieces_of(size_t piece)
{
    static uint8_t stream[8192], seen[8192];
    size_t lengths[16], of_message = 0, out = 0;
    int count, ended = 0;
    const size_t bytes = all_messages(stream, lengths, &count);
    struct mrd_frame frame = {0};
    for (size_t at = 0; at < bytes; at += piece) {
        const uint8_t *from = stream + at, *end = stream + (at + piece < bytes ? at + piece : bytes);
        for (struct mrd_part part;;) {
            assert_int_equal(mrd_frame_next(&frame, &from, end, &part), 0);
            if (!part.count)
                break;
            assert_true(part.first == (of_message == 0));
            memcpy(seen + out, part.bytes, part.count);
            out += part.count;
            of_message += part.count;
            if (part.last) {
                assert_int_equal(of_message, lengths[ended]);
                of_message = 0;
                ended++;
            }
        }
        assert_ptr_equal(from, end);
    }
    assert_int_equal(ended, count);
    assert_int_equal(frame.number, MRD_CLOSE);
    assert_int_equal(out, bytes);
    assert_int_equal(frame.at, bytes);
    assert_memory_equal(seen, stream, bytes);
    assert_true(mrd_frame_is_between(&frame));
}

static void messages_arrive_in_any_pieces(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 600; piece++)
        fed_in_pieces_of(piece);
    fed_in_pieces_of(8192);
}

static void an_unknown_number_ends_the_stream(void **state)
{
    (void)state;
    const uint8_t stream[] = {4, 0, 0x67, 0x12};
    const uint8_t *from = stream;
    struct mrd_frame frame = {0};
    struct mrd_part part;
    assert_int_equal(mrd_frame_next(&frame, &from, stream + sizeof stream, &part), 0);
    assert_true(part.last && part.count == 2);
    assert_int_equal(mrd_frame_next(&frame, &from, stream + sizeof stream, &part), ERR_MALFORMED_FILE);
    assert_non_null(strstr(err_last()->text, "4711"));
    assert_non_null(strstr(err_last()->text, "byte 2"));
}

/* The largest lengths that a message header can state neither overflow nor end before that many bytes have arrived. */
static void lengths_of_64_bits_are_only_counted(void **state)
{
    (void)state;
    uint8_t head[2 + 340];
    struct mrd_part part;
    static const struct {
        unsigned number;
        uint64_t body;
    } cases[] = {
        {MRD_HEADER, UINT32_MAX},   {MRD_QUERY, UINT64_MAX},
        {MRD_RESPONSE, UINT64_MAX}, {MRD_ACQUISITION, 65535ULL * 12 * 65535},
        {MRD_IMAGE, UINT64_MAX},    {MRD_WAVEFORM, 4ULL * 65535 * 65535},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mrd_frame frame = {0};
        const size_t bytes = 2 + (size_t)mrd_head_bytes(cases[i].number);
        memset(head, 0xff, sizeof head);
        put(head, cases[i].number, 2);
        if (cases[i].number == MRD_IMAGE)
            put(head + 2 + 2, 8, 2);
        const uint8_t *from = head;
        assert_int_equal(mrd_frame_next(&frame, &from, head + bytes, &part), 0);
        assert_true(part.first && !part.last && part.count == bytes);
        assert_true(frame.left == cases[i].body);
        assert_false(mrd_frame_is_between(&frame));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_any_pieces),
        cmocka_unit_test(an_unknown_number_ends_the_stream),
        cmocka_unit_test(lengths_of_64_bits_are_only_counted),
    };
    return cmocka_run_group_tests_name("mrd_frame", tests, NULL, NULL);
}
