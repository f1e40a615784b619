#!/usr/bin/python3
"""Who may do what: tokens, roles, ownership, TLS and its reload, the audit log, what is not written anywhere."""
import base64
import concurrent.futures
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import scans
from contract import operations
from guarded import Guarded, new_token
from harness import BIN, Daemon, Response, client, main, same, test, wait_until

TUS = {"Tus-Resumable": "1.0.0"}
NONE = "01m7yheza283fkx9ma8t456e4x"  # the id of nothing


def certificate(folder, name):
    """A certificate of its own for localhost, and its key."""
    paths = os.path.join(folder, f"{name}.crt"), os.path.join(folder, f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "60",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
                   check=True, capture_output=True)
    return paths


@test("without a token: health only; with a wrong one, nothing more")
def nobody(daemon):
    for path in ("/livez", "/readyz", "/healthz", "/v2/health/live", "/v2/health/ready"):
        daemon.get(path).expect(200)
    for method, path in (("GET", "/"), ("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/kinds"), ("GET", "/metrics"),
                         ("POST", "/v1/uploads"), ("GET", "/v1/jobs/01m7yheza283fkx9ma8t456e4x/events"),
                         ("DELETE", "/v1/jobs/01m7yheza283fkx9ma8t456e4x")):
        answer = daemon.request(method, path)
        answer.problem(401, "unauthorized")
        same(answer.headers["www-authenticate"].split()[0], "Bearer")
        for wrong in ("Bearer mrt_" + "0" * 64, "Bearer ", "Basic " + base64.b64encode(b"a:b").decode(), "Bearer " + daemon.token["admin"][:-1],
                      "Bearer " + daemon.token["admin"] + "0"):
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
    for method in ("PATCH", "DELETE"):  # what is meant counts, not what is sent
        daemon.as_("read", "POST", f"/v1/uploads/{NONE}", **TUS, X_HTTP_Method_Override=method).problem(403, "forbidden")
    daemon.as_("submit", "DELETE", f"/v1/jobs/{identity}").expect(204)


# What each request takes at least; of a job or an upload, that it is the sender's own, but for those who see all.
DESTINATIONS = tempfile.NamedTemporaryFile("w", suffix=".destinations")
DESTINATIONS.write("destination nowhere dicom 127.0.0.1:9 called=NOWHERE\n")
DESTINATIONS.flush()
RIGHTS = {
    "GET /": "read", "GET /v1/kinds": "read", "GET /metrics": "read", "GET /v1/jobs": "read", "GET /v1/jobs/{id}": "read",
    "GET /v1/jobs/{id}/events": "read", "GET /v1/jobs/{id}/results": "read",
    "GET /v1/jobs/{id}/results/{name}": "read", "GET /v1/uploads/{id}": "read", "POST /v1/jobs": "submit",
    "POST /v1/jobs/{id}/cancel": "submit", "POST /v1/jobs/{id}/resubmit": "submit", "DELETE /v1/jobs/{id}": "submit", "POST /v1/uploads": "submit",
    "PATCH /v1/uploads/{id}": "submit", "DELETE /v1/uploads/{id}": "submit", "DELETE /v1/jobs": "admin", "OPTIONS /v1/uploads": "nobody",
    "GET /livez": "nobody", "GET /readyz": "nobody", "GET /healthz": "nobody", "GET /v2/health/live": "nobody", "GET /v2/health/ready": "nobody",
    "GET /v1/deliveries": "read", "POST /v1/jobs/{id}/deliveries/{destination}": "admin",
    "GET /v1/login": "read", "POST /v1/login": "read", "DELETE /v1/login": "read", "GET /ui": "nobody", "GET /ui/{file}": "nobody"}


def right(least, who, owned):
    """The status of a request without a right; None: it has it. `owned`: it is of a job or an upload of "other"."""
    if least == "nobody":
        return None
    may = {"nobody": (), "read": ("read",), "view": ("read",), "submit": ("read", "submit"), "other": ("read", "submit"), "admin": ("read", "submit", "admin")}[who]
    if least not in may:
        return 403 if may else 401
    return 404 if owned and who in ("read", "submit") else None


