#!/usr/bin/python3
"""The queue: its order, holding, admission, and resubmission."""
import concurrent.futures
import contextlib
import datetime
import math
import os
import re
import signal
import socket
import sys
import tempfile
import time

import scans
from harness import Daemon, client, main, same, test, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit"))
import scan_files  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial(seed=61).write(f"{FOLDER.name}/scan.h5")
with open(SCAN, "rb") as file:
    BODY = file.read()
OTHER = scans.radial(seed=62).bytes(FOLDER.name)
SLOW = scans.slow(seed=64).bytes(FOLDER.name)
UNWEIGHTED = scans.radial(seed=63, weights=False).bytes(FOLDER.name)
HELD = {"work_reserve": "900T"}  # more than any disk has: no job begins


def began(daemon, identities):
    """These jobs, in the order in which they started."""
    jobs = [daemon.finish(identity) for identity in identities]
    assert all(job["state"] == "succeeded" for job in jobs), [job["error"] for job in jobs]
    return [job["id"] for job in sorted(jobs, key=lambda job: job["started"])]


def submit(daemon, query="kind=recon", **headers):
    return daemon.submit(BODY, query, **headers).expect(202).json()["id"]


@test("jobs are held while the disk is low, and run afterwards; meanwhile jobs are accepted, listed and canceled")
def held():
    daemon = Daemon(devices="cpu", **HELD)
    with daemon:
        jobs = [submit(daemon, f"kind=recon&priority={p}") for p in ("batch", "normal", "urgent", "batch")]
        wait_until(lambda: daemon.metrics()["mrirecond_queue_held"] == 1, "work to be held")
        for _ in range(2):  # the scheduler ends these waits, the second in a turn of its own
            daemon.get(f"/v1/jobs/{jobs[0]}", Prefer="wait=1").expect(200)
        metrics = daemon.metrics()
        same({p: metrics[f'mrirecond_queue_jobs{{priority="{p}"}}'] for p in ("urgent", "normal", "batch")},
             {"urgent": 1, "normal": 1, "batch": 2}, "waiting")
        same([job["state"] for job in daemon.get("/v1/jobs").json()["jobs"]], ["queued"] * 4, "states")
        daemon.request("POST", f"/v1/jobs/{jobs[3]}/cancel").expect(202)
        same(daemon.job(jobs[3])["state"], "canceled", "state of the last")
        checks = daemon.get("/readyz").expect(503).json()["checks"]
        assert "a job starts only with at least" in checks.pop("starting"), checks
        same(set(checks.values()), {"ok"}, f"the other checks: {checks}")
        same((metrics["mrirecond_ready"], daemon.get("/livez").status), (0, 200), "mrirecond_ready and /livez")
        daemon.kill()
        daemon.options["work_reserve"] = "1M"
        daemon.restart()
        same(began(daemon, jobs[:3]), [jobs[2], jobs[1], jobs[0]], "order")
        same(daemon.metrics()["mrirecond_queue_held"], 0, "mrirecond_queue_held")
        same(daemon.get("/readyz?verbose").expect(200).json()["checks"]["starting"], "ok", "the check")


@test("clients take turns within a priority, however many jobs each has submitted")
def fair():
    daemon = Daemon(devices="cpu", **HELD)
    with daemon:
        many = [submit(daemon, X_Mrirecond_Client="many") for _ in range(4)]
        few = [submit(daemon, X_Mrirecond_Client="few") for _ in range(2)]
        here = submit(daemon)
        same([daemon.job(job)["client"] for job in (many[0], few[0], here)], ["many", "few", "127.0.0.1"], "clients")
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        order = began(daemon, many + few + [here])
        # From then on the time of each job counts, which is not the same for all.
        same(order[:3], [many[0], few[0], here], "the first of each")
        same([job for job in order if job in many], many, "order of one client's jobs")


