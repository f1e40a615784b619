#!/usr/bin/python3
"""The queue: whose turn it is, what is held, what comes back."""
# time limit: 300 s
import tempfile
import time

import scans
from harness import Daemon, client, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial(seed=61).write(f"{FOLDER.name}/scan.h5")
with open(SCAN, "rb") as file:
    BODY = file.read()
HELD = {"work_reserve": "900T"}  # more than any disk has: no job is begun


def began(daemon, identities):
    """These jobs, in the order in which they began."""
    jobs = [daemon.finish(identity) for identity in identities]
    assert all(job["state"] == "succeeded" for job in jobs), [job["error"] for job in jobs]
    return [job["id"] for job in sorted(jobs, key=lambda job: job["started"])]


def submit(daemon, query="kind=recon", **headers):
    return daemon.submit(BODY, query, **headers).expect(202).json()["id"]


@test("jobs are held while the disk is low, and run when it is not; meanwhile they are taken in, listed and canceled")
def held():
    daemon = Daemon(devices="cpu", **HELD)
    with daemon:
        jobs = [submit(daemon, f"kind=recon&priority={p}") for p in ("batch", "normal", "urgent", "batch")]
        wait_until(lambda: daemon.metrics()["mrirecond_queue_held"] == 1, "work to be held")
        time.sleep(0.3)
        metrics = daemon.metrics()
        same({p: metrics[f'mrirecond_queue_jobs{{priority="{p}"}}'] for p in ("urgent", "normal", "batch")},
             {"urgent": 1, "normal": 1, "batch": 2}, "waiting")
        same([job["state"] for job in daemon.get("/v1/jobs").json()["jobs"]], ["queued"] * 4, "states")
        daemon.request("POST", f"/v1/jobs/{jobs[3]}/cancel").expect(202)
        same(daemon.job(jobs[3])["state"], "canceled", "state of the last")
        daemon.kill()
        daemon.options["work_reserve"] = "1M"
        daemon.restart()
        same(began(daemon, jobs[:3]), [jobs[2], jobs[1], jobs[0]], "order")
        same(daemon.metrics()["mrirecond_queue_held"], 0, "mrirecond_queue_held")


@test("clients take turns within a priority, whatever each has sent")
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
        same(began(daemon, many + few + [here]), [many[0], few[0], here, many[1], few[1], many[2], many[3]], "order")


@test("a batch job that has waited long enough goes before a younger urgent one")
def ageing():
    daemon = Daemon(devices="cpu", priority_ageing=1, **HELD)
    with daemon:
        batch = submit(daemon, "kind=recon&priority=batch")
        time.sleep(2.1)
        urgent = submit(daemon, "kind=recon&priority=urgent")
        daemon.kill()
        del daemon.options["work_reserve"]
        daemon.restart()
        same(began(daemon, [urgent, batch]), [batch, urgent], "order")


@test("priorities and client names that are none are refused; the client sends and shows a priority")
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


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
