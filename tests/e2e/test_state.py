#!/usr/bin/python3
"""A job store that is truncated, overwritten, missing or of a newer version: refused with advice, checked, repaired."""
import errno
import functools
import glob
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

import scans
from harness import BIN, ROOT, SLOW, Daemon, main, same, skip, test, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import diskfaults  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
BODY = scans.radial(seed=31).bytes(FOLDER.name)


def tool(state, action, environment=None):
    """Run --check-state or --repair-state; returns (exit status, output)."""
    done = subprocess.run([os.path.join(BIN, "mrirecond"), f"--{action}-state", "--state-dir", state],
                          capture_output=True, text=True, timeout=SLOW, env={**os.environ, **(environment or {})})
    return done.returncode, done.stdout + done.stderr


def refused(state, says):
    done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "127.0.0.1:0", "--state-dir", state],
                          capture_output=True, text=True, timeout=SLOW)
    assert done.returncode == 1 and says in done.stderr, (says, done)


class State:
    """A state folder with jobs that succeeded and jobs that wait, as kill -9 leaves it. Tests damage copies of it."""

    def __init__(self, waiting):
        self.folder = tempfile.mkdtemp(dir=FOLDER.name)
        daemon = Daemon(state=self.folder)
        try:
            self.done = [daemon.run(BODY)["id"] for _ in range(2)]
            self.image = daemon.get(f"/v1/jobs/{self.done[0]}/results/image?format=npy").expect(200).body
            os.kill(daemon.worker(), signal.SIGSTOP)  # the queue does not change
            self.waiting = [daemon.submit(BODY).expect(202).json()["id"] for _ in range(waiting)]
        finally:
            daemon.kill()

    def copy(self):
        path = tempfile.mkdtemp(dir=FOLDER.name)
        shutil.copytree(self.folder, path, dirs_exist_ok=True)
        return path


@functools.cache
def state_of(waiting):
    return State(waiting)


