#!/usr/bin/python3
"""A second kind of job (tests/kinds/) with several results, through the real daemon, worker and codec: nothing outside
its folder and its rows of tables names it.
"""
import io
import json
import os
import signal

import numpy as np

from harness import BIN, Daemon, main, same, skip, test, wait_until

KINDS = os.path.join(os.path.dirname(BIN), "kinds")
NUMBERS = b"0.05,0.15,0.15\n0.95,2\n"
COUNTS = [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]
DAEMON = None


def daemon():
    """One daemon for all tests of this file."""
    global DAEMON
    if not os.path.exists(os.path.join(KINDS, "mrirecond")):
        skip(f"{KINDS} is not built (make unit)")
    if DAEMON is None:
        # Workers are killed, also that of a canceled job, which does not ask while it pauses.
        DAEMON = Daemon(binaries=KINDS, devices="cpu", keep_scans="all", expect_trouble=True, cancel_grace=1)
    return DAEMON


def run(query="", body=NUMBERS):
    job = daemon().run(body, "kind=histogram" + query)
    same((job["state"], job["error"]), ("succeeded", None), "job")
    return job


def result(job, name):
    return daemon().get(f"/v1/jobs/{job['id']}/results/{name}")


def table(job):
    return daemon().get(f"/v1/jobs/{job['id']}/results").expect(200, "application/json").json()


@test("the table of kinds lists inputs, parameters, results and their formats")
def listed():
    kind = next(k for k in daemon().get("/v1/kinds").json()["kinds"] if k["name"] == "histogram")
    same(kind["inputs"], ["Numbers with commas or line ends (.csv, text/csv)"], "inputs")
    same([(r["name"], [f["format"] for f in r["formats"]]) for r in kind["results"]],
         [("histogram", ["json", "csv"]), ("counts", ["npy"])], "results")
    wanted = next(p for p in kind["parameters"] if p["name"] == "results")
    same((wanted["type"], wanted["choices"], wanted["default"]), ("set", ["histogram", "counts"], "histogram"),
         "parameter results")


@test("by default a job computes its first result, in its native format and in those that the codec derives")
def first():
    job = run()
    same([r["name"] for r in job["results"]], ["histogram"], "results of the document")
    native = result(job, "histogram").expect(200, "application/json")
    same(native.json(), {"low": 0.0, "high": 1.0, "counts": COUNTS}, "histogram")
    same(native.headers["content-disposition"], 'inline; filename="histogram.json"', "file name")
    same(native.headers["mrirecond-warning"], '"It is a test."', "warning")
    same([(f["format"], f["bytes"] is None) for r in table(job)["results"] for f in r["formats"]],
         [("json", False), ("csv", True)], "formats")
    for answer in (result(job, "histogram?format=csv"), result(job, "histogram.csv"),
                   daemon().get(f"/v1/jobs/{job['id']}/results/histogram", Accept="text/csv")):
        same(answer.expect(200, "text/csv").body.split(), [str(c).encode() for c in COUNTS], "csv")
        same(answer.headers["content-disposition"], 'inline; filename="histogram.csv"', "file name")
    same([f["bytes"] for r in table(job)["results"] for f in r["formats"]], [len(native.body), len(answer.body)],
         "sizes")
    for name in ("counts", "counts.npy", "image", "image.h5"):
        result(job, name).problem(404, "not-found")
    result(job, "histogram?format=png").problem(406, "not-acceptable")


@test("two results of one job: each has its route, its media type and its file, and is in the list")
def both():
    job = run("&results=counts,histogram&bins=4")
    same(job["parameters"]["results"], "histogram,counts", "results, in the order of the table")
    listed = table(job)
    same((listed["id"], [r["name"] for r in listed["results"]]), (job["id"], ["histogram", "counts"]), "list")
    for one in listed["results"]:
        for form in one["formats"]:
            answer = daemon().get(form["href"]).expect(200, form["type"])
            same(answer.headers["content-disposition"], f'inline; filename="{form["file"]}"', "file name")
    same(sorted((r["name"], r["file"]) for r in job["results"]),
         [("counts", "counts.npy"), ("histogram", "histogram.json")], "document")
    np.testing.assert_array_equal(np.load(io.BytesIO(result(job, "counts").body)), [3, 0, 0, 1])
    same(result(job, "histogram").json()["counts"], [3, 0, 0, 1], "histogram")
    same(sorted(os.listdir(f"{daemon().state}/results/{job['id']}")), ["counts.npy", "histogram.csv", "histogram.json"],
         "files")


