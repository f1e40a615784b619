"""Shared by the end-to-end tests: a real mrirecond on a free loopback port, requests to it, and what makes a test
program (tap.py).

    from harness import Daemon, main, same, test

    @test("an unknown path is a problem document")
    def unknown_path(daemon):
        daemon.request("GET", "/v1/nothing").problem(404, "not-found")

    if __name__ == "__main__":
        main(Daemon)

main(start) starts one daemon for the whole program by start(), and passes it to each test that takes an argument; a
test without one starts its own (`with Daemon(...) as daemon:`). A daemon's stderr is read when it stops: a sanitizer's
report, or an unexpected line logged as an error, fails the program.
"""
import contextlib
import glob
import http.client
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from tap import Skip, main, same, skip, test  # noqa: F401 (test programs import them from here)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get("MRIRECON_BIN", os.path.join(ROOT, "build", "bin")))
DATA = os.path.abspath(os.environ.get("MRIRECON_DATA", os.path.join(ROOT, "..", "shared", "data")))
FINAL = ("succeeded", "failed", "canceled")
# On a busy machine, or one that is suspended for half a minute, a worker may send no heartbeat, and a client no byte,
# for a long time; nor does a worker that a test has stopped, which does not stop a canceled job either.
PATIENT = {"worker_timeout": 600, "header_timeout": 600, "cancel_grace": 600}
SLOW = 120  # seconds after which a test reports a hang; no test asserts a speed

GIVEN = set()  # ports that free_port() has returned

# Output that none of the programs may ever print.
REPORTS = re.compile(r"(AddressSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|runtime error:|Assertion .* failed|"
                     r"HDF5-DIAG|stack smashing|Segmentation fault|double free)")
# How mrirecond marks the level of a line.
TROUBLE = re.compile(r"^\S+Z error: ")


def sanitized():
    """Whether the programs under test are built with sanitizers."""
    with open(os.path.join(BIN, "mrirecon-worker"), "rb") as file:
        return b"libasan" in file.read()


def wait_until(condition, what, seconds=SLOW):
    """Poll condition() until its value is true, and return that value."""
    end, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def children_of(parent):
    """Process ids of a process's children, zombies among them, oldest id first. They are found by their parent's id,
    because /proc/PID/task/TID/children may leave out a living child while another one is reaped (proc(5)).
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:  # it may have ended
                if int(file.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(name))
    return sorted(found)


def free_port():
    """A free port of 127.0.0.1 outside the range of ports that the kernel assigns: with other programs connecting all
    the time, it would soon assign one of its range to one of them. No two calls of a program return the same port.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        least = int(file.read().split()[0])
    while True:
        port = random.randrange(10000, least)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in GIVEN:
                GIVEN.add(port)
                return port


def fault(name):
    """The path of a library of tests/faults, for LD_PRELOAD; skips the test, with the reason, if it is not built."""
    path = os.path.join(os.path.dirname(BIN), "tests", name + ".so")
    if not os.path.exists(path):
        skip(f"{path} is not there (make builds it)")
    return path


def holding():
    """The environment of a Daemon whose worker is to be held(): a worker that reports a step looks for this file."""
    return {"LD_PRELOAD": fault("holdstep"),
            "HOLDSTEP": os.path.join(tempfile.gettempdir(), f"mrirecond-hold-{os.getpid()}-{random.randrange(10**9)}"),
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}


def real_scan(name):
    """The path of a real scan; skips the test, with the reason, if it does not exist."""
    path = os.path.join(DATA, "mri", name)
    if not os.path.exists(path):
        skip(f"{name} is not in {DATA}/mri (set MRIRECON_DATA)")
    return path


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body  # headers: lower-case names

    def json(self):
        return json.loads(self.body)

    def expect(self, status, media=None):
        assert self.status == status, f"answered {self.status}, expected {status}: {self.body[:600]!r}"
        if media:
            same(self.headers.get("content-type", "").split(";")[0], media, "Content-Type")
        return self

    def problem(self, status, code):
        """Assert that this is a problem document (RFC 9457) as the service promises, and return it."""
        self.expect(status, "application/problem+json")
        return check_problem(self.json(), code, status)


def check_problem(problem, code, status=None):
    same(problem.get("code"), code, f"code (detail: {problem.get('detail')!r})")
    if status is not None:
        same(problem.get("status"), status, "status")
    for member in ("title", "detail"):
        assert isinstance(problem.get(member), str) and len(problem[member]) > 3, f"no {member} in {problem}"
    detail = problem["detail"]
    assert len(detail) > 15 and detail[-1] in ".?!)" and "\n" not in detail, f"not a sentence: {detail!r}"
    return problem


def is_stopped(process):
    """Whether all threads of a process are stopped by a signal, or have ended: kill() returns before they are."""
    states = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/stat") as file:
                states.append(file.read().rsplit(")", 1)[1].split()[0])
    return all(state in "TtZX" for state in states)


