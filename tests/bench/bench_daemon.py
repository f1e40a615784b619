#!/usr/bin/python3
"""The daemon from a client's first byte to the image's last.

bench_daemon.py [SCAN [REQUESTS [DEVICES [PAUSE]]]]: one JSON line for a small scan (default
../shared/data/mri/phantom_spiral_8ch.h5, 200 requests, devices auto): one after the other on a new connection each,
PAUSE ms after the last answer (default 0: what the service still does after an answer delays the next one), `Prefer:
wait`, PNG. p50 and p99 from the first byte sent to the last received; where the time goes: means of `send` (until the
body is with the kernel), `accept` (until the job's row is written), `begin` (until a worker has it), `run` (until its
results are synced), `answer` (until the image's last byte: negative if that came before the syncs); of `run`, the
worker's `compute` (with what it waits for decoding) and `write`, less what passed before the job began (`ahead`), and
`settle`: handing over, and the syncs; medians of the stages in the jobs' reports (decode_ahead: the part of decode that
passed before the job began); processor time and page faults a request of daemon, worker and decoders, which a busy
machine changes less than the clock; then scans an hour with 8 clients, and how much of decoding passed ahead there.
bench_daemon.py --pair OLD NEW [SCAN [PAIRS [DEVICES [PAUSE]]]]: two daemons at once, of the programs in the folders OLD
and NEW; the requests alternate, and so does who begins, so that both meet what else the machine does. The daemon that
was started second answers sooner, whichever it is: for the first half of the pairs OLD is started first, then both are
stopped, and for the other half NEW is. Of each p50, p99, where the time goes and the processor time, then the median of
the paired differences (new less old, ms) with its 95 % interval (bootstrap), over both halves.
bench_daemon.py --large [ACQUISITIONS]: one line for a large upload (20,000 acquisitions of 512 samples and 16 coils:
1.4 GB): seconds, largest resident memory of daemon and worker.
bench_daemon.py --post [MIB [REQUESTS]]: one line for bodies that are no scans (30 MiB, 50 requests): milliseconds until
202, and of the daemon's processor time for each.
"""
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import random
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
    """Seconds, the job's id, and the wall clock at the first byte sent, at the last byte sent, and at the end of the
    answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=100)
    connection.connect()
    begin, start = time.time(), time.monotonic()
    connection.request("POST", "/v1/jobs?kind=recon", scan, PNG)
    sent = time.monotonic() - start
    response = connection.getresponse()
    body = response.read()
    seconds = time.monotonic() - start
    connection.close()
    assert response.status == 200 and body.startswith(b"\x89PNG"), f"answered {response.status}: {body[:300]!r}"
    return seconds, response.headers["Content-Location"].split("/")[3], begin, begin + sent, begin + seconds


def wall(text):
    """A time of a job's document. Its milliseconds are truncated, so half a millisecond is added."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() + 0.0005


def account(runs, jobs):
    """Mean milliseconds between the milestones of each request."""
    names = ("send", "accept", "begin", "run", "answer")
    marks = [(begin, sent, wall(job["created"]), wall(job["started"]), wall(job["finished"]), end)
             for (_, _, begin, sent, end), job in zip(runs, jobs)]
    return {name: round(1e3 * statistics.mean(mark[i + 1] - mark[i] for mark in marks), 2) for i,
            name in enumerate(names)}


def split(jobs):
    """Mean milliseconds of the parts of `run`."""
    parts = {"compute": [], "write": [], "ahead": [], "settle": []}
    for job in jobs:
        report = job["report"]
        compute, write, ahead = report["seconds"], report["stages"]["write"], report.get("ahead_seconds", 0)
        for name, seconds in zip(parts, (compute, write, ahead,
                                         wall(job["finished"]) - wall(job["started"]) - (compute + write - ahead))):
            parts[name].append(seconds)
    return {name: round(1e3 * statistics.mean(seconds), 2) for name, seconds in parts.items()}


