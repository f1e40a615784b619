#!/usr/bin/python3
"""mrirecon watch: a folder whose scans become images as they arrive."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import scans
from harness import BIN, Daemon, client, free_port, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
GOOD = scans.radial(seed=81).write(f"{FOLDER.name}/good.h5")
OTHER = scans.radial(seed=82).write(f"{FOLDER.name}/other.h5")


class Watch:
    """A running mrirecon watch, and the lines that it prints."""

    def __init__(self, daemon, where, *words):
        self.process = subprocess.Popen([os.path.join(BIN, "mrirecon"), "watch", where, "--format", "png", *words],
                                        env=dict(os.environ, MRIRECON_SERVER=daemon.url), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.saved, self.told = [], []
        self.readers = [threading.Thread(target=lambda to=to,
                                         pipe=pipe: to.extend(line.strip() for line in iter(pipe.readline, "")))
                        for to, pipe in ((self.saved, self.process.stdout), (self.told, self.process.stderr))]
        for reader in self.readers:
            reader.start()

    def end(self, sign):
        self.process.send_signal(sign)
        for reader in self.readers:
            reader.join()
        status = self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@contextlib.contextmanager
def watching(daemon, where, *words):
    watch = Watch(daemon, where, *words)
    try:
        yield watch
    finally:
        if watch.process.returncode is None:
            watch.end(signal.SIGKILL)


def jobs(daemon):
    return len(daemon.get("/v1/jobs?limit=500").json()["jobs"])


def put(source, where, name):
    """Copy a file so that it appears complete under its name, as scanner software or rsync does."""
    shutil.copy(source, f"{where}/.{name}")
    os.rename(f"{where}/.{name}", f"{where}/{name}")


@test("scans become images as they arrive; a partial scan is sent again when complete, a replaced one is new")
def arriving(daemon):
    where, before = tempfile.mkdtemp(dir=FOLDER.name), jobs(daemon)
    with watching(daemon, where, "dcf=given") as watch:
        put(GOOD, where, "a.h5")
        with open(GOOD, "rb") as file, open(f"{FOLDER.name}/half.h5", "wb") as half:
            half.write(file.read()[:5000])
        put(half.name, where, "b.h5")
        with open(f"{where}/notes.txt", "w") as file:
            file.write("no scan")
        wait_until(lambda: watch.saved, "the first image")
        wait_until(lambda: any(line.startswith("b.h5 failed: ") for line in watch.told), "the failure")
        same((watch.saved, jobs(daemon) - before), ([f"{where}/images/a.png"], 2), "saved, and jobs")
        with open(f"{where}/images/a.png", "rb") as file:
            first = file.read()
        put(GOOD, where, "b.h5")
        put(OTHER, where, "a.h5")
        put(OTHER, where, "A.MRD")
        wait_until(lambda: len(watch.saved) == 4, "three more images")
        same((sorted(watch.saved[1:]), jobs(daemon) - before),
             ([f"{where}/images/{name}.png" for name in ("A", "a", "b")], 5), "saved, and jobs")
        with open(f"{where}/images/a.png", "rb") as file, open(f"{where}/images/A.png", "rb") as same_scan:
            again = file.read()
            assert first != again and again == same_scan.read(), "the image of the new scan"
        same(watch.end(signal.SIGTERM), 130, "exit status")
    same(sorted(os.listdir(f"{where}/images")), ["A.png", "a.png", "b.png", "batch.state"], "images")


@test("killed, or without its server or folder, a watch resumes where it was: no scan is done twice")
def broken_off():
    daemon = Daemon(devices="cpu", port=free_port(), work_reserve="900T")  # no job begins
    with daemon:
        where = tempfile.mkdtemp(dir=FOLDER.name)
        put(GOOD, where, "a.h5")
        with watching(daemon, where, "dcf=given") as watch:
            wait_until(lambda: jobs(daemon) == 1, "the job")
            same(watch.end(signal.SIGKILL), -9, "exit status")
        put(OTHER, where, "b.h5")
        with watching(daemon, where, "dcf=given") as watch:
            wait_until(lambda: jobs(daemon) == 2, "the second job")
            daemon.kill()
            wait_until(lambda: any("waiting" in line for line in watch.told), "the word that no server answers")
            os.rename(where, f"{where}.away")
            wait_until(lambda: any("cannot be read" in line for line in watch.told), "the word that the folder is away")
            os.rename(f"{where}.away", where)
            daemon.options["work_reserve"] = "1M"
            daemon.restart(same_port=True)
            wait_until(lambda: len(watch.saved) == 2, "both images")
            same(jobs(daemon), 2, "jobs of two scans")
            same(watch.end(signal.SIGINT), 130, "exit status")
        with watching(daemon, where, "dcf=given") as watch:  # an earlier run's results stay done
            put(OTHER, where, "c.h5")
            wait_until(lambda: watch.saved, "the third image")
            same((watch.saved, jobs(daemon)), ([f"{where}/images/c.png"], 3), "saved, and jobs")


@test("scans that wait to be sent while their folder is away have not failed: they are sent when it is back")
def folder_away():
    with Daemon(devices="cpu") as daemon:
        where, out = tempfile.mkdtemp(dir=FOLDER.name), tempfile.mkdtemp(dir=FOLDER.name)
        for i in range(34):  # two more than are on the server at a time
            put(GOOD, where, f"{i:02}.h5")
        with daemon.paused():
            watch = Watch(daemon, where, "--out", out, "dcf=given")
            wait_until(lambda: jobs(daemon) == 32, "the first jobs")
            os.rename(where, f"{where}.away")
            wait_until(lambda: any("cannot be read" in line for line in watch.told), "the word that the folder is away")
        try:
            wait_until(lambda: len(watch.saved) == 32, "the images of what was sent")
            time.sleep(1)  # rounds in which there is room for the others
            os.rename(f"{where}.away", where)
            wait_until(lambda: len(watch.saved) == 34 or any("failed" in line for line in watch.told), "all images")
            same((len(watch.saved), [line for line in watch.told if "failed" in line]), (34, []), "saved, and failed")
        finally:
            watch.end(signal.SIGKILL)


def is_locked(path):
    """Whether a process has locked a file; it exists a moment before that."""
    with contextlib.suppress(FileNotFoundError), open("/proc/locks") as file:
        inode = os.stat(path).st_ino
        return any(int(line.split()[-3].rpartition(":")[2]) == inode for line in file if "->" not in line)
    return False


@test("a watch that can never work ends at once, with the reason")
def refused(daemon):
    where = tempfile.mkdtemp(dir=FOLDER.name)
    for words, status, says in (([f"{where}/none"], 1, "cannot be"), ([where, "dcf=wrong"], 1, "bad-parameter"),
                                ([where, "dcf"], 2, "PARAM=VALUE"), ([where, "--out", where], 1, "must differ")):
        done = client(daemon, "watch", *words, check=False)
        same(done.returncode, status, f"exit status of {words}")
        assert says in done.stderr, (words, done.stderr)
    with watching(daemon, where):
        wait_until(lambda: is_locked(f"{where}/images/batch.state"), "the first watch")
        done = client(daemon, "watch", where, check=False)
        assert done.returncode == 1 and "is in use" in done.stderr, done.stderr


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
