#!/usr/bin/python3
"""A disk that fails: some of the cases of tests/faults/diskfaults.py (docs/notebook/durability.md has the results of
all), and cases that these have found.
"""
import base64
import concurrent.futures
import errno
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time

import mrd
import streams
from harness import ROOT, SLOW, Daemon, check_problem, fault, main, same, test, wait_until
from live import MIXED, Post, arriving, image_of, series
from receiver import Receiver, write
from tus import uploads_of

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import diskfaults  # noqa: E402
from diskfaults import TUS, tells  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
BODY = diskfaults.scans.radial(seed=71).bytes(FOLDER.name)
QUERY = "kind=recon&output=complex&coils=none"


class Failing(Daemon):
    """A daemon with a fault that can be armed, and that stops at files whose names begin with `hold` (latelook.c)."""

    def __init__(self, **options):
        self.there = tempfile.mkdtemp(dir=FOLDER.name)
        self.fault, self.hold = diskfaults.Fault(self.there + ".fault"), self.there + ".hold"
        environment = diskfaults.preload(self.there, self.fault)
        environment["LD_PRELOAD"] = fault("latelook") + ":" + environment["LD_PRELOAD"]  # a held call may fail then
        super().__init__(state=self.there, environment={**environment, "LATELOOK_HOLD": self.hold}, expect_trouble=True,
                         **options)

    def clean(self):
        shutil.rmtree(self.there, ignore_errors=True)

    def arm(self, call, error=errno.EIO, lasts=False):
        self.fault.arm(1, error, lasts, only=call)

    def refused(self, answer):
        assert answer.status in (500, 507) and tells(answer.json()["detail"]), (answer.status, answer.body)
        assert self.fault.failed(), "nothing has failed"

    def upload(self):
        return self.request("POST", "/v1/uploads?kind=recon",
                            headers={**TUS, "Upload-Length": str(len(BODY))}).expect(201).headers["location"]

    def patch(self, where, begin, end, **more):
        return self.request("PATCH", where, BODY[begin:end], {**TUS, "Upload-Offset": str(begin), **more})

    def checks(self):
        return self.get("/readyz?verbose").json()["checks"]


@test("8 points at which the disk fails once or for good: accepted jobs end, refusals give the reason")
def few_points():
    report = diskfaults.some(8, seed=4, most=100)
    same(report["wrong"], [], "what went wrong")
    assert report["points"] > 4 and report["refused"] > 4 and report["ends"]["succeeded"] > 30, json.dumps(report)


def goes_on_after(call, **headers):
    """A chunk with these headers during which this call fails did not arrive: it is sent again, and the upload
    succeeds.
    """
    with Failing() as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)
        daemon.arm(call)
        daemon.refused(daemon.patch(where, 30000, 60000, **headers))
        same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "30000", "Upload-Offset")
        daemon.patch(where, 30000, len(BODY)).expect(204)
        same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")


@test("bytes of a resumable upload that the disk refused did not arrive, though they can be read: they are sent again")
def chunk_not_synced():
    goes_on_after("fdatasync")


@test("no worker has a resumable upload whose last bytes the disk may still refuse: they would be cut off under it")
def not_told_before_synced():
    with Failing() as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
        where = daemon.upload()
        identity, worker = where.rsplit("/", 1)[1], daemon.worker()
        daemon.patch(where, 0, 30000).expect(204)

        def has_it():
            with open(f"/proc/{worker}/maps") as maps:
                return identity in maps.read()
        with open(daemon.hold + ".sync", "w"):
            last = pool.submit(daemon.patch, where, 30000, len(BODY))
        wait_until(lambda: os.path.exists(daemon.hold + ".sync.there"), "the whole upload")
        end = time.monotonic() + 1  # more than enough for a worker that is told of it
        while time.monotonic() < end and not has_it():
            time.sleep(0.02)
        had = has_it()
        daemon.arm("fdatasync")
        os.unlink(daemon.hold + ".sync")
        daemon.refused(last.result())
        same(had, False, "whether the worker had mapped it")
        daemon.patch(where, 30000, len(BODY)).expect(204)
        same(daemon.finish(identity)["state"], "succeeded", "state")
        same(daemon.worker(), worker, "the worker")


