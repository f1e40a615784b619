#!/usr/bin/python3
"""The stream of the events of all jobs, and the short list: who receives what, reconnecting, restarts, limits, slow
readers.
"""
import signal
import tempfile

import scans
from contract import complaints
from guarded import Guarded, new_token
from harness import Daemon, main, same, sanitized, test, wait_until
from receiver import Receiver, write
from streams import Stream

SHORT = {"id", "kind", "state", "progress", "step", "priority", "client", "name", "created", "started", "finished",
         "duration", "bytes", "attempts", "error", "scan_kept"}


def feed(daemon, last=None, **headers):
    stream = Stream(daemon, "/v1/events", last, **headers)
    same((stream.status, stream.headers["content-type"]), (200, "text/event-stream"))
    return stream


def scan(daemon, seed=1):
    return scans.radial(seed=seed).bytes(daemon.state)


def until(events, condition):
    """The events up to the first one for which condition(name, data) holds."""
    seen = []
    for name, number, data in events:
        seen.append((name, number, data))
        if condition(name, data):
            return seen
    raise AssertionError(f"the stream ended after {seen}")


def ends(identity):
    return lambda name, data: name == "job" and data["id"] == identity and data["state"] in ("succeeded", "failed",
                                                                                             "canceled")


@test("a stream begins with reset, and sends jobs that are created, run, end and are removed, as short documents")
def order(daemon):
    stream = feed(daemon)
    events = stream.events()
    name, number, data = next(events)
    same((name, data), ("reset", {"reason": "start"}), "first event")
    identity = daemon.submit(scan(daemon), "kind=recon&name=knee.h5").expect(202).json()["id"]
    seen = until(events, ends(identity))
    states = [data["state"] for name, _, data in seen if name == "job"]
    same(states[-1], "succeeded", "last state")  # a quick job may appear only once, in its latest state
    for name, number, data in seen:
        if name == "job":
            same(set(data), SHORT, "members of the short document")
            same((data["id"], data["name"]), (identity, "knee.h5"))
            assert not complaints({"$ref": "#/components/schemas/JobShort"}, data, "job"), data
    numbers = [int(number.split("-")[1]) for name, number, _ in seen if number]
    same(numbers, sorted(set(numbers)), "ids grow")
    daemon.request("DELETE", f"/v1/jobs/{identity}").expect(204)
    same(until(events, lambda name, data: name == "removed")[-1][2], {"id": identity}, "removal")
    stream.close()


@test("progress of a running job is sent, and never decreases")
def progress(daemon):
    stream = feed(daemon)
    identity = daemon.submit(scans.slow().bytes(daemon.state), scans.SLOW_QUERY).expect(202).json()["id"]
    told = 0
    seen = []
    for name, number, data in stream.events():
        seen.append((name, number, data))
        told += name == "progress"
        if told == 3:
            daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
            told += 1
        if ends(identity)(name, data):
            break
    found = [(number, data) for name, number, data in seen if name == "progress" and data["id"] == identity]
    assert len(found) >= 3 and all(number is None for number, _ in found), found
    fractions = [data["progress"] for _, data in found]
    same(fractions, sorted(fractions), "fractions")
    assert all(data["step"]["name"] for _, data in found), found
    stream.close()


@test("Last-Event-ID brings the missed events; with an unknown id, or after a restart, a reset")
def resume():
    with Daemon(devices="cpu") as daemon:
        stream = feed(daemon)
        _, start, _ = next(stream.events())
        first = daemon.run(scan(daemon))["id"]
        number = until(stream.events(), ends(first))[-1][1]
        stream.close()
        second = daemon.run(scan(daemon, 2))["id"]
        missed = feed(daemon, number)
        seen = [data for name, _, data in until(missed.events(), ends(second)) if name != "progress"]
        # The end may have been sent in place of an earlier change; then it is sent once more.
        same({(data["id"], data["state"]) for data in seen if data["id"] != second} - {(first, "succeeded")}, set(),
             "what was missed")
        missed.close()
        both = feed(daemon, start)
        same({data["id"] for name, _, data in until(both.events(), ends(second)) if name == "job"}, {first, second},
             "from the start on")
        both.close()
        run = start.split("-")[0]
        for last in ("nonsense", "", "-", "5", run, run + "-", run + "-x", run + "--1", run + "-999999999", "0" * 16 +
                     "-1", run + "-" + "9" * 40):
            other = feed(daemon, last)
            name, _, data = next(other.events())
            same(name, "reset", f"after {last!r}")
            assert data["reason"] in ("restart", "behind"), data
            other.close()
        daemon.kill()
        daemon.restart()
        again = feed(daemon, number)
        name, fresh, data = next(again.events())
        same((name, data), ("reset", {"reason": "restart"}), "after a restart")
        assert fresh.split("-")[0] != run, "event ids of two runs are equal"
        again.close()


