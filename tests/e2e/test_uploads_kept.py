#!/usr/bin/python3
"""Resumable uploads that stay for a while: the space that they reserve, kills, the search for complete ones and for
those that expire.
"""
import concurrent.futures
import contextlib
import os
import socket
import tempfile
import time

import scans
from harness import Daemon, fault, main, same, test, wait_until
from tus import BYTES, TUS, append, begin, checksum, chunked, create, offset_of, scan, uploads_of, used


@test("a refused chunk that exceeds the announced length becomes no job, even if it begins with a complete scan")
def too_many_is_no_job():
    with Daemon(devices="cpu", upload_lifetime=4) as daemon:  # every 4 s there is a search for complete uploads
        body = scan(daemon)
        refused, whole = lasting(daemon, create(daemon, body)), lasting(daemon, create(daemon, body))
        assert b" 413 " in chunked(daemon, refused, body + b"EXTRA", len(body))
        wait_until(lambda: daemon.request("HEAD", refused, headers=TUS).headers.get("upload-offset") in ("0", None),
                   "the chunk to be dropped")
        assert b" 204 " in chunked(daemon, whole, body, 5000)
        wait_until(lambda: daemon.request("HEAD", refused, headers=TUS).status == 404, "the upload to expire")
        same([job["id"] for job in daemon.get("/v1/jobs").json()["jobs"]], [whole.rsplit("/", 1)[1]], "jobs")
        same(daemon.finish(whole.rsplit("/", 1)[1])["state"], "succeeded", "state")


def lasting(daemon, where):
    """This upload, with a time of its last byte ten minutes ahead: it does not expire before one arrives."""
    later = time.time() + 600
    os.utime(os.path.join(daemon.state, where.removeprefix("/v1/")), (later, later))
    return where


def aged(daemon, where):
    """Move the time of its last byte eight seconds back."""
    before = time.time() - 8
    os.utime(os.path.join(daemon.state, where.removeprefix("/v1/")), (before, before))