@test("every request by every role: refused if the role may not, all clients' jobs only for view and admin, and view changes nothing")
def every_role():
    with Guarded(keep_scans="all", destinations=DESTINATIONS.name) as daemon:
        body = scans.radial().bytes(daemon.state)
        headers = {**TUS, "Upload_Length": "6", "Upload_Offset": "0", "Content_Type": "application/offset+octet-stream"}
        told = {f"{method.upper()} {path}" for path, method, _, _ in operations() if path != "/v1/events"}  # has no end: test_feed.py
        same(told ^ set(RIGHTS), set(), "requests that are not in one of table and docs/openapi.yaml")

        def ask(who, request):
            """By this role, of a job and an upload of "other"."""
            method, path = request.split()
            target = path.replace("{id}", upload if "uploads" in path else job).replace("{name}", "image").replace("{destination}", "nowhere") + ("?older=9999" if request == "DELETE /v1/jobs" else "")
            sent = body if request == "POST /v1/jobs" else b"12345" if method == "PATCH" else None
            return daemon.as_(None if who == "nobody" else who, method, target, sent, **headers).status

        for who in ("nobody", "read", "view", "submit", "other", "admin"):
            job, upload = daemon.job_of("other"), daemon.as_("other", "POST", "/v1/uploads", **headers).expect(201).headers["location"].rsplit("/", 1)[1]
            daemon.ended(job)
            before = daemon.files().keys()
            for request in sorted(RIGHTS, key=lambda request: (request.startswith("DELETE"), request)):
                expected, seen = right(RIGHTS[request], who, "{id}" in request), ask(who, request)
                absent = () if "/ui" in request else (404,)  # a build without the web page has none of its files
                assert seen == expected if expected else seen not in (401, 403, *absent), f"{request} by {who}: {seen}, expected {expected or 'to be let in'}"
            if who in ("nobody", "read", "view"):
                same(daemon.files().keys(), before, f"files after all requests by {who}")
        changed = [line for line in daemon.read_log().splitlines() if "role=view" in line and not re.search(r" GET | /v1/login | 403( removed=0)?$", line)]
        same(changed, [], "changes by view")
        theirs = daemon.job_of("other")
        assert theirs in {job["id"] for job in daemon.as_("view", "GET", "/v1/jobs").json()["jobs"]}, "view does not see all"


@test("a client sees and changes only its own jobs; an administrator all")
def owners(daemon):
    mine, theirs = daemon.job_of("submit"), daemon.job_of("other")
    daemon.ended(mine), daemon.ended(theirs)
    for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/results/image"), ("GET", "/results/image.h5"), ("POST", "/cancel"), ("POST", "/resubmit"),
                         ("DELETE", "")):
        refused = daemon.as_("other", method, f"/v1/jobs/{mine}{path}")
        refused.problem(404, "not-found")
        same(refused.body, daemon.as_("other", method, f"/v1/jobs/{NONE}{path}").body, f"what {method} {path} tells of another's job, and of none")
    listed = {who: {job["id"] for job in daemon.as_(who, "GET", "/v1/jobs?limit=100").expect(200).json()["jobs"]}
              for who in ("read", "submit", "other", "admin")}
    assert mine in listed["submit"] and mine in listed["read"] and theirs not in listed["submit"], listed
    assert theirs in listed["other"] and mine not in listed["other"], listed
    assert {mine, theirs} <= listed["admin"], listed
    same({job["client"] for job in daemon.as_("other", "GET", "/v1/jobs?state=succeeded").json()["jobs"]}, {"mri2"}, "clients")
    same(daemon.as_("submit", "GET", f"/v1/jobs/{mine}").json()["client"], "mri1")
    daemon.as_("admin", "DELETE", f"/v1/jobs/{mine}").expect(204)
    daemon.as_("admin", "DELETE", f"/v1/jobs/{theirs}").expect(204)


@test("a client cannot use another client's name; resumable uploads have owners, too")
def names(daemon):
    body = scans.radial().bytes(daemon.state)
    job = daemon.as_("submit", "POST", "/v1/jobs?kind=recon", body, X_Mrirecond_Client="mri2").expect(202).json()
    same(job["client"], "mri1")
    where = daemon.as_("submit", "POST", "/v1/uploads?kind=recon", **TUS, Upload_Length=str(len(body))).expect(201).headers["location"]
    same(daemon.as_("other", "HEAD", where, **TUS).status, 404)
    bytes_ = {"Content_Type": "application/offset+octet-stream", "Upload_Offset": "0", **TUS}
    for method, sent, headers in (("GET", None, TUS), ("PATCH", body, bytes_), ("DELETE", None, TUS)):
        refused = daemon.as_("other", method, where, sent, **headers)
        refused.problem(404, "not-found")
        same(refused.body, daemon.as_("other", method, f"/v1/uploads/{NONE}", sent, **headers).body, f"what {method} tells of another's upload, and of none")
    identity = daemon.as_("submit", "PATCH", where, body, **bytes_).expect(204).headers["x-job-id"]
    same(daemon.ended(identity)["client"], "mri1")
    same(daemon.as_("other", "HEAD", where, **TUS).status, 404)


