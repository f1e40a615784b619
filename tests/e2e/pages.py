"""What the tests of the web page share: one browser, scans, and what they look at in a page."""
import os
import tempfile

import scans
from browser import Browser
from harness import BIN, ROOT, Daemon, main, same, skip

BROWSER = None
FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-page-")
PAGE = os.path.join(ROOT, "build", "share", "mrirecond", "web")
KINDS = os.path.join(os.path.dirname(BIN), "kinds")


def browser():
    """The browser of this program, started by the first test that needs it."""
    global BROWSER
    if not os.path.exists(os.path.join(PAGE, "index.html")):
        skip("the page is not built (make web builds it)")
    if BROWSER is None:
        BROWSER = Browser()
    return BROWSER


def start():
    return Daemon(web_dir=PAGE) if os.path.exists(PAGE) else Daemon()


def run():
    """The main program of these tests."""
    try:
        main(start)
    finally:
        if BROWSER is not None:
            BROWSER.close()
        FOLDER.cleanup()


def radial(seed=1, **shape):
    return scans.radial(seed=seed, **shape).bytes(FOLDER.name)


def row(identity):
    return f'[role=row][data-job="{identity}"]'


def shown(page, identity):
    """Wait until the window shows a job's image."""
    page.see(f'.stage[data-shown="{identity}"]')


def clean(page):
    """Assert that axe-core reports no violation."""
    with open(os.path.join(ROOT, "build", "web", "node_modules", "axe-core", "axe.min.js")) as file:
        page.evaluate("() => { " + file.read() + " }")
    found = page.evaluate("async () => (await axe.run()).violations.map(({id, nodes}) =>"
                          " id + ': ' + nodes.map(({html}) => html.slice(0, 160)).join(' | '))")
    same(found, [], "what axe-core objects to")
