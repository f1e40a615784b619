#!/usr/bin/python3
"""The daemon on a GPU, end to end, from the bundle: real sockets, real binaries, and a device that fails.

MRIRECON_BIN: the folder of the binaries (make check-gpu: build/bundle/bin). MRIRECON_POISON_SO: the stand-in for
mrirecon-gpu.so whose device fails when told to (tests/gpu/poison.cu; make check-gpu: build/tests/poison.so).

Tolerances. Images of the CPU and the GPU both err by at most the tolerance that is asked for, so they differ by at most
twice that. Weights by dcf=pipe come from convolutions whose tolerance is 1e-2 (gridding/traj/dcf_pipe.c), whatever is
asked for.
"""
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import numpy as np  # noqa: E402

import bodies  # noqa: E402
import mrd  # noqa: E402
import scans  # noqa: E402
from harness import BIN, ROOT, Daemon, main, real_scan, same, skip, test, wait_until  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
POISON = os.path.abspath(os.environ.get("MRIRECON_POISON_SO", os.path.join(ROOT, "build", "tests", "poison.so")))
PIPE = "kind=recon&dcf=pipe&dcf_iterations=1000&tolerance=1e-5"


def kooshball(matrix=32, spokes=600, samples=64, coils=3, seed=5):
    """Random directions in 3-D, random data."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(spokes, 1, 3))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    radius = ((np.arange(samples) - samples // 2) / samples)[None, :, None]
    weight = np.broadcast_to(radius ** 2 + 1e-4, (spokes, samples, 1))
    data = rng.normal(size=(spokes, coils, samples, 2)).view(complex)[..., 0]
    return scans.Scan(np.concatenate([direction * radius, weight], -1), data, (matrix,) * 3)


PLANE = scans.radial(matrix=(128, 96, 1), spokes=101, samples=256, coils=9, seed=3).bytes(FOLDER.name)
VOLUME = kooshball().bytes(FOLDER.name)
LONG = scans.radial(matrix=(256, 256, 1), spokes=2001, samples=512, coils=1, weights=False, seed=4).bytes(FOLDER.name)


def npy(daemon, body, query, **headers):
    """Submit and wait; returns the image and the job's document."""
    answer = daemon.submit(body, query, Prefer="wait=100", Accept="application/x-npy",
                           **headers).expect(200, "application/x-npy")
    return np.load(io.BytesIO(answer.body)), daemon.job(answer.headers["content-location"].split("/")[3])


def on_gpu(job):
    assert job["report"]["device"].startswith("gpu 0 ("), f"ran on {job['report']['device']}"


@test("the GPU is ready and reports its name")
def ready(daemon):
    workers = daemon.get("/readyz?verbose").expect(200).json()["worker_list"]
    same([w["state"] for w in workers], ["idle"], "states")
    assert workers[0]["device"].startswith("gpu 0 ("), workers


@test("images of the GPU equal the CPU's, in 2-D and 3-D, for all weights and coil combinations")
def images(daemon):
    with Daemon(devices="cpu") as cpu:
        for name, body in (("plane", PLANE), ("volume", VOLUME)):
            for query, tolerance in (("", 1e-3), ("&tolerance=1e-5", 1e-5), ("&dcf=none&tolerance=1e-4", 1e-4),
                                     ("&dcf=pipe&tolerance=1e-4", 1e-2),
                                     ("&coils=none&output=complex&tolerance=1e-4", 1e-4)):
                seen, job = npy(daemon, body, "kind=recon" + query)
                expected, _ = npy(cpu, body, "kind=recon" + query)
                on_gpu(job)
                same((seen.shape, seen.dtype), (expected.shape, expected.dtype), "shape and type")
                error = scans.nrmse(seen, expected)
                assert error < 2 * tolerance, \
                    f"{name}{query}: the GPU's image differs from the CPU's by {error:.2g}, allowed {2 * tolerance:g}"


