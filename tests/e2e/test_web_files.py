#!/usr/bin/python3
"""The web page's files: media types, compressed forms, ETags, caching, policy, the redirect from "/", and paths that
are not served.
"""
import gzip
import os
import shutil
import tempfile

from guarded import Guarded
from harness import BIN, Daemon, main, raw, same, status_of, test

FOLDER = tempfile.TemporaryDirectory()
SCRIPT = b"export const x = 1;\n" * 500
FILES = {
    "index.html": b"<!doctype html><title>mrirecond</title><script type=module src=app-ABCD2345.js></script>\n",
    "app-ABCD2345.js": SCRIPT,
    "app-ABCD2345.js.gz": gzip.compress(SCRIPT, mtime=0),
    "app-ABCD2345.js.br": b"stands for brotli's bytes",
    "style-Q2345678.css": b"body{}",
    "icon.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "licences.txt": b"MIT\n",
    "odd.bin": b"\0\1",
    ".hidden.html": b"hidden",
}
POLICY = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:",
          "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}


def folder(files=None):
    path = tempfile.mkdtemp(dir=FOLDER.name)
    for name, data in (FILES if files is None else files).items():
        with open(os.path.join(path, name), "wb") as file:
            file.write(data)
    os.mkdir(os.path.join(path, "sub"))
    return path


def start():
    return Daemon(devices="cpu", web_dir=folder())


@test("every file has its media type, a policy, a strong ETag, and a cache lifetime")
def files(daemon):
    for name, media in (("index.html", "text/html"), ("app-ABCD2345.js", "text/javascript"),
                        ("style-Q2345678.css", "text/css"),
                        ("icon.svg", "image/svg+xml"), ("licences.txt", "text/plain"),
                        ("odd.bin", "application/octet-stream")):
        answer = daemon.get(f"/ui/{name}").expect(200, media)
        same(answer.body, FILES[name], name)
        headers = answer.headers
        same(set(headers["content-security-policy"].split("; ")), POLICY, "policy")
        same((headers["x-content-type-options"], headers["referrer-policy"]), ("nosniff", "no-referrer"), "headers")
        same(headers["cache-control"], "public, max-age=31536000, immutable" if "-" in name else "no-cache",
             f"Cache-Control of {name}")
        assert headers["etag"].startswith('"') and len(headers["etag"]) == 34, headers["etag"]
        same("content-encoding" in headers, False, "a coding that was not asked for")
        same(headers.get("vary"), "Accept-Encoding" if name.endswith(".js") else None, f"Vary of {name}")
        head = daemon.request("HEAD", f"/ui/{name}").expect(200)
        same((head.body, head.headers["content-length"], head.headers["etag"]),
             (b"", str(len(FILES[name])), headers["etag"]), "HEAD")
    same(daemon.get("/ui/").expect(200, "text/html").body, FILES["index.html"], "/ui/")


@test("the coding is the one that the browser prefers, each with its own ETag; 304 for a known one")
def codings(daemon):
    path, seen, sizes = "/ui/app-ABCD2345.js", {}, {}
    for accepted, coding in (("gzip, deflate, br", "br"), ("gzip", "gzip"), ("br;q=0.5, gzip;q=0.8", "gzip"),
                             ("*", "br"), ("GZIP;q=1.0", "gzip"),
                             ("br;q=0, *;q=0.1", "gzip"), ("", None), ("identity", None), ("gzip;q=0", None),
                             ("brr, xgzip", None), (";;,,;q=", None), ("br;q=0,gzip;q=0.000", None)):
        answer = daemon.get(path, Accept_Encoding=accepted).expect(200, "text/javascript")
        same(answer.headers.get("content-encoding"), coding, f"coding for {accepted!r}")
        same(answer.body, FILES["app-ABCD2345.js" + {"br": ".br", "gzip": ".gz", None: ""}[coding]],
             f"bytes for {accepted!r}")
        seen[coding], sizes[coding] = answer.headers["etag"], len(answer.body)
    same(len(set(seen.values())), 3, "different ETags")
    for coding, etag in seen.items():
        for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
            answer = daemon.get(path, Accept_Encoding=coding or "", If_None_Match=known).expect(304)
            same((answer.body, answer.headers["etag"], answer.headers["vary"]), (b"", etag, "Accept-Encoding"),
                 f"304 for {known}")
            assert "content-security-policy" in answer.headers, answer.headers
            same(answer.headers["content-length"], str(sizes[coding]), "length of what is known")
        daemon.get(path, Accept_Encoding=coding or "", If_None_Match='"other"').expect(200)


