#!/usr/bin/python3
"""mrirecon-worker run, on real and simulated scans. mrirecon-worker serve: test_worker_serve.py.

Tolerances: served.TOLERANCE for simulated scans; the requested tolerance for real scans, as NRMSE after fitting one
scale.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import scans
from harness import REPORTS, ROOT, SLOW, main, real_scan, same, sanitized, test, wait_until
from served import FOLDER, WORKER, close

sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import streaks  # noqa: E402


def worker(*words, status=0):
    done = subprocess.run([WORKER, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=10 * SLOW)
    assert not REPORTS.search(done.stderr), done.stderr
    same(done.returncode, status, f"exit status ({done.stderr.strip()})")
    if status == 0:
        same(done.stderr, "", "stderr")
    else:
        assert done.stderr.startswith("mrirecon-worker: ") and done.stderr.count("\n") == 1, done.stderr
    return done


def run(scan, *parameters, out="npy"):
    """Run on a scan or a path; returns (array of the npy, report)."""
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = scan if isinstance(scan, str) else scan.write(f"{folder}/scan.h5")
        worker("run", "--device", "cpu", "--in", path, "--out", f"{folder}/image.{out}", "--report",
               f"{folder}/report.json", *parameters)
        with open(f"{folder}/report.json") as file:
            return np.load(f"{folder}/image.npy"), json.load(file)


REAL = {"phantom_spiral_8ch": (260, 360, 1), "cardiac_radial_12ch": (384, 384, 1), "lung_kooshball_1ch": (64, 64, 64)}


def reference(name):
    nx, ny, nz = REAL[name]
    return np.fromfile(real_scan(f"{name}.ref.f32"), "<f4").reshape(1, 1, nz, ny, nx)


def real(name, tolerance):
    @test(f"{name} with its weights, tolerance {tolerance:g}: the double sum")
    def against_reference():
        image, report = run(real_scan(f"{name}_weights.h5"), "dcf=given", "coils=rss", f"tolerance={tolerance:g}")
        close(image, reference(name), tolerance, fit=True)
        # The scale is part of the contract, so no factor is fitted.
        close(image, reference(name), tolerance)
        same([d["value"] for d in report["decisions"] if d["what"] == "dcf"], ["given"], "dcf")


for scan_name in REAL:
    real(scan_name, 1e-3)
    real(scan_name, 1e-5)


@test("a scan without weights gives, with computed ones, the image of the given weights")
def automatic():
    # The scans' own weights come from the same formulas, with different rules at the centre and the end of a readout.
    for name, limit in (("phantom_spiral_8ch", 0.01), ("lung_kooshball_1ch", 0.01), ("cardiac_radial_12ch", 0.01)):
        image, report = run(real_scan(f"{name}.h5"), "dcf=auto")
        decided = [d["value"] for d in report["decisions"] if d["what"] == "dcf"]
        same(decided, ["analytic"], "dcf")
        error = scans.nrmse(image, reference(name), fit=True)
        assert error < limit, f"{name} with dcf=auto is off by {error:.3g} from its own weights' image"


@test("iterative methods suppress the streaks of a real scan of 25 spokes, with default parameters")
def streaks_are_suppressed():
    # docs/notebook/quality.md has the figures. The limits are between those of the defaults (cg-sense: 0.11, 0.026; tv:
    # 0.054, 0.014) and those of worse parameters: cg-sense with a tenth of its lambda has 0.16 and 0.038, tv with 8 of
    # its 30 iterations 0.083, the coil maps alone (adjoint, coils=sense) 0.75.
    path, few = real_scan(f"{streaks.SCAN}.h5"), []
    if sanitized():
        print("# with sanitizers: 3 iterations of each method; the other build has the defaults")
        few = ["iterations=3"]  # all of the code, in a sixth of the time; tv leaves 0.20
    seen = {method: streaks.figures(run(path, f"method={method}", *more)[0].squeeze())
            for method, more in (("adjoint", []), ("cg-sense", few), ("tv", few))}
    assert seen["adjoint"][0] > 2, seen
    for method, outside, beside in (("cg-sense", 0.14, 0.034), ("tv", 0.25 if few else 0.08, 0.02)):
        assert seen[method][0] < outside and seen[method][1] < beside, (method, seen)


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
        assert (first.view(np.uint32) == again.view(np.uint32)).all(), f"{count} threads give different bits than one"


@test("one run writes every format; the report has the time of each step")
def formats():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = scans.radial().write(f"{folder}/scan.h5")
        outs = [word for end in ("h5", "nii.gz", "png", "npy") for word in ("--out", f"{folder}/image.{end}")]
        worker("run", "--in", path, "--report", f"{folder}/report.json", *outs)
        same(sorted(os.listdir(folder)), sorted(["scan.h5", "report.json"] + [os.path.basename(o) for o in outs[1::2]]),
             "files")
        with h5py.File(f"{folder}/image.h5") as file:
            same(file["dataset/image_0/data"].shape, (1, 1, 1, 20, 24), "shape")
            same(file["dataset/image_0/data"][:].tobytes(), np.load(f"{folder}/image.npy").tobytes(), "pixels")
            assert b"ismrmrdHeader" in file["dataset/xml"][0]
        with open(f"{folder}/report.json") as file:
            report = json.load(file)
        for stage in ("decode", "trajectory", "plan", "gridding", "write"):
            assert report["stages"][stage] >= 0, stage
        same((report["samples"], report["coils"], report["images"], report["matrix"]), (31 * 48, 2, 1, [24, 20, 1]),
             "report")
        same(report["gridding_method"], "cpu", "method")
        assert report["device"] and report["kernel_width"] >= 2 and report["expected_error"] <= 1e-3, report


@test("errors of the command line are printed, with exit status 2")
def usage():
    path = scans.radial().write(f"{FOLDER.name}/usage.h5")
    for words, hint in ((["run"], "--in"), ([], "run or serve"), (["jump"], "jump"),
                        (["run", "--nonsense"], "--nonsense"),
                        (["run", "--in", path, "--out", "x.bmp"], ".nii.gz"),
                        (["run", "--in", path, "--out", "/dev/null"], "ending"),
                        (["run", "--in", path, "--out", "x.npy", "tolerence=1"], "tolerance"),
                        (["run", "--in", path, "--out", "x.npy", "tolerance=5"], "from 1e-06 to 0.1"),
                        (["run", "--in", path, "--out", "x.npy", "tolerance"], "NAME=VALUE"),
                        (["run", "--device", "abacus"], "abacus"), (["run", "--threads", "-1"], "-1"),
                        (["serve"], "daemon")):
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
        # Once the decoder has come and gone, or the process has threads, its start is over.
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > 1 or process.poll() is not None,
                   "the job to run")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SLOW)
        same(process.returncode, 1, f"exit status ({errors})")
        assert "anceled" in errors, errors
        same(os.listdir(folder), ["scan.h5"], "files")


if __name__ == "__main__":
    main()
