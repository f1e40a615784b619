#!/usr/bin/python3
"""How good images of undersampled scans are: every method of `mrirecon-worker` with its default parameters, the adjoint
with each way to combine coils, and BART's methods (Debian's package bart) with their regularisation tuned, against the
true image.

quality.py [--bin BIN] [--scenes golden-100,..] [--methods a,b] [--bart none|all|l2,wavelet,tv] [--phantom bart|own]
           [--device cpu|gpu|cpu,gpu] [--threads N] [--runs N] [--pictures FOLDER]

Scenes are radial and golden-angle scans of 402, 100 and 50 spokes of 512 samples, 8 coils, 256 x 256. The phantom is
BART's (`bart phantom -k -s8`: its exact k-space at the samples that `mrirecon simulate` lays out), or with
--phantom own `mrirecon simulate`'s; where BART is missing that is said, and the second is used. Each sample has complex
normal noise of such a standard deviation that the root-sum-of-squares image of a fully sampled Cartesian scan has a
signal-to-noise ratio of 30, on the mean over the object.

Series, moving-20 and moving-13, are golden-angle scans of 24 images of so many spokes each, 8 coils, 256 x 256, of
`mrirecon simulate`'s phantom, which goes through two cycles of motion meanwhile, with the same noise. Each image is
compared with the truth at the middle of its time; given are the means over the images.

The truth is the image of the k-space within the disc |k| < 1/2 (a radial scan has nothing outside it). An image is
scaled to fit the truth, NRMSE = |x - y| / |y|; SSIM (doi:10.1109/TIP.2003.819861) has Gaussian windows of 11 x 11
pixels with a standard deviation of 1.5, K = 0.01 and 0.03 and the range of the truth. Both are given over the whole
image and inside the object. Times are of whole processes, the least of --runs: ours from the ISMRMRD file to the image,
in brackets that of the job in it, without the start of the process (and of CUDA); BART's of each of its commands: those
that make coil maps, and the reconstruction itself. With several devices, figures are of the first one's image, and a
line says where another's differ.
"""
import argparse
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import h5py
import numpy as np

N, COILS, SAMPLES, SNR = 256, 8, 512, 30
FRAMES, CYCLES = 24, 2
SERIES = ["moving-20", "moving-13"]
OF_SERIES = ["temporal-tv", "llr"]  # methods that need one
SCENES = [f"{kind}-{spokes}" for kind in ("golden", "radial") for spokes in (402, 100, 50)]
LAMBDAS = {  # in the units of bart pics; the best of them counts
    "l2": ["0.001", "0.01", "0.1", "1"],
    "wavelet": ["0.0001", "0.0003", "0.001", "0.003", "0.01"],
    "tv": ["0.0001", "0.0003", "0.001", "0.003", "0.01"],
}
PICS = {
    "l2": lambda value: ["-i30", "-l2", "-r", value],
    "wavelet": lambda value: ["-i150", "-R", f"W:3:0:{value}"],
    "tv": lambda value: ["-i100", "-R", f"T:3:0:{value}"],
}


# ---- figures of merit ----

def smooth(image):
    window = np.exp(-0.5 * ((np.arange(11) - 5) / 1.5) ** 2)
    window /= window.sum()
    for axis in (0, 1):
        padded = np.pad(image, [(5, 5) if a == axis else (0, 0) for a in (0, 1)], mode="symmetric")
        image = sum(w * np.take(padded, range(i, i + N), axis) for i, w in enumerate(window))
    return image


def inside(truth):
    """The object with its holes filled: the pixels between bright pixels of a row and of a column."""
    bright = truth > 0.05 * truth.max()

    def between(axis):
        return np.logical_and(np.logical_or.accumulate(bright, axis),
                              np.flip(np.logical_or.accumulate(np.flip(bright, axis), axis), axis))
    return between(0) & between(1)


