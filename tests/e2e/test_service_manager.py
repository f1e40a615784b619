#!/usr/bin/python3
"""What systemd expects of a service: readiness, status, watchdog messages, reload, socket activation; logs as JSON."""
import base64
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request

import mrd
import receiver
import scans
from guarded import certificate
from harness import ROOT, Daemon, Response, fault, main, same, sanitized, skip, test, wait_until


class Manager:
    """systemd's side, which always reads NOTIFY_SOCKET: its queue holds few messages, and senders wait if it is full.
    """

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.told = []
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while message := self.socket.recv(65536):
            self.take(message.decode().splitlines())

    def take(self, lines):
        self.told += lines

    def read(self):
        return list(self.told)

    def heard(self, start):
        return [line for line in self.read() if line.startswith(start)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()
        self.folder.cleanup()


@test("READY when a worker is warm, then a status; RELOADING and STOPPING are sent")
def notify():
    with Manager() as manager:
        with Daemon(devices="cpu", environment={"NOTIFY_SOCKET": manager.path}) as daemon:
            wait_until(lambda: "READY=1" in manager.read(), "readiness")
            wait_until(lambda: manager.heard("STATUS=1 of 1 workers ready, 0 running, 0 waiting"), "the status")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "RELOADING=1" in manager.read() and manager.read().count("READY=1") == 2, "the reload")
            assert manager.heard("MONOTONIC_USEC="), manager.read()
        wait_until(lambda: "STOPPING=1" in manager.read() and manager.heard("EXTEND_TIMEOUT_USEC="), "the stop")
        same(manager.heard("EXTEND_TIMEOUT_USEC="), ["EXTEND_TIMEOUT_USEC=60000000"],
             "time to stop: drain-time and 30 s")


@test("without a usable device READY is still sent: scans are accepted and kept, and /readyz says why")
def no_device():
    class Kept(Daemon):
        def request(self, method, path, *more, **others):
            answer = super().request(method, path, *more, **others)
            if path == "/readyz" and answer.status == 503 and b"gpu" in answer.body.lower():
                self.why = answer.json()["checks"]["workers"]
                answer.status = 200  # for the start, which waits for it
            return answer

    with Manager() as manager, Kept(devices="gpu:7", environment={"NOTIFY_SOCKET": manager.path},
                                    expect_trouble=True) as daemon:
        wait_until(lambda: "READY=1" in manager.read(), "readiness")
        assert "No worker is ready" in daemon.why, daemon.why
        same(daemon.submit(scans.radial().bytes(daemon.state)).status, 202, "status of a submission")
        wait_until(lambda: manager.heard("STATUS=0 of 1 workers ready, 0 running, 1 waiting"), "the status")


@test("watchdog messages come as long as the daemon runs, also under load")
def watchdog():
    with Manager() as manager:
        environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "500000"}
        with Daemon(devices="cpu", environment=environment) as daemon:
            wait_until(lambda: len(manager.heard("WATCHDOG=1")) >= 4, "signs of life")
            job = daemon.run(scans.radial().bytes(daemon.state))
            same(job["state"], "succeeded")
            count = len(manager.heard("WATCHDOG=1"))
            wait_until(lambda: len(manager.heard("WATCHDOG=1")) > count, "another sign")


@test("SIGHUP applies options that may change, and names those that need a restart; an invalid file changes nothing")
def reload():
    with tempfile.NamedTemporaryFile("w+", suffix=".conf") as config, Manager() as manager:
        def write(text):
            config.seek(0)
            config.truncate()
            config.write(text)
            config.flush()

        write("queue-limit = 5\nlog-level = info\n")
        with Daemon(devices="cpu", config=config.name, expect_trouble=True,
                    environment={"NOTIFY_SOCKET": manager.path}) as daemon:
            wait_until(lambda: manager.heard("READY=1"), "readiness")
            same(daemon.metrics()["mrirecond_queue_capacity_jobs"], 5)
            write("queue-limit = 7\nlog-level = info\nhttp-threads = 2\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: daemon.metrics()["mrirecond_queue_capacity_jobs"] == 7, "the new limit")
            wait_until(lambda: "a restart is needed for http-threads" in daemon.read_log(), "a word about the threads")
            write("queue-limit = nonsense\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old configuration stays" in daemon.read_log(), "a word about the broken file")
            same(daemon.metrics()["mrirecond_queue_capacity_jobs"], 7)
            wait_until(lambda: len(manager.heard("READY=1")) == 3, "the end of two reloads")
            write("log-level = error\n")
            reloads = len(manager.heard("READY=1"))
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(manager.heard("READY=1")) > reloads, "the end of the reload")
            same(daemon.metrics()["mrirecond_queue_capacity_jobs"], 10000, "the default")
            before = daemon.read_log()
            same(daemon.run(scans.radial().bytes(daemon.state))["state"], "succeeded")
            new = daemon.read_log()[len(before):].splitlines()
            same([line for line in new if "audit: " not in line], [], "log at level error")


