#!/usr/bin/python3
"""Killed and hanging processes (daemon, worker, decoder), and a shutdown under load."""
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
import tempfile
import time

import scans
from harness import Daemon, children_of, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
SLOW = scans.slow().bytes(FOLDER.name)


def submit_slow(daemon, iterations=1000):
    return daemon.submit(SLOW, scans.SLOW_QUERY.replace("1000", str(iterations))).expect(202).json()["id"]


def image(daemon, identity):
    return daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body


def running(daemon, identity):
    wait_until(lambda: daemon.job(identity)["state"] == "running" and daemon.job(identity)["progress"] > 0.02,
               "the job to run")


def caught(daemon):
    """A running job and its worker, stopped by SIGSTOP. The job ends soon after the worker continues."""
    for number in range(20):
        # A different job each time, because the worker caches the last weights.
        identity = submit_slow(daemon, 60 + number)
        worker = daemon.worker()
        wait_until(lambda: (job := daemon.job(identity))["state"] not in ("queued", "running")
                   or job["progress"] > 0.02, "the job to run")
        os.kill(worker, signal.SIGSTOP)
        job = daemon.job(identity)
        if job["state"] == "running" and job["progress"] < 0.6:  # otherwise it may already have ended
            return identity, worker
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        daemon.finish(identity)
    raise AssertionError("no worker could be stopped during a job")


