"""Times `burnscope skips` beside the original script on one checkout.

    python scripts/time-skips.py target/release/burnscope CHECKOUT [--runs 10]

Prints the best and the median wall time, and the processor time, of each. Runs alternate, so that a busy
machine disturbs both alike. Each run writes its result into a temporary folder.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def run(command, cwd):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("checkout")
    parser.add_argument("--runs", type=int, default=10)
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    with tempfile.TemporaryDirectory() as out:
        commands = {
            "burnscope skips": [binary, "skips", "--output-dir", out],
            "burnscope skips --compat": [binary, "skips", "--compat", "--output-dir", out],
            "scan_skipped_tests.py": [sys.executable, "utils/scan_skipped_tests.py", "--output_dir", out],
        }
        times = {name: [] for name in commands}
        for _ in range(args.runs):
            for name, command in commands.items():
                times[name].append(run(command, args.checkout))
    print(f"{'':26} {'best':>7} {'median':>7} {'cpu':>7}   (s, {os.cpu_count()} cores, {args.runs} runs)")
    for name, measured in times.items():
        walls = [wall for wall, _ in measured]
        cpu = statistics.median(cpu for _, cpu in measured)
        print(f"{name:26} {min(walls):7.3f} {statistics.median(walls):7.3f} {cpu:7.3f}")


if __name__ == "__main__":
    main()
