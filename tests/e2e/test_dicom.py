#!/usr/bin/python3
"""DICOM images: read by this test's own parser, compared with the same job's npy and NIfTI, and validated by dciodvfy
and dcentvfy.
"""
import gzip
import io
import shutil
import struct
import subprocess
import tempfile
import zipfile

import numpy as np

from harness import BIN, Daemon, main, same, skip, test

FOLDER = tempfile.TemporaryDirectory()
# Warnings about values that the scan's header does not contain, and about the term for images of no flavour (PS3.3
# C.8.16.1.3).
EXPECTED = ("needed to build DICOMDIR", "defined term <OTHER> for value 3", "attribute <Laterality>")
LONG = (b"OB", b"OW", b"SQ", b"UT")


def elements(data, at=0, end=None):
    """{tag: value} of a data set in explicit VR little endian; a sequence is a list of data sets. Tags must ascend,
    lengths must be even.
    """
    out, last, end = {}, -1, len(data) if end is None else end
    while at < end:
        group, element, vr = struct.unpack_from("<HH2s", data, at)
        tag = group << 16 | element
        assert tag > last, f"({group:04x},{element:04x}) is out of order"
        last = tag
        length, at = (struct.unpack_from("<I", data, at + 8)[0],
                      at + 12) if vr in LONG else (struct.unpack_from("<H", data, at + 6)[0], at + 8)
        assert length % 2 == 0 and at + length <= end, f"({group:04x},{element:04x}) has {length} bytes"
        if vr == b"SQ":
            out[tag], stop = [], at + length
            while at < stop:
                item, size = struct.unpack_from("<II", data, at)
                same(item, 0xe000fffe, "an item's tag")
                out[tag].append(elements(data, at + 8, at + 8 + size))
                at += 8 + size
        else:
            value = data[at:at + length]
            out[tag] = (struct.unpack(f"<{length // 2}H", value) if vr == b"US"
                        else struct.unpack(f"<{length // 4}I", value) if vr == b"UL"
                        else value if vr in (b"OB", b"OW", b"AT", b"FD") else value.decode().rstrip(" \0"))
            at += length
    return out


def dicom(data):
    same((data[:128], data[128:132]), (bytes(128), b"DICM"), "the file's beginning")
    length, = struct.unpack_from("<I", data, 140)
    meta, body = elements(data, 132, 144 + length), elements(data, 144 + length)
    same(meta[0x00020003], body[0x00080018], "SOP instance UID")
    return body


def numbers(text):
    return np.array([float(v) for v in text.split("\\")])


def affine(data):
    """NIfTI's affine, from pixel indices to LPS millimetres."""
    rows = np.array(struct.unpack_from("<12f", data, 280)).reshape(3, 4)
    return rows * [[-1], [-1], [1]]


def simulate(*words):
    path = f"{FOLDER.name}/{len(words)}{abs(hash(words))}.h5"
    subprocess.run([f"{BIN}/mrirecon", "simulate", "--out", path, *words], check=True, stdout=subprocess.DEVNULL)
    with open(path, "rb") as file:
        return file.read()


def job_files(daemon, body, query=""):
    """The same image as dcm, npy and nii."""
    job = daemon.run(body, f"kind=recon&tolerance=1e-3{query}")
    same(job["state"], "succeeded", f"state ({job['error']})")
    path = f"/v1/jobs/{job['id']}/results/image"
    data = daemon.get(path, Accept="application/dicom").expect(200, "application/dicom").body
    same(daemon.get(f"{path}?format=dcm").expect(200).body, data, "the file, asked for by its name")
    return data, np.load(io.BytesIO(daemon.get(f"{path}?format=npy").expect(200).body)), gzip.decompress(
        daemon.get(f"{path}?format=nii.gz").expect(200).body)


