#!/usr/bin/python3
"""The disk fails at the n-th call of mrirecond or its worker that changes something on it, for n = 1, 2, 3, ...

    tests/faults/diskfaults.py [--modes once-EIO,lasting-ENOSPC] [--first 1] [--every 1]

tests/faults/diskfault.c makes one call fail (once), or all from it on (lasting), with EIO or ENOSPC. Each point is a
daemon that gets a few requests of every kind; the fault occurs during its requests, or (start-...) while it starts on
the state of a crash. Every successful answer must hold: jobs end with their image, refused jobs do not exist, resumable
uploads continue from their offset (or start again if their bytes met a permanent fault), and no file or count is left
over. Of every three points one continues in the same process after the disk has recovered, and two are killed or
stopped before; --check-state must find the folder sound afterwards (unless the fault outlasted the daemon: then it may
find a refused job) and at the end. Prints one JSON object; exits 1 if something was lost, torn or reported wrongly.
MRIRECON_BIN: the programs.
"""
import argparse
import base64
import collections
import errno
import hashlib
import http.client
import json
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import scans  # noqa: E402
from harness import BIN, FINAL, REPORTS, SLOW, Daemon, check_problem, same, wait_until  # noqa: E402
from harness import fault as library  # noqa: E402

TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
MODES = [f"{when}-{error}" for when in ("once", "lasting", "start-once", "start-lasting")
         for error in ("EIO", "ENOSPC")]
REFUSALS = (500, 503, 507)
OPTIONS = {"keep_scans": "all", "drain_time": 1}


def tells(text):
    """Whether a sentence is about the disk."""
    return any(word in text.lower()
               for word in ("disk", "job store", "input/output", "no space left")) and "success" not in text.lower()


class Fault:
    """The struct control of diskfault.c."""

    def __init__(self, path):
        with open(path, "wb") as file:
            file.write(bytes(4096))
        self.path = path
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)

    def arm(self, number, error, lasts, only=""):
        """Make the call after `number` - 1 more calls fail, counting only those named in `only` if given. Error 0: the
        process is killed before that call.
        """
        self.map[136:168] = only.encode().ljust(32, b"\0")
        struct.pack_into("=qq", self.map, 16, error, lasts)
        struct.pack_into("=q", self.map, 8, self.counted() + number)

    def release(self):
        struct.pack_into("=q", self.map, 8, 0)

    def counted(self):
        return struct.unpack_from("=q", self.map, 0)[0]

    def failed(self):
        return struct.unpack_from("=q", self.map, 32)[0]

    def first(self):
        return self.map[40:136].split(b"\0")[0].decode()


def preload(state, fault):
    """The environment of a daemon whose disk `fault` controls."""
    return {"LD_PRELOAD": library("diskfault"), "DISKFAULT_STATE": state, "DISKFAULT_CONTROL": fault.path,
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}


class Base:
    """A state folder with one ended job to keep and one to delete, an incomplete upload, and one that is complete
    without being a job, as after a crash; points work on copies.
    """

    def __init__(self, folder):
        self.folder, self.body = os.path.join(folder, "base"), scans.radial(seed=71).bytes(folder)
        os.mkdir(self.folder)
        with Daemon(state=self.folder, **OPTIONS) as daemon:
            self.old, self.doomed = (daemon.run(self.body)["id"] for _ in range(2))
            self.npy = daemon.get(f"/v1/jobs/{self.old}/results/image?format=npy").expect(200).body
            self.png = daemon.get(f"/v1/jobs/{self.doomed}/results/image?format=png").expect(200).body
            self.half, self.complete = (self.begin(daemon) for _ in range(2))
            daemon.request("PATCH", f"/v1/uploads/{self.half}", self.body[:40000],
                           {**TUS, "Upload-Offset": "0"}).expect(204)
        with open(f"{self.folder}/uploads/{self.complete}", "wb") as file:
            file.write(self.body)

    def begin(self, daemon):
        created = daemon.request("POST", "/v1/uploads?kind=recon",
                                 headers={**TUS, "Upload-Length": str(len(self.body))})
        return created.expect(201).headers["location"].rsplit("/", 1)[1]


