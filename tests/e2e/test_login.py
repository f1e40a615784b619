#!/usr/bin/python3
"""Logins of browsers: the cookie, roles, forged requests, ends of sessions, planted cookies, guesses, streams, TLS."""
import http.client
import json
import os
import signal
import ssl
import subprocess
import tempfile

import scans
from contract import OPERATIONS, check_answer
from guarded import Guarded, new_token
from harness import Daemon, Response, main, raw, same, status_of, test, wait_until
from streams import Stream

FORM = {"X-Requested-With": "mrirecond"}


def login(daemon, who, **headers):
    """Log in, and return the cookie as a browser sends it back."""
    answer = daemon.as_(who, "POST", "/v1/login", **headers).expect(200)
    check_answer("/v1/login", "post", OPERATIONS["/v1/login", "post"], answer)
    return answer.headers["set-cookie"].split(";")[0]


def ask(daemon, cookie, method, path, body=None, **headers):
    return daemon.request(method, path, body,
                          {"Cookie": cookie, **{name.replace("_", "-"): value for name, value in headers.items()}})


@test("a token becomes a cookie that scripts cannot read and other sites cannot send; it identifies the client")
def cookie(daemon):
    answer = daemon.as_("submit", "POST", "/v1/login").expect(200, "application/json")
    value, *attributes = answer.headers["set-cookie"].split("; ")
    name, identity = value.split("=")
    same((name, len(identity), set(attributes)),
         ("mrirecond", 64, {"Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"}), "the cookie")
    assert daemon.token["submit"][4:] not in answer.headers["set-cookie"], "the cookie is the token"
    document = answer.json()
    same({name: document[name] for name in ("tokens", "role", "client")},
         {"tokens": True, "role": "submit", "client": "mri1"})
    assert document["expires"], document
    shown = ask(daemon, value, "GET", "/v1/login").expect(200)
    check_answer("/v1/login", "get", OPERATIONS["/v1/login", "get"], shown)
    same(shown.json()["client"], "mri1", "whose session it is")
    same(daemon.as_("view", "GET", "/v1/login").json()["expires"], None, "end of a token that is no session")
    daemon.get("/v1/login").problem(401, "unauthorized")
    daemon.request("POST", "/v1/login").problem(401, "unauthorized")
    ask(daemon, value, "POST", "/v1/login", **FORM).problem(401, "unauthorized")  # using a session does not prolong it
    same(daemon.as_("submit", "POST", "/v1/login", Origin="https://evil.example").problem(403, "forbidden")["code"],
         "forbidden")
    assert "mrirecond_sessions " in daemon.as_("admin", "GET", "/metrics").body.decode()


@test("a session has exactly its token's permissions")
def roles(daemon):
    body = scans.radial().bytes(daemon.state)
    theirs = daemon.job_of("other")
    daemon.ended(theirs)
    mine = ask(daemon, login(daemon, "submit"), "POST", "/v1/jobs", body, **FORM).expect(202).json()["id"]
    daemon.ended(mine)
    for who, sees, changes in (("read", False, 403), ("submit", False, 404), ("view", True, 403), ("other", True, 204),
                               ("admin", True, None)):
        cookie = login(daemon, who)
        same(ask(daemon, cookie, "GET", f"/v1/jobs/{theirs}").status, 200 if sees else 404, f"another's job for {who}")
        if changes:
            unknown = mine[:-1] + ("1" if mine[-1] == "0" else "0")
            target = theirs if who == "other" else daemon.job_of("other") if changes != 404 else unknown
            if changes != 404:
                daemon.ended(target)
            same(ask(daemon, cookie, "DELETE", f"/v1/jobs/{target}", **FORM).status, changes,
                 f"DELETE of {target} by {who} (own: {mine})")
        theirs = daemon.job_of("other") if who == "other" else theirs
    same(ask(daemon, login(daemon, "read"), "POST", "/v1/jobs", body, **FORM).problem(403, "forbidden")["code"],
         "forbidden")


