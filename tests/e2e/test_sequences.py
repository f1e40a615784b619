#!/usr/bin/python3
"""Random sequences of requests of several clients: a model predicts the possible answers, and the states of the jobs.

SEQUENCES_SEED=N runs another sequence, SEQUENCES_STEPS=N a longer one. A failure prints the seed and the last steps."""
import base64
import hashlib
import os
import random
import subprocess
import tempfile
import time
import urllib.parse

import scans
from contract import OPERATIONS, check_answer
from harness import BIN, FINAL, Daemon, main, same, test, wait_until

SEED = int(os.environ.get("SEQUENCES_SEED", "20261121"))
STEPS = int(os.environ.get("SEQUENCES_STEPS", "300"))
ROLES = {"alice": "submit", "bob": "submit", "reader": "read", "boss": "admin"}
TUS = {"Tus-Resumable": "1.0.0"}
# The states that may follow a state; workers do not die in this test.
AFTER = {"queued": {"queued", "running", "canceling", *FINAL}, "running": {"running", "canceling", *FINAL},
         "canceling": {"canceling", *FINAL}}
MEDIA = {"h5": ("application/x-hdf5", b"\x89HDF"), "nii.gz": ("application/x-nifti", b"\x1f\x8b"),
         "png": ("image/png", b"\x89PNG"), "npy": ("application/x-npy", b"\x93NUMPY")}


class Job:
    """What the model knows of a job."""

    def __init__(self, owner, body, query, key=None):
        self.owner, self.body, self.query, self.key = owner, body, query, key
        self.state, self.document, self.canceled, self.tags = "queued", None, False, {}


class Upload:
    def __init__(self, owner, body, query):
        self.owner, self.body, self.query, self.offset = owner, body, query, 0


