#!/usr/bin/python3
"""A request that waits for a job is woken by its end, also where the job ends while the request begins to wait."""
import concurrent.futures
import os
import tempfile
import time

import scans
from harness import Daemon, fault, main, same, test, wait_until

PATIENCE = 120  # seconds; a lost wake-up would answer after the 600 s that the request asks for


@test("a job that ends between a request's look and its wait wakes it")
def end_during_the_look():
    with Daemon(environment={"LD_PRELOAD": fault("latelook"), "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}) as daemon:
        scan = scans.radial(seed=71).bytes(daemon.state)
        begun = time.monotonic()
        answer = daemon.request("POST", "/v1/jobs?kind=recon", scan, {"Prefer": "wait=600", "Accept": "image/png"}, timeout=PATIENCE)
        same(answer.expect(200).body[:4], b"\x89PNG", "what came back")
        assert time.monotonic() - begun >= 0.5, "latelook.so delayed nothing, so nothing was tested"


@test("a job that ends while its document is made is told as ended, not as running without progress")
def end_during_the_document():
    with tempfile.TemporaryDirectory() as folder:
        hold = folder + "/hold"
        environment = {"LD_PRELOAD": fault("latelook"), "LATELOOK_HOLD": hold, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
        with Daemon(environment=environment) as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
            def listed():  # by another look at the store, which nothing delays
                return [job["state"] for job in daemon.get("/v1/jobs").json()["jobs"]]
            with daemon.paused():
                identity = daemon.submit(scans.radial(seed=71).bytes(daemon.state)).expect(202).json()["id"]
                wait_until(lambda: listed() == ["running"], "the job to run")
                with open(hold, "w"):
                    document = pool.submit(daemon.job, identity)
                wait_until(lambda: os.path.exists(hold + ".there"), "the request to have asked for the progress")
            try:
                wait_until(lambda: listed() == ["succeeded"], "the job's end")
            finally:
                os.unlink(hold)
            same((document.result()["state"], document.result()["progress"]), ("succeeded", 1), "state and progress")


if __name__ == "__main__":
    main()
