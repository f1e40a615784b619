#!/usr/bin/python3
"""mrirecon-worker serve: jobs, hints to prefetch, cancellation and failures at the daemon's end of its socket."""
import contextlib
import glob
import os
import signal
import tempfile
import time

import h5py
import numpy as np

import scans
from harness import children_of, main, same, test, wait_until

from served import FOLDER, WIRE_VERSION, Served, close, files


@test("serve: hello, a job with its files, and the next one")
def served():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        same((served.hello["version"], served.hello["gpu"], served.hello["pid"]),
             (WIRE_VERSION, False, served.process.pid), "hello")
        assert "cpu" in served.hello["device"], served.hello
        for number in range(3):
            scan = scans.radial(seed=number)
            out = f"{folder}/results-{number}"
            served.job(f"job-{number}", scan.write(f"{folder}/scan-{number}.h5"), out, ["png", "npy"], tolerance="1e-5")
            done, progress = served.answer(f"job-{number}")
            same(done["type"], "done", f"answer {done}")
            fractions = [round(p["fraction"], 9) for p in progress]  # sums of parts, in different orders
            assert fractions == sorted(fractions) and fractions and 0 <= fractions[0] and fractions[-1] <= 1, fractions
            same(sorted(os.listdir(out)), ["image.h5", "image.npy", "image.png"], "files")
            image = np.load(f"{out}/image.npy")
            close(image, np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
            with h5py.File(f"{out}/image.h5") as file:
                np.testing.assert_array_equal(file["dataset/image_0/data"][...], image)
            with open(f"{out}/image.png", "rb") as file:
                same(file.read(8), b"\x89PNG\r\n\x1a\n", "the picture's begin")
            assert done["report"]["stages"]["write"] > 0, done["report"]


@test("serve: results' size is known before they are computed: over the limit refused, without room requeued")
def served_room():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.radial(matrix=(512, 512, 1)).write(f"{folder}/scan.h5")
        size = 512 * 512 * 4
        for number, (room, formats, answer) in enumerate((
                ({"most": 2 * size, "most_of": "a test", "free": 2 * size}, [], "done"),
                ({"most": size - 1, "most_of": "a test", "free": 0}, [], "result-too-large"),
                ({"most": 2 * size, "most_of": "a test", "free": 0}, ["npy"], "result-too-large"),  # two files
                ({"most": 0, "most_of": "", "free": size - 1}, [], "spool-full"))):
            served.job("x", scan, f"{folder}/{number}", formats, room)
            message, progress = served.answer("x")
            same(message["error"]["code"] if message["type"] == "failed" else message["type"], answer,
                 f"answer {message}")
            if answer == "done":
                promised, written = message["report"]["result_bytes"], os.path.getsize(f"{folder}/{number}/image.h5")
                assert written <= promised <= 1.2 * written, (written, promised)
                continue
            same(message["put_back"], answer == "spool-full", "put back")
            same(message["error"]["available_bytes"], room["most"] or room["free"], "bytes there may be")
            assert size * (1 + len(formats)) < message["error"]["required_bytes"] < 1.2 * size * (1 + len(formats)), \
                message
            assert "1 image of 512 x 512 x 1 in 1 channel" in message["error"]["detail"], message
            assert "density" not in [step["step"] for step in progress], "nothing was computed"
            same(os.path.getsize(f"{folder}/{number}/image.h5"), 0, "bytes written")


@test("serve: a job that fails is answered with its problem, and the worker continues")
def served_failure():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        bad = scans.radial()
        bad.data[5, 0, 0] = np.inf
        bad.write(f"{folder}/bad.h5")
        scans.radial().write(f"{folder}/good.h5")
        for number, (name, parameters, code) in enumerate((("bad", {}, "data-nonfinite"),
                                                           ("good", {"width": "99"}, "bad-parameter"),
                                                           ("good", {"dcff": "none"}, "unknown-parameter"))):
            served.job("x", f"{folder}/{name}.h5", f"{folder}/{number}", **parameters)
            failed, _ = served.answer("x")
            same((failed["type"], failed["error"]["code"], failed["fatal"]), ("failed", code, False),
                 f"answer {failed}")
            same(os.path.getsize(f"{folder}/{number}/image.h5"), 0, "bytes of the image")
            if name == "bad":
                same(failed["error"]["acquisition_index"], 5, "acquisition")
        served.send(type="job", id="y", kind="recon", parameters={}, formats=[])
        same(served.answer("y")[0]["type"], "failed", "a job without files")
        # Too few or too many results, of unknown formats, read-only, or on a full disk.
        for paths, flags, formats, code in ((["a.h5"], os.O_RDWR, ["h5", "png"], "bad-request"),
                                            (["b.h5", "b.png"], os.O_RDWR, ["h5"], "bad-request"),
                                            (["c.jpg"], os.O_RDWR, ["jpg"], "bad-request"),
                                            (["d.h5"], os.O_RDONLY, ["h5"], "io-error"),
                                            (["e.h5", "/dev/full"], os.O_RDWR, ["h5", "npy"], "spool-full")):
            results = [os.open(os.path.join(folder, path), flags | os.O_CREAT) for path in paths]
            served.job_with([os.open(f"{folder}/good.h5", os.O_RDONLY), *results], "results", formats)
            failed = served.answer("results")[0]
            same((failed["type"], failed["error"]["code"]), ("failed", code),
                 f"answer {failed} to {paths} as {formats}")
        served.job("z", f"{folder}/good.h5", f"{folder}/z")
        same(served.answer("z")[0]["type"], "done", "the next job")


@test("serve: a job of thousands of iterations is reported at most ten times a second, without being slowed")
def served_progress():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.radial(weights=False).write(f"{folder}/scan.h5")
        start = time.monotonic()
        served.job("many", scan, f"{folder}/many", dcf="pipe", dcf_iterations="1000")
        done, progress = served.answer("many")
        seconds = time.monotonic() - start
        same(done["type"], "done", f"answer {done}")
        assert 1 <= len(progress) <= 2 + 10 * seconds, f"{len(progress)} messages in {seconds:.3f} s"
        assert all(message["iteration"] <= message["iterations"] for message in progress), progress


@test("serve: pings are answered while a job runs, and cancel stops it")
def served_cancel():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.slow().write(f"{folder}/scan.h5")
        slow = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))
        served.job("slow", scan, f"{folder}/slow", **slow)
        while served.receive()["type"] != "progress":
            pass
        served.send(type="ping")
        while True:
            message = served.receive()
            assert message["type"] in ("progress", "status"), message
            if message["type"] == "status":
                break
        assert 0 < message["memory_available"] <= message["memory_total"], message
        served.send(type="cancel", id="another")
        served.job("second", scan, f"{folder}/second")
        while True:  # one job at a time
            message = served.receive()
            if message.get("id") == "second":
                same((message["type"], message["error"]["code"]), ("failed", "conflict"), "a second job")
                break
        served.send(type="cancel", id="slow")
        failed, _ = served.answer("slow")
        same((failed["type"], failed["error"]["code"]), ("failed", "canceled"), "answer")
        same(os.path.getsize(f"{folder}/slow/image.h5"), 0, "bytes of the image")
        served.job("after", scans.radial().write(f"{folder}/small.h5"), f"{folder}/after")
        same(served.answer("after")[0]["type"], "done", "the next job")


