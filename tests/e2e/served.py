"""A worker without a daemon: mrirecon-worker serve and the daemon's end of its socket; comparison of images.

TOLERANCE: simulated scans are run with tolerance=1e-5, the bound of the gridding error; float32 sums of a few thousand
terms add about 1e-6. A wrong sample, weight or sign gives an error of 1e-2 or more.
"""
import array
import contextlib
import glob
import json
import os
import re
import socket
import subprocess
import tempfile

import scans
from harness import BIN, REPORTS, ROOT, SLOW, children_of, same, wait_until

WORKER = os.path.join(BIN, "mrirecon-worker")
FOLDER = tempfile.TemporaryDirectory()
with open(os.path.join(ROOT, "daemon", "wire.h")) as header:
    WIRE_VERSION = int(re.search(r"WIRE_VERSION = (\d+)", header.read()).group(1))
TOLERANCE = 3e-5


def close(seen, expected, limit=TOLERANCE, fit=False):
    same(tuple(seen.shape), tuple(expected.shape), "shape")
    error = scans.nrmse(seen, expected, fit=fit)
    assert error < limit, f"the image is off by {error:.3g}, allowed {limit:g}"


def files(folder, formats):
    """New, empty files of results, open."""
    os.makedirs(folder)
    return [os.open(f"{folder}/image.{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL) for name in formats]


class Served:
    """mrirecon-worker serve, and this end of its socket."""

    def __init__(self, *options, worker=WORKER, device="cpu", environment=None, status=0):
        """status: its expected exit status."""
        self.status = status
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(SLOW)
        self.process = subprocess.Popen(["sh", "-c", f'exec "$0" serve --device {device} "$@" 3<&{theirs.fileno()}',
                                         worker, *options],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        pass_fds=[theirs.fileno()], env={**os.environ, **(environment or {})})
        theirs.close()
        self.hello = self.receive()
        same(self.hello["type"], "hello", "first message")

    def receive(self):
        return json.loads(self.socket.recv(1 << 18))

    def send(self, fds=(), **message):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([json.dumps(message).encode()], rights)

    def job(self, identity, scan, folder, formats=(), room=None, **parameters):
        """Send a job whose results are image.h5 and one for each of `formats`, in a new folder."""
        formats = ["h5", *formats]
        self.job_with([os.open(scan, os.O_RDONLY), *files(folder, formats)], identity, formats, room, **parameters)

    def job_with(self, fds, identity, formats, room=None, **parameters):
        """Send a job with these descriptors, and close them here."""
        self.send(fds, type="job", id=identity, kind="recon", parameters=parameters,
                  files=[f"image.{name}" for name in formats], **({"room": room} if room else {}))
        for fd in fds:
            os.close(fd)

    def prepare(self, identity, scan, formats=(), room=None, written=(), **parameters):
        fd = os.open(scan, os.O_RDONLY)
        self.send([fd, *written], type="prepare", id=identity, kind="recon", parameters=parameters,
                  files=["image.h5", *(f"image.{name}" for name in formats)], **({"room": room} if room else {}))
        os.close(fd)

    def computed(self):
        """The size of each result that waits in memory for its job."""
        found = []
        for path in glob.glob(f"/proc/{self.process.pid}/fd/*"):
            with contextlib.suppress(FileNotFoundError):
                if "memfd:mrirecon-result" in os.readlink(path):
                    found.append(os.stat(path).st_size)
        return found

    def decoders(self):
        """Process ids of the worker's decoders, without the template that they are forked from."""
        def is_template(process):
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
                return file.read().split(b"\0")[1:2] == [b"template"]
            return False
        return [process for process in children_of(self.process.pid) if not is_template(process)]

    def ready(self, least):
        """The worker's decoders, once at least so many are pre-started and every used one has been reaped."""
        def state(process):
            with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
            return None

        def rest():
            found = self.decoders()
            return len(found) >= least and {state(process) for process in found} == {"S"} and found
        return wait_until(rest, f"{least} decoders to stand ready")

    def answer(self, identity):
        """The end of a job, and the progress messages before it."""
        seen = []
        while True:
            message = self.receive()
            if message["type"] == "progress":
                same(message["id"], identity, "id")
                seen.append(message)
            elif message["type"] != "status":
                same(message["id"], identity, "id")
                return message, seen

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        self.socket.close()
        _, errors = self.process.communicate(timeout=SLOW)
        if failure:  # an assertion here would be told in its place
            for line in errors.splitlines():
                print(f"# the worker: {line}")
            return
        assert not REPORTS.search(errors), errors
        same((self.process.returncode, errors), (self.status, ""),
             "exit status and stderr after the daemon's end closed")
