#!/usr/bin/python3
"""Clients that vanish or stall, large uploads, a full disk, and a daemon that refuses to start."""
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import time

import scans
from harness import BIN, Daemon, main, same, sanitized, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)


@test("a client that vanishes during its upload leaves no file and no job")
def vanished():
    with Daemon() as daemon:
        before = daemon.files()
        for size in (0, 1, 300000):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
            connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                               b"1000000\r\n\r\n" + bytes(size))
            if size:
                wait_until(lambda: daemon.new_files(before), "the upload to reach the disk")
            connection.close()
            wait_until(lambda: not daemon.new_files(before), "the partial upload to be removed")
        same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")
        same(daemon.run(BODY)["state"], "succeeded", "state of a valid scan submitted afterwards")


@test("requests that end inside their headers leak no memory")
def broken_headers():
    with Daemon(idle_timeout=1) as daemon:
        query = b"a=b&" * 5000  # more parameters than libmicrohttpd has room for, so it never passes such a request on
        lines = (b"POST /v1/jobs?" + query + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /v1/jobs?" + query +
                 b" HTTP/1.1\r\nHost: localhost\r\n")

        def resident():
            with open(f"/proc/{daemon.process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def send():
            connections = []
            for i in range(400):
                connections.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=120))
                with contextlib.suppress(ConnectionError):
                    connections[-1].sendall(lines[i % 2])
            for connection in connections:
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65536):
                        pass
                connection.close()
            return resident()
        # A leak in 400 requests of 20 kB would be 8 MB. Sanitizers keep freed memory; in their builds LeakSanitizer
        # reports leaks.
        first, second = send(), send()
        assert second - first < 4 << 20 or sanitized(), f"400 requests took {second - first} bytes"
        same(daemon.run(BODY)["state"], "succeeded", "state of a valid scan submitted afterwards")


