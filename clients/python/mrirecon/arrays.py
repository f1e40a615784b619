"""Arrays in the format npy, with numpy or without.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""
import ast
import io
import struct

from .errors import MrireconError

# numpy's element types that memoryview supports, and the numbers per element.
FORMATS = {"<f4": ("f", 1), "<f8": ("d", 1), "<c8": ("f", 2), "<c16": ("d", 2), "|u1": ("B", 1), "<u2": ("H", 1),
           "<i2": ("h", 1),
           "<i4": ("i", 1), "<u4": ("I", 1), "<i8": ("q", 1), "<u8": ("Q", 1)}


def header(data):
    """(element type, shape, where the numbers begin) of an npy file in memory. ValueError: it is none."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise ValueError("no npy file")
    at, size = (10, "<H") if data[6] == 1 else (12, "<I")
    begin = at + struct.unpack_from(size, data, 8)[0]
    described = ast.literal_eval(data[at:begin].decode("latin-1").strip())
    if described["fortran_order"]:
        raise ValueError("npy files in Fortran order are not supported")
    return described["descr"], tuple(described["shape"]), begin


def array(data):
    """Parse an npy file in memory into a numpy array; without numpy, into a memoryview of the same shape, in which
    complex numbers have a last axis of 2."""
    try:
        import numpy
    except ImportError:
        return plain_array(data)
    try:
        return numpy.load(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise MrireconError(f"The server's array cannot be read: {error}.") from None


def plain_array(data):
    """array() without numpy."""
    try:
        kind, shape, begin = header(data)
        letter, numbers = FORMATS[kind]
        shape = shape + ((2,) if numbers == 2 else ())
        return memoryview(data)[begin:].cast(letter, shape)
    except (ValueError, KeyError, SyntaxError, TypeError, struct.error) as error:
        raise MrireconError(f"The server's array cannot be read: {error}.") from None