@test("serve: a scan is prefetched beside a running job; forgotten, replaced or damaged ones do no harm")
def served_ahead():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        good, large, slow, bad = (f"{folder}/{name}.h5" for name in ("good", "large", "slow", "bad"))
        scan = scans.radial(seed=8)
        scan.write(good)
        scans.radial(matrix=(64, 64, 1), spokes=2000, samples=512, coils=8, weights=True).write(large)
        scans.slow().write(slow)
        with open(bad, "wb") as file:
            file.write(scan.bytes(folder)[:3000])
        slowly = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))

        def descriptors():  # memory may be preallocated for one scan
            links = []
            for path in glob.glob(f"/proc/{served.process.pid}/fd/*"):
                with contextlib.suppress(FileNotFoundError):
                    links.append(os.readlink(path))
            aside = [link for link in links if "memfd:mrirecon-scan" in link]
            return len(links) - min(len(aside), 1)

        def used_up(before):  # a decoder is used once, so its end shows that a scan was read
            wait_until(lambda: not set(before) <= set(served.decoders()), "a scan to be read")
        served.ready(2)
        before_all = descriptors()
        for identity, first, path, code in (("a", None, good, None), ("b", slow, good, None),
                                            ("c", None, bad, "truncated-file"), ("d", slow, bad, "truncated-file")):
            if first:
                served.job("first", first, f"{folder}/first-{identity}", **slowly)
                while served.receive()["type"] != "progress":
                    pass
            # Beside a job one decoder is pre-started, or two that were started before it.
            before = served.ready(1 if first else 2)
            served.prepare(identity, path)
            used_up(before)
            if first:
                served.send(type="cancel", id="first")
                same(served.answer("first")[0]["error"]["code"], "canceled", "first job")
            served.job(identity, path, f"{folder}/{identity}", ["npy"], tolerance="1e-5")
            answer = served.answer(identity)[0]
            if code:
                same((answer["type"], answer["error"]["code"]), ("failed", code), f"answer {answer}")
                continue
            same(answer["type"], "done", f"answer {answer}")
            report = answer["report"]
            # The reading may end after the job has begun.
            assert 0 < report["decode_ahead_seconds"] <= report["stages"]["decode"], report
            close(np.load(f"{folder}/{identity}/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
        # Hints that are forgotten, replaced, too late, or of a different job than the next one.
        for round_ in range(3):
            for identity in ("x", "y", "z"):
                served.prepare(identity, large if round_ % 2 else good)
            served.send(type="forget", id=("z", "x", "nobody")[round_])
            served.prepare("odd", good, nonsense="1")
            served.job("other", good, f"{folder}/other-{round_}", ["npy"], tolerance="1e-5")
            same(served.answer("other")[0]["type"], "done", "a job of another name")
            close(np.load(f"{folder}/other-{round_}/image.npy"),
                  np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
        served.send(type="forget", id="z")
        wait_until(lambda: descriptors() == before_all, "descriptors of what was read ahead to be closed")


@test("serve: a job is computed before it begins, and gives the results that it would give otherwise")
def served_computed_ahead():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scan = scans.radial(seed=8)
        path = scan.write(f"{folder}/scan.h5")
        served.job("plain", path, f"{folder}/plain", ["npy"], tolerance="1e-5")
        plain = served.answer("plain")[0]
        same((plain["type"], "ahead_seconds" in plain["report"]), ("done", False), f"answer {plain}")

        def prepare(identity, formats=("npy",)):
            served.prepare(identity, path, formats, tolerance="1e-5")
            wait_until(lambda: len(served.computed()) == 1 + len(formats) and all(served.computed()),
                       "a job to be computed ahead")

        def content(identity, name):
            with open(f"{folder}/{identity}/{name}", "rb") as file:
                return file.read()
        prepare("same")
        served.send(type="ping")
        same(served.receive()["type"], "status", "first message after a job was computed: nothing is told of it")
        served.job("same", path, f"{folder}/same", ["npy"], tolerance="1e-5")
        done = served.answer("same")[0]
        same(done["type"], "done", f"answer {done}")
        same(content("same", "image.npy"), content("plain", "image.npy"), "bytes of the image")
        close(np.load(f"{folder}/same/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])
        same(len(content("same", "image.h5")), len(content("plain", "image.h5")), "size of the native file")
        assert (0 < done["report"]["ahead_seconds"] <= done["report"]["seconds"] +
                done["report"]["stages"]["write"]), done["report"]
        # The computed results cannot be used: other formats are requested, there is no room, or the job does not begin.
        prepare("others", ())
        served.job("others", path, f"{folder}/others", ["npy"], tolerance="1e-5")
        done = served.answer("others")[0]
        same((done["type"], "ahead_seconds" in done["report"]), ("done", False), f"answer {done}")
        same(content("others", "image.npy"), content("plain", "image.npy"), "bytes of the image")
        prepare("large")
        served.job("large", path, f"{folder}/large", ["npy"],
                   {"most": 100, "most_of": "option result-limit", "free": 0}, tolerance="1e-5")
        same(served.answer("large")[0]["error"]["code"], "result-too-large", "without room")
        served.prepare("refused", path, ["npy"], {"most": 100}, tolerance="1e-5")
        wait_until(lambda: len(served.computed()) == 2, "the files of a job to be made that is not computed ahead")
        served.job("refused", path, f"{folder}/refused", ["npy"], tolerance="1e-5")
        done = served.answer("refused")[0]
        same((done["type"], "ahead_seconds" in done["report"]), ("done", False), f"answer {done}")
        prepare("gone")
        served.send(type="forget", id="gone")
        wait_until(lambda: not served.computed(), "what was computed to be forgotten")
        prepare("late")
        served.job("another", path, f"{folder}/another", ["npy"], tolerance="1e-5")
        same(served.answer("another")[0]["type"], "done", "another job")
        same(content("another", "image.npy"), content("plain", "image.npy"), "bytes of the image")


@test("serve: a job that is computed before it begins writes to its files if it has them, and to no old content")
def served_computed_into_files():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        path = scans.radial(seed=8).write(f"{folder}/scan.h5")

        def content(identity, name):
            with open(f"{folder}/{identity}/{name}", "rb") as file:
                return file.read()

        def held(identity):
            found = glob.glob(f"/proc/{served.process.pid}/fd/*")
            return [name for name in found if f"/{identity}/" in os.path.realpath(name)]

        def check(identity, formats, ahead, prepared=None, room=None):
            """Prepare a job with its files, for `prepared` in place of the formats, and run it with these files."""
            written = files(f"{folder}/{identity}", ["h5", *formats])
            served.prepare(identity, path, prepared or formats, room, written, tolerance="1e-5")
            if room:
                served.send(type="ping")
                same(served.receive()["type"], "status", "the answer to a ping")
            else:
                made = served.answer(identity)[0]
                same((made["type"], made["report"]["ahead_seconds"] > 0), ("made", True), f"message {made}")
                same((all(os.fstat(fd).st_size for fd in written), held(identity)), (True, []),
                     "whether the files are written, and those that it holds")
            same(served.computed(), [], "results in memory")
            served.job_with([os.open(path, os.O_RDONLY), *written], identity, ["h5", *formats], tolerance="1e-5")
            done = served.answer(identity)[0]
            same((done["type"], "ahead_seconds" in done["report"]), ("done", ahead), f"answer {done}")
            same(held(identity), [], "files that it holds")
            served.job(f"{identity} again", path, f"{folder}/{identity} again", formats, tolerance="1e-5")
            same(served.answer(f"{identity} again")[0]["type"], "done", "the same job, not prepared")
            for name in formats:
                same(content(identity, f"image.{name}"), content(f"{identity} again", f"image.{name}"), name)
            with h5py.File(f"{folder}/{identity}/image.h5") as file, \
                    h5py.File(f"{folder}/{identity} again/image.h5") as again:
                np.testing.assert_array_equal(file["dataset/image_0/data"], again["dataset/image_0/data"])
        check("same", ["npy", "png"], True)
        check("other", ["npy", "png"], False, ["png", "npy"])
        check("refused", ["npy"], False, room={"most": 100})


@test("serve: a long job that is computed before it begins reports progress from its begin, and can be canceled")
def served_computed_ahead_slowly():
    slowly = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        slow = scans.slow().write(f"{folder}/slow.h5")
        served.prepare("slow", slow, **slowly)
        wait_until(served.computed, "a job to be computed ahead")
        served.job("slow", slow, f"{folder}/slow", **slowly)
        same(served.receive()["type"], "progress", "first message")
        served.send(type="cancel", id="slow")
        same(served.answer("slow")[0]["error"]["code"], "canceled", "answer")
        same(os.path.getsize(f"{folder}/slow/image.h5"), 0, "bytes of the image")
        # Another job interrupts one that has not begun.
        served.prepare("slow", slow, **slowly)
        wait_until(served.computed, "a job to be computed ahead")
        served.job("quick", scans.radial().write(f"{folder}/small.h5"), f"{folder}/quick")
        same(served.answer("quick")[0]["type"], "done", "the job that interrupts")


@test("serve: decoders that a ping asks for while a stream is read are started after its job")
def served_ping():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        path = f"{folder}/scan.mrd"
        *most, last = scans.radial().messages()

        def files(process):
            links = []
            for link in glob.glob(f"/proc/{process}/fd/*"):
                with contextlib.suppress(OSError):
                    links.append(os.readlink(link))
            return links

        def state(process):
            with open(f"/proc/{process}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        first = served.ready(2)
        template, = set(children_of(served.process.pid)) - set(first)
        # It tells the worker of a decoder after the decoder stands ready, and then sleeps.
        wait_until(lambda: state(template) == "S", "the template to have nothing to do")
        os.kill(template, signal.SIGSTOP)  # who has a decoder forked waits
        wait_until(lambda: state(template) == "T", "the template to stop")
        with open(path, "wb") as file:
            file.writelines(most)
        scan = os.open(path, os.O_RDONLY)
        served.send([scan], type="prepare", id="stream", kind="recon", parameters={}, files=["image.h5"],
                    arriving="stream")
        os.close(scan)
        wait_until(lambda: any(path in files(process) for process in first), "a stream to be read")
        served.send(type="ping")
        same(served.receive()["type"], "status", "the answer to a ping")
        with open(path, "ab") as file:
            file.write(last)
        wait_until(lambda: len(served.decoders()) == 1, "the stream to be read to its end")
        served.prepare("next", scans.radial().write(f"{folder}/next.h5"))
        wait_until(lambda: not served.decoders(), "the next input to be read")
        same(state(template), "T", "the template, for which nobody has waited in vain")
        os.kill(template, signal.SIGCONT)
        served.job("next", f"{folder}/next.h5", f"{folder}/next")
        same(served.answer("next")[0]["type"], "done", "the next job")
        served.ready(2)


@test("serve: a scan too large to be prefetched beside a job is read again when its own job begins")
def served_ahead_memory():
    # The flat scan takes about 0.6 MB: more than a quarter of the limit, and less than the limit.
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served("--memory", "1500000") as served:
        scan = scans.radial(spokes=60, samples=96, coils=10)
        path = f"{folder}/scan.mrd"  # not HDF5, where samples stay in the file
        with open(path, "wb") as file:
            file.writelines(scan.messages())
        before = served.ready(2)
        served.prepare("job", path)
        wait_until(lambda: not set(before) <= set(served.decoders()), "a scan to be read")
        served.job("job", path, f"{folder}/job", ["npy"], tolerance="1e-5")
        done = served.answer("job")[0]
        same(done["type"], "done", f"answer {done}")
        assert 375000 < done["report"]["scan_bytes"] < 1500000, done["report"]
        same(done["report"]["decode_ahead_seconds"], 0, "what was decoded ahead")
        close(np.load(f"{folder}/job/image.npy"), np.sqrt((np.abs(scan.adjoint()) ** 2).sum(0))[None, None])


@test("serve: a job that waits for a long scan is canceled, also if reading began ahead")
def served_ahead_cancel():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        scans.radial(matrix=(64, 64, 1), spokes=8000, samples=512, coils=8, weights=True).write(f"{folder}/large.h5")
        canceled = 0
        for number in range(4):
            if number % 2:
                served.prepare(f"job-{number}", f"{folder}/large.h5")
            served.job(f"job-{number}", f"{folder}/large.h5", f"{folder}/{number}")
            served.send(type="cancel", id=f"job-{number}")
            answer = served.answer(f"job-{number}")[0]
            canceled += answer["type"] == "failed" and answer["error"]["code"] == "canceled"
        assert canceled, "no job was canceled in time"
        scans.radial().write(f"{folder}/small.h5")
        served.job("after", f"{folder}/small.h5", f"{folder}/after")
        same(served.answer("after")[0]["type"], "done", "the next job")


@test("serve: the worker ends with the daemon, also during a job")
def served_orphan():
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder, Served() as served:
        slow = dict(word.split("=") for word in scans.SLOW_QUERY.split("&") if not word.startswith("kind="))
        served.job("slow", scans.slow().write(f"{folder}/scan.h5"), f"{folder}/slow", **slow)
        while served.receive()["type"] != "progress":
            pass


if __name__ == "__main__":
    main()