@test("Idempotency-Keys are separate for each client: the same key and scan from another client reveal no job")
def keys(daemon):
    body = scans.radial().bytes(daemon.state)
    first, again, others = (daemon.as_(who, "POST", "/v1/jobs?kind=recon", body, Idempotency_Key="7").expect(202) for who in ("submit", "submit", "other"))
    same((again.json()["id"], again.headers.get("idempotency-replayed")), (first.json()["id"], "true"), "the job of the same client")
    assert others.json()["id"] != first.json()["id"] and "idempotency-replayed" not in others.headers, others.headers
    daemon.as_("other", "POST", "/v1/jobs?kind=recon&tolerance=1e-4", body, Idempotency_Key="8").expect(202)
    daemon.as_("submit", "POST", "/v1/jobs?kind=recon", body, Idempotency_Key="8").expect(202)


@test("tokens are stored as hashes, in a file of their owner; SIGHUP adds new ones and removes revoked ones")
def reload(daemon):
    with open(daemon.tokens) as file:
        text = file.read()
    assert not any(token[4:] in text for token in daemon.token.values()), "a token stands in the file"
    same(stat.S_IMODE(os.stat(daemon.tokens).st_mode), 0o600, "mode of the tokens")
    daemon.token["new"] = new_token(daemon.tokens, "mri3", "read")
    daemon.as_("new", "GET", "/v1/jobs").problem(401, "unauthorized")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.as_("new", "GET", "/v1/jobs").status == 200, "the new token")
    with open(daemon.tokens, "w") as file:
        file.writelines(line for line in text.splitlines(True))
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.as_("new", "GET", "/v1/jobs").status == 401, "the withdrawal")
    daemon.as_("submit", "GET", "/v1/jobs").expect(200)


@test("a token may have a quota of its own")
def quotas():
    with Guarded(client_jobs=100, drain_time=0) as daemon:  # its stop waits for no job
        with open(daemon.tokens) as file:
            lines = file.read().splitlines()
        with open(daemon.tokens, "w") as file:
            file.write("\n".join(line + (" jobs=1 bytes=100000000" if line.startswith("mri2 ") else "") for line in lines) + "\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 5 tokens" in daemon.read_log(), "the reload")
        slow = scans.slow().bytes(daemon.state)
        running = daemon.as_("submit", "POST", f"/v1/jobs?{scans.SLOW_QUERY}", slow).expect(202).json()["id"]
        wait_until(lambda: daemon.as_("admin", "GET", f"/v1/jobs/{running}").json()["state"] == "running", "a busy worker")
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


@test("resumable uploads count toward a quota: none is created beyond it, not even ten at once, and none becomes a job with time")
def quotas_of_uploads():
    with Guarded(client_jobs=100, work_reserve="900T", upload_lifetime=6) as daemon:  # no job is begun: all that is accepted waits
        with open(daemon.tokens) as file:
            text = file.read()
        body = scans.radial().bytes(daemon.state)
        with open(daemon.tokens, "w") as file:
            file.write(re.sub("^(mri2 .*)$", r"\1 jobs=3", re.sub("^(mri1 .*)$", rf"\1 bytes={3 * len(body)}", text, flags=re.M), flags=re.M))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 5 tokens" in daemon.read_log(), "the reload")
        daemon.as_("submit", "POST", "/v1/uploads?kind=recon", **TUS, Upload_Length=str(3 * len(body) + 1)).problem(429, "client-quota")
        begun = {}
        for who in ("other", "submit"):  # one has a quota of jobs, one of bytes
            def begin(length):
                return daemon.as_(who, "POST", "/v1/uploads?kind=recon", **TUS, Upload_Length=str(length))

            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(begin, [len(body)] * 10))
            same(sorted(answer.status for answer in answers), [201] * 3 + [429] * 7, f"statuses of ten creations by {who}")
            begun[who] = next(answer.headers["location"] for answer in answers if answer.status == 201)
            later = time.time() + 600  # none expires before the bytes come
            os.utime(os.path.join(daemon.state, begun[who].removeprefix("/v1/")), (later, later))
            for _ in range(3):
                daemon.as_(who, "POST", "/v1/jobs?kind=recon", body).expect(202)
            headers = {"Content_Type": "application/offset+octet-stream", "Upload_Offset": "0", **TUS}
            daemon.as_(who, "PATCH", begun[who], body, **headers).problem(429, "client-quota")
        for who, where in begun.items():
            path = os.path.join(daemon.state, where.removeprefix("/v1/"))
            wait_until(lambda: not os.path.exists(path), "the upload to be removed: then all were looked at")
            same(daemon.as_(who, "HEAD", where, **TUS).status, 404, "status of HEAD")
            same(len(daemon.as_(who, "GET", "/v1/jobs").json()["jobs"]), 3, f"jobs of {who}")


