#!/usr/bin/python3
"""Kind cutcp through the daemon: molecules in each format go in, their potential comes out in each; bad lines, cancel,
kill -9.
"""
import io
import os
import signal
import subprocess
import tempfile

import numpy as np

from harness import BIN, DATA, SLOW, Daemon, client, main, same, skip, test, wait_until

RANDOM = np.random.default_rng(7)
AT = np.round(RANDOM.uniform(-4, 5, (60, 3)), 3)
CHARGE = np.round(RANDOM.uniform(-1, 1, 60), 2)
QUERY = "kind=cutcp&spacing=0.7&cutoff=4&padding=1.25&exclusion=0.5"


def pqr(at=AT, charge=CHARGE):
    lines = [f"ATOM  {i + 1:5d}  C   MOL {1:5d}    {x:8.3f}{y:8.3f}{z:8.3f} {q:7.4f} 1.5000" for i,
             ((x, y, z), q) in enumerate(zip(at, charge))]
    return ("REMARK a molecule\n" + "\n".join(lines) + "\nEND\n").encode()


def lattice(spacing, padding):
    """Origin, and points per axis."""
    origin = AT.min(0) - padding
    return origin, np.floor((AT.max(0) + padding - origin) / spacing).astype(int) + 1


def oracle(spacing=0.7, cutoff=4, padding=1.25, exclusion=0.5):
    """The potential in double precision, [z][y][x]."""
    origin, count = lattice(spacing, padding)
    z, y, x = np.meshgrid(*(origin[d] + spacing * np.arange(count[d]) for d in (2, 1, 0)), indexing="ij")
    total, near = np.zeros(x.shape), np.zeros(x.shape, bool)
    for (ax, ay, az), q in zip(AT, CHARGE):
        r = np.sqrt((x - ax) ** 2 + (y - ay) ** 2 + (z - az) ** 2)
        total += np.where(r < cutoff, q / r * (1 - (r / cutoff) ** 2) ** 2, 0)
        near |= (r < exclusion) & (q != 0)
    return np.where(near, 0, total)


def loaded(body):
    """Values, origin and spacing, title of an npy file."""
    file = io.BytesIO(body)
    return np.load(file), np.load(file), np.load(file).item()


def result(daemon, job, form):
    return daemon.get(f"/v1/jobs/{job['id']}/results/potential?format={form}").expect(200).body


def run(daemon, body, query=QUERY):
    job = daemon.run(body, query)
    same((job["state"], job["error"]), ("succeeded", None), "job")
    return job


def close(seen, expected):
    """Beyond exclusion=0.5 the potential of a charge of 1 is at most 2; 60 charges in float32."""
    np.testing.assert_allclose(seen, expected, rtol=0, atol=60 * 2 * 2**-22)


