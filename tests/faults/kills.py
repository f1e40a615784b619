#!/usr/bin/python3
"""Kill mrirecond, its workers and its decoders at random moments under load: nothing accepted may be lost.

    tests/faults/kills.py [--kills 1000] [--clients 4] [--seed 1] [--victims daemon,worker,codec]
    tests/faults/kills.py --queue 10000 [--restarts 5]

Clients submit small scans (whole with an Idempotency-Key, or as a resumable upload), wait for some images, cancel some
jobs, and fetch images meanwhile. At the end every accepted job must have ended once, with its scan's image; only jobs
under which a worker, or a decoder that read the scan, was killed twice may have failed. The state folder must hold the
files of those jobs and nothing else. --queue measures the restart with so many waiting jobs instead. Prints one JSON
object; exits 1 if something was lost, doubled, torn or left over. MRIRECON_BIN: the programs.
"""
import argparse
import collections
import contextlib
import glob
import http.client
import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import scans  # noqa: E402
from harness import FINAL, SLOW, Daemon, wait_until  # noqa: E402

TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
DEATH = re.compile(r"job=(\w+) worker \d+ was killed by signal 9")  # in the daemon's log
WAITING = 30  # waiting jobs at which clients pause
LIFETIME = 10  # lifetime in seconds of a resumable upload that its client has lost
BROKEN = (OSError, http.client.HTTPException, ValueError)  # of a request to a daemon that is killed


