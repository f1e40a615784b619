#!/usr/bin/python3
"""Kind nbody through the daemon: forces and motion from every input format, results in every output format,
checkpoints, and refused jobs.
"""
# time limit: 900 s
import contextlib
import io
import os
import signal
import struct
import subprocess

import h5py
import numpy as np

from bodies import checkpoint, cloud, npz, states_kept
from harness import BIN, SLOW, Daemon, fault, main, same, skip, test, wait_until

DAEMON = None
GALAXY = os.path.join(os.environ.get("MRIRECON_DATA", "../shared/data"), "particles", "gadget2_galaxy_pos_f32.npy")


def daemon():
    """One daemon for all tests of this file."""
    global DAEMON
    if DAEMON is None:
        DAEMON = Daemon(devices="cpu")
    return DAEMON


def gadget(position, velocity, mass, ids, box=0.0, version=1, order="<", kind="f4", types=(0, 20, 40, 0, 0, 0),
           table=(0,) * 6):
    """A snapshot; bodies of a type whose mass is in the header's table have none in the mass block."""
    def record(name, payload):
        head = b"" if version == 1 else struct.pack(order + "I4sII", 8, name.ljust(4), len(payload) + 8, 8)
        return head + struct.pack(order + "I", len(payload)) + payload + struct.pack(order + "I", len(payload))
    header = struct.pack(order + "6I6d2d2i6I2i4d", *types, *table, 0.25, 0.0, 0, 0, *types, 0, 1, box, 0, 0,
                         0).ljust(256, b"\0")
    of_type = np.repeat(np.arange(6), types)
    listed = mass[[table[t] == 0 for t in of_type]]
    blocks = [(b"POS", position.astype(order + kind)), (b"VEL", velocity.astype(order + kind)),
              (b"ID", ids.astype(order + "u4"))]
    blocks += [(b"MASS", listed.astype(order + kind))] if len(listed) else []
    return record(b"HEAD", header) + b"".join(record(name, block.tobytes()) for name, block in blocks)


def run(body, query="", seconds=SLOW):
    job = daemon().finish(daemon().submit(body, "kind=nbody" + query).expect(202).json()["id"], seconds)
    same((job["state"], job["error"]), ("succeeded", None), "job")
    return job


def result(job, name):
    return daemon().get(f"/v1/jobs/{job['id']}/results/{name}").expect(200)


def table(job):
    return np.load(io.BytesIO(result(job, "particles.npy").body))


def direct(position, mass, softening):
    """Accelerations and potentials of Plummer's law in open space, in double precision."""
    away = position[None] - position[:, None]
    r2 = (away ** 2).sum(-1) + softening ** 2
    np.fill_diagonal(r2, np.inf)
    return (mass[None, :, None] * away * r2[..., None] ** -1.5).sum(1), -(mass[None] * r2 ** -0.5).sum(1)


@test("forces in open space are the sum over all pairs, and the native file has GADGET's layout")
def forces():
    position, velocity, mass, ids = cloud()
    job = run(npz(position, velocity, mass, ids),
              "&softening=0.05&softening_form=plummer&results=particles,series,picture")
    acceleration, potential = direct(position, mass, 0.05)
    got = table(job)
    same(got.shape, (60, 11), "table")
    np.testing.assert_array_equal(got[:, :7], np.column_stack([position, velocity, mass]))
    # Sums of 60 terms in float32, some of which cancel.
    np.testing.assert_allclose(got[:, 7:10], acceleration, atol=1e-5 * np.abs(acceleration).max(), rtol=0)
    np.testing.assert_allclose(got[:, 10], potential, rtol=1e-5)
    with h5py.File(io.BytesIO(result(job, "particles").expect(200, "application/x-hdf5").body)) as file:
        bodies = file["PartType1"]
        np.testing.assert_array_equal(bodies["ParticleIDs"][:], ids)
        np.testing.assert_array_equal(np.column_stack([bodies["Coordinates"], bodies["Velocities"], bodies["Masses"],
                                                       bodies["Acceleration"], bodies["Potential"]]), got)
        same(list(file["Header"].attrs["NumPart_Total"]), [0, 60, 0, 0, 0, 0], "bodies of each type")
    series = np.load(io.BytesIO(result(job, "series").body))
    np.testing.assert_allclose(series[0, 2:5], [(mass * (velocity ** 2).sum(1)).sum() / 2, (mass * potential).sum() / 2,
                                                series[0, 2] + series[0, 3]], rtol=1e-6)
    np.testing.assert_allclose(series[0, 5:8], (mass[:, None] * velocity).sum(0), rtol=1e-12)
    lines = result(job, "series.csv").expect(200, "text/csv").body.decode().splitlines()
    same((lines[0], len(lines)), ("step,time,kinetic,potential,energy,px,py,pz,lx,ly,lz", 2), "csv")
    same([float(number) for number in lines[1].split(",")], list(series[0]), "numbers of the csv")
    same(result(job, "picture").expect(200, "image/png").body[:4], b"\x89PNG", "picture")


