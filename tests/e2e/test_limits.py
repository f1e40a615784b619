#!/usr/bin/python3
"""Clients that are slow, that idle, that ask too much, that mean another host: they cost themselves an answer, others nothing."""
import socket
import time

import scans
from harness import Daemon, main, same, test, wait_until


def connect(daemon):
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=60)


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


@test("headers that come a byte at a time, and connections without a request, are closed in time")
def slow_headers():
    with Daemon(devices="cpu", header_timeout=1) as daemon:
        silent, trickle = connect(daemon), connect(daemon)
        trickle.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-A: ")

        def both_closed():
            try:
                trickle.send(b"a")
            except OSError:
                return is_closed(silent)
            return False

        wait_until(both_closed, "the connections to be closed", 30)
        daemon.get("/livez").expect(200)


@test("a body that trickles is cut off; its upload is gone, and one that is quick enough goes through beside it")
def slow_body():
    with Daemon(devices="cpu", header_timeout=1, upload_rate="50K", expect_trouble=True) as daemon:
        slow = connect(daemon)
        slow.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")

        def closed():
            try:
                slow.send(b"abc")
            except OSError:
                return True
            return is_closed(slow)

        same(daemon.run(scans.radial().bytes(daemon.state))["state"], "succeeded")
        wait_until(closed, "the slow upload to be cut off", 30)
        wait_until(lambda: daemon.metrics()["mrirecond_spool_used_bytes"] == 0, "the spool to be empty")


@test("more idle connections than are served: health answers again as soon as the first have had their time")
def idle_crowd():
    with Daemon(devices="cpu", header_timeout=2, connections=100, http_threads=2) as daemon:
        crowd = [connect(daemon) for _ in range(150)]
        daemon.get("/livez").expect(200)
        for connection in crowd:
            connection.close()


@test("a job that takes longer than headers may is waited for")
def long_wait():
    with Daemon(devices="cpu", header_timeout=1) as daemon:
        start = time.monotonic()
        answer = daemon.submit(scans.slow().bytes(daemon.state), scans.SLOW_QUERY.replace("=1000", "=400"), Prefer="wait=100")
        answer.expect(200)
        same(answer.json()["state"], "succeeded")
        assert time.monotonic() - start > 1, "the job was not slow"


@test("thousands of parameters, a parameter given twice: told at once")
def parameters(daemon):
    query = "&".join(f"a{i}=b" for i in range(2000))
    daemon.get(f"/v1/jobs?{query}").problem(400, "bad-request")
    daemon.get("/v1/jobs?limit=1&limit=2").problem(400, "bad-parameter")
    daemon.get("/readyz?verbose&verbose").problem(400, "bad-parameter")


@test("a request that means another host is refused: another site's page cannot use a service on the user's machine")
def hosts(daemon):
    for host in ("evil.example", "localhost.evil.example:80", "10.0.0.1"):
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs?kind=recon"), ("GET", "/metrics")):
            daemon.request(method, path, headers={"Host": host}).problem(421, "misdirected")
        daemon.request("GET", "/livez", headers={"Host": host}).expect(200)
    for host in ("localhost", f"localhost:{daemon.port}", "127.0.0.1", "[::1]:80", "localhost.", f"localhost.:{daemon.port}"):
        daemon.request("GET", "/v1/jobs", headers={"Host": host}).expect(200)
    with Daemon(devices="cpu", host_names="recon.example, other") as named:
        named.request("GET", "/v1/jobs", headers={"Host": "Recon.example:8443"}).expect(200)
        named.request("GET", "/v1/jobs", headers={"Host": "recon.example."}).expect(200)
        named.request("GET", "/v1/jobs", headers={"Host": "localhost"}).problem(421, "misdirected")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
