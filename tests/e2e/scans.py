"""Scans for tests: small ISMRMRD files written by h5py, and their expected reconstructions (double sums)."""
import os
import struct

import h5py
import numpy as np

from harness import sanitized

HEAD = np.dtype([
    ("version", "<u2"), ("flags", "<u8"), ("measurement_uid", "<u4"), ("scan_counter", "<u4"),
    ("acquisition_time_stamp", "<u4"), ("physiology_time_stamp", "<u4", (3,)), ("number_of_samples", "<u2"),
    ("available_channels", "<u2"), ("active_channels", "<u2"), ("channel_mask", "<u8", (16,)), ("discard_pre", "<u2"),
    ("discard_post", "<u2"), ("center_sample", "<u2"), ("encoding_space_ref", "<u2"), ("trajectory_dimensions", "<u2"),
    ("sample_time_us", "<f4"), ("position", "<f4", (3,)), ("read_dir", "<f4", (3,)), ("phase_dir", "<f4", (3,)),
    ("slice_dir", "<f4", (3,)), ("patient_table_position", "<f4", (3,)),
    ("idx", [("kspace_encode_step_1", "<u2"), ("kspace_encode_step_2", "<u2"), ("average", "<u2"), ("slice", "<u2"),
             ("contrast", "<u2"), ("phase", "<u2"), ("repetition", "<u2"), ("set", "<u2"), ("segment", "<u2"),
             ("user", "<u2", (8,))]),
    ("user_int", "<i4", (8,)), ("user_float", "<f4", (8,))])
ACQUISITION = np.dtype([("head", HEAD), ("traj", h5py.vlen_dtype(np.dtype("<f4"))),
                        ("data", h5py.vlen_dtype(np.dtype("<f4")))])

XML = """<?xml version="1.0" encoding="UTF-8"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
  <experimentalConditions><H1resonanceFrequency_Hz>63870000</H1resonanceFrequency_Hz></experimentalConditions>
  <encoding>
    <encodedSpace><matrixSize><x>{x}</x><y>{y}</y><z>{z}</z></matrixSize>
      <fieldOfView_mm><x>{fx}</x><y>{fy}</y><z>{fz}</z></fieldOfView_mm></encodedSpace>
    <reconSpace><matrixSize><x>{x}</x><y>{y}</y><z>{z}</z></matrixSize>
      <fieldOfView_mm><x>{fx}</x><y>{fy}</y><z>{fz}</z></fieldOfView_mm></reconSpace>
    <encodingLimits/>
    <trajectory>{trajectory}</trajectory>
  </encoding>
</ismrmrdHeader>
"""


