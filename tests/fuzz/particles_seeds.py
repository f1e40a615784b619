#!/usr/bin/python3
"""Writes the first inputs of the fuzz target of particles into a folder: a small file of each format for each
reader.
"""
import io
import os
import struct
import sys

import numpy as np

PQR = (b"CRYST1 30.0 31.0 32.0 90 90 90 P 1 1\nMODEL 1\nATOM 1 O HOH A 1 0.5 1 2 -0.8 1.5\n"
       b"HETATM100000 NA NA 2 1 1 1 1 .5\nENDMDL\n")
PDB = (b"HEADER\nATOM      1  CA AALA A   1      11.104   6.134  -6.504  0.25 -0.50           C  \n"
       b"HETATM    3 CA    CA A   2       1.000   2.000   3.000  1.00  2.00          CA2+\nEND\n")
XYZ = b"2\nwater\nO 0 0 0 -0.8 1.5\nH 1 0 0 0.4 1\n2\n\nO 0 0 1 -0.8 1.5\nH 1 0 1 .4 1\n"
CSV = b"q,x,y,z,name,element\n1,2,3,4,abc,Fe\n-1,5,6,7,,8\n"
ROWS = np.arange(16.0).reshape(1, 2, 8)


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(write, **arrays):
    file = io.BytesIO()
    write(file, **arrays)
    return file.getvalue()


def gadget(named, order):
    """A snapshot of three bodies of two types, of format 1 or 2."""
    def record(name, body):
        label = struct.pack(order + "I4sII", 8, name, len(body) + 8, 8) if named else b""
        return label + struct.pack(order + "I", len(body)) + body + struct.pack(order + "I", len(body))
    head = struct.pack(order + "6I6d2d2i6I2i4d", 0, 1, 2, 0, 0, 0, 0, 2.5, 0, 0, 0, 0, 0.5, 0, 0, 0, 0, 1, 2, 0, 0, 0,
                       0, 1, 9, 0, 0, 1).ljust(256, b"\0")
    rows = np.arange(9).astype(order + "f4").tobytes()
    return (record(b"HEAD", head) + record(b"POS ", rows) + record(b"VEL ", rows) + record(b"ID  ", rows[:12]) +
            record(b"MASS", rows[4:12]))


def volume():
    """In the layout of recon/volume/volume_npy.c: three arrays, each with a header of 128 bytes."""
    def head(kind, shape):
        text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}".encode()
        return b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(117) + b"\n"
    return (head("<f4", "2, 2, 1") + np.ones(4, "<f4").tobytes() + head("<f8", "2, 3") + np.ones(6).tobytes()
            + head("|S80", "") + b"Potential, e/A".ljust(80, b"\0"))


def main(folder):
    columns = {"position": ROWS[0, :, :3], "charge": np.ones(2), "radius": np.ones(2, "f4"),
               "velocity": ROWS[:, :, 3:6], "mass": np.ones((1, 2)), "box": np.array([[0, 0, 0], [9, 9, 9.0]])}
    files = [[PQR], [PDB], [XYZ, b"1 2 3 -0.5\n4 5 6 1\n"], [CSV, b"1;2;3;4\n"],
             [saved(ROWS), saved(ROWS[0, :, :4].astype(">f4")), saved(np.asfortranarray(ROWS[0]))],
             [archive(np.savez, **columns), archive(np.savez_compressed, **columns)],
             [gadget(named, order) for named in (False, True) for order in "<>"]]
    for reader, bodies in enumerate(files):
        for i, body in enumerate(bodies):
            for which in (reader, reader + len(files)):
                with open(os.path.join(folder, f"seed-{which}-{i}"), "wb") as file:
                    file.write(bytes([ord("0") + which]) + body)
    with open(os.path.join(folder, "seed-volume"), "wb") as file:
        file.write(bytes([ord("0") + 2 * len(files)]) + volume())


if __name__ == "__main__":
    main(sys.argv[1])
