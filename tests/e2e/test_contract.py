#!/usr/bin/python3
"""docs/openapi.yaml against the tables in the code, and the running daemon against docs/openapi.yaml: every path and
method, with random and hostile values; only declared answers may come back.
"""
import http.client
import json
import os
import random
import re
import string
import tempfile
import urllib.parse
import urllib.request

import scans
from contract import DOCUMENT, check_answer, complaints, operations, read, resolve
from guarded import Guarded
from harness import SLOW, Daemon, holding, main, same, test
from openapi_kinds import schema_name, schemas_of, steps_of, written

HOSTILE = ["", " ", "0", "-1", "1e999", "9" * 30, "null", "true", "../..", "..%2f..", "%00", "%", "%zz", "a" * 2000,
           "\u00e9", "\u202e", "'; DROP TABLE job;--",
           "<script>", "${jndi:x}", "recon", "image", "image.png", "png", "queued", "01m7yheza283fkx9ma8t456e4x", "*",
           "bytes=0-", "\"x\"", "1.0.0", "wait=1",
           "sha1 AAAA", "sha-256=:AAAA:", "application/json", "application/offset+octet-stream", "Bearer x"]
@test("the routes of the code are those of the document")
def routes():
    coded = {(re.sub(r"\*", "{}", path), method.lower()) for method,
             path in re.findall(r'\{"([A-Z]+)", "([^"]+)"', read("daemon/http/routes.c"))}
    told = {(re.sub(r"\{\w+\}", "{}", path), method) for path, method, _, _ in operations()}
    same(told - coded, set(), "told and not there")
    same(coded - told, set(), "there and not told")
    for path, method, operation, parameters in operations():
        assert operation.get("summary"), f"{method} {path} has no summary"
        given = {resolve(p)["name"] for p in parameters if resolve(p)["in"] == "path"}
        same(given, set(re.findall(r"\{(\w+)\}", path)), f"path parameters of {path}")


