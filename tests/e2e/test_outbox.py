#!/usr/bin/python3
"""The outbox: webhooks are called when jobs end: signed, retried, given up, and never lost to a kill."""
import base64
import hashlib
import hmac
import json
import os
import re
import tempfile

import scans
from harness import Daemon, free_port, main, same, test, wait_until
from receiver import Receiver

FOLDER = tempfile.TemporaryDirectory()
GOOD = open(scans.radial(seed=91).write(f"{FOLDER.name}/good.h5"), "rb").read()
SECRET = "a key of the test"


def write(name, text, mode=0o600):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def hook(name, port, settings="", secret=SECRET):
    """The configuration line of a webhook of this name, which is retried within seconds."""
    return (f"destination {name} webhook http://127.0.0.1:{port}/{name} secret={write(name + '.secret', secret)} "
            f"retry=1 retry-most=1 {settings}\n")


def configured(name, *lines):
    return write(name, "# destinations\n" + "".join(lines))


def delivery(daemon, job, destination):
    return next((d for d in daemon.job(job)["deliveries"] if d["destination"] == destination), None)


def delivered(daemon, job, destination, state="delivered"):
    def there():
        found = delivery(daemon, job, destination)
        return found if found and found["state"] == state else None
    return wait_until(there, f"{destination} to be {state}: {delivery(daemon, job, destination)}")


def check_signed(headers, body, key=SECRET.encode()):
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    same(headers["webhook-signature"], expected, "signature")


@test("the end of a job that a rule matches is sent, signed; that of another job is not")
def told():
    with Receiver() as receiver:
        lines = configured("told", hook("good", receiver.port), hook("bad", receiver.port, "on=failed"),
                           "rule good name=scan*\n", "rule bad\n")
        with Daemon(destinations=lines) as daemon:
            job = daemon.run(GOOD, "kind=recon&name=scan-1")["id"]
            other = daemon.run(GOOD, "kind=recon&name=other")["id"]
            broken = daemon.run(GOOD[:3000], "kind=recon&name=scan-2")["id"]
            same(delivered(daemon, job, "good")["answer"], "The server answered 204.", "answer")
            for destination in ("good", "bad"):
                delivered(daemon, broken, destination)
            same(delivery(daemon, job, "bad"), None, "a delivery on=failed of a job that succeeded")
            same(daemon.job(other)["deliveries"], [], "deliveries of a job that no rule matches")
            same(sorted((path, json.loads(body)["data"]["id"]) for path, _, body in receiver.got),
                 sorted([("/good", job), ("/good", broken), ("/bad", broken)]), "what was told")
            for _, headers, body in receiver.got:
                check_signed(headers, body)
                event = json.loads(body)
                same(headers["content-type"], "application/json", "Content-Type")
                same(event["type"], "job." + event["data"]["state"], "type")
                assert headers["webhook-id"].startswith(event["data"]["id"] + "."), headers
                assert "scan-" not in body.decode(), f"the name that a client gave is sent: {body}"
            # A delivery is counted after its end is stored.
            wait_until(lambda: daemon.metrics()['mrirecond_deliveries_delivered_total{destination="good"}'] == 2,
                       "two deliveries to be counted")
            metrics = daemon.metrics()
            same(metrics["mrirecond_deliveries_pending"], 0, "pending")
            same(metrics["mrirecond_deliveries_oldest_timestamp_seconds"], 0, "oldest")


@test("a server's error is retried with the same id; 410 and a redirection are final")
def again():
    with Receiver(answers=[500, (429, {"Retry-After": "1"})]) as flaky, Receiver(answers=[410]) as gone, \
            Receiver() as target, \
            Receiver(answers=[(302, {"Location": f"http://127.0.0.1:{target.port}/elsewhere"})]) as moved:
        lines = configured("again", *(hook(name, receiver.port) + f"rule {name}\n" for name, receiver in
                                      (("flaky", flaky), ("gone", gone), ("moved", moved))))
        with Daemon(destinations=lines) as daemon:
            job = daemon.run(GOOD)["id"]
            same(delivered(daemon, job, "flaky")["attempts"], 3, "attempts")
            same(len({headers["webhook-id"] for _, headers, _ in flaky.got}), 1, "ids of one delivery")
            for name, status in (("gone", "410"), ("moved", "302")):
                dead = delivered(daemon, job, name, "dead")
                same(dead["attempts"], 1, "attempts of " + name)
                assert status in dead["answer"], dead
            same(target.got, [], "requests where the redirection led")
            same(daemon.metrics()["mrirecond_deliveries_dead"], 2, "dead letters")


@test("after so many attempts the delivery is a dead letter")
def dead():
    with Receiver(answers=[500] * 10) as receiver:
        with Daemon(destinations=configured("dead", hook("down", receiver.port, "attempts=2"),
                                            "rule down\n")) as daemon:
            job = daemon.run(GOOD)["id"]
            same(delivered(daemon, job, "down", "dead")["attempts"], 2, "attempts")
            same(len(receiver.got), 2, "requests")


