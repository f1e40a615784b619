#!/usr/bin/python3
"""Simulated scans of every trajectory, through the daemon, compared with the phantom that they were made from.

A fully sampled, density-compensated adjoint equals the phantom limited to the sampled k-space (the truth has the same
Gibbs ringing); its NRMSE must be below 0.06 inside the mask.
"""
import io
import os
import resource
import signal
import subprocess
import tempfile

import numpy as np

import scans
from harness import BIN, Daemon, client, main, same, test

FOLDER = tempfile.TemporaryDirectory()
TRAJECTORIES = (("radial", 128), ("golden", 128), ("spiral", 128), ("stack-of-stars", 48), ("kooshball", 48),
                ("cones", 48))


def simulate(name, *words):
    path = f"{FOLDER.name}/{name}.h5"
    client(None, "simulate", *words, "--out", path, timeout=300)
    return path


def submitted(daemon, path, query):
    with open(path, "rb") as file:
        job = daemon.finish(daemon.submit(file, query).expect(202).json()["id"], 300)
    same(job["state"], "succeeded", f"state ({job['error']})")
    data = daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body
    return np.load(io.BytesIO(data), allow_pickle=False), job


def from_phantom(trajectory, matrix, query):
    def run(daemon):
        truth = f"{FOLDER.name}/{trajectory}-truth.npy"
        path = simulate(trajectory, "--trajectory", trajectory, "--matrix", str(matrix), "--coils", "1", "--truth",
                        truth)
        seen, _ = submitted(daemon, path, query)
        expected = np.abs(np.load(truth)).reshape(seen.shape[2:])
        # The mask: pixels inside the object, and one pixel around it.
        mask = expected > 0.01 * expected.max()
        for axis in range(3):
            if mask.shape[axis] > 1:
                mask = mask | np.roll(mask, 1, axis) | np.roll(mask, -1, axis)
        # Fully sampled refers to the ellipsoid inside the field of view. Towards its corners spokes are too far apart.
        place = np.indices(mask.shape) - np.reshape(np.array(mask.shape) // 2, (-1,) + (1,) * mask.ndim)
        mask &= sum((place[a] / (mask.shape[a] / 2)) ** 2 for a in range(mask.ndim) if mask.shape[a] > 1) < 1
        error = scans.nrmse(seen[0, 0], expected, mask, fit=True)
        assert error < 0.06, f"NRMSE {error:.4f}"
    return run


for test_trajectory, test_matrix in TRAJECTORIES:
    test(f"{test_trajectory}: dcf=auto gives the phantom")(from_phantom(test_trajectory, test_matrix, "kind=recon"))


@test("few spokes: iterative methods are closer to the phantom than the adjoint, and report their iterations")
def iterative(daemon):
    truth = f"{FOLDER.name}/few-truth.npy"
    path = simulate("few", "--trajectory", "golden", "--matrix", "64", "--coils", "6", "--readouts", "20", "--noise",
                    "0.005", "--truth", truth)
    expected = np.abs(np.load(truth)).reshape(64, 64)
    errors = []
    for method in ("adjoint", "cg-sense", "l1-wavelet", "tv"):
        seen, job = submitted(daemon, path, f"kind=recon&method={method}")
        errors.append(scans.nrmse(seen[0, 0, 0], expected, np.ones((64, 64), bool), fit=True))
        decided = {entry["what"]: entry["value"] for entry in job["report"]["decisions"]}
        same("lambda" in decided and decided.get("coils") == "sense", method != "adjoint",
             f"decisions of {method}: {decided}")
    assert all(error < errors[0] / 2 for error in errors[1:]), f"NRMSE of adjoint, cg-sense, l1-wavelet, tv: {errors}"
    problem = daemon.submit(b"scan", "kind=recon&iterations=5").expect(400).json()
    same(problem["code"], "bad-parameter", problem["detail"])


@test("coils and noise: eight coils give the phantom times the coils' sensitivity, noise raises the error")
def coils_and_noise(daemon):
    errors = []
    for noise in ("0", "0.05"):
        truth = f"{FOLDER.name}/coils-truth.npy"
        path = simulate(f"coils-{noise}", "--trajectory", "spiral", "--matrix", "96", "--coils", "8", "--noise", noise,
                        "--truth", truth)
        seen, _ = submitted(daemon, path, "kind=recon&coils=none&output=complex")
        same(seen.shape, (1, 8, 1, 96, 96), "shape")
        expected = np.abs(np.load(truth)).reshape(96, 96)
        combined = np.sqrt((abs(seen[0, :, 0]) ** 2).sum(0))
        errors.append(scans.nrmse(combined, expected, expected > 0.01 * expected.max(), fit=True))
    assert errors[1] > errors[0] * 1.05, errors


@test("the asymmetric phantom is not flipped")
def asymmetric(daemon):
    truth = f"{FOLDER.name}/asymmetric-truth.npy"
    path = simulate("asymmetric", "--trajectory", "radial", "--matrix", "96", "--coils", "1", "--phantom", "asymmetric",
                    "--truth", truth)
    seen, _ = submitted(daemon, path, "kind=recon")
    expected = np.abs(np.load(truth)).reshape(96, 96)
    right = scans.nrmse(seen[0, 0, 0], expected, fit=True)
    for turned in (expected[::-1], expected[:, ::-1], expected[::-1, ::-1], expected.T):
        assert scans.nrmse(seen[0, 0, 0], turned, fit=True) > 2 * right, "a flipped phantom fits as well"


@test("the same command makes the same scan, another seed different noise")
def repeatable():
    words = ("--trajectory", "golden", "--matrix", "32", "--coils", "2", "--noise", "0.1")
    def content(path):
        import h5py
        with h5py.File(path) as file:
            return b"".join(row["data"].tobytes() for row in file["dataset/data"][:])
    first = content(simulate("a", *words))
    same(content(simulate("b", *words)), first, "second scan")
    assert content(simulate("c", *words, "--seed", "7")) != first, "another seed gave the same noise"


@test("a scan that cannot be written completely leaves no file")
def cut_off():
    def limited(limit):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with tempfile.TemporaryDirectory() as folder:
        words = [f"{BIN}/mrirecon", "simulate", "--trajectory", "radial", "--matrix", "64", "--coils", "8", "--out",
                 f"{folder}/scan.h5"]
        for limit in (1 << 10, 64 << 10, 512 << 10):  # in the file's header, in a batch of acquisitions, in a later one
            done = subprocess.run(words, preexec_fn=lambda: limited(limit), capture_output=True, text=True, timeout=120)
            same(done.returncode, 1, f"exit status ({done.stderr!r})")
            assert "scan.h5" in done.stderr and "cannot be written: File too large" in done.stderr, done.stderr
            same(os.listdir(folder), [], "files")
        same(subprocess.run(words, capture_output=True, timeout=120).returncode, 0, "exit status without the limit")
        assert os.path.getsize(f"{folder}/scan.h5") > 512 << 10, "the scan is no larger than the limit"
        # The truth, of 2 MB, beside a smaller scan.
        done = subprocess.run([f"{BIN}/mrirecon", "simulate", "--matrix", "512", "--readouts", "4", "--out",
                               f"{folder}/small.h5", "--truth", f"{folder}/truth.npy"],
                              preexec_fn=lambda: limited(512 << 10), capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and "truth.npy could not be written to its end: File too large" in done.stderr, done


@test("simulate refuses meaningless parameters with exit status 2, and leaves no file")
def wrong():
    for words in (["--trajectory", "nothing"], ["--matrix", "0"], ["--matrix", "x"], ["--coils", "0"], ["--nothing"],
                  ["--noise", "-1"], ["--noise", "nan"]):
        path = f"{FOLDER.name}/wrong.h5"
        done = client(None, "simulate", *words, "--out", path, check=False)
        same(done.returncode, 2, f"exit status of {words} ({done.stderr})")
        assert len(done.stderr) > 20, done.stderr
        assert not os.path.exists(path), "a file was created"


if __name__ == "__main__":
    main(Daemon)
