#!/usr/bin/python3
"""The HTTP interface: routes, job documents, lists, results with ETag and Range, kinds, health and metrics."""
import http.client
import json
import re
import socket
import subprocess
import tempfile
import urllib.parse

import scans
from harness import FINAL, Daemon, check_problem, holding, main, raw, same, status_of, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial()
BODY = SCAN.bytes(FOLDER.name)
RFC3339 = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")


# ---- submitting

@test("a body with two lengths, or an unsupported transfer coding, is refused, and the connection is closed")
def framing(daemon):
    before = len(daemon.get("/v1/jobs?limit=100").json()["jobs"])
    smuggled = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for headers, body in ((b"Content-Length: 3\r\nContent-Length: 5\r\n", b"abcde"),
                          (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
                          (b"Transfer-Encoding: gzip\r\n", b"abc"),
                          (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"3\r\nabc\r\n0\r\n\r\n")):
        answer = raw(daemon, b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + body +
                     smuggled)
        same(status_of(answer), 400, f"status of {headers!r}")
        assert b'"bad-request"' in answer, answer
        same(answer.count(b"HTTP/1.1 "), 1, f"answers to {headers!r}")
    same(len(daemon.get("/v1/jobs?limit=100").json()["jobs"]), before, "jobs")


@test("a compressed body is refused with advice")
def content_encoding(daemon):
    problem = daemon.submit(BODY, Content_Encoding="gzip").problem(415, "unknown-format")
    assert "Content-Encoding gzip" in problem["detail"], problem
    daemon.submit(BODY, Content_Encoding="identity").expect(202)


@test("a scan over a raw socket: 202 with Location, Retry-After and the job's document")
def submit_raw(daemon):
    head = (f"POST /v1/jobs?kind=recon&dcf=given HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n"
            "Connection: close\r\n\r\n").encode()
    with daemon.paused():
        answer = raw(daemon, head, BODY[:100], BODY[100:5000], BODY[5000:])
    same(status_of(answer), 202, "status")
    headers, body = answer.split(b"\r\n\r\n", 1)
    job = json.loads(body)
    assert f"/v1/jobs/{job['id']}".encode() in headers, headers
    assert b"\r\nretry-after:" in headers.lower(), headers
    assert job["state"] not in FINAL, job  # a worker may already have started
    same(daemon.finish(job["id"])["state"], "succeeded", "state at the end")


@test("a scan in chunked transfer encoding")
def submit_chunked(daemon):
    head = (b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: close\r\n\r\n")
    pieces = [BODY[i:i + 3000] for i in range(0, len(BODY), 3000)]
    answer = raw(daemon, head, *(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces), b"0\r\n\r\n")
    same(status_of(answer), 202, "status")
    job = json.loads(re.search(rb"\{.*\}", answer, re.S).group(0))
    same(daemon.finish(job["id"])["state"], "succeeded", "state at the end")


@test("Expect: 100-continue is answered before the body is sent")
def expect_continue(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
        connection.sendall((f"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n"
                            "Expect: 100-continue\r\nConnection: close\r\n\r\n").encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert connection.recv(100).startswith(b"HTTP/1.1 202 ")


@test("a job's document has every documented member")
def document(daemon):
    job = daemon.run(BODY, "kind=recon&dcf=given&tolerance=1e-4")
    same(job["kind"], "recon", "kind")
    same(job["state"], "succeeded", "state")
    same(job["progress"], 1, "progress")
    same(job["error"], None, "error")
    same(str(job["parameters"]["dcf"]), "given", "parameter dcf")
    same(float(job["parameters"]["tolerance"]), 1e-4, "parameter tolerance")
    for member in ("created", "started", "finished"):
        assert RFC3339.match(job[member]), f"{member} is {job[member]!r}"
    assert job["created"] <= job["started"] <= job["finished"], "times are not in order"
    assert "image" in [result["name"] for result in job["results"]], job["results"]
    for result in job["results"]:
        got = daemon.get(result["href"]).expect(200, result["type"])
        same(len(got.body), result["bytes"], "length of the result")
        assert result["bytes"] > 20, result
    report = job["report"]
    stages = report["stages"]
    assert stages and all(isinstance(s, (int, float)) and s >= 0 for s in stages.values()), stages
    assert "device" in report, report
    same(report["samples"], 31 * 48, "samples in the report")
    assert ("weight" in json.dumps(report)
            or "given" in json.dumps(report)), "the report does not say where the weights come from"


@test("Prefer: wait answers with the finished document, or with the image that Accept names")
def prefer_wait(daemon):
    answer = daemon.submit(BODY, "kind=recon", Prefer="wait=60").expect(200, "application/json")
    same(answer.json()["state"], "succeeded", "state")
    for media, magic in (("image/png", b"\x89PNG\r\n\x1a\n"), ("application/x-npy", b"\x93NUMPY"),
                         ("application/x-hdf5", b"\x89HDF\r\n\x1a\n"), ("application/x-nifti", b"\x1f\x8b")):
        answer = daemon.submit(BODY, "kind=recon", Prefer="wait=60", Accept=media).expect(200, media)
        assert answer.body.startswith(magic), answer.body[:20]
    # Of a result; a submission has none.
    for headers in ({"If_None_Match": "*"}, {"If_Match": '"x"'}, {"Range": "bytes=0-0"}):
        answer = daemon.submit(BODY, "kind=recon", Prefer="wait=60", Accept="image/png",
                               **headers).expect(200, "image/png")
        assert len(answer.body) > 20, headers


@test("Prefer: wait, handling=strict: a wait that expires is an error that names the job, which continues")
def prefer_strict(daemon):
    with daemon.paused():
        answer = daemon.submit(BODY, "kind=recon", Prefer="wait=1, handling=strict", Accept="image/png")
        problem = answer.problem(504, "not-done")
        same((answer.headers["preference-applied"], answer.headers["location"]),
             ("wait=1, handling=strict", f"/v1/jobs/{problem['job_id']}"), "headers")
        assert (problem["job_id"] in problem["detail"]
                and daemon.job(problem["job_id"])["state"] in ("queued", "running")), problem
    same(daemon.finish(problem["job_id"])["state"], "succeeded", "state of the job, which goes on")
    daemon.submit(BODY, "kind=recon", Prefer="handling=strict").expect(202)
    daemon.submit(BODY, "kind=recon", Prefer="wait=60, handling=strict", Accept="image/png").expect(200, "image/png")


@test("Prefer: wait that expires answers 202 with the job's current document")
def prefer_short(daemon):
    with daemon.paused():
        job = daemon.submit(BODY, "kind=recon", Prefer="wait=1",
                            Accept="image/png").expect(202, "application/json").json()
        assert job["state"] in ("queued", "running"), job
        daemon.request("POST", f"/v1/jobs/{job['id']}/cancel").expect(202)
    same(daemon.finish(job["id"])["state"], "canceled", "state")


@test("a waiting client gets a failed job as a problem document with the job's id")
def prefer_failure(daemon):
    problem = daemon.submit(SCAN_WITHOUT_WEIGHTS, "kind=recon&dcf=given", Prefer="wait=60",
                            Accept="image/png").problem(422, "dcf-missing")
    assert problem["job_id"], problem
    same(daemon.job(problem["job_id"])["state"], "failed", "state")


SCAN_WITHOUT_WEIGHTS = scans.radial(weights=False).bytes(FOLDER.name)


@test("curl submits and waits")
def by_curl(daemon):
    path = f"{FOLDER.name}/curl.h5"
    SCAN.write(path)
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "--data-binary", f"@{path}", "-H", "Prefer: wait=60",
                           "-H", "Accept: image/png",
                           f"{daemon.url}/v1/jobs?kind=recon"], capture_output=True, timeout=120)
    same(done.returncode, 0, f"curl's exit status ({done.stderr!r})")
    assert done.stdout.startswith(b"\x89PNG"), done.stdout[:100]


# ---- results

@test("results have a strong ETag: 304 for the current one, 412 for an old one")
def etag(daemon):
    path = f"/v1/jobs/{daemon.run(BODY)['id']}/results/image"
    first = daemon.get(path + "?format=npy").expect(200, "application/x-npy")
    tag = first.headers["etag"]
    assert re.match(r'^"[^"]+"$', tag), tag
    same(daemon.get(path + "?format=npy", If_None_Match=f'"other", {tag}').expect(304).body, b"", "body of a 304")
    same(daemon.get(path + "?format=npy", If_None_Match='"other"').expect(200).body, first.body, "body")
    # The length, if it is told, is that of the result; nothing of it follows, so that the next answer is understood.
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
    for headers, status, told in (({"If-None-Match": tag}, 304, b""), ({}, 200, first.body)):
        connection.request("GET", path + "?format=npy", headers=headers)
        answer = connection.getresponse()
        same((answer.status, answer.headers["content-length"], answer.read()), (status, str(len(first.body)), told),
             "status, length and body")
    connection.close()
    # An unchanged result may be kept as long as the cached one.
    for headers in (b"", b"If-None-Match: " + tag.encode() + b"\r\n"):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-npy\r\nConnection: close\r\n"
        answer = raw(daemon, head.encode() + headers + b"\r\n")
        told = sorted(line for line in answer.split(b"\r\n\r\n")[0].lower().split(b"\r\n")
                      if line.startswith((b"cache-control", b"vary", b"etag")))
        same(told, [b"cache-control: private, no-cache", b"etag: " + tag.encode(), b"vary: accept"],
             f"headers of {status_of(answer)}")
    daemon.get(path + "?format=npy", If_Match='"other"').problem(412, "precondition-failed")
    other = daemon.get(path + "?format=png").expect(200, "image/png").headers["etag"]
    assert other != tag, "two formats of an image have the same ETag"
    same(daemon.request("HEAD", path + "?format=npy").expect(200).body, b"", "body of HEAD")
    same(daemon.request("HEAD", path + "?format=npy").headers["content-length"], str(len(first.body)),
         "length told by HEAD")


@test("Range: any part of a result with 206, none outside with 416")
def ranges(daemon):
    path = f"/v1/jobs/{daemon.run(BODY)['id']}/results/image?format=npy"
    whole = daemon.get(path).expect(200)
    size = len(whole.body)
    same(whole.headers.get("accept-ranges"), "bytes", "Accept-Ranges")
    for text, first, last in (("0-0", 0, 0), ("10-99", 10, 99), ("100-", 100, size - 1), ("-7", size - 7, size - 1),
                              (f"5-{size + 1000}", 5, size - 1), (f"-{size * 3}", 0, size - 1)):
        part = daemon.get(path, Range=f"bytes={text}").expect(206)
        same(part.body, whole.body[first:last + 1], f"bytes={text}")
        same(part.headers["content-range"], f"bytes {first}-{last}/{size}", "Content-Range")
    for text in (f"{size}-", f"{size + 5}-{size + 9}", "-0"):
        answer = daemon.get(path, Range=f"bytes={text}")
        answer.problem(416, "range-not-satisfiable")
        same(answer.headers["content-range"], f"bytes */{size}", "Content-Range")
    for text in ("lines=0-3", "bytes=a-b", "bytes=9-3"):  # to be ignored (RFC 9110)
        same(daemon.get(path, Range=text).expect(200).body, whole.body, text)
    for text in ("bytes=0-9", f"bytes={size}-"):  # only a GET has ranges
        head = daemon.request("HEAD", path, headers={"Range": text}).expect(200)
        same((head.headers["content-length"], head.headers.get("content-range")), (str(size), None), f"HEAD of {text}")
    same(daemon.get(path, Range="bytes=0-9", If_Range='"other"').expect(200).body, whole.body,
         "If-Range of another file")
    same(daemon.get(path, Range="bytes=0-9", If_Range=whole.headers["etag"]).expect(206).body, whole.body[:10],
         "If-Range")


@test("a HEAD of a stream is the last answer of its connection: the library ends it with an empty chunk")
def head_of_a_stream(daemon):
    daemon.submit(BODY, Accept="multipart/mixed", Idempotency_Key="head").expect(202)
    for path in ("/v1/streams?key=head", "/v1/events"):
        answer = raw(daemon, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert status_of(answer) == 200 and b"\r\nconnection: close\r\n" in answer.lower(), answer


@test("?format= or Accept selects the format of an image; unknown ones are refused")
def negotiation(daemon):
    path = f"/v1/jobs/{daemon.run(BODY)['id']}/results/image"
    for name, media in (("h5", "application/x-hdf5"), ("nii.gz", "application/x-nifti"), ("png", "image/png"),
                        ("npy", "application/x-npy")):
        by_name = daemon.get(f"{path}?format={name}").expect(200, media)
        same(daemon.get(path, Accept=media).expect(200, media).body, by_name.body, f"{name} by Accept")
        same(daemon.get(path, Accept=f"text/html;q=0.3, {media};q=0.9").expect(200, media).body, by_name.body,
             f"{name} by Accept with q")
    daemon.get(path, Accept="*/*").expect(200, "application/x-hdf5")
    problem = daemon.get(path + "?format=gif")
    assert problem.status in (400, 406), problem.status
    problem.problem(problem.status, problem.json()["code"])
    daemon.get(path, Accept="image/gif").problem(406, "not-acceptable")
    daemon.get(path.replace("image", "nothing")).problem(404, "not-found")


# ---- jobs

@test("the image of an unfinished job is a conflict, of a failed one the job's problem document")
def not_there_yet(daemon):
    with daemon.paused():
        slow = daemon.submit(BODY).expect(202).json()["id"]
        daemon.get(f"/v1/jobs/{slow}/results/image?format=png").problem(409, "conflict")
        daemon.request("DELETE", f"/v1/jobs/{slow}").problem(409, "conflict")
        daemon.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
    daemon.finish(slow)
    failed = daemon.run(SCAN_WITHOUT_WEIGHTS, "kind=recon&dcf=given")
    same(failed["state"], "failed", "state")
    check_problem(failed["error"], "dcf-missing")
    answer = daemon.get(f"/v1/jobs/{failed['id']}/results/image")
    assert answer.status in (404, 409, 422), answer.status
    answer.problem(answer.status, answer.json()["code"])


@test("progress rises from 0 to 1 and names the step while a job runs")
def progress():
    with Daemon(devices="cpu", environment=holding()) as daemon:
        with daemon.held("density") as go_on:
            identity = daemon.submit(scans.slow().bytes(FOLDER.name),
                                     scans.SLOW_QUERY.replace("1000", "150")).expect(202).json()["id"]
            seen = [daemon.job(identity)]

            def look():
                seen.append(daemon.job(identity))
                return seen[-1]["step"] and seen[-1]["step"]["iteration"] or 0  # None for a step without iterations
            first = wait_until(look, "an iteration to be told")
            go_on()
            wait_until(lambda: look() > first, "another one to be told")
        while seen[-1]["state"] in ("queued", "running"):
            look()
        values = [job["progress"] for job in seen]
        assert values == sorted(values) and 0 <= values[0] and values[-1] == 1, values[:50]
        assert len({v for v in values if 0 < v < 1}) >= 2, f"no progress between start and end: {sorted(set(values))}"
        assert ({job["step"]["name"] for job in seen if job["state"] == "running"
                 and job["step"]} >= {"density"}), "the step was never named"


@test("delete removes a finished job, its scan and its images from the disk")
def delete(daemon):
    before = set(daemon.files())
    identity = daemon.run(BODY)["id"]
    daemon.get(f"/v1/jobs/{identity}/results/image?format=nii.gz").expect(200)
    assert daemon.request("DELETE", f"/v1/jobs/{identity}").status in (200, 204)
    for path in ("", "/results/image"):
        daemon.get(f"/v1/jobs/{identity}{path}").problem(404, "not-found")
    daemon.request("DELETE", f"/v1/jobs/{identity}").problem(404, "not-found")
    wait_until(lambda: not {name for name in set(daemon.files()) - before if not name.startswith("jobs.db")},
               "its files to go")


@test("the list: newest first, pages by a cursor, each job exactly once")
def listing(daemon):
    made = [daemon.submit(BODY).expect(202).json()["id"] for _ in range(7)]
    for identity in made:
        daemon.finish(identity)
    seen, cursor, pages = [], None, 0
    while pages < 1000:
        query = "limit=3" + (f"&cursor={urllib.parse.quote(cursor)}" if cursor else "")
        page = daemon.get(f"/v1/jobs?{query}").expect(200, "application/json").json()
        assert len(page["jobs"]) <= 3, "more than the limit"
        seen += page["jobs"]
        pages += 1
        if pages == 2:  # a job that is added meanwhile moves nothing
            daemon.run(BODY)
        cursor = page.get("next")
        if not cursor:
            break
    identities = [job["id"] for job in seen]
    same(len(set(identities)), len(identities), "number of different jobs")
    assert [i for i in identities if i in made] == made[::-1], "not newest first, or some are missing"
    created = [job["created"] for job in seen]
    assert created == sorted(created, reverse=True), "not newest first"
    for query in ("limit=0", "limit=x", "limit=-1", "cursor=nonsense"):
        answer = daemon.get(f"/v1/jobs?{query}")
        answer.problem(400, answer.json()["code"])


@test("a page of jobs has each job's document without the report")
def pages_without_reports(daemon):
    job = daemon.job(daemon.run(scans.radial(seed=8).bytes(daemon.state))["id"])
    listed = next(one for one in daemon.get("/v1/jobs?limit=5").json()["jobs"] if one["id"] == job["id"])
    assert job["report"]["device"], job
    same(listed, {**job, "report": {}}, "the job of the page")


# ---- information about the service

@test("kinds: each parameter with its type, default, range and help")
def kinds(daemon):
    listed = daemon.get("/v1/kinds").expect(200, "application/json").json()["kinds"]
    recon = next(kind for kind in listed if kind["name"] == "recon")
    assert recon["help"], recon
    params = {param["name"]: param for param in recon["parameters"]}
    assert {"method", "dcf", "kernel", "tolerance", "coils", "output", "traj_units"} <= set(params), params
    for param in params.values():
        assert len(param["help"]) > 10 and param["help"][-1] in ".?)" and "default" in param, param
        assert param["type"] in ("choice", "set", "int", "real", "text"), param
    same(set(params["dcf"]["choices"]), {"auto", "given", "none", "analytic", "pipe", "voronoi"}, "choices of dcf")
    same((params["bin_depth"]["choices"], params["bin_depth"]["min"], params["bin_depth"]["default"]),
         (["auto", "none"], 1, "auto"), "bin_depth")
    same((float(params["tolerance"]["min"]), float(params["tolerance"]["max"])), (1e-6, 1e-1), "range of tolerance")
    # Each default is accepted if sent explicitly.
    query = "&".join(f"{name}={urllib.parse.quote(str(param['default']))}" for name, param in params.items())
    same(daemon.run(BODY, "kind=recon&" + query)["state"], "succeeded", "state of a job with every default")


@test("width, oversampling and encoding are auto or a number, everywhere; earlier spellings are accepted")
def auto(daemon):
    params = {param["name"]: param for param in daemon.get("/v1/kinds").json()["kinds"][0]["parameters"]}
    for name, least, most, former in (("width", 2, 10, "0"), ("oversampling", 1.125, 2, "0"),
                                      ("encoding", 0, 63, "-1")):
        same((params[name]["choices"], params[name]["min"], params[name]["max"], params[name]["default"]),
             (["auto"], least, most, "auto"), name)
        for query in ("", f"&{name}=auto", f"&{name}={former}"):
            job = daemon.run(BODY, "kind=recon" + query)
            same((job["state"], job["parameters"][name]), ("succeeded", "auto"), f"job of {query}")
    job = daemon.run(BODY, "kind=recon&width=6&oversampling=1.5&encoding=0&coils=none&output=complex")
    same((job["state"], job["parameters"]["width"], job["parameters"]["oversampling"], job["parameters"]["encoding"]),
         ("succeeded", 6, 1.5, 0), "job of numbers")


@test("health: livez, readyz, readyz?verbose, healthz")
def health(daemon):
    for path in ("/livez", "/readyz", "/healthz"):
        daemon.get(path).expect(200)
    verbose = daemon.get("/readyz?verbose").expect(200).body.decode()
    for word in ("store", "spool", "worker"):
        assert word in verbose, f"/readyz?verbose does not speak of the {word}: {verbose}"
    daemon.get("/readyz?verbose=1").expect(200)
    for path in ("/readyz?verbosexyz", "/readyz?verbose&x=1", "/livez?verbose", "/v1/kinds?x", "/metrics?x=1"):
        daemon.get(path).problem(400, "unknown-parameter")
    assert "cpu" in verbose.lower() or "gpu" in verbose.lower(), f"the device is not named: {verbose}"


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? '
                    r'(-?[0-9.eE+-]+|[+-]Inf|NaN)$')


def check_exposition(text):
    """Prometheus' text format 0.0.4, strictly. Gives {name{labels}: value}."""
    assert text.endswith("\n"), "the last line has no line end"
    types, helps, values, closed, current = {}, set(), {}, set(), None
    for line in text.splitlines():
        assert line == line.strip() and line, f"odd line {line!r}"
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            assert name not in helps and len(words) > 5, line
            helps.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram", "summary"), line
            types[name] = kind
        else:
            found = SAMPLE.match(line)
            assert found, f"not a sample: {line!r}"
            name, labels, value = found.groups()
            family = name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)
            assert family in types and family in helps, f"{name} has no TYPE or HELP before it"
            if family != current:
                assert family not in closed, f"the lines of {family} are not contiguous"
                closed.add(current)
                current = family
            if types[family] == "counter":
                assert family.endswith("_total"), f"the counter {family} does not end in _total"
                assert float(value) >= 0, line
            key = name + (labels or "")
            assert key not in values, f"{key} occurs twice"
            values[key] = float(value)
    for family, kind in types.items():
        if kind != "histogram":
            continue
        series = {}
        for key, value in values.items():
            found = re.match(re.escape(family) + r'_bucket\{(.*?),?le="([^"]+)"(.*)\}$', key)
            if found:
                series.setdefault(found.group(1).strip(",") + found.group(3), []).append((float(found.group(2)), value))
        for labels, buckets in series.items():
            assert (buckets == sorted(buckets)
                    and [b[1] for b in buckets] == sorted(b[1] for b in buckets)), f"{family}: buckets decrease"
            same(buckets[-1][0], float("inf"), f"last bucket of {family}")
            count = f"{family}_count" + (f"{{{labels}}}" if labels else "")
            same(values[count], buckets[-1][1], count)
            assert count.replace("_count", "_sum") in values, f"{family} has no sum"
    return values


@test("metrics are well-formed, and counters count")
def metrics(shared):
    def read(daemon):
        answer = daemon.get("/metrics").expect(200)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4"), answer.headers
        return check_exposition(answer.body.decode())

    def total(values, name):
        return sum(value for key, value in values.items() if re.match(re.escape(name) + r"(\{|$)", key))

    read(shared)
    with Daemon() as daemon:  # of which no earlier job or request is still to be counted
        daemon.run(BODY)
        daemon.run(SCAN_WITHOUT_WEIGHTS, "kind=recon&dcf=given")
        daemon.submit(b"").problem(400, "empty-body")

        def counted():  # counted after the answers were sent
            values = read(daemon)
            late = ("mrirecond_jobs_failed_total", "mrirecond_ingest_rejected_total")
            return values if all(total(values, name) > 0 for name in late) else None
        after = wait_until(counted, "the failed job and the refusal to be counted")
    for name, count in (("mrirecond_jobs_submitted_total", 2), ("mrirecond_jobs_completed_total", 1),
                        ("mrirecond_jobs_failed_total", 1), ("mrirecond_job_duration_seconds_count", 2),
                        ("mrirecond_ingest_rejected_total", 1),
                        ("mrirecond_ingest_bytes_total", len(BODY) + len(SCAN_WITHOUT_WEIGHTS))):
        same(total(after, name), count, name)
    assert any('reason="dcf-missing"' in key for key in after
               if key.startswith("mrirecond_jobs_failed_total")), "no reason of a failure"
    for name in ("mrirecond_build_info", "mrirecond_queue_jobs", "mrirecond_queue_capacity_jobs",
                 "mrirecond_spool_used_bytes",
                 "mrirecond_spool_free_bytes", "mrirecond_samples_overflowed_total",
                 "mrirecond_stage_duration_seconds_bucket", "mrirecond_http_requests_total",
                 "process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total",
                 "process_start_time_seconds"):
        assert any(key.split("{")[0] == name for key in after), f"{name} is missing"
    assert not re.search(r"[0-9a-f]{16}", "".join(after)), "a label contains a job's id"


if __name__ == "__main__":
    main(Daemon)
