#!/usr/bin/env python3
"""Runs of train_mlp that take turns on a device: --share-device.

    share.py TRAIN_MLP MPIRUN|none [ROW]
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from rows import MPI, Skip, run_rows  # noqa: E402
from trainer import NOISE, PROGRAM, TIMEOUT, USAGE, digest, fails, run  # noqa: E402

LAUNCHER = sys.argv[2]
QUIET = ["--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic", "--hidden", "8"]
STEPS = 12


def session(cwd):
    return "row-" + os.path.basename(cwd)


def left_over(cwd):
    return [name for name in os.listdir("/dev/shm") if session(cwd) in name]


def start(*args, cwd, ranks=1):
    if ranks > 1 and LAUNCHER == "none":
        raise Skip("no MPI in this build")
    launcher = [LAUNCHER, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.Popen([*launcher, PROGRAM, *NOISE, *QUIET, *args], cwd=cwd, env={**os.environ, **MPI}, stderr=subprocess.PIPE, text=True)


def finish(p):
    err = p.communicate(timeout=TIMEOUT)[1]
    assert p.returncode == 0, f"exit {p.returncode}: {err[-600:]}"


def job(name, optim, *args):
    return ["--optim", optim, "--seed", str(len(name)), "--max-steps", str(STEPS), "--output", name, *args]


def steps(cwd, name):
    with open(os.path.join(cwd, name, "metrics.jsonl")) as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def weights(cwd, name):
    return digest(os.path.join(cwd, name, "model.safetensors"))


def check_bits(cwd, ranks):
    jobs = {"a": ["sgd"], "bb": ["shampoo"]}
    for name, args in jobs.items():
        finish(start(*job(name, *args), cwd=cwd, ranks=ranks))
    alone = {name: weights(cwd, name) for name in jobs}
    together = [start(*job(name + "-shared", *args, "--seed", str(len(name)), "--share-device", f"{session(cwd)}:{i + 1}"), cwd=cwd, ranks=ranks)
                for i, (name, args) in enumerate(jobs.items())]
    for p in together:
        finish(p)
    for name in jobs:
        assert weights(cwd, name + "-shared") == alone[name], f"{name} differs from the run alone"
        found = steps(cwd, name + "-shared")
        assert len(found) == STEPS and all(r["turn_seconds"] >= 0 for r in found), found
        assert "turn" not in steps(cwd, name)[0], "a run alone has no turns"
    assert not left_over(cwd), left_over(cwd)


def jobs_of_one_process_have_the_bits_of_runs_alone(cwd):
    check_bits(cwd, 1)


def jobs_of_two_ranks_have_the_bits_of_runs_alone(cwd):
    check_bits(cwd, 2)


def recorded(cwd, name):
    path = os.path.join(cwd, name, "metrics.jsonl")
    if not os.path.exists(path):
        return 0
    with open(path) as f:
        return f.read().count("\n")


def wait_for(p, cwd, name, records):
    while recorded(cwd, name) < records:
        assert p.poll() is None, p.communicate()[1]
        time.sleep(0.01)


def a_killed_job_does_not_stop_the_other(cwd):
    shared = ["--share-device", session(cwd)]
    first = start(*job("first", "sgd", *shared, "--max-steps", "100000", "--epochs", "100000"), cwd=cwd)
    wait_for(first, cwd, "first", 3)
    second = start(*job("second", "sgd", *shared, "--max-steps", "300", "--epochs", "50", "--eval-every", "-1"), cwd=cwd)  # longer than a busy machine lets this wait
    wait_for(second, cwd, "second", 2)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT)
    finish(second)
    assert len(steps(cwd, "second")) == 300 and not left_over(cwd)


def flags_that_are_wrong(cwd):
    for text, says in (("x:0", "weight 0, want a number from 1 to 1000"), ("x:-3", "weight -3, want"), ("a b", "session name 'a b'"),
                       ("x:1.5", "want NAME or NAME:WEIGHT")):
        fails(*NOISE, *QUIET, "--max-steps", "1", "--share-device", text, cwd=cwd, code=USAGE, says=says)


def an_evaluation_takes_a_turn(cwd):
    run(*NOISE, *QUIET, "--max-steps", "2", "--output", "made", cwd=cwd)
    text = run("--eval", "--weights", "made/model.safetensors", *NOISE, "--threads", "1", "--share-device", session(cwd), cwd=cwd).stdout
    assert "top-1" in text and not left_over(cwd)


ROWS = [jobs_of_one_process_have_the_bits_of_runs_alone, jobs_of_two_ranks_have_the_bits_of_runs_alone, a_killed_job_does_not_stop_the_other,
        flags_that_are_wrong, an_evaluation_takes_a_turn]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-share-", sys.argv[3] if len(sys.argv) > 3 else None))
