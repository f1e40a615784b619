#!/usr/bin/python3
"""MRD streams over TCP: the images of a series go back one by one, as soon as each is made, whatever happens on the
way.
"""
import contextlib
import io
import os
import signal
import socket
import tempfile

import numpy as np

import mrd
import scans
from harness import Daemon, fault, holding, main, same, test, wait_until
from live import image_of, newest, running, series

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-live-")
QUERY = "kind=recon&output=complex&coils=none"
FRAMES = 3


SERIES = series()
MESSAGES = [mrd.text(mrd.CONFIG_TEXT, QUERY), *SERIES.messages()]


def start(**options):
    return Daemon(mrd_listen="127.0.0.1:0", environment=holding(), **options)


def expected(daemon, scan=SERIES):
    job = daemon.run(scan.bytes(FOLDER.name), QUERY)
    found = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))
    return found.reshape(-1, *found.shape[-4:])


def of_slices(daemon, scan, query):
    """The images of the whole scan in the order of the series, as [channels][1][y][x]."""
    job = daemon.run(scan.bytes(FOLDER.name), query)
    content = daemon.get(f"/v1/jobs/{job['id']}/results/image?format=mrd").expect(200).body
    return [body[1] for number, body in mrd.of_bytes(content) if number == mrd.IMAGE]


def check(images, truth, first=1):
    same([int(head["index"]) for head, _ in images], list(range(first, len(truth) + 1)), "places in the series")
    for head, pixels in images:
        assert np.array_equal(pixels, truth[head["index"] - 1]), f"other pixels in image {head['index']}"


@test("the first image arrives while the others are still computed; the job's record is as without a session")
def early(daemon):
    truth = expected(daemon)
    before = newest(daemon)
    with mrd.Session(daemon) as session:
        with daemon.held("shown"):
            index, pixels = image_of(session.send(*MESSAGES))
            same((index, running(daemon, before)["state"]), (1, "running"), "the first image, and the job's state")
        assert np.array_equal(pixels, truth[0]), "other pixels"
        check(session.images(), truth, 2)
    after = daemon.job(newest(daemon)["id"])
    before = daemon.job(before["id"])
    same({result["name"] for result in after["results"]}, {result["name"] for result in before["results"]}, "results")
    same([entry["what"] for entry in after["report"]["decisions"]],
         [entry["what"] for entry in before["report"]["decisions"]], "decisions")
    same(mrd.of_bytes(daemon.get(f"/v1/jobs/{after['id']}/results/image?format=mrd").expect(200).body)[0][0],
         mrd.HEADER, "first message of the result")


@test("images of complete repetitions arrive while later ones are still sent, and equal those of the whole scan")
def inline(daemon):
    truth = expected(daemon)
    whole = expected(daemon, SERIES)
    assert np.array_equal(truth, whole)
    with mrd.Session(daemon) as session:
        session.send(*MESSAGES[:2 + 31 + 1])
        index, pixels = image_of(session)
        assert index == 1 and np.array_equal(pixels, truth[0]), "the first image"
        session.send(*MESSAGES[2 + 31 + 1:2 + 62 + 5])
        index, pixels = image_of(session)
        assert index == 2 and np.array_equal(pixels, truth[1]), "the second image"
        check(session.send(*MESSAGES[2 + 62 + 5:]).images(), truth, 3)
    job = daemon.job(newest(daemon)["id"])
    same((job["state"], job["report"]["images_ahead"] >= 2), ("succeeded", True),
         "state, and images that were made ahead")


@test("an image that is shown is sent before the session looks up its job, for which the store may be busy")
def before_the_look():
    with tempfile.TemporaryDirectory() as folder:
        hold = f"{folder}/hold.row"
        environment = holding() | {"LATELOOK_HOLD": f"{folder}/hold"}
        environment["LD_PRELOAD"] += f":{fault('latelook')}"

        def sent(session, go_on):
            """Whether the next image had been sent when the session looked up its job."""
            with open(hold, "w"):
                go_on()
                wait_until(lambda: os.path.exists(f"{hold}.there"), "the session to have looked")
            with contextlib.suppress(BlockingIOError):
                return session.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
            return False

        with Daemon(mrd_listen="127.0.0.1:0", environment=environment) as daemon, mrd.Session(daemon) as session, \
                daemon.held("shown") as go_on:
            image_of(session.send(mrd.text(mrd.CONFIG_TEXT, QUERY), *series(12).messages()))
            running(daemon)
            early = False
            for _ in range(10):  # it also looks when its job begins, and every 5 s
                early = early or sent(session, go_on)
                os.unlink(hold)
                os.unlink(f"{hold}.there")
                image_of(session)
                if early:
                    break
            assert early, "the job was looked up first"


