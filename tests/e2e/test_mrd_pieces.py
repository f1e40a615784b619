#!/usr/bin/python3
"""MRD streams of one large image: it is sent in pieces while the rest leaves the device, whatever happens on the way;
and of very many small ones.
"""
import io
import os
import signal
import socket
import tempfile

import numpy as np

import mrd
import scans
from harness import Daemon, holding, main, same, sanitized, test, wait_until
from live import MIXED, Post, arriving, image_of, newest, running, series

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-pieces-")
QUERY = "kind=recon&traj_units=pixel"
SIDE = 1200  # 1.44 million pixels: pieces of 2^16 and 2^20 of them, and the rest
BYTES = 4 * SIDE * SIDE
SCAN = scans.radial((SIDE, SIDE, 1), coils=1)
MESSAGES = list(SCAN.messages())
STREAM = [mrd.text(mrd.CONFIG_TEXT, QUERY), *MESSAGES]
RESET = "is reset in the middle of an image"


def start(**options):
    return Daemon(mrd_listen="127.0.0.1:0", environment=holding(), **options)


def expected(daemon, scan=SCAN, query=QUERY):
    """The pixels of the job that has the whole stream at once."""
    job = daemon.run(b"".join(scan.messages()), query)
    found = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))
    return found.reshape(-1, *found.shape[-2:])


class Begun:
    """A session that has sent its scan, whose worker stands still after the first piece; this has come."""

    def __init__(self, daemon, session):
        self.session = session
        self.before = newest(daemon)
        session.send(*STREAM)
        self.bytes = session.take(2 + 198 + 8)
        attributes = int.from_bytes(self.bytes[-8:], "little")
        same((int.from_bytes(self.bytes[:2], "little"), 0 < attributes < 1024), (mrd.IMAGE, True), "the beginning")
        self.bytes += session.take(attributes + 4 * 1000)
        self.all = 2 + 198 + 8 + attributes + BYTES

    def rest(self):
        """The pixels, when the rest has come; CLOSE and nothing else follows."""
        self.bytes += self.session.take(self.all - len(self.bytes))
        same((self.session.take(2), self.session.socket.recv(1)), (b"\4\0", b""), "what follows the image")
        (_, (_, pixels)), = mrd.of_bytes(self.bytes + b"\4\0")
        return pixels[0, 0]

    def broken(self):
        """The bytes that came before the connection was reset: fewer than the image has, and no text."""
        try:
            while piece := self.session.socket.recv(1 << 16):
                self.bytes += piece
        except ConnectionResetError:
            pass
        assert len(self.bytes) < self.all, f"{len(self.bytes)} bytes of {self.all}"
        return self.bytes


@test("the first piece arrives while the image's rest is still in the worker; the pixels are those of the whole scan")
def first(daemon):
    truth = expected(daemon)
    with mrd.Session(daemon) as session:
        with daemon.held("shown"):
            begun = Begun(daemon, session)
            session.socket.settimeout(0.5)
            try:
                while piece := session.socket.recv(1 << 20):
                    begun.bytes += piece
            except TimeoutError:
                pass
            assert len(begun.bytes) < begun.all // 2, "the worker stands still, and more than a piece has come"
            session.socket.settimeout(120)
        assert np.array_equal(begun.rest(), truth[0]), "other pixels"
    assert np.array_equal(expected(daemon), truth), "the job after it"
    job = daemon.job(newest(daemon)["id"])
    same(job["state"], "succeeded", "the job's state")


@test("a worker that is killed in the middle of an image: the job runs again, and the image goes on where it was")
def killed():
    with start(expect_trouble=True) as daemon:
        truth = expected(daemon)
        with mrd.Session(daemon) as session:
            with daemon.held("shown") as go_on:
                begun = Begun(daemon, session)
                running(daemon, begun.before)
                go_on()  # to the second piece
                worker = daemon.worker()
                begun.bytes += session.take(1 << 20)
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: worker not in daemon.children("mrirecon-worker"), "the end of the worker")
            assert np.array_equal(begun.rest(), truth[0]), "other pixels"
        job = daemon.job(newest(daemon)["id"])
        same((job["state"], job["attempts"]), ("succeeded", 2), "state and attempts")


@test("a job that is canceled in the middle of an image, whose worker does not end it: the connection is reset")
def canceled():
    with start(expect_trouble=True, cancel_grace=1) as daemon, mrd.Session(daemon) as session:
        daemon.run(b"".join(MESSAGES), QUERY)
        path = f"{daemon.environment['HOLDSTEP']}.shown"
        with open(path, "w"):
            pass
        begun = Begun(daemon, session)
        job = running(daemon, begun.before)["id"]
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
        wait_until(lambda: daemon.job(job)["state"] == "canceled", "the job to be canceled")
        os.unlink(path)
        begun.broken()
        wait_until(lambda: RESET in daemon.read_log(), "the log's line")