@test("real scans: the GPU's image equals the double sum")
def real(daemon):
    for name, shape in (("phantom_spiral_8ch", (1, 360, 260)), ("cardiac_radial_12ch", (1, 384, 384)),
                        ("lung_kooshball_1ch", (64, 64, 64))):
        with open(real_scan(f"{name}_weights.h5"), "rb") as file:
            seen, job = npy(daemon, file.read(), "kind=recon&dcf=given&matrix=encoded")
        on_gpu(job)
        error = scans.nrmse(seen, np.fromfile(real_scan(f"{name}.ref.f32"), "<f4").reshape(1, 1, *shape))
        assert error < 1e-3, f"{name} is off by {error:.2g}"


@test("the same bits for the same scan, 20 times, from a new plan and from a kept one")
def bits(daemon):
    first, job = npy(daemon, VOLUME, "kind=recon")
    for number in range(20):
        again, job = npy(daemon, PLANE if number % 5 == 4 else VOLUME, "kind=recon")
        if number % 5 != 4:
            same(job["report"]["plans"], 1 if number and number % 5 == 0 else 0, "plans made")
            assert (again.view(np.uint32) == first.view(np.uint32)).all(), f"run {number} gives different bits"


@test("curl and urllib: submit, query, fetch")
def clients(daemon):
    path = f"{FOLDER.name}/plane.h5"
    with open(path, "wb") as file:
        file.write(PLANE)
    request = urllib.request.Request(f"{daemon.url}/v1/jobs?kind=recon", PLANE, {"Content-Type": "application/x-hdf5"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        same(answer.status, 202, "status")
        job = daemon.finish(json.load(answer)["id"])
    same(job["state"], "succeeded", "state")
    on_gpu(job)
    with urllib.request.urlopen(f"{daemon.url}/v1/jobs/{job['id']}/results/image?format=npy", timeout=60) as answer:
        expected = np.load(io.BytesIO(answer.read()))
    if not shutil.which("curl"):
        skip("there is no curl here; urllib did it")
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "--data-binary", f"@{path}", "-H", "Prefer: wait=60",
                           "-H", "Accept: application/x-npy",
                           f"{daemon.url}/v1/jobs?kind=recon"], capture_output=True, timeout=120)
    assert done.returncode == 0, done
    assert (np.load(io.BytesIO(done.stdout)) == expected).all(), "curl's image differs"


@test("eight concurrent clients: every image is the right one")
def many(daemon):
    bodies = [(PLANE, npy(daemon, PLANE, "kind=recon")[0]), (VOLUME, npy(daemon, VOLUME, "kind=recon")[0])]
    jobs = [(daemon.submit(bodies[i % 2][0]).expect(202).json()["id"], bodies[i % 2][1]) for i in range(24)]
    for identity, expected in jobs:
        job = daemon.finish(identity)
        same(job["state"], "succeeded", f"state ({job['error']})")
        seen = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body))
        assert (seen == expected).all(), f"{identity} has a different image"


def simulated(name, *options):
    """What `mrirecon simulate` makes with these options."""
    path = f"{FOLDER.name}/{name}"
    subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", *options, "--out", path], check=True,
                   capture_output=True, timeout=120)
    with open(path, "rb") as file:
        return file.read()


def array(daemon, job, name):
    same((job["state"], job["error"]), ("succeeded", None), "job")
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/{name}").expect(200).body))


