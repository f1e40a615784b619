#include "daemon/http/http_check.h"

#include "daemon/base/clock.h"

#include <string.h>
#include <strings.h>

/* The connection's memory is larger, so clients meet these limits first. */
enum { URI_MOST = 16 << 10, HEAD_MOST = 64 << 10, HEADERS_MOST = 200 };

/* Properties of all headers of a request. */
struct head {
    int headers, lengths, codings, hosts, cookies;
    bool chunked;
    bool named;       /* each name is a token */
    bool plain;       /* no value has a control character */
    const char *next; /* start of the next line if all lines so far adjoin; NULL: one does not */
};

static bool value_is_plain(const char *value)
{
    for (; *value; value++)
        if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f)
            return false;
    return true;
}

/* The library leaves the head in its buffer, with a 0 in place of each colon, CR and LF. Lines that it continued
 * (folding: it copies name and value elsewhere), that end in LF alone, or that contain a byte 0, which ends the value
 * for the library, do not adjoin. One case remains: a 0 before an LF looks like a CR. */
static void adjacent_check(struct head *head, const char *name, size_t name_bytes, const char *value,
                           size_t value_bytes)
{
    const char *from = head->next == name ? name + name_bytes + 1 : NULL;
    while (from && (*from == ' ' || *from == '\t'))
        from++;
    head->next = from && from == value ? value + value_bytes + 2 : NULL;
}

static enum MHD_Result header_count(void *context, enum MHD_ValueKind kind, const char *name, size_t name_bytes,
                                    const char *value, size_t value_bytes)
{
    struct head *head = context;
    (void)kind;
    head->headers++;
    head->named &= token_is_clean(name);
    head->plain &= !value || value_is_plain(value);
    adjacent_check(head, name, name_bytes, value, value_bytes);
    head->lengths += strcasecmp(name, "Content-Length") == 0;
    head->hosts += strcasecmp(name, "Host") == 0;
    head->cookies += strcasecmp(name, "Cookie") == 0;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        head->codings++;
        head->chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

/* Read the headers. Each line of the head must follow the one before it, and an empty line the last one. */
static int request_head_read(const struct request *request, const char *version, struct head *head)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    bool first_line = version == request->sent + strlen(request->uri) + 1;
    *head = (struct head){.named = true, .plain = true, .next = first_line ? version + strlen(version) + 2 : NULL};
    MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, header_count, head);
    if (!head->next || !info || head->next + 2 != request->method + info->header_size)
        return err_set(ERR_BAD_REQUEST, "The request's head has a header that continues on the next line, a line that "
                                        "does not end in CR LF, or a NUL byte. Send each header in one line.");
    if (!head->plain)
        return err_set(ERR_BAD_REQUEST, "A header's value has a control character.");
    return 0;
}

/* If a body's length is announced twice, a proxy in front may believe the other announcement; the bytes between the
 * two ends would be another client's request. */
static int framing_check(const struct head *head, bool first_version)
{
    if (!head->named)
        return err_set(ERR_BAD_REQUEST,
                       "A header has no name, or a name with invalid characters, such as a space before the colon.");
    if (head->lengths + head->codings > 1)
        return err_set(
            ERR_BAD_REQUEST,
            "The length of the body is given more than once. Send one Content-Length, or Transfer-Encoding: chunked.");
    if (head->codings && !head->chunked)
        return err_set(ERR_BAD_REQUEST,
                       "The only supported Transfer-Encoding is chunked. Send that, or a Content-Length.");
    if (head->codings && first_version)
        return err_set(ERR_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding. Send a Content-Length, or use HTTP/1.1.");
    return 0;
}

static int size_check(struct request *request, const struct head *head)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (strlen(request->uri) > URI_MOST)
        return err_set(ERR_URI_TOO_LONG, "The request's path and query are longer than %d bytes.", URI_MOST);
    if (head->headers > HEADERS_MOST || (info && info->header_size > HEAD_MOST))
        return err_set(ERR_HEADERS_TOO_LARGE, "A request may have at most %d headers, of at most %d bytes together.",
                       HEADERS_MOST, HEAD_MOST);
    return 0;
}

int request_head_check(struct request *request, const char *version)
{
    struct head head;
    bool first_version = strcmp(version, "HTTP/1.0") == 0;
    int rc = request_head_read(request, version, &head);
    if (!rc)
        rc = framing_check(&head, first_version);
    if (!rc)
        rc = size_check(request, &head);
    if (!rc && (head.hosts > 1 || (head.hosts == 0 && !first_version)))
        rc = err_set(ERR_BAD_REQUEST, "A request must have one Host header; this one has %d.", head.hosts);
    if (!rc && head.cookies > 1)
        rc = err_set(ERR_BAD_REQUEST, "A request may have one Cookie header; this one has %d.", head.cookies);
    if (!rc)
        rc = target_split(request->uri, &request->host, &request->target, &request->query);
    if (!rc && !request->host)
        request->host = http_header(request, "Host");
    return rc;
}

