#!/usr/bin/python3
"""A device that fails: which jobs are affected, what is reported, and that work resumes by itself when it works again.

The GPU is a fake (tests/faults/fakegpu.c): the same binaries, beside a mrirecon-gpu.so whose leaves are the CPU's and
whose uploads fail on command. tests/gpu/test_daemon.py causes real sticky errors on a real GPU.
"""
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import scans
from harness import BIN, SLOW, Daemon, fault, main, same, skip, test, wait_until
from served import WORKER, Served

FOLDER = tempfile.TemporaryDirectory()
SMALL = scans.radial(seed=41).bytes(FOLDER.name)
LARGE = scans.radial(matrix=(64, 64, 1), spokes=101, samples=128, coils=2, seed=42).bytes(FOLDER.name)
OF_LARGE = 65536  # bytes: a coil of LARGE takes more; the uploads for SMALL and at a worker's start take less


class Gpu:
    """An installation with a fake GPU. A file, in a folder where workers may open files, tells it to fail."""

    def __init__(self, folder, shared, library="fakegpu"):
        self.trigger = f"{shared}/trigger"
        self.binaries = f"{folder}/bin"
        shutil.copytree(BIN, self.binaries)
        self.library = f"{folder}/lib/mrirecon/mrirecon-gpu.so"
        os.makedirs(os.path.dirname(self.library))
        shutil.copy(fault(library), self.library)

    def breaks(self, how):
        """From now on uploads of so many bytes fail; "wrong": downloads return wrong values."""
        with open(self.trigger + ".new", "w") as file:
            file.write(str(how))
        os.rename(self.trigger + ".new", self.trigger)

    def mended(self):
        os.unlink(self.trigger)

    def environment(self, gpus=1):
        """gpus: a bit for each GPU of the machine."""
        return {"MRIRECON_FAKE_GPU": self.trigger, "MRIRECON_FAKE_GPUS": str(gpus)}

    def daemon(self, devices="gpu:0", gpus=1):
        return Daemon(devices=devices, binaries=self.binaries, environment=self.environment(gpus), expect_trouble=True)


@contextlib.contextmanager
def gpu(library="fakegpu"):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        yield Gpu(folder, shared, library)


def logged(daemon, line):
    wait_until(lambda: line in daemon.read_log(), f"the log to say: {line}")


def not_ready(daemon, words):
    def says():
        answer = daemon.get("/readyz")
        text = answer.json().get("checks", {}).get("workers", "") if answer.status == 503 else ""
        return text if all(word in text for word in words) else None
    return wait_until(says, f"/readyz to say {words}")


def succeed(daemon, jobs):
    for identity in jobs:
        job = daemon.finish(identity)
        same(job["state"], "succeeded", f"state of {identity} ({job['error']})")
        daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200)


def succeeds_when_mended(device, daemon, identity, attempts):
    device.mended()
    succeed(daemon, [identity])
    same(daemon.job(identity)["attempts"], attempts, "attempts")


@test("a GPU that fails every job: jobs stay queued, the reason is reported, and all succeed when it works again")
def every_job():
    with gpu() as device, device.daemon() as daemon:
        same(daemon.run(LARGE)["report"]["device"], "gpu 0 (pretended)", "device")
        device.breaks(OF_LARGE)
        jobs = [daemon.submit(LARGE).expect(202).json()["id"] for _ in range(5)]
        text = not_ready(daemon, ["Jobs are kept", "gpu 0 (pretended)", "the pretended GPU is broken"])
        def rests():  # it is retried now and then
            metrics = daemon.metrics()
            return (metrics["mrirecond_workers_resting"], metrics["mrirecond_workers_ready"]) == (1, 0)
        wait_until(rests, f"one worker to rest, and none to be ready ({text})")
        logged(daemon, "device considered faulty, not the jobs: worker 0 (gpu 0 (pretended)) backs off")
        # It is retried, with one job at a time.
        wait_until(lambda: daemon.read_log().count("device considered faulty") >= 3, "two more tries")
        seen = [daemon.job(identity) for identity in jobs]
        assert all(job["state"] in ("queued", "running") for job in seen), [(job["state"], job["error"])
                                                                            for job in seen]
        device.mended()
        succeed(daemon, jobs)
        wait_until(lambda: daemon.get("/readyz").status == 200, "/readyz to be well again")
        same(daemon.metrics()["mrirecond_workers_resting"], 0, "workers that rest")
        logged(daemon, "worker 0 (gpu 0 (pretended)) works again")


