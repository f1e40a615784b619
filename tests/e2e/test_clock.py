#!/usr/bin/python3
"""The machine's clock jumps by days, back and forth, with jobs waiting, running and ended: none is lost, none hangs."""
import datetime
import email.utils
import os
import signal
import tempfile
import time

import scans
from harness import Daemon, fault, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
OFFSET = FOLDER.name + "/offset"
DAY = 86400
TUS = {"Tus-Resumable": "1.0.0"}


def preload():
    return {"LD_PRELOAD": fault("clockjump"), "CLOCKJUMP": OFFSET,
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}


def jump(days):
    with open(OFFSET + ".new", "w") as file:
        file.write(str(days * DAY))
    os.rename(OFFSET + ".new", OFFSET)


@test("the clock jumps by days: each job ends, the list keeps the order of submission, no duration is negative")
def jumps():
    jump(0)
    with Daemon(environment=preload()) as daemon:
        jobs, seen = [], []
        for days in (0, -3, 5, -40):
            slow = daemon.submit(scans.slow().bytes(FOLDER.name),
                                 scans.SLOW_QUERY.replace("1000", "30")).expect(202).json()["id"]
            jobs += [slow] + [daemon.submit(BODY).expect(202).json()["id"] for _ in range(2)]
            jump(days)
            jobs.append(daemon.submit(BODY).expect(202).json()["id"])
            created = daemon.job(jobs[-1])["created"]
            seen.append(created)
            for identity in jobs[-4:]:
                job = daemon.finish(identity)
                same(job["state"], "succeeded", f"state of {identity} ({job['error']})")
                daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200)
            same(daemon.get("/readyz").status, 200, "/readyz")
        assert len({text[:10] for text in seen}) >= 4, f"the clock did not jump: {seen}"
        listed = [job["id"] for job in daemon.get("/v1/jobs?limit=100").json()["jobs"]]
        same(listed, jobs[::-1], "jobs, newest first")
        metrics = daemon.metrics()
        wait = metrics["mrirecond_job_queue_wait_seconds_sum"]
        assert 0 <= wait < DAY, f"jobs waited {wait} s in all: a wait was measured by the clock that jumped"
        durations = {name: value for name, value in metrics.items()
                     if name.startswith("mrirecond_job_duration_seconds_sum")}
        assert durations and all(0 <= value < DAY for value in durations.values()), \
            f"a duration was measured by the clock that jumped: {durations}"


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@test("deadlines, waits and ages follow elapsed time: after the clock is set nothing expires or ages early or late")
def set_while_waiting():
    jump(0)
    slow = scans.slow().bytes(FOLDER.name)
    with Daemon(environment=preload(), keep_jobs=7200, priority_ageing=3600, worker_timeout=600) as daemon:
        ended = daemon.run(BODY)["id"]
        worker = daemon.worker()
        os.kill(worker, signal.SIGSTOP)  # while it is stopped, all others wait
        running = daemon.submit(slow, scans.SLOW_QUERY).expect(202).json()["id"]
        wait_until(lambda: daemon.job(running)["state"] == "running", "the job to run")
        patient = daemon.submit(BODY, "kind=recon&deadline=3600").expect(202).json()["id"]
        urgent = daemon.submit(BODY, "kind=recon&deadline=3600&priority=urgent").expect(202).json()["id"]
        for days in (30, -30, 60, 0):
            before = daemon.read_log().count("the machine's clock was set by")
            jump(days)
            wait_until(lambda: daemon.read_log().count("the machine's clock was set by") > before, "the log to tell")
            hasty = daemon.submit(BODY, "kind=recon&deadline=1").expect(202).json()["id"]
            job = daemon.finish(hasty)
            same((job["state"], (job["error"] or {}).get("code")), ("failed", "deadline-passed"),
                 f"end of a job that waited for a second, {days} days off")
            job = daemon.job(patient)
            same(job["state"], "queued",
                 f"state of a job whose deadline is in an hour, {days} days off ({job['error']})")
            same(round(seconds(job["deadline"]) - seconds(job["created"])), 3600, "seconds from acceptance to deadline")
            now = time.time() + days * DAY
            assert abs(seconds(job["created"]) - now) < 600, \
                f"accepted {job['created']}, which is not just now, {days} days off"
            same(daemon.get(f"/v1/jobs/{ended}").status, 200, "status of a job that ended a moment ago")
        os.kill(worker, signal.SIGCONT)
        daemon.request("POST", f"/v1/jobs/{running}/cancel")
        first, second = daemon.finish(urgent), daemon.finish(patient)
        same((first["state"], second["state"]), ("succeeded", "succeeded"), "ends")
        assert first["started"] <= second["started"], "setting the clock raised the priority of a waiting job"
        wait = daemon.metrics()["mrirecond_job_queue_wait_seconds_sum"]
        assert 0 <= wait < 3600, f"jobs waited {wait} s in all"


class Upload:
    """A resumable upload, and the file that holds its bytes."""

    def __init__(self, daemon):
        self.daemon, self.bytes = daemon, 0
        self.where = daemon.request("POST", "/v1/uploads?kind=recon",
                                    headers={**TUS, "Upload-Length": str(len(BODY))}).expect(201).headers["location"]
        self.path = os.path.join(daemon.state, self.where.removeprefix("/v1/"))

    def append(self):
        headers = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(self.bytes)}
        self.daemon.request("PATCH", self.where, BODY[self.bytes:self.bytes + 1], headers).expect(204)
        self.bytes += 1

    def time(self):
        return os.stat(self.path).st_mtime

    def head(self):
        return self.daemon.request("HEAD", self.where, headers=TUS)

    def expires(self):
        return email.utils.parsedate_to_datetime(self.head().expect(200).headers["upload-expires"]).timestamp()


@test("a resumable upload expires by elapsed time, whatever the clock is set to, also across a restart")
def uploads_expire():
    jump(0)
    with Daemon(environment=preload(), upload_lifetime=3600) as daemon:
        upload = Upload(daemon)
        upload.append()  # an empty upload expires sooner
        for days in (30, -30, 60):
            jump(days)
            now = time.time() + days * DAY
            wait_until(lambda: abs(upload.time() - now) < 600, "the time of the upload to move")
            assert abs(upload.expires() - now - 3600) < 600, f"expires at {upload.expires()}, at {now}"
            upload.append()
            assert abs(upload.time() - now) < 600, f"bytes arrived at {upload.time()}, at {now}"
        expired = Upload(daemon)
        daemon.kill()
        os.utime(expired.path, (now - 7200, now - 7200))
        daemon.restart()
        wait_until(lambda: "1 unfinished uploads expired" in daemon.read_log(), "the other upload to expire")
        same((upload.head().status, expired.head().status), (200, 404), "status of both")
    jump(0)
    with Daemon(environment=preload(), upload_lifetime=2) as daemon:
        upload = Upload(daemon)
        jump(-30)
        wait_until(lambda: upload.head().status == 404, "an upload to expire while the clock is set back")


@test("a start with the clock set back: jobs that ended in its future are served, new jobs succeed")
def start_in_the_past():
    jump(0)
    daemon = Daemon(environment=preload(), expect_trouble=True)
    with daemon:
        first = daemon.run(BODY)["id"]
        waiting = daemon.submit(BODY).expect(202).json()["id"]
        daemon.kill()
        jump(-400)
        daemon.restart()
        for identity in (first, waiting, daemon.run(BODY)["id"]):
            same(daemon.finish(identity)["state"], "succeeded", "state")


if __name__ == "__main__":
    main()
