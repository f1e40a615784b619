#!/usr/bin/python3
"""What goes wrong around a job: killed processes, a full disk, slow and vanishing clients, large uploads, a stop under load."""
import contextlib
import ctypes
import glob
import hashlib
import http.client
import os
import random
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

import scans
from harness import BIN, Daemon, main, same, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)
SLOW = scans.slow().bytes(FOLDER.name)


def submit_slow(daemon, iterations=1000):
    return daemon.submit(SLOW, scans.SLOW_QUERY.replace("1000", str(iterations))).expect(202).json()["id"]


def image(daemon, identity):
    return daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body


def running(daemon, identity):
    wait_until(lambda: daemon.job(identity)["state"] == "running" and daemon.job(identity)["progress"] > 0.02, "the job to run")


def caught(daemon):
    """A job at work whose worker stands still, by SIGSTOP: its id, and the worker. It takes little once the worker goes on."""
    for number in range(20):
        identity = submit_slow(daemon, 60 + number)  # another each time: the worker keeps the weights of the last one
        worker = daemon.worker()
        wait_until(lambda: (job := daemon.job(identity))["state"] not in ("queued", "running") or job["progress"] > 0.02, "the job to run")
        os.kill(worker, signal.SIGSTOP)
        job = daemon.job(identity)
        if job["state"] == "running" and job["progress"] < 0.6:  # else its end may be on its way
            return identity, worker
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        daemon.finish(identity)
    raise AssertionError("no job was caught at work")


