#!/usr/bin/python3
"""Send mutated MRD streams over TCP, many at a time, and see that they cost their senders an answer and nobody else anything.

    tests/faults/mrd_streams.py [--count 100000] [--clients 8] [--seed 1]

Each stream is a small scan with bytes changed, messages repeated, left out, cut or exchanged, lengths made large, or an end
put in its middle. The client sends it, ends its half of the connection and reads: images and CLOSE, or a text and CLOSE. At
the end the daemon and its worker must be the processes that they were at the beginning, nothing may have been logged as an
error, the spool must hold no stream that was begun, and an unchanged stream must have its image. Prints one JSON object: how
the sessions ended, and how often a decoder crashed in its sandbox. Exits 1 otherwise. MRIRECON_BIN: the programs.
"""
import argparse
import collections
import json
import os
import random
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import mrd  # noqa: E402
import scans  # noqa: E402
from harness import REPORTS, TROUBLE, Daemon, wait_until  # noqa: E402

NUMBERS = (1, 2, 3, 4, 5, 6, 7, 1008, 1022, 1026)


def base_messages():
    """A scan of 5 readouts of 8 samples, with a message of every number."""
    scan = scans.radial(matrix=(8, 8, 1), spokes=5, samples=8, coils=1, weights=False)
    header, *acquisitions, close = scan.messages()
    waveform = struct.pack("<H", mrd.WAVEFORM) + bytes(28) + struct.pack("<HH", 3, 2) + bytes(8 + 24)
    image = struct.pack("<H", mrd.IMAGE) + struct.pack("<HH", 1, 5) + bytes(12) + struct.pack("<HHH", 2, 2, 1) + bytes(12) + struct.pack("<H", 1) + bytes(162)
    others = [waveform, image + struct.pack("<Q", 0) + bytes(16), mrd.text(mrd.TEXT, "hello"), struct.pack("<HQQQ", 6, 0, 0, 2) + b"ab"]
    return [mrd.config_file("default"), header, *acquisitions[:2], *others, *acquisitions[2:], close]


def mutate(chance, messages):
    """The bytes of one mutant."""
    pieces = [bytearray(message) for message in messages]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(pieces))
        piece, kind = pieces[at], chance.randrange(9)
        if kind == 0 and piece:
            for _ in range(chance.choice((1, 1, 2, 8))):
                piece[chance.randrange(len(piece))] = chance.randrange(256)
        elif kind == 1 and len(piece) > 2:  # a number of 16, 32 or 64 bits that is as large or as small as can be
            width = chance.choice((2, 4, 8))
            place = chance.choice((2, 2 + 34, 2 + 38, 2 + 176, chance.randrange(len(piece))))
            piece[place:place + width] = chance.choice((b"\xff", b"\x00", b"\x7f"))[:1] * width
        elif kind == 2:
            pieces.insert(at, bytearray(chance.choice(pieces)))
        elif kind == 3 and len(pieces) > 1:
            del pieces[at]
        elif kind == 4:
            del piece[chance.randrange(len(piece) + 1):]
        elif kind == 5:
            other = chance.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif kind == 6:
            pieces.insert(at, bytearray(struct.pack("<H", chance.choice(NUMBERS)) + chance.randbytes(chance.randrange(64))))
        elif kind == 7:
            pieces.insert(at, bytearray(mrd.text(chance.choice((2, 5)), chance.choice((b'{"parameters": {"', b"kind=", b"[" * 300, b"\xff\x00\xfe")) + chance.randbytes(9))))
        else:
            pieces.insert(at, bytearray(chance.randbytes(chance.randrange(400))))
    return b"".join(pieces)


class Run:
    def __init__(self, daemon, count, seed):
        self.daemon, self.count, self.seed = daemon, count, seed
        self.lock = threading.Lock()
        self.next, self.wrong, self.messages = 0, [], base_messages()
        self.ends = collections.Counter()

    def take(self):
        with self.lock:
            self.next += 1
            return self.next - 1 if self.next <= self.count and not self.wrong else None

    def one(self, number):
        content = mutate(random.Random(f"{self.seed}-{number}"), self.messages)
        with mrd.Session(self.daemon) as session:
            try:
                session.send(content).socket.shutdown(1)
            except OSError:  # the daemon has refused it, and closed, while it was still sent
                pass
            found = list(mrd.read_messages(session.take))
        text = [body.decode() for kind, body in found if kind == mrd.TEXT]
        assert not text or (len(text) == 1 and found[-1][0] == mrd.TEXT), f"a text that is not the end: {found}"
        return text[0].split(":")[0] if text else "images" if found else "empty"

    def client(self):
        while (number := self.take()) is not None:
            try:
                end = self.one(number)
            except ConnectionError:  # reset, because the daemon lingers for some seconds and no longer
                end = "reset"
            except Exception as error:
                with self.lock:
                    self.wrong.append(f"stream {number}: {error!r}"[:500])
                return
            with self.lock:
                self.ends[end] += 1

    def all(self, clients):
        threads = [threading.Thread(target=self.client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def run(count, clients=8, seed=1):
    """The figures, and what is wrong."""
    # One client has half of all sessions, and those of which it has read the end may not have ended yet.
    with Daemon(mrd_listen="127.0.0.1:0", mrd_sessions=16 * clients, keep_jobs=60, log_level="info") as daemon:
        before = (daemon.process.pid, daemon.worker())
        began = time.monotonic()
        streams = Run(daemon, count, seed)
        streams.all(clients)
        seconds = time.monotonic() - began
        wait_until(lambda: daemon.metrics()["mrirecond_mrd_sessions"] == 0, "the end of all sessions")
        after = (daemon.process.pid, daemon.worker())
        if after != before or daemon.process.poll() is not None:
            streams.wrong.append(f"processes {before} are {after}")
        with mrd.Session(daemon) as session:
            images = session.send(*base_messages()).images()
        if len(images) != 1:
            streams.wrong.append(f"{len(images)} images of an unchanged stream")
        left = [name for name in daemon.files() if name.endswith(".part")]
        if left:
            streams.wrong.append(f"left behind: {left}")
        streams.wrong += [line for line in daemon.read_log().splitlines() if REPORTS.search(line) or TROUBLE.search(line)]
        peak = daemon.peak_memory()
        crashes = streams.ends["decoder-died"] + daemon.read_log().count("it will be read again when it is complete")
    figures = {"streams": sum(streams.ends.values()), "seconds": round(seconds, 1), "ends": dict(streams.ends.most_common()),
               "decoder_crashes": crashes, "daemon_peak_MB": round(peak / 1e6, 1)}
    return figures, streams.wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    result, complaints = run(wanted.count, wanted.clients, wanted.seed)
    print(json.dumps({**result, "wrong": complaints[:20]}, indent=1))
    sys.exit(1 if complaints else 0)
