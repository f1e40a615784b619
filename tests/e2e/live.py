"""Clients of images that come while their scan is still sent or computed: over MRD, and over HTTP."""
import json
import socket

import numpy as np

import mrd
import scans
from harness import same, status_of, wait_until

MIXED = "multipart/mixed, application/json;q=0.5"


def series(frames=3, **shape):
    """A scan with so many repetitions."""
    shape = {"spokes": 31, **shape}
    scan = scans.radial(**{**shape, "spokes": shape["spokes"] * frames})
    scan.heads["idx"]["repetition"] = np.arange(len(scan.heads)) // shape["spokes"]
    return scan


def newest(daemon):
    return daemon.get("/v1/jobs?limit=1").expect(200).json()["jobs"][0]


def running(daemon, before=None):
    """Wait until the job after `before` was assigned to a worker."""
    def look():
        jobs = daemon.get("/v1/jobs?limit=1").expect(200).json()["jobs"]
        return jobs and jobs[0]["id"] != (before or {}).get("id") and jobs[0]["state"] == "running" and jobs[0]
    return wait_until(look, "a running job")


def image_of(session):
    """The next message, which must be an image: its index in the series, and its pixels."""
    number, body = next(mrd.read_messages(session.take))
    same(number, mrd.IMAGE, f"number of a message ({body!r})")
    return int(body[0]["index"]), body[1]


class Post(mrd.Session):
    """A chunked POST /v1/jobs whose body is sent piece by piece."""

    def __init__(self, daemon, query, **headers):
        super().__init__(address=("127.0.0.1", daemon.port))
        lines = [f"POST /v1/jobs?{query} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked",
                 *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, *pieces):
        return super().send(*(b"%x\r\n" % len(piece) + piece + b"\r\n" for piece in pieces))

    def end(self):
        """End the body; returns status, headers and body of the answer, after which the connection closes."""
        self.socket.sendall(b"0\r\n\r\n")
        answer = b""
        while piece := self.socket.recv(1 << 16):
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        return status_of(answer), {name.lower(): value for name, value in headers.items()}, body


class Parts:
    """The parts of a multipart/mixed answer, as they arrive: images as (index, pixels), then the last part."""

    def __init__(self, connection):
        self.connection, self.file = connection, connection.makefile("rb")
        first = self.file.readline()
        assert first, "the connection was closed without an answer"
        self.status = int(first.split()[1])
        self.headers = self.head(self.file.readline)
        self.rest = b""
        if self.status == 200:
            self.boundary = b"--" + self.headers["content-type"].partition("multipart/mixed; boundary=")[2].encode()
            same(self.line(), self.boundary, "the first boundary")

    @staticmethod
    def head(line):
        return dict(iter(lambda: line().decode().strip().lower().split(": ", 1), [""]))

    def take(self, count):
        while len(self.rest) < count:
            size = int(self.file.readline(), 16)
            assert size, f"the answer ends with {self.rest[:200]!r}"
            self.rest += self.file.read(size)
            same(self.file.readline(), b"\r\n", "the end of a chunk")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def line(self):
        found = b""
        while not found.endswith(b"\r\n"):
            found += self.take(1)
        return found[:-2]

    def next(self):
        """An image, which a boundary must follow; or the last part, as JSON, which ends the answer."""
        headers = self.head(self.line)
        if headers["content-type"] == "application/x-ismrmrd":
            (number, (head, pixels)), = mrd.of_bytes(self.take(int(headers["content-length"])))
            same((number, self.line(), self.line()), (mrd.IMAGE, b"", self.boundary), "message, and what follows it")
            return int(head["index"]), pixels
        text = b""
        while not text.endswith(self.boundary + b"--\r\n"):
            text += self.take(1)
        same((self.rest, int(self.file.readline(), 16)), (b"", 0), "what follows the last boundary")
        return json.loads(text[:-len(self.boundary) - 4])

    def close(self):
        self.file.close()
        self.connection.close()

    def all(self):
        """The remaining images, and the last part."""
        found = [self.next()]
        while isinstance(found[-1], tuple):
            found.append(self.next())
        return found[:-1], found[-1]


def images_of(daemon, key, **headers):
    """A GET of the images of the submission with this key."""
    connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
    lines = [f"GET /v1/streams?key={key} HTTP/1.1", "Host: localhost", "Connection: close",
             *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return Parts(connection)


def arriving(daemon, key):
    """The images of a submission whose header may still be under way."""
    def look():
        parts = images_of(daemon, key)
        return parts if parts.status != 404 else None
    return wait_until(look, "the submission")
