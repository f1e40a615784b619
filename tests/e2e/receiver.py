"""A web server for webhooks, and the file of destinations that names it."""
import contextlib
import http.server
import os
import threading


class Receiver:
    """An HTTP server that records its requests, and answers as the test says: a status, or (status, headers)."""

    def __init__(self, port=0, answers=()):
        self.answers, self.got, self.hold = list(answers), [], threading.Event()
        self.hold.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                receiver.hold.wait()
                answer = receiver.answers.pop(0) if receiver.answers else 204
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def destination(self, folder, name, settings=""):
        """The configuration line of a webhook of this name, with its secret in the folder; it is retried within
        seconds.
        """
        secret = write(folder, name + ".secret", "a key of the test")
        return (f"destination {name} webhook http://127.0.0.1:{self.port}/{name} secret={secret} "
                f"retry=1 retry-most=1 {settings}\n")


def write(folder, name, text):
    """Write a file that only its owner may read; returns its path."""
    path = os.path.join(folder, name)
    with open(path, "w", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
        file.write(text)
    return path
