#!/usr/bin/python3
"""MRD streams as the body of a POST: read and reconstructed while they arrive, whatever happens to sender, worker and
stream.
"""
import io
import os
import signal
import socket
import struct
import tempfile

import numpy as np

import mrd
import scans
from harness import Daemon, check_problem, main, same, status_of, test, wait_until
from live import MIXED, Parts, Post, arriving, images_of

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-post-")
QUERY = "kind=recon&output=complex&coils=none"
SPOKES, FRAMES = 31, 3
SCAN = scans.radial(coils=2)
MESSAGES = list(SCAN.messages())


def series():
    """The messages of a scan with FRAMES repetitions."""
    scan = scans.radial(spokes=SPOKES * FRAMES)
    scan.heads["idx"]["repetition"] = np.arange(len(scan.heads)) // SPOKES
    return scan


def check(images, truth, first=1):
    same([place for place, _ in images], list(range(first, len(truth) + 1)), "places in the series")
    for place, pixels in images:
        assert np.array_equal(pixels, truth[place - 1]), f"different pixels in image {place}"




def accepted(daemon, post):
    """End the POST, and return its job once it has ended."""
    status, headers, body = post.end()
    same(status, 202, f"status ({body[:500]!r})")
    return daemon.finish(headers["location"].rsplit("/", 1)[1])


def pixels_of(daemon, job):
    same(job["state"], "succeeded", f"state ({job['error']})")
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))


def read_ahead(daemon):
    wait_until(lambda: mrd.followers(daemon), "a decoder that reads what has arrived")


def forgotten(daemon):
    wait_until(lambda: not mrd.followers(daemon), "the end of the decoder")


def count_of(daemon):
    return len(daemon.get("/v1/jobs?limit=100").json()["jobs"])


@test("a slow sender: the body is read while it arrives, with and without a length, with its HDF5 file's bits")
def slow(daemon):
    truth = pixels_of(daemon, daemon.run(SCAN.bytes(FOLDER.name), QUERY))
    with Post(daemon, QUERY) as post:
        post.send(*MESSAGES[:12])
        read_ahead(daemon)
        same(count_of(daemon), 1, "jobs while the body arrives")
        assert np.array_equal(pixels_of(daemon, accepted(daemon, post.send(*MESSAGES[12:]))), truth), "different pixels"
    with Post(daemon, QUERY, Prefer="wait=120", Accept="application/x-npy", Content_Type="text/plain") as post:
        post.send(*MESSAGES[:12])
        read_ahead(daemon)
        status, headers, body = post.send(*MESSAGES[12:]).end()
        same((status, headers["content-type"]), (200, "application/x-npy"), "answer to a sender that waits")
        assert np.array_equal(np.load(io.BytesIO(body)), truth), "different pixels"
    whole = b"".join(MESSAGES)
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
        head = (f"POST /v1/jobs?{QUERY} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Content-Length: {len(whole)}\r\n\r\n")
        connection.sendall(head.encode() + whole[:6000])
        read_ahead(daemon)
        connection.sendall(whole[6000:])
        same(status_of(connection.makefile("rb").read()), 202, "answer to a body of known length")


@test("a series whose first repetitions are complete before the body ends: the images equal the whole scan's")
def repetitions(daemon):
    scan = series()
    truth = pixels_of(daemon, daemon.run(scan.bytes(FOLDER.name), QUERY))
    messages = list(scan.messages())
    with Post(daemon, QUERY) as post:
        post.send(*messages[:1 + 2 * SPOKES + 1])
        read_ahead(daemon)
        job = accepted(daemon, post.send(*messages[1 + 2 * SPOKES + 1:]))
    assert np.array_equal(pixels_of(daemon, job), truth), "different pixels"


@test("a series: a second request gets each image while later repetitions are still sent, and then the job")
def beside(daemon):
    scan = series()
    truth = pixels_of(daemon, daemon.run(scan.bytes(FOLDER.name), QUERY))
    messages = list(scan.messages())
    with Post(daemon, QUERY, Idempotency_Key="series-1", Accept=MIXED) as post:
        post.send(messages[0])
        parts = arriving(daemon, "series-1")
        for frame in range(1, FRAMES):
            post.send(*messages[1 + (frame - 1) * SPOKES + (frame > 1):1 + frame * SPOKES + 1])
            check([parts.next()], truth[:frame], frame)
        job = accepted(daemon, post.send(*messages[1 + (FRAMES - 1) * SPOKES + 1:]))
        images, document = parts.all()
        check(images, truth, FRAMES)
        same((document["id"], document["state"]), (job["id"], "succeeded"), "the last part")
        assert job["report"]["images_ahead"] >= FRAMES - 1, job["report"]
    images, document = images_of(daemon, "series-1").all()
    check(images, truth)
    same(document["id"], job["id"], "the last part, to one who asks later")