@test("a chunk with a wrong checksum that cannot be removed again did not arrive; the upload continues before it")
def chunk_not_taken_back():
    goes_on_after("ftruncate", **{"Upload-Checksum": "sha256 " + base64.b64encode(bytes(32)).decode()})


@test("nor does it arrive because the disk does not show where it began")
def chunk_not_seen():
    with Failing() as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)
        daemon.arm("ftruncate")
        wrong = {"Upload-Checksum": "sha256 " + base64.b64encode(bytes(32)).decode()}
        daemon.refused(daemon.patch(where, 30000, 60000, **wrong))
        failed = daemon.fault.failed()
        # A request opens the upload's note and ID.chunk; one that continues it then does so to take the chunk back.
        daemon.fault.arm(4, errno.EIO, False, only="opening")
        daemon.refused(daemon.patch(where, 60000, len(BODY)))
        same(daemon.fault.failed(), failed + 1, "failed calls")
        same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "30000", "Upload-Offset")
        daemon.patch(where, 30000, len(BODY)).expect(204)
        same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")


@test("a chunk with a checksum of which the disk takes no note, or half of it, takes nothing of those before it")
def chunk_not_noted():
    for error in (errno.EIO, errno.ENOSPC):
        with Failing() as daemon:
            where = daemon.upload()
            daemon.patch(where, 0, 30000).expect(204)
            daemon.arm("write", error, lasts=True)
            digest = base64.b64encode(hashlib.sha256(BODY[30000:]).digest()).decode()
            daemon.refused(daemon.patch(where, 30000, len(BODY), **{"Upload-Checksum": "sha256 " + digest}))
            daemon.fault.release()
            same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "30000",
                 "Upload-Offset")
            daemon.patch(where, 30000, len(BODY)).expect(204)
            same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")


@test("half a note of such a chunk, which the disk does not remove either, takes nothing of those before it")
def chunk_half_noted():
    with Failing() as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)
        daemon.arm("write unlinkat", errno.ENOSPC, lasts=True)
        digest = base64.b64encode(hashlib.sha256(BODY[30000:]).digest()).decode()
        daemon.refused(daemon.patch(where, 30000, len(BODY), **{"Upload-Checksum": "sha256 " + digest}))
        daemon.fault.release()
        note = f"{daemon.state}/uploads/{where.rsplit('/', 1)[1]}.chunk"
        assert os.path.getsize(note) > 0, "no half of a note"
        for _ in range(2):
            same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "30000",
                 "Upload-Offset")
            daemon.kill()
            daemon.restart()
        daemon.patch(where, 30000, len(BODY)).expect(204)
        same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")


def ends_after(calls):
    """A daemon, and a resumable upload of which a chunk was refused while these calls failed."""
    daemon = Failing()
    where = daemon.upload()
    daemon.patch(where, 0, 30000).expect(204)
    daemon.arm(calls, lasts=True)
    answer = daemon.patch(where, 30000, 60000)
    daemon.refused(answer)
    assert "Create a new one" in answer.json()["detail"], answer.body
    daemon.fault.release()
    return daemon, where


@test("a chunk that can be neither written nor removed ends its upload: the sender starts again, nothing is left")
def chunk_lost():
    daemon, where = ends_after("fdatasync ftruncate")
    with daemon:
        same(daemon.request("HEAD", where, headers=TUS).status, 404, "status of HEAD")
        same([name for name in daemon.files() if name.startswith("uploads/")], [], "files of uploads")
        same(daemon.metrics()["mrirecond_spool_used_bytes"], 0, "bytes counted")
        again = daemon.upload()
        daemon.patch(again, 0, len(BODY)).expect(204)
        same(daemon.finish(again.rsplit("/", 1)[1])["state"], "succeeded", "state")