class Point:
    """One daemon on a failing disk."""

    def __init__(self, base, folder, mode, number):
        self.base, self.mode, self.number = base, mode, number
        self.state = os.path.join(folder, f"{mode}-{number}")
        shutil.copytree(base.folder, self.state)
        self.fault = Fault(self.state + ".fault")
        self.environment = preload(self.state, self.fault)
        self.accepted, self.canceled = {base.old, base.doomed, base.complete}, set()
        self.uploads = {base.half: 40000}  # id: bytes received, by the last answer
        self.refused, self.submissions_refused = collections.Counter(), 0
        self.doubtful = set()  # ids that may exist or not
        self.given_up = set()  # uploads of which it is unknown how many bytes arrived
        self.key = None  # the job of the idempotency key, once it was answered

    def in_doubt(self):
        """Whether the daemon ends while the fault lasts: changes that it could neither sync nor revert may persist."""
        return self.mode.startswith("lasting") and self.number % 3 != 0

    def refusal(self, answer):
        """Check that an answer blames the disk, in words."""
        assert self.fault.failed(), f"answered {answer.status} before anything had failed: {answer.body[:300]!r}"
        assert answer.status in REFUSALS, f"answered {answer.status}: {answer.body[:300]!r}"
        problem = check_problem(answer.json(), answer.json()["code"], answer.status)
        assert tells(problem["detail"]), f"says {problem['detail']!r}"
        self.refused[answer.status] += 1

    def ask(self, expected, method, path, body=None, **headers):
        """The answer if it is the expected one; None if it is a refusal that blames the disk."""
        def free():  # a request that was refused early may still be ending
            answer = self.daemon.request(method, path, body, {name.replace("_", "-"): value for name,
                                                              value in headers.items()})
            return answer if answer.status != 423 else None
        answer = wait_until(free, "the end of a refused request")
        if answer.status == expected:
            return answer
        self.refusal(answer)
        return None

    def submit(self, **headers):
        answer = self.ask(202, "POST", "/v1/jobs?kind=recon", self.base.body, Accept="image/png", **headers)
        if answer:
            self.accepted.add(answer.json()["id"])
        self.submissions_refused += not answer
        return answer and answer.json()["id"]

    def wait_for_image(self):
        answer = self.ask(200, "POST", "/v1/jobs?kind=recon", self.base.body, Accept="application/x-npy",
                          Prefer="wait=100")
        if answer:
            self.accepted.add(answer.headers["x-job-id"])
            assert answer.body == self.base.npy, "the image that was sent is not that of the scan"
        self.submissions_refused += not answer

    def patch(self, identity, end, **more):
        begin = self.uploads[identity]
        answer = self.ask(204, "PATCH", f"/v1/uploads/{identity}", self.base.body[begin:end], **TUS,
                          Upload_Offset=str(begin), **more)
        if answer:
            self.uploads[identity] = end
        if not answer and "lasting" in self.mode:
            self.given_up.add(identity)
        if answer and end == len(self.base.body):
            self.accepted.add(identity)
            del self.uploads[identity]
        return answer

    def look(self, identity):
        """The offset from HEAD never falls below an earlier answer."""
        answer = self.daemon.request("HEAD", f"/v1/uploads/{identity}", headers=TUS)
        if answer.status == 404 and identity in self.given_up:
            del self.uploads[identity]
            return
        same(answer.status, 200, f"HEAD of upload {identity}")
        offset = int(answer.headers["upload-offset"])
        assert offset >= self.uploads[identity], \
            f"{self.uploads[identity]} bytes of {identity} had arrived, and {offset} are there"
        self.uploads[identity] = offset
        if offset == len(self.base.body) and self.daemon.get(f"/v1/jobs/{identity}").status == 200:
            self.accepted.add(identity)  # a start, or the daemon itself, has made a job of it
            del self.uploads[identity]

    def requests(self):
        base, middle = self.base, len(self.base.body) // 2
        self.key = self.submit(Idempotency_Key="key")
        created = self.ask(201, "POST", "/v1/uploads?kind=recon", **TUS, Upload_Length=str(len(base.body)))
        if created:
            identity = created.headers["location"].rsplit("/", 1)[1]
            self.uploads[identity] = 0
            digest = base64.b64encode(hashlib.sha256(base.body[:middle]).digest()).decode()
            if not self.patch(identity, middle, Upload_Checksum=f"sha256 {digest}"):
                self.look(identity)
            if identity in self.uploads:
                self.patch(identity, len(base.body))
        self.patch(base.half, 60000)
        identity = self.submit()
        if identity:
            answer = self.daemon.request("POST", f"/v1/jobs/{identity}/cancel")
            self.canceled.add(identity)
            if answer.status not in (202, 409):
                self.refusal(answer)
        for name, image in (("npy", base.npy), ("png", base.png)):
            answer = self.ask(200, "GET", f"/v1/jobs/{base.old}/results/image?format={name}")
            assert not answer or answer.body == image, f"the {name} that was served is not the job's"
        if self.ask(204, "DELETE", f"/v1/jobs/{base.doomed}"):
            self.accepted.remove(base.doomed)
        elif self.in_doubt():
            self.doubtful.add(base.doomed)
        answer = self.ask(202, "POST", f"/v1/jobs/{base.old}/resubmit")
        if answer:
            self.accepted.add(answer.json()["id"])
        self.submissions_refused += not answer
        if "lasting" not in self.mode:
            self.wait_for_image()
            self.ends()
        elif self.refused[500] + self.refused[507]:
            self.told_unready()
        self.same_key()

    def same_key(self):
        again = self.submit(Idempotency_Key="key")
        if self.key and again:
            same(again, self.key, "job of the idempotency key")
        self.key = self.key or again

    def told_unready(self):
        def answer():
            ready = self.daemon.get("/readyz")
            return ready if ready.status == 503 else None
        wait_until(answer, "/readyz to tell of a disk that refuses what is written")
        time.sleep(1.2)  # the daemon checks each second

        def told():
            checks = self.daemon.get("/readyz").expect(503).json()["checks"]
            return tells(checks["store"]) or tells(checks["spool"])
        wait_until(told, "/readyz to blame the disk")

    def ends(self):
        """Every accepted job ends."""
        def unfinished():
            return [job["id"] for job in self.listed() if job["state"] not in FINAL]
        wait_until(lambda: not unfinished(), "the end of all jobs")

    def listed(self):
        return self.daemon.get("/v1/jobs?limit=100").expect(200).json()["jobs"]

    def afterwards(self):
        """The disk has recovered: answers hold, interrupted work continues, and in the end nothing is left over."""
        wait_until(lambda: self.daemon.get("/readyz").status == 200, "/readyz to be well again")
        for identity in list(self.uploads):
            self.look(identity)
            if identity in self.uploads:
                self.patch(identity, len(self.base.body))
        self.same_key()
        self.ends()
        jobs = {job["id"]: job for job in self.listed()}
        same(sorted(self.accepted - jobs.keys() - self.doubtful), [], "ids that were accepted and are not listed")
        more = jobs.keys() - self.accepted
        same(len(more) > (self.submissions_refused if self.in_doubt() else 0), False,
             f"whether jobs are listed that were not accepted ({more})")
        for identity, job in jobs.items():
            if job["state"] == "succeeded":
                image = self.daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body
                assert image == self.base.npy, f"the image of {identity} is not that of its scan"
            elif job["state"] == "failed" and identity in more:
                assert "Submit it again" in job["error"]["detail"], job["error"]
            else:
                assert (job["state"] == "canceled"
                        and identity in self.canceled), f"{identity} is {job['state']}: {job.get('error')}"
        self.ends_of = collections.Counter(job["state"] for job in jobs.values())
        same(self.daemon.request("DELETE", "/v1/jobs?older=0").expect(200).json()["removed"], len(jobs), "jobs purged")
        wait_until(lambda: not self.left(), f"empty folders ({self.left()})")

    def left(self):
        used = self.daemon.metrics()["mrirecond_spool_used_bytes"]
        return [name for name in self.daemon.files()
                if name.startswith(("results/", "spool/", "uploads/"))] + ([f"{used} bytes counted"] if used else [])

    def check(self, when):
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--check-state", "--state-dir", self.state],
                              capture_output=True, text=True, timeout=SLOW)
        same(done.returncode, 0, f"status of --check-state {when} ({done.stdout}{done.stderr})")

    def start(self):
        """Start while the disk fails: the daemon serves, or ends with a sentence. Returns whether it serves."""
        words = [os.path.join(BIN, "mrirecond"), "--listen", "127.0.0.1:0", "--state-dir", self.state, "--keep-scans",
                 "all"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=dict(os.environ, **self.environment)) as process:
            timer, lines = time.monotonic(), []
            for line in process.stdout:
                lines.append(line)
                if " serves " in line or time.monotonic() - timer > SLOW:
                    time.sleep(0.3)  # its worker runs, on a failing disk
                    process.terminate()
            status = process.wait(SLOW)
        log = "".join(lines)
        assert not REPORTS.search(log), log
        serves = any(" serves " in line for line in lines)
        assert status == (0 if serves else 1), f"mrirecond ended with {status} at its start:\n{log}"
        assert serves or tells(lines[-1]), f"refused with {lines[-1]!r}"
        return serves

    def run(self):
        """Returns whether anything failed; if not, there are no further points."""
        error, lasts = getattr(errno, self.mode.rsplit("-", 1)[1]), "lasting" in self.mode
        if self.mode.startswith("start"):
            self.fault.arm(self.number, error, lasts)
            self.start()
            self.fault.release()
            self.check("after a start on a failing disk")
        else:
            self.daemon = Daemon(state=self.state, environment=self.environment, expect_trouble=True, **OPTIONS)
            try:
                self.fault.arm(self.number, error, lasts)
                self.requests()
                how = self.number % 3
                if how == 0:
                    self.fault.release()
                    self.afterwards()
                    self.daemon.stop()
                elif how == 1:
                    self.daemon.kill()
                else:
                    self.daemon.stop()
                self.fault.release()
                if not self.in_doubt():
                    self.check("after the fault")
                if how == 0:
                    return self.fault.failed() > 0
            except (AssertionError, OSError, http.client.HTTPException) as wrong:
                log = "" if self.daemon.stderr.closed else self.daemon.read_log()[-3000:]
                self.daemon.kill()
                raise AssertionError(f"{wrong!r}\n{log}") from None
        with Daemon(state=self.state, expect_trouble=True, **OPTIONS) as self.daemon:
            self.afterwards()
        self.check("at the end")
        return self.fault.failed() > 0

    def clean(self):
        shutil.rmtree(self.state, ignore_errors=True)
        os.unlink(self.fault.path)


