"""The clients of mrirecond in day.py: scanners, a research group, an operator's page, and an archive.

All of them write into one Book: accepted jobs, deliveries to the archive, and faults.
"""
import base64
import collections
import contextlib
import http.server
import io
import json
import random
import socket
import threading
import time

import numpy as np

import mrd
import scans
from harness import SLOW, check_problem, wait_until
from streams import Stream

TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
VARIANTS = 3  # scans of a protocol with different samples, so that a result of another patient is noticed


def cine(seed):
    scan = scans.radial(spokes=60, samples=32, coils=2, seed=seed)
    scan.heads["idx"]["repetition"] = np.arange(60) // 20
    return scan


def volume(seed):
    rng = np.random.default_rng(seed)
    traj = rng.uniform(-0.5, 0.5, size=(40, 32, 3))
    return scans.Scan(traj, rng.normal(size=(40, 2, 32, 2)).view(complex)[..., 0], (16, 16, 12))


# name: (scan made from a seed, query); all have fewer than 16,384 samples, so that a stream gives the bits of a posted
# file
PROTOCOLS = {
    "localizer": (lambda seed: scans.radial(seed=seed), "kind=recon"),
    "sense": (lambda seed: scans.radial(matrix=(32, 32, 1), coils=4, seed=seed),
              "kind=recon&method=cg-sense&iterations=3"),
    "adaptive": (lambda seed: scans.radial(matrix=(48, 40, 1), spokes=60, samples=96, coils=3, seed=seed),
                 "kind=recon&coils=adaptive"),
    "cine": (cine, "kind=recon"),
    "volume": (volume, "kind=recon&dcf=none"),
}


class Order:
    """A scan of a patient as one sender sends it (a file, a stream, a part of a stream), and the expected end of its
    job.
    """

    def __init__(self, name, protocol, variant, ends=("succeeded",), route="file"):
        self.name, self.protocol, self.variant, self.ends, self.route = name, protocol, variant, ends, route


class Book:
    """Scans, their images when reconstructed alone, and what happens to jobs."""

    def __init__(self, folder):
        self.lock = threading.Lock()
        self.accepted, self.streamed = {}, {}  # id: order; for an MRD stream, the job's name: order
        self.told = collections.defaultdict(set)  # id: webhook-ids
        self.ended = {}  # id: (state, name)
        self.counts, self.wrong = collections.Counter(), []
        self.bodies, self.messages, self.images = {}, {}, {}
        for number, (protocol, (make, _)) in enumerate(PROTOCOLS.items()):
            for variant in range(VARIANTS):
                scan = make(1000 * number + variant)
                self.bodies[protocol, variant] = scan.bytes(folder)
                self.messages[protocol, variant] = list(scan.messages())

    def alone(self, daemon):
        """Reconstruct each scan with nothing else running, as a file and as a stream."""
        for (protocol, variant), body in self.bodies.items():
            messages = self.messages[protocol, variant]
            routes = {"file": body, "stream": b"".join(messages), "part": b"".join(arrived(messages))}
            for route, content in routes.items():
                job = daemon.run(content, PROTOCOLS[protocol][1])
                assert job["state"] == "succeeded", job["error"]
                self.images[protocol, variant, route] = image(daemon, job["id"])

    def count(self, what, wrong=None):
        with self.lock:
            self.counts[what] += 1
            if wrong:
                self.wrong.append(wrong)

    def accept(self, identity, order):
        with self.lock:
            self.accepted[identity] = order

    def order_of(self, identity, name):
        with self.lock:
            return self.accepted.get(identity) or self.streamed.get(name)


def arrived(messages):
    """The part of a stream that arrives before it breaks off."""
    return messages[:3 * len(messages) // 4]


def image(daemon, identity):
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body))


