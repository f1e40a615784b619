/* Which connection is closed to make room for a new one: loopback sockets, one per connection, without HTTP. */
#include "daemon/http/connections.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct pair {
    int client, server;
    struct connection_watch watch;
};

static struct sockaddr_in loopback(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void pair_open(struct pair *pair, struct connections *connections)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(pair, 0, sizeof *pair);
    assert_true(listener >= 0);
    assert_return_code(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_return_code(listen(listener, 1), 0);
    assert_return_code(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    pair->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(pair->client >= 0);
    assert_return_code(connect(pair->client, (const struct sockaddr *)&address, sizeof address), 0);
    pair->server = accept(listener, NULL, NULL);
    assert_true(pair->server >= 0);
    close(listener);
    connection_watch(connections, &pair->watch, pair->server, (const struct sockaddr *)&address);
}

static void pair_close(struct pair *pair, struct connections *connections)
{
    connection_forget(connections, &pair->watch);
    close(pair->server);
    close(pair->client);
}

/* Send a request's bytes, and wait until they have arrived. */
static void say(const struct pair *pair, const char *text)
{
    char byte;
    assert_int_equal(send(pair->client, text, strlen(text), 0), strlen(text));
    assert_int_equal(recv(pair->server, &byte, 1, MSG_PEEK), 1);
}

/* Read a whole request, as the HTTP library does. */
static void hear(const struct pair *pair, const char *text)
{
    char heard[64];
    say(pair, text);
    assert_int_equal(recv(pair->server, heard, strlen(text), MSG_WAITALL), strlen(text));
}

/* A connection that was answered sends part of its next request before or after the library reports the answer as sent;
 * then one more connection arrives than is allowed. `closed`: whether the first is closed. */
static void one_more(bool before, bool after, bool closed)
{
    const struct connection_limits limits = {.header_seconds = 600, .all = 1, .address = 1};
    struct connections *connections;
    struct pair first, second;
    assert_int_equal(connections_create(&connections, &limits), 0);
    pair_open(&first, connections);
    assert_false(first.watch.surplus);
    hear(&first, "GET / HTTP/1.1\r\n\r\n");
    connection_enter(&first.watch, CONNECTION_BODY);
    connection_enter(&first.watch, CONNECTION_ANSWER);
    if (before)
        say(&first, "GET ");
    connection_enter(&first.watch, CONNECTION_ANSWER); /* as after work in a pool thread */
    connection_enter(&first.watch, CONNECTION_IDLE);
    if (after)
        say(&first, "/next ");
    pair_open(&second, connections);
    assert_int_equal(second.watch.surplus, !closed);
    assert_int_equal(first.watch.closing, closed);
    pair_close(&second, connections);
    pair_close(&first, connections);
    connections_free(connections);
}

static void an_idle_connection_makes_room(void **state)
{
    (void)state;
    one_more(false, false, true);
}

static void a_connection_with_a_next_request_stays(void **state)
{
    (void)state;
    one_more(false, true, false);
}

static void a_next_request_before_the_end_of_the_answer_counts(void **state)
{
    (void)state;
    one_more(true, false, false);
}

/* A request that is refused before its body arrived: bytes of that body must not be taken for the next request. */
static void refused_early(void **state)
{
    const struct connection_limits limits = {.header_seconds = 600, .all = 1, .address = 1};
    struct connections *connections;
    struct pair first, second;
    (void)state;
    assert_int_equal(connections_create(&connections, &limits), 0);
    pair_open(&first, connections);
    hear(&first, "POST / HTTP/1.1\r\n\r\n");
    connection_enter(&first.watch, CONNECTION_BODY);
    hear(&first, "some of the body");
    connection_enter(&first.watch, CONNECTION_IDLE);
    pair_open(&second, connections);
    assert_false(second.watch.surplus);
    assert_true(first.watch.closing);
    pair_close(&second, connections);
    pair_close(&first, connections);
    connections_free(connections);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_connection_makes_room),
        cmocka_unit_test(a_connection_with_a_next_request_stays),
        cmocka_unit_test(a_next_request_before_the_end_of_the_answer_counts),
        cmocka_unit_test(refused_early),
    };
    return cmocka_run_group_tests_name("connections", tests, NULL, NULL);
}
