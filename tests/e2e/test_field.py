#!/usr/bin/python3
"""Off-resonance through the daemon: a blurred spiral with its field map, as ISMRMRD and as arrays; maps that are
refused.
"""
import io
import shutil
import tempfile

import h5py
import numpy as np

import scans
from harness import Daemon, client, main, same, test

FOLDER = tempfile.TemporaryDirectory()
MATRIX = 64
SPIRAL, TRUTH = f"{FOLDER.name}/spiral.h5", f"{FOLDER.name}/truth.npy"


def submitted(daemon, body, query, state="succeeded"):
    job = daemon.run(body, f"kind=recon&{query}")
    same(job["state"], state, f"state ({job['error']})")
    return job


def image_of(daemon, job):
    data = daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body
    return np.load(io.BytesIO(data), allow_pickle=False).squeeze()


def decided(job, what):
    return next((entry for entry in job["report"]["decisions"] if entry["what"] == what), None)


def changed(change):
    path = f"{FOLDER.name}/changed.h5"
    shutil.copy(SPIRAL, path)
    with h5py.File(path, "r+") as file:
        change(file["dataset"])
    with open(path, "rb") as file:
        return file.read()


def replace(group, name, values):
    if name in group:
        del group[name]
    group[name] = values


@test("a spiral with its field map: conjugate phase removes most of the blur, iteration nearly all")
def blur(daemon):
    client(None, "simulate", "--trajectory", "spiral", "--matrix", str(MATRIX), "--coils", "4", "--readouts", "4",
           "--noise", "0.005", "--off-resonance", "250", "--truth", TRUTH, "--out", SPIRAL)
    truth = np.load(TRUTH).squeeze()
    with open(SPIRAL, "rb") as file:
        body = file.read()

    def error(query):
        job = submitted(daemon, body, query)
        seen = image_of(daemon, job)
        return scans.nrmse(seen * (seen * truth).sum() / (seen * seen).sum(), truth), job
    # Blurred images have an error of 0.4, corrected ones of 0.12 and 0.04.
    for query, before, after in (("coils=sense", 0.3, 0.15), ("method=cg-sense", 0.3, 0.08), ("method=tv", 0.3, 0.08)):
        blurred, job = error(f"{query}&off_resonance=off")
        same(decided(job, "off-resonance")["value"], "off", "decision")
        sharp, job = error(query)
        decision = decided(job, "off-resonance")
        assert decision["value"].endswith("segments") and "Hz" in decision["reason"], decision
        assert blurred > before and sharp < after, (query, blurred, sharp)


@test("arrays with fieldmap and times give the image of the ISMRMRD scan, also for a map with axes of length 1")
def arrays(daemon):
    with h5py.File(SPIRAL) as file:
        rows, field = file["dataset/data"][:], file["dataset/fieldmap"][:]
        samples = int(rows[0]["head"]["number_of_samples"])
        dwell = float(rows[0]["head"]["sample_time_us"])
    kspace = np.stack([row["data"].view("c8").reshape(-1, samples) for row in rows], 1)
    trajectory = np.stack([row["traj"].reshape(samples, -1) for row in rows])
    scan = {"kspace": kspace, "trajectory": trajectory, "fieldmap": field, "times": np.arange(samples) * dwell * 1e-6}
    with open(SPIRAL, "rb") as file:
        expected = image_of(daemon, submitted(daemon, file.read(), ""))
    query = f"size={MATRIX},{MATRIX}&fov_mm={2 * MATRIX},{2 * MATRIX}"

    def npz(**other):
        file = io.BytesIO()
        np.savez(file, **{**scan, **other})
        return file.getvalue()
    seen = image_of(daemon, submitted(daemon, npz(), query))
    # Times may be float32 products or float32 numbers: the last bits of the interpolators differ.
    assert scans.nrmse(seen, expected) < 1e-5, scans.nrmse(seen, expected)
    wide = changed(lambda group: replace(group, "fieldmap", field[None, None].astype("f8")))
    assert np.array_equal(image_of(daemon, submitted(daemon, wide, "")), expected)
    for bad, code in ((npz(fieldmap=field[:, :-1]), "malformed-file"), (npz(fieldmap=1j * field), "malformed-file"),
                      (npz(times=scan["times"][:-1]), "malformed-file"),
                      (npz(times=scan["times"] * np.nan), "malformed-file"),
                      (npz(fieldmap=field * np.nan), "data-nonfinite")):
        job = submitted(daemon, bad, query, "failed")
        same(job["error"]["code"], code, job["error"]["detail"] if "detail" in job["error"] else "code")


