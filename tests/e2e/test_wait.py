#!/usr/bin/python3
"""A request that waits for a job is woken by its end, also where the job ends while the request begins to wait."""
import time

import scans
from harness import Daemon, fault, main, same, test

PATIENCE = 120  # seconds; a lost wake-up would answer after the 600 s that the request asks for


@test("a job that ends between a request's look and its wait wakes it")
def end_during_the_look():
    with Daemon(environment={"LD_PRELOAD": fault("latelook"), "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}) as daemon:
        scan = scans.radial(seed=71).bytes(daemon.state)
        begun = time.monotonic()
        answer = daemon.request("POST", "/v1/jobs?kind=recon", scan, {"Prefer": "wait=600", "Accept": "image/png"}, timeout=PATIENCE)
        same(answer.expect(200).body[:4], b"\x89PNG", "what came back")
        assert time.monotonic() - begun >= 0.5, "latelook.so delayed nothing, so nothing was tested"


if __name__ == "__main__":
    main()