def state_of(process):
    """S: sleeping, R: running, Z: zombie; None: no such process."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def ended(process):
    """Whether a process has ended (it may still be a zombie)."""
    return state_of(process) in (None, "Z")


@test("kill -9 of the worker during a job: the job is retried once and succeeds")
def worker_killed():
    with Daemon(expect_trouble=True) as daemon:
        identity, worker = caught(daemon)
        os.kill(worker, signal.SIGKILL)
        job = daemon.finish(identity)
        same(job["state"], "succeeded", f"state ({job['error']})")
        assert daemon.metrics()["mrirecond_jobs_retried_total"] == 1, "the retry is not counted"
        daemon.get(f"/v1/jobs/{identity}/results/image?format=png").expect(200)


@test("a worker that dies twice under the same job: the job fails with worker-died, the next one succeeds")
def worker_killed_twice():
    with Daemon(expect_trouble=True) as daemon:
        identity = submit_slow(daemon)
        for _ in range(2):
            worker = wait_until(lambda: daemon.job(identity)["state"] == "running"
                                and daemon.job(identity)["progress"] > 0.01
                                and daemon.children("mrirecon-worker"), "a worker that computes")[0]
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: worker not in daemon.children("mrirecon-worker"), "the worker's end")
            wait_until(lambda: daemon.job(identity)["state"] != "running" or daemon.job(identity)["progress"] < 0.01
                       or daemon.children("mrirecon-worker"), "the daemon to notice its end")
        job = daemon.finish(identity)
        same(job["state"], "failed", "state")
        same(job["error"]["code"], "worker-died", "code")
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")


def run_again(daemon, worker, identity, says):
    """Assert that the worker is replaced, with this reason in the log, and that the job succeeds in its second attempt.
    """
    job = daemon.finish(identity)
    same((job["state"], job["attempts"]), ("succeeded", 2), f"state and attempts ({job['error']})")
    assert says in daemon.read_log(), daemon.read_log()
    assert worker not in daemon.children("mrirecon-worker"), "the worker still runs"


class Timed(Daemon):
    """A daemon with this timeout of 600 s, which a test lowers for a while: on a busy machine, the worker of the next
    attempt may be silent for longer.
    """

    def __init__(self, name):
        self.name, self.path = name, f"{FOLDER.name}/{name}.conf"
        self.write(600)
        super().__init__(expect_trouble=True, config=self.path, worker_timeout=None)

    def write(self, seconds):
        with open(self.path, "w") as file:
            for name, value in {"worker-timeout": 600, self.name: seconds}.items():
                file.write(f"{name} = {value}\n")

    def missed(self, seconds, says):
        """With a timeout of so many seconds until the log says this."""
        for limit in (seconds, 600):
            self.write(limit)
            self.process.send_signal(signal.SIGHUP)
            wait_until(lambda: says in self.read_log(), "the daemon to tell")


@test("a worker without a heartbeat is killed, and its job retried")
def worker_stopped():
    with Timed("worker-timeout") as daemon:
        identity, worker = caught(daemon)
        daemon.missed(3, "gave no sign of life for 3 s")
        run_again(daemon, worker, identity, "gave no sign of life for 3 s")


@test("a worker whose job makes no progress is killed, and the job is retried")
def job_stopped():
    with Timed("progress-timeout") as daemon:
        worker = daemon.worker()
        wait_until(lambda: len(daemon.children("mrirecon-codec", worker)) == 2, "two pre-started decoders")
        for decoder in daemon.children("mrirecon-codec", worker):  # the decoder that gets the scan does not read it
            os.kill(decoder, signal.SIGSTOP)
        identity = daemon.submit(BODY).expect(202).json()["id"]
        daemon.missed(4, "made no progress for 4 s")
        run_again(daemon, worker, identity, "made no progress for 4 s")


@test("kill -9 of an idle worker: another one starts")
def idle_worker_killed():
    with Daemon(expect_trouble=True) as daemon:
        daemon.run(BODY)
        old = daemon.worker()
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: old not in daemon.children("mrirecon-worker"), "the worker's end")
        same(daemon.run(BODY)["state"], "succeeded", "state")
        assert daemon.worker() != old


def behind_and_read(daemon, worker):
    """Submit a scan while another job runs, and wait until its decoder has ended (a decoder reads one scan); returns
    the job's id.
    """
    def ready():
        found = daemon.children("mrirecon-codec", worker)
        return len(found) == 1 and state_of(found[0]) == "S" and found[0]
    decoder = wait_until(ready, "the pre-started decoder")
    identity = daemon.submit(BODY).expect(202).json()["id"]
    wait_until(lambda: decoder not in daemon.children("mrirecon-codec", worker), "the scan to be read ahead")
    return identity


@test("the next scan is prefetched while its job stays queued; a worker's death counts only against its own job")
def read_ahead():
    with Daemon(expect_trouble=True) as daemon:
        slow = submit_slow(daemon)
        running(daemon, slow)
        worker = daemon.worker()
        behind = behind_and_read(daemon, worker)
        job = daemon.job(behind)
        same((job["state"], job["attempts"], job["progress"]), ("queued", 0, 0),
             "state, attempts and progress of the job whose scan is read ahead")
        os.kill(worker, signal.SIGKILL)
        job = daemon.finish(behind)
        same((job["state"], job["attempts"]), ("succeeded", 1),
             f"state and attempts of the job read ahead ({job['error']})")
        wait_until(lambda: (job := daemon.job(slow))["attempts"] == 2 and job["progress"] > 0.01,
                   "the interrupted job to be retried")
        daemon.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
        same(daemon.finish(slow)["state"], "canceled", "state of the interrupted job")
        same(daemon.metrics()["mrirecond_jobs_retried_total"], 1, "retries")
        # Without a kill: most of its decoding happened before the job began.
        slow = submit_slow(daemon)
        running(daemon, slow)
        behind = behind_and_read(daemon, daemon.worker())
        daemon.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
        report = daemon.finish(behind)["report"]
        assert 0 < report["decode_ahead_seconds"] <= report["stages"]["decode"], report
        # Canceled while it is prefetched: it ends at once.
        slow = submit_slow(daemon)
        running(daemon, slow)
        behind = daemon.submit(BODY).expect(202).json()["id"]
        daemon.request("POST", f"/v1/jobs/{behind}/cancel")
        same(daemon.job(behind)["state"], "canceled", "state of the job read ahead")
        daemon.request("POST", f"/v1/jobs/{slow}/cancel")
        same(daemon.finish(slow)["state"], "canceled", "state of the interrupted job")
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")


@test("/readyz and the log name a device that cannot be used; workers of other devices run")
def device_missing():
    with Daemon(expect_trouble=True, devices="gpu:99,cpu") as daemon:
        note = wait_until(lambda: daemon.get("/readyz?verbose").json()["worker_list"][0]["note"],
                          "/readyz to name the missing device")
        assert "GPU 99 cannot be used: " in note, note
        wait_until(lambda: f"worker 0 {note}" in daemon.read_log(), "the log to name the device")
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the other worker")


@test("kill -9 of a busy decoder: the scan is read again; a second kill fails the job without blaming the scan")
def decoder_killed():
    # Large enough that the decoder can be found while it works.
    large = scans.radial(matrix=(64, 64, 1), spokes=2000, samples=512, coils=8, weights=True).bytes(FOLDER.name)

    def at_work(daemon, worker, identity):
        """The decoder that has mapped the job's scan."""
        for decoder in daemon.children("mrirecon-codec", worker):
            try:
                with open(f"/proc/{decoder}/maps") as file:
                    if f"spool/{identity}" in file.read():
                        return decoder
            except OSError:
                pass
        return None

    with Daemon(expect_trouble=True) as daemon:
        worker = daemon.worker()
        for times in (1, 99):  # 99: every decoder of the job
            for _ in range(40):
                identity = daemon.submit(large).expect(202).json()["id"]
                killed = set()
                while daemon.job(identity)["state"] in ("queued", "running") and len(killed) < times:
                    decoder = at_work(daemon, worker, identity)
                    if decoder and decoder not in killed:
                        try:
                            os.kill(decoder, signal.SIGKILL)
                            killed.add(decoder)
                        except ProcessLookupError:
                            pass
                job = daemon.finish(identity)
                assert job["state"] == "succeeded" or len(killed) >= 2, job
                if killed and (times == 1 or job["state"] == "failed"):
                    break
            else:
                raise AssertionError("no decoder was found while it worked")
            if times > 1:
                same((job["error"]["code"], job["attempts"]), ("out-of-memory", 1), "code and attempts")
        assert "killed from outside while reading a scan" in daemon.read_log(), daemon.read_log()
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")
        same(daemon.worker(), worker, "worker")


