#!/usr/bin/python3
"""The service that a quiet client gets beside a hostile one.

bench_hostile.py [SECONDS [BEHAVIOUR ...]] (15, all): for each behaviour a daemon of its own (devices cpu, else as it
comes), a hostile client on 127.0.0.2 with 8 processes, niced by 15 because they would run on other machines, and a
quiet one on 127.0.0.1, each request on a connection of its own, which

- submits a small scan 10 times a second: milliseconds p50, p99 and max until its 202;
- asks /livez 5 times a second: the same;
- once a second submits a scan, waits for its end, and asks for its image as npy, which has to be converted: the same of
  either.

Prints one JSON line for each behaviour, with the requests of the quiet client that were not answered, or by what they
should not be, and the hostile client's requests a second by their answers. The behaviours:

nobody       there is none
submissions  valid scans, one after the other
listing      GET /v1/jobs?limit=500, of 10,000 jobs that have ended
conversions  images of 16 MB in forms that have to be made, half of them not waited for
uploads      resumable uploads that are begun, and never sent
abandoned    Prefer: wait=600, closed at once (no job is begun: no images for the quiet client either)
connections  900 uploads of its address that have begun, and new connections without end
bombs        a small file that keeps its reader busy, two of them waiting at any time
crowded      all connections of the quiet client's own address are busy, and on them comes twice the load that the
             service can do: how each request was answered
"""
import collections
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "unit")]
import scan_files  # noqa: E402
import scans  # noqa: E402
from harness import Daemon  # noqa: E402

HOSTILE, QUIET, PROCESSES, TIMEOUT = "127.0.0.2", "127.0.0.1", 8, 60


def ask(port, source, method, path, body=None, headers=None):
    """(status or the error's name, headers, body, seconds) of a request on its own connection."""
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT, source_address=(source, 0))
    try:
        connection.request(method, path, body, {"X-Mrirecond-Client": source, **(headers or {})})
        answer = connection.getresponse()
        return str(answer.status), answer.headers, answer.read(), time.monotonic() - start
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__, {}, b"", time.monotonic() - start
    finally:
        connection.close()