def merit(image, truth, mask):
    """(NRMSE, SSIM) inside the mask."""
    image, truth = np.abs(image).astype("f8"), truth.astype("f8")
    image = image * ((image * truth)[mask].sum() / max((image * image)[mask].sum(), 1e-300))
    error = np.linalg.norm((image - truth)[mask]) / np.linalg.norm(truth[mask])
    c1, c2 = (0.01 * truth.max()) ** 2, (0.03 * truth.max()) ** 2
    a, b = smooth(image), smooth(truth)
    variance_a, variance_b = smooth(image * image) - a * a, smooth(truth * truth) - b * b
    covariance = smooth(image * truth) - a * b
    similarity = (2 * a * b + c1) * (2 * covariance + c2) / ((a * a + b * b + c1) * (variance_a + variance_b + c2))
    return error, similarity[mask].mean()


# ---- files ----

def read_cfl(path):
    with open(path + ".hdr") as header:
        shape = [int(n) for n in header.read().split("\n")[1].split()]
    return np.fromfile(path + ".cfl", "c8").reshape(shape, order="F")


def write_cfl(path, array):
    with open(path + ".hdr", "w") as header:
        header.write("# Dimensions\n" + " ".join(str(n) for n in array.shape + (1,) * (16 - array.ndim)) + "\n")
    array.astype("c8").ravel(order="F").tofile(path + ".cfl")


def write_png(path, rows):
    """8-bit grey."""
    height, width = rows.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rows.astype("u1"))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def save_picture(path, image, truth):
    """Save the image beside the truth and five times their difference."""
    image = np.abs(image) * ((np.abs(image) * truth).sum() / (np.abs(image) ** 2).sum())
    tiles = [image, truth, 5 * np.abs(image - truth)]
    write_png(path, np.clip(np.hstack(tiles) / truth.max() * 255, 0, 255))


# ---- scenes ----

def run(*command):
    """Run a process that has to succeed; returns its wall-clock seconds."""
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return time.monotonic() - start


class Scene:
    """A scan as ISMRMRD (self.scan) and as BART's files (traj, data, weights), and its true image [y, x]."""

    def __init__(self, name, options, folder):
        kind, spokes = name.split("-")
        self.name, self.folder, self.scan = name, folder, f"{folder}/{name}.h5"
        truth = f"{folder}/truth.npy"
        simulate = [f"{options.bin}/mrirecon", "simulate", "--trajectory", kind, "--matrix", str(N), "--coils",
                    str(COILS), "--readouts", spokes, "--samples", str(SAMPLES), "--out", self.scan]
        if options.phantom == "own":
            run(*simulate, "--truth", truth)
            self.truth = np.load(truth).reshape(N, N)
            run(*simulate, "--noise", f"{self.noise():.9g}")
        else:
            run(*simulate)
            self.truth = self.insert_bart_phantom()
        self.mask = inside(self.truth)

    def noise(self):
        """Standard deviation of real and imaginary parts in the image of a fully sampled Cartesian scan."""
        return self.truth[self.truth > 0.05 * self.truth.max()].mean() / SNR / np.sqrt(2)

    def path(self, name):
        return f"{self.folder}/{name}"

    def read(self):
        with h5py.File(self.scan) as file:
            rows = file["dataset/data"][:]
        return rows, np.stack([row.reshape(-1, 2) for row in rows["traj"]]).astype("f8")

    def insert_bart_phantom(self):
        rows, k = self.read()
        self.write_traj(k)
        run("bart", "phantom", "-k", f"-s{COILS}", "-t", self.path("traj"), self.path("data"))
        run("bart", "phantom", "-k", f"-s{COILS}", "-x", str(N), self.path("cartesian"))
        cartesian = read_cfl(self.path("cartesian")).reshape(N, N, COILS)
        x = np.arange(N) - N // 2
        disc = np.hypot(*np.meshgrid(x, x)) <= N / 2
        images = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(cartesian * disc[..., None], axes=(0, 1)), axes=(0, 1)),
                                 axes=(0, 1))
        self.truth = np.sqrt((np.abs(images) ** 2).sum(-1)).T
        data = read_cfl(self.path("data")).reshape(SAMPLES, len(k), COILS)
        random = np.random.default_rng(1)
        normal = random.standard_normal((2, *data.shape))
        data = data + N * self.noise() * (normal[0] + 1j * normal[1])
        for i in range(len(k)):
            rows["data"][i] = np.ascontiguousarray(data[:, i, :].T).astype("c8").view("f4").ravel()
        with h5py.File(self.scan, "r+") as file:
            file["dataset/data"][:] = rows
        return self.truth

    def write_traj(self, k):
        padded = np.zeros((3, k.shape[1], len(k)))
        padded[:2] = k.transpose(2, 1, 0) * N
        write_cfl(self.path("traj"), padded)

    def write_bart(self):
        """Write the scan's samples as BART's files."""
        rows, k = self.read()
        self.write_traj(k)
        data = np.stack([row.view("c8").reshape(COILS, SAMPLES) for row in rows["data"]])
        write_cfl(self.path("data"), data.transpose(2, 0, 1)[None])


