#!/usr/bin/python3
"""mrirecon, the command: every command against a live daemon, its exit status, and its error messages."""
import contextlib
import http.server
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading

import numpy as np

import scans
from harness import BIN, Daemon, client, free_port, holding, main, same, sanitized, test, wait_until
from terminal import at_terminal

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial(seed=41).write(f"{FOLDER.name}/scan.h5")
COILS = scans.radial(coils=3, seed=5).write(f"{FOLDER.name}/coils.h5")
UNWEIGHTED = scans.radial(seed=41, weights=False).write(f"{FOLDER.name}/unweighted.h5")
SLOW = scans.slow(seed=42).write(f"{FOLDER.name}/slow.h5")
SLOW_WORDS = [word for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind=")]
MAGIC = {"h5": b"\x89HDF", "nii.gz": b"\x1f\x8b", "png": b"\x89PNG", "npy": b"\x93NUMPY", "dcm": bytes(128) + b"DICM"}


def folder():
    return tempfile.mkdtemp(dir=FOLDER.name)


def holds(path, form):
    with open(path, "rb") as file:
        data = file.read()
    assert data.startswith(MAGIC[form]), f"{path} begins with {data[:10]!r}"
    return data


def npy(path):
    return np.load(path, allow_pickle=False)


@test("submit prints the job's id; wait and fetch obtain its image")
def submit_wait_fetch(daemon):
    identity = client(daemon, "submit", SCAN, "dcf=given").stdout.strip()
    same(client(daemon, "wait", identity).returncode, 0, "exit status of wait")
    same(daemon.job(identity)["state"], "succeeded", "state")
    same(str(daemon.job(identity)["parameters"]["dcf"]), "given", "parameter")
    where = folder()
    for form in MAGIC:
        same(client(daemon, "fetch", identity, "--format", form, "--out", f"{where}/x.{form}").stdout.strip(),
             f"{where}/x.{form}", "file told")
        holds(f"{where}/x.{form}", form)
    same(sorted(os.listdir(where)), sorted(f"x.{form}" for form in MAGIC), "files (no temporary one is left)")


@test("submit --out waits and saves; the extension selects the format, --format overrides it")
def submit_out(daemon):
    where = folder()
    for form in MAGIC:
        client(daemon, "submit", SCAN, "--out", f"{where}/image.{form}")
        holds(f"{where}/image.{form}", form)
    client(daemon, "submit", SCAN, f"--out={where}/odd", "--format=png")
    holds(f"{where}/odd", "png")
    done = client(daemon, "submit", SCAN, "--out", f"{where}/image.gif", check=False)
    same(done.returncode, 2, "exit status for an unknown form")
    assert "image.gif" in done.stderr and "nii.gz" in done.stderr, done.stderr


@test("--result saves a result other than the first; an unknown or not computed one is refused before the upload")
def results(daemon):
    where, asked = folder(), ("coils=adaptive", "results=image,maps")
    client(daemon, "submit", COILS, *asked, "--result", "maps", "--out", f"{where}/maps.npy")
    identity = daemon.get("/v1/jobs?limit=1").json()["jobs"][0]["id"]
    maps = npy(f"{where}/maps.npy")
    same(maps.shape[1], 3, "channels of the maps")
    for words, result in (((), "image"), (("--result=maps",), "maps"), (("--result", "image"), "image")):
        client(daemon, "fetch", identity, *words, "--out", f"{where}/fetched.npy")
        same(npy(f"{where}/fetched.npy").shape[1], 3 if result == "maps" else 1,
             f"channels of what fetch {words} saves")
    # Without --out the file is named after the job and, unless it is the first, the result.
    done = subprocess.run([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "fetch", identity, "--result", "maps",
                           "--format", "npy"], cwd=where,
                          capture_output=True, text=True, timeout=120)
    same((done.returncode, done.stdout), (0, f"{identity}.maps.npy\n"), f"exit status and file told ({done.stderr!r})")
    same(npy(f"{where}/{identity}.maps.npy").shape, maps.shape, "shape")
    # A job with results=maps: its maps are the first result.
    client(daemon, "resubmit", identity, "results=maps", "--out", f"{where}/again.npy")
    same(npy(f"{where}/again.npy").shape, maps.shape, "shape")
    client(daemon, "wait", identity, "--result", "maps", "--out", f"{where}/waited.npy")
    same(npy(f"{where}/waited.npy").shape, maps.shape, "shape")
    jobs = len(daemon.get("/v1/jobs?limit=500").json()["jobs"])
    for words, named in ((("--result", "kspace"), "image maps"),
                         (("--result", "maps"), "Add it to the parameter results"),
                         (("--result=maps", *asked, "--format=gif"), "nii.gz")):
        done = client(daemon, "submit", COILS, *words, "--out", f"{where}/refused", check=False)
        same(done.returncode, 2, f"exit status of {words}")
        assert named in done.stderr, done.stderr
    done = client(daemon, "fetch", identity, "--result", "kspace", check=False)
    assert done.returncode == 2 and "image maps" in done.stderr, done
    same(len(daemon.get("/v1/jobs?limit=500").json()["jobs"]), jobs, "jobs, as nothing was sent")
    assert not os.path.exists(f"{where}/refused")


@test("a file is written atomically, with permissions by the umask")
def whole(daemon):
    where = folder()
    with open(f"{where}/keep.png", "w") as file:
        file.write("what was there")
    done = client(daemon, "submit", UNWEIGHTED, "dcf=given", "--out", f"{where}/keep.png", check=False)
    same(done.returncode, 1, "exit status")
    with open(f"{where}/keep.png") as file:
        same(file.read(), "what was there", "file")
    same(os.listdir(where), ["keep.png"], "files")
    client(daemon, "submit", SCAN, "--out", f"{where}/keep.png")
    holds(f"{where}/keep.png", "png")
    mask = os.umask(0)
    os.umask(mask)
    same(os.stat(f"{where}/keep.png").st_mode & 0o777, 0o666 & ~mask, "permissions")
    before = daemon.get("/v1/jobs?limit=1").json()["jobs"]
    done = client(daemon, "submit", SCAN, "--out", f"{where}/none/x.png", check=False)
    same(done.returncode, 1, "exit status for a folder that is not there")
    assert f"{where}/none/x.png" in done.stderr and "Choose a file in an existing folder" in done.stderr, done.stderr
    same(daemon.get("/v1/jobs?limit=1").json()["jobs"], before,
         "newest job, as none is made for an image that cannot be written")


@test("standard input and output")
def streams(daemon):
    with open(SCAN, "rb") as scan:
        done = subprocess.run([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "submit", "-", "--out", "-",
                               "--format", "npy"], stdin=scan,
                              capture_output=True, timeout=120)
    same(done.returncode, 0, f"exit status ({done.stderr!r})")
    assert done.stdout.startswith(MAGIC["npy"]), done.stdout[:20]
    pipe = subprocess.run(f"cat {SCAN} | {BIN}/mrirecon --server {daemon.url} submit - --wait", shell=True,
                          capture_output=True, timeout=120)
    same(pipe.returncode, 0, f"exit status from a pipe ({pipe.stderr!r})")


@test("list, show, kinds, status: as text and as JSON")
def show(daemon):
    identity = client(daemon, "submit", SCAN, "--wait").stdout.strip()
    head, newest = client(daemon, "list").stdout.splitlines()[:2]
    job = daemon.job(identity)
    for title, value in (("ID", identity), ("KIND", "recon"), ("PRIORITY", "normal"), ("STATE", "succeeded"),
                         ("CREATED", job["created"])):
        same(newest[head.index(title):].split()[0], value, f"what stands under {title}")
    listed = json.loads(client(daemon, "list", "--json", "--limit", "2").stdout)
    same(len(listed), 2, "jobs listed")
    same(listed[0]["id"], identity, "newest job")
    shown = client(daemon, "show", identity).stdout
    for word in (identity, "succeeded", "image", "stages", "device"):
        assert word in shown, f"{word} is not in {shown}"
    same(json.loads(client(daemon, "show", identity, "--json").stdout)["id"], identity, "id")
    kinds = client(daemon, "kinds").stdout
    for word in ("recon", "tolerance", "pipe", "1e-06 .. 0.1", "default"):
        assert word in kinds, f"{word} is not in {kinds}"
    assert json.loads(client(daemon, "kinds", "--json").stdout)["kinds"]
    same(client(daemon, "kinds", "nothing", check=False).returncode, 1, "exit status")
    assert "ready" in client(daemon, "status").stdout


@test("list with more jobs than fit on a page")
def long_list(daemon):
    made = [daemon.submit(scans.radial(matrix=(8, 8, 1), spokes=3,
                                       samples=8).bytes(FOLDER.name)).expect(202).json()["id"] for _ in range(115)]
    for identity in made:
        daemon.finish(identity)
    listed = [job["id"] for job in json.loads(client(daemon, "list", "--json").stdout)]
    same(listed[:115], made[::-1], "newest jobs")
    same(len(json.loads(client(daemon, "list", "--json", "--limit", "104").stdout)), 104, "jobs with --limit 104")


@test("cancel and delete")
def cancel_delete(daemon):
    with daemon.paused():  # it does not end before that
        identity = client(daemon, "submit", SLOW, *SLOW_WORDS).stdout.strip()
        assert client(daemon, "cancel", identity).stdout.strip() in ("canceling", "canceled")
    same(daemon.finish(identity)["state"], "canceled", "state")
    done = client(daemon, "wait", identity, check=False)
    same((done.returncode, "canceled" in done.stderr), (1, True), "wait for a canceled job")
    client(daemon, "delete", identity)
    done = client(daemon, "show", identity, check=False)
    same(done.returncode, 1, "exit status")
    assert "[not-found]" in done.stderr, done.stderr


@test("the server's errors are printed with their code, exit status 1")
def refused(daemon):
    for words, code in ((["submit", SCAN, "tolerance=7"], "bad-parameter"),
                        (["submit", SCAN, "dfc=given"], "unknown-parameter"),
                        (["submit", SCAN, "--kind", "nothing"], "unknown-kind"),
                        (["submit", "/dev/null"], "empty-body"),
                        (["submit", UNWEIGHTED, "dcf=given", "--wait"], "dcf-missing"),
                        (["fetch", "nothing"], "not-found"),
                        (["wait", "nothing"], "not-found"), (["cancel", "a/../b?c=d"], "not-found")):
        done = client(daemon, *words, check=False)
        same(done.returncode, 1, f"exit status of {words}")
        assert f"[{code}]" in done.stderr, f"{words}: {done.stderr}"
        same(done.stdout, "", "stdout")
    for words, said in ((["tolerance=7"], "tolerance"), (["width=1"], "auto or a whole number from 2 to 10"),
                        (["output=complex"], "coils=none")):
        done = client(None, "--server", "http://127.0.0.1:1", "submit", SCAN, *words, check=False)
        same(done.returncode, 1, "exit status without a server")
        assert said in done.stderr and "[bad-parameter]" in done.stderr, done.stderr
    done = client(daemon, "submit", "/nowhere/scan.h5", check=False)
    assert done.returncode == 1 and "/nowhere/scan.h5" in done.stderr and "No such file" in done.stderr, done


@test("values are escaped: & and = in a value do not become parameters")
def escaping(daemon):
    done = client(daemon, "submit", SCAN, "group=a&dcf=none", "--wait", check=False)
    same(done.returncode, 1, "exit status")
    job = daemon.get("/v1/jobs?limit=1").json()["jobs"][0]
    same(job["parameters"]["group"], "a&dcf=none", "parameter group")


@test("a wrong command line: exit status 2 and a hint")
def usage():
    for words in (["submit", SCAN, "--format", "png"], ["submit", SCAN, "--result", "image"],
                  ["wait", "x", "--format=png"], ["resubmit", "x", "--format=png"],
                  ["submit"], ["nothing"], [], ["submit", SCAN, "--nothing"], ["list", "--wait"], ["--wait", "list"],
                  ["wait"], ["wait", "a", "b"],
                  ["submit", SCAN, "word"], ["submit", SCAN, "=x"], ["submit", SCAN, "kind=recon"],
                  ["fetch", "x", "--format"], ["fetch", "x", "--format=gif"],
                  ["list", "--limit", "0"], ["list", "--limit", "x"], ["list", "--json=yes"], ["--server"]):
        done = client(None, *words, check=False)
        same(done.returncode, 2, f"exit status of {words}")
        assert done.stderr.startswith("mrirecon: "), done.stderr


@test("help and version")
def help_text():
    text = client(None, "--help").stdout
    for word in ("submit", "resubmit", "batch", "purge", "wait", "fetch", "list", "show", "cancel", "delete", "kinds",
                 "status", "simulate", "--server", "MRIRECON_SERVER"):
        assert word in text, f"{word} is not in the help"
    assert "--limit" in client(None, "list", "--help").stdout and "--limit" not in client(None, "help", "wait").stdout
    assert client(None, "--version").stdout.startswith("mrirecon ")


@test("no server, or another program's: advice on what to check, exit status 1")
def unreachable():
    done = client(None, "list", check=False, MRIRECON_SERVER="http://127.0.0.1:9")
    same(done.returncode, 1, "exit status")
    assert "127.0.0.1:9" in done.stderr and "--server" in done.stderr and "mrirecond" in done.stderr, done.stderr
    done = client(None, "list", "--server", "ftp://x", check=False)
    assert done.returncode == 1 and "http" in done.stderr, done
    web = subprocess.Popen(["/usr/bin/python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           cwd=folder(), text=True)
    try:
        port = web.stdout.readline().split(" port ")[1].split()[0]
        done = client(None, "list", check=False, MRIRECON_SERVER=f"http://127.0.0.1:{port}")
        same(done.returncode, 1, "exit status")
        assert "Is the address right?" in done.stderr, done.stderr
    finally:
        web.kill()
        web.wait()
        web.stdout.close()


@contextlib.contextmanager
def endless(bytes_sent):
    """The address of a web server that answers everything with so many blanks."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with contextlib.suppress(ConnectionError):
                self.send_response(200)
                self.send_header("Content-Length", str(bytes_sent))
                self.end_headers()
                for _ in range(bytes_sent >> 20):
                    self.wfile.write(bytes(1 << 20).replace(b"\0", b" "))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@test("an answer that is larger than a short one can be, or than the memory: that is told, not a broken connection")
def too_large():
    with endless(65 << 20) as url:
        done = client(None, "list", "--server", url, check=False)
        same(done.returncode, 1, "exit status")
        assert f"{url} sent more than 64 MB where a short answer was expected. Is the address right?" in done.stderr, \
            done.stderr
        if sanitized():  # whose shadow memory does not fit any limit
            return
        limit = 80 << 20  # enough for the program, and too little for it and such an answer
        done = subprocess.run([f"{BIN}/mrirecon", "list", "--server", url], capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        assert done.returncode == 1 and "[out-of-memory]" in done.stderr and url in done.stderr, done


@test("a list that standard output does not take: the reason is told, exit status 1")
def no_output(daemon):
    with open("/dev/full", "w") as full:
        done = subprocess.run([f"{BIN}/mrirecon", "kinds", "--server", daemon.url], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=120)
    assert done.returncode == 1 and "Standard output cannot be written: No space left" in done.stderr, done


@test("Ctrl-C while waiting leaves the job running and says how to get it")
def interrupt(daemon):
    with daemon.paused():  # the job does not end before that
        process = subprocess.Popen([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "submit", SLOW, *SLOW_WORDS,
                                    "--wait"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        told = process.stderr.readline()
        identity = told.split()[1]
        wait_until(lambda: daemon.job(identity)["state"] == "running", "the job to run")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        same(process.returncode, 130, "exit status")
        assert f"mrirecon wait {identity}" in stderr and f"mrirecon cancel {identity}" in stderr, stderr
        assert daemon.job(identity)["state"] == "running", "the job was canceled"
        client(daemon, "cancel", identity)
    daemon.finish(identity)


@test("Ctrl-C during an upload says that there is no job, and after its last byte that there may be one")
def interrupted_upload(daemon):
    with tempfile.TemporaryDirectory() as folder:
        scan = scans.radial(matrix=(16, 16, 1), spokes=16, samples=16, coils=1).write(f"{folder}/scan.h5")
        bytes_all = os.path.getsize(scan)
        jobs = lambda: len(daemon.get("/v1/jobs?limit=500").json()["jobs"])  # noqa: E731
        before = jobs()

        def sent():
            """Bytes that wait in the kernel for the daemon."""
            with open("/proc/net/tcp") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            return max([int(row[4].split(":")[1], 16) for row in rows
                        if int(row[1].split(":")[1], 16) == daemon.port and row[3] == "01"], default=0)

        for whole in (False, True):
            read, write = os.pipe()
            source = open(scan, "rb") if whole else open(read, "rb")
            os.kill(daemon.process.pid, signal.SIGSTOP)
            process = subprocess.Popen([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "submit", "-"],
                                       stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                if not whole:
                    os.write(write, b"part of a scan")
                wait_until(lambda: sent() > (bytes_all if whole else 100), "the bytes to be sent")
                process.send_signal(signal.SIGINT)
                _, stderr = process.communicate(timeout=120)
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            same((process.returncode, "there is no job" in stderr, "there may be a job" in stderr),
                 (130, not whole, whole), f"exit status, and what is told ({stderr})")
            for each in (source, write, *[read] * whole):
                os.close(each) if isinstance(each, int) else each.close()
        wait_until(lambda: jobs() == before + 1, "the job of the upload that was whole")


@test("a terminal of any width shows one progress line with a bar, the step and its iteration; a pipe none")
def bar():
    with Daemon(environment=holding()) as daemon:
        def words(iterations):  # a different number each time: the worker keeps the weights of the last job
            return [os.path.join(BIN, "mrirecon"), "--server", daemon.url, "submit", SLOW,
                    *(w.replace("1000", str(iterations)) for w in SLOW_WORDS), "--wait"]

        def drawn(iterations, columns):
            with contextlib.ExitStack() as stack:
                stack.enter_context(daemon.held("density"))  # until it is drawn
                return at_terminal(words(iterations), columns, drawn=lambda text: "density, iter" in text
                                   and stack.close())

        lines = drawn(120, 80)
        assert any(re.fullmatch(r"\[#*\.*\] +\d+ %  density, iteration \d+ of 120 \(step 5 of 9\)", line)
                   for line in lines), lines
        lines = drawn(121, 30)
        assert any("density" in line and "[" not in line
                   for line in lines), f"the bar leaves no room for the text: {lines}"
        lines = subprocess.run(words(20), capture_output=True, text=True, timeout=120).stderr
        assert re.fullmatch(r"job \w+\n", lines), lines


@test("a wait continues after a restart of the daemon")
def restart():
    daemon = Daemon(port=free_port())
    with daemon:
        daemon.run(scans.radial().bytes(FOLDER.name))  # so that the worker is warm
        identity = client(daemon, "submit", SLOW, *(w.replace("1000", "100") for w in SLOW_WORDS)).stdout.strip()
        process = subprocess.Popen([os.path.join(BIN, "mrirecon"), "--server", daemon.url, "wait", identity],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        counts = [daemon.metrics()['mrirecond_http_requests_total{method="GET",code="200"}']]

        def asked():  # each look at the metrics is itself a request
            counts.append(daemon.metrics()['mrirecond_http_requests_total{method="GET",code="200"}'])
            return counts[-1] > counts[0] + len(counts) - 1
        wait_until(asked, "the client to ask")
        daemon.expect_trouble = True
        daemon.kill()
        told = process.stderr.readline()
        while told and "does not answer" not in told:
            told = process.stderr.readline()
        daemon.restart(same_port=True)
        _, stderr = process.communicate(timeout=120)
        same(process.returncode, 0, f"exit status ({stderr})")
        same(daemon.job(identity)["state"], "succeeded", "state")


if __name__ == "__main__":
    main(lambda: Daemon(keep_scans="all"))