class Scan:
    """One scan in memory. traj [readouts][samples][columns] (the last column may be the weight), data
    [readouts][coils][samples]; matrix and fov_mm are x, y, z. Change members as needed, then write().
    """

    def __init__(self, traj, data, matrix, fov_mm=None, trajectory="radial"):
        self.traj = np.asarray(traj, np.float32)
        self.data = np.asarray(data, np.complex64)
        self.matrix = tuple(matrix)
        self.fov_mm = tuple(fov_mm or [2.0 * n for n in matrix])
        self.xml = XML.format(x=matrix[0], y=matrix[1], z=matrix[2], fx=self.fov_mm[0], fy=self.fov_mm[1],
                              fz=self.fov_mm[2], trajectory=trajectory)
        readouts, samples, columns = self.traj.shape
        self.heads = np.zeros(readouts, HEAD)
        for name, value in (("version", 1), ("number_of_samples", samples), ("center_sample", samples // 2),
                            ("available_channels", self.data.shape[1]), ("active_channels", self.data.shape[1]),
                            ("trajectory_dimensions", columns), ("sample_time_us", 5), ("read_dir", (1, 0, 0)),
                            ("phase_dir", (0, 1, 0)), ("slice_dir", (0, 0, 1))):
            self.heads[name] = value
        self.heads["scan_counter"] = np.arange(readouts)
        self.heads["idx"]["kspace_encode_step_1"] = np.arange(readouts)
        self.heads["flags"][-1] = 1 << 13  # last in repetition

    def write(self, path, group="dataset"):
        rows = np.empty(len(self.heads), ACQUISITION)
        for i, head in enumerate(self.heads):
            rows[i]["head"] = head
            rows[i]["traj"] = self.traj[i].ravel()
            rows[i]["data"] = self.data[i].ravel().view(np.float32)
        with h5py.File(path, "w") as file:
            file.create_dataset(f"{group}/xml", data=[self.xml], dtype=h5py.string_dtype())
            file.create_dataset(f"{group}/data", data=rows, maxshape=(None,), chunks=(max(1, len(rows)),))
        return str(path)

    def bytes(self, folder):
        path = f"{folder}/scan-{os.getpid()}-{id(self)}.h5"
        self.write(path)
        with open(path, "rb") as file:
            content = file.read()
        os.unlink(path)
        return content

    def messages(self):
        """The MRD version 1 messages of the scan, without a configuration: the header, every acquisition, and the
        end.
        """
        xml = self.xml.encode()
        yield struct.pack("<HI", 3, len(xml)) + xml
        for i, head in enumerate(self.heads):
            yield struct.pack("<H", 1008) + head.tobytes() + self.traj[i].tobytes() + self.data[i].tobytes()
        yield struct.pack("<H", 4)

    def adjoint(self):
        """[coils][z][y][x]: sum of w d exp(+2 pi i k.r) in double precision; the weight is the column after the
        coordinates, or 1.
        """
        nx, ny, nz = self.matrix
        dim = 2 if nz == 1 else 3
        k = self.traj.reshape(-1, self.traj.shape[2]).astype(float)
        weight = k[:, dim] if k.shape[1] > dim else np.ones(len(k))
        data = self.data.astype(complex).transpose(1, 0, 2).reshape(self.data.shape[1], -1) * weight
        axes = [np.exp(2j * np.pi * np.outer(np.arange(n) - n // 2, k[:, i] if i < dim else 0 * k[:, 0]))
                for i, n in enumerate((nx, ny, nz))]
        return np.einsum("cm,xm,ym,zm->czyx", data, *axes, optimize=True)


def radial(matrix=(24, 20, 1), spokes=31, samples=48, coils=2, weights=True, seed=1):
    """A radial scan of random data without any symmetry, so that a flip or a swap is noticed."""
    rng = np.random.default_rng(seed)
    angle = np.pi * np.arange(spokes) / spokes
    radius = (np.arange(samples) - samples // 2) / samples
    traj = np.stack([np.cos(angle)[:, None] * radius, np.sin(angle)[:, None] * radius], -1)
    if weights:
        ramp = np.broadcast_to(np.maximum(np.abs(radius), 0.25 / samples), (spokes, samples))
        traj = np.concatenate([traj, ramp[..., None]], -1)
    data = rng.normal(size=(spokes, coils, samples, 2)).view(complex)[..., 0]
    return Scan(traj, data, matrix)


def slices(count, spokes=31):
    """So many slices one after the other, of so many spokes each, which the header announces."""
    scan = radial(spokes=spokes * count)
    scan.heads["idx"]["slice"] = np.arange(len(scan.heads)) // spokes
    scan.heads["flags"][spokes - 1::spokes] |= 1 << 7  # last in slice
    scan.xml = scan.xml.replace("<encodingLimits/>", f"<encodingLimits><slice><maximum>{count - 1}</maximum></slice>"
                                "</encodingLimits>")
    return scan


def nrmse(image, truth, mask=None, fit=False):
    """Relative l2 error of image against truth; with `fit`, after the best complex scale."""
    a, b = np.asarray(image).ravel().astype(complex), np.asarray(truth).ravel().astype(complex)
    if mask is not None:
        a, b = a[np.asarray(mask).ravel()], b[np.asarray(mask).ravel()]
    if fit:
        a = a * (np.vdot(a, b) / np.vdot(a, a))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def slow(seed=2):
    """A scan that with SLOW_QUERY takes some five seconds on two cores, and ten times as long under sanitizers, so that
    there is time to stop it.
    """
    return radial(matrix=(128, 128, 1), spokes=125 if sanitized() else 1005, samples=256, coils=1, weights=False,
                  seed=seed)


SLOW_QUERY = "kind=recon&dcf=pipe&dcf_iterations=1000&tolerance=1e-5"