class Load:
    """The requests of clients to a daemon, and its answers."""

    def __init__(self, daemon, seed, folder):
        self.daemon, self.seed, self.stopped = daemon, seed, threading.Event()
        self.lock = threading.Lock()
        self.bodies = [scans.radial(seed=100 + i).bytes(folder) for i in range(4)]
        self.images = [self.npy(daemon.run(body)["id"]) for body in self.bodies]
        self.warm = {job["id"] for job in daemon.get("/v1/jobs?limit=100").json()["jobs"]}
        self.accepted = {}  # id: number of its scan
        self.keys = collections.defaultdict(set)  # Idempotency-Key: ids in the answers
        self.canceled = set()  # ids for which a cancel was requested
        self.refused, self.wrong, self.fetched = collections.Counter(), [], 0
        self.sent = 0  # images in answers to submissions

    def npy(self, identity):
        return self.daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body

    def client(self, number):
        chance = random.Random(f"{self.seed}-{number}")
        count = 0
        while not self.stopped.is_set():
            count += 1
            choice = chance.random()
            with contextlib.suppress(*BROKEN):
                counts = self.daemon.metrics()
                if sum(v for k, v in counts.items() if k.startswith("mrirecond_queue_jobs")) > WAITING:
                    time.sleep(0.05)
                elif choice < 0.55:
                    self.submit(chance, f"{number}-{count}")
                elif choice < 0.75:
                    self.resumable(chance)
                elif choice < 0.85:
                    self.cancel(chance)
                else:
                    self.fetch(chance)

    def persist(self, request):
        """The answer to a request that may be repeated, however often the daemon dies."""
        end = time.monotonic() + SLOW
        while time.monotonic() < end:
            try:
                answer = request()
                # The answer to one who waited for a job's end, whatever that was, has the job's id.
                if (answer.status in (200, 202, 204) or "x-job-id" in answer.headers
                        or 400 <= answer.status < 500 and answer.status != 409):
                    return answer
                self.refused[answer.status] += 1
            except BROKEN:
                pass
            time.sleep(0.02)
        self.wrong.append(f"no answer within {SLOW} s")
        return None

    def submit(self, chance, key):
        number = chance.randrange(len(self.bodies))
        if chance.random() < 0.3:
            self.wait_for_image(number, key)
            return
        answer = self.persist(lambda: self.daemon.submit(self.bodies[number], Idempotency_Key=key))
        if answer and answer.status == 202:
            self.accept(answer.json()["id"], number, key)
        elif answer:
            self.wrong.append(f"a submission was answered {answer.status}: {answer.body[:200]!r}")

    def wait_for_image(self, number, key):
        """A submission that is answered with the image, which is sent before it is on the disk."""
        answer = self.persist(lambda: self.daemon.submit(self.bodies[number], Idempotency_Key=key, Prefer="wait=60",
                                                         Accept="application/x-npy"))
        if answer and "x-job-id" in answer.headers:
            self.accept(answer.headers["x-job-id"], number, key)
        elif answer:
            self.wrong.append(f"a submission that waits was answered {answer.status}: {answer.body[:200]!r}")
        if answer and answer.status == 200:
            with self.lock:
                self.sent += 1
            if answer.body != self.images[number]:
                self.wrong.append(f"the image that was sent for {key} is not that of its scan")

    def accept(self, identity, number, key):
        with self.lock:
            self.accepted[identity] = number
            self.keys[key].add(identity)

    def resumable(self, chance):
        number = chance.randrange(len(self.bodies))
        body = self.bodies[number]
        where = self.daemon.request("POST", "/v1/uploads?kind=recon",
                                    headers={**TUS, "Upload-Length": str(len(body))}).expect(201).headers["location"]
        while True:
            head = self.persist(lambda: self.daemon.request("HEAD", where, headers=TUS))
            if head is None or head.status == 404:
                return  # older than its lifetime: it was never accepted
            offset = int(head.headers["upload-offset"])
            if offset == len(body):  # complete: it is, or becomes, the job with its id
                self.accept(where.rsplit("/", 1)[1], number, where)
                return
            end = min(len(body), offset + chance.randrange(1, len(body)))
            with contextlib.suppress(*BROKEN):
                self.daemon.request("PATCH", where, body[offset:end], {**TUS, "Upload-Offset": str(offset)})

    def pick(self, chance):
        with self.lock:
            return chance.choice(list(self.accepted.items())[-40:]) if self.accepted else (None, None)

    def cancel(self, chance):
        identity, _ = self.pick(chance)
        if identity:
            self.canceled.add(identity)
            answer = self.daemon.request("POST", f"/v1/jobs/{identity}/cancel")
            if answer.status not in (202, 409):
                self.wrong.append(f"canceling an accepted job was answered {answer.status}: {answer.body[:200]!r}")

    def fetch(self, chance):
        identity, number = self.pick(chance)
        if not identity:
            return
        answer = self.daemon.get(f"/v1/jobs/{identity}")
        if answer.status != 200:
            self.wrong.append(f"accepted job {identity} was answered {answer.status}")
        elif answer.json()["state"] == "succeeded":
            name = chance.choice(("npy", "npy", "png"))
            answer = self.daemon.get(f"/v1/jobs/{identity}/results/image?format={name}")
            if answer.status == 200 and name == "npy":
                self.fetched += 1
                if answer.body != self.images[number]:
                    self.wrong.append(f"the image of {identity} is not that of its scan")


def ready_after(daemon):
    begun = time.monotonic()
    daemon.restart()
    return time.monotonic() - begun


def reads(codec):
    """Whether this decoder has an upload open."""
    with contextlib.suppress(OSError):
        folder = f"/proc/{codec}/fd"
        return any("/spool/" in os.readlink(f"{folder}/{name}") or "/uploads/" in os.readlink(f"{folder}/{name}")
                   for name in os.listdir(folder))
    return False


def codec_of(daemon, chance):
    """A decoder, preferably one that reads an upload, and whether it does. None if there is none."""
    end = time.monotonic() + 0.3
    while True:
        codecs = [codec for worker in daemon.children("mrirecon-worker") for template in (False, True)
                  for codec in daemon.children("mrirecon-codec", worker, template)]
        busy = [codec for codec in codecs if reads(codec)]
        if busy:
            return chance.choice(busy), True
        if time.monotonic() > end:
            return (chance.choice(codecs), False) if codecs else None


