#!/usr/bin/python3
"""The commands of clients/curl.md, in order, in one shell, against a live daemon."""
import os
import re
import subprocess
import tempfile

import scans
from harness import BIN, ROOT, Daemon, main, same, test

with open(os.path.join(ROOT, "clients", "curl.md")) as page:
    BLOCKS = re.findall(r"```sh\n(.*?)```", page.read(), re.S)


@test("every command of clients/curl.md works as it stands")
def recipes(daemon):
    assert len(BLOCKS) >= 9, f"only {len(BLOCKS)} blocks were found"
    with tempfile.TemporaryDirectory() as folder:
        scans.radial(seed=51).write(f"{folder}/scan.h5")
        script = "set -e -o pipefail\n" + "".join(f"echo '==== block {i}'\n{block}" for i, block in enumerate(BLOCKS))
        script = script.replace("SERVER=http://127.0.0.1:8080", f"SERVER={daemon.url}")
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr}"
        same(done.stderr, "", "stderr")
        for name, magic in (("image.png", b"\x89PNG"), ("image.npy", b"\x93NUMPY"), ("image.nii.gz", b"\x1f\x8b"),
                            ("image.h5", b"\x89HDF"),
                            ("first-kilobyte", b"\x89HDF"), ("maps.npy", b"\x93NUMPY"),
                            ("water.dx", b"# Electrostatic potential, kT/e")):
            with open(f"{folder}/{name}", "rb") as file:
                assert file.read().startswith(magic), f"{name} is not what it should be"
        same(os.path.getsize(f"{folder}/first-kilobyte"), 1024, "size of the first kilobyte")
        for word in ("304\n", '"tolerance"', "unknown-format", "bad-parameter", '"succeeded"'):
            assert word in done.stdout, f"{word} is not in what the commands printed:\n{done.stdout[-3000:]}"
        assert (not os.path.exists(f"{folder}/unchanged.h5")
                or os.path.getsize(f"{folder}/unchanged.h5") == 0), "an unchanged file was sent again"


if __name__ == "__main__":
    main(Daemon)
