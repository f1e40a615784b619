#!/usr/bin/python3
"""An operator's tasks: names of jobs, searching lists, and what is kept for how long."""
import base64
import os
import re
import signal
import subprocess
import tempfile

import scans
from guarded import Guarded
from harness import BIN, Daemon, client, main, same, test, wait_until

TUS = {"Tus-Resumable": "1.0.0"}
HELD = {"work_reserve": "900T"}  # no job begins


def body(daemon, seed=1):
    return scans.radial(seed=seed).bytes(daemon.state)


def created(daemon, query, metadata=None):
    """Create a resumable upload; returns its path."""
    headers = {**TUS, "Upload-Length": str(len(body(daemon)))}
    if metadata is not None:
        headers["Upload-Metadata"] = metadata
    return daemon.request("POST", f"/v1/uploads?kind=recon{query}", headers=headers).expect(201).headers["location"]


def finished(daemon, where):
    """Send the bytes of a resumable upload; returns its job's document."""
    headers = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    return daemon.job(daemon.request("PATCH", where, body(daemon), headers).expect(204).headers["x-job-id"])


# ---- names

@test("a job has the name that its sender gave, in its document, the list and its events, and when it runs again")
def names():
    with Daemon(devices="cpu", keep_scans="all") as daemon:
        told = daemon.submit(body(daemon), "kind=recon&name=spiral%20knee%20%C3%A9.h5").expect(202).json()
        same(told["name"], "spiral knee \u00e9.h5", "name")
        same(daemon.finish(told["id"])["name"], told["name"], "name at the end")
        same([job["name"] for job in daemon.get("/v1/jobs").json()["jobs"]], [told["name"]], "names in the list")
        events = daemon.get(f"/v1/jobs/{told['id']}/events").body.decode()
        assert "spiral knee" in events, events
        again = daemon.request("POST", f"/v1/jobs/{told['id']}/resubmit").expect(202).json()
        other = daemon.request("POST", f"/v1/jobs/{told['id']}/resubmit?name=other").expect(202).json()
        same((again["name"], other["name"]), (told["name"], "other"), "names of those that are run again")
        same(daemon.submit(body(daemon)).expect(202).json()["name"], "", "name of one without")
        daemon.submit(body(daemon), "kind=recon&name=a&name=b").problem(400, "bad-parameter")
        daemon.kill()
        daemon.restart()
        same(daemon.job(told["id"])["name"], told["name"], "name after a restart")


@test("bidirectional characters in names are replaced, long names are cut, control characters are refused")
def clean(daemon):
    for sent, kept in (("a%E2%80%AEgnp.h5", "a???gnp.h5"), ("x" * 300, "x" * 200), ("x" * 199 + "%C3%A9", "x" * 199),
                       ("x" * 198 + "%C3%A9", "x" * 198 + "\u00e9"),
                       ("", ""), ("<b>\"&amp;", "<b>\"&amp;"), ("a%09b", None), ("a%0ab", None), ("%ff", None)):
        escaped = sent.replace("&", "%26").replace("<", "%3C").replace(">", "%3E").replace('"', "%22")
        answer = daemon.submit(body(daemon), f"kind=recon&name={escaped}")
        if kept is None:
            answer.problem(400, "bad-request")
        else:
            same(answer.expect(202).json()["name"], kept, f"name of {sent:.40}")


@test("a resumable upload is named by its query, or by name or filename of Upload-Metadata")
def names_of_uploads(daemon):
    def pair(key, text):
        return f"{key} {base64.b64encode(text.encode()).decode()}"

    for query, metadata, name in (("", pair("filename", "scan.h5"), "scan.h5"),
                                  ("", "is_private," + pair("name", "knee.h5"), "knee.h5"),
                                  ("&name=mine", pair("filename", "scan.h5"), "mine"),
                                  ("", pair("filetype", "x/y"), ""), ("", "filename", ""),
                                  ("", "filename ,name !!", ""), ("", pair("filename", "a\nb\u202e"), "a?b???"),
                                  ("", None, "")):
        same(finished(daemon, created(daemon, query, metadata))["name"], name, f"name of {query!r} {metadata!r}")


