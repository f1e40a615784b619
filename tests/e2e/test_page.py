#!/usr/bin/python3
"""The web page, in a headless Chromium, against a real daemon: sending a scan and seeing its image; progress; the list
and its filters; the keyboard alone; dark and light; deliveries; a restart of the daemon; tokens and roles; ten thousand
jobs. Each test ends with nothing in the console, no violation of the policy and no request to another origin.
time limit: 1200 s
"""
import contextlib
import json
import os
import sqlite3

import scans
from guarded import Guarded
from harness import Daemon, free_port, holding, same, test
from pages import FOLDER, PAGE, browser, clean, radial, row, run, shown
from receiver import Receiver, write


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
            # Quick iterations are not told one by one.
            iteration = ("Number(document.querySelector('.stage.working p')?.innerText"
                         ".match(/^Density, iteration ([0-9]+) /)?.[1])")
            last = 0
            for number in (1, 2, 3):
                page.wait(f"(last) => {iteration} > last", last)
                last = page.evaluate(f"() => {iteration}")
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
            same(page.getAttribute(row(identity) + " time", "datetime"), daemon.job(identity)["created"],
                 "when the job was created")
            go_on.still()
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
            go_on.still()
            with hears(page, "job"):  # it is being canceled
                daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
            same(page.evaluate("() => document.querySelectorAll('.row').length"), 0, "rows")
            until_then.close()
            page.see(row(identity) + "[data-state=canceled]")


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
                         "ERR_EMPTY_RESPONSE",
                         f"503 (Service Unavailable) ({daemon.url}/readyz")  # until its worker is ready
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
    run()
