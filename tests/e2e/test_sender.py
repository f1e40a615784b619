#!/usr/bin/python3
"""The confinement of the program that talks to other hosts, seen from outside: /proc of a real sender during its
request over HTTPS, and of storescu.
"""
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading

import scans
from harness import BIN, Daemon, SLOW, main, same, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()


def write(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o600)
    return path


def certificate(name):
    """A certificate for localhost, and its key."""
    paths = [os.path.join(FOLDER.name, f"{name}.{part}") for part in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=DNS:localhost", "-out", paths[0], "-keyout", paths[1]], check=True,
                   capture_output=True)
    return paths


class Silent:
    """A server that accepts connections (over TLS, with a context) and answers no request until `go_on` is set, then
    with 204.
    """

    def __init__(self, context=None):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port, self.context = self.listening.getsockname()[1], context
        self.go_on, self.got = threading.Event(), []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def plain(self, connection):
        return self.context.wrap_socket(connection, server_side=True) if self.context else connection

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listening.accept()[0]
                with contextlib.suppress(OSError), self.plain(connection) as plain:
                    request = plain.recv(65536)
                    if not request:  # the client did not trust the server's certificate
                        continue
                    self.got.append(request)
                    self.go_on.wait()
                    plain.sendall(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.listening.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listening.close()


def confinement(pid):
    """From /proc: {seccomp, no_new_privs, capabilities, and the hard limits}."""
    with open(f"/proc/{pid}/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    with open(f"/proc/{pid}/limits") as file:
        limits = {line[:26].strip(): line[26:].split()[1] for line in file}
    return status, limits


def check_confined(pid):
    status, limits = confinement(pid)
    same((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"), "seccomp, no_new_privs")
    same({int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}, {0}, "capabilities, also root's")
    same(limits["Max core file size"], "0", "core files")
    assert int(limits["Max open files"]) <= 64, limits
    for name in ("Max cpu time",) + (() if "/san/" in BIN else ("Max address space", "Max data size")):
        assert limits[name].isdigit(), (name, limits[name])


def delivery(daemon, job, name, state):
    def there():
        return next((d for d in daemon.job(job)["deliveries"] if (d["destination"], d["state"]) == (name, state)), None)
    try:
        return wait_until(there, f"{name} to be {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {daemon.job(job)['deliveries']}") from None


@test("a webhook over HTTPS by host name: sent from the sandbox, only to a server with a trusted certificate")
def https():
    crt, key = certificate("one")
    other, _ = certificate("two")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    secret = write("secret", "a key\n")
    with Silent(context) as trusted, Silent(context) as untrusted:
        lines = "".join(f"destination {name} webhook https://localhost:{server.port}/ secret={secret} attempts=1 "
                        f"timeout={int(SLOW)} {setting}\nrule {name}\n"
                        for name, server, setting in (("good", trusted, f"ca={crt}"),
                                                      ("other", untrusted, f"ca={other}"), ("system", untrusted, "")))
        with Daemon(destinations=write("https", lines)) as daemon:
            job = daemon.submit(scans.radial().bytes(FOLDER.name)).expect(202).json()["id"]
            wait_until(lambda: trusted.got, "a request over TLS")
            for name in ("other", "system"):
                assert re.search(r"certificate",
                                 delivery(daemon, job, name, "dead")["answer"]), daemon.job(job)["deliveries"]
            senders = daemon.children("mrirecon-send")
            same(len(senders), 1, "senders")
            check_confined(senders[0])
            trusted.go_on.set()
            same(delivery(daemon, job, "good", "delivered")["answer"], "The server answered 204.", "answer")
            same(untrusted.got, [], "what the other server was sent")
            assert trusted.got[0].startswith(b"POST / HTTP/"), trusted.got


@test("storescu runs in the sandbox of the sender that starts it")
def storescu():
    if not shutil.which("storescu"):
        skip("storescu is not installed (make check installs it)")
    with Silent() as pacs:
        lines = write("dicom",
                      f"destination pacs dicom localhost:{pacs.port} called=PACS attempts=1 timeout={int(SLOW)}\nrule "
                      f"pacs\n")
        with Daemon(destinations=lines) as daemon:
            job = daemon.submit(scans.radial().bytes(FOLDER.name)).expect(202).json()["id"]
            wait_until(lambda: pacs.got, "a request for an association")
            sender = daemon.children("mrirecon-send")[0]
            program = daemon.children("storescu", sender)[0]
            check_confined(sender)
            check_confined(program)
            pacs.go_on.set()  # an answer that is not DICOM ends the attempt
            delivery(daemon, job, "pacs", "dead")


if __name__ == "__main__":
    main()
