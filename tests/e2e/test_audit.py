#!/usr/bin/python3
"""The audit log, and what is never written to logs: tokens, and the names in a scan's header."""
import gzip
import os
import re
import socket
import tempfile

import scans
from guarded import Guarded
from harness import Daemon, main, same, test, wait_until

TUS = {"Tus-Resumable": "1.0.0"}


@test("the audit log records client and action, and contains no token")
def audit(daemon):
    identity = daemon.job_of("submit")
    lines = []

    def told(line, of=f"job={identity} "):  # a line is written after its answer was sent
        lines.append(line)
        wait_until(lambda: f"{of}audit: {line}\n" in daemon.read_log(), f"the line {line}")
    told("client=mri1 role=submit peer=127.0.0.1 POST /v1/jobs 202")
    daemon.ended(identity)
    daemon.as_("read", "GET", f"/v1/jobs/{identity}/results/image").expect(200)
    told("client=mri1 role=read peer=127.0.0.1 GET /v1/jobs/*/results/* 200")
    daemon.as_("other", "DELETE", f"/v1/jobs/{identity}").problem(404, "not-found")
    told("client=mri2 role=submit peer=127.0.0.1 DELETE /v1/jobs/* 404")
    daemon.as_("submit", "DELETE", f"/v1/jobs/{identity}").expect(204)
    told("client=mri1 role=submit peer=127.0.0.1 DELETE /v1/jobs/* 204")
    seen = [line.split("audit: ", 1)[1] for line in daemon.read_log().splitlines() if f"job={identity} audit: " in line]
    same(sorted(seen), sorted(lines), "audit lines")
    daemon.get("/v1/jobs").problem(401, "unauthorized")
    told("client=- role=nobody peer=127.0.0.1 GET /v1/jobs 401", "")
    daemon.as_("other", "GET", f"/v1/jobs/{'0' * 26}").problem(404, "not-found")
    told("client=mri2 role=submit peer=127.0.0.1 GET /v1/jobs/* 404", "")
    assert not any(token[4:] in daemon.read_log() for token in daemon.token.values()), "the log contains a token"


@test("the audit log records purges of all jobs with client and number of jobs, and refused purges")
def audit_of_purges():
    with Guarded() as daemon:
        for who in ("submit", "other", "submit"):
            daemon.ended(daemon.job_of(who))
        daemon.as_("other", "DELETE", "/v1/jobs?older=0").problem(403, "forbidden")
        daemon.as_("admin", "DELETE", "/v1/jobs?older=always").problem(400, "bad-parameter")
        same(daemon.as_("admin", "DELETE", "/v1/jobs?older=0").expect(200).json()["removed"], 3, "jobs removed")
        lines = wait_until(lambda: len(lines := re.findall("audit: (.* DELETE /v1/jobs .*)", daemon.read_log())) == 3
                           and lines, "three lines")
        same(sorted(lines), ["client=boss role=admin peer=127.0.0.1 DELETE /v1/jobs 200 removed=3",
                             "client=boss role=admin peer=127.0.0.1 DELETE /v1/jobs 400 removed=0",
                             "client=mri2 role=submit peer=127.0.0.1 DELETE /v1/jobs 403 removed=0"], "audit lines")


@test("the audit log is independent of the log level, and records interrupted uploads")
def audit_always():
    with Daemon(devices="cpu", log_level="error") as daemon:
        with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
            connection.sendall(b"POST /v1/jobs?kind=recon HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
                               b"abc")
        wait_until(lambda: "POST /v1/jobs aborted" in daemon.read_log(), "a word about the upload")
        same([line for line in daemon.read_log().splitlines() if "audit: " not in line], [], "other lines")


