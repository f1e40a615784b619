#!/usr/bin/python3
"""MRD streams over TCP: clients of Gadgetron's protocol get their images, every session is a job, and a bad stream
affects only its sender.
"""
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile

import numpy as np

import mrd
import scans
from harness import BIN, ROOT, Daemon, main, same, test, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import mrd_streams  # noqa: E402

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-mrd-")
CONFIGS = f"{FOLDER.name}/configs"
QUERY = "kind=recon&output=complex&coils=none"
SCAN = scans.radial(coils=2)
MESSAGES = list(SCAN.messages())

with open(CONFIGS, "w") as file:
    file.write(f"# Protocols\n\nraw {QUERY}\ncine.xml\tkind=recon&priority=urgent&name=cine\n")


def start(**options):
    return Daemon(mrd_listen="127.0.0.1:0", mrd_configs=CONFIGS, **options)


def newest(daemon):
    return daemon.get("/v1/jobs?limit=1").expect(200).json()["jobs"][0]


def expected(daemon):
    job = daemon.run(SCAN.bytes(FOLDER.name), QUERY)
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))


def count_of(daemon):
    return len(daemon.get("/v1/jobs?limit=100").json()["jobs"])


def ended(daemon, how):
    return daemon.metrics()[f'mrirecond_mrd_sessions_total{{end="{how}"}}']


@test("a client of Gadgetron's protocol: its images equal those of the HDF5 file; its session is a job")
def gadgetron(daemon):
    truth = expected(daemon)
    for name in ("raw", "raw.xml"):
        with mrd.Session(daemon) as session:
            images = session.send(mrd.config_file(name), *MESSAGES).images()
        same(len(images), len(truth), "images")
        for (head, pixels), frame in zip(images, truth):
            same((int(head["data_type"]), int(head["image_type"])), (7, 5), "type of data and of image")
            assert np.array_equal(pixels, frame), "other pixels"
    job = daemon.job(newest(daemon)["id"])
    same((job["kind"], job["state"], job["client"], job["parameters"]["output"]),
         ("recon", "succeeded", "127.0.0.1", "complex"), "job")
    waited = wait_until(lambda: ended(daemon, "answered") >= 2, "the count of sessions")
    assert waited and daemon.metrics()["mrirecond_mrd_sessions"] >= 0


@test("in any pieces, with waveforms, with NULs after texts, without a configuration: the same images")
def pieces(daemon):
    truth = expected(daemon)
    waveform = struct.pack("<H", mrd.WAVEFORM) + bytes(28) + struct.pack("<HH", 3, 2) + bytes(8) + bytes(4 * 6)
    header = mrd.text(mrd.HEADER, SCAN.xml.encode() + b"\0")
    whole = b"".join([mrd.text(mrd.CONFIG_TEXT, QUERY + "\0"), header, waveform, *MESSAGES[1:-1], waveform,
                      MESSAGES[-1]])
    for size in (len(whole), 1000, 7):
        with mrd.Session(daemon) as session:
            session.send(*(whole[at:at + size] for at in range(0, len(whole), size)))
            (_, pixels), = session.images()
        assert np.array_equal(pixels, truth[0]), f"pieces of {size} bytes"
    with mrd.Session(daemon) as session:
        (head, pixels), = session.send(*MESSAGES).images()
    same((int(head["data_type"]), int(head["image_type"])), (5, 1), "magnitudes by default")


