#!/usr/bin/python3
"""Tokens: how they are stored, reloaded and edited by hand; how the client sends them, and reports bad ones."""
import base64
import os
import re
import resource
import signal
import stat
import subprocess
import tempfile

import scans
from guarded import Guarded, new_token
from harness import BIN, Daemon, client, main, same, test, wait_until



@test("tokens are stored as hashes, in a file of their owner; SIGHUP adds new ones and removes revoked ones")
def reload(daemon):
    with open(daemon.tokens) as file:
        text = file.read()
    assert not any(token[4:] in text for token in daemon.token.values()), "the file contains a token"
    same(stat.S_IMODE(os.stat(daemon.tokens).st_mode), 0o600, "mode of the tokens")
    daemon.token["new"] = new_token(daemon.tokens, "mri3", "read")
    daemon.as_("new", "GET", "/v1/jobs").problem(401, "unauthorized")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.as_("new", "GET", "/v1/jobs").status == 200, "the new token")
    with open(daemon.tokens, "w") as file:
        file.writelines(line for line in text.splitlines(True))
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.as_("new", "GET", "/v1/jobs").status == 401, "the withdrawal")
    daemon.as_("submit", "GET", "/v1/jobs").expect(200)


@test("a token file edited by hand: no final newline, a line that is too long, write access for others")
def edited():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        first = new_token(path, "a", "read")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write("# " + "x" * 300 + "\n" + text.rstrip("\n"))
        second = new_token(path, "b", "submit")
        with Daemon(devices="cpu", tokens=path, expect_trouble=True) as daemon:
            for token in (first, second):
                daemon.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {token}"}).expect(200)
            with open(path, "a") as file:
                file.write("# " + "x" * 600 + " c admin " + "0" * 64 + "\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "longer than" in daemon.read_log(), "a word about the long line")
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o620)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "Other users than its owner can write" in daemon.read_log(), "a word about the mode")
            daemon.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {second}"}).expect(200)


@test("a file of tokens, destinations or MRD configurations that cannot be read to its end is refused, not a short one")
def unreadable():
    with tempfile.TemporaryDirectory() as folder:
        for words in (["--tokens"], ["--destinations"], ["--mrd-listen", "127.0.0.1:0", "--mrd-configs"]):
            # A folder can be opened, and not be read.
            done = subprocess.run([os.path.join(BIN, "mrirecond"), "--check-config", "--state-dir", folder, *words,
                                   folder], capture_output=True, text=True)
            assert done.returncode == 2 and "cannot be read" in done.stderr, (words, done)


@test("a token for whose line the disk has no room leaves the file as it was, and the reason is told")
def no_room():
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) + 20, len(text) + 20))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        new_token(path, "a", "read")
        with open(path) as file:
            text = file.read()
        done = subprocess.run([os.path.join(BIN, "mrirecond"), "--new-token", "b", "read", "--tokens", path],
                              capture_output=True, text=True, preexec_fn=limit)
        assert done.returncode != 0 and "File too large" in done.stderr and not done.stdout, done
        with open(path) as file:
            same(file.read(), text, "the file")


@test("the client sends its token")
def by_client(daemon):
    path = os.path.join(daemon.state, "scan.h5")
    scans.radial().write(path)
    out = os.path.join(daemon.state, "image.png")
    refused = client(daemon, "submit", path, check=False)
    assert refused.returncode == 1 and "unauthorized" in refused.stderr, refused.stderr
    client(daemon, "submit", path, "--out", out, MRIRECON_TOKEN=daemon.token["submit"])
    token = os.path.join(daemon.state, "token")
    with open(token, "w") as file:
        file.write(daemon.token["read"] + "\n")
    assert "succeeded" in client(daemon, "list", "--token-file", token).stdout


@test("a malformed token is described by its form, and no part of it is repeated")
def malformed_tokens(daemon):
    with open(daemon.tokens) as file:
        line = file.readline()
    for wrong, says in ((None, r"--token-file FILE, or MRIRECON_TOKEN"),
                        ("Basic " + base64.b64encode(b"alice:secret").decode(), r"other schemes, such as Basic"),
                        ("Bearer mrt_" + "0" * 64, r"revoked, or belong to another service"),
                        ("Bearer " + line.split()[2], r"looks like a hash"),
                        ('Bearer "' + daemon.token["read"] + '"',
                         r"does not look like one: mrt_ and 64 hexadecimal digits, without quotes"),
                        ("Bearer " + daemon.token["read"][:-1], r"does not look like one")):
        problem = daemon.request("GET", "/v1/jobs", headers={"Authorization": wrong} if wrong
                                 else {}).problem(401, "unauthorized")
        assert re.search(says, problem["detail"]), problem
        assert not wrong or wrong.split()[1].strip('"')[4:12] not in problem["detail"], problem


@test("the client names the error in a token file")
def token_files(daemon):
    token = os.path.join(daemon.state, "token")
    for text, says in (("", "There is no token in the first line of"),
                       ("one read 1234\n", "more than a token: spaces or quotes"),
                       ("-----BEGIN PRIVATE KEY-----\n", "more than a token"), ("mrt_12\n", "does not look like one")):
        with open(token, "w") as file:
            file.write(text)
        told = client(daemon, "list", "--token-file", token, check=False)
        assert told.returncode == 1 and says in told.stderr, told.stderr
    told = client(daemon, "list", "--token-file", token + "s", check=False)
    assert told.returncode == 1 and "cannot be read from" in told.stderr and "No such file" in told.stderr, told.stderr
    told = client(daemon, "list", "--token-file", daemon.state, check=False)  # it can be opened, and not be read
    assert told.returncode == 1 and "cannot be read from" in told.stderr and "Is a directory" in told.stderr, told
    told = client(daemon, "list", check=False, MRIRECON_TOKEN="two words")
    assert told.returncode == 1 and "MRIRECON_TOKEN contains more than a token" in told.stderr, told.stderr


if __name__ == "__main__":
    main(Guarded)
