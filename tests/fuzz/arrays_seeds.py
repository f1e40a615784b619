#!/usr/bin/python3
"""Writes the first inputs of the fuzz target of scans as arrays into a folder: archives of tests/unit/array_files.py,
and the concatenated .npy files of such archives.
"""
import io
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

LARGEST = 4096
MEMBERS = ("kspace.npy", "trajectory.npy", "weights.npy", "noise.npy", "sensitivities.npy", "fieldmap.npy", "times.npy")


def members(data):
    """The members' bytes with their lengths, as fuzz_arrays.c reads them."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [archive.read(name) if name in archive.namelist() else b"" for name in MEMBERS]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, ValueError):
        return None
    while parts and not parts[-1]:
        parts.pop()
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


def main(folder):
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, "tests/unit/array_files.py", made], check=True)
        for name in sorted(os.listdir(made)):
            with open(os.path.join(made, name), "rb") as file:
                data = file.read()
            if len(data) > LARGEST or name == "manifest":
                continue
            inside = members(data)
            for which, body in ((b"0", data), (b"1", inside), (b"2", inside)):
                if body is None:
                    continue
                with open(os.path.join(folder, f"{name}-{which.decode()}"), "wb") as file:
                    file.write(which + body)


if __name__ == "__main__":
    main(sys.argv[1])
