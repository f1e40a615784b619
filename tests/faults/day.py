#!/usr/bin/python3
"""A day of 24 hours around two scanners, in ten minutes: every job is accounted for, and the service ends as it began.

    tests/faults/day.py [--seconds 600] [--patients 12] [--scans 16] [--batch 400] [--workers 2]

From 7 to 19 o'clock two scanners examine patients, one after the other: MRD streams over TCP, some of which break off,
files posted whole and resumable uploads. From 17 to 22 o'clock a research group submits its batch by three programs:
files of low priority, some canceled, some no scans at all. An operator's page is open all day: it follows the event
stream, loads lists, thumbnails and slices, and runs failed jobs again. Every ended job is told to an archive, which
fetches its image; from 12 to 13 o'clock the archive is out of order. The service is reloaded every second hour, and
removes jobs three hours after their end.

At the end every accepted job must have been told to the archive with one message, must have ended as it had to, and
have the image of its scan alone; no scan may have become two jobs; each job must have run to success once. The page
must show what the list has. After the retention no job and no file may be left. Descriptors and threads of daemon and
workers must be as many as in the morning. Their memory, taken at the end of each hour, must be flat: its largest value
after 15 o'clock is at most GROWTH times that before, plus SPARE. Prints the hours and the counts; exits 1 if anything
was wrong. The state folder is made in TMPDIR. MRIRECON_BIN: the programs.
"""
import argparse
import collections
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from day_clients import Archive, Book, Page, Sender  # noqa: E402
from harness import FINAL, REPORTS, TROUBLE, Daemon, free_port, sanitized, wait_until  # noqa: E402

# Of resident memory, a factor and bytes. A sanitizer keeps freed memory (its quarantine), here limited to a few MB.
GROWTH, SPARE = 1.1, 4 << 20
SANITIZED_GROWTH, SANITIZED_SPARE = 1.25, 64 << 20
NOON = 15  # the hour that divides the day for comparing memory
QUARANTINE = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"}
FEW = 4  # descriptors and threads that may vary
SUCCEEDED = re.compile(r"job=(\w+) succeeded in")