def usage(daemon):
    """Processor time (ms) and page faults so far of the daemon, its only worker, and that worker's decoders that have
    ended.
    """
    found = {}
    for name, pid in (("daemon", daemon.process.pid), ("worker", daemon.worker())):
        with open(f"/proc/{pid}/stat") as file:
            fields = [int(text) for text in file.read().rsplit(")", 1)[1].split()[1:15]]
        tick = 1e3 / os.sysconf("SC_CLK_TCK")
        found[name] = (tick * (fields[10] + fields[11]), fields[6])
        if name == "worker":
            found["decoders"] = (tick * (fields[12] + fields[13]), fields[7])
    return found


def small(path, requests, devices, pause):
    with open(path, "rb") as file:
        scan = file.read()
    with Daemon(devices=devices) as daemon:
        first = once(daemon, scan)[0]
        before = usage(daemon)
        runs = []
        for _ in range(requests):
            time.sleep(1e-3 * pause)
            runs.append(once(daemon, scan))
        after = usage(daemon)
        times = sorted(run[0] for run in runs)
        jobs = [daemon.job(run[1]) for run in runs]
        reports = [job["report"] for job in jobs]
        stages = {name: round(1e3 * statistics.median(r["stages"].get(name, 0) for r in reports), 2)
                  for name in reports[-1]["stages"]}
        stages["decode_ahead"] = round(1e3 * statistics.median(r["decode_ahead_seconds"] for r in reports), 2)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            together = list(clients.map(lambda _: once(daemon, scan), range(2 * requests)))
        hour = 2 * requests * 3600 / (time.monotonic() - start)
        ahead = [daemon.job(run[1])["report"] for run in together[-50:]]
        print(json.dumps({"scan": os.path.basename(path), "bytes": len(scan), "requests": requests, "pause_ms": pause,
                          "device": reports[-1]["device"],
                          "first_ms": round(1e3 * first, 1), "p50_ms": round(1e3 * statistics.median(times), 1),
                          "p99_ms": round(1e3 * times[min(len(times) - 1, int(0.99 * len(times)))], 1),
                          "account_ms": account(runs, jobs), "run_ms": split(jobs), "stages_ms": stages,
                          "processor_ms": {name: round((after[name][0] - before[name][0]) / requests, 2)
                                           for name in after},
                          "faults": {name: round((after[name][1] - before[name][1]) / requests) for name in after},
                          "scans_an_hour_8_clients": round(hour),
                          "decode_ahead_8_clients": round(
                              statistics.mean(r["decode_ahead_seconds"] / r["stages"]["decode"] for r in ahead), 2)}))


def alternate(folders, order, scan, pairs, devices, pause):
    """Start two daemons in this order and send requests to them in turn. Of each, in the order of the folders: its
    runs, their jobs, and the milliseconds of processor time of its processes.
    """
    daemons, runs = [None, None], ([], [])
    with contextlib.ExitStack() as both:
        for which in order:
            daemons[which] = both.enter_context(Daemon(binaries=folders[which], devices=devices))
        for which in order:
            for _ in range(5):
                once(daemons[which], scan)
        before = [usage(daemon) for daemon in daemons]
        for i in range(pairs):
            for which in (0, 1) if i % 2 else (1, 0):
                time.sleep(1e-3 * pause)
                runs[which].append(once(daemons[which], scan))
        after = [usage(daemon) for daemon in daemons]
        jobs = [[daemon.job(run[1]) for run in mine] for daemon, mine in zip(daemons, runs)]
    return [(runs[i], jobs[i], {who: after[i][who][0] - before[i][who][0] for who in after[i]}) for i in (0, 1)]