@test("a small file that keeps its reader busy is stopped; its sender's next job waits for those of other clients")
def busy():
    with tempfile.TemporaryDirectory() as folder:
        scan_files.busy(f"{folder}/bomb", b"TREE\1", 24, 64)
        with open(f"{folder}/bomb", "rb") as file:
            bomb = file.read()
    assert len(bomb) < 300000, len(bomb)
    with Daemon(devices="cpu", decode_time=1) as daemon:
        def send(body, client, query="kind=recon"):
            return daemon.submit(body, query, X_Mrirecond_Client=client).expect(202).json()["id"]
        with daemon.paused():  # until all are submitted
            bombs = [send(bomb, "mallory")]
            wait_until(lambda: daemon.job(bombs[0])["state"] == "running", "the first bomb to begin")
            bombs.append(send(bomb, "mallory"))
            others = [send(BODY, "alice", "kind=recon&priority=urgent")] + [send(BODY, name)
                                                                            for name in ("bob", "carol", "dave")]
        ended = {identity: daemon.finish(identity) for identity in bombs + others}
        for identity in bombs:
            same((ended[identity]["state"], ended[identity]["error"]["code"]), ("failed", "limit-exceeded"),
                 "how a bomb ended")
        for identity in others:
            same(ended[identity]["state"], "succeeded", "state of another's job")
        order = sorted(ended, key=lambda identity: ended[identity]["started"])
        same(order, bombs[:1] + others + bombs[1:], "order in which jobs began")


@test("a batch job that has waited long enough runs before a younger urgent one")
def ageing():
    daemon = Daemon(devices="cpu", priority_ageing=1, **HELD)
    with daemon:
        batch = submit(daemon, "kind=recon&priority=batch")
        created = datetime.datetime.fromisoformat(daemon.job(batch)["created"].replace("Z", "+00:00"))
        wait_until(lambda: (datetime.datetime.now(datetime.timezone.utc) - created).total_seconds() > 2,
                   "a batch job two steps old")
        urgent = submit(daemon, "kind=recon&priority=urgent")
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        same(began(daemon, [urgent, batch]), [batch, urgent], "order")


@test("invalid priorities and client names are refused; the client sends and shows a priority")
def priorities(daemon):
    daemon.submit(BODY, "kind=recon&priority=soon").problem(400, "bad-parameter")
    daemon.submit(BODY, "kind=recon&priority=batch&priority=batch").problem(400, "bad-parameter")
    for name in ("", "a b", "x" * 64, "a/b", "caf\u00e9".encode().decode("latin-1")):
        daemon.submit(BODY, X_Mrirecond_Client=name).problem(400, "bad-request")
    same(daemon.job(submit(daemon))["priority"], "normal", "priority where none is said")
    identity = client(daemon, "submit", SCAN, "--priority", "batch").stdout.strip()
    same(daemon.job(identity)["priority"], "batch", "priority")
    assert "batch" in [line for line in client(daemon, "list").stdout.splitlines() if identity in line][0]
    same(client(daemon, "submit", SCAN, "--priority", "soon", check=False).returncode, 1, "exit status")


