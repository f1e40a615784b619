"""A terminal for tests of the client's progress lines."""
import fcntl
import os
import pty
import struct
import subprocess
import termios

from harness import SLOW, same


def at_terminal(words, columns, environment=None, drawn=lambda text: None):
    """Run a command whose stderr is a terminal of so many columns, assert that it succeeds, and return the progress
    lines that it drew over each other. drawn() is called with all output so far whenever there is more.
    """
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=inner,
                               env=environment)
    os.close(inner)
    seen = b""
    while True:
        try:
            data = os.read(outer, 65536)
        except OSError:  # closed by the command
            break
        if not data:
            break
        seen += data
        drawn(seen.decode(errors="replace"))
    os.close(outer)
    same(process.wait(SLOW), 0, "exit status")
    # The terminal driver turns the newline that ends a progress line into a carriage return and a newline.
    progress = [line.removeprefix("\033[K") for line in seen.decode().replace("\r\n", "\n").split("\r")
                if line.startswith("\033[K")]
    progress = [line for line in progress if line and "\n" not in line]
    assert all(len(line) < columns for line in progress), f"wider than {columns} columns: {progress}"
    return progress
