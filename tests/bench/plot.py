#!/usr/bin/python3
"""Plots and tables of mrirecond-bench's measurements.

tests/bench/plot.py LINES.jsonl FOLDER

Writes FOLDER/plots/{access,binning,depth,table}.svg and the tables of FOLDER/experiments.md and
FOLDER/notebook/lab-manual.md, between <!-- name --> and <!-- end -->. Standard library only. The repository's own:
tests/bench/plot.py docs/plots/thesis.jsonl docs
"""
import json
import math
import os
import sys
from html import escape

SETS = {
    "koosh-small": "kooshball, 2.7 M samples, 256³",
    "uniform-small": "uniform, 2.7 M samples, 256³",
    "gauss-16": "Gaussian, sd 16, 30.1 M samples, 128³",
    "koosh-large": "kooshball, 30.1 M samples, 576³",
    "uniform-large": "uniform, 30.1 M samples, 576³",
    "tiny": "kooshball, 20,000 samples, 40³",
}
# Colours that are visible on white and on black.
ORANGE, BLUE, SKY, GREEN, PINK, GREY = "#d9742b", "#3b7dd8", "#7fb2e8", "#2f9e5b", "#c2559d", "#8a8f98"
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 13px }
.note { fill: #656d76 }
.axis { stroke: #8a8f98; stroke-width: 1; fill: none }
.rule { stroke: #8a8f98; stroke-opacity: .25; stroke-width: 1 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9198a1 } }
</style>"""


def load(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


class Drawing:
    def __init__(self, width, height, what):
        self.width, self.height, self.parts = width, height, []
        self.what = what

    def text(self, x, y, text, anchor="start", kind=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind="axis"):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def bar(self, x, y, width, height, colour, opacity=1.0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, .5):.1f}" height="{height:.1f}" rx="1.5" '
                          f'fill="{colour}" fill-opacity="{opacity}"/>')

    def curve(self, points, colour, dashes=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not dashes:
            self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]

    def save(self, folder, name):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
                       f'width="{self.width:.0f}" role="img" aria-label="{escape(self.what)}">\n{STYLE}\n')
            file.write("\n".join(self.parts))
            file.write("\n</svg>\n")


def number(value):
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def sets_of(lines):
    return [name for name in list(SETS) + sorted({r["set"] for r in lines} - set(SETS))
            if any(r["set"] == name for r in lines)]


def title_of(name):
    return f"{name}: {SETS[name]}" if name in SETS else name


def depth_of(line):
    if line["depth"] is None:
        return "all"
    return f'{line["depth"] // 1024}k' if line["depth"] >= 1024 else str(line["depth"])


def colour_of(variant):
    if variant.startswith("product"):
        return GREEN
    if variant.startswith("regular"):
        return ORANGE
    return SKY if "padded" in variant or "arrays" in variant else BLUE


def bars(lines, name, folder, what, parts_of, legend=()):
    """Horizontal bars, a panel per set. parts_of(line): [(ms, colour)] of the bar."""
    drawing = Drawing(900, 0, what)
    y, left, right = 20, 310, 780
    x = left
    for label, colour in legend:
        drawing.bar(x, y - 10, 12, 12, colour)
        drawing.text(x + 17, y, label)
        x += 36 + 6.2 * len(label)
    y += 26 if legend else 0
    for set_name in sets_of(lines):
        drawing.text(10, y, title_of(set_name), kind="title")
        y += 12
        rows = [r for r in lines if r["set"] == set_name]
        most = max(sum(ms for ms, _ in parts_of(r)) for r in rows if not r.get("no_room"))
        for r in rows:
            drawing.text(left - 8, y + 12, r["variant"], "end")
            if r.get("no_room"):
                drawing.text(left + 4, y + 12, f'needs {r["bytes"] / 1e9:,.0f} GB: more than the device has',
                             kind="note")
            else:
                x = left
                for ms, colour in parts_of(r):
                    width = ms / most * (right - left)
                    drawing.bar(x, y + 1, width, 14, colour)
                    x += width
                drawing.text(x + 6, y + 12, number(sum(ms for ms, _ in parts_of(r))) + " ms")
            y += 19
        drawing.line(left, y - 19 * len(rows) - 2, left, y)
        y += 28
    drawing.height = y - 10
    drawing.save(folder, name)


STEP_COLOURS = {"mark": GREY, "histogram": ORANGE, "keys": PINK, "sort": BLUE, "largest": SKY, "scan": SKY,
                "place": GREEN, "starts": SKY}


def steps(line):
    if line.get("product"):
        return [(line["binning_ms"], "#1d6f3f")]
    return [(ms, STEP_COLOURS[step]) for step, ms in line["steps_ms"].items()]


def axes(drawing, x, y, width, height, labels, low, high, caption):
    """A logarithmic vertical axis, labelled positions along x; returns a function that places a point."""
    def up(ms):
        return y + height - (math.log10(ms) - math.log10(low)) / (math.log10(high) - math.log10(low)) * height

    def along(i):
        return x + (i + .5) * width / len(labels)

    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        drawing.line(x, up(10**power), x + width, up(10**power), "rule")
        drawing.text(x - 6, up(10**power) + 4, f"{10**power:g}", "end", "note")
    drawing.line(x, y, x, y + height)
    drawing.line(x, y + height, x + width, y + height)
    for i, label in enumerate(labels):
        drawing.text(along(i), y + height + 16, label, "middle", "note")
    drawing.text(x + width / 2, y + height + 33, caption, "middle", "note")
    drawing.text(x - 6, y - 6, "ms", "end", "note")
    return lambda i, ms: (along(i), up(max(ms, low)))


def bounds(values):
    values = [v for v in values if v > 0]
    return min(values) / 1.5, max(values) * 1.5


def product_time(lines):
    """Binning and adjoint of the product with its own kernel, including the FFT."""
    found = [r for r in lines if r["variant"] == "product, separable kernel"]
    return found[0]["binning_ms"] + found[0]["adjoint_ms"] if found else None


DEPTH_CURVES = [  # (variant, field, label, colour)
    ("compact, x-range", "total_ms", "total, compact", BLUE),
    ("regular, count", "total_ms", "total, regular", ORANGE),
    ("compact, x-range", "gather_ms", "GPU, compact", SKY),
    ("regular, count", "gather_ms", "GPU, regular", "#e8b58f"),
    ("compact, x-range", "cpu_ms", "CPU", PINK),
]


def draw_depth(lines, folder, file="depth.svg", time_of_product=product_time, product="product, with FFT"):
    names = sets_of(lines)
    columns, width, height = 2, 390, 220
    rows = math.ceil(len(names) / columns)
    drawing = Drawing(940, 50 + rows * (height + 90), "Time against the depth of bins")
    for i, (_, _, label, colour) in enumerate(DEPTH_CURVES):
        drawing.bar(60 + 130 * i, 8, 12, 12, colour)
        drawing.text(78 + 130 * i, 18, label)
    drawing.bar(60 + 130 * len(DEPTH_CURVES), 12, 14, 3, GREEN)
    drawing.text(80 + 130 * len(DEPTH_CURVES), 18, product)
    for n, name in enumerate(names):
        mine = [r for r in lines if r["set"] == name]
        measured = [r for r in mine if not r.get("product") and not r.get("no_room")]
        labels = []
        for r in measured:
            if depth_of(r) not in labels:
                labels.append(depth_of(r))
        values = [r[field] for r in measured for _, field, _, _ in DEPTH_CURVES] + [time_of_product(mine) or 0]
        low, high = bounds(values)
        x, y = 55 + n % columns * (width + 70), 65 + n // columns * (height + 90)
        drawing.text(x, y - 20, title_of(name), kind="title")
        place = axes(drawing, x, y, width, height, labels, low, high, "depth: samples a bin keeps on the GPU")
        for variant, field, _, colour in DEPTH_CURVES:
            points = [place(labels.index(depth_of(r)), r[field]) for r in measured if r["variant"] == variant
                      and r[field] > 0]
            drawing.curve(points, colour)
        if time_of_product(mine):
            ms = time_of_product(mine)
            drawing.curve([place(-.5, ms), place(len(labels) - .5, ms)], GREEN, "6 4")
    drawing.save(folder, file)


def draw_table(lines, folder):
    names = sorted({r["set"] for r in lines})
    colours = [ORANGE, PINK, BLUE, SKY, GREY]
    tables = ["table 2: regular bins", "table 4: sort-reduce"]
    drawing = Drawing(940, 340, "Total time against capacity, for five standard deviations")
    for i, name in enumerate(names):
        drawing.bar(60 + 100 * i, 8, 12, 12, colours[i % 5])
        drawing.text(78 + 100 * i, 18, name)
    drawing.bar(60 + 100 * len(names), 12, 14, 3, GREEN)
    drawing.text(80 + 100 * len(names), 18, "product, with FFT (all sets)")
    totals = [r["total_ms"] for r in lines if "total_ms" in r]
    products = [product_time([r for r in lines if r["set"] == name]) for name in names]
    low, high = bounds(totals + [p for p in products if p])
    for n, table in enumerate(tables):
        mine = [r for r in lines if r["variant"] == table and "total_ms" in r]
        labels = sorted({r["depth"] for r in mine})
        x, y = 55 + n * 460, 65
        drawing.text(x, y - 20, table + ": total time", kind="title")
        place = axes(drawing, x, y, 390, 220, [str(label) for label in labels], low, high, "capacity of a bin, samples")
        for i, name in enumerate(names):
            drawing.curve([place(labels.index(r["depth"]), r["total_ms"]) for r in mine if r["set"] == name],
                          colours[i % 5])
        for ms in filter(None, products):
            drawing.curve([place(-.5, ms), place(len(labels) - .5, ms)], GREEN, "6 4")
    drawing.save(folder, "table.svg")


def first_of(lines, name, variant):
    return next((r for r in lines if r["set"] == name and r["variant"] == variant), None)


def table(head, rows):
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head)] + rows)


def by_set_table(lines, head, field_of):
    """A row per variant, a column per set."""
    names, variants = sets_of(lines), list(dict.fromkeys(r["variant"] for r in lines))

    def cell(r):
        return "" if r is None else "no room" if r.get("no_room") else number(r[field_of(r)])
    return table([head] + names, [[v] + [cell(first_of(lines, name, v)) for name in names] for v in variants])


def depth_table(lines):
    parts, totals = [], []
    for name in sets_of(lines):
        mine = [r for r in lines if r["set"] == name]
        compact = [r for r in mine if r["variant"] == "compact, x-range"]
        best = min(compact, key=lambda r: r["total_ms"])
        other = min((r for r in mine if r["variant"] == "regular, count" and "total_ms" in r),
                    key=lambda r: r["total_ms"])
        whole = [r for r in compact if r["overflow"] == 0]
        parts.append([name, depth_of(best), f"{best['overflow_percent']:.2f} %"]
                     + [number(best[field]) for field in ("gather_ms", "cpu_ms", "both_ms", "merge_ms")])
        totals.append([name, f"**{number(best['total_ms'])}**", number(whole[0]["total_ms"]) if whole else "",
                       number(compact[0]["total_ms"]), f"{number(other['total_ms'])} ({depth_of(other)})",
                       number(product_time(mine))])
    return (table(["best depth, compact, ms", "depth", "overflow", "GPU alone", "CPU alone", "both at once", "merge"],
                  parts)
            + "\n\n" + table(["total, ms", "best depth, compact", "all on the GPU", "all on the CPU",
                              "best depth, regular (depth)", "product, with FFT"], totals))


TABLE_ROWS = [("overflow, %", "overflow_percent"), ("wasted bin locations, %", "wasted_percent"),
              ("binning, ms", "binning_ms"),
              ("GPU computing, ms", "gather_ms"), ("CPU computing, ms", "cpu_ms"), ("total, ms", "total_ms")]


def lab_table(lines, which):
    names, mine, rows = sorted({r["set"] for r in lines}), [r for r in lines if r["variant"] == which], []
    for capacity in sorted({r["depth"] for r in mine}):
        for label, field in TABLE_ROWS:
            row = [next((r for r in mine if r["set"] == name and r["depth"] == capacity), {}) for name in names]
            rows.append([str(capacity) if label == TABLE_ROWS[0][0] else "", label]
                        + ["no room" if field not in r else f"{r[field]:.2f}" if "percent" in field
                           else number(r[field]) for r in row])
    rows.append(["", "product, with FFT, ms"] + [number(product_time([r for r in lines if r["set"] == name]))
                                                 for name in names])
    return table(["capacity", ""] + ["sd " + name.split("-")[-1] for name in names], rows)


# (claim, its source, expected ratio: time of the one over time of the other)
ACCESS, BINNING = ("access", "gather_ms"), ("binning", "binning_ms")
CLAIMS = [
    ("regular bins: counts beat sentinels", "T 4.1, fig. 23", ACCESS, "regular, sentinel", "regular, count"),
    ("compact bins, read one by one, are slower", "T 4.3.2, fig. 25", ACCESS, "compact, bin by bin", "regular, count"),
    ("reading all bins along x at once is the main gain", "T 4.3.2, fig. 25", ACCESS, "compact, bin by bin",
     "compact, x-range"),
    ("the same on regular bins is harmful (6.82)", "T 4.3.2, fig. 25", ACCESS, "regular, x-range", "regular, count"),
    ("compact bins with x-ranges beat regular bins", "T 4.3.2, fig. 25", ACCESS, "regular, count", "compact, x-range"),
    ("padding samples to 32 bytes is slower", "T 4.3.3, fig. 27", ACCESS,
     "compact, x-range, samples padded to 32 bytes", "compact, x-range"),
    ("arrays of short vectors are slower", "T 4.3.3, fig. 27", ACCESS, "compact, x-range, arrays of float4 and float2",
     "compact, x-range"),
    ("padding bins is slower (x-range)", "T 4.3.3, fig. 27", ACCESS, "compact, x-range, bins padded to 96 bytes",
     "compact, x-range"),
    ("padding bins is slower (bin by bin)", "T 4.3.3, fig. 27", ACCESS, "compact, bin by bin, bins padded to 96 bytes",
     "compact, x-range"),
    ("compact bins take longer to make", "T 4.3.1", BINNING, "compact, atomics again, read first",
     "regular, largest bin first, read first"),
    ("saved indices beat a second round of atomics", "L", BINNING, "compact, atomics again, read first",
     "compact, saved indices, read first"),
    ("reading a counter first beats adding and subtracting", "L", BINNING, "compact, atomics again, add and subtract",
     "compact, atomics again, read first"),
    ("(no claim) a stable radix sort beats saved indices", "today", BINNING, "compact, saved indices, all samples",
     "compact, stable radix sort, all samples"),
]


def best_total(lines, variant):
    return min(r["total_ms"] for r in lines if r["variant"] == variant and "total_ms" in r)


def shared_ratios(lines):
    """Claims on partitioning: (claim, source, ratio of a set's lines)."""
    def compact(mine):
        return [r for r in mine if r["variant"] == "compact, x-range"]
    yield ("CPU and GPU together beat the GPU alone", "T 5.3, fig. 31",
           lambda mine: next(r["total_ms"] for r in compact(mine)
                             if r["overflow"] == 0) / best_total(mine, "compact, x-range"))
    yield ("CPU and GPU together beat the CPU alone", "T 5.3, fig. 31",
           lambda mine: compact(mine)[0]["total_ms"] / best_total(mine, "compact, x-range"))
    yield ("in all, compact bins beat regular ones (1.50)", "T 6, table 5",
           lambda mine: best_total(mine, "regular, count") / best_total(mine, "compact, x-range"))
    yield ("(no claim) the product beats the best of all depths", "today",
           lambda mine: best_total(mine, "compact, x-range") / product_time(mine))


def verdict(ratios):
    """Ratios within 5 % of 1 count as equal."""
    better, worse = sum(r > 1.05 for r in ratios), sum(r < 1 / 1.05 for r in ratios)
    if better == len(ratios):
        return "holds"
    if worse == len(ratios):
        return "falls"
    if better + worse == 0:
        return "no difference"
    counts = {"holds": better, "reversed": worse, "equal": len(ratios) - better - worse}
    return ", ".join(f"{word} {count}" for word, count in counts.items() if count)


def claims_table(by):
    names, rows = sets_of(by["access"]), []
    for claim, source, (experiment, field), slow, fast in CLAIMS:
        ratios = [first_of(by[experiment], name, slow)[field] / first_of(by[experiment], name, fast)[field]
                  for name in names]
        rows.append([claim, source] + [f"{r:.2f}" for r in ratios] + [verdict(ratios)])
    for claim, source, ratio_of in shared_ratios(by["depth"]):
        ratios = [ratio_of([r for r in by["depth"] if r["set"] == name]) for name in names]
        rows.append([claim, source] + [f"{r:.2f}" for r in ratios] + [verdict(ratios)])
    return table(["claim", "source"] + names + ["today"], rows)


# The pages, and the tables of each.
PAGES = {"experiments.md": ("device", "claims", "access", "binning", "depth"),
         "notebook/lab-manual.md": ("device", "table 2", "table 4")}


def insert(text, page, name, content):
    """Replace the text between <!-- name --> and <!-- end -->."""
    head, found, rest = text.partition(f"<!-- {name} -->\n")
    if not found or "<!-- end -->" not in rest:
        sys.exit(f"plot.py: {page} has no <!-- {name} --> ... <!-- end -->")
    return head + found + content + "\n" + rest[rest.index("<!-- end -->"):]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = os.path.join(sys.argv[2], "plots")
    os.makedirs(folder, exist_ok=True)
    lines = load(sys.argv[1])
    by = {name: [r for r in lines if r["experiment"] == name] for name in ("access", "binning", "depth", "table")}
    bars(by["access"], "access.svg", folder, "How bins are read and how they lie in memory",
         lambda r: [(r["adjoint_ms"] if r.get("product") else r["gather_ms"], colour_of(r["variant"]))],
         [("regular", ORANGE), ("compact", BLUE), ("compact, aligned", SKY), ("product, with FFT", GREEN)])
    bars(by["binning"], "binning.svg", folder, "How bins are made", steps,
         [("histogram", ORANGE), ("keys", PINK), ("sort", BLUE), ("scan, starts, largest", SKY), ("place", GREEN),
          ("product", "#1d6f3f")])
    draw_depth(by["depth"], folder)
    draw_table(by["table"], folder)
    tables = {
        "device": f"{lines[0]['date']}, {lines[0]['device']}, {lines[0]['threads']} CPU threads.",
        "claims": claims_table(by),
        "access": by_set_table(by["access"], "gather, ms", lambda r: "adjoint_ms" if r.get("product") else "gather_ms"),
        "binning": by_set_table(by["binning"], "binning, ms", lambda r: "binning_ms"),
        "depth": depth_table(by["depth"]),
        "table 2": lab_table(by["table"], "table 2: regular bins"),
        "table 4": lab_table(by["table"], "table 4: sort-reduce"),
    }
    for page, names in PAGES.items():
        path = os.path.join(sys.argv[2], page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for name in names:
            text = insert(text, page, name, tables[name])
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