@test("a client over its quota, a full queue, a full spool: 429, 503, 507, each with Retry-After")
def back_pressure():
    def refused(answer, status, code):
        answer.problem(status, code)
        assert int(answer.headers["retry-after"]) > 0, answer.headers

    with Daemon(devices="cpu", client_jobs=2, queue_limit=4, **HELD) as daemon:
        for name in "ab":
            jobs = [submit(daemon, X_Mrirecond_Client=name) for _ in range(2)]
            refused(daemon.submit(BODY, X_Mrirecond_Client=name),
                    *((429, "client-quota") if name == "a" else (503, "queue-full")))
        daemon.request("POST", f"/v1/jobs/{jobs[0]}/cancel").expect(202)
        refused(daemon.submit(BODY, X_Mrirecond_Client="a"), 429, "client-quota")
        submit(daemon, X_Mrirecond_Client="b")

        def rejected():  # counted after the answer was sent
            return {key: value for key, value in daemon.metrics().items()
                    if key.startswith("mrirecond_ingest_rejected_total")}
        wait_until(lambda: sum(rejected().values()) >= 3, "the refusals to be counted")
        same(rejected(), {'mrirecond_ingest_rejected_total{reason="client-quota"}': 2,
                          'mrirecond_ingest_rejected_total{reason="queue-full"}': 1},
             "refusals counted")
    with Daemon(devices="cpu", client_bytes=2 * len(BODY), spool_limit=3 * len(BODY), **HELD) as daemon:
        submit(daemon)
        submit(daemon)
        refused(daemon.submit(BODY), 429, "client-quota")
        submit(daemon, X_Mrirecond_Client="other")
        refused(daemon.submit(BODY, X_Mrirecond_Client="third"), 507, "spool-full")
        # Without a length, the limit is reached during the transfer, or at its end.
        refused(daemon.submit(iter([BODY[:1000], BODY[1000:]]), X_Mrirecond_Client="third"), 507, "spool-full")


@test("Retry-After follows the pace of the queue, and is multiplied by the clients for one over its quota")
def retry_after():
    def refused(name, status):
        return int(daemon.submit(BODY, X_Mrirecond_Client=name).expect(status).headers["retry-after"])

    with Daemon(devices="cpu", client_jobs=1, queue_limit=3, **HELD) as daemon:
        begun = time.monotonic()
        submit(daemon, X_Mrirecond_Client="a")
        seconds = refused("a", 429)
        assert 1 <= seconds <= max(1, math.ceil(time.monotonic() - begun)), f"Retry-After at once is {seconds}"
        submit(daemon, X_Mrirecond_Client="b")
        wait_until(lambda: refused("a", 429) > 5, "a longer Retry-After")
        asked = time.monotonic()
        share = refused("a", 429)
        submit(daemon, X_Mrirecond_Client="c")
        full = refused("d", 503)
        passed = time.monotonic() - asked  # the queue has stood still longer by this time
        assert (2 * (full - 1 - passed) < share
                <= 2 * full), f"Retry-After: {full} s for a full queue, {share} s for one of two clients over its quota"


@test("a reload changes quotas and ageing of a running service")
def reload():
    config = f"{FOLDER.name}/queue.conf"

    def write(jobs):
        with open(config, "w") as file:
            file.write(f"client-jobs = {jobs}\npriority-ageing = {jobs}\n")

    write(1)
    with Daemon(devices="cpu", config=config, **HELD) as daemon:
        submit(daemon)
        daemon.submit(BODY).problem(429, "client-quota")
        write(2)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.submit(BODY).status == 202, "the new quota")
        daemon.submit(BODY).problem(429, "client-quota")
        assert "restart is needed" not in daemon.read_log(), daemon.read_log()


# ---- idempotency

def send(daemon, key, body=BODY, query="kind=recon", **headers):
    return daemon.submit(body, query, Idempotency_Key=key, **headers)


@test("a submission repeated with its key gets the existing job; a different body or parameters are refused")
def idempotency(daemon):
    first = send(daemon, "one").expect(202)
    again = send(daemon, '"one"').expect(202)
    same(again.json()["id"], first.json()["id"], "job")
    same((first.headers.get("idempotency-replayed"), again.headers.get("idempotency-replayed")), (None, "true"),
         "Idempotency-Replayed")
    send(daemon, "one", OTHER).problem(422, "idempotency-key-reused")
    send(daemon, "one", query="kind=recon&dcf=none").problem(422, "idempotency-key-reused")
    daemon.finish(first.json()["id"])
    image = send(daemon, "one", Prefer="wait=60", Accept="image/png").expect(200, "image/png")
    same(image.headers["x-job-id"], first.json()["id"], "job of the image")
    other = send(daemon, "one", X_Mrirecond_Client="somebody-else").expect(202).json()["id"]
    assert other != first.json()["id"], "two clients share a key's job"
    daemon.request("DELETE", f"/v1/jobs/{first.json()['id']}").expect(204)
    assert send(daemon, "one", OTHER).expect(202).json()["id"] != first.json()["id"], "a key outlived its job"
    for key in ("", "a b", "x" * 201, "caf\u00e9".encode().decode("latin-1")):
        send(daemon, key).problem(400, "bad-request")
    wait_until(lambda: not [name for name in daemon.files() if name.startswith("spool/")],
               "all scans to go: that of a refused one, too")


