#!/usr/bin/python3
"""mrirecond runs out of disk space, inodes or file descriptors while accepted jobs wait: nothing may be lost.

    tests/faults/fulldisk.py [--jobs 40] [--seconds 5] [--cases bytes,bytes-at-work,inodes,descriptors]

Jobs wait behind a stopped worker; then another program uses up the resource (of a small tmpfs, which requires root),
the worker continues for so many seconds, and the resource is released. Meanwhile no job may fail and no scan may be
lost; submissions are refused and /readyz says why; afterwards every accepted job must succeed. Prints one JSON object;
exits 1 if anything was lost, 77 if no file system can be mounted. MRIRECON_BIN: the programs.
"""
import argparse
import collections
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import scans  # noqa: E402
from harness import FINAL, Daemon, wait_until  # noqa: E402

CASES = {  # case: options of the daemon
    "bytes": {"spool_reserve": "4M", "work_reserve": "2M"},
    "bytes-at-work": {"spool_reserve": "0", "work_reserve": "0"},  # a job begins without room for its results
    "inodes": {"spool_reserve": "4M", "work_reserve": "2M"},
    "descriptors": {},
}


class CannotMount(Exception):
    """No file system of a limited size can be mounted."""


@contextlib.contextmanager
def small_disk(folder):
    """A tmpfs of 64 MB and 1,000 inodes."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M,nr_inodes=1000,mode=700", "tmpfs", folder],
                          capture_output=True, text=True)
    if done.returncode:
        raise CannotMount(f"no tmpfs can be mounted here: {done.stderr.strip() or done.stdout.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def take_bytes(folder):
    """Fill the disk to the last page."""
    path = f"{folder}/filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    return lambda: os.unlink(path)


def take_inodes(folder):
    """Fill the disk with empty files."""
    names = []
    with contextlib.suppress(OSError):
        while True:
            names.append(f"{folder}/filler{len(names)}")
            os.close(os.open(names[-1], os.O_CREAT | os.O_WRONLY, 0o600))
    names.pop()
    return lambda: [os.unlink(name) for name in names]


def take_descriptors(process):
    """Leave `process` one descriptor: for the connection of a request, or one file of a job."""
    def opened():
        return {int(name) for name in os.listdir(f"/proc/{process}/fd")}

    def settled():  # the connections of earlier requests are closed
        there = opened()
        time.sleep(0.5)
        return there if opened() == there else None
    before = resource.prlimit(process, resource.RLIMIT_NOFILE)
    there = wait_until(settled, "the daemon to be at rest")
    first = next(number for number in range(len(there) + 1) if number not in there)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (first + 1, before[1]))
    return lambda: resource.prlimit(process, resource.RLIMIT_NOFILE, before)


def states(daemon, ids):
    return collections.Counter(daemon.job(identity)["state"] for identity in ids)


def case(name, jobs, seconds):
    """The report of one case."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as folder, \
            contextlib.ExitStack() as stack:
        if name != "descriptors":
            stack.enter_context(small_disk(folder))
        body = scans.radial(seed=3).bytes(scratch)
        daemon = stack.enter_context(Daemon(state=folder + "/state", expect_trouble=True, **CASES[name]))
        wanted = daemon.run(body)["id"]
        image = daemon.get(f"/v1/jobs/{wanted}/results/image?format=npy").expect(200).body
        worker = daemon.worker()
        os.kill(worker, signal.SIGSTOP)
        ids = [daemon.submit(body).expect(202).json()["id"] for _ in range(jobs)]
        wait_until(lambda: daemon.job(ids[0])["state"] == "running", "a job that runs")
        give_back = {"bytes": take_bytes, "bytes-at-work": take_bytes,
                     "inodes": take_inodes}.get(name, take_descriptors)(
            daemon.process.pid if name == "descriptors" else folder)
        refusal = daemon.submit(body)
        os.kill(worker, signal.SIGCONT)
        if name in ("bytes", "inodes"):  # a little of the other resources may be free for a moment
            wait_until(lambda: daemon.get("/readyz").status == 503, "/readyz to tell")
        ready = daemon.get("/readyz?verbose")
        time.sleep(seconds)
        during = states(daemon, ids)
        held = daemon.metrics()["mrirecond_queue_held"]
        scans_gone = [identity for identity in ids if not os.path.exists(f"{daemon.state}/spool/{identity}")]
        scans_lost = [identity for identity in scans_gone if daemon.job(identity)["state"] != "succeeded"]
        give_back()
        wait_until(lambda: all(daemon.job(identity)["state"] in FINAL for identity in ids), "the end of all jobs", 300)
        after = states(daemon, ids)
        wrong = [identity for identity in ids
                 if daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").body != image]
        wait_until(lambda: daemon.get("/readyz").status == 200, "/readyz to be well again")
        put_back = {key.split('"')[1]: value for key, value in daemon.metrics().items()
                    if key.startswith("mrirecond_jobs_put_back_total") and value}
        return {"accepted": len(ids), "refused_with": [refusal.status, refusal.json()["code"],
                                                       refusal.json()["detail"]],
                "ready": [ready.status, ready.json()["checks"]["spool"], ready.json()["checks"]["store"]],
                "while_short": dict(during), "held": held, "scans_while_short": len(ids) - len(scans_gone),
                "put_back": put_back,
                "afterwards": dict(after), "attempts_most": max(daemon.job(identity)["attempts"] for identity in ids),
                "lost": len(ids) - during["queued"] - during["running"] - during["succeeded"] +
                len(ids) - after["succeeded"], "scans_lost": len(scans_lost), "wrong_images": len(wrong)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    asked = parser.parse_args()
    try:
        reports = {name: case(name, asked.jobs, asked.seconds) for name in asked.cases.split(",")}
    except CannotMount as reason:
        print(reason, file=sys.stderr)
        sys.exit(77)
    print(json.dumps(reports, indent=1))
    sys.exit(any(report["lost"] or report["scans_lost"] > 0 or report["wrong_images"] for report in reports.values()))


if __name__ == "__main__":
    main()
