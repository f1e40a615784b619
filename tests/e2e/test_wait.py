#!/usr/bin/python3
"""A request that waits for a job is woken by its end, also if the job ends while the request begins to wait."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import tempfile

import mrd
import scans
from harness import Daemon, fault, main, same, test, wait_until

PATIENCE = 120  # seconds; with a lost wake-up the answer would take the 600 s that the request asks for


def state(daemon, identity):
    """The state of a job, from the store and without a look-up that latelook.so stops."""
    return {job["id"]: job["state"] for job in daemon.get("/v1/jobs?fields=id,state").json()["jobs"]}.get(identity)


@contextlib.contextmanager
def late(**options):
    """A daemon with latelook.so, and the name of the file at which it stops."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"LD_PRELOAD": fault("latelook"), "LATELOOK_HOLD": folder + "/hold",
                       "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
        with Daemon(environment=environment, **options) as daemon:
            yield daemon, folder + "/hold"


@contextlib.contextmanager
def ended_after_the_look(path="/v1/jobs/{}", suffix="", look=state, **headers):
    """The answer, in a future, to a GET that saw the job run in the store and continued after its end."""
    with late() as (daemon, hold), concurrent.futures.ThreadPoolExecutor(1) as pool:
        hold += suffix
        with daemon.paused():
            identity = daemon.submit(scans.radial(seed=71).bytes(daemon.state)).expect(202).json()["id"]
            wait_until(lambda: look(daemon, identity) == "running", "the job to run")
            with open(hold, "w"):
                answer = pool.submit(daemon.request, "GET", path.format(identity), None, headers, timeout=PATIENCE)
            wait_until(lambda: os.path.exists(hold + ".there"), "the request to have looked")
        try:
            wait_until(lambda: look(daemon, identity) == "succeeded", "the job's end")
        finally:
            os.unlink(hold)
        yield answer


@test("a job that ends between a request's look and its wait wakes it")
def end_before_the_wait():
    with ended_after_the_look(Prefer="wait=600") as answer:
        same(answer.result().expect(200).json()["state"], "succeeded", "state")


@test("a job that ends while its document is made is reported as ended, not as running without progress")
def end_during_the_document():
    seen = "running"
    while seen == "running":  # of a job whose end was just stored the scheduler may still say that it ends
        with ended_after_the_look() as answer:
            job = answer.result().expect(200).json()
        seen = job["state"]
        same(job["progress"], 1, "progress")
    same(seen, "succeeded", "state")


@test("a job that ends after a page was read is in it as ended, without its report like all others")
def end_after_the_page():
    def look(daemon, identity):
        return daemon.get(f"/v1/jobs/{identity}").json()["state"]

    seen = "running"
    while seen == "running":  # of a job whose end was just stored the scheduler may still say that it ends
        with ended_after_the_look("/v1/jobs", ".list", look) as answer:
            (job,) = answer.result().expect(200).json()["jobs"]
        seen = job["state"]
        same((job["progress"], job["report"]), (1, {}), "progress and report")
    same(seen, "succeeded", "state")
    assert job["results"], job


@test("an answer of images whose job ended and was deleted ends so; it does not wait for a scan that has arrived")
def deleted_during_the_answer():
    with late() as (daemon, hold):
        with daemon.paused():
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE)
            connection.request("POST", "/v1/jobs?kind=recon", scans.radial(seed=71).bytes(daemon.state),
                               {"Accept": "multipart/mixed", "Prefer": "wait=600"})
            answer = connection.getresponse()
            identity = answer.headers["x-job-id"]
            wait_until(lambda: state(daemon, identity) == "running", "the job to run")
            with open(hold, "w"):
                wait_until(lambda: os.path.exists(hold + ".there"), "the answer to have looked for the job")
        try:
            wait_until(lambda: state(daemon, identity) == "succeeded", "the job's end")
            daemon.request("DELETE", f"/v1/jobs/{identity}").expect(204)
        finally:
            os.unlink(hold)
        last = answer.read().split(b"\r\n\r\n")[-1].partition(b"\r\n")[0]
        same(json.loads(last)["code"], "not-found", "code of the last part")
        connection.close()


@test("an MRD session whose job ended and was deleted before it waits is told so, not that the job continues")
def deleted_before_the_wait():
    with late(mrd_listen="127.0.0.1:0") as (daemon, hold):
        *messages, close = scans.radial(seed=71).messages()
        with mrd.Session(daemon) as session:
            session.send(*messages)
            wait_until(lambda: mrd.followers(daemon), "a decoder that follows the stream")
            with open(hold + ".wait", "w"):
                session.send(close)
            wait_until(lambda: os.path.exists(hold + ".wait.there"), "the session to have its job")
            (job,) = daemon.get("/v1/jobs").json()["jobs"]
            daemon.finish(job["id"])
            daemon.request("DELETE", f"/v1/jobs/{job['id']}").expect(204)
            os.unlink(hold + ".wait")
            *images, told = session.messages()
            same(told, (mrd.TEXT, f"not-found: There is no job {job['id']}. It may have been deleted.".encode()),
                 "what follows the image that was shown before the job's end")
            same([number for number, _ in images], [mrd.IMAGE], "images")


if __name__ == "__main__":
    main()
