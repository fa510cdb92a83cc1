#!/usr/bin/env python3
"""Runs of train_mlp that time-share a device: --share-device.

    share.py TRAIN_MLP MPIRUN|none [ROW]
"""
import os
import signal
import sys

from trainer import NOISE, OK, TIMEOUT, USAGE, content, digest, fails, finish, run, run_rows, start_ranks, steps_of, wait_for

LAUNCHER = sys.argv[2]
QUIET = ["--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic", "--hidden", "8"]
STEPS = 12


def session(cwd):
    return "row-" + os.path.basename(cwd)


def left_over(cwd):
    return [name for name in os.listdir("/dev/shm") if session(cwd) in name]


def start(*args, cwd, ranks=1):
    return start_ranks(LAUNCHER, (ranks, [*NOISE, *QUIET, *args]), cwd=cwd)


def job(name, optim, *args):
    return ["--optim", optim, "--seed", str(len(name)), "--max-steps", str(STEPS), "--output", name, *args]


def weights(cwd, name):
    return digest(os.path.join(cwd, name, "model.safetensors"))


def check_bits(cwd, ranks):
    jobs = {"a": ["sgd"], "bb": ["shampoo"]}
    for name, args in jobs.items():
        finish(start(*job(name, *args), cwd=cwd, ranks=ranks), OK)
    alone = {name: weights(cwd, name) for name in jobs}
    together = [start(*job(name + "-shared", *args, "--seed", str(len(name)), "--share-device", f"{session(cwd)}:{i + 1}"), cwd=cwd, ranks=ranks)
                for i, (name, args) in enumerate(jobs.items())]
    for p in together:
        finish(p, OK)
    for name in jobs:
        assert weights(cwd, name + "-shared") == alone[name], f"{name} differs from the run alone"
        found = steps_of(cwd, name + "-shared")
        assert len(found) == STEPS and all(r["turn_seconds"] >= 0 for r in found), found
        assert "turn" not in steps_of(cwd, name)[0], "a run alone has turns"
    assert not left_over(cwd), left_over(cwd)


def shared_runs_of_one_process_are_bitwise_identical(cwd):
    check_bits(cwd, 1)


def shared_runs_of_two_ranks_are_bitwise_identical(cwd):
    check_bits(cwd, 2)


def recorded(cwd, name):
    path = os.path.join(cwd, name, "metrics.jsonl")
    return content(path).count(b"\n") if os.path.exists(path) else 0


def a_killed_job_does_not_stop_the_other(cwd):
    shared = ["--share-device", session(cwd)]
    first = start(*job("first", "sgd", *shared, "--max-steps", "100000", "--epochs", "100000"), cwd=cwd)
    wait_for(first, lambda: recorded(cwd, "first") >= 3)
    second = start(*job("second", "sgd", *shared, "--max-steps", "300", "--epochs", "50", "--eval-every", "-1"), cwd=cwd)  # long enough on a busy machine
    wait_for(second, lambda: recorded(cwd, "second") >= 2)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=TIMEOUT)
    finish(second, OK)
    assert len(steps_of(cwd, "second")) == 300 and not left_over(cwd)


def invalid_flags_are_rejected(cwd):
    for text, says in (("x:0", "weight 0, want a number from 1 to 1000"), ("x:-3", "weight -3, want"), ("a b", "session name 'a b'"),
                       ("x:1.5", "want NAME or NAME:WEIGHT")):
        fails(*NOISE, *QUIET, "--max-steps", "1", "--share-device", text, cwd=cwd, code=USAGE, says=says)


def an_evaluation_shares_the_device(cwd):
    run(*NOISE, *QUIET, "--max-steps", "2", "--output", "made", cwd=cwd)
    text = run("--eval", "--weights", "made/model.safetensors", *NOISE, "--threads", "1", "--share-device", session(cwd), cwd=cwd).stdout
    assert "top-1" in text and not left_over(cwd)


ROWS = [shared_runs_of_one_process_are_bitwise_identical, shared_runs_of_two_ranks_are_bitwise_identical, a_killed_job_does_not_stop_the_other,
        invalid_flags_are_rejected, an_evaluation_shares_the_device]

sys.exit(run_rows(ROWS, "lather-share-", *sys.argv[3:4]))