@test("the option job-names decides where names are stored: nowhere, with the job, also in the log")
def job_names():
    for where in ("none", "jobs", "log"):
        with Daemon(devices="cpu", job_names=where, log_level="debug") as daemon:
            first = daemon.submit(body(daemon), "kind=recon&name=doe-john.h5").expect(202).json()
            second = finished(daemon, created(daemon, "", "filename " + base64.b64encode(b"doe-john.h5").decode()))
            for told in (first, second):
                same(told["name"], "" if where == "none" else "doe-john.h5", f"name with job-names = {where}")
                daemon.finish(told["id"])
            if where == "log":
                wait_until(lambda: daemon.read_log().count("doe-john") >= 2, "the names in the log")
            same(daemon.read_log().count("doe-john"), 2 if where == "log" else 0,
                 f"names in the log with job-names = {where}")
            with open(os.path.join(daemon.state, "jobs.db-wal"), "rb") as file:
                same(b"doe-john" in file.read(), where != "none", f"a name in the store with job-names = {where}")


@test("the client sends its file's name, for one scan and for a batch, unless told not to")
def names_by_client(daemon):
    folder = os.path.join(daemon.state, "scans")
    os.mkdir(folder)
    path = os.path.join(folder, "knee & hip.h5")
    scans.radial(seed=7).write(path)

    def submitted(*words, **more):
        return daemon.job(client(daemon, "submit", *words, **more).stdout.strip())["name"]
    same(submitted(path), "knee & hip.h5", "name")
    same(submitted(path, "--no-name"), "", "name where none is to be told")
    same(submitted(path, "name=mine"), "mine", "name that was given")
    with open(path, "rb") as scan:
        same(submitted("-", stdin=scan), "", "name of standard input")
    strange = os.path.join(folder, "a\tb\udcff.h5")
    os.link(path, os.fsencode(strange))
    same(submitted(strange), "a?b?.h5", "name of a file with control characters")
    os.unlink(os.fsencode(strange))
    client(daemon, "batch", folder)
    same(daemon.get("/v1/jobs?limit=1").json()["jobs"][0]["name"], "knee & hip.h5", "name from a batch")


# ---- lists

@test("the list is searched by state, client, name and time; an entry has size, duration and the error")
def search():
    with Daemon(devices="cpu") as daemon:
        scan = body(daemon)
        for client_, name in (("mri1", "Knee-1.h5"), ("mri2", "knee-2.h5"), ("mri1", "hip%.h5"), ("mri2", "")):
            told = daemon.submit(scan, f"kind=recon&name={name.replace('%', '%25')}",
                                 X_Mrirecond_Client=client_).expect(202).json()
            same(daemon.finish(told["id"])["state"], "succeeded", "state")
        failed = daemon.submit(scan, "kind=recon&group=nothing&name=knee-3.h5",
                               X_Mrirecond_Client="mri1").expect(202).json()["id"]
        daemon.finish(failed)

        def found(query):
            pages, cursor = [], ""
            while cursor is not None:
                page = daemon.get(f"/v1/jobs?limit=2&{query}{cursor and '&cursor=' + cursor}").expect(200).json()
                pages, cursor = pages + page["jobs"], page["next"]
            return [job["name"] for job in pages]

        same(found("name=KNEE"), ["knee-3.h5", "knee-2.h5", "Knee-1.h5"], "names with knee")
        same(found("name=knee&client=mri1"), ["knee-3.h5", "Knee-1.h5"], "names with knee of mri1")
        same(found("name=%25"), ["hip%.h5"], "names with %")
        same(found("client=mri2"), ["", "knee-2.h5"], "jobs of mri2")
        same(found("client=nobody"), [], "jobs of nobody")
        same(found("client=mri"), [], "jobs of mri")
        same(found("client=mri*&name=knee"), ["knee-3.h5", "knee-2.h5", "Knee-1.h5"], "jobs of mri...")
        same(len(found("client=*")), 5, "jobs of all clients")
        same(found("state=failed&since=1h"), ["knee-3.h5"], "what failed in the last hour")
        times = {job["name"]: job for job in daemon.get("/v1/jobs").json()["jobs"]}
        same(found(f"since={times['knee-3.h5']['created']}"), ["knee-3.h5"], "jobs since the last one")
        same(found("since=2100-01-01"), [], "jobs since a time to come")
        for wrong in ("since=yesterday", "since=", "since=12H", "nome=x"):
            daemon.get(f"/v1/jobs?{wrong}").problem(400, "unknown-parameter" if "nome" in wrong else "bad-parameter")
        entry, well = times["knee-3.h5"], times["Knee-1.h5"]
        same((entry["bytes"], entry["error"]["code"]), (len(scan), "bad-parameter"), "size and code of the failed job")
        assert "nothing" in entry["error"]["detail"] and 0 <= well["duration"] < 60, (entry, well)


