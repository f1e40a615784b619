#!/usr/bin/python3
"""A few random kills with tests/faults/kills.py; docs/notebook/durability.md has the results of many."""
import json
import os
import sys

from harness import ROOT, main, same, test

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import kills  # noqa: E402


@test("20 random kills under load: no accepted job is lost or run twice, no file is torn or left behind")
def few_kills():
    report = kills.kills(20, clients=3, seed=5)
    assert report["kills"] >= 20 and report["jobs_accepted"] > 0 and report["ends"].get("succeeded"), json.dumps(report)
    for what in ("lost", "duplicated", "torn", "left_behind", "wrong"):
        same(report[what], 0, f"{what} ({report['details']})")


if __name__ == "__main__":
    main()