def state_of(process):
    """S: it waits, R: it runs, Z: it has ended; None: it is gone."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def ended(process):
    """Whether a process is gone, but for who has yet to collect it."""
    return state_of(process) in (None, "Z")


def leftovers(daemon, before):
    return {name for name in set(daemon.files()) - set(before) if not name.startswith("jobs.db")}


@test("kill -9 of the worker during a job: the job is run once more and succeeds")
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
            worker = wait_until(lambda: daemon.job(identity)["state"] == "running" and daemon.job(identity)["progress"] > 0.01
                                and daemon.children("mrirecon-worker"), "a worker at work")[0]
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: worker not in daemon.children("mrirecon-worker"), "the worker's end")
            wait_until(lambda: daemon.job(identity)["state"] != "running" or daemon.job(identity)["progress"] < 0.01
                       or daemon.children("mrirecon-worker"), "the daemon to notice")
        job = daemon.finish(identity)
        same(job["state"], "failed", "state")
        same(job["error"]["code"], "worker-died", "code")
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")


def run_again(daemon, worker, identity, says):
    """The worker is replaced with the reason, and the job succeeds at the second attempt."""
    job = daemon.finish(identity)
    same((job["state"], job["attempts"]), ("succeeded", 2), f"state and attempts ({job['error']})")
    assert says in daemon.read_log(), daemon.read_log()
    assert worker not in daemon.children("mrirecon-worker"), "the worker is still there"


@test("a worker that hangs altogether gives no sign of life: it is killed, its job run once more")
def worker_stopped():
    config = f"{FOLDER.name}/worker.conf"

    def timeout(seconds):
        with open(config, "w") as file:
            file.write(f"worker-timeout = {seconds}\n")
    timeout(600)
    with Daemon(expect_trouble=True, config=config, worker_timeout=None) as daemon:
        identity, worker = caught(daemon)
        timeout(3)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "gave no sign of life for 3 s" in daemon.read_log(), "the worker to be missed")
        timeout(600)  # the next one may stand still, and nobody meant it
        daemon.process.send_signal(signal.SIGHUP)
        run_again(daemon, worker, identity, "gave no sign of life for 3 s")


@test("a worker that answers while its job stands still: it is killed for want of progress, its job run once more")
def job_stopped():
    with Daemon(expect_trouble=True, progress_timeout=4) as daemon:
        worker = daemon.worker()
        wait_until(lambda: len(daemon.children("mrirecon-codec", worker)) == 2, "two decoders to stand ready")
        for decoder in daemon.children("mrirecon-codec", worker):  # whichever gets the scan will not read it
            os.kill(decoder, signal.SIGSTOP)
        identity = daemon.submit(BODY).expect(202).json()["id"]
        run_again(daemon, worker, identity, "made no progress for 4 s")


@test("kill -9 of the worker between jobs: another one is there")
def idle_worker_killed():
    with Daemon(expect_trouble=True) as daemon:
        daemon.run(BODY)
        old = daemon.worker()
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: old not in daemon.children("mrirecon-worker"), "the worker's end")
        same(daemon.run(BODY)["state"], "succeeded", "state")
        assert daemon.worker() != old


def behind_and_read(daemon, worker):
    """Submit a scan behind a job that runs; its id, once a decoder has read it: each reads one."""
    def ready():
        found = daemon.children("mrirecon-codec", worker)
        return len(found) == 1 and state_of(found[0]) == "S" and found[0]
    decoder = wait_until(ready, "the decoder that stands ready beside a job")
    identity = daemon.submit(BODY).expect(202).json()["id"]
    wait_until(lambda: decoder not in daemon.children("mrirecon-codec", worker), "a decoder to read the scan behind")
    return identity


@test("the next scan is read while a job runs and stays queued; a worker's death counts for the job that it computed alone")
def read_ahead():
    with Daemon(expect_trouble=True) as daemon:
        slow = submit_slow(daemon)
        running(daemon, slow)
        worker = daemon.worker()
        behind = behind_and_read(daemon, worker)
        job = daemon.job(behind)
        same((job["state"], job["attempts"], job["progress"]), ("queued", 0, 0), "state, attempts and progress of the job whose scan is read")
        os.kill(worker, signal.SIGKILL)
        job = daemon.finish(behind)
        same((job["state"], job["attempts"]), ("succeeded", 1), f"state and attempts of the job behind it ({job['error']})")
        wait_until(lambda: (job := daemon.job(slow))["attempts"] == 2 and job["progress"] > 0.01, "the job that ran to run once more")
        daemon.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
        same(daemon.finish(slow)["state"], "canceled", "state of the job that ran")
        same(daemon.metrics()["mrirecond_jobs_retried_total"], 1, "retries")
        # Again without a death: its decoding passed before it began, but for the end, perhaps.
        slow = submit_slow(daemon)
        running(daemon, slow)
        behind = behind_and_read(daemon, daemon.worker())
        daemon.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
        report = daemon.finish(behind)["report"]
        assert 0 < report["decode_ahead_seconds"] <= report["stages"]["decode"], report
        # Canceled while it is read ahead: at once.
        slow = submit_slow(daemon)
        running(daemon, slow)
        behind = daemon.submit(BODY).expect(202).json()["id"]
        daemon.request("POST", f"/v1/jobs/{behind}/cancel")
        same(daemon.job(behind)["state"], "canceled", "state of the job behind")
        daemon.request("POST", f"/v1/jobs/{slow}/cancel")
        same(daemon.finish(slow)["state"], "canceled", "state of the job that ran")
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")


@test("a device that cannot be used is told in /readyz and in the log, and other workers run")
def device_missing():
    with Daemon(expect_trouble=True, devices="gpu:99,cpu") as daemon:
        note = wait_until(lambda: daemon.get("/readyz?verbose").json()["worker_list"][0]["note"], "the missing device to be told")
        assert "GPU 99 cannot be used: " in note, note
        wait_until(lambda: f"worker 0 {note}" in daemon.read_log(), "the log to tell")
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the other worker")


@test("kill -9 of the decoder at work: its job is read again; killed twice, it fails and the scan is not blamed; the worker lives")
def decoder_killed():
    # A file large enough that its decoder can be caught.
    large = scans.radial(matrix=(64, 64, 1), spokes=2000, samples=512, coils=8, weights=True).bytes(FOLDER.name)

    def at_work(daemon, worker, identity):
        """The decoder that has the job's scan mapped."""
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
        for times in (1, 99):  # 99: whichever reads it
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
                raise AssertionError("the decoder was never caught")
            if times > 1:
                same((job["error"]["code"], job["attempts"]), ("out-of-memory", 1), "code and attempts")
        assert "killed from outside while reading a scan" in daemon.read_log(), daemon.read_log()
        same(daemon.run(BODY)["state"], "succeeded", "state of the next job")
        same(daemon.worker(), worker, "worker")