/* DNS rebinding: a page of another site can make a browser send requests to a service on the user's machine, by a name
 * that it resolves there; the Host header then has that name. Health is no secret, and probes use addresses. */
int request_host_check(const struct request *request)
{
    const struct service *service = request->service;
    if (request->route->access == ROLE_NOBODY ||
        host_is_known(request->host, service->core.options->host_names, service->local))
        return 0;
    return err_set(ERR_MISDIRECTED,
                   "This service is not known as \"%.64s\". Use localhost, or add the name to the option host-names.",
                   request->host ? request->host : "");
}

/* Cross-site requests: a page of another site cannot read the answer, but its POST is sent and takes effect. Browsers
 * say which site the page is from (Origin). */
int request_origin_check(struct request *request)
{
    const char *origin = http_header(request, "Origin");
    bool changes = request->route->access >= ROLE_SUBMIT || (request->route->flags & ROUTE_LOGIN);
    if (!changes || !origin || origin_is_host(origin, request->host))
        return 0;
    return err_set(ERR_FORBIDDEN, "The browser sent this for a page of another site, \"%.64s\". Nothing was done.",
                   origin);
}

int request_surplus_check(const struct request *request)
{
    if (request->route && (request->route->flags & ROUTE_HEALTH))
        return 0;
    return err_set(ERR_CONNECTIONS,
                   "Your address, or all clients together, have reached the limit of connections, and all of them are "
                   "busy (options connections, address-connections). Try again when one of them has ended.");
}

int request_query_check(const struct request *request)
{
    const char *query = request->query;
    char name[HTTP_NAME], value[HTTP_VALUE];
    bool found = false;
    int rc = query_check(query);
    if (!rc && !(request->route->flags & ROUTE_QUERY))
        rc = query_next(&query, name, value, &found);
    if (!rc && found)
        rc = err_set(ERR_UNKNOWN_PARAMETER, "This path takes no parameters, but \"%.64s\" was given.", name);
    return rc;
}

/* Of a request that is identified by a cookie, which a browser sends by itself, and that changes something: it has a
 * header which another site's page can only send if this service allows it to (CORS), and the browser does not say that
 * it is another site's. */
static int forgery_check(struct request *request)
{
    const char *own = http_header(request, "X-Requested-With"), *site = http_header(request, "Sec-Fetch-Site");
    const char *origin = http_header(request, "Origin");
    if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0)
        return 0;
    if (!own || !*own)
        return err_set(ERR_FORBIDDEN, "A change with a login's cookie needs the header X-Requested-With: mrirecond. "
                                      "Nothing was done.");
    if ((site && strcmp(site, "same-origin") != 0) || (origin && !origin_is_host(origin, request->host)))
        return err_set(ERR_FORBIDDEN, "The browser sent this for a page of another site. Nothing was done.");
    return 0;
}

/* Identify the sender by the cookie of its login. */
static int cookie_identify(struct request *request)
{
    struct service *service = request->service;
    char id[SESSION_TEXT];
    int count = cookie_find(http_header(request, "Cookie"), session_cookie(service->tls), id, sizeof id);
    if (count == 0)
        return tokens_identify(service->tokens, NULL, &request->identity);
    if (count > 1)
        return err_set(ERR_UNAUTHORIZED,
                       "The browser sent %d cookies of a login; one of them was planted. Clear the "
                       "cookies of this host, and log in again.",
                       count);
    int rc = sessions_identify(service->sessions, id, clock_seconds(), &request->identity, &request->session_end);
    if (rc)
        return rc;
    memcpy(request->session, id, sizeof id);
    return forgery_check(request);
}

/* Identify the sender by its token. A login that fails is counted. */
static int token_identify(struct request *request)
{
    struct service *service = request->service;
    const char *authorization = http_header(request, "Authorization");
    bool login = (request->route->flags & ROUTE_LOGIN) && authorization && tokens_wanted(service->tokens);
    int rc = login ? sessions_may_try(service->sessions, request->watch->address, clock_seconds()) : 0;
    if (rc)
        return rc;
    rc = tokens_identify(service->tokens, authorization, &request->identity);
    if (rc == ERR_UNAUTHORIZED && login)
        sessions_failed(service->sessions, request->watch->address, clock_seconds());
    return rc;
}

int request_access_check(struct request *request)
{
    enum role wanted = request->route->access;
    if (wanted == ROLE_NOBODY)
        return 0;
    bool cookie = tokens_wanted(request->service->tokens) && !http_header(request, "Authorization");
    int rc = cookie ? cookie_identify(request) : token_identify(request);
    if (!rc && request->identity.role < wanted)
        rc = err_set(ERR_FORBIDDEN, "This requires a token with the role %s; yours has the role %s.", role_name(wanted),
                     role_name(request->identity.role));
    return rc;
}
