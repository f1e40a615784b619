#!/usr/bin/python3
"""The daemon's end: at any moment, whatever its threads do, and after a start that fails half way."""
import contextlib
import http.client
import os
import random
import signal
import socket
import tempfile
import threading
import time

import mrd
import scans
from harness import REPORTS, SLOW, Daemon, fault, main, same, test, wait_until
from streams import Stream

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-stop-")
SCAN = scans.radial(seed=41)
BODY = SCAN.bytes(FOLDER.name)
MESSAGES = list(SCAN.messages())
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
STOPS = 6
ENDS = (OSError, http.client.HTTPException, ValueError, AssertionError)  # of requests to a daemon that is ending


def environment(**more):
    """Threads pause for up to 20 ms at locks, so that rare interleavings occur."""
    return {"LD_PRELOAD": fault("jitter"), "JITTER": "20", "ASAN_OPTIONS": "verify_asan_link_order=0", **more}


class Crowd:
    """Clients that send every kind of request, until the daemon is told to stop."""

    def __init__(self, daemon, seed):
        self.daemon, self.stopped, self.done, self.wrong = daemon, threading.Event(), {}, []
        self.threads = [threading.Thread(target=self.client, args=(action, random.Random(f"{seed}-{action.__name__}")))
                        for action in (self.submit, self.wait, self.resumable, self.listen, self.follow, self.convert,
                                       self.stream, self.stream_part, self.post, self.manage)]
        for thread in self.threads:
            thread.start()

    def client(self, action, chance):
        while not self.stopped.is_set():
            try:
                action(chance)
                self.done[action.__name__] = self.done.get(action.__name__, 0) + 1
            except ENDS as error:
                if not self.stopped.is_set():
                    self.wrong.append(f"{action.__name__}: {error!r}")
                return

    def listed(self, query=""):
        return [job["id"] for job in self.daemon.get(f"/v1/jobs?limit=20{query}").expect(200).json()["jobs"]]

    def end(self, identity):
        """Wait for the end of a job, so that the queue stays short."""
        assert self.daemon.get(f"/v1/jobs/{identity}", Prefer="wait=60").status in (200, 404), "no job"

    def submit(self, chance):
        priority = chance.choice(("urgent", "normal"))
        self.end(self.daemon.submit(BODY, f"kind=recon&priority={priority}").expect(202).json()["id"])

    def wait(self, chance):
        """A job that others cancel or remove has no image."""
        prefer = chance.choice(("wait=60", "wait=60, cancel-on-disconnect"))
        answer = self.daemon.submit(BODY, Prefer=prefer, Accept="image/png")
        assert answer.status < 500, answer.body

    def resumable(self, chance):
        length = {**TUS, "Upload-Length": str(len(BODY))}
        where = self.daemon.request("POST", "/v1/uploads?kind=recon", headers=length).expect(201).headers["location"]
        offset = 0
        while offset < len(BODY):
            end = min(len(BODY), offset + chance.randrange(1, len(BODY)))
            self.daemon.request("PATCH", where, BODY[offset:end], {**TUS, "Upload-Offset": str(offset)}).expect(204)
            offset = end
        self.end(where.rsplit("/", 1)[1])

    def listen(self, chance):
        """Read the events of all jobs, up to a few."""
        stream = Stream(self.daemon, "/v1/events")
        with contextlib.closing(stream):
            for _, _ in zip(range(chance.randrange(1, 20)), stream.events()):
                pass

    def follow(self, _):
        """Read the events of a job, until its end."""
        identity = self.daemon.submit(BODY).expect(202).json()["id"]
        stream = Stream(self.daemon, f"/v1/jobs/{identity}/events")
        with contextlib.closing(stream):
            for _ in stream.events():
                pass

    def convert(self, chance):
        for identity in self.listed("&state=succeeded")[:3]:
            form = chance.choice(("png", "nii.gz", "dcm", "npy"))
            answer = self.daemon.get(f"/v1/jobs/{identity}/results/image?format={form}")
            assert answer.status in (200, 404, 503), answer.status

    def stream(self, _):
        with mrd.Session(self.daemon) as session:
            session.send(mrd.text(mrd.CONFIG_TEXT, "kind=recon"), *MESSAGES).messages()

    def stream_part(self, chance):
        """Send a stream that breaks off in the middle of a scan."""
        with mrd.Session(self.daemon) as session:
            session.send(mrd.text(mrd.CONFIG_TEXT, "kind=recon"), *MESSAGES[:chance.randrange(1, len(MESSAGES))])
            session.socket.shutdown(socket.SHUT_WR)
            session.failure()

    def post(self, _):
        """A stream in a body, whose images are sent one by one."""
        answer = self.daemon.submit(b"".join(MESSAGES), Accept="multipart/mixed", Prefer="wait=60")
        assert answer.status < 500, answer.body

    def manage(self, chance):
        """Cancel, resubmit, remove and reload."""
        for identity in self.listed()[:2]:
            action = chance.choice(("cancel", "resubmit", ""))
            path = f"/v1/jobs/{identity}"
            self.daemon.request(*(("POST", f"{path}/{action}") if action else ("DELETE", path)))
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.get("/metrics").expect(200)

    def all_began(self):
        return self.wrong or len(self.done) == len(self.threads)

    def stop(self, chance):
        """Stop the daemon during all this, sometimes with a second signal while jobs may still end; returns its exit
        status.
        """
        self.stopped.set()
        self.daemon.process.send_signal(signal.SIGTERM)
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, 0.2))
            self.daemon.process.send_signal(signal.SIGTERM)
        status = self.daemon.process.wait(SLOW)
        for thread in self.threads:
            thread.join()
        return status


@test("stopped at random moments during uploads, streams, conversions and deliveries, the daemon ends cleanly")
def stops():
    chance = random.Random(7)
    # A destination that accepts and never answers, so that senders exist; and one where nobody listens.
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        secret, lines = f"{FOLDER.name}/secret", f"{FOLDER.name}/destinations"
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("a key of the test")
        with open(lines, "w") as file:
            for name, port in (("silent", silent.getsockname()[1]), ("closed", 9)):
                file.write(f"destination {name} webhook http://127.0.0.1:{port}/ secret={secret} retry=1 "
                           f"retry-most=1\n")
                file.write(f"rule {name}\n")
        with Daemon(devices="cpu", environment=environment(), destinations=lines, mrd_listen="127.0.0.1:0",
                    drain_time=1, upload_lifetime=600, keep_jobs=5) as daemon:
            for number in range(STOPS):
                crowd = Crowd(daemon, number)
                wait_until(crowd.all_began, "each kind of client to be served")
                time.sleep(chance.uniform(0, 0.5))  # at a random moment
                status = crowd.stop(chance)
                same((status, crowd.wrong), (0, []), f"exit status, and what failed before stop {number}")
                daemon.restart()


@test("a start that fails because a thread cannot be started, whichever it is, says so and ends cleanly")
def half_starts():
    for number in range(1, 200):
        try:
            preload = environment(NO_THREAD=str(number))
            with Daemon(devices="cpu", environment=preload, mrd_listen="127.0.0.1:0", http_threads=2):
                break  # it has fewer threads
        except AssertionError as error:
            told = str(error)
        assert "exited with 1 at its start" in told and "cannot be started" in told, f"thread {number}: {told}"
        assert not REPORTS.search(told), f"thread {number}: {told}"
    assert 20 < number < 199, f"{number} threads"


if __name__ == "__main__":
    main()
