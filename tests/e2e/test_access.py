#!/usr/bin/python3
"""Access rights: roles, owners of jobs and uploads, quotas of clients. Tokens: test_tokens.py."""
import base64
import concurrent.futures
import os
import re
import signal
import tempfile

import numpy as np
import scans
from contract import operations
from guarded import Guarded
from harness import main, same, test, wait_until

TUS = {"Tus-Resumable": "1.0.0"}
NONE = "01m7yheza283fkx9ma8t456e4x"  # an id that does not exist


@test("without a token: health only; with a wrong one, nothing more")
def nobody(daemon):
    for path in ("/livez", "/readyz", "/healthz", "/v2/health/live", "/v2/health/ready"):
        daemon.get(path).expect(200)
    for method, path in (("GET", "/"), ("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/kinds"),
                         ("GET", "/metrics"),
                         ("POST", "/v1/uploads"), ("GET", "/v1/jobs/01m7yheza283fkx9ma8t456e4x/events"),
                         ("DELETE", "/v1/jobs/01m7yheza283fkx9ma8t456e4x")):
        answer = daemon.request(method, path)
        answer.problem(401, "unauthorized")
        same(answer.headers["www-authenticate"].split()[0], "Bearer")
        for wrong in ("Bearer mrt_" + "0" * 64, "Bearer ", "Basic " + base64.b64encode(b"a:b").decode(), "Bearer " +
                      daemon.token["admin"][:-1], "Bearer " + daemon.token["admin"] + "0"):
            daemon.request(method, path, headers={"Authorization": wrong}).problem(401, "unauthorized")


@test("each role has its rights, and no others")
def roles(daemon):
    identity = daemon.job_of("submit")
    daemon.ended(identity)
    for who in ("read", "submit", "admin"):
        daemon.as_(who, "GET", "/metrics").expect(200)
        daemon.as_(who, "GET", "/v1/kinds").expect(200)
        daemon.as_(who, "GET", f"/v1/jobs/{identity}/results/image").expect(200)
    body = scans.radial().bytes(daemon.state)
    daemon.as_("read", "POST", "/v1/jobs?kind=recon", body).problem(403, "forbidden")
    daemon.as_("read", "POST", f"/v1/jobs/{identity}/cancel").problem(403, "forbidden")
    daemon.as_("read", "DELETE", f"/v1/jobs/{identity}").problem(403, "forbidden")
    daemon.as_("submit", "DELETE", "/v1/jobs?older=0").problem(403, "forbidden")
    daemon.as_("read", "POST", "/v1/uploads", **TUS, Upload_Length="5").problem(403, "forbidden")
    for method in ("PATCH", "DELETE"):  # the authorization counts, not the validity of what is sent
        daemon.as_("read", "POST", f"/v1/uploads/{NONE}", **TUS,
                   X_HTTP_Method_Override=method).problem(403, "forbidden")
    daemon.as_("submit", "DELETE", f"/v1/jobs/{identity}").expect(204)


# The least role for each request; requests on a job or an upload also require that it is the sender's own, except for
# roles that see all.
DESTINATIONS = tempfile.NamedTemporaryFile("w", suffix=".destinations")
DESTINATIONS.write("destination nowhere dicom 127.0.0.1:9 called=NOWHERE\n")
DESTINATIONS.flush()
RIGHTS = {
    "GET /": "read", "GET /v1/kinds": "read", "GET /metrics": "read", "GET /v1/jobs": "read",
    "GET /v1/jobs/{id}": "read", "GET /v1/jobs/{id}/events": "read", "GET /v1/jobs/{id}/results": "read",
    "GET /v1/jobs/{id}/results/{name}": "read", "GET /v1/uploads/{id}": "read", "POST /v1/jobs": "submit",
    "POST /v1/jobs/{id}/cancel": "submit", "POST /v1/jobs/{id}/resubmit": "submit", "DELETE /v1/jobs/{id}": "submit",
    "POST /v1/uploads": "submit",
    "PATCH /v1/uploads/{id}": "submit", "DELETE /v1/uploads/{id}": "submit", "DELETE /v1/jobs": "admin",
    "OPTIONS /v1/uploads": "nobody",
    "GET /livez": "nobody", "GET /readyz": "nobody", "GET /healthz": "nobody", "GET /v2/health/live": "nobody",
    "GET /v2/health/ready": "nobody",
    "GET /v1/deliveries": "read", "GET /v1/streams": "read", "GET /v1/destinations": "read",
    "POST /v1/jobs/{id}/deliveries/{destination}": "admin",
    "GET /v1/login": "read", "POST /v1/login": "read", "DELETE /v1/login": "read", "GET /ui": "nobody",
    "GET /ui/{file}": "nobody"}


