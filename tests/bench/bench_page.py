#!/usr/bin/python3
"""The waiting times of a person at the web page, in a headless Chromium that renders in software.

tests/bench/bench_page.py SCAN.h5 [RUNS]

Prints p50 and the worst of RUNS (default 20) of: a page that is opened without a cache, until the list of jobs is
there; a scan that is chosen, until its picture is on the screen (sent, reconstructed, its middle slice shown), and
until its planes can be moved (the viewer has started); and the longest time without a frame while a list of 10,000 jobs
is scrolled from its first row to its last.
"""
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from browser import Browser  # noqa: E402
from harness import ROOT, Daemon  # noqa: E402

PAGE = os.path.join(ROOT, "build", "share", "mrirecond", "web")

# Milliseconds by the page's own clock from choosing a file to the picture, and to the viewer.
WATCH = """() => {
    window.times = {};
    document.querySelector("input[type=file]").addEventListener("change", () => times.start = performance.now(), true);
    const look = () => {
        const preview = document.querySelector(".stage .preview");
        const shown = document.querySelector(".stage[data-shown]:not([data-shown=''])");
        if (times.start && !times.picture && (shown || (preview?.complete && preview.naturalWidth)))
            times.picture = performance.now() - times.start;
        if (times.start && shown)
            times.planes = performance.now() - times.start;
        else
            requestAnimationFrame(look);
    };
    look();
}"""
SCROLL = """async () => {
    const rows = document.querySelector(".rows");
    const most = rows.scrollHeight - rows.clientHeight;
    let longest = 0, last = performance.now();
    for (let step = 0; step <= 200; step++) {
        rows.scrollTop = most * step / 200;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
    }
    return longest;
}"""


def tell(what, milliseconds):
    print(f"{what}: p50 {statistics.median(milliseconds):.0f} ms, worst {max(milliseconds):.0f} ms", flush=True)


def many_jobs(daemon):
    """An answer with 10,000 jobs for the page's list."""
    job = daemon.run(b"no scan", "kind=recon&name=one.h5")
    jobs = [{**job, "id": f"{10000 - i:026d}", "name": f"job {i}"} for i in range(10000)]
    return {"contentType": "application/json", "body": json.dumps({"jobs": jobs, "next": None})}


def run(scan, runs):
    opened, picture, planes, frames = [], [], [], []
    browser = Browser()
    with Daemon(web_dir=PAGE) as daemon:
        for _ in range(runs):
            with browser.page(daemon) as page:
                page.see(".rows[aria-busy=false]")
                opened.append(page.evaluate("() => performance.now()"))
                page.see("button:text-is('Send a scan')")
                page.evaluate(WATCH)
                page.setInputFiles("input[type=file]", scan)
                page.wait("() => times.planes")
                times = page.evaluate("() => times")
                picture.append(times["picture"])
                planes.append(times["planes"])
        answer = many_jobs(daemon)
        for _ in range(3):
            with browser.page(daemon) as page:
                page.route("**/v1/jobs?*", answer)
                page.fill("[aria-label='Name contains']", "job")
                page.see(".row .name:text-is('job 0')")
                frames.append(page.evaluate(SCROLL))
    browser.close()
    tell("the page, to its list", opened)
    tell("a chosen scan, to its picture", picture)
    tell("a chosen scan, to its planes", planes)
    tell("longest frame of 200 while 10,000 jobs are scrolled", frames)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    run(os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