class Archive:
    """A webhook's receiver: it fetches each ended job's image before it answers, so that the job still exists."""

    def __init__(self, book):
        self.book, self.daemon, self.out = book, None, threading.Event()  # out: it answers 503
        archive = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(archive.receive(self.headers["webhook-id"], content["data"]))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def receive(self, message, data):
        if self.out.is_set():
            self.book.count("webhooks refused during the archive's outage")
            return 503
        try:
            self.keep(message, data)
        except Exception as error:
            self.book.count("webhooks", f"the archive could not take {data['id']}: {error!r}"[:500])
        return 204

    def keep(self, message, data):
        identity, book = data["id"], self.book
        with book.lock:
            again = message in book.told[identity]
            book.told[identity].add(message)
        job = self.daemon.job(identity)
        book.count("webhooks told again" if again else "webhooks")
        book.ended[identity] = (job["state"], job["name"])
        # The webhook may arrive before the sender has read its answer.
        order = wait_until(lambda: book.order_of(identity, job["name"]), f"the order of job {identity}")
        if job["state"] == "succeeded":
            truth = book.images[order.protocol, order.variant, order.route]
            if not np.array_equal(image(self.daemon, identity), truth):
                book.count("images", f"{identity}: the image is not that of {order.name} alone")
            book.count("images compared")
        elif job["state"] == "failed":
            check_problem(job["error"], job["error"]["code"])


