#!/usr/bin/python3
"""Plots and tables of mrirecond-bench's measurements of potentials, blobs and forces.

tests/bench/plot_range.py LINES.jsonl FOLDER

Writes FOLDER/plots/range-{access,depth}.svg and the tables of FOLDER/experiments.md between <!-- range ... --> and
<!-- end -->. The repository's own: tests/bench/plot_range.py docs/plots/thesis-range.jsonl docs
"""
import os
import sys

import plot
from plot import BLUE, GREEN, ORANGE, depth_of, first_of, number, table

SETS = {
    "cutcp-small": "potential, 5,943 charges",
    "cutcp-large": "potential, 570,348 charges",
    "blob-small": "blobs, 1,739 atoms, 360 in one bin",
    "blob-large": "blobs, 26,318 atoms",
    "blob-random": "blobs, 500,000 atoms",
    "nbody-random": "forces, 131,072 bodies, Gaussian",
}
COMPACT, REGULAR = "compact, x-range", "regular, bin by bin"


def names_of(lines):
    return list(dict.fromkeys(r["set"] for r in lines))


def statistics_table(lines):
    return table(["set", "sources", "bins", "least", "most", "mean", "standard deviation"],
                 [[f'{r["set"]} ({SETS.get(r["set"], r["set"])})', f'{r["samples"]:,}', f'{r["bins"]:,}',
                   str(r["least"]), str(r["most"]), number(r["mean"]), number(r["deviation"])] for r in lines])


def access_table(lines):
    names, variants = names_of(lines), list(dict.fromkeys(r["variant"] for r in lines))

    def cell(r):
        return "" if r is None else "no room" if r.get("no_room") else number(r["gather_ms"])
    return table(["sum, ms"] + names, [[v] + [cell(first_of(lines, name, v)) for name in names] for v in variants])


def product_time(lines):
    """Creating the points, and one sum."""
    found = next(r for r in lines if r.get("product"))
    return found["create_ms"] + found["gather_ms"]


def compact(lines):
    return [r for r in lines if r["variant"] == COMPACT]


def best(lines, variant):
    return min((r for r in lines if r["variant"] == variant and "total_ms" in r), key=lambda r: r["total_ms"])


def depth_tables(lines):
    parts, totals = [], []
    for name in names_of(lines):
        mine = [r for r in lines if r["set"] == name]
        least, other = best(mine, COMPACT), best(mine, "regular, count")
        whole = [r for r in compact(mine) if r["overflow"] == 0]
        parts.append([name, depth_of(least), f"{least['overflow_percent']:.2f} %"]
                     + [number(least[field]) for field in ("gather_ms", "cpu_ms", "both_ms", "merge_ms")])
        totals.append([name, f"**{number(least['total_ms'])}**", number(whole[0]["total_ms"]) if whole else "",
                       number(compact(mine)[0]["total_ms"]), f"{number(other['total_ms'])} ({depth_of(other)})",
                       number(product_time(mine))])
    return (table(["best depth, compact, ms", "depth", "overflow", "GPU alone", "CPU alone", "both at once", "merge"],
                  parts)
            + "\n\n" + table(["total, ms", "best depth, compact", "all on the GPU", "all on the CPU",
                              "best depth, regular (depth)", "product"], totals))


# (claim, its source, time of the one, time of the other): the ratio is above 1 if the claim holds.
READINGS = [
    ("compact bins one by one are slower", "fig. 25", "compact, bin by bin", REGULAR),
    ("x-ranges beat bin by bin", "fig. 25", "compact, bin by bin", COMPACT),
    ("x-ranges beat regular bins", "fig. 25", REGULAR, COMPACT),
    ("a list of rows beats all of the box", "L", "compact, x-range, all bins of the box", COMPACT),
    ("the cylinder test pays", "L", "compact, x-range, without the cylinder test", COMPACT),
    ("(no claim) the product's sum is quicker", "today", COMPACT, "product"),
]
TOTALS = [
    ("CPU and GPU beat the GPU alone", "figs. 32-34",
     lambda mine: next((r["total_ms"] for r in compact(mine) if r["overflow"] == 0), None), COMPACT),
    ("CPU and GPU beat the CPU alone", "figs. 32-34", lambda mine: compact(mine)[0]["total_ms"], COMPACT),
    ("in all, compact bins beat regular ones", "table 5", lambda mine: best(mine, "regular, count")["total_ms"],
     COMPACT),
]


def verdict(ratios):
    """Of how many sets the claim holds; ratios within 5 % of 1 count as equal."""
    better, worse = sum(r > 1.05 for r in ratios), sum(r < 1 / 1.05 for r in ratios)
    return f"{better} of {len(ratios)}" + (f", reversed {worse}" if worse else "")


def row(claim, source, ratios):
    return ([claim, source] + ["" if r is None else f"{r:.2f}" for r in ratios]
            + [verdict([r for r in ratios if r is not None])])


def claims_table(access, depth):
    names, rows = names_of(access), []
    for claim, source, slow, fast in READINGS:
        pairs = [(first_of(access, name, slow), first_of(access, name, fast)) for name in names]
        rows.append(row(claim, source, [a["gather_ms"] / b["gather_ms"] if a and "gather_ms" in a else None
                                        for a, b in pairs]))
    sets = [[r for r in depth if r["set"] == name] for name in names]
    for claim, source, of, fast in TOTALS:
        ratios = []
        for mine in sets:
            ratios.append(of(mine) / best(mine, fast)["total_ms"] if mine and of(mine) else None)
        rows.append(row(claim, source, ratios))
    rows.append(row("(no claim) so is its total from the host", "today",
                    [best(mine, COMPACT)["total_ms"] / product_time(mine) if mine else None for mine in sets]))
    return table(["claim", "source"] + names + ["holds"], rows)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    plot.SETS.update(SETS)
    folder = os.path.join(sys.argv[2], "plots")
    os.makedirs(folder, exist_ok=True)
    lines = plot.load(sys.argv[1])
    statistics, access, depth = ([r for r in lines if r["experiment"] == "range-" + name]
                                 for name in ("statistics", "access", "depth"))
    plot.bars(access, "range-access.svg", folder, "How bins are read: potentials, blobs and forces",
              lambda r: [(r["gather_ms"], plot.colour_of(r["variant"]))],
              [("regular", ORANGE), ("compact", BLUE), ("product", GREEN)])
    plot.draw_depth(depth, folder, "range-depth.svg", product_time, "product")
    tables = {
        "range device": f"{lines[0]['date']}, {lines[0]['device']}, {lines[0]['threads']} CPU threads, medians of "
                        f"{lines[0]['runs']}.",
        "range statistics": statistics_table(statistics),
        "range claims": claims_table(access, depth),
        "range access": access_table(access),
        "range depth": depth_tables(depth),
    }
    path = os.path.join(sys.argv[2], "experiments.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, content in tables.items():
        text = plot.insert(text, "experiments.md", name, content)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