@test("the codes of failures are those of the code")
def codes():
    coded = [code for code in re.findall(r'X\(\w+, \d+, "([a-z-]+)"', read("gridding/base/err.h"))]
    same(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"], coded, "codes")


@test("the parameters are those of the kinds, with their types, ranges, choices and defaults")
def parameters(daemon):
    kinds = daemon.get("/v1/kinds").expect(200).json()["kinds"]
    schemas = DOCUMENT["components"]["schemas"]
    names = [schema_name(kind) for kind in kinds]
    same([part["$ref"] for part in schemas["Parameters"]["anyOf"]], [f"#/components/schemas/{name}" for name in names],
         "kinds of the document")
    for kind, name in zip(kinds, names):
        same(schemas[name]["properties"], schemas_of(kind), f"parameters of kind {kind['name']}")
    document = read("docs/openapi.yaml")
    assert written(document, kinds) == document, "make openapi would change the kinds; see git diff"


@test("the steps are those of the kinds, in their order, and a running job reports these steps")
def steps(daemon):
    schema = DOCUMENT["components"]["schemas"]["Step"]
    kinds = daemon.get("/v1/kinds").json()["kinds"]
    same(schema["properties"]["name"]["enum"], steps_of(kinds), "steps")
    told = [step["name"] for step in kinds[0]["steps"]]
    seen, name = [], ""
    with Daemon(devices="cpu", environment=holding()) as slow, slow.held("density") as go_on:
        identity = slow.submit(scans.slow().bytes(slow.state), scans.SLOW_QUERY).expect(202).json()["id"]
        events = urllib.request.urlopen(f"{slow.url}/v1/jobs/{identity}/events", timeout=SLOW)
        iterations = [0]
        while len(iterations) < 4:
            line = events.readline().decode()
            assert line, f"the stream ended after {seen}"
            name = line.split()[1] if line.startswith("event:") else name
            if line.startswith("data:"):
                data = json.loads(line[5:])
                found = complaints({"$ref": f"#/components/schemas/{'Job' if name == 'state' else 'Progress'}"}, data,
                                   name)
                assert not found, found
                seen += [data["step"]] if data["step"] else []
                if seen and (seen[-1]["iteration"] or 0) > iterations[-1]:
                    iterations.append(seen[-1]["iteration"])
                    if len(iterations) < 4:
                        go_on()
        slow.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
        events.close()
    for step in seen:
        same(told[step["number"] - 1], step["name"], f"name of the step at its number in {step}")


def value(rng, parameter=None):
    """A random value of a parameter, valid by the document or not."""
    schema = resolve((parameter or {}).get("schema", {}))
    if parameter and rng.random() < (0.8 if parameter.get("required") else 0.4):
        if "enum" in schema:
            return str(rng.choice(schema["enum"]))
        if schema.get("type") == "integer":
            return str(rng.choice([schema.get("minimum", 0), schema.get("maximum", 5), 5]))
        for known in ("example", "default"):
            if known in schema:
                return str(schema[known])
    if rng.random() < 0.6:
        return rng.choice(HOSTILE)
    return "".join(rng.choice(string.printable) for _ in range(rng.randrange(40)))


def header_safe(text):
    return "".join(c for c in text if c.isprintable() and ord(c) < 256)


@test("random values on every path and method: only declared answers come back, and the daemon survives")
def hostile(daemon):
    rng = random.Random(20261121)
    body = scans.radial(seed=3).bytes(daemon.state)
    asked = dropped = 0
    seen = set()
    for path, method, operation, parameters in operations():
        if path == "/v1/events":  # it does not end: test_feed.py
            continue
        known = daemon.run(body)["id"]
        for _ in range(120 if method == "patch" else 40):
            if "uploads/" in path:
                known = daemon.request("POST", "/v1/uploads",
                                       headers={"Tus-Resumable": "1.0.0", "Upload-Length": "5"}).expect(201)
                known = known.headers["location"].rsplit("/", 1)[1]
            target, query, headers = path, [], {}
            for parameter in map(resolve, parameters):
                text = known if parameter["name"] == "id" and rng.random() < 0.7 else value(rng, parameter)
                if parameter["in"] == "path":
                    target = target.replace("{" + parameter["name"] + "}", urllib.parse.quote(text, safe="%*"))
                elif rng.random() < 0.3 and parameter["in"] == "query":
                    # Any parameter of the kind.
                    name = "tolerance" if parameter["name"] == "parameters" else parameter["name"]
                    query.append((name if rng.random() < 0.9 else value(rng), text if rng.random() < 0.5
                                  or name != "tolerance" else "1e-4"))
                elif parameter["in"] == "header" and rng.random() < (0.9 if parameter.get("required") else 0.5):
                    headers[parameter["name"]] = header_safe(text)
            if query:
                target += "?" + urllib.parse.urlencode(query)
            if method == "patch":
                headers["Content-Type"] = rng.choice(["application/offset+octet-stream",
                                                      "application/offset+octet-stream", "text/plain"])
            sent = rng.choice([None, None, b"", b"12345", b"garbage", body[:1000],
                               body]) if method in ("post", "patch", "put") else None
            asked += 1
            try:
                answer = daemon.request(method.upper(), target, sent, headers, timeout=120)
            except (http.client.HTTPException, ConnectionError):
                dropped += 1  # a request that is no HTTP is answered by closing the connection
                continue
            seen.add((path, method, answer.status))
            if target.split("?")[0].count("/") == path.count("/"):
                check_answer(path, method, operation, answer)
            else:
                assert answer.status < 500, f"{method} {target}: {answer.status}"
    daemon.get("/livez").expect(200)
    assert dropped < asked / 10, f"{dropped} of {asked} requests got no answer"
    for path, method, status in (("/v1/uploads", "post", 201), ("/v1/uploads/{id}", "patch", 204),
                                 ("/v1/uploads/{id}", "delete", 204),
                                 ("/v1/jobs", "post", 202), ("/v1/jobs/{id}", "delete", 204),
                                 ("/v1/jobs/{id}", "get", 200)):
        assert (path, method, status) in seen, f"{method} {path} never gave {status}: the test covers too little"


@test("every path refuses strangers, lesser roles, other clients and other sites' pages as declared")
def refusals():
    with Guarded() as daemon:
        body = scans.radial().bytes(daemon.state)
        theirs = daemon.as_("other", "POST", "/v1/jobs?kind=recon", body).expect(202).json()["id"]
        upload = daemon.as_("other", "POST", "/v1/uploads", Tus_Resumable="1.0.0",
                            Upload_Length="5").expect(201).headers["location"].rsplit("/", 1)[1]
        daemon.ended(theirs)
        headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "5", "Upload-Offset": "0",
                   "Content-Type": "application/offset+octet-stream"}
        for path, method, operation, _ in operations():
            # Test_web_files.py, test_feed.py, test_login.py.
            if path.startswith("/ui") or path in ("/v1/events", "/v1/login"):
                continue
            open_to_all = path in ("/livez", "/readyz",
                                   "/healthz") or path.startswith("/v2/health") or method == "options"
            target = path.replace("{id}", upload if "uploads" in path
                                  else theirs).replace("{name}", "image") + ("?older=0" if path == "/v1/jobs"
                                                                             and method == "delete" else "")
            changes = method in ("post", "patch", "delete")
            administrative = "{destination}" in path
            for who, more, status in ((None, {}, 401), ("read", {}, 403 if changes else 404),
                                      ("submit", {}, 403 if administrative else 404),
                                      ("admin", {"Origin": "https://evil.example"}, 403)):
                answer = daemon.as_(who, method.upper(), target, b"12345" if method in ("post", "patch") else None,
                                    **headers, **more)
                check_answer(path, method, operation, answer)
                if open_to_all:
                    same(answer.status, 204 if method == "options" else 200, f"status of {path} for {who}")
                elif status == 401 or (status == 403 and changes) or (status == 404 and "{id}" in path):
                    same(answer.status, status, f"status of {method} {path} for {who} with {more}")
        daemon.as_("other", "GET", f"/v1/jobs/{theirs}").expect(200)
        daemon.as_("other", "HEAD", f"/v1/uploads/{upload}", Tus_Resumable="1.0.0").expect(200)


@test("successful responses conform to the document")
def straight(daemon):
    job = daemon.submit(scans.radial().bytes(daemon.state), Idempotency_Key="straight",
                        Accept="multipart/mixed").expect(202).json()["id"]
    daemon.finish(job)
    for path, method, operation, _ in operations():
        if method != "get" or "events" in path or "uploads" in path:
            continue
        answer = daemon.get(path.replace("{id}", job).replace("{name}", "image").replace("{file}", "index.html") +
                            ("?key=straight" if path == "/v1/streams" else ""))
        same(answer.status, 303 if path == "/ui" else 200, f"status of {path}")
        check_answer(path, method, operation, answer)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as page:
        with open(os.path.join(page, "index.html"), "w") as file:
            file.write("<!doctype html>")
        main(lambda: Daemon(devices="cpu", wait_limit=2, web_dir=page))