@test("every format of the same bodies gives the same forces; a snapshot's types, time and box are kept")
def formats():
    position, velocity, mass, ids = cloud()
    position, velocity, mass = (a.astype(np.float32).astype(np.float64) for a in (position, velocity, mass))
    mass[:20] = 0.5
    names = "x,y,z,vx,vy,vz,mass,id\n"
    rows = "".join(",".join(repr(float(n)) for n in (*p, *v, m)) + f",{i}\n" for p, v, m,
                   i in zip(position, velocity, mass, ids))
    snapshot = io.BytesIO()
    with h5py.File(snapshot, "w") as file:
        header = file.create_group("Header").attrs
        header["BoxSize"], header["Time"], header["MassTable"], header["NumFilesPerSnapshot"] = 2.0, 0.25, [0, 0.5, 0,
                                                                                                            0, 0, 0], 1
        for name, part in (("PartType1", slice(0, 20)), ("PartType2", slice(20, 60))):
            group = file.create_group(name)
            group["Coordinates"], group["Velocities"], group["ParticleIDs"] = position[part], velocity[part], ids[part]
            if name == "PartType2":
                group.create_dataset("Masses", data=mass[part], chunks=(7,), compression="gzip")
    numpy_table = io.BytesIO()
    np.save(numpy_table, np.column_stack([position, velocity, mass]))
    snapshots = [gadget(position, velocity, mass, ids, 2.0, version, order, kind, table=given)
                 for version, order, kind, given in ((1, "<", "f4", (0,) * 6), (2, "<", "f8", (0, 0.5, 0, 0, 0, 0)),
                                                     (1, ">", "f4", (0, 0.5, 0, 0, 0, 0)), (2, ">", "f4", (0,) * 6))]
    bodies = None
    for body in (npz(position, velocity, mass, ids, 2.0), (names + rows).encode(), numpy_table.getvalue(),
                 snapshot.getvalue(), *snapshots):
        job = run(body, "&box=2&g=1&softening=0.02&mesh=16")
        if bodies is None:
            bodies = table(job)
        np.testing.assert_array_equal(table(job), bodies)
    # Columns of integers, and IDs too large to be distinct as doubles.
    whole = run(npz(np.rint(position * 50).astype("i2"), np.zeros((60, 3), "i1"), np.ones(60, ">u4"), ids + 2**60),
                "&softening=1")
    with h5py.File(io.BytesIO(result(whole, "particles").body)) as file:
        np.testing.assert_array_equal(file["PartType1"]["ParticleIDs"][:], ids + 2**60)
        np.testing.assert_array_equal(file["PartType1"]["Coordinates"][:], np.rint(position * 50))
    with h5py.File(io.BytesIO(result(job, "particles").body)) as file:
        same([file[name]["Masses"].shape for name in ("PartType1", "PartType2")], [(20,), (40,)], "types")
        same((file["Header"].attrs["Time"], file["Header"].attrs["BoxSize"]), (0.25, 2.0), "time and box")
    # The output is submitted as input; g and the box follow from the file.
    again = run(result(job, "particles").body, "&softening=0.02&mesh=16&g=1")
    np.testing.assert_array_equal(table(again), bodies)
    assert any(d["what"] == "boundary" and d["value"] == "periodic"
               for d in again["report"]["decisions"]), again["report"]
    told = run(snapshots[0], "&softening=0.02&mesh=16")
    np.testing.assert_allclose(table(told)[:, 7:10], bodies[:, 7:10] * 43007.1, rtol=1e-6,
                               atol=1e-6 * 43007.1 * np.abs(bodies[:, 7:10]).max())
    assert any(d["what"] == "g" and "GADGET" in d["reason"] for d in told["report"]["decisions"]), told["report"]