@test("a socket passed by the service manager is used")
def handed():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        script = 'exec 3<&"$FD"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        os.set_inheritable(listening.fileno(), True)

        class Activated(Daemon):
            def start(self, port=0):
                import subprocess
                real = subprocess.Popen
                subprocess.Popen = lambda *words, **more: real(*words, **{**more, "pass_fds": [listening.fileno()]})
                try:
                    super().start(port)
                finally:
                    subprocess.Popen = real

        with Activated(devices="cpu", command=["bash", "-c", script, "bash"],
                       environment={"FD": str(listening.fileno())}, listen="[::1]:9") as daemon:
            same(daemon.port, port, "port")
            wait_until(lambda: f" serves 127.0.0.1:{port}, " in daemon.read_log(), "a word about the address")
            same(daemon.run(scans.radial().bytes(daemon.state))["state"], "succeeded")


def members(word):
    """The system calls of one of systemd's groups, or the call itself."""
    if not word.startswith("@"):
        return {word}
    group = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True,
                           check=True).stdout
    words = [line.strip() for line in group.splitlines()[1:]]
    return set().union(*(members(word) for word in words if word and not word.startswith("#")))


def unit_calls():
    """The system calls that the service's unit allows, as systemd reads it, and those that a sanitizer or root needs in
    addition.
    """
    if not shutil.which("systemd-analyze"):
        skip("there is no systemd-analyze here")
    calls = members("@default")
    with open(os.path.join(ROOT, "systemd", "mrirecond.service")) as unit:
        for line in unit:
            if line.startswith("SystemCallFilter="):
                words = line.partition("=")[2].strip()
                named = set().union(*(members(word) for word in words.removeprefix("~").split()))
                calls = calls - named if words.startswith("~") else calls | named
    return calls | ({"ptrace"} if sanitized() else set()) | (set() if os.geteuid() else {"fchown", "capset"})


# Runs a command after the names of calls and "--"; any other call kills it, or fails with an error (EPERM).
ALLOWED = """import ctypes, os, sys
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
end = sys.argv.index("--")
filter = ctypes.c_void_p(seccomp.seccomp_init({"kill": 0x80000000, "error": 0x00050001}[sys.argv[1]]))
for name in sys.argv[2:end]:
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    # Of another architecture: -1, -10131.
    assert number in (-1, -10131) or seccomp.seccomp_rule_add(filter, 0x7fff0000, number, 0) in (0, -22), name
assert seccomp.seccomp_load(filter) == 0
os.execv(sys.argv[end + 1], sys.argv[end + 1:])
"""


def filtered(calls, others, kind=Daemon, **options):
    return kind(devices="cpu", command=[sys.executable, "-c", ALLOWED, others, *sorted(calls), "--"], **options)


@test("under the unit's filter, with any other system call fatal, the service reconstructs, converts and stops")
def unit_filter():
    with filtered(unit_calls(), "kill") as daemon:
        job = daemon.run(scans.radial().bytes(daemon.state))
        same(job["state"], "succeeded", "state")
        for form in ("png", "nii.gz", "npy"):
            daemon.get(f"/v1/jobs/{job['id']}/results/image?format={form}").expect(200)
        same(daemon.request("DELETE", f"/v1/jobs/{job['id']}").status, 204, "status of the deletion")


class Encrypted(Daemon):
    """A daemon that is asked by TLS; `trust`: its certificate."""

    def __init__(self, certificate, **options):
        self.trust = ssl.create_default_context(cafile=certificate[0])
        super().__init__(tls_certificate=certificate[0], tls_key=certificate[1], **options)

    def request(self, method, path, body=None, headers=None, timeout=120):
        asked = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data=body, method=method,
                                       headers=headers or {})
        with urllib.request.urlopen(asked, context=self.trust, timeout=timeout) as answer:
            return Response(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())


