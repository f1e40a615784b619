#!/usr/bin/python3
"""Images of a golden-angle series that is streamed over MRD: how many a second, and how long after an image's last
spoke each one comes back.

    tests/bench/bench_realtime.py [--images 100] [--coils 16] [--matrix 192] [--spokes 21] [--pace 10] [--query QUERY]
      [--repeat 1] [--series FILE] [--programs FOLDER] ...

The series is `mrirecon simulate`'s phantom, which moves, --repeat times over; --series keeps it for the next call. Its
spokes are sent at --pace images a second (0: as fast as they are taken); images are received meanwhile. Latency of an
image: from sending the last of its spokes to its last byte; that of an image that comes before the scan has ended is
live. Each --query (frame_readouts is added), --pace and folder of --programs (all repeatable) runs in a service of its
own, after one series that is not counted. Prints a JSON object for each, with the processor time of the worker and of
the daemon for an image. images_a_second includes what is left when the scan has ended, for after_close_s seconds; the
live images alone came at live_a_second. MRIRECON_BIN: the programs.
"""
import argparse
import itertools
import json
import os
import statistics
import struct
import sys
import tempfile
import threading
import time

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import mrd  # noqa: E402
from harness import BIN, Daemon, client  # noqa: E402


def series(wanted, folder):
    """The header's message, and an image's acquisitions for each image."""
    path = wanted.series or f"{folder}/series.h5"
    if not os.path.exists(path):
        simulated(wanted, path)
    with h5py.File(path) as file:
        xml, rows = file["dataset/xml"][0], file["dataset/data"][:]
    spokes = [struct.pack("<H", 1008) + row["head"].tobytes() + row["traj"].tobytes() + row["data"].tobytes()
              for row in rows]
    assert len(spokes) == wanted.images * wanted.spokes, f"{path} has {len(spokes)} spokes"
    return (struct.pack("<HI", 3, len(xml)) + xml,
            [b"".join(spokes[i:i + wanted.spokes]) for i in range(0, len(spokes), wanted.spokes)] * wanted.repeat)


def simulated(wanted, path):
    client(None, "simulate", "--trajectory", "golden", "--matrix", str(wanted.matrix), "--coils", str(wanted.coils),
           "--readouts",
           str(wanted.images * wanted.spokes), "--motion", str(max(1, wanted.images // 24)), "--noise", "0.01", "--out",
           path)


def streamed(daemon, wanted, pace, query, header, images):
    """Times at which each image's last spoke was sent, and its last byte received; and that of CLOSE."""
    came = []
    with mrd.Session(daemon, timeout=600) as session:
        def receive():
            for number, _ in mrd.read_messages(session.take):
                assert number == mrd.IMAGE, number
                came.append(time.monotonic())
        session.send(mrd.text(mrd.CONFIG_TEXT, f"{query}&frame_readouts={wanted.spokes}"), header)
        receiver = threading.Thread(target=receive)
        receiver.start()
        sent, began = [], time.monotonic()
        for number, image in enumerate(images):
            if pace:
                time.sleep(max(0, began + (number + 1) / pace - time.monotonic()))
            session.send(image)
            sent.append(time.monotonic())
        closed = time.monotonic()
        session.send(struct.pack("<H", 4))
        receiver.join()
    assert len(came) == len(images), (len(came), len(images))
    return began, sent, came, closed


def processor_seconds(*processes):
    """User and system time of the processes."""
    ticks = 0
    for process in processes:
        with open(f"/proc/{process}/stat") as file:
            ticks += sum(int(field) for field in file.read().rpartition(")")[2].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(wanted, programs, pace, query, header, images):
    """The object that is printed."""
    with Daemon(mrd_listen="127.0.0.1:0", devices=wanted.devices, binaries=programs) as daemon:
        streamed(daemon, wanted, pace, query, header, images[:max(30, wanted.spokes)])
        processes = daemon.worker(), daemon.process.pid
        before = [processor_seconds(process) for process in processes]
        began, sent, came, closed = streamed(daemon, wanted, pace, query, header, images)
        worker, service = (processor_seconds(process) - was for process, was in zip(processes, before))
    latency = sorted(1000 * (b - a) for a, b in zip(sent, came))
    live = [moment for moment in came if moment < closed]
    return {"query": query, "pace": pace, "programs": programs, "images": len(images),
            "images_a_second": round(len(images) / (came[-1] - began), 2),
            "live": len(live), "live_a_second": round(len(live) / (live[-1] - began), 2) if live else 0,
            "after_close_s": round(came[-1] - closed, 3),
            "worker_ms": round(1000 * worker / len(images), 2), "daemon_ms": round(1000 * service / len(images), 2),
            "latency_ms": round(statistics.median(latency), 1),
            "latency_p95_ms": round(latency[int(0.95 * (len(latency) - 1))], 1),
            "latency_most_ms": round(latency[-1], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, fallback in (("images", 100), ("coils", 16), ("matrix", 192), ("spokes", 21), ("repeat", 1)):
        parser.add_argument("--" + name, type=int, default=fallback)
    parser.add_argument("--pace", type=float, action="append")
    parser.add_argument("--query", action="append")
    parser.add_argument("--programs", action="append")
    parser.add_argument("--series")
    parser.add_argument("--devices", default="cpu")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        header, images = series(wanted, folder)
    for pace, query, programs in itertools.product(wanted.pace or [10], wanted.query or ["kind=recon"],
                                                   wanted.programs or [BIN]):
        print(json.dumps(measured(wanted, programs, pace, query, header, images)), flush=True)


if __name__ == "__main__":
    main()
