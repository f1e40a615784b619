#!/usr/bin/python3
"""mrirecon batch: every scan of a folder, also after an interruption."""
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import scans
from harness import BIN, ROOT, Daemon, client, fault, free_port, holding, main, same, skip, test, wait_until
from terminal import at_terminal

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import diskfaults  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
GOOD = scans.radial(seed=71).write(f"{FOLDER.name}/good.h5")
UNWEIGHTED = scans.radial(seed=72, weights=False).write(f"{FOLDER.name}/unweighted.h5")


def folder(good, bad=0):
    """A new folder of scans: a0.h5, a1.h5, ... that succeed, b0.h5, ... that fail with dcf=given, and a file that is no
    scan.
    """
    where = tempfile.mkdtemp(dir=FOLDER.name)
    for number in range(good):
        shutil.copy(GOOD, f"{where}/a{number}.h5")
    for number in range(bad):
        shutil.copy(UNWEIGHTED, f"{where}/b{number}.h5")
    with open(f"{where}/notes.txt", "w") as file:
        file.write("no scan")
    return where


def table(done):
    """{scan: state} of the summary."""
    rows = [line.split("  ") for line in done.stdout.splitlines()[1:-1]]
    return {row[0].strip(): [word.strip() for word in row[1:] if word.strip()][0] for row in rows}


def jobs(daemon):
    return daemon.get("/v1/jobs?limit=500").json()["jobs"]


@test("all scans of a folder become images; a table lists each result, the exit status says whether all succeeded")
def whole(daemon):
    before = len(jobs(daemon))
    where = folder(3, bad=1)
    done = client(daemon, "batch", where, "dcf=given", "--format", "png", check=False)
    same(done.returncode, 1, "exit status with one that failed")
    same(table(done), {"a0.h5": "succeeded", "a1.h5": "succeeded", "a2.h5": "succeeded", "b0.h5": "failed"}, "table")
    assert "dcf-missing" in done.stdout and "3 of 4 succeeded, 1 failed" in done.stdout, done.stdout
    same(sorted(os.listdir(f"{where}/images")), ["a0.png", "a1.png", "a2.png", "batch.state"], "images")
    for number in range(3):
        with open(f"{where}/images/a{number}.png", "rb") as file:
            assert file.read(4) == b"\x89PNG"
    assert all(job["priority"] == "batch" for job in jobs(daemon)[:4])
    # Again: only what is missing is done; failed scans are retried on request.
    os.unlink(f"{where}/images/a1.png")
    same(client(daemon, "batch", where, "dcf=given", "--format", "png", check=False).returncode, 1,
         "exit status, again")
    same(len(jobs(daemon)) - before, 4, "jobs")
    assert os.path.exists(f"{where}/images/a1.png"), "the missing image was not made again"
    shutil.copy(GOOD, f"{where}/b0.h5")  # repaired: a different scan of the same name
    same(table(client(daemon, "batch", where, "dcf=given", "--format", "png"))["b0.h5"], "succeeded",
         "state of the repaired scan")
    same(len(jobs(daemon)) - before, 5, "jobs")
    same(table(client(daemon, "batch", where, "dcf=none", "--format", "png"))["a0.h5"], "succeeded",
         "state with other parameters")
    same(len(jobs(daemon)) - before, 9, "jobs with other parameters")


@test("--result saves a second result of the same jobs")
def other_result(daemon):
    before, where = len(jobs(daemon)), folder(2)
    asked = ("coils=adaptive", "results=image,maps", "--format", "npy")
    client(daemon, "batch", where, *asked)
    client(daemon, "batch", where, *asked, "--result", "maps")
    same(sorted(os.listdir(f"{where}/images")), ["a0.maps.npy", "a0.npy", "a1.maps.npy", "a1.npy", "batch.state"],
         "files")
    same(len(jobs(daemon)) - before, 2, "jobs")


@test("--retry submits failed scans again")
def retry(daemon):
    where, out = folder(0, bad=1), tempfile.mkdtemp(dir=FOLDER.name)
    for words, more in (([], 1), ([], 0), (["--retry"], 1)):
        before = len(jobs(daemon))
        same(client(daemon, "batch", where, "dcf=given", "--out", out, *words, check=False).returncode, 1,
             "exit status")
        same(len(jobs(daemon)) - before, more, f"jobs with {words}")


