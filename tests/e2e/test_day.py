#!/usr/bin/python3
"""A day of tests/faults/day.py in five seconds; docs/notebook/durability.md has the results of whole days."""
import os
import sys

from harness import ROOT, main, same, test

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import day  # noqa: E402


@test("scanners, a batch, a page and an archive at once, reloads and retention: each job once, with its own image")
def short_day():
    # Too short to bound memory: new processes grow until they have processed each kind of scan.
    lived, wrong = day.run(5, keep=2, flat=False, patients=4, scans=2, batch=12, workers=2)
    same(wrong, [], "what was wrong")
    counts = lived.book.counts
    for what in ("MRD streams", "scans posted whole", "resumable uploads", "images compared", "lists"):
        assert counts[what], f"none of: {what} ({dict(counts)})"
    same((counts["reloads"], len(lived.hours)), (11, 24), "reloads, and hours")


if __name__ == "__main__":
    main()