@test("'/' redirects a browser to the page, and gives others the document")
def home(daemon):
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
    for path in ("/", "/ui"):
        answer = daemon.get(path, Accept=browser).expect(303)
        same((answer.headers["location"], answer.body), ("ui/", b""), f"redirect from {path}")
    same(daemon.request("HEAD", "/", None, {"Accept": browser}).status, 303, "HEAD of /")
    for accept in ("*/*", "application/json", "application/json, text/html;q=0.9", "text/*", "text/html;q=0"):
        daemon.get("/", Accept=accept).expect(200, "application/json")
    paths = daemon.get("/").json()["paths"]
    same(paths.count("GET /"), 1, "times that / is listed")
    same(daemon.request("POST", "/", b"x", {"Accept": browser}).headers.get("allow"), "GET, HEAD", "Allow of /")


@test("nothing but the folder's own files is served: no other path, no hidden file, no compressed file by its name")
def outside(daemon):
    for path in ("/ui/none.js", "/ui/.hidden.html", "/ui/app-ABCD2345.js.gz", "/ui/sub", "/ui/sub/", "/ui//index.html",
                 "/ui/index.html/",
                 "/ui/../jobs.db", "/ui/..%2fjobs.db", "/ui/%2e%2e%2fjobs.db", "/ui/..\\jobs.db",
                 "/ui/index.html%00.js", "/ui/%2fetc%2fpasswd",
                 "/ui/./index.html", "/ui/" + "a" * 5000):
        answer = raw(daemon, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        same(status_of(answer), 404, f"status of {path[:60]}")
        assert b"hidden" not in answer.split(b"\r\n\r\n", 1)[1], answer
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        same(daemon.request(method, "/ui/index.html", b"").problem(405, "method-not-allowed")["status"], 405)
    daemon.get("/ui/index.html?x=1").problem(400, "unknown-parameter")


@test("a file that changes or goes after the start is served as it was")
def as_it_was():
    path = folder()
    with Daemon(devices="cpu", web_dir=path) as daemon:
        shutil.rmtree(path)
        same(daemon.get("/ui/").expect(200).body, FILES["index.html"], "after the folder was removed")


@test("the page needs no token, its data do")
def guarded():
    with Guarded(web_dir=folder()) as daemon:
        daemon.get("/ui/").expect(200, "text/html")
        daemon.get("/", Accept="text/html").expect(303)
        daemon.get("/").problem(401, "unauthorized")
        daemon.get("/v1/jobs").problem(401, "unauthorized")


@test("a service without the page says how to get it, and serves all else; a wrong web-dir is an error at the start")
def without():
    programs = tempfile.mkdtemp(dir=FOLDER.name)
    for name in os.listdir(BIN):
        os.symlink(os.path.join(BIN, name), os.path.join(programs, name))
    os.unlink(os.path.join(programs, "mrirecond"))
    shutil.copy(os.path.join(BIN, "mrirecond"), programs)
    with Daemon(devices="cpu", binaries=programs) as daemon:
        for path in ("/ui/", "/ui/index.html"):
            assert "make web" in daemon.get(path).problem(404, "not-found")["detail"]
        daemon.get("/", Accept="text/html").expect(200, "application/json")
    for bad, word in ((os.path.join(FOLDER.name, "none"), "No such file"), (folder({"app.js": b""}), "index.html"),
                      (folder({f"{i}.js": b"" for i in range(513)}), "512 files")):
        try:
            Daemon(devices="cpu", web_dir=bad).stop()
        except AssertionError as failure:
            assert word in str(failure), failure
        else:
            raise AssertionError(f"{bad} was taken")


if __name__ == "__main__":
    main(start)