def right(least, who, owned):
    """The status of a request without permission; None: it is permitted. `owned`: the request concerns a job or an
    upload of "other".
    """
    if least == "nobody":
        return None
    may = {"nobody": (), "read": ("read",), "view": ("read",), "submit": ("read", "submit"),
           "other": ("read", "submit"), "admin": ("read", "submit", "admin")}[who]
    if least not in may:
        return 403 if may else 401
    return 404 if owned and who in ("read", "submit") else None


@test("every request by every role: refused without permission; view and admin see all jobs; view changes none")
def every_role():
    with Guarded(keep_scans="all", destinations=DESTINATIONS.name) as daemon:
        body = scans.radial().bytes(daemon.state)
        headers = {**TUS, "Upload_Length": "6", "Upload_Offset": "0", "Content_Type": "application/offset+octet-stream"}
        # It does not end: test_feed.py.
        told = {f"{method.upper()} {path}" for path, method, _, _ in operations() if path != "/v1/events"}
        same(told ^ set(RIGHTS), set(), "requests that are not in one of table and docs/openapi.yaml")

        def ask(who, request):
            """Request as this role, on a job and an upload of "other"."""
            method, path = request.split()
            target = path.replace("{id}", upload if "uploads" in path else job)
            target = target.replace("{name}", "image").replace("{destination}", "nowhere")
            target += "?older=9999" if request == "DELETE /v1/jobs" else ""
            sent = body if request == "POST /v1/jobs" else b"12345" if method == "PATCH" else None
            return daemon.as_(None if who == "nobody" else who, method, target, sent, **headers).status

        for who in ("nobody", "read", "view", "submit", "other", "admin"):
            job, created = daemon.job_of("other"), daemon.as_("other", "POST", "/v1/uploads", **headers).expect(201)
            upload = created.headers["location"].rsplit("/", 1)[1]
            daemon.ended(job)
            before = daemon.files().keys()
            for request in sorted(RIGHTS, key=lambda request: (request.startswith("DELETE"), request)):
                expected, seen = right(RIGHTS[request], who, "{id}" in request), ask(who, request)
                absent = () if "/ui" in request else (404,)  # a build without the web page has none of its files
                assert seen == expected if expected else seen not in (401, 403, *absent), \
                    f"{request} by {who}: {seen}, expected {expected or 'to be let in'}"
            if who in ("nobody", "read", "view"):
                same(daemon.files().keys(), before, f"files after all requests by {who}")
        changed = [line for line in daemon.read_log().splitlines() if "role=view" in line
                   and not re.search(r" GET | /v1/login | 403( removed=0)?$", line)]
        same(changed, [], "changes by view")
        theirs = daemon.job_of("other")
        assert (theirs in {job["id"]
                           for job in daemon.as_("view", "GET",
                                                 "/v1/jobs").json()["jobs"]}), "view does not see all jobs"


