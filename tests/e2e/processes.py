"""Processes of a daemon that are killed or stopped, and jobs that run meanwhile."""
import contextlib
import os
import signal
import tempfile

import scans
from harness import wait_until

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
SLOW = scans.slow().bytes(FOLDER.name)


def submit_slow(daemon, iterations=1000):
    return daemon.submit(SLOW, scans.SLOW_QUERY.replace("1000", str(iterations))).expect(202).json()["id"]


def image(daemon, identity):
    return daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body


def caught(daemon):
    """A running job and its worker, stopped by SIGSTOP. The job ends soon after the worker continues."""
    for number in range(20):
        # A different job each time, because the worker caches the last weights.
        identity = submit_slow(daemon, 120 + number)
        worker = daemon.worker()
        wait_until(lambda: (job := daemon.job(identity))["state"] not in ("queued", "running")
                   or job["progress"] > 0.02, "the job to run")
        os.kill(worker, signal.SIGSTOP)
        job = daemon.job(identity)
        if job["state"] == "running" and job["progress"] < 0.6:  # otherwise it may already have ended
            return identity, worker
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        daemon.finish(identity)
    raise AssertionError("no worker could be stopped during a job")


def state_of(process):
    """S: sleeping, R: running, Z: zombie; None: no such process."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def ended(process):
    """Whether a process has ended (it may still be a zombie)."""
    return state_of(process) in (None, "Z")
