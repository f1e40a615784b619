#!/usr/bin/python3
"""Killed and hanging workers and decoders."""
import concurrent.futures
import contextlib
import glob
import os
import signal

import scans
from harness import Daemon, children_of, main, same, test, wait_until
from processes import BODY, FOLDER, caught, ended, state_of, submit_slow


def running(daemon, identity):
    wait_until(lambda: daemon.job(identity)["state"] == "running" and daemon.job(identity)["progress"] > 0.02,
               "the job to run")


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

        def computes(attempt):
            job = daemon.job(identity)
            return (job["state"] == "running" and job["attempts"] == attempt and job["progress"] > 0.01
                    and daemon.children("mrirecon-worker"))
        for attempt in (1, 2):
            worker = wait_until(lambda: computes(attempt), "a worker that computes")[0]
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: worker not in daemon.children("mrirecon-worker"), "the worker's end")
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

    def at_work(daemon, worker):
        """The decoder that has mapped a scan, which may still arrive."""
        for decoder in daemon.children("mrirecon-codec", worker):
            try:
                with open(f"/proc/{decoder}/maps") as file:
                    if f"{daemon.state}/spool/" in file.read():
                        return decoder
            except OSError:
                pass
        return None

    with Daemon(expect_trouble=True) as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
        worker = daemon.worker()
        for times in (1, 99):  # 99: every decoder of the job
            for _ in range(200):
                answer, killed = pool.submit(daemon.run, large), set()
                while not answer.done() and len(killed) < times:
                    decoder = at_work(daemon, worker)
                    if decoder and decoder not in killed:
                        try:
                            os.kill(decoder, signal.SIGKILL)
                            killed.add(decoder)
                        except ProcessLookupError:
                            pass
                job = answer.result()
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
        ready()  # a decoder that the template has just forked still bears its name
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


if __name__ == "__main__":
    main()