@test("a change with the cookie needs the header, and must come from the service's own page")
def forged(daemon):
    cookie, body = login(daemon, "admin"), scans.radial().bytes(daemon.state)
    own = f"http://localhost:{daemon.port}"

    def jobs():
        return [job["id"] for job in daemon.as_("admin", "GET", "/v1/jobs?fields=id&limit=500").json()["jobs"]]
    before = jobs()
    for method, path in (("POST", "/v1/jobs"), ("DELETE", "/v1/jobs?older=0"), ("POST", "/v1/uploads"),
                         ("DELETE", "/v1/login"), ("POST", "/v1/jobs/x/cancel")):
        for headers in ({}, {"X-Requested-With": ""}, {**FORM, "Sec-Fetch-Site": "cross-site"},
                        {**FORM, "Sec-Fetch-Site": "same-site"},
                        {**FORM, "Sec-Fetch-Site": "none"}, {**FORM, "Origin": "null"},
                        {**FORM, "Origin": "https://evil.example"},
                        {"Sec-Fetch-Site": "same-origin", "Origin": own, "Host": f"localhost:{daemon.port}"}):
            ask(daemon, cookie, method, path, body if path == "/v1/jobs" else None, **headers).problem(403, "forbidden")
    same(jobs(), before, "jobs after changes that were refused")
    ask(daemon, cookie, "POST", "/v1/jobs", body, **FORM, Sec_Fetch_Site="same-origin", Origin=own,
        Host=f"localhost:{daemon.port}").expect(202)
    ask(daemon, cookie, "GET", "/v1/jobs", Sec_Fetch_Site="none").expect(200)
    # A token in the header cannot come from another site's page, so none of this is needed.
    daemon.as_("admin", "POST", "/v1/jobs", body).expect(202)


