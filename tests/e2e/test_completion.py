#!/usr/bin/python3
"""Shell completion of the client's command line, tested in the shells themselves; and its installation."""
import os
import shutil
import subprocess
import tempfile

from harness import BIN, ROOT, SLOW, client, main, same, skip, test


def script(shell):
    return client(None, "completion", shell).stdout


def bash(*words, folder=None):
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    run = f"""{script("bash")}
COMP_WORDS=(mrirecon {line}); COMP_CWORD={len(words)}; _mrirecon
printf '%s\\n' "${{COMPREPLY[@]}}"; complete -p mrirecon >&2"""
    done = subprocess.run(["bash", "--norc", "-c", run], capture_output=True, text=True, cwd=folder, timeout=SLOW)
    same((done.returncode, done.stderr), (0, "complete -F _mrirecon mrirecon\n"), "exit status and stderr of bash")
    return done.stdout.split()


@test("bash: commands, the options of each, files, folders, parameters and their words")
def in_bash():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/scans")
        for name in ("scan.h5", "other.txt"):
            with open(f"{folder}/{name}", "w"):
                pass
        for words, expected in ((["su"], ["submit"]), (["--ser"], ["--server"]), (["submit", "--f"], ["--format"]),
                                (["submit", "--format", "nii"], ["nii.gz"]), (["submit", "--result", "map"], ["maps"]),
                                (["submit", "--priority", ""], ["urgent", "normal", "batch"]),
                                (["submit", "sc"], ["scan.h5", "scans"]), (["batch", "sc"], ["scans"]),
                                (["submit", "scan.h5", "to"], ["tolerance="]),
                                (["submit", "scan.h5", "dcf", "=", "pi"], ["pipe"]),
                                (["submit", "scan.h5", "dcf", "="],
                                 ["auto", "given", "none", "analytic", "pipe", "voronoi"]),
                                (["submit", "--out", "oth"], ["other.txt"]), (["--token-file", "x", "li"], ["list"]),
                                (["kinds", "re"], ["recon"]),
                                (["simulate", "--traj"], ["--trajectory"]), (["completion", "z"], ["zsh"]),
                                (["list", "--out"], [])):
            same(bash(*words, folder=folder), expected, f"what is offered after {words}")
        assert ({"submit", "batch", "wait", "list", "completion"}
                <= set(bash("--server", "http://x", ""))), "commands after an option"


# Stand-ins for zsh's own functions that print their arguments.
ZSH = """compdef() { print -r -- "compdef $@" }
_arguments() { print -rl -- "$@" }
_describe() { print -r -- "$1"; print -rl -- "${(P@)2}" }
%s
words=(mrirecon %s); CURRENT=%d; _mrirecon"""


def zsh(*words):
    run = ZSH % (script("zsh"), " ".join(f"'{word}'" for word in words), len(words) + 1)
    done = subprocess.run(["zsh", "-f", "-c", run], capture_output=True, text=True, timeout=SLOW)
    same((done.returncode, done.stderr), (0, ""), "exit status and stderr of zsh")
    lines = done.stdout.splitlines()
    same(lines[0], "compdef _mrirecon mrirecon")
    return lines[1:]


@test("zsh: the same, with descriptions")
def in_zsh():
    if not shutil.which("zsh"):
        skip("there is no zsh here (make deps installs it)")
    commands = zsh("su")
    same(commands[0], "command")
    assert any(line.startswith("submit:Send a scan (") for line in commands), commands
    submit = zsh("submit", "--f")
    assert any(line.startswith("--format=[format of the result") and ":FORM:( h5 nii.gz png npy dcm" in line
               for line in submit), submit
    assert any(line.startswith("--out=[") and line.endswith(":FILE:_files") for line in submit), submit
    assert ("*:scan or parameter:{_files; _mrirecon_parameters}" in submit
            and not any(line.startswith("--limit") for line in submit)), submit
    assert any(line.startswith("--trajectory:") for line in zsh("simulate", "--t")), zsh("simulate", "--t")


@test("an unknown shell, or none, is refused")
def other():
    for words in (["fish"], [], ["bash", "zsh"]):
        done = client(None, "completion", *words, check=False)
        same((done.returncode, done.stdout), (2, ""), "exit status and output")
    assert "completion SHELL" in client(None, "completion", "--help").stdout


@test("make install puts the completions where the shells look, and make uninstall removes them")
def installed():
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            done = subprocess.run([os.path.join(ROOT, "scripts", "install"), *words], cwd=ROOT, capture_output=True,
                                  text=True)
            same((done.returncode, done.stdout, done.stderr), (0, "", ""), f"scripts/install {words}")

        for prefix, where in (("/usr", "vendor-completions"), ("/usr/local", "site-functions")):
            run(os.path.dirname(BIN), folder, prefix, "")
            for path, shell in (("bash-completion/completions/mrirecon", "bash"), (f"zsh/{where}/_mrirecon", "zsh")):
                with open(f"{folder}{prefix}/share/{path}") as file:
                    same(file.read(), script(shell), path)
            run("--remove", folder, prefix)
        left = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
        same(left, [f"{folder}/etc/mrirecond/mrirecond.conf"], "files that stay")


if __name__ == "__main__":
    main()
