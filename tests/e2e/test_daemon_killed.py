#!/usr/bin/python3
"""A daemon that is killed, with its workers and decoders or alone, at any moment; and a shutdown under load."""
import contextlib
import ctypes
import glob
import hashlib
import http.client
import os
import random
import select
import signal
import socket
import time

import scans
from harness import Daemon, main, same, test, wait_until
from processes import BODY, FOLDER, caught, ended, image, state_of


@test("kill -9 of the daemon with jobs queued and running: the next start finishes each of them")
def daemon_killed():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        _, worker = caught(daemon)
        # That job, and those that ended before the signal.
        before = [job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]]
        jobs = before + [daemon.submit(BODY).expect(202).json()["id"] for _ in range(5)]
        os.kill(worker, signal.SIGCONT)
        daemon.kill()
        wait_until(lambda: ended(worker), "the worker to end with its daemon")
        daemon.restart()
        for identity in jobs:
            job = daemon.finish(identity)
            same(job["state"], "succeeded", f"state of {identity} ({job['error']})")
            daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200)
        listed = [job["id"] for job in daemon.get("/v1/jobs?limit=100").json()["jobs"]]
        same(sorted(listed), sorted(jobs), "jobs listed")


@contextlib.contextmanager
def stopped(processes):
    """Stops these processes by SIGSTOP, and kills those that remain at the end. Orphans become children of this
    process, because the kernel sends SIGHUP and SIGCONT to stopped orphans of init, which would end them without the
    daemon's doing.
    """
    subreaper = 36
    ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0)
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
        ctypes.CDLL(None).prctl(subreaper, 0, 0, 0, 0)


@test("kill -9 of the daemon while its worker and a decoder hang (SIGSTOP): neither outlives it")
def daemon_killed_over_stopped():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        identity, worker = caught(daemon)
        decoders = wait_until(lambda: daemon.children("mrirecon-codec", worker), "a pre-started decoder")
        with stopped([worker, *decoders]):
            daemon.kill()
            wait_until(lambda: all(map(ended, [worker, *decoders])), "worker and decoders to end with the daemon")
        daemon.restart()
        same(daemon.finish(identity)["state"], "succeeded", "state of the interrupted job")


@test("kill -9 of the daemon while a conversion hangs (SIGSTOP): the converter does not outlive it")
def daemon_killed_over_conversion():
    large = scans.radial(matrix=(512, 512, 1), spokes=8, samples=64, coils=8, weights=True).bytes(FOLDER.name)

    def converting():
        """A codec that has opened the image, stopped by SIGSTOP."""
        for codec in daemon.children("mrirecon-codec"):
            with contextlib.suppress(OSError):
                os.kill(codec, signal.SIGSTOP)
                wait_until(lambda: state_of(codec) in ("T", "Z", None), "a conversion to stop")  # noqa: B023
                if any(os.readlink(path).endswith("image.h5") for path in glob.glob(f"/proc/{codec}/fd/*")):
                    return codec
                os.kill(codec, signal.SIGCONT)
        return None
    daemon = Daemon(expect_trouble=True)
    with daemon:
        for _ in range(20):  # it may end before it is found
            path = f"/v1/jobs/{daemon.run(large, 'kind=recon&coils=none')['id']}/results/image?format=nii.gz"
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
            connection.request("GET", path)
            while not (codec := converting()) and not select.select([connection.sock], [], [], 0)[0]:
                pass
            if codec:
                break
            connection.close()
        assert codec, "no conversion could be stopped"
        with stopped([codec]):
            daemon.kill()
            wait_until(lambda: ended(codec), "the conversion to end with the daemon")
        connection.close()
        daemon.restart()
        daemon.get(path).expect(200)


@test("random kill -9 of daemon, worker and codec under load: each accepted job ends once, with image or reason")
def random_kills():
    chance = random.Random(20)  # seeds the victims and the pauses; what they interrupt still differs from run to run
    daemon = Daemon(expect_trouble=True)
    with daemon:
        good = hashlib.sha256(image(daemon, daemon.run(BODY)["id"])).hexdigest()
        accepted = []
        for _ in range(12):
            for _ in range(4):
                accepted.append(daemon.submit(BODY, "kind=recon").expect(202).json()["id"])
            victim = chance.choice(("daemon", "mrirecon-worker", "mrirecon-codec", "template"))
            time.sleep(chance.uniform(0, 0.15))
            if victim == "daemon":
                daemon.kill()
                daemon.restart()
            for worker in daemon.children("mrirecon-worker"):
                for process in [worker] if victim == "mrirecon-worker" else daemon.children("mrirecon-codec", worker,
                                                                                            victim == "template"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
        succeeded = 0
        for identity in accepted:
            job = daemon.finish(identity)
            if job["state"] == "succeeded":
                succeeded += 1
                same(hashlib.sha256(image(daemon, identity)).hexdigest(), good, f"image of {identity}")
            else:
                same(job["state"], "failed", f"state of {identity}")
                assert job["error"]["code"] in ("worker-died", "out-of-memory"), job["error"]
        assert succeeded, "no job succeeded"
        jobs = daemon.get("/v1/jobs?limit=100").json()["jobs"]
        same(sorted(job["id"] for job in jobs)[1:], sorted(accepted), "jobs listed")
        wait_until(lambda: not [name for name in daemon.files() if name.startswith("spool/")], "scans to be removed")
        wait_until(lambda: len({name.split("/")[1] for name in daemon.files() if name.startswith("results/")})
                   == succeeded + 1, "only folders of results to remain")


@test("kill -9 of the daemon during an upload leaves no file of it and no job")
def daemon_killed_uploading():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        before = daemon.files()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
            connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                               b"1000000\r\n\r\n" + bytes(500000))
            wait_until(lambda: daemon.new_files(before), "the upload to reach the disk")
            daemon.kill()
        daemon.restart()
        same(daemon.new_files(before), set(), "files left behind")
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")


@test("results are unchanged after a restart: the same bytes, the same ETag")
def restart():
    daemon = Daemon()
    with daemon:
        path = f"/v1/jobs/{daemon.run(BODY)['id']}/results/image?format=npy"
        first = daemon.get(path).expect(200)
        daemon.process.send_signal(signal.SIGTERM)
        same(daemon.process.wait(120), 0, "exit status")
        daemon.restart()
        second = daemon.get(path).expect(200)
        same(second.body, first.body, "result")
        same(second.headers["etag"], first.headers["etag"], "ETag")


@test("SIGTERM: /readyz fails at once, no job is accepted, accepted jobs end now or after the restart, exit 0")
def drain():
    daemon = Daemon()
    with daemon:
        _, worker = caught(daemon)
        # That job, and those that ended before the signal.
        jobs = [job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]]
        jobs.append(daemon.submit(BODY).expect(202).json()["id"])
        daemon.process.send_signal(signal.SIGTERM)

        def refused():
            response = daemon.submit(BODY)
            if response.status != 202:
                return response
            jobs.append(response.json()["id"])  # accepted before the signal was handled: it must not be lost
            return None
        response = wait_until(refused, "submissions to be refused")
        response.problem(503, "draining")
        assert "retry-after" in response.headers, response.headers
        same((daemon.get("/readyz").status, daemon.metrics()["mrirecond_ready"]), (503, 0), "/readyz, and the metric")
        os.kill(worker, signal.SIGCONT)
        same(daemon.process.wait(120), 0, "exit status")
        daemon.restart()
        for identity in jobs:
            same(daemon.finish(identity)["state"], "succeeded", f"state of {identity}")


if __name__ == "__main__":
    main()