@test("a client sees and changes only its own jobs; an administrator all")
def owners(daemon):
    mine, theirs = daemon.job_of("submit"), daemon.job_of("other")
    daemon.ended(mine), daemon.ended(theirs)
    for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/results/image"), ("GET", "/results/image.h5"),
                         ("POST", "/cancel"), ("POST", "/resubmit"), ("DELETE", "")):
        refused = daemon.as_("other", method, f"/v1/jobs/{mine}{path}")
        refused.problem(404, "not-found")
        same(refused.body, daemon.as_("other", method, f"/v1/jobs/{NONE}{path}").body,
             f"what {method} {path} tells of another's job, and of none")
    listed = {who: {job["id"] for job in daemon.as_(who, "GET", "/v1/jobs?limit=100").expect(200).json()["jobs"]}
              for who in ("read", "submit", "other", "admin")}
    assert mine in listed["submit"] and mine in listed["read"] and theirs not in listed["submit"], listed
    assert theirs in listed["other"] and mine not in listed["other"], listed
    assert {mine, theirs} <= listed["admin"], listed
    same({job["client"] for job in daemon.as_("other", "GET", "/v1/jobs?state=succeeded").json()["jobs"]}, {"mri2"},
         "clients")
    same(daemon.as_("submit", "GET", f"/v1/jobs/{mine}").json()["client"], "mri1")
    daemon.as_("admin", "DELETE", f"/v1/jobs/{mine}").expect(204)
    daemon.as_("admin", "DELETE", f"/v1/jobs/{theirs}").expect(204)


@test("a client cannot use another client's name; resumable uploads have owners, too")
def names(daemon):
    body = scans.radial().bytes(daemon.state)
    job = daemon.as_("submit", "POST", "/v1/jobs?kind=recon", body, X_Mrirecond_Client="mri2").expect(202).json()
    same(job["client"], "mri1")
    where = daemon.as_("submit", "POST", "/v1/uploads?kind=recon", **TUS,
                       Upload_Length=str(len(body))).expect(201).headers["location"]
    same(daemon.as_("other", "HEAD", where, **TUS).status, 404)
    bytes_ = {"Content_Type": "application/offset+octet-stream", "Upload_Offset": "0", **TUS}
    for method, sent, headers in (("GET", None, TUS), ("PATCH", body, bytes_), ("DELETE", None, TUS)):
        refused = daemon.as_("other", method, where, sent, **headers)
        refused.problem(404, "not-found")
        same(refused.body, daemon.as_("other", method, f"/v1/uploads/{NONE}", sent, **headers).body,
             f"what {method} tells of another's upload, and of none")
    identity = daemon.as_("submit", "PATCH", where, body, **bytes_).expect(204).headers["x-job-id"]
    same(daemon.ended(identity)["client"], "mri1")
    same(daemon.as_("other", "HEAD", where, **TUS).status, 404)


@test("Idempotency-Keys are separate for each client: the same key and scan from another client reveal no job")
def keys(daemon):
    body = scans.radial().bytes(daemon.state)
    first, again, others = (daemon.as_(who, "POST", "/v1/jobs?kind=recon", body, Idempotency_Key="7").expect(202)
                            for who in ("submit", "submit", "other"))
    same((again.json()["id"], again.headers.get("idempotency-replayed")), (first.json()["id"], "true"),
         "the job of the same client")
    assert others.json()["id"] != first.json()["id"] and "idempotency-replayed" not in others.headers, others.headers
    daemon.as_("other", "POST", "/v1/jobs?kind=recon&tolerance=1e-4", body, Idempotency_Key="8").expect(202)
    daemon.as_("submit", "POST", "/v1/jobs?kind=recon", body, Idempotency_Key="8").expect(202)


@test("a token may have a quota of its own")
def quotas():
    with Guarded(client_jobs=100, drain_time=0) as daemon:  # its stop does not wait for a job
        with open(daemon.tokens) as file:
            lines = file.read().splitlines()
        with open(daemon.tokens, "w") as file:
            file.write("\n".join(line + (" jobs=1 bytes=100000000" if line.startswith("mri2 ") else "")
                                 for line in lines) + "\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 5 tokens" in daemon.read_log(), "the reload")
        slow = scans.slow().bytes(daemon.state)
        running = daemon.as_("submit", "POST", f"/v1/jobs?{scans.SLOW_QUERY}", slow).expect(202).json()["id"]
        wait_until(lambda: daemon.as_("admin", "GET", f"/v1/jobs/{running}").json()["state"] == "running",
                   "a busy worker")
        waiting = [daemon.as_("other", "POST", f"/v1/jobs?{scans.SLOW_QUERY}", slow) for _ in range(2)]
        same(waiting[0].status, 202, "status of the first")
        waiting[1].problem(429, "client-quota")
        assert waiting[1].headers["retry-after"]
        same(daemon.as_("submit", "POST", f"/v1/jobs?{scans.SLOW_QUERY}", slow).status, 202, "status of another client")
        with open(daemon.tokens, "a") as file:
            file.write("mri4 submit " + "0" * 64 + " jobs=none\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the old tokens stay" in daemon.read_log(), "a word about the broken line")
        daemon.expect_trouble = True