@test("the audit log records client and action, and contains no token")
def audit(daemon):
    identity = daemon.job_of("submit")
    lines = []

    def told(line, of=f"job={identity} "):  # a line is written when its answer has been sent
        lines.append(line)
        wait_until(lambda: f"{of}audit: {line}\n" in daemon.read_log(), f"the line {line}")
    told("client=mri1 role=submit peer=127.0.0.1 POST /v1/jobs 202")
    daemon.ended(identity)
    daemon.as_("read", "GET", f"/v1/jobs/{identity}/results/image").expect(200)
    told("client=mri1 role=read peer=127.0.0.1 GET /v1/jobs/*/results/* 200")
    daemon.as_("other", "DELETE", f"/v1/jobs/{identity}").problem(404, "not-found")
    told("client=mri2 role=submit peer=127.0.0.1 DELETE /v1/jobs/* 404")
    daemon.as_("submit", "DELETE", f"/v1/jobs/{identity}").expect(204)
    told("client=mri1 role=submit peer=127.0.0.1 DELETE /v1/jobs/* 204")
    seen = [line.split("audit: ", 1)[1] for line in daemon.read_log().splitlines() if f"job={identity} audit: " in line]
    same(sorted(seen), sorted(lines), "audit lines")
    daemon.get("/v1/jobs").problem(401, "unauthorized")
    told("client=- role=nobody peer=127.0.0.1 GET /v1/jobs 401", "")
    daemon.as_("other", "GET", f"/v1/jobs/{'0' * 26}").problem(404, "not-found")
    told("client=mri2 role=submit peer=127.0.0.1 GET /v1/jobs/* 404", "")
    assert not any(token[4:] in daemon.read_log() for token in daemon.token.values()), "a token stands in the log"


@test("the audit log records purges of all jobs, with client and number, and refused ones")
def audit_of_purges():
    with Guarded() as daemon:
        for who in ("submit", "other", "submit"):
            daemon.ended(daemon.job_of(who))
        daemon.as_("other", "DELETE", "/v1/jobs?older=0").problem(403, "forbidden")
        daemon.as_("admin", "DELETE", "/v1/jobs?older=always").problem(400, "bad-parameter")
        same(daemon.as_("admin", "DELETE", "/v1/jobs?older=0").expect(200).json()["removed"], 3, "jobs removed")
        lines = wait_until(lambda: len(lines := re.findall("audit: (.* DELETE /v1/jobs .*)", daemon.read_log())) == 3 and lines, "three lines")
        same(sorted(lines), ["client=boss role=admin peer=127.0.0.1 DELETE /v1/jobs 200 removed=3", "client=boss role=admin peer=127.0.0.1 DELETE /v1/jobs 400 removed=0",
                             "client=mri2 role=submit peer=127.0.0.1 DELETE /v1/jobs 403 removed=0"], "audit lines")


@test("the audit log is independent of the log level, and records interrupted uploads")
def audit_always():
    with Daemon(devices="cpu", log_level="error") as daemon:
        connection = socket.create_connection(("127.0.0.1", daemon.port))
        connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc")
        connection.close()
        wait_until(lambda: "POST /v1/jobs aborted" in daemon.read_log(), "a word about the upload")
        same([line for line in daemon.read_log().splitlines() if "audit: " not in line], [], "other lines")


@test("a token file edited by hand: no final newline, a line that is too long, write access for others")
def edited():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        first = new_token(path, "a", "read")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write("# " + "x" * 300 + "\n" + text.rstrip("\n"))
        second = new_token(path, "b", "submit")
        with Daemon(devices="cpu", tokens=path, expect_trouble=True) as daemon:
            for token in (first, second):
                daemon.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {token}"}).expect(200)
            with open(path, "a") as file:
                file.write("# " + "x" * 600 + " c admin " + "0" * 64 + "\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "longer than" in daemon.read_log(), "a word about the long line")
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o620)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "Other users than its owner can write" in daemon.read_log(), "a word about the mode")
            daemon.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {second}"}).expect(200)


