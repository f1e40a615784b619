#!/usr/bin/python3
"""The Python package: the commands of docs/python.md, its errors, and its use without numpy."""
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

import numpy as np

import scans
from guarded import Guarded
from harness import ROOT, SLOW, Daemon, free_port, main, same, test
from receiver import Receiver, write

PACKAGE = os.path.join(ROOT, "clients", "python")
sys.path.insert(0, PACKAGE)
sys.dont_write_bytecode = True
import mrirecon  # noqa: E402
import mrirecon.arrays  # noqa: E402
import mrirecon.server  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
SCAN = scans.radial(seed=61).write(f"{FOLDER.name}/scan.h5")
UNWEIGHTED = scans.radial(seed=62, weights=False).write(f"{FOLDER.name}/unweighted.h5")


def raises(expected, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except expected as error:
        return error
    raise AssertionError(f"no {expected.__name__} was raised")


@test("every block of docs/python.md runs unchanged, and prints nothing on stderr")
def page(daemon):
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    assert len(blocks) >= 5, f"only {len(blocks)} blocks were found"
    with tempfile.TemporaryDirectory() as folder:
        scans.radial(seed=63).write(f"{folder}/scan.h5")
        done = subprocess.run([sys.executable, "-W", "error", "-c", "\n".join(blocks)], cwd=folder, capture_output=True,
                              text=True, timeout=SLOW,
                              env=dict(os.environ, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1",
                                       MRIRECON_SERVER=daemon.url))
        same((done.returncode, done.stderr), (0, ""), "exit status and stderr")
        for name, magic in (("image.nii.gz", b"\x1f\x8b"), ("images/scan.png", b"\x89PNG")):
            with open(f"{folder}/{name}", "rb") as file:
                assert file.read().startswith(magic), f"{name} is not what it should be"
        for line in ("(1, 1, 1, 20, 24)", "bad-parameter ", "scan.h5 succeeded", "complex64"):
            assert line in done.stdout, f"{line} is not in what was printed:\n{done.stdout}"


@test("a file, bytes, an open file and a stream: the same image, as numpy's array and without numpy")
def bodies(daemon):
    server = mrirecon.Server(daemon.url)
    with open(SCAN, "rb") as file:
        content = file.read()

    class Stream:
        """A stream without a length that cannot be rewound."""
        def __init__(self):
            self.read = io.BytesIO(content).read

    with open(SCAN, "rb") as file:
        jobs = [server.submit(SCAN), server.submit(content, name="of bytes"), server.submit(file),
                server.submit(Stream())]
    same([job.document["name"] for job in jobs], ["scan.h5", "of bytes", "", ""], "names")
    arrays = [job.wait().array() for job in jobs]
    for array in arrays:
        same((array.dtype, array.shape), (np.dtype("float32"), (1, 1, 1, 20, 24)), "array")
        assert np.array_equal(array, arrays[0]) and np.any(array), "the images differ"
    plain = mrirecon.arrays.plain_array(jobs[0].bytes())
    same((plain.shape, plain.tolist()), (arrays[0].shape, arrays[0].tolist()), "array without numpy")
    many = jobs[0].again(output="complex", coils="none").wait()
    plain, array = mrirecon.arrays.plain_array(many.bytes("image")), many.array("image")
    same(plain.shape, array.shape + (2,), "shape of complex numbers without numpy")
    same(plain.tolist(), array.view(np.float32).reshape(plain.shape).tolist(), "complex numbers without numpy")
    for broken in (b"", b"\x93NUMPY", jobs[0].bytes()[:-3], b"no array at all"):
        assert "cannot be read" in str(raises(mrirecon.MrireconError, mrirecon.arrays.plain_array, broken)), broken
        assert "cannot be read" in str(raises(mrirecon.MrireconError, mrirecon.arrays.array, broken)), broken


@test("server errors, failed jobs and canceled jobs each raise an exception of their own")
def failures(daemon):
    server = mrirecon.Server(daemon.url)
    problem = raises(mrirecon.Problem, server.submit, SCAN, tolerance=7)
    same((problem.status, problem.code), (400, "bad-parameter"), "problem")
    assert "tolerance" in problem.detail and str(problem).endswith("[bad-parameter]"), problem
    same(raises(mrirecon.Problem, server.job, "a/../b?c").status, 404, "status of a job that is none")
    failed = raises(mrirecon.JobFailed, server.submit(UNWEIGHTED, dcf="given").wait)
    same((failed.state, failed.code), ("failed", "dcf-missing"), "failure")
    with daemon.paused():
        job = server.submit(SCAN, tolerance=1e-5)
        assert "queued" in str(raises(TimeoutError, server.submit(SCAN).wait, 0)) and job.state in ("queued", "running")
        same(server.job(job.id).cancel().state in ("canceling", "canceled"), True, "a word of the cancel")
    same(raises(mrirecon.JobFailed, job.wait).state, "canceled", "state")
    job.delete()
    same(raises(mrirecon.Problem, job.refresh).code, "not-found", "code for a job that was removed")
    raises(FileNotFoundError, server.submit, "no such file")
    raises(ValueError, mrirecon.Server, "ftp://nowhere")
    nobody = mrirecon.Server(f"http://127.0.0.1:{free_port()}")
    assert "No server answers" in str(raises(mrirecon.NotReached, nobody.ready))


@test("a result is saved completely or not at all")
def saved(daemon):
    job = mrirecon.Server(daemon.url).submit(SCAN).wait()
    with tempfile.TemporaryDirectory() as folder:
        for form in ("h5", "nii.gz", "png", "npy", "dcm"):
            same(job.fetch(f"{folder}/a.{form}"), f"{folder}/a.{form}", "path")
        with open(f"{folder}/a.npy", "rb") as file:
            same(file.read(), job.bytes(), "bytes of the array")
        same(raises(mrirecon.Problem, job.fetch, f"{folder}/a.gif").status, 406, "status of a format that is none")
        listener = socket.create_server(("127.0.0.1", 0))

        def cut():
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

        threading.Thread(target=cut, daemon=True).start()
        job.server = mrirecon.Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
        raises(mrirecon.NotReached, job.fetch, f"{folder}/b.npy", "image")
        same(sorted(os.listdir(folder)), sorted(f"a.{form}" for form in ("h5", "nii.gz", "png", "npy", "dcm")), "files")


@test("events of one job until its end, and of all jobs")
def events(daemon):
    server = mrirecon.Server(daemon.url)
    stream = server.events()
    same(next(stream)[0], "reset", "the first event")
    job = server.submit(SCAN)
    states = [document["state"] for event, document in job.events() if event == "state"]
    same((states[-1], job.state), ("succeeded", "succeeded"), "the last state")
    last = next(identity for event, document, identity in stream if event == "job" and document["id"] == job.id
                and document["state"] == "succeeded")
    stream.close()
    other = server.submit(SCAN)
    event, document, _ = next(server.events(last))
    same((event, document["id"]), ("job", other.id), "what is told first to one who comes back")
    same(list(server.jobs(name="scan.h5"))[0].id, other.id, "the newest job of the list")
    other.wait()


@test("a batch: each result saved, failures reported, in the order of the scans")
def batch(daemon):
    with tempfile.TemporaryDirectory() as out:
        rows = list(mrirecon.Server(daemon.url).batch([SCAN, UNWEIGHTED, f"{out}/none.h5"], out, "png", at_a_time=2,
                                                      dcf="given"))
        same([os.path.basename(scan) for scan, _, _ in rows], ["scan.h5", "unweighted.h5", "none.h5"], "scans")
        same([type(error) for _, _, error in rows], [type(None), mrirecon.JobFailed, FileNotFoundError], "errors")
        same((os.listdir(out), rows[0][1].document["priority"]), (["scan.png"], "batch"), "files and priority")


@test("a server that is killed, or full, only delays a submission and a wait")
def interrupted():
    mrirecon.server.TRIES, mrirecon.server.PAUSE = 1 << 30, 0.05  # for any duration of a restart
    daemon = Daemon(devices="cpu", queue_limit=1, work_reserve="900T", port=free_port())  # no job begins
    with daemon:
        server = mrirecon.Server(daemon.url)
        job = server.submit(SCAN)
        same(raises(mrirecon.Problem, server.submit, SCAN).code, "queue-full", "code of a full queue")
        ended, second = [], []
        waiting = [threading.Thread(target=lambda: ended.append(job.wait().state)),
                   threading.Thread(target=lambda: second.append(server.submit(SCAN, patience=SLOW).wait().state))]
        daemon.kill()
        for thread in waiting:
            thread.start()
        daemon.options["work_reserve"] = "1M"
        daemon.restart(same_port=True)
        for thread in waiting:
            thread.join(SLOW)
        same((ended, second), (["succeeded"], ["succeeded"]), "states")


@test("a submission whose answer is lost is sent again, and is one job")
def answer_lost(daemon):
    listener, seen = socket.create_server(("127.0.0.1", 0)), []

    def lose():
        """The first answer is lost; later traffic is forwarded both ways."""
        while True:
            near = listener.accept()[0]
            request = b""
            while ((begin := request.find(b"\r\n\r\n")) < 0
                   or len(request) < begin + 4 + int(re.search(rb"Content-Length: (\d+)", request).group(1))):
                request += near.recv(1 << 16)
            with socket.create_connection(("127.0.0.1", daemon.port)) as far:
                far.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                answer = b""
                while (more := far.recv(1 << 16)):
                    answer += more
            seen.append(re.search(rb'"id": *"(\w+)"', answer).group(1))
            if len(seen) > 1:
                near.sendall(answer)
            near.close()

    threading.Thread(target=lose, daemon=True).start()
    job = mrirecon.Server(f"http://127.0.0.1:{listener.getsockname()[1]}").submit(SCAN)
    same(seen, [job.id.encode()] * 2, "jobs that came of it")


@test("deliveries: waited for, given up, sent again and elsewhere; the block of docs/python.md sends to a destination")
def deliveries():
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        block = re.search(r"## Deliveries.*?```python\n(.*?)```", file.read(), re.S).group(1)
    with tempfile.TemporaryDirectory() as folder, Receiver(answers=[410, 410]) as hook, Receiver() as spare:
        path = write(folder, "destinations", hook.destination(folder, "hook") + spare.destination(folder, "spare") +
                     "rule hook name=ruled\n")
        with Daemon(devices="cpu", destinations=path) as daemon:
            server = mrirecon.Server(daemon.url)
            same([one["name"] for one in server.destinations()], ["hook", "spare"], "destinations")
            job = server.submit(SCAN, name="ruled").wait()
            lost = raises(mrirecon.NotDelivered, job.wait_delivered, SLOW)
            same((lost.answer, [one["state"] for one in lost.deliveries]), ("The server answered 410.", ["dead"]),
                 "what was given up")
            same([(one["job"], one["destination"]) for one in server.deliveries(state="dead")], [(job.id, "hook")],
                 "dead letters")
            same(raises(mrirecon.Problem, job.deliver, "no where").status, 404, "status of a destination that is none")
            raises(mrirecon.NotDelivered, job.deliver("hook").wait_delivered, SLOW)
            same([one["attempts"] for one in job.deliver("hook").wait_delivered(SLOW)], [1], "attempts")
            hook.hold.clear()
            assert "hook" in str(raises(TimeoutError, job.deliver("hook").wait_delivered, 0)), "who is waited for"
            hook.hold.set()
            same(len(job.deliver("spare").wait_delivered(SLOW)), 2, "deliveries")
            same([one["state"]
                  for one in server.submit(SCAN, destination=["hook", "spare"]).wait().wait_delivered(SLOW)],
                 ["delivered"] * 2, "states")
            done = subprocess.run([sys.executable, "-W", "error", "-c",
                                   "import mrirecon\nserver = mrirecon.Server()\n" + block], cwd=os.path.dirname(SCAN),
                                  capture_output=True, text=True, timeout=SLOW,
                                  env=dict(os.environ, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1",
                                           MRIRECON_SERVER=daemon.url))
            same((done.returncode, done.stderr), (0, ""), "exit status and stderr of the block")
            same(done.stdout, "hook The server answered 204.\nspare The server answered 204.\n",
                 "what the block prints")


@test("a token is sent, and a wrong one is reported")
def token():
    with Guarded() as daemon:
        server = mrirecon.Server(daemon.url, token=daemon.token["submit"])
        same(server.submit(SCAN).wait().document["client"], "mri1", "client")
        same(raises(mrirecon.Problem, mrirecon.Server(daemon.url, token="wrong").kinds).status, 401,
             "status with a wrong token")
        same(server.ready(), True, "readiness")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu", keep_scans="all"))
