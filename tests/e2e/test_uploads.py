#!/usr/bin/python3
"""Uploads that are interrupted and resumed (tus 1.0): the protocol; digests of bodies (RFC 9530)."""
import base64
import email.utils
import hashlib
import os
import socket
import time

from harness import Daemon, main, same, test, wait_until
from tus import BYTES, TUS, append, begin, checksum, chunked, create, offset_of, scan, uploads_of, used


def content(body):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


@test("a scan in three chunks becomes a job with the id of the upload")
def pieces(daemon):
    body = scan(daemon)
    where = create(daemon, body, "kind=recon&tolerance=1e-4&priority=batch")
    third = len(body) // 3
    for begin, end in ((0, third), (third, 2 * third)):
        answer = append(daemon, where, begin, body[begin:end]).expect(204)
        same(answer.headers["upload-offset"], str(end))
        same(offset_of(daemon, where), end)
        assert "x-job-id" not in answer.headers
    same(daemon.get(where).expect(200).json()["length"], len(body))
    answer = append(daemon, where, 2 * third, body[2 * third:]).expect(204)
    identity = answer.headers["x-job-id"]
    same(where, f"/v1/uploads/{identity}")
    same(answer.headers["content-location"], f"/v1/jobs/{identity}")
    job = daemon.finish(identity)
    same((job["state"], job["parameters"]["tolerance"], job["bytes"], job["priority"]),
         ("succeeded", 1e-4, len(body), "batch"))
    # For a client that missed the last answer.
    same(offset_of(daemon, where), len(body), "offset of an upload that is a job")
    same(os.listdir(os.path.join(daemon.state, "uploads")), [], "files of uploads")
    wait_until(lambda: used(daemon) == 0, "the spool to be empty")


@test("OPTIONS lists version, extensions and limits of the upload protocol")
def options(daemon):
    answer = daemon.request("OPTIONS", "/v1/uploads").expect(204)
    same(answer.headers["tus-version"], "1.0.0")
    same(set(answer.headers["tus-extension"].split(",")), {"creation", "expiration", "checksum", "termination"})
    assert "sha256" in answer.headers["tus-checksum-algorithm"].split(",")
    assert int(answer.headers["tus-max-size"]) > 0


@test("every answer has the version of tus; refusals of another version state it")
def version(daemon):
    where = create(daemon, b"x" * 10)
    for method, headers, status in (("PATCH", {"Upload-Offset": "0", **BYTES}, 412),
                                    ("HEAD", {"Tus-Resumable": "0.2.2"}, 412), ("HEAD", {}, 200),
                                    ("DELETE", {"Tus-Resumable": "2"}, 412),
                                    ("PATCH", {**TUS, "Upload-Offset": "5", **BYTES}, 409),
                                    ("PATCH", {**TUS, "Upload-Offset": "0"}, 415), ("DELETE", TUS, 204),
                                    ("HEAD", TUS, 404)):
        answer = daemon.request(method, where, headers=headers).expect(status)
        same((answer.headers.get("tus-resumable"), answer.headers.get("tus-version")),
             ("1.0.0", "1.0.0" if status == 412 else None), f"{method} {headers}")


@test("the metadata of a creation are returned until the upload is a job")
def metadata(daemon):
    told = "filename c2Nhbi5oNQ==,is_private"
    where = create(daemon, b"x" * 10, **{"Upload-Metadata": told})
    same(daemon.request("HEAD", where, headers=TUS).expect(200).headers.get("upload-metadata"), told, "Upload-Metadata")
    assert "upload-metadata" not in append(daemon, where, 0, b"x").expect(204).headers
    assert "upload-metadata" not in daemon.request("HEAD", create(daemon, b"x" * 10), headers=TUS).expect(200).headers
    for wrong in ("x" * 4097, "caf\xe9"):
        daemon.request("POST", "/v1/uploads",
                       headers={**TUS, "Upload-Length": "10", "Upload-Metadata": wrong}).problem(400, "bad-request")


