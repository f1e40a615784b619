#!/usr/bin/python3
"""The daemon's memory per connection: bench_memory.py [CONNECTIONS] (500).

One JSON line: resident memory in MB at the start, with so many clients that follow a running job, and, in a new daemon,
with so many connections that are kept open after a request.
"""
import json
import os
import socket
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import scans  # noqa: E402
from harness import Daemon, wait_until  # noqa: E402

SETTLE_SECONDS = 0.8


def resident(daemon):
    time.sleep(SETTLE_SECONDS)
    with open(f"/proc/{daemon.process.pid}/statm") as file:
        return round(int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6, 1)


def ask(daemon, path, count):
    """Connections that got an answer, at least in part, and stay open."""
    connections = []
    for _ in range(count):
        connections.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=30))
        connections[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connections[-1].recv(65536)
    return connections


def run(count):
    with tempfile.TemporaryDirectory() as folder:
        body = scans.slow().bytes(folder)
    with Daemon(devices="cpu") as daemon:
        job = daemon.submit(body, scans.SLOW_QUERY).expect(202).json()["id"]
        wait_until(lambda: daemon.job(job)["state"] == "running", "the job to run")
        alone = resident(daemon)
        followers = ask(daemon, f"/v1/jobs/{job}/events", count)
        following = resident(daemon)
        assert daemon.job(job)["state"] == "running", "the job ended too early"
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
        for connection in followers:
            connection.close()
    with Daemon(devices="cpu") as daemon:
        kept = ask(daemon, "/v1/jobs", count)
        keeping = resident(daemon)
        for connection in kept:
            connection.close()
    print(json.dumps({"connections": count, "mb": {"alone": alone, "following": following, "kept": keeping}}))


if __name__ == "__main__":
    run(*[int(word) for word in sys.argv[1:]] or [500])
