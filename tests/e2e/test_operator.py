#!/usr/bin/python3
"""What an operator looks for: names of jobs, lists that are searched, what is kept and for how long."""
import base64
import os

import scans
from guarded import Guarded
from harness import Daemon, client, main, same, test

TUS = {"Tus-Resumable": "1.0.0"}
HELD = {"work_reserve": "900T"}  # no job is begun


def body(daemon, seed=1):
    return scans.radial(seed=seed).bytes(daemon.state)


def created(daemon, query, metadata=None):
    """Begin an upload in pieces; its path."""
    headers = {**TUS, "Upload-Length": str(len(body(daemon)))}
    if metadata is not None:
        headers["Upload-Metadata"] = metadata
    return daemon.request("POST", f"/v1/uploads?kind=recon{query}", headers=headers).expect(201).headers["location"]


def finished(daemon, where):
    """Send the bytes of an upload in pieces; the document of its job."""
    headers = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    return daemon.job(daemon.request("PATCH", where, body(daemon), headers).expect(204).headers["x-job-id"])


# ---- names

@test("a job has the name that its sender gives it, in its document, the list and its events, and keeps it when it runs again")
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


@test("what controls, turns text around or is too long is no name")
def clean(daemon):
    for sent, kept in (("a%E2%80%AEgnp.h5", "a???gnp.h5"), ("x" * 300, "x" * 200), ("x" * 199 + "%C3%A9", "x" * 199), ("x" * 198 + "%C3%A9", "x" * 198 + "\u00e9"),
                       ("", ""), ("<b>\"&amp;", "<b>\"&amp;"), ("a%09b", None), ("a%0ab", None), ("%ff", None)):
        answer = daemon.submit(body(daemon), f"kind=recon&name={sent.replace('&', '%26').replace('<', '%3C').replace('>', '%3E').replace(chr(34), '%22')}")
        if kept is None:
            answer.problem(400, "bad-request")
        else:
            same(answer.expect(202).json()["name"], kept, f"name of {sent:.40}")


@test("an upload in pieces is named by its query, or by name or filename of Upload-Metadata")
def names_of_uploads(daemon):
    def pair(key, text):
        return f"{key} {base64.b64encode(text.encode()).decode()}"

    for query, metadata, name in (("", pair("filename", "scan.h5"), "scan.h5"), ("", "is_private," + pair("name", "knee.h5"), "knee.h5"),
                                  ("&name=mine", pair("filename", "scan.h5"), "mine"), ("", pair("filetype", "x/y"), ""), ("", "filename", ""),
                                  ("", "filename ,name !!", ""), ("", pair("filename", "a\nb\u202e"), "a?b???"), ("", None, "")):
        same(finished(daemon, created(daemon, query, metadata))["name"], name, f"name of {query!r} {metadata!r}")


@test("names go where job-names says: nowhere, with the job, into the log as well")
def job_names():
    for where in ("none", "jobs", "log"):
        with Daemon(devices="cpu", job_names=where, log_level="debug") as daemon:
            first = daemon.submit(body(daemon), "kind=recon&name=doe-john.h5").expect(202).json()
            second = finished(daemon, created(daemon, "", "filename " + base64.b64encode(b"doe-john.h5").decode()))
            for told in (first, second):
                same(told["name"], "" if where == "none" else "doe-john.h5", f"name with job-names = {where}")
                daemon.finish(told["id"])
            same(daemon.read_log().count("doe-john"), 2 if where == "log" else 0, f"names in the log with job-names = {where}")
            with open(os.path.join(daemon.state, "jobs.db-wal"), "rb") as file:
                same(b"doe-john" in file.read(), where != "none", f"a name in the store with job-names = {where}")


@test("the client sends its file's name, of one scan and of a batch, unless it is told not to")
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

@test("the list is searched by state, client, name and time, page by page; an entry tells size, duration and why the job failed")
def search():
    with Daemon(devices="cpu") as daemon:
        scan = body(daemon)
        for client_, name in (("mri1", "Knee-1.h5"), ("mri2", "knee-2.h5"), ("mri1", "hip%.h5"), ("mri2", "")):
            told = daemon.submit(scan, f"kind=recon&name={name.replace('%', '%25')}", X_Mrirecond_Client=client_).expect(202).json()
            same(daemon.finish(told["id"])["state"], "succeeded", "state")
        failed = daemon.submit(scan, "kind=recon&group=nothing&name=knee-3.h5", X_Mrirecond_Client="mri1").expect(202).json()["id"]
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
        same(found("state=failed&since=1h"), ["knee-3.h5"], "what failed in the last hour")
        times = {job["name"]: job for job in daemon.get("/v1/jobs").json()["jobs"]}
        same(found(f"since={times['knee-3.h5']['created']}"), ["knee-3.h5"], "jobs since the last one")
        same(found("since=2100-01-01"), [], "jobs since a time to come")
        for wrong in ("since=yesterday", "since=", "since=12H", "nome=x"):
            daemon.get(f"/v1/jobs?{wrong}").problem(400, "unknown-parameter" if "nome" in wrong else "bad-parameter")
        entry, well = times["knee-3.h5"], times["Knee-1.h5"]
        same((entry["bytes"], entry["error"]["code"]), (len(scan), "bad-parameter"), "size and code of the failed job")
        assert "nothing" in entry["error"]["detail"] and 0 <= well["duration"] < 60, (entry, well)


@test("a list by client shows its own jobs to a client, all to who sees all")
def search_of_others():
    with Guarded() as daemon:
        for who in ("submit", "other"):
            daemon.ended(daemon.job_of(who))
        for who, wanted, seen in (("submit", "mri1", 1), ("submit", "mri2", 0), ("view", "mri1", 1), ("view", "mri2", 1), ("admin", "mri2", 1)):
            same(len(daemon.as_(who, "GET", f"/v1/jobs?client={wanted}").json()["jobs"]), seen, f"jobs of {wanted} that {who} sees")
        same(len(daemon.as_("submit", "GET", "/v1/jobs?since=1h&name=").json()["jobs"]), 1, "jobs that are found by time")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
