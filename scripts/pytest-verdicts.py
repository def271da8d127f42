"""Runs pytest on a small tree of test files and writes its verdict on every test as JSON.

    python scripts/pytest-verdicts.py tests/data/skips/more > tests/data/skips/more/expected.json

The result maps model -> list of [class, test, verdict], where the verdict is `run`, `xfail`, or `skip:`
with the reason. Needs pytest and parameterized.
"""

import json
import os
import sys

import pytest


class Recorder:
    def __init__(self):
        self.verdicts = {}

    def pytest_runtest_logreport(self, report):
        path, cls, test = report.nodeid.split("::")
        model = path.split("/")[-2]
        verdicts = self.verdicts.setdefault(model, {})
        key = (cls, test)
        if hasattr(report, "wasxfail"):
            verdicts[key] = "xfail"
        elif report.skipped:
            verdicts[key] = "skip: " + report.longrepr[2].removeprefix("Skipped: ")
        elif report.when == "call":
            verdicts.setdefault(key, "run")


def main():
    root = os.path.abspath(sys.argv[1])
    os.chdir(root)
    sys.path[:0] = [root, os.path.join(root, "src")]
    recorder = Recorder()
    sys.dont_write_bytecode = True
    stdout, sys.stdout = sys.stdout, sys.stderr
    pytest.main(["-q", "-p", "no:cacheprovider", "tests/models", "--import-mode=importlib"], plugins=[recorder])
    sys.stdout = stdout
    table = {
        model: [[cls, test, verdict] for (cls, test), verdict in sorted(verdicts.items())]
        for model, verdicts in sorted(recorder.verdicts.items())
    }
    models = []
    for model, verdicts in table.items():
        lines = ",\n".join("  " + json.dumps(verdict) for verdict in verdicts)
        models.append(f" {json.dumps(model)}: [\n{lines}\n ]")
    print("{\n" + ",\n".join(models) + "\n}")


if __name__ == "__main__":
    main()
