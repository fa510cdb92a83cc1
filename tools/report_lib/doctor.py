"""The command line of doctor: reads run folders, applies the rules, prints findings, the most likely cause first."""
import argparse
import json
import os
import re
import sys

from .checked import Problem
from .doctor_rules import RULES, Rules, finding
from .text import shown

LIBRARY = ("", "sgd", "adagrad", "adam", "adamw", "shampoo", "soap", "muon", "lars", "lamb", "lion", "adafactor", "prodigy")  # optimizers; "" is not known
SEVERITIES = ("error", "warning", "note")
EPILOG = """RUN is a folder that a training program's --output wrote. Rules that look into the optimizer need --optim-stats N.
Each finding has its evidence and flags to try; docs/guides/doctor.md lists the rules.

Exit status: 0 done, with findings or without, 1 an error, 2 a wrong command line."""


def takes(run, flag):
    """False if the optimizer is a plugin's, and config.yaml has no such setting."""
    names = [key or name for key, name in re.findall(r"--opt-kwargs ([a-z0-9-]+)=|--([a-z0-9-]+)", flag)]
    return run.optim in LIBRARY or all(name in run.settings or name == "optim-stats" for name in names)


def examine(run):
    """The findings of a run, the most likely cause first."""
    found = [{"rule": "unreadable", **finding("note", "{note}", [], note=note)} for note in run.notes]
    found += [{"rule": name, **one} for name, one in ((name, getattr(run, name)()) for name in RULES) if one]
    for one in found:
        one["flags"] = [flag for flag in one["flags"] if takes(run, flag)]
    return sorted(found, key=lambda one: SEVERITIES.index(one["severity"]))


def print_run(run, findings):
    records = f"{len(run.stats.steps)} records of --optim-stats" if run.stats else "no records of --optim-stats"
    print(shown(f"{run.path}: {run.optim or 'unknown optimizer'}, {run.last_step:.0f} steps, {records}"))
    if all(one["severity"] == "note" for one in findings):
        print("  nothing alarming")
    for i, one in enumerate(findings):
        print(shown(f"  {i + 1}. {one['severity']}: {one['text']} [{one['rule']}]"))
        if one["flags"]:
            print(shown(f"     try {' or '.join(one['flags'])}"))


def show(runs, found, as_json):
    if as_json:
        print(json.dumps({"format": 1, "runs": [{"path": run.path, "optim": run.optim, "steps": run.last_step, "findings": findings}
                                                for run, findings in zip(runs, found)]}, indent=1))
    else:
        for run, findings in zip(runs, found):
            print_run(run, findings)
    sys.stdout.flush()


def printed(output):
    """Calls output(); returns the exit status. A reader that stops early, as head does, is no error."""
    try:
        output()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        if not isinstance(error, BrokenPipeError):
            print(f"doctor: stdout: {error.strerror}", file=sys.stderr)
        return 0 if isinstance(error, BrokenPipeError) else 1
    return 0


def main(argv):
    parser = argparse.ArgumentParser(prog="lather doctor", description="Names likely causes of a bad training run, with evidence and flags to try.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--json", action="store_true", help="print one JSON object: findings with rule, severity, evidence, flags")
    args = parser.parse_args(argv)
    try:
        runs = [Rules(path) for path in args.run]
        found = [examine(run) for run in runs]
    except Problem as problem:
        print(f"doctor: {shown(str(problem))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"doctor: {shown(str(error.filename))}: {error.strerror}", file=sys.stderr)
        return 1
    return printed(lambda: show(runs, found, args.json))