@test("pre-started decoders and their template: killed ones are logged and replaced; nothing leaks")
def decoders_ready():
    with Daemon(expect_trouble=True) as daemon:
        worker = daemon.worker()

        def children():
            return sorted(set(children_of(worker)) - set(daemon.children("mrirecon-codec", worker, template=True)))

        def ready():
            """The two pre-started decoders, with no zombie beside them."""
            def two():
                found = children()
                return [state_of(child) for child in found] == ["S", "S"] and found
            return wait_until(two, "two pre-started decoders and no zombie")

        def descriptors():
            """The expected number of descriptors of the idle worker: one socket to the daemon, one to each decoder and
            one to their template, memory for one scan, and no file of a job.
            """
            open_now = []

            def at_rest():
                open_now.clear()
                for path in glob.glob(f"/proc/{worker}/fd/*"):
                    with contextlib.suppress(OSError):
                        open_now.append(os.readlink(path).removeprefix(daemon.state + "/").partition(":")[0])
                return (open_now.count("socket"), open_now.count("/memfd")) == (4, 1) and \
                    not [name for name in open_now if name.startswith(("spool/", "results/"))]
            try:
                wait_until(at_rest, "the worker to close the files of its job")
            except AssertionError as error:
                raise AssertionError(f"{error}; open are {sorted(open_now)}") from None
            return len(open_now)
        daemon.run(BODY)
        first = ready()
        before = descriptors()
        for _ in range(5):
            daemon.run(BODY)
        assert not set(first) & set(ready()), "a decoder served more than one upload"
        same(descriptors(), before, "descriptors of the worker after five more jobs")
        for decoder in ready():
            os.kill(decoder, signal.SIGKILL)
        same(daemon.run(BODY)["state"], "succeeded", "state of a job submitted after the decoders were killed")
        same(daemon.worker(), worker, "worker")
        wait_until(lambda: "ended before a scan came" in daemon.read_log(), "the log to name the killed decoders")
        template, = daemon.children("mrirecon-codec", worker, template=True)
        os.kill(template, signal.SIGKILL)
        for _ in range(2):  # used by the remaining decoders, then by those of a new template
            same(daemon.run(BODY)["state"], "succeeded", "state of a job whose decoders' template was killed")
        wait_until(lambda: "The process that decoders are forked from ended (by signal 9)." in daemon.read_log(),
                   "the log to name the killed template")
        same(daemon.worker(), worker, "worker")
        last = [*ready(), *wait_until(lambda: daemon.children("mrirecon-codec", worker, template=True),
                                      "another template")]
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: all(map(ended, last)), "the decoders to end with their worker")
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the next worker")


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
