#!/usr/bin/python3
"""mrirecon-worker by itself: run on real and made scans, and serve at the other end of a socket.

Tolerances. A made scan is run at tolerance=1e-5: gridding errs by at most that, and float32 sums of some thousand terms add
about 1e-6; 3e-5 holds both with room, and a sample, weight or sign that is wrong shows at 1e-2 and more. Real scans are held
to what was asked for: NRMSE below the tolerance after one scale is fitted.
"""
import array
import contextlib
import glob
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import h5py
import numpy as np

import scans
from harness import BIN, REPORTS, ROOT, SLOW, main, real_scan, same, test, wait_until

WORKER = os.path.join(BIN, "mrirecon-worker")
FOLDER = tempfile.TemporaryDirectory()
with open(os.path.join(ROOT, "daemon", "wire.h")) as header:
    WIRE_VERSION = int(re.search(r"WIRE_VERSION = (\d+)", header.read()).group(1))
TOLERANCE = 3e-5


def worker(*words, status=0):
    done = subprocess.run([WORKER, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10 * SLOW)
    assert not REPORTS.search(done.stderr), done.stderr
    same(done.returncode, status, f"exit status ({done.stderr.strip()})")
    if status == 0:
        same(done.stderr, "", "stderr")
    else:
        assert done.stderr.startswith("mrirecon-worker: ") and done.stderr.count("\n") == 1, done.stderr
    return done


def run(scan, *parameters, out="npy"):
    """Run on a scan or a path; (array of the npy, report)."""
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = scan if isinstance(scan, str) else scan.write(f"{folder}/scan.h5")
        worker("run", "--device", "cpu", "--in", path, "--out", f"{folder}/image.{out}", "--report", f"{folder}/report.json", *parameters)
        with open(f"{folder}/report.json") as file:
            return np.load(f"{folder}/image.npy"), json.load(file)


def close(seen, expected, limit=TOLERANCE, fit=False):
    same(tuple(seen.shape), tuple(expected.shape), "shape")
    error = scans.nrmse(seen, expected, fit=fit)
    assert error < limit, f"the image is off by {error:.3g}, allowed {limit:g}"


REAL = {"phantom_spiral_8ch": (260, 360, 1), "cardiac_radial_12ch": (384, 384, 1), "lung_kooshball_1ch": (64, 64, 64)}


def reference(name):
    nx, ny, nz = REAL[name]
    return np.fromfile(real_scan(f"{name}.ref.f32"), "<f4").reshape(1, 1, nz, ny, nx)


def real(name, tolerance):
    @test(f"{name} with its weights, tolerance {tolerance:g}: the double sum")
    def against_reference():
        image, report = run(real_scan(f"{name}_weights.h5"), "dcf=given", "coils=rss", f"tolerance={tolerance:g}")
        close(image, reference(name), tolerance, fit=True)
        # The scale is part of the contract: nothing is divided by anything.
        close(image, reference(name), tolerance)
        same([d["value"] for d in report["decisions"] if d["what"] == "dcf"], ["given"], "dcf")


for scan_name in REAL:
    real(scan_name, 1e-3)
    real(scan_name, 1e-5)


@test("a scan without weights gives, with computed ones, the image of the given weights")
def automatic():
    # The scans' own weights come from the same formulas, with other rules at the centre and the end of a readout.
    for name, limit in (("phantom_spiral_8ch", 0.01), ("lung_kooshball_1ch", 0.01), ("cardiac_radial_12ch", 0.01)):
        image, report = run(real_scan(f"{name}.h5"), "dcf=auto")
        decided = [d["value"] for d in report["decisions"] if d["what"] == "dcf"]
        same(decided, ["analytic"], "dcf")
        error = scans.nrmse(image, reference(name), fit=True)
        assert error < limit, f"{name} with dcf=auto is off by {error:.3g} from its own weights' image"


@test("coils, phases, weights: each coil's complex image is its double sum")
def coils():
    scan = scans.radial(coils=3)
    image, _ = run(scan, "tolerance=1e-5", "coils=none", "output=complex")
    same(image.dtype, np.dtype("complex64"), "type")
    close(image, scan.adjoint()[None])
    magnitude, _ = run(scan, "tolerance=1e-5")
    close(magnitude, np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])


