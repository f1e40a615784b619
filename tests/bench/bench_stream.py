#!/usr/bin/python3
"""How long after its last byte a scan has its last image: sent as a stream over TCP at a scanner's pace, and whole by
POST.

    tests/bench/bench_stream.py [--coils 16] [--matrix 256] [--spokes 402] [--repetitions 1] [--seconds 1]
        [--dims 2] [--repeats 7] [--query kind=recon] [--devices cpu] [--shuffled]

A radial scan of random samples (2x readout), with --dims 3 of spokes through a cube of --matrix, or a series of
--repetitions of its trajectory, is sent over MRD in --seconds, acquisition by acquisition, in the order of their angles
or, with --shuffled, in an order in which any few of them point in all directions: latency is the time from
sending CLOSE to the first byte of the last image, and (`streamed_last_byte_to_whole_image_ms`) to its last byte. The
same stream is posted over HTTP as fast as it goes, with Prefer: wait: latency is the time from the last byte sent to
the first byte of the answer, and the whole is that from the first byte sent. Each of the three is a median of
--repeats, after two that are not counted: from the second on, the trajectory is known. `streamed_first_ms`: the first
of all, whose trajectory is new; `ahead_ms`: what the worker computed for the images before their job began, also a
median; `after_close_ms`: the stages of what it computed last, after CLOSE, medians; `parts_ahead` of `parts`: of the
last image of the last stream (docs/mrd.md); `worker_cpu_ms`: processor time of the worker for a stream, without its
decoder, a median. `load`: before and after. Prints one JSON object. MRIRECON_BIN: the programs.
"""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import mrd  # noqa: E402
import scans  # noqa: E402
from harness import Daemon  # noqa: E402


def streamed(daemon, query, messages, seconds, images):
    with mrd.Session(daemon) as session:
        session.send(mrd.text(mrd.CONFIG_TEXT, query))
        began = time.monotonic()
        for number, message in enumerate(messages[:-1]):
            pause = began + seconds * number / len(messages) - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            session.send(message)
        last = time.monotonic()
        session.send(messages[-1])
        before = mrd.read_messages(session.take)
        for _ in range(images - 1):
            next(before)
        number = session.take(2)
        first = time.monotonic()
        assert number == mrd.IMAGE.to_bytes(2, "little"), number
        head = session.take(198 + 8)
        sizes = np.frombuffer(head, mrd.IMAGE_HEAD, 1)[0]
        left = int.from_bytes(head[-8:], "little") + int(np.prod(sizes["matrix"], dtype=int)) * int(
            sizes["channels"]) * np.dtype(mrd.PIXELS[int(sizes["data_type"])]).itemsize
        buffer = bytearray(1 << 20)
        while left > 0:
            got = session.socket.recv_into(buffer, min(left, len(buffer)))
            assert got, "the image was not sent to its end"
            left -= got
        whole = time.monotonic()
        assert session.take(2) == mrd.CLOSE.to_bytes(2, "little") and session.socket.recv(1) == b"", "not the end"
    return first - last, whole - last


def posted(daemon, query, body):
    head = (f"POST /v1/jobs?{query} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=600\r\nAccept: "
            f"application/x-ismrmrd\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=600) as connection:
        began = time.monotonic()
        connection.sendall(head + body)
        last = time.monotonic()
        answer = connection.recv(4096)
        first = time.monotonic()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    return first - last, first - began


def worker_seconds(daemon):
    """Processor time of the daemon's only worker so far, without its decoders."""
    with open(f"/proc/{daemon.worker()}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disc(matrix, spokes, coils):
    return scans.radial((matrix, matrix, 1), spokes, 2 * matrix, coils)


def ball(matrix, spokes, coils):
    """Spokes in all directions, which a spiral on the sphere has, with their weights."""
    rng = np.random.default_rng(1)
    z, turn = np.linspace(-1, 1, spokes), np.pi * (1 + 5 ** 0.5) * np.arange(spokes)
    flat = np.sqrt(1 - z * z)
    radius = (np.arange(2 * matrix) - matrix) / (2 * matrix)
    traj = np.stack([flat * np.cos(turn), flat * np.sin(turn), z], -1)[:, None] * radius[:, None]
    weight = np.broadcast_to((radius ** 2 + 1e-5)[:, None], (spokes, 2 * matrix, 1))
    data = rng.normal(size=(spokes, coils, 2 * matrix, 2)).view(complex)[..., 0]
    return scans.Scan(np.concatenate([traj, weight], -1), data, (matrix, matrix, matrix))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, fallback in (("coils", 16), ("matrix", 256), ("spokes", 402), ("repetitions", 1), ("dims", 2),
                           ("repeats", 7)):
        parser.add_argument("--" + name, type=int, default=fallback)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--query", default="kind=recon")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--shuffled", action="store_true")
    wanted = parser.parse_args()
    make = ball if wanted.dims == 3 else disc
    scan = make(wanted.matrix, wanted.spokes * wanted.repetitions, wanted.coils)
    scan.heads["idx"]["repetition"] = np.arange(len(scan.heads)) // wanted.spokes
    order = np.random.default_rng(2).permutation(wanted.spokes) if wanted.shuffled else slice(None)
    scan.traj = np.tile(scan.traj[::wanted.repetitions][order], (wanted.repetitions, 1, 1))
    messages = list(scan.messages())
    body = b"".join(messages)
    latencies, lasts, ahead, after, whole, stages, used, report = [], [], [], [], [], [], [], {}
    load = [os.getloadavg()[0]]
    with Daemon(mrd_listen="127.0.0.1:0", devices=wanted.devices) as daemon:
        for _ in range(2 + wanted.repeats):
            before = worker_seconds(daemon)
            first, last = streamed(daemon, wanted.query, messages, wanted.seconds, wanted.repetitions)
            latencies.append(first)
            lasts.append(last)
            used.append(worker_seconds(daemon) - before)
            report = daemon.finish(daemon.get("/v1/jobs?limit=1").json()["jobs"][0]["id"])["report"]
            ahead.append(report.get("ahead_seconds", 0))
            stages.append(report.get("ahead_stages", {}))
            last, all_of_it = posted(daemon, wanted.query, body)
            after.append(last)
            whole.append(all_of_it)

    load.append(os.getloadavg()[0])

    def median(values):
        return round(1000 * statistics.median(values[2:]), 1)
    print(json.dumps({"MB": round(len(body) / 1e6, 1), "streamed_last_byte_to_image_ms": median(latencies),
                      "streamed_last_byte_to_whole_image_ms": median(lasts),
                      "streamed_first_ms": round(1000 * latencies[0], 1),
                      "streamed_most_ms": round(1000 * max(latencies[2:]), 1),
                      "ahead_ms": median(ahead),
                      "after_close_ms": {name: median([one.get(name, 0) for one in stages]) for name in stages[-1]},
                      "worker_cpu_ms": median(used),
                      "parts": report.get("parts"), "parts_ahead": report.get("parts_ahead"),
                      "device": report["device"],
                      "posted_last_byte_to_image_ms": median(after), "posted_whole_ms": median(whole),
                      "load": [round(value, 1) for value in load]}))


if __name__ == "__main__":
    main()