@test("such an upload that cannot be removed either is refused on every request")
def chunk_lost_and_not_removed():
    daemon, where = ends_after("fdatasync ftruncate unlinkat")
    with daemon:
        for answer in (daemon.get(where), daemon.patch(where, 60000, len(BODY)), daemon.patch(where, 30000, 60000),
                       daemon.request("DELETE", where, headers=TUS)):
            assert "Create a new one" in answer.problem(404, "not-found")["detail"], answer.body


@test("a resumable upload exists if, and only if, its creation was answered with 201")
def created_or_not():
    with Failing() as daemon:
        statuses = set()
        for call in ("opening", "fstatat"):
            for number in itertools.count(1):
                before, failed = uploads_of(daemon), daemon.fault.failed()
                daemon.fault.arm(number, errno.EIO, False, only=call)
                status = daemon.request("POST", "/v1/uploads?kind=recon",
                                        headers={**TUS, "Upload-Length": str(len(BODY))}).status
                daemon.fault.release()
                same((status, len(uploads_of(daemon) - before)), (201, 1) if status == 201 else (500, 0),
                     f"status and new uploads after {call} number {number} failed")
                statuses.add(status)
                if daemon.fault.failed() == failed:
                    break
        same(statuses, {201, 500}, "statuses")


@test("a resumable upload that the disk refuses to remove is still there, and told so")
def upload_stays():
    with Failing() as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)
        daemon.arm("unlinkat")
        daemon.refused(daemon.request("DELETE", where, headers=TUS))
        same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "30000", "Upload-Offset")
        daemon.fault.release()
        daemon.request("DELETE", where, headers=TUS).expect(204)
        same(daemon.request("HEAD", where, headers=TUS).status, 404, "status of HEAD")
        same(daemon.metrics()["mrirecond_spool_used_bytes"], 0, "bytes counted")


def with_its_upload(daemon):
    """The path of a job whose resumable upload could not be removed, and the upload."""
    where = daemon.upload()
    with daemon.paused():
        daemon.arm("unlinkat", lasts=True)
        daemon.patch(where, 0, len(BODY)).expect(204)
        assert daemon.fault.failed(), "nothing has failed"
        daemon.fault.release()
    identity = where.rsplit("/", 1)[1]
    same(daemon.finish(identity)["state"], "succeeded", "state")
    return f"/v1/jobs/{identity}", where


@test("a job whose upload is still there does not come back when it is deleted, however; else it is not deleted")
def deleted_with_its_upload():
    for method, path in (("DELETE", "{}"), ("DELETE", "/v1/jobs?older=0")):
        with Failing() as daemon:
            job, _ = with_its_upload(daemon)
            daemon.arm("unlinkat", lasts=True)
            daemon.refused(daemon.request(method, path.format(job)))
            same(daemon.get(job).expect(200).json()["state"], "succeeded", "state")
            daemon.fault.release()
            answer = daemon.request(method, path.format(job))
            assert answer.status in (200, 204), answer.body
            same(daemon.get(job).status, 404, "status of the deleted job")
            daemon.kill()
            daemon.restart()
            same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs after the start")


@test("such an upload makes no second job, and no file stays of it")
def finished_again():
    with Failing() as daemon:
        job, where = with_its_upload(daemon)
        same(daemon.patch(where, len(BODY), len(BODY)).expect(204).headers["x-job-id"], job.rsplit("/", 1)[1], "job")
        same(daemon.metrics()['mrirecond_jobs_submitted_total{kind="recon"}'], 1, "jobs accepted")
        # The test write of a disk that has failed may be left, too.
        same([name for name in daemon.files() if name.startswith(("uploads/", "spool/0"))], [], "files")
        same(daemon.metrics()["mrirecond_spool_used_bytes"], 0, "bytes counted")