@test("X-HTTP-Method-Override in a POST sets the method for uploads; elsewhere it is ignored")
def override(daemon):
    where = create(daemon, b"x" * 10)
    headers = {**TUS, **BYTES, "Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    same(daemon.request("POST", where, b"xxx", headers).expect(204).headers["upload-offset"], "3", "Upload-Offset")
    daemon.request("POST", where, headers={**TUS, "X-HTTP-Method-Override": "PUT"}).problem(405, "method-not-allowed")
    daemon.request("PATCH", where, b"x", {**headers, "X-HTTP-Method-Override": "DELETE",
                                          "Upload-Offset": "3"}).expect(204)
    same(offset_of(daemon, where), 4, "offset")
    daemon.request("POST", where, headers={**TUS, "X-HTTP-Method-Override": "DELETE"}).expect(204)
    daemon.request("HEAD", where, headers=TUS).expect(404)
    job = daemon.run(scan(daemon))["id"]
    daemon.request("POST", f"/v1/jobs/{job}",
                   headers={"X-HTTP-Method-Override": "DELETE"}).problem(405, "method-not-allowed")


@test("a broken connection keeps the received bytes; the upload continues from there")
def broken(daemon):
    body = scan(daemon, 2)
    where = create(daemon, body)
    with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name,
                       value in {**TUS, **BYTES, "Upload-Offset": 0, "Content-Length": len(body)}.items())
        connection.sendall(f"PATCH {where} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + body[:20000])
        wait_until(lambda: offset_of(daemon, where) == 20000, "the bytes to arrive")
        append(daemon, where, 20000, body[20000:]).problem(423, "upload-locked")
    wait_until(lambda: append(daemon, where, 20000, b"").status == 204, "the lock to be gone")
    same(offset_of(daemon, where), 20000)
    same(daemon.finish(append(daemon, where, 20000, body[20000:]).expect(204).headers["x-job-id"])["state"],
         "succeeded")


@test("a wrong offset is a conflict and changes nothing")
def offsets(daemon):
    body = scan(daemon)
    where = create(daemon, body)
    append(daemon, where, 0, body[:1000]).expect(204)
    for offset in (0, 999, 1001, len(body), 10**17):
        append(daemon, where, offset, b"x").problem(409, "upload-offset")
    append(daemon, where, "-1", b"x").problem(400, "bad-request")
    append(daemon, where, "1e3", b"x").problem(400, "bad-request")
    same(offset_of(daemon, where), 1000)
    daemon.request("DELETE", where, headers=TUS).expect(204)


@test("a chunk with a wrong checksum is discarded entirely; one with the right checksum is kept")
def checksums(daemon):
    body = scan(daemon, 3)
    where = create(daemon, body)
    for number, name in enumerate(("sha1", "md5", "sha256", "sha512")):
        chunk = body[number * 1000:number * 1000 + 1000]
        wrong = append(daemon, where, number * 1000, chunk[:-1] + b"\0", **checksum(name, chunk[:-1] + b"\1"))
        wrong.problem(460, "upload-checksum")
        same(offset_of(daemon, where), number * 1000, "offset after a wrong checksum")
        append(daemon, where, number * 1000, chunk, **checksum(name, chunk)).expect(204)
    append(daemon, where, 4000, b"x", **{"Upload-Checksum": "crc32 AAAA"}).problem(400, "bad-request")
    append(daemon, where, 4000, b"x", **{"Content-Digest": content(b"y")}).problem(460, "upload-checksum")
    same(offset_of(daemon, where), 4000, "offset after a wrong Content-Digest")
    append(daemon, where, 4000, body[4000:5000], **{"Content-Digest": content(body[4000:5000])}).expect(204)
    rest = body[5000:]
    same(daemon.finish(append(daemon, where, 5000, rest,
                              **checksum("sha256", rest)).expect(204).headers["x-job-id"])["state"],
         "succeeded")


@test("more bytes than announced are refused")
def too_many(daemon):
    where = create(daemon, b"x" * 100)
    append(daemon, where, 0, b"x" * 101).problem(413, "body-too-large")
    same(offset_of(daemon, where), 0)
    assert b" 413 " in chunked(daemon, where, b"x" * 200, 200)
    wait_until(lambda: daemon.request("DELETE", where, headers=TUS).status == 204, "the lock to be gone")


@test("an upload without bytes expires after 10 minutes, one with bytes after a day")
def empty_expires(daemon):
    def left(answer):
        return email.utils.parsedate_to_datetime(answer.headers["upload-expires"]).timestamp() - time.time()
    where = begin(daemon, 100, "somebody").expect(201).headers["location"]
    assert 60 < left(daemon.request("HEAD", where, headers=TUS)) <= 600, "an empty upload"
    append(daemon, where, 0, b"x").expect(204)
    assert 80000 < left(daemon.request("HEAD", where, headers=TUS)) <= 86400, "one with a byte"
    daemon.request("DELETE", where, headers=TUS).expect(204)


def reserved(daemon):
    """The bytes that unfinished uploads reserve, once the scans of ended jobs have gone."""
    whole = sum(daemon.get(upload).expect(200).json()["length"] for upload in uploads_of(daemon))
    wait_until(lambda: used(daemon) == whole, "the scans of ended jobs to go")
    return whole


@test("an invalid creation is refused before a byte is sent")
def creation(daemon):
    before = reserved(daemon)
    daemon.request("POST", "/v1/uploads?kind=recon", headers={"Upload-Length": "5"}).problem(412, "tus-version")
    daemon.request("POST", "/v1/uploads?kind=recon", headers=TUS).problem(411, "length-required")
    daemon.request("POST", "/v1/uploads?kind=recon",
                   headers={**TUS, "Upload-Length": "0"}).problem(411, "length-required")
    daemon.request("POST", "/v1/uploads?kind=nothing",
                   headers={**TUS, "Upload-Length": "5"}).problem(400, "unknown-kind")
    daemon.request("POST", "/v1/uploads?tolerance=9",
                   headers={**TUS, "Upload-Length": "5"}).problem(400, "bad-parameter")
    daemon.request("POST", "/v1/uploads", b"bytes", {**TUS, "Upload-Length": "5"}).problem(400, "bad-request")
    daemon.request("POST", "/v1/uploads", headers={**TUS, "Upload-Length": str(10**15)}).problem(413, "body-too-large")
    same(used(daemon), before, "reserved bytes")


@test("an upload can be removed; its space is released, and its address is unknown")
def termination(daemon):
    before = reserved(daemon)
    where = create(daemon, b"x" * 5000)
    same(used(daemon), before + 5000, "reserved bytes")
    append(daemon, where, 0, b"x" * 500).expect(204)
    daemon.request("DELETE", where, headers=TUS).expect(204)
    same(used(daemon), before, "reserved bytes")
    for method in ("HEAD", "DELETE", "PATCH"):
        same(daemon.request(method, where, headers={**TUS, **BYTES, "Upload-Offset": "0"}).status, 404, method)
    daemon.get("/v1/uploads/..%2fjobs.db").problem(404, "not-found")


@test("Content-Digest and Repr-Digest: a body that does not match is refused, one that matches becomes a job")
def content_digest(daemon):
    body = scan(daemon)
    good, bad = content(body), content(body + b"x")
    before = daemon.metrics().get('mrirecond_jobs_submitted_total{kind="recon"}', 0)
    daemon.submit(body, Content_Digest=bad).problem(400, "digest-mismatch")
    daemon.submit(body, Content_Digest="sha-256=:nonsense:").problem(400, "bad-request")
    daemon.submit(body, Repr_Digest=bad).problem(400, "digest-mismatch")
    daemon.submit(body, Content_Digest="adler=:AAAA:", Repr_Digest=bad).problem(400, "digest-mismatch")
    same(daemon.metrics().get('mrirecond_jobs_submitted_total{kind="recon"}', 0), before, "jobs accepted")
    same(daemon.finish(daemon.submit(body, Content_Digest=good).expect(202).json()["id"])["state"], "succeeded")
    same(daemon.finish(daemon.submit(body, Content_Digest="adler=:AAAA:").expect(202).json()["id"])["state"],
         "succeeded")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
