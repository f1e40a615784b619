"""MRD streams to be mutated: lists of messages of every kind of scan that a scanner sends, small enough for hundreds
per second. Real scans keep their header and acquisition heads, and every n-th sample, in a smaller matrix.
"""
import glob
import os
import re
import struct

import h5py
import numpy as np

import mrd
import scans
from harness import DATA

NOISE = 1 << 18  # ISMRMRD_ACQ_IS_NOISE_MEASUREMENT
READOUTS, SAMPLES, COILS, MATRIX = 6, 16, 3, 16  # the part of a real scan that is kept, at most


def every_message():
    """A scan of 5 readouts of 8 samples, with a message of every number."""
    scan = scans.radial(matrix=(8, 8, 1), spokes=5, samples=8, coils=1, weights=False)
    header, *acquisitions, close = scan.messages()
    waveform = struct.pack("<H", mrd.WAVEFORM) + bytes(28) + struct.pack("<HH", 3, 2) + bytes(8 + 24)
    image = (struct.pack("<HHH", mrd.IMAGE, 1, 5) + bytes(12) + struct.pack("<HHH", 2, 2, 1) + bytes(12) +
             struct.pack("<H", 1) + bytes(162))
    others = [waveform, image + struct.pack("<Q", 0) + bytes(16), mrd.text(mrd.TEXT, "hello"),
              struct.pack("<HQQQ", 6, 0, 0, 2) + b"ab"]
    return [mrd.config_file("default"), header, *acquisitions[:2], *others, *acquisitions[2:], close]


def series():
    """Two slices in two repetitions, with images that are sent before the end."""
    scan = scans.radial(matrix=(8, 8, 1), spokes=16, samples=8, coils=2)
    scan.heads["idx"]["slice"] = np.arange(16) // 4 % 2
    scan.heads["idx"]["repetition"] = np.arange(16) // 8
    limits = "<slice><minimum>0</minimum><maximum>1</maximum><center>0</center></slice>"
    scan.xml = scan.xml.replace("<encodingLimits/>", f"<encodingLimits>{limits}</encodingLimits>")
    return [mrd.config_file("recon.xml"), *scan.messages()]


def sliding():
    """Images of four readouts each."""
    scan = scans.radial(matrix=(8, 8, 1), spokes=12, samples=8, coils=1)
    return [mrd.text(mrd.CONFIG_TEXT, "kind=recon&frame_readouts=4"), *scan.messages()]


def noise():
    """A noise measurement, then three coils that are combined by their sensitivities, as TEXT says."""
    scan = scans.radial(matrix=(8, 8, 1), spokes=9, samples=8, coils=3)
    scan.heads["flags"][0] = NOISE
    header, *rest = scan.messages()
    return [header, mrd.text(mrd.TEXT, '{"parameters": {"coils": "adaptive", "name": "brain"}}'), *rest]


def iterative():
    scan = scans.radial(matrix=(8, 8, 1), spokes=8, samples=8, coils=2)
    return [mrd.text(mrd.CONFIG_TEXT, '{"method": "cg-sense", "iterations": 2}'), *scan.messages()]


def volume():
    """A three-dimensional trajectory."""
    rng = np.random.default_rng(4)
    traj = rng.uniform(-0.5, 0.5, size=(6, 10, 3))
    data = rng.normal(size=(6, 1, 10, 2)).view(complex)[..., 0]
    return list(scans.Scan(traj, data, (8, 8, 8)).messages())


def small(matrix):
    """A matrixSize of at most MATRIX along each axis."""
    return re.sub(r"\d+", lambda size: str(min(MATRIX, int(size[0]))), matrix[0])


def real(path):
    """A stream with a part of a real scan."""
    with h5py.File(path) as file:
        xml = file["dataset/xml"][0].decode()
        rows = file["dataset/data"][:READOUTS]
    messages = [mrd.text(mrd.HEADER, re.sub(r"<matrixSize>.*?</matrixSize>", small, xml))]
    for row in rows:
        head = row["head"].copy()
        count, coils = int(head["number_of_samples"]), int(head["active_channels"])
        step = max(1, count // SAMPLES)
        traj = row["traj"].reshape(count, -1)[::step][:SAMPLES]
        data = row["data"].view("<c8").reshape(coils, count)[:COILS, ::step][:, :SAMPLES]
        head["number_of_samples"], head["center_sample"] = len(traj), 0
        head["active_channels"] = head["available_channels"] = len(data)
        head["discard_pre"] = head["discard_post"] = 0
        messages.append(struct.pack("<H", mrd.ACQUISITION) + head.tobytes() + traj.tobytes() + data.tobytes())
    return messages + [struct.pack("<H", mrd.CLOSE)]


def all_seeds():
    """{name: messages}, including real scans if they are available."""
    found = {made.__name__: made() for made in (every_message, series, sliding, noise, iterative, volume)}
    for path in sorted(glob.glob(os.path.join(DATA, "mri", "*.h5"))):
        found[os.path.basename(path).removesuffix(".h5")] = real(path)
    return found
