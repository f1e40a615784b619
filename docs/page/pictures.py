#!/usr/bin/python3
"""Make the pictures of docs/page.md anew, from the page as it is built (make web): docs/page/pictures.py [NAME ...]

By hand, when the page looks different: pictures differ from machine to machine, so no test compares them. Simulated
scans, a real daemon, a headless Chromium; cwebp compresses.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "e2e"))
import scans  # noqa: E402
from browser import Browser  # noqa: E402
from harness import BIN, Daemon, wait_until  # noqa: E402
from pages import FOLDER, PAGE, row, shown  # noqa: E402
from receiver import Receiver, write  # noqa: E402

SIZE = {"width": 1280, "height": 800}


def simulate(name, *options):
    """The file of a simulated scan."""
    path = os.path.join(FOLDER.name, name)
    subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", "--out", path, *options], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def ran(daemon, path, query=""):
    """The id of a job of this file that has ended."""
    kind = "recon" if path.endswith(".h5") else "cutcp"
    with open(path, "rb") as file:
        return daemon.run(file.read(), f"kind={kind}&name={os.path.basename(path)}{query}")["id"]


def take(page, name):
    """A picture of the page, when it has come to rest."""
    last = [b""]

    def rests():
        before, last[0] = last[0], page.picture()
        return before == last[0]
    wait_until(rests, "a page that rests")
    png = write(FOLDER.name, name + ".png", "")
    with open(png, "wb") as file:
        file.write(last[0])
    subprocess.run(["cwebp", "-quiet", "-q", "80", png, "-o", os.path.join(HERE, name + ".webp")], check=True)
    print(f"{name}.webp")


def select(page, identity):
    page.click(row(identity))
    shown(page, identity)
    page.hover(".title h2")  # a row below the pointer shows buttons


def image(page, jobs):
    select(page, jobs["spiral"])


def planes(page, jobs):
    select(page, jobs["stack"])


def failure(page, jobs):
    page.click(row(jobs["odd"]))
    page.see(".failure")


def again(page, jobs):
    select(page, jobs["golden_34"])
    page.click("button:text-is('Same again with…')")
    page.fill("[aria-label='Find a parameter']", "method")
    page.selectOption("#parameter-method", "l1-wavelet")


def flip(page, jobs):
    select(page, jobs["golden_300"])
    page.press("p")
    select(page, jobs["golden_34"])
    page.press("f")
    shown(page, jobs["golden_300"])


SCENES = {"image": (image, "dark"), "planes": (planes, "light"), "failure": (failure, "light"),
          "again": (again, "dark"), "flip": (flip, "light")}


def jobs_make(daemon):
    odd = scans.radial(seed=2, weights=False)
    odd.traj *= 3.7 / 0.5
    golden = ("--trajectory", "golden", "--matrix", "192")
    odd_path = os.path.join(FOLDER.name, "odd_unit.h5")
    odd.write(odd_path)
    return {"water": ran(daemon, simulate("water.pqr", "--particles", "water")),
            "stack": ran(daemon, simulate("stack_of_stars.h5", "--trajectory", "stack-of-stars", "--matrix",
                                          "96x96x32", "--coils", "4")),
            "series": ran(daemon, simulate("series.h5", "--matrix", "96", "--frames", "8", "--coils", "4")),
            "golden_34": ran(daemon, simulate("golden_34.h5", *golden, "--readouts", "34")),
            "golden_300": ran(daemon, simulate("golden_300.h5", *golden, "--readouts", "300")),
            "spiral": ran(daemon, simulate("spiral_8ch.h5", "--trajectory", "spiral", "--matrix", "192")),
            "odd": ran(daemon, odd_path)}


def scenes(browser, wanted):
    with Daemon(web_dir=PAGE, keep_scans="all") as daemon:
        jobs = jobs_make(daemon)
        for name, (scene, colours) in SCENES.items():
            if name in wanted:
                with browser.page(daemon, colorScheme=colours, viewport=SIZE) as page:
                    scene(page, jobs)
                    take(page, name)


def deliveries(browser):
    """One delivery that succeeded, one that failed for good, one that waits."""
    with Receiver(answers=[204, 410, 500, 500, 500]) as receiver:
        secret = write(FOLDER.name, "archive.secret", "a key of the pictures")
        text = (f"destination archive webhook http://127.0.0.1:{receiver.port}/archive secret={secret} retry=3600 "
                "retry-most=3600\n")
        with Daemon(web_dir=PAGE, destinations=write(FOLDER.name, "destinations", text)) as daemon:
            for number, name in enumerate(("knee.h5", "brain.h5", "phantom.h5")):
                ran(daemon, simulate(name, "--matrix", "96", "--coils", "4"), "&destination=archive")
                wait_until(lambda: len(receiver.got) > number, "the delivery")
            with browser.page(daemon, path="/ui/#deliveries", colorScheme="light",
                              viewport={**SIZE, "height": 480}) as page:
                page.selectOption("[aria-label='State of deliveries']", "")
                page.see("td:has-text('Waiting')")
                take(page, "deliveries")


def main():
    wanted = sys.argv[1:] or [*SCENES, "deliveries"]
    browser = Browser()
    try:
        scenes(browser, wanted)
        if "deliveries" in wanted:
            deliveries(browser)
    finally:
        browser.close()
        FOLDER.cleanup()


if __name__ == "__main__":
    main()
