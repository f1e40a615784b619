#!/usr/bin/python3
"""Run the GPU code under compute-sanitizer: memcheck (accesses out of bounds) and racecheck (hazards in shared memory).

tests/gpu/sanitize.py [--tool memcheck|racecheck] [--slice K/N] [--seconds N] [--each N] [--jobs N] [--build build]
                      [NAME...]
tests/gpu/sanitize.py --launches [--build build] [NAME...]
tests/gpu/sanitize.py --list [NAME...]

Each run is a program of tests/gpu at sizes that end within a minute under the tools, which slow a kernel down by a
factor of ten to a thousand: every pass of the FFT and of filters by itself, the NUFFT by every method, width and number
of products, the normal operator, overflow, sums over particles, coil maps, sums in two parts, vectors. A run checks the
kernels that it is for. Runs are made beside each other; racecheck takes processors, not the GPU.

--slice K/N: every N-th run only, from the K-th on, so that N calls make all. NAME: only runs whose command contains it
(--list lists them).
--each: limit of a run in seconds. --seconds: of all together. A run that was stopped proves nothing, and fails.
--launches: make the runs without a tool and tell which kernels of the GPU's library they check (tests/gpu/launches.cu;
takes CUPTI and cuobjdump of CUDA's toolkit).

Prints TAP; a run passes if the tool found nothing and all tests of the program ended in time. They may fail, which is
told: those of memory do where the tool, or a run beside, takes some.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SIZES = ("1 200", "201 400", "401 800", "801 1300", "1301 4096")
HALVES = ("1 240", "241 512")
# The most points of these tests' scenes.
POINTS = {f"test_gpu_{name}*": 150 for name in ("sums *points_to_grids", "sums *transpose", "sums *cubes_by",
                                                "pairs every_form", "pairs forces_of_every")}

# Command -> substrings of the names of kernels that it is for (an empty list: all). Other runs check the others.
RUNS = {
    **{f"test_gpu_passes {part} {sizes}": [] for sizes in SIZES for part in ("back", "forth", "sums", "rows")},
    **{f"test_gpu_passes {part} {sizes}": [] for sizes in HALVES for part in ("halves", "coils")},
    **{f"test_gpu_filter {sizes}": [] for sizes in ("1 240", "241 400", "401 576", "577 1024")},
    **{f"test_gpu_kernels {part} small": [] for part in ("planes", "bricks", "16", "dense", "tiles")},
    **{f"test_gpu_sums *{part}*": [] for part in ("points_to_grids", "transpose", "cubes_by", "doubles")},
    "test_gpu_sums *parts_sum*": ["take_part", "count_held"],
    "test_gpu_crowds crowds_sum*": ["overflow_gpu"],
    "test_gpu_sums crowds_of_cubes*": ["add_slots"],
    **{f"test_gpu_pairs {part}*": []
       for part in ("pair_sums", "pair_counts", "doubles_keep", "one_pass", "every_form", "forces_of_every")},
    **{f"test_gpu_overflow 1 {case}": ["take_data", "take_values", "add_rows", "count_up", "invert", "map_order",
                                       "rank_samples", "take_k"] for case in (0, 3, 7)},
    "test_gpu_lines": ["find_rows"],
    "test_gpu_normal 1 1 8000": ["real_parts"],
    "test_gpu_coils": ["frames", "begin_vectors", "directions", "products", "steps"],
    "test_gpu_split": ["split_gpu"],
    **{f"test_gpu_maps {case}": [] for case in range(11)},
    "test_gpu_vec": [],
}
# Which kernels a run leaves out. CUB's sorts are a library's; the FFT's passes are checked by test_gpu_passes alone.
TOOLS = {"memcheck": [], "racecheck": ["cub", "transform_"]}
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:errors|hazards)")


def program_of(build, command):
    name, *args = command.split()
    return [f"{build}/tests/{name}", *args]


def left_out(tool, command):
    return [name for name in TOOLS[tool] if not command.startswith("test_gpu_passes") or name == "cub"]


def checks(tool, command, kernel):
    """Whether a run checks a kernel that it launches."""
    return ((not RUNS[command] or any(name in kernel for name in RUNS[command]))
            and not any(name in kernel for name in left_out(tool, command)))


def environment(command):
    limit = {"MRIRECON_TEST_POINTS": str(POINTS[command])} if command in POINTS else {}
    return {**os.environ, "OMP_NUM_THREADS": "2", "CMOCKA_MESSAGE_OUTPUT": "TAP", **limit}


def run(build, tool, command, deadline, each):
    """The outcome of one run: whether it passed, a line that tells it, and the output."""
    start = time.monotonic()
    if start > deadline:
        return False, "not started in time", ""
    filters = [word for name in RUNS[command] for word in ("--kernel-name", f"kns={name}")]
    filters += [word for name in left_out(tool, command) for word in ("--kernel-name-exclude", f"kns={name}")]
    sanitized = ["compute-sanitizer", "--report-api-errors", "no", "--tool", tool, *filters,
                 *program_of(build, command)]
    with subprocess.Popen(sanitized, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True, env=environment(command)) as process:
        try:
            output, _ = process.communicate(timeout=min(each, deadline - start))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            ended = sum(line.startswith("ok ") for line in output.splitlines())
            return False, f"stopped after {time.monotonic() - start:.0f} s and {ended} tests", output
    found = SUMMARY.search(output)
    passed = "terminate successfully" not in output and found is not None and int(found.group(1)) == 0
    told = f"{found.group(1)} found" if found else f"no summary, exit status {process.returncode}"
    lines = output.splitlines()
    failures = [line for line in lines if line.startswith("not ok")]
    ended = len(failures) + sum(line.startswith("ok ") for line in lines)
    planned = sum(int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line))
    if ended != planned or not ended:
        passed, told = False, f"{told}, {ended} of {planned} tests ended"
    told += "".join(f", {line}" for line in failures[:3]) or (", tests failed" if process.returncode else "")
    return passed, f"{told}, {time.monotonic() - start:.0f} s", output


def sanitize(options, runs):
    failed = 0
    deadline = time.monotonic() + options.seconds
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = {pool.submit(run, options.build, tool, command, deadline, options.each): (tool, command)
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


def kernels_of(library):
    """The mangled names of the kernels in a library, but for CUB's."""
    listed = subprocess.run(["cuobjdump", "-symbols", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listed.splitlines() if "STO_ENTRY" in line}
    return {name for name in names if "cub" not in name}


def functions_of(names):
    """The kernels' functions, without template arguments: their instances' mangled names."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    functions = collections.defaultdict(list)
    for name, told in zip(names, plain.replace("(anonymous namespace)::", "").splitlines()):
        functions[re.sub(r"<.*", "", told.split("(")[0]).split()[-1].split("::")[-1]].append(name)
    return functions


def launches_of(build, command, each):
    """The names of the kernels that a run launches, and its exit status."""
    with tempfile.NamedTemporaryFile("r") as launches:
        env = {**environment(command), "CUDA_INJECTION64_PATH": os.path.abspath(f"{build}/tests/launches.so"),
               "MRIRECON_LAUNCHES": launches.name}
        start = time.monotonic()
        try:
            code = subprocess.run(program_of(build, command), stdout=subprocess.DEVNULL, env=env, check=False,
                                  timeout=each).returncode
        except subprocess.TimeoutExpired:
            code = 1
        names = set(launches.read().split())
        print(f"# {command}: {len(names)} kernels, {time.monotonic() - start:.0f} s", flush=True)
        return names, code


def tell_launches(options, commands):
    """Which kernels the runs check, by function: checked by every tool, and all."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        launched = dict(zip(commands, pool.map(lambda command: launches_of(options.build, command, options.each),
                                               commands)))
    every = kernels_of(f"{options.build}/lib/mrirecon/mrirecon-gpu.so")
    checked = {tool: {name for command, (names, _) in launched.items() for name in names if checks(tool, command, name)}
               for tool in TOOLS}
    covered = every.intersection(*checked.values())
    for function, names in sorted(functions_of(sorted(every)).items()):
        missing = [name for name in names if name not in covered]
        print(f"{'ok' if not missing else 'not ok'} - {function}: {len(names) - len(missing)} of {len(names)}")
        print("".join(f"# {name}\n" for name in missing), end="")
    failed = [command for command, (_, code) in launched.items() if code]
    print(f"# {len(covered)} of {len(every)} kernels; runs that failed: {failed or 'none'}")
    return 1 if failed or every - covered else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="both by default")
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--slice", default="1/1", metavar="K/N", help="every N-th run, from the K-th on")
    parser.add_argument("--seconds", type=float, default=900, help="limit of all runs together")
    parser.add_argument("--each", type=float, default=900, help="limit of a run")
    parser.add_argument("--launches", action="store_true", help="tell which kernels the runs check")
    parser.add_argument("--list", action="store_true", help="list the runs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    commands = [command for command in RUNS
                if not options.names or any(name in command for name in options.names)]
    for name in options.names:
        if not any(name in command for command in RUNS):
            parser.error(f"no run's command contains \"{name}\": --list lists the runs")
    first, step = (int(number) for number in options.slice.split("/"))
    if not 1 <= first <= step:
        parser.error(f"--slice {options.slice} is none of {step} parts")
    if options.list:
        print("\n".join(commands))
        return 0
    needed = "cuobjdump" if options.launches else "compute-sanitizer"
    if not shutil.which(needed):
        print(f"1..0 # SKIP {needed} is not there")
        return 0
    if options.launches:
        return tell_launches(options, commands)
    return sanitize(options, [(tool, command) for command in commands for tool in options.tool or TOOLS]
                    [first - 1::step])


sys.exit(main())