@test("deliveries not made when the daemon is killed are made later: for a server that is down, or mid-answer")
def killed():
    port = free_port()
    with Receiver() as slow:
        slow.hold.clear()
        lines = configured("killed", hook("down", port, "attempts=1000"), hook("slow", slow.port, "attempts=1000"),
                           "rule down\n", "rule slow\n")
        with Daemon(destinations=lines) as daemon:
            jobs = [daemon.run(GOOD)["id"] for _ in range(3)]
            wait_until(lambda: slow.got and delivery(daemon, jobs[0], "down")["attempts"], "a first attempt at both")
            senders = wait_until(lambda: daemon.children("mrirecon-send"), "a sender")
            daemon.kill()
            wait_until(lambda: not any(os.path.exists(f"/proc/{sender}") for sender in senders), "the senders' end")
            slow.hold.set()
            with Receiver(port) as up:
                daemon.restart()
                for job in jobs:
                    delivered(daemon, job, "down")
                    delivered(daemon, job, "slow")
                same(sorted(json.loads(body)["data"]["id"] for _, _, body in up.got), sorted(jobs),
                     "what the server was told")


@test("a server that does not answer blocks neither the daemon nor another destination, and the attempt ends")
def slow():
    with Receiver() as stuck, Receiver() as quick:
        stuck.hold.clear()
        lines = configured("slow", hook("stuck", stuck.port, "timeout=2 attempts=1"), hook("quick", quick.port),
                           "rule stuck\n", "rule quick\n")
        with Daemon(destinations=lines) as daemon:
            first = daemon.run(GOOD)["id"]
            wait_until(lambda: stuck.got, "a request that is held")
            second = daemon.run(GOOD)["id"]
            delivered(daemon, second, "quick")
            delivered(daemon, first, "stuck", "dead")


@test("a job that is deleted while it is sent is sent no more, and the log promises no other attempt")
def deleted():
    with Receiver(answers=[500]) as receiver:
        receiver.hold.clear()
        lines = configured("deleted", hook("good", receiver.port), "rule good\n")
        with Daemon(destinations=lines) as daemon:
            job = daemon.run(GOOD)["id"]
            wait_until(lambda: receiver.got, "the job to be sent")
            daemon.request("DELETE", f"/v1/jobs/{job}").expect(204)
            receiver.hold.set()
            wait_until(lambda: "not delivered to good" in daemon.read_log(), "the end of the attempt")
            assert "not delivered to good: the job was deleted meanwhile" in daemon.read_log(), daemon.read_log()
            other = daemon.run(GOOD)["id"]
            delivered(daemon, other, "good")
            same([json.loads(body)["data"]["id"] for _, _, body in receiver.got], [job, other], "what was sent")


@test("a job is kept beyond its age until it is delivered")
def kept():
    with Daemon(destinations=configured("kept", hook("down", free_port(), "attempts=3 retry=1"),
                                        "rule down kind=recon name=keep\n"), keep_jobs=1) as daemon:
        job = daemon.submit(GOOD, "kind=recon&name=keep").expect(202).json()["id"]
        other = daemon.submit(GOOD, "kind=recon&name=other").expect(202).json()["id"]
        wait_until(lambda: daemon.get(f"/v1/jobs/{other}").status == 404, "the removal of the job that is sent nowhere")
        if daemon.get(f"/v1/jobs/{job}").status == 200:  # until its third attempt
            wait_until(lambda: daemon.get(f"/v1/jobs/{job}").status == 404, "the removal after the last attempt")
        # The log tells of an attempt after the store does, by which time the job may be gone.
        wait_until(lambda: "gave up delivering to down after 3 attempts" in daemon.read_log(), "the last attempt")
        same(len(re.findall("not delivered to down, next attempt", daemon.read_log())), 2, "attempts before the last")