@test("a PQR by curl: npy with its position, OpenDX and MRC equal a double sum; PNG shows the potential")
def formats(daemon):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/mol.pqr", "wb") as file:
            file.write(pqr())
        subprocess.run(["curl", "-sS", "--fail-with-body", "--data-binary", "@mol.pqr", "-H",
                        "Content-Type: chemical/x-pqr", "-H", "Prefer: wait=100, handling=strict",
                        "-H", "Accept: application/x-opendx", f"{daemon.url}/v1/jobs?{QUERY}", "-o", "mol.dx"],
                       cwd=folder, check=True, timeout=SLOW)
        with open(f"{folder}/mol.dx") as file:
            dx = file.read()
    job = run(daemon, pqr())
    values, place, title = loaded(result(daemon, job, "npy"))
    origin, count = lattice(0.7, 1.25)
    same((values.dtype, values.shape), (np.dtype("<f4"), tuple(count[::-1])), "array")
    np.testing.assert_array_equal(place, [origin, [0.7] * 3])
    same(title, b"Electrostatic potential, e/A", "title")
    close(values, oracle())
    assert (values == 0).any(), "no point is excluded"
    head, _, data = dx.partition(" data follows\n")
    assert f"counts {count[0]} {count[1]} {count[2]}\n" in head and "delta 0 0.7 0\n" in head, head
    same(dx, result(daemon, job, "dx").decode(), "OpenDX of the waiting curl")
    numbers = np.array(data.split("attribute")[0].split(), "f4").reshape(count)
    np.testing.assert_array_equal(numbers.transpose(2, 1, 0), values)
    mrc = result(daemon, job, "mrc")
    same(np.frombuffer(mrc, "<i4", 4).tolist(), [*count, 2], "size and mode")
    np.testing.assert_array_equal(np.frombuffer(mrc, "<f4", 3, 196), origin.astype("f4"))
    np.testing.assert_array_equal(np.frombuffer(mrc, "<f4", -1, 1024).reshape(values.shape), values)
    same(result(daemon, job, "png")[:8], b"\x89PNG\r\n\x1a\n", "picture")
    same([f["format"] for r in daemon.get(f"/v1/jobs/{job['id']}/results").json()["results"] for f in r["formats"]],
         ["npy", "dx", "mrc", "png"], "formats")
    report = job["report"]
    same((report["atoms"], report["frames"], report["warnings"]), (60, 1, []), "report")
    same([d["what"] for d in report["decisions"]][:1], ["lattice"], "decisions")


@test("without a GPU bin_depth and overflow change no bit, and the report says so")
def bins(daemon):
    plain, job = run(daemon, pqr()), run(daemon, pqr(), f"{QUERY}&bin_depth=3&overflow=cpu")
    same(result(daemon, job, "npy"), result(daemon, plain, "npy"), "potential")
    same([d["value"] for d in job["report"]["decisions"] if d["what"] == "overflow"], ["none"], "decision")
    assert "overflow" not in [d["what"] for d in plain["report"]["decisions"]], "a decision that nobody asked for"
    daemon.submit(pqr(), f"{QUERY}&bin_depth=0").problem(400, "bad-parameter")


@test("the same atoms as PDB, XYZ, CSV, npy and npz have the same potential")
def inputs(daemon):
    expected = result(daemon, run(daemon, pqr()), "npy")
    rows = [(*at, q) for at, q in zip(AT, CHARGE)]
    pdb = "".join(f"ATOM  {i + 1:5d}  C   MOL A{1:4d}    {x:8.3f}{y:8.3f}{z:8.3f}{1:6.2f}{q:6.2f}           C\n" for i,
                  (x, y, z, q) in enumerate(rows))
    bare = "".join(f"{x} {y} {z} {q}\n" for x, y, z, q in rows)
    blocks = "60\na molecule\n" + "".join(f"C {x} {y} {z} {q} 1.5\n" for x, y, z, q in rows)
    csv = "name,charge,z,y,x\n" + "".join(f"C,{q},{z},{y},{x}\n" for x, y, z, q in rows)
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, np.array(rows))
    np.savez_compressed(npz, position=AT, q=CHARGE, name=np.zeros(60))
    for name, body, more in (("pdb", pdb.encode(), "&charges=bfactor"), ("xyzq", bare.encode(), ""),
                             ("xyz", blocks.encode(), ""), ("csv", csv.encode(), ""),
                             ("npy", npy.getvalue(), ""), ("npz", npz.getvalue(), "")):
        same(result(daemon, run(daemon, body, QUERY + more), "npy") == expected, True, f"potential of the {name}")


