#!/usr/bin/python3
"""Streaks in a real scan, by each method with its default parameters.

streaks.py [--bin BIN] [--device cpu] [--data ../shared/data] [--methods a,b] [--pictures FOLDER] [WORD=VALUE ...]

The scan is mri/cardiac_radial_12ch: 25 spokes for 384 x 384 pixels of a chest. There is no truth, but the body is an
ellipse, and around it there is air: what an image shows there is noise and streaks. Given are, for each method,
  outside   the energy outside the ellipse, relative to that inside
  beside    the mean energy of a pixel in a belt around the body, relative to one inside
  dark      the tenth part of the body's pixels that are darkest (lungs, borders of fat) are below this, relative to the
            mean
and the seconds of the whole process, and of the processors. WORD=VALUE are parameters for all methods.

With --pictures, PNGs of this scan, of phantom_spiral_8ch and of lung_kooshball_1ch are written there, by each method,
side by side. They are pictures of real scans, which do not belong into the repository.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from quality import write_png

SCAN, OTHERS = "cardiac_radial_12ch", ["phantom_spiral_8ch", "lung_kooshball_1ch"]
METHODS = ["adjoint", "adjoint coils=sense", "cg-sense", "l1-wavelet", "tv"]
CENTRE, AXES, ANGLE = (190, 168), (110, 72), -33  # of the body in the image: pixels, pixels, degrees
BELT = (1.06, 1.25)  # times the ellipse


def distance(shape):
    """Of each pixel, in units of the ellipse: 1 on its border."""
    y, x = np.mgrid[:shape[0], :shape[1]]
    angle, dx, dy = np.radians(ANGLE), x - CENTRE[0], y - CENTRE[1]
    along, across = dx * np.cos(angle) + dy * np.sin(angle), dy * np.cos(angle) - dx * np.sin(angle)
    return np.hypot(along / AXES[0], across / AXES[1])


def figures(image):
    """(outside, beside, dark) of an image of SCAN, [y, x]."""
    size = np.abs(image).astype("f8")
    energy, r = size ** 2, distance(image.shape)
    body, belt = r <= 1, (r >= BELT[0]) & (r <= BELT[1])
    return (energy[~body].sum() / energy[body].sum(), energy[belt].mean() / energy[body].mean(),
            np.percentile(size[body], 10) / size[body].mean())


def reconstruct(options, scan, method, out):
    """(image, wall-clock seconds, processor seconds)"""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([f"{options.bin}/mrirecon-worker", "run", "--device", options.device, "--in",
                    f"{options.data}/mri/{scan}.h5", "--out", out, f"method={method.split()[0]}", *method.split()[1:],
                    *options.parameters], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return np.load(out).squeeze(), time.monotonic() - start, spent


def tile(image):
    """Grey values; of a volume the middle plane."""
    plane = np.abs(image[len(image) // 2] if image.ndim == 3 else image)
    return np.pad(np.clip(plane / np.percentile(plane, 99.5), 0, 1) * 255, 2, constant_values=255)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default=os.environ.get("MRIRECON_DATA", "../shared/data"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--pictures")
    parser.add_argument("parameters", nargs="*")
    options = parser.parse_args()
    if not os.path.exists(f"{options.data}/mri/{SCAN}.h5"):
        sys.exit(f"THE REAL SCANS ARE NOT IN {options.data}/mri (--data, MRIRECON_DATA): nothing was measured.")
    options.methods = options.methods.split(",")
    return options


def main():
    options = arguments()
    print(f"{SCAN:22} {'outside':>8} {'beside':>8} {'dark':>8} {'seconds':>8} {'processor':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for scan in [SCAN] + (OTHERS if options.pictures else []):
            tiles = []
            for method in options.methods:
                image, seconds, spent = reconstruct(options, scan, method, f"{folder}/image.npy")
                tiles.append(tile(image))
                if scan == SCAN:
                    outside, beside, dark = figures(image)
                    print(f"{method:22} {outside:8.3f} {beside:8.4f} {dark:8.3f} {seconds:8.2f} {spent:10.2f}",
                          flush=True)
            if options.pictures:
                os.makedirs(options.pictures, exist_ok=True)
                write_png(f"{options.pictures}/{scan}.png", np.hstack(tiles))


if __name__ == "__main__":
    main()