class Model:
    """Clients, the daemon's jobs and uploads as far as they are known, and steps that send requests and compare."""

    def __init__(self, daemon, tokens, rng):
        self.daemon, self.tokens, self.rng = daemon, tokens, rng
        self.jobs, self.uploads, self.gone, self.log, self.seen = {}, {}, ["0" * 26], [], set()
        folder = daemon.state
        self.bodies = {"good": scans.radial().bytes(folder),
                       "other": scans.radial(matrix=(16, 16, 1), seed=4).bytes(folder),
                       "no weights": scans.radial(weights=False).bytes(folder), "slow": scans.slow().bytes(folder),
                       "garbage": b"no scan at all"}

    # -- requests

    def ask(self, who, method, path, template, body=None, headers=None, statuses=()):
        """A request as `who`; its status must be one of `statuses`, and its answer must conform to the document."""
        headers = {**(headers or {}), "Authorization": f"Bearer {self.tokens[who]}"}
        answer = self.daemon.request(method, path, body, headers, timeout=120)
        self.log.append(f"{who}: {method} {path} -> {answer.status}")
        check_answer(template, method.lower(), OPERATIONS[template, method.lower()], answer)
        assert answer.status in statuses, f"{self.log[-1]}, expected {statuses}: {answer.body[:400]!r}"
        self.seen.add((method, template, answer.status))
        return answer

    def some_job(self, who=None):
        """An id: mostly of an existing job, otherwise of one that was deleted or never existed."""
        if not self.jobs or self.rng.random() < 0.08:
            return self.rng.choice(self.gone)
        own = [identity for identity, job in self.jobs.items() if job.owner == who]
        return self.rng.choice(own if own and self.rng.random() < 0.7 else list(self.jobs))

    def sees(self, who, thing):
        return thing is not None and (who in (thing.owner, "boss"))

    def learn(self, identity, document):
        """A job's document: its state must follow from the one before, and an ended job does not change."""
        job, state = self.jobs[identity], document["state"]
        same((document["id"], document["client"]), (identity, job.owner), "id and client")
        same(document["bytes"], len(self.bodies[job.body]), "bytes")
        if job.document:
            same(document, job.document, f"document of the ended job {identity}")
        assert job.document or state in AFTER[job.state], f"job {identity} was {job.state} and is {state}"
        if job.canceled:  # the worker may have finished before the cancel arrived
            assert state in ("canceling", *FINAL), f"job {identity} was canceled and is {state}"
        job.state = state
        if state in FINAL:
            job.document = document
            same(document["progress"] == 1 and bool(document["results"]), state == "succeeded",
                 "progress 1 and results")
            same(document["error"] is not None, state == "failed", "an error")
            good = job.body in ("good", "other") or (job.body == "no weights" and "given" not in job.query)
            assert (state == "canceled" or (state == "succeeded") == good
                    or job.body == "slow"), f"a job of {job.body} {state}"

    def forget(self, identity):
        del self.jobs[identity]
        self.gone.append(identity)

    # -- steps

    def body_and_query(self):
        body = self.rng.choices(list(self.bodies), (6, 3, 2, 1, 2))[0]
        if body == "slow":
            return body, scans.SLOW_QUERY
        query = {"kind": "recon"}
        for name, values in (("dcf", ("given", "auto")), ("priority", ("urgent", "normal", "batch")),
                             ("tolerance", ("1e-2", "1e-3")), ("deadline", ("3600",))):
            if self.rng.random() < 0.3:
                query[name] = self.rng.choice(values)
        return body, urllib.parse.urlencode(query)

    def submit(self, who):
        (body, query), headers, statuses = self.body_and_query(), {}, [202]
        key = self.rng.choice("abcd") if self.rng.random() < 0.3 else None
        before = next((identity for identity, job in self.jobs.items() if key and (job.owner, job.key) == (who, key)),
                      None)
        slow = body == "slow" or any(job.body == "slow" and not job.document for job in self.jobs.values())
        wait = self.rng.random() < 0.3 and not slow  # so that nobody waits behind one that takes seconds
        if key:
            headers["Idempotency-Key"] = key
        if wait:
            headers["Prefer"] = "wait=50"
            statuses = [200, 202, 415, 422]
        if ROLES[who] == "read":
            statuses = [403]
        elif before and (self.jobs[before].body, self.jobs[before].query) != (body, query):
            # Priority and deadline do not count, anything else is a different request.
            statuses = [200, 202, 409, 415, 422]
        elif before and wait:
            statuses.append(409)  # the job was canceled
        answer = self.ask(who, "POST", f"/v1/jobs?{query}", "/v1/jobs", self.bodies[body], headers, statuses)
        identity = answer.headers.get("x-job-id")
        if not identity:
            return
        replayed = answer.headers.get("idempotency-replayed") == "true"
        same(replayed, before is not None, "Idempotency-Replayed")
        if replayed:
            same(identity, before, "the job of a key")
        else:
            assert identity not in self.jobs and identity not in self.gone, "an id was used twice"
            self.jobs[identity] = Job(who, body, query, key)
        if answer.status in (200, 202):
            self.learn(identity, answer.json())
        elif answer.status >= 400:
            same(answer.json()["job_id"], identity, "job_id")

    def look(self, who):
        identity = self.some_job(who)
        there = self.sees(who, self.jobs.get(identity))
        answer = self.ask(who, "GET", f"/v1/jobs/{identity}", "/v1/jobs/{id}", statuses=[200 if there else 404])
        if there:
            self.learn(identity, answer.json())

    def cancel(self, who):
        identity = self.some_job(who)
        job = self.jobs.get(identity)
        statuses = [403] if ROLES[who] == "read" else [404] if not self.sees(who, job) else \
            [202, 409] if not job.document else [202] if job.state == "canceled" else [409]
        answer = self.ask(who, "POST", f"/v1/jobs/{identity}/cancel", "/v1/jobs/{id}/cancel", statuses=statuses)
        if answer.status == 202:
            job.canceled = True
            self.learn(identity, answer.json())
        elif answer.status == 409:
            self.learn(identity, self.daemon_document(identity))
            assert job.state in ("succeeded", "failed"), f"a job that is {job.state} cannot be canceled"

    def daemon_document(self, identity):
        return self.ask("boss", "GET", f"/v1/jobs/{identity}", "/v1/jobs/{id}", statuses=[200]).json()

    def delete(self, who):
        identity = self.some_job(who)
        job = self.jobs.get(identity)
        statuses = [403] if ROLES[who] == "read" else [404] if not self.sees(who,
                                                                             job) else [204] if job.document else [204,
                                                                                                                   409]
        answer = self.ask(who, "DELETE", f"/v1/jobs/{identity}", "/v1/jobs/{id}", statuses=statuses)
        if answer.status == 204:
            self.forget(identity)
            self.ask(who, "GET", f"/v1/jobs/{identity}", "/v1/jobs/{id}", statuses=[404])

    def resubmit(self, who):
        identity = self.some_job(who)
        job = self.jobs.get(identity)
        statuses = [403] if ROLES[who] == "read" else [202] if self.sees(who, job) else [404]
        tolerance = self.rng.choice(["", "tolerance=1e-2"])
        answer = self.ask(who, "POST", f"/v1/jobs/{identity}/resubmit?{tolerance}", "/v1/jobs/{id}/resubmit", b"",
                          statuses=statuses)
        if answer.status == 202:
            fresh = answer.json()["id"]
            same(answer.headers["location"], f"/v1/jobs/{fresh}", "Location")
            # Also if the administrator requested it.
            self.jobs[fresh] = Job(job.owner, job.body, job.query + "&" + tolerance)
            self.learn(fresh, answer.json())

    def result(self, who):
        identity = self.some_job(who)
        job = self.jobs.get(identity)
        form = self.rng.choice(list(MEDIA))
        media, magic = MEDIA[form]
        by_name = self.rng.random() < 0.5
        path = f"/v1/jobs/{identity}/results/image" + (f"?format={form}" if by_name else "")
        headers = {} if by_name else {"Accept": media}
        there = self.sees(who, job)
        statuses = [404] if not there else [200] if job.state == "succeeded" else [409] if job.document else [200, 409]
        answer = self.ask(who, "GET", path, "/v1/jobs/{id}/results/{name}", headers=headers, statuses=statuses)
        if answer.status != 200:
            return
        same(answer.headers["content-type"], media, "media type")
        assert answer.body.startswith(magic), answer.body[:8]
        tag = answer.headers["etag"]
        same(tag, job.tags.setdefault(form, tag), "the ETag of a result that was fetched before")
        again = self.rng.choice([({"If-None-Match": tag}, 304), ({"Range": "bytes=1-3"}, 206),
                                 ({"If-Match": '"x"'}, 412), ({"Range": "bytes=99999999-"}, 416)])
        part = self.ask(who, "GET", path, "/v1/jobs/{id}/results/{name}", headers={**headers, **again[0]},
                        statuses=[again[1]])
        if again[1] == 206:
            same(part.body, answer.body[1:4], "a range")

    def listing(self, who):
        seen, cursor, limit = [], None, self.rng.randrange(1, 20)
        while True:
            query = f"limit={limit}" + (f"&cursor={cursor}" if cursor else "")
            page = self.ask(who, "GET", f"/v1/jobs?{query}", "/v1/jobs", statuses=[200]).json()
            seen += page["jobs"]
            cursor = page["next"]
            if not cursor:
                break
            same(len(page["jobs"]), limit, "jobs of a full page")
        mine = [identity for identity, job in self.jobs.items() if self.sees(who, job)]
        same(sorted(job["id"] for job in seen), sorted(mine), f"jobs that {who} sees")
        same([job["created"] for job in seen], sorted((job["created"] for job in seen), reverse=True),
             "order of the list")
        for job in seen:
            same(job["report"], {}, "report in a page")
            ended, known = job["state"] in FINAL, self.jobs[job["id"]].document
            whole = known or (self.daemon_document(job["id"]) if ended else job)
            self.learn(job["id"], {**job, "report": whole["report"]})

    def purge(self, who):
        time.sleep(0.002)  # ended more than 0 s ago: before this millisecond
        admin = ROLES[who] == "admin"
        state = self.rng.choice(FINAL)
        answer = self.ask(who, "DELETE", f"/v1/jobs?older=0&state={state}", "/v1/jobs",
                          statuses=[200 if admin else 403])
        if not admin:
            return
        removed = 0
        for identity in list(self.jobs):
            job = self.jobs[identity]
            statuses = [200] if job.document and job.state != state else [404] if job.document else [200, 404]
            look = self.ask("boss", "GET", f"/v1/jobs/{identity}", "/v1/jobs/{id}", statuses=statuses)
            if look.status == 404:
                self.forget(identity)
                removed += 1
            else:
                self.learn(identity, look.json())
        same(answer.json()["removed"], removed, "jobs removed")

    # -- resumable uploads

    def upload_begin(self, who):
        body, query = self.body_and_query()
        statuses = [201] if ROLES[who] != "read" else [403]
        answer = self.ask(who, "POST", f"/v1/uploads?{query}", "/v1/uploads", b"",
                          {**TUS, "Upload-Length": str(len(self.bodies[body]))}, statuses)
        if answer.status == 201:
            same(answer.headers["upload-offset"], "0", "offset of a new upload")
            self.uploads[answer.headers["location"].rsplit("/", 1)[1]] = Upload(who, body, query)

    def some_upload(self, who):
        own = [identity for identity, upload in self.uploads.items() if upload.owner == who]
        return self.rng.choice(own if own and self.rng.random() < 0.8 else list(self.uploads) or self.gone)

    def upload_look(self, who):
        identity = self.some_upload(who)
        upload = self.uploads.get(identity)
        answer = self.ask(who, "GET", f"/v1/uploads/{identity}", "/v1/uploads/{id}",
                          statuses=[200 if self.sees(who, upload) else 404])
        if answer.status == 200:
            same((answer.json()["offset"], answer.json()["length"]), (upload.offset, len(self.bodies[upload.body])),
                 "offset and length")

    def upload_append(self, who):
        identity = self.some_upload(who)
        upload = self.uploads.get(identity)
        data = self.bodies[upload.body] if upload else b"12345"
        offset = upload.offset if upload else 0
        piece = data[offset:offset + self.rng.choice([1, 1000, len(data) // 3 + 1, len(data)])]
        headers, status = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}, 204
        way = self.rng.choice(["plain", "plain", "plain", "checked", "wrong checksum", "wrong offset", "too much",
                               "wrong type", "no version"])
        if way in ("checked", "wrong checksum"):
            summed = hashlib.sha256(piece if way == "checked" else piece + b"x").digest()
            headers["Upload-Checksum"] = "sha256 " + base64.b64encode(summed).decode()
            status = 204 if way == "checked" else 460
        if way == "wrong offset":
            headers["Upload-Offset"], status = str(offset + 1), 409
        if way == "too much":
            piece, status = data[offset:] + b"xx", 413
        if way == "wrong type":
            headers["Content-Type"], status = "text/plain", 415
        if way == "no version":
            headers["Tus-Resumable"], status = "0.9", 412
        if ROLES[who] == "read":
            status = 403
        elif not self.sees(who, upload) and way not in ("wrong type", "no version"):
            status = 404
        answer = self.ask(who, "PATCH", f"/v1/uploads/{identity}", "/v1/uploads/{id}", piece, headers, [status])
        if status != 204:
            return
        upload.offset += len(piece)
        same(answer.headers["upload-offset"], str(upload.offset), "offset")
        same("x-job-id" in answer.headers, upload.offset == len(data), "a job with the last bytes, and only then")
        if upload.offset == len(data):
            same(answer.headers["x-job-id"], identity, "the job's id is the upload's")
            del self.uploads[identity]
            self.jobs[identity] = Job(upload.owner, upload.body, upload.query)

    def upload_delete(self, who):
        identity = self.some_upload(who)
        status = 403 if ROLES[who] == "read" else 204 if self.sees(who, self.uploads.get(identity)) else 404
        self.ask(who, "DELETE", f"/v1/uploads/{identity}", "/v1/uploads/{id}", headers=TUS, statuses=[status])
        if status == 204:
            del self.uploads[identity]
            self.ask(who, "GET", f"/v1/uploads/{identity}", "/v1/uploads/{id}", statuses=[404])

    def run(self, steps):
        ways = {self.submit: 8, self.look: 5, self.cancel: 4, self.delete: 3, self.resubmit: 2, self.result: 6,
                self.listing: 1, self.purge: 0.3,
                self.upload_begin: 2, self.upload_look: 2, self.upload_append: 6, self.upload_delete: 0.5}
        for _ in range(steps):
            who = self.rng.choices(list(ROLES), (5, 4, 1, 2))[0]
            way = self.rng.choices(list(ways), list(ways.values()))[0]
            way(who)
            if sum(job.document is None for job in self.jobs.values()) > 12:  # so that slow jobs do not pile up
                self.settle()

    def settle(self):
        """Cancel slow jobs, and wait for all others."""
        for identity, job in self.jobs.items():
            if not job.document and job.body == "slow":
                self.ask("boss", "POST", f"/v1/jobs/{identity}/cancel", "/v1/jobs/{id}/cancel", statuses=[202, 409])
        for identity, job in self.jobs.items():
            def ended():
                if not job.document:
                    self.learn(identity, self.daemon_document(identity))
                return job.document
            wait_until(ended, f"the end of job {identity}")


def tokens_of(folder):
    path, tokens = os.path.join(folder, "tokens"), {}
    for name, role in ROLES.items():
        tokens[name] = subprocess.run([os.path.join(BIN, "mrirecond"), "--new-token", name, role, "--tokens", path],
                                      capture_output=True, text=True, check=True).stdout.strip()
    return path, tokens


EXPECTED = {("POST", "/v1/jobs", 200), ("POST", "/v1/jobs", 403), ("POST", "/v1/jobs/{id}/cancel", 202),
            ("POST", "/v1/jobs/{id}/cancel", 409),
            ("DELETE", "/v1/jobs/{id}", 204), ("DELETE", "/v1/jobs/{id}", 404), ("POST", "/v1/jobs/{id}/resubmit", 202),
            ("DELETE", "/v1/jobs", 200),
            ("GET", "/v1/jobs/{id}/results/{name}", 206), ("PATCH", "/v1/uploads/{id}", 204),
            ("PATCH", "/v1/uploads/{id}", 460)}


@test("random requests of four clients: each is answered as the model allows, and the daemon keeps nothing")
def sequences():
    with tempfile.TemporaryDirectory() as folder:
        path, tokens = tokens_of(folder)
        with Daemon(devices="cpu", tokens=path, keep_scans="all") as daemon:
            model = Model(daemon, tokens, random.Random(SEED))
            empty = {name for name in daemon.files() if "jobs.db" not in name}
            try:
                model.run(STEPS)
                for _ in range(STEPS if STEPS >= 300 else 0):  # when each step comes depends on the speed of jobs
                    if EXPECTED <= model.seen:
                        break
                    model.run(10)
                model.settle()
                for state in FINAL:  # a purged job has no files on the disk
                    time.sleep(0.002)
                    model.ask("boss", "DELETE", f"/v1/jobs?older=0&state={state}", "/v1/jobs", statuses=[200])
                for identity in list(model.uploads):
                    model.ask("boss", "DELETE", f"/v1/uploads/{identity}", "/v1/uploads/{id}", headers=TUS,
                              statuses=[204])
                def left():
                    return {name for name in daemon.files() if "jobs.db" not in name} - empty
                wait_until(lambda: not left(), f"files that nobody owns to go: {left()}")
            except AssertionError as error:
                raise AssertionError(f"{error}\nSEQUENCES_SEED={SEED}, step {len(model.log)}; the last ones:\n" +
                                     "\n".join(model.log[-15:])) from error
            assert STEPS < 300 or EXPECTED <= model.seen, f"the sequence never saw {EXPECTED - model.seen}"


if __name__ == "__main__":
    main()
