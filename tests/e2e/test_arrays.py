#!/usr/bin/python3
"""Scans as arrays, without an ISMRMRD header (.npz, HDF5 pairs), through the daemon and compared with double sums.

Tolerance: as in test_images.py. The parameters size and fov_mm replace the header.
"""
import io
import os
import shutil
import subprocess
import tempfile

import h5py
import numpy as np

import scans
from harness import BIN, Daemon, main, same, test

FOLDER = tempfile.TemporaryDirectory()
TOLERANCE = 3e-5
QUERY = "kind=recon&tolerance=1e-5&coils=none&output=complex"
SCAN = scans.radial(matrix=(24, 20, 1), spokes=31, samples=48, coils=2)
KSPACE, TRAJECTORY, WEIGHTS = SCAN.data.transpose(1, 0, 2), SCAN.traj[..., :2], SCAN.traj[..., 2]


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def run(daemon, body, query):
    job = daemon.run(body, f"{QUERY}&{query}")
    same(job["state"], "succeeded", f"state ({job['error']})")
    seen = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))
    return job["report"], seen


def close(seen, expected):
    same(tuple(seen.shape), tuple(expected.shape), "shape")
    error = scans.nrmse(seen, expected)
    assert error < TOLERANCE, f"the image is off by {error:.3g}, allowed {TOLERANCE:g}"


@test("an .npz with weights gives the same image as its ISMRMRD scan, byte for byte")
def same_as_ismrmrd(daemon):
    _, expected = run(daemon, SCAN.bytes(FOLDER.name), "dcf=given")
    close(expected[0], SCAN.adjoint())
    report, seen = run(daemon, npz(kspace=KSPACE, trajectory=TRAJECTORY, weights=WEIGHTS),
                       "dcf=given&size=24,20&fov_mm=48,40")
    assert (seen == expected).all(), "a different image"
    same([d for d in report["decisions"] if d["what"] == "field of view"], [], "decisions on the field of view")


@test("a deflated .npz in Fortran order, float64 and big endian, gives the same image")
def any_layout(daemon):
    _, expected = run(daemon, npz(kspace=KSPACE, trajectory=TRAJECTORY, weights=WEIGHTS), "size=24,20")
    report, seen = run(daemon, npz(np.savez_compressed, kspace=np.asfortranarray(KSPACE.astype(">c16")),
                                   trajectory=np.asfortranarray(TRAJECTORY.astype(">f8")),
                                   weights=WEIGHTS.astype(">f4")),
                       "size=24,20")
    assert (seen == expected).all(), "a different image"
    decided = [d for d in report["decisions"] if d["what"] == "field of view"]
    same(decided[0]["value"], "24 x 20 x 1 mm", "the field of view that is assumed")


@test("repetitions between coil and spoke are a series of images")
def repetitions(daemon):
    kspace = np.stack([KSPACE, 2 * KSPACE, 3j * KSPACE], 1)
    _, seen = run(daemon, npz(kspace=kspace, trajectory=TRAJECTORY, weights=WEIGHTS), "size=24,20")
    truth = SCAN.adjoint()
    for i, factor in enumerate((1, 2, 3j)):
        close(seen[i], factor * truth)


@test("sensitivities combine the coils; impossible shapes and values are errors that name them")
def sensitivities(daemon):
    rng = np.random.default_rng(3)
    maps = rng.normal(size=(2, 20, 24, 2)).view(complex)[..., 0].astype("c8")
    body = npz(kspace=KSPACE, trajectory=TRAJECTORY, sensitivities=maps)
    job = daemon.run(body, "kind=recon&tolerance=1e-5&size=24,20&dcf=none&coils=sense&output=complex")
    same(job["state"], "succeeded", f"state ({job['error']})")
    seen = np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))
    plain = scans.Scan(TRAJECTORY, SCAN.data, (24, 20, 1))
    coils = plain.adjoint()[:, 0]
    expected = (maps.conj() * coils).sum(0) / np.sqrt((np.abs(maps) ** 2).sum(0))
    close(seen[0, 0], expected[None])
    cfl("k", KSPACE.transpose(2, 1, 0)[None])
    cfl("t", np.concatenate([TRAJECTORY, np.zeros((31, 48, 1))], -1).transpose(2, 1, 0))
    cfl("s", maps[:, None].transpose(3, 2, 1, 0))
    same(pack("packed-maps.npz", "kspace=@/k.cfl", "trajectory=@/t.cfl", "sensitivities=@/s.cfl").stderr, "",
         "what pack says")
    with np.load(f"{FOLDER.name}/packed-maps.npz") as arrays:
        assert (arrays["sensitivities"][:, 0] == maps).all(), "different maps"
    field, times = rng.normal(size=(20, 24)).astype("f4"), np.linspace(0, 0.01, 48).astype("f4")
    cfl("f", field[None].transpose(2, 1, 0))
    cfl("times", times[None])
    same(pack("packed-field.npz", "kspace=@/k.cfl", "trajectory=@/t.cfl", "fieldmap=@/f.cfl",
              "times=@/times.cfl").stderr, "", "what pack says")
    with np.load(f"{FOLDER.name}/packed-field.npz") as arrays:
        assert (arrays["fieldmap"][0] == field).all() and (arrays["times"]
                                                           == times).all(), "a different field map, or different times"
    for bad, code in ((maps[:1], "malformed-file"), (maps.transpose(0, 2, 1), "malformed-file"),
                      (np.abs(maps), "malformed-file"), (maps * np.nan, "data-nonfinite")):
        job = daemon.run(npz(kspace=KSPACE, trajectory=TRAJECTORY, sensitivities=bad),
                         "kind=recon&size=24,20&coils=sense")
        same(job["state"], "failed", "state")
        same(job["error"]["code"], code, f"code of {bad.shape}")


