#!/usr/bin/python3
"""Small HDF5 files as the body of a POST: read while they arrive, whatever happens to sender, worker and file."""
import io
import os
import signal
import socket
import tempfile

import numpy as np

import mrd
import scans
from harness import Daemon, check_problem, main, same, status_of, test, wait_until

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-arriving-")
QUERY = "kind=recon&output=complex&coils=none"
CONTENT = scans.radial(coils=2).bytes(FOLDER.name)
HALF = len(CONTENT) // 2


class Post(mrd.Session):
    """A POST /v1/jobs whose body is sent piece by piece."""

    def __init__(self, daemon, length=len(CONTENT), query=QUERY):
        super().__init__(address=("127.0.0.1", daemon.port))
        self.socket.sendall((f"POST /v1/jobs?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                             f"Content-Length: {length}\r\n\r\n").encode())

    def end(self, daemon):
        """The job, once it has ended."""
        answer = b""
        while piece := self.socket.recv(1 << 16):
            answer += piece
        same(status_of(answer), 202, f"status ({answer[:500]!r})")
        head = answer.partition(b"\r\n\r\n")[0].decode().lower()
        return daemon.finish(head.partition("location: /v1/jobs/")[2].split("\r\n")[0])


def pixels_of(daemon, job):
    same(job["state"], "succeeded", f"state ({job['error']})")
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))


def read_ahead(daemon):
    return wait_until(lambda: mrd.followers(daemon), "a decoder that reads what has arrived")[0]


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(") ")[2][0]


def forgotten(daemon):
    wait_until(lambda: not mrd.followers(daemon), "the end of the decoder")


def equal(daemon, job, truth):
    assert np.array_equal(pixels_of(daemon, job), truth), "different pixels"


@test("a slow sender: the file is read while it arrives, with the same bits; the decoder waits without a processor")
def slow(daemon):
    truth = pixels_of(daemon, daemon.run(CONTENT, QUERY))
    with Post(daemon) as post:
        post.send(CONTENT[:HALF])
        codec = read_ahead(daemon)
        wait_until(lambda: state_of(codec) == "S", "a decoder that sleeps")
        equal(daemon, post.send(CONTENT[HALF:]).end(daemon), truth)
    forgotten(daemon)


@test("a decoder that waits for a stream's next acquisition needs no processor either")
def stream(daemon):
    messages = list(scans.radial(coils=2).messages())
    with Post(daemon, sum(map(len, messages))) as post:
        post.send(*messages[:12])
        codec = read_ahead(daemon)
        wait_until(lambda: state_of(codec) == "S", "a decoder that sleeps")
        same(post.send(*messages[12:]).end(daemon)["state"], "succeeded", "state")


@test("a stream that breaks off, and that was followed while it arrived, is read again when it is complete")
def broken_off(daemon):
    messages = list(scans.radial(coils=2).messages())
    messages = messages[:3 * len(messages) // 4]
    truth = pixels_of(daemon, daemon.run(b"".join(messages), QUERY))
    with Post(daemon, sum(map(len, messages))) as post:
        post.send(*messages[:12])
        read_ahead(daemon)
        equal(daemon, post.send(*messages[12:]).end(daemon), truth)


@test("while one file arrives, others are read and computed; a sender that gives up leaves nothing")
def beside(daemon):
    truth = pixels_of(daemon, daemon.run(CONTENT, QUERY))
    before = len(daemon.get("/v1/jobs?limit=100").json()["jobs"])
    with Post(daemon) as post:
        post.send(CONTENT[:HALF])
        read_ahead(daemon)
        equal(daemon, daemon.run(CONTENT, QUERY), truth)
        equal(daemon, post.send(CONTENT[HALF:]).end(daemon), truth)
    with Post(daemon) as post:
        post.send(CONTENT[:HALF])
        read_ahead(daemon)
    forgotten(daemon)
    same(len(daemon.get("/v1/jobs?limit=100").json()["jobs"]), before + 2, "jobs")


@test("a file that is damaged, of another length, or no scan is judged as when it is read at once")
def wrong(daemon):
    def outcome(content, query=QUERY):
        with Post(daemon, len(content), query) as post:
            post.send(content[:HALF])
            return post.send(content[HALF:]).end(daemon)
    damaged = CONTENT.replace(b"GCOL", b"LOCG")
    check_problem(outcome(damaged)["error"], "malformed-file")
    same(outcome(damaged)["error"]["detail"], daemon.run(damaged, QUERY)["error"]["detail"], "the reason")
    check_problem(outcome(CONTENT[:-100])["error"], "truncated-file")
    same(outcome(CONTENT + bytes(100))["state"], "succeeded", "state of a file that more bytes follow")
    check_problem(outcome(CONTENT, f"{QUERY}&group=other")["error"], "bad-parameter")
    forgotten(daemon)


@test("a decoder that is killed while a file arrives: it is read again")
def killed():
    with Daemon(expect_trouble=True) as daemon:
        truth = pixels_of(daemon, daemon.run(CONTENT, QUERY))
        with Post(daemon) as post:
            post.send(CONTENT[:HALF])
            os.kill(read_ahead(daemon), signal.SIGKILL)
            equal(daemon, post.send(CONTENT[HALF:]).end(daemon), truth)


if __name__ == "__main__":
    main(Daemon)