class Series:
    """A scan of a moving phantom (self.scan), and its true images [frame, y, x]."""

    def __init__(self, name, options, folder):
        spokes = FRAMES * int(name.split("-")[1])
        self.name, self.folder, self.scan = name, folder, f"{folder}/{name}.h5"
        truth = f"{folder}/truth.npy"
        simulate = [f"{options.bin}/mrirecon", "simulate", "--trajectory", "golden", "--matrix", str(N), "--coils",
                    str(COILS),
                    "--readouts", str(spokes), "--samples", str(SAMPLES), "--motion", str(CYCLES), "--out", self.scan]
        run(*simulate, "--truth", truth, "--truth-frames", str(FRAMES))
        self.truth = np.load(truth).reshape(FRAMES, N, N)
        first = self.truth[0]
        run(*simulate, "--noise", f"{first[first > 0.05 * first.max()].mean() / SNR / np.sqrt(2):.9g}")

    def path(self, name):
        return f"{self.folder}/{name}"

    def figures(self, images):
        whole = np.full((N, N), True)
        rows = [merit(image, truth, mask) for image, truth in zip(images, self.truth)
                for mask in (whole, inside(truth))]
        means = np.mean(np.reshape(rows, (FRAMES, 4)), axis=0)
        return [f"{means[i]:.3f} / {means[i + 1]:.3f}" for i in (0, 2)]


# ---- methods ----

def our_methods(binaries):
    text = subprocess.run([f"{binaries}/mrirecon-worker", "--help"], check=True, capture_output=True, text=True).stdout
    methods = re.search(r"^  method = (.*?)  \(default", text, re.M).group(1).split(" | ")
    return methods + ["adjoint coils=adaptive", "adjoint coils=sense"]


def reconstruct(scene, options, *parameters):
    """(times, [image of each device])"""
    out, report, times, images = scene.path("ours.npy"), scene.path("report.json"), [], []
    for device in options.devices:
        command = [f"{options.bin}/mrirecon-worker", "run", "--device", device, "--threads", str(options.threads),
                   "--in", scene.scan, "--out", out, "--report", report, *parameters]
        took = []
        for _ in range(options.runs):
            whole = run(*command)
            with open(report) as file:
                took.append((whole, json.load(file)["seconds"]))
        times.append(f"{min(t[0] for t in took):.2f} ({min(t[1] for t in took):.3f})")
        images.append(np.abs(np.load(out)))
    return times, images


def ours(scene, options):
    for method in options.methods:
        if method in OF_SERIES:
            continue
        times, images = reconstruct(scene, options, *f"method={method}".split(" "))
        yield f"mrirecon {method}", times, [image.reshape(N, N) for image in images]


def ours_of_series(scene, options):
    for method in options.methods:
        times, images = reconstruct(scene, options, f"frames={FRAMES}", *f"method={method}".split(" "))
        yield f"mrirecon {method}", times, [image.reshape(FRAMES, N, N) for image in images]


def bart_image(path):
    image = read_cfl(path)
    return np.sqrt((np.abs(image.reshape(N, N, -1)) ** 2).sum(-1)).T


