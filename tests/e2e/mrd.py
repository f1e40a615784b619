"""MRD version 1 messages as clients of Gadgetron and FIRE send and read them, with the standard library and numpy."""
import contextlib
import glob
import os
import re
import socket
import struct

import numpy as np

CONFIG_FILE, CONFIG_TEXT, HEADER, CLOSE, TEXT, ACQUISITION, IMAGE, WAVEFORM = 1, 2, 3, 4, 5, 1008, 1022, 1026

# The members of an image's header that tests use, at their offsets in its 198 bytes.
IMAGE_HEAD = np.dtype({
    "names": ["version", "data_type", "matrix", "fov", "channels", "position", "slice", "repetition", "image_type",
              "index", "series", "attributes"],
    "formats": ["<u2", "<u2", ("<u2", 3), ("<f4", 3), "<u2", ("<f4", 3), "<u2", "<u2", "<u2", "<u2", "<u2", "<u4"],
    "offsets": [0, 2, 16, 22, 34, 36, 98, 104, 124, 126, 128, 194], "itemsize": 198})
PIXELS = {1: "<u2", 2: "<i2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<c8", 8: "<c16"}


def read_messages(take):
    """Yields (id, body) of each message up to CLOSE; read(n) returns n bytes. An image's body is (head, pixels)."""
    while True:
        number = struct.unpack("<H", take(2))[0]
        if number == CLOSE:
            return
        if number in (HEADER, TEXT, CONFIG_TEXT):
            yield number, take(struct.unpack("<I", take(4))[0])
        elif number == IMAGE:
            head = np.frombuffer(take(198), IMAGE_HEAD)[0]
            attributes = take(struct.unpack("<Q", take(8))[0])
            assert len(attributes) == head["attributes"] and attributes.startswith(b"<?xml"), attributes[:80]
            x, y, z = (int(n) for n in head["matrix"])
            shape = (int(head["channels"]), z, y, x)
            kind = np.dtype(PIXELS[int(head["data_type"])])
            yield number, (head, np.frombuffer(take(int(np.prod(shape)) * kind.itemsize), kind).reshape(shape))
        else:
            raise AssertionError(f"message of number {number}")


def of_bytes(content):
    """All messages of a stream in memory, which must end with CLOSE."""
    at = 0

    def take(count):
        nonlocal at
        assert at + count <= len(content), f"the stream ends after {len(content)} bytes, inside a message"
        at += count
        return content[at - count:at]
    found = list(read_messages(take))
    assert at == len(content), f"{len(content) - at} bytes follow the end"
    return found


def address_of(daemon):
    """The address at which a daemon with the option mrd-listen takes streams, from its log."""
    return "127.0.0.1", int(re.findall(r"MRD streams are accepted at 127\.0\.0\.1:(\d+)", daemon.read_log())[-1])


def readers(daemon):
    """Decoders that have a file of the spool open: (process, path)."""
    found = []
    for codec in daemon.children("mrirecon-codec", daemon.worker()):
        for link in glob.glob(f"/proc/{codec}/fd/*"):
            with contextlib.suppress(OSError):
                path = os.readlink(link)
                if "/spool/" in path:
                    found.append((codec, path))
    return found


def followers(daemon):
    """Decoders that have a stream open that is still arriving."""
    return [codec for codec, path in readers(daemon) if path.endswith(".part")]


def config_file(name):
    return struct.pack("<H1024s", CONFIG_FILE, name.encode())


def text(number, content):
    content = content.encode() if isinstance(content, str) else content
    return struct.pack("<HI", number, len(content)) + content


class Session:
    """A client like Gadgetron's: it sends and reads messages."""

    def __init__(self, daemon=None, timeout=120, address=None, connection=None):
        """For a daemon, whose log contains its address, or for an address, or a connection."""
        self.socket = connection or socket.create_connection(address or address_of(daemon), timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)
        return self

    def take(self, count):
        """Read exactly so many bytes."""
        found = b""
        while len(found) < count:
            piece = self.socket.recv(min(count - len(found), 1 << 20))
            assert piece, f"the daemon ended the connection; so far {found[:200]!r}"
            found += piece
        return found

    def messages(self):
        """All messages up to CLOSE and the end of the connection."""
        found = list(read_messages(self.take))
        assert self.socket.recv(1) == b"", "something follows CLOSE"
        return found

    def images(self):
        """Heads and pixels; all messages must be images."""
        found = self.messages()
        assert all(number == IMAGE for number, _ in found), [body for number, body in found if number != IMAGE]
        return [body for _, body in found]

    def failure(self):
        """The single text that was sent instead of images."""
        (number, body), *more = self.messages()
        assert number == TEXT and not more, (number, more)
        return body.decode()
