#!/usr/bin/python3
"""GET /v1/jobs of many ended jobs, while scans are submitted and reconstructed.

    tests/bench/bench_list.py [--jobs 10000,100000] [--requests 300] [--rate 20]

The store holds copies of a job of this service: nine in ten succeeded, the rest failed or were canceled; eight clients;
names of patients' files; one accepted every minute. Beside the lists another process submits `rate` scans a second.
Prints a line for each list: milliseconds p50, p99 and max of one client's requests on a connection that stays open, and
of the submissions meanwhile until their 202; and the daemon's processor milliseconds for one such list, which other
programs do not change, of ALONE requests with no submissions beside them. Then the seconds that all pages of 500 take.
"""
import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import scans  # noqa: E402
from harness import Daemon, wait_until  # noqa: E402

STATES = (3,) * 18 + (4, 5)  # succeeded, failed, canceled (daemon/store/job.h)
CLIENTS, ALONE = 8, 50
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
MINUTE = 60_000  # of the store's milliseconds


def fill(daemon, rows):
    """Insert copies of the only job, each a minute older, into the store of a stopped daemon."""
    with contextlib.closing(sqlite3.connect(os.path.join(daemon.state, "jobs.db"))) as store:
        store.row_factory = sqlite3.Row
        row = dict(store.execute("SELECT * FROM job").fetchone())
        last = {name: row[name] for name in ("created", "started", "finished")}
        store.execute("DELETE FROM job")
        for number in range(rows):
            age = (rows - number) * MINUTE
            row.update({name: value - age for name, value in last.items()}, sequence=None, idempotency_key=None,
                       id="01m0" + "".join(LETTERS[number >> 5 * i & 31] for i in reversed(range(22))),
                       state=STATES[number % len(STATES)], client=f"scanner{number % CLIENTS}",
                       name=f"patient{number:06d}.h5")
            store.execute(f"INSERT INTO job ({','.join(row)}) VALUES ({','.join('?' * len(row))})", list(row.values()))
        store.commit()


class Client:
    """A persistent connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, method, path, body=None, status=200):
        """Seconds of a request, and the answer's body."""
        start = time.perf_counter()
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        text = answer.read()
        seconds = time.perf_counter() - start
        assert answer.status == status, (answer.status, text[:500])
        return seconds, text


def submit(port, body, rate, stop, out):
    """Submit scans at a rate until `stop`; returns the seconds of each until its 202."""
    client, found, begun = Client(port), [], time.monotonic()
    while not stop.is_set():
        found.append(client.ask("POST", "/v1/jobs?kind=recon", body, 202)[0])
        stop.wait(max(0, begun + len(found) / rate - time.monotonic()))
    out.put(found)


def quantiles(seconds):
    ordered = sorted(seconds)
    return [round(1e3 * ordered[min(len(ordered) - 1, int(q * len(ordered)))], 2) for q in (0.5, 0.99, 1)]


def beside(daemon, body, rate, what):
    """The result of what(), and the quantiles of submissions made meanwhile."""
    stop, out = multiprocessing.Event(), multiprocessing.Queue()
    other = multiprocessing.Process(target=submit, args=(daemon.port, body, rate, stop, out))
    other.start()
    try:
        found = what()
    finally:
        stop.set()
        submitted = out.get(timeout=60)
        other.join()
    return found, quantiles(submitted)


def processor(daemon, query):
    """The daemon's processor milliseconds for one list."""
    busy = "/v1/jobs?state=queued,running&limit=1&fields=id"
    wait_until(lambda: not daemon.get(busy).json()["jobs"], "a quiet daemon", 600)
    client, before = Client(daemon.port), daemon.metrics()["process_cpu_seconds_total"]
    for _ in range(ALONE):
        client.ask("GET", f"/v1/jobs?{query}")
    return round((daemon.metrics()["process_cpu_seconds_total"] - before) / ALONE * 1e3, 2)


def lists(daemon, rows):
    """{what: path}. The cursor is that of a page in the middle."""
    client, cursor = Client(daemon.port), ""
    for _ in range(rows // 1000):
        page = json.loads(client.ask("GET", f"/v1/jobs?limit=500&fields=id{cursor}")[1])
        cursor = f"&cursor={page['next']}"
    return {"50 jobs": "limit=50", "50, short": "limit=50&fields=short", "500": "limit=500",
            "500, short": "limit=500&fields=short", "50, short, from the middle": f"limit=50&fields=short{cursor}",
            "50 failed": "limit=50&fields=short&state=failed",
            "50 failed or canceled": "limit=50&fields=short&state=failed,canceled",
            "50 of a client": "limit=50&fields=short&client=scanner3",
            "50 of a client that failed": "limit=50&fields=short&client=scanner2&state=failed",
            "name: the oldest job": "fields=short&name=patient000001", "name: no job": "fields=short&name=nobody",
            "since 12 hours": "limit=500&fields=short&since=12h"}


def whole(client):
    """Seconds for all pages, and their number of jobs."""
    start, count, cursor = time.perf_counter(), 0, ""
    while cursor is not None:
        page = json.loads(client.ask("GET", f"/v1/jobs?limit=500&fields=short{cursor}")[1])
        count += len(page["jobs"])
        cursor = f"&cursor={page['next']}" if page["next"] else None
    return time.perf_counter() - start, count


def run(rows, requests, rate):
    options = {"keep_jobs": 0, "keep_bytes": 0, "idle_timeout": 3600, "header_timeout": 3600}
    with tempfile.TemporaryDirectory() as folder, Daemon(devices="cpu", **options) as daemon:
        body = scans.radial(seed=7).bytes(folder)
        daemon.run(body)
        daemon.process.terminate()
        daemon.process.wait()
        fill(daemon, rows)
        daemon.restart()
        client = Client(daemon.port)
        print(f"{rows} jobs: p50, p99, max of lists; of submissions meanwhile; processor", flush=True)
        alone = beside(daemon, body, rate, lambda: time.sleep(requests / 30))[1]
        print(f"{'nothing':30}{'':28}{alone}", flush=True)
        for what, query in lists(daemon, rows).items():
            seconds, meanwhile = beside(daemon, body, rate, lambda query=query: [
                client.ask("GET", f"/v1/jobs?{query}")[0] for _ in range(requests)])
            cost = processor(daemon, query)
            print(f"{what:30}{quantiles(seconds)!s:28}{meanwhile!s:28}{cost}", flush=True)
        (seconds, count), meanwhile = beside(daemon, body, rate, lambda: whole(client))
        print(f"{'all pages of 500, short':30}{f'{seconds:.2f} s, {count} jobs':28}{meanwhile}")
        print(f"peak memory of the daemon: {daemon.peak_memory() / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="10000,100000")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rate", type=float, default=20)
    asked = parser.parse_args()
    for count in asked.jobs.split(","):
        run(int(count), asked.requests, asked.rate)