@test("FIRE and OpenRecon: parameters as JSON, also after the header, and the configuration that they name")
def fire(daemon):
    truth = expected(daemon)
    chosen = json.dumps({"version": "1.0", "parameters": {"config": "raw", "tolerance": 1e-3,
                                                          "name": "knee & \"hip\""}})
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("cine"), MESSAGES[0], mrd.text(mrd.TEXT, chosen + "\0"), *MESSAGES[1:])
        (_, pixels), = session.images()
    assert pixels.shape == truth[0].shape and pixels.dtype == truth.dtype, "a different configuration"
    job = daemon.job(newest(daemon)["id"])
    same((job["name"], float(job["parameters"]["tolerance"])), ('knee & "hip"', 1e-3), "name and tolerance")
    # A configuration of one's own has a second member, empty if there is none; it overrides the first, in any order.
    for parameters, name, output in (('"customconfig": "raw", "config": "cine"', "", "complex"),
                                     ('"config": "raw", "customconfig": ""', "", "complex"),
                                     ('"customconfig": ""', "cine", "magnitude")):
        with mrd.Session(daemon) as session:
            session.send(mrd.config_file("cine"), MESSAGES[0],
                         mrd.text(mrd.TEXT, '{"parameters": {%s}}' % parameters), *MESSAGES[1:]).images()
        job = daemon.job(newest(daemon)["id"])
        same((job["name"], job["parameters"]["output"]), (name, output), f"what {parameters} gives")
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("cine"), mrd.text(mrd.CONFIG_TEXT, '{"coils": "none", "output": "complex"}'),
                     *MESSAGES).images()
    job = daemon.job(newest(daemon)["id"])
    same((job["name"], job["priority"], job["parameters"]["output"]), ("cine", "urgent", "complex"),
         "of the configuration, and the text")


@test("errors of a stream are answered at once as text, and create no job")
def refused(daemon):
    before = count_of(daemon)
    head, acquisition = MESSAGES[:2]
    nested = "[" * 5000
    for what, sent, code, said in (
            ("a path", mrd.config_file("../../etc/passwd"), "bad-parameter", "raw, cine.xml, default"),
            ("a configuration that is none", mrd.config_file("\x1b[31mspiral"), "bad-parameter", "no configuration"),
            ("a chain of gadgets", mrd.text(mrd.CONFIG_TEXT, "<gadgetronStreamConfiguration/>"), "bad-parameter",
             "gadgets"),
            ("a parameter that is none", mrd.text(mrd.CONFIG_TEXT, "spirals=7") + head, "unknown-parameter", "spirals"),
            ("a value that is none", mrd.text(mrd.CONFIG_TEXT, '{"tolerance": "x"}') + head, "bad-parameter",
             "tolerance"),
            ("a number for a name", mrd.text(mrd.CONFIG_TEXT, '{"customconfig": 7}') + head, "bad-parameter",
             "customconfig"),
            ("lists in JSON", mrd.text(mrd.CONFIG_TEXT, '{"a": ' + nested + "}"), "bad-parameter", "JSON"),
            ("a long text", struct.pack("<HI", mrd.CONFIG_TEXT, 1 << 30) + b"a=" + bytes(20000), "limit-exceeded",
             "16384"),
            ("a kind that reads no streams", mrd.text(mrd.CONFIG_TEXT, "kind=nbody") + head, "bad-parameter", "nbody"),
            ("data before the header", acquisition, "malformed-file", "before its header"),
            ("a configuration behind the header", head + mrd.config_file("raw"), "malformed-file", "after its header"),
            ("a number that is none", head + acquisition + struct.pack("<H", 4711), "malformed-file", "4711"),
            ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "malformed-file", "number")):
        with mrd.Session(daemon) as session:
            failure = session.send(sent).failure()
        assert failure.startswith(code + ": ") and said in failure and "\x1b" not in failure, f"{what}: {failure}"
    with mrd.Session(daemon) as session:
        same(session.send(struct.pack("<H", mrd.CLOSE)).messages(), [], "messages to a client that only closes")
    same(count_of(daemon), before, "jobs")
    same([name for name in daemon.files() if name.endswith(".part")], [], "files that were begun")


@test("a scan that cannot be reconstructed: the job's error as a text; only the codec reads acquisitions")
def failing(daemon):
    bad = scans.radial(coils=2)
    bad.traj[3, 5] = np.nan
    with mrd.Session(daemon) as session:
        failure = session.send(mrd.config_file("default"), *bad.messages()).failure()
    job = daemon.job(newest(daemon)["id"])
    same(job["state"], "failed", "state")
    same(failure, f"{job['error']['code']}: {job['error']['detail']}", "what the client is told")
    with mrd.Session(daemon) as session:
        failure = session.send(mrd.text(mrd.HEADER, "<ismrmrdHeader"), *MESSAGES[1:]).failure()
    assert failure.startswith("header-invalid: "), failure