# Every text of an ISMRMRD header, each with the name that must not be revealed.
ABOUT = """<subjectInformation><patientName>Okonkwo</patientName><patientID>Okonkwo</patientID></subjectInformation>
<studyInformation><studyID>Okonkwo</studyID><referringPhysicianName>Okonkwo</referringPhysicianName><studyDescription>Okonkwo</studyDescription>
<studyInstanceUID>Okonkwo</studyInstanceUID><bodyPartExamined>Okonkwo</bodyPartExamined></studyInformation>
<measurementInformation><measurementID>Okonkwo</measurementID><seriesDescription>Okonkwo</seriesDescription><protocolName>Okonkwo</protocolName>
<sequenceName>Okonkwo</sequenceName><measurementDependency><dependencyType>Okonkwo</dependencyType><measurementID>Okonkwo</measurementID></measurementDependency>
<seriesInstanceUIDRoot>Okonkwo</seriesInstanceUIDRoot><frameOfReferenceUID>Okonkwo</frameOfReferenceUID></measurementInformation>
<acquisitionSystemInformation><systemVendor>Okonkwo</systemVendor><systemModel>Okonkwo</systemModel>
<coilLabel><coilNumber>0</coilNumber><coilName>Okonkwo</coilName></coilLabel><institutionName>Okonkwo</institutionName><stationName>Okonkwo</stationName>
</acquisitionSystemInformation><experimentalConditions>"""
NAMED = (("<experimentalConditions>", ABOUT),
         ("</trajectory>",
          "</trajectory><trajectoryDescription><identifier>Okonkwo</identifier><comment>Okonkwo</comment></trajectoryDescription>"),
         ("</ismrmrdHeader>",
          "<userParameters><userParameterString><name>Okonkwo</name><value>Okonkwo</value></userParameterString></userParameters></ismrmrdHeader>"))
# Headers with an error at the name.
BROKEN = (("</ismrmrdHeader>", "<oops>"), ("<patientName>Okonkwo", "<patientName>&Okonkwo;"),
          ("<patientName>", "<!-- Okonkwo -- her name --><patientName>"),
          ("<patientName>", "<patientName Okonkwo='1' Okonkwo='2'>"), ("</patientName>", "]]></patientName>"),
          ("Okonkwo</patientName>", "Okonkwo\x01</patientName>"),
          ("<patientName>Okonkwo", "<patientName>&Okonkwo "), ('encoding="UTF-8"', 'encoding="Okonkwo"'),
          ("<ismrmrdHeader ", "<!DOCTYPE Okonkwo><ismrmrdHeader "))


@test("only its owner can read the state folder; the patient's name is in scans and ISMRMRD images, and nowhere else")
def privacy():
    with Daemon(devices="cpu", log_level="debug", keep_scans="all") as daemon, tempfile.TemporaryDirectory() as folder:
        scan = scans.radial()
        for place, text in NAMED:
            assert place in scan.xml, place
            scan.xml = scan.xml.replace(place, text)
        sent = {"User-Agent": "Okonkwo", "Referer": "http://okonkwo.example/Okonkwo",
                "Content-Disposition": 'attachment; filename="Okonkwo.h5"', "Cookie": "Okonkwo"}
        job = daemon.finish(daemon.submit(scan.bytes(folder), **sent).expect(202).json()["id"])
        same(job["state"], "succeeded")
        begun = daemon.request("POST", "/v1/uploads?kind=recon",
                               headers={**TUS, "Upload-Length": str(len(scan.bytes(folder))),
                                        "Upload-Metadata": "filename Okonkwo"})
        pieces = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        ended = daemon.finish(daemon.request("PATCH", begun.headers["location"], scan.bytes(folder),
                                             pieces).expect(204).headers["x-job-id"])
        same(ended["state"], "succeeded")
        for form in ("nii.gz", "png", "npy"):
            daemon.get(f"/v1/jobs/{job['id']}/results/image?format={form}").expect(200)
        whole = scan.xml
        for place, text in BROKEN:
            assert place in whole, place
            scan.xml = whole.replace(place, text, 1)
            failed = daemon.run(scan.bytes(folder))
            same((failed["state"], failed["error"]["code"]), ("failed", "header-invalid"), f"how it ends with {text}")
        daemon.get("/Okonkwo").problem(404, "not-found")
        daemon.get("/v1/jobs/Okonkwo").problem(404, "not-found")
        told = {name: daemon.get(name).body.decode() for name in ("/v1/jobs?limit=100", "/metrics", "/readyz?verbose")}
        told["the log"] = daemon.read_log()
        for place, text in told.items():
            assert "okonkwo" not in text.lower(), f"{place} reveals it: {re.findall('.{0,80}[Oo]konkwo.{0,40}', text)}"
        for path in daemon.files():
            with (gzip.open if path.endswith(".gz") else open)(os.path.join(daemon.state, path), "rb") as file:
                written = b"Okonkwo" in file.read()
            same(written, path.startswith("spool/") or path.endswith("/image.h5"), f"whether {path} holds it")
        for parent, folders, files in os.walk(daemon.state):
            for name in folders + files:
                mode = os.stat(os.path.join(parent, name)).st_mode
                assert not mode & 0o077, f"{name} has mode {mode & 0o777:o}"


if __name__ == "__main__":
    main(Guarded)
