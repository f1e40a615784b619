#!/usr/bin/python3
"""Send many mutated MRD streams over TCP concurrently: they must affect nobody but their senders.

    tests/faults/mrd_streams.py [--count 100000] [--clients 8] [--seed 1] [--first 0]

A stream is one of mrd_seeds.py with bytes changed, messages repeated, left out, cut, exchanged or taken from another
scan, lengths made large, or an end put in its middle. Most clients send it, end their half of the connection and read:
images and CLOSE, or a text and CLOSE. Some send it in pieces, some leave without reading, some reset the connection on
the way. At the end the daemon and its worker must be the processes that they were at the beginning, with as many
descriptors and threads, nothing may have been logged as an error, every session must have been counted, the spool must
hold nothing, and an unchanged stream of each kind must have the images that it had at the beginning. Prints how the
sessions ended, the jobs that they became, how decoders died in their sandbox, and megabytes, descriptors and threads of
daemon and worker at each tenth. Exits 1 otherwise. The state folder is made in TMPDIR: on a disk, fsync determines the
rate. MRIRECON_BIN: the programs.
"""
import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import mrd  # noqa: E402
import mrd_seeds  # noqa: E402
from harness import REPORTS, TROUBLE, Daemon, free_port, wait_until  # noqa: E402

NUMBERS = (1, 2, 3, 4, 5, 6, 7, 1008, 1022, 1026)
CHUNK = 250  # streams that a client gets at a time
LOST = re.compile(r"it will be read again when it is complete: (.*)|(The decoder.*) Others are started")
SEEDS = {}  # of the run


def change(chance, pieces, at):
    """One mutation, at a message of a stream."""
    piece, kind = pieces[at], chance.randrange(11)
    if kind == 0 and piece:
        for _ in range(chance.choice((1, 1, 2, 8))):
            piece[chance.randrange(len(piece))] = chance.randrange(256)
    elif kind == 1 and len(piece) > 2:  # a 16-, 32- or 64-bit number with an extreme value
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
        number = struct.pack("<H", chance.choice(NUMBERS))
        pieces.insert(at, bytearray(number + chance.randbytes(chance.randrange(64))))
    elif kind == 7:
        words = chance.choice((b'{"parameters": {"', b"kind=", b"[" * 300, b"\xff\x00\xfe")) + chance.randbytes(9)
        pieces.insert(at, bytearray(mrd.text(chance.choice((2, 5)), words)))
    elif kind == 8:
        pieces.insert(at, bytearray(chance.randbytes(chance.randrange(400))))
    elif kind == 9:
        pieces.insert(at, bytearray(chance.choice(chance.choice(list(SEEDS.values())))))
    else:
        part = pieces[at:at + chance.randrange(2, 6)]
        chance.shuffle(part)
        pieces[at:at + len(part)] = part


def mutate(chance):
    """The bytes of one mutant."""
    pieces = [bytearray(message) for message in chance.choice(list(SEEDS.values()))]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        change(chance, pieces, chance.randrange(len(pieces)))
    return b"".join(pieces)


def reset(connection):
    """Close with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def sent(chance, session, content):
    """Send it in one of the ways of clients; returns whether the client reads the answer."""
    manner = chance.random()
    if manner < 0.03:
        session.send(content[:chance.randrange(len(content) + 1)])
        reset(session.socket)
        return "reset by its sender"
    if manner < 0.12:
        session.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cuts = sorted(chance.randrange(len(content) + 1) for _ in range(4))
        session.send(*(content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)])))
    else:
        session.send(content)
    if manner > 0.96:
        return "left by its sender"
    session.socket.shutdown(1)
    return None


def one(address, number, seed):
    """Send stream `number`; returns how it ended, and the text that came back, if any."""
    chance = random.Random(f"{seed}-{number}")
    content = mutate(chance)
    with mrd.Session(address=address) as session:
        with contextlib.suppress(OSError):  # the daemon has refused it and closed while it was still being sent
            end = sent(chance, session, content)
            if end:
                return end, ""
        found = list(mrd.read_messages(session.take))
    text = [body.decode() for kind, body in found if kind == mrd.TEXT]
    assert not text or (len(text) == 1 and found[-1][0] == mrd.TEXT), f"a text that is not the end: {found}"
    return (text[0].split(":")[0] if text else "images" if found else "empty"), "".join(text)


def share(work):
    """The results of some streams: counts of ends, texts about decoders that died, and faults."""
    address, numbers, seed = work
    ends, deaths, wrong = collections.Counter(), collections.Counter(), []
    for number in numbers:
        try:
            end, text = one(address, number, seed)
        except ConnectionError:  # reset, because the daemon lingers for only a few seconds
            end, text = "reset", ""
        except Exception as error:
            wrong.append(f"stream {number}: {error!r}"[:500])
            break
        ends[end] += 1
        if end == "decoder-died" or "killed from outside" in text:
            deaths[text[:100]] += 1
    return ends, deaths, wrong


def figures_of(process):
    """Resident megabytes, descriptors and threads of a process."""
    with open(f"/proc/{process}/status") as file:
        words = dict(line.split(":", 1) for line in file)
    return round(int(words["VmRSS"].split()[0]) / 1e3, 1), len(os.listdir(f"/proc/{process}/fd")), int(words["Threads"])


def lost_decoders(daemon):
    """The log's sentences on decoders that died, with counts; and lines that no run may have."""
    deaths, wrong = collections.Counter(), []
    for line in daemon.read_log().splitlines():
        if found := LOST.search(line):
            deaths[(found[1] or found[2])[:100]] += 1
        if REPORTS.search(line) or TROUBLE.search(line):
            wrong.append(line)
    return deaths, wrong