@test("kinds on particles: the GPU's sums equal the CPU's")
def particles(daemon):
    cloud = bodies.cloud(3000)
    free, box = bodies.npz(*cloud), bodies.npz(*cloud, 2.0)
    atoms = simulated("chain.pqr", "--particles", "chain", "--points", "2000")
    cases = [(atoms, "kind=cutcp&spacing=0.8&cutoff=9", "potential?format=npy"),
             (atoms, "kind=cutcp&spacing=0.8&cutoff=9&form=taylor2&exclusion=0", "potential?format=npy"),
             (atoms, "kind=blob&spacing=0.7", "volume?format=npy"),
             (atoms, "kind=blob&spacing=0.7&truncation=sphere", "volume?format=npy"),
             (free, "kind=nbody&softening=0.02&softening_form=plummer&results=particles", "particles.npy"),
             (box, "kind=nbody&softening=0.02&mesh=32&results=particles", "particles.npy"),
             (box, "kind=nbody&softening=0.1&mesh=32&steps=5&dt=1e-3&results=particles", "particles.npy")]
    with Daemon(devices="cpu") as cpu:
        for body, query, name in cases:
            job = daemon.run(body, query)
            seen, expected = array(daemon, job, name), array(cpu, cpu.run(body, query), name)
            on_gpu(job)
            same((seen.shape, seen.dtype), (expected.shape, expected.dtype), f"{query}: shape and type")
            # Float32 sums whose terms cancel; blobs by tensor cores, and forces' mesh, to the kinds' own accuracy.
            columns = (slice(7, 10), slice(10, 11)) if "nbody" in query else (slice(None),)
            for column in columns:
                error = scans.nrmse(seen[..., column], expected[..., column])
                assert error < (1e-3 if "blob" in query else 1e-4), f"{query}: the GPU differs by {error:.2g}"


@test("points beyond bin_depth are summed by the CPU, in another order: nearly the same potential and density")
def overflow(daemon):
    atoms = simulated("crowd.pqr", "--particles", "chain", "--points", "2000")
    for query, name in (("kind=cutcp&spacing=0.8&cutoff=9", "potential?format=npy"),
                        ("kind=blob&spacing=0.7&truncation=sphere", "volume?format=npy")):
        plain = array(daemon, daemon.run(atoms, query), name)
        shared = array(daemon, daemon.run(atoms, f"{query}&bin_depth=2&overflow=cpu"), name)
        assert (plain != shared).any(), f"{query}: overflow=cpu has no effect"
        error = scans.nrmse(shared, plain)
        assert error < 1e-5, f"{query}: with overflow=cpu the result differs by {error:.2g}"


@test("kill -9 of the worker during a motion: it resumes on the GPU from its checkpoint, with the same bits")
def motion_killed():
    body = bodies.npz(*bodies.cloud(500), 2.0)
    query = "kind=nbody&steps=2000&dt=1e-5&softening=0.1&mesh=16&record=500&results=particles,series&checkpoint=100"
    with Daemon(devices="gpu:0", expect_trouble=True) as daemon:
        undisturbed = daemon.run(body, query)
        job = daemon.submit(body, query).expect(202).json()
        wait_until(lambda: bodies.states_kept(daemon, job) > 1, "two checkpoints")
        os.kill(daemon.worker(), signal.SIGKILL)
        done = daemon.finish(job["id"])
        same((done["state"], done["attempts"]), ("succeeded", 2), f"state and attempts ({done['error']})")
        on_gpu(done)
        begin = [d["value"] for d in done["report"]["decisions"] if d["what"] == "begin"]
        assert len(begin) == 1 and begin[0] != "step 0", begin
        for name in ("particles.npy", "series"):
            same(daemon.get(f"/v1/jobs/{job['id']}/results/{name}").expect(200).body ==
                 daemon.get(f"/v1/jobs/{undisturbed['id']}/results/{name}").expect(200).body, True, f"bits of {name}")


@test("iterative methods: the GPU's images equal the CPU's")
def iterative(daemon):
    # A phantom: the images of random data would depend on rounding.
    series = simulated("series.h5", "--trajectory", "golden", "--matrix", "64", "--coils", "6", "--readouts", "96",
                       "--motion", "1", "--noise", "0.01")
    with Daemon(devices="cpu") as cpu:
        for query in ("method=cg-sense", "method=l1-wavelet&iterations=20", "method=tv&iterations=20",
                      "method=temporal-tv&iterations=10", "method=llr&iterations=10", "coils=sense", "coils=adaptive"):
            seen, job = npy(daemon, series, f"kind=recon&frames=4&{query}&output=complex&tolerance=1e-4")
            expected, _ = npy(cpu, series, f"kind=recon&frames=4&{query}&output=complex&tolerance=1e-4")
            on_gpu(job)
            same((seen.shape, seen.dtype), (expected.shape, expected.dtype), f"{query}: shape and type")
            error = scans.nrmse(seen, expected)
            assert error < 1e-2, f"{query}: the GPU's image differs from the CPU's by {error:.2g}"