@test("a token's quota of bytes limits the results of its jobs, in place of client-bytes")
def quota_of_results():
    scan = scans.radial(matrix=(2048, 2048, 1), spokes=10, samples=4, coils=1, weights=False)
    scan.heads["idx"]["repetition"] = np.arange(10)  # one image per spoke: 168 MB
    with Guarded(client_bytes="1M") as daemon:
        with open(daemon.tokens) as file:
            text = file.read()
        with open(daemon.tokens, "w") as file:
            file.write(re.sub("^(mri2 .*)$", r"\1 bytes=100000000", text, flags=re.M))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 5 tokens" in daemon.read_log(), "the reload")
        body = scan.bytes(daemon.state)
        for who, limit, words in (("other", 100000000, "bytes= of the client's token"),
                                  ("submit", 1 << 20, "option client-bytes")):
            job = daemon.as_(who, "POST", "/v1/jobs?kind=recon&dcf=none", body).expect(202).json()["id"]
            error = daemon.ended(job)["error"]
            same((error["code"], error["available_bytes"]), ("result-too-large", limit), f"the failure of {who}")
            assert words in error["detail"], error


@test("resumable uploads count towards quotas: no creation exceeds one, even ten at once; none becomes a job")
def quotas_of_uploads():
    # No job begins, so all accepted ones wait.
    with Guarded(client_jobs=100, work_reserve="900T") as daemon:
        with open(daemon.tokens) as file:
            text = file.read()
        body = scans.radial().bytes(daemon.state)
        with open(daemon.tokens, "w") as file:
            file.write(re.sub("^(mri2 .*)$", r"\1 jobs=3", re.sub("^(mri1 .*)$", rf"\1 bytes={3 * len(body)}", text,
                                                                  flags=re.M), flags=re.M))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 5 tokens" in daemon.read_log(), "the reload")
        daemon.as_("submit", "POST", "/v1/uploads?kind=recon", **TUS,
                   Upload_Length=str(3 * len(body) + 1)).problem(429, "client-quota")
        begun = {}
        for who in ("other", "submit"):  # one client has a quota of jobs, the other of bytes
            def begin(length):
                return daemon.as_(who, "POST", "/v1/uploads?kind=recon", **TUS, Upload_Length=str(length))

            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(begin, [len(body)] * 10))
            same(sorted(answer.status for answer in answers), [201] * 3 + [429] * 7,
                 f"statuses of ten creations by {who}")
            begun[who] = next(answer.headers["location"] for answer in answers if answer.status == 201)
            for _ in range(3):
                daemon.as_(who, "POST", "/v1/jobs?kind=recon", body).expect(202)
            headers = {"Content_Type": "application/offset+octet-stream", "Upload_Offset": "0", **TUS}
            daemon.as_(who, "PATCH", begun[who], body, **headers).problem(429, "client-quota")
        # A daemon that starts makes jobs of complete uploads where it may, and removes those that have expired.
        daemon.kill()
        paths = [os.path.join(daemon.state, where.removeprefix("/v1/")) for where in begun.values()]
        for path in paths:
            os.utime(path, (0, 0))
        daemon.restart()
        wait_until(lambda: not any(map(os.path.exists, paths)), "the uploads to be removed: then all were looked at")
        for who, where in begun.items():
            same(daemon.as_(who, "HEAD", where, **TUS).status, 404, "status of HEAD")
            same(len(daemon.as_(who, "GET", "/v1/jobs").json()["jobs"]), 3, f"jobs of {who}")


if __name__ == "__main__":
    main(Guarded)
