#!/usr/bin/python3
"""tests/fuzz/hour, with a script as the fuzzer: its sums, its end, and the inputs that it keeps."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from harness import main, same, test  # noqa: E402

# Spends CPU time and finds one input per round; merges into the first folder; `found`: what a round finds.
FUZZER = r"""#!/usr/bin/python3
import os, re, shutil, sys, time
words = sys.argv[1:]
folders = [word for word in words if not word.startswith("-")]
prefix = next(word for word in words if word.startswith("-artifact_prefix=")).partition("=")[2]
if "-set_cover_merge=1" in words:
    for folder in folders[1:]:
        shutil.copytree(folder, folders[0], dirs_exist_ok=True)
elif os.path.isfile(folders[0]):
    sys.exit(os.path.basename(folders[0]).startswith("crash-"))
else:
    while time.process_time() < 0.3:
        pass
    open(os.path.join(folders[0], "new"), "w").write("x")
    print("#9\tREDUCE cov: 7 ft: 8 corp: 1/1b")
    print("stat::number_of_executed_units: 10")
    if found := "%s":
        print("libFuzzer: " + found.partition("-")[0])
        open(prefix + found, "w").write("x")
        sys.exit(70)
"""


class Place:
    """A folder with a fuzzer and a seed in which `hour` runs."""

    def __init__(self, found=""):
        self.folder = tempfile.TemporaryDirectory()
        self.seeds = self.at("tests/fuzz/corpus/fake")
        os.makedirs(self.seeds)
        for name in ("seed", "found_once"):
            with open(os.path.join(self.seeds, name), "w"):
                pass
        with open(os.open(self.at("fuzz_fake"), os.O_WRONLY | os.O_CREAT, 0o700), "w") as file:
            file.write(FUZZER % found)

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def hour(self, *words):
        return subprocess.run([os.path.join(HERE, "hour"), "fake", *words], cwd=self.folder.name, capture_output=True,
                              text=True, env=dict(os.environ, FUZZ_BIN="."), timeout=300)

    def sums(self):
        with open(self.at("hour/fake/sums.json")) as file:
            return json.load(file)


@test("it ends when the CPU time is used up, and a second run continues")
def goes_on():
    place = Place()
    done = place.hour("0.2")
    same(done.returncode, 0, f"status ({done.stderr})")
    first = place.sums()
    same((first["rounds"], first["executions"], first["edges"], first["features"]), (1, 10, 7, 8), "sums")
    assert 0.2 <= first["cpu_s"] < 5, first
    same(place.hour("0.2").stdout, "", "what is said where nothing is to do")
    place.hour(str(first["cpu_s"] + 0.1))
    second = place.sums()
    same((second["rounds"], second["executions"]), (2, 20), "sums of both")
    assert second["cpu_s"] > first["cpu_s"], second


@test("a finding ends the run, with the command that repeats it")
def finding():
    place = Place("crash-1")
    done = place.hour("60")
    same(done.returncode, 1, "status")
    assert f"repeat: {place.at('fuzz_fake')} ./hour/fake/crash-1" in done.stdout, done.stdout
    same(place.sums()["rounds"], 1, "rounds")


@test("an input that was slow while the machine slept is no finding")
def slept():
    place = Place("timeout-1")
    done = place.hour("0.2")
    same(done.returncode, 0, f"status ({done.stdout})")
    assert not os.path.exists(place.at("hour/fake/timeout-1")), "the input was kept"


@test("--keep replaces the seeds by the minimised corpus, and keeps earlier findings")
def keeps():
    place = Place()
    os.makedirs(place.at("hour/fake/corpus"))
    with open(place.at("hour/fake/corpus/less"), "w"):
        pass
    same(place.hour("0", "--keep").returncode, 0, "status")
    same(sorted(os.listdir(place.seeds)), ["found_once", "less"], "seeds")


if __name__ == "__main__":
    main()