@test("a dead letter is sent again by an administrator only, and a job to a destination that no rule named")
def again_by_hand():
    import re
    import subprocess
    from harness import BIN, client
    tokens = os.path.join(FOLDER.name, "hand.tokens")
    made = {role: subprocess.run([os.path.join(BIN, "mrirecond"), "--new-token", role + "-client", role, "--tokens",
                                  tokens], check=True, capture_output=True,
                                 text=True).stdout.strip() for role in ("submit", "admin", "read")}

    def asks(daemon, method, path, role, body=None):
        return daemon.request(method, path, body, {"Authorization": f"Bearer {made[role]}"})

    def finished(daemon, query, role="submit"):
        job = asks(daemon, "POST", f"/v1/jobs?kind=recon{query}", role, GOOD).expect(202).json()["id"]
        return wait_until(lambda: (lambda j: j if j["state"] == "succeeded"
                                   else None)(asks(daemon, "GET", f"/v1/jobs/{job}", "admin").json()),
                          "the job's end")["id"]

    with Receiver(answers=[410]) as receiver, Receiver() as other:
        lines = configured("hand", hook("first", receiver.port), hook("asked", other.port, "clients=x,submit-client"),
                           hook("closed", other.port), "rule first name=ruled\n")
        with Daemon(destinations=lines, tokens=tokens) as daemon:
            def state(job, name, expected):
                def there():
                    found = [d for d in asks(daemon, "GET", f"/v1/jobs/{job}", "admin").json()["deliveries"]
                             if d["destination"] == name]
                    return found and found[0]["state"] == expected
                wait_until(there, f"{name} to be {expected}")

            job = finished(daemon, "&name=ruled")
            state(job, "first", "dead")
            for role in ("submit", "read"):
                asks(daemon, "POST", f"/v1/jobs/{job}/deliveries/first", role).problem(403, "forbidden")
            asks(daemon, "POST", f"/v1/jobs/{job}/deliveries/nowhere", "admin").problem(404, "not-found")
            dead = asks(daemon, "GET", "/v1/deliveries?state=dead", "submit").expect(200).json()["deliveries"]
            same([(d["job"], d["destination"]) for d in dead], [(job, "first")], "dead letters of the client")
            same(asks(daemon, "GET", "/v1/deliveries", "read").json()["deliveries"], [], "deliveries of another client")
            asks(daemon, "GET", "/v1/deliveries?state=gone", "read").problem(400, "bad-parameter")
            told = client(daemon, "deliveries", "dead", MRIRECON_TOKEN=made["admin"]).stdout
            assert re.search(rf"^{job}  dead +1  first .* 410\.$", told, re.M), told
            client(daemon, "deliver", job, "first", MRIRECON_TOKEN=made["admin"])
            state(job, "first", "delivered")
            client(daemon, "deliver", job, "closed", MRIRECON_TOKEN=made["admin"])
            state(job, "closed", "delivered")

            asked = finished(daemon, "&destination=asked")
            state(asked, "asked", "delivered")
            state(finished(daemon, "&destination=closed,first", "admin"), "closed", "delivered")
            for destination, status, code in (("closed", 403, "forbidden"), ("asked,closed", 403, "forbidden"),
                                              ("nowhere", 400, "bad-parameter")):
                asks(daemon, "POST", f"/v1/jobs?kind=recon&destination={destination}", "submit",
                     GOOD).problem(status, code)
            # A resumable upload keeps it in its metadata.
            where = daemon.request("POST", "/v1/uploads?kind=recon&destination=asked", None,
                                   {"Authorization": f"Bearer {made['submit']}", "Tus-Resumable": "1.0.0",
                                   "Upload-Length": str(len(GOOD))}).expect(201).headers["location"]
            path = where[where.index("/v1/"):]
            daemon.request("PATCH", path, GOOD, {"Authorization": f"Bearer {made['submit']}", "Tus-Resumable": "1.0.0",
                                                 "Upload-Offset": "0",
                           "Content-Type": "application/offset+octet-stream"}).expect(204)
            state(path.rsplit("/", 1)[1].split("?")[0], "asked", "delivered")


@test("a reload reads the destinations again; an invalid file changes nothing; --check-config names the line")
def reload():
    import signal
    import subprocess
    from harness import BIN
    with Receiver() as receiver:
        path = configured("reload", hook("one", receiver.port))
        with Daemon(destinations=path, expect_trouble=True) as daemon:
            configured("reload", hook("one", receiver.port), hook("two", receiver.port), "rule two\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "reload: 2 destinations" in daemon.read_log(), "the reload")
            delivered(daemon, daemon.run(GOOD)["id"], "two")
            configured("reload", "rule nobody\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old destinations stay in use" in daemon.read_log(), "the refusal")
            delivered(daemon, daemon.run(GOOD)["id"], "two")
    secret = write("open.secret", "x", 0o644)
    for text, said in (("nonsense\n", ":2: a line begins with"), ("rule nobody\n", ":2: a rule names"),
                       ("destination a webhook ftp://x secret=y\n", ":2: the file y"),
                       (f"destination a webhook http://h/ secret={secret}\n", "chmod 600"),
                       (f"destination a webhook http://h/ secret={write('nul.secret', 'a' + chr(0) + 'b')}\n", "NUL"),
                       ("destination a webhook http://h/\n", "lacks secret="),
                       (hook("a", 1, "retry=0"), "retry= takes"), (hook("a", 1, "on=running"), "on= takes"),
                       (hook("a", 1, "colour=red"), "no setting"),
                       (hook("a", 1) + hook("a", 1), ":3: there are two"),
                       (hook("a", 1) + "rule a kind=none\n", ":3: there is no job kind")):
        path = configured("wrong", text)
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--check-config", "--state-dir", FOLDER.name,
                               "--destinations", path], capture_output=True, text=True)
        same(done.returncode, 2, f"exit status for {text!r}")
        assert said in done.stderr and done.stderr.rstrip().endswith("."), f"{text!r}: {done.stderr}"


if __name__ == "__main__":
    main()