class Day:
    def __init__(self, daemon, book, archive, seconds, mrd_port, asked):
        self.daemon, self.book, self.archive, self.asked = daemon, book, archive, asked
        self.hour_seconds, self.mrd_port = seconds / 24, mrd_port
        self.page, self.threads, self.hours = Page(daemon, book), [], []
        self.before = self.look()
        self.began = time.monotonic()

    def until(self, hour):
        time.sleep(max(0, self.began + hour * self.hour_seconds - time.monotonic()))

    def processes(self):
        workers = self.daemon.children("mrirecon-worker")
        return {"daemon": [self.daemon.process.pid], "workers": workers}

    def look(self):
        """For the daemon, and for all workers together: resident bytes, descriptors, threads."""
        found = {}
        for name, processes in self.processes().items():
            sums = [0, 0, 0]
            for process in processes:
                with open(f"/proc/{process}/status") as file:
                    status = dict(line.split(":", 1) for line in file)
                sums[0] += int(status["VmRSS"].split()[0]) * 1024
                sums[1] += len(os.listdir(f"/proc/{process}/fd"))
                sums[2] += int(status["Threads"])
            found[name] = sums
        return found

    def act(self, what, *arguments):
        """Start an actor's thread; an exception in it is recorded as a fault."""
        def body():
            try:
                what(*arguments)
            except Exception as error:
                self.book.count("failures", f"{what.__qualname__}: {error!r}"[:600])
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    # -- actors

    def scanner(self, name, source):
        sender = Sender(self.daemon, self.book, name, source, self.mrd_port)
        for patient in range(self.asked["patients"]):
            for scan in range(self.asked["scans"]):
                self.until(7 + (patient + (scan + 0.5) / self.asked["scans"]) * 12 / self.asked["patients"])
                how = sender.chance.random()
                if how < 0.45:
                    sender.stream(self.hour_seconds / 50)
                elif how < 0.5:
                    sender.stream(self.hour_seconds / 50, breaks=True)
                elif how < 0.75:
                    sender.whole(priority=sender.chance.choice(("normal", "normal", "urgent")))
                else:
                    sender.resumable()

    def research(self, name, share):
        sender = Sender(self.daemon, self.book, name)
        for scan in range(share):
            self.until(17 + 5 * scan / share)
            how = sender.chance.random()
            if how < 0.85:
                sender.whole(priority="batch")
            elif how < 0.95:
                sender.canceled()
            else:
                sender.garbage()

    def monitor(self):
        """Prometheus, which scrapes twelve times an hour."""
        for tick in range(24 * 12):
            self.until(tick / 12)
            self.daemon.metrics()
            self.daemon.get("/readyz").expect(200)

    def administrate(self):
        """Reloads, the archive's outage, and a page whose connection is broken."""
        for hour in range(1, 24):
            self.until(hour)
            if hour % 2 == 0:
                before = self.daemon.read_log().count("reload: configuration")
                self.daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: self.daemon.read_log().count("reload: configuration") > before, "a reload")
                self.book.count("reloads")
            if hour % 6 == 0:
                self.page.interrupt()
            (self.archive.out.set if hour == 12 else self.archive.out.clear)()

    def count_hours(self):
        for hour in range(1, 25):
            self.until(hour)
            counts = self.daemon.metrics()
            kept = sum(int(value) for name, value in counts.items() if name.startswith("mrirecond_kept_jobs{"))
            files = self.daemon.files()
            self.hours.append({"hour": hour, **self.look(), "jobs kept": kept, "files": len(files),
                               "MB": round(sum(files.values()) / 1e6, 2)})

    def live(self):
        watcher = self.act(self.page.run)
        self.act(self.scanner, "scanner1", "127.0.0.1")
        self.act(self.scanner, "scanner2", "127.0.0.2")
        for number in range(3):
            self.act(self.research, f"research{number}", self.asked["batch"] // 3)
        for what in (self.monitor, self.administrate, self.count_hours):
            self.act(what)
        for thread in self.threads:
            if thread is not watcher:
                thread.join()
        self.finish(watcher)

    def finish(self, watcher):
        """The last jobs end and are delivered; then the page is compared with the list, and closed."""
        def rest():
            listed = self.page.load()
            return (self.page.states == listed and all(state in FINAL for state in listed.values()) and
                    all(identity in self.book.ended for identity in list(self.book.accepted)) and
                    self.daemon.metrics()["mrirecond_deliveries_pending"] == 0)
        wait_until(rest, "the end of all jobs and deliveries, and the page to show what the list has", 1800)
        self.page.close()
        watcher.join()


def judge(day, log):
    """Find faults in jobs, memory, descriptors and threads."""
    book, wrong = day.book, list(day.book.wrong)
    for identity, order in book.accepted.items():
        state = book.ended.get(identity, ("lost", ""))[0]
        if state not in order.ends:
            wrong.append(f"job {identity} ({order.name}) is {state}, expected {order.ends}")
    for order in book.streamed.values():
        states = [state for state, name in book.ended.values() if name == order.name]
        if len(states) != 1 or states[0] not in order.ends:
            wrong.append(f"the stream {order.name} became the jobs {states}, expected one that is {order.ends}")
    for identity, (state, name) in book.ended.items():
        if identity not in book.accepted and name not in book.streamed:
            wrong.append(f"job {identity} ({name}, {state}) was accepted from nobody")
        if len(book.told[identity]) != 1:
            wrong.append(f"{len(book.told[identity])} messages of the end of {identity}")
    runs = collections.Counter(SUCCEEDED.findall(log))
    wrong += [f"{identity} ran to success {count} times" for identity, count in runs.items() if count != 1]
    wrong += [line for line in log.splitlines() if REPORTS.search(line) or TROUBLE.search(line)]
    return wrong


def judge_memory(day):
    factor, spare = (SANITIZED_GROWTH, SANITIZED_SPARE) if sanitized() else (GROWTH, SPARE)
    for name in day.before:
        morning = max(hour[name][0] for hour in day.hours if hour["hour"] <= NOON)
        evening = max(hour[name][0] for hour in day.hours if hour["hour"] > NOON)
        if evening > factor * morning + spare:
            yield f"memory of {name}: {morning / 1e6:.1f} MB until {NOON} o'clock, then {evening / 1e6:.1f}"


def judge_rest(day, workers):
    """After the end: clients' connections are closed, their threads have ended, no worker was replaced."""
    def bounds():
        return [(name, what, count, bound) for name, counts in day.look().items()
                for what, count, bound in zip(("descriptors", "threads"), counts[1:], day.before[name][1:])]
    end = time.monotonic() + 120
    while any(count > bound + FEW for *_, count, bound in bounds()) and time.monotonic() < end:
        time.sleep(0.1)
    for name, what, count, bound in bounds():
        if count > bound + FEW:
            yield f"{name}: {bound} {what} before, {count} after"
    if day.daemon.children("mrirecon-worker") != workers:
        yield "a worker was replaced"


def run(seconds, keep, flat=True, **asked):
    """Returns the Day and its faults. keep: seconds for which ended jobs are kept; flat: whether memory is compared."""
    with tempfile.TemporaryDirectory() as folder:
        book, port = Book(folder), free_port()
        archive = Archive(book)
        try:
            day, wrong = run_with(book, archive, port, folder, seconds, keep, asked)
            return day, wrong + (list(judge_memory(day)) if flat else [])
        finally:
            archive.close()


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text)
    return path


