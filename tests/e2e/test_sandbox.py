#!/usr/bin/python3
"""What confines the programs that read files, seen from outside: /proc of the real programs, and files that would lead them elsewhere."""
# time limit: 200 s
import os
import re
import shutil
import signal
import subprocess
import tempfile

import h5py
import numpy as np

import scans
from harness import BIN, Daemon, REPORTS, SLOW, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
CODEC = os.path.join(BIN, "mrirecon-codec")


def made(name):
    return os.path.join(FOLDER.name, name)


def image_file():
    """An image file as a worker writes it; 160 x 160 pixels of 4 bytes are more than a pipe holds."""
    path = made("image.h5")
    if not os.path.exists(path):
        scans.radial(matrix=(160, 160, 1)).write(made("scan.h5"))
        subprocess.run([os.path.join(BIN, "mrirecon-worker"), "run", "--in", made("scan.h5"), "--out", path], check=True, timeout=SLOW)
    return path


def convert(path, form, out):
    done = subprocess.run([CODEC, "convert", path, form, out], capture_output=True, text=True, timeout=SLOW)
    assert not REPORTS.search(done.stderr), done.stderr
    return done


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


@test("convert writes every format inside its sandbox")
def formats():
    with h5py.File(image_file()) as file:
        data = file["dataset/image_0/data"][...]
    for form in ("h5", "npy", "png", "nii.gz"):
        out = made("out." + form)
        same((convert(image_file(), form, out).stderr, os.path.getsize(out) > 1000), ("", True), form)
    np.testing.assert_array_equal(np.load(made("out.npy")), data)
    with h5py.File(made("out.h5")) as file:
        np.testing.assert_array_equal(file["dataset/image_0/data"][...], data)


@test("convert is under seccomp, without new privileges, children or core files, its memory, time and output limited")
def in_force():
    fifo = made("fifo")
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)  # a reader that does not read: the codec stops in the middle of its work
    process = subprocess.Popen([CODEC, "convert", image_file(), "npy", fifo], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: process.poll() is not None or status(process.pid)["Seccomp"] == "2", "seccomp")
        same(process.poll(), None, "end of the codec")
        same((status(process.pid)["Seccomp"], status(process.pid)["NoNewPrivs"]), ("2", "1"), "seccomp, no_new_privs")
        with open(f"/proc/{process.pid}/limits") as file:
            limits = {line[:26].strip(): line[26:].split()[:2] for line in file}
        for name in ("Max core file size", "Max processes"):
            same(limits[name], ["0", "0"], name)
        for name in ("Max cpu time", "Max file size") + (() if "/san/" in BIN else ("Max address space", "Max data size")):
            assert limits[name][1].isdigit(), (name, limits[name])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        os.close(keep)


def image_that_names(secret, how):
    """A copy of an image file whose pixels are said to be in the file `secret`."""
    path = made(how + ".h5")
    shutil.copy(image_file(), path)
    with h5py.File(path, "r+") as file:
        image = file["dataset/image_0"]
        size = image["data"].shape
        del image["data"]
        if how == "link":
            image["data"] = h5py.ExternalLink(secret, "/dataset/image_0/data")
        else:
            create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            create.set_external(os.fsencode(secret), 0, 4 * int(np.prod(size)))
            h5py.h5d.create(image.id, b"data", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple(size), create).close()
    return path


@test("an image file that names another file's bytes as its own cannot be converted")
def other_files():
    secret = made("secret.h5")
    shutil.copy(image_file(), secret)
    for how in ("link", "storage"):
        path = image_that_names(secret, how)
        with h5py.File(path) as file:  # the file is as good as it looks: h5py follows it
            assert file["dataset/image_0/data"][...].size
        done = convert(path, "npy", made("stolen.npy"))
        same((done.returncode, os.path.getsize(made("stolen.npy"))), (1, 0), how)
        assert re.search(r"malformed_file|malformed-file", done.stderr), done.stderr


@test("a daemon's worker is under seccomp and without new privileges, and reconstructs")
def worker():
    with Daemon() as daemon:
        same((status(daemon.worker())["Seccomp"], status(daemon.worker())["NoNewPrivs"]), ("2", "1"), "seccomp, no_new_privs")
        same(daemon.run(scans.radial().bytes(FOLDER.name))["state"], "succeeded", "state")


if __name__ == "__main__":
    main()
