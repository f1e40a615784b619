#!/usr/bin/python3
"""The web page, in a headless Chromium, against a real daemon: sending a scan and seeing its image; a failure, its
reason, and running it again with one parameter changed; flipping between two jobs in one window; progress; series; the
keyboard alone; dark and light; a restart of the daemon; tokens and roles; ten thousand jobs. Each test ends with
nothing in the console, no violation of the policy and no request to another origin. time limit: 600 s
"""
import contextlib
import json
import os
import sqlite3
import subprocess
import tempfile
import urllib.parse

import scans
from browser import Browser
from guarded import Guarded
from harness import BIN, ROOT, SLOW, Daemon, free_port, holding, main, same, skip, test, wait_until
from receiver import Receiver, write

BROWSER = None
FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-page-")
PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "build", "share",
                    "mrirecond", "web")


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


def radial(seed=1, **shape):
    return scans.radial(seed=seed, **shape).bytes(FOLDER.name)


def row(identity):
    return f'[role=row][data-job="{identity}"]'


def shown(page, identity):
    """Wait until the window shows a job's image."""
    page.see(f'.stage[data-shown="{identity}"]')


def clean(page):
    """Assert that axe-core reports no violation."""
    with open(os.path.join(os.path.dirname(PAGE), "..", "..", "web", "node_modules", "axe-core", "axe.min.js")) as file:
        page.evaluate("() => { " + file.read() + " }")
    found = page.evaluate("async () => (await axe.run()).violations.map(({id, nodes}) =>"
                          " id + ': ' + nodes.map(({html}) => html.slice(0, 160)).join(' | '))")
    same(found, [], "what axe-core objects to")


@test("a scan that is dropped becomes a job, and its image is shown")
def drop(daemon):
    with browser().page(daemon) as page:
        page.drop_file("knee.h5", radial())
        page.see(".row.selected .name:text-is('knee.h5')")
        page.see(".row.selected[data-state=succeeded]")
        identity = page.getAttribute(".row.selected", "data-job")
        same(daemon.job(identity)["name"], "knee.h5", "name of the job")
        shown(page, identity)
        page.see(".row.selected .thumbnail img")
        seen = page.grey(".stage")
        assert seen["bright"] > 0.02, f"the image is black: {seen['mean']}"
        same(page.text(".title h2"), "knee.h5")
        page.see("h3:text-is('Stages')")
        page.see(".decisions dt:text-is('trajectory unit')")
        same(page.text("pre[aria-label='With curl']"), "curl -sS --fail-with-body --data-binary @knee.h5 -o job.json "
             f"'{daemon.url}/v1/jobs?kind=recon'", "the line for curl")
        same(page.getAttribute(".downloads a:text-matches('^h5')", "href"),
             f"/v1/jobs/{identity}/results/image?format=h5")


def run_lines(page, what, *command, **environment):
    """Run the lines that the page shows, in a folder with the scan; the document of the job that they make."""
    line = page.text(f"pre[aria-label='With {what}']")
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "clients", "python"), **environment}
    subprocess.run([*command, line + ("\nprint(job.id)" if what == "Python" else "")], cwd=FOLDER.name, check=True,
                   env=environment, stdout=subprocess.PIPE, timeout=SLOW)
    return line


@test("the lines for curl and Python run, with values and names that need quotes, and with a token")
def lines():
    page_of = browser()
    name = "it's a \"knee\" & more.h5"
    with open(os.path.join(FOLDER.name, name), "wb") as file:
        file.write(radial(seed=31))
    query = "kind=recon&method=cg-sense&lambda=0.02&results=image&" + urllib.parse.urlencode({"name": name})
    with Guarded(web_dir=PAGE) as daemon, page_of.page(daemon) as page:
        page.expected = ("401 (Unauthorized)",)
        sent = daemon.as_("submit", "POST", f"/v1/jobs?{query}", radial(seed=31)).expect(202).json()["id"]
        page.fill("#token", daemon.token["submit"])
        page.press("Enter")
        page.click(row(sent))
        page.see("pre[aria-label='With Python']")
        parameters = daemon.as_("submit", "GET", f"/v1/jobs/{sent}").json()["parameters"]
        for what, command in (("curl", ("bash", "-c")), ("Python", ("/usr/bin/python3", "-c"))):
            line = run_lines(page, what, *command, MRIRECON_TOKEN=daemon.token["submit"])
            assert daemon.token["submit"] not in line, "the token is on the screen"
            made = daemon.as_("submit", "GET", "/v1/jobs?limit=1").json()["jobs"][0]
            assert made["id"] > sent, f"{what} made no job"
            same(made["parameters"], parameters, f"parameters of the job by {what}")
            sent = made["id"]
        with open(os.path.join(FOLDER.name, "job.json")) as file:
            same(json.load(file)["kind"], "recon", "the answer that curl has saved")


