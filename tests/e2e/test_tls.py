#!/usr/bin/python3
"""TLS: where it is required, which versions are accepted, and how certificates are replaced."""
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import scans
from guarded import Guarded, certificate, new_token
from harness import BIN, Daemon, Response, client, main, same, test, wait_until


@test("an address that other machines reach requires TLS and tokens")
def outside():
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens")
        new_token(tokens, "a", "admin")
        crt, key = certificate(folder, "one")
        state = os.path.join(folder, "state")

        def start(*options):
            return subprocess.run([os.path.join(BIN, "mrirecond"), *options], capture_output=True, text=True,
                                  timeout=120)

        for options in ([], ["--tokens", tokens], ["--tls-certificate", crt, "--tls-key", key],
                        ["--tls-certificate", crt, "--tokens", tokens],
                        ["--tls-certificate", key, "--tls-key", key],
                        ["--tls-certificate", crt, "--tls-key", certificate(folder, "two")[1]],
                        ["--tokens", os.path.join(folder, "none")]):
            options = ["--listen", "0.0.0.0:0", "--state-dir", state, *options]
            done = start(*options)
            same(done.returncode, 1, f"exit status with {options}")
            assert " error: " in done.stderr, done.stderr
            checked = start("--check-config", *options)
            same((checked.returncode, checked.stdout), (2, ""),
                 f"exit status and output of --check-config with {options}")
            same(checked.stderr.removeprefix("mrirecond: "), done.stderr.split(" error: ")[1],
                 "what --check-config says")
        for options in (["--devices", "gpu"], ["--listen", "here"], ["--queue-limit", "many"],
                        ["--worker", folder + "/none"]):
            same(start("--check-config", "--state-dir", state, *options).returncode, 2,
                 f"exit status of --check-config with {options}")
        sound = start("--check-config", "--listen", "0.0.0.0:0", "--state-dir", state, "--tls-certificate", crt,
                      "--tls-key", key, "--tokens", tokens)
        same((sound.returncode, sound.stderr), (0, ""), "exit status and errors of --check-config with what is right")
        assert not os.path.exists(state), "the state folder was created"


@test("the client reports a server without TLS")
def plain(daemon):
    def asked():
        """What the client says; None if it got no processor for the 10 s in which it wants to be connected."""
        done = client(None, "list", "--server", daemon.url.replace("http:", "https:"), check=False)
        return None if "timeout" in done.stderr else done
    told = wait_until(asked, "the client to connect")
    assert told.returncode == 1 and "its address begins with http://" in told.stderr, told.stderr


