#!/usr/bin/python3
"""Seeds for fuzz_decoder that follow the formats: decoder_seeds.py FOLDER"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit"))
from scan_files import ENCODING, XML, acquisitions, stream  # noqa: E402


def flat():
    """A flat scan (recon/scan/scan.h) of one readout of 3 samples, 2 coils, 2 dimensions."""
    encodings_at, readouts_at, xml_at, traj_at, data_at = 128, 256, 448, 512, 576
    total = data_at + 6 * 8
    head = struct.pack("<QIIQQ5Q4Q", 0x4E4143534952524D, 1, 1, total, 1, encodings_at, readouts_at, xml_at, traj_at,
                       data_at, 4, 6, 6, 0)
    encoding = struct.pack("<6I6fI28s", 4, 4, 1, 4, 4, 1, *[100.0] * 6, 2, b"radial")
    readout = struct.pack("<QQQ4I7H9Hf15f", 0, 0, 0, 0, 1, 2, 3, 3, 2, 2, 1, 1, 1, 0, *range(9), 2.5, *[0.5] * 15)
    body = bytearray(total)
    for at, part in ((0, head), (encodings_at, encoding), (readouts_at, readout), (xml_at, b"<a/>\0")):
        body[at:at + len(part)] = part
    return bytes(body)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    rows = acquisitions(2)
    for row in rows:
        head = row["head"]
        head["number_of_samples"], head["active_channels"], head["encoding_space_ref"] = 3, 2, 0
        head["discard_pre"], head["discard_post"] = 1, 1
        row["traj"], row["data"] = row["traj"][:6], row["data"][:12]
    path = os.path.join(folder, "stream")
    stream(path, xml=XML % (ENCODING % ("radial", 64, 120)), rows=rows, nul=b"\0", config=False)
    with open(path, "rb") as file:
        body = file.read()
    many = acquisitions(1)
    many["head"]["number_of_samples"], many["head"]["active_channels"] = 1, 1025
    many["head"]["trajectory_dimensions"] = 0
    many["head"]["discard_pre"] = many["head"]["discard_post"] = 0
    coils = struct.pack("<H", 1008) + many[0]["head"].tobytes() + bytes(1025 * 8)
    waveform = struct.pack("<H", 1026) + bytes(28) + struct.pack("<HH8x", 2, 3) + bytes(4 * 2 * 3)
    image = struct.pack("<H", 1022) + struct.pack("<HH12x3H12xH162xQ", 1, 5, 2, 2, 1, 1, 3) + b"abc" + bytes(16)
    messages = body[body.index(struct.pack("<H", 1008) + rows[0]["head"].tobytes()):]
    for name, which, content in (("flat", b"0", flat()), ("stream", b"1", body), ("messages", b"2", messages),
                                 ("sized", b"3", flat()),
                                 ("others", b"2", waveform + image + messages), ("coils", b"2", coils)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(which + content)


if __name__ == "__main__":
    main(sys.argv[1])
