#!/usr/bin/python3
"""Requests that are not HTTP, or HTTP that nobody should send: each is answered as docs/openapi.yaml declares, or by
closing the connection, and affects no one else.
"""
import json
import random
import re

import scans
from harness import Daemon, check_problem, main, raw, same, status_of, test

HOST = b"Host: localhost\r\n"
GET = b"GET /v1/kinds HTTP/1.1\r\n" + HOST
POST = b"POST /v1/jobs?kind=recon HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# Requests that the service itself refuses, with a problem document.
PROBLEMS = {
    "no Host": (b"GET /v1/kinds HTTP/1.1\r\n\r\n", 400, "bad-request"),
    "two Hosts": (GET + HOST + b"\r\n", 400, "bad-request"),
    "a space in the path": (b"GET /v1 /kinds HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "two spaces": (b"GET  /v1/kinds  HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "a fragment": (b"GET /v1/kinds#a HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "a path without a slash": (b"GET livez HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "OPTIONS *": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "CONNECT": (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "an address that names nobody": (b"GET http:///livez HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "an address of another host": (b"GET http://evil.example/v1/kinds HTTP/1.1\r\n" + HOST + b"\r\n", 421,
                                   "misdirected"),
    "a host that is no text": (b"GET /v1/kinds HTTP/1.1\r\nHost: localho\xfft\r\n\r\n", 421, "misdirected"),
    "an unknown method": (b"BREW /v1/kinds HTTP/1.1\r\n" + HOST + b"\r\n", 405, "method-not-allowed"),
    "a method in small letters": (b"get /v1/kinds HTTP/1.1\r\n" + HOST + b"\r\n", 405, "method-not-allowed"),
    "a space before a colon": (GET + b"A : b\r\n\r\n", 400, "bad-request"),
    "a length whose name ends in a space": (POST + b"Content-Length : 3\r\n\r\nabc", 400, "bad-request"),
    "a header's name with a slash": (GET + b"A/B: c\r\n\r\n", 400, "bad-request"),
    "a first header that goes on": (b"GET /v1/kinds HTTP/1.1\r\n A: b\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "chunks in HTTP/1.0": (b"POST /v1/jobs HTTP/1.0\r\n" + HOST +
                           b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 400, "bad-request"),
    "a length beyond the limit": (POST + b"Content-Length: 9223372036854775807\r\n\r\n", 413, "body-too-large"),
    "a long path": (b"GET /" + b"a" * 16384 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri-too-long"),
    "a longer one": (b"GET /?" + b"a" * 60000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri-too-long"),
    "many headers": (GET + b"a: b\r\n" * 200 + b"\r\n", 431, "headers-too-large"),
    "long headers": (GET + b"A: " + b"b" * 65536 + b"\r\n\r\n", 431, "headers-too-large"),
}

# Would run if it were taken for a request.
NEXT = b"DELETE /v1/jobs?older=0 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


def shapes():
    """Heads that two readers may parse as different requests, each with a name: a folded header, a byte 0, a line end
    without CR, a control character, in each of the headers that determine how a request is read.
    """
    length = b"%d" % len(NEXT)
    for name, value in ((b"Content-Length", length), (b"Transfer-Encoding", b"chunked"), (b"Host", b"localhost"),
                        (b"Authorization", b"Bearer mrt_0"), (b"X-Any", b"a")):
        other = b"" if name == b"Host" else HOST
        for what, lines in (("folded by a space", name + b":\r\n " + value + b"\r\n"),
                            ("folded by a tab", name + b":\r\n\t" + value + b"\r\n"),
                            ("folded after its value", name + b": " + value + b"\r\n 1\r\n"),
                            ("folded with nothing", name + b": " + value + b"\r\n \r\n"),
                            ("folded twice", name + b":\r\n \r\n " + value + b"\r\n"),
                            ("folded, another behind it", name + b":\r\n " + value + b"\r\nX-B: c\r\n"),
                            ("a byte 0 in its value", name + b": " + value[:1] + b"\0" + value[1:] + b"\r\n"),
                            ("a byte 0 before its value", name + b": \0" + value + b"\r\n"),
                            ("a byte 0 behind its value", name + b": " + value + b"\0\r\n"),
                            ("a byte 0 and more", name + b": " + value + b"\0 57\r\n"),
                            ("bytes 0 alone", name + b": \0\0\r\n"),
                            ("a byte 0 before its name", b"\0" + name + b": " + value + b"\r\n"),
                            ("a line end without CR", name + b": " + value + b"\n"),
                            ("a CR alone", name + b": " + value + b"\rX-B: c\r\n"),
                            ("CR CR LF", name + b": " + value + b"\r\r\n"),
                            ("a vertical tab", name + b": " + value + b"\x0b\r\n"),
                            ("a delete", name + b": " + value + b"\x7f\r\n")):
            for method, place in ((b"GET /v1/kinds", other + lines), (b"GET /v1/kinds", lines + other),
                                  (b"POST /v1/jobs", other + lines + b"X-C: d\r\n")):
                yield f"{name.decode()}: {what}", method + b" HTTP/1.1\r\n" + place + b"\r\n"
    for what, head in (("a byte 0 in the target", b"GET /v1/kinds\0/more HTTP/1.1\r\n" + HOST + b"\r\n"),
                       ("a byte 0 alone in a line", GET + b"\0\r\n\r\n"),
                       ("a line that begins with a byte 0", GET + b"\0X: y\r\n\r\n"),
                       ("a first line without CR", b"GET /v1/kinds HTTP/1.1\n" + HOST + b"\r\n"),
                       ("an empty line without CR", GET + b"\n"),
                       ("no CR at all", b"GET /v1/kinds HTTP/1.1\nHost: localhost\n\n")):
        yield what, head


# Requests that the library itself refuses (see docs/openapi.yaml): a status, and no problem document.
PAGES = {
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "another protocol": (b"GET / FOO/1.1\r\n" + HOST + b"\r\n", 400),
    "a header without a colon": (GET + b"nonsense\r\n\r\n", 400),
    "a negative length": (POST + b"Content-Length: -5\r\n\r\n", 400),
    "a length in words": (POST + b"Content-Length: five\r\n\r\nabcde", 400),
    "two lengths in one": (POST + b"Content-Length: 5, 5\r\n\r\nabcde", 400),
    "a length of 23 digits": (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 413),
    "a chunk of no length": (CHUNKED + b"zz\r\n", 400),
    "a chunk that is longer than it says": (CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n", 400),
    "a chunk of 18 digits": (CHUNKED + b"f" * 18 + b"\r\n", 413),
    "a line of a chunk without an end": (CHUNKED + b"3;" + b"a" * 600000, 500),
    "a trailer without a colon": (CHUNKED + b"3\r\nabc\r\n0\r\nnonsense\r\n\r\n", 400),
    "a path beyond what a connection holds": (b"GET /" + b"a" * 600000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "headers beyond what a connection holds": (GET + b"A: " + b"b" * 600000 + b"\r\n\r\n", 431),
}


def is_page(answer):
    """Whether an answer is the library's own: one of the documented statuses, and no media type."""
    head = answer.split(b"\r\n\r\n", 1)[0]
    return status_of(answer) in (400, 413, 414, 431, 500,
                                 505) and b"\r\ncontent-type:" not in head.lower() and b"\r\nConnection: close" in head


@test("malformed requests are refused with a problem document, and the connection is closed")
def problems(daemon):
    for what, (request, status, code) in PROBLEMS.items():
        answer = raw(daemon, request + GET + b"\r\n", half_close=True)
        same(status_of(answer), status, f"status of {what}")
        head, body = answer.split(b"\r\n\r\n", 1)
        assert b"application/problem+json" in head, f"{what}: {head!r}"
        check_problem(json.JSONDecoder().raw_decode(body.decode())[0], code, status)
        if code not in ("method-not-allowed", "misdirected"):  # these are handled like other requests
            assert b"Connection: close" in head, f"{what}: {head!r}"
    daemon.get("/livez").expect(200)


@test("an ambiguous head is refused, and nothing after it is run: folded headers, NUL bytes, line ends without CR")
def two_readings(daemon):
    kept = daemon.run(scans.radial(seed=3).bytes(daemon.state))["id"]
    count = 0
    for what, head in shapes():
        answer = raw(daemon, head + NEXT, half_close=True)
        same(status_of(answer), 400, f"status of {what}, {head!r}")
        assert (b"HTTP/1.1 2" not in answer
                and b'"removed"' not in answer), f"{what}, {head!r}: the bytes after it were run: {answer!r}"
        assert b"\r\nConnection: close" in answer, f"{what}: {answer[:300]!r}"
        count += 1
    assert count > 200, count
    same(daemon.job(kept)["state"], "succeeded", "the job that a purge would have removed")
    # Other spellings with a single meaning.
    for head in (GET + b"A:\r\nB: \t\r\nC:c \r\nD:\td\xe9\r\n", GET + b"X-Long: " + b"a" * 60000 + b"\r\n"):
        same(status_of(raw(daemon, head + b"Connection: close\r\n\r\n")), 200, f"status of {head[:80]!r}")


@test("after a chunked body nothing is read as a request: the connection is closed, however the body ended")
def behind_chunks(daemon):
    for end in (b"0\r\n\r\n", b"0\n\n", b"0\r\n\0A: b\r\n\r\n", b"0\r\nA:\r\n b\r\n\r\n", b"0;a=b\r\nA: b\r\n\r\n"):
        answer = raw(daemon, CHUNKED + b"3\r\nabc\r\n" + end + NEXT, half_close=True)
        same(answer.count(b"HTTP/1.1 "), 1, f"answers where {end!r} ends the body")
        assert b"\r\nConnection: close" in answer, answer[:300]


@test("requests that the library refuses have the documented status, and nothing after them is executed")
def pages(daemon):
    before = len(daemon.get("/v1/jobs?limit=100").json()["jobs"])
    for what, (request, status) in PAGES.items():
        answer = raw(daemon, request + GET + b"\r\n", half_close=True)
        same(status_of(answer), status, f"status of {what}")
        assert is_page(answer), f"{what}: {answer[:300]!r}"
        assert b'"kinds"' not in answer, f"{what}: the next request was answered"
    same(len(daemon.get("/v1/jobs?limit=100").json()["jobs"]), before, "jobs")


@test("a target may be an absolute URL; its host counts, whatever Host says")
def absolute(daemon):
    for target, host, status in ((b"http://localhost/v1/kinds", b"evil.example", 200),
                                 (b"HTTP://127.0.0.1:1/v1/kinds", b"localhost", 200),
                                 (b"http://localhost", b"localhost", 200), (b"http://localhost?a=b", b"localhost", 400),
                                 (b"http://evil.example/v1/kinds", b"localhost", 421),
                                 (b"http://evil.example/livez", b"localhost", 200)):
        answer = raw(daemon, b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        same(status_of(answer), status, f"status of {target!r} at {host!r}")
    assert (b'"kinds"' in raw(daemon, b"GET http://localhost/v1/kinds HTTP/1.1\r\n" + HOST +
                              b"Connection: close\r\n\r\n"))


def answers_of(data):
    """The answers in the bytes received, each (status, media type, body); fails if they cannot be parsed."""
    while data:
        found = re.match(rb"HTTP/1\.[01] (\d{3}) [^\r]*\r\n", data)
        assert found, f"no answer: {data[:200]!r}"
        status = int(found.group(1))
        if status == 100:
            data = data[data.index(b"\r\n\r\n") + 4:]
            continue
        head, rest = data.split(b"\r\n\r\n", 1)
        media = re.search(rb"(?i)\r\ncontent-type: ([^\r;]*)", head)
        if not media and is_page(data):  # a page of the library whose length is too small: the rest is its body
            yield status, None, rest
            return
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = int(length.group(1)) if length else 0
        yield status, media and media.group(1), rest[:size]
        data = rest[size:]


def mutant(rng, seeds):
    """A request with some bytes changed, left out, repeated, or replaced by another's."""
    request = bytearray(rng.choice(seeds))
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(request))
        way = rng.randrange(6)
        if way == 0:
            request[at] = rng.choice(b"\x00\t\n\r :;/?#%=,\x7f\x80\xff09azAZ")
        elif way == 1:
            del request[at:at + rng.randrange(1, 12)]
        elif way == 2:
            request[at:at] = rng.choice([b"\r\n", b"\n", b"\r", b" ", b":", b"%00", b"a" * rng.randrange(1, 40000),
                                         b"Content-Length: 3\r\n",
                                         b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.1",
                                         b"\x00"])
        elif way == 3:
            request[at:at] = request[at:at + rng.randrange(1, 60)]
        elif way == 4:
            request[at:] = rng.choice(seeds)[rng.randrange(20):]
        else:
            request[at:at + 1] = bytes([rng.randrange(256)])
        if not request:
            return b"\r\n"
    return bytes(request)


@test("1,000 requests with bytes changed: each answer is well-formed, and the daemon survives")
def mutants():
    with Daemon(devices="cpu", header_timeout=2) as daemon:  # which ends those that are not complete
        send_mutants(daemon)


def send_mutants(daemon):
    rng = random.Random(20261122)
    body = scans.radial(seed=5).bytes(daemon.state)[:300]
    seeds = [GET + b"Accept: */*\r\n\r\n", POST + b"Content-Length: 300\r\nPrefer: wait=1\r\n\r\n" + body,
             CHUNKED + b"12c\r\n" + body + b"\r\n0\r\nA: b\r\n\r\n",
             b"GET /v1/jobs?limit=5&state=queued HTTP/1.1\r\n" + HOST +
             b"If-None-Match: \"a\"\r\nRange: bytes=0-5\r\n\r\n",
             b"POST /v1/uploads?kind=recon HTTP/1.1\r\n" + HOST +
             b"Tus-Resumable: 1.0.0\r\nUpload-Length: 10\r\nContent-Length: 0\r\n\r\n",
             b"DELETE /v1/jobs?older=100 HTTP/1.1\r\n" + HOST + b"\r\n" + GET + b"\r\n",
             b"OPTIONS /v1/uploads HTTP/1.0\r\n\r\n"]
    seen = {}
    for i in range(1000):
        request = mutant(rng, seeds)
        answer = raw(daemon, request, half_close=True, timeout=120)
        try:
            for status, media, said in answers_of(answer):
                seen[status] = seen.get(status, 0) + 1
                if status < 400 or not media:
                    continue
                same(media, b"application/problem+json", "media type of a refusal")
                check_problem(json.loads(said), json.loads(said)["code"], status) if said else None
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"mutant {i}, {request[:300]!r}: {error}") from error
    daemon.get("/readyz").expect(200)
    for status in (200, 400, 404, 405):
        assert seen.get(status, 0) > 5, f"the mutants cover too little: {seen}"
    assert not seen.get(500), seen


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
