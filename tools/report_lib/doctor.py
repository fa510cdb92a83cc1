"""The command line of doctor: reads run folders, applies the rules, prints findings, the most likely cause first."""
import argparse
import json
import math
import os
import statistics
import sys

from . import doctor_rules
from .checked import Problem, parse as parse_json
from .optim_stats import read_optim_stats
from .records import read_settings
from .text import read_lines, shown

SEVERITIES = ("error", "warning", "note")
EPILOG = """RUN is a folder that a training program's --output wrote. Rules that look into the optimizer need --optim-stats N.
Each finding has its evidence and flags to try; docs/guides/doctor.md lists the rules.

Exit status: 0 done, with findings or without, 1 an error, 2 a wrong command line."""


def median(values):
    found = [v for v in values if math.isfinite(v)]
    return statistics.median(found) if found else math.nan


class Run:
    """Records of a run folder. Numbers that a record does not have are NaN, settings that are not known ""."""

    def __init__(self, path):
        self.path, self.events, self.notes, self.stats = path, {}, [], None
        file = os.path.join(path, "metrics.jsonl")
        for i, line in enumerate(read_lines(file)):
            try:
                record = parse_json(line, file, i + 1)
            except ValueError:
                continue  # torn by a kill, or being written
            if isinstance(record, dict) and isinstance(record.get("event"), str):
                self.events.setdefault(record["event"], []).append(record)
        self.steps = [record for record in self.events.get("step", []) if isinstance(record.get("step"), int)]
        self.epochs = self.events.get("epoch", [])
        if not self.steps:
            raise Problem(f"{file}: no steps in it")
        self.settings = read_settings(path)
        self.optim = self.text("optim")
        self.last_step, self.lr = max(self.of(self.steps, "step")), dict(zip(self.of(self.steps, "step"), self.of(self.steps, "lr")))
        try:
            self.stats = (read_optim_stats(path) or [None])[-1]  # the newest settings
        except Problem as problem:
            self.notes.append(str(problem))

    def of(self, records, key):
        """A number of each record."""
        return [float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else math.nan for v in (r.get(key) for r in records)]

    def text(self, name):
        return self.settings.get(name, "").strip('"')

    def number(self, name):
        try:
            return float(self.text(name))
        except ValueError:
            return math.nan

    def classes(self):
        try:
            path = os.path.join(self.path, "checkpoints", "latest", "state.json")
            found = parse_json("\n".join(read_lines(path)), path)
            return found["classes"] if isinstance(found, dict) and isinstance(found.get("classes"), int) else 0
        except (OSError, ValueError):
            return 0

    def recent(self, table, column):
        """Median of each row over the later half of the records, without those at the end of a schedule, whose lr is low."""
        if not self.stats:
            return []
        peak = max((v for v in self.lr.values() if math.isfinite(v)), default=math.nan)
        late = [r for r, step in enumerate(self.stats.steps) if 2 * r >= len(self.stats.steps) - 1]
        used = [r for r in late if not self.lr.get(self.stats.steps[r], peak) < 0.1 * peak] or late
        return [median([series[r] for r in used]) for series in (self.stats.series(table, i, column) for i in range(len(self.stats.rows(table))))]

    def rules(self):
        """The rule of each parameter at the last record."""
        count = range(len(self.stats.rows("parameter"))) if self.stats else ()
        return [self.stats.rule(self.stats.series("parameter", i, "rule")[-1]) for i in count]


def examine(run):
    """The findings of a run, the most likely cause first."""
    found = [{"rule": "unreadable", "severity": "note", "text": note, "evidence": {}, "flags": []} for note in run.notes]
    for name, function in doctor_rules.RULES.items():
        finding = function(run)
        if finding:
            severity, text, evidence, flags = finding
            evidence = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in evidence.items()}
            found.append({"rule": name, "severity": severity, "text": text, "evidence": evidence, "flags": flags})
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


def main(argv):
    parser = argparse.ArgumentParser(prog="lather doctor", description="Names likely causes of a bad training run, with evidence and flags to try.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--json", action="store_true", help="print one JSON object: findings with rule, severity, evidence, flags")
    args = parser.parse_args(argv)
    try:
        runs = [Run(path) for path in args.run]
        found = [examine(run) for run in runs]
    except Problem as problem:
        print(f"doctor: {shown(str(problem))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"doctor: {shown(str(error.filename))}: {error.strerror}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"format": 1, "runs": [{"path": run.path, "optim": run.optim, "steps": run.last_step, "findings": findings}
                                                for run, findings in zip(runs, found)]}, indent=1))
    else:
        for run, findings in zip(runs, found):
            print_run(run, findings)
    return 0