@test("slow clients do not delay others")
def slow_clients():
    with Daemon() as daemon:
        head = f"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
        slow = [socket.create_connection(("127.0.0.1", daemon.port), timeout=120) for _ in range(20)]
        for i, connection in enumerate(slow):
            connection.sendall(head + BODY[:1000 * i])
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan submitted meanwhile")
        last = slow[5]
        for at in range(5000, len(BODY), max(1, len(BODY) // 20)):
            last.sendall(BODY[at:at + max(1, len(BODY) // 20)])
            time.sleep(0.01)
        assert last.recv(100).startswith(b"HTTP/1.1 202 "), "a slow upload was not accepted after its last byte"
        for connection in slow:
            connection.close()


@test("a client that stops reading a result does not delay others")
def slow_reader():
    with Daemon() as daemon:
        large = scans.radial(matrix=(512, 512, 1), spokes=8, samples=64, coils=8, weights=True).bytes(FOLDER.name)
        path = f"/v1/jobs/{daemon.run(large, 'kind=recon&coils=none')['id']}/results/image?format=npy"
        readers = []
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connection.recv(100)
            readers.append(connection)
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan submitted meanwhile")
        for connection in readers:
            connection.close()


@test("300 MB of random bytes: the daemon uses less than 64 MB, and nothing is left once the job is deleted")
def large_upload():
    with Daemon() as daemon:
        limit = (512 if sanitized() else 64) << 20  # the sanitizer's shadow memory and quarantine count too
        before = daemon.files()

        def pieces():
            piece = os.urandom(1 << 20)
            for _ in range(300):
                yield piece
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        connection.request("POST", "/v1/jobs?kind=recon", body=pieces(), headers={"Content-Length": str(300 << 20)})
        response = connection.getresponse()
        body = response.read()
        if response.status == 202:
            job = daemon.finish(json.loads(body)["id"])
            same(job["error"]["code"], "unknown-format", "code")
            daemon.request("DELETE", f"/v1/jobs/{job['id']}")
        else:
            same(response.status, 415, "status")
        assert daemon.peak_memory() < limit, f"{daemon.peak_memory() / 1e6:.0f} MB"
        wait_until(lambda: not daemon.new_files(before), "its files to be removed")


@contextlib.contextmanager
def small_disk(megabytes):
    """A daemon whose state directory is a file system of this size."""
    state = tempfile.mkdtemp(prefix="mrirecond-small-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", state], capture_output=True,
                             text=True)
    if mounted.returncode:
        os.rmdir(state)
        skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        with Daemon(state=state, expect_trouble=True, spool_reserve=0, work_reserve=0) as daemon:
            yield daemon
    finally:
        subprocess.run(["umount", state], check=True)
        os.rmdir(state)


@test("a full disk: 507 spool-full, and ready again when there is space")
def full_disk():
    with small_disk(6) as daemon:
        problem = daemon.submit(bytes(20 << 20)).problem(507, "spool-full")
        assert "uploads leave" in problem["detail"] and "spool-reserve" in problem["detail"], problem
        assert "required_bytes" in problem or "free" in problem["detail"] or "room" in problem["detail"], problem
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        try:
            connection.request("POST", "/v1/jobs?kind=recon", body=(bytes(65536) for _ in range(320)),
                               headers={"Transfer-Encoding": "chunked"})
            same(connection.getresponse().status, 507, "status of a chunked upload that does not fit")
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            connection.close()
        wait_until(lambda: daemon.get("/readyz").status == 200, "readiness")
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan that fits")


@test("a job whose result does not fit on the disk waits while others run, and succeeds once there is space")
def full_disk_result():
    with small_disk(48) as daemon:
        with open(f"{daemon.state}/filler", "wb") as file:
            file.write(bytes(30 << 20))
        # 16 coils of 512 x 512: an image of 34 MB from a scan of 0.1 MB.
        large = scans.radial(matrix=(512, 512, 1), spokes=4, samples=64, coils=16, weights=True).bytes(FOLDER.name)
        job = daemon.submit(large, "kind=recon&coils=none&output=complex").expect(202).json()["id"]
        wait_until(lambda: daemon.metrics()['mrirecond_jobs_put_back_total{reason="spool-full"}'] >= 1,
                   "the job to be put back")
        same(daemon.run(BODY)["state"], "succeeded", "state of a scan that fits")
        os.unlink(file.name)
        # From the log, because a disk this small removes finished jobs early.
        wait_until(lambda: f"job={job} succeeded" in daemon.read_log(), "the job to succeed")
        same(set(re.findall(f"job={job} begins on .*, attempt ([0-9]+)", daemon.read_log())), {"1"}, "attempts")


@test("a second daemon on the same state directory, or on a port in use, refuses to start with the reason")
def twice():
    with Daemon() as daemon:
        binary = os.path.join(os.path.dirname(os.readlink(f"/proc/{daemon.process.pid}/exe")), "mrirecond")
        for words, says in ((["--listen", "127.0.0.1:0", "--state-dir", daemon.state], daemon.state),
                            (["--listen", f"127.0.0.1:{daemon.port}", "--state-dir", FOLDER.name + "/other"],
                             str(daemon.port))):
            done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=120)
            assert done.returncode not in (0, None) and done.returncode > 0, done
            assert says in done.stderr, f"{says!r} is not in {done.stderr!r}"
        same(daemon.run(BODY)["state"], "succeeded", "state of a job of the first")


@test("an unusable state directory and a corrupt job store are refused with advice")
def bad_state():
    os.mkdir(FOLDER.name + "/broken")
    for name in ("file", "broken/jobs.db"):
        with open(f"{FOLDER.name}/{name}", "w") as file:
            file.write("this is neither a folder nor a database " * 200)
    for name, says in (("file", "Use another --state-dir"),
                       ("none/none", "Create it for the user that runs mrirecond, or use another --state-dir"),
                       ("broken", "Restore it from a backup")):
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "127.0.0.1:0", "--state-dir",
                               f"{FOLDER.name}/{name}"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode > 0 and says in done.stderr, done


@test("without TLS and tokens, an address other than loopback is refused")
def not_loopback():
    done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "0.0.0.0:0", "--state-dir", FOLDER.name +
                           "/public"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode > 0 and "0.0.0.0" in done.stderr, done


if __name__ == "__main__":
    main()