@test("a large file is sent as a resumable upload, which continues after a lost connection")
def resumable(daemon):
    path = os.path.join(FOLDER.name, "large.h5")
    scans.radial(seed=18, spokes=1100, samples=512, coils=8).write(path)
    assert os.path.getsize(path) > 32 << 20, os.path.getsize(path)
    with browser().page(daemon) as page:
        page.expected = ("ERR_CONNECTION_RESET",)
        page.see("button:text-is('Send a scan')")
        page.refuse("**/v1/uploads/*")
        page.setInputFiles("input[type=file]", path)
        page.see(".row.selected .name:text-is('large.h5')")
        page.see(".job[data-state=succeeded]")
        identity = page.getAttribute(".job", "data-job")
        same(daemon.job(identity)["bytes"], os.path.getsize(path), "size of the job's scan")
        # It was a resumable upload, and the connection was lost on the way:
        upload = daemon.get(f"/v1/uploads/{identity}").expect(200)
        same(upload.headers["content-location"], f"/v1/jobs/{identity}")
        assert any("ERR_CONNECTION_RESET" in line for line in page.trouble()), "no request was refused"


@test("a failure shows its message; its proposal changes one parameter, and the image appears")
def failure(daemon):
    scan = scans.radial(seed=2, weights=False)
    scan.traj *= 3.7 / 0.5
    failed = daemon.run(scan.bytes(FOLDER.name), "kind=recon&name=odd.h5")
    same(failed["error"]["code"], "trajectory-scaling-ambiguous", "code")
    with browser().page(daemon) as page:
        page.click(row(failed["id"]))
        page.see(".failure")
        same(page.text(".failure p"), failed["error"]["detail"], "the failure's sentence")
        same(page.text(row(failed["id"]) + " .sentence"), failed["error"]["detail"], "the sentence in the list")
        page.click("button:text-is('Change parameters and run again')")
        page.selectOption("#parameter-traj_units", "grid")
        page.see("button:text-is('Run with 1 change')")
        page.click("button:text-is('Run with 1 change')")
        page.see(".job[data-state=succeeded]")
        identity = page.getAttribute(".job", "data-job")
        same(daemon.job(identity)["parameters"]["traj_units"], "grid", "traj_units of the new job")
        shown(page, identity)
        same(page.text(".facts tr.changed th"), "traj_units", "the parameter that is marked")


@test("a warning's proposal runs the job again with one click")
def proposal():
    page_of = browser()
    with Daemon(web_dir=PAGE, keep_scans="all") as daemon, page_of.page(daemon) as page:
        job = daemon.run(radial(seed=3), "kind=recon&name=plain.h5")
        page.route(f"**/v1/jobs/{job['id']}", {"contentType": "application/json", "body": json.dumps(
            {**job,
             "report": {**job["report"], "warnings": ["It is so. Pass traj_units=pixel or per_cm to say which."]}})})
        page.click(row(job["id"]))
        page.see("button:text-is('Run again with traj_units=per_cm')")
        page.click("button:text-is('Run again with traj_units=pixel')")
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", job["id"])
        same(daemon.job(page.getAttribute(".job", "data-job"))["parameters"]["traj_units"], "pixel", "traj_units")


