"""Compares `burnscope skips --inventory` with skip flags read from imported test classes.

    python scripts/compare-skips-truth.py skips_inventory.json runtime_truth.json.gz

The truth maps file -> class -> {"class_skip": reason or null, "skipped": {test: reason},
"tests": [name]}; it is what unittest's own attributes said after importing every file on one machine.
Conditional skips depend on that machine: they agree if the scan calls them conditional and the truth's
reason is one of the scan's. Every other difference is printed, and the exit code is 1 if there is one.
"""

import argparse
import collections
import gzip
import json
import re


def load(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def matches(name, pattern):
    """Whether a test name fits a name of the scan, which may hold `*` or `<expression>`."""
    parts = re.split(r"(\*|<[^>]*>)", pattern)
    expression = "".join(".*" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.fullmatch(expression, name) is not None


def reasons(reason):
    return set((reason or "").split("; "))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inventory")
    parser.add_argument("truth")
    parser.add_argument("--bodies", action="store_true", help="list the skips found in bodies")
    args = parser.parse_args()
    scan, truth = load(args.inventory), load(args.truth)
    counts = collections.Counter()
    differences = []
    body = []
    # Every reason that some machine may give: an outer conditional decorator replaces the reason of an
    # inner unconditional one where its condition is not met.
    machine = set()
    for classes in scan.values():
        for entry in classes.values():
            machine |= reasons(entry["class_conditions"])
            for verdict in entry["tests"].values():
                if verdict["status"] == "conditional":
                    machine |= reasons(verdict["reason"])

    def differ(kind, *what):
        counts[kind] += 1
        differences.append((kind, *what))

    for file, classes in truth.items():
        ours = scan.get(file, {})
        for name in sorted(set(ours) - set(classes)):
            if not ours[name]["imported"]:
                differ("class only in the scan", file, name)
        for name, real in classes.items():
            counts["classes"] += 1
            if name not in ours:
                differ("class missing from the scan", file, name)
                continue
            entry = ours[name]
            tests = entry["tests"]
            exact = {test for test, verdict in tests.items() if verdict["status"] != "shadowed"}
            patterns = {test for test in exact if "*" in test or "<" in test}
            for test in real["tests"]:
                counts["tests"] += 1
                if test in exact or any(matches(test, pattern) for pattern in patterns):
                    continue
                differ("test missing from the scan", file, name, test)
            for test in exact - patterns - set(real["tests"]):
                differ("test only in the scan", file, name, test, tests[test]["status"])
            for pattern in patterns:
                if not any(matches(test, pattern) for test in real["tests"]):
                    differ("case only in the scan", file, name, pattern)
            if real["class_skip"] is not None:
                counts["skipped classes"] += 1
                ok = real["class_skip"] == entry["class_skip"] or real["class_skip"] in reasons(entry["class_conditions"])
                if not ok:
                    differ("class skip", file, name, real["class_skip"], entry["class_skip"], entry["class_conditions"])
            elif entry["class_skip"] is not None:
                differ("class skip only in the scan", file, name, entry["class_skip"])
            for test in real["tests"]:
                verdict = tests.get(test)
                if verdict is None:
                    verdict = next((tests[p] for p in patterns if matches(test, p)), None)
                if verdict is None:
                    continue
                by_flag = test in real["skipped"]
                status = verdict["status"]
                if by_flag:
                    counts["skipped tests"] += 1
                    reason = real["skipped"][test]
                    if status == "skipped_by_class":
                        counts["skipped with the class"] += 1
                    elif status in ("skipped", "inherited"):
                        counts["skipped unconditionally"] += 1
                        if (verdict["reason"] or "") != reason and reason in machine:
                            counts["skipped unconditionally, but the truth shows an outer condition's reason"] += 1
                        elif (verdict["reason"] or "") != reason:
                            differ("reason", file, name, test, reason, verdict["reason"])
                    elif status == "conditional":
                        counts["skipped on this machine"] += 1
                        if reason not in reasons(verdict["reason"]) and reason not in (verdict["reason"] or ""):
                            differ("conditional reason", file, name, test, reason, verdict["reason"])
                    elif status == "flag":
                        counts["skipped by decorator and flag"] += 1
                    else:
                        differ("skip missed", file, name, test, reason, status)
                elif status in ("skipped", "inherited"):
                    # The truth holds flags set by decorators; a skip in the body is not among them.
                    counts["skipped by the body, which sets no flag"] += 1
                    body.append((file, name, test, verdict["reason"]))
    for kind, number in sorted(counts.items()):
        print(f"{number:7} {kind}")
    if args.bodies:
        for skip in body:
            print(*skip, sep=" | ")
    for difference in differences:
        print(*difference, sep=" | ")
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
