#!/usr/bin/python3
"""Uploads that cannot be reconstructed: each gets a problem document with its own code, and the service is not
affected.
"""
import json
import re
import subprocess
import tempfile

import h5py
import numpy as np

import scans
from harness import FINAL, Daemon, check_problem, main, same, test, wait_until

FOLDER = tempfile.TemporaryDirectory()
GOOD = scans.radial(seed=21)
BODY = GOOD.bytes(FOLDER.name)
LIMIT = 8 << 20


def start():
    return Daemon(body_limit=LIMIT)


def still_well(daemon):
    """The service is ready, and a good scan right after gives the right image."""
    daemon.get("/readyz").expect(200)
    same(daemon.run(BODY)["state"], "succeeded", "state of a good scan right after")


def changed(change, **arguments):
    scan = scans.radial(seed=22, **arguments)
    change(scan)
    return scan.bytes(FOLDER.name)


def refused(code, change, query="kind=recon", says="", **arguments):
    """Define a test that a scan with this change fails with `code`, with a sentence that matches `says`."""
    def run(daemon):
        problem = daemon.fails(changed(change, **arguments), query, code)
        assert re.search(says, problem["detail"], re.I), f"{says!r} is not in {problem['detail']!r}"
        still_well(daemon)
        return problem
    return run


# ---- not a scan at all

@test("an empty body")
def empty(daemon):
    before = daemon.files()
    daemon.submit(b"").problem(400, "empty-body")
    same(set(daemon.files()) - set(before), set(), "files left behind")
    still_well(daemon)


@test("text, a picture, zeros, an HDF5 signature alone")
def text(daemon):
    for body, codes in ((b"this is no scan\n", ("unknown-format",)),
                        (b"\x89PNG\r\n\x1a\n" + b"x" * 1000, ("unknown-format",)),
                        (bytes(100000), ("unknown-format",)),
                        (b"\x89HDF\r\n\x1a\n", ("malformed-file", "truncated-file")),
                        (b"x", ("unknown-format",))):
        response = daemon.submit(body)
        problem = response.json() if response.status != 202 else daemon.finish(response.json()["id"])["error"]
        assert problem["code"] in codes, f"{body[:20]!r}: {problem}"
        check_problem(problem, problem["code"])
    still_well(daemon)


@test("bodies sent by curl with -F, -d and without the @: the error names the right option")
def by_curl(daemon):
    GOOD.write(f"{FOLDER.name}/scan.h5")
    for words, says in ((("-F", "file=@scan.h5"), "as curl -F sends it.*--data-binary @scan.h5"),
                        (("-d", "@scan.h5"), "line ends were taken out, as curl -d.*--data-binary @scan.h5"),
                        (("-d", "scan.h5"), 'the text "scan.h5", which looks like a file name.*--data-binary @scan.h5'),
                        (("--data-binary", "scan.h5"), 'the text "scan.h5"'),
                        (("-F", "file=@scan.h5", "-H", "Content-Type: application/x-hdf5"),
                         "The file is a multipart form, as curl -F sends it")):
        done = subprocess.run(["curl", "-sS", "-H", "Prefer: wait=60", *words, f"{daemon.url}/v1/jobs?kind=recon"],
                              cwd=FOLDER.name, capture_output=True, text=True)
        problem = check_problem(json.loads(done.stdout), "unknown-format", 415)
        assert re.search(says, problem["detail"]), problem
    same(daemon.submit(GOOD.bytes(FOLDER.name).replace(b"\r\n", b"\n"), Prefer="wait=60").json()["detail"][:60],
         "The file was an HDF5 file until its line ends were changed, ")
    still_well(daemon)


@test("a file truncated anywhere")
def cut(daemon):
    for share in (0.02, 0.25, 0.5, 0.75, 0.999):
        response = daemon.submit(BODY[:int(len(BODY) * share)])
        job = daemon.finish(response.expect(202).json()["id"])
        same(job["state"], "failed", f"state of {share} of a file")
        assert job["error"]["code"] in ("truncated-file", "malformed-file"), job["error"]
        check_problem(job["error"], job["error"]["code"])
    still_well(daemon)


@test("60 random mutants of a valid file: each job ends, none affects others")
def mutants(daemon):
    rng = np.random.default_rng(23)
    made = []
    for i in range(60):
        body = bytearray(BODY)
        # Metadata is a small part of a file, so half of the mutants are damaged in its first and last kilobytes.
        for _ in range(int(rng.integers(1, 9))):
            span = (0, 4096) if i % 2 else (0, len(body))
            body[int(rng.integers(*span))] = int(rng.integers(256))
        made.append(daemon.submit(bytes(body)).expect(202).json()["id"])
    codes = {}
    for identity in made:
        job = daemon.finish(identity)
        assert job["state"] in FINAL, job
        if job["state"] == "failed":
            check_problem(job["error"], job["error"]["code"])
            assert job["error"]["code"] not in ("internal", "worker-died"), job["error"]
            codes[job["error"]["code"]] = codes.get(job["error"]["code"], 0) + 1
    assert codes, "no mutant failed: they were not damaged"
    still_well(daemon)


