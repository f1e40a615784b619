#!/usr/bin/python3
"""What `make demo` runs: a simulated scan, a scan of the user's, and the errors of both."""
import os
import re
import subprocess
import tempfile

import scans
from harness import BIN, ROOT, main, same, test

DEMO = os.path.join(ROOT, "tests", "demo.sh")


def demo(folder, *words, kind=""):
    return subprocess.run([DEMO, os.path.dirname(BIN), *words], cwd=folder, capture_output=True, text=True, timeout=150,
                          env={**os.environ, "KIND": kind})


@test("without a scan: simulates one, saves demo.png and prints the stages' times")
def simulated():
    with tempfile.TemporaryDirectory() as folder:
        done = demo(folder)
        same((done.returncode, done.stderr), (0, ""), "exit status and stderr")
        same(sorted(os.listdir(folder)), ["demo.h5", "demo.png"], "files")
        with open(f"{folder}/demo.png", "rb") as file:
            head = file.read(26)
        same((head[:8], int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")),
             (b"\x89PNG\r\n\x1a\n", 256, 256), "PNG and its size")
        assert re.search(r"grid\w*\s+[\d.]+ ms", done.stdout), done.stdout


@test("of another kind of job: simulates a molecule; a kind without a demo is refused")
def other_kind():
    with tempfile.TemporaryDirectory() as folder:
        for kind, step in (("cutcp", "potential"), ("blob", "surface")):
            done = demo(folder, kind=kind)
            same((done.returncode, done.stderr), (0, ""), f"exit status and stderr of {kind}")
            same(sorted(os.listdir(folder)), ["demo.png", "demo.pqr"], "files")
            assert re.search(rf"{step}\s+[\d.]+ ms", done.stdout), done.stdout
        done = demo(folder, kind="nothing")
        same((done.returncode, "there is no demo of kind nothing" in done.stderr), (1, True), "answer")


@test("with a scan of the user's")
def own():
    with tempfile.TemporaryDirectory() as folder:
        scans.radial().write(f"{folder}/mine.h5")
        done = demo(folder, "mine.h5")
        same((done.returncode, done.stderr), (0, ""), "exit status and stderr")
        same(sorted(os.listdir(folder)), ["demo.png", "mine.h5"], "files")


@test("with a missing file, or one that is no scan: reports it, and leaves no demo.png")
def wrong():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.h5", "w") as file:
            file.write("this is no scan")
        for name, says in (("text.h5", "unknown-format"), ("none.h5", "none.h5 is no file")):
            done = demo(folder, name)
            same(done.returncode, 1, "exit status")
            assert says in done.stderr, done.stderr
        same(os.listdir(folder), ["text.h5"], "files")


if __name__ == "__main__":
    main()
