"""The command line of verify: repeats a run of --reproducible in another folder, and compares the hashes of both."""
import argparse
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from report_lib.records import objects_in, read_settings
from report_lib.text import read_lines, shown

from .fingerprint import are_equal
from .launch import LaunchError, end_with_parent, message_of
from .main import find_program

EPILOG = """RUN is a folder that a training program's --output wrote with --reproducible: it has a hash of weights and optimizer state at the start,
with each checkpoint, and every --hash-every updates. The repetition starts from the run's config.yaml, or from one of its checkpoints, and
ends at the first difference. FLAG: of the program, added to those of the repetition, such as --threads 2.

Exit status: 0 equal, 1 different or an error, 2 a wrong command line."""
METRICS = ("loss", "lr", "gradient_norm", "noise_scale")  # of steps; of epochs train_* and val_*
PAUSE = 0.05  # least seconds between looks at the records of the repetition


class VerifyError(Exception):
    """One line for standard error."""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise VerifyError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


class Record:
    """The records of a run so far: hashes as (step, SHA-256) in order, its data, its resumes."""

    def __init__(self, folder):
        self.folder, path = folder, os.path.join(folder, "metrics.jsonl")
        try:
            lines = read_lines(path)[:-1]
        except OSError as error:
            raise VerifyError(f"{path}: {error.strerror}") from None
        events = [record for _, record in objects_in(lines, path)]
        self.hashes = [(e["step"], e["sha256"]) for e in events if e.get("event") == "hash"]
        self.data = next((e for e in events if e.get("event") == "data"), None)
        self.resumes = [e for e in events if e.get("event") == "resume"]
        self.epochs = {e["step"] for e in events if e.get("event") == "epoch"}
        self.metrics = {(e["step"], e["event"], key): value for e in events if e.get("event") in ("step", "epoch")
                        for key, value in e.items() if key in METRICS or key.startswith(("train_", "val_"))}

    def tensors(self, step, sha256):
        """Names and values of a hash: tensors, then numbers."""
        path = os.path.join(self.folder, "hashes.jsonl")
        for _, record in objects_in(read_lines(path), path):
            if record.get("step") == step and record.get("sha256") == sha256:
                return {**record["tensors"], **record["numbers"]}
        return {}


def started(folder):
    """A line on the program and the machine of a run."""
    env = read_json(os.path.join(folder, "env.json"))
    return ", ".join(str(env.get(key, "?")) for key in ("version", "compiler", "jpeg", "cpu", "cpu_isa"))