@test("an HDF5 file with other content")
def other_hdf5(daemon):
    path = f"{FOLDER.name}/other.h5"
    with h5py.File(path, "w") as file:
        file["something/data"] = np.arange(1000.0)
    with open(path, "rb") as file:
        response = daemon.submit(file.read())
    job = daemon.finish(response.expect(202).json()["id"])
    assert job["error"]["code"] in ("malformed-file", "unknown-format", "header-invalid"), job["error"]
    check_problem(job["error"], job["error"]["code"])
    still_well(daemon)


@test("a body over the limit is refused, whether its length is announced or found during the upload")
def too_large(daemon):
    before = daemon.files()
    problem = daemon.request("POST", "/v1/jobs?kind=recon",
                             headers={"Content-Length": str(LIMIT + 1), "Expect": "100-continue"}
                             ).problem(413, "body-too-large")
    assert str(LIMIT) in problem["detail"] or "8" in problem["detail"], problem["detail"]

    def pieces():
        for _ in range(LIMIT // 65536 + 20):
            yield bytes(65536)
    try:
        daemon.request("POST", "/v1/jobs?kind=recon", body=pieces(),
                       headers={"Transfer-Encoding": "chunked"}).problem(413, "body-too-large")
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server may close before all is sent; only what it keeps counts
    wait_until(lambda: not set(daemon.files()) - set(before), "the files that were begun to go")
    still_well(daemon)


# ---- scans that cannot be reconstructed

def nan_in_data(scan):
    scan.data[7, 1, 5] = np.nan


def infinite_data(scan):
    scan.data[0, 0, 0] = np.inf


def nan_in_trajectory(scan):
    scan.traj[9, 3, 0] = np.nan


def out_of_range(scan):
    scan.traj[4, 0, 0] = 0.9


def odd_unit(scan):
    scan.traj[..., :2] *= 3.7 / 0.5


def no_trajectory(scan):
    scan.traj = scan.traj[:, :, :0]
    scan.heads["trajectory_dimensions"] = 0


def nan_weight(scan):
    scan.traj[2, 2, 2] = np.nan


def all_noise(scan):
    scan.heads["flags"] = 1 << 18


def one_dimension(scan):
    scan.traj = scan.traj[:, :, :1]
    scan.heads["trajectory_dimensions"] = 1


def broken_xml(scan):
    scan.xml = scan.xml.replace("</encoding>", "")


def no_encoding(scan):
    scan.xml = re.sub(r"<encoding>.*</encoding>", "", scan.xml, flags=re.S)


def huge_matrix(scan):
    scan.xml = scan.xml.replace("<x>24</x>", "<x>70000</x>")


def negative_matrix(scan):
    scan.xml = scan.xml.replace("<x>24</x>", "<x>-1</x>")


def no_such_encoding(scan):
    scan.heads["encoding_space_ref"][5] = 3


def fewer_coils(scan):
    scan.heads["active_channels"][8] = 1
    data = list(scan.data)
    data[8] = data[8][:1]
    scan.data = data


def head_lies(scan):
    scan.heads["number_of_samples"][6] = 65535


def cartesian(scan):
    scan.xml = scan.xml.replace(">radial<", ">cartesian<")
    no_trajectory(scan)


def discards_all(scan):
    scan.heads["discard_pre"] = 48


for test_name, test_code, test_change, more in (
        ("NaN among the data", "data-nonfinite", nan_in_data, {"says": "7"}),
        ("infinity among the data", "data-nonfinite", infinite_data, {}),
        ("NaN in the trajectory", "trajectory-nonfinite", nan_in_trajectory, {"says": "9"}),
        ("a sample outside the encoded k-space, unit given", "trajectory-out-of-range", out_of_range,
         {"query": "kind=recon&traj_units=pixel", "says": r"0\.9"}),
        ("a trajectory in no unit that is known", "trajectory-scaling-ambiguous", odd_unit, {"says": "traj_units"}),
        ("no trajectory", "trajectory-missing", no_trajectory, {}),
        ("a Cartesian scan", "trajectory-missing", cartesian, {}),
        ("a trajectory with one column", "trajectory-dimensions", one_dimension, {"weights": False}),
        ("weights asked for, none there", "dcf-missing", lambda scan: None,
         {"query": "kind=recon&dcf=given", "weights": False, "says": "dcf"}),
        ("NaN among the weights", "dcf-invalid", nan_weight, {"query": "kind=recon&dcf=given"}),
        ("nothing but noise", "no-image-data", all_noise, {}),
        ("every sample discarded", "encoding-invalid", discards_all, {"says": "discard"}),
        ("a header that is no XML", "header-invalid", broken_xml, {}),
        ("a header without encoding", "header-invalid", no_encoding, {}),
        ("a matrix of 70000", "header-invalid", huge_matrix, {"says": "70000|matrix"}),
        ("a matrix of -1", "header-invalid", negative_matrix, {"says": "matrix"}),
        ("an acquisition of an encoding that is not there", "encoding-invalid", no_such_encoding,
         {"says": "5|encoding"}),
        ("coils that change within an image", "coils-differ", fewer_coils, {}),
        ("an acquisition whose head does not fit its data", "malformed-file", head_lies, {"says": "6|samples"})):
    test(test_name)(refused(test_code, test_change, **more))


@test("a problem document names the acquisition with the error")
def acquisition(daemon):
    problem = daemon.fails(changed(nan_in_data), "kind=recon", "data-nonfinite")
    same(problem.get("acquisition_index"), 7, "acquisition_index")


if __name__ == "__main__":
    main(start)
