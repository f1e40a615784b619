#!/usr/bin/python3
"""MRD by TLS with the configurations of stunnel in docs/mrd.md: a scanner's client on one side, a daemon on the other.
"""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile

import mrd
import scans
from guarded import new_token
from harness import ROOT, Daemon, free_port, main, same, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial(seed=71)
MESSAGES = list(SCAN.messages())


def documented():
    """The configurations in docs/mrd.md: stunnel's on the server, mrirecond's, and stunnel's on the scanner."""
    with open(os.path.join(ROOT, "docs", "mrd.md")) as file:
        section = file.read().partition("### TLS by stunnel")[2]
    blocks = re.findall(r"```ini\n(.*?)```", section, re.S)
    same(len(blocks), 3, "configurations in docs/mrd.md")
    return blocks


def certificate(name):
    """Make a certificate as the document does."""
    paths = [os.path.join(FOLDER.name, f"{name}.{part}") for part in ("key", "crt")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "3650", "-subj", f"/CN={name}",
                    "-keyout", paths[0], "-out", paths[1]], check=True, capture_output=True)


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@contextlib.contextmanager
def tunnel(name, text, port):
    """Run stunnel with this configuration in the foreground; returns once it accepts connections at the port."""
    path, log = (os.path.join(FOLDER.name, f"{name}.{end}") for end in ("conf", "log"))
    with open(path, "w") as file:
        file.write(f"foreground = yes\npid =\nsyslog = no\noutput = {log}\n" +
                   text.replace("/etc/stunnel/", FOLDER.name + "/"))
    process = subprocess.Popen(["stunnel4", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        def ready():
            if process.poll() is not None:
                with open(log) as file:
                    raise AssertionError(f"stunnel ended with status {process.returncode}: {file.read()[-2000:]}")
            return accepts(port)
        wait_until(ready, f"{name}'s stunnel")
        yield
    finally:
        process.kill()
        process.wait()


@test("MRD by TLS, with the configurations of docs/mrd.md: the client that its certificate names, and no other")
def encrypted():
    if not shutil.which("stunnel4"):
        skip("stunnel4 is not installed (make check installs it)")
    server, ours, scanner = documented()
    options = dict(re.findall(r"^([\w-]+) = (.*)$", ours, re.M))
    for name in ("server", "scanner1", "stranger"):
        certificate(name)
    tokens = os.path.join(FOLDER.name, "tokens")
    admin = new_token(tokens, "boss", "admin")
    public, local, strange = free_port(), free_port(), free_port()
    with Daemon(devices="cpu", tokens=tokens, mrd_listen=options["mrd-listen"].replace(":9002", ":0"),
                mrd_clients=options["mrd-clients"]) as daemon:
        inside = mrd.address_of(daemon)
        far = server.replace("accept = 9003", f"accept = 127.0.0.1:{public}").replace(":9002", f":{inside[1]}")
        near = scanner.replace("server:9003", f"127.0.0.1:{public}")
        with tunnel("far", far, public), tunnel("near", near.replace(":9002", f":{local}"), local), \
                tunnel("strange", near.replace(":9002", f":{strange}").replace("scanner1", "stranger"), strange):
            with mrd.Session(address=("127.0.0.1", local)) as session:
                images = session.send(*MESSAGES).images()
            same(len(images), 1, "images")
            jobs = daemon.request("GET", "/v1/jobs", None,
                                  {"Authorization": f"Bearer {admin}"}).expect(200).json()["jobs"]
            same([(job["client"], job["state"]) for job in jobs], [("scanner1", "succeeded")], "jobs")
            # stunnel refuses another key, and mrirecond refuses a client without a tunnel.
            for address in (("127.0.0.1", strange), inside):
                with contextlib.suppress(OSError, AssertionError), mrd.Session(address=address) as session:
                    session.send(*MESSAGES).images()
                    raise RuntimeError(f"a stranger's stream at {address} was answered with images")
            jobs = daemon.request("GET", "/v1/jobs", None,
                                  {"Authorization": f"Bearer {admin}"}).expect(200).json()["jobs"]
            same(len(jobs), 1, "jobs")


if __name__ == "__main__":
    main()
