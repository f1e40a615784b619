#!/usr/bin/python3
"""The clock of the machine jumps by days, back and forth, with jobs waiting, running and ended: none is lost, none hangs."""
import os
import tempfile

import scans
from harness import BIN, Daemon, main, same, test

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
SHIM = os.path.join(os.path.dirname(BIN), "tests", "clockjump.so")
OFFSET = FOLDER.name + "/offset"
DAY = 86400


def jump(days):
    with open(OFFSET + ".new", "w") as file:
        file.write(str(days * DAY))
    os.rename(OFFSET + ".new", OFFSET)


@test("the clock jumps back and forth by days: each job ends, all are listed in the order they came, no duration is below 0")
def jumps():
    jump(0)
    preload = {"LD_PRELOAD": SHIM, "CLOCKJUMP": OFFSET, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    with Daemon(environment=preload) as daemon:
        jobs, seen = [], []
        for days in (0, -3, 5, -40):
            slow = daemon.submit(scans.slow().bytes(FOLDER.name), scans.SLOW_QUERY.replace("1000", "30")).expect(202).json()["id"]
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
        wait = metrics["mrirecond_job_queue_wait_seconds_sum"]  # by the clock, for it spans restarts; never below 0
        assert wait >= 0, f"jobs waited {wait} s in all"
        durations = {name: value for name, value in metrics.items() if name.startswith("mrirecond_job_duration_seconds_sum")}
        assert durations and all(0 <= value < DAY for value in durations.values()), f"a duration was taken from the clock that jumped: {durations}"


@test("a start with the clock set back: what ended in its future is served, what is submitted succeeds")
def start_in_the_past():
    jump(0)
    preload = {"LD_PRELOAD": SHIM, "CLOCKJUMP": OFFSET, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    daemon = Daemon(environment=preload, expect_trouble=True)
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
