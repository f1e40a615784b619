#!/usr/bin/python3
"""tests/faults/fulldisk.py with few jobs: a full disk, a disk without inodes, and a process without descriptors lose no
accepted job.
"""
import json
import os
import sys

from harness import ROOT, main, same, skip, test

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import fulldisk  # noqa: E402


def nothing_lost(name, code):
    try:
        report = fulldisk.case(name, jobs=8, seconds=2.5)
    except fulldisk.CannotMount as reason:
        skip(str(reason))
    same((report["lost"], report["scans_lost"], report["wrong_images"], report["attempts_most"]), (0, 0, 0, 1),
         f"what was lost, and the attempts ({json.dumps(report)})")
    same(report["refused_with"][1], code, "code with which a submission was refused")
    return report


@test("a disk filled by another program: accepted jobs wait, /readyz says why, and all succeed afterwards")
def full_of_bytes():
    report = nothing_lost("bytes", "spool-full")
    assert report["ready"][0] == 503 and "MB free" in report["ready"][1], report["ready"]


@test("a disk that is full when results are written, without a reserve: the running job waits, and none fails")
def full_at_work():
    report = nothing_lost("bytes-at-work", "spool-full")
    same(list(report["put_back"]), ["spool-full"], "why jobs were put back")


@test("a disk without inodes: accepted jobs wait, the reason is reported, and all succeed afterwards")
def full_of_files():
    report = nothing_lost("inodes", "spool-full")
    assert (report["ready"][0] == 503 and "inodes" in report["ready"][1]
            and "inodes" in report["refused_with"][2]), report


@test("a daemon without file descriptors: accepted jobs wait, submissions are refused with the reason")
def no_descriptors():
    report = nothing_lost("descriptors", "out-of-descriptors")
    same(list(report["put_back"]), ["out-of-descriptors"], "why jobs were put back")


if __name__ == "__main__":
    main()