@test("/readyz reports a store that cannot commit until it can; a kill meanwhile revives no refused job")
def store_not_ready():
    with Failing() as daemon:
        daemon.arm("fdatasync", lasts=True)
        daemon.refused(daemon.submit(BODY))
        for _ in range(3):
            time.sleep(1.1)  # the store retries every second
            same(daemon.get("/readyz").status, 503, "status of /readyz")
            assert tells(daemon.checks()["store"]), daemon.checks()
        daemon.fault.release()
        wait_until(lambda: daemon.get("/readyz").status == 200, "a store that is well")
        daemon.arm("fdatasync")
        daemon.refused(daemon.submit(BODY))
        daemon.kill()
        daemon.restart()
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")


@test("a disk that refuses results: its job and later ones wait, /readyz reports it, and all succeed afterwards")
def others_wait():
    with Failing() as daemon:
        worker = daemon.worker()
        os.kill(worker, signal.SIGSTOP)
        ids = [daemon.submit(BODY).expect(202).json()["id"] for _ in range(6)]
        daemon.arm("fsync", lasts=True)
        os.kill(worker, signal.SIGCONT)
        wait_until(lambda: tells((told := daemon.checks())["spool"]) and tells(told["starting"]), "/readyz to tell")
        same((daemon.get("/readyz").status, daemon.checks()["store"]), (503, "ok"), "/readyz, and the store's check")
        time.sleep(1.5)
        same([daemon.job(identity)["state"] for identity in ids], ["queued"] * 6, "states")
        wait_until(lambda: daemon.metrics()['mrirecond_jobs_put_back_total{reason="io-error"}'] >= 1,
                   "a job that was put back to be counted")
        daemon.fault.release()
        wait_until(lambda: daemon.get("/readyz").status == 200, "a disk that is well")
        for identity in ids:
            job = daemon.finish(identity)
            same((job["state"], job["attempts"]), ("succeeded", 1), "state and attempts")


@test("files of results that cannot be made, written or kept while their scan arrives are made when the job begins")
def refused_ahead():
    for call in ("mkdirat", "openat", "pwrite", "renameat"):
        later = call in ("pwrite", "renameat")  # of the worker, since who receives writes no more; of complete results
        with Failing() as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
            def image(identity):
                return daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body  # noqa: B023
            truth = image(daemon.run(BODY)["id"])
            where = daemon.upload()
            with daemon.paused():
                with open(daemon.hold + ".link", "w"):
                    if not later:
                        daemon.arm(call)
                    last = pool.submit(daemon.patch, where, 0, len(BODY))
                wait_until(lambda: os.path.exists(daemon.hold + ".link.there"), "the whole upload")  # noqa: B023
                if later:
                    daemon.arm(call, lasts=call == "renameat")
            # Results are renamed once more if that fails.
            wait_until(lambda: daemon.fault.failed() >= 1 + (call == "renameat"), "calls to fail")  # noqa: B023
            daemon.fault.release()
            os.unlink(daemon.hold + ".link")
            last.result().expect(204)
            job = daemon.finish(where.rsplit("/", 1)[1])
            same((job["state"], job["attempts"], image(job["id"]) == truth), ("succeeded", 1, True),
                 f"state, attempts, and whether the image is that of the scan, after {daemon.fault.first()}")
            assert "queued again" not in daemon.read_log(), daemon.read_log()


@test("a result that the disk does not show is no missing one: its job is put back")
def result_not_seen():
    # readdir() has three names and an end: of files that may be open, of those to be listed, and to be synced.
    for call, number in (("fstatat", 1), ("readdir", 5), ("readdir", 9)):
        with Failing() as daemon:
            with daemon.paused():
                identity = daemon.submit(BODY).expect(202).json()["id"]
                wait_until(lambda: daemon.job(identity)["state"] == "running", "the job to begin")  # noqa: B023
                daemon.fault.arm(number, errno.EIO, False, only=call)
            job = daemon.finish(identity)
            same((job["state"], job["attempts"]), ("succeeded", 1), f"end of the job ({job['error']})")
            same([result["file"] for result in job["results"]], ["image.h5"], f"results after a failed {call}")
            assert daemon.fault.failed(), "nothing has failed"
            assert "queued again" in daemon.read_log(), f"{call} {number}: {daemon.read_log()}"