@test("a batch that is interrupted or killed resumes: no scan is computed twice")
def broken_off():
    daemon = Daemon(devices="cpu", work_reserve="900T", queue_limit=3)  # no job begins, and few are accepted
    with daemon:
        where = folder(8)
        environment = dict(os.environ, MRIRECON_SERVER=daemon.url)
        for sign, status in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
            running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given"], env=environment,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            first = running.stderr.readline() if sign == signal.SIGINT else ""
            told = running.stderr.readline()  # once a fourth is refused, three are known to be accepted
            assert told.endswith("[queue-full]\n"), told
            same(len(jobs(daemon)), 3, "jobs")
            running.send_signal(sign)
            said = running.communicate(timeout=120)
            same(running.returncode, status, f"exit status, having said {said}")
        assert "0 of 8 scans are done, 3 on the server" in first, first
        assert "to continue" in said[1] and "on the server" in said[0] and "not sent" in said[0], said
        with open(f"{where}/images/batch.state", "a") as file:
            file.write('{"key": "broken of')
        daemon.kill()
        daemon.options.update(work_reserve="1M", queue_limit=100)
        daemon.restart()
        done = client(daemon, "batch", where, "dcf=given")
        same(set(table(done).values()), {"succeeded"}, "states")
        assert "continuing a batch" in done.stderr, done.stderr
        same(len(jobs(daemon)), 8, "jobs of 8 scans")
        same(len(os.listdir(f"{where}/images")), 9, "images and state")


@test("a server with a short queue, and one that restarts, gets every scan")
def back_pressure():
    daemon = Daemon(devices="cpu", queue_limit=2, port=free_port())
    with daemon:
        same(set(table(client(daemon, "batch", folder(6), "dcf=given")).values()), {"succeeded"}, "states")
        daemon.kill()
        daemon.options["work_reserve"] = "900T"  # no job begins, so the batch is not over when the daemon is killed
        daemon.restart(same_port=True)
        where = folder(6)
        running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=dict(os.environ, MRIRECON_SERVER=daemon.url), text=True)
        told = running.stderr.readline()
        assert told.endswith("[queue-full]\n"), told
        daemon.kill()
        said = ""
        while "No server answers" not in said and " broke " not in said:  # a request that was under way
            line = running.stderr.readline()
            assert line, f"the batch ended with the output {said}"
            said += line
        daemon.options["work_reserve"] = "1M"
        daemon.restart(same_port=True)
        out = running.communicate(timeout=120)
        same(running.returncode, 0, f"exit status, having said {said} {out}")
        same(len(os.listdir(f"{where}/images")), 7, "images and state")