@contextlib.contextmanager
def late():
    """A daemon that searches for uploads every 4 s, with latelook.so, and the beginning of the files at which it stops.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {"LD_PRELOAD": fault("latelook"), "LATELOOK_HOLD": folder + "/hold",
                       "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
        with Daemon(devices="cpu", environment=environment, upload_lifetime=4) as daemon:
            yield daemon, folder + "/hold"


@test("an upload that is about to expire stays if a chunk of it comes at that moment")
def chunk_at_the_end():
    with late() as (daemon, hold):
        note, left = hold + ".note", hold + ".left"
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        append(daemon, where, 0, body[:1000]).expect(204)
        lasting(daemon, where)
        wait_until(lambda: used(daemon) == 1000, "its reservation to end: a search for those that expire is next")
        for name in (note, left):
            open(name, "w").close()
        wait_until(lambda: os.path.exists(note + ".there"), "the search")
        aged(daemon, where)
        os.unlink(note)
        wait_until(lambda: os.path.exists(left + ".there"), "the search to have seen that it expires")
        append(daemon, where, 1000, body[1000:2000]).expect(204)
        lasting(daemon, where)
        os.unlink(left)
        other = create(daemon, body)
        aged(daemon, other)
        wait_until(lambda: daemon.request("HEAD", other, headers=TUS).status == 404, "a later upload to expire")
        same(offset_of(daemon, where), 2000, "offset")


@test("the last chunk is answered with its job also if the search for complete uploads made it")
def completed_by_the_search():
    with late() as (daemon, hold), concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        open(hold + ".whole", "w").close()
        answer = pool.submit(append, daemon, where, 0, body)
        wait_until(lambda: daemon.get("/v1/jobs").json()["jobs"], "a job of the upload")
        wait_until(lambda: os.path.exists(hold + ".whole.there"), "the request, which did not make the job")
        os.unlink(hold + ".whole")
        same(answer.result().expect(204).headers["x-job-id"], where.rsplit("/", 1)[1], "job")
        counted(daemon, len(body))


def counted(daemon, length):
    """Assert that one job was counted, with an upload of this length."""
    def counts():
        metrics = daemon.metrics()
        return (metrics['mrirecond_jobs_submitted_total{kind="recon"}'],
                sum(value for name, value in metrics.items() if name.startswith("mrirecond_ingest_bytes_total")))
    wait_until(lambda: counts() == (1, length), "the job to be counted once")


@test("the last chunk is answered with its job also if the search for complete uploads is just making it")
def being_completed_by_the_search():
    with late() as (daemon, hold), concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        for name in (".whole", ".link"):
            open(hold + name, "w").close()
        answer = pool.submit(append, daemon, where, 0, body)
        wait_until(lambda: os.path.exists(hold + ".link.there"), "the search to make a job of the upload")
        wait_until(lambda: os.path.exists(hold + ".whole.there"), "the request, which does not make the job")
        os.unlink(hold + ".whole")
        concurrent.futures.wait([answer], 0.5)  # it was refused by now; how long it waits is not tested
        os.unlink(hold + ".link")
        same(answer.result().expect(204).headers["x-job-id"], where.rsplit("/", 1)[1], "job")
        counted(daemon, len(body))


@test("a HEAD while a chunk with a wrong checksum is being dropped tells of none of its bytes")
def head_of_a_dropped_chunk():
    with late() as (daemon, hold), concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        append(daemon, where, 0, body[:1000]).expect(204)
        lasting(daemon, where)
        head = "".join(f"{name}: {value}\r\n" for name, value in {
            **TUS, **BYTES, "Upload-Offset": 1000, "Content-Length": 1000, **checksum("sha1", b"")}.items())
        with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
            connection.sendall(f"PATCH {where} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + body[1000:1900])
            wait_until(lambda: daemon.files()[where.removeprefix("/v1/")] == 1900, "bytes of the chunk")
            open(hold + ".first", "w").close()  # a request looks whether the upload is its client's, and again
            offset = pool.submit(offset_of, daemon, where)
            wait_until(lambda: os.path.exists(hold + ".first.there") or offset.done(), "the HEAD to look")
            open(hold + ".chunk", "w").close()
            os.unlink(hold + ".first")
            wait_until(lambda: os.path.exists(hold + ".chunk.there") or offset.done(), "the HEAD to look again")
            connection.sendall(body[1900:2000])
            assert b" 460 " in connection.recv(200), "a wrong checksum was accepted"
            os.unlink(hold + ".chunk")
        same((offset.result(), offset_of(daemon, where)), (1000, 1000), "offset meanwhile, and then")


@test("a complete upload that becomes a job at a start is counted, too")
def counted_at_a_start():
    with late() as (daemon, hold):
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        append(daemon, where, 0, body[:-1]).expect(204)
        daemon.kill()
        with open(os.path.join(daemon.state, where.removeprefix("/v1/")), "ab") as file:
            file.write(body[-1:])
        daemon.restart()
        same(daemon.finish(where.rsplit("/", 1)[1])["state"], "succeeded", "state")
        counted(daemon, len(body))


@test("a client may have 256 unfinished uploads, across restarts; another client may still create one")
def bound_of_a_client():
    with Daemon(devices="cpu") as daemon:
        first = begin(daemon, 1, "many").expect(201).headers["location"]
        for _ in range(255):
            begin(daemon, 1, "many").expect(201)
        for _ in range(2):
            assert "256" in begin(daemon, 1, "many").problem(429, "client-quota")["detail"]
            begin(daemon, 1, "other").expect(201)
            daemon.kill()
            daemon.restart()
        daemon.request("DELETE", first, headers=TUS).expect(204)
        begin(daemon, 1, "many").expect(201)
        begin(daemon, 1, "many").problem(429, "client-quota")
        same(used(daemon), 256 + 2, "bytes counted")


@test("at most 2048 unfinished uploads of all clients")
def bound_of_all():
    with Daemon(devices="cpu") as daemon:
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            for answer in clients.map(lambda number: begin(daemon, 1, f"client-{number % 8}"), range(2048)):
                answer.expect(201)
        assert "2048" in begin(daemon, 1, "another").problem(503, "queue-full")["detail"]


@test("an idle upload releases the space that it reserved, keeps what arrived, and reserves again on resuming")
def reservation():
    with Daemon(devices="cpu", upload_lifetime=8, spool_limit=2000000) as daemon:
        body = scan(daemon)

        def path(where):
            return os.path.join(daemon.state, where.removeprefix("/v1/"))

        def reserved():
            where = lasting(daemon, begin(daemon, 1000000, "empty").expect(201).headers["location"])
            begin(daemon, 1000000, "full").expect(201)
            seen = os.stat(path(where)).st_blocks * 512, append(daemon, where, 0,
                                                                bytes(50000)).status, daemon.submit(body).status
            lasting(daemon, where)
            return where, seen[0] >= 1000000, *seen[1:]
        where, *seen = while_reserved(daemon, reserved)
        same(seen, [True, 204, 507], "whether blocks were reserved, statuses of an append and of a submission")
        wait_until(lambda: used(daemon) == 50000, "the reservation to end")
        assert os.stat(path(where)).st_blocks * 512 < 100000, "the blocks are still allocated"
        same(offset_of(daemon, where), 50000, "offset")
        same(daemon.run(body)["state"], "succeeded", "state")
        wait_until(lambda: used(daemon) == 50000, "the job's scan to be removed")

        def another():
            others = [begin(daemon, length, client).expect(201).headers["location"]
                      for length, client in ((1000000, "other"), (100000, "third"))]
            offset = offset_of(daemon, where)
            refused = append(daemon, where, offset, bytes(100)).status
            for other in others:
                daemon.request("DELETE", other, headers=TUS).expect(204)
            return refused, offset_of(daemon, where) - offset
        same(while_reserved(daemon, another), (507, 0),
             "status of an append that has no room, and how far the offset moved")

        def taken_again():
            offset = offset_of(daemon, where)
            return append(daemon, where, offset, bytes(100)).status, used(daemon), offset_of(daemon, where) - offset
        same(while_reserved(daemon, taken_again), (204, 1000000, 100),
             "status, bytes counted, and how far the offset moved")
        os.utime(path(where), (time.time() - 8, time.time() - 8))
        wait_until(lambda: daemon.request("HEAD", where, headers=TUS).status == 404 and used(daemon) == 0,
                   "the upload to expire")


@test("bytes to come of one client's uploads reserve at most half of the spool, also on resuming; others have the rest")
def share_of_a_client():
    with Daemon(devices="cpu", upload_lifetime=8, spool_limit=2000000) as daemon:
        body = scan(daemon)

        def shared():
            assert "half of the space" in begin(daemon, 1000001, "greedy").problem(507, "spool-full")["detail"]
            first = lasting(daemon, begin(daemon, 600000, "greedy").expect(201).headers["location"])
            answer = begin(daemon, 400001, "greedy")
            assert "have reserved 600000 bytes" in answer.problem(429, "client-quota")["detail"], answer.body
            assert answer.headers["retry-after"], answer.headers
            second = lasting(daemon, begin(daemon, 400000, "greedy").expect(201).headers["location"])
            begun = used(daemon)
            other = begin(daemon, 900000, "other")  # another client is not affected
            statuses = other.status, daemon.submit(body).status
            daemon.request("DELETE", other.headers["location"], headers=TUS).expect(204)
            # Bytes that have arrived no longer count: so many may be announced again.
            statuses += append(daemon, first, 0, bytes(50000)).status, begin(daemon, 50001, "greedy").status
            third = begin(daemon, 50000, "greedy")
            return (first, second), begun, *statuses, third.status
        (first, second), *seen = while_reserved(daemon, shared)
        same(seen, [1000000, 201, 202, 204, 429, 201], "bytes reserved, and statuses")
        wait_until(lambda: used(daemon) == 50000, "the reservations to end, and the job's scan to go")

        def resumed():
            offsets = [offset_of(daemon, where) for where in (first, second)]
            lasting(daemon, first), lasting(daemon, second)
            begin(daemon, 700000, "greedy").expect(201)
            return [append(daemon, where, offset, bytes(100)).status
                    for where, offset in zip((first, second), offsets)], [
                        offset_of(daemon, where) for where in (first, second)] == offsets
        same(while_reserved(daemon, resumed), ([429, 429], True),
             "statuses of chunks that would reserve again, and whether the offsets stay")
        for upload in uploads_of(daemon) - {first, second}:
            daemon.request("DELETE", upload, headers=TUS).expect(204)
        same(append(daemon, second, offset_of(daemon, second), bytes(100)).status, 204,
             "status of a chunk within the share")


def while_reserved(daemon, look):
    """The result of look() within the 4 s for which a reservation lasts at least. What it sees later, or its failure
    then, means nothing: its uploads are removed, and it looks again once all other reservations have ended.
    """
    before = uploads_of(daemon)
    while True:
        begun = time.monotonic()
        try:
            seen = look()
            if time.monotonic() - begun < 4:
                return seen
        except AssertionError:
            if time.monotonic() - begun < 4:
                raise
        for upload in uploads_of(daemon) - before:
            daemon.request("DELETE", upload, headers=TUS)
        for upload in uploads_of(daemon):
            lasting(daemon, upload)
        wait_until(lambda: used(daemon) == sum(offset_of(daemon, upload) for upload in uploads_of(daemon)),
                   "other reservations to end")


@test("kill -9 in the middle: acknowledged bytes are there after the restart, half chunks with checksums are not")
def killed():
    with Daemon(devices="cpu", expect_trouble=True) as daemon:
        body = scan(daemon)
        plain, checked, complete = create(daemon, body), create(daemon, body), create(daemon, body)
        append(daemon, plain, 0, body[:30000]).expect(204)
        append(daemon, checked, 0, body[:10000], **checksum("sha1", body[:10000])).expect(204)
        with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
            head = {**TUS, **BYTES, "Upload-Offset": 10000, "Content-Length": len(body) - 10000,
                    **checksum("sha1", body[10000:])}
            head = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            connection.sendall(f"PATCH {checked} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() +
                               body[10000:40000])
            path = os.path.join(daemon.state, "uploads", checked.rsplit("/", 1)[1])
            wait_until(lambda: os.path.getsize(path) == 40000, "the bytes to be on the disk")
            same(offset_of(daemon, checked), 10000, "Upload-Offset of bytes whose checksum is not known yet")
            daemon.kill()
        # As after a power cut, on a disk that keeps a file's length before its bytes: no chunk had begun.
        with open(os.path.join(daemon.state, "uploads", plain.rsplit("/", 1)[1] + ".chunk"), "wb") as file:
            file.write(bytes(5))
        # As if it had died between the last byte and the job.
        with open(os.path.join(daemon.state, "uploads", complete.rsplit("/", 1)[1]), "wb") as file:
            file.write(body)
        daemon.restart()
        same(offset_of(daemon, plain), 30000)
        same(offset_of(daemon, checked), 10000)
        same(daemon.finish(complete.rsplit("/", 1)[1])["state"], "succeeded")
        for where, offset in ((plain, 30000), (checked, 10000)):
            job = append(daemon, where, offset, body[offset:],
                         **checksum("sha256", body[offset:])).expect(204).headers["x-job-id"]
            same(daemon.finish(job)["state"], "succeeded")
        wait_until(lambda: used(daemon) == 0, "the spool to be empty")


@test("uploads that receive nothing expire, and free the spool")
def expiry():
    with Daemon(devices="cpu", upload_lifetime=3) as daemon:
        body = scan(daemon)
        where = lasting(daemon, create(daemon, body))
        append(daemon, where, 0, body[:100]).expect(204)
        wait_until(lambda: daemon.request("HEAD", where, headers=TUS).status == 404, "the upload to expire")
        wait_until(lambda: used(daemon) == 0, "the spool to be empty")


@test("a complete upload waits while the queue is full")
def full():
    with Daemon(devices="cpu", queue_limit=1) as daemon:
        body = scan(daemon)
        where = create(daemon, body)
        slow = scans.slow().bytes(daemon.state)
        first = daemon.submit(slow, scans.SLOW_QUERY).expect(202).json()["id"]
        wait_until(lambda: daemon.job(first)["state"] == "running", "the first job to run")
        second = daemon.submit(slow, scans.SLOW_QUERY).expect(202).json()["id"]
        answer = append(daemon, where, 0, body)
        if daemon.job(second)["state"] == "queued":
            answer.problem(503, "queue-full")
            assert answer.headers["retry-after"]
            same(offset_of(daemon, where), len(body))
            for job in (first, second):
                daemon.request("POST", f"/v1/jobs/{job}/cancel")
            answer = wait_until(lambda: (a := append(daemon, where, len(body), b"")).status == 204 and a,
                                "room in the queue")
        same(daemon.finish(answer.headers["x-job-id"])["state"], "succeeded")


@test("a chunk that arrives while the reservation of its idle upload is being released waits, and is taken")
def resumed_while_lapsing():
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        hold = os.path.join(folder, "hold")
        with open(hold, "w"):
            pass
        with Daemon(devices="cpu", upload_lifetime=20, environment={
                "LD_PRELOAD": fault("holdlapse"), "HOLDLAPSE": hold,
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}) as daemon:
            body = scan(daemon)
            where = create(daemon, body)
            append(daemon, where, 0, body[:1000]).expect(204)
            wait_until(lambda: os.path.exists(f"{hold}.held"), "the upload to be idle for half its lifetime")
            answer = pool.submit(append, daemon, where, 1000, body[1000:])
            time.sleep(0.5)  # for the chunk to arrive; a test that is slower checks less
            os.unlink(hold)
            same(daemon.finish(answer.result().expect(204).headers["x-job-id"])["state"], "succeeded")


if __name__ == "__main__":
    main()
