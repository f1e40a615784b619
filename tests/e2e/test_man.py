#!/usr/bin/python3
"""The manual pages compared with the programs that they describe; and that they can be rendered."""
import os
import re
import shutil
import subprocess
import tempfile

from harness import BIN, ROOT, SLOW, main, same, sanitized, skip, test

BUILD = os.path.dirname(BIN)
PAGES = ("mrirecon.1", "mrirecond.conf.5", "mrirecond.8")


def said(program, *words):
    return subprocess.run([os.path.join(BIN, program), *words], capture_output=True, text=True, check=True,
                          timeout=120).stdout


def page(name):
    """The source of a page, with its dashes as the programs accept them."""
    with open(f"{BUILD}/man/{name}") as file:
        return file.read().replace("\\-", "-")


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))


@test("mrirecond.conf(5) has every option of the configuration, with its default and its help text")
def configuration():
    text = page("mrirecond.conf.5")
    found = dict(re.findall(r'^\.BR (\S+)(?: " \((.*)\)")?\n', text, re.M))
    expected = dict(re.findall(r"^#([a-z][a-z-]*) =(?: (.*))?$", said("mrirecond", "--sample-config"), re.M))
    same({key: found.get(key) for key in expected}, expected, "options and defaults")
    plain = " ".join(text.split())
    for paragraph in said("mrirecond", "--sample-config").split("\n\n")[1:]:
        words = " ".join(line[2:] for line in paragraph.splitlines() if line.startswith("# "))
        assert len(words) > 10 and words in plain, f"the page does not say: {words}"
    assert "@" not in text.replace("mrirecond.conf", ""), "a part of the template was not filled in"


@test("mrirecond(8) describes what mrirecond does besides serving")
def daemon():
    usage = said("mrirecond", "--help").split("\n  --")[0]  # above the table of options
    wanted = options(usage) - {"--state-dir", "--tokens"}
    assert len(wanted) >= 6, wanted
    told = set(re.findall(r"^\.(?:B|BI|BR) (--[a-z-]+)", page("mrirecond.8").split(".SH OPTIONS")[1], re.M))
    same(wanted - told, set(), "options that the page leaves out")
    configured = {"--" + key for key in re.findall(r"^#([a-z][a-z-]*) =", said("mrirecond", "--sample-config"), re.M)}
    same(options(page("mrirecond.8")) - options(usage) - configured - options(said("mrirecon", "simulate",
                                                                                   "--help")) - {"--out"}, set(),
         "options that there are not")


@test("mrirecon(1) has every command and option of mrirecon and its simulator, their defaults, and no other")
def command():
    text, general, simulator = page("mrirecon.1"), said("mrirecon", "--help"), said("mrirecon", "simulate", "--help")
    commands = set(re.findall(r"^  ([\w-]+)  ?", general.split("Options:")[0], re.M)) | {"help"}
    assert len(commands) > 10, commands
    same(set(re.findall(r"^\.TP\n\.(?:B|BI|BR) ([\w-]+)", text.split(".SH COMMANDS")[1].split(".SH OPTIONS")[0], re.M)),
         commands, "commands")
    listed, simulated = text.split(".SH OPTIONS")[1].split(".SH ENVIRONMENT")[0].split(".SS Options of simulate")
    heads = r"^\.TP\n\.(?:B|BI|BR) (--[a-z-]+)"
    same(set(re.findall(heads, listed, re.M)), options(general.split("Options:")[1].split("A first")[0]) |
         {"--help", "--version"}, "options")
    same(set(re.findall(heads, simulated, re.M)), options(simulator.split("\n\n")[1]), "options of simulate")
    for name, default in re.findall(r"^  (--[a-z-]+) .* \((.+)\)$", simulator, re.M):
        assert re.search(rf'^\.BR {name} .*\({re.escape(default)}\)"$', simulated,
                         re.M), f"the default of {name} is {default}"
    for status in ("0", "1", "2", "130"):
        assert f".B {status}\n" in text.split(".SH EXIT STATUS")[1], f"no exit status {status}"


@test("the pages render without a warning")
def rendered():
    tools = {"mandoc": ["mandoc", "-Tlint", "-W", "warning"], "groff": ["groff", "-ww", "-man", "-Tutf8", "-z"]}
    for name in PAGES:
        for tool, words in tools.items():
            if shutil.which(tool):
                done = subprocess.run([*words, f"{BUILD}/man/{name}"], capture_output=True, text=True, timeout=120)
                same((done.returncode, done.stdout + done.stderr), (0, ""), f"what {tool} says of {name}")
    if not shutil.which("mandoc"):
        skip("mandoc is not installed (make deps)")


@test("make install installs the pages, and make uninstall removes everything but the configuration")
def installed():
    with tempfile.TemporaryDirectory() as root:
        # With the options of this build: with a different CUDA or SAN, make would link the programs again while other
        # tests run them.
        cuda = ["CUDA=0"]
        if os.path.exists(f"{BUILD}/lib/mrirecon/mrirecon-gpu.so"):
            with open(f"{BUILD}/flags/nvcc") as file:
                flags = file.read()
                cuda = ["CUDA=1", "CUDA_ARCHS=" + " ".join(re.findall(r"code=sm_(\d+)", flags)), "NVCC_OPTIMIZE=" +
                        re.search(r" (-O\d.*?) -I\.", flags).group(1)]
        # By the name that the build had: objects that make compiled here under another would depend on no header later.
        make = ["make", "--no-print-directory", "-C", ROOT, f"BUILD={os.path.relpath(BUILD, ROOT)}", f"DESTDIR={root}",
                "PREFIX=/usr", *cuda, f"SAN={int(sanitized())}"]
        built = os.stat(os.path.join(BIN, "mrirecon-worker")).st_mtime_ns

        def files():
            return {os.path.relpath(f"{folder}/{name}", root) for folder, _, names in os.walk(root) for name in names}
        subprocess.run([*make, "install"], check=True, capture_output=True, timeout=10 * SLOW)
        same(os.stat(os.path.join(BIN, "mrirecon-worker")).st_mtime_ns, built, "when the worker was linked")
        for name in (*PAGES, "mrirecon-worker.8", "mrirecon-codec.8", "mrirecon-send.8"):
            path = f"usr/share/man/man{name[-1]}/{name}"
            assert path in files() and os.path.getsize(f"{root}/{path}") > 1000, f"{path} is not installed"
        doc = f"{root}/usr/share/doc/mrirecond"
        for name in sorted(files()):
            if name.endswith(".md"):
                with open(f"{root}/{name}") as file:
                    for link in re.findall(r"\]\(([^):#]+)\)", file.read()):
                        assert os.path.exists(os.path.join(root, os.path.dirname(name),
                                                           link)), f"{name} links to {link}, which is not installed"
        for name in ("docs/operations.md", "clients/monitoring/alerts.yml", "clients/monitoring/grafana.json",
                     "docs/openapi.yaml"):
            assert os.path.getsize(f"{doc}/{name}") > 1000, f"{name} is not installed"
        subprocess.run([*make, "uninstall"], check=True, capture_output=True, timeout=120)
        same(files(), {"etc/mrirecond/mrirecond.conf"}, "files that are left")


if __name__ == "__main__":
    main()
