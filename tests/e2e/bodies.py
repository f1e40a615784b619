"""Bodies for jobs of kind nbody, and the checkpoints of these jobs."""
import io
import struct

import numpy as np


def cloud(count=60, box=2.0):
    random = np.random.default_rng(3)
    position = random.random((count, 3)) * box
    position[: count // 3] = (0.02 * random.normal(size=(count // 3, 3)) % box)
    return position, random.normal(size=(count, 3)) * 0.1, random.random(count) + 0.2, np.arange(count) + 1000


def npz(position, velocity=None, mass=None, ids=None, box=None):
    """box: a side, or origin and lengths."""
    arrays = {"position": position, "velocity": velocity, "mass": mass, "id": ids,
              "box": np.full(3, box) if np.isscalar(box) else box}
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def checkpoint(own, job):
    return f"{own.state}/spool/{job['id']}.checkpoint"


def states_kept(own, job):
    """The number of states saved so far: the larger of the two heads' numbers, as in recon/checkpoint.c."""
    try:
        with open(checkpoint(own, job), "rb") as file:
            data = file.read(8192)
    except FileNotFoundError:
        return 0
    return max([struct.unpack_from("<Q", data, 4096 * slot + 8)[0] for slot in range(2) if len(data) >= 4096 * slot +
                16], default=0)