@test("a kept scan that the disk does not show is not gone: it can be resubmitted later")
def kept_scan_not_seen():
    with Failing(keep_scans="all") as daemon:
        path = f"/v1/jobs/{daemon.run(BODY)['id']}/resubmit"
        daemon.arm("fstatat", lasts=True)  # after a job's end its checkpoint is looked for, too
        daemon.refused(daemon.request("POST", path))
        daemon.fault.release()
        same(daemon.finish(daemon.request("POST", path).expect(202).json()["id"])["state"], "succeeded", "state")


@test("a scan that the disk does not show at a start is no missing one: no job is lost, at worst the start fails")
def scan_not_seen():
    for call in ("readdir", "fstatat", "linkat"):
        with Failing() as daemon:
            os.kill(daemon.worker(), signal.SIGSTOP)
            identity = daemon.submit(BODY).expect(202).json()["id"]
            daemon.kill()
            if call == "linkat":  # its scan is still the bytes of a resumable upload
                os.rename(f"{daemon.state}/spool/{identity}", f"{daemon.state}/uploads/{identity}")
            daemon.arm(call)
            try:
                daemon.restart()
            except AssertionError:
                assert daemon.fault.failed(), "it did not start, and nothing has failed"
                daemon.restart()
            job = daemon.finish(identity)
            same(job["state"], "succeeded", f"state ({job['error']}) after a failed {daemon.fault.first()}")


@test("a resumable upload that the disk does not show stays one: requests are refused with the reason")
def upload_not_seen():
    with Failing() as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)
        for call, error, status in (("opening", errno.EMFILE, 503), ("opening", errno.EIO, 500),
                                    ("fstatat", errno.EIO, 500)):
            daemon.arm(call, error)
            same(daemon.get(where).status, status, f"status after a failed {call}")
            assert daemon.fault.failed(), "nothing has failed"
        daemon.kill()
        # Of a repaired store, the job store and its log, then of its note.
        daemon.fault.arm(4, errno.EIO, False, only="fstatat")
        daemon.restart()
        assert daemon.fault.first().endswith(".json"), daemon.fault.first()

        def used():
            return daemon.metrics()["mrirecond_spool_used_bytes"]
        same(used(), 0, "bytes counted before it is seen")
        daemon.patch(where, 30000, 60000).expect(204)
        same(used(), len(BODY), "bytes counted when it is")
        daemon.patch(where, 60000, len(BODY)).expect(204)
        same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")
        wait_until(lambda: used() == 0, "the bytes to be released")


@test("a start that the disk does not show every name fails; else it has seen each upload, and made jobs of whole ones")
def names_not_seen():
    daemon = Failing()
    base, (whole, *others) = daemon.there, [daemon.upload().rsplit("/", 1)[1] for _ in range(3)]
    daemon.kill()
    with open(f"{base}/uploads/{whole}", "wb") as file:
        file.write(BODY)
    for number in itertools.count(1):
        state = shutil.copytree(base, f"{base}-{number}")
        failing = diskfaults.Fault(state + ".fault")
        failing.arm(number, errno.EIO, False, only="readdir")
        try:
            with Daemon(state=state, environment=diskfaults.preload(state, failing), expect_trouble=True) as again:
                same(again.get(f"/v1/jobs/{whole}").status, 200, f"status of its job after call {number} failed")
                same(again.finish(whole)["state"], "succeeded", "state")
                left = len(others) * len(BODY)
                wait_until(lambda: again.metrics()["mrirecond_spool_used_bytes"] == left,  # noqa: B023
                           f"the bytes of both other uploads to be counted, after call {number} failed")
        except AssertionError as error:
            if "exited with" not in str(error):
                raise
            assert failing.failed() and tells(str(error)), error
        if not failing.failed():
            break
    assert number > 12, f"{number} calls"