@test("a job that begins while its worker still computes what arrived: all its images are made ahead, and none twice")
def begins_meanwhile(daemon):
    truth = expected(daemon)
    before = newest(daemon)
    with mrd.Session(daemon) as session:
        with daemon.held("shown"):
            index, pixels = image_of(session.send(*MESSAGES[:2 + 31 + 1]))
            assert index == 1 and np.array_equal(pixels, truth[0]), "the first image"
            session.send(*MESSAGES[2 + 31 + 1:])
            running(daemon, before)
        check(session.images(), truth, 2)
    job = daemon.job(newest(daemon)["id"])
    same((job["state"], job["report"]["images_ahead"]), ("succeeded", FRAMES), "state, and images that were made ahead")


@test("a series of more coils than auto keeps, in windows: images arrive while later ones are still sent")
def windows(daemon):
    query = "kind=recon&method=temporal-tv&window_frames=4&frame_readouts=8&iterations=3"
    scan = scans.radial(spokes=8 * 9, coils=14)
    job = daemon.run(scan.bytes(FOLDER.name), query)
    truth = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))
    messages = [mrd.text(mrd.CONFIG_TEXT, query), *scan.messages()]
    with mrd.Session(daemon) as session:
        session.send(*messages[:2 + 8 * 4])
        early = [image_of(session) for _ in range(3)]
        later = session.send(*messages[2 + 8 * 4:]).images()
    found = early + [(int(head["index"]), pixels) for head, pixels in later]
    same([index for index, _ in found], list(range(1, 10)), "places in the series")
    for index, pixels in found:
        assert np.array_equal(pixels.ravel(), truth[index - 1].ravel()), f"other pixels in image {index}"
    report = daemon.job(newest(daemon)["id"])["report"]
    virtual = [entry for entry in report["decisions"] if entry["what"] == "virtual_coils"]
    assert report.get("images_ahead", 0) >= 3 and "first window" in virtual[0]["reason"], report


@test("a worker that is killed after the first image: the job runs again, and no image is sent twice")
def killed():
    with start(expect_trouble=True) as daemon:
        truth = expected(daemon)
        before = newest(daemon)
        with mrd.Session(daemon) as session:
            with daemon.held("shown"):
                index, pixels = image_of(session.send(*MESSAGES))
                running(daemon, before)
                worker = daemon.worker()
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: worker not in daemon.children("mrirecon-worker"), "the end of the worker")
            assert index == 1 and np.array_equal(pixels, truth[0]), "the first image"
            check(session.images(), truth, 2)
        job = daemon.job(newest(daemon)["id"])
        same((job["state"], job["attempts"]), ("succeeded", 2), "state and attempts")


@test("a worker that is killed while the stream arrives: no attempt is counted, and no image is sent twice")
def killed_early():
    with start(expect_trouble=True) as daemon:
        truth = expected(daemon)
        with mrd.Session(daemon) as session:
            index, pixels = image_of(session.send(*MESSAGES[:2 + 31 + 1]))
            assert index == 1 and np.array_equal(pixels, truth[0]), "the first image"
            os.kill(daemon.worker(), signal.SIGKILL)
            wait_until(lambda: "was killed by signal 9" in daemon.read_log(), "the daemon to find its worker dead")
            check(session.send(*MESSAGES[2 + 31 + 1:]).images(), truth, 2)
        job = daemon.job(newest(daemon)["id"])
        same((job["state"], job["attempts"]), ("succeeded", 1), "state and attempts")


@test("another job while a stream arrives runs first, and no image is sent twice")
def interrupted(daemon):
    truth = expected(daemon)
    with mrd.Session(daemon) as session:
        image_of(session.send(*MESSAGES[:2 + 31 + 1]))
        assert np.array_equal(expected(daemon), truth), "the other job's images"
        check(session.send(*MESSAGES[2 + 31 + 1:]).images(), truth, 2)


@test("a stream that breaks off after an image: that image, and a text; the worker stops working on it")
def broken(daemon):
    with mrd.Session(daemon) as session:
        image_of(session.send(*MESSAGES[:2 + 31 + 1]))
        session.socket.shutdown(1)
        (number, text), = session.messages()
    assert number == mrd.TEXT and text.startswith(b"truncated-file: "), text
    job = newest(daemon)
    same((job["state"], job["error"]["code"]), ("failed", "truncated-file"), "job")
    assert np.array_equal(expected(daemon), expected(daemon)), "jobs after it"


@test("slices one after the other, each with all repetitions: no image is sent early at a wrong index")
def slices(daemon):
    scan = series(4)
    order = np.arange(len(scan.heads)) // 31
    scan.heads["idx"]["repetition"] = order % 2
    scan.heads["idx"]["slice"] = order // 2
    scan.xml = scan.xml.replace("<encodingLimits/>",
                                "<encodingLimits><slice><minimum>0</minimum><maximum>1</maximum><center>0</center></slice></encodingLimits>")
    truth = expected(daemon, scan)
    with mrd.Session(daemon) as session:
        found = session.send(mrd.text(mrd.CONFIG_TEXT, QUERY), *scan.messages()).images()
    same([(int(head["repetition"]), int(head["slice"])) for head, _ in found], [(0, 0), (0, 1), (1, 0), (1, 1)],
         "places")
    for head, pixels in found:
        assert np.array_equal(pixels[:, 0],
                              truth[head["repetition"]][:, head["slice"]]), f"other pixels in image {head['index']}"


