#!/usr/bin/python3
"""A deep queue: the daemon's response times with 10,000 waiting jobs beside a running one.

bench_queue.py [JOBS [REQUESTS]] (10000, 1000): fills the queue by 4 clients, then one client asks again and again;
prints one JSON line: milliseconds p50, p99 and max of a submit, a page of 50 jobs, one job, /metrics and /readyz, on a
connection that stays open; the same of submits by 8 clients at once, each on a connection of its own; the same of the
disk alone: a file of the scan's size written and synced in the state folder, and that folder synced, between the
submits of the first line; submits and pages with 500 clients that follow a job's events; jobs accepted in a second
while filling; the daemon's largest resident memory; and how long a restart with that queue takes from the start of the
process to the first answer.
"""
import http.client
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import scans  # noqa: E402
from harness import Daemon  # noqa: E402




def quantiles(seconds):
    ordered = sorted(seconds)
    at = lambda q: round(1e3 * ordered[min(len(ordered) - 1, int(q * len(ordered)))], 2)  # noqa: E731
    return {"p50": at(0.5), "p99": at(0.99), "max": at(1)}


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, status=200):
        start = time.perf_counter()
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        text = response.read()
        seconds = time.perf_counter() - start
        assert response.status == status, (response.status, text[:500])
        return seconds, text


def submits(port, body, count):
    client = Client(port)
    return [client.ask("POST", "/v1/jobs?kind=recon", body, 202)[0] for _ in range(count)]


def beside_the_disk(port, body, count, folder):
    """Submits, and between them the time that the disk takes for the same writes without the daemon."""
    client, submitted, synced = Client(port), [], []
    path = os.path.join(folder, "disk")
    for _ in range(count):
        submitted.append(client.ask("POST", "/v1/jobs?kind=recon", body, 202)[0])
        start = time.perf_counter()
        with open(path, "wb") as file:
            file.write(body)
            os.fsync(file.fileno())
        where = os.open(folder, os.O_RDONLY)
        os.fsync(where)
        os.close(where)
        synced.append(time.perf_counter() - start)
        os.unlink(path)
    return quantiles(submitted), quantiles(synced)


def follow(port, job, count):
    """Connections that follow the events of a job."""
    streams = []
    for _ in range(count):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert stream.recv(100), "no events"
        streams.append(stream)
    return streams


def run(jobs, requests):
    with tempfile.TemporaryDirectory() as folder:
        body = scans.radial(seed=7).bytes(folder)
        long = scans.radial(matrix=(256, 256, 1), spokes=4000, samples=512, coils=1, weights=False,
                            seed=2).bytes(folder)
    daemon = Daemon(devices="cpu", threads=1, queue_limit=10 * jobs, job_time_limit=0, drain_time=0)
    with daemon, multiprocessing.Pool(8) as clients:
        busy = Client(daemon.port)
        _, text = busy.ask("POST", f"/v1/jobs?{scans.SLOW_QUERY}", long, 202)
        slow = json.loads(text)["id"]
        start = time.monotonic()
        clients.starmap(submits, [(daemon.port, body, jobs // 4)] * 4)
        filled = time.monotonic() - start
        client = Client(daemon.port)
        last = daemon.get("/v1/jobs").json()["jobs"][0]["id"]
        figures = {}
        figures["submit"], figures["disk"] = beside_the_disk(daemon.port, body, requests, daemon.state)
        each = clients.starmap(submits, [(daemon.port, body, requests // 8)] * 8)
        figures["submit_8_clients"] = quantiles([s for times in each for s in times])
        for name, path in (("list", "/v1/jobs"), ("job", f"/v1/jobs/{slow}"), ("metrics", "/metrics"),
                           ("ready", "/readyz")):
            figures[name] = quantiles([client.ask("GET", path)[0] for _ in range(requests)])
        streams = follow(daemon.port, last, 500)
        figures["submit_500_followers"] = quantiles(submits(daemon.port, body, requests))
        figures["list_500_followers"] = quantiles([client.ask("GET", "/v1/jobs")[0] for _ in range(requests)])
        del streams
        assert daemon.job(slow)["state"] == "running", "the slow job has ended: ask for fewer requests"
        counts = daemon.metrics()
        print(json.dumps({"waiting": int(sum(v for k, v in counts.items() if k.startswith("mrirecond_queue_jobs"))),
                          "scan_bytes": len(body), "filled_per_s": round(jobs / filled),
                          "ms": figures, "peak_mib": round(daemon.peak_memory() / 2**20, 1),
                          "restart_s": restart(daemon)}))
        daemon.kill()
        daemon.process.returncode = 0  # the expected end


def restart(daemon):
    """Seconds from the start of the process to its first answer, after kill -9 with a full queue."""
    daemon.kill()
    start = time.monotonic()
    daemon.restart()
    return round(time.monotonic() - start, 2)


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    run(*(words + [10000, 1000][len(words):]))