@test("a GPU that computes nothing is detected at its worker's start: the only job waits, and succeeds later")
def found_at_start():
    with gpu() as device, device.daemon() as daemon:
        device.breaks(1)
        identity = daemon.submit(LARGE).expect(202).json()["id"]
        not_ready(daemon, ["Jobs are kept", "The test of gpu 0 (pretended) failed", "the pretended GPU is broken"])
        # The device is lost during the job, or before it begins, while it is computed ahead.
        job = daemon.job(identity)
        same((job["state"], job["attempts"] in (0, 1)), ("queued", True), f"state and attempts ({job['attempts']})")
        succeeds_when_mended(device, daemon, identity, attempts=job["attempts"] + 1)


@test("a GPU with wrong results is detected at its worker's start, and gets no job until it is right again")
def wrong_values():
    with gpu() as device, device.daemon() as daemon:
        device.breaks("wrong")
        os.kill(daemon.worker(), signal.SIGKILL)
        not_ready(daemon, ["gpu 0 (pretended) computes wrong results"])
        identity = daemon.submit(SMALL).expect(202).json()["id"]
        succeeds_when_mended(device, daemon, identity, attempts=1)


@test("a job with which the GPU fails while others succeed: tried twice, then failed; the others succeed")
def one_job():
    with gpu() as device, device.daemon() as daemon:
        device.breaks(OF_LARGE)
        succeed(daemon, [daemon.run(SMALL)["id"]])
        bad = daemon.submit(LARGE).expect(202).json()["id"]
        jobs = [daemon.submit(SMALL).expect(202).json()["id"] for _ in range(3)]
        job = daemon.finish(bad)
        same((job["state"], job["attempts"], job["error"]["code"]), ("failed", 2, "device-failed"),
             f"state, attempts and code ({job['error']})")
        succeed(daemon, jobs)
        same(daemon.get("/readyz").status, 200, "/readyz")
        assert "device considered faulty" not in daemon.read_log(), daemon.read_log()


@test("a GPU that fails while a job is computed ahead: the worker reports it, without a job, and ends")
def lost_ahead():
    with gpu() as device:
        with Served(worker=f"{device.binaries}/mrirecon-worker", device="gpu:0", environment=device.environment(),
                    status=1) as served:
            device.breaks(OF_LARGE)
            path = os.path.join(FOLDER.name, "large.h5")
            with open(path, "wb") as file:
                file.write(LARGE)
            served.prepare("next", path)
            lost = served.receive()
            same((lost["type"], lost["id"], lost["fatal"], lost["error"]["code"]),
                 ("failed", "", True, "device-failed"), f"the message {lost}")
            assert "the pretended GPU is broken" in lost["error"]["detail"], lost
            same(served.process.wait(), 1, "exit status")


