#!/usr/bin/python3
"""Writes .npz files into a folder, good and bad, and a manifest: name, expected code, words of the error.

The good ones contain the scan that tests/unit/test_arrays.c expects: KSPACE [coil 2][readout 3][sample 5], TRAJECTORY.
"""
import io
import os
import struct
import sys
import warnings
import zipfile
import zlib

import numpy as np

warnings.filterwarnings("ignore", message="Duplicate name")
c, r, s = np.meshgrid(np.arange(2), np.arange(3), np.arange(5), indexing="ij")
KSPACE = (100 * c + 10 * r + s - 1j * (s + 1)).astype("c8")
TRAJECTORY = np.stack([r[0] / 8, s[0] / 16], -1).astype("f4")
ARRAYS = {"kspace": KSPACE, "trajectory": TRAJECTORY}
manifest = None


def put(name, data, code="ok", words="-"):
    with open(name, "wb") as file:
        file.write(data)
    manifest.write(f"{name}\t{code}\t{words}\n")


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version, allow_pickle=True)
    return file.getvalue()


def header(text, data=b"", version=1):
    """An .npy file with this dictionary."""
    text = text.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def archive(members, method=zipfile.ZIP_STORED, file=None):
    file = file or io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as zip:
        for name, data in members:
            zip.writestr(name, data)
    return file.getvalue()


def pair(**files):
    """An archive of good .npy files, with the given ones replaced."""
    whole = {"kspace": npy(KSPACE), "trajectory": npy(TRAJECTORY)} | files
    return archive([(f"{name}.npy", data) for name, data in whole.items()])