@test("a stream that breaks off is a failed job with the part that arrived, distinct from one that was closed")
def broken(daemon):
    counted = ended(daemon, "broken")
    for cut in (MESSAGES[:-1], MESSAGES[:5] + [MESSAGES[5][:400]]):
        with mrd.Session(daemon) as session:
            session.send(*cut).socket.shutdown(1)
            failure = session.failure()
        assert failure.startswith("truncated-file: ") and "without CLOSE" in failure, failure
        job = daemon.job(newest(daemon)["id"])
        same((job["state"], job["error"]["code"], job["bytes"]), ("failed", "truncated-file", sum(map(len, cut))),
             "job")
    before = count_of(daemon)
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("raw"), MESSAGES[0]).socket.shutdown(1)
        session.failure()
    same(count_of(daemon), before, "jobs, without an acquisition")
    wait_until(lambda: ended(daemon, "broken") == counted + 3, "the count of broken sessions")


@test("a stream that breaks off when the queue has no room for its job is let go by its decoder")
def broken_without_room():
    with start(devices="cpu", work_reserve="900T", queue_limit=1) as daemon:  # no job begins
        with mrd.Session(daemon) as session:
            session.send(mrd.config_file("raw"), *MESSAGES[:20])
            wait_until(lambda: mrd.followers(daemon), "a decoder that follows the stream")
            daemon.submit(SCAN.bytes(FOLDER.name)).expect(202)
        wait_until(lambda: ended(daemon, "broken"), "the session's end")
        same(count_of(daemon), 1, "jobs")
        wait_until(lambda: not mrd.readers(daemon), "the decoder's end: it would keep the removed file's space")


@test("a client that leaves after CLOSE, or is told that the service stops, still has its job")
def left():
    with start(drain_time=0) as daemon:
        with daemon.paused():
            with mrd.Session(daemon) as gone:
                gone.send(mrd.config_file("raw"), *MESSAGES)
                wait_until(lambda: count_of(daemon) == 1, "the job")
            stays = mrd.Session(daemon).send(mrd.config_file("raw"), *MESSAGES)
            receiving = mrd.Session(daemon).send(mrd.config_file("raw"), *MESSAGES[:4])
            wait_until(lambda: count_of(daemon) == 2 and any(name.endswith(".part") for name in daemon.files()),
                       "all three sessions")
            daemon.process.send_signal(signal.SIGTERM)
            with stays, receiving:
                failure = receiving.failure()
                assert failure.startswith("draining: "), failure
                failure = stays.failure()
                assert "continues" in failure, failure
            daemon.process.wait(120)
        daemon.restart()
        jobs = daemon.get("/v1/jobs").json()["jobs"]
        same([daemon.finish(job["id"])["state"] for job in jobs], ["succeeded", "succeeded"],
             "states after the restart")


@test("a stream is read while it arrives, with the same image; a job that arrives meanwhile runs first")
def inline(daemon):
    truth = expected(daemon)
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("raw"), *MESSAGES[:12])
        wait_until(lambda: mrd.followers(daemon), "a decoder that reads what has arrived")
        (_, pixels), = session.send(*MESSAGES[12:]).images()
    assert np.array_equal(pixels, truth[0]), "other pixels"
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("raw"), *MESSAGES[:12])
        wait_until(lambda: mrd.followers(daemon), "a decoder that reads what has arrived")
        assert np.array_equal(expected(daemon), truth), "a different image of the job that arrived meanwhile"
        (_, pixels), = session.send(*MESSAGES[12:]).images()
    assert np.array_equal(pixels, truth[0]), "different pixels after another job"
    with mrd.Session(daemon) as session:
        session.send(mrd.config_file("raw"), *MESSAGES[:12])
        wait_until(lambda: mrd.followers(daemon), "a decoder that reads what has arrived")
        session.socket.shutdown(1)
        session.failure()
    wait_until(lambda: not mrd.followers(daemon), "the end of the decoder of a stream that broke off")