@test("coil maps beside the acquisitions of an ISMRMRD file are used; errors of either map name it")
def beside(daemon):
    rng = np.random.default_rng(1)
    pair = np.dtype([("real", "<f4"), ("imag", "<f4")])
    maps = rng.normal(size=(4, MATRIX, MATRIX, 2)).astype("f4").view(pair)[..., 0]
    job = submitted(daemon, changed(lambda group: replace(group, "sensitivities", maps[None])),
                    "coils=sense&off_resonance=off")
    same(decided(job, "coils")["value"], "given", "decision")
    for name, values, code in (("sensitivities", maps[:, 1:], "malformed-file"),
                               ("sensitivities", maps[:3], "coils-differ"),
                               ("sensitivities", maps["real"], "malformed-file"),
                               ("fieldmap", np.zeros((MATRIX, 3), "f4"), "malformed-file"),
                               ("fieldmap", np.array(["text"], "S4"), "malformed-file"),
                               ("fieldmap", np.zeros((1,) * 9, "f4"), "malformed-file")):
        body = changed(lambda group, name=name, values=values: replace(group, name, values))
        job = submitted(daemon, body, "coils=sense", "failed")
        same(job["error"]["code"], code, f"{name} {values.shape}: {job['error']}")

    def timeless(group):
        rows = group["data"][:]
        for row in rows:
            row["head"]["sample_time_us"] = 0
        group["data"][:] = rows
    job = submitted(daemon, changed(timeless), "", "failed")
    same(job["error"]["code"], "malformed-file", "code")
    assert "sample_time_us" in str(job["error"]), job["error"]


@test("several slices, each with its own field map: from ISMRMRD and from arrays; as many maps as slices, or one")
def slices(daemon):
    path, true = f"{FOLDER.name}/slices.h5", f"{FOLDER.name}/slices.npy"
    client(None, "simulate", "--trajectory", "spiral", "--matrix", str(MATRIX), "--coils", "4", "--readouts", "4",
           "--slices", "3", "--off-resonance", "250", "--spacing", "1", "--truth", true, "--out", path)
    truth = np.load(true)
    with open(path, "rb") as file:
        body = file.read()
    with h5py.File(path) as file:
        rows, maps = file["dataset/data"][:], file["dataset/fieldmap"][:].squeeze()
    same(maps.shape, (3, MATRIX, MATRIX), "maps of slices")
    assert np.allclose(maps[1], maps[0][:, ::-1], atol=10), "the second slice's map is not the first mirrored"

    def errors(body, query):
        seen = image_of(daemon, submitted(daemon, body, query))
        return [scans.nrmse(a * (a * b).sum() / (a * a).sum(), b) for a, b in zip(seen, truth)]
    # Without correction each slice has an error of 0.4; one slice's map for all corrects only the first.
    assert max(errors(body, "method=cg-sense")) < 0.1, errors(body, "method=cg-sense")
    samples = int(rows[0]["head"]["number_of_samples"])
    kspace = np.stack([row["data"].view("c8").reshape(-1, samples) for row in rows], 1).reshape(4, 3, 4, samples)
    trajectory = np.stack([row["traj"].reshape(samples, -1) for row in rows[:4]])
    times = np.arange(samples) * float(rows[0]["head"]["sample_time_us"]) * 1e-6
    size = f"size={MATRIX},{MATRIX}&fov_mm={2 * MATRIX},{2 * MATRIX}"

    def npz(fieldmap):
        file = io.BytesIO()
        np.savez(file, kspace=kspace, trajectory=trajectory, fieldmap=fieldmap, times=times)
        return file.getvalue()
    own, first = errors(npz(maps), f"{size}&method=cg-sense"), errors(npz(maps[:1]), f"{size}&method=cg-sense")
    assert max(own) < 0.1 and first[0] < 0.1 and min(first[1:]) > 0.2, (own, first)
    for bad in (npz(maps[:2]), npz(np.concatenate([maps, maps])), npz(maps[:, None, :, :-1])):
        job = submitted(daemon, bad, size, "failed")
        same(job["error"]["code"], "malformed-file", str(job["error"]))
        assert "fieldmap" in str(job["error"]), job["error"]

    def two(file):
        del file["dataset/fieldmap"]
        file["dataset/fieldmap"] = maps[:2]
    with h5py.File(path, "r+") as file:
        two(file)
    with open(path, "rb") as file:
        job = submitted(daemon, file.read(), "", "failed")
    same(job["error"]["code"], "malformed-file", str(job["error"]))
    assert "2 slices" in str(job["error"]), job["error"]


if __name__ == "__main__":
    main(Daemon)