class Pipe(io.RawIOBase):
    """A file that cannot seek, so that sizes are written after the members and in the central directory."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def good():
    put("stored", npz(**ARRAYS))
    put("deflated", npz(np.savez_compressed, **ARRAYS))
    put("fortran", npz(kspace=np.asfortranarray(KSPACE), trajectory=np.asfortranarray(TRAJECTORY)))
    put("doubles", npz(np.savez_compressed, kspace=KSPACE.astype("c16"), trajectory=TRAJECTORY.astype("f8")))
    put("big_endian", npz(kspace=KSPACE.astype(">c8"), trajectory=TRAJECTORY.astype(">f8")))
    put("third_column_zero", npz(kspace=KSPACE, trajectory=np.concatenate([TRAJECTORY, 0 * TRAJECTORY[..., :1]], -1)))
    put("versions", pair(kspace=npy(KSPACE, (2, 0)), trajectory=npy(TRAJECTORY, (3, 0))))
    put("others_too", npz(**ARRAYS, more=np.arange(5)))
    put("other_spacing", pair(kspace=header("{'shape':(2,3,5,),'fortran_order':False,'descr':\"<c8\"}",
                                            KSPACE.tobytes())))
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as zip:
        for name, array in ARRAYS.items():
            zip.writestr(f"{name}.npy", npy(array))
    put("streamed", pipe.data)
    big = io.BytesIO()
    with zipfile.ZipFile(big, "w", allowZip64=True) as zip:
        for name, array in ARRAYS.items():
            with zip.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy(array))
    put("zip64_local", big.getvalue())
    put("zip64_end", zip64_end(npz(**ARRAYS)))
    with_comment = io.BytesIO(npz(**ARRAYS))
    with zipfile.ZipFile(with_comment, "a") as zip:
        zip.comment = b"PK\5\6" + bytes(40)
    put("comment", with_comment.getvalue())


def zip64_end(data):
    """The end of the central directory, repeated in Zip64 format."""
    end = len(data) - 22
    entries, length, at = struct.unpack("<HII", data[end + 10:end + 20])
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, entries, entries, length, at)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, end, 1)
    return data[:end] + record + locator + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 0xffffffff,
                                                                   0xffffffff, 0)


def bad_archives():
    whole = npz(**ARRAYS)
    put("empty_end", b"PK\3\4" + bytes(100), "truncated-file", "no end")
    put("cut", whole[:-30], "truncated-file", "no end")
    put("front_cut", b"PK\3\4" + whole[200:], "malformed-file", "-")
    put("trailing", whole + b"x", "truncated-file", "no end")
    put("other_zip", archive([("scan.h5", b"x"), ("readme", b"y")]), "unknown-format", "scan.h5, readme")
    put("no_trajectory", npz(kspace=KSPACE), "unknown-format", "no trajectory.npy")
    put("duplicate", archive([("kspace.npy", npy(KSPACE)), ("kspace.npy", npy(KSPACE))]), "hostile-file", "two members")
    put("bzip2", archive([("kspace.npy", npy(KSPACE))], zipfile.ZIP_BZIP2), "malformed-file", "method 12")
    put("many", archive([(f"a{i}.npy", b"") for i in range(65)]), "limit-exceeded", "65 members")
    put("long_name", archive([("k" * 200, b"")]), "limit-exceeded", "200 bytes")
    put("encrypted", patch(whole, b"PK\1\2", 8, struct.pack("<H", 1)), "malformed-file", "encrypted")
    put("wrong_sum", patch(whole, b"PK\1\2", 16, b"abcd"), "malformed-file", "kspace.npy of the ZIP archive")
    put("damaged", whole.replace(KSPACE.tobytes()[:40], bytes(40)), "malformed-file", "kspace.npy of the ZIP archive")
    put("outside", patch(whole, b"PK\1\2", 42, struct.pack("<I", 1 << 30)), "malformed-file", "damaged")
    put("longer", patch(whole, b"PK\1\2", 20, struct.pack("<II", 1 << 20, 1 << 20)), "malformed-file", "damaged")
    second = whole.index(b"PK\1\2", whole.index(b"PK\1\2") + 1)
    put("overlap", whole[:second + 42] + bytes(4) + whole[second + 46:], "malformed-file", "damaged")
    inside = archive([("kspace.npy", archive([("trajectory.npy", npy(TRAJECTORY))])), ("x", b"")])
    put("nested", nested(inside), "hostile-file", "overlap")
    put("directory_outside", patch(whole, b"PK\5\6", 16, struct.pack("<I", 1 << 30)), "malformed-file", "outside")
    put("zip64_lost", patch(whole, b"PK\5\6", 10, struct.pack("<H", 65535)), "malformed-file", "Zip64")
    lie = npz(np.savez_compressed, **ARRAYS)
    put("says_less", patch(lie, b"PK\1\2", 24, struct.pack("<I", 100)), "malformed-file", "damaged")
    put("bomb", patch(lie, b"PK\1\2", 24, struct.pack("<I", 672 << 20)), "limit-exceeded", "packed members may take")
    put("says_more", patch(lie, b"PK\1\2", 24, struct.pack("<I", 100000)), "malformed-file", "damaged")


def nested(data):
    """Make the directory's second entry point to the archive inside the first member."""
    inner = data.index(b"PK\3\4", 4)
    entry = data.rindex(b"PK\1\2")
    local = b"trajectory.npy"
    size = len(npy(TRAJECTORY))
    made = (b"PK\1\2" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, zlib.crc32(npy(TRAJECTORY)), size, size,
                                    len(local), 0, 0, 0, 0, 0, inner) + local)
    first = data.rindex(b"PK\1\2", 0, entry)
    start = first
    directory = data[start:entry] + made
    return data[:start] + directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 2, 2, len(directory), start, 0)


def patch(data, magic, at, value):
    """Replace bytes of the first record of this kind."""
    at += data.index(magic)
    return data[:at] + value + data[at + len(value):]


