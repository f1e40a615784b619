#!/usr/bin/python3
"""Clients that are slow, idle, demanding, or address another host: they lose their own answers, and others lose
nothing.
"""
import collections
import concurrent.futures
import contextlib
import glob
import http.client
import os
import re
import select
import socket
import struct
import subprocess
import tempfile
import time

import numpy as np

import scans
from harness import BIN, Daemon, Response, main, raw, same, test, wait_until


def connect(daemon):
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=120)


def ask(daemon, path, source="127.0.0.1"):
    """GET on its own connection from one of this machine's addresses."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120, source_address=(source, 0))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def busy(daemon, count, source="127.0.0.1"):
    """Connections with uploads in progress."""
    connections = []
    for _ in range(count):
        connections.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=120,
                                                    source_address=(source, 0)))
        connections[-1].sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                b"100000\r\nExpect: 100-continue\r\n\r\n")
        same(connections[-1].recv(12), b"HTTP/1.1 100", "what the upload's headers are answered with")
    return connections


def alone(daemon, but=0):
    """Wait until the daemon has closed all but so many connections, including those that were reset, which the kernel
    no longer lists: connections of earlier requests, like the harness's readiness check, would occupy places.
    """
    def served():
        with open("/proc/net/tcp") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        listens, of_nobody = "0A", "0"
        return sum(int(row[1].partition(":")[2], 16) == daemon.port and row[3] != listens and row[9] != of_nobody
                   for row in rows)
    wait_until(lambda: served() == but, f"the daemon to have no connections but {but}")


def close_all(connections):
    for connection in connections:
        connection.close()


def is_closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1000) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)


@test("a small scan of large images is refused before they are computed, with the sizes, by the smallest limit")
def large_results():
    scan = scans.radial(matrix=(2048, 2048, 1), spokes=50, samples=4, coils=1, weights=False)
    scan.heads["idx"]["repetition"] = np.arange(50)  # one image per spoke
    with tempfile.TemporaryDirectory() as folder:
        body = scan.bytes(folder)
    assert len(body) < 60000, len(body)
    need = 50 * 2048 * 2048 * 4
    for options, words in (({"result_limit": "800M"}, "option result-limit"),
                           ({"client_bytes": "700M"}, "option client-bytes")):
        with Daemon(devices="cpu", **options) as daemon:
            problem = daemon.fails(body, "kind=recon&dcf=none", "result-too-large", 422)
            assert ("50 images of 2048 x 2048 x 1 in 1 channel" in problem["detail"]
                    and words in problem["detail"]), problem["detail"]
            assert need < problem["required_bytes"] < 1.05 * need, problem
            same(problem["available_bytes"], int(list(options.values())[0][:-1]) << 20, "bytes that there may be")
            same([name for name in daemon.files() if name.startswith("results/")], [], "files of results")


@test("connections without a request, or with headers that arrive byte by byte, are closed in time")
def slow_headers():
    with Daemon(devices="cpu", header_timeout=2) as daemon:
        silent, trickle = connect(daemon), connect(daemon)
        trickle.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-A: ")

        def both_closed():
            try:
                trickle.send(b"a")
            except OSError:
                return is_closed(silent)
            return False

        wait_until(both_closed, "the connections to be closed")
        daemon.get("/livez").expect(200)


@test("a body that arrives too slowly is cut off and its upload removed; a fast enough one beside it is accepted")
def slow_body():
    with Daemon(devices="cpu", header_timeout=2, upload_rate="50K", expect_trouble=True) as daemon:
        slow = connect(daemon)
        slow.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")

        def closed():
            try:
                slow.send(b"abc")
            except OSError:
                return True
            return is_closed(slow)

        same(daemon.run(scans.radial().bytes(daemon.state))["state"], "succeeded")
        wait_until(closed, "the slow upload to be cut off")
        wait_until(lambda: daemon.metrics()["mrirecond_spool_used_bytes"] == 0, "the spool to be empty")


@test("more idle connections than the limit: health is answered at once")
def idle_crowd():
    with Daemon(devices="cpu", header_timeout=2, connections=100, http_threads=2) as daemon:
        crowd = [connect(daemon) for _ in range(150)]
        daemon.get("/livez").expect(200)
        for connection in crowd:
            connection.close()


@test("all connections of one address are busy: it gets health answers, and other addresses are served")
def one_address():
    for options, most in (({"connections": 40, "address_connections": 10}, 10), ({"connections": 40}, 36)):
        with Daemon(devices="cpu", header_timeout=600, **options) as daemon:
            alone(daemon)
            crowd = busy(daemon, most)
            for path in ("/livez", "/readyz?verbose", "/healthz", "/v2/health/live", "/v2/health/ready", "/metrics"):
                ask(daemon, path).expect(200)
            for path in ("/v1/jobs", "/", "/nothing"):
                answer = ask(daemon, path)
                answer.problem(503, "too-many-connections")
                same((answer.headers["connection"], "retry-after" in answer.headers), ("close", True), "headers")
            ask(daemon, "/v1/jobs", source="127.0.0.2").expect(200)
            crowd.pop().close()
            wait_until(lambda: ask(daemon, "/v1/jobs").status == 200, "the place of an upload that went away")
            close_all(crowd)


@test("all connections of many addresses are busy: health is answered")
def all_busy():
    with Daemon(devices="cpu", connections=40, address_connections=10, header_timeout=600) as daemon:
        alone(daemon)
        crowd = [connection for i in range(2, 6) for connection in busy(daemon, 10, source=f"127.0.0.{i}")]
        for source in ("127.0.0.1", "127.0.0.2"):
            for path in ("/livez", "/readyz", "/metrics"):
                ask(daemon, path, source).expect(200)
            ask(daemon, "/v1/jobs", source).problem(503, "too-many-connections")
        close_all(crowd)
        wait_until(lambda: ask(daemon, "/v1/jobs").status == 200, "the uploads' places")


@test("an address's idle connections make room for its next, the longest idle first; busy and others' stay")
def idle_make_room():
    with Daemon(devices="cpu", connections=40, address_connections=10, header_timeout=600) as daemon:
        alone(daemon)
        other = socket.create_connection(("127.0.0.1", daemon.port), source_address=("127.0.0.2", 0))
        upload, = busy(daemon, 1)
        crowd, asked = [], 0

        # An answer is counted once its connection is idle: the harness's first one, the crowd's, and those before.
        def idle():
            nonlocal asked
            counts = ask(daemon, "/metrics", source="127.0.0.3").body.decode()
            asked += 1
            return int(re.search(r'^mrirecond_http_requests_total\{method="GET",code="200"\} (\d+)$', counts,
                                 re.M).group(1)) >= len(crowd) + asked
        for _ in range(30):
            crowd.append(connect(daemon))
            crowd[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert crowd[-1].recv(1000).startswith(b"HTTP/1.1 200"), "the newest connection is not served"
            wait_until(idle, "the daemon to count it as idle")
        ask(daemon, "/v1/jobs").expect(200)
        wait_until(lambda: sum(map(is_closed, crowd)) >= 21, "the idle to be closed")
        closed = [is_closed(connection) for connection in crowd]
        assert all(closed[:17]) and not any(closed[26:]), closed
        assert not is_closed(other) and not is_closed(upload), "a busy connection, or the wrong idle one, was closed"
        close_all(crowd + [other, upload])


def answered(daemon, method, path, body=None):
    """(status, has Retry-After) of a request on its own connection, or the error that occurred instead of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
    begun, sent = time.monotonic(), 0
    try:
        try:
            connection.request(method, path, body)
        finally:
            sent = time.monotonic()
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("Retry-After") is not None
    except (OSError, http.client.HTTPException) as error:
        # The daemon may close a connection beyond its limit that is silent for half a second (SILENT_SECONDS), as one
        # is whose thread was not scheduled.
        if sent - begun < 0.5:
            return type(error).__name__, False
    finally:
        connection.close()
    return answered(daemon, method, path, body)