@test("slices one after the other, each of some images: a second request gets them in their places, as they are made")
def slices(daemon):
    for query, readouts in ((QUERY, (32, 63)), (f"{QUERY}&frame_readouts=10", (10, 41, 72, 82))):
        scan = scans.slices(3)
        whole = daemon.run(scan.bytes(FOLDER.name), query)
        content = daemon.get(f"/v1/jobs/{whole['id']}/results/image?format=mrd").expect(200).body
        truth = [body[1] for number, body in mrd.of_bytes(content) if number == mrd.IMAGE]
        messages = list(scan.messages())
        key = f"slices-{len(readouts)}"
        with Post(daemon, query, Idempotency_Key=key, Accept=MIXED) as post:
            post.send(messages[0])
            parts, early, before = arriving(daemon, key), [], 0
            for end in readouts:
                post.send(*messages[1 + before:1 + end])
                early.append(parts.next())
                before = end
            check(early, truth[:len(early)])
            job = accepted(daemon, post.send(*messages[1 + before:]))
            images, document = parts.all()
            check(images, truth, 1 + len(early))
            same((document["id"], document["state"]), (job["id"], "succeeded"), "the last part")


@test("a waiting sender gets the images in its answer, also of an HDF5 file; the last part is the job's result")
def answered(daemon):
    scan = series()
    content = scan.bytes(FOLDER.name)
    truth = pixels_of(daemon, daemon.run(content, QUERY))
    for body in (content, b"".join(scan.messages())):
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
            head = (f"POST /v1/jobs?{QUERY} HTTP/1.1\r\nHost: localhost\r\nAccept: {MIXED}\r\nPrefer: wait=120\r\n"
                    f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n")
            connection.sendall(head.encode() + body)
            parts = Parts(connection)
            images, document = parts.all()
            check(images, truth)
            same((document["state"], f"/v1/jobs/{document['id']}"), ("succeeded", parts.headers["location"]),
                 "the last part")
    with Post(daemon, QUERY, Accept=MIXED, Prefer="wait=120") as post:
        post.send(mrd.text(mrd.HEADER, "<ismrmrdHeader"), *MESSAGES[1:])
        post.socket.sendall(b"0\r\n\r\n")
        images, document = Parts(post.socket).all()
        same((images, document["state"], document["error"]["code"]), ([], "failed", "header-invalid"),
             "answer to a bad scan")
    daemon.submit(content, "kind=nbody", Accept="multipart/mixed", Prefer="wait=60").problem(406, "not-acceptable")


@test("images for a sender that dies, a worker that dies, a repeated scan, a wait that expires; and for no scan")
def lost():
    with Daemon(expect_trouble=True) as daemon:
        scan = series()
        truth = pixels_of(daemon, daemon.run(scan.bytes(FOLDER.name), QUERY))
        messages = list(scan.messages())
        with Post(daemon, QUERY, Idempotency_Key="a", Accept=MIXED) as post:
            post.send(*messages[:1 + SPOKES + 1])
            parts = arriving(daemon, "a")
            check([parts.next()], truth[:1])
            check_problem(images_of(daemon, "a", Prefer="wait=0").all()[1], "not-done")
        images, problem = parts.all()
        same(images, [], "images after the sender's end")
        check_problem(problem, "truncated-file")
        with Post(daemon, QUERY, Idempotency_Key="b", Accept=MIXED) as post:
            post.send(*messages[:1 + SPOKES + 1])
            parts = arriving(daemon, "b")
            check([parts.next()], truth[:1])
            os.kill(daemon.worker(), signal.SIGKILL)
            wait_until(lambda: "was killed by signal 9" in daemon.read_log(), "the daemon to find its worker dead")
            job = accepted(daemon, post.send(*messages[1 + SPOKES + 1:]))
            images, document = parts.all()
            check(images, truth, 2)
            same((document["id"], document["state"], job["attempts"]), (job["id"], "succeeded", 1),
                 "the last part, and attempts")
        for spokes in (0, SPOKES + 1):  # the repeated scan ends before and after images of it were sent
            with Post(daemon, QUERY, Idempotency_Key="b", Accept=MIXED) as post:
                post.send(*messages[:1 + spokes])
                parts = arriving(daemon, "b")
                ahead = [parts.next()] if spokes else []
                check(ahead, truth[:len(ahead)])
                status, headers, _ = post.send(*messages[1 + spokes:]).end()
                same((status, headers.get("idempotency-replayed")), (202, "true"), "answer to a repeated scan")
                images, document = parts.all()
                same(document.get("id"), job["id"], f"the job in the last part of a repeated scan ({document})")
                check(images, truth, 1 + len(ahead))
        same(daemon.submit(scan.bytes(FOLDER.name), QUERY, Idempotency_Key="c").status, 202,
             "a submission without Accept")
        daemon.get("/v1/streams?key=c").problem(409, "conflict")
        daemon.get("/v1/streams?key=none").problem(404, "not-found")
        daemon.get("/v1/streams?key=b", X_Mrirecond_Client="another").problem(404, "not-found")
        daemon.get("/v1/streams").problem(400, "bad-parameter")
        daemon.get("/v1/streams?kex=b").problem(400, "unknown-parameter")


@test("a client may have 32 streams of images; one that closes makes room, and its other requests are answered")
def limit(daemon):
    with Post(daemon, QUERY, Idempotency_Key="many", Accept=MIXED) as post:
        post.send(*MESSAGES[:2])
        streams = [arriving(daemon, "many")] + [images_of(daemon, "many") for _ in range(31)]
        same({parts.status for parts in streams}, {200}, "answers")
        problem = daemon.get("/v1/streams?key=many").problem(429, "client-quota")
        assert "32 streams of images" in problem["detail"], problem
        # Other requests are answered.
        daemon.get("/v1/streams?key=none").problem(404, "not-found")
        same(daemon.get("/v1/jobs").status, 200, "the list")
        streams.pop().close()

        def room():
            parts = images_of(daemon, "many")
            if parts.status == 200:
                streams.append(parts)
            return parts.status == 200
        wait_until(room, "room for a stream")
        for parts in streams[1:]:
            parts.close()
        accepted(daemon, post.send(*MESSAGES[2:]))
        same(streams[0].all()[1]["state"], "succeeded", "the last part")
        wait_until(lambda: images_of(daemon, "many").status == 200, "a stream after the end")


@test("a sender that dies midway, is refused midway, or sends the scan again: the worker drops what it has read")
def dropped():
    with Daemon(body_limit="60K") as daemon:
        with Post(daemon, QUERY) as post:
            post.send(*MESSAGES[:12], MESSAGES[12][:500])
            read_ahead(daemon)
        forgotten(daemon)
        same(count_of(daemon), 0, "jobs of a sender that died")
        with Post(daemon, QUERY) as post:
            post.send(*MESSAGES[:12])
            read_ahead(daemon)
            status, _, body = post.send(*MESSAGES[12:], *MESSAGES[1:-1]).end()
            same(status, 413, f"status of a body beyond the limit ({body!r})")
        forgotten(daemon)
        with Post(daemon, QUERY, Idempotency_Key="scan-1") as post:
            first = accepted(daemon, post.send(*MESSAGES))
        with Post(daemon, QUERY, Idempotency_Key="scan-1") as post:
            post.send(*MESSAGES[:12])
            read_ahead(daemon)
            same(daemon.submit(b"".join(MESSAGES), QUERY, Idempotency_Key="scan-1").status, 409,
                 "status of a key in use")
            status, headers, _ = post.send(*MESSAGES[12:]).end()
            same((status, headers.get("idempotency-replayed"), headers["x-job-id"]), (202, "true", first["id"]),
                 "answer to a repeated scan")
        forgotten(daemon)
        same(count_of(daemon), 1, "jobs")
        same([name for name in daemon.files() if name.endswith(".part")], [], "files that were begun")


@test("a worker that is killed midway: the job is computed, and counts one attempt")
def killed():
    with Daemon(expect_trouble=True) as daemon:
        truth = pixels_of(daemon, daemon.run(SCAN.bytes(FOLDER.name), QUERY))
        with Post(daemon, QUERY) as post:
            post.send(*MESSAGES[:12])
            read_ahead(daemon)
            os.kill(daemon.worker(), signal.SIGKILL)
            wait_until(lambda: "was killed by signal 9" in daemon.read_log(), "the daemon to find its worker dead")
            job = accepted(daemon, post.send(*MESSAGES[12:]))
        assert np.array_equal(pixels_of(daemon, job), truth), "different pixels"
        same(job["attempts"], 1, "attempts")


@test("another job that arrives meanwhile runs first")
def overtaken(daemon):
    with Post(daemon, QUERY) as post:
        post.send(*MESSAGES[:12])
        read_ahead(daemon)
        truth = pixels_of(daemon, daemon.run(SCAN.bytes(FOLDER.name), QUERY))
        assert np.array_equal(pixels_of(daemon, accepted(daemon, post.send(*MESSAGES[12:]))), truth), "different pixels"


@test("an incomplete stream is judged as when read at once: without CLOSE, cut, damaged, or of the wrong kind")
def wrong(daemon):
    def outcome(sent, query=QUERY, ahead=True):
        with Post(daemon, query) as post:
            post.send(*sent[:12])
            if ahead:
                read_ahead(daemon)
            return accepted(daemon, post.send(*sent[12:]))
    same(outcome(MESSAGES[:-1])["state"], "succeeded", "state of a stream without CLOSE")
    assert np.array_equal(pixels_of(daemon, outcome([*MESSAGES, b"more"])),
                          pixels_of(daemon, outcome(MESSAGES))), "different pixels with bytes after CLOSE"
    check_problem(outcome([*MESSAGES[:20], MESSAGES[20][:77]])["error"], "truncated-file")
    check_problem(outcome([*MESSAGES[:20], struct.pack("<H", 4711), *MESSAGES[20:]])["error"], "malformed-file")
    damaged = outcome([mrd.text(mrd.HEADER, "<ismrmrdHeader"), *MESSAGES[1:]], ahead=False)
    check_problem(damaged["error"], "header-invalid")
    check_problem(outcome(MESSAGES, "kind=nbody", ahead=False)["error"], "unknown-format")
    forgotten(daemon)


if __name__ == "__main__":
    main(Daemon)
