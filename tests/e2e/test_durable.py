#!/usr/bin/python3
"""Promises are made only after the data are on the disk: the order of syncs and answers, recorded by a preloaded
library (sync_log.c).
"""
import concurrent.futures
import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time

import mrd
import scans
from harness import ROOT, Daemon, main, same, skip, test, wait_until
from live import image_of, series
from receiver import Receiver, write

FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm")  # workers may write there
BODY = scans.radial(seed=41).bytes(FOLDER.name)
SHIM, LOG, HELD, BROKEN = (f"{FOLDER.name}/{name}" for name in ("sync_log.so", "log", "held", "broken"))
END_SECONDS = 2  # for which a request waits for the end of a job whose client has its image (daemon/http/http.c)


def daemon(**options):
    if "san" in os.environ.get("MRIRECON_BIN", ""):
        skip("a sanitizer's runtime wants to be the first library")
    if not os.path.exists(SHIM):
        subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-O1", "-o", SHIM,
                        os.path.join(ROOT, "tests", "e2e", "sync_log.c"), "-ldl"], check=True)
    return Daemon(environment={"LD_PRELOAD": SHIM, "SYNC_LOG": LOG, "SYNC_HELD": HELD, "SYNC_BROKEN": BROKEN},
                  **options)


def lines(state):
    """The log since the last call, with paths relative to the state folder."""
    with open(LOG) as file:
        text = file.read()
    os.unlink(LOG)
    return [line.replace(os.path.realpath(state) + "/", "").replace(state + "/", "") for line in text.splitlines()]


def in_order(log, wanted):
    """Assert that these lines come in this order; others may lie between."""
    rest = iter(log)
    for line in wanted:
        assert any(seen == line for seen in rest), f"\"{line}\" does not come in its place:\n" + "\n".join(log)


@test("202 is sent after the scan, its name and the job's row are on the disk")
def accepted():
    with daemon() as server:
        lines(server.state)
        job = server.submit(BODY).expect(202).json()["id"]
        log = lines(server.state)
        in_order(log[:log.index("answer 202") + 1], [f"sync spool/{job}.part", f"rename {job}", "sync spool",
                                                     "sync jobs.db-wal", "answer 202"])
        server.finish(job)


