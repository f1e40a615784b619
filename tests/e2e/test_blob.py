#!/usr/bin/python3
"""Kind blob through the real daemon: molecules in; volume and surface out, in every format; jobs that are refused,
canceled and killed.
"""
import io
import math
import os
import random
import signal

import numpy as np

from harness import Daemon, client, main, same, test, wait_until

ELEMENTS = ("N", "C", "C", "O", "S", "H")


def atoms(count, seed=1):
    """A random chain: elements and positions."""
    rng, at = random.Random(seed), [10.0, -20.0, 30.0]
    for i in range(count):
        yield ELEMENTS[i % len(ELEMENTS)], tuple(at)
        turn, up = rng.uniform(0, 2 * math.pi), rng.uniform(-1, 1)
        across = math.sqrt(1 - up * up)
        at = [at[0] + 1.5 * across * math.cos(turn), at[1] + 1.5 * across * math.sin(turn), at[2] + 1.5 * up]


def pdb(chain, models=1):
    lines = []
    for model in range(models):
        lines += [f"MODEL     {model + 1:4d}"] if models > 1 else []
        lines += [f"ATOM  {i + 1:5d}  {element:<3s} GLY A{i // 6 + 1:4d}    {x + 3 * model:8.3f}{y:8.3f}{z:8.3f}  1.00 "
                  f" 0.00          {element:>2s}"
                  for i, (element, (x, y, z)) in enumerate(chain)]
        lines += ["ENDMDL"] if models > 1 else []
    return ("\n".join([*lines, "END"]) + "\n").encode()


MOLECULE = pdb(list(atoms(60)))


def points(count, columns):
    """[count][columns] as .npy."""
    file = io.BytesIO()
    rng = np.random.default_rng(5)
    np.save(file, np.column_stack([rng.random((count, 3)) * 60] +
                                  [np.full(count, 2.0)] * (columns - 3)).astype(np.float32))
    return file.getvalue()


# Half a million points that each reach some 5e6 nodes: 2e12 terms, which is minutes of work, or seconds on a hundred
# cores.
LONG = (points(500_000, 5), "kind=blob&blobbiness=-0.05&truncation=sphere&spacing=0.25&padding=0")


def results(daemon, job, name):
    return daemon.get(f"/v1/jobs/{job['id']}/results/{name}").expect(200)


def read_ply(body):
    head, rest = body.split(b"end_header\n", 1)
    words = head.split()
    vertices, faces = (int(words[words.index(what) + 1]) for what in (b"vertex", b"face"))
    vertex = np.frombuffer(rest, "<f4", 6 * vertices).reshape(-1, 6)
    face = np.frombuffer(rest[24 * vertices:], np.dtype([("n", "u1"), ("corner", "<i4", 3)]))
    same((len(face), set(face["n"])), (faces, {3}), "faces")
    return vertex, face["corner"]


@test("a molecule's density and surface, each in every format, agree with each other and with the report")
def formats(daemon):
    job = daemon.run(MOLECULE, "kind=blob&results=volume,mesh&spacing=0.4")
    report = daemon.job(job["id"])["report"]
    with io.BytesIO(results(daemon, job, "volume").body) as file:
        volume, (origin, spacing) = np.load(file), np.load(file)
    same(list(volume.shape[::-1]), report["nodes"], "nodes")
    np.testing.assert_allclose(origin, report["origin"])
    same(list(spacing), [0.4] * 3, "spacing")
    assert volume.max() > 10 and volume[0].max() == volume[:, 0].max() == volume[:, :, 0].max() == 0, volume.max()
    vertex, corner = read_ply(results(daemon, job, "mesh").body)
    surface = report["surface"]
    same((len(vertex), len(corner), surface["closed"]), (surface["vertices"], surface["triangles"], True),
         "the mesh's size")
    edges = np.sort(np.concatenate([corner[:, [i, (i + 1) % 3]] for i in range(3)]), axis=1)
    same(set(np.unique(edges, axis=0, return_counts=True)[1]), {2}, "triangles of an edge")
    a, b, c = (vertex[corner[:, i], :3].astype(float) for i in range(3))
    cross = np.cross(b - a, c - a)
    np.testing.assert_allclose(np.linalg.norm(cross, axis=1).sum() / 2, surface["area"], rtol=1e-9)
    np.testing.assert_allclose((cross * a).sum() / 6, surface["volume"], rtol=1e-6)
    # The volume is that of the nodes inside, up to their part of a cell at the surface: at most half of h times the
    # area.
    assert abs((volume >= 1).sum() * 0.4 ** 3 - surface["volume"]) < 0.05 * 0.4 * surface["area"]
    lines = results(daemon, job, "mesh?format=obj").body.decode().splitlines()
    same([sum(line.startswith(kind) for line in lines) for kind in ("v ", "vn ", "f ")],
         [len(vertex), len(vertex), len(corner)], "OBJ")
    np.testing.assert_array_equal(np.array([line.split()[1:] for line in lines if line.startswith("v ")], np.float32),
                                  vertex[:, :3])
    stl = np.frombuffer(results(daemon, job, "mesh.stl").body[84:], np.dtype([("at", "<f4", (4, 3)), ("none", "<u2")]))
    np.testing.assert_array_equal(stl["at"][:, 1:].reshape(-1, 3), vertex[corner.ravel(), :3])
    for name, begins in (("mesh?format=png", b"\x89PNG"), ("volume?format=png", b"\x89PNG")):
        answer = results(daemon, job, name)
        same((answer.headers["content-type"], answer.body[:4]), ("image/png", begins), name)
    dx = results(daemon, job, "volume?format=dx").body.decode()
    assert f"counts {volume.shape[2]} {volume.shape[1]} {volume.shape[0]}" in dx, dx[:300]
    mrc = results(daemon, job, "volume?format=mrc").body
    np.testing.assert_array_equal(np.frombuffer(mrc[1024:], "<f4"), volume.ravel())
    same([(r["name"], [f["format"] for f in r["formats"]])
          for r in daemon.get(f"/v1/jobs/{job['id']}/results").json()["results"]],
         [("volume", ["npy", "dx", "mrc", "png"]), ("mesh", ["ply", "obj", "stl", "png"])], "results")