@test("all connections of an address are busy while 24 clients retry: each request gets 503 or a health answer")
def crowded():
    asked = [("GET", "/v1/kinds", None), ("GET", "/livez", None), ("POST", "/v1/jobs?kind=recon", b"a" * 60000),
             ("GET", "/readyz", None), ("GET", "/metrics", None),
             ("POST", "/v1/jobs?kind=recon", b"a" * 1000000)]
    with Daemon(devices="cpu", connections=60, address_connections=30, header_timeout=600) as daemon:
        alone(daemon)
        crowd = busy(daemon, 30)
        silent = [connect(daemon) for _ in range(20)]  # these do not lock out the others
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda turn: (asked[turn % 6][1], *answered(daemon, *asked[turn % 6])),
                                    range(24 * 50)))
        seen = collections.Counter(answers)
        health = [("/livez", 200, False), ("/readyz", 200, False), ("/metrics", 200, False)]
        same(seen, collections.Counter({one: 200 for one in health} |
                                       {("/v1/kinds", 503, True): 200, ("/v1/jobs?kind=recon", 503, True): 400}),
             "answers")
        close_all(crowd + silent)
        wait_until(lambda: ask(daemon, "/v1/jobs").status == 200, "the uploads' places")


@test("with all connections busy, hundreds of idle or half-sent requests lock out no other client")
def flooded():
    with Daemon(devices="cpu", connections=60, address_connections=30, header_timeout=600) as daemon:
        alone(daemon)
        crowd = busy(daemon, 30)
        for begun in (b"", b"GET "):
            for _ in range(300):
                crowd.append(connect(daemon))
                crowd[-1].sendall(begun)
            for _ in range(10):
                same(answered(daemon, "GET", "/livez"), (200, False), f"health beside {begun!r}")
                same(answered(daemon, "GET", "/v1/kinds"), (503, True), f"an answer beside {begun!r}")
        close_all(crowd)
        wait_until(lambda: ask(daemon, "/v1/jobs").status == 200, "the uploads' places")