def attempt(base, folder, mode, number, report):
    """Run one point; returns whether anything failed in it."""
    point = Point(base, folder, mode, number)
    try:
        failed = point.run()
        report["points"] += failed
        report["refused"] += sum(point.refused.values())
        report["ends"].update(point.ends_of)
    except AssertionError as wrong:
        failed = True
        report["wrong"].append(f"{mode}, call {number} ({point.fault.first()}): {wrong}")
    point.clean()
    return failed


def fresh():
    return {"points": 0, "refused": 0, "ends": collections.Counter(), "wrong": []}


def every(modes, first, step):
    """{mode: report} of the points first, first + step, ... of each mode, until no call is left to fail."""
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Base(folder)
        for mode in modes:
            report, number = fresh(), first
            while attempt(base, folder, mode, number, report) and len(report["wrong"]) < 20:
                number += step
            reports[mode] = {**report, "last": number}
    return reports


def some(count, seed, most):
    """The report of `count` points, spread over the modes, that `seed` selects among the first `most` calls."""
    chance, report = random.Random(seed), fresh()
    with tempfile.TemporaryDirectory() as folder:
        base = Base(folder)
        for i in range(count):
            attempt(base, folder, MODES[i % len(MODES)], chance.randrange(1, most), report)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated; all: %(default)s")
    parser.add_argument("--first", type=int, default=1, help="number of the first call that fails")
    parser.add_argument("--every", type=int, default=1, help="step to the next")
    asked = parser.parse_args()
    begun = time.monotonic()
    reports = every(asked.modes.split(","), asked.first, asked.every)
    print(json.dumps({**reports, "seconds": round(time.monotonic() - begun)}, indent=2))
    sys.exit(any(report["wrong"] for report in reports.values()))


if __name__ == "__main__":
    main()
