"""A daemon that requires tokens, with a token for each role; and certificates."""
import os
import subprocess
import tempfile

import scans
from harness import BIN, Daemon, same, wait_until


def new_token(path, name, role):
    done = subprocess.run([os.path.join(BIN, "mrirecond"), "--new-token", name, role, "--tokens", path],
                          capture_output=True, text=True)
    same((done.returncode, done.stderr), (0, ""), "making a token")
    return done.stdout.strip()


def certificate(folder, name):
    """A certificate for localhost, and its key."""
    paths = os.path.join(folder, f"{name}.crt"), os.path.join(folder, f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "60",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", paths[0],
                    "-keyout", paths[1]],
                   check=True, capture_output=True)
    return paths


class Guarded(Daemon):
    """A daemon that requires tokens. self.token[role] belong to client "mri1", self.token["other"] to another client
    that may submit.
    """

    def __init__(self, **options):
        self.folder = tempfile.TemporaryDirectory()
        self.tokens = os.path.join(self.folder.name, "tokens")
        self.token = {role: new_token(self.tokens, "mri1", role) for role in ("read", "submit")}
        self.token["admin"] = new_token(self.tokens, "boss", "admin")
        self.token["view"] = new_token(self.tokens, "watch", "view")
        self.token["other"] = new_token(self.tokens, "mri2", "submit")
        super().__init__(tokens=self.tokens, devices="cpu", **options)

    def clean(self):
        super().clean()
        self.folder.cleanup()

    def as_(self, who, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request(method, path, body,
                            {**headers, **({"Authorization": f"Bearer {self.token[who]}"} if who else {})})

    def job_of(self, who):
        return self.as_(who, "POST", "/v1/jobs?kind=recon", scans.radial().bytes(self.state)).expect(202).json()["id"]

    def ended(self, identity):
        return wait_until(lambda: (job := self.as_("admin", "GET", f"/v1/jobs/{identity}").json())["state"] in
                          ("succeeded", "failed", "canceled") and job, "the end of a job")
