#!/usr/bin/env python3
"""Kills a run that checkpoints every few steps, at random moments, and resumes it each time.

    tools/kill_storm.py TRAIN_RESNET50|TRAIN_VIT [--kills 20] [--seed N]

Every resume must work; none may start from an older checkpoint than the newest complete one that the killed
process had left; and the run must end with the same weights, bit for bit, as one that was not killed. Exit
status 0 if all that holds, 77 if the program does not exist. The last lines have the number of rows that passed.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from stormlib import Rows, complete_steps, flags, network, records

EVERY = 2  # steps between checkpoints


def command(program, folder, steps):
    return [program, *flags(steps, folder), "--data", "synthetic:64:16:4", *network(program),
            "--batch-size", "8", "--precondition-frequency", "3", "--checkpoint-every", str(EVERY),
            "--progress", "lines", "--log-every", "1"]


def complete_step(folder):
    """The step of the newest complete checkpoint, or 0 without one."""
    return max(complete_steps(folder), default=0)


def logged(folder):
    """Steps in metrics.jsonl, in the order written."""
    return [r["step"] for r in records(folder) if r.get("event") == "step"]


def run_to_end(program, folder, steps, limit=600):
    return subprocess.run(command(program, folder, steps), capture_output=True, text=True,
                          timeout=limit, stdin=subprocess.DEVNULL)


def weights(folder):
    newest = f"{folder}/checkpoints/step-{complete_step(folder)}/model.safetensors"
    with open(newest, "rb") as file:
        return file.read()


class Storm(Rows):
    def __init__(self, program, kills, seed):
        super().__init__()
        self.program, self.kills, self.random = program, kills, random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="kill-storm-")

    def one(self, folder, steps, longest):
        """Starts the run, kills it after a random time, and checks the files it left."""
        before = complete_step(folder)
        with open(f"{self.folder}/stderr", "w+", encoding="utf-8") as errors:
            process = subprocess.Popen(command(self.program, folder, steps), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=errors)
            try:
                process.wait(self.random.uniform(0.02, longest))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            errors.seek(0)
            said = errors.read()
        after = complete_step(folder)
        ended = process.returncode not in (0, -signal.SIGKILL)
        self.row(not ended and after >= before,
                 f"from step {before}: exit status {process.returncode}, now {after}: {said[-300:]}")
        steps_seen = logged(folder)
        lost = [b for a, b in zip(steps_seen, steps_seen[1:]) if b > a + 1]
        if lost:
            self.row(False, f"steps are missing before {lost}")
        return after

    def run(self):
        probe = f"{self.folder}/probe"
        start = time.monotonic()
        done = run_to_end(self.program, probe, 6)
        if done.returncode:
            print(done.stderr[-400:])
            self.row(False, "the run does not work even when it is not killed")
            return
        longest = 1.2 * (time.monotonic() - start)
        storm, calm = f"{self.folder}/storm", f"{self.folder}/calm"
        far = 1_000_000
        killed_at = [self.one(storm, far, longest) for _ in range(self.kills)]
        # A few more steps, then compare with a run that was not killed.
        end = complete_step(storm) + 3
        for folder in (storm, calm):
            done = run_to_end(self.program, folder, end)
            self.row(done.returncode == 0, f"the last part of {folder}: {done.stderr[-300:]}")
        same = self.failed == 0 and weights(storm) == weights(calm)
        self.row(same, f"after step {end} the weights differ from those of a run without kills")
        rests = [p for p in os.listdir(f"{storm}/checkpoints")
                 if not (p.startswith("step-") and p[5:].isdigit())]
        self.row(not [r for r in rests if os.path.isdir(f"{storm}/checkpoints/{r}")
                      and not os.path.islink(f"{storm}/checkpoints/{r}")],
                 f"unfinished folders are left: {rests}")
        print(f"{self.kills} kills, complete checkpoints after each: {killed_at}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        print(f"{args.program} is not there")
        sys.exit(77)
    print(f"seed {args.seed}")
    storm = Storm(os.path.abspath(args.program), args.kills, args.seed)
    try:
        storm.run()
    finally:
        shutil.rmtree(storm.folder, ignore_errors=True)
    sys.exit(storm.finish())


main()