@test("under the unit's filter, too: TLS, a webhook's delivery, a resumable upload, and a stream over TCP")
def unit_filter_more():
    scan = scans.radial()
    tus = {"Tus-Resumable": "1.0.0"}
    with tempfile.TemporaryDirectory() as folder, receiver.Receiver() as hook:
        destinations = receiver.write(folder, "destinations", hook.destination(folder, "hook") + "rule hook\n")
        with filtered(unit_calls(), "kill", kind=Encrypted, certificate=certificate(folder, "service"),
                      destinations=destinations, mrd_listen="127.0.0.1:0") as daemon:
            body = scan.bytes(folder)
            job = daemon.run(body)["id"]
            where = daemon.request("POST", "/v1/uploads?kind=recon", b"",
                                   {**tus, "Upload-Length": str(len(body))}).headers["location"]
            for begin, end in ((0, 1000), (1000, len(body))):
                digest = base64.b64encode(hashlib.sha1(body[begin:end]).digest()).decode()
                daemon.request("PATCH", where, body[begin:end], {
                    **tus, "Upload-Offset": str(begin), "Content-Type": "application/offset+octet-stream",
                    "Upload-Checksum": f"sha1 {digest}"}).expect(204)
            resumed = where.rsplit("/", 1)[1]
            same(daemon.finish(resumed)["state"], "succeeded", "state of the job of the resumable upload")
            with mrd.Session(daemon) as session:
                images = session.send(mrd.config_file("default"), *scan.messages()).images()
            same(len(images), 1, "images of the stream")
            wait_until(lambda: len(hook.got) >= 3, "the webhook to be told of three jobs")
            told = {json.loads(body)["data"]["id"] for _, _, body in hook.got}
            assert {job, resumed} < told, told


class Unready(Daemon):
    """A daemon whose workers do not start; `why` is what /readyz says about them."""

    def request(self, method, path, *more, **others):
        answer = super().request(method, path, *more, **others)
        if path == "/readyz" and answer.status == 503 and b"No worker is ready" in answer.body:
            self.why = answer.json()["checks"]["workers"]
            answer.status = 200  # for the start, which waits for it
        return answer


