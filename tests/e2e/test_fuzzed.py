#!/usr/bin/python3
"""Inputs found by fuzzing (tests/fuzz/corpus), sent to a real daemon at the place that their target tests: each is
answered, and none does harm.
"""
import glob
import json
import os
import socket
import struct

from harness import FINAL, ROOT, Daemon, check_problem, main, same, test

CLIENTS_FAULTS = range(200, 500)
# Codes of faults of the service.
HARM = ("internal", "io-error", "store-failed", "worker-died", "decoder-died")


# The number of readers of a target; the first byte, from "0" on, selects one.
READERS = {"arrays": 3, "decoder": 4, "particles": 13, "query": 8, "tokens": 5, "tus": 4}


def kept(target, reader=None):
    """A target's inputs, complete, or only the text for one of its readers."""
    for path in sorted(glob.glob(f"{ROOT}/tests/fuzz/corpus/{target}/*")):
        with open(path, "rb") as file:
            content = file.read()
        if reader is None:
            yield content
        elif content and (content[0] - ord("0")) % READERS[target] == reader:
            yield content[1:]


def of_line(content, more=b""):
    """What fits into a request line or a header's value, apart from its ends."""
    return bytes(ord("?") if c in b"\0\r\n" + more else c for c in content)[:4000]


def answered(daemon, target, *headers, method=b"GET", body=b""):
    """Send a request as given; its status must blame the sender, with a problem document that a person can read."""
    lines = [method + b" " + target + b" HTTP/1.1", *headers, b"Connection: close", b"Content-Length: %d" % len(body)]
    if not any(line.startswith(b"Host:") for line in headers):
        lines.insert(1, b"Host: localhost")
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
        connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, text = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    assert status in CLIENTS_FAULTS, f"{lines!r} was answered {answer[:600]!r}"
    if b"application/problem+json" in head:
        problem = json.loads(text)
        check_problem(problem, problem["code"], status)
    return status, text


def well(daemon, count):
    assert count >= 3, f"only {count} inputs were found"
    daemon.get("/readyz").expect(200)


@test("queries, paths and headers of requests")
def queries(daemon):
    count = 0
    for query in kept("query", 0):
        query = of_line(query, b" ")
        answered(daemon, b"/v1/jobs?" + query)
        answered(daemon, b"/v1/jobs?" + query, method=b"POST")
        answered(daemon, b"/v1/uploads?" + query, b"Tus-Resumable: 1.0.0", b"Upload-Length: 0", method=b"POST")
        count += 1
    for path in kept("query", 1):
        answered(daemon, b"/" + of_line(path, b" ?").lstrip(b"/"))
        count += 1
    for reader, name in ((2, b"Accept"), (3, b"Range"), (5, b"If-None-Match"), (6, b"Prefer"), (7, b"Host")):
        for value in kept("query", reader):
            answered(daemon, b"/v1/jobs", name + b": " + of_line(value))
            count += 1
    well(daemon, count)


@test("tus headers and digests: nothing is accepted, no file remains")
def headers_of_bodies(daemon):
    before, count = daemon.files(), 0
    tus = (b"Tus-Resumable: 1.0.0", b"Content-Type: application/offset+octet-stream")
    for value in map(of_line, kept("tus", 0)):
        location = daemon.request("POST", "/v1/uploads",
                                  headers={"Tus-Resumable": "1.0.0",
                                           "Upload-Length": "5"}).expect(201).headers["location"]
        answered(daemon, b"/v1/uploads", tus[0], b"Upload-Length: " + value + b"x", method=b"POST")
        answered(daemon, location.encode(), *tus, b"Upload-Offset: " + value, method=b"PATCH", body=b"1234")
        daemon.request("DELETE", location, headers={"Tus-Resumable": "1.0.0"}).expect(204)
        count += 1
    location = daemon.request("POST", "/v1/uploads",
                              headers={"Tus-Resumable": "1.0.0", "Upload-Length": "5"}).expect(201).headers["location"]
    for value in map(of_line, kept("tus", 2)):
        answered(daemon, location.encode(), *tus, b"Upload-Offset: 0", b"Upload-Checksum: " + value + b" ",
                 method=b"PATCH", body=b"1234")
        same(daemon.request("HEAD", location, headers={"Tus-Resumable": "1.0.0"}).headers["upload-offset"], "0",
             "offset")
        count += 1
    daemon.request("DELETE", location, headers={"Tus-Resumable": "1.0.0"}).expect(204)
    for value in map(of_line, kept("tus", 1)):
        wrong = b"Content-Digest: sha-256=:" + 43 * b"A" + b"=:, " + value
        same(answered(daemon, b"/v1/jobs", wrong, method=b"POST", body=b"no scan")[0], 400, f"the answer to {wrong!r}")
        count += 1
    same(set(daemon.files()) - set(before), set(), "files left behind")
    well(daemon, count)


@test("idempotency keys: an accepted key is recognized when it is sent again")
def keys(daemon):
    count = 0
    for value in map(of_line, kept("tus", 3)):
        first, second = (answered(daemon, b"/v1/jobs", b"Idempotency-Key: " + value, method=b"POST", body=b"no scan")
                         for _ in range(2))
        same(second[0], first[0], "status when it is sent again")
        if first[0] == 202:
            same(json.loads(second[1])["id"], json.loads(first[1])["id"], "job when it is sent again")
        count += 1
    well(daemon, count)


@test("Authorization: no header of the fuzzers is accepted")
def authorization(daemon):
    with Daemon(tokens=token_file(daemon)) as guarded:
        count = 0
        for value in map(of_line, kept("tokens", 0)):
            same(answered(guarded, b"/v1/jobs", b"Authorization: " + value)[0], 401, f"the answer to {value!r}")
            count += 1
        well(guarded, count)


def token_file(daemon):
    """A file with one token that nobody has."""
    path = os.path.join(daemon.state, "tokens")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("somebody admin " + 64 * "5" + "\n")
    return path


@test("streams, headers in a stream, and particles: each job ends, none with an internal error")
def scans(daemon):
    made = []
    bodies = list(kept("decoder", 1))
    bodies += [struct.pack("<HI", 3, len(xml)) + xml + struct.pack("<H", 4) for xml in kept("header")]
    bodies += kept("arrays", 0)
    queries = ["kind=recon&size=8,6" if body.startswith(b"PK") else "kind=recon" for body in bodies]
    # For particles, those of the readers that require charges.
    for reader in range(6):
        molecules = list(kept("particles", reader))
        bodies += molecules
        queries += ["kind=cutcp&spacing=50&charges=bfactor"] * len(molecules)
    for body, query in zip(bodies, queries):
        response = daemon.submit(body, query)
        if response.status != 202:
            response.problem(400, "empty-body")
        else:
            made.append(response.json()["id"])
    for identity in made:
        job = daemon.finish(identity)
        assert job["state"] in FINAL, job
        if job["state"] == "failed":
            check_problem(job["error"], job["error"]["code"])
            assert job["error"]["code"] not in HARM, job["error"]
    well(daemon, len(made))


if __name__ == "__main__":
    main(Daemon)