def check(data, images, nifti):
    """Pixels must equal the npy's to one step of 16 bits, and positions NIfTI's affine; images:
    [frame][channel][z][y][x].
    """
    body = dicom(data)
    frames, channels, depth, rows, columns = images.shape
    same((int(body[0x00280008]), body[0x00280010][0], body[0x00280011][0]), (frames * channels * depth, rows, columns),
         "frames, rows, columns")
    shared, each = body[0x52009229][0], body[0x52009230]
    rescale, measures = shared[0x00289145][0], shared[0x00289110][0]
    slope, low = float(rescale[0x00281053]), float(rescale[0x00281052])
    stored = np.frombuffer(body[0x7fe00010], "<u2").reshape(frames, channels, depth, rows, columns)
    error = np.abs(stored * slope + low - images).max()
    assert error <= 0.51 * slope, f"pixels differ by {error}, a step is {slope}"
    same(len(each), stored[..., 0, 0].size, "items of frames")
    seen = set()
    dy, dx = numbers(measures[0x00280030])
    for i, item in enumerate(each):
        moment, channel, z = i // (channels * depth), i // depth % channels, i % depth
        content = item[0x00209111][0]
        same(content[0x00209157], (channel + 1, z + 1, moment + 1), "dimension index values")
        seen.add(content[0x00209157])
        corner, turned = numbers(item[0x00209113][0][0x00200032]), numbers(item[0x00209116][0][0x00200037])
        for x, y in ((0, 0), (columns - 1, 0), (3, rows - 1)):
            place = corner + turned[:3] * dx * x + turned[3:] * dy * y
            expected = affine(nifti) @ [x, y, z, 1]
            assert np.abs(place - expected).max() < 2e-3, \
                f"frame {i}: pixel {x}, {y} is at {place}, in NIfTI at {expected}"
    same(len(seen), len(each), "different dimension index values")
    return body


def validate(*files):
    if not shutil.which("dciodvfy"):
        skip("dciodvfy is not installed (dicom3tools)")
    paths = [f"{FOLDER.name}/check{i}.dcm" for i in range(len(files))]
    for path, data in zip(paths, files):
        with open(path, "wb") as file:
            file.write(data)
    for words in [["dciodvfy", path] for path in paths] + [["dcentvfy", *paths]]:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
        said = [line for line in (done.stdout + done.stderr).splitlines()
                if "Error" in line or ("Warning" in line and not any(words in line for words in EXPECTED))]
        same(said, [], f"what {words[0]} finds")


@test("slices of an oblique series over time: pixels, positions and indices; valid")
def slices(daemon):
    body = simulate("--matrix", "32x24", "--fov", "64x60", "--slices", "3", "--frames", "2", "--orientation", "oblique",
                    "--position", "10,-20,30", "--phantom", "asymmetric")
    data, images, nifti = job_files(daemon, body)
    same(images.shape[:3], (2, 1, 3), "frames, channels, slices")
    check(data, images, nifti)
    validate(data)


@test("dcm.zip: a classic file per slice, with the pixels and positions of npy and NIfTI; stable UIDs; valid")
def classic(daemon):
    body = simulate("--matrix", "32x24", "--fov", "64x60", "--slices", "3", "--frames", "2", "--coils", "2",
                    "--orientation", "oblique", "--position", "10,-20,30", "--phantom", "asymmetric")
    for query in ("&coils=none", "&coils=none&output=phase"):
        whole, images, nifti = job_files(daemon, body, query)
        job = daemon.run(body, f"kind=recon&tolerance=1e-3{query}")
        path = f"/v1/jobs/{job['id']}/results/image"
        data = daemon.get(path, Accept="application/zip").expect(200, "application/zip").body
        same(daemon.get(f"{path}?format=dcm.zip").expect(200).body, data, "the archive, asked for by its name")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            same(archive.testzip(), None, "a damaged member")
            names = archive.namelist()
            files = [archive.read(name) for name in names]
        frames, channels, depth, rows, columns = images.shape
        same(names, [f"{i + 1:06d}.dcm" for i in range(frames * channels * depth)], "names")
        bodies = [dicom(data) for data in files]
        for i, slice_ in enumerate(bodies):
            moment, channel, z = i // (channels * depth), i // depth % channels, i % depth
            same((slice_[0x00200013], slice_[0x00200012], slice_[0x00200100]),
                 (str(i + 1), str(channel + 1), str(moment + 1)), "numbers")
            meaning, = slice_[0x00409096]
            slope, low = struct.unpack("<d", meaning[0x00409225])[0], struct.unpack("<d", meaning[0x00409224])[0]
            stored = np.frombuffer(slice_[0x7fe00010], "<u2").reshape(rows, columns)
            error = np.abs(stored * slope + low - images[moment, channel, z]).max()
            assert error <= 0.51 * slope, f"file {i}: pixels differ by {error}, a step is {slope}"
            corner, turned, (dy,
                             dx) = numbers(slice_[0x00200032]), numbers(slice_[0x00200037]), numbers(slice_[0x00280030])
            for x, y in ((0, 0), (columns - 1, rows - 1)):
                place = corner + turned[:3] * dx * x + turned[3:] * dy * y
                assert (np.abs(place - affine(nifti) @ [x, y, z,
                                                        1]).max() < 2e-3), f"file {i}: pixel {x}, {y} is at {place}"
        same(len({slice_[0x00080018] for slice_ in bodies}), len(bodies), "different instances")
        same(len({slice_[tag] for slice_ in bodies for tag in (0x0020000d, 0x0020000e, 0x00200052)}), 3,
             "one study, series and frame of reference")
        same(bodies[0][0x0020000d], dicom(whole)[0x0020000d], "the study's UID, of both forms")
        assert bodies[0][0x0020000e] != dicom(whole)[0x0020000e], "two classes of images share a series"
        validate(*files)


