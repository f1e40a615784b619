#!/usr/bin/python3
"""Whole processes side by side: `bart nufft -a -P` (Debian's package bart) and `mrirecon-worker run`, the same adjoint
of the same samples.

against_bart.py [BIN] [REPEATS]: one JSON line per case: wall-clock medians (files in the page cache), peak memory, and
the relative l2 distance of each image from a double sum at 200 pixels of the first coil, one complex scale fitted.
mrirecon-worker reads ISMRMRD through the sandboxed decoder; BART maps its own raw format.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy as np

CASES = {  # simulate's options: the cases of docs/notebook/cpu.md
    "small": ["golden", "128", 201, 256, 1],
    "d": ["golden", "256", 402, 512, 16],
    "a": ["kooshball", "128", 10375, 256, 1],
}
OURS = ["dcf=none", "coils=none", "output=complex", "matrix=encoded", "tolerance=1e-3"]


def write_cfl(path, array):
    with open(path + ".hdr", "w") as header:
        header.write("# Dimensions\n" + " ".join(str(n) for n in array.shape + (1,) * (16 - array.ndim)) + "\n")
    array.astype("c8").ravel(order="F").tofile(path + ".cfl")


# A process's peak memory includes that before exec; a small process in between excludes this program's arrays.
LAUNCH = """
import os, sys, time
start = time.monotonic()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ,
                        file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
print(time.monotonic() - start, usage.ru_maxrss / 1024, status)
"""


def measure(command):
    answer = subprocess.run([sys.executable, "-S", "-c", LAUNCH, *command], check=True, capture_output=True,
                            text=True).stdout
    seconds, mib, status = answer.split()
    if status != "0":
        raise SystemExit(f"{command[0]} failed")
    return float(seconds), float(mib)


def distance(image, k, data, shape):
    """Relative l2 distance of image[z, y, x] from sum data exp(2 pi i k r) at 200 pixels."""
    rng = np.random.default_rng(5)
    at = np.stack([rng.integers(0, n, 200) for n in shape])
    got = np.array([image[tuple(i)] for i in at.T])
    r = [a - n // 2 for a, n in zip(at[::-1], shape[::-1])]  # x, y, z
    exact = np.array([np.exp(2j * np.pi * sum(k[:, d] * r[d][p] for d in range(k.shape[1]))) @ data
                      for p in range(200)])
    scale = np.vdot(got, exact) / np.vdot(got, got)
    return float(np.linalg.norm(scale * got - exact) / np.linalg.norm(exact))


def main():
    binaries, repeats = (sys.argv[1:] + ["build/bin", "5"][len(sys.argv) - 1:])[:2]
    if shutil.which("bart") is None:
        raise SystemExit("bart is not installed (Debian: apt-get install bart)")
    folder = tempfile.mkdtemp()
    for name, (kind, matrix, readouts, samples, coils) in CASES.items():
        scan, ours = f"{folder}/scan.h5", f"{folder}/image.npy"
        subprocess.run([f"{binaries}/mrirecon", "simulate", "--trajectory", kind, "--matrix", matrix, "--readouts",
                        str(readouts),
                        "--samples", str(samples), "--coils", str(coils), "--phantom", "random", "--out", scan],
                       check=True, stdout=subprocess.DEVNULL)
        with h5py.File(scan) as file:
            rows = file["dataset/data"][:]
        dim = 3 if kind == "kooshball" else 2
        k = np.stack([row.reshape(samples, dim) for row in rows["traj"]]).astype("f8")
        data = np.stack([row.view("c8").reshape(coils, samples) for row in rows["data"]])
        n = [int(matrix)] * dim
        padded = np.zeros((3, samples, readouts), "f8")
        padded[:dim] = k.transpose(2, 1, 0) * int(matrix)
        write_cfl(f"{folder}/traj", padded)
        write_cfl(f"{folder}/data", data.transpose(2, 0, 1)[None])
        size = ":".join(str(i) for i in n + [1] * (3 - dim))
        bart = ["bart", "nufft", "-a", "-P", "-d", size, f"{folder}/traj", f"{folder}/data", f"{folder}/out"]
        worker = [f"{binaries}/mrirecon-worker", "run", "--kind", "recon", "--in", scan, "--out", ours, *OURS]
        line = {"case": name, "coils": coils, "samples": samples * readouts}
        for who, command in (("bart", bart), ("mrirecon", worker)):
            measure(command)
            runs = [measure(command) for _ in range(int(repeats))]
            line[who + "_s"] = round(statistics.median(r[0] for r in runs), 4)
            line[who + "_mib"] = round(max(r[1] for r in runs))
        flat_k, flat_data = k.reshape(-1, dim), data[:, 0, :].reshape(-1).astype("c16")
        theirs = np.fromfile(f"{folder}/out.cfl", "c8").reshape([coils] + n[::-1])[0]
        line["bart_error"] = float(f"{distance(theirs, flat_k, flat_data, n[::-1]):.2e}")
        own = np.load(ours)[0, 0].reshape(n[::-1])
        line["mrirecon_error"] = float(f"{distance(own, flat_k, flat_data, n[::-1]):.2e}")
        line["times_faster"] = round(line["bart_s"] / line["mrirecon_s"], 1)
        print(json.dumps(line), flush=True)
    shutil.rmtree(folder)


main()
