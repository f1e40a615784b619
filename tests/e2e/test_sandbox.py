#!/usr/bin/python3
"""The confinement of the programs that read files, seen from outside: /proc of the real programs, and files that refer
to others.
"""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import scans
from harness import BIN, Daemon, REPORTS, ROOT, SLOW, main, same, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
CODEC = os.path.join(BIN, "mrirecon-codec")


def made(name):
    return os.path.join(FOLDER.name, name)


def image_file():
    """An image file as a worker writes it; 160 x 160 pixels of 4 bytes exceed the capacity of a pipe."""
    path = made("image.h5")
    if not os.path.exists(path):
        scans.radial(matrix=(160, 160, 1)).write(made("scan.h5"))
        subprocess.run([os.path.join(BIN, "mrirecon-worker"), "run", "--in", made("scan.h5"), "--out", path],
                       check=True, timeout=SLOW)
    return path


def convert(path, form, out):
    done = subprocess.run([CODEC, "convert", "image", path, form, out], capture_output=True, text=True, timeout=SLOW)
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


@test("a request of another worker version is refused with a sentence")
def versions():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open("/dev/null") as file:
        socket.send_fds(ours, [struct.pack("II", 0x5152434d, 99) + bytes(40)], [file.fileno(), file.fileno()])
    process = subprocess.Popen(["sh", "-c", f"exec {CODEC} decode 3<&{theirs.fileno()}"], pass_fds=[theirs.fileno()],
                               stderr=subprocess.PIPE)
    theirs.close()
    ours.settimeout(SLOW)
    report = ours.recv(4096)
    same((process.wait(SLOW), process.stderr.read()), (1, b""), "status and stderr")
    same(struct.unpack_from("I", report), (0x5052434d,), "a report")
    assert b"uses protocol version 99" in report, report


@test("convert runs under seccomp, without privileges, children or core files, with limited memory, time and output")
def in_force():
    fifo = made("fifo")
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)  # a reader that does not read: the codec blocks in the middle of its work
    process = subprocess.Popen([CODEC, "convert", "image", image_file(), "npy", fifo], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: process.poll() is not None or status(process.pid)["Seccomp"] == "2", "seccomp")
        same(process.poll(), None, "end of the codec")
        same((status(process.pid)["Seccomp"], status(process.pid)["NoNewPrivs"]), ("2", "1"), "seccomp, no_new_privs")
        same({int(status(process.pid)[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}, {0},
             "capabilities, also root's")
        with open(f"/proc/{process.pid}/limits") as file:
            limits = {line[:26].strip(): line[26:].split()[:2] for line in file}
        for name in ("Max core file size", "Max processes"):
            same(limits[name], ["0", "0"], name)
        for name in ("Max cpu time", "Max file size") + (() if "/san/" in BIN
                                                         else ("Max address space", "Max data size")):
            assert limits[name][1].isdigit(), (name, limits[name])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        os.close(keep)


def image_that_names(secret, how):
    """A copy of an image file whose pixels refer to the file `secret`."""
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


@test("an image file that refers to another file's bytes cannot be converted")
def other_files():
    secret = made("secret.h5")
    shutil.copy(image_file(), secret)
    for how in ("link", "storage"):
        path = image_that_names(secret, how)
        with h5py.File(path) as file:  # the file is valid: h5py follows the reference
            assert file["dataset/image_0/data"][...].size
        done = convert(path, "npy", made("stolen.npy"))
        same((done.returncode, os.path.getsize(made("stolen.npy"))), (1, 0), how)
        assert re.search(r"malformed_file|malformed-file", done.stderr), done.stderr


@test("a daemon's worker runs under seccomp and without new privileges, and reconstructs")
def worker():
    with Daemon() as daemon:
        same((status(daemon.worker())["Seccomp"], status(daemon.worker())["NoNewPrivs"]), ("2", "1"),
             "seccomp, no_new_privs")
        same(daemon.run(scans.radial().bytes(FOLDER.name))["state"], "succeeded", "state")


def confinement(daemon):
    """The landlock state of each worker, from /readyz."""
    return [worker["landlock"] for worker in daemon.get("/readyz?verbose").expect(200).json()["worker_list"]]


@test("code in a daemon's worker can open no file of the state folder or the user, nor the daemon's memory")
def intruder():
    state, own, binaries = made("state"), made("letter"), made("installed")
    os.mkdir(state)
    shutil.copytree(BIN, binaries)
    with open(own, "w") as file:
        file.write("private")
    # The worker loads the GPU library after it has confined itself.
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-I", ROOT, "-o", binaries + "/mrirecon-gpu.so",
                    os.path.join(ROOT, "tests/e2e/intruder.c")], check=True)
    paths = [state + "/jobs.db", state + "/spool", state + "/results", own, os.path.expanduser("~")]
    with Daemon(state=state, binaries=binaries, devices="auto",
                environment={"INTRUDER_PATHS": ":".join(paths)}) as daemon:
        same(daemon.run(scans.radial().bytes(FOLDER.name))["state"], "succeeded", "state")
        seen = dict(re.findall(r"^intruder: (\S+): (.*)$", daemon.read_log(), re.M))
        if confinement(daemon) != [True]:
            skip("this kernel has no landlock")
        same(seen.pop("/proc/self/status"), "open", "a file of the system")
        same(len(seen), 2 * len(paths) + 1, "visits")
        same(set(seen.values()), {"Permission denied"}, f"what became of {seen}")


# Runs a command with a kernel that lacks landlock_create_ruleset (444), which fails with 38 (ENOSYS).
WITHOUT_LANDLOCK = """import ctypes, os, sys
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
filter = ctypes.c_void_p(seccomp.seccomp_init(0x7fff0000))
assert seccomp.seccomp_rule_add(filter, 0x00050000 | 38, 444, 0) == 0 and seccomp.seccomp_load(filter) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@test("on a kernel without landlock the service runs with seccomp alone, and logs that once")
def no_landlock():
    with Daemon(command=[sys.executable, "-c", WITHOUT_LANDLOCK], expect_trouble=True) as daemon:
        same(confinement(daemon), [False], "landlock")
        worker = daemon.worker()
        same(status(worker)["NoNewPrivs"], "1", "no_new_privs")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: worker not in daemon.children("mrirecon-worker") and daemon.get("/readyz").status == 200,
                   "another worker")
        same(daemon.run(scans.radial().bytes(FOLDER.name))["state"], "succeeded", "state")
        same(daemon.read_log().count("the kernel has no landlock, or a filter around the service refuses it"), 1,
             "times that the log says so")


if __name__ == "__main__":
    main()