def damaged(waiting=60):
    """A new copy whose store is a single file, without a write-ahead log; by default one of many pages."""
    state = state_of(waiting)
    path = state.copy()
    with sqlite3.connect(path + "/jobs.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    return state, path


def all_end(state, path, lost=()):
    """Start on the folder: each job that is not lost succeeds, with the right image."""
    with Daemon(state=path, expect_trouble=True) as daemon:
        for identity in state.done + state.waiting:
            if identity not in lost:
                job = daemon.finish(identity)
                same(job["state"], "succeeded", f"state of {identity} ({job['error']})")
                same(daemon.get(f"/v1/jobs/{identity}/results/image?format=npy").expect(200).body, state.image, "image")


@test("a sound folder: --check-state says so, --repair-state changes nothing; neither runs beside a daemon")
def sound():
    _, path = damaged()
    before = {name: open(name, "rb").read() for name in glob.glob(path + "/**/*", recursive=True)
              if os.path.isfile(name)}
    for action in ("check", "repair"):
        status, text = tool(path, action)
        same(status, 0, f"status ({text})")
        assert "is sound" in text, text
    after = {name: open(name, "rb").read() for name in glob.glob(path + "/**/*", recursive=True)
             if os.path.isfile(name)}
    same(sorted(after), sorted(before), "files")
    same(after, before, "what the files hold")
    with Daemon() as daemon:
        for action in ("check", "repair"):
            status, text = tool(daemon.state, action)
            assert status == 1 and "in use by another mrirecond" in text, (status, text)
    status, text = tool(path + "/none", "check")
    assert status == 1 and "--state-dir" in text, (status, text)


@test("results that were computed while their scan arrived belong to no lost job: --check-state does not count them")
def arriving():
    _, path = damaged()
    for identity, arriving in (("0" * 26, "spool/" + "0" * 26 + ".part"), ("1" * 26, "uploads/" + "1" * 26),
                               ("2" * 26, "spool/other.part")):
        os.makedirs(f"{path}/{os.path.dirname(arriving)}", exist_ok=True)
        with open(f"{path}/{arriving}", "wb") as file:
            file.write(BODY)
        os.mkdir(f"{path}/results/{identity}")
    assert "0 scans and 1 results belong to no job" in tool(path, "check")[1], tool(path, "check")
    with Daemon(state=path, expect_trouble=True):
        pass
    same([os.path.basename(kept) for kept in glob.glob(path + "/found-*/*.results")], ["2" * 26 + ".results"], "kept")


@test("a truncated store: refused with advice, or found by --check-state; repaired, the readable part runs")
def cut_off():
    state, path = damaged()
    size = os.path.getsize(path + "/jobs.db")
    os.truncate(path + "/jobs.db", size * 4 // 5 // 4096 * 4096)
    status, text = tool(path, "check")
    same(status, 3, f"status ({text})")
    assert "--repair-state" in text, text
    repaired(state, path)


@test("garbage in pages of the store: found; repaired, other pages' rows run, scans of lost rows are set aside")
def garbage():
    state, path = damaged()
    size = os.path.getsize(path + "/jobs.db")
    with open(path + "/jobs.db", "r+b") as file:
        file.seek(size * 3 // 4 // 4096 * 4096)
        file.write(os.urandom(4096))
    same(tool(path, "check")[0], 3, "status of --check-state")
    repaired(state, path)


def repaired(state, path):
    status, text = tool(path, "repair")
    same(status, 0, f"status of --repair-state ({text})")
    assert glob.glob(path + "/jobs.db.damaged-*"), os.listdir(path)
    status, text = tool(path, "check")
    same(status, 0, f"status of --check-state afterwards ({text})")
    with sqlite3.connect(path + "/jobs.db") as db:
        there = {row[0] for row in db.execute("SELECT id FROM job")}
    db.close()
    lost = set(state.done + state.waiting) - there
    print(f"# {len(there)} jobs were read, {len(lost)} lost their row")
    assert there and lost, "the damage affected all rows or none"
    found = {os.path.basename(name).split(".")[0] for name in glob.glob(path + "/found-*/0*")}
    assert lost <= found, f"neither row nor file of {lost - found}"
    all_end(state, path, lost)


def everything(path):
    return [path] + [os.path.join(folder, name) for folder, folders, names in os.walk(path) for name in folders + names]


@test("garbage everywhere, an empty or no store: refused, nothing removed; repaired, the owner's files are set aside")
def nothing_left():
    for left in (None, b"", os.urandom(50000)):
        state, path = damaged()
        os.unlink(path + "/jobs.db")
        if left is not None:
            with open(path + "/jobs.db", "wb") as file:
                file.write(left)
        before = sorted(os.listdir(path + "/spool")) + sorted(os.listdir(path + "/results"))
        refused(path, "--repair-state")
        same(sorted(os.listdir(path + "/spool")) + sorted(os.listdir(path + "/results")), before,
             "files after a refused start")
        owner = 12345 if os.geteuid() == 0 else os.geteuid()  # root repairs a folder that belongs to the service
        for each in everything(path):
            os.chown(each, owner, -1)
        same(tool(path, "check")[0], 3, "status of --check-state")
        status, text = tool(path, "repair")
        same(status, 0, f"status of --repair-state ({text})")
        kept = [open(name, "rb").read() for name in glob.glob(path + "/jobs.db.damaged-*")]
        same((kept, "is kept as" in text), ([] if left is None else [left], left is not None), f"kept stores ({text})")
        assert "no job could be read from the old job store" in text, text
        same([each for each in everything(path) if os.lstat(each).st_uid != owner], [], "files of another owner")
        found = {os.path.basename(name) for name in glob.glob(path + "/found-*/0*")}
        assert ({identity + ".results" for identity in state.done} |
                {identity + ".scan" for identity in state.waiting} <= found), found
        with Daemon(state=path) as daemon:
            same(daemon.run(BODY)["state"], "succeeded", "state of a job after the repair")


@test("a log of the store, or a saved copy of it, beside an empty or no store: refused though no job has a file")
def store_beside_none():
    for left, advice in (("jobs.db-wal", "--repair-state"), ("jobs.db.saved-1700000000000", "rename that to jobs.db")):
        for empty in (False, True):
            path = tempfile.mkdtemp(dir=FOLDER.name)
            for name in (left, *["jobs.db"] * empty):
                with open(f"{path}/{name}", "wb") as file:
                    file.write(BODY if name == left else b"")
            refused(path, advice)
            status, text = tool(path, "check")
            assert status == 3 and advice in text, (status, text)
            with open(f"{path}/{left}", "rb") as file:
                assert file.read() == BODY, f"{left} was changed"
            same(tool(path, "repair")[0], 0, "status of --repair-state")
            kept, = glob.glob(f"{path}/jobs.db.damaged-*-wal" if left == "jobs.db-wal" else f"{path}/{left}")
            with open(kept, "rb") as file:
                assert file.read() == BODY, f"{kept} is not {left}"
            with Daemon(state=path) as daemon:
                same(daemon.run(BODY)["state"], "succeeded", "state of a job after the repair")


@test("a copy of a young store without its log has no tables: refused beside scans; with the log, all is there")
def without_log():
    with Daemon(expect_trouble=True) as daemon:
        os.kill(daemon.worker(), signal.SIGSTOP)
        ids = sorted(daemon.submit(BODY).expect(202).json()["id"] for _ in range(3))
        daemon.kill()
        os.rename(daemon.state + "/jobs.db-wal", daemon.state + "/saved")
        os.unlink(daemon.state + "/jobs.db-shm")
        refused(daemon.state, "--repair-state")
        same(sorted(os.listdir(daemon.state + "/spool")), ids, "scans after a refused start")
        status, text = tool(daemon.state, "check")
        assert status == 3 and "3 scans" in text, (status, text)
        os.rename(daemon.state + "/saved", daemon.state + "/jobs.db-wal")
        daemon.restart()
        for identity in ids:
            same(daemon.finish(identity)["state"], "succeeded", "state")


@test("a folder of which the disk does not show every name has no fewer files: no start makes a store, nor a repair")
def names_unread():
    ends = set()
    for number in itertools.count(1):
        for action in ("start", "repair"):
            state, path = damaged(waiting=6)  # each name is a point
            os.unlink(path + "/jobs.db")
            failing = diskfaults.Fault(path + ".fault")
            failing.arm(number, errno.EIO, True, only="readdir")
            if action == "start":
                done = subprocess.run([os.path.join(BIN, "mrirecond"), "--listen", "127.0.0.1:0", "--state-dir", path],
                                      capture_output=True, text=True, timeout=SLOW,
                                      env={**os.environ, **diskfaults.preload(path, failing)})
                status, text = done.returncode, done.stdout + done.stderr
            else:
                status, text = tool(path, "repair", diskfaults.preload(path, failing))
            if not failing.failed():
                ends.add(action)
            elif action == "start" or status:
                assert status == 1 and diskfaults.tells(text), (number, status, text)
                assert not os.path.exists(path + "/jobs.db"), f"{action} made a store, {number}: {text}"
            else:
                aside = {os.path.basename(name).split(".")[0] for name in glob.glob(path + "/found-*/0*")}
                same(aside, set(state.done + state.waiting), f"set aside, though call {number} failed ({text})")
            shutil.rmtree(path)
        if len(ends) == 2:
            break


@test("a repair that is killed before any of its links, removals or renames, or whose disk refuses it, loses no job")
def repair_interrupted():
    state = state_of(60)
    everyone = set(state.done + state.waiting)

    def jobs(path):
        with sqlite3.connect(path + "/jobs.db") as db:
            return {row[0] for row in db.execute("SELECT id FROM job")}

    for error in (0, errno.EIO):  # 0: killed
        for number in itertools.count(1):
            path = state.copy()  # some rows are in the log alone
            shutil.rmtree(f"{path}/results/{state.done[0]}")  # the store is sound, and its row has to change
            failing = diskfaults.Fault(path + ".fault")
            failing.arm(number, error, False, only="linkat unlinkat renameat")
            status, text = tool(path, "repair", diskfaults.preload(path, failing))
            if not failing.failed():
                same(jobs(path), everyone, "jobs after a repair")
                break
            when = f"call {number} ({failing.first()}, error {error})"
            if error:
                assert status == 0 or diskfaults.tells(text) and "Traceback" not in text, (when, status, text)
            else:
                same(status, -signal.SIGKILL, "status of the repair")
            if os.path.exists(path + "/jobs.db.repaired"):
                refused(path, "--repair-state")
                same(tool(path, "check")[0], 3, f"status of --check-state after {when}")
            else:
                copy = tempfile.mkdtemp(dir=FOLDER.name)  # SQLite changes what it opens
                for name in glob.glob(path + "/jobs.db*"):
                    shutil.copy(name, copy)
                same(jobs(copy), everyone, f"jobs that a start would find after {when}")
                shutil.rmtree(copy)
            status, text = tool(path, "repair")
            same((status, tool(path, "check")[0]), (0, 0), f"status of a repair after {when} ({text}), and of a check")
            same(jobs(path), everyone, f"jobs after {when} and another repair")
            shutil.rmtree(path)


@test("folders that a backup lost, since they were empty, belong to the service also if root checks the state first")
def folders_of_root():
    if os.geteuid() != 0:
        skip("only root makes files of other users")
    path = tempfile.mkdtemp(dir=FOLDER.name)
    with Daemon(state=path):
        pass
    for name in ("spool", "results", "uploads"):
        os.rmdir(f"{path}/{name}")
    for each in everything(path):
        os.chown(each, 12345, 12345)
    status, text = tool(path, "check")
    same((status, {os.lstat(each).st_uid for each in everything(path)}), (0, {12345}), f"status and owners ({text})")


@test("a link among the uploads, which the service's account can make, gives it no other file: root follows none")
def links_of_the_account():
    if os.geteuid() != 0:
        skip("only root changes files of other users")
    path, victim = tempfile.mkdtemp(dir=FOLDER.name), f"{FOLDER.name}/victim"
    with open(victim, "w") as file:
        file.write("of root")
    os.chmod(victim, 0o644)
    with Daemon(state=path) as daemon:
        identity = begun(daemon, 20000)
    for ending in ("", ".json", ".chunk"):
        copy = shutil.copytree(path, f"{path}{ending}-copy")
        name = f"{copy}/uploads/{identity}{ending}"
        if os.path.exists(name):
            os.unlink(name)
        os.symlink(victim, name)
        for each in everything(copy):
            os.lchown(each, 12345, 12345)
        for action in ("check", "repair"):
            _, text = tool(copy, action)
            same((os.stat(victim).st_mode & 0o777, os.stat(victim).st_uid), (0o644, 0), f"of the file ({text})")


@test("a store of a newer version is refused by all three, and unchanged")
def newer():
    _, path = damaged()
    with sqlite3.connect(path + "/jobs.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    refused(path, "Run the newer program")
    for action in ("check", "repair"):
        status, text = tool(path, action)
        assert status == 1 and "Run the newer program" in text, (status, text)


@test("jobs of an earlier version, with 0 and -1 for auto: waiting ones run, and all are shown in today's words")
def former_spellings():
    state, path = damaged()
    with sqlite3.connect(path + "/jobs.db") as db:
        changed = db.execute("UPDATE job SET parameters = json_set(parameters, '$.width', '0', '$.oversampling', '0', "
                             "'$.encoding', '-1')")
        same(changed.rowcount, len(state.done + state.waiting), "rows")
    db.close()
    all_end(state, path)
    with Daemon(state=path, keep_scans="all") as daemon:
        for identity in state.done + state.waiting:
            job = daemon.job(identity)
            same([job["parameters"][name] for name in ("width", "oversampling", "encoding")], ["auto"] * 3,
                 f"parameters of {identity}")


@test("missing scans and results: found; repaired, jobs with scans run again, others fail with the reason")
def missing_files():
    state, path = damaged()
    with open(f"{path}/spool/{state.waiting[0]}", "r+b") as file:
        file.truncate(1000)
    os.unlink(f"{path}/spool/{state.waiting[1]}")
    os.truncate(f"{path}/results/{state.done[0]}/image.h5", 100)
    shutil.rmtree(f"{path}/results/{state.done[1]}")
    shutil.copy(f"{path}/spool/{state.waiting[2]}", f"{path}/spool/{state.done[1]}")
    status, text = tool(path, "check")
    same(status, 3, "status")
    for identity in state.waiting[:2] + state.done:
        assert identity in text, (identity, text)
    same(tool(path, "repair")[0], 0, "status of --repair-state")
    gone = state.waiting[:2] + state.done[:1]
    with Daemon(state=path, expect_trouble=True) as daemon:
        for identity in gone:
            job = daemon.job(identity)
            assert job["state"] == "failed" and "Submit it again" in job["error"]["detail"], job
        same(daemon.finish(state.done[1])["state"], "succeeded", "state of the job that has its scan")
    all_end(state, path, gone)


TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}


def begun(daemon, end):
    """A resumable upload of which `end` bytes have arrived."""
    created = daemon.request("POST", "/v1/uploads?kind=recon", headers={**TUS, "Upload-Length": str(len(BODY))})
    identity = created.expect(201).headers["location"].rsplit("/", 1)[1]
    daemon.request("PATCH", f"/v1/uploads/{identity}", BODY[:end], {**TUS, "Upload-Offset": "0"}).expect(204)
    return identity


@test("resumable uploads: sound ones are unchanged; --repair-state repairs damaged ones or sets them aside")
def uploads():
    path = tempfile.mkdtemp(dir=FOLDER.name)
    names = ("sound", "long", "gone", "note", "chunk", "open", "leftover")
    with Daemon(state=path) as daemon:
        ids = {name: begun(daemon, 20000) for name in names}
    folder = path + "/uploads"
    os.truncate(f"{folder}/{ids['leftover']}", 0)  # as after a kill while an upload is created
    os.unlink(f"{folder}/{ids['leftover']}.json")
    status, text = tool(path, "check")
    same(status, 0, f"status of --check-state ({text})")
    assert "6 uploads can continue, 1 leftovers will be removed at the next start" in text, text

    with open(f"{folder}/{ids['long']}", "ab") as file:
        file.write(bytes(len(BODY)))
    os.unlink(f"{folder}/{ids['gone']}")
    with open(f"{folder}/{ids['note']}.json", "w") as file:
        file.write("{\"length\": 5")
    with open(f"{folder}/{ids['chunk']}.chunk", "w") as file:
        file.write("30000")
    os.chmod(f"{folder}/{ids['open']}", 0o644)
    if os.geteuid() == 0:
        os.chown(f"{folder}/{ids['open']}.json", 12345, 12345)
    status, text = tool(path, "check")
    same(status, 3, f"status of --check-state ({text})")
    for name in names:
        assert (ids[name] in text) == (name not in ("sound", "leftover")), (name, text)
    with Daemon(state=path) as daemon:  # a start removes none of it
        assert "is damaged and stays" in daemon.read_log(), daemon.read_log()
    assert (os.path.getsize(f"{folder}/{ids['long']}") == 20000 + len(BODY)
            and os.path.exists(f"{folder}/{ids['note']}")), os.listdir(folder)
    assert not os.path.exists(f"{folder}/{ids['leftover']}"), "the leftover was not removed"

    status, text = tool(path, "repair")
    same(status, 0, f"status of --repair-state ({text})")
    same(tool(path, "check")[0], 0, "status of --check-state afterwards")
    found = {os.path.basename(name) for name in glob.glob(path + "/found-*/0*")}
    same(found, {f"{ids[name]}.upload{ending}" for name in ("long", "note") for ending in ("", ".json")},
         "what was kept aside")
    assert not glob.glob(path + "/jobs.db.damaged-*"), "a sound job store was rewritten"
    mode = os.stat(f"{folder}/{ids['open']}")
    same((mode.st_mode & 0o777, os.stat(f"{folder}/{ids['open']}.json").st_uid), (0o600, os.stat(path).st_uid),
         "mode, and owner of the note")
    with Daemon(state=path) as daemon:
        for name in ("sound", "chunk", "open"):
            where = f"/v1/uploads/{ids[name]}"
            same(daemon.request("HEAD", where, headers=TUS).expect(200).headers["upload-offset"], "20000",
                 f"Upload-Offset of {name}")
            daemon.request("PATCH", where, BODY[20000:], {**TUS, "Upload-Offset": "20000"}).expect(204)
            same(daemon.finish(ids[name])["state"], "succeeded", f"state of {name}")


@test("a scan or result that the disk does not show is not missing: --check-state and --repair-state say so")
def files_unread():
    state = state_of(60)
    sound, refusals = jobs_of(state.copy()), set()
    for call, lasts in (("fstatat", False), ("fstatat", True), ("opening", False), ("opening", True)):
        for number in itertools.count(1):
            path = state.copy()
            failing = diskfaults.Fault(path + ".fault")
            failing.arm(number, errno.EIO, lasts, only=call)
            status, text = tool(path, "repair", diskfaults.preload(path, failing))
            if not failing.failed() or (call == "fstatat" and number > 6):  # two results, scans, then others
                break
            same(jobs_of(path), sound, f"jobs after {failing.first()} failed ({text})")
            same(set(os.listdir(path + "/spool")), set(os.listdir(state.folder + "/spool")),
                 f"scans after {failing.first()} failed")
            if status:
                assert diskfaults.tells(text.splitlines()[-1]) or "cannot be opened" in text, (failing.first(), text)
                refusals.add((call, lasts))
            shutil.rmtree(path)
        assert number > 6, f"{call} {number}: nothing has failed"
    same(len(refusals), 4, f"kinds of failures of which some were refused ({refusals})")


@test("a damaged store that the disk does not show when it is copied is no empty one: --repair-state leaves it")
def store_unread():
    _, base = damaged()
    os.truncate(base + "/jobs.db", os.path.getsize(base + "/jobs.db") * 4 // 5 // 4096 * 4096)
    ends, readable = set(), None
    for number in itertools.count():  # 0: the disk shows everything
        path = shutil.copytree(base, f"{base}-{number}")
        failing = diskfaults.Fault(path + ".fault")
        if number:
            failing.arm(number, errno.EIO, True, only="opening")
        status, text = tool(path, "repair", diskfaults.preload(path, failing))
        if status:
            with open(path + "/jobs.db", "rb") as is_there, open(base + "/jobs.db", "rb") as was_there:
                same(is_there.read(), was_there.read(), f"jobs.db after {failing.first()} failed ({text})")
        else:
            readable = readable or jobs_of(path)
            same(jobs_of(path), readable, f"jobs after {failing.first()} failed ({text})")
        ends.add(status)
        shutil.rmtree(path)
        if number and not failing.failed():
            break
    same(ends, {0, 1}, "statuses")


def jobs_of(path):
    with sqlite3.connect(path + "/jobs.db") as db:
        return db.execute("SELECT id, state, error FROM job ORDER BY sequence").fetchall()


@test("resumable uploads that the disk does not show are not damaged: --repair-state leaves them as they are")
def uploads_unread():
    path = tempfile.mkdtemp(dir=FOLDER.name)
    daemon = Daemon(state=path)
    try:
        for _ in range(2):
            identity = begun(daemon, 20000)
        os.close(os.open(f"{path}/uploads/{identity}.chunk", os.O_WRONLY | os.O_CREAT, 0o600))
    finally:
        daemon.kill()

    def contents():
        return {name: os.path.getsize(name) for name in glob.glob(path + "/uploads/*") + glob.glob(path + "/found*")}
    before, unread = contents(), set()
    failing = diskfaults.Fault(path + ".fault")
    for call in ("opening", "fstatat"):
        for number in itertools.count(1):
            failing.arm(number, errno.EIO, True, only=call)
            failures = failing.failed()
            status, text = tool(path, "repair", diskfaults.preload(path, failing))
            same(contents(), before, f"files after {call} number {number} and all later ones failed ({text})")
            if failing.failed() == failures:
                break
            unread.update(line.split(": ", 1)[1] for line in text.splitlines() if "cannot be read, and stays" in line)
    same((status, tool(path, "check")[0]), (0, 0), "status at the end")
    same(unread, {"cannot be read, and stays as it is: Input/output error"}, "what it says of them")


@test("bytes of a damaged upload that the disk refuses to set aside are not removed by the next start, nor then")
def upload_not_moved():
    path = tempfile.mkdtemp(dir=FOLDER.name)
    daemon = Daemon(state=path)
    try:
        identity = begun(daemon, 20000)
    finally:
        daemon.kill()
    with open(f"{path}/uploads/{identity}.json", "w") as file:
        file.write("{\"length\": 5")
    statuses = set()
    for call, error in itertools.product(("renameat", "fstatat", "mkdirat"), (errno.EIO, errno.ENOSPC)):
        for number in itertools.count(1):
            copy = shutil.copytree(path, f"{path}-{call}-{error}-{number}")
            failing = diskfaults.Fault(copy + ".fault")
            failing.arm(number, error, False, only=call)
            status, text = tool(copy, "repair", diskfaults.preload(copy, failing))
            statuses.add(status)
            with Daemon(state=copy, expect_trouble=True):
                pass
            there = [os.path.getsize(name) for name in glob.glob(f"{copy}/uploads/{identity}") + found(copy)
                     if not name.endswith(".json")]
            same(there, [20000], f"sizes of the bytes after {failing.first()} failed ({text})")
            shutil.rmtree(copy)
            if not failing.failed():
                break
    same(statuses, {0, 1}, "statuses")


def found(state):
    """The paths that were set aside."""
    return sorted(glob.glob(state + "/found-*/0*"))


@test("an overwritten log, and a kill: scans of lost rows are set aside; log, metric and --check-state report it")
def overwritten_log():
    with Daemon(expect_trouble=True) as daemon:
        os.kill(daemon.worker(), signal.SIGSTOP)
        ids = [daemon.submit(BODY).expect(202).json()["id"] for _ in range(30)]
        daemon.kill()
        with open(daemon.state + "/jobs.db-wal", "r+b") as file:
            file.seek(os.path.getsize(file.name) // 2)
            file.write(os.urandom(64))
        same(tool(daemon.state, "check")[0], 0, "status of --check-state")
        daemon.restart()
        there = {job["id"] for job in daemon.get("/v1/jobs?limit=100").json()["jobs"]}
        aside = {os.path.basename(path).split(".")[0]: path for path in found(daemon.state)}
        assert (there
                and len(aside) > 1), f"{len(there)} rows were left, {len(aside)} scans were set aside: nothing was lost"
        same(sorted(there) + sorted(aside), sorted(ids), "jobs that are there, and scans kept aside")
        log = next(line for line in daemon.read_log().splitlines() if "found-" in line)
        assert f"{len(aside)} scans and 0 results without a job" in log and "README" in log, log
        same(daemon.metrics()["mrirecond_found_files"], len(aside), "mrirecond_found_files")
        for path in aside.values():
            with open(path, "rb") as file:
                assert file.read() == BODY, f"{path} is not the scan that was sent"
        with open(os.path.dirname(path) + "/README") as file:
            assert "Submit it again" in file.read()
        same(daemon.run(BODY)["state"], "succeeded", "state")
        daemon.process.terminate()
        daemon.process.wait(SLOW)
        status, text = tool(daemon.state, "check")
        assert status == 0 and f"{len(aside)} scans and results without a job are set aside" in text, text
        old = os.path.dirname(path)
        os.rename(old, os.path.dirname(old) + "/found-1000")  # of 1970
        daemon.restart()
        wait_until(lambda: not found(daemon.state) and daemon.metrics()["mrirecond_found_files"] == 0,
                   "what was kept aside for more than 30 days to be removed")


@test("what was set aside 30 days ago, and the disk refuses to remove, is not told to be removed")
def found_stays():
    path = tempfile.mkdtemp(dir=FOLDER.name)
    os.mkdir(path + "/found-1000")  # of 1970
    kept = path + "/found-1000/01m000000000000000000000aa.scan"
    with open(kept, "wb") as file:
        file.write(BODY)
    failing = diskfaults.Fault(path + ".fault")
    failing.arm(2, errno.EIO, True, only="unlinkat")  # the first is of the mark of a clean stop
    with Daemon(state=path, environment=diskfaults.preload(path, failing), expect_trouble=True) as daemon:
        wait_until(lambda: failing.first().endswith(".scan"), "the attempt to remove it")
        daemon.process.terminate()
        daemon.process.wait(SLOW)
        assert "removed 1 scans" not in daemon.read_log(), daemon.read_log()
        failing.release()
        daemon.restart()
        wait_until(lambda: "removed 1 scans" in daemon.read_log(), "the word that it is removed")
        assert not os.path.exists(path + "/found-1000"), os.listdir(path)


@test("leftovers after a clean stop are removed; after a kill they are set aside, but not incomplete uploads")
def leftovers():
    names = {f"{number}.part" if part else number: part for number,
             part in (("01m000000000000000000000aa", False), ("01m000000000000000000000bb", True))}
    for clean in (True, False):
        with Daemon(expect_trouble=True) as daemon:
            daemon.run(BODY)
            if clean:
                daemon.process.terminate()
                daemon.process.wait(SLOW)
            else:
                daemon.kill()
            for name in names:
                with open(f"{daemon.state}/spool/{name}", "wb") as file:
                    file.write(BODY)
            assert ("removes them" if clean else "sets them aside") in tool(daemon.state, "check")[1]
            daemon.restart()
            same([os.path.basename(path) for path in found(daemon.state)], [] if clean
                 else ["01m000000000000000000000aa.scan"], "what is kept aside")
            same(os.listdir(daemon.state + "/spool"), [], "files of the spool")


@test("a job store removed while in use: no job is accepted, /readyz says so, all run when it is restored")
def removed_in_use():
    for names in (("jobs.db", "jobs.db-wal", "jobs.db-shm"), ("jobs.db-wal",)):
        with Daemon(expect_trouble=True) as daemon:
            os.kill(daemon.worker(), signal.SIGSTOP)
            ids = [daemon.submit(BODY).expect(202).json()["id"] for _ in range(10)]
            for name in names:
                os.unlink(f"{daemon.state}/{name}")
            for _ in range(2):
                detail = daemon.submit(BODY).problem(500, "store-failed")["detail"]
                assert "removed or replaced" in detail and "jobs.db.saved-" in detail, detail
            same(daemon.get("/readyz").expect(503).json()["checks"]["store"], detail, "what /readyz says of the store")
            daemon.kill()
            saved, = glob.glob(daemon.state + "/jobs.db.saved-*")
            if "jobs.db" in names:
                refused(daemon.state, f"saved all jobs in {os.path.basename(saved)}: rename that to jobs.db")
            for name in ("jobs.db-wal", "jobs.db-shm"):
                if os.path.exists(f"{daemon.state}/{name}"):
                    os.unlink(f"{daemon.state}/{name}")
            os.rename(saved, daemon.state + "/jobs.db")
            same(tool(daemon.state, "check")[0], 0, "status of --check-state")
            daemon.restart()
            for identity in ids:
                same(daemon.finish(identity)["state"], "succeeded", "state")
            same(found(daemon.state), [], "what is kept aside")


@test("a job store that was removed in use while the disk is full is saved when it has room again")
def saved_later():
    path = tempfile.mkdtemp(dir=FOLDER.name)
    failing = diskfaults.Fault(path + ".fault")
    with Daemon(state=path, environment=diskfaults.preload(path, failing), expect_trouble=True) as daemon:
        job = daemon.run(BODY)["id"]
        failing.arm(1, errno.ENOSPC, True)
        os.unlink(path + "/jobs.db")
        wait_until(failing.failed, "an attempt to save it")
        assert not glob.glob(path + "/jobs.db.saved-*"), os.listdir(path)
        failing.release()
        wait_until(lambda: glob.glob(path + "/jobs.db.saved-*"), "a copy", 20)
        daemon.submit(BODY).problem(500, "store-failed")
        daemon.kill()
        saved, = glob.glob(path + "/jobs.db.saved-*")
        os.rename(saved, path + "/jobs.db")
        for name in ("jobs.db-wal", "jobs.db-shm"):
            if os.path.exists(f"{path}/{name}"):
                os.unlink(f"{path}/{name}")
        daemon.restart()
        same(daemon.job(job)["state"], "succeeded", "state of the job")


if __name__ == "__main__":
    main()
