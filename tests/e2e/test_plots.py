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
PAGES = ("experiments.md", "notebook/lab-manual.md")


def remade(lines):
    """Names and contents of the pages and plots that plot.py makes from these lines."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "notebook"))
        for page in PAGES:
            shutil.copy(os.path.join(DOCS, page), os.path.join(folder, page))
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", "plot.py"), lines, folder],
                              capture_output=True, text=True, timeout=120)
        same((done.returncode, done.stderr), (0, ""), "plot.py's end")
        return contents(folder)


def contents(folder):
    found = {}
    for path in glob.glob(os.path.join(folder, "plots", "*.svg")) + [os.path.join(folder, page) for page in PAGES]:
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)] = file.read()
    return found


@test("the pages and the plots are what plot.py makes of thesis.jsonl")
def in_step():
    now = contents(DOCS)
    same(sorted(now), ["access.svg", "binning.svg", "depth.svg", "experiments.md", "lab-manual.md", "table.svg"],
         "files")
    for name, text in remade(LINES).items():
        assert text == now[name], \
            f"docs: {name} does not match thesis.jsonl: run tests/bench/plot.py docs/plots/thesis.jsonl docs"


@test("a different measurement changes the page and the plot")
def sensitive():
    with open(LINES, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    first = next(line for line in lines if line["experiment"] == "access")
    first["gather_ms"] *= 3
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(map(json.dumps, lines)))
        file.flush()
        changed = remade(file.name)
    now = contents(DOCS)
    same(sorted(name for name in now if changed[name] != now[name]), ["access.svg", "experiments.md"],
         "what has changed")


@test("every measured result was compared with its reference, and the pages link to plots that exist")
def compared():
    with open(LINES, encoding="utf-8") as file:
        for line in map(json.loads, file):
            error, most = (line["image_error"], 2e-2) if line.get("product") else (line.get("error", 0), 1e-4)
            assert line.get("no_room") or 0 < error <= most, line
    for page in PAGES:
        with open(os.path.join(DOCS, page), encoding="utf-8") as file:
            for name in re.findall(r"\]\(([^)]*plots/[^)]+)\)", file.read()):
                assert os.path.exists(os.path.join(DOCS, os.path.dirname(page), name)), name


if __name__ == "__main__":
    main()