@test("clients receive their own jobs, roles that see all receive all; a reload of the tokens ends the streams")
def roles():
    with Guarded() as daemon:
        same(Stream(daemon, "/v1/events").status, 401, "without a token")
        streams = {who: feed(daemon, Authorization=f"Bearer {daemon.token[who]}")
                   for who in ("read", "submit", "other", "view", "admin")}
        events = {who: stream.events() for who, stream in streams.items()}
        for who in streams:
            same(next(events[who])[0], "reset")
        mine, theirs = daemon.job_of("submit"), daemon.job_of("other")
        daemon.ended(mine), daemon.ended(theirs)
        for who, last, expected in (("read", mine, {mine}), ("submit", mine, {mine}), ("other", theirs, {theirs})):
            same({data["id"] for _, _, data in until(events[who], ends(last))}, expected, f"jobs told to {who}")
        for who in ("view", "admin"):
            left = {mine, theirs}
            until(events[who], lambda name, data: ends(data["id"])(name, data)
                  and (left.discard(data["id"]) or not left))
        new_token(daemon.tokens, "mri3", "read")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: 6 tokens" in daemon.read_log(), "the reload")
        daemon.job_of("submit")  # these wake the streams
        for who in ("read", "submit", "view", "admin"):
            assert not any(name == "reset" for name, _, _ in events[who]), "a stream that was ended continues"
        for stream in streams.values():
            stream.close()


@test("deliveries are reported when added or changed, to clients that see the job; destinations by name")
def deliveries():
    with tempfile.TemporaryDirectory() as folder, Receiver(answers=[410, 410]) as refusing:
        path = write(folder, "destinations", refusing.destination(folder, "hook") +
                     refusing.destination(folder, "mine", "clients=mri2") +
                     "rule hook client=mri1\n")
        with Guarded(destinations=path) as daemon:
            streams = {who: feed(daemon, Authorization=f"Bearer {daemon.token[who]}")
                       for who in ("submit", "other", "admin")}
            job = daemon.job_of("submit")
            for who in ("submit", "admin"):
                seen = until(streams[who].events(), lambda name, data: name == "deliveries"
                             and data["deliveries"][0]["state"] == "dead")
                told = [(number, data) for name, number, data in seen if name == "deliveries"]
                assert all(number and data["id"] == job for number, data in told), told
                for _, data in told:
                    assert not complaints({"$ref": "#/components/schemas/Delivery"}, data["deliveries"][0],
                                          "delivery"), data
                same(told[-1][1]["deliveries"], daemon.as_(who, "GET", f"/v1/jobs/{job}").json()["deliveries"],
                     "the deliveries")
            theirs = daemon.job_of("other")
            same({name for name, _, data in until(streams["other"].events(), ends(theirs))} & {"deliveries"}, set(),
                 "told to another client")
            daemon.as_("admin", "POST", f"/v1/jobs/{theirs}/deliveries/hook").expect(202)
            states = [data["deliveries"][0]["state"] for name, _, data in
                      until(streams["other"].events(), lambda name, data: name == "deliveries"
                            and data["deliveries"][0]["state"] == "dead")
                      if name == "deliveries"]
            assert states[-1] == "dead" and set(states) <= {"pending", "sending", "dead"}, states
            for who, names in (("admin", ["hook", "mine"]), ("other", ["mine"]), ("submit", []), ("read", [])):
                listed = daemon.as_(who, "GET", "/v1/destinations").expect(200).json()["destinations"]
                same(listed, [{"name": name, "type": "webhook"} for name in names], f"destinations of {who}")
            for stream in streams.values():
                stream.close()


