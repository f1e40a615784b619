"""PNG files, read without a library, for tests."""
import struct
import zlib

import numpy as np

from harness import same


def read_png(data):
    """(colour type, bits, array [height][width][channels]) of a PNG, by the specification."""
    same(data[:8], b"\x89PNG\r\n\x1a\n", "signature")
    at, chunks = 8, []
    while at < len(data):
        length, = struct.unpack(">I", data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        same(struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0], zlib.crc32(body), "checksum of a chunk")
        chunks.append((body[:4], body[4:]))
        at += 12 + length
    same((chunks[0][0], chunks[-1][0]), (b"IHDR", b"IEND"), "first and last chunk")
    width, height, bits, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    same(interlace, 0, "interlace")
    channels, sample = {0: 1, 2: 3, 4: 2, 6: 4}[colour], bits // 8
    lines = np.frombuffer(zlib.decompress(b"".join(c[1] for c in chunks if c[0] == b"IDAT")),
                          np.uint8).reshape(height, -1)
    out = np.zeros((height, lines.shape[1] - 1), np.uint8)
    step = channels * sample
    for y in range(height):
        kind, line = lines[y, 0], lines[y, 1:].astype(int)
        up = out[y - 1].astype(int) if y else np.zeros_like(line)
        for x in range(len(line)) if kind in (1, 3, 4) else ():
            left = int(out[y, x - step]) if x >= step else 0
            corner = int(up[x - step]) if x >= step else 0
            guess = left + int(up[x]) - corner
            paeth = min((abs(guess - left), 0, left), (abs(guess - int(up[x])), 1, int(up[x])),
                        (abs(guess - corner), 2, corner))[2]
            out[y, x] = (line[x] + {1: left, 3: (left + int(up[x])) // 2, 4: paeth}[kind]) & 255
        if kind in (0, 2):
            out[y] = (line + (up if kind == 2 else 0)) & 255
    return colour, bits, out.reshape(height, width, step)
