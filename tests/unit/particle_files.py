#!/usr/bin/python3
"""Writes a small file of particles of each format and layout into a folder; a name begins with its reader's format."""
import io
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "fuzz"))
import particles_seeds as seeds


def snapshot(version, **layout):
    """A GADGET snapshot of three types, of which one takes its mass from the header."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver=version) as h5:
        head = h5.create_group("Header").attrs
        head["BoxSize"], head["Time"], head["Redshift"], head["NumFilesPerSnapshot"] = 2.0, 0.25, 0.0, 1
        head["MassTable"] = [0, 0.5, 0, 0, 0, 0]
        for part, count in ((0, 3), (1, 40), (4, 12)):
            group = h5.create_group(f"PartType{part}")
            rows = np.arange(3.0 * count).reshape(count, 3) / 64
            group.create_dataset("Coordinates", data=rows, **layout)
            group.create_dataset("Velocities", data=-rows.astype("f4"), **layout)
            group.create_dataset("ParticleIDs", data=np.arange(count, dtype="u4") + part, **layout)
            if part != 1:
                group.create_dataset("Masses", data=rows[:, 0] + 1, **layout)
    return file.getvalue()


def main(folder):
    columns = {"position": seeds.ROWS[0, :, :3], "charge": np.ones(2), "velocity": seeds.ROWS[:, :, 3:6],
               "id": np.arange(2)}
    files = {
        "pqr": seeds.PQR, "pdb": seeds.PDB, "xyz": seeds.XYZ, "csv": seeds.CSV,
        "npy_floats": seeds.saved(seeds.ROWS), "npy_integers": seeds.saved(seeds.ROWS[0, :, :6].astype(">i2")),
        "npz_stored": seeds.archive(np.savez, **columns), "npz_packed": seeds.archive(np.savez_compressed, **columns),
        "gadget_1": seeds.gadget(False, "<"), "gadget_2": seeds.gadget(True, ">"),
        "hdf5_contiguous": snapshot("earliest"), "hdf5_new": snapshot("latest"),
        "hdf5_chunked": snapshot("earliest", chunks=True, compression="gzip", shuffle=True),
        "hdf5_chunked_new": snapshot("latest", chunks=True, compression="gzip", fletcher32=True, maxshape=None),
    }
    for name, body in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(body)


if __name__ == "__main__":
    main(sys.argv[1])