@test("a job whose scan was not kept runs again with the file that the page has sent, and is compared with the first")
def again_from_the_page(daemon):
    with browser().page(daemon) as page:
        page.drop_file("again.h5", radial(seed=32))
        page.see(".job[data-state=succeeded]")
        first = page.getAttribute(".job", "data-job")
        same(daemon.job(first)["scan_kept"], False, "whether the service has kept the scan")
        shown(page, first)
        page.click("button:text-is('Same again with…')")
        page.selectOption("#parameter-dcf", "pipe")
        page.click("button:text-is('Run with 1 change')")
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", first)
        second = page.getAttribute(".job", "data-job")
        job = daemon.job(second)
        same((job["name"], job["parameters"]["dcf"]), ("again.h5", "pipe"), "the new job")
        shown(page, second)
        page.click("button:text-is('Compare with the first')")
        page.see(row(first) + ".pinned")
        page.see(".facts tr:has-text('dcf'):has-text('the other job: auto')")
        page.press("f")
        shown(page, first)
        # A repetition of the repetition takes over its parameters, too.
        page.click(".title button:text-is('Run again')")
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", second)
        same(daemon.job(page.getAttribute(".job", "data-job"))["parameters"]["dcf"], "pipe", "dcf of the third job")


@test("a job whose scan nobody has asks for its file; another file is refused")
def again_with_a_file(daemon):
    scan = radial(seed=33)
    job = daemon.run(scan, "kind=recon&name=lost.h5&dcf=pipe")["id"]
    path, wrong = (os.path.join(FOLDER.name, name) for name in ("lost.h5", "wrong.h5"))
    for name, content in ((path, scan), (wrong, scan[:-1])):
        with open(name, "wb") as file:
            file.write(content)
    with browser().page(daemon) as page:
        page.click(row(job))
        page.click(".title button:text-is('Run again with its file…')")
        page.see(".wanted:has-text('lost.h5')")
        page.setInputFiles("input[type=file]", wrong)
        page.see(".notice.bad:has-text('it is another file')")
        page.setInputFiles("input[type=file]", path)
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", job)
        made = page.getAttribute(".job", "data-job")
        same(daemon.job(made)["parameters"]["dcf"], "pipe", "dcf of the new job")
        same(page.evaluate("() => document.querySelectorAll('.wanted').length"), 0, "requests for a file")
        # Now the page has the file, so that this needs no other one.
        page.click(".title button:text-is('Run again')")
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", made)
        page.click(row(job))
        page.press("r")
        page.see(".wanted:has-text('lost.h5')")
        page.drop_file("lost.h5", scan[:-2])
        page.see(".notice.bad:has-text('it is another file')")
        page.click("button:text-is('Do not run')")
        page.see("button:text-is('Send a scan')")


@test("while jobs are compared, the next one keeps window and crosshair; otherwise it has its own window")
def third(daemon):
    jobs = [daemon.run(radial(seed=seed), f"kind=recon&name=third{seed}.h5")["id"] for seed in (34, 35, 36)]
    window = ".controls .slider:has-text('White') output"
    for webgl in (True, False):
        with browser().page(daemon, webgl=webgl) as page:
            page.click(row(jobs[2]))
            shown(page, jobs[2])
            own = page.text(window)
            page.click(row(jobs[0]))
            shown(page, jobs[0])
            page.click("button:text-is('Pin')")
            page.focus(".slider:has-text('White') input")
            page.press("End")
            page.focus(".stage canvas")
            for key in ("ArrowLeft", "ArrowUp", "ArrowLeft"):
                page.press(key)
            place, chosen = page.text(".place").split(" = ")[0], page.text(window)
            assert chosen != own, chosen
            for job in jobs[1:]:
                page.click(row(job))
                shown(page, job)
                same(page.text(window), chosen, "the window's upper end")
                page.press("f")
                shown(page, jobs[0])
                same(page.text(".place").split(" = ")[0], place, "the crosshair's place")
                page.press("f")
            page.click(row(jobs[0]))
            page.click("button:text-is('Pinned')")
            page.click(row(jobs[2]))
            shown(page, jobs[2])
            same(page.text(window), own, "the window's upper end without a comparison")