def run_with(book, archive, port, folder, seconds, keep, asked):
    secret = written(folder, "secret", "a key of the archive\n")
    line = (f"destination archive webhook http://127.0.0.1:{archive.port}/ secret={secret} retry=1 retry-most=1 "
            "timeout=300 on=succeeded,failed,canceled\nrule archive\n")
    options = {"mrd_listen": f"127.0.0.1:{port}", "mrd_clients": "127.0.0.1=scanner1,127.0.0.2=scanner2", "threads": 1}
    with Daemon(devices="cpu", threads=1) as quiet:
        book.alone(quiet)
    with Daemon(devices=",".join(["cpu"] * asked["workers"]), destinations=written(folder, "destinations", line),
                keep_jobs=keep, environment=QUARANTINE, **options) as daemon:
        archive.daemon = daemon
        wait_until(lambda: daemon.metrics()["mrirecond_workers_ready"] == asked["workers"], "all workers")
        workers = daemon.children("mrirecon-worker")
        wait_until(lambda: all(len(daemon.children("mrirecon-codec", worker)) == 2 for worker in workers),
                   "the decoders that workers start in advance, whose sockets count")
        day = Day(daemon, book, archive, seconds, port, asked)
        day.live()
        wait_until(lambda: not day.page.load(), "the removal of all jobs", keep + 600)
        state = ("results/", "spool/", "uploads/")
        wait_until(lambda: not any(name.startswith(state) for name in daemon.files()), "the removal of all files")
        wrong = judge(day, daemon.read_log()) + list(judge_rest(day, workers))
        day.after = day.look()
    return day, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("seconds", 600), ("patients", 12), ("scans", 16), ("batch", 400), ("workers", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    asked = vars(parser.parse_args())
    seconds = asked.pop("seconds")
    day, wrong = run(seconds, max(3, 3 * seconds // 24), **asked)
    for hour in day.hours:
        print(json.dumps(hour))
    ends = collections.Counter(state for state, _ in day.book.ended.values())
    print(json.dumps({"before": day.before, "after": day.after}))
    print(json.dumps({"jobs": len(day.book.ended), "ends": ends, "counts": day.book.counts, "wrong": wrong[:20]}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
