#!/usr/bin/python3
"""The daemon from a client's first byte to the image's last.

bench_daemon.py [SCAN [REQUESTS [DEVICES]]]: one JSON line for a small scan (default ../shared/data/mri/phantom_spiral_8ch.h5, 50 requests,
devices auto): one after the other, `Prefer: wait`, PNG; medians of the stages in the jobs' reports; scans an hour with 8 clients.
bench_daemon.py --large [ACQUISITIONS]: one line for a large upload (20,000 acquisitions of 512 samples and 16 coils: 1.4 GB):
seconds, largest resident memory of daemon and worker.
"""
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from harness import BIN, Daemon  # noqa: E402

PNG = {"Prefer": "wait=100", "Accept": "image/png"}


def once(daemon, scan):
    start = time.monotonic()
    answer = daemon.request("POST", "/v1/jobs?kind=recon", scan, PNG).expect(200, "image/png")
    return time.monotonic() - start, answer.headers["content-location"].split("/")[3]


def small(path, requests, devices):
    with open(path, "rb") as file:
        scan = file.read()
    with Daemon(devices=devices) as daemon:
        first = once(daemon, scan)[0]
        runs = [once(daemon, scan) for _ in range(requests)]
        times = sorted(seconds for seconds, _ in runs)
        reports = [daemon.job(job)["report"] for _, job in runs]
        stages = {name: round(1e3 * statistics.median(r["stages"].get(name, 0) for r in reports), 2) for name in reports[-1]["stages"]}
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda _: once(daemon, scan), range(requests)))
        hour = requests * 3600 / (time.monotonic() - start)
        print(json.dumps({"scan": os.path.basename(path), "bytes": len(scan), "requests": requests, "device": reports[-1]["device"],
                          "first_ms": round(1e3 * first, 1), "p50_ms": round(1e3 * statistics.median(times), 1),
                          "p99_ms": round(1e3 * times[min(len(times) - 1, int(0.99 * len(times)))], 1), "stages_ms": stages,
                          "scans_an_hour_8_clients": round(hour)}))


def peak(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 1024


def large(acquisitions):
    with tempfile.TemporaryDirectory() as folder, Daemon(devices="cpu") as daemon:
        path, image = os.path.join(folder, "scan.h5"), os.path.join(folder, "image.npy")
        subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", "--matrix", "512", "--readouts", str(acquisitions), "--samples", "512",
                        "--coils", "16", "--phantom", "random", "--out", path], check=True, stdout=subprocess.DEVNULL)
        worker, most, over = daemon.worker(), [0.0], threading.Event()

        def watch():
            while not over.wait(0.01):
                with open(f"/proc/{worker}/smaps_rollup") as file:
                    most[0] = max(most[0], int(re.search(r"Rss:\s*(\d+)", file.read()).group(1)) / 1024)
        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.monotonic()
        subprocess.run(["curl", "-sS", "--fail-with-body", "-T", path, "-X", "POST", "-H", "Prefer: wait=600", "-H",
                        "Accept: application/x-npy", "-o", image, f"{daemon.url}/v1/jobs?kind=recon&dcf=none"], check=True)
        seconds = time.monotonic() - start
        over.set()
        watcher.join()
        job = daemon.get("/v1/jobs").json()["jobs"][0]
        size = os.path.getsize(path)
        print(json.dumps({"bytes": size, "seconds": round(seconds, 2), "daemon_peak_mib": round(peak(daemon.process.pid), 1),
                          "worker_peak_mib": round(most[0]), "worker_peak_of_scan": round(most[0] * 1048576 / size, 2),
                          "stages_s": {k: round(v, 3) for k, v in job["report"]["stages"].items()}}))


if sys.argv[1:2] == ["--large"]:
    large(int((sys.argv[2:] or ["20000"])[0]))
else:
    scan_path, count, on = (sys.argv[1:] + ["../shared/data/mri/phantom_spiral_8ch.h5", "50", "auto"][len(sys.argv) - 1:])[:3]
    small(scan_path, int(count), on)