@test("the key of an upload in progress is in use; when the upload is interrupted, the key is free")
def in_flight(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port)) as half:
        half.sendall(f"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: two\r\nContent-Length: "
                     f"{len(BODY)}\r\n\r\n".encode() + BODY[:100])
        wait_until(lambda: [name for name in daemon.files() if name.startswith("spool/")],
                   "the upload to reach the disk")
        send(daemon, "two").problem(409, "idempotency-key-in-use")
        send(daemon, "three").expect(202)
    wait_until(lambda: send(daemon, "two").status == 202, "the key to be free")


@test("keys survive kill -9: an accepted job is not run twice")
def keys_last():
    daemon = Daemon(devices="cpu", **HELD)
    with daemon:
        first = send(daemon, "k").expect(202).json()["id"]
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        same(send(daemon, "k").expect(202).json()["id"], first, "job")
        same(len(daemon.get("/v1/jobs").json()["jobs"]), 1, "jobs")
        same(daemon.finish(first)["state"], "succeeded", "state")


@test("a job is run again only once per key; with other parameters, or for a new submission, the key is taken")
def idempotency_of_resubmission():
    with Daemon(devices="cpu", keep_scans="all") as daemon:
        first = daemon.run(BODY)["id"]

        def again(key, query=""):
            return daemon.request("POST", f"/v1/jobs/{first}/resubmit{query}", headers={"Idempotency-Key": key})
        second = again("k").expect(202).json()["id"]
        answer = again("k").expect(202)
        same((answer.json()["id"], answer.headers.get("idempotency-replayed")), (second, "true"),
             "job and Idempotency-Replayed")
        again("k", "?dcf=none").problem(422, "idempotency-key-reused")
        send(daemon, "k").problem(422, "idempotency-key-reused")
        daemon.request("POST", f"/v1/jobs/{second}/resubmit",
                       headers={"Idempotency-Key": "k"}).problem(422, "idempotency-key-reused")
        again("a b").problem(400, "bad-request")
        assert again("other").expect(202).json()["id"] != second, "two keys have the same job"
        same(len(daemon.get("/v1/jobs").json()["jobs"]), 3, "jobs")


# ---- clients that disconnect

def leave(daemon, prefer, body=BODY, query="kind=recon"):
    """Submit, wait for the job to exist, and disconnect without an answer; returns the job's id."""
    before = {job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]}
    with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
        connection.sendall(f"POST /v1/jobs?{query} HTTP/1.1\r\nHost: localhost\r\nPrefer: {prefer}\r\nContent-Length: "
                           f"{len(body)}\r\n\r\n".encode() + body)
        new = wait_until(lambda: {job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]} - before, "the job").pop()
        if query != "kind=recon":
            wait_until(lambda: daemon.job(new)["state"] == "running", "the job to run")
        wait_until(lambda: daemon.waiting() == 1, "the request to wait")
    wait_until(lambda: daemon.waiting() == 0, "the client's end to be noticed")
    return new