@test("a large result is synced before the worker reports it, so that the daemon need not wait")
def large():
    with daemon() as server:
        lines(server.state)
        body = scans.radial(matrix=(512, 512, 1), spokes=8, samples=64, coils=20).bytes(FOLDER.name)
        job = server.run(body, "kind=recon&coils=none&output=complex")
        same(job["state"], "succeeded", "state")
        pieces = -(-512 * 512 * 20 * 8 // (32 << 20))
        log = lines(server.state)
        in_order(log, [f"waited results/{job['id']}.tmp/image.h5"] * pieces + [f"sync results/{job['id']}/image.h5"])
        # A writeback error is reported only once, here to the worker, which has to pass it on.
        with open(BROKEN, "w"):
            job = server.submit(body, "kind=recon&coils=none&output=complex").expect(202).json()["id"]
        wait_until(lambda: server.metrics().get('mrirecond_jobs_put_back_total{reason="io-error"}'),
                   "the job to be put back")
        os.unlink(BROKEN)
        job = server.finish(job)
        same((job["state"], job["attempts"]), ("succeeded", 1), "state and attempts")


@test("a result: its files, their folder, its name and the row are on the disk before its job is reported")
def succeeded():
    with daemon() as server:
        lines(server.state)
        job = server.submit(BODY, Prefer="wait=100").expect(200, "application/json").json()["id"]
        log = lines(server.state)
        log = log[:log.index("answer 200") + 1]
        named = [place for place, line in enumerate(log) if line == f"rename {job}"][1]  # the first is that of the scan
        assert f"sync results/{job}/image.h5" in log[named:], "image.h5 is not synced:\n" + "\n".join(log)
        in_order(log, [f"sync spool/{job}.part", f"rename {job}", "sync spool", "sync jobs.db-wal",
                       f"sync results/{job}", "sync results", "sync jobs.db-wal", "answer 200"])
        assert log.index(f"sync results/{job}") > named, "the results have their name after it is synced"


@contextlib.contextmanager
def image_held(server):
    """The answer to a client that waits for its image, and the job's id, while no result can be synced."""
    with open(HELD, "w") as file:
        file.write("/results")
    try:
        answer = server.submit(BODY, Prefer="wait=100", Accept="image/png").expect(200, "image/png")
        yield answer, answer.headers["x-job-id"]
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(HELD)


def image_of_job(server, job):
    return server.get(f"/v1/jobs/{job}/results/image?format=png").expect(200).body


@test("an image for which its submission waits is sent before its files are on the disk; all else waits for these")
def image_early():
    with daemon() as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        def early():
            """The image, the job and what was answered to those who ask for the job before its end is stored; None if
            that took so long that they are told that it runs.
            """
            lines(server.state)
            with image_held(server) as (answer, job):
                log = lines(server.state)
                log = log[:log.index("answer 200") + 1]
                in_order(log, [f"sync spool/{job}.part", f"rename {job}", "sync spool", "sync jobs.db-wal",
                               "answer 200"])
                same(log.count(f"rename {job}"), 2, "names given before the answer: to the scan, and to its results")
                begun = time.monotonic()
                asked = [pool.submit(server.get, path)
                         for path in (f"/v1/jobs/{job}", "/v1/jobs", f"/v1/jobs/{job}/results")]
                wait_until(lambda: server.waiting() == len(asked) or time.monotonic() - begun > END_SECONDS,
                           "requests that wait for the end of the job")
                os.unlink(HELD)
                told = [request.result() for request in asked]
            return (answer, job, told) if time.monotonic() - begun < END_SECONDS else None
        answer, job, told = quick(early)
        document, page, results = (answer.expect(200).json() for answer in told)
        same((document["state"], page["jobs"][0]["state"]), ("succeeded", "succeeded"), "states after the image")
        same([result["name"] for result in results["results"]], ["image"], "results after the image")
        same(image_of_job(server, job), answer.body, "the image that is kept")
        log = lines(server.state)
        for name in ("image.h5", "image.png"):
            assert f"sync results/{job}/{name}" in log, f"{name} is not synced:\n" + "\n".join(log)
        in_order(log, [f"sync results/{job}", "sync results", "sync jobs.db-wal", "answer 200"])


def quick(attempt):
    """The first value of attempt() that is not None: it needs a disk and processors that are not too busy."""
    for _ in range(20):
        if (value := attempt()) is not None:
            return value
    raise AssertionError(f"none of 20 attempts took less than {END_SECONDS} s")


@test("a client deletes its job as soon as it has the image")
def image_deleted():
    with daemon() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        def deleted():
            with image_held(server) as (_, job):
                begun = time.monotonic()
                deletion = pool.submit(server.request, "DELETE", f"/v1/jobs/{job}")
                wait_until(lambda: server.waiting() == 1 or time.monotonic() - begun > END_SECONDS,
                           "the deletion to wait for the end of the job")
                os.unlink(HELD)
                deletion = deletion.result()
            return (deletion, job) if time.monotonic() - begun < END_SECONDS else None
        for _ in range(10):  # the job is claimed before the deletion waits, or while it does
            deletion, job = quick(deleted)
            deletion.expect(204)
            server.get(f"/v1/jobs/{job}").problem(404, "not-found")


@test("who waits with a key for an image that the job of this key does not write gets it after the job's end")
def image_of_replay():
    with daemon() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        with server.paused():
            job = server.submit(BODY, Idempotency_Key="once").expect(202).json()["id"]
            answer = pool.submit(server.submit, BODY, Idempotency_Key="once", Prefer="wait=100", Accept="image/png")
            wait_until(lambda: server.waiting() == 1, "the request to wait for the job")
            with open(HELD, "w") as file:
                file.write("/results")
        try:
            wait_until(lambda: os.path.exists(f"{server.state}/results/{job}"), "the results")
            wait_until(lambda: server.job(job)["state"] == "running", "the job to begin")
            # Each news of the job wakes it for a moment.
            wait_until(lambda: server.waiting() == 1, "the request to wait on")
            assert not answer.done(), answer.result().body
        finally:
            os.unlink(HELD)
        answer = answer.result().expect(200, "image/png")
        same((answer.headers["x-job-id"], answer.headers["idempotency-replayed"]), (job, "true"), "job")


@test("on a disk that does not answer, a job whose image was sent is reported as running, not waited for without end")
def image_unstored():
    with daemon() as server:
        with image_held(server) as (_, job):
            same(server.job(job)["state"], "running", "state while the results cannot be synced")
            same(server.get("/v1/jobs").json()["jobs"][0]["state"], "running", "state in the list")
        same(server.finish(job)["state"], "succeeded", "state afterwards")


@test("while the results of a job are synced, the next job begins and can be canceled")
def next_meanwhile():
    with daemon() as server:
        with image_held(server) as (_, job):
            slow = server.submit(scans.slow().bytes(FOLDER.name), scans.SLOW_QUERY).expect(202).json()["id"]
            wait_until(lambda: server.job(slow)["state"] == "running", "the next job to run")
            server.request("POST", f"/v1/jobs/{slow}/cancel").expect(202)
            same(server.job(job)["state"], "running", "state of the first")
        same(server.finish(slow)["state"], "canceled", "state of the second")
        same(server.finish(job)["state"], "succeeded", "state of the first")


@test("kill -9 between an image and its syncs: the job runs again, to the same image, and its webhook is called once")
def image_killed():
    with Receiver() as receiver:
        lines_of = write(FOLDER.name, "destinations", receiver.destination(FOLDER.name, "hook") + "rule hook\n")
        with daemon(destinations=lines_of) as server:
            with image_held(server) as (answer, job):
                # What was computed ahead may be sent before the row says that the job has begun.
                wait_until(lambda: server.job(job)["state"] == "running", "the job to begin")
                server.kill()
                same(receiver.got, [], "what the webhook was told before the row is on the disk")
            server.restart()
            document = server.finish(job)
            same((document["state"], document["attempts"]), ("succeeded", 2), "state and attempts")
            same(image_of_job(server, job), answer.body, "the image of the second run")
            wait_until(lambda: server.job(job)["deliveries"][0]["state"] == "delivered", "the webhook to be told")
        same(len(receiver.got), 1, "times that the webhook was told")


@test("a disk that fails at the sync of an image that was sent: the job is queued again, to the same image")
def image_failed():
    with daemon() as server:
        with image_held(server) as (answer, job):
            with open(BROKEN, "w"):
                os.unlink(HELD)
                wait_until(lambda: server.metrics().get('mrirecond_jobs_put_back_total{reason="io-error"}'),
                           "the job to be put back")
        assert server.job(job)["state"] in ("queued", "running"), "it ended without its files on the disk"
        os.unlink(BROKEN)
        document = server.finish(job)
        same((document["state"], document["attempts"]), ("succeeded", 1), "state and attempts")
        same(image_of_job(server, job), answer.body, "the image of the second run")


@contextlib.contextmanager
def image_made(server):
    """The answer to come to a client that waits for its image, while its upload cannot be synced; the results are
    there."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            with open(HELD, "w") as file:
                file.write("/spool")
            answer = pool.submit(server.submit, BODY, Prefer="wait=100", Accept="image/png")
            jobs = {job["id"] for job in server.get("/v1/jobs").json()["jobs"]}
            made = wait_until(lambda: {name for name in results_of(server) if "." not in name} - jobs, "the results")
            same((len(made), answer.done()), (1, False), "new results, and whether their client was answered")
            server.get(f"/v1/jobs/{made.pop()}").problem(404, "not-found")
            yield answer
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(HELD)


def results_of(server):
    return os.listdir(f"{server.state}/results")


@test("a job is computed while its scan is synced: then its image is sent, and its worker is not needed any more")
def image_made_sent():
    with daemon() as server:
        truth = image_of_job(server, server.run(BODY)["id"])
        lines(server.state)
        for _ in range(2):
            with image_made(server) as answer, server.paused():
                os.unlink(HELD)
                answer = answer.result().expect(200, "image/png")
                job = server.finish(answer.headers["x-job-id"])
                same((job["state"], job["attempts"], answer.body), ("succeeded", 1, truth), "state, attempts and image")
                log = lines(server.state)
                in_order(log[:log.index("answer 200", log.index("sync spool")) + 1],
                         [f"sync spool/{job['id']}.part", f"rename {job['id']}", "sync spool", "sync jobs.db-wal",
                          "answer 200"])
                in_order(log, [f"sync results/{job['id']}", "sync results", "sync jobs.db-wal"])
        same(server.run(BODY)["state"], "succeeded", "state of the worker's next job")


@test("kill -9 when a job is computed, and its scan not yet synced: nothing is left")
def image_made_killed():
    with daemon() as server:
        with image_made(server) as answer:
            server.kill()
        assert answer.exception(), "an answer of a daemon that was killed"
        server.restart()
        same((results_of(server), server.get("/v1/jobs").json()["jobs"]), ([], []), "results and jobs after the start")
        same(server.run(BODY)["state"], "succeeded", "state of the next job")


@test("the disk refuses the scan of a job that is computed: the job is not accepted, and nothing is left")
def image_made_refused():
    with daemon(expect_trouble=True) as server:
        with image_made(server) as answer:
            with open(BROKEN, "w") as file:
                file.write("/spool")
            os.unlink(HELD)
            answer.result().problem(500, "io-error")
        os.unlink(BROKEN)
        wait_until(lambda: not results_of(server), "the results to be removed")
        same(server.get("/v1/jobs").json()["jobs"], [], "jobs")
        same(server.run(BODY)["state"], "succeeded", "state of the next job")


@test("a failure and a cancel are on the disk before they are reported")
def ended():
    with daemon() as server:
        bad = scans.radial()
        bad.data[3, 0, 0] = float("nan")
        lines(server.state)
        problem = server.submit(bad.bytes(FOLDER.name), Prefer="wait=100").json()
        same(problem["code"], "data-nonfinite", "code")
        log = lines(server.state)
        in_order(log[:log.index("answer 422") + 1], ["sync spool", "sync jobs.db-wal", "sync jobs.db-wal",
                                                     "answer 422"])
        slow = server.submit(scans.slow().bytes(FOLDER.name), scans.SLOW_QUERY).expect(202).json()["id"]
        lines(server.state)
        server.request("POST", f"/v1/jobs/{slow}/cancel")
        log = lines(server.state)
        answers = [line for line in log if line.startswith("answer")]
        in_order(log, ["sync jobs.db-wal", answers[0]])
        server.finish(slow)


@test("a scan is read while it is synced, that of a resumable upload while its name is: its job finds it decoded")
def read_ahead():
    tus = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
    with daemon() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        def read_while_held(send, held=""):
            """What send() returns; syncs (of such a path) are held until a decoder has read the scan. Each process
            reads one scan.
            """
            def two():
                found = server.children("mrirecon-codec", server.worker())
                return len(found) == 2 and found
            before = wait_until(two, "two decoders to stand ready")
            with open(HELD, "w") as file:
                file.write(held)
            answer = pool.submit(send)
            try:
                wait_until(lambda: not set(before) <= set(server.children("mrirecon-codec", server.worker())),
                           "the scan to be read")
            finally:
                os.unlink(HELD)
            return answer.result()

        server.run(BODY)
        posted = read_while_held(lambda: server.submit(BODY)).expect(202).json()["id"]
        server.finish(posted)
        where = server.request("POST", "/v1/uploads?kind=recon",
                               headers={**tus, "Upload-Length": str(len(BODY))}).expect(201).headers["location"]

        def append(begin, end):
            return server.request("PATCH", where, BODY[begin:end], {**tus, "Upload-Offset": str(begin)})
        append(0, 5000).expect(204)
        read_while_held(lambda: append(5000, len(BODY)), "/spool").expect(204)
        for identity in (posted, where.rsplit("/", 1)[1]):
            report = server.finish(identity)["report"]
            # The reading may end after the job has begun.
            assert 0 < report["decode_ahead_seconds"] <= report["stages"]["decode"], report


@test("an MRD stream: its images are sent while its job is committed, its end after job and results are on the disk")
def streamed():
    messages = [mrd.text(mrd.CONFIG_TEXT, "kind=recon&output=complex&coils=none"), *series().messages()]
    with daemon(mrd_listen="127.0.0.1:0") as server, mrd.Session(server) as session:
        lines(server.state)
        # A worker that has made an image follows the stream; one that has not begun by its end would wait for the job.
        same(image_of(session.send(*messages[:34]))[0], 1, "the first image")
        with open(HELD, "w"):
            session.send(*messages[34:])
        try:
            same([image_of(session)[0] for _ in range(2)], [2, 3], "images while nothing can be synced")
            same(server.get("/v1/jobs").json()["jobs"], [], "jobs meanwhile")
            same(select.select([session.socket], [], [], 0)[0], [], "an end of the session meanwhile")
        finally:
            os.unlink(HELD)
        same(session.messages(), [], "what follows the images")
        log = lines(server.state)
        job, = server.get("/v1/jobs").json()["jobs"]
        same(job["state"], "succeeded", "state at the session's end")
        sends = [place for place, line in enumerate(log) if line.startswith(f"send results/{job['id']}/")]
        same(len(sends), 1, "times that something of the result's file, which has the end, is sent")
        in_order(log[:sends[0]],
                 [f"sync spool/{job['id']}.part", f"rename {job['id']}", "sync spool", "sync jobs.db-wal",
                  f"rename {job['id']}", f"sync results/{job['id']}", "sync results", "sync jobs.db-wal"])


@test("what an MRD stream sends is acknowledged at once, so that a client that gathers small pieces sends its end")
def acknowledged():
    messages = [mrd.text(mrd.CONFIG_TEXT, "kind=recon&output=complex&coils=none"), *series().messages()]
    with daemon(mrd_listen="127.0.0.1:0") as server, mrd.Session(server) as session:
        lines(server.state)
        for begin, end in ((0, 34), (34, 65), (65, len(messages))):  # so that there are three receipts at least
            image_of(session.send(*messages[begin:end]))
        same(session.messages(), [], "what follows the images")
        log = lines(server.state)
    sockets = {line.split()[1] for line in log if line.startswith("acknowledges ")}
    same(len(sockets), 1, "sockets that acknowledge at once")
    own = [line.split()[0] for line in log if line.split()[-1] in sockets]
    assert len(own) >= 6 and own == ["received", "acknowledges"] * (len(own) // 2), own


@test("what a start keeps aside, and the scan that it takes from an upload, are on the disk under their names first")
def kept_at_a_start():
    with daemon(expect_trouble=True) as server:
        os.kill(server.worker(), signal.SIGSTOP)
        job, other = (server.submit(BODY).expect(202).json()["id"] for _ in range(2))
        server.kill()
        os.rename(f"{server.state}/spool/{job}", f"{server.state}/uploads/{job}")
        leftover = "0" * 26
        os.link(f"{server.state}/spool/{other}", f"{server.state}/spool/{leftover}")
        lines(server.state)
        server.restart()
        log = lines(server.state)
        aside = next(line.split()[1] for line in log if line.endswith(f"/{leftover}.scan"))
        in_order(log, [f"rename {aside}", f"sync {os.path.dirname(aside)}", f"sync {server.state}", "answer 200"])
        assert "sync spool" in log[:log.index("answer 200")], f"the scan's name is not synced: {log}"
        same(server.finish(job)["state"], "succeeded", "state")


if __name__ == "__main__":
    main()