@test("a motion conserves energy and momentum, and reports both")
def motion():
    position, _, mass, _ = cloud()
    job = run(npz(position, None, mass, None, 2.0),
              "&steps=40&softening=0.1&mesh=16&results=series,particles&record=10")
    series = np.load(io.BytesIO(result(job, "series").body))
    same(list(series[:, 0]), [0, 10, 20, 30, 40], "steps recorded")
    report = job["report"]
    grown = series[-1, 2] - series[0, 2]
    assert grown > 0, series
    assert abs(series[-1, 4] - series[0, 4]) < 0.01 * grown, series
    assert abs(report["energy_drift"] - (series[-1, 4] - series[0, 4]) / abs(series[0, 4])) < 1e-8, report
    assert report["momentum_drift"] < 1e-5, report
    assert any(d["what"] == "dt" for d in report["decisions"]), report


def is_stopped(process):
    with open(f"/proc/{process}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


STEPS, EVERY = 30, 7


@test("kill -9 of a worker during a checkpoint: the job resumes from the one before, with the same bits")
def killed():
    position, velocity, mass, ids = cloud(20)
    body = npz(position, velocity, mass, ids, 2.0)
    query = f"&steps={STEPS}&dt=1e-3&softening=0.1&mesh=16&record=10&results=particles,series&checkpoint={EVERY}"
    undisturbed = run(body, query)
    same([d for d in undisturbed["report"]["decisions"] if d["what"] == "begin"], [], "decisions where to begin")
    wanted = {name: result(undisturbed, name).body for name in ("particles.npy", "series")}
    # A state takes two fdatasync() calls: the worker stops after the second state was written, but not yet its head.
    held = {"LD_PRELOAD": fault("holdsync"), "HOLDSYNC": "3", "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    for daemon_dies in (False, True):
        with Daemon(devices="cpu", expect_trouble=True, environment=held) as own:
            job = own.submit(body, "kind=nbody" + query).expect(202).json()
            worker = own.worker()
            wait_until(lambda: is_stopped(worker), "the worker to stop in its second checkpoint")
            same(states_kept(own, job), 1, "states that are complete")
            if daemon_dies:
                own.kill()
            with contextlib.suppress(ProcessLookupError):  # it ends with its daemon
                os.kill(worker, signal.SIGKILL)
            if daemon_dies:
                own.environment = dict(os.environ)
                own.restart()

            def ends():
                # The worker of the second attempt stops at its second checkpoint, too: let it continue.
                for process in own.children("mrirecon-worker"):
                    with contextlib.suppress(OSError):
                        os.kill(process, signal.SIGCONT)
                return own.job(job["id"])["state"] in ("succeeded", "failed")
            wait_until(ends, "the end of the job")
            done = own.job(job["id"])
            same((done["state"], done["error"], done["attempts"]), ("succeeded", None, 2), "job")
            same([d["value"] for d in done["report"]["decisions"] if d["what"] == "begin"], [f"step {EVERY}"],
                 "decisions where to begin")
            same({name: own.get(f"/v1/jobs/{job['id']}/results/{name}").expect(200).body for name in wanted}, wanted,
                 "results")
            wait_until(lambda: not os.path.exists(checkpoint(own, job)), "the checkpoint's end")


LONG = "&steps=10000000&dt=1e-9&softening=0.1&mesh=16&record=100000&results=particles,series"


@test("a canceled job stops within its step, and its checkpoint is removed")
def canceled():
    position, _, mass, _ = cloud()
    job = daemon().submit(npz(position, None, mass, None, 2.0), "kind=nbody" + LONG +
                          "&checkpoint=3").expect(202).json()
    step = wait_until(lambda: (s := daemon().job(job["id"])["step"]) and s["name"] == "move" and s, "step move")
    same((step["number"], step["steps"], step["unit"], step["iterations"]), (3, 4, "step", 10000000), "step")
    wait_until(lambda: states_kept(daemon(), job), "a checkpoint")
    daemon().request("POST", f"/v1/jobs/{job['id']}/cancel").expect(202)
    same(daemon().finish(job["id"])["state"], "canceled", "state")
    wait_until(lambda: not os.path.exists(checkpoint(daemon(), job)), "the checkpoint's end")


@test("invalid parameters and inputs are reported by block, line and body")
def bad():
    position, velocity, mass, ids = cloud()
    body = npz(position, velocity, mass, ids)
    for query, words in (("forces=direct&boundary=periodic", "open space"), ("law=cut", "reach"), ("reach=1", "reach"),
                         ("dt=1", "steps=0"),
                         ("forces=short&steps=5", "near pairs"), ("steps=5&softening=0", "dt"),
                         ("boundary=open&box=1", "boundary=open"), ("forces=direct&mesh=16", "forces=direct")):
        problem = daemon().submit(body, f"kind=nbody&{query}").problem(400, "bad-parameter")
        assert words in problem["detail"], problem
    assert "Pass box" in daemon().fails(body, "kind=nbody&boundary=periodic", "bad-parameter")["detail"]
    snapshot = gadget(position, velocity, mass, ids)
    for damaged, code, words in ((snapshot[:300], "truncated-file", "POS"),
                                 (snapshot[:264] + struct.pack("<I", 700) + snapshot[268:], "malformed-file", "POS"),
                                 (snapshot[:-60], "truncated-file", "MASS"),
                                 (snapshot[:4] + b"\0" * 256 + snapshot[260:], "malformed-file", "no bodies"),
                                 (gadget(position * np.nan, velocity, mass, ids), "malformed-file", "Body 1:"),
                                 (gadget(position, velocity, -mass, ids), "malformed-file", "Body 1: the mass")):
        problem = daemon().fails(damaged, "kind=nbody", code)
        assert words in problem["detail"], (words, problem)
    assert "Line 3" in daemon().fails(b"x,y,z\n1,2,3\n1,2,a\n", "kind=nbody", "malformed-file")["detail"]
    assert "Line 2: the mass" in daemon().fails(b"x,y,z,mass\n1,2,3,-1\n", "kind=nbody", "malformed-file")["detail"]
    assert "Masses" in daemon().fails(hdf5_without_masses(position), "kind=nbody", "malformed-file")["detail"]
    assert ("body 1 " in daemon().fails(npz(np.array([[0, 0, 0], [4e-20, 0, 0], [1, 1, 1]])),
                                        "kind=nbody&softening=0&boundary=periodic&box=2", "bad-parameter")["detail"])
    parts = io.BytesIO()
    np.savez(parts, position=position, mass=mass, radius=mass * 0 + 1, vx=velocity[:, 0])
    apart = daemon().fails(parts.getvalue(), "kind=nbody", "malformed-file")
    assert "takes velocities as one array" in apart["detail"], apart
    # A kind that does not read velocities does not mind.
    same(daemon().finish(daemon().submit(parts.getvalue(), "kind=blob").expect(202).json()["id"])["state"], "succeeded",
         "state of a job of kind blob")
    far = daemon().fails(body, "kind=nbody&forces=short&law=cut&reach=1e30&box=1", "bad-parameter")
    assert "Parameter reach" in far["detail"], far
    report = run(npz(position, mass=mass * 0 + 1e160), "&softening=0.1")["report"]
    assert "energy" not in report and "energy is not a finite" in report["warnings"][-1], report
    # Squares of such velocities overflow, their sums do not; those of the largest do.
    box = "&softening=0.1&boundary=periodic&box=2&steps=1&dt=1e-30"
    report = run(npz(position, velocity * 0 + 1e160, mass), box)["report"]
    assert report["momentum_drift"] == 0 and "energy_drift" not in report, report
    assert "no `energy_drift`" in report["warnings"][-1], report
    report = run(npz(position, velocity * 0 + 1e308, mass * 0 + 1), box)["report"]
    assert "momentum_drift" not in report and "no `momentum_drift`" in report["warnings"][-1], report
    heavy = daemon().fails(npz(position, mass=mass * 0 + 1e308), "kind=nbody", "malformed-file")
    assert "overflows" in heavy["detail"], heavy
    unplaced = daemon().fails(npz(position, box=np.array([[np.nan, 0, 0], [1, 1, 1]])), "kind=nbody", "malformed-file")
    assert "origin along axis x" in unplaced["detail"], unplaced
    # In open space, a reach beyond all pairs is the whole sum.
    reached = run(body, "&forces=short&law=cut&reach=1e30&softening=0.1")
    whole = run(body, "&forces=direct&softening=0.1")
    same(table(reached).tobytes(), table(whole).tobytes(), "bodies")


def hdf5_without_masses(position):
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        made.create_group("Header")
        made["PartType3/Coordinates"] = position
    return file.getvalue()


@test("simulated bodies: a sphere in equilibrium, and a box whose waves grow as in theory")
def simulated():
    def simulate(name, count):
        path = os.path.join(daemon().state, name)
        subprocess.run([os.path.join(BIN, "mrirecon"), "simulate", "--particles", name, "--points", str(count), "--out",
                        path], check=True)
        with open(path, "rb") as file:
            return file.read()
    sphere = np.load(io.BytesIO(result(run(simulate("plummer", 2000), "&results=series&softening=0.01"),
                                       "series").body))[0]
    # 2 T / |W| = 1, within the noise of 2,000 bodies; W = 3 pi / 32 G M^2 / a, cut at 20 a.
    assert abs(2 * sphere[2] / -sphere[3] - 1) < 0.1, sphere
    assert abs(-sphere[3] / (3 * np.pi / 32 * 43007.1) - 1) < 0.1, sphere
    side = 16
    job = run(simulate("zeldovich", side ** 3), "&steps=10&dt=0.02&results=particles&mesh=32")
    body = table(job)
    with h5py.File(io.BytesIO(result(job, "particles").body)) as file:
        order = np.argsort(file["PartType1"]["ParticleIDs"][:])
    sites = (np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij")[::-1], -1).reshape(-1, 3) + 0.5) * 100 / side
    moved = (body[order, :3] - sites + 50) % 100 - 50
    # Displacements and velocities are those of a single growing mode: v = rate x. Bodies on a lattice of 16 with
    # density waves of 0.3 follow theory to a few per cent.
    rate = np.sqrt(4 * np.pi * 43007.1 / 100 ** 3)
    fitted = (moved * body[order, 3:6]).sum() / (moved ** 2).sum()
    assert abs(fitted / rate - 1) < 0.1, (fitted, rate)


@test("a real snapshot, two galaxies of 60,000 bodies, compared with sums in double precision for some of them")
def galaxy():
    if not os.path.exists(GALAXY):
        skip(f"{GALAXY} is not there")
    position = np.load(GALAXY).astype(np.float64)
    with open(GALAXY, "rb") as file:
        # Tens of seconds of processor time without AVX-512, which six programs share.
        got = table(run(file.read(), "&softening=0.3&softening_form=plummer&forces=p3m", 600))
    some = np.arange(0, len(position), 997)
    exact = np.empty((len(some), 3))
    for k, i in enumerate(some):
        away = position - position[i]
        r2 = (away ** 2).sum(1) + 0.3 ** 2
        exact[k] = (away * r2[:, None] ** -1.5).mean(0)
    error = np.linalg.norm(got[some, 7:10] - exact, axis=1)
    size = np.linalg.norm(exact, axis=1).mean()
    # Plummer's law is cut off where it differs from 1 / r^2 by (0.3 / 6 cells)^2, at most 3e-4.
    assert error.mean() < 1e-3 * size and error.max() < 5e-3 * size, (error.mean() / size, error.max() / size)


@test("the daemon stops cleanly")
def stopped():
    daemon().stop()


if __name__ == "__main__":
    main()