@test("slices one after the other: each image arrives while the next slice is sent, and equals that of the whole scan")
def slice_by_slice(daemon):
    scan = scans.slices(FRAMES)
    truth = of_slices(daemon, scan, QUERY)
    messages = [mrd.text(mrd.CONFIG_TEXT, QUERY), *scan.messages()]
    with mrd.Session(daemon) as session:
        session.send(*messages[:2])
        for place in range(1, FRAMES):
            session.send(*messages[2 + (place - 1) * 31 + (place > 1):2 + place * 31 + 1])
            index, pixels = image_of(session)
            assert index == place and np.array_equal(pixels, truth[index - 1]), f"image {index}, expected {place}"
        check(session.send(*messages[2 + (FRAMES - 1) * 31 + 1:]).images(), truth, FRAMES)
    same(daemon.job(newest(daemon)["id"])["report"]["images_ahead"] >= FRAMES - 1, True, "images that were made ahead")


@test("slices one after the other, divided by frame_readouts: the images that arrive early have their places")
def divided_slices(daemon):
    query = f"{QUERY}&frame_readouts=10"
    scan = scans.slices(2)
    truth = of_slices(daemon, scan, query)
    messages = [mrd.text(mrd.CONFIG_TEXT, query), *scan.messages()]
    ends = [(10, 1), (31 + 10, 2), (31 + 20, 3)]  # readouts, and the image that arrives with them
    with mrd.Session(daemon) as session:
        session.send(*messages[:2])
        for before, (end, place) in zip([0, 10, 31 + 10], ends):
            session.send(*messages[2 + before:2 + end])
            index, pixels = image_of(session)
            assert index == place and np.array_equal(pixels, truth[index - 1]), f"image {index}, expected {place}"
        check(session.send(*messages[2 + 31 + 20:]).images(), truth, 4)


@test("a job that is canceled after its first image: that image, complete, and a text")
def canceled():
    many = 60
    with start(cancel_grace=600) as daemon, mrd.Session(daemon) as session:
        with daemon.held("shown"):
            image_of(session.send(mrd.text(mrd.CONFIG_TEXT, QUERY), *series(many).messages()))
            job = f"/v1/jobs/{running(daemon)['id']}"
            daemon.request("POST", f"{job}/cancel").expect(202)
            # In each iteration the scheduler informs workers of cancels and then ends waits, so the second wait ends in
            # an iteration that began after the cancel.
            for _ in range(2):
                same(daemon.get(job, Prefer="wait=1").expect(200).json()["state"], "canceling", "state of a held job")
        *images, (number, text) = session.messages()
    assert number == mrd.TEXT and text.startswith(b"canceled: "), text
    assert all(kind == mrd.IMAGE for kind, _ in images) and len(images) < many - 1, len(images)


@test("a client that does not read: the job ends all the same, and every image can be read later")
def pressure(daemon):
    scan = series(12, matrix=(256, 256, 1), spokes=5)
    truth = expected(daemon, scan)
    assert truth.nbytes > 8 << 20, truth.nbytes
    with mrd.Session(daemon) as session:
        session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        count = len(daemon.get("/v1/jobs?limit=100").json()["jobs"])
        session.send(mrd.text(mrd.CONFIG_TEXT, QUERY), *scan.messages())
        wait_until(lambda: len(daemon.get("/v1/jobs?limit=100").json()["jobs"]) > count, "the job")
        same(daemon.finish(newest(daemon)["id"])["state"], "succeeded", "state")
        assert np.array_equal(expected(daemon), expected(daemon)), "another job meanwhile"
        check(session.images(), truth)


@test("the service stops after the first image: that image, complete, and a text; the job ends after the restart")
def stopped():
    with start(drain_time=0) as daemon:
        truth = expected(daemon)
        before = newest(daemon)
        with mrd.Session(daemon) as session:
            hold = f"{daemon.environment['HOLDSTEP']}.shown"
            with open(hold, "w"):
                pass
            _, pixels = image_of(session.send(*MESSAGES))
            running(daemon, before)
            daemon.process.send_signal(signal.SIGTERM)
            *images, (number, text) = session.messages()
            same((images, number), ([], mrd.TEXT), "what follows the first image")
            assert text.startswith(b"draining: ") and b"continues" in text, text
            daemon.process.wait(120)
            os.unlink(hold)
        assert np.array_equal(pixels, truth[0]), "other pixels"
        daemon.restart()
        same(daemon.finish(newest(daemon)["id"])["state"], "succeeded", "state after the restart")
        same([name for name in daemon.files() if name.endswith((".live", ".part"))], [], "files left behind")


if __name__ == "__main__":
    main(start)