@test("complex128 beyond single precision is an error that says so")
def beyond_single(daemon):
    large = KSPACE.astype("c16") * 1e39
    for name, arrays in (("kspace", {"kspace": large}), ("noise", {"kspace": KSPACE, "noise": large[..., 0, :]})):
        problem = daemon.fails(npz(trajectory=TRAJECTORY, **arrays), "kind=recon&size=24,20", "data-nonfinite")
        assert f"The array {name} has numbers of complex128" in problem["detail"], problem


@test("HDF5 with rawdata and trajectory, as in the RRSG challenge: the unit is detected, a kz of zeros is ignored")
def rrsg(daemon):
    scan = scans.radial(matrix=(24, 24, 1), spokes=31, samples=48, coils=2)
    path = f"{FOLDER.name}/rrsg.h5"
    k = np.concatenate([scan.traj[..., :2] * 24, np.zeros((31, 48, 1), np.float32)], -1)
    with h5py.File(path, "w") as file:
        file["rawdata"] = scan.data.transpose(2, 0, 1)[None]
        file.create_dataset("trajectory", data=k.transpose(2, 1, 0), chunks=(1, 48, 31), compression="gzip")
    with open(path, "rb") as file:
        report, seen = run(daemon, file.read(), "size=24,24&dcf=none")
    scan.traj = scan.traj[..., :2]
    close(seen[0], scan.adjoint())
    same([d["value"] for d in report["decisions"] if d["what"] == "trajectory unit"], ["grid"], "unit")


@test("3-D: partitions and spokes between coil and sample")
def three_dimensions(daemon):
    rng = np.random.default_rng(7)
    kspace = rng.normal(size=(2, 3, 5, 16, 2)).view(complex)[..., 0].astype("c8")
    trajectory = (rng.uniform(-0.5, 0.5, size=(3, 5, 16, 3))).astype("f4")
    trajectory[0, 0, 0] = -0.5
    _, seen = run(daemon, npz(kspace=kspace, trajectory=trajectory), "size=8,10,12&dcf=none&traj_units=pixel")
    whole = scans.Scan(trajectory.reshape(15, 16, 3), kspace.reshape(2, 15, 16).transpose(1, 0, 2), (8, 10, 12))
    close(seen[0], whole.adjoint())


def cfl(name, array):
    """Write an array as BART does: complex64, the first axis fastest."""
    with open(f"{FOLDER.name}/{name}.hdr", "w") as file:
        file.write("# Dimensions\n" + " ".join(str(n) for n in array.shape + (1,) * (16 - array.ndim)) +
                   " \n# Command\nmade\n")
    with open(f"{FOLDER.name}/{name}.cfl", "wb") as file:
        file.write(array.astype("<c8").tobytes(order="F"))


def pack(out, *words):
    return subprocess.run([f"{BIN}/mrirecon", "pack", f"{FOLDER.name}/{out}",
                           *(word.replace("@", FOLDER.name) for word in words)],
                          capture_output=True, text=True)