@test("the client shows its token")
def by_client(daemon):
    path = os.path.join(daemon.state, "scan.h5")
    scans.radial().write(path)
    out = os.path.join(daemon.state, "image.png")
    refused = client(daemon, "submit", path, check=False)
    assert refused.returncode == 1 and "unauthorized" in refused.stderr, refused.stderr
    client(daemon, "submit", path, "--out", out, MRIRECON_TOKEN=daemon.token["submit"])
    token = os.path.join(daemon.state, "token")
    with open(token, "w") as file:
        file.write(daemon.token["read"] + "\n")
    assert "succeeded" in client(daemon, "list", "--token-file", token).stdout


@test("a malformed token is described by its form, and no part of it is repeated")
def malformed_tokens(daemon):
    with open(daemon.tokens) as file:
        line = file.readline()
    for wrong, says in ((None, r"--token-file FILE, or MRIRECON_TOKEN"), ("Basic " + base64.b64encode(b"alice:secret").decode(), r"other schemes, such as Basic"),
                        ("Bearer mrt_" + "0" * 64, r"revoked, or belong to another service"), ("Bearer " + line.split()[2], r"looks like a hash"),
                        ('Bearer "' + daemon.token["read"] + '"', r"does not look like one: mrt_ and 64 hexadecimal digits, without quotes"),
                        ("Bearer " + daemon.token["read"][:-1], r"does not look like one")):
        problem = daemon.request("GET", "/v1/jobs", headers={"Authorization": wrong} if wrong else {}).problem(401, "unauthorized")
        assert re.search(says, problem["detail"]), problem
        assert not wrong or wrong.split()[1].strip('"')[4:12] not in problem["detail"], problem


@test("the client names the fault of a token file")
def token_files(daemon):
    token = os.path.join(daemon.state, "token")
    for text, says in (("", "There is no token in the first line of"), ("one read 1234\n", "more than a token: spaces or quotes"),
                       ("-----BEGIN PRIVATE KEY-----\n", "more than a token"), ("mrt_12\n", "does not look like one")):
        with open(token, "w") as file:
            file.write(text)
        told = client(daemon, "list", "--token-file", token, check=False)
        assert told.returncode == 1 and says in told.stderr, told.stderr
    told = client(daemon, "list", "--token-file", token + "s", check=False)
    assert told.returncode == 1 and "cannot be read from" in told.stderr and "No such file" in told.stderr, told.stderr
    told = client(daemon, "list", check=False, MRIRECON_TOKEN="two words")
    assert told.returncode == 1 and "MRIRECON_TOKEN contains more than a token" in told.stderr, told.stderr


# Every text of an ISMRMRD header, each with the name that must not be told.
ABOUT = """<subjectInformation><patientName>Okonkwo</patientName><patientID>Okonkwo</patientID></subjectInformation>
<studyInformation><studyID>Okonkwo</studyID><referringPhysicianName>Okonkwo</referringPhysicianName><studyDescription>Okonkwo</studyDescription>
<studyInstanceUID>Okonkwo</studyInstanceUID><bodyPartExamined>Okonkwo</bodyPartExamined></studyInformation>
<measurementInformation><measurementID>Okonkwo</measurementID><seriesDescription>Okonkwo</seriesDescription><protocolName>Okonkwo</protocolName>
<sequenceName>Okonkwo</sequenceName><measurementDependency><dependencyType>Okonkwo</dependencyType><measurementID>Okonkwo</measurementID></measurementDependency>
<seriesInstanceUIDRoot>Okonkwo</seriesInstanceUIDRoot><frameOfReferenceUID>Okonkwo</frameOfReferenceUID></measurementInformation>
<acquisitionSystemInformation><systemVendor>Okonkwo</systemVendor><systemModel>Okonkwo</systemModel>
<coilLabel><coilNumber>0</coilNumber><coilName>Okonkwo</coilName></coilLabel><institutionName>Okonkwo</institutionName><stationName>Okonkwo</stationName>
</acquisitionSystemInformation><experimentalConditions>"""
NAMED = (("<experimentalConditions>", ABOUT),
         ("</trajectory>", "</trajectory><trajectoryDescription><identifier>Okonkwo</identifier><comment>Okonkwo</comment></trajectoryDescription>"),
         ("</ismrmrdHeader>", "<userParameters><userParameterString><name>Okonkwo</name><value>Okonkwo</value></userParameterString></userParameters></ismrmrdHeader>"))
