/* /v1/login: exchange a token for a cookie (POST), ask who is logged in (GET), log out (DELETE). */
#include "daemon/http/http_check.h"
#include "daemon/http/routes.h"
#include "daemon/http/sessions.h"

#include "daemon/base/clock.h"

#include <stdio.h>
#include <string.h>

/* The document of a sender. `end`: of the session, clock_seconds(); 0: no session. */
static json_t *identity_pack(const struct request *request, double end)
{
    char time[CLOCK_TEXT];
    if (end > 0)
        clock_print(clock_milliseconds() + (int64_t)(1000 * (end - clock_seconds())), time);
    return json_pack("{s:b, s:s, s:s, s:o}", "tokens", tokens_wanted(request->service->tokens), "role",
                     role_name(request->identity.role), "client", request->identity.client, "expires",
                     end > 0 ? json_string(time) : json_null());
}

/* The header that sets the cookie; `value` "" removes it. SameSite=Strict: browsers do not send it with requests of
 * other sites' pages. */
static void cookie_print(const struct request *request, const char *value, char text[COOKIE_TEXT])
{
    bool secure = request->service->tls;
    snprintf(text, COOKIE_TEXT, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d%s", session_cookie(secure), value,
             *value ? SESSION_SECONDS : 0, secure ? "; Secure" : "");
}

int route_login(struct request *request)
{
    struct service *service = request->service;
    unsigned char hash[TOKEN_HASH];
    char id[SESSION_TEXT], before[SESSION_TEXT], cookie[COOKIE_TEXT];
    const char *authorization = http_header(request, "Authorization");
    if (!tokens_wanted(service->tokens))
        return http_answer_json(request, 200, identity_pack(request, 0), NULL);
    if (!authorization)
        return err_set(ERR_UNAUTHORIZED, "A login needs a token: send the header Authorization: Bearer TOKEN.");
    double now = clock_seconds();
    int rc = tokens_hash(authorization, hash);
    if (!rc)
        rc = sessions_open(service->sessions, hash, now, id);
    if (rc)
        return rc;
    /* End the session that the browser had before, which an attacker may have planted. */
    if (cookie_find(http_header(request, "Cookie"), session_cookie(service->tls), before, sizeof before) == 1)
        sessions_close(service->sessions, before);
    cookie_print(request, id, cookie);
    const char *const headers[] = {"Set-Cookie", cookie, NULL};
    return http_answer_json(request, 200, identity_pack(request, now + SESSION_SECONDS), headers);
}

int route_login_show(struct request *request)
{
    return http_answer_json(request, 200, identity_pack(request, request->session_end), NULL);
}

int route_logout(struct request *request)
{
    char cookie[COOKIE_TEXT];
    const char *headers[] = {NULL, NULL, NULL};
    if (*request->session) {
        sessions_close(request->service->sessions, request->session);
        waiters_wake(request->service->core.waiters, FEED_KEY); /* its streams find the session ended, and end */
        cookie_print(request, "", cookie);
        headers[0] = "Set-Cookie";
        headers[1] = cookie;
    }
    return http_answer(request, 204, "", strdup(""), headers);
}
