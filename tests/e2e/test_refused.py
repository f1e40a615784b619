#!/usr/bin/python3
"""Requests that the service refuses: unknown paths, methods, kinds and parameters, and values out of range."""
import tempfile

import scans
from harness import Daemon, main, same, test

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial().bytes(FOLDER.name)


@test("unknown paths and methods are problem documents")
def wrong_paths(daemon):
    for path in ("/nothing", "/v1", "/v1/nothing", "/v2/jobs", "/v1/jobs/none", "/v1/jobs/none/results/image",
                 "/v1/jobs/none/nothing"):
        daemon.get(path).problem(404, "not-found")
    for path in ("/v1/jobs/../kinds", "/v1/jobs/%00", "/v1/jobs/%zz", "/v1//jobs", "/v1/jobs/%ff%fe"):
        answer = daemon.get(path)
        assert answer.status in (400, 404), answer.status
        answer.problem(answer.status, "bad-request" if answer.status == 400 else "not-found")
    assert daemon.get("/v1/jobs/" + "a" * 3000).status in (400, 404, 414)
    for method, path in (("PUT", "/v1/jobs"), ("POST", "/livez"), ("POST", "/v1/kinds"), ("PATCH", "/v1/jobs/x")):
        answer = daemon.request(method, path, b"" if method in ("PUT", "POST", "PATCH") else None)
        answer.problem(405, "method-not-allowed")
        assert "GET" in answer.headers["allow"], answer.headers


@test("unknown kinds and parameters, and values out of range, are refused before the body is read")
def wrong_parameters(daemon):
    def files():
        return {name for name in daemon.files() if "jobs.db" not in name}
    before = files()
    for query, code in (("kind=nothing", "unknown-kind"), ("kind=recon&dfc=given", "unknown-parameter"),
                        ("kind=recon&dcf=wrong", "bad-parameter"), ("kind=recon&tolerance=0", "bad-parameter"),
                        ("kind=recon&tolerance=nan", "bad-parameter"), ("kind=recon&tolerance=1e-3x", "bad-parameter"),
                        ("kind=recon&dcf_iterations=1.5", "bad-parameter"),
                        ("kind=recon&dcf_iterations=99999999999999999999", "bad-parameter"),
                        ("kind=recon&group=" + "g" * 500, "bad-parameter"), ("kind=recon&tolerance=", "bad-parameter"),
                        ("kind=recon&bin_depth=0", "bad-parameter"), ("kind=recon&bin_depth=some", "bad-parameter"),
                        ("kind=recon&overflow=gpu", "bad-parameter"), ("kind=recon&oversampling=0.5", "bad-parameter"),
                        ("kind=recon&width=1", "bad-parameter"), ("kind=recon&encoding=-2", "bad-parameter"),
                        ("kind=recon&output=complex", "bad-parameter"),
                        ("kind=recon&output=complex&coils=rss", "bad-parameter"),
                        ("kind=recon&width=2", "bad-parameter"),
                        ("kind=recon&kernel=radial&oversampling=1.25", "bad-parameter")):
        daemon.submit(BODY, query).problem(400, code)
    assert "dcf" in daemon.submit(BODY, "kind=recon&dfc=given").json()["detail"], "the nearest name is not offered"
    daemon.submit(BODY, "kind=recon&dcf=given&dcf=none").problem(400, "bad-parameter")
    same(files(), before, "files")
    same(daemon.get("/v1/jobs").json()["jobs"], [], "jobs")
    same(daemon.run(BODY, "dcf=none")["kind"], "recon", "kind where none is given")


if __name__ == "__main__":
    main(Daemon)