@test("an MRD stream over TCP: the GPU's images arrive one by one and are those of the file")
def stream():
    scan = scans.radial(matrix=(64, 64, 1), spokes=93, samples=128, coils=4, seed=9)
    scan.heads["idx"]["repetition"] = np.arange(len(scan.heads)) // 31
    with Daemon(devices="gpu:0", mrd_listen="127.0.0.1:0") as daemon:
        expected, _ = npy(daemon, scan.bytes(FOLDER.name), "kind=recon&output=complex&coils=none")
        with mrd.Session(daemon) as session:
            session.send(mrd.text(mrd.CONFIG_TEXT, "kind=recon&output=complex&coils=none"), *scan.messages())
            images = session.images()
        same(len(images), 3, "images")
        seen = np.stack([pixels for _, pixels in images]).reshape(expected.shape)
        assert (seen == expected).all(), "the stream's images differ from the file's"
        on_gpu(daemon.job(daemon.get("/v1/jobs?limit=1").expect(200).json()["jobs"][0]["id"]))


@test("kill -9 of the worker during a job: it is run once more on the GPU, with the same image")
def worker_killed():
    # By a worker of its own: one that already has the scan's weights would finish before it can be killed.
    with Daemon(devices="gpu:0") as other:
        expected, _ = npy(other, LONG, PIPE)
    with Daemon(devices="gpu:0", expect_trouble=True) as daemon:
        old = daemon.worker()
        identity = daemon.submit(LONG, PIPE).expect(202).json()["id"]
        waiting = daemon.submit(PLANE).expect(202).json()["id"]
        wait_until(lambda: daemon.job(identity)["state"] == "running" and daemon.job(identity)["progress"] > 0.01,
                   "the job to run")
        os.kill(old, signal.SIGKILL)
        job = daemon.finish(identity)
        same((job["state"], job["attempts"]), ("succeeded", 2), f"state and attempts ({job['error']})")
        on_gpu(job)
        seen = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body))
        assert (seen == expected).all(), "the second run gives a different image"
        job = daemon.finish(waiting)
        same((job["state"], job["attempts"]), ("succeeded", 1), "state and attempts of the job behind it")
        same(daemon.metrics()["mrirecond_jobs_retried_total"], 1, "retries")


@test("cancel stops a job on the GPU, and the worker continues")
def cancel():
    with Daemon(devices="gpu:0") as daemon:
        worker = daemon.worker()
        identity = daemon.submit(LONG, PIPE).expect(202).json()["id"]
        wait_until(lambda: daemon.job(identity)["state"] == "running", "the job to run")
        daemon.request("POST", f"/v1/jobs/{identity}/cancel")
        same(daemon.finish(identity)["state"], "canceled", "state")
        on_gpu(npy(daemon, PLANE, "kind=recon")[1])
        same(daemon.worker(), worker, "worker")


@test("a device index that does not exist is reported, and other workers run")
def no_such_device():
    with Daemon(devices="gpu:99,gpu:0", expect_trouble=True) as daemon:
        workers = wait_until(lambda: [w for w in [daemon.get("/readyz?verbose").json()["worker_list"]]
                                      if "99" in w[0]["note"]],
                             "the missing device to be told")[0]
        assert "There is no GPU 99" in workers[0]["note"], workers[0]
        same(workers[0]["state"] in ("down", "starting"), True, f"state {workers[0]['state']}")
        on_gpu(npy(daemon, PLANE, "kind=recon")[1])
        assert "There is no GPU 99" in daemon.read_log(), "the log does not report it"


