#!/usr/bin/python3
"""The commands of docs/tutorial.md, in order, in one shell, with a daemon that they start themselves; and the script of
docs/data.md.

TUTORIAL_PICTURES=docs/tutorial copies the pictures that the page shows from the commands' output.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile

import numpy

from harness import BIN, ROOT, REPORTS, SLOW, free_port, main, same, test

with open(os.path.join(ROOT, "docs", "tutorial.md")) as page:
    TEXT = page.read()
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
PICTURES = sorted(set(re.findall(r"\(tutorial/(\w+\.png)\)", TEXT)))


@test("every command of docs/tutorial.md works unchanged, and makes the pictures that the page shows")
def commands():
    assert len(BLOCKS) >= 8 and len(PICTURES) >= 5, f"only {len(BLOCKS)} blocks and {len(PICTURES)} pictures were found"
    with tempfile.TemporaryDirectory() as folder:
        script = "set -e -o pipefail\n" + "".join(f"echo '==== block {i}'\n{block}" for i, block in enumerate(BLOCKS))
        script = script.replace("127.0.0.1:8080", f"127.0.0.1:{free_port()}")
        environment = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}")
        shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, err = shell.communicate(timeout=2 * SLOW)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the daemon too, if a command failed
        with open(f"{folder}/daemon.log") as file:
            log = file.read()
        assert shell.returncode == 0, f"exit status {shell.returncode}\n{out[-3000:]}\n{err}\n{log[-2000:]}"
        assert not REPORTS.search(log), log[-20000:]
        for code in ("truncated-file", "unknown-parameter"):
            assert code in err, f"{code} is not in what the commands said: {err[-2000:]}"
        same(out.count("exit status"), 2, "commands that failed")
        difference = float(re.search(r"relative difference (\S+)", out).group(1))
        assert difference < 0.01, f"the image differs from the phantom by {difference}; the page says about 0.005"
        for picture in PICTURES:
            with open(f"{folder}/{picture}", "rb") as file:
                assert file.read(4) == b"\x89PNG", f"{picture} is no PNG"
            if "TUTORIAL_PICTURES" in os.environ:
                shutil.copy(f"{folder}/{picture}", os.environ["TUTORIAL_PICTURES"])


@test("the script of docs/data.md writes a scan of a ball")
def data_script():
    with open(os.path.join(ROOT, "docs", "data.md")) as data_page:
        script = next(block for block in re.findall(r"```python\n(.*?)```", data_page.read(), re.S) if "h5py" in block)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["/usr/bin/python3", "-c", script], cwd=folder, check=True)
        subprocess.run([os.path.join(BIN, "mrirecon-worker"), "run", "--in", "scan.h5", "--out", "image.npy",
                        "--report", "report.json"],
                       cwd=folder, check=True)
        image = numpy.load(f"{folder}/image.npy").squeeze()
        y, x = numpy.mgrid[-64:64, -64:64]
        distance = numpy.hypot(x, y) / (0.2 * 128)
        # The projection of a ball: 2 sqrt(1 - distance^2) inside the radius, nothing outside.
        assert image[distance < 0.3].min() > 5 * image[distance > 1.2].max(), \
            "the image is not the ball that was written"


if __name__ == "__main__":
    main()