@test("two jobs can be flipped in one window")
def flip(daemon):
    first, second = (daemon.run(radial(seed=seed), f"kind=recon&name=flip{seed}.h5")["id"] for seed in (4, 5))
    with browser().page(daemon) as page:
        page.click(row(first))
        shown(page, first)
        page.click("button:text-is('Pin')")
        page.click(row(second))
        shown(page, second)
        window = page.text(".controls .slider:has-text('White') output")
        seen = page.grey(".stage canvas")
        page.press("f")
        shown(page, first)
        same(page.text(".stage .which"), "flip4.h5", "whose image it is")
        other = page.grey(".stage canvas")
        assert other["digest"] != seen["digest"], "the two pictures are the same"
        same(page.text(".controls .slider:has-text('White') output"), window, "the window's upper end")
        page.press("f")
        shown(page, second)
        same(page.text(".stage .which"), "flip5.h5", "whose image it is")


@test("the progress of a running job moves, and the job is canceled from the page")
def progress():
    page_of = browser()
    with (Daemon(web_dir=PAGE, keep_scans="all", environment=holding(), cancel_grace=600) as daemon,
          page_of.page(daemon) as page):
        page.drop_file("slow.h5", scans.slow().bytes(FOLDER.name))
        page.see(".row.selected .name:text-is('slow.h5')")
        page.see(".job[data-state=succeeded]")
        first = page.getAttribute(".job", "data-job")
        page.click("button:text-is('Same again with…')")
        page.fill("[aria-label='Find a parameter']", "dcf")
        page.selectOption("#parameter-dcf", "pipe")
        page.fill("#parameter-dcf_iterations", "1000")
        page.fill("[aria-label='Find a parameter']", "tolerance")
        page.fill("#parameter-tolerance", "1e-5")
        with daemon.held("density") as go_on:
            page.click("button:text-is('Run with 3 changes')")
            page.wait("(id) => document.querySelector('.job[data-state=running]')?.dataset.job > id", first)
            # The list and the details name the steps; the bar moves without a reload.
            page.see(".row.selected progress")
            for number in (1, 2, 3):
                page.wait("(count) => document.querySelector('.stage.working p').innerText.startsWith(`Density, "
                          "iteration ${count} `)", number)
                page.wait("(count) => (window.seen ??= new Set()).add(document.querySelector('.row.selected "
                          "progress')?.value) && seen.size >= count", number)
                if number < 3:
                    go_on()
            identity = page.getAttribute(".job", "data-job")
            page.click(".title button:text-is('Cancel')")
        page.see(".job[data-state=canceled]")
        same(daemon.job(identity)["state"], "canceled", "state")


COUNT_EVENTS = """
    const usual = EventSource.prototype.addEventListener;
    window.heard = {};
    EventSource.prototype.addEventListener = function (type, listener) {
        usual.call(this, type, listener);
        usual.call(this, type, () => { heard[type] = (heard[type] ?? 0) + 1; });
    };
"""


@contextlib.contextmanager
def hears(page, event):
    """Wait after the block for an event of the stream that its beginning has not seen."""
    before = page.evaluate("(event) => heard[event] ?? 0", event)
    yield
    page.wait("([event, before]) => (heard[event] ?? 0) > before", [event, before])


@test("progress that is told while the list is under way does not replace the job's row")
def early_progress():
    page_of = browser()
    with Daemon(web_dir=PAGE, environment=holding(), cancel_grace=600) as daemon, page_of.page(daemon) as page:
        with daemon.held("density") as go_on:
            identity = daemon.submit(scans.slow().bytes(FOLDER.name), "kind=recon&name=early.h5&dcf=pipe&"
                                     "dcf_iterations=1000&tolerance=1e-5").expect(202).json()["id"]
            page.addInitScript({"content": COUNT_EVENTS})
            page.hold("**/v1/jobs?*")
            page.reload()
            page.wait("() => heard.reset && heard.progress")
            with hears(page, "progress"):
                go_on()
            same(page.evaluate("() => document.querySelectorAll('.row').length"), 0, "rows before the list")
            page.release("**/v1/jobs?*")
            page.see(row(identity) + "[data-state=running] .name:text-is('early.h5')")
            with hears(page, "progress"):
                go_on()
            same(page.text(row(identity) + " .name"), "early.h5", "name of the row")
            same(page.text(row(identity) + " time"), "now", "age of the job")
            daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
        page.see(row(identity) + "[data-state=canceled]")


