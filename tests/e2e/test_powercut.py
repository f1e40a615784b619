#!/usr/bin/python3
"""Power cuts: the daemon is started on the possible disk contents after any of its syncs; every answer to a client
still holds.

tests/faults/powercut.c records each sync. The strict disk keeps only what was synced: names by a sync of their folder,
bytes by a sync of their file. The eager disk keeps all names and lengths of that moment, with zeros for bytes that were
not synced (except in uploads/). A real disk lies between the two.
"""
import base64
import collections
import errno
import hashlib
import os
import shutil
import socket
import sys
import tempfile

import scans
from harness import ROOT, Daemon, fault, main, same, test, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import diskfaults  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
POINTS = 16  # of each disk, beside those right before each answer


class Sync:
    """One N.sync: what was synced, and {path: (key, is a folder, bytes)} of everything that existed."""

    def __init__(self, trace, number):
        with open(f"{trace}/{number}.sync") as file:
            self.kind, self.key = file.readline().split()
            lines = [line.rstrip("\n").split(" ", 3) for line in file]
        self.there = {path: (key, kind == "d", int(size)) for key, kind, size, path in lines if key != "gone"}
        self.data = f"{trace}/{number}.data"


def disk(trace, number, strict, target):
    """Make the folder that a power cut after sync `number` may leave."""
    names, data = {}, {}  # {folder's key: {name: (key, is a folder, bytes)}}, {file's key: path of its data}
    for i in range(1, number + 1):
        sync = Sync(trace, i)
        if sync.kind == "file":
            data[sync.key] = sync.data
        if sync.kind == "folder" or not strict and i == number:
            for path, (key, is_folder, _) in sync.there.items():
                if is_folder and (key == sync.key or not strict):
                    names[key] = {os.path.basename(name): what for name, what in sync.there.items()
                                  if name != "." and (os.path.dirname(name) or ".") == path}
    root = sync.there["."][0]

    def fill(key, folder):
        os.makedirs(folder, exist_ok=True)
        for name, (inner, is_folder, size) in names.get(key, {}).items():
            path = os.path.join(folder, name)
            if is_folder:
                fill(inner, path)
                continue
            with open(path, "wb") as file:
                if inner in data:
                    with open(data[inner], "rb") as held:
                        file.write(held.read())
                # Shared memory is not on a disk. The file's length is the progress of a resumable upload, which
                # requires a file system that shows no length before the bytes (ext4's data=ordered, XFS, btrfs).
                if not strict and not name.endswith("-shm") and os.path.basename(folder) != "uploads":
                    file.truncate(max(size, file.tell()))
    fill(root, target)


class Told:
    """The answers that clients got, and the number of syncs before each: from then on it must hold."""

    def __init__(self, trace):
        self.trace, self.list = trace, []

    def note(self, what, *values):
        with open(f"{self.trace}/count") as file:
            self.list.append((int(file.read()), what, values))

    def by(self, number):
        told = collections.defaultdict(dict)
        for count, what, (identity, *rest) in self.list:
            if count <= number:
                told[what][identity] = rest
        return told


def begin_upload(daemon):
    """Create a resumable upload; returns its id."""
    where = daemon.request("POST", "/v1/uploads?kind=recon",
                           headers={**TUS, "Upload-Length": str(len(BODY))}).expect(201).headers["location"]
    return where.rsplit("/", 1)[1]