@test("a list by client shows a client its own jobs, and all jobs to a role that sees all")
def search_of_others():
    with Guarded() as daemon:
        for who in ("submit", "other"):
            daemon.ended(daemon.job_of(who))
        for who, wanted, seen in (("submit", "mri1", 1), ("submit", "mri2", 0), ("view", "mri1", 1),
                                  ("view", "mri2", 1), ("admin", "mri2", 1), ("submit", "mri*", 1),
                                  ("submit", "n*", 0), ("view", "mri*", 2), ("submit", "mri2*", 0)):
            same(len(daemon.as_(who, "GET", f"/v1/jobs?client={wanted}").json()["jobs"]), seen,
                 f"jobs of {wanted} that {who} sees")
        same(len(daemon.as_("submit", "GET", "/v1/jobs?since=1h&name=").json()["jobs"]), 1,
             "jobs that are found by time")


@test("mrirecon list and show: filters, and columns that are aligned for any content")
def shown():
    with Daemon(devices="cpu", job_names="jobs") as daemon:
        long = daemon.submit(body(daemon), "kind=recon&name=" + "%C3%A9" * 30,
                             X_Mrirecond_Client="c" * 40).expect(202).json()["id"]
        daemon.finish(long)
        failed = failed_job(daemon)
        lines = client(daemon, "list").stdout.splitlines()
        same(len(lines), 3, "lines of the list")
        for title in ("ID", "STATE", "KIND", "PRIORITY", "CLIENT", "CREATED", "NAME"):
            at = lines[0].index(title)
            for line in lines[1:]:
                assert at == 0 or line[at - 1] == " ", f"{title} in {line!r}"
        at = lines[0].index("NAME")
        same([line[at:].split("  ")[0] for line in lines[1:]], ["", "\u00e9" * 30], "names")
        assert (lines[1].startswith(failed) and "bad-parameter: " in lines[1]
                and daemon.job(failed)["error"]["detail"] in lines[1]), lines[1]
        same([line[lines[0].index("SIZE") - 3:lines[0].index("SIZE") + 4].strip() for line in lines[1:]],
             ["87.3 kB"] * 2, "sizes")
        for words, ids in ((("--state", "failed"), [failed]), (("--name", "\u00e9\u00e9"), [long]),
                           (("--client", "c" * 40), [long]), (("--since", "1h"), [failed, long]),
                           (("--since", "1h", "--limit", "1"), [failed]), (("--state", "queued"), []),
                           (("--name", "&state=queued"), [])):
            same([line.split()[0] for line in client(daemon, "list", *words).stdout.splitlines()[1:]], ids,
                 f"what list {words} shows")
        refused = client(daemon, "list", "--since", "yesterday", check=False)
        assert refused.returncode == 1 and "[bad-parameter]" in refused.stderr, refused.stderr
        job = client(daemon, "show", long).stdout.splitlines()
        at = job[0].index(long)
        values = {line[:at].strip(): line[at:] for line in job if line[:at].strip()}
        assert all(len(line) > at and line[at] != " " and line[at - 2:at] == "  " for line in job), job
        same((values["name"], values["state"], values["scan"]), ("\u00e9" * 30, "succeeded", "87.3 kB"), "values")
        first = [line.split()[0] for line in job].index("parameters")
        inner = [re.match(r"\S+ +", line[at:]).end() for line in job[first:first + 5]]
        same(len(set(inner)), 1, f"columns of the values in {job[first:first + 5]}")