@test("with a filter of time, a running job that is older, and is not loaded, has no row until it ends")
def older():
    page_of = browser()
    with (Daemon(web_dir=PAGE, environment=holding(), cancel_grace=600) as daemon,
          contextlib.ExitStack() as until_then):
        go_on = until_then.enter_context(daemon.held("density"))
        identity = daemon.submit(scans.slow().bytes(FOLDER.name), "kind=recon&name=older.h5&dcf=pipe&"
                                 "dcf_iterations=1000&tolerance=1e-5").expect(202).json()["id"]
        daemon.kill()
        with contextlib.closing(sqlite3.connect(os.path.join(daemon.state, "jobs.db"))) as store, store:
            store.execute("UPDATE job SET created = created - 7200000")
        daemon.restart()
        with page_of.page(daemon) as page:
            page.addInitScript({"content": COUNT_EVENTS})
            # The list has not come as far as this job.
            page.route("**/v1/jobs?*", {"contentType": "application/json", "body": '{"jobs": [], "next": null}'})
            page.reload()
            page.selectOption("[aria-label='Time']", "1h")
            page.see(".none:text-is('No jobs here yet.')")
            with hears(page, "progress"):
                go_on()
            same(page.evaluate("() => document.querySelectorAll('.row').length"), 0, "rows")
            with hears(page, "job"):  # it is being canceled
                daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
            same(page.evaluate("() => document.querySelectorAll('.row').length"), 0, "rows")
            until_then.close()
            page.see(row(identity) + "[data-state=canceled]")


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


@test("by keyboard alone: a job is selected, run again and, after a question, deleted")
def keyboard():
    page_of = browser()
    with Daemon(web_dir=PAGE, keep_scans="all") as daemon, page_of.page(daemon) as page:
        old, new = (daemon.run(radial(seed=seed), f"kind=recon&name=keys{seed}.h5")["id"] for seed in (9, 10))
        page.see(row(new))
        for _ in range(20):  # Tab reaches the list after the filters
            page.press("Tab")
            if page.evaluate("() => document.activeElement.getAttribute('role')") == "row":
                break
        page.press("Enter")
        page.see(f".job[data-job='{new}']")
        shown(page, new)
        page.press("ArrowDown")
        shown(page, old)
        same(page.evaluate("() => document.activeElement.dataset.job"), old, "the row with the focus")
        page.press("r")
        page.wait("(id) => document.querySelector('.job[data-state=succeeded]')?.dataset.job > id", new)
        again = page.getAttribute(".job", "data-job")
        same(daemon.job(again)["name"], "keys9.h5", "name of the new job")
        shown(page, again)
        page.focus(row(again))
        page.press("Delete")
        page.see("dialog:has-text('Delete keys9.h5, with its results and its scan?')")
        page.press("Escape")
        page.waitForSelector("dialog", {"state": "detached"})
        same(daemon.job(again)["state"], "succeeded", "state of the job that was not deleted")
        same(page.evaluate("() => document.activeElement.dataset.job"), again, "the row with the focus")
        page.press("Delete")
        page.see("dialog")
        clean(page)
        page.press("Enter")
        page.waitForSelector(row(again), {"state": "detached"})
        daemon.get(f"/v1/jobs/{again}").problem(404, "not-found")


@test("dark and light follow the system, and axe-core reports no violation in either")
def themes(daemon):
    scan = scans.radial(seed=2, weights=False)
    scan.traj *= 3.7 / 0.5
    bad = daemon.run(scan.bytes(FOLDER.name), "kind=recon&name=bad.h5")["id"]
    good = daemon.run(radial(seed=11), "kind=recon&name=good.h5")["id"]
    grounds = []
    for scheme in ("dark", "light"):
        with browser().page(daemon, colorScheme=scheme) as page:
            page.click(row(bad))
            page.see(".failure")
            page.click("button:text-is('Change parameters and run again')")
            page.see("form.again")
            clean(page)
            page.click(row(good))
            shown(page, good)
            clean(page)
            grounds.append(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1], f"both themes have the same background: {grounds}"