@test("the service stops in the middle of an image: the connection is reset; the job ends after the restart")
def stopped():
    with start(expect_trouble=True, drain_time=0) as daemon:
        truth = expected(daemon)
        with mrd.Session(daemon) as session:
            path = f"{daemon.environment['HOLDSTEP']}.shown"
            with open(path, "w"):
                pass
            begun = Begun(daemon, session)
            job = running(daemon, begun.before)["id"]
            daemon.process.send_signal(signal.SIGTERM)
            begun.broken()
            daemon.process.wait(120)
            os.unlink(path)
        daemon.restart()
        same(daemon.finish(job)["state"], "succeeded", "state after the restart")
        found = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job}/results/image?format=npy").expect(200).body))
        assert np.array_equal(found.reshape(truth.shape), truth), "other pixels"
        same([name for name in daemon.files() if name.endswith((".live", ".part"))], [], "files left behind")


@test("a client that hangs up in the middle of an image: its job ends all the same, and the next client is served")
def left(daemon):
    truth = expected(daemon)
    with daemon.held("shown"):
        with mrd.Session(daemon) as session:
            begun = Begun(daemon, session)
            job = running(daemon, begun.before)["id"]
        wait_until(lambda: 'mrirecond_mrd_sessions_total{end="left"} 0' not in daemon.get("/metrics").body.decode(),
                   "the session's end")
    same(daemon.finish(job)["state"], "succeeded", "state")
    found = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job}/results/image?format=npy").expect(200).body))
    assert np.array_equal(found.reshape(truth.shape), truth), "other pixels"
    with mrd.Session(daemon) as session:
        (_, pixels), = session.send(*STREAM).images()
    assert np.array_equal(pixels[0], truth), "other pixels for the next client"


@test("a client that reads nothing until the job has ended, and then a little at a time: the image is whole")
def slow(daemon):
    truth = expected(daemon)
    with mrd.Session(daemon) as session:
        session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        begun = Begun(daemon, session)
        same(daemon.finish(running_or_done(daemon, begun.before))["state"], "succeeded", "state")
        while len(begun.bytes) < begun.all:
            begun.bytes += session.take(min(5000, begun.all - len(begun.bytes)))
        assert np.array_equal(begun.rest(), truth[0]), "other pixels"


def running_or_done(daemon, before):
    """The job after `before`, once there is one."""
    return wait_until(lambda: newest(daemon)["id"] != before["id"] and newest(daemon)["id"], "the job")


@test("over HTTP a large image is a part when it is whole, also one that is shown in pieces")
def posted(daemon):
    truth = expected(daemon)
    with Post(daemon, QUERY, Idempotency_Key="pieces", Accept=MIXED) as post:
        post.send(MESSAGES[0])
        parts = arriving(daemon, "pieces")
        with daemon.held("shown") as go_on:
            post.send(*MESSAGES[1:])
            go_on()
        same(post.end()[0], 202, "answer to the body")
        images, document = parts.all()
    same((document["state"], len(images)), ("succeeded", 1), "the last part, and the images")
    assert np.array_equal(images[0][1][0], truth), "other pixels"


@test("hundreds of images of one stream: each comes in its place while later ones are sent, and the daemon keeps none")
def many(daemon):
    count = int(os.environ.get("MRIRECON_IMAGES", "400"))  # a multiple of 100; 2,000 take minutes
    scan = series(count, spokes=3, samples=16, coils=1)
    scan.traj = np.tile(scan.traj[::count], (count, 1, 1))
    query = "kind=recon&traj_units=pixel"
    messages = list(scan.messages())
    with mrd.Session(daemon) as session:
        session.send(mrd.text(mrd.CONFIG_TEXT, query), messages[0])
        found, peaks = [], []
        for frame in range(0, count, 100):
            session.send(*messages[1 + 3 * frame + (frame > 0):min(1 + 3 * (frame + 100) + 1, 1 + 3 * count)])
            # The last image of these is complete with the first readout of the next ones.
            found += [image_of(session) for _ in range(100 if frame + 100 < count else 99)]
            peaks.append(daemon.peak_memory())
        session.send(*messages[1 + 3 * count:])
        found += [image_of(session) for _ in range(count - len(found))]
        same(session.take(2), b"\4\0", "what follows the images")
    same([index for index, _ in found], list(range(1, count + 1)), "places in the series")
    truth = expected(daemon, scan, query)
    assert np.array_equal(np.array([pixels[0, 0] for _, pixels in found]), truth), "other pixels"
    same(daemon.job(newest(daemon)["id"])["state"], "succeeded", "state")
    # An image has 2.3 kB. A session has a buffer of 256 KiB, and a log line, an event or a poll some bytes. Sanitizers
    # keep what was freed.
    assert peaks[-1] - peaks[1] < (64 << 20 if sanitized() else 1 << 19), f"the daemon's memory: {peaks}"


if __name__ == "__main__":
    main(start)