# Headers that are broken where the name stands.
BROKEN = (("</ismrmrdHeader>", "<oops>"), ("<patientName>Okonkwo", "<patientName>&Okonkwo;"), ("<patientName>", "<!-- Okonkwo -- her name --><patientName>"),
          ("<patientName>", "<patientName Okonkwo='1' Okonkwo='2'>"), ("</patientName>", "]]></patientName>"), ("Okonkwo</patientName>", "Okonkwo\x01</patientName>"),
          ("<patientName>Okonkwo", "<patientName>&Okonkwo "), ('encoding="UTF-8"', 'encoding="Okonkwo"'), ("<ismrmrdHeader ", "<!DOCTYPE Okonkwo><ismrmrdHeader "))


@test("only its owner can read the state folder; the patient's name is in scans and ISMRMRD images, and nowhere else")
def privacy():
    with Daemon(devices="cpu", log_level="debug", keep_scans="all") as daemon, tempfile.TemporaryDirectory() as folder:
        scan = scans.radial()
        for place, text in NAMED:
            assert place in scan.xml, place
            scan.xml = scan.xml.replace(place, text)
        sent = {"User-Agent": "Okonkwo", "Referer": "http://okonkwo.example/Okonkwo", "Content-Disposition": 'attachment; filename="Okonkwo.h5"', "Cookie": "Okonkwo"}
        job = daemon.finish(daemon.submit(scan.bytes(folder), **sent).expect(202).json()["id"])
        same(job["state"], "succeeded")
        begun = daemon.request("POST", "/v1/uploads?kind=recon", headers={**TUS, "Upload-Length": str(len(scan.bytes(folder))), "Upload-Metadata": "filename Okonkwo"})
        pieces = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        ended = daemon.finish(daemon.request("PATCH", begun.headers["location"], scan.bytes(folder), pieces).expect(204).headers["x-job-id"])
        same(ended["state"], "succeeded")
        for form in ("nii.gz", "png", "npy"):
            daemon.get(f"/v1/jobs/{job['id']}/results/image?format={form}").expect(200)
        whole = scan.xml
        for place, text in BROKEN:
            assert place in whole, place
            scan.xml = whole.replace(place, text, 1)
            failed = daemon.run(scan.bytes(folder))
            same((failed["state"], failed["error"]["code"]), ("failed", "header-invalid"), f"how it ends with {text}")
        daemon.get("/Okonkwo").problem(404, "not-found")
        daemon.get("/v1/jobs/Okonkwo").problem(404, "not-found")
        told = {name: daemon.get(name).body.decode() for name in ("/v1/jobs?limit=100", "/metrics", "/readyz?verbose")}
        told["the log"] = daemon.read_log()
        for place, text in told.items():
            assert "okonkwo" not in text.lower(), f"{place} tells it: {re.findall('.{0,80}[Oo]konkwo.{0,40}', text)}"
        for path in daemon.files():
            with (gzip.open if path.endswith(".gz") else open)(os.path.join(daemon.state, path), "rb") as file:
                written = b"Okonkwo" in file.read()
            same(written, path.startswith("spool/") or path.endswith("/image.h5"), f"whether {path} holds it")
        for parent, folders, files in os.walk(daemon.state):
            for name in folders + files:
                mode = os.stat(os.path.join(parent, name)).st_mode
                assert not mode & 0o077, f"{name} has mode {mode & 0o777:o}"


@test("an address that other machines reach requires TLS and tokens")
def outside():
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens")
        new_token(tokens, "a", "admin")
        crt, key = certificate(folder, "one")
        state = os.path.join(folder, "state")

        def start(*options):
            return subprocess.run([os.path.join(BIN, "mrirecond"), *options], capture_output=True, text=True, timeout=120)

        for options in ([], ["--tokens", tokens], ["--tls-certificate", crt, "--tls-key", key], ["--tls-certificate", crt, "--tokens", tokens],
                        ["--tls-certificate", key, "--tls-key", key], ["--tls-certificate", crt, "--tls-key", certificate(folder, "two")[1]],
                        ["--tokens", os.path.join(folder, "none")]):
            options = ["--listen", "0.0.0.0:0", "--state-dir", state, *options]
            done = start(*options)
            same(done.returncode, 1, f"exit status with {options}")
            assert " error: " in done.stderr, done.stderr
            checked = start("--check-config", *options)
            same((checked.returncode, checked.stdout), (2, ""), f"exit status and output of --check-config with {options}")
            same(checked.stderr.removeprefix("mrirecond: "), done.stderr.split(" error: ")[1], "what --check-config says")
        for options in (["--devices", "gpu"], ["--listen", "here"], ["--queue-limit", "many"], ["--worker", folder + "/none"]):
            same(start("--check-config", "--state-dir", state, *options).returncode, 2, f"exit status of --check-config with {options}")
        sound = start("--check-config", "--listen", "0.0.0.0:0", "--state-dir", state, "--tls-certificate", crt, "--tls-key", key, "--tokens", tokens)
        same((sound.returncode, sound.stderr), (0, ""), "exit status and errors of --check-config with what is right")
        assert not os.path.exists(state), "the state folder was made"