@test("mrirecon pack: BART arrays and .npy files become the same scan")
def packed(daemon):
    series = np.stack([KSPACE, 2 * KSPACE], 1)
    cfl("ksp", np.zeros((1, 48, 31, 2, 1, 1, 1, 1, 1, 1, 2)) +
        series.transpose(3, 2, 0, 1).reshape(1, 48, 31, 2, 1, 1, 1, 1, 1, 1, 2))
    cfl("traj", np.concatenate([TRAJECTORY, np.zeros((31, 48, 1))], -1).transpose(2, 1, 0))
    cfl("dcf", WEIGHTS.T[None])
    same(pack("bart.npz", "kspace=@/ksp.cfl", "trajectory=@/traj.hdr", "weights=@/dcf.cfl").stderr, "",
         "what pack says")
    with np.load(f"{FOLDER.name}/bart.npz") as arrays:
        assert (arrays["kspace"] == series).all() and (arrays["trajectory"][..., :2] == TRAJECTORY).all()
        assert arrays["trajectory"].dtype == np.float32 and (arrays["weights"] == WEIGHTS).all()
    for name, array in (("k", series), ("t", TRAJECTORY), ("w", WEIGHTS)):
        np.save(f"{FOLDER.name}/{name}.npy", array)
    same(pack("npy.npz", "kspace=@/k.npy", "trajectory=@/t.npy", "weights=@/w.npy").returncode, 0, "status")
    images = []
    for name in ("bart", "npy"):
        with open(f"{FOLDER.name}/{name}.npz", "rb") as file:
            images.append(run(daemon, file.read(), "size=24,20")[1])
    assert (images[0] == images[1]).all(), "different images"
    close(images[0][1], 2 * SCAN.adjoint())


@test("mrirecon pack: unsupported input is an error that says why, and nothing is written")
def not_packed():
    cfl("cartesian", np.ones((48, 31, 1, 2)))
    np.save(f"{FOLDER.name}/again.npy", TRAJECTORY)
    for words, status, said in ((["kspace=@/cartesian.cfl", "trajectory=@/again.npy"], 1, "other axes"),
                                (["kspace=@/none.npy", "trajectory=@/again.npy"], 1, "none.npy cannot be read"),
                                (["kspace=@/cartesian.hdr", "trajectory=@/cartesian.cfl"], 1, "other axes"),
                                (["kspace=/dev/null", "trajectory=@/again.npy"], 1, "not a regular file"),
                                (["kspace=/sys/devices/system/cpu/online", "trajectory=@/again.npy"], 1,
                                 "No such device"),  # which cannot be mapped
                                (["kspace=@/again.npy"], 2, "use: mrirecon pack"),
                                (["field=@/again.npy"], 2, "use: mrirecon pack"), ([], 2, "use: mrirecon pack")):
        done = pack("never.npz", *words)
        same(done.returncode, status, f"status of {words}")
        assert said in done.stderr, done.stderr
        assert not os.path.exists(f"{FOLDER.name}/never.npz"), "a file was written"
    with open(f"{FOLDER.name}/cartesian.cfl", "ab") as file:
        file.write(b"12345678")
    done = pack("never.npz", "kspace=@/cartesian.cfl", "trajectory=@/again.npy")
    assert done.returncode == 1 and "no sizes that fit" in done.stderr, done
    os.unlink(f"{FOLDER.name}/cartesian.hdr")
    done = pack("never.npz", "kspace=@/cartesian.cfl", "trajectory=@/again.npy")
    assert done.returncode == 1 and "cannot be read (No such file" in done.stderr, done
    done = pack("again.npy", "kspace=@/again.npy", "trajectory=@/again.npy")
    assert done.returncode == 1 and "File exists" in done.stderr, done


@test("mrirecon attach-trajectory: a scan without its trajectory becomes the scan with it")
def attached(daemon):
    bare = scans.Scan(SCAN.traj[..., :0], SCAN.data, (24, 20, 1))
    bare.heads["idx"]["kspace_encode_step_1"] = bare.heads["idx"]["kspace_encode_step_1"][::-1]
    bare.heads["position"] = (3, 4, 5)
    scan, out = bare.write(f"{FOLDER.name}/bare.h5"), f"{FOLDER.name}/whole.h5"
    with open(scan, "rb") as file:
        problem = daemon.fails(file.read(), QUERY, "trajectory-missing")
    assert "mrirecon attach-trajectory" in problem["detail"], problem

    def attach(trajectory):
        np.save(f"{FOLDER.name}/attached.npy", trajectory)
        return subprocess.run([f"{BIN}/mrirecon", "attach-trajectory", scan, out, f"{FOLDER.name}/attached.npy"],
                              capture_output=True, text=True)

    images = []
    # A line that the scan does not have: attaching by line is an error, which is reported.
    longer = np.concatenate([SCAN.traj[::-1], SCAN.traj[:1]])
    for trajectory in (SCAN.traj, np.asfortranarray(SCAN.traj.astype("f8"))):
        same(attach(trajectory).stderr, "", "what attach-trajectory says")
        with h5py.File(out) as file:
            head = file["dataset/data"][4]["head"]
            same((tuple(head["position"]), int(head["idx"]["kspace_encode_step_1"]),
                  int(head["trajectory_dimensions"])), ((3, 4, 5), 26, 3), "head")
        with open(out, "rb") as file:
            images.append(run(daemon, file.read(), "dcf=given")[1])
        done = attach(SCAN.traj)
        assert done.returncode == 1 and "already exists" in done.stderr, done
        os.unlink(out)
    close(images[0][0], SCAN.adjoint())
    assert (images[0] == images[1]).all(), "different images"
    for trajectory, said in ((longer, "32 readouts"), (SCAN.traj[:, :-1], "48 samples"), (SCAN.traj[..., :1], "2 to 4"),
                             (KSPACE, "real numbers")):
        done = attach(trajectory)
        assert done.returncode == 1 and said in done.stderr and not os.path.exists(out), done


