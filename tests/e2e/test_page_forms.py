#!/usr/bin/python3
"""The web page, in a headless Chromium: results of each form, from the kinds of job that make them: volumes in planes,
series, coils, surfaces, curves; with axe-core on each of them, and on what the other tests leave out.
time limit: 1200 s
"""
import io
import os
import subprocess

import numpy as np

import scans
from guarded import Guarded
from harness import BIN, Daemon, holding, same, test, wait_until
from pages import FOLDER, KINDS, PAGE, browser, clean, radial, row, run, shown


@test("a series has a slider of frames, and shows each frame's image")
def series(daemon):
    scan = scans.radial(seed=6, spokes=62)
    scan.heads["idx"]["repetition"] = [i // 31 for i in range(62)]
    identity = daemon.run(scan.bytes(FOLDER.name), "kind=recon&name=series.h5")["id"]
    with browser().page(daemon) as page:
        page.click(row(identity))
        shown(page, identity)
        page.see(".slider:has-text('1 of 2')")
        first = page.grey(".stage canvas")
        page.focus(".slider:has-text('Frame') input")
        page.press("ArrowRight")
        page.see(".slider:has-text('2 of 2')")
        page.see(".stage[data-frame='1']")
        wait_until(lambda: page.grey(".stage canvas")["digest"] != first["digest"],
                   "another picture of the other frame")
        page.focus(".stage canvas")
        page.press(",")
        page.see(".stage[data-frame='0']")


@test("coils also have a slider")
def coils(daemon):
    identity = daemon.run(radial(seed=7, coils=3), "kind=recon&name=coils.h5&coils=none&output=complex")["id"]
    with browser().page(daemon) as page:
        page.click(row(identity))
        shown(page, identity)
        page.see(".slider:has-text('Coil'):has-text('1 of 3')")
        first = page.grey(".stage canvas")
        page.fill(".slider:has-text('Coil') input", "2")
        page.see(".slider:has-text('3 of 3')")
        wait_until(lambda: page.grey(".stage canvas")["digest"] != first["digest"], "another picture of the other coil")


@test("without WebGL the same image is drawn on a plain canvas")
def flat(daemon):
    identity = daemon.run(radial(seed=8), "kind=recon&name=flat.h5")["id"]
    with browser().page(daemon, webgl=False) as page:
        page.click(row(identity))
        shown(page, identity)
        before = page.grey(".stage canvas")
        assert before["bright"] > 0.02, f"the image is black: {before['mean']}"
        page.focus(".slider:has-text('White') input")
        page.press("End")
        wait_until(lambda: page.grey(".stage canvas")["mean"] < before["mean"], "the wider window to be darker")


@test("the results of any other kind of job are shown by their formats")
def other_kind():
    page_of = browser()
    with Daemon(web_dir=PAGE, binaries=KINDS) as daemon, page_of.page(daemon) as page:
        page.drop_file("numbers.csv", b"1,2,2,3\n")  # the extension selects the kind
        page.see(".job[data-state=succeeded]")
        page.see(".plot canvas")
        both = daemon.run(b"1,2,2,3\n", "kind=histogram&results=histogram,counts")["id"]
        page.click(row(both))
        page.see(f".job[data-job='{both}'] .plot canvas")
        same(page.text(".tabs [aria-pressed=true]"), "histogram", "the result that is shown first")
        page.click(".tabs button:text-is('counts')")
        page.see("text=counts is a file to be downloaded.")


def simulated(name, *options):
    """A file that `mrirecon simulate` makes."""
    path = os.path.join(FOLDER.name, name)
    subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", *options, "--out", path], check=True,
                   stdout=subprocess.DEVNULL)
    with open(path, "rb") as file:
        return file.read()


def array_of(daemon, job, result):
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job}/results/{result}?format=npy").expect(200).body))


def drawn(page, before=None):
    """The picture on the canvas, once it is not that of before, nor black."""
    def look():
        seen = page.grey(".stage canvas")
        return seen if seen["mean"] > 1 and seen["digest"] != before else None
    return wait_until(look, "a picture, other than before")["digest"]


@test("a stack in three planes: keys and clicks move the crosshair, the window and the planes change the picture")
def planes(daemon):
    stack = simulated("stack.h5", "--trajectory", "stack-of-stars", "--matrix", "24x20x8", "--coils", "2")
    identity = daemon.run(stack, "kind=recon&name=stack.h5")["id"]
    for webgl in (True, False):
        with browser().page(daemon, webgl=webgl) as page:
            page.click(row(identity))
            shown(page, identity)
            page.see(".place:has-text('24 × 20 × 8')")
            picture, place = drawn(page), page.text(".place")
            page.focus(".stage canvas")
            for key, voxel in (("ArrowRight", "13, 10, 4"), ("ArrowUp", "13, 11, 4"), ("PageUp", "13, 11, 5"),
                               ("PageDown", "13, 11, 4"), ("ArrowDown", "13, 10, 4"), ("ArrowLeft", "12, 10, 4")):
                page.press(key)
                page.wait("(before) => document.querySelector('.place').innerText !== before", place)
                place = page.text(".place")
                assert webgl or place.endswith("Voxel " + voxel), place
                picture = drawn(page, picture)
            page.click(".stage canvas", {"position": {"x": 300, "y": 300}})
            page.wait("(before) => document.querySelector('.place').innerText !== before", place)
            for layout in ("axial", "coronal", "sagittal", *(["render"] if webgl else []), "planes"):
                page.selectOption("[aria-label='Planes']", layout)
                picture = drawn(page, picture)
            clean(page)
            page.focus(".slider:has-text('Black') input")
            page.press("PageUp")
            picture = drawn(page, picture)
            page.click("button:text-is('Reset window')")
            picture = drawn(page, picture)
            page.click("button:text-is('Smooth')")
            drawn(page, picture)


