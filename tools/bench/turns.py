"""Contestants that run in turn, their numbers and tables: shared by peer.py and programs.py."""
import json
import math
import os
import statistics
import subprocess
import sys
import time

CANNOT = 77  # exit status: this machine or this build lacks a requirement


class Failed(Exception):
    """A contestant's failure, with a line that says why."""


class TimeUp(Failed):
    def __init__(self):
        super().__init__("no time was left")


def cannot(why):
    print(why, file=sys.stderr)
    sys.exit(CANNOT)


def work_on(a):
    """Runs the chosen command; returns the exit status."""
    try:
        return a.work(a) or 0
    except Failed as failure:
        print(f"{os.path.basename(sys.argv[0])}: {failure}", file=sys.stderr)
        return 1


def telling_line(text):
    """The first line that one of our programs printed about its failure, else the last error, else the last line."""
    said = [line for line in text.splitlines() if line.strip()] or ["no message"]
    ours = [line for line in said if line.startswith(("train_", "bench ", "lather"))]
    errors = [line for line in said if "Error" in line]
    return (ours[:1] or errors[-1:] or said[-1:])[0][:160].replace("|", "/")


def run(words, patience=None, **options):
    """Standard output of a program."""
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=patience, check=False, **options)
    except OSError as error:
        raise Failed(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise TimeUp from error
    if done.returncode == CANNOT:
        cannot(telling_line(done.stderr))
    if done.returncode:
        raise Failed(telling_line(done.stderr))
    return done.stdout


def bench(build, *words, **options):
    """The object of one of our benchmarks."""
    return json.loads(run([os.path.join(build, "tools/bench"), *words, "--json"], **options))


def steps_of(folder, skipped=0):
    """Records of a run's steps, without the first ones."""
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"][skipped:]


def play(contestants, rounds, deadline=math.inf):
    """({name: results of the rounds}, {name: why it failed}) of {name: function}. In each round every contestant runs once,
    so that a slow minute of the machine affects all equally; failed ones are left out. Ends when another round would not fit."""
    runs, why = {}, {}
    for done in range(rounds):
        began = time.monotonic()
        for name, turn in contestants.items():
            if name in why:
                continue
            try:
                runs.setdefault(name, []).append(turn())
                print(f"round {done + 1}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
            except Failed as failure:
                if not runs[name] or not isinstance(failure, TimeUp):  # else it has its numbers
                    why[name] = failure
        # The first round compiles; the later ones take a fraction of it.
        if time.monotonic() + (time.monotonic() - began if done else 20) > deadline:
            break
    return {name: results for name, results in runs.items() if results}, why


def all_of(runs_and_why):
    """The results of contestants none of which may fail."""
    runs, why = runs_and_why
    if why:
        raise Failed("; ".join(f"{name}: {failure}" for name, failure in why.items()))
    return runs


def median(values, key=None):
    return statistics.median(v[key] if key is not None else v for v in values)


def ratio(over, under, key=None):
    """Median of the ratios within rounds."""
    pick = (lambda v: v[key]) if key is not None else (lambda v: v)
    return statistics.median(pick(a) / pick(b) for a, b in zip(over, under))


def head(*cells):
    print(f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}")


def row(*cells):
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'an unknown CPU'}, {len(os.sched_getaffinity(0))} cores"