@test("mrirecon attach-trajectory: a codec that is missing or cannot be run is told as such")
def codec_refused():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(f"{BIN}/mrirecon", folder)
        np.save(f"{folder}/t.npy", TRAJECTORY)
        for said in ("No such file", "Permission denied"):
            done = subprocess.run([f"{folder}/mrirecon", "attach-trajectory", f"{folder}/t.npy", f"{folder}/out.h5",
                                   f"{folder}/t.npy"], capture_output=True, text=True)
            assert done.returncode == 1 and f"which reads scans, cannot be run: {said}" in done.stderr, done
            with open(f"{folder}/mrirecon-codec", "w"):
                pass


@test("mrirecon attach-trajectory: the scan keeps its coil maps and its field maps")
def attached_maps(daemon):
    bare = scans.Scan(np.concatenate([SCAN.traj[..., :0]] * 2), np.concatenate([SCAN.data] * 2), (24, 20, 1))
    bare.heads["idx"]["slice"] = np.repeat([0, 1], 31)
    scan, out = bare.write(f"{FOLDER.name}/mapped.h5"), f"{FOLDER.name}/kept.h5"
    coils = SCAN.data.shape[1]
    maps = (np.arange(coils * 480).reshape(coils, 20, 24) * (1 - 2j)).astype("c8")
    for field in np.arange(480, dtype="f4").reshape(20, 24), np.arange(960, dtype="f4").reshape(2, 20, 24):
        with h5py.File(scan, "a") as file:
            for name, array in ("sensitivities", maps), ("fieldmap", field):
                file["dataset"].pop(name, None)
                file["dataset"][name] = array
        np.save(f"{FOLDER.name}/lines.npy", np.concatenate([SCAN.traj] * 2))
        subprocess.run([f"{BIN}/mrirecon", "attach-trajectory", scan, out, f"{FOLDER.name}/lines.npy"], check=True)
        with h5py.File(out) as file:
            same(np.squeeze(file["dataset/fieldmap"][:]).tolist(), field.tolist(), "field maps")
            same(np.squeeze(file["dataset/sensitivities"][:]["real"]).tolist(), maps.real.tolist(), "coil maps")
        with open(out, "rb") as file:
            report, _ = run(daemon, file.read(), "dcf=given")
        whats = [decision["what"] for decision in report["decisions"]]
        assert "off-resonance" in whats, whats
        os.unlink(out)


@test("mrirecon attach-trajectory: readouts that repeat take the trajectory of their line")
def attached_by_line(daemon):
    twice = scans.Scan(np.concatenate([SCAN.traj[::-1, :, :0]] * 2), np.concatenate([SCAN.data[::-1]] * 2), (24, 20, 1))
    twice.heads["idx"]["kspace_encode_step_1"] = np.tile(np.arange(31)[::-1], 2)
    twice.heads["idx"]["repetition"] = np.repeat([0, 1], 31)
    scan, out = twice.write(f"{FOLDER.name}/twice.h5"), f"{FOLDER.name}/both.h5"
    np.save(f"{FOLDER.name}/lines.npy", SCAN.traj)
    subprocess.run([f"{BIN}/mrirecon", "attach-trajectory", scan, out, f"{FOLDER.name}/lines.npy"], check=True)
    with open(out, "rb") as file:
        images = run(daemon, file.read(), "dcf=given")[1]
    for image in images:
        close(image, SCAN.adjoint())


@test("missing and surplus arrays are errors that name them")
def refusals(daemon):
    body = npz(kspace=KSPACE, trajectory=TRAJECTORY)
    for query, code, words in (("", "bad-parameter", "size=X,Y"), ("size=24,20,4", "trajectory-dimensions", "kz")):
        problem = daemon.fails(body, f"{QUERY}&{query}", code)
        assert words in problem["detail"], problem["detail"]
    problem = daemon.fails(SCAN.bytes(FOLDER.name), f"{QUERY}&size=24,20", "bad-parameter")
    assert "24 x 20 x 1" in problem["detail"], problem["detail"]
    for query in ("size=24", "size=24,20,", "size=0,20", "size=1e9,20", "size=24;20", "size=24,20,1,1", "size=24,nan",
                  "size=24,20&fov_mm=1", "fov_mm=220,220", "size=24,20&fov_mm=0,3", "size=24,20&fov_mm=3,inf"):
        daemon.request("POST", f"/v1/jobs?{QUERY}&{query}", body).problem(400, "bad-parameter")


if __name__ == "__main__":
    main(Daemon)