class Sender:
    """A scanner, or a computer of the research group."""

    def __init__(self, daemon, book, client, source="127.0.0.1", mrd_port=0):
        self.daemon, self.book, self.client = daemon, book, client
        self.source, self.mrd_port = source, mrd_port
        self.chance, self.number = random.Random(client), 0

    def order(self, ends=("succeeded",), route="file"):
        self.number += 1
        return Order(f"{self.client}-{self.number}", self.chance.choice(list(PROTOCOLS)),
                     self.chance.randrange(VARIANTS), ends, route)

    def query(self, order, **more):
        more = "".join(f"&{name}={value}" for name, value in more.items())
        return f"{PROTOCOLS[order.protocol][1]}&name={order.name}{more}"

    def post(self, order, body, **more):
        """POST /v1/jobs until it is accepted; returns the job's id."""
        key = {"X_Mrirecond_Client": self.client, "Idempotency_Key": order.name}
        end = time.monotonic() + SLOW
        while (answer := self.daemon.submit(body, self.query(order, **more), **key)).status in (429, 503, 507):
            assert time.monotonic() < end, f"not accepted for {SLOW} s: {answer.body[:300]}"
            self.book.count(f"submissions answered {answer.status}")
            time.sleep(0.05)
        identity = answer.expect(202).json()["id"]
        self.book.accept(identity, order)
        self.book.count("scans posted whole")
        return identity

    def whole(self, **more):
        """A scan in one request; one in five is sent again, as if the answer had been lost."""
        order = self.order()
        body = self.book.bodies[order.protocol, order.variant]
        identity = self.post(order, body, **more)
        if self.chance.random() < 0.2:
            again = self.post(order, body, **more)
            self.book.count("submissions repeated")
            # If the job has ended and was removed meanwhile, so was its key, and the scan is a new job.
            if again != identity and self.daemon.get(f"/v1/jobs/{identity}").status != 404:
                self.book.count("doubled", f"{order.name} became the jobs {identity} and {again}")
        return identity

    def garbage(self):
        """A file that is no scan."""
        order = self.order(("failed",))
        return self.post(order, b"this is no scan " * 99)

    def canceled(self):
        """A scan that its sender cancels."""
        order = self.order(("canceled", "succeeded"))
        identity = self.post(order, self.book.bodies[order.protocol, order.variant], priority="batch")
        status = self.daemon.request("POST", f"/v1/jobs/{identity}/cancel").status
        assert status in (202, 404, 409), f"canceling was answered {status}"
        self.book.count("jobs canceled")

    def resumable(self):
        """A tus upload in pieces, with a connection that breaks after each."""
        order = self.order()
        body = self.book.bodies[order.protocol, order.variant]
        headers = {**TUS, "Upload-Length": str(len(body)), "X-Mrirecond-Client": self.client,
                   "Upload-Metadata": "filename " + base64.b64encode(order.name.encode()).decode()}
        path = f"/v1/uploads?{self.query(order)}"
        where = self.daemon.request("POST", path, headers=headers).expect(201).headers["location"]
        self.book.accept(where.rsplit("/", 1)[1], order)
        offset = 0
        while offset < len(body):
            piece = body[offset:offset + self.chance.randrange(20000, 60000)]
            answer = self.daemon.request("PATCH", where, piece, {**TUS, "Upload-Offset": str(offset)})
            offset = int(answer.expect(204).headers["upload-offset"])
            if offset < len(body):
                head = self.daemon.request("HEAD", where, headers=TUS).expect(200)
                assert int(head.headers["upload-offset"]) == offset, head.headers
        self.book.count("resumable uploads")

    def stream(self, pause, breaks=False):
        """An MRD stream, sent as it is measured; it may break off."""
        order = self.order(("failed",), "part") if breaks else self.order(route="stream")
        messages = self.book.messages[order.protocol, order.variant]
        with self.book.lock:
            self.book.streamed[order.name] = order
        with socket.create_connection(("127.0.0.1", self.mrd_port), SLOW, (self.source, 0)) as connection:
            session = mrd.Session(connection=connection)
            session.send(mrd.text(mrd.CONFIG_TEXT, self.query(order)))
            sent = arrived(messages) if breaks else messages
            for part in range(4):
                session.send(*sent[part * len(sent) // 4:(part + 1) * len(sent) // 4])
                time.sleep(pause / 4)
            if breaks:
                self.book.count("MRD streams broken off")
                return
            images = np.stack([pixels for _, pixels in session.images()])
        if not np.array_equal(images, self.book.images[order.protocol, order.variant, "stream"]):
            self.book.count("images", f"the images sent for {order.name} are not those of the scan alone")
        self.book.count("MRD streams")


class Page:
    """The operator's page: an event stream, the list, thumbnails, slices; it runs failed jobs again."""

    def __init__(self, daemon, book):
        self.daemon, self.book, self.chance = daemon, book, random.Random("page")
        self.states, self.last, self.stream, self.closed = {}, None, None, False

    def load(self):
        jobs, cursor = [], ""
        while cursor is not None:
            page = self.daemon.get(f"/v1/jobs?limit=100&fields=short{cursor}").expect(200).json()
            jobs += page["jobs"]
            cursor = f"&cursor={page['next']}" if page["next"] else None
        self.book.count("lists")
        return {job["id"]: job["state"] for job in jobs}

    def look(self, identity):
        """The requests of the page for an image; the job may have been removed."""
        for query in ("size=96", f"slice=0&window={self.chance.randrange(1, 9)}%25,99%25", "format=png"):
            answer = self.daemon.get(f"/v1/jobs/{identity}/results/image?{query}")
            if answer.status != 404:
                answer.expect(200, "image/png")
            self.book.count("pictures" if answer.status == 200 else "pictures of jobs that were removed")

    def again(self, identity):
        """Run a failed job again, once: a file that is no scan fails again, and a broken stream gives the images that
        arrived.
        """
        job = self.daemon.get(f"/v1/jobs/{identity}")
        if job.status == 404:
            return
        old = wait_until(lambda: self.book.order_of(identity, job.json()["name"]), f"the order of job {identity}")
        ends = ("succeeded",) if old.route == "part" else ("failed",)
        order = Order(f"again-{identity}", old.protocol, old.variant, ends, old.route)
        answer = self.daemon.request("POST", f"/v1/jobs/{identity}/resubmit?name={order.name}")
        if answer.status == 202:
            self.book.accept(answer.json()["id"], order)
        else:
            assert answer.status in (404, 409, 410), f"running {identity} again was answered {answer.status}"
        self.book.count("failed jobs run again" if answer.status == 202 else "failed jobs without a scan")

    def event(self, name, data):
        if name == "reset":
            self.states = self.load()
        elif name == "removed":
            self.states.pop(data["id"], None)
        elif name == "job":
            if data["state"] == "succeeded":
                self.look(data["id"])
            elif data["state"] == "failed" and not data["name"].startswith("again-"):
                self.again(data["id"])
            self.states[data["id"]] = data["state"]

    def run(self):
        """Run until close(): a page that reconnects when its connection ends."""
        while not self.closed:
            self.stream = Stream(self.daemon, "/v1/events", self.last)
            try:
                for name, identity, data in self.stream.events():
                    self.last = identity or self.last
                    self.event(name, data)
            except (OSError, ValueError):
                self.book.count("event streams reopened")

    def interrupt(self):
        """Break the page's connection, if it has one."""
        with contextlib.suppress(OSError, AttributeError):
            self.stream.socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.closed = True
        self.interrupt()