@test("mrirecon status: the operator's overview")
def status():
    with Daemon(devices="cpu") as daemon:
        daemon.run(body(daemon))
        failed_job(daemon)
        wait_until(lambda: fill(daemon)["disk"]["uploads_bytes"] == len(body(daemon)), "the scan of the success to go")
        # The end of a job is stored before its worker is free.
        wait_until(lambda: fill(daemon)["worker_list"][0]["state"] == "idle", "the worker to be free")
        told = client(daemon, "status").stdout
        rows = dict(re.findall(r"^(\S+(?: \d+)?)  +(.+)$", told, re.M))
        same((rows["ready"], rows["version"]), ("yes", fill(daemon)["version"]), "ready and version")
        same(rows["queue"], "0 waiting (urgent 0, normal 0, batch 0), at most 10000; 0 running", "queue")
        assert re.match(r"[\d.]+ GB of [\d.]+ [GT]B free; uploads use 87.3 kB and may use [\d.]+ [GT]B more$",
                        rows["disk"]), told
        assert re.match(r"2 jobs \(1 succeeded, 1 failed, 0 canceled\): results [\d.]+ kB, 1 scans 87.3 kB$",
                        rows["kept"]), told
        assert re.search(r"^ +at most [\d.]+ [GT]B, for 30 days$", told, re.M), told
        assert "cpu" in rows["worker 0"] and ", idle" in rows["worker 0"], told
        daemon.kill()
        daemon.options.update(keep_jobs=0, keep_bytes=0, **HELD)
        daemon.restart()
        daemon.submit(body(daemon), "kind=recon&priority=batch").expect(202)
        wait_until(lambda: fill(daemon)["queue"]["held"], "the queue to be held")
        seen = client(daemon, "status", check=False)
        same(seen.returncode, 1, "exit status")
        told = seen.stdout
        assert re.search(r"^ready +no$", told, re.M) and re.search(r"^starting +The disk has ", told, re.M), told
        assert ("1 waiting (urgent 0, normal 0, batch 1)" in told and "none is started" in told
                and "the oldest has waited since 20" in told), told
        assert "at most any size, until they are deleted" in told, told


@test("status of a service that is not ready: the failing checks and reasons, exit status 1")
def status_not_ready():
    with Daemon(devices="cpu", drain_time=600) as daemon:
        with daemon.paused():  # the job, and so the daemon, does not end before the client has asked
            running = daemon.submit(body(daemon)).expect(202).json()["id"]
            # A job that its worker has not been told of, although it is running, would be queued again.
            wait_until(lambda: f"job={running} begins on" in daemon.read_log(), "the job to begin")
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: daemon.get("/readyz").status == 503, "/readyz to tell")
            seen = client(daemon, "status", check=False)
        same(seen.returncode, 1, "exit status")
        assert seen.stdout, seen.stderr
        assert (re.search(r"^ready +no$", seen.stdout, re.M)
                and re.search(r"^accepting +The service is shutting down", seen.stdout, re.M)), seen.stdout
        daemon.process.send_signal(signal.SIGTERM)  # ready at once


# ---- running jobs again

@test("failed jobs run again by one command, once, however often it is given and wherever it was interrupted")
def rerun():
    with Daemon(devices="cpu") as daemon:
        jobs = [failed_job(daemon, seed) for seed in range(4)]
        done = daemon.run(body(daemon))["id"]
        daemon.request("DELETE", f"/v1/jobs/{jobs[0]}").expect(204)
        words = ("resubmit", "--state", "failed", "--since", "1h", "group=", "priority=urgent")

        def made(told):
            return dict(line.split() for line in told.stdout.splitlines())
        one = made(client(daemon, *words, "--limit", "1"))  # as if it had been interrupted after one
        same(list(one), jobs[3:], "what was run again")
        told = client(daemon, *words)
        again = made(told)
        same(list(again), jobs[1:], "what was run again, that which came first before the others")
        same(again[jobs[3]], one[jobs[3]], "the job of one that had been run again")
        assert "2 of 3 jobs resubmitted, 1 already before" in told.stderr, told.stderr
        for identity in again.values():
            job = daemon.finish(identity)
            same((job["state"], job["priority"], job["parameters"]["group"]), ("succeeded", "urgent", ""),
                 "what became of it")
        same(made(client(daemon, *words)), again, "jobs after a third time")
        same(len(daemon.get("/v1/jobs").json()["jobs"]), 7, "jobs in all")
        other = made(client(daemon, *words[:-1]))  # a different change is a different request
        same(set(other) & set(again) != set() and set(other.values()) & set(again.values()), set(),
             "jobs that two changes share")
        for identity in other.values():
            daemon.finish(identity)
        gone = client(daemon, "resubmit", "--state", "succeeded", "--since", "1h", check=False)
        same(gone.returncode, 1, "exit status where scans are not kept")
        assert (f"{done}: " in gone.stderr and "[scan-not-kept]" in gone.stderr
                and ", 7 could not be" in gone.stderr), gone.stderr


