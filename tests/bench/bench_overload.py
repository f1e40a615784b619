#!/usr/bin/python3
"""Twice as many scans as the service can reconstruct: the answers, and the throughput.

bench_overload.py [SECONDS [CLIENTS [PIECES]]] (600, 16, 10): the capacity, jobs a second with as many clients as wait
for their images; then submissions at twice that rate, spread over the clients, on a queue of 100; and so on in PIECES
of SECONDS in all, with the capacity before and after each (when the queue has run dry), for a machine that others share
is not the same all the time. Prints one JSON line: the capacities, the rate sent, the jobs ended in a second during the
overload, their ratio to the mean of the two capacities beside (median, lowest and highest of the pieces), answers by
status, those refused without Retry-After, time-outs and broken connections, and milliseconds p50, p99, max of the
answers.
"""
import collections
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import scans  # noqa: E402
from harness import Daemon, wait_until  # noqa: E402

CAPACITY_SECONDS = 20
TIMEOUT = 30


def closed(port, body, seconds, number):
    """Submit one scan after the other and wait for each; returns the number of images."""
    connection, images = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.request("POST", "/v1/jobs?kind=recon", body,
                           {"Prefer": "wait=30", "X-Mrirecond-Client": f"client-{number}"})
        response = connection.getresponse()
        response.read()
        images += response.status == 200
    return images


def opened(port, body, seconds, number, rate):
    """Submit at a rate, whatever the answers are: [(status, has Retry-After, seconds)]."""
    connection, answers = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT), []
    begin = time.monotonic()
    for turn in range(int(seconds * rate)):
        wait = begin + turn / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        start = time.monotonic()
        if start > begin + seconds:
            break
        try:
            connection.request("POST", "/v1/jobs?kind=recon", body, {"X-Mrirecond-Client": f"client-{number}"})
            response = connection.getresponse()
            response.read()
            answers.append((str(response.status), response.getheader("Retry-After") is not None,
                            time.monotonic() - start))
        except TimeoutError:
            answers.append(("time-out", False, time.monotonic() - start))
            connection.close()
        except (OSError, http.client.HTTPException):
            answers.append(("broken", False, time.monotonic() - start))
            connection.close()
    return answers


def ended(daemon):
    return sum(value for name, value in daemon.metrics().items() if name.startswith("mrirecond_jobs_completed_total"))


def run(seconds, clients, pieces):
    with tempfile.TemporaryDirectory() as folder:
        body = scans.radial(seed=7).bytes(folder)
    with Daemon(devices="cpu", threads=1, queue_limit=100) as daemon, multiprocessing.Pool(clients) as pool:
        def capacity():
            wait_until(lambda: not daemon.get("/v1/jobs?state=queued").json()["jobs"], "the queue to run dry")
            return sum(pool.starmap(closed, [(daemon.port, body, CAPACITY_SECONDS, number)
                                             for number in range(clients)])) / CAPACITY_SECONDS

        capacities, done, lasted, answers = [capacity()], [], 0, []
        for _ in range(pieces):
            before, start = ended(daemon), time.monotonic()
            rate = 2 * capacities[-1] / clients
            for some in pool.starmap(opened, [(daemon.port, body, seconds / pieces, number, rate)
                                              for number in range(clients)]):
                answers += some
            took = time.monotonic() - start
            done.append((ended(daemon) - before) / took)
            lasted += took
            capacities.append(capacity())
        ratios = [2 * one / (first + last) for one, first, last in zip(done, capacities, capacities[1:])]
        times = sorted(answer[2] for answer in answers)
        at = lambda q: round(1e3 * times[min(len(times) - 1, int(q * len(times)))], 2)  # noqa: E731
        print(json.dumps({"capacities_per_s": [round(one, 1) for one in capacities],
                          "sent_per_s": round(len(answers) / lasted, 1), "seconds": round(lasted, 1),
                          "ended_per_s": [round(one, 1) for one in done],
                          "of_capacity": {"median": round(statistics.median(ratios), 3),
                                          "lowest": round(min(ratios), 3), "highest": round(max(ratios), 3)},
                          "answers": collections.Counter(answer[0] for answer in answers),
                          "refused_without_retry_after": sum(a[0] in ("429", "503", "507") and not a[1]
                                                             for a in answers),
                          "ms": {"p50": at(0.5), "p99": at(0.99), "max": at(1)}}))


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    run(*(words + [600, 16, 10][len(words):]))
