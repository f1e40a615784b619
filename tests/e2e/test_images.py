#!/usr/bin/python3
"""Images through the daemon compared with double sums, in each format; and the real scans compared with their
references.

Tolerances. Jobs run with tolerance=1e-5, the bound of the gridding error, and float32 sums of a few thousand terms add
about 1e-6; 3e-5 covers both with a margin, and a wrong sample, weight or sign gives at least 1e-2.
"""
import gzip
import http.client
import io
import json
import os
import select
import socket
import sqlite3
import struct
import tempfile

import h5py
import numpy as np

import scans
from harness import BIN, SLOW, Daemon, client, main, real_scan, same, test, wait_until
from pictures import read_png

FOLDER = tempfile.TemporaryDirectory()
TOLERANCE = 3e-5
QUERY = "kind=recon&tolerance=1e-5"


def image(daemon, scan, query, form="npy"):
    body = scan if isinstance(scan, bytes) else scan.bytes(FOLDER.name)
    job = daemon.run(body, query)
    same(job["state"], "succeeded", f"state ({job['error']})")
    return daemon.get(f"/v1/jobs/{job['id']}/results/image?format={form}").expect(200).body


def npy(data):
    return np.load(io.BytesIO(data), allow_pickle=False)


def close(seen, expected, limit=TOLERANCE):
    same(tuple(seen.shape), tuple(expected.shape), "shape")
    error = scans.nrmse(seen, expected)
    assert error < limit, f"the image is off by {error:.3g}, allowed {limit:g}"


