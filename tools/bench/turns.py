"""Contestants that run alternately, their numbers, tables and command lines: shared by the scripts that measure."""
import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

CANNOT = 77  # exit status: this machine or this build lacks a requirement
NETBED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../netbed")
QUIET = dict(os.environ, OMP_WAIT_POLICY="passive")
MPI = dict(QUIET, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_btl_base_warn_component_unused="0")


class Failed(Exception):
    """A contestant's failure, with a line that says why."""


class TimeUp(Failed):
    def __init__(self):
        super().__init__("no time was left")


def cannot(why):
    print(why, file=sys.stderr)
    sys.exit(CANNOT)


# --- Command lines ----------------------------------------------------------------------------------------------------


def command(**options):
    """Declares a function's options by name and default: a bool is a flag, a list may be repeated, a tuple has the choices with
    the default first, a type is a required value, ... a positional argument, None a text that may be missing."""
    def attach(work):
        work.options = options
        return work
    return attach


def add_option(parser, name, default):
    flag, more = "--" + name.replace("_", "-"), {"default": default}
    if default is ...:
        flag, more = name, {}
    elif isinstance(default, bool):
        more = {"action": "store_true"}
    elif isinstance(default, list):
        more = {"action": "append", "default": default}
    elif isinstance(default, tuple):
        more = {"choices": default, "default": default[0]}
    elif isinstance(default, type):
        more = {"type": default, "required": True}
    elif default is not None:
        more = {"type": type(default), "default": default, "help": f"default: {default}"}
    parser.add_argument(flag, **more)


def main(doc, *works):
    """Runs the function that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for work in works:
        p = commands.add_parser(work.__name__.replace("_", "-"), description=work.__doc__)
        p.set_defaults(work=work)
        for name, default in work.options.items():
            add_option(p, name, default)
    a = parser.parse_args()
    try:
        return a.work(a) or 0
    except Failed as failure:
        print(f"{os.path.basename(sys.argv[0])}: {failure}", file=sys.stderr)
        return 1


# --- Programs ---------------------------------------------------------------------------------------------------------


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


def bench(build, *words, launcher=(), patience=None, **options):
    """The object of one of our benchmarks."""
    return json.loads(run([*launcher, os.path.join(build, "tools/bench"), *words, "--json"], patience, **options))


def payload_rate(rate):
    """Gbit/s that TCP leaves of a rate such as 400mbit: 1448 of 1514 bytes of a frame."""
    number, unit = float(rate[:-4]), {"kbit": 1e-6, "mbit": 1e-3, "gbit": 1}[rate[-4:]]
    return number * unit * 1448 / 1514


def steps_of(folder, skipped=0):
    """Records of a run's steps, without the first ones; [] without a run."""
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"][skipped:]


def train(program, *flags, launcher=(), skipped=0, patience=None, env=None):
    """The step records of a run after the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run([*launcher, program, *flags, "--progress", "off", "--no-tensorboard", "--limit-eval-batches", "1", "--output", out], patience,
            env=env or QUIET)
        return steps_of(out, skipped)


@contextlib.contextmanager
def nodes(name, count, ranks, rate, *more):
    """Brings up nodes of tools/netbed; yields the words that precede a command that runs on them."""
    netbed = [NETBED, "--name", name]
    up = subprocess.run(list(map(str, [*netbed, "up", count, "--ranks", ranks, "--rate", rate, *more])), capture_output=True, text=True, check=False)
    if up.returncode:
        print(up.stderr.strip(), file=sys.stderr)
        sys.exit(up.returncode)
    try:
        yield [*netbed, "run"]
    finally:
        subprocess.run([*netbed, "down"], capture_output=True, check=False)


# --- Rounds and tables ------------------------------------------------------------------------------------------------


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