@test("an expired upload that the disk refuses to remove is counted until it is removed")
def expired_stays():
    with Failing(upload_lifetime=2) as daemon:
        where = daemon.upload()
        daemon.patch(where, 0, 30000).expect(204)

        def used():
            return daemon.metrics()["mrirecond_spool_used_bytes"]
        daemon.arm("unlinkat", lasts=True)
        wait_until(daemon.fault.failed, "the upload to expire")
        before = daemon.fault.failed()
        wait_until(lambda: daemon.fault.failed() > before, "another attempt")
        same((used() >= 30000, "expired" in daemon.read_log()), (True, False), "counted, and told expired")
        same(daemon.request("HEAD", where, headers=TUS).status, 200, "status meanwhile")
        daemon.fault.release()
        wait_until(lambda: used() == 0, "the bytes to be released")
        same(daemon.request("HEAD", where, headers=TUS).status, 404, "status at the end")


@test("a sweep over resumable uploads that the disk does not show reports it, and is made again")
def sweep_not_seen():
    with Failing(upload_lifetime=3) as daemon:
        where = daemon.upload()
        daemon.arm("readdir", lasts=True)
        wait_until(lambda: "not all resumable uploads were looked at" in daemon.read_log(), "the log to tell")
        same(daemon.request("HEAD", where, headers=TUS).status, 200, "status meanwhile")
        daemon.fault.release()
        wait_until(lambda: daemon.request("HEAD", where, headers=TUS).status == 404, "the upload to expire")


@test("a job that is put back is queued again for those who follow its events")
def put_back_is_an_event():
    with Failing() as daemon:
        with daemon.paused():
            identity = daemon.submit(BODY).expect(202).json()["id"]
            stream = streams.Stream(daemon, f"/v1/jobs/{identity}/events")
            states = ((data["state"], int(number)) for name, number, data in stream.events() if name == "state")
            while (told := next(states))[0] != "running":
                pass
            daemon.arm("fsync", lasts=True)
        same(next(states)[0], "queued", "state when it was put back")
        with daemon.paused():
            daemon.fault.release()
            wait_until(lambda: daemon.job(identity)["state"] == "running", "its second try")
            last = told[1] // 10**9 * 10**9 + 10**9 - 1  # the id of all progress of the first
            late = streams.Stream(daemon, f"/v1/jobs/{identity}/events", last)
            name, _, data = next(late.events())
            same((name, data["state"]), ("state", "running"), "what a client is told that has seen the first try")
            late.close()
        same(list(states)[-1][0], "succeeded", "the last state, once the disk is well")
        stream.close()


@test("a delivery whose outcome the store refuses is recorded later, by itself or at the stop, and sent once")
def delivery_recorded_later():
    for stopped in (False, True):
        with Receiver() as receiver:
            receiver.hold.clear()
            lines = write(FOLDER.name, "lines", receiver.destination(FOLDER.name, "hook") + "rule hook\n")
            with Failing(destinations=lines) as daemon:
                job = daemon.run(BODY)["id"]

                def state():
                    return daemon.job(job)["deliveries"][0]["state"]
                wait_until(lambda: receiver.got, "the delivery to be sent")
                daemon.arm("fdatasync", lasts=True)
                receiver.hold.set()
                wait_until(daemon.fault.failed, "the store to fail")
                wait_until(lambda: daemon.get("/readyz").status == 503, "/readyz to tell")
                same(state(), "sending", "state meanwhile")
                daemon.fault.release()
                if stopped:
                    daemon.process.send_signal(signal.SIGTERM)
                    daemon.process.wait(SLOW)
                    daemon.restart()
                wait_until(lambda: state() == "delivered", "the outcome to be recorded")
                same(len(receiver.got), 1, "deliveries")


@test("a view is answered, and the service stops, although the disk refuses to remove the oldest of too many")
def view_that_stays():
    with Failing() as daemon:
        path = f"/v1/jobs/{daemon.run(BODY)['id']}/results/image"
        for size in range(1, 65):
            daemon.get(f"{path}?size={size}").expect(200)
        daemon.arm("unlinkat", lasts=True)
        daemon.get(f"{path}?size=65").expect(200)
        assert daemon.fault.failed(), "nothing has failed"
        daemon.fault.release()