@test("a client that waits and disconnects has its job canceled only if it asked for that")
def disconnect():
    daemon = Daemon(devices="cpu", keep_scans="none", **HELD)
    with daemon:
        stays = leave(daemon, "wait=60")
        goes = leave(daemon, "wait=60, cancel-on-disconnect")
        same(daemon.finish(goes)["state"], "canceled", "state of the one")
        wait_until(lambda: not [name for name in daemon.files() if goes in name], "its scan to go")
        same(daemon.job(stays)["state"], "queued", "state of the other")
        answer = daemon.submit(BODY, Prefer="cancel-on-disconnect, wait=1").expect(202)
        same(answer.headers["preference-applied"], "wait=1, cancel-on-disconnect", "Preference-Applied")
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        same([daemon.finish(identity)["state"] for identity in (stays, answer.json()["id"])], ["succeeded"] * 2,
             "states")
        with daemon.paused():  # it does not end before that
            running = leave(daemon, "wait=60, cancel-on-disconnect", SLOW, scans.SLOW_QUERY)
            wait_until(lambda: daemon.job(running)["state"] in ("canceling", "canceled"), "its cancellation")
        same(daemon.finish(running)["state"], "canceled", "state of one that ran")
        image = daemon.submit(BODY, Prefer="wait=60, cancel-on-disconnect", Accept="image/png").expect(200, "image/png")
        same(daemon.job(image.headers["x-job-id"])["state"], "succeeded", "state of one that was waited for")


# ---- deadlines, resubmission and retention

@test("a GET of a job or its image waits for the job's end as Prefer says, with the number of jobs ahead")
def waiting_gets():
    with Daemon(devices="cpu") as daemon, contextlib.ExitStack() as stack:
        stack.enter_context(daemon.paused())
        slow = daemon.submit(scans.radial(seed=65).bytes(daemon.state)).expect(202).json()["id"]
        wait_until(lambda: daemon.job(slow)["state"] == "running", "a busy worker")
        quick = scans.radial().bytes(daemon.state)
        behind = [daemon.submit(quick, "kind=recon", X_Mrirecond_Client="b").expect(202).json() for _ in range(3)]
        urgent = daemon.submit(quick, "kind=recon&priority=urgent").expect(202).json()
        same([job["ahead"] for job in behind] + [urgent["ahead"]], [0, 1, 2, 0], "jobs ahead, as each was sent")
        same([daemon.job(job["id"])["ahead"] for job in behind], [1, 2, 3], "jobs ahead with an urgent one")
        same((daemon.job(slow)["ahead"], {job["ahead"] for job in daemon.get("/v1/jobs").json()["jobs"]}),
             (None, {None}), "ahead of what runs, and in lists")
        last = behind[-1]["id"]
        for header, applied in (("wait=0", "wait=0"), (None, None), ("wait=1", "wait=1")):
            answer = daemon.get(f"/v1/jobs/{last}", **({"Prefer": header} if header else {})).expect(200)
            same((answer.json()["state"], answer.headers.get("preference-applied"), "retry-after" in answer.headers),
                 ("queued", applied, True), f"with {header}")
        daemon.get(f"/v1/jobs/{last}/results/image").problem(409, "conflict")
        daemon.get(f"/v1/jobs/{last}/results/image", Prefer="wait=1").problem(409, "conflict")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            document = pool.submit(daemon.get, f"/v1/jobs/{last}", Prefer="wait=100")
            image = pool.submit(daemon.get, f"/v1/jobs/{last}/results/image?format=png", Prefer="wait=100")
            file = pool.submit(daemon.get, f"/v1/jobs/{last}/results/image.h5", Prefer="wait=100")
            canceled = pool.submit(daemon.get, f"/v1/jobs/{behind[0]['id']}/results/image", Prefer="wait=100")
            daemon.request("POST", f"/v1/jobs/{behind[0]['id']}/cancel").expect(202)
            canceled.result().problem(409, "conflict")
            stack.close()  # the worker continues
            done = document.result().expect(200)
            same((done.json()["state"], done.json()["ahead"], done.headers["preference-applied"],
                  "retry-after" in done.headers), ("succeeded", None, "wait=100", False), "the end")
            image.result().expect(200, "image/png")
            file.result().expect(200, "application/x-hdf5")