@test("auto: every GPU has a worker, and GPUs of the same model give the same bits")
def every_gpu():
    with Daemon(devices="auto") as daemon:
        workers = wait_until(lambda: [w for w in [daemon.get("/readyz?verbose").json()["worker_list"]] if w
                                      and all(v["state"] == "idle" for v in w)], "idle workers")[0]
        devices = [w["device"] for w in workers]
        if len(devices) == 1:
            skip(f"one GPU: {devices}")
        images = {}

        def all_used():
            jobs = [daemon.submit(VOLUME).expect(202).json()["id"] for _ in range(4 * len(devices))]
            for identity in jobs:
                job = daemon.finish(identity)
                same(job["state"], "succeeded", f"state ({job['error']})")
                image = daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body
                images.setdefault(job["report"]["device"], image)
                same(images[job["report"]["device"]] == image, True, "the same image from one device")
            return set(images) == set(devices)
        wait_until(all_used, f"jobs on all of {devices}")
        for device, image in images.items():
            other = next(d for d in devices if d.split("(")[1] == device.split("(")[1])
            same(image == images[other], True, f"the same image from {device} and {other}")


def poisoned(folder):
    """An installation whose GPU fails on command; returns its bin folder."""
    if not os.path.exists(POISON):
        skip(f"{POISON} is not there (make check-gpu builds it)")
    shutil.copytree(BIN, f"{folder}/bin")
    os.makedirs(f"{folder}/lib/mrirecon")
    library = os.path.join(os.path.dirname(BIN), "lib")
    for name in os.listdir(library):
        if name != "mrirecon":
            os.symlink(os.path.join(library, name), f"{folder}/lib/{name}")
    shutil.copy(os.path.join(library, "mrirecon", "mrirecon-gpu.so"), f"{folder}/lib/mrirecon/mrirecon-gpu-real.so")
    shutil.copy(POISON, f"{folder}/lib/mrirecon/mrirecon-gpu.so")
    return f"{folder}/bin"


@test("a sticky error ends the worker; the job is run once more; a second one fails it; the next succeeds")
def sticky():
    # The trigger is in a folder where workers may open files.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        binaries, trigger = poisoned(folder), f"{shared}/trigger"

        def poison(times):
            with open(trigger, "w") as file:
                file.write(f"{times}\n")
        poison(0)
        with Daemon(devices="gpu:0", expect_trouble=True, environment={"MRIRECON_POISON": trigger},
                    binaries=binaries) as daemon:
            expected, job = npy(daemon, PLANE, "kind=recon")
            on_gpu(job)
            worker = daemon.worker()
            poison(1)
            seen, job = npy(daemon, PLANE, "kind=recon")
            on_gpu(job)
            same(job["attempts"], 2, "attempts")
            assert (seen == expected).all(), "the second run gives a different image"
            assert daemon.worker() != worker, "the worker with the broken device still runs"
            assert "lost its device" in daemon.read_log(), "the log does not report it"
            same(daemon.metrics()["mrirecond_jobs_retried_total"], 1, "retries")
            poison(2)
            job = daemon.run(PLANE)
            same((job["state"], job["error"]["code"]), ("failed", "device-failed"), f"state and code ({job['error']})")
            assert "illegal" in job["error"]["detail"].lower(), job["error"]
            same(open(trigger).read().strip(), "0", "failures left")
            seen, job = npy(daemon, PLANE, "kind=recon")
            same(job["attempts"], 1, "attempts of the next job")
            assert (seen == expected).all(), "the next job gives a different image"


def missing():
    """The reason why no GPU can be used, or ""."""
    path = f"{FOLDER.name}/probe.h5"
    with open(path, "wb") as file:
        file.write(PLANE)
    done = subprocess.run([os.path.join(BIN, "mrirecon-worker"), "run", "--device", "gpu", "--in", path, "--out",
                           f"{FOLDER.name}/probe.npy"],
                          capture_output=True, text=True, timeout=120)
    return done.stderr.strip() if done.returncode and "cannot be used" in done.stderr else ""


if __name__ == "__main__":
    reason = missing()
    if reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit(0)
    main(lambda: Daemon(devices="gpu:0"))
