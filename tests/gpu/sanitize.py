#!/usr/bin/python3
"""Run the GPU code under compute-sanitizer: memcheck (accesses out of bounds) and racecheck (hazards in shared memory).

tests/gpu/sanitize.py [--tool memcheck|racecheck] [--build build] [--jobs N] [--seconds N] [NAME...]

Each run is a program of tests/gpu at sizes that end within minutes under the tools, which slow a kernel down by a
factor of ten to a thousand: the NUFFT by every method, width and number of products, every size of an FFT pass, the
normal operator, overflow, sums over particles, coil maps, sums in two parts, vectors. Runs are made beside each other.
NAME: only runs whose command contains it. Prints TAP; a run passes if the tool found nothing, the program's tests
passed and both ended in time: a run that was stopped proves nothing.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import time

RUNS = [
    "test_gpu_kernels methods",
    "test_gpu_kernels passes",
    "test_gpu_normal 1 1 66000",
    "test_gpu_sizes",
    *(f"test_gpu_sums *{part}*" for part in ("points_to_grids", "transpose", "parts_sum", "cubes_by", "doubles")),
    *(f"test_gpu_pairs {part}" for part in ("pair_sums", "pair_counts", "doubles_keep*", "one_pass*", "every_form*")),
    "test_gpu_coils",
    "test_gpu_lines",
    "test_gpu_maps",
    "test_gpu_split",
    "test_gpu_vec",
    *(f"test_gpu_overflow 1 {case}" for case in range(8)),
]
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:errors|hazards)")


def run(build, tool, command, deadline):
    """The outcome of one run: whether it passed, and a line that tells it."""
    program, *args = command.split()
    start = time.monotonic()
    if start > deadline:
        return False, "not started in time", ""
    sanitized = ["compute-sanitizer", "--report-api-errors", "no", "--tool", tool, f"{build}/tests/{program}", *args]
    with subprocess.Popen(sanitized, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "2"}) as process:
        try:
            output, _ = process.communicate(timeout=deadline - start)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return False, f"stopped after {time.monotonic() - start:.0f} s", output
    found = SUMMARY.search(output)
    passed = process.returncode == 0 and found is not None and int(found.group(1)) == 0
    told = f"{found.group(1)} found" if found else f"no summary, exit status {process.returncode}"
    return passed, f"{told}, {time.monotonic() - start:.0f} s", output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=["memcheck", "racecheck"], help="both by default")
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seconds", type=float, default=900, help="limit of all runs together")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if not shutil.which("compute-sanitizer"):
        print("1..0 # SKIP compute-sanitizer is not there")
        return 0
    runs = [(tool, command) for tool in options.tool or ["memcheck", "racecheck"] for command in RUNS
            if not options.names or any(name in command for name in options.names)]
    failed = 0
    deadline = time.monotonic() + options.seconds
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = {pool.submit(run, options.build, tool, command, deadline): (tool, command)
                    for tool, command in runs}
        for number, future in enumerate(concurrent.futures.as_completed(outcomes), 1):
            passed, told, output = future.result()
            print(f"{'ok' if passed else 'not ok'} {number} - {' '.join(outcomes[future])}: {told}", flush=True)
            if not passed:
                failed += 1
                kept = [line for line in output.splitlines() if not line.startswith(("ok ", "# "))]
                print("\n".join("# " + line for line in kept[:40]), flush=True)
    print(f"1..{len(runs)}")
    return 1 if failed else 0


sys.exit(main())