def send_only(port, source, path, headers, hold):
    """A request without waiting for its answer; the connection is closed `hold` seconds later."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT, source_address=(source, 0)) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Mrirecond-Client: {source}\r\n{headers}\r\n"
        connection.sendall(head.encode())
        time.sleep(hold)
    return "left", {}, b"", hold


# ---- the hostile client: each function returns the answer to one request of process `number`, turn `turn`

def submissions(port, scene, number, turn):
    return ask(port, HOSTILE, "POST", "/v1/jobs?kind=recon", scene["scan"])


def listing(port, scene, number, turn):
    return ask(port, HOSTILE, "GET", "/v1/jobs?limit=500")


def conversions(port, scene, number, turn):
    job, form = scene["large"][(number + turn) % len(scene["large"])], ("nii.gz", "npy", "png")[turn % 3]
    path = f"/v1/jobs/{job}/results/image?format={form}"
    return send_only(port, HOSTILE, path, "", 0.3) if number % 2 else ask(port, HOSTILE, "GET", path)


def uploads(port, scene, number, turn):
    return ask(port, HOSTILE, "POST", "/v1/uploads?kind=recon", None,
               {"Tus-Resumable": "1.0.0", "Upload-Length": "100000"})


def abandoned(port, scene, number, turn):
    return send_only(port, HOSTILE, f"/v1/jobs/{scene['held']}", "Prefer: wait=600\r\n", 0.002)


def connections(port, scene, number, turn):
    return ask(port, HOSTILE, "GET", "/v1/kinds")


def bombs(port, scene, number, turn):
    if number >= 2:
        time.sleep(0.1)
        return "idle", {}, b"", 0
    return ask(port, HOSTILE, "POST", "/v1/jobs?kind=recon", scene["bomb"], {"Prefer": "wait=600"})


BEHAVIOURS = {one.__name__: one for one in (submissions, listing, conversions, uploads, abandoned, connections, bombs)}


def hostile(name, port, scene, number, stop, out):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.nice(15)
    counts = collections.Counter()
    for turn in itertools.count():
        if stop.is_set():
            break
        counts[BEHAVIOURS[name](port, scene, number, turn)[0]] += 1
    out.put(counts)


# ---- the quiet client

def paced(rate, seconds, one):
    """The results of one(), called `rate` times a second."""
    begin, results = time.monotonic(), []
    for turn in range(int(rate * seconds)):
        time.sleep(max(0, begin + turn / rate - time.monotonic()))
        if time.monotonic() > begin + seconds:
            break
        results += one()
    return results


def quiet_submits(port, scan, seconds):
    return paced(10, seconds, lambda: [("submit", "202", *ask(port, QUIET, "POST", "/v1/jobs?kind=recon", scan)[::3])])


def quiet_probes(port, scan, seconds):
    return paced(5, seconds, lambda: [("livez", "200", *ask(port, QUIET, "GET", "/livez")[::3])])


def quiet_images(port, scan, seconds):
    def one():
        status, headers, _, took = ask(port, QUIET, "POST", "/v1/jobs?kind=recon&priority=urgent", scan,
                                       {"Prefer": "wait=60"})
        results = [("job", "200", status, took)]
        if status == "200":
            results.append(("npy", "200",
                            *ask(port, QUIET, "GET", f"{headers['Location']}/results/image?format=npy")[::3]))
        return results
    return paced(1, seconds, one)


def quantiles(seconds):
    ordered = sorted(seconds)
    at = lambda q: round(1e3 * ordered[min(len(ordered) - 1, int(q * len(ordered)))], 1)  # noqa: E731
    return {"p50": at(0.5), "p99": at(0.99), "max": at(1), "requests": len(ordered)}


# ---- the scenes

def fill_store(daemon, rows):
    """Insert `rows` copies of the only job into the store of a stopped daemon."""
    with contextlib.closing(sqlite3.connect(os.path.join(daemon.state, "jobs.db"))) as store:
        names = [column[1] for column in store.execute("PRAGMA table_info(job)")]
        row = dict(zip(names, store.execute("SELECT * FROM job").fetchone()))
        letters = "0123456789abcdefghjkmnpqrstvwxyz"
        for number in range(rows):
            row.update(sequence=None, id="01m0" + "".join(letters[number >> 5 * i & 31] for i in range(22)),
                       client=HOSTILE)
            store.execute(f"INSERT INTO job VALUES ({','.join('?' * len(names))})", [row[name] for name in names])
        store.commit()


def prepare(name, daemon, folder):
    """Create what the behaviour needs."""
    scene = {"scan": scans.radial(seed=7).bytes(folder)}
    if name == "listing":
        daemon.run(scene["scan"])
        daemon.process.terminate()
        daemon.process.wait()
        fill_store(daemon, 10000)
        daemon.restart()
    if name == "conversions":
        large = scans.radial(matrix=(512, 512, 1), spokes=64, samples=128, coils=16, weights=False).bytes(folder)
        scene["large"] = [daemon.run(large, "kind=recon&dcf=none&coils=none&tolerance=1e-3")["id"] for _ in range(6)]
    if name == "abandoned":
        scene["held"] = daemon.submit(scene["scan"], "kind=recon&priority=batch").expect(202).json()["id"]
    if name == "bombs":
        scan_files.busy(f"{folder}/bomb", b"TREE\1", 24, 64)
        with open(f"{folder}/bomb", "rb") as file:
            scene["bomb"] = file.read()
    return scene


def hold(daemon, count, source, request):
    """Open connections with a request that keeps the service busy."""
    held = []
    for _ in range(count):
        held.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=TIMEOUT, source_address=(source, 0)))
        held[-1].sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nExpect: "
                         f"100-continue\r\n\r\n".encode())
        assert held[-1].recv(20).startswith(b"HTTP/1.1 100"), "the connection is not served"
    return held


def run(name, seconds):
    options = {"abandoned": {"work_reserve": "900T"}, "connections": {"header_timeout": 600}}.get(name, {})
    with tempfile.TemporaryDirectory() as folder, Daemon(devices="cpu", **options) as daemon:
        scene, stop, out = prepare(name, daemon, folder), multiprocessing.Event(), multiprocessing.Queue()
        held = hold(daemon, 900, HOSTILE, "POST /v1/jobs?kind=recon") if name == "connections" else []
        crew = [multiprocessing.Process(target=hostile, args=(name, daemon.port, scene, number, stop, out))
                for number in range(PROCESSES if name != "nobody" else 0)]
        for process in crew:
            process.start()
        time.sleep(1)
        quiet = [quiet_submits, quiet_probes] + ([] if name == "abandoned" else [quiet_images])
        with multiprocessing.Pool(len(quiet)) as pool:
            pending = [pool.apply_async(one, (daemon.port, scene["scan"], seconds)) for one in quiet]
            results = [result for one in pending for result in one.get()]
        stop.set()
        counts = collections.Counter()
        for _ in crew:
            with contextlib.suppress(Exception):  # one that still waits for an answer
                counts += out.get(timeout=5)
        for process in crew:
            process.terminate()
            process.join()
        for connection in held:
            connection.close()
        wrong = collections.Counter(f"{what}: {status}" for what, expected, status, _ in results if status != expected)
        print(json.dumps({"behaviour": name,
                          **{f"{what}_ms": quantiles([result[3] for result in results if result[0] == what]) for what in
                             dict.fromkeys(result[0] for result in results)},
                          "not_as_they_should": wrong, "hostile_per_s": {status: round(count / seconds, 1) for status,
                                                                         count in counts.items()}}), flush=True)
        daemon.expect_trouble = True


def closed_loop(port, scan, seconds):
    end, images = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        images += ask(port, QUIET, "POST", "/v1/jobs?kind=recon", scan, {"Prefer": "wait=30"})[0] == "200"
    return images


def open_loop(port, scan, seconds, rate):
    return paced(rate, seconds, lambda: [("submit", *ask(port, QUIET, "POST", "/v1/jobs?kind=recon", scan)[:2])])


def probes(port, scan, seconds, rate):
    return paced(rate, seconds, lambda: [("health", *ask(port, QUIET, "GET", "/livez")[:2])])


def crowded(seconds):
    with tempfile.TemporaryDirectory() as folder, Daemon(devices="cpu", header_timeout=600) as daemon, \
            multiprocessing.Pool(20) as pool:
        scan = scans.radial(seed=7).bytes(folder)
        capacity = sum(pool.starmap(closed_loop, [(daemon.port, scan, 10)] * 16)) / 10
        held = hold(daemon, 900, QUIET, "POST /v1/jobs?kind=recon")
        load = [pool.apply_async(open_loop, (daemon.port, scan, seconds, 2 * capacity / 16)) for _ in range(16)]
        load += [pool.apply_async(probes, (daemon.port, scan, seconds, 10)) for _ in range(4)]
        answers = [answer for one in load for answer in one.get()]
        counts = collections.Counter(f"{what}: {status}" for what, status, _ in answers)
        print(json.dumps({"behaviour": "crowded", "capacity_per_s": round(capacity, 1),
                          "sent_per_s": round(len(answers) / seconds, 1), "answers": counts,
                          "without_an_answer": sum(not status.isdigit() for _, status, _ in answers),
                          "503_without_retry_after": sum(status == "503" and headers.get("Retry-After") is None for _,
                                                         status, headers in answers)}), flush=True)
        for connection in held:
            connection.close()


if __name__ == "__main__":
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 15
    for chosen in sys.argv[2:] or ["nobody", *BEHAVIOURS, "crowded"]:
        crowded(length) if chosen == "crowded" else run(chosen, length)