@test("bad files and parameters: the line, the column and the expected content are reported; other jobs are unaffected")
def bad(daemon):
    lines = pqr().split(b"\n")
    lines[17] = lines[17].replace(b"1.5000", b"1.5O00")
    same(daemon.fails(b"\n".join(lines), QUERY, "malformed-file")["detail"],
         'Line 18, column 10 (radius): "1.5O00" is not a finite number.', "sentence")
    problem = daemon.fails(pqr()[:-4] + b"ATOM 99 C MOL 1 1.0 2.0 3.0 0.5\n", QUERY, "malformed-file")
    assert problem["detail"].startswith("Line 62 has 9 columns; an atom in a PQR file needs 10 or 11"), problem
    pdb = b"ATOM      1  C   MOL A   1      11.104   6.134  -6.504  1.00  0.00           C\n"
    assert "charges=occupancy, bfactor or formal" in daemon.fails(pdb, QUERY, "malformed-file")["detail"]
    daemon.fails(b"\x89HDF\r\n\x1a\n" + bytes(100), QUERY, "unknown-format")
    unkind = daemon.fails(pqr(), "kind=recon", "unknown-format")["detail"]
    assert unkind.endswith(" Such files are read by kind=cutcp, kind=blob."), unkind
    assert "read by" not in daemon.fails(b"words\n", "kind=recon", "unknown-format")["detail"]
    daemon.fails(b"1 2 3\n", QUERY, "malformed-file")
    for query, code in (("exclusion=5", "bad-parameter"), ("box=1,2,3", "bad-parameter"),
                        ("spacing=0", "bad-parameter"), ("matrix=recon", "unknown-parameter")):
        daemon.submit(pqr(), f"{QUERY}&{query}").problem(400, code)
    far = daemon.fails(b"0 0 0 1\n1e99 0 0 1\n", QUERY, "bad-parameter")["detail"]
    assert "would have 1.428571e+99 points along axis x" in far, far
    assert "the file contains none" in daemon.fails(pqr(), QUERY + "&periodic=yes", "bad-parameter")["detail"]
    daemon.fails(pqr(), QUERY.replace("0.7", "0.01").replace("1.25", "900"), "result-too-large")
    job = run(daemon, pqr())
    answer = daemon.get(f"/v1/jobs/{job['id']}/results/potential?format=nii.gz")
    answer.problem(406, "not-acceptable")


@test("several frames: each, or their mean; OpenDX holds one frame and says so")
def frames(daemon):
    body = b"".join(pqr(AT + shift, CHARGE) for shift in (0, 0.25))
    each, mean = run(daemon, body), run(daemon, body, QUERY + "&frames=mean")
    values, average = loaded(result(daemon, each, "npy"))[0], loaded(result(daemon, mean, "npy"))[0]
    same(values.shape[0], 2, "frames")
    np.testing.assert_allclose(average, values.astype(float).mean(0), rtol=2**-23, atol=0)
    daemon.get(f"/v1/jobs/{each['id']}/results/potential?format=dx").problem(406, "not-acceptable")
    assert result(daemon, mean, "dx").startswith(b"# Electrostatic potential, e/A\n"), "OpenDX of the mean"


def endless(daemon):
    """A job of hours: 400,000 charges that each reach the whole lattice."""
    file = io.BytesIO()
    np.save(file, RANDOM.uniform(0, 100, (400000, 4)).astype("f4"))
    job = daemon.submit(file.getvalue(), "kind=cutcp&spacing=0.5&cutoff=900").expect(202).json()
    return job["id"]


def summing(daemon, identity, attempts):
    def there():
        job = daemon.job(identity)
        return (job["attempts"] == attempts and job["step"] and job["step"]["name"] == "potential"
                and job["progress"] > 0.05)
    return wait_until(there, f"progress of attempt {attempts}")


@test("kill -9 of worker or daemon during a sum: the job is retried; cancel ends it, and the next job is correct")
def killed(daemon):
    for death in (lambda: os.kill(daemon.worker(), signal.SIGKILL), lambda: (daemon.kill(), daemon.restart())):
        identity = endless(daemon)
        summing(daemon, identity, 1)
        death()
        summing(daemon, identity, 2)
        daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
        same(daemon.finish(identity)["state"], "canceled", "state")
        same([name for name in daemon.files() if identity in name and "results" in name], [], "files of results")
        close(loaded(result(daemon, run(daemon, pqr()), "npy"))[0], oracle())


