#!/usr/bin/python3
"""The web page, in a headless Chromium: a failure and its reason; jobs run again with other parameters, whether or not
their scans were kept; two images in one window; the lines for curl and Python. time limit: 1200 s
"""
import json
import os
import subprocess
import urllib.parse

import scans
from guarded import Guarded
from harness import ROOT, SLOW, Daemon, same, test
from pages import FOLDER, PAGE, browser, radial, row, run, shown


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
        # Whether there are tokens, and the parameters' usual values, come by requests of their own.
        for what, token in (("curl", "$MRIRECON_TOKEN"), ("Python", "")):
            page.see(f"pre[aria-label='With {what}']:has-text('{token}'):has-text('cg-sense')")
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
        # Pressed at the moment at which the page shows that there are two.
        page.evaluate("""() => new MutationObserver((_, observer) => {
            if (!document.body.innerText.includes("the other job"))
                return;
            observer.disconnect();
            document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "f", bubbles: true}));
        }).observe(document.body, {subtree: true, childList: true, characterData: true})""")
        page.click("button:text-is('Compare with the first')")
        page.see(row(first) + ".pinned")
        page.see(".facts tr:has-text('dcf'):has-text('the other job: auto')")
        shown(page, first)
        page.press("f")
        shown(page, second)
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
                page.see("button.flip")  # the other job's document may come after this one's image
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
        # The label lies over the image.
        page.evaluate("() => { document.querySelector('.stage .which').style.visibility = 'hidden'; }")
        seen = page.grey(".stage canvas")
        page.see("button.flip")
        page.press("f")
        shown(page, first)
        same(page.text(".stage .which"), "flip4.h5", "whose image it is")
        other = page.grey(".stage canvas")
        assert other["digest"] != seen["digest"], "the two pictures are the same"
        same(page.text(".controls .slider:has-text('White') output"), window, "the window's upper end")
        page.press("f")
        shown(page, second)
        same(page.text(".stage .which"), "flip5.h5", "whose image it is")


if __name__ == "__main__":
    run()