@test("a worker whose GPU computes wrong results tells its daemon so, and ends by itself, with nothing else to say")
def wrong_alone():
    with gpu() as device:
        device.breaks("wrong")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            done = subprocess.run(["sh", "-c", f'exec "$0" serve --device gpu:0 3<&{theirs.fileno()}',
                                   f"{device.binaries}/mrirecon-worker"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=SLOW, pass_fds=[theirs.fileno()],
                                  env={**os.environ, **device.environment()})
            told = json.loads(ours.recv(1 << 16))
        same((told["type"], told["fatal"], told["error"]["code"]), ("failed", True, "device-failed"), "the message")
        same((done.returncode, done.stderr), (1, f"mrirecon-worker: {told['error']['detail']}\n"), "its end")


def worker_of(daemon, device):
    """The worker process that was started for this device."""
    for worker in daemon.children("mrirecon-worker"):
        with open(f"/proc/{worker}/cmdline", "rb") as file:
            if device.encode() in file.read().split(b"\0"):
                return worker
    raise AssertionError(f"no worker for {device}")


@contextlib.contextmanager
def stopped(process):
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@test("a GPU that fails every job beside a CPU: the CPU computes all jobs, and the service stays ready")
def beside_a_cpu():
    with gpu() as device, device.daemon("gpu:0,cpu") as daemon:
        wait_until(lambda: [w["state"] for w in daemon.get("/readyz?verbose").json()["worker_list"]]
                   == ["idle", "idle"], "both workers")
        device.breaks(OF_LARGE)
        # The CPU's worker is stopped until the GPU is found at fault; otherwise it could get the same job twice.
        with stopped(worker_of(daemon, "cpu")):
            jobs = [daemon.submit(LARGE).expect(202).json()["id"] for _ in range(6)]
            wait_until(lambda: daemon.metrics()["mrirecond_workers_resting"], "the worker that rests")
            same(daemon.get("/readyz").status, 200, "/readyz")
        succeed(daemon, jobs)
        assert all(daemon.job(identity)["report"]["device"].startswith("cpu ")
                   for identity in jobs), "a job ran on the broken device"
        same(daemon.get("/readyz").status, 200, "/readyz")


def states_are(daemon, expected):
    wait_until(lambda: [w["state"] for w in daemon.get("/readyz?verbose").json()["worker_list"]] == expected,
               f"the workers to be {expected}")


@test("a job that a GPU failed is retried on the CPU even if that is busy; the GPU continues with other jobs")
def second_try_elsewhere():
    with gpu() as device, device.daemon("gpu:0,cpu") as daemon:
        states_are(daemon, ["idle", "idle"])
        with stopped(worker_of(daemon, "cpu")):
            with stopped(worker_of(daemon, "gpu:0")):
                first = daemon.submit(SMALL).expect(202).json()["id"]
                states_are(daemon, ["busy", "idle"])
                on_cpu = daemon.submit(SMALL).expect(202).json()["id"]
                states_are(daemon, ["busy", "busy"])
            succeed(daemon, [first])
            device.breaks(OF_LARGE)
            failed = daemon.submit(LARGE).expect(202).json()["id"]
            wait_until(lambda: daemon.job(failed)["attempts"] == 1 and daemon.job(failed)["state"] == "queued",
                       "the job to be queued again")
            states_are(daemon, ["idle", "busy"])
            succeed(daemon, [daemon.submit(SMALL).expect(202).json()["id"]])
            same([daemon.job(failed)[name] for name in ("state", "attempts")], ["queued", 1], "state and attempts")
        succeed(daemon, [on_cpu, failed])
        job = daemon.job(failed)
        same((job["attempts"], job["report"]["device"].split(" ")[0]), (2, "cpu"), "attempts and device")


def workers_are(daemon, expected):
    """Wait until the workers are idle with these wanted and actual devices."""
    def seen():
        return [(w["wanted"], w["device"].split(" (")[0]) for w in daemon.get("/readyz?verbose").json()["worker_list"]
                if w["state"] == "idle"]
    wait_until(lambda: seen() == expected, f"{expected}, not {seen()}")


def memory_is_told(daemon, gpus):
    expected = [f'mrirecond_gpu_memory_total_bytes{{gpu="gpu {i} (pretended)"}}' for i in gpus]
    wait_until(lambda: sorted(name for name in daemon.metrics()
                              if name.startswith("mrirecond_gpu_memory_total_bytes")) == expected, f"{expected}")


@test("auto: each usable GPU has a worker, and jobs run on all; a dead one is restarted, and nothing is added twice")
def every_gpu():
    with gpu() as device, device.daemon("auto", gpus=0b1101) as daemon:
        expected = [("auto", "gpu 0"), ("gpu:2", "gpu 2"), ("gpu:3", "gpu 3")]
        workers_are(daemon, expected)
        used = set()

        def all_used():
            jobs = [daemon.submit(LARGE).expect(202).json()["id"] for _ in range(12)]
            succeed(daemon, jobs)
            used.update(daemon.job(identity)["report"]["device"] for identity in jobs)
            return used == {f"gpu {i} (pretended)" for i in (0, 2, 3)}
        wait_until(all_used, "jobs on all three")
        memory_is_told(daemon, (0, 2, 3))
        old = daemon.children("mrirecon-worker")
        for process in old:
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: len(daemon.children("mrirecon-worker")) == 3
                   and not set(old) & set(daemon.children("mrirecon-worker")), "new workers")
        workers_are(daemon, expected)


