#!/usr/bin/python3
"""Server-sent events: order, ids, reconnecting, cancellation, clients that vanish, many idle streams."""
import os
import shutil
import signal
import tempfile

import scans
import streams
from harness import SLOW, Daemon, holding, main, same, sanitized, test, wait_until


class Stream(streams.Stream):
    """The events of a job."""

    def __init__(self, daemon, identity, last=None):
        super().__init__(daemon, f"/v1/jobs/{identity}/events", last)

    def events(self):
        for name, number, data in super().events():
            yield name, int(number), data


def scan(daemon, seed=1):
    return scans.radial(seed=seed).bytes(daemon.state)


def slow_job(daemon, more=""):
    return daemon.submit(scans.slow().bytes(daemon.state), scans.SLOW_QUERY.replace("=1000", "=200") +
                         more).expect(202).json()["id"]


@test("a stream sends every state in order, progress in between, and ends with the job")
def order():
    with Daemon(devices="cpu", environment=holding()) as daemon:
        told_in_order(daemon)


def told_in_order(daemon):
    with daemon.held("density") as go_on:
        with daemon.paused():  # until both streams are connected
            first, second = slow_job(daemon), daemon.submit(scan(daemon)).expect(202).json()["id"]
            stream = Stream(daemon, second)
            same(stream.status, 200)
            same(stream.headers["content-type"], "text/event-stream")
            running = Stream(daemon, first)
        events, seen = running.events(), []

        def iteration():
            step = seen[-1][2].get("step") if seen else None
            return step and step["iteration"] or 0  # None for a step without iterations
        while iteration() == 0:
            seen.append(next(events))
        go_on()
        last = iteration()
        while iteration() <= last:
            seen.append(next(events))
    seen += events
    ids = [number for _, number, _ in seen]
    assert ids == sorted(set(ids)), f"ids do not grow: {ids}"
    states = [data["state"] for name, _, data in seen if name == "state"]
    same(states[-2:], ["running", "succeeded"], "states of the running job")
    progress = [data for name, _, data in seen if name == "progress"]
    assert len(progress) >= 2 and all(data["step"]["name"] for data in progress), f"progress: {progress}"
    fractions = [data["progress"] for data in progress]
    same(fractions, sorted(fractions), "fractions")
    density = [data["step"] for data in progress if data["step"]["name"] == "density" and data["step"]["iterations"]]
    assert len({step["iteration"] for step in density}) >= 2, f"iterations of density: {density}"
    for step in density:
        same((step["number"], step["steps"], step["unit"], step["iterations"]), (5, 9, "iteration", 200),
             f"step {step}")
        assert 0 <= step["iteration"] <= 200, step
    states = [data["state"] for name, _, data in stream.events() if name == "state"]
    if states != ["queued", "succeeded"]:  # a job that has ended before it is looked at has no progress events
        same(states, ["queued", "running", "succeeded"], "states of the job that waited")
    same(daemon.job(second)["state"], "succeeded")
    running.close()
    stream.close()


@test("a client that reconnects gets the newer events, and 204 after the end")
def resume(daemon):
    job = daemon.run(scan(daemon, 2))
    events = list(Stream(daemon, job["id"]).events())
    same(len(events), 1, "events of a job that has ended")
    name, number, data = events[0]
    same((name, data["state"], data["id"]), ("state", "succeeded", job["id"]))
    same(Stream(daemon, job["id"], number).status, 204)
    same([e[2]["state"] for e in Stream(daemon, job["id"], number - 1).events()], ["succeeded"])
    # No id of this job: as without one.
    for other in ("nonsense", "", "-1", f"{number}x", f"+{number}", f"{number}.0", 10**15, 10**30):
        same([e[2]["state"] for e in Stream(daemon, job["id"], other).events()], ["succeeded"], f"after {other!r}")


@test("cancellation is an event")
def cancel(daemon):
    with daemon.paused():  # it does not end before that
        job = slow_job(daemon)
        stream = Stream(daemon, job)
        events, seen = stream.events(), []
        while "running" not in seen:
            name, _, data = next(events)
            seen.append(data.get("state", name))
        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
    seen += [data.get("state", name) for name, _, data in events]
    same(seen[-1], "canceled", f"last of {seen}")
    stream.close()