@test("a filter around the service that refuses the sandbox's system calls: they are named")
def refused_calls():
    calls = unit_calls() - {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    for others, names in (("kill",
                           r"seccomp \(\d+\), landlock_create_ruleset \(444\), landlock_add_rule \(445\), "
                           r"landlock_restrict_self \(446\)"),
                          ("error", r"seccomp \(\d+\)")):
        command = [sys.executable, "-c", ALLOWED, others, *sorted(calls), "--"]
        with Unready(devices="cpu", command=command, expect_trouble=True) as daemon:
            wait_until(lambda: daemon.get("/readyz") and "failed to start" in daemon.why, "the reason")
            assert re.search(f"failed to start: A filter of system calls around this program refuses {names}, which it "
                             f"needs to", daemon.why), daemon.why


@test("a worker killed by a filter of system calls: the log reports it, and how to find the call")
def killed_call():
    with Daemon(devices="cpu", expect_trouble=True) as daemon:
        os.kill(daemon.worker(), signal.SIGSYS)
        sentence = (r"worker 0 was killed by signal 31 \(Bad system call\): its own filter of system calls, or that of "
                    r"the service's unit or container, denied a call; `journalctl -k -g type=1326` shows which; "
                    r"restarting in [0-9.]+ s$")
        wait_until(lambda: re.search(sentence, daemon.read_log(), re.M), "the sentence")


class Journal(Manager):
    """The socket of systemd's journal, in its native protocol, and a daemon whose stderr is the journal's stream."""

    def daemon(self, **options):
        stream = 'export JOURNAL_STREAM="$(stat -Lc %d:%i /dev/fd/2)"; exec "$@"'
        return Daemon(devices="cpu", command=["sh", "-c", stream, "sh"], environment={
            "LD_PRELOAD": fault("journal"), "JOURNAL_SOCKET": self.path,
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}, **options)

    def take(self, lines):
        self.told.append(dict(line.split("=", 1) for line in lines))

    def of(self, **fields):
        return [entry["MESSAGE"] for entry in self.read() if fields.items() <= entry.items()]


@test("in systemd's journal a line is an entry with the fields JOB, CLIENT and CODE")
def journal_fields():
    with Journal() as journal:
        with journal.daemon() as daemon:
            scan = scans.radial().bytes(daemon.state)
            done = daemon.submit(scan, X_Mrirecond_Client="mri1").expect(202).json()["id"]
            failed = daemon.submit(scan, "kind=recon&group=nothing", X_Mrirecond_Client="mri2").expect(202).json()["id"]
            daemon.finish(done), daemon.finish(failed)
            wait_until(lambda: journal.of(JOB=failed, CODE="bad-parameter"), "the end of the job that fails")
            assert any(f"job={failed} failed after" in message
                       for message in journal.of(JOB=failed, CLIENT="mri2", CODE="bad-parameter", PRIORITY="6"))
            wait_until(lambda: any("succeeded in" in message for message in journal.of(JOB=done, CLIENT="mri1")),
                       "the end of the other")
            for message in ("accepted, recon", "begins on cpu", "audit: client=mri1"):
                wait_until(lambda: any(message in told for told in journal.of(JOB=done, CLIENT="mri1")),
                           f"the entry {message}")
            same(journal.of(JOB=done, CLIENT="mri2"), [], "what of one job is another client's")
            daemon.get("/v1/jobs", Host="evil.example").problem(421, "misdirected")
            wait_until(lambda: journal.of(CODE="misdirected", PRIORITY="6"), "a refusal")
            same({entry["SYSLOG_IDENTIFIER"] for entry in journal.read()}, {"mrirecond"}, "identifiers")
            same(daemon.read_log(), "", "what goes to stderr beside the journal")
            os.unlink(journal.path)
            daemon.run(scan)
            wait_until(lambda: re.search(r"^<6>job=\w+ accepted", daemon.read_log(), re.M),
                       "the line in the stream, where the journal takes nothing")


@test("log lines as JSON objects")
def json_log():
    with Daemon(devices="cpu", log_format="json") as daemon:
        job = daemon.run(scans.radial().bytes(daemon.state))
        daemon.finish(daemon.submit(scans.radial().bytes(daemon.state),
                                    "kind=recon&group=nothing").expect(202).json()["id"])

        def told():
            lines = [json.loads(line) for line in daemon.read_log().splitlines(True) if line.endswith("\n")]
            assert all({"time", "level", "message"} <= set(line) for line in lines), lines
            about = [line["message"] for line in lines if line.get("job") == job["id"]
                     and line.get("client") == "127.0.0.1"]
            return (any(message.startswith("accepted") for message in about)
                    and any("succeeded" in message for message in about)
                    and any(line.get("code") == "bad-parameter" for line in lines))
        wait_until(told, "both jobs' lines")


@test("characters of a path neither forge nor break log lines, as text and as JSON")
def forged():
    with tempfile.TemporaryDirectory() as folder:
        odd = os.path.join(folder, "a\n2026-01-01T00:00:00.000Z error: forged\x1b[31m\"\\ \udcff" + '"' * 90)
        for options in ({}, {"log_format": "json"}):
            with Daemon(state=odd, devices="cpu", **options) as daemon:
                def lines_of(words):
                    return [line for line in daemon.read_log().split("\n")[:-1] if words in line]
                told = wait_until(lambda: lines_of("state in "), "the line that names the folder")
                lines = lines_of("")
                same(len(told), 1, f"lines that name the folder: {lines}")
                assert "forged?[31m" in told[0] and "\x1b" not in told[0], told
                assert not any(line.startswith("2026-01-01") for line in lines), lines
                assert not options or [json.loads(line) for line in lines], lines


@test("a file size limit set on the running daemon: uploads are refused until it is lifted, no process dies")
def file_size_limit():
    with Daemon(devices="cpu", expect_trouble=True) as daemon:
        scan = scans.radial().bytes(daemon.state)
        before = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        refused = daemon.submit(scan)
        assert refused.status >= 500 and refused.json()["code"] in ("io-error", "spool-full"), refused.body
        same(daemon.get("/livez").status, 200, "/livez")
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, before)
        wait_until(lambda: daemon.get("/readyz").status == 200, "readiness")
        same(daemon.run(scan)["state"], "succeeded", "state")


@test("the daemon and its workers write no core file: it would contain scans")
def cores(daemon):
    for pid in (daemon.process.pid, daemon.worker()):
        with open(f"/proc/{pid}/limits") as file:
            same([line.split()[4:6] for line in file if line.startswith("Max core file size")], [["0", "0"]],
                 f"limit of process {pid}")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