@test("the client reports a server without TLS")
def plain(daemon):
    told = client(None, "list", "--server", daemon.url.replace("http:", "https:"), check=False)
    assert told.returncode == 1 and "its address begins with http://" in told.stderr, told.stderr


@test("TLS: only with its certificate, 1.2 or newer, authenticated encryption only; SIGHUP loads a new certificate and keeps open connections")
def tls():
    with tempfile.TemporaryDirectory() as folder:
        first, second = certificate(folder, "first"), certificate(folder, "second")
        crt, key = os.path.join(folder, "now.crt"), os.path.join(folder, "now.key")

        def install(pair):
            for source, target in zip(pair, (crt, key)):
                shutil.copy(source, target)

        install(first)

        class Encrypted(Daemon):
            trust = first[0]

            def request(self, method, path, body=None, headers=None, timeout=120):
                context = ssl.create_default_context(cafile=self.trust)
                asked = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data=body, method=method, headers=headers or {})
                with urllib.request.urlopen(asked, context=context, timeout=timeout) as answer:
                    return Response(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())

        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, expect_trouble=True) as daemon:
            path = os.path.join(daemon.state, "scan.h5")
            scans.radial().write(path)
            daemon.url = daemon.url.replace("http:", "https:")
            out = os.path.join(daemon.state, "image.npy")
            client(daemon, "submit", path, "--out", out, "--cacert", first[0])
            assert os.path.getsize(out) > 0
            for address, words, says in ((daemon.url, (), r"not trusted by this machine .*--cacert FILE or MRIRECON_CACERT"),
                                         (daemon.url, ("--cacert", second[0]), r"is not signed by any in \S+second\.crt"),
                                         (daemon.url, ("--cacert", first[0] + "s"), r"first\.crts, from --cacert"),
                                         (daemon.url.replace("127.0.0.1", "other.localhost"), ("--cacert", first[0]), r"is for another name .*other\.localhost"),
                                         (daemon.url.replace("https:", "http:"), (), r"received plain HTTP: use an address that begins with https://")):
                distrusted = client(None, "list", "--server", address, *words, check=False)
                same(distrusted.returncode, 1, "exit status without trust")
                assert re.search(says, distrusted.stderr), distrusted.stderr
            for method, body in (("GET", None), ("POST", b"x" * 4000)):
                plain = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
                plain.request(method, "/v1/jobs", body=body)
                answer = plain.getresponse()
                problem = json.load(answer)
                same((answer.status, answer.getheader("Connection"), problem["code"]), (400, "close", "bad-request"), f"the answer to a plain {method}")
                assert "begins with https://" in problem["detail"], problem
                plain.close()
            old = ["curl", "-sS", "--cacert", first[0], f"https://127.0.0.1:{daemon.port}/livez", "--tls-max", "1.2"]
            same(subprocess.run(old, capture_output=True).returncode, 0, "curl's exit status with TLS 1.2")
            for version, spoken in (("-tls1", False), ("-tls1_1", False), ("-tls1_2", True)):  # by a client that would take anything
                anything = ["openssl", "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect", f"127.0.0.1:{daemon.port}"]
                same(subprocess.run(anything, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, spoken, f"whether {version} is spoken")
            for suite, taken in (("ECDHE-ECDSA-AES128-SHA", False), ("ECDHE-ECDSA-AES256-SHA", False), ("ECDHE-ECDSA-AES128-SHA256", False),
                                 ("ECDHE-ECDSA-AES256-SHA384", False), ("ECDHE-ECDSA-AES128-CCM", False), ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
                                 ("ECDHE-ECDSA-AES256-GCM-SHA384", True), ("ECDHE-ECDSA-CHACHA20-POLY1305", True)):
                offered = ["openssl", "s_client", "-tls1_2", "-cipher", suite + ":@SECLEVEL=0", "-connect", f"127.0.0.1:{daemon.port}"]
                same(subprocess.run(offered, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, taken, f"whether {suite} is taken")
            connected = http.client.HTTPSConnection("127.0.0.1", daemon.port, context=ssl.create_default_context(cafile=first[0]))
            connected.request("GET", "/livez")
            connected.getresponse().read()
            with open(crt, "w") as file:
                file.write("no certificate\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old certificate stays" in daemon.read_log(), "a word about the broken certificate")
            daemon.request("GET", "/livez").expect(200)
            install(second)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "reload: certificate" in daemon.read_log(), "the reload")
            connected.request("GET", "/livez")
            same(connected.getresponse().read() != b"", True, "an answer to who was connected")
            connected.close()
            try:
                daemon.request("GET", "/livez")
                raise AssertionError("the old certificate is still shown")
            except urllib.error.URLError:
                pass
            daemon.trust = second[0]
            daemon.request("GET", "/livez").expect(200)


@test("an expired certificate, one of another key, or a key that everybody can read does not replace a good one; if none is good, the start fails with the reason")
def ended():
    with tempfile.TemporaryDirectory() as folder:
        good, over, other = (certificate(folder, name) for name in ("good", "over", "other"))
        subprocess.run(["openssl", "x509", "-in", over[0], "-signkey", over[1], "-days", "-1", "-out", over[0] + ".new"], check=True, capture_output=True)
        os.rename(over[0] + ".new", over[0])
        crt, key, private = (os.path.join(folder, name) for name in ("now.crt", "now.key", "private"))
        shutil.copy(good[0], private)
        os.chmod(private, 0o600)
        shown = []

        class Encrypted(Daemon):
            def request(self, method, path, body=None, headers=None, timeout=120):
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=ssl._create_unverified_context())
                connection.request(method, path, body, headers or {})
                answer = connection.getresponse()
                shown[:] = [ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(True))]
                return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

        def install(certificate_file, key_file):
            shutil.copy(certificate_file, crt)
            shutil.copy(key_file, key)

        def text(path):
            with open(path) as file:
                return file.read()

        install(*good)
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, expect_trouble=True) as daemon:
            end = daemon.metrics()["mrirecond_tls_certificate_expiry_timestamp_seconds"]
            assert 59 * 86400 < end - time.time() <= 60 * 86400, end
            assert "the certificate ends" not in daemon.read_log(), daemon.read_log()
            for pair, said in ((over, "an expired certificate"), ((good[0], other[1]), "does not belong to the certificate"), ((good[0], good[0]), "every user of this machine can read"),
                               ((good[0], private), "no key in PEM")):
                install(*pair)
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any("the old certificate stays" in line and said in line for line in daemon.read_log().splitlines()), f"a word: {said}")
                daemon.request("GET", "/livez").expect(200)
                same(shown[0].split(), text(good[0]).split(), "the certificate that is shown")
        install(*over)
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key) as daemon:
            assert "warning: the certificate ended 24 hours ago: clients refuse it" in daemon.read_log(), daemon.read_log()