@test("a surface of blob: its triangles are counted and drawn; its volume of the same job is a tab away")
def surface(daemon):
    molecule = simulated("chain.pqr", "--particles", "chain", "--points", "120")
    identity = daemon.run(molecule, "kind=blob&spacing=1&results=volume,mesh&name=chain.pqr")["id"]
    ply = daemon.get(f"/v1/jobs/{identity}/results/mesh?format=ply").expect(200).body
    faces = int(ply.split(b"element face ")[1].split()[0])
    with browser().page(daemon) as page:
        page.click(row(identity))
        shown(page, identity)
        shape = " × ".join(str(n) for n in array_of(daemon, identity, "volume").shape[::-1])
        page.see(f".place:has-text('{shape}')")
        drawn(page)
        page.click(".tabs button:text-is('mesh')")
        page.see(f".place:has-text('{faces:,} triangles')")
        picture = drawn(page)
        clean(page)
        page.evaluate("""() => {
            const canvas = document.querySelector('.stage canvas'), box = canvas.getBoundingClientRect();
            const at = (x) => ({clientX: box.x + x, clientY: box.y + 200, bubbles: true, button: 0, buttons: 1});
            canvas.dispatchEvent(new MouseEvent('mousedown', at(300)));
            canvas.dispatchEvent(new MouseEvent('mousemove', at(420)));
            canvas.dispatchEvent(new MouseEvent('mouseup', at(420)));
        }""")
        drawn(page, picture)  # turned


@test("a potential of cutcp is a volume of its lattice's size")
def potential(daemon):
    water = simulated("water.pqr", "--particles", "water", "--points", "300")
    identity = daemon.run(water, "kind=cutcp&spacing=1&cutoff=6&name=water.pqr")["id"]
    shape = array_of(daemon, identity, "potential").shape[::-1]
    with browser().page(daemon) as page:
        page.click(row(identity))
        shown(page, identity)
        page.see(f".place:has-text('{' × '.join(map(str, shape))}')")
        picture = drawn(page)
        page.focus(".stage canvas")
        page.press("PageUp")
        drawn(page, picture)


@test("the series of nbody are curves over the step; its bodies are a file")
def curves(daemon):
    sphere = simulated("sphere.gadget", "--particles", "plummer", "--points", "300")
    identity = daemon.run(sphere, "kind=nbody&steps=5&dt=0.001&results=particles,series&name=sphere")["id"]
    table = daemon.get(f"/v1/jobs/{identity}/results/series?format=csv").body.decode()
    names = next(line for line in table.splitlines() if not line.startswith("#")).split(",")
    with browser().page(daemon) as page:
        page.click(row(identity))
        page.see(f".job[data-job='{identity}'] .plot canvas")
        same(page.text(".tabs [aria-pressed=true]"), "series", "the result that is shown first")
        same(page.evaluate("() => [...document.querySelectorAll('.u-legend .u-label')].map((x) => x.innerText)"),
             [name.strip() for name in names], "names of the curves")
        clean(page)
        page.click(".tabs button:text-is('particles')")
        page.see("text=particles is a file to be downloaded.")


@test("axe-core reports no violation of the login, a running job, and files over the page")
def accessible():
    page_of = browser()
    with Guarded(web_dir=PAGE) as daemon, page_of.page(daemon) as page:
        page.expected = ("401 (Unauthorized)",)
        page.see("#token")
        clean(page)
        page.fill("#token", "wrong")
        page.press("Enter")
        page.see(".login [role=alert]")
        clean(page)
    with Daemon(web_dir=PAGE, environment=holding(), cancel_grace=600) as daemon, page_of.page(daemon) as page:
        with daemon.held("density") as go_on:
            identity = daemon.submit(scans.slow().bytes(FOLDER.name), "kind=recon&name=slow.h5&dcf=pipe&"
                                     "dcf_iterations=1000&tolerance=1e-5").expect(202).json()["id"]
            page.click(row(identity))
            page.see(".stage.working progress")
            page.see(row(identity) + " progress")
            clean(page)
            page.evaluate("""() => {
                const transfer = new DataTransfer();
                transfer.items.add(new File(["x"], "knee.h5"));
                document.body.dispatchEvent(
                    new DragEvent("dragenter", {dataTransfer: transfer, bubbles: true, cancelable: true}));
            }""")
            page.see(".veil:has-text('Let go to send.')")
            clean(page)
            go_on.still()
            daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
        page.see(row(identity) + "[data-state=canceled]")



if __name__ == "__main__":
    run()
