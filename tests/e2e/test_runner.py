#!/usr/bin/python3
"""tests/run itself: everything that must fail does fail."""
# time limit: 300 s
import importlib.machinery
import importlib.util
import os
import subprocess
import tempfile

from harness import ROOT, main, same, test

FOLDER = tempfile.TemporaryDirectory()


def run(text, *words):
    """Run tests/run on one shell script; returns the last line, all lines and the exit status."""
    path = os.path.join(FOLDER.name, "program")
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    done = subprocess.run([os.path.join(ROOT, "tests", "run"), *words, path], capture_output=True, text=True,
                          timeout=120)
    same(done.stderr, "", "the runner's stderr")
    return done.stdout.splitlines()[-1], done.stdout, done.returncode


@test("passes and skips are counted, the reason of a skip is shown")
def good():
    last, text, status = run("echo 1..2; echo ok 1 - a; echo 'ok 2 - b # SKIP no scan here'")
    same((last, status), ("1 passed, 0 failed, 1 skipped", 0), "end")
    assert "no scan here" in text, text


@test("cmocka's skips are recognised: the reason is on the line before")
def cmocka():
    last, text, status = run("echo 1..1; echo no scan here; echo 'not ok 1 # SKIP name'")
    same((last, status), ("0 passed, 0 failed, 1 skipped", 0), "end")
    assert "SKIPPED name: no scan here" in text, text


@test("each of these fails: not ok, wrong plans, exit 1, a signal, output on stderr, a timeout, no such program")
def bad():
    for text, says in (("echo 1..1; echo not ok 1 - a", "not ok 1 - a"), ("echo 1..2; echo ok 1 - a", "planned 2"),
                       ("echo 1..1; echo ok 1; echo ok 2", "planned 1"),
                       ("echo ok 1", "no plan"), ("echo 1..1; echo ok 1; exit 1", "exited with 1"),
                       ("echo 1..1; echo ok 1; kill -SEGV $$", "SIGSEGV"),
                       ("echo 1..1; echo ok 1; echo oops >&2", "oops"),
                       ("# time limit: 1 s\necho 1..1; echo ok 1; sleep 30", "time limit of 1 s"), ("", "no plan")):
        last, shown, status = run(text)
        same(status, 1, f"exit status for {text!r}")
        assert says in shown, f"{says!r} is not in {shown!r}"
        assert ", 0 failed," not in last and last.endswith("skipped"), last
    done = subprocess.run([os.path.join(ROOT, "tests", "run"), "/no/such/program"], capture_output=True, text=True,
                          timeout=120)
    same((done.returncode, done.stdout.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"),
         "end for a program that is not there")


@test("tests/gpu/sanitize.py: a name that no run has, or a slice of no part, is refused; --list lists the runs")
def sanitizer():
    def ended(*words):
        done = subprocess.run([os.path.join(ROOT, "tests", "gpu", "sanitize.py"), *words], capture_output=True,
                              text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr
    for words, says in ((["test_gpu_vec", "gpu_vecs"], '"gpu_vecs": --list'), (["--slice", "3/2"], "--slice 3/2"),
                        (["--slice", "0/2"], "--slice 0/2")):
        status, out, told = ended(*words)
        assert status == 2 and not out and says in told, (words, status, out, told)
    same(ended("--list", "gpu_vec", "test_gpu_lines"), (0, "test_gpu_lines\ntest_gpu_vec\n", ""), "the list")


def runner():
    """tests/run as a module."""
    loader = importlib.machinery.SourceFileLoader("runner", os.path.join(ROOT, "tests", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@test("of three programs at a time one is a binary while there are scripts, and each program is run once")
def turns():
    script, binary = os.path.join(ROOT, "tests", "run"), "/bin/true"
    queue = runner().Queue([(script, 1), (script, 2), (binary, 1), (script, 3), (binary, 2), (binary, 3)])
    same([queue.take(lane) for lane in (0, 1, 2, 3, 4, 5, 0, 1)],
         [(script, 1), (script, 2), (binary, 1), (script, 3), (binary, 2), (binary, 3), None, None], "programs taken")


@test("tests of a daemon that lacks something are skipped with the reason; the others run")
def lacking():
    program = ("from harness import main, skip, test; test(\"one\")(lambda daemon: None); test(\"two\")(lambda: None); "
               "main(lambda: skip(\"no such library\"))")
    last, text, status = run(f"cd {ROOT}/tests/e2e; exec python3 -c '{program}'")
    same((last, status), ("1 passed, 0 failed, 2 skipped", 0), "end")
    assert "SKIPPED one: no such library" in text, text


@test("naming no program is a failure: an empty list must not pass")
def nothing():
    same(subprocess.run([os.path.join(ROOT, "tests", "run")], capture_output=True, timeout=120).returncode, 1,
         "exit status")


if __name__ == "__main__":
    main()
