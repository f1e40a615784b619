"""The service, and a job on it."""
import contextlib
import http.client
import json
import os
import shutil
import ssl
import tempfile
import time
import urllib.parse
import uuid

from .arrays import array
from .errors import JobFailed, MrireconError, NotDelivered, NotReached, Problem

FINAL = ("succeeded", "failed", "canceled")
STALLED = 120  # seconds without a byte after which a server is given up
WAIT = 60  # seconds that one request waits for the end of a job
BLOCK = 256 << 10  # bytes sent at a time
PAUSE = 1.0  # seconds before a request is repeated that was refused for now, where the server does not say how long
FIRST_LOOK, LAST_LOOK = 0.1, 2.0  # seconds between looks at a job's deliveries: from the first to the most
TRIES = 5  # times that a request is sent whose connection broke
EXTENSIONS = (".nii.gz",)  # of two words


class Server:
    """The service at `url` (or MRIRECON_SERVER). `token` (or MRIRECON_TOKEN) is sent with every request; `cacert` (or
    MRIRECON_CACERT) is a file of certificates to trust in addition to the system's; `client` identifies the sender for
    quotas on a service without tokens."""

    def __init__(self, url=None, token=None, cacert=None, client=None):
        url = url or os.environ.get("MRIRECON_SERVER") or "http://127.0.0.1:8080"
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f'The server\'s address "{url}" must begin with http:// or https://.')
        self.url = url.rstrip("/")
        self._parts, self._prefix = parts, parts.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        token = token or os.environ.get("MRIRECON_TOKEN")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if client:
            self._headers["X-Mrirecond-Client"] = client
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context()
            cacert = cacert or os.environ.get("MRIRECON_CACERT")
            if cacert:
                self._tls.load_verify_locations(cacert)

    # -- requests

    @contextlib.contextmanager
    def _exchange(self, method, path, body=None, headers=None, timeout=STALLED):
        """The answer to one request, to be read within the block. Raises Problem for 4xx and 5xx."""
        secure = {"context": self._tls} if self._tls else {}
        made = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = made(self._parts.hostname, self._parts.port, timeout=timeout, blocksize=BLOCK, **secure)
        try:
            try:
                broken = None
                try:
                    connection.request(method, self._prefix + path, body, {**self._headers, **(headers or {})})
                except (BrokenPipeError, ConnectionResetError) as error:  # refused early: the answer has the reason
                    broken = error
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise NotReached(f"No server answers at {self.url}: {broken or error}.") from error
            if answer.status >= 400:
                raise self._problem(answer)
            if broken:
                raise NotReached(f"The connection to {self.url} broke: {broken}.")
            yield answer
        finally:
            connection.close()

    @staticmethod
    def _problem(answer):
        try:
            document = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            document = {}
        after = answer.headers.get("Retry-After", "")
        document = document if isinstance(document, dict) else {}
        return Problem(answer.status, document, int(after) if after.isdigit() else None)

    def request(self, method, path, body=None, headers=None, timeout=STALLED):
        """One request that is not among the functions below; (status, headers, bytes of the answer)."""
        with self._exchange(method, path, body, headers, timeout) as answer:
            return answer.status, answer.headers, self._read(answer)

    def _read(self, answer):
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReached(f"The connection to {self.url} broke: {error}.") from error

    def _json(self, method, path, headers=None):
        return json.loads(self.request(method, path, None, headers)[2])

    # -- the service

    def kinds(self):
        """The kinds of job, with their parameters and results."""
        return self._json("GET", "/v1/kinds")["kinds"]

    def ready(self):
        """Whether jobs are accepted and a worker takes them."""
        try:
            self.request("GET", "/readyz")
        except Problem as problem:
            if problem.status == 503:
                return False
            raise
        return True

    def _pages(self, path, member, filters):
        cursor = {}
        while True:
            page = self._json("GET", f"{path}?" + urllib.parse.urlencode({"limit": 500, **filters, **cursor}))
            yield from page[member]
            if not page["next"]:
                return
            cursor = {"cursor": page["next"]}

    def jobs(self, **filters):
        """Yield the jobs, newest first; filters are those of GET /v1/jobs: state, client, name, since."""
        return (Job(self, document) for document in self._pages("/v1/jobs", "jobs", filters))

    def deliveries(self, **filters):
        """Yield the deliveries of ended jobs, newest first, as documents with job, destination, state (pending,
        sending, delivered, dead), attempts and answer; filters are state and destination."""
        return self._pages("/v1/deliveries", "deliveries", filters)

    def destinations(self):
        """The destinations that jobs may be sent to: documents with name and type."""
        return self._json("GET", "/v1/destinations")["destinations"]

    def job(self, identity):
        """The job of this id."""
        return Job(self, self._json("GET", f"/v1/jobs/{urllib.parse.quote(identity, safe='')}"))

    def submit(self, scan, kind="recon", name=None, priority=None, deadline=None, patience=0, **parameters):
        """Submit `scan`: a file name, bytes, or a file opened for reading bytes. Returns the Job once it is on the
        server's disk. `name` defaults to the file's name. If the connection breaks, or the server accepts no jobs at
        the moment (for up to `patience` seconds), the submission is repeated, without ever becoming two jobs. Raises
        Problem, NotReached, OSError."""
        query = {"kind": kind, **({"name": name} if name else {}), **({"priority": priority} if priority else {}),
                 **({"deadline": deadline} if deadline else {}),
                 **{key: _word(value) for key, value in parameters.items()}}
        if isinstance(scan, (str, os.PathLike)):
            if name is None:
                query["name"] = os.path.basename(os.fspath(scan))
            with open(scan, "rb") as file:
                return self._send(file, query, patience)
        return self._send(scan, query, patience)

    def _send(self, body, query, patience):
        path = "/v1/jobs?" + urllib.parse.urlencode(query)
        headers = {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/octet-stream"}
        begin = body.tell() if hasattr(body, "seek") else None
        if begin is not None:
            headers["Content-Length"] = str(body.seek(0, os.SEEK_END) - begin)
        ends, tries = time.monotonic() + patience, 0
        while True:
            if begin is not None:
                body.seek(begin)
            try:
                return Job(self, json.loads(self.request("POST", path, body, headers)[2]))
            except NotReached:
                tries += 1
                if tries == TRIES or not (begin is not None or isinstance(body, bytes)):
                    raise
                pause = PAUSE
            except Problem as problem:
                pause = problem.retry_after or PAUSE
                if problem.status not in (429, 503, 507) or time.monotonic() + pause > ends:
                    raise
            time.sleep(pause)

    def events(self, last=None):
        """Yield the events of all visible jobs without end: (event, document, id). `last` is the id of the last event
        seen; broken connections are re-established. After "reset", load the list of jobs (again)."""
        return self._stream("/v1/events", last)

    def _stream(self, path, last, until=None):
        broken = 0
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            try:
                with self._exchange("GET", path, None, headers) as answer:
                    if answer.status == 204:
                        return
                    for event, data, identity in _events(answer):
                        broken, last = 0, identity or last
                        document = json.loads(data)
                        yield event, document, identity
                        if until and until(event, document):
                            return
            except (NotReached, OSError, http.client.HTTPException) as error:
                broken += 1
                if broken == TRIES:
                    broken = NotReached(f"The event stream of {self.url} broke off: {error}.")
                    raise error if isinstance(error, NotReached) else broken from error
            time.sleep(PAUSE)

    def batch(self, scans, out, form="h5", result=None, at_a_time=8, patience=3600, **submission):
        """Submit each of `scans` (file names), wait for it, and save a result in the folder `out`. Yields, in the given
        order, (scan, Job, None), or (scan, Job or None, exception) for a failure. At most `at_a_time` scans are on the
        server at once."""
        os.makedirs(out, exist_ok=True)
        scans, sent = list(scans), []

        def send(scan):
            try:
                return scan, self.submit(scan, patience=patience, priority=submission.get("priority", "batch"),
                                         **{key: value for key, value in submission.items() if key != "priority"}), None
            except (MrireconError, OSError) as error:
                return scan, None, error

        while scans or sent:
            while scans and len(sent) < at_a_time:
                sent.append(send(scans.pop(0)))
            scan, job, error = sent.pop(0)
            try:
                if job:
                    stem = os.path.basename(scan).rsplit(".", 1)[0]
                    job.wait().fetch(os.path.join(out, f"{stem}.{form}"), result)
            except (MrireconError, OSError) as failure:
                error = failure
            yield scan, job, error


class Job:
    """A job; `document` is what the server said of it last."""

    def __init__(self, server, document):
        self.server, self.document = server, document

    def __repr__(self):
        return f"<Job {self.id} {self.state}>"

    @property
    def id(self):
        return self.document["id"]

    @property
    def state(self):
        """queued, running, canceling, succeeded, failed or canceled, when the server was last asked."""
        return self.document["state"]

    @property
    def report(self):
        """The decisions, warnings and timings of a job that has ended."""
        return self.document.get("report") or {}

    @property
    def warnings(self):
        """Sentences about the result."""
        return self.report.get("warnings", [])

    def _path(self, more=""):
        return f"/v1/jobs/{self.id}{more}"

    def refresh(self):
        """Ask the server again; self."""
        self.document = self.server._json("GET", self._path())
        return self

    def wait(self, seconds=None):
        """Wait until the job ends, at most `seconds`; returns self. Raises JobFailed if it fails or is canceled, and
        TimeoutError if it has not ended. Broken connections are re-established."""
        ends = None if seconds is None else time.monotonic() + seconds
        broken = 0
        while True:
            left = WAIT if ends is None else max(0, min(WAIT, ends - time.monotonic()))
            try:
                self.document = self.server._json("GET", self._path(), {"Prefer": f"wait={int(left) + 1}"})
                broken = 0
            except NotReached:
                broken += 1
                if broken == TRIES:
                    raise
                time.sleep(PAUSE)
            if self.state == "succeeded":
                return self
            if self.state in FINAL:
                raise JobFailed(self)
            if ends is not None and time.monotonic() >= ends:
                raise TimeoutError(f"Job {self.id} is {self.state} after {seconds} s.")

    def events(self):
        """The job's events until it ends: (event, document)."""
        def last(event, document):
            if event == "state":
                self.document = document
            return event == "state" and document["state"] in FINAL

        for event, document, _ in self.server._stream(self._path("/events"), None, last):
            yield event, document

    def deliveries(self):
        """The job's deliveries, as the server has them now: a list of documents as of Server.deliveries()."""
        return self.refresh().document["deliveries"]

    def deliver(self, destination):
        """Have the job, which has ended, sent to a destination: again, or for the first time (role admin). Returns
        self."""
        path = self._path(f"/deliveries/{urllib.parse.quote(destination, safe='')}")
        self.document["deliveries"] = json.loads(self.server.request("POST", path)[2])["deliveries"]
        return self

    def wait_delivered(self, seconds=None):
        """Wait until every delivery of the job, which has ended, has arrived, at most `seconds`; returns them. Raises
        NotDelivered if one was given up, and TimeoutError if the attempts continue."""
        ends = None if seconds is None else time.monotonic() + seconds
        pause = FIRST_LOOK
        while True:
            all_of_them = self.deliveries()
            waiting = [one for one in all_of_them if one["state"] in ("pending", "sending")]
            dead = [one for one in all_of_them if one["state"] == "dead"]
            if not waiting:
                if dead:
                    raise NotDelivered(self, dead)
                return all_of_them
            if ends is not None and time.monotonic() >= ends:
                names = ", ".join(one["destination"] for one in waiting)
                raise TimeoutError(f"Job {self.id} has not been delivered to {names} after {seconds} s.")
            time.sleep(pause if ends is None else max(0, min(pause, ends - time.monotonic())))
            pause = min(2 * pause, LAST_LOOK)

    def cancel(self):
        """Cancel it; self."""
        self.document = json.loads(self.server.request("POST", self._path("/cancel"))[2])
        return self

    def delete(self):
        """Remove the job, its scan and its results from the server."""
        self.server.request("DELETE", self._path())

    def again(self, **parameters):
        """Submit the same scan again with these parameters changed, if the server kept the scan. Returns a new Job."""
        query = urllib.parse.urlencode({key: _word(value) for key, value in parameters.items()})
        answer = self.server.request("POST", self._path("/resubmit") + (f"?{query}" if query else ""))[2]
        return Job(self.server, json.loads(answer))

    def results(self):
        """The job's results on the server: a list of documents with name and formats."""
        return self.server._json("GET", self._path("/results"))["results"]

    def _result_path(self, name, form):
        name = name or self.results()[0]["name"]
        return self._path(f"/results/{urllib.parse.quote(name, safe='')}?format={urllib.parse.quote(form, safe='')}")

    def bytes(self, result=None, form="npy"):
        """A result in a format, in memory; the first result where none is named."""
        return self.server.request("GET", self._result_path(result, form), None, {"Accept": "*/*"})[2]

    def array(self, result=None):
        """A result as a numpy array; without numpy, as a memoryview of the same shape (complex: a last axis of 2)."""
        return array(self.bytes(result))

    def fetch(self, path, result=None, form=None):
        """Save a result to `path`, whose extension selects the format unless `form` is given. Returns the path.
        The file is either complete or absent."""
        name = os.path.basename(os.fspath(path))
        known = (end[1:] for end in EXTENSIONS if name.endswith(end))
        form = form or next(known, os.path.splitext(name)[1][1:]) or "h5"
        where = os.path.dirname(os.path.abspath(path))
        with self.server._exchange("GET", self._result_path(result, form), None, {"Accept": "*/*"}) as answer:
            part, partial = tempfile.mkstemp(prefix=f".{name}.", dir=where)
            try:
                with os.fdopen(part, "wb") as file:
                    shutil.copyfileobj(answer, file, 1 << 20)
                    expected = answer.headers.get("Content-Length")
                    if expected and file.tell() != int(expected):
                        raise NotReached(f"The connection to {self.server.url} broke before the end of the result.")
                os.chmod(partial, 0o644)
                os.replace(partial, path)
            except BaseException as error:
                os.unlink(partial)
                if isinstance(error, (http.client.HTTPException, ConnectionError, TimeoutError)):
                    raise NotReached(f"The connection to {self.server.url} broke: {error}.") from error
                raise
        return path


def _word(value):
    """A parameter as the query has it."""
    if isinstance(value, (list, tuple)):
        return ",".join(_word(each) for each in value)
    return repr(value) if isinstance(value, float) else str(value)


def _events(lines):
    """Parse the lines of an answer as server-sent events: (event, data, id or None).

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    event, data, identity = "message", [], None
    for line in lines:
        line = line.decode("utf-8").rstrip("\r\n")
        if not line:
            if data:
                yield event, "\n".join(data), identity
            event, data, identity = "message", [], None
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            identity = value
