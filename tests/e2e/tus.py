"""A client of resumable uploads (tus 1.0), and what the daemon counts of them."""
import base64
import hashlib
import os
import socket

import scans
from harness import same

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = {"Content-Type": "application/offset+octet-stream"}


def scan(daemon, seed=1):
    return scans.radial(seed=seed).bytes(daemon.state)


def create(daemon, body, query="kind=recon", **headers):
    answer = daemon.request("POST", f"/v1/uploads?{query}",
                            headers={**TUS, "Upload-Length": str(len(body)), **headers}).expect(201)
    same(answer.headers["tus-resumable"], "1.0.0")
    assert answer.headers["upload-expires"].endswith(" GMT"), answer.headers
    return answer.headers["location"]


def begin(daemon, length, client):
    return daemon.request("POST", "/v1/uploads?kind=recon",
                          headers={**TUS, "Upload-Length": str(length), "X-Mrirecond-Client": client})


def append(daemon, where, offset, body, **headers):
    return daemon.request("PATCH", where, body, {**TUS, **BYTES, "Upload-Offset": str(offset), **headers})


def chunked(daemon, where, body, piece):
    """The status line of a PATCH at 0, sent in chunks of `piece` bytes without an announced length."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name,
                       value in {**TUS, **BYTES, "Upload-Offset": 0, "Transfer-Encoding": "chunked"}.items())
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[at:at + piece]), body[at:at + piece])
                          for at in range(0, len(body), piece))
        connection.sendall(f"PATCH {where} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + pieces + b"0\r\n\r\n")
        return connection.recv(200).split(b"\r\n")[0]


def offset_of(daemon, where):
    answer = daemon.request("HEAD", where, headers=TUS).expect(200)
    same(answer.headers["cache-control"], "no-store")
    return int(answer.headers["upload-offset"])


def checksum(name, body):
    return {"Upload-Checksum": f"{name} {base64.b64encode(hashlib.new(name, body).digest()).decode()}"}


def used(daemon):
    return daemon.metrics()["mrirecond_spool_used_bytes"]


def uploads_of(daemon):
    """The addresses of all unfinished uploads."""
    return {f"/v1/uploads/{name.removesuffix('.json')}" for name in os.listdir(os.path.join(daemon.state, "uploads"))
            if name.endswith(".json")}