@test("a connection with a request in transit makes no room for another; a silent one does")
def on_its_way():
    with Daemon(devices="cpu", connections=40, address_connections=10, header_timeout=600) as daemon:
        alone(daemon)
        crowd = busy(daemon, 8)
        fresh, kept = connect(daemon), connect(daemon)
        kept.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert re.match(rb"HTTP/1.1 200 (?!.*Connection: close)", kept.recv(1000),
                        re.S), "the last connection was not served"
        for connection in (fresh, kept):
            connection.sendall(b"GET /v1/kinds HTTP/1.1\r\nHost: ")
        for _ in range(20):
            ask(daemon, "/v1/jobs").problem(503, "too-many-connections")
            ask(daemon, "/livez").expect(200)
        for connection in (fresh, kept):
            connection.sendall(b"localhost\r\nConnection: close\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200"), "a request in transit got no answer"
        silent = [connect(daemon) for _ in range(10)]
        wait_until(lambda: ask(daemon, "/v1/jobs").status == 200, "a silent connection's place")
        close_all(crowd + silent + [fresh, kept])


@test("a waiting client that closes, resets or half-closes its connection frees it; others continue to wait")
def abandoned():
    with Daemon(devices="cpu", connections=60, address_connections=30, work_reserve="900T") as daemon:  # no job begins
        job = daemon.submit(scans.radial().bytes(daemon.state)).expect(202).json()["id"]
        wait = (b"POST /v1/jobs/%s/resubmit HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=600\r\n"
                b"Content-Length: 0\r\n\r\n") % job.encode()
        events = b"GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n" % job.encode()
        jobs = lambda: [job["state"] for job in daemon.get("/v1/jobs?limit=500").json()["jobs"]]  # noqa: E731
        stays = connect(daemon)
        stays.sendall(wait)
        wait_until(lambda: len(jobs()) == 2, "the second job")

        def sockets():
            count = 0
            for link in glob.glob(f"/proc/{daemon.process.pid}/fd/*"):
                with contextlib.suppress(FileNotFoundError):
                    count += os.readlink(link).startswith("socket:")
            return count

        def full():
            """Whether no place is left. The daemon's threads may accept a later connection before an earlier one, so
            that one of the crowd is refused: it tries again.
            """
            for connection in select.select(crowd, [], [], 0)[0]:
                if connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 503":
                    connection.close()
                    crowd[crowd.index(connection)] = again = connect(daemon)
                    again.sendall(request)
            return ask(daemon, "/v1/jobs").status == 503

        alone(daemon, but=1)
        before = sockets()
        for request in (wait, events):
            for way in ("close", "reset", "half"):
                alone(daemon, but=1)
                crowd = [connect(daemon) for _ in range(29)]
                for connection in crowd:
                    connection.sendall(request)
                wait_until(full, "all connections to be busy")
                for connection in crowd:
                    if way == "reset":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if way == "half":
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(100)  # an answer; otherwise the library takes it for a close
                    connection.close()
                alone(daemon, but=1)
                wait_until(lambda: sockets() <= before, f"the connections of those who went away ({way})")
                ask(daemon, "/v1/jobs").expect(200)
        assert not is_closed(stays), "a client that stayed was disconnected"
        same(set(jobs()), {"queued"}, "states")  # no client asked to have them canceled
        stays.close()