@test("repetitions and slices are images, noise and navigators are not")
def series():
    scan = scans.radial(spokes=24, coils=1)
    scan.heads["idx"]["repetition"] = np.arange(24) % 2
    scan.heads["idx"]["slice"] = np.arange(24) // 2 % 3
    scan.heads["position"][:, 2] = 8.0 * (np.arange(24) // 2 % 3)
    scan.heads["flags"][20] |= np.uint64(1 << 18)
    scan.heads["flags"][21] |= np.uint64(1 << 22)
    scan.heads["flags"][22] |= np.uint64(1 << 21)  # reversed readouts are image data
    image, report = run(scan, "tolerance=1e-5")
    same(image.shape[:3], (2, 1, 3), "frames, coils and slices")
    for i in range(6):
        part = scans.radial(spokes=24, coils=1)
        chosen = [a for a in range(24) if a % 2 == i // 3 and a // 2 % 3 == i % 3 and a not in (20, 21)]
        part.traj, part.data = part.traj[chosen], part.data[chosen]
        close(image[i // 3, :, i % 3], np.abs(part.adjoint())[:, 0])
    same(report["readouts"], {"total": 24, "used": 22, "ignored": {"noise": 1, "navigation": 1}}, "readouts")


@test("the same bits for any number of threads")
def threads():
    scan = scans.radial(coils=5, spokes=60, samples=64)
    first, _ = run(scan, "--threads", 1)
    for count in (2, 3):
        again, _ = run(scan, "--threads", count)
        assert (first.view(np.uint32) == again.view(np.uint32)).all(), f"{count} threads give other bits than one"


@test("one run writes every format; the report tells where the time went")
def formats():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = scans.radial().write(f"{folder}/scan.h5")
        outs = [word for end in ("h5", "nii.gz", "png", "npy") for word in ("--out", f"{folder}/image.{end}")]
        worker("run", "--in", path, "--report", f"{folder}/report.json", *outs)
        same(sorted(os.listdir(folder)), sorted(["scan.h5", "report.json"] + [os.path.basename(o) for o in outs[1::2]]), "files")
        with h5py.File(f"{folder}/image.h5") as file:
            same(file["dataset/image_0/data"].shape, (1, 1, 1, 20, 24), "shape")
            same(file["dataset/image_0/data"][:].tobytes(), np.load(f"{folder}/image.npy").tobytes(), "pixels")
            assert b"ismrmrdHeader" in file["dataset/xml"][0]
        with open(f"{folder}/report.json") as file:
            report = json.load(file)
        for stage in ("decode", "trajectory", "plan", "gridding", "write"):
            assert report["stages"][stage] >= 0, stage
        same((report["samples"], report["coils"], report["images"], report["matrix"]), (31 * 48, 2, 1, [24, 20, 1]), "report")
        same(report["gridding_method"], "cpu", "method")
        assert report["device"] and report["kernel_width"] >= 2 and report["expected_error"] <= 1e-3, report


@test("errors of the command line are printed, with exit status 2")
def usage():
    path = scans.radial().write(f"{FOLDER.name}/usage.h5")
    for words, hint in ((["run"], "--in"), ([], "run or serve"), (["jump"], "jump"), (["run", "--nonsense"], "--nonsense"),
                        (["run", "--in", path, "--out", "x.bmp"], ".nii.gz"), (["run", "--in", path, "--out", "/dev/null"], "ending"),
                        (["run", "--in", path, "--out", "x.npy", "tolerence=1"], "tolerance"),
                        (["run", "--in", path, "--out", "x.npy", "tolerance=5"], "from 1e-06 to 0.1"),
                        (["run", "--in", path, "--out", "x.npy", "tolerance"], "NAME=VALUE"),
                        (["run", "--device", "abacus"], "abacus"), (["run", "--threads", "-1"], "-1"), (["serve"], "daemon")):
        done = worker(*words, status=2)
        assert hint in done.stderr, f"{words}: {done.stderr}"
    assert "tolerance" in worker("--help").stdout
    assert worker("--version").stdout.startswith("mrirecon-worker ")


@test("a scan that cannot be reconstructed: a message, exit status 1 and no file")
def refused():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        scan = scans.radial()
        scan.data[3, 1, 7] = np.nan
        scan.write(f"{folder}/scan.h5")
        with open(f"{folder}/text.h5", "w") as file:
            file.write("this is no scan\n" * 50)
        for name, word in (("scan.h5", "cquisition 3"), ("text.h5", "."), ("absent.h5", "absent.h5")):
            done = worker("run", "--in", f"{folder}/{name}", "--out", f"{folder}/image.png", status=1)
            assert word in done.stderr, done.stderr
            same(sorted(os.listdir(folder)), ["scan.h5", "text.h5"], "files")
        # Found before the work, not after: the scan is never opened.
        done = worker("run", "--in", f"{folder}/none.h5", "--out", f"{folder}/no/folder/image.png", status=2)
        assert "no/folder" in done.stderr, done.stderr


@test("an old result stays until the new one is complete")
def replaced():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        out = f"{folder}/image.npy"
        good = scans.radial().write(f"{folder}/good.h5")
        worker("run", "--in", good, "--out", out)
        with open(out, "rb") as file:
            old = file.read()
        bad = scans.radial()
        bad.traj[0, 0, 0] = np.inf
        worker("run", "--in", bad.write(f"{folder}/bad.h5"), "--out", out, status=1)
        with open(out, "rb") as file:
            same(file.read(), old, "the old image")
        same(sorted(os.listdir(folder)), ["bad.h5", "good.h5", "image.npy"], "files")


@test("SIGINT stops a job and leaves nothing")
def interrupted():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = scans.slow().write(f"{folder}/scan.h5")
        words = [parameter for parameter in scans.SLOW_QUERY.split("&") if not parameter.startswith("kind=")]
        process = subprocess.Popen([WORKER, "run", "--in", path, "--out", f"{folder}/image.npy", *words],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # Once the decoder has come and gone, or the process has threads: it is past its start.
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > 1 or process.poll() is not None, "the job to run")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SLOW)
        same(process.returncode, 1, f"exit status ({errors})")
        assert "anceled" in errors, errors
        same(os.listdir(folder), ["scan.h5"], "files")


# ---- serve


class Served:
    """mrirecon-worker serve, and this end of its socket."""

    def __init__(self, *options):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(SLOW)
        self.process = subprocess.Popen(["sh", "-c", f'exec "$0" serve --device cpu "$@" 3<&{theirs.fileno()}', WORKER, *options],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()])
        theirs.close()
        self.hello = self.receive()
        same(self.hello["type"], "hello", "first message")

    def receive(self):
        return json.loads(self.socket.recv(1 << 18))

    def send(self, fds=(), **message):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([json.dumps(message).encode()], rights)

    def job(self, identity, scan, folder, formats=(), room=None, **parameters):
        """Its results are image.h5 and one for each of `formats` in a new folder."""
        formats = ["h5", *formats]
        os.makedirs(folder)
        fds = [os.open(scan, os.O_RDONLY)] + [os.open(f"{folder}/image.{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL) for name in formats]
        self.job_with(fds, identity, formats, room, **parameters)

    def job_with(self, fds, identity, formats, room=None, **parameters):
        """A job with these descriptors, which are closed here."""
        self.send(fds, type="job", id=identity, kind="recon", parameters=parameters, files=[f"image.{name}" for name in formats], **({"room": room} if room else {}))
        for fd in fds:
            os.close(fd)

    def prepare(self, identity, scan, **parameters):
        fd = os.open(scan, os.O_RDONLY)
        self.send([fd], type="prepare", id=identity, kind="recon", parameters=parameters)
        os.close(fd)

    def decoders(self):
        """Process ids of the worker's decoders, without the template that they are forked from."""
        found = []
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/children"):
            with contextlib.suppress(OSError), open(path) as file:  # a thread that has ended
                found += map(int, file.read().split())

        def is_template(process):
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
                return file.read().split(b"\0")[1:2] == [b"template"]
            return False
        return sorted(process for process in found if not is_template(process))

    def ready(self, least):
        """The worker's decoders, once so many or more stand ready, and none that was used is still to be collected."""
        def state(process):
            with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
            return None

        def rest():
            found = self.decoders()
            return len(found) >= least and {state(process) for process in found} == {"S"} and found
        return wait_until(rest, f"{least} decoders to stand ready")

    def answer(self, identity):
        """The end of a job, and the progress messages before it."""
        seen = []
        while True:
            message = self.receive()
            if message["type"] == "progress":
                same(message["id"], identity, "id")
                seen.append(message)
            elif message["type"] != "status":
                same(message["id"], identity, "id")
                return message, seen

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        _, errors = self.process.communicate(timeout=SLOW)
        assert not REPORTS.search(errors), errors
        same((self.process.returncode, errors), (0, ""), "exit status and stderr after the daemon's end closed")


@test("serve: hello, a job with its files, and the next one")
def served():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        same((served.hello["version"], served.hello["gpu"], served.hello["pid"]), (WIRE_VERSION, False, served.process.pid), "hello")
        assert "cpu" in served.hello["device"], served.hello
        for number in range(3):
            scan = scans.radial(seed=number)
            out = f"{folder}/results-{number}"
            served.job(f"job-{number}", scan.write(f"{folder}/scan-{number}.h5"), out, ["png", "npy"], tolerance="1e-5")
            done, progress = served.answer(f"job-{number}")
            same(done["type"], "done", f"answer {done}")
            fractions = [round(p["fraction"], 9) for p in progress]  # sums of shares, in more than one order
            assert fractions == sorted(fractions) and fractions and 0 <= fractions[0] and fractions[-1] <= 1, fractions
            same(sorted(os.listdir(out)), ["image.h5", "image.npy", "image.png"], "files")
            image = np.load(f"{out}/image.npy")
            close(image, np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
            with h5py.File(f"{out}/image.h5") as file:
                np.testing.assert_array_equal(file["dataset/image_0/data"][...], image)
            with open(f"{out}/image.png", "rb") as file:
                same(file.read(8), b"\x89PNG\r\n\x1a\n", "the picture's begin")
            assert done["report"]["stages"]["write"] > 0, done["report"]


@test("serve: what results will take is known before they are computed: more than there may be is refused, more than there is room for put back")
def served_room():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.radial(matrix=(512, 512, 1)).write(f"{folder}/scan.h5")
        size = 512 * 512 * 4
        for number, (room, formats, answer) in enumerate((
                ({"most": 2 * size, "most_of": "a test", "free": 2 * size}, [], "done"),
                ({"most": size - 1, "most_of": "a test", "free": 0}, [], "result-too-large"),
                ({"most": 2 * size, "most_of": "a test", "free": 0}, ["npy"], "result-too-large"),  # two files
                ({"most": 0, "most_of": "", "free": size - 1}, [], "spool-full"))):
            served.job("x", scan, f"{folder}/{number}", formats, room)
            message, progress = served.answer("x")
            same(message["error"]["code"] if message["type"] == "failed" else message["type"], answer, f"answer {message}")
            if answer == "done":
                promised, written = message["report"]["result_bytes"], os.path.getsize(f"{folder}/{number}/image.h5")
                assert written <= promised <= 1.2 * written, (written, promised)
                continue
            same(message["put_back"], answer == "spool-full", "put back")
            same(message["error"]["available_bytes"], room["most"] or room["free"], "bytes there may be")
            assert size * (1 + len(formats)) < message["error"]["required_bytes"] < 1.2 * size * (1 + len(formats)), message
            assert "1 image of 512 x 512 x 1 in 1 channel" in message["error"]["detail"], message
            assert "density" not in [step["step"] for step in progress], "nothing was computed"
            same(os.path.getsize(f"{folder}/{number}/image.h5"), 0, "bytes written")


@test("serve: a job that fails is answered with its problem, and the worker goes on")
def served_failure():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        bad = scans.radial()
        bad.data[5, 0, 0] = np.inf
        bad.write(f"{folder}/bad.h5")
        scans.radial().write(f"{folder}/good.h5")
        for number, (name, parameters, code) in enumerate((("bad", {}, "data-nonfinite"), ("good", {"width": "99"}, "bad-parameter"),
                                                           ("good", {"dcff": "none"}, "unknown-parameter"))):
            served.job("x", f"{folder}/{name}.h5", f"{folder}/{number}", **parameters)
            failed, _ = served.answer("x")
            same((failed["type"], failed["error"]["code"], failed["fatal"]), ("failed", code, False), f"answer {failed}")
            same(os.path.getsize(f"{folder}/{number}/image.h5"), 0, "bytes of the image")
            if name == "bad":
                same(failed["error"]["acquisition_index"], 5, "acquisition")
        served.send(type="job", id="y", kind="recon", parameters={}, formats=[])
        same(served.answer("y")[0]["type"], "failed", "a job without files")
        # Results that are too few or too many, of no known form, read-only, or on a full disk.
        for paths, flags, formats, code in ((["a.h5"], os.O_RDWR, ["h5", "png"], "bad-request"), (["b.h5", "b.png"], os.O_RDWR, ["h5"], "bad-request"),
                                            (["c.jpg"], os.O_RDWR, ["jpg"], "bad-request"), (["d.h5"], os.O_RDONLY, ["h5"], "io-error"),
                                            (["e.h5", "/dev/full"], os.O_RDWR, ["h5", "npy"], "spool-full")):
            results = [os.open(os.path.join(folder, path), flags | os.O_CREAT) for path in paths]
            served.job_with([os.open(f"{folder}/good.h5", os.O_RDONLY), *results], "results", formats)
            failed = served.answer("results")[0]
            same((failed["type"], failed["error"]["code"]), ("failed", code), f"answer {failed} to {paths} as {formats}")
        served.job("z", f"{folder}/good.h5", f"{folder}/z")
        same(served.answer("z")[0]["type"], "done", "the next job")


@test("serve: a job of thousands of iterations is told ten times a second at most, without the daemon being slowed by it")
def served_progress():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.radial(weights=False).write(f"{folder}/scan.h5")
        start = time.monotonic()
        served.job("many", scan, f"{folder}/many", dcf="pipe", dcf_iterations="1000")
        done, progress = served.answer("many")
        seconds = time.monotonic() - start
        same(done["type"], "done", f"answer {done}")
        assert 1 <= len(progress) <= 2 + 10 * seconds, f"{len(progress)} messages in {seconds:.3f} s"
        assert all(message["iteration"] <= message["iterations"] for message in progress), progress


@test("serve: pings are answered while a job runs, and cancel stops it")
def served_cancel():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.slow().write(f"{folder}/scan.h5")
        slow = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))
        served.job("slow", scan, f"{folder}/slow", **slow)
        while served.receive()["type"] != "progress":
            pass
        served.send(type="ping")
        while True:
            message = served.receive()
            assert message["type"] in ("progress", "status"), message
            if message["type"] == "status":
                break
        assert 0 < message["memory_available"] <= message["memory_total"], message
        served.send(type="cancel", id="another")
        served.job("second", scan, f"{folder}/second")
        while True:  # one job at a time
            message = served.receive()
            if message.get("id") == "second":
                same((message["type"], message["error"]["code"]), ("failed", "conflict"), "a second job")
                break
        served.send(type="cancel", id="slow")
        failed, _ = served.answer("slow")
        same((failed["type"], failed["error"]["code"]), ("failed", "canceled"), "answer")
        same(os.path.getsize(f"{folder}/slow/image.h5"), 0, "bytes of the image")
        served.job("after", scans.radial().write(f"{folder}/small.h5"), f"{folder}/after")
        same(served.answer("after")[0]["type"], "done", "the next job")


@test("serve: a scan is prefetched beside a running job; forgotten, replaced or damaged ones do no harm")
def served_ahead():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        good, large, slow, bad = (f"{folder}/{name}.h5" for name in ("good", "large", "slow", "bad"))
        scan = scans.radial(seed=8)
        scan.write(good)
        scans.radial(matrix=(64, 64, 1), spokes=2000, samples=512, coils=8, weights=True).write(large)
        scans.slow().write(slow)
        with open(bad, "wb") as file:
            file.write(scan.bytes(folder)[:3000])
        slowly = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))

        def descriptors():  # memory may be set aside for one scan
            links = []
            for path in glob.glob(f"/proc/{served.process.pid}/fd/*"):
                with contextlib.suppress(FileNotFoundError):
                    links.append(os.readlink(path))
            aside = [link for link in links if "memfd:mrirecon-scan" in link]
            return len(links) - min(len(aside), 1)

        def used_up(before):  # a decoder is used once: that it is gone says that a scan was read
            wait_until(lambda: not set(before) <= set(served.decoders()), "a scan to be read")
        served.ready(2)
        before_all = descriptors()
        for identity, first, path, code in (("a", None, good, None), ("b", slow, good, None), ("c", None, bad, "truncated-file"), ("d", slow, bad, "truncated-file")):
            if first:
                served.job("first", first, f"{folder}/first-{identity}", **slowly)
                while served.receive()["type"] != "progress":
                    pass
            before = served.ready(1 if first else 2)  # beside a job one is kept ready, or two that were begun before it
            served.prepare(identity, path)
            used_up(before)
            if first:
                served.send(type="cancel", id="first")
                same(served.answer("first")[0]["error"]["code"], "canceled", "first job")
            served.job(identity, path, f"{folder}/{identity}", ["npy"], tolerance="1e-5")
            answer = served.answer(identity)[0]
            if code:
                same((answer["type"], answer["error"]["code"]), ("failed", code), f"answer {answer}")
                continue
            same(answer["type"], "done", f"answer {answer}")
            report = answer["report"]
            assert 0 < report["decode_ahead_seconds"] <= report["stages"]["decode"], report  # the end of the reading may lie behind the begin of the job
            close(np.load(f"{folder}/{identity}/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
        # Hints that are forgotten, replaced, too late, or of another job than the one that comes.
        for round_ in range(3):
            for identity in ("x", "y", "z"):
                served.prepare(identity, large if round_ % 2 else good)
            served.send(type="forget", id=("z", "x", "nobody")[round_])
            served.prepare("odd", good, nonsense="1")
            served.job("other", good, f"{folder}/other-{round_}", ["npy"], tolerance="1e-5")
            same(served.answer("other")[0]["type"], "done", "a job of another name")
            close(np.load(f"{folder}/other-{round_}/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
        served.send(type="forget", id="z")
        wait_until(lambda: descriptors() == before_all, "descriptors of what was read ahead to be closed")


@test("serve: a scan too large to be read ahead beside a job is read once more when its own job begins")
def served_ahead_memory():
    # Flat, the scan takes some 0.6 MB: more than a quarter of the limit, and less than the limit.
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served("--memory", "1500000") as served:
        scan = scans.radial(spokes=60, samples=96, coils=10)
        path = f"{folder}/scan.mrd"  # not HDF5, where samples stay in the file
        with open(path, "wb") as file:
            file.writelines(scan.messages())
        before = served.ready(2)
        served.prepare("job", path)
        wait_until(lambda: not set(before) <= set(served.decoders()), "a scan to be read")
        served.job("job", path, f"{folder}/job", ["npy"], tolerance="1e-5")
        done = served.answer("job")[0]
        same(done["type"], "done", f"answer {done}")
        assert 375000 < done["report"]["scan_bytes"] < 1500000, done["report"]
        same(done["report"]["decode_ahead_seconds"], 0, "what was decoded ahead")
        close(np.load(f"{folder}/job/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])


@test("serve: a job that waits for a long scan is canceled, also where reading began ahead")
def served_ahead_cancel():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scans.radial(matrix=(64, 64, 1), spokes=8000, samples=512, coils=8, weights=True).write(f"{folder}/large.h5")
        canceled = 0
        for number in range(4):
            if number % 2:
                served.prepare(f"job-{number}", f"{folder}/large.h5")
            served.job(f"job-{number}", f"{folder}/large.h5", f"{folder}/{number}")
            served.send(type="cancel", id=f"job-{number}")
            answer = served.answer(f"job-{number}")[0]
            canceled += answer["type"] == "failed" and answer["error"]["code"] == "canceled"
        assert canceled, "none was canceled in time"
        scans.radial().write(f"{folder}/small.h5")
        served.job("after", f"{folder}/small.h5", f"{folder}/after")
        same(served.answer("after")[0]["type"], "done", "the next job")


@test("serve: the worker ends with the daemon, also during a job")
def served_orphan():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        slow = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))
        served.job("slow", scans.slow().write(f"{folder}/scan.h5"), f"{folder}/slow", **slow)
        while served.receive()["type"] != "progress":
            pass


if __name__ == "__main__":
    main()