def strike(daemon, chance, kills, slowest, victims):
    """Kill one existing process."""
    victim = chance.choice(victims)
    if victim == "daemon":
        daemon.kill()
        kills["daemon"] += 1
        slowest.append(ready_after(daemon))
    elif victim == "worker":
        for worker in daemon.children("mrirecon-worker"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                kills["worker"] += 1
    else:
        codec = codec_of(daemon, chance)
        with contextlib.suppress(ProcessLookupError):
            if codec:
                os.kill(codec[0], signal.SIGKILL)
                kills["codec that reads" if codec[1] else "codec"] += 1


def all_jobs(daemon):
    jobs, cursor = [], ""
    while cursor is not None:
        page = daemon.get(f"/v1/jobs?limit=100{cursor}").expect(200).json()
        jobs += page["jobs"]
        cursor = f"&cursor={page['next']}" if page["next"] else None
    return jobs


def whole(daemon, load, job):
    """Why the files of a succeeded job are wrong; None if they are right."""
    identity = job["id"]
    if load.npy(identity) != load.images[load.accepted[identity]]:
        return "the image is not that of its scan"
    image = np.load(io.BytesIO(load.images[load.accepted[identity]]))
    with h5py.File(f"{daemon.state}/results/{identity}/image.h5") as file:
        arrays = []
        file.visititems(lambda name, item: arrays.append(item[()]) if isinstance(item, h5py.Dataset)
                        and item.dtype.kind == "f" else None)
    if not any(array.size == image.size and np.array_equal(array.ravel(), image.ravel()) for array in arrays):
        return "image.h5 holds another image"
    return None


def excuse(job, deaths, kills):
    """Who was killed twice under a failed job; None: nobody, so it should not have failed."""
    if job["error"]["code"] == "worker-died" and deaths[job["id"]] >= 2:
        return "worker"
    # A decoder that was not seen reading may have begun since.
    if (job["error"]["code"] == "out-of-memory" and "twice" in job["error"]["detail"]
            and kills["codec that reads"] + kills["codec"] >= 2):
        return "codec"
    return None


def judge(daemon, load, runs, deaths, kills):
    """Of jobs that have all ended: {kind of fault: [faults]}, the ends of jobs, and the processes killed twice under
    failed jobs.
    """
    twice = collections.Counter()
    found = {"lost": [], "duplicated": [], "torn": [], "left_behind": [], "wrong": list(load.wrong)}
    ends = collections.Counter()
    jobs = {job["id"]: job for job in all_jobs(daemon)}
    for key, ids in load.keys.items():
        if len(ids) > 1:
            found["duplicated"].append(f"key {key} became {sorted(ids)}")
    for identity in load.accepted:
        job = jobs.get(identity)
        if job is None:
            found["lost"].append(identity)
            continue
        ends[job["state"]] += 1
        if job["state"] == "succeeded":
            reason = whole(daemon, load, job)
            if reason:
                found["torn"].append(f"{identity}: {reason}")
        elif job["state"] == "failed":
            who = excuse(job, deaths, kills)
            twice[who] += 1
            if not who:
                found["wrong"].append(f"{identity} failed, its worker died {deaths[identity]} times: {job['error']}")
        elif job["state"] == "canceled" and identity not in load.canceled:
            found["wrong"].append(f"{identity} was canceled by nobody")
    found["duplicated"] += [f"{identity} was run to success {count} times" for identity, count in runs.items()
                            if count > 1]
    found["duplicated"] += [f"{identity} is a job that nobody was told of"
                            for identity in jobs.keys() - load.accepted.keys() - load.warm]
    expected = {f"results/{job['id']}/image.h5" for job in jobs.values() if job["state"] == "succeeded"}

    def stray():
        files = {name for name in daemon.files() if name.startswith(("results/", "spool/", "uploads/"))}
        named = re.compile(r"results/[0-9a-z]{26}/image\.[a-z0-9]+$")
        return sorted(expected - files) + [name for name in files - expected if not named.match(name)
                                           or name.rsplit("/", 1)[0] + "/image.h5" not in expected]
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not stray() and daemon.metrics()["mrirecond_spool_used_bytes"] == 0, "an empty spool",
                   LIFETIME + SLOW)
    found["left_behind"] = stray()
    if daemon.metrics()["mrirecond_spool_used_bytes"] != 0:
        found["left_behind"].append(f"{daemon.metrics()['mrirecond_spool_used_bytes']} bytes counted in the spool")
    return found, ends, twice