@test("deliveries of a job with their last answer, sent again by keyboard; a live list of failed ones, accessible")
def deliveries():
    page_of = browser()
    with Receiver(answers=[410, 410]) as hook, Receiver() as other:
        path = write(FOLDER.name, "destinations", hook.destination(FOLDER.name, "hook") +
                     other.destination(FOLDER.name, "spare") + "rule hook\n")
        with Daemon(web_dir=PAGE, destinations=path) as daemon:
            first = daemon.run(radial(seed=21), "kind=recon&name=first.h5")["id"]
            with page_of.page(daemon, colorScheme="dark") as page:
                page.see("header button:text-is('1 failed')")
                # The keyboard alone: Tab and Enter.
                page.focus("header button:text-is('1 failed')")
                page.press("Enter")
                page.see(f".outbox tr[data-job='{first}'][data-state=dead]:has-text('The server answered 410.')")
                same(page.evaluate("() => location.hash"), "#deliveries", "the view's address")
                clean(page)
                # Another job's delivery fails, and comes by itself.
                second = daemon.run(radial(seed=22), "kind=recon&name=second.h5")["id"]
                page.see(f".outbox tr[data-job='{second}'][data-state=dead]")
                page.see("header button:text-is('2 failed')")
                # Sent again it arrives, and leaves the list of the failed ones.
                page.focus("[aria-label='Send again: second.h5 to hook']")
                page.press("Enter")
                page.waitForSelector(f".outbox tr[data-job='{second}']", {"state": "detached"})
                page.see("header button:text-is('1 failed')")
                page.selectOption("[aria-label='State of deliveries']", "delivered")
                page.see(f".outbox tr[data-job='{second}'][data-state=delivered]")
                page.click(".outbox tr td button:text-is('second.h5')")
                page.see(f".job[data-job='{second}'] "
                         f".delivery[data-destination=hook][data-state=delivered]:has-text('The server answered 204.')")
                same(len(other.got), 0, "requests at the other destination")
                page.focus(".send-to button:text-is('Send')")
                page.press("Enter")
                page.see(".delivery[data-destination=spare][data-state=delivered]")
                assert json.loads(other.got[0][2])["data"]["id"] == second, other.got
                same(page.evaluate("() => document.querySelectorAll('.send-to').length"), 0,
                     "destinations that are left")
            with page_of.page(daemon, path="/ui/#deliveries", colorScheme="light") as page:
                page.see(f".outbox tr[data-job='{first}']")
                clean(page)
                page.click(row(first))
                shown(page, first)
                page.see(".delivery[data-state=dead] button:text-is('Send again')")
                clean(page)
                daemon.request("DELETE", f"/v1/jobs/{first}").expect(204)
                page.see("header button:text-is('None failed')")


@test("a role that may not send sees its deliveries without buttons")
def deliveries_of_a_reader():
    page_of = browser()
    with Receiver(answers=[410]) as hook:
        path = write(FOLDER.name, "destinations", hook.destination(FOLDER.name, "hook", "clients=mri1") + "rule hook\n")
        with Guarded(web_dir=PAGE, destinations=path) as daemon, page_of.page(daemon) as page:
            page.expected = ("401 (Unauthorized)",)
            identity = daemon.job_of("submit")
            page.fill("#token", daemon.token["submit"])
            page.press("Enter")
            page.click(row(identity))
            page.see(".delivery[data-state=dead]:has-text('The server answered 410.')")
            page.click("header button:text-is('1 failed')")
            page.see(f".outbox tr[data-job='{identity}']")
            same(page.evaluate("() => [...document.querySelectorAll('main button')].map((b) => "
                               "b.innerText).filter((text) => /^send/i.test(text))"),
                 [], "buttons that send")