def images_of(address, messages):
    with mrd.Session(address=address) as session:
        return [pixels.tobytes() for _, pixels in session.send(*messages).images()]


class Run:
    def __init__(self, daemon, address, count, clients, seed, first):
        self.daemon, self.address, self.clients = daemon, address, clients
        self.ends, self.deaths, self.wrong, self.tenths = collections.Counter(), collections.Counter(), [], []
        self.processes = {"daemon": daemon.process.pid, "worker": daemon.worker()}
        last = first + count
        self.work = [(address, range(at, min(last, at + CHUNK)), seed) for at in range(first, last, CHUNK)]
        self.truth = {name: images_of(address, messages) for name, messages in SEEDS.items()}
        self.before, self.counted = self.quiet(), daemon.metrics()

    def quiet(self):
        """{process: (megabytes, descriptors, threads)} after the end of all sessions and jobs."""
        def rest():
            counts = self.daemon.metrics()
            busy = ("mrirecond_mrd_sessions", "mrirecond_running_jobs")
            return not any(value for name, value in counts.items() if name in busy or "_queue_jobs" in name)
        wait_until(rest, "the end of all sessions and jobs")
        return self.look()

    def look(self):
        return {name: figures_of(process) for name, process in self.processes.items()}

    def all(self):
        tenth = max(1, len(self.work) // 10)
        with multiprocessing.Pool(self.clients, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
            for number, (ends, deaths, wrong) in enumerate(pool.imap_unordered(share, self.work), 1):
                self.ends += ends
                self.deaths += deaths
                self.wrong += wrong
                if number % tenth == 0:
                    self.tenths.append({"streams": sum(self.ends.values()), **self.look()})
                if self.wrong or self.daemon.process.poll() is not None:
                    break

    def grown(self):
        """The increase of metrics whose names contain this, by their labels."""
        counts = self.daemon.metrics()

        def of(part):
            found = {name: int(value - self.counted.get(name, 0)) for name, value in counts.items() if part in name}
            labels = {name: "".join(re.findall('(?:end|reason)="([^"]*)"', name)) for name in found}
            return {labels[name]: value for name, value in found.items() if value}
        return of

    def judge(self):
        """The jobs that streams became, and the ends of sessions that the daemon counted; faults go to self.wrong."""
        with contextlib.suppress(AssertionError):  # those whose client has left may still wait to be accepted
            wait_until(lambda: sum(self.grown()("mrirecond_mrd_sessions_total").values()) >= sum(self.ends.values()),
                       "the count of sessions")
        after = self.quiet()
        if self.daemon.process.poll() is not None or self.daemon.worker() != self.processes["worker"]:
            self.wrong.append("the daemon or its worker has ended")
        for name, (_, *before) in self.before.items():
            if after[name][1] > before[0] + 4 or after[name][2] > before[1] + 2:
                self.wrong.append(f"{name}: descriptors and threads were {before}, are {after[name][1:]}")
        grown = self.grown()
        sessions, failed = grown("mrirecond_mrd_sessions_total"), grown("mrirecond_jobs_failed_total")
        if sum(sessions.values()) != sum(self.ends.values()):
            self.wrong.append(f"{sum(self.ends.values())} streams were sent, {sum(sessions.values())} sessions counted")
        for name, images in self.truth.items():
            if images_of(self.address, SEEDS[name]) != images:
                self.wrong.append(f"the unchanged stream {name} has other images than at the beginning")
        self.wrong += [f"left behind: {name}" for name in self.daemon.files() if name.endswith(".part")]
        jobs = sum(grown("mrirecond_jobs_submitted_total").values())
        return {"sessions": sessions, "jobs": jobs, "jobs_failed": failed, "before": self.before, "after": after}


def run(count, clients=8, seed=1, first=0):
    """Returns the figures, and the faults."""
    SEEDS.update(mrd_seeds.all_seeds())
    port = free_port()
    # A client has half of all sessions, and those whose end it has read may not have ended yet.
    options = {"mrd_sessions": 1000, "keep_jobs": 10, "keep_scans": "none", "log_level": "warning", "threads": 1}
    with Daemon(mrd_listen=f"127.0.0.1:{port}", devices="cpu", **options) as daemon:
        streams = Run(daemon, ("127.0.0.1", port), count, clients, seed, first)
        began = time.monotonic()
        streams.all()
        seconds = time.monotonic() - began
        told = streams.judge()
        lost, lines = lost_decoders(daemon)
        streams.wrong += lines
        peak = daemon.peak_memory()
    return {"streams": sum(streams.ends.values()), "seconds": round(seconds, 1),
            "ends": dict(streams.ends.most_common()), **told,
            "decoder_deaths": {"told to clients": dict(streams.deaths), "logged": dict(lost)},
            "daemon_peak_MB": round(peak / 1e6, 1), "tenths": streams.tenths}, streams.wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first stream, to repeat one")
    wanted = parser.parse_args()
    result, complaints = run(wanted.count, wanted.clients, wanted.seed, wanted.first)
    for what, value in {**result, "wrong": complaints[:20]}.items():
        print(f"{what}: {json.dumps(value)}")
    sys.exit(1 if complaints else 0)