@test("TLS: 1.2 or newer, authenticated encryption only; SIGHUP loads a new certificate and keeps connections")
def tls():
    with tempfile.TemporaryDirectory() as folder:
        first, second = certificate(folder, "first"), certificate(folder, "second")
        crt, key = os.path.join(folder, "now.crt"), os.path.join(folder, "now.key")

        def install(pair):
            for source, target in zip(pair, (crt, key)):
                shutil.copy(source, target)

        install(first)

        class Encrypted(Daemon):
            trust = first[0]

            def request(self, method, path, body=None, headers=None, timeout=120):
                context = ssl.create_default_context(cafile=self.trust)
                asked = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data=body, method=method,
                                               headers=headers or {})
                with urllib.request.urlopen(asked, context=context, timeout=timeout) as answer:
                    return Response(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())

        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, expect_trouble=True,
                       idle_timeout=600) as daemon:
            path = os.path.join(daemon.state, "scan.h5")
            scans.radial().write(path)
            daemon.url = daemon.url.replace("http:", "https:")
            out = os.path.join(daemon.state, "image.npy")
            client(daemon, "submit", path, "--out", out, "--cacert", first[0])
            assert os.path.getsize(out) > 0
            for address, words, says in ((daemon.url, (),
                                          r"not trusted by this machine .*--cacert FILE or MRIRECON_CACERT"),
                                         (daemon.url, ("--cacert", second[0]),
                                          r"is not signed by any in \S+second\.crt"),
                                         (daemon.url, ("--cacert", first[0] + "s"),
                                          r"first\.crts, from --cacert.*\(No such file"),
                                         (daemon.url.replace("127.0.0.1", "other.localhost"), ("--cacert", first[0]),
                                          r"is for another name .*other\.localhost"),
                                         (daemon.url.replace("https:", "http:"), (),
                                          r"received plain HTTP: use an address that begins with https://")):
                distrusted = client(None, "list", "--server", address, *words, check=False)
                same(distrusted.returncode, 1, "exit status without trust")
                assert re.search(says, distrusted.stderr), distrusted.stderr
            for method, body in (("GET", None), ("POST", b"x" * 4000)):
                plain = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
                plain.request(method, "/v1/jobs", body=body)
                answer = plain.getresponse()
                problem = json.load(answer)
                same((answer.status, answer.getheader("Connection"), problem["code"]), (400, "close", "bad-request"),
                     f"the answer to a plain {method}")
                assert "begins with https://" in problem["detail"], problem
                plain.close()
            old = ["curl", "-sS", "--cacert", first[0], f"https://127.0.0.1:{daemon.port}/livez", "--tls-max", "1.2"]
            same(subprocess.run(old, capture_output=True).returncode, 0, "curl's exit status with TLS 1.2")
            # By a client that would accept anything.
            for version, spoken in (("-tls1", False), ("-tls1_1", False), ("-tls1_2", True)):
                anything = ["openssl", "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect",
                            f"127.0.0.1:{daemon.port}"]
                same(subprocess.run(anything, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, spoken,
                     f"whether {version} is spoken")
            for suite, taken in (("ECDHE-ECDSA-AES128-SHA", False), ("ECDHE-ECDSA-AES256-SHA", False),
                                 ("ECDHE-ECDSA-AES128-SHA256", False),
                                 ("ECDHE-ECDSA-AES256-SHA384", False), ("ECDHE-ECDSA-AES128-CCM", False),
                                 ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
                                 ("ECDHE-ECDSA-AES256-GCM-SHA384", True), ("ECDHE-ECDSA-CHACHA20-POLY1305", True)):
                offered = ["openssl", "s_client", "-tls1_2", "-cipher", suite + ":@SECLEVEL=0", "-connect",
                           f"127.0.0.1:{daemon.port}"]
                same(subprocess.run(offered, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0, taken,
                     f"whether {suite} is taken")
            connected = http.client.HTTPSConnection("127.0.0.1", daemon.port,
                                                    context=ssl.create_default_context(cafile=first[0]))
            connected.request("GET", "/livez")
            connected.getresponse().read()
            with open(crt, "w") as file:
                file.write("no certificate\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old certificate stays" in daemon.read_log(), "a word about the broken certificate")
            daemon.request("GET", "/livez").expect(200)
            install(second)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "reload: certificate" in daemon.read_log(), "the reload")
            connected.request("GET", "/livez")
            same(connected.getresponse().read() != b"", True, "an answer to who was connected")
            connected.close()
            try:
                daemon.request("GET", "/livez")
                raise AssertionError("the old certificate is still shown")
            except urllib.error.URLError:
                pass
            daemon.trust = second[0]
            daemon.request("GET", "/livez").expect(200)


@test("an expired certificate, a wrong key or a readable key replaces no good one; without one the start fails")
def ended():
    with tempfile.TemporaryDirectory() as folder:
        good, over, other = (certificate(folder, name) for name in ("good", "over", "other"))
        subprocess.run(["openssl", "x509", "-in", over[0], "-signkey", over[1], "-days", "-1", "-out",
                        over[0] + ".new"], check=True, capture_output=True)
        os.rename(over[0] + ".new", over[0])
        crt, key, private = (os.path.join(folder, name) for name in ("now.crt", "now.key", "private"))
        shutil.copy(good[0], private)
        os.chmod(private, 0o600)
        shown = []

        class Encrypted(Daemon):
            def request(self, method, path, body=None, headers=None, timeout=120):
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout,
                                                         context=ssl._create_unverified_context())
                connection.request(method, path, body, headers or {})
                answer = connection.getresponse()
                shown[:] = [ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(True))]
                return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

        def install(certificate_file, key_file):
            shutil.copy(certificate_file, crt)
            shutil.copy(key_file, key)

        def text(path):
            with open(path) as file:
                return file.read()

        install(*good)
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, expect_trouble=True) as daemon:
            end = daemon.metrics()["mrirecond_tls_certificate_expiry_timestamp_seconds"]
            assert 59 * 86400 < end - time.time() <= 60 * 86400, end
            assert "the certificate ends" not in daemon.read_log(), daemon.read_log()
            for pair, said in ((over, "an expired certificate"),
                               ((good[0], other[1]), "does not belong to the certificate"),
                               ((good[0], good[0]), "every user of this machine can read"),
                               ((good[0], private), "no key in PEM")):
                install(*pair)
                daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: any("the old certificate stays" in line and said in line
                                       for line in daemon.read_log().splitlines()), f"a word: {said}")
                daemon.request("GET", "/livez").expect(200)
                same(shown[0].split(), text(good[0]).split(), "the certificate that is shown")
        install(*over)
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key) as daemon:
            assert ("warning: the certificate ended 24 hours ago: clients refuse it"
                    in daemon.read_log()), daemon.read_log()


@test("replaced certificates are freed with their last connection: 300 reloads do not grow the service")
def many_reloads():
    with tempfile.TemporaryDirectory() as folder:
        crt, key = certificate(folder, "one")
        with open(crt) as file:
            chain = file.read() * 16
        with open(crt, "w") as file:
            file.write(chain)  # as long as possible, so that one that is not freed is noticed

        class Encrypted(Daemon):
            def request(self, method, path, body=None, headers=None, timeout=120):
                connection = self.connected(timeout)
                try:
                    connection.request(method, path, body, headers or {})
                    answer = connection.getresponse()
                    return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
                finally:
                    connection.close()

            def connected(self, timeout=120):
                return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout,
                                                   context=ssl._create_unverified_context())

            def reload(self, count):
                for _ in range(count):
                    told = self.read_log().count("reload: certificate")
                    self.process.send_signal(signal.SIGHUP)
                    wait_until(lambda: self.read_log().count("reload: certificate") > told, "a reload")

            def memory(self):
                with open(f"/proc/{self.process.pid}/statm") as file:
                    return int(file.read().split()[1]) * 4096

        # Otherwise a sanitizer keeps freed memory.
        frees = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                 ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}
        with Encrypted(devices="cpu", tls_certificate=crt, tls_key=key, header_timeout=600, idle_timeout=600,
                       environment=frees) as daemon:
            held = daemon.connected()
            held.request("GET", "/livez")
            same(held.getresponse().read() != b"", True, "an answer")
            for _ in range(20):
                daemon.reload(1)
                daemon.request("GET", "/livez").expect(200)
            before = daemon.memory()
            daemon.reload(300)
            grown = daemon.memory() - before
            held.request("GET", "/livez")
            same(held.getresponse().status, 200, "status for who is connected with the first certificate")
            held.close()
            daemon.request("GET", "/livez").expect(200)
            # 300 that are not freed take 6 MiB, and 12 with sanitizers.
            assert grown < 3 << 20, f"300 reloads used {grown >> 10} KiB"


if __name__ == "__main__":
    main(Guarded)
