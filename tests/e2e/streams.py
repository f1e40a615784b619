"""Streams of server-sent events, for tests."""
import http.client
import json
import socket

from harness import same


class Stream:
    """A stream of events, read as they arrive."""

    def __init__(self, daemon, path, last=None, **headers):
        self.socket = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
        words = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
        headers = {**headers, **({} if last is None else {"Last-Event-ID": last})}
        self.socket.sendall((words + "".join(f"{name.replace('_', '-')}: {value}\r\n" for name,
                                             value in headers.items()) + "\r\n").encode())
        self.file = self.socket.makefile("rb")
        first = self.file.readline()
        if not first:
            raise http.client.RemoteDisconnected(f"{path}: the connection was closed without an answer")
        self.status = int(first.split()[1])
        self.headers = {}
        while (line := self.file.readline().strip()):
            name, value = line.decode().split(": ", 1)
            self.headers[name.lower()] = value

    def close(self):
        self.file.close()
        self.socket.close()

    def lines(self):
        """The body's lines without the chunked coding, which must end with the empty chunk."""
        rest = b""
        while True:
            size = int(self.file.readline(), 16)
            if size == 0:
                same(rest, b"", "an event that was cut off")
                return
            rest += self.file.read(size)
            same(self.file.read(2), b"\r\n", "the end of a chunk")
            while b"\n" in rest:
                line, rest = rest.split(b"\n", 1)
                yield line.decode()

    def events(self):
        """(event, id or None, data) one after the other, until the stream ends."""
        fields = {}
        for line in self.lines():
            if not line:
                if "event" in fields:
                    yield fields["event"], fields.get("id"), json.loads(fields["data"])
                fields = {}
            elif not line.startswith(":"):
                name, value = line.split(": ", 1)
                fields[name] = value