def bad_arrays():
    good_text = "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3, 5), }"
    put("pickled", npz(kspace=np.array([{}, print], dtype=object), trajectory=TRAJECTORY), "hostile-file",
        "Python objects")
    put("integers", npz(kspace=KSPACE.real.astype("i4"), trajectory=TRAJECTORY), "malformed-file", "astype")
    put("fields", npz(kspace=np.zeros(5, [("re", "f4"), ("im", "f4")]), trajectory=TRAJECTORY), "malformed-file",
        "[...]")
    put("halves", npz(kspace=KSPACE, trajectory=TRAJECTORY.astype("f2")), "malformed-file", "<f2")
    put("real_kspace", npz(kspace=KSPACE.real, trajectory=TRAJECTORY), "malformed-file", "complex numbers")
    put("complex_trajectory", npz(kspace=KSPACE, trajectory=KSPACE), "malformed-file", "real numbers")
    put("no_npy", pair(kspace=b"hello"), "malformed-file", "kspace.npy is not an array")
    put("short_header", pair(kspace=npy(KSPACE)[:20]), "malformed-file", "kspace.npy is not an array")
    put("short_data", pair(kspace=npy(KSPACE)[:-1]), "malformed-file", "array kspace should be")
    put("long_data", pair(kspace=npy(KSPACE) + b"x"), "malformed-file", "array kspace should be")
    put("overflow", pair(kspace=header(good_text.replace("2, 3, 5", "4294967296, 4294967296, 4294967296"))),
        "malformed-file", "array kspace should be")
    put("overflow_number", pair(kspace=header(good_text.replace("2, 3", "99999999999999999999, 3"))), "malformed-file",
        "header")
    put("many_axes", pair(kspace=header(good_text.replace("2, 3, 5", "1," * 9))), "malformed-file", "header")
    put("code", pair(kspace=header("{'descr': __import__('os').system('x'), 'fortran_order': False, 'shape': (1,)}")),
        "malformed-file", "header")
    put("twice", pair(kspace=header(good_text.replace("{", "{'shape': (1,), "))), "malformed-file", "header")
    put("key", pair(kspace=header(good_text.replace("descr", "descr_"))), "malformed-file", "header")
    put("unclosed", pair(kspace=header(good_text[:-3])), "malformed-file", "header")
    put("after", pair(kspace=header(good_text + "{}")), "malformed-file", "header")
    put("version_9", pair(kspace=b"\x93NUMPY\x09" + npy(KSPACE)[7:]), "malformed-file", "kspace.npy is not an array")
    put("shapes", npz(kspace=KSPACE[:, :2], trajectory=TRAJECTORY), "malformed-file", "2 x 2 x 5")
    put("more_axes", npz(kspace=KSPACE[None, None, None], trajectory=TRAJECTORY), "malformed-file", "do not fit")
    put("fewer_axes", npz(kspace=KSPACE[0, 0], trajectory=TRAJECTORY), "malformed-file", "do not fit")
    put("four_columns", npz(kspace=KSPACE, trajectory=np.zeros((3, 5, 4), "f4")), "malformed-file", "2 or 3")
    put("empty_axis", npz(kspace=KSPACE[:, :0], trajectory=TRAJECTORY[:0]), "no-image-data", "length 0")
    put("no_axes", npz(kspace=np.complex64(1), trajectory=TRAJECTORY), "malformed-file", "a single number")
    put("coils", npz(kspace=np.zeros((1025, 3, 5), "c8"), trajectory=TRAJECTORY), "malformed-file", "1024 coils")
    put("kz", npz(kspace=KSPACE, trajectory=np.ones((3, 5, 3), "f4")), "bad-parameter", "size=X,Y,Z")
    put("weights_shape", npz(**ARRAYS, weights=np.ones((3, 4), "f4")), "malformed-file", "without its last axis")
    put("weights_complex", npz(**ARRAYS, weights=np.ones((3, 5), "c8")), "malformed-file", "without its last axis")
    put("noise_coils", npz(**ARRAYS, noise=np.ones((3, 64), "c8")), "malformed-file", "kspace's coils")


def main(folder):
    global manifest
    os.chdir(folder)
    manifest = open("manifest", "w", encoding="utf-8")
    good()
    bad_archives()
    bad_arrays()
    manifest.close()
    # Scans of other shapes, used by individual tests.
    for name, arrays in (("coilless", {"kspace": KSPACE[1], "trajectory": TRAJECTORY}),
                         ("repeated", {"kspace": np.stack([KSPACE, KSPACE + 1000], 1), "trajectory": TRAJECTORY}),
                         ("weighted", ARRAYS | {"weights": (r[0] + s[0] / 4).astype("f8")}),
                         ("noisy", ARRAYS | {"noise": np.asfortranarray(KSPACE.reshape(2, 15) + 1)}),
                         ("long", {"kspace": np.arange(70000).astype("c8"),
                                   "trajectory": np.stack([np.arange(70000) / 70000] * 2, -1)})):
        with open(name, "wb") as file:
            file.write(npz(**arrays))


if __name__ == "__main__":
    main(sys.argv[1])