@test("kill -9: a closed session is a job after the restart, an unfinished one leaves nothing")
def killed():
    with start() as daemon:
        with daemon.paused():
            with mrd.Session(daemon) as done, mrd.Session(daemon) as half:
                done.send(mrd.config_file("raw"), *MESSAGES)
                half.send(mrd.config_file("raw"), *MESSAGES[:9])
                wait_until(lambda: count_of(daemon) == 1 and any(name.endswith(".part") for name in daemon.files()),
                           "both sessions")
                daemon.kill()
        daemon.restart()
        (job,) = daemon.get("/v1/jobs").json()["jobs"]
        same(daemon.finish(job["id"])["state"], "succeeded", "state")
        same([name for name in daemon.files() if name.endswith(".part")], [], "files that were begun")


@test("limits: sessions in total and per client, waiting jobs, bytes, addresses")
def limits():
    with start(mrd_sessions=3, body_limit="20K", mrd_clients="127.0.0.1=scanner") as daemon:
        with mrd.Session(daemon) as first, mrd.Session(daemon) as second:
            first.send(mrd.config_file("raw"), *MESSAGES[:4])
            second.send(mrd.config_file("raw"), *MESSAGES[:4])
            wait_until(lambda: daemon.metrics()["mrirecond_mrd_sessions"] == 2, "two sessions")
            with mrd.Session(daemon) as third:
                failure = third.failure()
                assert "half of all" in failure, failure
            big = scans.radial(coils=2, spokes=61)
            failure = second.send(*list(big.messages())[1:]).failure()
            assert failure.startswith("body-too-large: "), failure
    with start(client_jobs=1, mrd_clients="127.0.0.1=scanner") as daemon, daemon.paused():
        for state in ("running", "queued"):
            job = daemon.submit(SCAN.bytes(FOLDER.name), QUERY, X_Mrirecond_Client="scanner").expect(202).json()
            wait_until(lambda: daemon.job(job["id"])["state"] == state, f"a job that is {state}")
        with mrd.Session(daemon) as session:
            failure = session.send(mrd.config_file("raw"), MESSAGES[0]).failure()
        assert failure.startswith("client-quota: "), failure
    with start(mrd_clients="192.0.2.1") as daemon:
        with mrd.Session(daemon) as session:
            failure = session.failure()
        assert failure.startswith("forbidden: ") and "127.0.0.1" in failure, failure


@test("a hundred mutated streams: each is answered, and nothing but jobs remains of them")
def mutated():
    figures, wrong = mrd_streams.run(100, clients=4, seed=3)
    assert not wrong, wrong
    same((figures["streams"], figures["decoder_deaths"]), (100, {"told to clients": {}, "logged": {}}),
         "streams, and decoders that died")


@test("a start without what MRD needs is refused with the reason")
def options():
    tokens = f"{FOLDER.name}/tokens"
    subprocess.run([os.path.join(BIN, "mrirecond"), "--new-token", "a", "admin", "--tokens", tokens], check=True,
                   stdout=subprocess.DEVNULL)
    with open(f"{FOLDER.name}/bad", "w") as bad:
        bad.write("fine kind=recon\nspiral kind=recon&turns=7\n")
    for words, said in ((["--mrd-listen", "0.0.0.0:0"], "mrd-clients"),
                        (["--mrd-listen", "127.0.0.1:0", "--tokens", tokens], "tokens"),
                        (["--mrd-listen", "localhost"], "not an address"),
                        (["--mrd-listen", "127.0.0.1:0", "--mrd-clients", "scanner"], "mrd-clients"),
                        (["--mrd-listen", "127.0.0.1:0", "--mrd-configs", f"{FOLDER.name}/bad"],
                         "bad:2: Kind recon has no parameter named"),
                        (["--mrd-listen", "127.0.0.1:0", "--mrd-configs", f"{FOLDER.name}/none"], "cannot be read")):
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--check-config", "--state-dir", FOLDER.name, *words],
                              capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr, (words, done)
    done = subprocess.run([os.path.join(BIN, "mrirecond"), "--check-config", "--state-dir", FOLDER.name, "--mrd-listen",
                           "0.0.0.0:0",
                           "--mrd-clients", "192.0.2.0/24", "--tokens", tokens, "--mrd-configs", CONFIGS],
                          capture_output=True, text=True)
    same((done.returncode, done.stderr), (0, ""), "status and complaint of a sound configuration")


if __name__ == "__main__":
    main(start)