def blob_scan(matrix=(40, 28, 1), width=1):
    """A scan whose image is bright at one position only (`width` pixels from there in x and y), off centre along every
    axis.
    """
    nx, ny, nz = matrix
    rng = np.random.default_rng(3)
    dim = 2 if nz == 1 else 3
    k = rng.uniform(-0.5, 0.5, size=(60, 64, dim))
    place = np.array([7, -5, 3][:dim])
    data = sum(np.exp(-2j * np.pi * (k @ (place + np.eye(dim)[0] * i + np.eye(dim)[1] * j))) for i in range(width)
               for j in range(width))[:, None, :]
    return scans.Scan(k, data, matrix, trajectory="other"), (place[0] + nx // 2, place[1] + ny // 2,
                                                             (place[2] if dim == 3 else 0) + nz // 2)


@test("2-D, two coils, weights given: root sum of squares, float32 [frame][coil][slice or z][y][x]")
def rss(daemon):
    scan = scans.radial()
    seen = npy(image(daemon, scan, QUERY + "&dcf=given"))
    same(seen.dtype, np.float32, "type")
    close(seen, np.sqrt((abs(scan.adjoint()) ** 2).sum(0))[None, None])


@test("coils=none output=complex: each coil's own values, complex64")
def complex_coils(daemon):
    scan = scans.radial(coils=3, seed=5)
    seen = npy(image(daemon, scan, QUERY + "&dcf=given&coils=none&output=complex"))
    same(seen.dtype, np.complex64, "type")
    close(seen, scan.adjoint()[None])


@test("results=image,maps: the image is the sum of the coils' images weighted by the maps; output=phase is its phase")
def maps(daemon):
    body = scans.radial(coils=3, seed=5).bytes(FOLDER.name)
    asked = QUERY + "&dcf=given&coils=adaptive&output="
    job = daemon.run(body, asked + "complex&results=image,maps")
    seen, factors = (npy(daemon.get(f"/v1/jobs/{job['id']}/results/{name}?format=npy").expect(200).body)
                     for name in ("image", "maps"))
    coils = npy(image(daemon, body, QUERY + "&dcf=given&coils=none&output=complex"))
    same((seen.shape[1], factors.shape), (1, coils.shape), "channels")
    close(seen, (factors.conj() * coils).sum(1, keepdims=True))
    close(np.exp(1j * npy(image(daemon, body, asked + "phase"))) * abs(seen), seen)


@test("dcf=none is the unweighted sum, dcf=auto uses the scan's weights")
def weights(daemon):
    scan = scans.radial(weights=False)
    close(npy(image(daemon, scan, QUERY + "&dcf=none&coils=none&output=complex")), scan.adjoint()[None])
    scan = scans.radial(weights=True)
    close(npy(image(daemon, scan, QUERY + "&coils=none&output=complex")), scan.adjoint()[None])


@test("the radial kernel gives the same image")
def radial_kernel(daemon):
    # A circular support has a larger error than a square one of the same width; the plan must choose a wider one for
    # the same tolerance.
    scan = scans.radial(seed=6)
    close(npy(image(daemon, scan, QUERY.replace("1e-5", "1e-4") +
                    "&dcf=given&coils=none&output=complex&kernel=radial")), scan.adjoint()[None], 3e-4)


@test("3-D, with a weight column, odd and even sizes")
def volume(daemon):
    rng = np.random.default_rng(7)
    k = np.concatenate([rng.uniform(-0.5, 0.5, size=(40, 50, 3)), rng.uniform(0.1, 1, size=(40, 50, 1))], -1)
    scan = scans.Scan(k, rng.normal(size=(40, 2, 50, 2)).view(complex)[..., 0], (18, 15, 12), trajectory="other")
    close(npy(image(daemon, scan, QUERY + "&dcf=given&coils=none&output=complex")), scan.adjoint()[None])


@test("noise, navigator and other readouts without image data are ignored, as are discarded samples")
def flags(daemon):
    scan = scans.radial(spokes=33, seed=8)
    keep = np.ones(33, bool)
    for at, flag in ((3, 20), (7, 23), (11, 24), (15, 26), (19, 27), (23, 28), (27, 30), (31, 31)):
        scan.heads["flags"][at] = 1 << (flag - 1)
        scan.data[at] *= 1e6
        keep[at] = False
    scan.heads["discard_pre"], scan.heads["discard_post"] = 3, 2
    expected = scans.Scan(scan.traj[keep][:, 3:-2], scan.data[keep][:, :, 3:-2], scan.matrix).adjoint()
    scan.data[:, :, :3] *= 1e6
    scan.data[:, :, -2:] *= 1e6
    # The single noise readout must not be used for prewhitening here.
    close(npy(image(daemon, scan, QUERY + "&dcf=given&coils=none&output=complex&prewhiten=off")), expected[None])


@test("repetitions and slices become images of the series, each from its own data and at its own position")
def series(daemon):
    one = scans.radial(seed=9)
    parts = [scans.radial(seed=10 + i) for i in range(4)]
    scan = scans.Scan(np.concatenate([p.traj for p in parts]), np.concatenate([p.data for p in parts]), one.matrix)
    n = len(one.heads)
    for i in range(4):
        rows = scan.heads[i * n:(i + 1) * n]
        rows["idx"]["repetition"], rows["idx"]["slice"] = i // 2, i % 2
        rows["idx"]["kspace_encode_step_1"] = np.arange(n)
        rows["position"] = (1, 2, 10.0 * (i % 2))
    body = scan.bytes(FOLDER.name)
    job = daemon.run(body, QUERY + "&dcf=given&coils=none&output=complex")
    seen = npy(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body)
    with h5py.File(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=h5").expect(200).body)) as file:
        header = file["dataset/image_0/header"][:]
    same(seen.shape, (2, 2, 2, 20, 24), "shape")  # frame, coil, slice, y, x
    for i in range(4):
        frame, place = int(header[i]["repetition"]), int(header[i]["slice"])
        close(seen[frame, :, place], parts[frame * 2 + place].adjoint()[:, 0])
        same(float(header[i]["position"][2]), 10.0 * header[i]["slice"], "z of a slice")
    same(len({(int(h["repetition"]), int(h["slice"])) for h in header}), 4, "number of different images")


@test("the sandboxed codec converts a series of 300 images into each format")
def many(daemon):
    path = os.path.join(FOLDER.name, "many.h5")
    client(None, "simulate", "--trajectory", "radial", "--matrix", "8", "--coils", "1", "--frames", "300", "--out",
           path)
    with open(path, "rb") as file:
        job = daemon.run(file.read(), QUERY)
    for form in ("npy", "png", "nii.gz", "dcm"):
        body = daemon.get(f"/v1/jobs/{job['id']}/results/image?format={form}").expect(200).body
        assert form != "npy" or npy(body).shape == (300, 1, 1, 8, 8), form


@test("units: each gives the same image as pixel; auto decides if only one is possible, or names the candidates")
def units(daemon):
    rng = np.random.default_rng(11)
    k = rng.uniform(-0.5, 0.5, size=(30, 64, 2))
    # All of k-space is covered, so that auto can decide.
    k[0, :4] = [[-0.5, 0.3], [0.499, 0.1], [0.2, -0.5], [0.1, 0.499]]
    data = rng.normal(size=(30, 1, 64, 2)).view(complex)[..., 0]
    expected = scans.Scan(k, data, (32, 32, 1)).adjoint()[None]
    voxel = 0.002  # metres: Scan's field of view is 2 mm per pixel
    turn = 2 * np.pi
    for name, factor, others in (
            ("pixel", 1, None), ("grid", 32, None), ("radians", turn, None), ("per_metre", 1 / voxel, None),
            ("per_cm", 0.01 / voxel, "radians or per_cm"),
            ("per_mm", 0.001 / voxel, "pixel or per_mm"), ("radians_per_metre", turn / voxel, None),
            ("radians_per_cm", 0.01 * turn / voxel, ""),
            ("radians_per_mm", 0.001 * turn / voxel, "radians or per_cm or radians_per_mm")):
        scan = scans.Scan(k * factor, data, (32, 32, 1), trajectory="other")
        for asked in (name, "auto"):
            query = QUERY + f"&dcf=none&coils=none&output=complex&traj_units={asked}"
            # The grid's units differ by 2 % here, less than half a pixel: a warning.
            if asked == "auto" and others == "":
                told = daemon.run(scan.bytes(FOLDER.name), query)["report"]["warnings"]
                assert len(told) == 1 and "traj_units=grid or radians_per_cm" in told[0], told
                continue
            if asked == "auto" and others:
                error = daemon.run(scan.bytes(FOLDER.name), query)["error"]
                same(error["code"], "trajectory-scaling-ambiguous", f"code of {name}")
                assert f"traj_units={others}." in error["detail"], (name, error["detail"])
                continue
            # k that was multiplied in float32 has an error of 6e-8 x 16 pixels x 2 pi x |the factor's rounding|: below
            # 2e-5.
            close(npy(image(daemon, scan, query)), expected, 1e-4)


@test("the same scan gives the same bits twice, in any file layout")
def bits(daemon):
    scan = scans.radial(coils=4, seed=12)
    first = image(daemon, scan, QUERY)
    same(image(daemon, scan, QUERY), first, "second image")
    path = f"{FOLDER.name}/layout.h5"
    scan.write(path)
    with h5py.File(path) as plain, h5py.File(path + "2", "w") as packed:
        packed["dataset/xml"] = np.array([scan.xml.encode()])  # fixed length
        packed.create_dataset("dataset/data", data=plain["dataset/data"][:], chunks=(7,), compression="gzip",
                              shuffle=True)
    with open(path + "2", "rb") as file:
        same(image(daemon, file.read(), QUERY), first, "image from compressed chunks")


@test("png: magnitudes of one slice, windowed, with the bright spot at its position")
def png(daemon):
    scan, (x, y, _) = blob_scan(width=6)  # so many that they stay the brightest in a window cut at a percentile
    colour, bits_, pixels = read_png(image(daemon, scan, QUERY + "&dcf=none", "png"))
    same((colour, bits_, pixels.shape[:2]), (0, 8, (28, 40)), "colour type, bits, size")
    bright = pixels[..., 0] > 128
    expected = np.zeros((28, 40), bool)
    expected[y:y + 6, x:x + 6] = True
    same(int((bright != expected).sum()), 0, "pixels that are bright and should not be, or the reverse")


@test("png of a volume: a montage that contains every slice")
def montage(daemon):
    scan, _ = blob_scan((16, 12, 10))
    _, _, pixels = read_png(image(daemon, scan, QUERY + "&dcf=none", "png"))
    height, width = pixels.shape[:2]
    assert height * width >= 16 * 12 * 10, pixels.shape
    # As nearly square as possible: four columns, three rows, each tile with its number above it.
    same((width, height), (4 * (16 + 2) - 2, 3 * (9 + 12 + 2) - 2), "size")


def multi_slice(places, frames=1):
    """A 2-D scan with slices at these positions, in mm along z, repeated."""
    parts = [scans.radial(seed=60 + i) for i in range(len(places) * frames)]
    scan = scans.Scan(np.concatenate([p.traj for p in parts]), np.concatenate([p.data for p in parts]), parts[0].matrix)
    n = len(parts[0].heads)
    for i in range(len(parts)):
        rows = scan.heads[i * n:(i + 1) * n]
        rows["idx"]["repetition"], rows["idx"]["slice"] = i // len(places), i % len(places)
        rows["idx"]["kspace_encode_step_1"] = np.arange(n)
        rows["acquisition_time_stamp"] = 40000 + i // len(places) * 800
        rows["position"] = (1, 2, places[i % len(places)])
    return scan


@test("png of frames and slices: a row per frame, a column per slice")
def montage_of_frames(daemon):
    _, _, pixels = read_png(image(daemon, multi_slice((0, 5, 10), 2), QUERY + "&dcf=given", "png"))
    same(pixels.shape[:2], (2 * (9 + 20 + 2) - 2, 3 * (24 + 2) - 2), "size")


@test("nii.gz: the display window; the time between frames if the unit of the time stamps is known")
def nifti_header(daemon):
    scan = multi_slice((0, 5, 10), 4)
    siemens = "<acquisitionSystemInformation><systemVendor>SIEMENS</systemVendor></acquisitionSystemInformation>"
    for vendor, step, units in (("", 1, 2), (siemens, 2, 10)):
        timed = multi_slice((0, 5, 10), 4)
        timed.xml = scan.xml.replace("<experimentalConditions>", vendor + "<experimentalConditions>")
        data = gzip.decompress(image(daemon, timed, QUERY + "&dcf=given", "nii.gz"))
        same((struct.unpack("<8h", data[40:56])[:5], struct.unpack("<f", data[92:96])[0], data[123]),
             ((4, 24, 20, 3, 4), step, units), "size, time step and units")
        voxels = np.frombuffer(data, "<f4", 24 * 20 * 12, 352)
        high, low = struct.unpack("<2f", data[124:132])
        assert np.allclose((low, high), np.quantile(voxels, (0.005, 0.995)), rtol=0.05), (low, high)


@test("nii.gz of unevenly spaced slices: 406 with the reason and alternatives; the image exists in the other formats")
def nifti_refused(daemon):
    body = multi_slice((0, 5, 12.5)).bytes(FOLDER.name)
    said = "are 5 to 7.5 mm apart"
    answer = daemon.submit(body, QUERY + "&dcf=given", Prefer="wait=60", Accept="application/x-nifti")
    problem = answer.problem(406, "not-acceptable")
    assert said in problem["detail"] and "Use h5" in problem["detail"], problem
    same(answer.headers["location"], f"/v1/jobs/{problem['job_id']}", "Location")
    job = daemon.job(problem["job_id"])
    same((job["state"], [result["file"] for result in job["results"]]), ("succeeded", ["image.h5"]), "job")
    for path in ("image?format=nii.gz", "image.nii.gz"):
        assert said in daemon.get(f"/v1/jobs/{job['id']}/results/{path}").problem(406, "not-acceptable")["detail"]
    same(npy(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body).shape, (1, 1, 3, 20, 24),
         "shape of the npy")
    daemon.get(f"/v1/jobs/{job['id']}/results/image?format=png").expect(200, "image/png")
    done = client(daemon, "fetch", job["id"], "--out", f"{FOLDER.name}/refused.nii.gz", check=False)
    assert done.returncode == 1 and said in done.stderr and not os.path.exists(f"{FOLDER.name}/refused.nii.gz"), done


@test("an unacceptable Accept: 406 with the available formats, before the scan is read; for images and for documents")
def unacceptable(daemon):
    body = scans.radial().bytes(FOLDER.name)
    media = ("application/x-hdf5", "application/x-nifti", "image/png", "application/x-npy")
    before = len(daemon.get("/v1/jobs").json()["jobs"])
    for accept in ("image/jpeg", "text/html, image/*;q=0", "application/json;q=0"):
        detail = daemon.submit(body, QUERY, Prefer="wait=60", Accept=accept).problem(406, "not-acceptable")["detail"]
        assert all(name in detail for name in (*media, "application/json")), detail
    same(len(daemon.get("/v1/jobs").json()["jobs"]), before, "jobs")
    # The client does not wait.
    job = daemon.submit(body, QUERY, Accept="image/jpeg").expect(202, "application/json").json()["id"]
    daemon.finish(job)
    daemon.request("POST", f"/v1/jobs/{job}/resubmit",
                   headers={"Prefer": "wait=60", "Accept": "image/jpeg"}).problem(406, "not-acceptable")
    detail = daemon.get(f"/v1/jobs/{job}/results/image", Accept="image/jpeg").problem(406, "not-acceptable")["detail"]
    assert all(name in detail for name in media), detail
    for accept, media_type in (("image/*", "image/png"), ("*/*", "application/json"),
                               ("application/json, image/png", "application/json"),
                               ("image/jpeg, image/png;q=0.1", "image/png"),
                               ("image/jpeg, */*;q=0.1", "application/json")):
        daemon.submit(body, QUERY, Prefer="wait=60", Accept=accept).expect(200, media_type)


def warnings_of(daemon, method, path, body=None, **headers):
    """The job's id, and the texts of the answer's warning headers, which share one name."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=SLOW)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    assert answer.status in (200, 206), (answer.status, answer.read())
    found = answer.headers.get_all("Mrirecond-Warning") or []
    answer.read()
    connection.close()
    assert all(text[0] == text[-1] == '"' and text.isascii() for text in found), found
    return answer.headers["X-Job-Id"], [text[1:-1] for text in found]


@test("an image carries its warnings in every format, and the client prints them")
def warned(daemon):
    body = scans.radial().bytes(FOLDER.name)
    ask = {"Prefer": "wait=60", "Accept": "image/png"}
    _, usual = warnings_of(daemon, "POST", f"/v1/jobs?{QUERY}", body, **ask)
    identity, seen = warnings_of(daemon, "POST", "/v1/jobs?kind=recon&width=3&oversampling=1.25&tolerance=1e-3", body,
                                 **ask)
    same(seen, daemon.job(identity)["report"]["warnings"], "warnings of the report")
    doubt, = set(seen) - set(usual)
    assert "more than the tolerance of 0.001" in doubt, doubt
    for form in ("h5", "nii.gz", "png", "npy"):
        same(warnings_of(daemon, "GET", f"/v1/jobs/{identity}/results/image?format={form}")[1], seen,
             f"warnings of {form}")
    same(warnings_of(daemon, "GET", f"/v1/jobs/{identity}/results/image.h5", Range="bytes=0-9")[1], seen,
         "warnings of a part")
    out = f"{FOLDER.name}/doubtful.png"
    same(client(daemon, "fetch", identity, "--out", out).stderr,
         "".join(f"mrirecon: {out}: warning: {text}\n" for text in seen), "what the client says")


@test("more and longer warnings than headers can hold, in any language: truncated, with the number of the others")
def many_warnings():
    with tempfile.TemporaryDirectory() as state:
        with Daemon(state=state) as daemon:
            identity = daemon.run(scans.radial().bytes(FOLDER.name), QUERY)["id"]
        told = [f"{i}: \"Müller\" said\nthat " + "nothing is right, and everything is wrong, " * 20 for i in range(30)]
        with sqlite3.connect(state + "/jobs.db") as db:
            db.execute("UPDATE job SET report = json_set(report, '$.warnings', json(?))", (json.dumps(told),))
        db.close()
        with Daemon(state=state) as daemon:
            for room in (0, 4000):  # a request with large headers gets the same answer
                _, seen = warnings_of(daemon, "GET", f"/v1/jobs/{identity}/results/image?format=h5",
                                      X_Padding="x" * room)
                same(len(seen), 8, "headers")
                for i, text in enumerate(seen[:-1]):
                    assert (text.startswith(f'{i}: \\"M?ller\\" said?that nothing is right') and text.endswith("...")
                            and len(text) < 400), text
                same(seen[-1], "23 more warnings are in the job's report.", "the last")
            out = f"{FOLDER.name}/warned.h5"
            lines = client(daemon, "fetch", identity, "--out", out).stderr.splitlines()
            assert len(lines) == 8 and lines[0].startswith(f'mrirecon: {out}: warning: 0: "M?ller" said?that'), lines


@test("h5: an ISMRMRD image with size, field of view, directions, and the scan's header")
def ismrmrd(daemon):
    scan = scans.radial(seed=13)
    turn = np.deg2rad(30)
    for name, value in (("position", (11, -7, 5)), ("read_dir", (np.cos(turn), np.sin(turn), 0)),
                        ("phase_dir", (-np.sin(turn), np.cos(turn), 0)), ("slice_dir", (0, 0, 1))):
        scan.heads[name] = value
    with h5py.File(io.BytesIO(image(daemon, scan, QUERY + "&dcf=given", "h5"))) as file:
        group = file["dataset/image_0"]
        header, data = group["header"][0], group["data"][:]
        same(list(header["matrix_size"]), [24, 20, 1], "matrix")
        same([float(v) for v in header["field_of_view"]], [48.0, 40.0, 2.0], "field of view")
        same((int(header["channels"]), int(header["data_type"]), int(header["image_type"])), (1, 5, 1),
             "channels, data type, image type")
        for name, value in (("position", (11, -7, 5)), ("read_dir", (np.cos(turn), np.sin(turn), 0)),
                            ("slice_dir", (0, 0, 1))):
            assert np.allclose(header[name], value, atol=1e-5), (name, header[name])
        close(data, np.sqrt((abs(scan.adjoint()) ** 2).sum(0))[None, None])
        assert b"ismrmrdHeader" in np.asarray(file["dataset/xml"]).ravel()[0], "the scan's header is missing"


@test("an endless conversion delays only its own client; it is stopped when that client disconnects")
def conversions_take_turns():
    with tempfile.TemporaryDirectory() as folder:
        codec = os.path.join(folder, "codec")
        with open(codec, "w") as file:  # its NIfTI conversion makes no progress until it is allowed to
            file.write(f'#!/bin/sh\n[ "$1 $4" = "convert nii.gz" ] && exec sleep 100000\nexec {BIN}/mrirecon-codec '
                       f'"$@"\n')
        os.chmod(codec, 0o755)
        state = os.path.join(folder, "state")
        os.mkdir(state)
        with Daemon(state=state, devices="cpu") as daemon:  # with its own codec, which no worker runs
            jobs = [daemon.run(scans.radial(seed=seed).bytes(folder))["id"] for seed in (1, 2)]
        with Daemon(state=state, devices="cpu", codec=codec, convert_timeout=3600) as daemon:
            def ask(who, job, form, waiting=None):
                """Sends the request; with `waiting`, returns once so many requests wait, this one among them."""
                connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
                connection.sendall(f"GET /v1/jobs/{job}/results/image?format={form} HTTP/1.1\r\nHost: "
                                   f"localhost\r\nX-Mrirecond-Client: {who}\r\n\r\n".encode())
                if waiting:
                    wait_until(lambda: daemon.waiting() == waiting, f"{waiting} requests that wait")
                return connection

            stuck = [ask("a", job, "nii.gz", waiting) for waiting, job in enumerate(jobs, 1)]
            wait_until(lambda: daemon.children("sleep"), "the conversion that takes for ever")
            behind = ask("a", jobs[0], "npy", 3)
            assert ask("b", jobs[0], "png").recv(100).startswith(b"HTTP/1.1 200"), "another client has no image"
            same(len(daemon.children("sleep")), 1, "conversions of one client that run")
            second = ask("c", jobs[0], "nii.gz", 4)  # the same file: not converted twice
            stuck[0].close()
            stuck[1].close()
            wait_until(lambda: daemon.waiting() == 2, "the end of the requests whose client has gone")
            assert ask("b", jobs[1], "png").recv(100).startswith(b"HTTP/1.1 200"), "another client has no image"
            same(len(daemon.children("sleep")), 1, "conversions that run while one still waits")
            assert select.select([behind], [], [], 0) == ([], [], []), "two concurrent conversions for one client"
            second.shutdown(socket.SHUT_WR)
            assert behind.recv(100).startswith(b"HTTP/1.1 200"), "the client's next conversion did not run"
            wait_until(lambda: not daemon.children("sleep"), "the end of the conversion that nobody waits for")
            again = ask("a", jobs[0], "nii.gz")  # it was not cached as a failure
            wait_until(lambda: daemon.children("sleep"), "the conversion, asked for again")
            again.close()
            wait_until(lambda: not daemon.children("sleep"), "its end")
            wait_until(lambda: not [name for name in daemon.files() if name.startswith("results/.")],
                       "what conversions left to go")


@test("nii.gz: NIfTI-1 with sizes, voxel sizes and an affine that maps the bright spot to its position")
def nifti(daemon):
    scan, (x, y, z) = blob_scan((20, 16, 12))
    turn = np.deg2rad(20)
    read, phase, normal = (np.cos(turn), np.sin(turn), 0), (-np.sin(turn), np.cos(turn), 0), (0, 0, 1)
    for name, value in (("position", (30, -20, 40)), ("read_dir", read), ("phase_dir", phase), ("slice_dir", normal)):
        scan.heads[name] = value
    data = gzip.decompress(image(daemon, scan, QUERY + "&dcf=none", "nii.gz"))
    same(struct.unpack("<i", data[:4])[0], 348, "size of the header")
    same(data[344:348], b"n+1\0", "magic")
    dim = struct.unpack("<8h", data[40:56])
    same(dim[1:4], (20, 16, 12), "size")
    kind, bits_ = struct.unpack("<2h", data[70:74])
    same((kind, bits_), (16, 32), "type, bits")
    assert np.allclose(struct.unpack("<8f", data[76:108])[1:4], (2, 2, 2)), "voxel size"
    offset = int(struct.unpack("<f", data[108:112])[0])
    voxels = np.frombuffer(data, "<f4", 20 * 16 * 12, offset).reshape(12, 16, 20)
    brightest = np.unravel_index(voxels.argmax(), voxels.shape)[::-1]
    affine = np.array(struct.unpack("<12f", data[280:328])).reshape(3, 4)
    assert struct.unpack("<h", data[254:256])[0] > 0, "no sform"
    # The position of that voxel: position + (index - floor(N/2)) * 2 mm along each direction, in LPS; NIfTI uses RAS.
    lps = np.array((30, -20, 40)) + 2 * ((x - 10) * np.array(read) + (y - 8) * np.array(phase) +
                                         (z - 6) * np.array(normal))
    seen = affine @ [*brightest, 1]
    assert np.allclose(seen, lps * (-1, -1, 1), atol=1e-3), f"the spot is at {seen}, not at {lps * (-1, -1, 1)}"


def real(name, size, tolerance, limit):
    def run(daemon):
        reference = np.fromfile(real_scan(f"{name}.ref.f32"), "<f4").reshape(size[::-1])
        with open(real_scan(f"{name}_weights.h5"), "rb") as file:
            seen = npy(image(daemon, file.read(),
                             f"kind=recon&method=adjoint&dcf=given&coils=rss&tolerance={tolerance}"))
        same(seen.shape[2:], reference.shape, "size")
        error = scans.nrmse(seen, reference, fit=True)
        assert error < limit, f"off by {error:.3g}, allowed {limit:g}"
    return run


for scan_name, scan_size in (("phantom_spiral_8ch", (260, 360, 1)), ("cardiac_radial_12ch", (384, 384, 1)),
                             ("lung_kooshball_1ch", (64, 64, 64))):
    for asked in ("1e-3", "1e-5"):
        test(f"{scan_name} at tolerance {asked} against the exact sum")(real(scan_name, scan_size, asked, float(asked)))


if __name__ == "__main__":
    main(Daemon)
