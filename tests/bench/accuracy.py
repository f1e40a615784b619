#!/usr/bin/python3
"""How exact the images are: accuracy.py [BIN [DATA]], two tables in Markdown, and the machine.

Real scans against their exact double-precision sums (DATA, default ../shared/data/mri; left out if absent), and
simulated, fully sampled ones against the phantom itself inside the sampled disc or ball. NRMSE, one scale fitted.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

BIN, DATA = (sys.argv[1:] + ["build/bin", "../shared/data/mri"][len(sys.argv) - 1:])[:2]
SCANS = ["phantom_spiral_8ch", "cardiac_radial_12ch", "lung_kooshball_1ch"]
SIMULATED = [("radial", "128"), ("golden", "128"), ("spiral", "128"), ("stack-of-stars", "48"), ("kooshball", "48"),
             ("cones", "48")]


devices = set()


def worker(folder, scan, *parameters):
    """Run the worker; returns the image [z, y, x] and the report."""
    image, report = f"{folder}/image.npy", f"{folder}/report.json"
    subprocess.run([f"{BIN}/mrirecon-worker", "run", "--kind", "recon", "--in", scan, "--out", image, "--report",
                    report, *parameters],
                   check=True)
    with open(report) as file:
        told = json.load(file)
    devices.add(told["device"])
    return np.load(image)[0, 0].astype("f8"), told


def nrmse(image, truth, mask=True):
    a, b = image[mask].ravel(), truth[mask].ravel()
    return np.linalg.norm(a @ b / (a @ a) * a - b) / np.linalg.norm(b)


def inside(shape):
    axes = np.meshgrid(*[(np.arange(n) - n // 2) / (n / 2) if n > 1 else np.zeros(1) for n in shape], indexing="ij")
    return sum(a * a for a in axes) < 1


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


with tempfile.TemporaryDirectory() as tmp:
    if os.path.isdir(DATA):
        tolerances = ["1e-2", "1e-3", "1e-4", "1e-5"]
        row("scan, dcf=given", *[f"tolerance {t}: NRMSE (width, oversampling)" for t in tolerances])
        row(*["---"] * 5)
        for name in SCANS:
            truth, cells = np.fromfile(f"{DATA}/{name}.ref.f32", "<f4").astype("f8"), []
            for tolerance in tolerances:
                got, report = worker(tmp, f"{DATA}/{name}_weights.h5", "dcf=given", "matrix=encoded",
                                     f"tolerance={tolerance}")
                error = nrmse(got.ravel(), truth, slice(None))
                cells.append(f"{error:.1e} ({report['kernel_width']}, {report['oversampling']:.2f})")
            row(name, *cells)
        print()
    methods = ["none", "auto", "pipe"]
    row("trajectory, matrix", *[f"dcf={m}" for m in methods])
    row(*["---"] * 4)
    for kind, matrix in SIMULATED:
        scan, truth_file, cells = f"{tmp}/scan.h5", f"{tmp}/truth.npy", []
        subprocess.run([f"{BIN}/mrirecon", "simulate", "--trajectory", kind, "--matrix", matrix, "--coils", "1",
                        "--truth", truth_file, "--out", scan], check=True, stdout=subprocess.DEVNULL)
        truth = np.load(truth_file).astype("f8")
        for method in methods:
            got, report = worker(tmp, scan, f"dcf={method}", "tolerance=1e-4")
            cells.append(f"{nrmse(got.reshape(truth.shape), truth, inside(truth.shape)):.3f}")
        row(f"{kind}, {matrix}", *cells)
print("\non " + ", ".join(sorted(devices)))
