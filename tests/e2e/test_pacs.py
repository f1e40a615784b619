#!/usr/bin/python3
"""Images are sent to a PACS (Orthanc on loopback) by C-STORE and STOW-RS, each instance once, whatever is down or
killed.
"""
import contextlib
import http.client
import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading

import scans
from harness import ROOT, Daemon, free_port, main, same, skip, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
SCANS = [open(scans.radial(seed=seed).write(f"{FOLDER.name}/{seed}.h5"), "rb").read() for seed in (95, 96, 97)]
UNPACKED = os.path.join(ROOT, "build", "orthanc")
PROGRAM, PLUGINS = f"{UNPACKED}/usr/sbin/Orthanc", f"{UNPACKED}/usr/share/orthanc/plugins"


class Orthanc:
    """An Orthanc that stores images in a folder, so that it can be stopped and started again."""

    def __init__(self, **settings):
        if not (os.path.exists(PROGRAM) and os.path.exists(f"{PLUGINS}/libOrthancDicomWeb.so")
                and shutil.which("storescu")):
            skip("no Orthanc in build/orthanc, or no storescu (make check unpacks the one and installs the other)")
        self.folder = tempfile.mkdtemp(dir=FOLDER.name)
        self.http, self.dicom, self.process = free_port(), free_port(), None
        self.settings = {"Name": "TEST", "StorageDirectory": self.folder, "IndexDirectory": self.folder,
                         "HttpPort": self.http, "DicomPort": self.dicom,
                         "DicomAet": "PACS", "DicomCheckCalledAet": True, "RemoteAccessAllowed": False,
                         "AuthenticationEnabled": False,
                         "Plugins": [PLUGINS], "DicomWeb": {"Enable": True, "Root": "/dicom-web/"}, **settings}

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=120)
        try:
            connection.request("GET", path, headers={"Authorization": "Basic b3A6c2VjcmV0"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def start(self):
        path = os.path.join(self.folder, "orthanc.json")
        with open(path, "w") as file:
            json.dump(self.settings, file)
        self.process = subprocess.Popen([PROGRAM, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

        def answers():
            assert self.process.poll() is None, f"Orthanc exited with {self.process.returncode}"
            with contextlib.suppress(OSError, ValueError):
                return self.get("/system")
            return None
        wait_until(answers, "Orthanc")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def instances(self):
        return sorted(self.get(f"/instances/{one}/simplified-tags")["SOPInstanceUID"] for one in self.get("/instances"))


def write(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o600)
    return path


def c_store(name, orthanc, settings="called=PACS"):
    return f"destination {name} dicom 127.0.0.1:{orthanc.dicom} retry=1 retry-most=1 {settings}\nrule {name}\n"


def stow(name, port, settings=""):
    return f"destination {name} stow http://127.0.0.1:{port}/dicom-web retry=1 retry-most=1 {settings}\nrule {name}\n"


def delivery(daemon, job, name):
    return next((d for d in daemon.job(job)["deliveries"] if d["destination"] == name), None)


def delivered(daemon, job, name, state="delivered"):
    def there():
        found = delivery(daemon, job, name)
        return found if found and found["state"] == state else None
    try:
        return wait_until(there, f"{name} to be {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {delivery(daemon, job, name)}") from None


def uid(daemon, job):
    """The SOP Instance UID of the job's image, read from its file."""
    file = daemon.get(f"/v1/jobs/{job}/results/image?format=dcm").expect(200, "application/dicom").body
    at = file.index(b"\x08\x00\x18\x00UI") + 6
    length = int.from_bytes(file[at:at + 2], "little")
    return file[at + 2:at + 2 + length].rstrip(b"\0").decode()


@test("C-STORE and STOW-RS: every image arrives once, and can be read there")
def arrives():
    with Orthanc() as pacs, Orthanc() as web:
        with Daemon(destinations=write("both", c_store("pacs", pacs) + stow("web", web.http))) as daemon:
            jobs = [daemon.run(scan)["id"] for scan in SCANS]
            broken = daemon.run(SCANS[0][:3000])["id"]
            for job in jobs:
                for name in ("pacs", "web"):
                    same(delivered(daemon, job, name)["answer"], "1 instance is stored.", f"answer of {name}")
            expected = sorted(uid(daemon, job) for job in jobs)
            same(len(set(expected)), len(jobs), "different UIDs")
            for orthanc in (pacs, web):
                same(orthanc.instances(), expected, "instances")
                tags = orthanc.get(f"/instances/{orthanc.get('/instances')[0]}/simplified-tags")
                same((tags["Modality"], tags["SOPClassUID"]), ("MR", "1.2.840.10008.5.1.4.1.1.4.1"), "what it is")
            same(daemon.job(broken)["deliveries"], [], "deliveries of a job that failed")


@test("a PACS that is down gets each image once when it is up, from a daemon that was killed meanwhile")
def down_and_killed():
    pacs = Orthanc()
    with Daemon(destinations=write("down", c_store("pacs", pacs) + stow("web", pacs.http))) as daemon:
        jobs = [daemon.run(scan)["id"] for scan in SCANS]
        wait_until(lambda: delivery(daemon, jobs[0], "pacs")["attempts"]
                   and delivery(daemon, jobs[0], "web")["attempts"], "attempts")
        daemon.kill()
        with pacs:
            daemon.restart()
            for job in jobs:
                for name in ("pacs", "web"):
                    delivered(daemon, job, name)
            same(pacs.instances(), sorted(uid(daemon, job) for job in jobs), "instances")


@test("killed while a PACS receives an image: the image is there once")
def killed_amid():
    with Orthanc() as pacs:
        with Daemon(destinations=write("amid", c_store("pacs", pacs))) as daemon:
            os.kill(pacs.process.pid, signal.SIGSTOP)  # accepts connections, but never answers
            job = daemon.submit(SCANS[0]).expect(202).json()["id"]
            sender = wait_until(lambda: daemon.children("mrirecon-send"), "a sender")[0]
            wait_until(lambda: daemon.children("storescu", sender), "storescu")
            os.kill(pacs.process.pid, signal.SIGCONT)
            daemon.kill()
            wait_until(lambda: not os.path.exists(f"/proc/{sender}"), "the sender's end")
            daemon.restart()
            delivered(daemon, job, "pacs")
            same(pacs.instances(), [uid(daemon, job)], "instances")


@test("a wrong application entity title and a wrong password are permanent refusals, with their reasons")
def refused():
    with Orthanc(AuthenticationEnabled=True, RegisteredUsers={"op": "secret"}) as pacs:
        good, bad = write("login", "op:secret\n"), write("wrong-login", "op:other\n")
        lines = c_store("wrong", pacs, "called=OTHER") + stow("locked", pacs.http,
                                                              f"login={bad}") + stow("open", pacs.http, f"login={good}")
        with Daemon(destinations=write("refused", lines)) as daemon:
            job = daemon.run(SCANS[0])["id"]
            assert ("Called AE Title Not Recognized"
                    in delivered(daemon, job, "wrong", "dead")["answer"]), daemon.job(job)["deliveries"]
            assert "401" in delivered(daemon, job, "locked", "dead")["answer"], daemon.job(job)["deliveries"]
            delivered(daemon, job, "open")
            same(pacs.instances(), [uid(daemon, job)], "instances")


def certificate(name):
    """A certificate for localhost, and its key."""
    paths = [os.path.join(FOLDER.name, f"{name}.{part}") for part in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-out", paths[0],
                    "-keyout", paths[1]], check=True, capture_output=True)
    return paths


@contextlib.contextmanager
def encrypting(crt, key, port):
    """A proxy that takes requests over TLS and passes them on to a local port; yields its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            passed = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            passed.request("POST", self.path, self.rfile.read(int(self.headers["Content-Length"])),
                           {name: value for name, value in self.headers.items() if name != "Host"})
            answer = passed.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def finish_request(self, request, client_address):
            # A client that refuses the certificate closes the connection, or breaks it off.
            with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)

        def shutdown_request(self, request):
            with contextlib.suppress(OSError):
                request.close()

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@test("STOW-RS over https: a login and an image reach the PACS whose certificate is trusted, and no other")
def encrypted():
    (crt, key), (other, _), login = certificate("pacs"), certificate("other"), write("login-tls", "op:secret\n")
    with (Orthanc(AuthenticationEnabled=True, RegisteredUsers={"op": "secret"}) as pacs,
          encrypting(crt, key, pacs.http) as port):
        lines = "".join(f"destination {name} stow https://localhost:{port}/dicom-web retry=1 retry-most=1 attempts=1 "
                        f"login={login} {setting}\nrule {name}\n"
                        for name, setting in (("good", f"ca={crt}"), ("other", f"ca={other}"), ("system", "")))
        with Daemon(destinations=write("encrypted", lines)) as daemon:
            job = daemon.run(SCANS[0])["id"]
            for name in ("other", "system"):
                assert "certificate" in delivered(daemon, job, name, "dead")["answer"], daemon.job(job)["deliveries"]
            same(delivered(daemon, job, "good")["answer"], "1 instance is stored.", "answer")
            same(pacs.instances(), [uid(daemon, job)], "instances")


@test("STOW-RS is judged by the list of stored instances: success without it is none; refusals are reported")
def judged():
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = answers[self.path.split("/")[1]]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        port = server.server_address[1]
        lines = "".join(f"destination {name} stow http://127.0.0.1:{port}/{name} retry=1 retry-most=1 attempts=2\nrule "
                        f"{name}\n"
                        for name in ("silent", "partial", "refusing"))
        with Daemon() as daemon:  # the UID that the answers name; the same scan gives the same image
            instance = uid(daemon, daemon.run(SCANS[0])["id"])

        def listed(tag, **more):
            item = {"00081155": {"vr": "UI", "Value": [instance]},
                    **{t: {"vr": "US", "Value": [v]} for t, v in more.items()}}
            return json.dumps({tag: {"vr": "SQ", "Value": [item]}}).encode()
        answers.update(silent=(200, b"{}"), partial=(400, listed("00081199")),
                       refusing=(202, listed("00081198", **{"00081197": 0xa900})))
        with Daemon(destinations=write("judged", lines)) as daemon:
            job = daemon.run(SCANS[0])["id"]
            same(delivered(daemon, job, "silent", "dead")["attempts"], 2, "attempts where nothing is listed")
            same(delivered(daemon, job, "partial")["answer"], "1 instance is stored.", "answer")
            dead = delivered(daemon, job, "refusing", "dead")
            same(dead["attempts"], 1, "attempts of a refused instance")
            assert "A900" in dead["answer"], dead
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    main()