@test("decoders that stand ready, and their template: killed ones are replaced and logged, no zombie and no descriptor stays, none outlives its worker")
def decoders_ready():
    with Daemon(expect_trouble=True) as daemon:
        worker = daemon.worker()

        def children():
            found = []
            for path in glob.glob(f"/proc/{worker}/task/*/children"):
                with contextlib.suppress(OSError):
                    with open(path) as file:
                        found += map(int, file.read().split())
            return sorted(set(found) - set(daemon.children("mrirecon-codec", worker, template=True)))

        def ready():
            """Two decoders that stand ready, and no zombie."""
            def two():
                found = children()
                return [state_of(child) for child in found] == ["S", "S"] and found
            return wait_until(two, "two decoders that stand ready, and no zombie")

        def descriptors():
            """How many the worker has open between jobs: of its sockets one to the daemon, one to each decoder and one to their
            template, memory for one scan, and none of a job's files."""
            open_now = []

            def at_rest():
                open_now.clear()
                for path in glob.glob(f"/proc/{worker}/fd/*"):
                    with contextlib.suppress(OSError):
                        open_now.append(os.readlink(path).removeprefix(daemon.state + "/").partition(":")[0])
                return (open_now.count("socket"), open_now.count("/memfd")) == (4, 1) and \
                    not [name for name in open_now if name.startswith(("spool/", "results/"))]
            try:
                wait_until(at_rest, "the worker to have open what it has between jobs")
            except AssertionError as error:
                raise AssertionError(f"{error}; open are {sorted(open_now)}") from None
            return len(open_now)
        daemon.run(BODY)
        first = ready()
        before = descriptors()
        for _ in range(5):
            daemon.run(BODY)
        assert not set(first) & set(ready()), "a decoder served more than one upload"
        same(descriptors(), before, "descriptors of the worker after five jobs more")
        for decoder in ready():
            os.kill(decoder, signal.SIGKILL)
        same(daemon.run(BODY)["state"], "succeeded", "state of a job whose decoders were killed before it came")
        same(daemon.worker(), worker, "worker")
        wait_until(lambda: "ended before a scan came" in daemon.read_log(), "the log to tell")
        template, = daemon.children("mrirecon-codec", worker, template=True)
        os.kill(template, signal.SIGKILL)
        for _ in range(2):  # by what stands ready, and by what is forked from another template
            same(daemon.run(BODY)["state"], "succeeded", "state of a job whose decoders' template was killed")
        wait_until(lambda: "The process that decoders are forked from ended (by signal 9)." in daemon.read_log(), "the log to tell")
        same(daemon.worker(), worker, "worker")
        last = [*ready(), *wait_until(lambda: daemon.children("mrirecon-codec", worker, template=True), "another template")]
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: all(map(ended, last)), "the decoders to end with their worker")
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the next worker")


@test("kill -9 of the daemon with jobs queued and running: the next start finishes each of them")
def daemon_killed():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        _, worker = caught(daemon)
        before = [job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]]  # it, and what was over too soon
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
    """These processes, by SIGSTOP; whatever outlives the test is killed. Orphans become children of this process: one that falls
    to init is woken and hung up on, which would do what is to be tested."""
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