class Proxy:
    """Forwards connections to a daemon, and breaks each that begins to send a body of `cursed` bytes."""

    def __init__(self, daemon, cursed):
        self.target, self.cursed, self.broken = daemon.port, f"Content-Length: {cursed}\r\n".encode(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.hand_on, args=(one, other), daemon=True).start()

    def hand_on(self, one, other):
        with contextlib.suppress(OSError):
            while (data := one.recv(65536)):
                if self.cursed in data:
                    self.broken += 1
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@test("a scan whose connections break fails alone; one that a busy server refuses is sent later")
def connections():
    with Daemon(devices="cpu", connections=8) as daemon:
        where = folder(3)
        scans.radial(seed=75, spokes=90).write(f"{where}/a1.h5")
        proxy = Proxy(daemon, os.path.getsize(f"{where}/a1.h5"))
        with open(f"{where}/._a0.h5", "w") as file:  # files that another system leaves
            file.write("no scan")
        done = client(None, "batch", where, "dcf=given", check=False, timeout=120, MRIRECON_SERVER=proxy.url)
        proxy.listener.close()
        # libcurl itself retries once after sending on a reused connection.
        same((done.returncode, 3 <= proxy.broken <= 6), (1, True),
             f"exit status, and whether it was tried three times: {proxy.broken}, {done.stderr}")
        same(table(done), {"a0.h5": "succeeded", "a1.h5": "failed", "a2.h5": "succeeded"}, "states")
        done = client(daemon, "batch", where, "dcf=given", "--retry")
        same(set(table(done).values()), {"succeeded"}, "states")
        # All connections of an address are busy, so a batch gets none of its own.
        stack = contextlib.ExitStack()
        stack.enter_context(daemon.paused())  # the streams do not end
        blocker = daemon.submit(scans.radial(seed=76).bytes(where)).expect(202).json()["id"]
        streams, refused = [], []

        def full():  # and not only for an earlier request, whose connection is about to be free
            stream = socket.create_connection(("127.0.0.1", daemon.port))
            stream.sendall(f"GET /v1/jobs/{blocker}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            (streams if stream.recv(100).startswith(b"HTTP/1.1 200") else refused).append(stream)
            return len(refused) > 10
        wait_until(full, "all connections to be busy")
        running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", folder(2), "dcf=given"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=dict(os.environ, MRIRECON_SERVER=daemon.url), text=True)
        told = running.stderr.readline()
        assert told.startswith("mrirecon: waiting: ") and told.endswith("[too-many-connections]\n"), told
        stack.close()
        for stream in streams + refused:
            stream.close()
        out, said = running.communicate(timeout=120)
        same(running.returncode, 0, f"exit status: {said}{out}")


@test("each reason for waiting is printed once; Ctrl-C ends the batch with a table; the same command resumes it")
def refusals():
    def refusal(options, code):
        daemon = Daemon(devices="cpu", work_reserve="900T", **options)  # no job begins
        with daemon:
            where = folder(3)
            running = subprocess.Popen([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=dict(os.environ, MRIRECON_SERVER=daemon.url), text=True)
            told = running.stderr.readline()
            assert told.startswith("mrirecon: waiting: ") and told.endswith(f"[{code}]\n"), told
            refused = re.compile(r'mrirecond_http_requests_total\{method="POST",code="(429|503|507)"')
            wait_until(lambda: sum(count for name, count in daemon.metrics().items() if refused.match(name)) >= 2,
                       "it to ask again")
            running.send_signal(signal.SIGINT)
            out, said = running.communicate(timeout=120)
            same((running.returncode, said),
                 (130, "mrirecon: interrupted\nmrirecon: give the same command again to continue.\n"), "end")
            lines = out.splitlines()
            assert lines[1].split()[:2] == ["a0.h5", "on"] and lines[2].split() == ["a1.h5", "not", "sent"], out
            same(lines[-1], "0 of 3 succeeded, 0 failed, 1 on the server, 2 not sent", "last line")
            daemon.kill()
            daemon.options = dict(devices="cpu")
            daemon.restart()
            same(set(table(client(daemon, "batch", where, "dcf=given")).values()), {"succeeded"},
                 f"states after {code}")
            same(len(jobs(daemon)), 3, f"jobs after {code}")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # each waits for seconds before it tries again
        list(pool.map(refusal, (dict(queue_limit=1), dict(client_jobs=1),
                                dict(spool_limit=2 * os.path.getsize(GOOD) - 1)),
                      ("queue-full", "client-quota", "spool-full")))


@test("a server that never answered ends the batch at once, without a table; the same command works once it does")
def nobody(daemon):
    where = folder(2)
    done = client(None, "batch", where, check=False, timeout=120, MRIRECON_SERVER="http://127.0.0.1:9")
    same((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), f"answer to {done.stderr}")
    assert "127.0.0.1:9" in done.stderr, done.stderr
    done = client(daemon, "batch", where)
    same((table(done), "continuing" in done.stderr), ({"a0.h5": "succeeded", "a1.h5": "succeeded"}, False), "states")


@test("scans whose names differ only in the extension have separate images; extensions may be in upper case")
def twins(daemon):
    where = folder(2)
    other = scans.radial(seed=73)
    for name in ("a0.MRD", "a0.h5.h5", "UP.H5"):
        other.write(f"{where}/{name}")
    done = client(daemon, "batch", where, "dcf=given", "--format", "npy")
    same(len(table(done)), 5, "scans")
    same(sorted(os.listdir(f"{where}/images")), ["UP.npy", "a0.MRD.npy", "a0.h5.h5.npy", "a0.h5.npy", "a1.npy",
                                                 "batch.state"], "images")
    assert "a0.MRD.npy" in done.stderr and "a0.h5.h5.npy" in done.stderr, done.stderr

    def image(name):
        with open(f"{where}/images/{name}.npy", "rb") as file:
            return file.read()
    same([image(name) == image("a1") for name in ("a0.h5", "a0.MRD", "a0.h5.h5", "UP")], [True, False, False, False],
         "whose image each is")
    same([image(name) == image("UP") for name in ("a0.MRD", "a0.h5.h5")], [True, True], "whose image each is")
    before = len(jobs(daemon))
    client(daemon, "batch", where, "dcf=given", "--format", "npy")
    same(len(jobs(daemon)), before, "jobs of a second run")


@test("an empty, truncated or unreadable file affects no other scan, and is retried when it has changed")
def bad_ones(daemon):
    where = folder(2)
    os.chmod(FOLDER.name, 0o755)  # another user's folder: root may read everything
    os.chmod(where, 0o777)
    with open(GOOD, "rb") as file, open(f"{where}/cut.h5", "wb") as cut:
        cut.write(file.read()[:3000])
    with open(f"{where}/empty.h5", "w"):
        pass
    shutil.copy(GOOD, f"{where}/secret.h5")
    os.chmod(f"{where}/secret.h5", 0)
    user = 65534 if os.geteuid() == 0 else None

    def run(*words):
        try:
            return subprocess.run([os.path.join(BIN, "mrirecon"), "batch", where, "dcf=given", *words],
                                  capture_output=True, text=True, timeout=120, user=user,
                                  stdin=subprocess.DEVNULL, env=dict(os.environ, MRIRECON_SERVER=daemon.url))
        except PermissionError:
            skip("another user may not run the programs from where they lie")
    done = run()
    same(done.returncode, 1, f"exit status: {done.stderr}")
    same(table(done), {"a0.h5": "succeeded", "a1.h5": "succeeded", "cut.h5": "failed", "empty.h5": "failed",
                       "secret.h5": "failed"}, "states")
    for says in ("The file is empty. [empty-body]", "[truncated-file]", "Permission denied [io-error]"):
        assert says in done.stderr, done.stderr
    os.chmod(f"{where}/secret.h5", 0o644)
    shutil.copy(GOOD, f"{where}/empty.h5")
    done = run()
    same({name for name, state in table(done).items() if state == "failed"}, {"cut.h5"}, "what still fails")
    assert "1 failed before; --retry" in done.stderr, done.stderr
    os.chmod(where, 0)
    done = run()
    same((done.returncode, done.stdout, "Permission denied" in done.stderr), (1, "", True),
         f"of a folder that may not be read: {done.stderr}")
    os.chmod(where, 0o755)


@test("a folder of which the disk does not show every scan ends the batch: none of it is taken for all")
def not_shown(daemon):
    where = folder(3)
    program = shutil.copy(os.path.join(BIN, "mrirecon"), f"{FOLDER.name}/mrirecond")  # its calls fail, by that name
    failing = diskfaults.Fault(where + ".fault")
    for call, number in (*(("readdir", number) for number in range(1, 8)), ("fstatat", 2)):
        failing.arm(number, errno.EIO, False, only=call)
        done = subprocess.run([program, "batch", where, "--format", "png"], capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env={**os.environ, "MRIRECON_SERVER": daemon.url,
                                                             **diskfaults.preload(where, failing)})
        assert failing.failed(), "nothing has failed"
        assert done.returncode == 1 and "Input/output error" in done.stderr and not done.stdout, (call, number, done)


@test("a state that cannot be locked or written to its end: the reason is told, and no other mrirecon is blamed")
def state_refused():
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))  # in the middle of the first line

    where = folder(1)
    words = [os.path.join(BIN, "mrirecon"), "batch", where, "--server", "http://127.0.0.1:9"]
    unlocked = {**os.environ, "LD_PRELOAD": fault("nolock"), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=unlocked)
    same(done.returncode, 1, "exit status without locks")
    assert re.search(r"batch\.state.* cannot be locked: No locks available\. Use --out", done.stderr), done.stderr
    with open(f"{where}/images/batch.state") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and "another mrirecon is working on this batch" in done.stderr, done
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, preexec_fn=limit)
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr, done