@test("many jobs: a selection is required, and a full queue is waited for")
def rerun_waits():
    with Daemon(devices="cpu") as daemon:
        for words in (("--since", "1h"), ("--state", "running"), ("--state", "failed", "--wait"),
                      ("--state", "failed", "nonsense")):
            failed_job(daemon)
            same(client(daemon, "resubmit", *words, check=False).returncode, 2, f"exit status of {words}")
        same(client(daemon, "resubmit", check=False).returncode, 2, "exit status without a job")
        same(client(daemon, "resubmit", "group=", check=False).returncode, 2,
             "exit status without a job, but a parameter")
        daemon.kill()
        daemon.options.update(queue_limit=2, **HELD)
        daemon.restart()
        process = subprocess.Popen([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "resubmit", "--state",
                                    "failed", "group="], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(daemon.get("/v1/jobs?state=queued").json()["jobs"]) == 2, "a full queue")
        assert "waiting: " in process.stderr.readline()
        for job in daemon.get("/v1/jobs?state=queued").json()["jobs"]:
            daemon.request("POST", f"/v1/jobs/{job['id']}/cancel").expect(202)
        out, err = process.communicate(timeout=120)
        same((process.returncode, len(out.splitlines())), (0, 4), f"exit status and jobs ({err})")
        assert "4 of 4 jobs resubmitted" in err, err


@test("a job that an operator runs again still belongs to its client")
def rerun_by_admin():
    with Guarded() as daemon:
        told = daemon.as_("submit", "POST", "/v1/jobs?kind=recon&group=nothing", body(daemon)).expect(202).json()["id"]
        daemon.ended(told)
        again = daemon.as_("admin", "POST", f"/v1/jobs/{told}/resubmit?group=").expect(202).json()
        same(again["client"], "mri1", "client")
        daemon.as_("submit", "GET", f"/v1/jobs/{again['id']}").expect(200)
        same(daemon.ended(again["id"])["state"], "succeeded", "state")
    with Daemon(devices="cpu") as daemon:
        told = daemon.submit(body(daemon), "kind=recon&group=nothing",
                             X_Mrirecond_Client="mri1").expect(202).json()["id"]
        daemon.finish(told)
        for headers, owner in (({}, "mri1"), ({"X-Mrirecond-Client": "me"}, "me")):
            same(daemon.request("POST", f"/v1/jobs/{told}/resubmit", headers=headers).expect(202).json()["client"],
                 owner, f"client with {headers}")


# ---- retention

def failed_job(daemon, seed=1):
    """A job whose file lacks the group that the job names."""
    told = daemon.submit(body(daemon, seed), "kind=recon&group=nothing").expect(202).json()["id"]
    same(daemon.finish(told)["state"], "failed", "state")
    return told


def fill(daemon):
    """What the service says of its load, ready or not: a held queue is not."""
    return daemon.get("/readyz?verbose").json()


@test("/readyz?verbose and /metrics report the queue, the disk, the kept jobs and their limits")
def how_full():
    with Daemon(devices="cpu", **HELD) as daemon:
        for _ in range(2):
            daemon.submit(body(daemon), "kind=recon&priority=urgent").expect(202)
        seen = wait_until(lambda: (now := fill(daemon))["queue"]["held"] and now, "the queue to be held")
        same(seen["queue"]["waiting"], {"urgent": 2, "normal": 0, "batch": 0}, "waiting")
        same((seen["queue"]["running"], seen["queue"]["limit"]), (0, 10000), "running and limit")
        assert seen["queue"]["oldest"] and seen["disk"]["bytes"] > seen["disk"]["free_bytes"] > 0, seen
        same(seen["disk"]["uploads_bytes"], 2 * len(body(daemon)), "bytes of uploads")
        same((seen["kept"]["jobs"], seen["kept"]["limit_seconds"]), (0, 30 * 86400),
             "kept jobs and the bound of their age")
        assert abs(seen["kept"]["limit_bytes"] - seen["disk"]["bytes"] / 2) < 100, seen
        daemon.kill()
        daemon.options.update(work_reserve="1M", keep_bytes="1G", keep_jobs=0)
        daemon.restart()
        wait_until(lambda: fill(daemon)["kept"]["jobs"] == 2, "the jobs to end")
        failed_job(daemon)
        wait_until(lambda: fill(daemon)["disk"]["uploads_bytes"] == len(body(daemon)), "the scans of successes to go")
        seen, metrics = fill(daemon), daemon.metrics()
        results = sum(result["bytes"] for job in daemon.get("/v1/jobs").json()["jobs"] for result in job["results"])
        same(seen["kept"], {"jobs": 3, "states": {"succeeded": 2, "failed": 1, "canceled": 0}, "results_bytes": results,
                            "scans": 1,
                            "scans_bytes": len(body(daemon)), "limit_bytes": 1 << 30, "limit_seconds": None},
             "what is kept")
        same([metrics[f"mrirecond_kept_{name}"] for name in ('jobs{state="succeeded"}', "results_bytes", "scans",
                                                             "scans_bytes", "limit_bytes", "limit_seconds")],
             [2, results, 1, len(body(daemon)), 1 << 30, 0], "metrics of what is kept")
        same(metrics["mrirecond_disk_size_bytes"], seen["disk"]["bytes"], "size of the disk")