@test("a waiting client gets a mesh in the format that Accept names; mrirecon chooses it by the file's extension")
def waited(daemon):
    for media in ("model/stl", "model/obj", "application/x-ply", "image/png"):
        answer = daemon.submit(MOLECULE, "kind=blob&results=mesh", Prefer="wait=100", Accept=media).expect(200, media)
        assert len(answer.body) > 1000, answer.body
    path = os.path.join(daemon.state, "molecule.pdb")
    with open(path, "wb") as file:
        file.write(MOLECULE)
    for name, begins in (("surface.obj", b"# made by"), ("density.dx", b"#")):
        saved = os.path.join(daemon.state, name)
        results_of = "mesh" if name.startswith("surface") else "volume"
        client(daemon, "submit", "--kind", "blob", path, f"results={results_of}", "--out", saved)
        with open(saved, "rb") as file:
            same(file.read(len(begins)), begins, f"begin of {name}")


@test("radii come from the file, the table of elements or the parameter; a file without radii is refused")
def radii(daemon):
    def decision(job):
        return {d["what"]: d["value"] for d in daemon.job(job["id"])["report"]["decisions"]}["radii"]
    same(decision(daemon.run(MOLECULE, "kind=blob")), "van der Waals", "radii of a PDB file")
    same(decision(daemon.run(points(50, 5), "kind=blob")), "file", "radii of five columns")
    assert "parameter radius" in daemon.fails(points(50, 3), "kind=blob", "malformed-file")["detail"]
    daemon.run(points(50, 3), "kind=blob&radius=1.5")
    strange = MOLECULE.replace(b" N   GLY", b" X   GLY", 1).replace(b"  N   GLY", b"  X   GLY",
                                                                    1).replace(b" N\n", b" X\n", 1)
    assert "Point 1 (of an unknown element)" in daemon.fails(strange, "kind=blob", "malformed-file")["detail"]


@test("volumes are of the first model, of the mean of all, or of each; meshes are of a single one")
def models(daemon):
    body = pdb(list(atoms(20)), models=3)
    first, mean, each = (np.load(io.BytesIO(results(daemon, daemon.run(body, f"kind=blob&spacing=1&frames={which}"),
                                                    "volume").body))
                         for which in ("first", "mean", "each"))
    same((each.shape[0], each.shape[1:], first.ndim), (3, mean.shape, 3), "shapes")
    np.testing.assert_allclose(mean, each.mean(axis=0), rtol=1e-5, atol=1e-6)
    # Models are 3 apart, which is three nodes; the lattice begins at the first.
    np.testing.assert_allclose(each[2][:, :, 6:6 + first.shape[2]], first, rtol=1e-5, atol=1e-6)
    assert "3 frames" in daemon.fails(body, "kind=blob&results=mesh", "bad-parameter")["detail"]
    daemon.run(body, "kind=blob&results=mesh&frames=mean")


@test("a malformed line is reported by its number, bad parameters before the body is read")
def bad(daemon):
    lines = MOLECULE.split(b"\n")
    lines[6] = lines[6][:30] + b"  hello " + lines[6][38:]
    assert "line 7" in daemon.fails(b"\n".join(lines), "kind=blob", "malformed-file")["detail"].lower()
    for query, code in (("blobbiness=1", "bad-parameter"), ("isovalue=0", "bad-parameter"),
                        ("frames=2", "bad-parameter"),
                        ("truncation=ball", "bad-parameter"), ("eps=0", "bad-parameter"),
                        ("matrix=64", "unknown-parameter")):
        daemon.submit(MOLECULE, f"kind=blob&{query}").problem(400, code)
    daemon.fails(b"\x00\x01\x02" * 100, "kind=blob", "unknown-format")


@test("a job that does not fit in memory is refused before it is computed, with the sizes")
def memory(daemon):
    problem = daemon.fails(MOLECULE, "kind=blob&spacing=0.01&padding=500", "out-of-memory")
    assert "larger spacing" in problem["detail"], problem
    same(daemon.run(MOLECULE, "kind=blob")["attempts"], 1, "attempts of the next")


@test("a running job is canceled; after kill -9 of its worker a job is retried")
def ended(daemon):
    job = daemon.submit(*LONG).expect(202).json()["id"]

    def summing(attempt):
        now = daemon.job(job)
        return now["attempts"] == attempt and now["step"] and now["step"]["name"] == "density"
    wait_until(lambda: summing(1), "the density's step")
    os.kill(daemon.worker(), signal.SIGKILL)
    wait_until(lambda: summing(2), "the density's step once more")
    daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
    same(daemon.finish(job)["state"], "canceled", "state")
    same([name for name in daemon.files() if job in name and "results" in name], [], "files of results")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu", expect_trouble=True))  # a worker is killed