@test("kill -9 of the daemon while its worker and a decoder are stopped, as if they hung: neither outlives it")
def daemon_killed_over_stopped():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        identity, worker = caught(daemon)
        decoders = wait_until(lambda: daemon.children("mrirecon-codec", worker), "a decoder that stands ready")
        with stopped([worker, *decoders]):
            daemon.kill()
            wait_until(lambda: all(map(ended, [worker, *decoders])), "worker and decoders to end with the daemon")
        daemon.restart()
        same(daemon.finish(identity)["state"], "succeeded", "state of the job that ran")


@test("kill -9 of the daemon while a conversion is stopped: that does not outlive it")
def daemon_killed_over_conversion():
    large = scans.radial(matrix=(512, 512, 1), spokes=8, samples=64, coils=8, weights=True).bytes(FOLDER.name)

    def converting():
        """A codec that has opened the image, and so is past its beginning; it stands still."""
        for codec in daemon.children("mrirecon-codec"):
            with contextlib.suppress(OSError):
                os.kill(codec, signal.SIGSTOP)
                wait_until(lambda: state_of(codec) in ("T", "Z", None), "a conversion to stand still")  # noqa: B023
                if any(os.readlink(path).endswith("image.h5") for path in glob.glob(f"/proc/{codec}/fd/*")):
                    return codec
                os.kill(codec, signal.SIGCONT)
        return None
    daemon = Daemon(expect_trouble=True)
    with daemon:
        for _ in range(20):  # it may be over before it is seen
            path = f"/v1/jobs/{daemon.run(large, 'kind=recon&coils=none')['id']}/results/image?format=nii.gz"
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
            connection.request("GET", path)
            while not (codec := converting()) and not select.select([connection.sock], [], [], 0)[0]:
                pass
            if codec:
                break
            connection.close()
        assert codec, "no conversion was caught"
        with stopped([codec]):
            daemon.kill()
            wait_until(lambda: ended(codec), "the conversion to end with the daemon")
        connection.close()
        daemon.restart()
        daemon.get(path).expect(200)


@test("kill -9 of daemon, worker and codec at random under load: each accepted job ends once, with its image or a reason")
def random_kills():
    chance = random.Random(20)  # the victims and the pauses; what they hit differs from run to run
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
                for process in [worker] if victim == "mrirecon-worker" else daemon.children("mrirecon-codec", worker, victim == "template"):
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
        wait_until(lambda: len({name.split("/")[1] for name in daemon.files() if name.startswith("results/")}) == succeeded + 1, "folders of images alone")


@test("kill -9 of the daemon during an upload: nothing of it is left, and no job")
def daemon_killed_uploading():
    daemon = Daemon(expect_trouble=True)
    with daemon:
        before = daemon.files()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as connection:
            connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + bytes(500000))
            wait_until(lambda: leftovers(daemon, before), "the upload to reach the disk")
            daemon.kill()
        daemon.restart()
        same(leftovers(daemon, before), set(), "files left behind")
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")


@test("results outlive a restart: the same bytes, the same ETag")
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


@test("a client that vanishes during its upload leaves no file and no job")
def vanished():
    with Daemon() as daemon:
        before = daemon.files()
        for size in (0, 1, 300000):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
            connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + bytes(size))
            if size:
                wait_until(lambda: leftovers(daemon, before), "the upload to reach the disk")
            connection.close()
            wait_until(lambda: not leftovers(daemon, before), "the rest of the upload to be removed")
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")
        same(daemon.run(BODY)["state"], "succeeded", "state of a good scan right after")


