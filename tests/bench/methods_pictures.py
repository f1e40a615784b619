#!/usr/bin/python3
"""The pictures of docs/methods.md: the same scan by each method, beside the true image.

methods_pictures.py [--bin BIN] [--out docs/methods.png]

First row: 40 golden-angle spokes for 160 x 160 pixels (a sixth of full sampling), 8 coils, noise of 1 %, by adjoint,
adjoint coils=sense, cg-sense, l1-wavelet and tv, and the truth. Second row: a spiral of 4 arms whose field is off by up
to 200 Hz, by adjoint coils=sense and by cg-sense with off_resonance=off, by both with the scan's field map, by tv with
it, and the truth. Prints the error of each, |a x - y| / |y| after one factor a.
"""
import argparse
import struct
import subprocess
import tempfile
import zlib

import numpy as np

N, GAP = 160, 4
ROWS = [
    (["--trajectory", "golden", "--readouts", "40", "--noise", "0.01"],
     [[], ["coils=sense"], ["method=cg-sense"], ["method=l1-wavelet"], ["method=tv"]]),
    (["--trajectory", "spiral", "--readouts", "4", "--noise", "0.005", "--off-resonance", "200"],
     [["coils=sense", "off_resonance=off"], ["method=cg-sense", "off_resonance=off"], ["coils=sense"],
      ["method=cg-sense"], ["method=tv"]]),
]


def write_png(path, grey):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    lines = np.concatenate([np.zeros((grey.shape[0], 1), np.uint8), grey], 1).tobytes()
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" +
                   chunk(b"IHDR", struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b""))


def panels(folder, programs, scan, methods):
    path, truth_path, image = f"{folder}/scan.h5", f"{folder}/truth.npy", f"{folder}/image.npy"
    subprocess.run([f"{programs}/mrirecon", "simulate", "--matrix", str(N), "--coils", "8", *scan, "--truth",
                    truth_path, "--out", path], check=True)
    truth = np.load(truth_path).squeeze()
    for words in methods:
        subprocess.run([f"{programs}/mrirecon-worker", "run", "--in", path, "--out", image, *words], check=True)
        seen = np.abs(np.load(image).squeeze())
        seen = seen * (seen * truth).sum() / (seen * seen).sum()
        print(f"{' '.join(scan[:4])}: {' '.join(words) or 'method=adjoint'}: "
              f"{np.linalg.norm(seen - truth) / np.linalg.norm(truth):.3f}")
        yield seen
    yield truth


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--out", default="docs/methods.png")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for scan, methods in ROWS:
            # The phantom's skull is 1 and its interior 0.1 to 0.4, so the grey scale ends at 0.5.
            row = [np.pad(np.clip(panel / 0.5, 0, 1) * 255, ((0, GAP), (0, GAP)), constant_values=255)
                   for panel in panels(folder, arguments.bin, scan, methods)]
            rows.append(np.concatenate(row, 1))
    # 32 levels of grey; with more, most of the file would be invisible noise.
    grey = np.concatenate(rows)[:-GAP, :-GAP]
    write_png(arguments.out, (np.round(grey / 8) * 8).clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