@test("filters choose jobs by name and state")
def filters(daemon):
    good = daemon.run(radial(seed=12), "kind=recon&name=Thorax-1.h5")["id"]
    bad = daemon.run(b"no scan", "kind=recon&name=Thorax-2.h5")["id"]
    with browser().page(daemon) as page:
        page.fill("[aria-label='Name contains']", "thorax")
        page.wait("() => document.querySelectorAll('.row').length === 2")
        page.selectOption("[aria-label='State']", "failed")
        page.wait("() => document.querySelectorAll('.row').length === 1")
        page.see(row(bad))
        page.selectOption("[aria-label='State']", "succeeded")
        page.see(row(good))
        # A job that arrives later passes the same filter or not.
        daemon.run(radial(seed=13), "kind=recon&name=other.h5")
        late = daemon.run(radial(seed=14), "kind=recon&name=thorax-3.h5")["id"]
        page.see(row(late))
        same(page.evaluate("() => document.querySelectorAll('.row').length"), 2, "rows")


@test("the page reconnects after a restart of the daemon")
def restart():
    page_of = browser()
    with Daemon(web_dir=PAGE, port=free_port()) as daemon, page_of.page(daemon) as page:
        page.expected = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING",
                         "ERR_EMPTY_RESPONSE")
        page.see(".condition:text-is('Ready for scans.')")
        daemon.kill()
        page.see(".condition:has-text('does not answer')")
        daemon.restart(same_port=True)
        identity = daemon.run(radial(seed=15), "kind=recon&name=after.h5")["id"]
        page.see(".condition:text-is('Ready for scans.')")
        page.see(row(identity) + "[data-state=succeeded]")


@test("tokens and roles: nothing without a login; a reading role sees its jobs and changes none; a logout ends it")
def roles():
    page_of = browser()
    with Guarded(web_dir=PAGE) as daemon, page_of.page(daemon) as page:
        reader, sender = daemon.token["read"], daemon.token["submit"]
        page.expected = ("401 (Unauthorized)", "ERR_")  # answers that require a login; streams that the logout ends
        page.fill("#token", "wrong")
        page.press("Enter")
        page.see(".login [role=alert]")
        page.fill("#token", sender)
        page.press("Enter")
        page.see(".condition:text-is('Ready for scans.')")
        page.drop_file("mine.h5", radial(seed=17))
        page.see(".job[data-state=succeeded]")
        identity = page.getAttribute(".job", "data-job")
        shown(page, identity)
        assert (sender not in page.evaluate("() => document.cookie + JSON.stringify({...localStorage, "
                                            "...sessionStorage})")), \
            "scripts can read the token"
        page.click("button:text-is('Sign out')")
        page.fill("#token", reader)
        page.press("Enter")
        page.click(row(identity))
        shown(page, identity)
        page.see("footer:has-text('Your role (read) can view jobs, but not submit any.')")
        same(page.evaluate("() => [...document.querySelectorAll('button')].map((b) => b.innerText)"
                           ".filter((text) => /again|delete|send/i.test(text))"), [], "buttons that change something")


@test("ten thousand jobs: the document contains only the rows in view, and the last one can be reached")
def many(daemon):
    job = daemon.run(b"no scan", "kind=recon&name=one.h5")
    jobs = [{**job, "id": f"{10000 - i:026d}", "name": f"job {i}"} for i in range(10000)]
    with browser().page(daemon) as page:
        page.route("**/v1/jobs?*", {"contentType": "application/json",
                                    "body": json.dumps({"jobs": jobs, "next": None})})
        page.fill("[aria-label='Name contains']", "job")
        page.see(".row .name:text-is('job 0')")
        page.evaluate("() => { const rows = document.querySelector('.rows'); rows.scrollTop = rows.scrollHeight; }")
        page.see(".row .name:text-is('job 9999')")
        count = page.evaluate("() => document.querySelectorAll('.row').length")
        assert count < 60, f"{count} rows are in the document"


if __name__ == "__main__":
    try:
        main(start)
    finally:
        if BROWSER is not None:
            BROWSER.close()
        FOLDER.cleanup()