@test("a terminal shows how many scans are done, and the progress of the running job")
def terminal():
    where = folder(2)
    words = ["batch", where, "dcf=pipe", "dcf_iterations=120", "tolerance=1e-5"]
    with Daemon(devices="cpu", environment=holding()) as daemon, contextlib.ExitStack() as stack:
        client(daemon, *words)
        scans.slow(seed=74).write(f"{where}/slow.h5")
        stack.enter_context(daemon.held("density"))  # until it is drawn
        moving = at_terminal([os.path.join(BIN, "mrirecon"), *words], 100, dict(os.environ, MRIRECON_SERVER=daemon.url),
                             drawn=lambda text: "density, iter" in text and stack.close())
    assert any(re.fullmatch(r"\[#+\.+\] +\d+ %  2 of 3, 1 on the server; slow\.h5: density, iteration \d+.*", line)
               for line in moving), moving


@test("errors of the command line are printed at once, and once")
def wrong(daemon):
    before = len(jobs(daemon))
    for words, status, says in ((["batch", f"{FOLDER.name}/none"], 1, "cannot be read"),
                                (["batch", tempfile.mkdtemp(dir=FOLDER.name)], 1, "no scan"),
                                (["batch", GOOD], 1, "Not a directory"),
                                (["batch", folder(2), "dcf=wrong"], 1, "bad-parameter"),
                                (["batch", folder(2), "--priority", "x"], 1, "bad-parameter"),
                                (["batch", folder(2), "dcf"], 2, "PARAM=VALUE"),
                                (["batch", folder(2), "--format", "gif"], 2, "gif")):
        done = client(daemon, *words, check=False)
        same(done.returncode, status, f"exit status of {words}: {done.stderr}")
        same((says in done.stderr, done.stderr.count("\n") < 4), (True, True), f"what {words} says: {done.stderr}")
    where = folder(1)
    same(client(daemon, "batch", where, "--out", where, check=False).returncode, 1,
         "exit status for images among the scans")
    same(len(jobs(daemon)), before, "jobs")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