@test("a session ends with its logout, its token and the service, and no client chooses its id")
def ends():
    with Guarded() as daemon:
        first, second = login(daemon, "submit"), login(daemon, "submit")
        assert first != second, "two logins have the same id"
        out = ask(daemon, first, "DELETE", "/v1/login", **FORM).expect(204)
        check_answer("/v1/login", "delete", OPERATIONS["/v1/login", "delete"], out)
        assert "Max-Age=0" in out.headers["set-cookie"], out.headers
        ask(daemon, first, "GET", "/v1/jobs").problem(401, "unauthorized")
        ask(daemon, second, "GET", "/v1/jobs").expect(200)
        # A planted cookie is not a session, and the session whose cookie a login carries ends.
        planted = "mrirecond=" + "ab" * 32
        ask(daemon, planted, "GET", "/v1/jobs").problem(401, "unauthorized")
        fresh = login(daemon, "submit", Cookie=planted)
        assert fresh != planted, "the planted id became a session"
        ask(daemon, planted, "GET", "/v1/jobs").problem(401, "unauthorized")
        third = login(daemon, "submit", Cookie=second)
        ask(daemon, second, "GET", "/v1/jobs").problem(401, "unauthorized")
        for bad in (f"{third}; {planted}", f"{planted}; {third}", f"{third}; {third}", "mrirecond=", "mrirecond",
                    third + "0", third[:-1], third.upper(),
                    f"x{third}", "mrirecond =x", "mrirecond=" + "a" * 5000, ";;;=", third.replace("=", "=\"") + "\""):
            ask(daemon, bad, "GET", "/v1/jobs").problem(401, "unauthorized")
        for good in (f"a=b; {third}", f"{third};c", f"; ;{third} ; mrirecondx=1", f"xmrirecond=1; {third}"):
            ask(daemon, good, "GET", "/v1/jobs").expect(200)
        two = (f"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\nCookie: {third}\r\n"
               "Connection: close\r\n\r\n")
        same(status_of(raw(daemon, two.encode())), 400, "two Cookie headers")
        # A removed token ends its sessions and their streams; another session's role follows its line.
        view = login(daemon, "view")
        stream = Stream(daemon, "/v1/events", Cookie=third)
        same(stream.status, 200)
        events = stream.events()
        next(events)
        with open(daemon.tokens) as file:
            lines = file.readlines()
        with open(daemon.tokens, "w") as file:
            file.writelines(line.replace("watch view", "watch read") for line in lines
                            if not line.startswith("mri1 submit"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 4 tokens" in daemon.read_log(), "the reload")
        ask(daemon, third, "GET", "/v1/jobs").problem(401, "unauthorized")
        same(ask(daemon, view, "GET", "/v1/login").json()["role"], "read", "the role after the reload")
        daemon.as_("other", "POST", "/v1/jobs", b"no scan").expect(202)
        same(list(events), [], "events after the token went")
        stream.close()
        # A logout ends the session's streams.
        other = login(daemon, "other")
        stream = Stream(daemon, "/v1/events", Cookie=other)
        events = stream.events()
        next(events)
        ask(daemon, other, "DELETE", "/v1/login", **FORM).expect(204)
        assert all(name != "reset" for name, _, _ in events), "the stream continues"
        stream.close()
        last = login(daemon, "other")
        daemon.kill()
        daemon.restart()
        ask(daemon, last, "GET", "/v1/jobs").problem(401, "unauthorized")


@test("a token has at most 64 sessions, of which the oldest ends")
def many():
    with Guarded() as daemon:
        first, *others = [login(daemon, "read") for _ in range(65)]
        admin = login(daemon, "admin")
        ask(daemon, first, "GET", "/v1/jobs").problem(401, "unauthorized")
        for cookie in (others[0], others[-1], admin):
            ask(daemon, cookie, "GET", "/v1/jobs").expect(200)
        assert "\nmrirecond_sessions 65\n" in daemon.as_("admin", "GET", "/metrics").body.decode()


@test("after ten unknown tokens an address is refused; other addresses, and tokens in headers, are not")
def guesses():
    with Guarded() as daemon:
        def attempt(source, token):
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, source_address=(source, 0), timeout=120)
            connection.request("POST", "/v1/login", headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            answer = Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
            connection.close()
            return answer
        for i in range(10):
            attempt("127.0.0.2", f"mrt_{i:064x}").problem(401, "unauthorized")
        refused = attempt("127.0.0.2", daemon.token["admin"])
        check_answer("/v1/login", "post", OPERATIONS["/v1/login", "post"], refused)
        same(refused.problem(429, "client-quota")["code"], "client-quota")
        attempt("127.0.0.3", daemon.token["admin"]).expect(200)
        daemon.as_("admin", "GET", "/v1/jobs").expect(200)
        # A line is written after its answer was sent.
        wait_until(lambda: "client=boss role=admin peer=127.0.0.3 POST /v1/login 200" in daemon.read_log(),
                   "the login in the audit log")
        wait_until(lambda: daemon.read_log().count("POST /v1/login 401") >= 10, "failures in the audit log")
        same(daemon.read_log().count("POST /v1/login 401"), 10, "failures in the audit log")


@test("with TLS the cookie is Secure, and bound to the host by its name")
def tls():
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/crt", f"{folder}/key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "60", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", certificate, "-keyout", key],
                       check=True, capture_output=True)
        context = ssl.create_default_context(cafile=certificate)

        class Secure(Daemon):
            def request(self, method, path, body=None, headers=None, timeout=120):
                connection = http.client.HTTPSConnection("localhost", self.port, context=context, timeout=timeout)
                connection.request(method, path, body, headers or {})
                response = connection.getresponse()
                answer = Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
                connection.close()
                return answer
        tokens = os.path.join(folder, "tokens")
        token = new_token(tokens, "mri1", "submit")
        with Secure(devices="cpu", tokens=tokens, tls_certificate=certificate, tls_key=key) as daemon:
            answer = daemon.request("POST", "/v1/login", headers={"Authorization": f"Bearer {token}"}).expect(200)
            value, *attributes = answer.headers["set-cookie"].split("; ")
            assert value.startswith("__Host-mrirecond=") and "Secure" in attributes, answer.headers["set-cookie"]
            daemon.request("GET", "/v1/jobs", headers={"Cookie": value}).expect(200)
            # A cookie that another host of the domain could set is not accepted.
            daemon.request("GET", "/v1/jobs",
                           headers={"Cookie": value.removeprefix("__Host-")}).problem(401, "unauthorized")


@test("a service without tokens needs no login, and says so")
def without():
    with Daemon(devices="cpu") as daemon:
        for method in ("POST", "GET"):
            answer = daemon.request(method, "/v1/login").expect(200)
            same(json.loads(answer.body), {"tokens": False, "role": "admin", "client": "", "expires": None})
            assert "set-cookie" not in answer.headers, answer.headers
        same(daemon.request("DELETE", "/v1/login").expect(204).body, b"")


if __name__ == "__main__":
    main(Guarded)
