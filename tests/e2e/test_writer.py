#!/usr/bin/python3
"""Uploads that a thread of the spool writes while their next bytes arrive, as on a machine with four processors or
more: their bytes, a disk that is full in the middle, clients that leave, and kills.
"""
import concurrent.futures
import contextlib
import errno
import os
import socket
import struct
import sys
import tempfile

import scans
from harness import ROOT, SLOW, Daemon, fault, main, same, test, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import diskfaults  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
SCANS = [scans.radial(spokes=500, samples=256, seed=seed).bytes(FOLDER.name) for seed in (81, 82, 83, 84)]
assert min(map(len, SCANS)) > 2 << 20
OTHER = bytes(range(256)) * (5 << 10)  # no scan: no worker is told of it


class Writing(Daemon):
    """A daemon whose writes of uploads are slow, with so many processors."""

    def __init__(self, processors=4, **options):
        self.there = tempfile.mkdtemp(dir=FOLDER.name)
        self.fault, self.hold = diskfaults.Fault(self.there + ".fault"), self.there + ".hold"
        environment = diskfaults.preload(self.there, self.fault)
        environment["LD_PRELOAD"] = fault("slowwrite") + ":" + environment["LD_PRELOAD"]
        super().__init__(state=self.there, keep_scans="all", http_threads=1, environment={
            **environment, "PROCESSORS": str(processors), "HOLDWRITE": self.hold}, **options)

    @contextlib.contextmanager
    def held(self, sent):
        """A client that has sent so many bytes of OTHER, of which the first are written; one after is held."""
        client = socket.create_connection(("127.0.0.1", self.port), SLOW)
        client.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                       % len(OTHER) + OTHER[:1000])
        wait_until(lambda: [os.path.getsize(f"{self.there}/spool/{name}") for name in self.spool()] == [1000],
                   "the first bytes in their file")
        with open(self.hold, "w"):
            pass
        client.sendall(OTHER[1000:sent])
        wait_until(lambda: os.path.exists(self.hold + ".there"), "a write that is held")
        try:
            yield client
        finally:
            os.unlink(self.hold)
            os.unlink(self.hold + ".there")

    def spool(self):
        return sorted(os.listdir(f"{self.there}/spool"))

    def is_empty(self):
        same(self.metrics()["mrirecond_spool_used_bytes"], 0, "bytes counted")
        same(self.get("/v1/jobs").expect(200).json()["jobs"], [], "jobs")

    def kept(self, job):
        with open(f"{self.there}/spool/{job}", "rb") as file:
            return file.read()


@test("while a write waits for the disk, the thread that receives it receives more, and serves others")
def overlap():
    with Writing() as own:
        with own.held(100000) as client:
            own.get("/v1/jobs").expect(200)
            client.sendall(OTHER[100000:200000])
            own.get("/v1/jobs").expect(200)
        client.sendall(OTHER[200000:])
        assert b" 202 " in client.recv(4096)
        job, = own.get("/v1/jobs").expect(200).json()["jobs"]
        same(job["bytes"], len(OTHER), "bytes of the job")
        assert own.kept(job["id"]) == OTHER
        client.close()


@test("many uploads at once, one by the writer: each is kept byte for byte, and its image is that of a small machine's")
def many():
    query = "kind=recon&coils=none&output=complex"
    images = {}
    for processors in (2, 4, 16):
        with Writing(processors) as own, concurrent.futures.ThreadPoolExecutor(8) as threads:
            jobs = list(threads.map(lambda body: own.submit(body, query).expect(202).json()["id"], SCANS * 2))
            for job, body in zip(jobs, SCANS * 2):
                own.finish(job)
                assert own.kept(job) == body, f"a scan is not as it was sent ({processors} processors)"
                image = own.get(f"/v1/jobs/{job}/results/image?format=npy").expect(200).body
                same(image, images.setdefault(body, image), "the image")


@test("a disk that is full in the middle of an upload, or at its end: 507, nothing stays, and the next one is accepted")
def full():
    with Writing(expect_trouble=True) as own:
        own.run(SCANS[0])
        for error, lasts, status in ((errno.ENOSPC, True, 507), (errno.EIO, False, 500)):
            before = own.fault.counted()
            own.fault.arm(1 << 40, error, False, only="write")
            job = own.run(SCANS[1])["id"]
            writes = own.fault.counted() - before
            assert writes > 8, f"only {writes} writes"
            for number in (2, writes // 2, writes):
                failed, least = own.fault.failed(), number // 2
                files, used = own.spool(), own.metrics()["mrirecond_spool_used_bytes"]
                own.fault.arm(number, error, lasts, only="write")
                answer = own.submit(SCANS[2])
                while answer.status == 202 and number > least:  # in larger pieces, and so fewer writes
                    own.fault.release()  # or it meets the job's own writes
                    own.finish(answer.expect(202).json()["id"])
                    failed, files, used = own.fault.failed(), own.spool(), own.metrics()["mrirecond_spool_used_bytes"]
                    number -= 1
                    own.fault.arm(number, error, lasts, only="write")
                    answer = own.submit(SCANS[2])
                assert own.fault.failed() > failed, "no write has failed"
                assert answer.status == status and diskfaults.tells(answer.json()["detail"]), \
                    (number, answer.status, answer.body)
                own.fault.release()
                wait_until(lambda: own.get("/readyz").status == 200, "a disk that accepts writes")
                same((own.spool(), own.metrics()["mrirecond_spool_used_bytes"]), (files, used), "what is kept")
            own.submit(SCANS[3]).expect(202)
            assert own.kept(job) == SCANS[1]
        for job in own.get("/v1/jobs").expect(200).json()["jobs"]:
            own.finish(job["id"])


@test("a client that leaves while its bytes wait for the disk leaves nothing, and the daemon stops cleanly")
def left():
    with Writing() as own:
        for sent in (400000, len(OTHER) - 1):
            with own.held(sent) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            wait_until(lambda: own.spool() == [], "a spool without the upload")
            wait_until(lambda: own.metrics()["mrirecond_spool_used_bytes"] == 0, "no bytes counted")
        own.is_empty()
        with own.held(900000) as client:
            own.process.terminate()
    client.close()


@test("kill -9 while bytes wait for the disk: the next start removes the upload")
def killed():
    with Writing(expect_trouble=True) as own:
        with own.held(len(OTHER)) as client:
            own.kill()
        client.close()
        same([name.endswith(".part") for name in own.spool()], [True], "the upload's file")
        own.restart()
        same(own.spool(), [], "files in the spool")
        own.is_empty()
        assert own.run(SCANS[0])["state"] == "succeeded"


if __name__ == "__main__":
    main()
