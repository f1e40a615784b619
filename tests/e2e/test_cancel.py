#!/usr/bin/python3
"""Cancellation inside a computation that is a single call of the engine."""
import os
import subprocess
import tempfile

import scans
from harness import BIN, Daemon, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
SMALL = scans.radial(seed=71).bytes(FOLDER.name)
# One coil of 2.5 million samples in three dimensions, with the widest radial kernel: 7 s of one core with AVX2.
LONG = f"{FOLDER.name}/long.h5"
LONG_QUERY = "kind=recon&kernel=radial&width=10&dcf=none"


@test("a cancel inside one transform of many seconds is answered: its worker goes on with the next job")
def inside_a_transform():
    subprocess.run([f"{BIN}/mrirecon", "simulate", "--trajectory", "kooshball", "--matrix", "48", "--coils", "1",
                    "--readouts", "25000", "--samples", "100", "--phantom", "random", "--out", LONG], check=True)
    with open(LONG, "rb") as file:
        body = file.read()
    # On one core: the transform takes longer than the time after which the daemon would kill the worker.
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    with Daemon(devices="cpu", command=command, cancel_grace=3) as daemon:
        worker = daemon.worker()
        job = daemon.submit(body, LONG_QUERY).expect(202).json()["id"]
        wait_until(lambda: (daemon.job(job)["step"] or {}).get("name") == "gridding", "its gridding")
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
        same(daemon.finish(job)["state"], "canceled", "state")
        same(daemon.run(SMALL)["state"], "succeeded", "state of the next job")
        same(daemon.worker(), worker, "process of the worker")


if __name__ == "__main__":
    main()