@test("the client and the worker alone: file names select the formats")
def programs(daemon):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/mol.pqr", "wb") as file:
            file.write(pqr())
        client(daemon, "submit", f"{folder}/mol.pqr", "--kind", "cutcp", "spacing=0.7", "cutoff=4", "padding=1.25",
               "exclusion=0.5", "--out", f"{folder}/client.npy")
        subprocess.run([os.path.join(BIN, "mrirecon-worker"), "run", "--kind", "cutcp", "--device", "cpu", "--in",
                        f"{folder}/mol.pqr", "--out", f"{folder}/worker.mrc",
                        "spacing=0.7", "cutoff=4", "padding=1.25", "exclusion=0.5"], check=True, timeout=SLOW)
        with open(f"{folder}/client.npy", "rb") as file:
            values = loaded(file.read())[0]
        with open(f"{folder}/worker.mrc", "rb") as file:
            same(file.read()[1024:], values.tobytes(), "values of the worker's MRC")


@test("simulated molecules: neutral water and a chain; a seed gives the same file, a failed run leaves none")
def simulated(daemon):
    with tempfile.TemporaryDirectory() as folder:
        for name, atoms, seed in (("water", 999, 1), ("chain", 400, 1), ("chain", 400, 2)):
            made = []
            for path in (f"{folder}/{name}{seed}.pqr", f"{folder}/again.pqr"):
                client(None, "simulate", "--particles", name, "--points", str(atoms), "--seed", str(seed), "--out",
                       path)
                with open(path, "rb") as file:
                    made.append(file.read())
            same(made[0] == made[1], True, f"the same seed of {name}")
            rows = np.array([line.split()[-5:] for line in made[0].decode().splitlines() if line.startswith("ATOM")],
                            float)
            same((len(rows), round(rows[:, 3].sum(), 9)), (atoms, 0), f"atoms and charge of {name}")
            centre = np.array([line.split()[2] in ("O", "CA") for line in made[0].decode().splitlines()
                               if line.startswith("ATOM")])
            centre = rows[centre if name == "water" else centre & (rows[:, 4] == 1.7), :3]
            apart = np.linalg.norm(centre[:, None] - centre[None], axis=2) + 9 * np.eye(len(centre))
            assert (apart.min() > (1.5 if name == "water"
                                   else 3.7)), f"centres of molecules or residues of {name}: {apart.min()}"
        with open(f"{folder}/water1.pqr", "rb") as file:
            job = run(daemon, file.read(), "kind=cutcp&spacing=1&periodic=yes")
        same([d["what"] for d in job["report"]["decisions"]], ["lattice", "spacing"], "decisions of a periodic box")
        for words in (["--particles", "chain", "--points", "50001"], ["--particles", "mud"],
                      ["--particles", "water", "--truth", "t.npy"]):
            done = client(None, "simulate", *words, "--out", f"{folder}/none.pqr", check=False)
            same((done.returncode, done.stdout), (2, ""), f"{words}: {done.stderr}")
        assert not os.path.exists(f"{folder}/none.pqr"), "a file was left behind"


@test("a real protein, with a chain column, in kT/e")
def real(daemon):
    path = os.path.join(DATA, "particles", "achbp.pqr")
    if not os.path.exists(path):
        skip(f"{path} is not there (set MRIRECON_DATA)")
    with open(path, "rb") as file:
        job = run(daemon, file.read(), "kind=cutcp&spacing=2&units=kT/e&form=taylor2")
    same(job["report"]["atoms"], 16090, "atoms")
    values, _, title = loaded(result(daemon, job, "npy"))
    same(title, b"Electrostatic potential, kT/e", "title")
    assert np.isfinite(values).all() and values.std() > 1, "values"


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu", expect_trouble=True))  # a worker is killed