@test("a worker's death is an event: the job runs again")
def death(daemon):
    with daemon.paused():  # it does not end before that
        job = slow_job(daemon)
        seen = []
        for name, _, data in Stream(daemon, job).events():
            if name == "state":
                seen.append(data["state"])
            if seen == ["queued", "running"] or seen == ["running"]:
                os.kill(daemon.worker(), 9)
                seen.append("killed")
    # A stream tells the present state; when it looks, the job may no longer be queued, as in end_while_waiting().
    same([state for state in seen[seen.index("killed"):] if state != "queued"], ["killed", "running", "succeeded"],
         "states")


@test("a job that ends in the queue after its worker's death: its stream reports that, and ends")
def end_while_waiting():
    config = tempfile.mkdtemp() + "/mrirecond.conf"

    def hold(bytes_):
        with open(config, "w") as file:
            file.write(f"work-reserve = {bytes_}\n")
    hold("1M")
    with Daemon(devices="cpu", config=config, expect_trouble=True) as daemon:
        def reload(bytes_):
            hold(bytes_)
            told = daemon.read_log().count("reload: configuration")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: daemon.read_log().count("reload: configuration") > told, "the reload")

        def states(end, deadline):
            """The states in the stream of such a job."""
            reload("1M")
            with daemon.paused():  # it does not end before that
                job = slow_job(daemon, f"&deadline={deadline}" if end == "failed" else "")
                stream = Stream(daemon, job)
                seen = []
                for name, _, data in stream.events():
                    if name == "state":
                        seen.append(data["state"])
                    if seen[-1] == "running":
                        reload("900T")  # more than any disk has: no job begins
                        os.kill(daemon.worker(), 9)
                        seen.append("killed")
                    if seen[-1] == "queued" and "killed" in seen and end == "canceled":
                        daemon.request("POST", f"/v1/jobs/{job}/cancel").expect(202)
                stream.close()
            return seen

        same(states("canceled", None)[-3:], ["killed", "queued", "canceled"], "states")
        for deadline in (2, 8, 32, 128):  # it may pass before the job begins, or before the stream tells that it waits
            told = states("failed", deadline)
            if told[-3:] == ["killed", "queued", "failed"]:
                break
        same(told[-3:], ["killed", "queued", "failed"], "states")
    shutil.rmtree(os.path.dirname(config))


@test("an unknown job, and other methods, are problem documents")
def problems(daemon):
    daemon.get("/v1/jobs/01m7yheza283fkx9ma8t456e4x/events").problem(404, "not-found")
    daemon.request("POST", "/v1/jobs/01m7yheza283fkx9ma8t456e4x/events").problem(405, "method-not-allowed")


@test("two hundred idle streams, some of which vanish: the service answers, and its memory stays bounded")
def many(daemon):
    worker = daemon.worker()
    os.kill(worker, signal.SIGSTOP)  # no job ends meanwhile
    blocker, job = slow_job(daemon), slow_job(daemon)
    before = daemon.peak_memory()
    streams = [Stream(daemon, job) for _ in range(200)]
    for stream in streams[::2]:
        stream.close()
    daemon.get("/livez").expect(200)
    daemon.get("/metrics").expect(200)
    grown = daemon.peak_memory() - before
    # A stream takes some kilobytes; sanitizers add shadow memory and quarantine.
    assert grown < (200 if sanitized() else 8) << 20, f"grew by {grown / 2**20:.1f} MiB"
    os.kill(worker, signal.SIGCONT)
    for identity in (blocker, job):
        daemon.request("POST", f"/v1/jobs/{identity}/cancel")
    for stream in streams[1::2]:
        assert list(stream.events())[-1][2]["state"] in ("canceled", "succeeded")
        stream.close()


@test("SIGTERM ends the streams, and the daemon exits")
def stop():
    with Daemon(drain_time=0) as daemon:
        stream = Stream(daemon, slow_job(daemon))
        events = stream.events()
        next(events)
        daemon.process.terminate()
        daemon.process.wait(SLOW)
        while stream.file.read(4096):  # the rest of the stream, then its end
            pass
        stream.close()


if __name__ == "__main__":
    main(lambda: Daemon(devices="cpu", expect_trouble=True))