@test("a client that closes its sending half within a request loses it at once, also together with its last bytes")
def half_closed():
    patient = {"header_timeout": 600, "idle_timeout": 600}
    with Daemon(devices="cpu", log_level="info", **patient) as daemon:
        body = scans.radial().bytes(daemon.state)
        whole = b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        files, counted = daemon.files(), 'mrirecond_ingest_rejected_total{reason="body-incomplete"}'
        for part in (whole[:30], whole[:-1], whole[:-1], whole[:-1]):
            with connect(daemon) as connection:
                connection.sendall(part)
                connection.shutdown(socket.SHUT_WR)
                same(connection.recv(100), b"", "what an incomplete request is answered with")
        wait_until(lambda: not daemon.new_files(files), "the uploads to be removed")
        wait_until(lambda: daemon.metrics().get(counted) == 3, "the uploads to be counted")
        for request, status in ((whole, b"202"), (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
                                (b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200")):
            for _ in range(5):
                same(raw(daemon, request, half_close=True)[9:12], status, "the answer to a complete request")


@test("a wait may be longer than the header timeout")
def long_wait():
    with Daemon(devices="cpu", header_timeout=2) as daemon, concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = scans.radial().bytes(daemon.state)
        with daemon.paused():
            answer = pool.submit(daemon.submit, body, Prefer="wait=100")
            time.sleep(3.5)  # longer than the timeout for headers, and than the interval between checks
        same(answer.result().expect(200).json()["state"], "succeeded")


@test("thousands of parameters, or one given twice, are refused at once")
def parameters(daemon):
    query = "&".join(f"a{i}=b" for i in range(2000))
    daemon.get(f"/v1/jobs?{query}").problem(400, "bad-request")
    daemon.get("/v1/jobs?limit=1&limit=2").problem(400, "bad-parameter")
    daemon.get("/readyz?verbose&verbose").problem(400, "bad-parameter")


@test("a request for another host is refused: another site's page cannot use a service on the user's machine")
def hosts(daemon):
    for host in ("evil.example", "localhost.evil.example:80", "10.0.0.1"):
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs?kind=recon"), ("GET", "/metrics")):
            daemon.request(method, path, headers={"Host": host}).problem(421, "misdirected")
        daemon.request("GET", "/livez", headers={"Host": host}).expect(200)
    for host in ("localhost", f"localhost:{daemon.port}", "127.0.0.1", "[::1]:80", "localhost.",
                 f"localhost.:{daemon.port}"):
        daemon.request("GET", "/v1/jobs", headers={"Host": host}).expect(200)
    with Daemon(devices="cpu", host_names="recon.example, other") as named:
        named.request("GET", "/v1/jobs", headers={"Host": "Recon.example:8443"}).expect(200)
        named.request("GET", "/v1/jobs", headers={"Host": "recon.example."}).expect(200)
        named.request("GET", "/v1/jobs", headers={"Host": "localhost"}).problem(421, "misdirected")


@test("a POST from another site's page is refused; without an Origin, or from the service's own, it is accepted")
def origins(daemon):
    body = scans.radial().bytes(daemon.state)
    for origin in ("https://evil.example", "http://localhost.evil.example", f"http://localhost:{daemon.port + 1}",
                   "null"):
        before = daemon.get("/v1/jobs").json()
        for method, path in (("POST", "/v1/jobs?kind=recon"), ("POST", "/v1/uploads"), ("DELETE", "/v1/jobs?older=0"),
                             ("POST", "/v1/jobs/01m7yheza283fkx9ma8t456e4x/cancel")):
            # Requests that a page can send without a preflight: a POST of text/plain.
            headers = {"Origin": origin, "Content-Type": "text/plain", "Tus-Resumable": "1.0.0", "Upload-Length": "5"}
            daemon.request(method, path, body if path.startswith("/v1/jobs?kind") else None,
                           headers).problem(403, "forbidden")
        same(daemon.get("/v1/jobs").json(), before, "jobs after them")
    daemon.submit(body, Origin=f"http://127.0.0.1:{daemon.port}").expect(202)
    daemon.get("/v1/jobs", Origin="https://evil.example").expect(200)


@test("few file descriptors: fewer connections are served and the log says so; many clients still get answers")
def few_descriptors():
    with Daemon(devices="cpu", command=("prlimit", "--nofile=344:344")) as daemon:
        line = next(line for line in daemon.read_log().splitlines() if "file descriptors" in line)
        assert "warning: at most 18 connections are served, not 1000 as option connections says" in line, line
        descriptors = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))  # noqa: E731
        at_rest = descriptors()
        held = []
        for _ in range(400):  # incomplete requests
            held.append(connect(daemon))
            held[-1].sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n")
        same(ask(daemon, "/livez").status, 200, "status of /livez beside them")
        assert descriptors() < 344 - 100, "too few descriptors are left for files"
        close_all(held)
        same(ask(daemon, "/livez").status, 200, "status of /livez")
        wait_until(lambda: ask(daemon, "/v1/jobs").status == 200 and descriptors() <= at_rest + 2,
                   "the places of those that are closed")
        uploads = busy(daemon, 12)
        same(daemon.run(scans.radial(seed=5).bytes(daemon.state))["state"], "succeeded", "state")
        close_all(uploads)


@test("too few file descriptors: the start fails with the number needed, and the state directory is unchanged")
def too_few_descriptors():
    with tempfile.TemporaryDirectory() as folder:
        for word in ("--check-config", "--log-level=info"):
            done = subprocess.run(["prlimit", "--nofile=256:256", os.path.join(BIN, "mrirecond"), word, "--listen",
                                   "127.0.0.1:0",
                                   "--state-dir", folder + "/state"], capture_output=True, text=True, timeout=120)
            assert (done.returncode in (1, 2) and "256 file descriptors" in done.stderr
                    and "LimitNOFILE" in done.stderr), done
            assert not os.path.exists(folder + "/state"), "the state folder was created"


@test("the soft limit of descriptors is raised to the hard limit")
def soft_limit():
    with Daemon(devices="cpu", command=("prlimit", "--nofile=256:4096")) as daemon:
        same(daemon.metrics()["process_max_fds"], 4096, "process_max_fds")
        assert "file descriptors" not in daemon.read_log(), daemon.read_log()


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