@test("requests that end within their headers leave no memory behind")
def broken_headers():
    with Daemon(idle_timeout=1) as daemon:
        query = b"a=b&" * 5000  # more parameters than the library has room for: it never hands such a request over
        lines = (b"POST /v1/jobs?" + query + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /v1/jobs?" + query + b" HTTP/1.1\r\nHost: localhost\r\n")

        def resident():
            with open(f"/proc/{daemon.process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def send():
            connections = []
            for i in range(400):
                connections.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=120))
                with contextlib.suppress(ConnectionError):
                    connections[-1].sendall(lines[i % 2])
            for connection in connections:
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65536):
                        pass
                connection.close()
            return resident()
        # 400 requests of 20 kB kept would be 8 MB. Where sanitizers keep what is freed, LeakSanitizer tells instead.
        first, second = send(), send()
        assert second - first < 4 << 20 or "san" in os.environ.get("MRIRECON_BIN", ""), f"{second - first} bytes more"
        same(daemon.run(BODY)["state"], "succeeded", "state of a good scan right after")


@test("slow clients do not delay others")
def slow_clients():
    with Daemon() as daemon:
        head = f"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
        slow = [socket.create_connection(("127.0.0.1", daemon.port), timeout=120) for _ in range(20)]
        for i, connection in enumerate(slow):
            connection.sendall(head + BODY[:1000 * i])
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan sent meanwhile")
        last = slow[5]
        for at in range(5000, len(BODY), max(1, len(BODY) // 20)):
            last.sendall(BODY[at:at + max(1, len(BODY) // 20)])
            time.sleep(0.01)
        assert last.recv(100).startswith(b"HTTP/1.1 202 "), "a slow upload that was completed is not accepted"
        for connection in slow:
            connection.close()


@test("a client that stops reading a result does not delay others")
def slow_reader():
    with Daemon() as daemon:
        large = scans.radial(matrix=(512, 512, 1), spokes=8, samples=64, coils=8, weights=True).bytes(FOLDER.name)
        path = f"/v1/jobs/{daemon.run(large, 'kind=recon&coils=none')['id']}/results/image?format=npy"
        readers = []
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connection.recv(100)
            readers.append(connection)
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan sent meanwhile")
        for connection in readers:
            connection.close()


@test("300 MB of garbage: the daemon's memory stays under 64 MB, and nothing of it is left when the job is deleted")
def large_upload():
    with Daemon() as daemon:
        if "san" in os.environ.get("MRIRECON_BIN", ""):
            limit = 512 << 20  # shadow memory and quarantine are the sanitizer's
        else:
            limit = 64 << 20
        before = daemon.files()

        def pieces():
            piece = os.urandom(1 << 20)
            for _ in range(300):
                yield piece
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        connection.request("POST", "/v1/jobs?kind=recon", body=pieces(), headers={"Content-Length": str(300 << 20)})
        response = connection.getresponse()
        body = response.read()
        if response.status == 202:
            import json
            job = daemon.finish(json.loads(body)["id"])
            same(job["error"]["code"], "unknown-format", "code")
            daemon.request("DELETE", f"/v1/jobs/{job['id']}")
        else:
            same(response.status, 415, "status")
        assert daemon.peak_memory() < limit, f"{daemon.peak_memory() / 1e6:.0f} MB"
        wait_until(lambda: not leftovers(daemon, before), "all of it to go")


@contextlib.contextmanager
def small_disk(megabytes):
    """A daemon whose state folder is a file system of this size."""
    state = tempfile.mkdtemp(prefix="mrirecond-small-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", state], capture_output=True, text=True)
    if mounted.returncode:
        os.rmdir(state)
        skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        with Daemon(state=state, expect_trouble=True, spool_reserve=0, work_reserve=0) as daemon:
            yield daemon
    finally:
        subprocess.run(["umount", state], check=True)
        os.rmdir(state)


@test("a full disk: 507 spool-full, ready again when there is space")
def full_disk():
    with small_disk(6) as daemon:
        problem = daemon.submit(bytes(20 << 20)).problem(507, "spool-full")
        assert "required_bytes" in problem or "free" in problem["detail"] or "room" in problem["detail"], problem
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        try:
            connection.request("POST", "/v1/jobs?kind=recon", body=(bytes(65536) for _ in range(320)), headers={"Transfer-Encoding": "chunked"})
            same(connection.getresponse().status, 507, "status of a chunked upload that does not fit")
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            connection.close()
        wait_until(lambda: daemon.get("/readyz").status == 200, "readiness")
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan that fits")


@test("a result for which the disk has no room at the moment: its job waits, others go on, and it succeeds when there is room")
def full_disk_result():
    with small_disk(48) as daemon:
        with open(f"{daemon.state}/filler", "wb") as file:
            file.write(bytes(30 << 20))
        # 16 coils of 512 x 512: 34 MB of image from a scan of 0.1 MB.
        large = scans.radial(matrix=(512, 512, 1), spokes=4, samples=64, coils=16, weights=True).bytes(FOLDER.name)
        job = daemon.submit(large, "kind=recon&coils=none&output=complex").expect(202).json()["id"]
        wait_until(lambda: daemon.metrics()['mrirecond_jobs_put_back_total{reason="spool-full"}'] >= 1, "the job to be put back")
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan that fits")
        os.unlink(file.name)
        # By the log: a disk as small as this has soon no room for the ended job.
        wait_until(lambda: f"job={job} succeeded" in daemon.read_log(), "the job to succeed")
        same(set(re.findall(f"job={job} begins on .*, attempt ([0-9]+)", daemon.read_log())), {"1"}, "attempts")


@test("SIGTERM: not ready at once, no new job taken, what runs is finished or kept, exit 0")
def drain():
    daemon = Daemon()
    with daemon:
        _, worker = caught(daemon)
        jobs = [job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]]  # it, and what was over too soon
        jobs.append(daemon.submit(BODY).expect(202).json()["id"])
        daemon.process.send_signal(signal.SIGTERM)

        def refused():
            response = daemon.submit(BODY)
            if response.status != 202:
                return response
            jobs.append(response.json()["id"])  # it came before the signal; then it must not be lost
            return None
        response = wait_until(refused, "no job to be taken any longer")
        response.problem(503, "draining")
        assert "retry-after" in response.headers, response.headers
        same((daemon.get("/readyz").status, daemon.metrics()["mrirecond_ready"]), (503, 0), "/readyz, and the metric")
        os.kill(worker, signal.SIGCONT)
        same(daemon.process.wait(120), 0, "exit status")
        daemon.restart()
        for identity in jobs:
            same(daemon.finish(identity)["state"], "succeeded", f"state of {identity}")


@test("a second daemon on the same state directory, and one on a taken port, refuse to start and say why")
def twice():
    with Daemon() as daemon:
        binary = os.path.join(os.path.dirname(os.readlink(f"/proc/{daemon.process.pid}/exe")), "mrirecond")
        for words, says in ((["--listen", "127.0.0.1:0", "--state-dir", daemon.state], daemon.state),
                            (["--listen", f"127.0.0.1:{daemon.port}", "--state-dir", FOLDER.name + "/other"], str(daemon.port))):
            done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=120)
            assert done.returncode not in (0, None) and done.returncode > 0, done
            assert says in done.stderr, f"{says!r} is not in {done.stderr!r}"
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the first")


@test("a state folder that cannot be used, and a job store that is none: refused with what to do")
def bad_state():
    os.mkdir(FOLDER.name + "/broken")
    for name in ("file", "broken/jobs.db"):
        with open(f"{FOLDER.name}/{name}", "w") as file:
            file.write("this is neither a folder nor a database " * 200)
    for name, says in (("file", "Use another --state-dir"), ("none/none", "Create it for the user that runs mrirecond, or use another --state-dir"),
                       ("broken", "Restore it from a backup")):
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "127.0.0.1:0", "--state-dir", f"{FOLDER.name}/{name}"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode > 0 and says in done.stderr, done


@test("an address that is not loopback is refused")
def not_loopback():
    done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "0.0.0.0:0", "--state-dir", FOLDER.name + "/public"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode > 0 and "0.0.0.0" in done.stderr, done


if __name__ == "__main__":
    main()