@test("auto skips an unusable first GPU, and GPUs that are already named; two workers can share a GPU")
def some_gpus():
    with gpu() as device:
        for devices, gpus, expected in (("auto", 0b100, [("auto", "gpu 2")]),
                                        ("gpu:1,auto", 0b111,
                                         [("gpu:1", "gpu 1"), ("auto", "gpu 0"), ("gpu:2", "gpu 2")]),
                                        ("gpu:0,gpu:0", 0b11, [("gpu:0", "gpu 0"), ("gpu:0", "gpu 0")])):
            with device.daemon(devices, gpus) as daemon:
                workers_are(daemon, expected)
                memory_is_told(daemon, sorted({int(device[4:]) for _, device in expected}))


@test("a mrirecon-gpu.so of another build, or damaged, is an error; the CPU can be requested")
def other_build():
    for library, environment, reason in (("stalegpu", {}, "undefined symbol: function_of_another_build"),
                                         ("fakegpu", {"MRIRECON_FAKE_ABI": "1"}, "its interface differs"),
                                         ("fakegpu", {}, "damaged, or not readable")):
        with gpu(library) as device:
            if "damaged" in reason:
                os.truncate(device.library, 100)
            scan = f"{device.binaries}/scan.h5"
            with open(scan, "wb") as file:
                file.write(SMALL)
            command = [f"{device.binaries}/mrirecon-worker", "run", "--kind", "recon", "--in", scan, "--out",
                       scan + ".npy", "--device"]
            for asked, status in (("auto", 1), ("gpu:0", 1), ("cpu", 0)):
                done = subprocess.run([*command, asked], env={**os.environ, **environment}, capture_output=True,
                                      text=True)
                said = all(words in done.stderr for words in (reason, "Install both from the same build"))
                same((done.returncode, said), (status, status == 1), f"{library} on {asked}: {done.stderr}")


@test("without NVIDIA's driver the reason names it, not a version of CUDA")
def no_driver():
    if not os.path.exists(os.path.join(BIN, "../lib/mrirecon/mrirecon-gpu.so")):
        skip("these programs were built without the GPU code")
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        skip("this machine has NVIDIA's driver")
    scan = f"{FOLDER.name}/small.h5"
    with open(scan, "wb") as file:
        file.write(SMALL)
    done = subprocess.run([WORKER, "run", "--in", scan, "--out", scan + ".npy", "--device", "gpu:0"],
                          capture_output=True, text=True)
    same((done.returncode, "no NVIDIA driver (libcuda.so.1) was found" in done.stderr), (1, True), done.stderr)


@test("a worker's threads are told not to spin for long, unless the environment sets how they wait")
def spinning():
    for environment, expected in (({}, ("10000", None)), ({"GOMP_SPINCOUNT": "7"}, ("7", None)),
                                  ({"OMP_WAIT_POLICY": "passive"}, (None, "passive"))):
        # tests/run sets how they wait, too.
        with Daemon(devices="cpu", environment=environment, command=() if "OMP_WAIT_POLICY" in environment
                    else ("env", "-u", "OMP_WAIT_POLICY")) as daemon:
            with open(f"/proc/{daemon.worker()}/environ") as file:
                found = dict(pair.split("=", 1) for pair in file.read().split("\0") if "=" in pair)
        same((found.get("GOMP_SPINCOUNT"), found.get("OMP_WAIT_POLICY")), expected, f"what {environment} becomes")


if __name__ == "__main__":
    main()
