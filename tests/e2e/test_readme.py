#!/usr/bin/python3
"""The commands of README.md, in order, in one shell, with the daemon that they start; no failure leaves an image.png.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile

import scans
from harness import BIN, ROOT, SLOW, Daemon, free_port, main, same, test

with open(os.path.join(ROOT, "README.md")) as page:
    FOR_WHOM = page.read().split("## For whom")[1].split("\n## ")[0]
BLOCKS = ["\n".join(line[4:] for line in block.splitlines()) for block in re.findall(r"(?:^    .*\n)+", FOR_WHOM, re.M)]
# The command, to the end of its block, with which each file sends a scan and gets a picture.
SENT_BY = {program: next(re.findall(rf"^{program} .*scan\.h5(?:.|\n)*image\.png.*$", block, re.M) for block in BLOCKS
                         if re.search(rf"^{program} .*scan\.h5", block, re.M))[0] for program in ("mrirecon", "curl")}
HERE = "127.0.0.1:8080"


def environment(folder, server):
    return dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}", HOME=folder, MRIRECON_SERVER=f"http://{server}")


@test("the commands of README.md work unchanged")
def commands():
    assert len(BLOCKS) >= 3, f"only {len(BLOCKS)} blocks were found"
    inline = re.findall(r"`(mrirecon(?:-worker)? [^`]+)`", FOR_WHOM)
    same([words.split()[1] for words in inline], ["simulate", "run"], "commands within the text")
    with tempfile.TemporaryDirectory() as folder:
        scan = f"{folder}/folder/of/scans/one.h5"
        os.makedirs(os.path.dirname(scan))
        scans.radial().write(scan)
        shutil.copy(scan, scan.replace("one", "two"))
        server = f"127.0.0.1:{free_port()}"
        script = "\n".join(["set -e -o pipefail", inline[0], *BLOCKS, inline[1]]).replace(HERE, server)
        shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment(folder, server),
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, start_new_session=True)
        try:
            # The daemon keeps running, and holds the shell's output open.
            status = shell.wait(SLOW)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            told = shell.stdout.read()
        same(status, 0, f"exit status\n{told[-3000:]}\n")
        for name, magic in (("image.png", b"\x89PNG"), ("image.nii.gz", b"\x1f\x8b"), ("image.npy", b"\x93NUMPY")):
            with open(f"{folder}/{name}", "rb") as file:
                assert file.read().startswith(magic), f"{name} is not what it should be"
        assert not os.path.exists(f"{folder}/answer"), "the answer was not saved as the image"
        same(len(re.findall(r"^\w{26}  succeeded  recon ", told, re.M)), 5, f"jobs in the list\n{told[-3000:]}\n")


def send(program, server, content):
    """Run the README's command that sends a scan, with this content; returns (its exit status, its output and answer).
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("scan.h5", content), ("image.png", b"as before")):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(data)
        command = SENT_BY[program].replace(HERE, server)
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment(folder, server), capture_output=True,
                              text=True, timeout=SLOW)
        with open(f"{folder}/image.png", "rb") as file:
            same(file.read(), b"as before", f"image.png after a failure by {program}")
        with contextlib.suppress(FileNotFoundError), open(f"{folder}/answer") as file:
            done.stderr += file.read()
        return done.returncode, done.stderr


GOOD = scans.radial().bytes(tempfile.gettempdir())


@test("a file that is no scan, a full spool, no daemon: image.png is unchanged, with exit status and reason")
def failures():
    with Daemon() as daemon:
        server = daemon.url.removeprefix("http://")
        for program, status in (("mrirecon", 1), ("curl", 22)):
            told = send(program, server, b"this is no scan")
            same(told[0], status, "exit status")
            assert "The file is text" in told[1], told
    for program in ("mrirecon", "curl"):
        told = send(program, server, GOOD)
        assert told[0] != 0, told
        assert re.search("No server answers|Failed to connect", told[1]), told
    with Daemon(spool_limit="1K") as daemon:
        for program in ("mrirecon", "curl"):
            told = send(program, daemon.url.removeprefix("http://"), GOOD)
            assert told[0] != 0 and "spool" in told[1], told


@test("a job that takes longer than curl waits: no image.png, and the answer names the job, which continues")
def slow():
    with Daemon(wait_limit=1) as daemon:
        worker = daemon.worker()
        os.kill(worker, signal.SIGSTOP)
        told = send("curl", daemon.url.removeprefix("http://"), GOOD)
        os.kill(worker, signal.SIGCONT)
        same(told[0], 22, "exit status")
        job = re.search(r'"job_id": "(\w+)"', told[1]).group(1)
        assert "not-done" in told[1], told
        same(daemon.finish(job)["state"], "succeeded", "state")


if __name__ == "__main__":
    main()
