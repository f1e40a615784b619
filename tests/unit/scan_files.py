#!/usr/bin/python3
"""Writes scan files, good and hostile, into a folder, and a manifest of what the decoder must make of each.

    scan_files.py FOLDER

FOLDER/manifest has a line for each: name, group ("-": none given), "ok" or the failure's name, words of the sentence
(or "-"). Every good scan holds the same ACQUISITIONS, whose values are a formula that decode_fixture.h has, too; all
are exact in float32.
"""
import os
import struct
import sys

import h5py
import numpy as np

ACQUISITIONS, SAMPLES, COILS, DIMS = 21, 40, 3, 2

XML = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><experimentalConditions><H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz>
</experimentalConditions>%s</ismrmrdHeader>"""
ENCODING = """<encoding><trajectory>%s</trajectory><encodedSpace><matrixSize><x>%s</x><y>48</y><z>1</z></matrixSize>
<fieldOfView_mm><x>320</x><y>240.5</y><z>5</z></fieldOfView_mm></encodedSpace><reconSpace><matrixSize><x>32</x><y>24</y><z>1</z>
</matrixSize><fieldOfView_mm><x>160</x><y>%s</y><z>5</z></fieldOfView_mm></reconSpace><encodingLimits/></encoding>"""
GOOD_XML = XML % ((ENCODING % ("spiral", 64, 120)) + (ENCODING % ("propellor", 66, 121)))

HEAD = np.dtype([
    ("version", "<u2"), ("flags", "<u8"), ("measurement_uid", "<u4"), ("scan_counter", "<u4"),
    ("acquisition_time_stamp", "<u4"), ("physiology_time_stamp", "<u4", 3), ("number_of_samples", "<u2"),
    ("available_channels", "<u2"), ("active_channels", "<u2"), ("channel_mask", "<u8", 16), ("discard_pre", "<u2"),
    ("discard_post", "<u2"), ("center_sample", "<u2"), ("encoding_space_ref", "<u2"), ("trajectory_dimensions", "<u2"),
    ("sample_time_us", "<f4"), ("position", "<f4", 3), ("read_dir", "<f4", 3), ("phase_dir", "<f4", 3),
    ("slice_dir", "<f4", 3), ("patient_table_position", "<f4", 3),
    ("idx", [("kspace_encode_step_1", "<u2"), ("kspace_encode_step_2", "<u2"), ("average", "<u2"), ("slice", "<u2"),
             ("contrast", "<u2"), ("phase", "<u2"), ("repetition", "<u2"), ("set", "<u2"), ("segment", "<u2"),
             ("user", "<u2", 8)]),
    ("user_int", "<i4", 8), ("user_float", "<f4", 8)])
assert HEAD.itemsize == 340


def items(traj="<f4", data="<f4"):
    return np.dtype([("head", HEAD), ("traj", h5py.vlen_dtype(np.dtype(traj))),
                     ("data", h5py.vlen_dtype(np.dtype(data)))])


def acquisitions(n=ACQUISITIONS, traj="<f4"):
    rows = np.zeros(n, items(traj))
    heads = rows["head"]
    a = np.arange(n)
    heads["version"] = 1
    heads["flags"] = a.astype(np.uint64) << np.uint64(33)
    heads["measurement_uid"], heads["scan_counter"], heads["acquisition_time_stamp"] = 7, a + 100, a * 3
    heads["number_of_samples"], heads["active_channels"], heads["available_channels"] = SAMPLES, COILS, COILS + 5
    heads["discard_pre"], heads["discard_post"], heads["center_sample"] = 2, 1, 20
    heads["encoding_space_ref"], heads["trajectory_dimensions"], heads["sample_time_us"] = a % 2, DIMS, 2.5
    for i, name in enumerate(("position", "read_dir", "phase_dir", "slice_dir", "patient_table_position")):
        heads[name] = a[:, None] + 10 * i + np.arange(3)
    for i, name in enumerate(HEAD["idx"].names[:9]):
        heads["idx"][name] = a + i
    s = np.arange(SAMPLES)
    for i in range(n):
        rows["traj"][i] = (i * 16 + s[:, None] * 0.25 + np.arange(DIMS) * 0.0625).ravel().astype(traj)
        rows["data"][i] = np.stack(np.broadcast_arrays(i * 16 + np.arange(COILS)[:, None] * 2 + s * 0.125,
                                                       -s - np.arange(COILS)[:, None] * 0.5 - i),
                                   -1).ravel().astype("<f4")
    return rows


def stored_type(rows, size, traj_at, data_at):
    """The type of an item of `size` bytes, with its lists at these offsets."""
    stored = h5py.h5t.create(h5py.h5t.COMPOUND, size)
    for name, at in (("head", 0), ("traj", traj_at), ("data", data_at)):
        stored.insert(name.encode(), at, h5py.h5t.py_create(rows.dtype[name], logical=True))
    return stored


def put_xml(group, xml, form):
    if form == "list":
        group.create_dataset("xml", (1,), dtype=h5py.string_dtype("ascii"))[0] = xml
    elif form == "scalar":
        group.create_dataset("xml", data=xml, dtype=h5py.string_dtype("utf-8"))
    elif form == "fixed":
        group.create_dataset("xml", data=np.array([xml.encode() + b"\0\0\0"], dtype=f"S{len(xml) + 3}"))


def scan(path, rows=None, xml=GOOD_XML, xml_form="list", group="dataset", layout=None, mode="w", extra=None,
         libver=None, userblock=0, **storage):
    rows = acquisitions() if rows is None else rows
    with h5py.File(path, mode, libver=libver, **({"userblock_size": userblock} if userblock else {})) as file:
        place = file.create_group(group)
        put_xml(place, xml, xml_form)
        if layout:
            space = h5py.h5s.create_simple((len(rows),))
            dataset = h5py.Dataset(h5py.h5d.create(place.id, b"data", stored_type(rows, *layout), space))
            dataset[...] = rows
        else:
            place.create_dataset("data", data=rows, **storage)
        if extra:
            extra(file)


def stream(path, xml=GOOD_XML, rows=None, nul=b"", close=True, config=True, more=b""):
    out = struct.pack("<H1024s", 1, b"default.xml") if config else b""
    out += struct.pack("<HI", 3, len(xml) + len(nul)) + xml.encode() + nul
    for row in acquisitions() if rows is None else rows:
        out += struct.pack("<H", 1008) + row["head"].tobytes() + row["traj"].tobytes() + row["data"].tobytes()
    out += more + (struct.pack("<H", 4) if close else b"")
    with open(path, "wb") as file:
        file.write(out)


def busy(path, mark, key_bytes, most, levels=10):
    """A scan with a B-tree that has `levels` more levels, of nodes whose entries all point to the same child."""
    scan(path, chunks=(1,), maxshape=(None,))
    with open(path, "rb") as file:
        image = bytearray(file.read())
    child = image.find(mark)
    entries = struct.unpack_from("<H", image, child + 6)[0]
    first, last = child + 24, child + 24 + entries * (key_bytes + 8)
    low, high = bytes(image[first:first + key_bytes]), bytes(image[last:last + key_bytes])
    parents = [at for at in range(0, len(image) - 8) if image[at:at + 8] == struct.pack("<Q", child)]
    for level in range(1, levels + 1):
        image += bytes(-len(image) % 8)
        node = mark + struct.pack("<BH", level, most) + b"\xff" * 16 + (low + struct.pack("<Q", child)) * most + high
        child = len(image)
        image += node
    for at in parents:
        image[at:at + 8] = struct.pack("<Q", child)
    image[40:48] = struct.pack("<Q", len(image))  # the end of the file, in the superblock
    with open(path, "wb") as file:
        file.write(image)


def rrsg_put(file):
    """rawdata [1, sample, readout, coil] and trajectory [3, sample, readout], packed."""
    c, r, s = np.meshgrid(np.arange(2), np.arange(3), np.arange(5), indexing="ij")
    data = (100 * c + 10 * r + s - 1j * (s + 1)).astype("c8").transpose(2, 1, 0)[None]
    place = np.stack([r[0], s[0], 0 * s[0]]).astype("f8").transpose(0, 2, 1)
    file.create_dataset("rawdata", data=data, chunks=(1, 2, 2, 2), compression="gzip", shuffle=True)
    file.create_dataset("trajectory", data=place, chunks=(3, 2, 2), compression="gzip")


def arrays_put():
    """Arrays without a header, as archives and as the files that the client packs; not in the manifest."""
    kspace = (np.arange(2 * 3 * 5).reshape(2, 3, 5) * (1 - 0.5j)).astype("c8")
    trajectory = np.stack(np.broadcast_arrays(np.arange(3)[:, None] / 8, np.arange(5) / 16), -1).astype("f4")
    maps, field = np.ones((2, 6, 8), "c8"), np.arange(48, dtype="f4").reshape(6, 8)
    arrays = {"kspace": kspace, "trajectory": trajectory, "weights": np.ones((3, 5), "f4"), "sensitivities": maps,
              "fieldmap": field, "times": np.arange(5, dtype="f4") * 1e-5}
    np.savez("arrays.npz", **arrays)
    np.savez_compressed("packed.npz", **arrays)
    np.save("k.npy", kspace)
    np.save("t.npy", trajectory)
    kspace.tofile("k.cfl")
    with open("k.hdr", "w") as file:
        file.write("# Dimensions\n1 5 3 2 1 1 1 1 1 1 1 1 1 1 1 1\n# Command\nphantom k\n")


def main(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    manifest = open("manifest", "w")

    def says(name, code="ok", words="-", group="-"):
        manifest.write(f"{name}\t{group}\t{code}\t{words}\n")
        return name

    # ---- good ----
    arrays_put()
    scan(says("plain"), chunks=(1,), maxshape=(None,))
    for size, traj_at, data_at in ((372, 340, 356), (376, 344, 360), (384, 344, 368)):
        scan(says(f"item_{size}"), layout=(size, traj_at, data_at))
    scan(says("gzip_shuffle"), chunks=(5,), compression="gzip", shuffle=True, fletcher32=True)
    scan(says("contiguous_new_format"), libver="latest", xml_form="scalar")
    scan(says("fixed_xml"), xml_form="fixed", chunks=(64,), maxshape=(None,))
    scan(says("prefixed_root"), xml=GOOD_XML.replace("</", "</m:").replace("xmlns=", "xmlns:m=").replace("<", "<m:")
         .replace("<m:?", "<?").replace("<m:/m:", "</m:"))
    scan(says("float64"), rows=acquisitions(traj="<f8"))
    scan(says("big_endian"), rows=acquisitions(traj=">f4"))
    scan(says("user_block"), userblock=1024)
    scan(says("second_group", group="dataset_2"), rows=acquisitions(2), group="dataset")
    scan("second_group", mode="a", group="dataset_2")
    scan(says("other_group"), group="measurement")
    scan(says("with_waveforms"), extra=lambda f: f.create_dataset("dataset/waveforms", data=np.arange(5)))
    silent = acquisitions(ACQUISITIONS + 1)
    silent["head"]["number_of_samples"][ACQUISITIONS] = 0
    scan(says("one_without_samples"), rows=silent)
    stream(says("stream"))
    stream(says("stream_nul_no_config"), nul=b"\0", config=False, close=False)
    stream(says("stream_texts"), more=struct.pack("<HI", 5, 5) + b"hello" + struct.pack("<HQQQ", 6, 0, 0, 2) + b"ab")
    manifest.flush()

    # ---- not a scan ----
    def raw(name, body, code, words):
        with open(says(name, code, words), "wb") as file:
            file.write(body)
    raw("empty", b"", "empty-body", "0 bytes")
    raw("text", b"this is no scan\n" * 40, "unknown-format", "text")
    raw("zeros", bytes(5000), "unknown-format", "format is unknown")
    raw("gzip", b"\x1f\x8b\x08" + bytes(600), "unknown-format", "gunzip")
    raw("signature_only", b"\x89HDF\r\n\x1a\n", "malformed-file", "damaged")
    good = open("plain", "rb").read()
    raw("half", good[:len(good) // 2], "truncated-file", str(len(good)))
    raw("mrd2", b"yardl" + bytes(100), "unknown-format", "version 2")
    # Other vendors' raw data and other archive formats: the bytes by which each is recognised.
    raw("twix_vd", struct.pack("<II", 0, 5) + bytes(5000), "unknown-format", "siemens_to_ismrmrd")
    raw("twix_vb", struct.pack("<II", 4096, 6) + b"Config\0" + bytes(5000), "unknown-format", "siemens_to_ismrmrd")
    raw("not_twix", struct.pack("<II", 0, 65) + bytes(5000), "unknown-format", "format is unknown")
    for revision, at, logo in ((24.0, 34, b"GE_MED_NMR"), (20.007, 34, b"INVALIDNMR"), (26.002, 110, b"GE_MED_NMR"),
                               (28.002, 110, b"INVALIDNMR")):
        head = bytearray(struct.pack("<f", revision) + bytes(1000))
        head[at:at + 10] = logo
        raw(f"pfile_{revision}_{at}", bytes(head), "unknown-format", "ge_to_ismrmrd")
    label = struct.pack("<4I", 4096, 0, 0, 0x7f01 << 16) + bytes(48)
    raw("philips_lab", label * 5, "unknown-format", "philips_to_ismrmrd")
    raw("not_philips_lab", label * 5 + b"\0", "unknown-format", "format is unknown")
    raw("philips_list", b"# === GENERAL INFORMATION ===\r\n#\r\n# Gyroscan SW release   :   R5.1\r\n" * 3,
        "unknown-format", "(.list)")
    raw("philips_sin", b"Philips Medical Systems\n 01 00 00: nr_locs_per_stack_arr        :            3\n",
        "unknown-format", "(.sin)")
    raw("philips_par", b"# === DATA DESCRIPTION FILE ======\r\n#\r\n", "unknown-format", "(.par)")
    raw("bruker_acqp", b"##TITLE=Parameter List, ParaVision 6.0.1\n##JCAMPDX=4.24\n", "unknown-format",
        "bruker_to_ismrmrd")
    for value, heads in ((4, 1), (2, 2), (4, 0)):
        head = struct.pack(">6I2HI", 3, 7, 128, value, 128 * value, 7 * 128 * value + 28 * heads, 0, 0x45, heads)
        raw(f"varian_{value}_{heads}", head + bytes(3 * (7 * 128 * value + 28 * heads)), "unknown-format", "Varian")
    raw("not_varian", struct.pack(">6I2HI", 3, 7, 128, 4, 512, 7 * 512 + 27, 0, 0x45, 1) + bytes(9000),
        "unknown-format", "format is unknown")
    raw("bart_hdr", b"# Dimensions\n3 512 64 1 1 1 1 1 1 1 1 1 1 1 1 1 \n", "unknown-format", "BART")
    raw("npy", b"\x93NUMPY\x01\0v\0{'descr': '<c8'}" + bytes(100), "unknown-format", ".npy")
    raw("npz", b"PK\x03\x04" + bytes(100), "truncated-file", ".npz")
    raw("tar", b"scan.h5" + bytes(250) + b"ustar\0" + b"00" + bytes(500), "unknown-format", "tar -x")
    raw("xz", b"\xfd7zXZ\0" + bytes(100), "unknown-format", "unxz")
    raw("bzip2", b"BZh91AY&SY" + bytes(100), "unknown-format", "bunzip2")
    raw("zstd", b"\x28\xb5\x2f\xfd" + bytes(100), "unknown-format", "unzstd")
    raw("dicom", bytes(128) + b"DICM" + bytes(400), "unknown-format", "DICOM")
    raw("nifti", struct.pack("<i", 348) + bytes(340) + b"n+1\0" + bytes(100), "unknown-format", "NIfTI")
    raw("nifti_pair", struct.pack("<i", 348) + bytes(340) + b"ni1\0", "unknown-format", "NIfTI")
    raw("nifti2", struct.pack("<i", 540) + b"n+2\0\r\n\x1a\n" + bytes(600), "unknown-format", "NIfTI")
    raw("matlab5", b"MATLAB 5.0 MAT-file" + bytes(500), "unknown-format", ".mat")
    raw("unsigned", bytes(range(256)) * 40, "unknown-format", "bruker_to_ismrmrd")
    def text_file(name, build, code, words, group="-"):
        with h5py.File(says(name, code, words, group), "w") as file:
            build(file)
    def images(file):
        file.create_dataset("dataset/image_0/data", data=np.ones((1, 1, 1, 4, 4), "f4"))
        put_xml(file["dataset"], GOOD_XML, "list")
    text_file("images_only", images, "no-image-data", "reconstructed images")
    text_file("rrsg", rrsg_put, "bad-parameter", "size=X,Y")
    text_file("rrsg_rank", lambda f: (f.create_dataset("rawdata", data=np.zeros((2, 3), "c8")),
                                      f.create_dataset("trajectory", data=np.zeros((3, 2, 3)))),
              "malformed-file", "2 axes")
    text_file("rrsg_real", lambda f: (f.create_dataset("rawdata", data=np.zeros((1, 2, 3, 4))),
                                      f.create_dataset("trajectory", data=np.zeros((3, 2, 3)))),
              "malformed-file", "no complex")
    text_file("rrsg_link", lambda f: (rrsg_put(f), f.__delitem__("rawdata"),
                                      f.__setitem__("rawdata", h5py.ExternalLink("plain", "/x"))),
              "hostile-file", "link")
    text_file("rrsg_sparse", lambda f: (f.create_dataset("rawdata", shape=(1, 2**20, 2**10, 64), dtype="c8",
                                                         chunks=(1, 64, 64, 64)),
                                        f.create_dataset("trajectory", data=np.zeros((3, 2, 3)))), "malformed-file",
              "ever written")
    text_file("netcdf", lambda f: f.attrs.create("_NCProperties", b"version=2"), "unknown-format", "NetCDF")
    text_file("other_hdf5", lambda f: f.create_dataset("something/data", data=[1.0]), "unknown-format", "something")
    text_file("scan_archive", lambda f: f.create_dataset("DownloadData.xml", data=b"<x/>"), "unknown-format",
              "ge_to_ismrmrd")
    text_file("empty_hdf5", lambda f: None, "unknown-format", "empty")
    scan(says("matlab", "unknown-format", "MATLAB 7.3"), userblock=512)
    with open("matlab", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    scan(says("no_such_group", "bad-parameter", '"dataset"', "nothing"))
    scan(says("path_as_group", "bad-parameter", "name", "dataset/../dataset"))

    # ---- the crafted attacks ----
    def attack(name, change, code, words, **arguments):
        rows = acquisitions(4)
        change(rows)
        scan(says(name, code, words), rows=rows, **arguments)

    def set_head(**values):
        def change(rows):
            for key, value in values.items():
                rows["head"][key] = value
        return change

    def no_data(rows):
        for i in range(len(rows)):
            rows["data"][i] = np.zeros(0, "<f4")

    def long_data(rows):
        rows["data"][2] = np.zeros(9999999, "<f4")
    attack("m1_head_larger_than_list", set_head(number_of_samples=60000), "malformed-file", "acquisition 0",
           chunks=(1,))
    attack("m2_product_overflows", set_head(number_of_samples=65535, active_channels=65535), "limit-exceeded",
           "channels")
    attack("m2_overflow_of_bytes", set_head(number_of_samples=65535, active_channels=1024), "hostile-file", "expand")
    attack("m2_list_longer_than_head", long_data, "malformed-file", "acquisition 2")
    attack("m6_empty_lists", no_data, "malformed-file", "acquisition 0")
    attack("discards", set_head(discard_pre=39, discard_post=2), "malformed-file", "discard")
    attack("encoding_ref", set_head(encoding_space_ref=2), "encoding-invalid", "encoding 2")
    scan(says("m3_rank_2", "malformed-file", "dimensions"), rows=np.stack([acquisitions(4)] * 3))
    with h5py.File(says("m4_many_xml", "malformed-file", "one string"), "w") as file:
        file.create_dataset("dataset/xml", (4096,), dtype=h5py.string_dtype("ascii"))[...] = "<a/>"
        file["dataset/data"] = acquisitions(4)
    rows = acquisitions(4)
    less = np.zeros(4, np.dtype([("head", HEAD), ("data", h5py.vlen_dtype(np.float32))]))
    less["head"], less["data"] = rows["head"], rows["data"]
    scan(says("m5_no_traj", "malformed-file", '"traj"'), rows=less)
    text_file("m7_scalar", lambda f: (f.create_dataset("dataset/data", data=np.float32(1)),
                                      put_xml(f["dataset"], GOOD_XML, "list")),
              "malformed-file", "list of acquisitions")
    text_file("m8_no_group", lambda f: f.create_dataset("foo/bar", data=np.float32(1)), "unknown-format", "foo")
    text_file("m9_data_is_group", lambda f: (f.create_group("dataset/data"), put_xml(f["dataset"], GOOD_XML, "list")),
              "malformed-file", "not a dataset")
    scan(says("m10_other_xml", "header-invalid", "root element"), xml="<a/>", xml_form="fixed")
    text_file("m11_bomb", lambda f: (f.create_dataset("dataset/data", shape=(2**40,), maxshape=(None,), dtype=items(),
                                                      chunks=(1,)),
                                     put_xml(f["dataset"], GOOD_XML, "list")), "malformed-file", "ever written")
    text_file("m12_external_data",
              lambda f: (f.create_dataset("dataset/data", shape=(64,), dtype="u1", external=[("/etc/passwd", 0, 64)]),
                         put_xml(f["dataset"], GOOD_XML, "list")), "hostile-file", "other files")
    def external_xml(file):
        file.create_dataset("dataset/xml", shape=(1,), dtype="S64", external=[("/etc/passwd", 0, 64)])
        file["dataset/data"] = acquisitions(4)
    text_file("m12_external_xml", external_xml, "hostile-file", "other files")
    def linked(name, link):
        def build(file):
            put_xml(file.create_group("dataset"), GOOD_XML, "list")
            file["dataset/data"] = link
        text_file(name, build, "hostile-file", "link")
    linked("m13_external_link", h5py.ExternalLink("plain", "/dataset/data"))
    linked("soft_link", h5py.SoftLink("/real/data"))
    linked("soft_link_traversal", h5py.SoftLink("/dataset/../../etc/passwd"))
    text_file("group_link", lambda f: f.__setitem__("dataset", h5py.ExternalLink("plain", "/dataset")), "hostile-file",
              "link")
    text_file("hard_link_loop", lambda f: (put_xml(f.create_group("dataset"), GOOD_XML, "list"),
                                           f["dataset"].__setitem__("data", f["dataset"])), "malformed-file",
              "not a dataset")
    text_file("hard_link_same", lambda f: (f.create_group("dataset").create_dataset("xml", data=acquisitions(2)),
                                           f["dataset"].__setitem__("data", f["dataset/xml"])), "malformed-file",
              "no string")
    def virtual(file):
        layout = h5py.VirtualLayout(shape=(64,), dtype="u1")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(64,))
        file.create_virtual_dataset("dataset/data", layout)
        put_xml(file["dataset"], GOOD_XML, "list")
    text_file("virtual", virtual, "hostile-file", "virtual")
    def bomb(file):
        data = file.create_dataset("dataset/data", shape=(2**25,), dtype=items(), chunks=(2**17,), compression="gzip")
        zeros = np.zeros(2**17 * data.id.get_type().get_size(), "u1")
        import zlib
        packed = zlib.compress(zeros.tobytes(), 9)
        for at in range(0, 2**25, 2**17):
            data.id.write_direct_chunk((at,), packed)
        put_xml(file["dataset"], GOOD_XML, "list")
    text_file("m15_gzip_bomb", bomb, "hostile-file", "compressed by a factor")
    text_file("m15_large_chunk", lambda f: (f.create_dataset("dataset/data", shape=(4,), dtype=items(), chunks=(2**20,),
                                                             maxshape=(None,),
                                                             compression="gzip"),
                                            put_xml(f["dataset"], GOOD_XML, "list")),
              "limit-exceeded", "chunks")
    scan(says("lzf", "malformed-file", "filter"), chunks=(5,), compression="lzf")
    texts = acquisitions(4)
    strange = np.zeros(4, np.dtype([("head", HEAD), ("traj", h5py.vlen_dtype(np.dtype("S4"))),
                                    ("data", h5py.vlen_dtype(np.float32))]))
    strange["head"] = texts["head"]
    for i in range(4):
        strange["traj"][i], strange["data"][i] = np.array([b"abcd"]), texts["data"][i]
    scan(says("traj_of_text", "malformed-file", '"traj"'), rows=strange)
    scan(says("no_acquisitions", "no-image-data", "no acquisitions"), rows=acquisitions(0), chunks=(1,),
         maxshape=(None,))

    many = " ".join(f'a{i}="&gt;>"' for i in range(60000))
    scan(says("many_attributes", "header-invalid", "tag of more than"),
         xml=GOOD_XML.replace("<experimental", f"<x {many}/><experimental"))
    comment = "<!-- <x " + "a" * 60000 + "--><![CDATA[<" + "b" * 60000 + "]]>"
    scan(says("long_comment"), xml=GOOD_XML.replace("<H1", f"<x>{comment}</x><H1"))
    busy("chunk_bomb", b"TREE\1", 24, 64)
    busy("group_bomb", b"TREE\0", 8, 32)

    # ---- malformed streams ----
    stream(says("stream_unknown", "malformed-file", "4711"), more=struct.pack("<H", 4711))
    stream(says("stream_cut", "truncated-file", "truncated"))
    with open("stream_cut", "r+b") as file:
        file.truncate(os.path.getsize("stream_cut") - 100)
    raw("stream_no_header", struct.pack("<H1024sH", 1, b"x", 4), "malformed-file", "no header")
    raw("stream_long_text", struct.pack("<HI", 3, 0xffffffff) + b"<a/>", "truncated-file", "truncated")
    raw("stream_image_overflow", struct.pack("<HI", 3, 4) + b"<a/>" + struct.pack("<H", 1022) +
        struct.pack("<HH", 1, 8) + b"\xff" * 194
        + struct.pack("<Q", 0), "truncated-file", "truncated")
    manifest.close()


if __name__ == "__main__":
    main(sys.argv[1])
