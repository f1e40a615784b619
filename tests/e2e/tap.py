"""What a test program of this folder is made of: tests, skips, and TAP on its output."""
import inspect
import os
import signal
import sys
import traceback


class Skip(Exception):
    """Raised by skip()."""


def skip(reason):
    raise Skip(reason)


def same(seen, expected, what="value"):
    assert seen == expected, f"{what} is {seen!r}, expected {expected!r}"


TESTS = []


def test(name):
    def add(function):
        TESTS.append((name, function))
        return function
    return add


def explain(error):
    lines = str(error).splitlines() or [type(error).__name__]
    if not isinstance(error, AssertionError):
        lines = traceback.format_exc().splitlines()
    else:
        where = traceback.extract_tb(error.__traceback__)
        lines += [f"at {os.path.basename(f.filename)}:{f.lineno}: {f.line}" for f in where[1:]]
    for line in lines:
        print(f"# {line}")


def main(start=None):
    """Run all tests of the program, or those named on the command line."""
    chosen = [(name, function) for name, function in TESTS if len(sys.argv) < 2 or function.__name__ in sys.argv[1:]]
    shared = any(inspect.signature(function).parameters for _, function in chosen)
    print(f"1..{len(chosen) + shared}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    daemon, lacking, failures, number = None, None, 0, 0

    def attempt(name, function, *arguments):
        nonlocal failures, number
        number += 1
        try:
            function(*arguments)
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception as error:
            failures += 1
            explain(error)
            print(f"not ok {number} - {name}", flush=True)

    def with_daemon(function):
        """Call a test of the shared daemon; where that cannot be started for want of something, skip the test."""
        if lacking:
            raise lacking
        function(daemon)

    try:
        if shared:
            try:
                daemon = start()
            except Skip as reason:
                lacking = reason
        for name, function in chosen:
            attempt(name, *((with_daemon, function) if inspect.signature(function).parameters else (function,)))
        if shared:
            attempt("the daemon stops cleanly and logged no error", with_daemon, lambda of: of.stop())
    finally:
        if daemon is not None:
            daemon.kill()
            daemon.clean()
    sys.exit(1 if failures else 0)