@test("a client may have 32 streams; one that closes makes room, and /metrics counts them")
def limit(daemon):
    streams = [feed(daemon) for _ in range(32)]
    problem = daemon.get("/v1/events").problem(429, "client-quota")
    assert "32 streams" in problem["detail"], problem
    assert "\nmrirecond_event_streams 32\n" in daemon.get("/metrics").body.decode()
    # A client name gives no permission.
    daemon.get("/v1/events", X_Mrirecond_Client="another").problem(429, "client-quota")
    streams.pop().close()

    def room():
        stream = Stream(daemon, "/v1/events")
        stream.close()
        return stream.status == 200
    wait_until(room, "room for a stream")
    for stream in streams:
        stream.close()
    wait_until(lambda: "\nmrirecond_event_streams 0\n" in daemon.get("/metrics").body.decode(), "the streams' end")


@test("unread streams delay no other client, and their memory is bounded")
def unread(daemon):
    before = daemon.peak_memory()
    streams = [feed(daemon) for _ in range(30)]
    with daemon.paused():
        ids = [daemon.submit(scan(daemon)).expect(202).json()["id"] for _ in range(40)]
        for identity in ids:
            daemon.request("POST", f"/v1/jobs/{identity}/cancel").expect(202)
    grown = daemon.peak_memory() - before
    # 30 streams with one connection's memory each, and 40 scans. Even without a bound nothing would be large here; the
    # bounded parts are the text, of 32 KiB, and the ring (tests/unit/test_feed.c).
    assert grown < (300 if sanitized() else 30) << 20, f"grew by {grown / 2**20:.1f} MiB"
    for stream in streams[:3]:
        states = {}
        until(stream.events(), lambda name, data: name == "job" and states.update({data["id"]: data["state"]}) is None
              and
              all(states.get(identity) == "canceled" for identity in ids))
    for stream in streams:
        stream.close()


@test("SIGTERM ends the streams, and the daemon exits")
def stop():
    with Daemon(drain_time=0, devices="cpu") as daemon:
        stream = feed(daemon)
        next(stream.events())
        daemon.process.terminate()
        daemon.process.wait(120)
        while stream.file.read(4096):
            pass
        stream.close()


@test("the list has the requested members, and filters by kind and several states")
def fields():
    with Daemon(devices="cpu") as daemon:
        done = daemon.run(scan(daemon))["id"]
        with daemon.paused():
            running = daemon.submit(scan(daemon)).expect(202).json()["id"]
            wait_until(lambda: daemon.job(running)["state"] == "running", "the only worker to have a job")
            waiting = daemon.submit(scan(daemon)).expect(202).json()["id"]
            canceled = daemon.submit(scan(daemon)).expect(202).json()["id"]
            daemon.request("POST", f"/v1/jobs/{canceled}/cancel").expect(202)

            def listed(query):
                return daemon.get(f"/v1/jobs?{query}").expect(200).json()["jobs"]
            for job in listed("fields=short"):
                same(set(job), SHORT, "members of fields=short")
            same([list(job) for job in listed("fields=name,id,results")], [["id", "name", "results"]] * 4, "members")
            same([job["results"][0]["name"] for job in listed("fields=results&state=succeeded")], ["image"], "results")
            same(set(listed("fields=short,deadline")[0]), SHORT | {"deadline"}, "more than short")
            for long, short in zip(listed("state=queued,succeeded"), listed("state=queued,succeeded&fields=short"),
                                   strict=True):
                same({name: long[name] for name in SHORT}, short, "the short document")
            ids = {"canceled": canceled, "queued": waiting, "running": running, "succeeded": done}
            for states in ("succeeded", "canceled,queued", "queued,succeeded,canceled", "running,failed",
                           "queued,queued"):
                expected = [identity for state, identity in ids.items() if state in states.split(",")]
                same([job["id"] for job in listed(f"fields=id&state={states}")], expected,
                     f"jobs of the states {states}")
            same(len(listed("kind=recon")), 4, "jobs of the kind")
            same(len(listed("kind=recon&state=queued,succeeded&limit=1")), 1, "a page")
            same(listed("kind=other"), [], "jobs of another kind")
            for query in ("fields=", "fields=id,", "fields=,id", "fields=id,none", "fields=Short", "state=queued,",
                          "state=none,queued", "state="):
                daemon.get(f"/v1/jobs?{query}").problem(400, "bad-parameter")


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu"))