@test("a job still queued at its deadline fails with its own error code; one that began in time does not")
def deadline():
    daemon = Daemon(devices="cpu", keep_scans="none", **HELD)
    with daemon:
        late = submit(daemon, "kind=recon&deadline=1")
        in_time = submit(daemon, "kind=recon&deadline=3600")
        assert daemon.job(late)["deadline"] > daemon.job(late)["created"], daemon.job(late)
        daemon.submit(BODY, "kind=recon&deadline=1", Prefer="wait=60").problem(504, "deadline-passed")
        job = daemon.finish(late)
        same((job["state"], job["error"]["code"], job["attempts"]), ("failed", "deadline-passed", 0), "end")
        wait_until(lambda: daemon.metrics().get('mrirecond_jobs_failed_total{kind="recon",reason="deadline-passed"}')
                   == 2, "failed jobs to be counted")
        wait_until(lambda: not [name for name in daemon.files() if late in name], "files of the late job to go")
        for wrong in ("0", "-1", "soon", "1.5", "99999999999"):
            daemon.submit(BODY, f"kind=recon&deadline={wrong}").problem(400, "bad-parameter")
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        same(daemon.finish(in_time)["state"], "succeeded", "state of the other")


@test("a job whose scan is kept runs again, optionally with other parameters")
def resubmit():
    with Daemon(devices="cpu", keep_scans="failed") as daemon:
        failed = daemon.submit(UNWEIGHTED, "kind=recon&dcf=given&priority=urgent").expect(202).json()["id"]
        same(daemon.finish(failed)["error"]["code"], "dcf-missing", "code")
        answer = daemon.request("POST", f"/v1/jobs/{failed}/resubmit?dcf=pipe&tolerance=1e-2").expect(202)
        again = answer.json()
        same(answer.headers["location"], f"/v1/jobs/{again['id']}", "Location")
        same((again["parameters"]["dcf"], again["parameters"]["tolerance"], again["priority"]),
             ("pipe", 0.01, "urgent"), "what it is")
        same(daemon.job(failed)["scan_kept"], True, "scan_kept of the failed job")
        daemon.request("DELETE", f"/v1/jobs/{failed}").expect(204)  # the scan also belongs to the other job
        ended = daemon.finish(again["id"])
        same((again["scan_kept"], ended["state"], ended["scan_kept"]), (True, "succeeded", False), "the other job")
        wait_until(lambda: not [name for name in daemon.files() if name.startswith("spool/")], "the scan to go")
        daemon.request("POST", f"/v1/jobs/{again['id']}/resubmit").problem(409, "scan-not-kept")
        daemon.request("POST", f"/v1/jobs/{failed}/resubmit").problem(404, "not-found")
        kept = daemon.submit(UNWEIGHTED, "kind=recon&dcf=given").expect(202).json()["id"]
        daemon.finish(kept)
        daemon.request("POST", f"/v1/jobs/{kept}/resubmit?dcf=wrong").problem(400, "bad-parameter")
        # With its own coils=rss.
        daemon.request("POST", f"/v1/jobs/{kept}/resubmit?output=complex").problem(400, "bad-parameter")
        image = daemon.request("POST", f"/v1/jobs/{kept}/resubmit?dcf=none",
                               headers={"Prefer": "wait=60", "Accept": "image/png"})
        image.expect(200, "image/png")
        wait_until(lambda: daemon.metrics()["mrirecond_spool_used_bytes"] == len(UNWEIGHTED),
                   "only the scan that is kept to be counted")
        same(client(daemon, "resubmit", kept, "dcf=given", "--wait", check=False).returncode, 1,
             "exit status of the client")
        identity = client(daemon, "resubmit", kept, "dcf=none", "--wait").stdout.strip()
        same(daemon.job(identity)["parameters"]["dcf"], "none", "parameter by the client")