def pair(old, new, path, pairs, devices, pause):
    with open(path, "rb") as file:
        scan = file.read()
    runs, jobs, processor = ([], []), ([], []), ({}, {})
    for order, count in (((0, 1), pairs - pairs // 2), ((1, 0), pairs // 2)):
        for which, found in enumerate(alternate((old, new), order, scan, count, devices, pause)):
            runs[which].extend(found[0])
            jobs[which].extend(found[1])
            processor[which].update({who: processor[which].get(who, 0) + ms for who, ms in found[2].items()})
    told = {}
    for which, name in enumerate(("old", "new")):
        times = sorted(run[0] for run in runs[which])
        told[name] = {"p50_ms": round(1e3 * statistics.median(times), 2),
                      "p99_ms": round(1e3 * times[min(len(times) - 1, int(0.99 * len(times)))], 2),
                      "account_ms": account(runs[which], jobs[which]), "run_ms": split(jobs[which]),
                      "processor_ms": {who: round(ms / pairs, 2) for who, ms in processor[which].items()}}
    differences = [1e3 * (b[0] - a[0]) for a, b in zip(*runs)]
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(differences, k=pairs)) for _ in range(1000))
    print(json.dumps({"scan": os.path.basename(path), "pairs": pairs, "pause_ms": pause,
                      "device": jobs[1][-1]["report"]["device"], **told,
                      "difference_ms": round(statistics.median(differences), 2),
                      "difference_95": [round(medians[25], 2), round(medians[974], 2)]}))


def peak(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 1024


def large(acquisitions):
    with tempfile.TemporaryDirectory() as folder, Daemon(devices="cpu") as daemon:
        path, image = os.path.join(folder, "scan.h5"), os.path.join(folder, "image.npy")
        subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", "--matrix", "512", "--readouts", str(acquisitions),
                        "--samples", "512",
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
                        "Accept: application/x-npy", "-o", image, f"{daemon.url}/v1/jobs?kind=recon&dcf=none"],
                       check=True)
        seconds = time.monotonic() - start
        over.set()
        watcher.join()
        job = daemon.get("/v1/jobs").json()["jobs"][0]
        size = os.path.getsize(path)
        print(json.dumps({"bytes": size, "seconds": round(seconds, 2),
                          "daemon_peak_mib": round(peak(daemon.process.pid), 1),
                          "worker_peak_mib": round(most[0]), "worker_peak_of_scan": round(most[0] * 1048576 / size, 2),
                          "stages_s": {k: round(v, 3) for k, v in job["report"]["stages"].items()}}))


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def post(mib, requests):
    body, seconds = os.urandom(mib << 20), []
    with Daemon(devices="cpu") as daemon:
        before = processor_seconds(daemon.process.pid)
        for _ in range(requests):
            start = time.monotonic()
            daemon.submit(body).expect(202)
            seconds.append(time.monotonic() - start)
        used = processor_seconds(daemon.process.pid) - before
    print(json.dumps({"mib": mib, "requests": requests, "p50_ms": round(1e3 * statistics.median(seconds), 1),
                      "least_ms": round(1e3 * min(seconds), 1), "daemon_cpu_ms": round(1e3 * used / requests, 1)}))


SMALL = "../shared/data/mri/phantom_spiral_8ch.h5"


def given(words, defaults):
    """The words, and the defaults of those that are missing at the end."""
    return words + defaults[len(words):]


if sys.argv[1:2] == ["--post"]:
    post(*map(int, given(sys.argv[2:], ["30", "50"])))
elif sys.argv[1:2] == ["--large"]:
    large(int(given(sys.argv[2:], ["20000"])[0]))
elif sys.argv[1:2] == ["--pair"]:
    if len(sys.argv) < 4:
        sys.exit("bench_daemon.py --pair needs two folders of programs: OLD NEW")
    scan_path, count, on, rest = given(sys.argv[4:], [SMALL, "200", "auto", "5"])
    pair(sys.argv[2], sys.argv[3], scan_path, int(count), on, float(rest))
else:
    scan_path, count, on, rest = given(sys.argv[1:], [SMALL, "200", "auto", "0"])
    small(scan_path, int(count), on, float(rest))
