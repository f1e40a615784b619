#!/usr/bin/python3
"""The plots and tables of docs/experiments.md and docs/notebook/lab-manual.md match the measurements beside them."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import ROOT, main, same, test

DOCS = os.path.join(ROOT, "docs")
LINES = os.path.join(DOCS, "plots", "thesis.jsonl")
RANGE_LINES = os.path.join(DOCS, "plots", "thesis-range.jsonl")
PAGES = ("experiments.md", "notebook/lab-manual.md")


def remade(lines=LINES, range_lines=RANGE_LINES):
    """Names and contents of the pages and plots that plot.py and plot_range.py make from these lines."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "notebook"))
        for page in PAGES:
            shutil.copy(os.path.join(DOCS, page), os.path.join(folder, page))
        for script, measured in (("plot.py", lines), ("plot_range.py", range_lines)):
            done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", script), measured, folder],
                                  capture_output=True, text=True, timeout=120)
            same((done.returncode, done.stderr), (0, ""), f"{script}'s end")
        return contents(folder)


def contents(folder):
    found = {}
    for path in glob.glob(os.path.join(folder, "plots", "*.svg")) + [os.path.join(folder, page) for page in PAGES]:
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)] = file.read()
    return found


@test("the pages and the plots are what the scripts make of the measurements")
def in_step():
    now = contents(DOCS)
    same(sorted(now), ["access.svg", "binning.svg", "depth.svg", "experiments.md", "lab-manual.md", "range-access.svg",
                       "range-depth.svg", "table.svg"], "files")
    for name, text in remade().items():
        assert text == now[name], f"docs: {name} does not match the measurements: run " \
            "tests/bench/plot.py docs/plots/thesis.jsonl docs, and " \
            "tests/bench/plot_range.py docs/plots/thesis-range.jsonl docs"


def with_slower(path, experiment):
    """A file of these measurements, in which the first of this experiment takes three times as long."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    next(line for line in lines if line["experiment"] == experiment)["gather_ms"] *= 3
    changed = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    changed.write("\n".join(map(json.dumps, lines)))
    changed.flush()
    return changed


@test("a different measurement changes the page and the plot")
def sensitive():
    now = contents(DOCS)
    with with_slower(LINES, "access") as one, with_slower(RANGE_LINES, "range-access") as other:
        for changed, plot in ((remade(lines=one.name), "access.svg"),
                              (remade(range_lines=other.name), "range-access.svg")):
            same(sorted(name for name in now if changed[name] != now[name]), sorted([plot, "experiments.md"]),
                 "what has changed")


@test("every measured result was compared with its reference, and the pages link to plots that exist")
def compared():
    for path in (LINES, RANGE_LINES):
        with open(path, encoding="utf-8") as file:
            for line in map(json.loads, file):
                error, most = (line["image_error"], 2e-2) if "image_error" in line else (line.get("error", 0), 1e-4)
                compared_not = line.get("no_room") or line["experiment"] == "range-statistics"
                assert compared_not or 0 < error <= most, line
    for page in PAGES:
        with open(os.path.join(DOCS, page), encoding="utf-8") as file:
            for name in re.findall(r"\]\(([^)]*plots/[^)]+)\)", file.read()):
                assert os.path.exists(os.path.join(DOCS, os.path.dirname(page), name)), name


if __name__ == "__main__":
    main()