@test("old finished jobs are removed with their files; queued ones are not")
def retention_by_age():
    with Daemon(devices="cpu", keep_jobs=1, keep_scans="all") as daemon:
        job = submit(daemon)
        wait_until(lambda: daemon.get(f"/v1/jobs/{job}").status == 404, "the job to go")
        wait_until(lambda: not [name for name in daemon.files() if job in name], "its files to go")
        wait_until(lambda: daemon.metrics().get('mrirecond_jobs_completed_total{kind="recon"}') == 1,
                   "the job's success to be counted")
        daemon.options.update(HELD)
        daemon.kill()
        daemon.restart()
        waiting = submit(daemon)
        time.sleep(2.5)
        same(daemon.job(waiting)["state"], "queued", "state")


@test("finished jobs are removed when they use too much space, the oldest first")
def retention_by_bytes():
    with Daemon(devices="cpu") as daemon:
        jobs = [daemon.run(BODY) for _ in range(3)]
        size = sum(result["bytes"] for result in jobs[2]["results"])
        daemon.kill()
        daemon.options["keep_bytes"] = 2 * size + 100
        daemon.restart()
        wait_until(lambda: daemon.get(f"/v1/jobs/{jobs[0]['id']}").status == 404, "the first to go")
        wait_until(lambda: "removed 0 ended jobs for their age, 1 for space" in daemon.read_log(),
                   "the end of that pass")
        for job in jobs[1:]:
            daemon.get(f"/v1/jobs/{job['id']}/results/image?format=h5").expect(200)
        daemon.get(f"/v1/jobs/{jobs[2]['id']}/results/image?format=npy").expect(200)  # its image takes more now
        wait_until(lambda: daemon.get(f"/v1/jobs/{jobs[1]['id']}").status == 404, "the second to go")
        daemon.kill()
        daemon.restart()
        time.sleep(1.5)
        daemon.get(f"/v1/jobs/{jobs[2]['id']}/results/image?format=npy").expect(200)


@test("a client that fills keep-bytes removes its own oldest results, not the older ones of another")
def retention_by_client():
    with Daemon(devices="cpu") as daemon:
        quiet, *busy = [daemon.finish(submit(daemon, X_Mrirecond_Client=client))
                        for client in ("quiet", "busy", "busy", "busy")]
        size = sum(result["bytes"] for result in busy[2]["results"])
        daemon.kill()
        daemon.options["keep_bytes"] = 2 * size + 100
        daemon.restart()
        for job in busy[:2]:
            wait_until(lambda: daemon.get(f"/v1/jobs/{job['id']}").status == 404, "the busy client's oldest to go")
        wait_until(lambda: "removed 0 ended jobs for their age, 2 for space" in daemon.read_log(),
                   "the end of that pass")
        for job in (quiet, busy[2]):
            daemon.get(f"/v1/jobs/{job['id']}/results/image?format=h5").expect(200)
        assert re.search(rf"job={busy[0]['id']} removed for space .*client busy keeps most", daemon.read_log())


@test("a purge removes finished jobs by age and state, and nothing else")
def purge():
    daemon = Daemon(devices="cpu")
    with daemon:
        good, bad = daemon.run(BODY)["id"], daemon.run(UNWEIGHTED, "kind=recon&dcf=given")["id"]
        for query, code in (("", "bad-parameter"), ("?older=x", "bad-parameter"),
                            ("?older=0&state=queued", "bad-parameter"), ("?older=0&id=1", "unknown-parameter")):
            daemon.request("DELETE", "/v1/jobs" + query).problem(400, code)
        same(daemon.request("DELETE", "/v1/jobs?older=3600").expect(200).json()["removed"], 0, "removed")
        same(daemon.request("DELETE", "/v1/jobs?older=0&state=failed").expect(200).json()["removed"], 1, "removed")
        same((daemon.get(f"/v1/jobs/{bad}").status, daemon.get(f"/v1/jobs/{good}").status), (404, 200), "left")
        assert "1" in client(daemon, "purge", "--older", "0").stdout
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs left")
        wait_until(lambda: not [name for name in daemon.files() if name.startswith(("spool/", "results/"))],
                   "all files to go")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
