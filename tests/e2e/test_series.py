#!/usr/bin/python3
"""Series in time through the daemon: a moving phantom acquired without a break, divided into images, reconstructed
together.
"""
import io
import tarfile
import tempfile

import numpy as np

import scans
from harness import Daemon, client, main, same, test

FOLDER = tempfile.TemporaryDirectory()
FRAMES, SPOKES, MATRIX = 8, 8, 32


def simulate(name, *words):
    path = f"{FOLDER.name}/{name}.h5"
    client(None, "simulate", "--trajectory", "golden", "--matrix", str(MATRIX), "--coils", "3", "--readouts",
           str(FRAMES * SPOKES), "--motion", "1", *words, "--out", path)
    return path


def submitted(daemon, path, query, state="succeeded"):
    with open(path, "rb") as file:
        job = daemon.finish(daemon.submit(file, f"kind=recon&{query}").expect(202).json()["id"])
    same(job["state"], state, f"state ({job['error']})")
    return job


def images_of(daemon, job):
    data = daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body
    return np.load(io.BytesIO(data), allow_pickle=False)


def decisions(job):
    return {entry["what"]: entry for entry in job["report"]["decisions"]}


@test("frames=8: eight images in time, the same by count and by time stamps")
def divided(daemon):
    path = simulate("divided")
    job = submitted(daemon, path, f"frames={FRAMES}")
    images = images_of(daemon, job)
    same(images.shape, (FRAMES, 1, 1, MATRIX, MATRIX), "shape")
    same(decisions(job)["frames"]["value"], str(FRAMES), "decision")
    for query in (f"frames={FRAMES}&frame_by=time", f"frame_readouts={SPOKES}"):
        assert np.array_equal(images_of(daemon, submitted(daemon, path, query)), images), query
    wide = images_of(daemon, submitted(daemon, path, f"frames={FRAMES}&frame_window=3"))
    assert wide.shape == images.shape and not np.array_equal(wide, images)


@test("temporal-tv and llr: each image three times as close to its truth as gridding, and the same bytes again")
def together(daemon):
    truth = f"{FOLDER.name}/truth.npy"
    path = simulate("moving", "--noise", "0.005", "--truth", truth, "--truth-frames", str(FRAMES))
    expected = np.load(truth).reshape(FRAMES, MATRIX, MATRIX)

    def error(images):
        return max(scans.nrmse(images[f, 0, 0], expected[f]) for f in range(FRAMES))
    alone = error(images_of(daemon, submitted(daemon, path, f"frames={FRAMES}")))
    for method in ("temporal-tv", "llr"):
        job = submitted(daemon, path, f"frames={FRAMES}&method={method}")
        images = images_of(daemon, job)
        assert error(images) < alone / 3, f"{method} {error(images):.3f}, adjoint {alone:.3f}"
        told = decisions(job)
        assert "mean of the series" in told["coils"]["reason"] and told["time"]["value"] == "repetition", told
    assert np.array_equal(images_of(daemon, submitted(daemon, path, f"frames={FRAMES}&method=llr")),
                          images), "different bytes"


@test("cfl.tar: BART's image.hdr and image.cfl of a series, with npy's values")
def bart(daemon):
    job = submitted(daemon, simulate("bart"), f"frames={FRAMES}&coils=adaptive&output=complex")
    answer = daemon.get(f"/v1/jobs/{job['id']}/results/image",
                        Accept="application/x-tar").expect(200, "application/x-tar")
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        same(archive.getnames(), ["image.hdr", "image.cfl"], "members")
        header, data = (archive.extractfile(name).read() for name in archive.getnames())
    sizes = [int(n) for n in header.decode().split("\n")[1].split()]
    same((len(sizes), sizes[:2], sizes[10]), (16, [MATRIX, MATRIX], FRAMES), "dimensions")
    seen = np.frombuffer(data, "<c8").reshape(sizes[::-1]).squeeze()
    assert np.array_equal(seen, images_of(daemon, job).squeeze()), "different values"


@test("contradictory divisions are refused at once; those that do not fit the scan fail with a reason")
def refused(daemon):
    path = simulate("refused")
    with open(path, "rb") as file:
        scan = file.read()
    for query in ("frames=8&frame_readouts=8", "frame_by=time", "frame_window=2", "frames=0",
                  "frames=2&averages=separate", "method=llr&frames=8&coils=none"):
        problem = daemon.submit(scan, f"kind=recon&{query}").expect(400).json()
        same(problem["code"], "bad-parameter", query)
    for query in ("frames=65", "frame_readouts=65", "method=temporal-tv"):
        job = submitted(daemon, path, query, "failed")
        same(job["error"]["code"], "bad-parameter", query)


if __name__ == "__main__":
    main(Daemon)