@test("scans of failed and canceled jobs are kept by default, those of successful jobs are not")
def scans_are_kept():
    with Daemon(devices="cpu") as daemon:
        failed, done = failed_job(daemon), daemon.run(body(daemon, 2))["id"]
        wait_until(lambda: f"spool/{done}" not in daemon.files(), "the scan of a success to go")
        again = daemon.request("POST", f"/v1/jobs/{failed}/resubmit?group=").expect(202).json()["id"]
        same(daemon.finish(again)["state"], "succeeded", "state of the job that is run again")
        daemon.request("POST", f"/v1/jobs/{done}/resubmit").problem(409, "scan-not-kept")


@test("kept scans make room for uploads, oldest end first, and take at most half of the uploads' space")
def scans_give_way():
    with tempfile.TemporaryDirectory() as folder:
        scan = len(scans.radial().bytes(folder))
    with Daemon(devices="cpu", spool_limit=7 * scan) as daemon:
        jobs = [failed_job(daemon) for _ in range(5)]

        def there():
            return [job for job in jobs if f"spool/{job}" in daemon.files()]
        wait_until(lambda: there() == jobs[2:], "the first two to give way: three are less than half of seven")
        wait_until(lambda: fill(daemon)["kept"]["scans"] == 3, "three kept scans to be told")
        large = scans.radial(spokes=5 * 64).bytes(daemon.state)
        assert 4 * scan < len(large) < 7 * scan, (len(large), scan)
        refused = daemon.submit(large)
        refused.problem(507, "spool-full")
        assert refused.headers["retry-after"]
        wait_until(lambda: daemon.submit(large).status == 202, "room for a large upload")
        same(fill(daemon)["kept"]["jobs"] >= 5, True, "the jobs themselves stay")
        left = there()
        assert len(left) < 3 and left == jobs[5 - len(left):], left
        daemon.request("POST", f"/v1/jobs/{jobs[0]}/resubmit").problem(409, "scan-not-kept")
        wait_until(lambda: daemon.metrics()["mrirecond_kept_scans_removed_total"] == 5 - len(there()),
                   "scans that gave way to be counted")
        same(daemon.metrics()['mrirecond_kept_jobs_removed_total{reason="room"}'], 0, "jobs removed")


@test("jobs beyond a share of the disk are removed, and counted")
def share_of_the_disk():
    with Daemon(devices="cpu", keep_jobs=2) as daemon:
        job = daemon.submit(body(daemon)).expect(202).json()["id"]
        wait_until(lambda: daemon.get(f"/v1/jobs/{job}").status == 404, "the job to go for its age")
        wait_until(lambda: daemon.metrics().get('mrirecond_jobs_completed_total{kind="recon"}') == 1,
                   "the job's success to be counted")
        wait_until(lambda: daemon.metrics()['mrirecond_kept_jobs_removed_total{reason="age"}'] == 1,
                   "its removal to be counted")
        daemon.kill()
        daemon.options.update(keep_jobs=0, keep_bytes=1)
        daemon.restart()
        daemon.submit(body(daemon)).expect(202)
        wait_until(lambda: daemon.metrics()['mrirecond_kept_jobs_removed_total{reason="room"}'] == 1,
                   "a removal for room to be counted")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
