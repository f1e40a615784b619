#!/usr/bin/python3
"""Cancellation: of running and queued jobs, and inside a computation that is a single call of the engine."""
import concurrent.futures
import os
import signal
import subprocess
import tempfile
import time

import scans
from harness import BIN, Daemon, fault, main, same, test, wait_until
from processes import state_of

FOLDER = tempfile.TemporaryDirectory()
SMALL = scans.radial(seed=71).bytes(FOLDER.name)
LONG_QUERY = "kind=recon&kernel=radial&width=10&dcf=none"


def kooshball(readouts):
    """One coil of so many readouts of 100 samples in three dimensions: with the widest radial kernel, 25,000 take a
    core with AVX2 7 s.
    """
    path = f"{FOLDER.name}/{readouts}.h5"
    subprocess.run([f"{BIN}/mrirecon", "simulate", "--trajectory", "kooshball", "--matrix", "48", "--coils", "1",
                    "--readouts", str(readouts), "--samples", "100", "--phantom", "random", "--out", path], check=True)
    with open(path, "rb") as file:
        return file.read()


def processor_seconds(process):
    """The processor time of a process so far (the clock of clock_getcpuclockid())."""
    return time.clock_gettime(~process << 3 | 2)


@test("a cancel inside one transform of many seconds is answered: its worker goes on with the next job")
def inside_a_transform():
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]  # a transform takes longer on one core
    with Daemon(devices="cpu", command=command) as daemon:
        worker = daemon.worker()
        before = processor_seconds(worker)
        daemon.run(kooshball(250), LONG_QUERY)
        hundredth = processor_seconds(worker) - before
        job = daemon.submit(kooshball(25000), LONG_QUERY).expect(202).json()["id"]
        wait_until(lambda: (daemon.job(job)["step"] or {}).get("name") == "gridding", "its gridding")
        before = processor_seconds(worker)
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
        same(daemon.finish(job)["state"], "canceled", "state")
        # It asks some fifty times during the transform. By the processor's clock, because the machine may be busy.
        spent = processor_seconds(worker) - before
        assert spent < 25 * hundredth, f"it went on for {spent:.2f} s; a hundredth of all is {hundredth:.3f} s"
        same(daemon.run(SMALL)["state"], "succeeded", "state of the next job")
        same(daemon.worker(), worker, "process of the worker")


@test("the writing of a large result is told as progress, and a cancel then is answered: its worker goes on")
def inside_the_writing():
    far = b"ATOM 1 C MOL 1 0 0 0 1 1.5\nATOM 2 C MOL 2 220 220 220 -1 1.5\n"  # 11 million nodes, 190 MB of text
    query = "kind=cutcp&spacing=1&cutoff=4&padding=1"
    # It stops when some 60 MB of the text are on the disk; the 44 MB of npy beside it take 23 calls.
    held = {"LD_PRELOAD": fault("holdsync"), "HOLDRANGE": "50",
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    with Daemon(devices="cpu", cancel_grace=600, environment=held) as daemon, \
            concurrent.futures.ThreadPoolExecutor() as beside:
        worker = daemon.worker()
        waits = beside.submit(daemon.submit, far, query, Prefer="wait=600", Accept="application/x-opendx")
        job = wait_until(lambda: [job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]], "the job")[0]
        wait_until(lambda: state_of(worker) == "T", "half of its results to be written")
        # It was 0.9 before that step, and may have been told last when the file was being written, half of the step.
        wait_until(lambda: (told := daemon.job(job))["step"]["name"] == "write" and told["progress"] > 0.91, "progress")
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
        os.kill(worker, signal.SIGCONT)
        same(daemon.finish(job)["state"], "canceled", "state")
        waits.result().problem(409, "canceled")
        same(daemon.run(SMALL)["state"], "succeeded", "state of the next job")
        same(daemon.worker(), worker, "process of the worker")


@test("cancel: a running job and a queued one; a finished one is a conflict")
def running_and_queued():
    with Daemon() as daemon:
        slow = scans.slow().bytes(FOLDER.name)
        with daemon.paused():  # it does not end before that
            running = daemon.submit(slow, scans.SLOW_QUERY).expect(202).json()["id"]
            queued = daemon.submit(slow, scans.SLOW_QUERY).expect(202).json()["id"]
            wait_until(lambda: daemon.job(running)["state"] == "running", "the job to run")
            same(daemon.job(queued)["state"], "queued", "state of the second job")
            assert (daemon.request("POST", f"/v1/jobs/{queued}/cancel").expect(202, "application/json").json()["state"]
                    == "canceled")
            assert (daemon.request("POST", f"/v1/jobs/{running}/cancel").expect(202, "application/json").json()["state"]
                    in ("canceling", "canceled"))
        for identity in (running, queued):
            job = daemon.finish(identity)
            same(job["state"], "canceled", "state")
            same(job["results"], [], "results")
        daemon.request("POST", f"/v1/jobs/{daemon.run(SMALL)['id']}/cancel").problem(409, "conflict")
        daemon.request("POST", "/v1/jobs/nothing/cancel").problem(404, "not-found")


if __name__ == "__main__":
    main()