def kills(count, clients=4, seed=1, pause=0.3, victims=("daemon", "worker", "codec")):
    """The report of `count` kills under load."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, Daemon(expect_trouble=True, upload_lifetime=LIFETIME,
                                                         keep_scans="none") as daemon:
        load = Load(daemon, seed, folder)
        threads = [threading.Thread(target=load.client, args=(i,), daemon=True) for i in range(clients)]
        begun, done, restarts = time.monotonic(), collections.Counter(), []
        for thread in threads:
            thread.start()
        while sum(done.values()) < count:
            time.sleep(chance.uniform(0, pause))
            strike(daemon, chance, done, restarts, victims)
        load.stopped.set()
        for thread in threads:
            thread.join()
        # A death is logged before its job's failure is stored, and may still be under way.
        wait_until(lambda: all(job["state"] in FINAL for job in all_jobs(daemon)), "the end of all jobs", 600)
        runs = collections.Counter(re.findall(r"job=(\w+) succeeded in", daemon.log + daemon.read_log()))
        deaths = collections.Counter(DEATH.findall(daemon.log + daemon.read_log()))
        found, ends, twice = judge(daemon, load, runs, deaths, done)
        aside = len(glob.glob(f"{daemon.state}/found-*/[0-9]*"))
        return {"kills": sum(done.values()), "victims": dict(done), "seconds": round(time.monotonic() - begun, 1),
                "jobs_accepted": len(load.accepted), "answers_to_be_repeated": dict(load.refused), "ends": dict(ends),
                "failed_for_two_kills_of": dict(twice), "kept_aside": aside,
                "images_compared_meanwhile": load.fetched, "images_sent_at_once": load.sent,
                **{what: len(list_) for what, list_ in found.items()},
                "slowest_restart_s": round(max(restarts, default=0), 3),
                "median_restart_s": round(sorted(restarts)[len(restarts) // 2], 3) if restarts else 0,
                "details": {what: list_[:20] for what, list_ in found.items() if list_}}


def restarts(queued, count):
    """Seconds from the start of mrirecond to /readyz 200 with `queued` waiting jobs."""
    with tempfile.TemporaryDirectory() as folder, Daemon(expect_trouble=True, queue_limit=2 * queued,
                                                         worker_timeout=3600) as daemon:
        body, seconds, waiting = scans.radial(seed=7).bytes(folder), [], []
        ids, lock = [], threading.Lock()
        os.kill(daemon.worker(), signal.SIGSTOP)  # submitted jobs wait

        def submit(share):
            for _ in range(share):
                identity = daemon.submit(body).expect(202).json()["id"]
                with lock:
                    ids.append(identity)
        threads = [threading.Thread(target=submit, args=(queued // 16,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(count):
            daemon.kill()
            seconds.append(ready_after(daemon))
            os.kill(daemon.worker(), signal.SIGSTOP)
            waiting.append(int(sum(value for name, value in daemon.metrics().items()
                                   if name.startswith("mrirecond_queue_jobs"))))
        missing = set(ids) - {job["id"] for job in all_jobs(daemon)}
        os.kill(daemon.worker(), signal.SIGKILL)
        return {"queued": len(ids), "restarts_s": [round(s, 3) for s in seconds],
                "slowest_restart_s": round(max(seconds), 3), "waiting_after_each": waiting, "lost": len(missing)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.3, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", default="daemon,worker,codec", help="comma-separated, chosen with the same chance")
    parser.add_argument("--queue", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=5)
    asked = parser.parse_args()
    report = restarts(asked.queue, asked.restarts) if asked.queue else kills(asked.kills, asked.clients, asked.seed,
                                                                             asked.pause,
                                                                                        asked.victims.split(","))
    print(json.dumps(report, indent=1))
    bad = sum(report.get(what, 0) for what in ("lost", "duplicated", "torn", "left_behind", "wrong"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