def work(state, trace):
    """Let a daemon do a little of everything; returns (its answers, the image)."""
    told, failing = Told(trace), diskfaults.Fault(trace + ".fault")
    preload = {**diskfaults.preload(state, failing), "POWERCUT_STATE": state, "POWERCUT_TRACE": trace}
    preload["LD_PRELOAD"] += ":" + fault("powercut")
    with Daemon(state=state, environment=preload, expect_trouble=True) as daemon:
        first = daemon.run(BODY)["id"]
        image = daemon.get(f"/v1/jobs/{first}/results/image?format=npy").expect(200).body
        told.note("succeeded", first)
        for i in range(3):
            identity = daemon.submit(BODY, Idempotency_Key=f"key-{i}").expect(202).json()["id"]
            told.note("accepted", identity)
            if i == 1:
                daemon.finish(identity)
                told.note("succeeded", identity)
                daemon.get(f"/v1/jobs/{identity}/results/image?format=png").expect(200)
        identity = begin_upload(daemon)
        for begin, end in ((0, 30000), (30000, len(BODY))):
            daemon.request("PATCH", f"/v1/uploads/{identity}", BODY[begin:end],
                           {**TUS, "Upload-Offset": str(begin)}).expect(204)
            told.note("arrived", identity, end)
        told.note("accepted", identity)
        daemon.finish(identity)
        told.note("succeeded", identity)
        # A chunk with a checksum, beside a newly created upload, whose sync takes the folder's names to the disk.
        identity = begin_upload(daemon)
        with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
            head = {**TUS, "Upload-Offset": 0, "Content-Length": 30000, "Upload-Checksum": "sha1 " +
                    base64.b64encode(hashlib.sha1(BODY[:30000]).digest()).decode()}
            head = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            connection.sendall(f"PATCH /v1/uploads/{identity} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() +
                               BODY[:20000])
            wait_until(lambda: os.path.exists(f"{state}/uploads/{identity}.chunk"), "the chunk to begin")
            beside = begin_upload(daemon)
            connection.sendall(BODY[20000:30000])
            assert b" 204 " in connection.recv(1000), "the chunk was not accepted"
        told.note("arrived", identity, 30000)
        # Names that are gone from uploads/, of which later syncs of that folder do not tell the disk: of a chunk's
        # note that could not be removed before the next chunk, of an upload whose job is deleted, of a removed one.
        identity = begin_upload(daemon)
        failing.arm(1, errno.EIO, False, only="unlinkat")
        digest = base64.b64encode(hashlib.sha1(BODY[:30000]).digest()).decode()
        daemon.request("PATCH", f"/v1/uploads/{identity}", BODY[:30000],
                       {**TUS, "Upload-Offset": "0", "Upload-Checksum": "sha1 " + digest}).expect(500)
        deleted = begin_upload(daemon)
        daemon.request("PATCH", f"/v1/uploads/{identity}", BODY[:30000], {**TUS, "Upload-Offset": "0"}).expect(204)
        told.note("arrived", identity, 30000)
        daemon.request("PATCH", f"/v1/uploads/{deleted}", BODY, {**TUS, "Upload-Offset": "0"}).expect(204)
        daemon.finish(deleted)
        daemon.request("DELETE", f"/v1/jobs/{deleted}").expect(204)
        told.note("deleted", deleted)
        daemon.request("DELETE", f"/v1/uploads/{beside}", headers=TUS).expect(204)
        told.note("removed", beside)
        # An upload that was given up, of which all bytes can be read though the disk has not taken them.
        lost = begin_upload(daemon)
        failing.arm(1, errno.EIO, True, only="fdatasync ftruncate")
        daemon.request("PATCH", f"/v1/uploads/{lost}", BODY, {**TUS, "Upload-Offset": "0"}).expect(500)
        failing.release()
        told.note("removed", lost)
        # An image that is sent before it is on the disk: its job is there, and runs again.
        answer = daemon.submit(BODY, Prefer="wait=100", Accept="application/x-npy").expect(200)
        told.note("accepted", answer.headers["x-job-id"])
        same(answer.body, image, "the image that was sent")
        identity = daemon.run(BODY)["id"]
        daemon.request("DELETE", f"/v1/jobs/{identity}").expect(204)
        told.note("deleted", identity)
    return told, image


def holds(daemon, told, image):
    """Check every answer that was given by now."""
    for identity, (bytes_,) in told["arrived"].items():
        offset = int(daemon.request("HEAD", f"/v1/uploads/{identity}",
                                    headers=TUS).expect(200).headers["upload-offset"])
        # More may be there: not yet answered.
        assert offset >= bytes_, f"{bytes_} bytes of an upload had arrived, and {offset} are there"
    for identity in told["removed"]:
        same(daemon.request("HEAD", f"/v1/uploads/{identity}", headers=TUS).status, 404, "answer for a removed upload")
    for identity in told["deleted"]:
        same(daemon.get(f"/v1/jobs/{identity}").status, 404, "answer for a deleted job")
    for identity in told["succeeded"]:
        same(daemon.job(identity)["state"], "succeeded", f"state of {identity} right after the start")
    listed = daemon.get("/v1/jobs?limit=100").expect(200).json()["jobs"]
    for identity in told["accepted"]:
        assert identity in [job["id"] for job in listed], f"{identity} was accepted and is lost"
    for job in listed:  # also jobs not yet answered: none is partly there
        job = daemon.finish(job["id"])
        same(job["state"], "succeeded", f"state of {job['id']} ({job['error']})")
        same(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body, image, "image")


TRACE = {}


def cut(strict):
    if not TRACE:
        folder = tempfile.mkdtemp(dir=FOLDER.name)  # temporary: the next test tries again if this one fails
        trace, state = folder + "/trace", folder + "/state"
        os.mkdir(trace)
        os.mkdir(state)
        TRACE["told"], TRACE["image"] = work(state, trace)
        with open(trace + "/count") as file:
            TRACE["count"] = int(file.read())
        TRACE["trace"] = trace
    count = TRACE["count"]
    points = {1 + i * (count - 1) // (POINTS - 1) for i in range(POINTS)}
    assert len(points) > 10, f"only {count} syncs were seen"
    points = sorted(points | {told[0] for told in TRACE["told"].list})
    accepted = 0
    for number in points:
        state = tempfile.mkdtemp(dir=FOLDER.name)
        disk(TRACE["trace"], number, strict, state)
        told = TRACE["told"].by(number)
        try:
            with Daemon(state=state) as daemon:
                holds(daemon, told, TRACE["image"])
        except AssertionError as error:
            kind = Sync(TRACE["trace"], number).kind
            raise AssertionError(f"after sync {number} of {count} ({kind}): {error}") from None
        accepted += len(told["accepted"])
        shutil.rmtree(state)
    assert accepted > POINTS, "no cut came after something was accepted"
    print(f"# {len(points)} cuts among {count} syncs")


@test("a power cut after any sync, on a disk that keeps only synced data: every answered request holds")
def strict_disk():
    cut(True)


@test("the same on a disk that keeps every name and length, and zeros for data that were not synced")
def eager_disk():
    cut(False)


if __name__ == "__main__":
    main()
