#!/usr/bin/python3
"""A large ISMRMRD scan of random data: ingest_file.py FILE ACQUISITIONS (each 512 samples, 16 coils, 3-D
trajectory).
"""
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit"))
from scan_files import GOOD_XML, items, put_xml  # noqa: E402

SAMPLES, COILS, DIMS, BATCH = 512, 16, 3, 250

rng = np.random.default_rng(1)
path, count = sys.argv[1], int(sys.argv[2])
traj = rng.uniform(-0.5, 0.5, (BATCH, SAMPLES * DIMS)).astype("f4")
data = rng.normal(size=(BATCH, 2 * SAMPLES * COILS)).astype("f4")
with h5py.File(path, "w") as file:
    put_xml(file.create_group("dataset"), GOOD_XML, "list")
    out = file.create_dataset("dataset/data", (count,), maxshape=(None,), chunks=(1,), dtype=items())
    for first in range(0, count, BATCH):
        rows = np.zeros(min(BATCH, count - first), items())
        rows["head"]["number_of_samples"], rows["head"]["active_channels"] = SAMPLES, COILS
        rows["head"]["trajectory_dimensions"], rows["head"]["scan_counter"] = DIMS, first + np.arange(len(rows))
        for i in range(len(rows)):
            rows["traj"][i], rows["data"][i] = traj[i], data[(i + first) % BATCH]
        out[first:first + len(rows)] = rows