@test("a volume with one image per coil; valid")
def volume(daemon):
    data, images, nifti = job_files(daemon, simulate("--trajectory", "stack-of-stars", "--matrix", "16x16x6", "--coils",
                                                     "2"), "&coils=none")
    check(data, images, nifti)
    validate(data)


@test("phases: signed values by intercept; complex values are shown as magnitudes")
def phases(daemon):
    scan = simulate("--matrix", "24x24", "--coils", "2")
    data, images, nifti = job_files(daemon, scan, "&coils=none&output=phase")
    body = check(data, images, nifti)
    same(body[0x00089208], "PHASE", "ComplexImageComponent")
    validate(data)
    data, images, nifti = job_files(daemon, scan, "&coils=none&output=complex")
    same(check(data, np.abs(images), nifti)[0x00089208], "MAGNITUDE", "ComplexImageComponent")


@test("the header's patient and study are in the file, sanitized and truncated; UIDs are kept, or derived")
def header(daemon):
    scan = simulate("--matrix", "24x24", "--coils", "1")
    plain = dicom(job_files(daemon, scan)[0])
    same(dicom(job_files(daemon, scan)[0])[0x00080018], plain[0x00080018], "the UID of the same image again")
    for tag in (0x0020000d, 0x0020000e, 0x00200052, 0x00080018):
        assert plain[tag].startswith("2.25.") and len(plain[tag]) <= 44, plain[tag]
    same(len({plain[tag] for tag in (0x0020000d, 0x0020000e, 0x00200052, 0x00080018)}), 4, "different UIDs")
    import h5py
    path = f"{FOLDER.name}/patient.h5"
    with open(path, "wb") as file:
        file.write(scan)
    with h5py.File(path, "r+") as file:
        xml = file["dataset/xml"][0].decode()
        said = ("<subjectInformation><patientName>M&amp;M^Jörg\\n</patientName><patientID>" + "7" * 80 + "</patientID>"
                "<patientBirthdate>1970-02-03</patientBirthdate><patientGender>F</patientGender><patientWeight_kg>61.5</patientWeight_kg>"
                "</subjectInformation><studyInformation><studyDate>2026-11-22</studyDate><studyTime>10:15:00.25</studyTime>"
                "<studyInstanceUID>1.2.840.99.1</studyInstanceUID></studyInformation>"
                "<measurementInformation><patientPosition>FFS</patientPosition><frameOfReferenceUID>1.02.3</frameOfReferenceUID>"
                "</measurementInformation>")
        at = xml.index("<encoding>") if "<experimentalConditions>" not in xml else xml.index("<experimentalConditions>")
        del file["dataset/xml"]
        file.create_dataset("dataset/xml", data=[xml[:at] + said + xml[at:]], dtype=h5py.string_dtype())
    with open(path, "rb") as file:
        data, images, nifti = job_files(daemon, file.read())
    body = check(data, images, nifti)
    for tag, value in ((0x00100010, "M&M^Jörg n"), (0x00100020, "7" * 64), (0x00100030, "19700203"), (0x00100040, "F"),
                       (0x00101030, "61.5"),
                       (0x00080020, "20261122"), (0x00080030, "101500"), (0x0020000d, "1.2.840.99.1"),
                       (0x00185100, "FFS")):
        same(body[tag], value, f"({tag >> 16:04x},{tag & 0xffff:04x})")
    assert body[0x00200052].startswith("2.25."), "a UID with a leading zero was kept"
    validate(data)


if __name__ == "__main__":
    main(Daemon)