# What a scan's commit waits for: its file (fsync), and its row (fdatasync).
COMMIT = ("fsync", "fdatasync")


def nothing_accepted(daemon):
    """Assert that the refused scan became no job, also after a crash, and that it left no files."""
    assert daemon.fault.failed(), "nothing has failed"
    daemon.fault.release()
    wait_until(lambda: daemon.get("/readyz").status == 200, "a disk that is well")
    for _ in range(2):
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")
        wait_until(lambda: daemon.metrics()["mrirecond_spool_used_bytes"] == 0, "the scan's bytes to be released")
        daemon.kill()
        daemon.restart()
    same(daemon.run(BODY)["state"], "succeeded", "state of a later job")


@test("an MRD stream whose images are sent while its commit fails ends with the reason, not as if it had succeeded")
def stream_not_committed():
    messages = [mrd.text(mrd.CONFIG_TEXT, QUERY), *series().messages()]
    for call in COMMIT:
        with Failing(mrd_listen="127.0.0.1:0") as daemon:
            with mrd.Session(daemon) as session:
                same(image_of(session.send(*messages[:2 + 31 + 1]))[0], 1, "the first image's place")
                daemon.arm(call, lasts=True)
                *images, (number, body) = session.send(*messages[2 + 31 + 1:]).messages()
            same({kind for kind, _ in images} - {mrd.IMAGE}, set(), "other messages than images before the last")
            assert number == mrd.TEXT and tells(body.decode()), (number, body)
            nothing_accepted(daemon)


@test("a posted stream whose images are sent while its commit fails: the answer has the reason, the images end")
def post_not_committed():
    messages = list(series().messages())
    for call in COMMIT:
        with Failing() as daemon:
            with Post(daemon, QUERY, Idempotency_Key="lost", Accept=MIXED) as post:
                post.send(*messages[:1 + 31 + 1])
                parts = arriving(daemon, "lost")
                same(parts.next()[0], 1, "the first image's place")
                daemon.arm(call, lasts=True)
                status, _, body = post.send(*messages[1 + 31 + 1:]).end()
                assert status in (500, 507) and tells(json.loads(body)["detail"]), (status, body)
            _, problem = parts.all()
            assert "there is no job of it" in check_problem(problem, "truncated-file")["detail"], problem
            parts.close()
            nothing_accepted(daemon)


@test("a complete upload whose job the store refused becomes a job later, by itself")
def finished_later():
    with Failing(upload_lifetime=5) as daemon:
        def complete():
            """A complete upload whose job was refused; None if it expired while its bytes arrived."""
            where = daemon.upload()
            if daemon.patch(where, 0, 50000).status == 404:
                return None
            daemon.arm("linkat")
            answer = daemon.patch(where, 50000, len(BODY))
            if answer.status == 404:
                return None
            daemon.refused(answer)
            return where
        where = wait_until(complete, "an upload that arrives within its lifetime")
        same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], str(len(BODY)),
             "Upload-Offset")
        identity = where.rsplit("/", 1)[1]
        wait_until(lambda: daemon.get(f"/v1/jobs/{identity}").status == 200, "the upload to become a job")
        same(daemon.finish(identity)["state"], "succeeded", "state")


@test("a job whose scan is missing at the start fails, and its Idempotency-Key may be used for the scan again")
def key_of_a_lost_job():
    with Failing() as daemon:
        os.kill(daemon.worker(), signal.SIGSTOP)
        lost = daemon.submit(BODY, Idempotency_Key="one").expect(202).json()["id"]
        daemon.kill()
        os.unlink(f"{daemon.state}/spool/{lost}")
        daemon.restart()
        job = daemon.job(lost)
        assert job["state"] == "failed" and "Submit it again" in job["error"]["detail"], job
        again = daemon.submit(BODY, Idempotency_Key="one").expect(202).json()["id"]
        assert again != lost, "answered with the job that is lost"
        same(daemon.finish(again)["state"], "succeeded", "state")


if __name__ == "__main__":
    main()
