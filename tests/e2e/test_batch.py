#!/usr/bin/python3
"""mrirecon batch: every scan of a folder, also where it breaks off in the middle."""
# time limit: 300 s
import os
import shutil
import signal
import subprocess
import tempfile

import scans
from harness import BIN, Daemon, client, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
GOOD = scans.radial(seed=71).write(f"{FOLDER.name}/good.h5")
UNWEIGHTED = scans.radial(seed=72, weights=False).write(f"{FOLDER.name}/unweighted.h5")


def folder(good, bad=0):
    """A new folder of scans: a0.h5, a1.h5, ... that succeed, b0.h5, ... that fail with dcf=given, and what is no scan."""
    where = tempfile.mkdtemp(dir=FOLDER.name)
    for number in range(good):
        shutil.copy(GOOD, f"{where}/a{number}.h5")
    for number in range(bad):
        shutil.copy(UNWEIGHTED, f"{where}/b{number}.h5")
    with open(f"{where}/notes.txt", "w") as file:
        file.write("no scan")
    return where


def table(done):
    """{scan: state} of the summary."""
    rows = [line.split("  ") for line in done.stdout.splitlines()[1:-1]]
    return {row[0].strip(): [word.strip() for word in row[1:] if word.strip()][0] for row in rows}


def jobs(daemon):
    return daemon.get("/v1/jobs?limit=500").json()["jobs"]


@test("all scans of a folder become images; a table tells what became of each, and the exit status whether all did")
def whole(daemon):
    before = len(jobs(daemon))
    where = folder(3, bad=1)
    done = client(daemon, "batch", where, "dcf=given", "--format", "png", check=False)
    same(done.returncode, 1, "exit status with one that failed")
    same(table(done), {"a0.h5": "succeeded", "a1.h5": "succeeded", "a2.h5": "succeeded", "b0.h5": "failed"}, "table")
    assert "dcf-missing" in done.stdout and "3 of 4 succeeded, 1 failed" in done.stdout, done.stdout
    same(sorted(os.listdir(f"{where}/images")), ["a0.png", "a1.png", "a2.png", "batch.state"], "images")
    for number in range(3):
        with open(f"{where}/images/a{number}.png", "rb") as file:
            assert file.read(4) == b"\x89PNG"
    assert all(job["priority"] == "batch" for job in jobs(daemon)[:4])
    # Again: nothing is left to do but what is gone; what failed is tried again where it is asked for.
    os.unlink(f"{where}/images/a1.png")
    same(client(daemon, "batch", where, "dcf=given", "--format", "png", check=False).returncode, 1, "exit status, again")
    same(len(jobs(daemon)) - before, 4, "jobs")
    assert os.path.exists(f"{where}/images/a1.png"), "the image that was gone is not back"
    shutil.copy(GOOD, f"{where}/b0.h5")  # repaired: another scan of the same name
    same(table(client(daemon, "batch", where, "dcf=given", "--format", "png"))["b0.h5"], "succeeded", "state of the repaired scan")
    same(len(jobs(daemon)) - before, 5, "jobs")
    same(table(client(daemon, "batch", where, "dcf=none", "--format", "png"))["a0.h5"], "succeeded", "state with other parameters")
    same(len(jobs(daemon)) - before, 9, "jobs with other parameters")


@test("--retry tries again what failed")
def retry(daemon):
    where, out = folder(0, bad=1), tempfile.mkdtemp(dir=FOLDER.name)
    for words, more in (([], 1), ([], 0), (["--retry"], 1)):
        before = len(jobs(daemon))
        same(client(daemon, "batch", where, "dcf=given", "--out", out, *words, check=False).returncode, 1, "exit status")
        same(len(jobs(daemon)) - before, more, f"jobs with {words}")


@test("a batch that is interrupted, or killed, goes on where it was: no scan is done twice")
def broken_off():
    daemon = Daemon(devices="cpu", work_reserve="900T", queue_limit=3)  # nothing is begun, and little taken
    with daemon:
        where = folder(8)
        environment = dict(os.environ, MRIRECON_SERVER=daemon.url)
        for sign, status in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
            running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given"], env=environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            wait_until(lambda: len(jobs(daemon)) == 3, "jobs")
            first = running.stderr.readline() if sign == signal.SIGINT else ""
            running.send_signal(sign)
            said = running.communicate(timeout=60)
            same(running.returncode, status, f"exit status, having said {said}")
        assert "0 of 8 scans are done, 3 on the server" in first, first
        assert "goes on" in said[1] and "on the server" in said[0] and "not sent" in said[0], said
        with open(f"{where}/images/batch.state", "a") as file:
            file.write('{"key": "broken of')
        daemon.kill()
        daemon.options.update(work_reserve="1M", queue_limit=100)
        daemon.restart()
        done = client(daemon, "batch", where, "dcf=given")
        same(set(table(done).values()), {"succeeded"}, "states")
        assert "going on with a batch" in done.stderr, done.stderr
        same(len(jobs(daemon)), 8, "jobs of 8 scans")
        same(len(os.listdir(f"{where}/images")), 9, "images and state")


@test("a server that takes only a few at a time, and one that is restarted, get them all")
def back_pressure():
    daemon = Daemon(devices="cpu", queue_limit=2)
    with daemon:
        same(set(table(client(daemon, "batch", folder(6), "dcf=given")).values()), {"succeeded"}, "states")
        where = folder(6)
        running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=dict(os.environ, MRIRECON_SERVER=daemon.url), text=True)
        wait_until(lambda: os.path.exists(f"{where}/images/a0.h5"), "the first image")
        daemon.kill()
        daemon.restart(same_port=True)
        out = running.communicate(timeout=120)
        same(running.returncode, 0, f"exit status, having said {out}")
        same(len(os.listdir(f"{where}/images")), 7, "images and state")


@test("what is wrong with the command is said at once, and once")
def wrong(daemon):
    before = len(jobs(daemon))
    for words, status, says in ((["batch", f"{FOLDER.name}/none"], 1, "cannot be read"), (["batch", tempfile.mkdtemp(dir=FOLDER.name)], 1, "no scan"),
                                (["batch", folder(2), "dcf=wrong"], 1, "bad-parameter"), (["batch", folder(2), "--priority", "x"], 1, "bad-parameter"),
                                (["batch", folder(2), "dcf"], 2, "PARAM=VALUE"), (["batch", folder(2), "--format", "gif"], 2, "gif")):
        done = client(daemon, *words, check=False)
        same(done.returncode, status, f"exit status of {words}: {done.stderr}")
        same((says in done.stderr, done.stderr.count("\n") < 4), (True, True), f"what {words} says: {done.stderr}")
    where = folder(1)
    same(client(daemon, "batch", where, "--out", where, check=False).returncode, 1, "exit status for images among the scans")
    same(len(jobs(daemon)), before, "jobs")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