@test("a waiting client gets the first of the requested results, in the format that Accept names")
def waited():
    answer = daemon().submit(NUMBERS, "kind=histogram&results=counts", Prefer="wait=60",
                             Accept="application/x-npy").expect(200, "application/x-npy")
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.body)), COUNTS)
    answer = daemon().submit(NUMBERS, "kind=histogram&results=counts,histogram", Prefer="wait=60",
                             Accept="text/csv").expect(200, "text/csv")
    same(answer.body.split()[1], b"2", "csv")
    daemon().submit(NUMBERS, "kind=histogram&results=counts", Prefer="wait=60",
                    Accept="text/csv").problem(406, "not-acceptable")


@test("a job is run again with other results; a key reused for other results is refused")
def again():
    job = run()
    other = daemon().request("POST", f"/v1/jobs/{job['id']}/resubmit?results=counts").expect(202).json()["id"]
    same([r["name"] for r in daemon().finish(other)["results"]], ["counts"], "results")
    daemon().submit(NUMBERS, "kind=histogram&results=counts", Idempotency_Key="key").expect(202)
    daemon().submit(NUMBERS, "kind=histogram&results=histogram,counts",
                    Idempotency_Key="key").problem(422, "idempotency-key-reused")


@test("invalid parameters and inputs are errors for the sender, and do not affect others")
def bad():
    for query, code in (("results=histogram,nothing", "bad-parameter"), ("results=counts,counts", "bad-parameter"),
                        ("results=", "bad-parameter"),
                        ("low=2", "bad-parameter"), ("tolerance=1e-3", "unknown-parameter")):
        daemon().submit(NUMBERS, f"kind=histogram&{query}").problem(400, code)
    daemon().fails(b"1,2,x3\n", "kind=histogram", "unknown-format")
    assert "Number 3 is" in daemon().fails(b"1,2,3-4\n", "kind=histogram", "malformed-file")["detail"]
    daemon().fails(b"1e999\n", "kind=histogram", "malformed-file")
    daemon().fails(b"1e9999,crash", "kind=histogram", "unknown-format")
    problem = daemon().fails(b"0.5," * 100 + b"1e9999,crash", "kind=histogram", "decoder-died")
    assert "signal 6" in problem["detail"], problem
    same(run()["attempts"], 1, "attempts of the next")


@test("progress names the kind's own steps; a running job is canceled")
def canceled():
    # The first number may be counted ahead of the job, when no step is told.
    job = daemon().submit(100 * NUMBERS, "kind=histogram&pause=3000").expect(202).json()
    step = wait_until(lambda: daemon().job(job["id"])["step"], "a step")
    step = wait_until(lambda: (s := daemon().job(job["id"])["step"]) and s["name"] == "count" and s, "step count")
    same((step["number"], step["steps"], step["unit"]), (2, 3, "number"), "step")
    daemon().request("POST", f"/v1/jobs/{job['id']}/cancel").expect(202)
    same(daemon().finish(job["id"])["state"], "canceled", "state")
    daemon().get(f"/v1/jobs/{job['id']}/results").problem(409, "conflict")
    same([name for name in daemon().files() if job["id"] in name and "results" in name], [], "files of results")


@test("kill -9 of the worker and of the daemon: the job is retried, and its results survive a restart")
def killed():
    many, query = b"0.25\n" * 20, "kind=histogram&results=histogram,counts"
    for end, more in ((lambda: os.kill(daemon().worker(), signal.SIGKILL), ""),
                      (lambda: (daemon().kill(), daemon().restart()), "&bins=4")):
        with daemon().paused():  # the job does not end before its worker does
            job = daemon().submit(many, query + more).expect(202).json()
            wait_until(lambda: daemon().job(job["id"])["attempts"], "its start")
            end()
        done = daemon().finish(job["id"])
        same((done["state"], done["attempts"]), ("succeeded", 2), "after the death")
    before = {name: result(done, name).body for name in ("histogram", "histogram.csv", "counts")}
    same(json.loads(before["histogram"])["counts"], [0, 20, 0, 0], "histogram")
    daemon().kill()
    daemon().restart()
    same({name: result(done, name).body for name in before}, before, "results after a restart")


@test("the daemon stops cleanly")
def stopped():
    daemon().stop()


if __name__ == "__main__":
    main()