class Repetition:
    """The run, and its repetition in a folder."""

    def __init__(self, args):
        self.args, self.run = args, args.run
        self.record, self.settings = Record(args.run), read_settings(args.run)
        if not self.record.hashes:
            raise VerifyError(f"{args.run}: no hashes are recorded: it was trained without --reproducible"
                              + ("" if self.settings.get("reproducible") != "true" else ", or has not begun"))
        self.first, last = args.from_step or 0, max(step for step, _ in self.record.hashes)
        self.last = min(last, self.first + args.steps) if args.steps else last
        self.wanted = [(step, value) for step, value in self.record.hashes if self.first <= step <= self.last]
        if args.from_step:  # the state that the checkpoint has is that of the last start there
            self.wanted = [one for i, one in enumerate(self.wanted) if one[0] > self.first or self.first not in dict(self.wanted[i + 1:])]
        if not self.wanted or self.wanted[-1][0] == self.first < last:
            following = min(step for step, _ in self.record.hashes if step > self.first)
            raise VerifyError(f"{args.run}: no hash is recorded after step {self.first} up to step {self.last}; the next one is at step "
                              f"{following}: --steps {following - self.first}")

    def program(self):
        name = read_json(os.path.join(self.run, "env.json"))["arguments"][0]
        if not self.args.train and os.path.isfile(name) and os.access(name, os.X_OK):
            return os.path.abspath(name)
        try:
            return find_program(self.args.train, os.path.basename(name))
        except LaunchError as error:
            raise VerifyError(str(error)) from None

    def hash_every(self):
        """Updates between hashes, so that there is one at each recorded step, also where the run was interrupted."""
        usual = int(self.settings.get("hash-every", "0"))
        every = [n for n in (usual, int(self.settings.get("checkpoint-every", "0"))) if n]
        ends = self.record.epochs - {resume["step"] for resume in self.record.resumes}
        odd = [step for step, _ in self.wanted if step not in ends and all(step % n for n in every)]
        return math.gcd(usual, *odd) if odd else usual

    def plugins(self):
        files = [path for path in self.settings.get("plugin", "").split(", ") if path]
        if files and not self.args.allow_plugin:
            raise VerifyError(f"{self.run}: plugin {files[0]} is code that the repetition would run: --allow-plugin permits it")
        for path in files:
            if not os.path.exists(path):
                raise VerifyError(f"{self.run}: plugin {path} is missing: the run was trained with it")
        return ["--allow-plugin"] if files else []

    def command(self, folder):
        ranks = read_json(os.path.join(self.run, "env.json")).get("ranks", 1)
        flags = ["--config", os.path.join(self.run, "config.yaml"), "--output", folder, "--progress", "off", "--no-tensorboard",
                 "--hash-every", str(self.hash_every()), *self.plugins()]
        for key in ("grad-accum", "limit-train-batches", "limit-eval-batches", "overfit-batches"):  # of a rank
            if ranks > 1 and int(self.settings.get(key, "0")):
                flags += [f"--{key}", str(ranks * int(self.settings[key]))]
        if self.args.from_step:
            path = os.path.join(self.run, "checkpoints", f"step-{self.args.from_step}")
            if not os.path.isdir(path):
                raise VerifyError(f"{path}: no such checkpoint")
            flags += ["--resume", path]
        return [self.program(), *flags, *(["--data", self.args.data] if self.args.data else []), *self.args.flags]

    def check_data(self, data):
        for key in ("samples", "fingerprint", "bytes") if self.record.data and data else ():
            values = self.record.data.get(key), data.get(key)
            if not are_equal(*values):
                raise VerifyError(f"other data: the run had {key} {values[0]}, the repetition has {values[1]} "
                                  f"({self.args.data or self.settings.get('data')})")

    def difference(self, repeated):
        """The first recorded hash that differs: (step, hash of the run, of the repetition); None if none does so far. The second value:
        whether all were compared."""
        hashes = dict(repeated.hashes)
        for step, value in self.wanted:
            if step in hashes and hashes[step] != value:
                return (step, value, hashes[step]), True
        return None, all(step in hashes for step, _ in self.wanted)

    def watch(self, process, folder, errors):
        """Compares until the first difference or the end. errors: the repetition's. Returns the difference, or None."""
        repeated = None
        while True:
            begin = time.monotonic()
            ended = process.poll() is not None
            if os.path.exists(os.path.join(folder, "metrics.jsonl")):
                repeated = Record(folder)
                self.check_data(repeated.data)
                found, complete = self.difference(repeated)
                if complete:
                    return found
            if ended and (process.returncode or not repeated):
                errors.seek(0)
                raise VerifyError(f"the repetition failed: {message_of(errors.read(), process.returncode)}")
            if ended:
                missing = [step for step, _ in self.wanted if step not in dict(repeated.hashes)]
                raise VerifyError(f"the repetition ended without a hash at step {missing[0]}, which the run has")
            self.progress(repeated)
            time.sleep(max(PAUSE, 10 * (time.monotonic() - begin)))

    def progress(self, repeated):
        """Shows on a terminal how many hashes are equal so far."""
        if repeated and sys.stderr.isatty():
            hashes = dict(repeated.hashes)
            equal = sum(step in hashes for step, _ in self.wanted)
            print(f"\r{equal} of {len(self.wanted)} hashes are equal", end="", file=sys.stderr, flush=True)

    def report(self, found, folder):
        """Prints the result; returns whether something differs."""
        print(shown(f"run:        {started(self.run)}\nrepetition: {started(folder)}").replace("\\x0a", "\n"))
        steps, repeated = sorted({step for step, _ in self.wanted}), Record(folder)
        metrics = sorted(k for k in self.record.metrics.keys() & repeated.metrics.keys() if self.first < k[0] <= self.last)
        others = [k for k in metrics if self.record.metrics[k] != repeated.metrics[k]]
        if not found:
            print(f"equal: {len(steps)} hashes of weights and optimizer state, from step {steps[0]} to step {steps[-1]}")
            for step, event, key in others[:1]:
                print(shown(f"different: {key} in the record of the {event} at step {step} is {self.record.metrics[step, event, key]}, "
                            f"repeated {repeated.metrics[step, event, key]} ({len(others)} of {len(metrics)} metrics differ)"))
            if not others:
                print(f"equal: {len(metrics)} metrics")
            return bool(others)
        step, value, other = found
        ours, theirs = self.record.tensors(step, value), repeated.tensors(step, other)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        equal = [s for s in steps if s < step]
        print(f"different at step {step}" + (f", equal at step {equal[-1]}" if equal else ""))
        if ours:
            print(shown(f"first tensor that differs: {names[0] if names else 'unknown'} ({len(names)} of {len(ours)} differ)"))
        if equal and step - equal[-1] > 1:
            print(f"no hash is recorded from step {equal[-1] + 1} to step {step - 1}: a run with --hash-every 1 has one for each update")
        return True

    def compare(self, folder):
        command = self.command(folder)
        for resume in self.record.resumes:
            if "changed" in resume and resume["step"] > self.first:
                print(shown(f"note: the run was resumed at step {resume['step']} with changes: {resume['changed']}"))
        print(shown("repeats " + shlex.join(command)), flush=True)
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=end_with_parent)
            try:
                found = self.watch(process, folder, errors)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()
                if sys.stderr.isatty():
                    print(file=sys.stderr)
        return int(self.report(found, folder))


def parse(argv):
    parser = argparse.ArgumentParser(prog="lather verify", usage="%(prog)s RUN [OPTION]... [-- FLAG...]", description="Repeats a run of --reproducible and compares hashes of its state.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--from-step", type=int, metavar="K", help="repeat from the run's checkpoint of step K; default: from the start")
    parser.add_argument("--steps", type=int, metavar="L", help="compare L steps only; default: all")
    parser.add_argument("--data", metavar="DIR", help="data set, if it is in another place than config.yaml names")
    parser.add_argument("--train", metavar="FILE", help="program; default: the run's, searched in build folders and PATH")
    parser.add_argument("--output", metavar="DIR", help="folder of the repetition, which is kept; default: a temporary one")
    parser.add_argument("--allow-plugin", action="store_true", help="load the plugins of config.yaml: they are code")
    own = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:own])
    args.flags = argv[own + 1:]
    for name in ("from_step", "steps"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: must be at least 1")
    return args


def main(argv):
    args = parse(argv)
    folder = args.output or os.path.join(tempfile.mkdtemp(prefix="lather-verify-"), "run")
    try:
        return Repetition(args).compare(folder)
    except (VerifyError, OSError) as error:
        print(f"verify: {shown(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    finally:
        if not args.output:
            shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
