#!/usr/bin/python3
"""MRD version 1 streams: as the body of a submission, and as a result."""
import io
import struct
import tempfile

import numpy as np

import mrd
import scans
from harness import Daemon, main, same, test

FOLDER = tempfile.TemporaryDirectory(prefix="mrirecond-mrd-")


def npy_of(daemon, job):
    same(job["state"], "succeeded", f"state ({job['error']})")
    return np.load(io.BytesIO(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=npy").expect(200).body))


@test("a stream, with and without a configuration and chunked, gives the same bits as its HDF5 file")
def body(daemon):
    scan = scans.radial(coils=3)
    query = "kind=recon&output=complex&coils=none"
    expected = npy_of(daemon, daemon.run(scan.bytes(FOLDER.name), query))
    plain = b"".join(scan.messages())
    config = struct.pack("<H1024s", mrd.CONFIG_FILE, b"default.xml")
    waveform = struct.pack("<H", mrd.WAVEFORM) + bytes(28) + struct.pack("<HH", 3, 2) + bytes(8) + bytes(4 * 6)
    for what, content in (("plain", plain), ("configured", config + plain),
                          ("waveforms", plain[:-2] + waveform + plain[-2:])):
        assert np.array_equal(npy_of(daemon, daemon.run(content, query)), expected), what
    pieces = iter([config, *scan.messages()])
    answer = daemon.request("POST", f"/v1/jobs?{query}", pieces, {"Content-Type": "application/x-ismrmrd"})
    assert np.array_equal(npy_of(daemon, daemon.finish(answer.expect(202).json()["id"])), expected), "in chunks"


@test("format=mrd: the scan's header and every image, with the values of npy")
def result(daemon):
    scan = scans.radial(coils=2)
    job = daemon.run(b"".join(scan.messages()), "kind=recon&output=complex&coils=none")
    expected = npy_of(daemon, job)
    answer = daemon.get(f"/v1/jobs/{job['id']}/results/image",
                        Accept="application/x-ismrmrd").expect(200, "application/x-ismrmrd")
    same(daemon.get(f"/v1/jobs/{job['id']}/results/image?format=mrd").expect(200).body, answer.body, "by ?format=")
    (first, xml), *images = mrd.of_bytes(answer.body)
    same(first, mrd.HEADER, "first message")
    assert b"<ismrmrdHeader" in xml, xml[:200]
    same(len(images), expected.shape[0], "images")
    for (number, (head, pixels)), frame in zip(images, expected):
        same((number, int(head["data_type"]), int(head["image_type"])), (mrd.IMAGE, 7, 5),
             "number, type of data and of image")
        assert np.array_equal(pixels, frame), "different pixels"


if __name__ == "__main__":
    main(Daemon)