def bart(scene, options):
    """Coil maps computed by BART in the way that gives its best results: from the centre of the FFT of full-size images
    by `nufft -i`.
    """
    scene.write_bart()
    p = scene.path
    inverse = run("bart", "nufft", "-i", "-d", f"{N}:{N}:1", p("traj"), p("data"), p("inverse"))
    yield "bart nufft -i, rss", [f"{inverse:.2f}"], [bart_image(p("inverse"))]
    seconds = inverse + run("bart", "fft", "-u", "7", p("inverse"), p("cartesian"))
    seconds += run("bart", "ecalib", "-m1", "-r24", p("cartesian"), p("maps"))
    yield "bart ecalib (the maps)", [f"{seconds:.2f}"], []
    for method in options.bart:
        tried = []
        for value in LAMBDAS[method]:
            took = min(run("bart", "pics", "-S", "-e", *PICS[method](value), "-t", p("traj"), p("data"), p("maps"),
                           p("pics"))
                       for _ in range(options.runs))
            image = bart_image(p("pics"))
            tried.append((merit(image, scene.truth, np.full((N, N), True))[0], value, took, image))
        _, value, took, image = min(tried, key=lambda t: t[0])
        yield f"bart pics {' '.join(PICS[method](value))}", [f"{took:.2f}"], [image]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--scenes", default=",".join(SCENES + SERIES))
    parser.add_argument("--methods", default="")
    parser.add_argument("--bart", default="all")
    parser.add_argument("--phantom", choices=["bart", "own"], default="bart")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--pictures")
    options = parser.parse_args()
    options.methods = options.methods.split(",") if options.methods else our_methods(options.bin)
    options.bart = {"all": list(PICS), "none": []}.get(options.bart) or [m for m in options.bart.split(",")
                                                                         if m in PICS]
    options.scenes = options.scenes.split(",")
    options.devices = options.device.split(",")
    unknown = [scene for scene in options.scenes if scene not in SCENES + SERIES]
    if unknown:
        parser.error(f"no scene {unknown[0]}; there are {', '.join(SCENES + SERIES)}")
    if shutil.which("bart") is None and (options.bart or options.phantom == "bart"):
        print("BART IS NOT INSTALLED (apt-get install bart): its methods are left out, and the phantom is our own.",
              flush=True)
        options.bart, options.phantom = [], "own"
    return options


def show(name, method, times, figures):
    """A row: `figures` of each device."""
    first = figures[0] if figures else ["", ""]
    print(f"{name:11} {method:38} {first[0]:>14} {first[1]:>14}" + "".join(f"{time:>15}" for time in times), flush=True)
    for others in figures[1:]:
        if others != first:
            print(f"{'':11} {'  on the other device':38} {others[0]:>14} {others[1]:>14}", flush=True)


def series(name, options, folder):
    scene = Series(name, options, folder)
    for method, times, images in ours_of_series(scene, options):
        if options.pictures:
            middle = FRAMES // 3
            save_picture(f"{options.pictures}/{name} {method}.png".replace(" ", "_"), images[0][middle],
                         scene.truth[middle])
        show(name, method, times, [scene.figures(image) for image in images])


def main():
    options = arguments()
    if options.pictures:
        os.makedirs(options.pictures, exist_ok=True)
    print(f"phantom {options.phantom}, {COILS} coils, {N} x {N}, SNR {SNR}")
    print(f"{'scene':11} {'method':38} {'whole image':>14} {'in the object':>14}" +
          "".join(f"{'s, ' + device:>15}" for device in options.devices))
    folder = tempfile.mkdtemp()
    try:
        for name in options.scenes:
            if name in SERIES:
                series(name, options, folder)
                continue
            scene = Scene(name, options, folder)
            rows = ours(scene, options)
            for method, times, images in itertools.chain(rows, bart(scene, options) if options.bart else ()):
                figures = [[f"{error:.3f} / {ssim:.3f}" for error, ssim in
                            (merit(image, scene.truth, mask) for mask in (np.full((N, N), True), scene.mask))]
                           for image in images]
                if images and options.pictures:
                    save_picture(f"{options.pictures}/{name} {method}.png".replace(" ", "_"), images[0], scene.truth)
                show(name, method, times, figures)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