class Daemon:
    """One mrirecond. Keywords are its options without dashes: Daemon(body_limit="1M") runs with --body-limit 1M, and
    None omits an option. Timeouts by which it would give up a worker or a connection are longer than the defaults:
    PATIENT.
    """

    def __init__(self, state=None, environment=None, command=(), expect_trouble=False, binaries=BIN, port=0, **options):
        self.own_state = state is None
        self.state = state or tempfile.mkdtemp(prefix="mrirecond-test-")
        self.options = {**PATIENT, **options}
        self.binaries = binaries
        self.environment = dict(os.environ, **(environment or {}))
        self.command = list(command)  # words put before the program, e.g. prlimit
        self.expect_trouble = expect_trouble  # the test expects errors in the log
        self.process = None
        self.log = ""
        try:
            self.start(port)
        except BaseException:
            self.kill()
            self.clean()
            raise

    # -- the process

    def start(self, port=0):
        port_file = os.path.join(self.state, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        words = self.command + [os.path.join(self.binaries, "mrirecond"), "--listen", f"127.0.0.1:{port}",
                                "--port-file", port_file, "--state-dir", self.state]
        for name, value in self.options.items():
            words += ["--" + name.replace("_", "-"), str(value)] if value is not None else []
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.stderr, stderr=self.stderr,
                                        env=self.environment)
        self.port = None
        end = time.monotonic() + SLOW
        answer = "nothing"
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"mrirecond exited with {self.process.returncode} at its "
                                     f"start:\n{self.read_log()}")
            try:
                with open(port_file) as file:
                    self.port = int(file.read())
                self.url = f"http://127.0.0.1:{self.port}"
                response = self.request("GET", "/readyz")
                if response.status == 200 or self.only_held(response):
                    return
                answer = response.body
            except (OSError, ValueError, http.client.HTTPException):  # not served yet, or the port only half written
                pass
            time.sleep(0.02)
        raise AssertionError(f"mrirecond was not ready after {SLOW} s; /readyz said {answer}:\n{self.read_log()}")

    def only_held(self, response):
        """Whether /readyz tells of nothing but a held queue, which tests ask for by work-reserve."""
        bad = [name for name, said in response.json().get("checks", {}).items() if said != "ok"]
        return "work_reserve" in self.options and bad == ["starting"]

    def read_log(self):
        # By pread(): the daemon shares this file's offset, and would write at the position that a seek() sets.
        return os.pread(self.stderr.fileno(), os.fstat(self.stderr.fileno()).st_size, 0).decode(errors="replace")

    def clean(self):
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)

    def kill(self):
        """kill -9, as in a power cut."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def restart(self, same_port=False):
        """Start again after its end, with the same state directory. same_port keeps the port, which has to be a
        free_port().
        """
        self.log += self.read_log()
        self.start(self.port if same_port else 0)

    def stop(self):
        """SIGTERM; asserts a clean end and a clean log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(SLOW)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"mrirecond did not end {SLOW} s after SIGTERM:\n{self.read_log()}") from None
        self.log += self.read_log()
        self.stderr.close()
        self.clean()
        bad = [line for line in self.log.splitlines()
               if REPORTS.search(line) or (TROUBLE.search(line) and not self.expect_trouble)]
        assert not bad, "mrirecond logged:\n" + (self.log[-20000:] if REPORTS.search(self.log) else "\n".join(bad))
        assert self.process.returncode in (0, None), \
            f"mrirecond exited with {self.process.returncode}:\n{self.log[-4000:]}"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()
            error.args = (f"{error.args[0] if error.args else ''}\nthe daemon's log ends:\n{self.read_log()[-3000:]}",)
            self.clean()

    def children(self, program, parent=None, template=False):
        """Process ids of running children (of the daemon, or of `parent`) whose program has this name. Of
        mrirecon-codec these are the decoders and converters, or else the `template` that a worker's are forked from.
        """
        parent = parent or self.process.pid
        found = []
        for child in children_of(parent):
            with contextlib.suppress(OSError), open(f"/proc/{child}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")  # empty for a process that has ended
                if program in [os.path.basename(word)
                               for word in words[:2]] and template == (words[1:2] == ["template"]):
                    found.append(child)
        return found

    def waiting(self):
        """Requests that wait in the daemon: the sockets that it watches for nothing but the client's end."""
        found = 0
        for path in glob.glob(f"/proc/{self.process.pid}/fdinfo/*"):
            with contextlib.suppress(OSError), open(path) as file:
                events = re.findall(r"^tfd: .*events: *([0-9a-f]+)", file.read(), re.MULTILINE)
                found += sum(int(mask, 16) & (select.EPOLLIN | select.EPOLLRDHUP) == select.EPOLLRDHUP
                             for mask in events)
        return found

    def worker(self):
        return wait_until(lambda: self.children("mrirecon-worker"), "a worker process")[0]

    @contextlib.contextmanager
    def paused(self):
        """While its workers are stopped, jobs are accepted and assigned, but none computes or ends. Waits for the
        workers first, because a worker that is not ready would be assigned none.
        """
        wait_until(lambda: all(worker["state"] in ("idle", "busy")
                               for worker in self.get("/readyz?verbose").json()["worker_list"]),
                   "workers that are ready")
        workers = [self.worker(), *self.children("mrirecon-worker")]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        wait_until(lambda: all(map(is_stopped, workers)), "workers that are stopped")
        try:
            yield
        finally:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGCONT)

    @contextlib.contextmanager
    def held(self, step):
        """Its worker stops each time it has reported an iteration of this step. Yields go_on(), which lets it continue
        to the next one; leaving the block waits for another stop, and lets it continue to the end. go_on.still() waits
        until it has stopped: who cancels its job before may wait in vain afterwards. Takes
        Daemon(environment=holding()).
        """
        path = f"{self.environment['HOLDSTEP']}.{step}"

        def stopped():
            for worker in self.children("mrirecon-worker"):
                with contextlib.suppress(OSError), open(f"/proc/{worker}/stat") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "T":
                        return worker
            return None

        def still():
            return wait_until(stopped, "the worker to stand still")

        def go_on():
            os.kill(still(), signal.SIGCONT)

        go_on.still = still
        with open(path, "w"):
            pass
        try:
            yield go_on
            still()
        finally:
            os.unlink(path)
        go_on()

    def peak_memory(self):
        """The largest resident memory so far, in bytes."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s*(\d+) kB", file.read()).group(1)) * 1024

    def files(self):
        """Every file under the state directory, relative, with its size; files may come and go meanwhile."""
        found = {}
        for folder, _, names in os.walk(self.state):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    found[os.path.relpath(path, self.state)] = os.path.getsize(path)
        return found

    def new_files(self, before):
        """Names of files that were not in `before` (files()), without those of the job store."""
        return {name for name in set(self.files()) - set(before) if not name.startswith("jobs.db")}

    # -- requests

    def request(self, method, path, body=None, headers=None, timeout=SLOW):
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except ConnectionError:
            # A daemon with a timeout of one second closes the connection of a test that was not scheduled for as long.
            patience = min(self.options.get(name, SLOW) for name in ("header_timeout", "idle_timeout"))
            if self.process.poll() is not None or time.monotonic() - begun < patience:
                raise
        finally:
            connection.close()
        return self.request(method, path, body, headers, timeout)

    def get(self, path, **headers):
        return self.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def submit(self, body, query="kind=recon", **headers):
        """POST /v1/jobs; returns the response, whatever its status."""
        return self.request("POST", f"/v1/jobs?{query}", body, {k.replace("_", "-"): v for k, v in headers.items()})

    def job(self, identity):
        return self.get(f"/v1/jobs/{identity}").expect(200, "application/json").json()

    def finish(self, identity, seconds=SLOW):
        """Wait for the end of a job; returns its document."""
        def final():
            job = self.job(identity)
            return job if job["state"] in FINAL else None
        return wait_until(final, f"the end of job {identity}", seconds)

    def run(self, body, query="kind=recon"):
        """Submit, wait, and return the finished job's document."""
        return self.finish(self.submit(body, query).expect(202).json()["id"])

    def fails(self, body, query, code, status=None):
        """Assert that this upload is refused, or its job fails, with `code`; returns the problem document."""
        response = self.submit(body, query)
        if response.status != 202:
            return response.problem(status or response.status, code)
        job = self.finish(response.json()["id"])
        same(job["state"], "failed", "state")
        return check_problem(job["error"], code, status)

    def metrics(self):
        """/metrics as {name{labels}: value}."""
        text = self.get("/metrics").expect(200).body.decode()
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in values, f"{name} is told twice"
                values[name] = float(value)
        return values


def raw(daemon, *pieces, half_close=False, timeout=120):
    """Send bytes as they are, and return all that comes back until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=timeout) as connection:
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:  # closed while sending; the answer may have arrived
            pass
        while True:
            try:
                data = connection.recv(65536)
            except (TimeoutError, ConnectionResetError):
                break
            if not data:
                break
            answer += data
    return answer


def status_of(answer):
    """The status of an answer from raw()."""
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    assert found, f"not an HTTP answer: {answer[:200]!r}"
    return int(found.group(1))


def client(daemon, *words, check=True, stdin=None, timeout=SLOW, **environment):
    """Run mrirecon against a daemon (None: without --server); returns a CompletedProcess with text."""
    environment = dict(os.environ, **environment)
    if daemon is not None:
        environment["MRIRECON_SERVER"] = daemon.url
    done = subprocess.run([os.path.join(BIN, "mrirecon"), *words], stdin=stdin or subprocess.DEVNULL,
                          capture_output=True, text=True, env=environment, timeout=timeout)
    if check:
        assert done.returncode == 0, f"mrirecon {' '.join(words)} exited with {done.returncode}: {done.stderr}"
        assert not REPORTS.search(done.stderr), done.stderr
    return done