@test("replaced certificates are freed with the last connection that uses them: 300 reloads do not grow the service")
def many_reloads():
    with tempfile.TemporaryDirectory() as folder:
        crt, key = certificate(folder, "one")
        with open(crt) as file:
            chain = file.read() * 16
        with open(crt, "w") as file:
            file.write(chain)  # as long as one may be, so that one which stays can be seen

        class Encrypted(Daemon):
            def request(self, method, path, body=None, headers=None, timeout=120):
                connection = self.connected(timeout)
                try:
                    connection.request(method, path, body, headers or {})
                    answer = connection.getresponse()
                    return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
                finally:
                    connection.close()

            def connected(self, timeout=120):
                return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=ssl._create_unverified_context())

            def reload(self, count):
                for _ in range(count):
                    told = self.read_log().count("reload: certificate")
                    self.process.send_signal(signal.SIGHUP)
                    wait_until(lambda: self.read_log().count("reload: certificate") > told, "a reload")

            def memory(self):
                with open(f"/proc/{self.process.pid}/statm") as file:
                    return int(file.read().split()[1]) * 4096

        # Else a sanitizer keeps what was freed.
        frees = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, header_timeout=600, idle_timeout=600, environment=frees) as daemon:
            held = daemon.connected()
            held.request("GET", "/livez")
            same(held.getresponse().read() != b"", True, "an answer")
            for _ in range(20):
                daemon.reload(1)
                daemon.request("GET", "/livez").expect(200)
            before = daemon.memory()
            daemon.reload(300)
            grown = daemon.memory() - before
            held.request("GET", "/livez")
            same(held.getresponse().status, 200, "status for who is connected with the first certificate")
            held.close()
            daemon.request("GET", "/livez").expect(200)
            # 300 that stay are 6 MiB, and 12 with sanitizers.
            assert grown < 3 << 20, f"300 reloads took {grown >> 10} KiB"


if __name__ == "__main__":
    main(Guarded)
