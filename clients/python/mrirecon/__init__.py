"""Client of mrirecond: submit scans, wait for jobs, follow events, get results as files or arrays.

    import mrirecon

    server = mrirecon.Server("http://127.0.0.1:8080")
    job = server.submit("scan.h5", dcf="pipe")
    job.wait()
    image = job.array()        # numpy where it is installed, else a memoryview of the same shape
    job.fetch("image.nii.gz")

It needs Python 3.9 and its standard library. Threads may share a Server; a Job belongs to one thread at a time.
"""
from .errors import JobFailed, MrireconError, NotDelivered, NotReached, Problem
from .server import Job, Server

__all__ = ["Job", "JobFailed", "MrireconError", "NotDelivered", "NotReached", "Problem", "Server"]
__version__ = "0.1.0"
