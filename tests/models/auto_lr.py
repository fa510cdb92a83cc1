#!/usr/bin/env python3
"""--lr auto: trials choose the learning rate; the run is that of a flag with this rate, and a resume repeats no trial.

    tests/models/auto_lr.py BUILD/models/resnet50/train_resnet50 [ROW]
"""
import json
import os
import sys

from trainer import NOISE, SMALL, USAGE, checkpoint, digest, fails, run, run_rows, same

FLAGS = [*NOISE, *SMALL, "--epochs", "2", "--optim", "sgd", "--eval-every", "-1", "--keep", "0"]
LINE = "--lr auto: loss"


def rate_of(cwd, folder):
    with open(os.path.join(cwd, folder, "config.yaml"), encoding="utf-8") as file:
        return next(line.split()[1] for line in file if line.startswith("lr:"))


def the_rate_is_that_of_the_lowest_loss(cwd):
    text = run(*FLAGS, "--lr", "auto", "--output", "auto", cwd=cwd).stderr
    losses = {float(line.split()[-1]): float(line.split()[4]) for line in text.splitlines() if LINE in line}
    best = min(losses, key=losses.get)
    rate = rate_of(cwd, "auto")
    assert len(losses) >= 3 and best / 1.5 < float(rate) < best * 1.5, (losses, rate)
    run(*FLAGS, "--lr", rate, "--output", "flag", cwd=cwd)
    same(cwd, "auto", "flag", 24)
    with open(checkpoint(cwd, "auto", 24, "state.json"), encoding="utf-8") as file:
        hooks = json.load(file)["hooks"]
    assert hooks["lr_auto.lr"] == float(rate) and hooks["lr_auto.trials"] == len(losses), hooks


def a_resume_repeats_no_trial(cwd):
    first = run(*FLAGS, "--lr=auto", "--output", "whole", cwd=cwd).stderr
    run(*FLAGS, "--lr", "auto", "--output", "parts", "--checkpoint-every", "5", cwd=cwd)
    assert LINE in first and rate_of(cwd, "whole") == rate_of(cwd, "parts"), "not the same rate twice"
    run(*FLAGS, "--lr", rate_of(cwd, "whole"), "--max-steps", "10", "--output", "short", cwd=cwd)
    text = run(*FLAGS, "--lr", "auto", "--output", "short", "--resume", "auto", cwd=cwd).stderr
    assert LINE not in text, text
    same(cwd, "whole", "short", 24)
    run(*FLAGS, "--lr", "0.001", "--output", "other", cwd=cwd)  # control
    assert digest(checkpoint(cwd, "other", 24)) != digest(checkpoint(cwd, "whole", 24))


def bad_input_is_named(cwd):
    with open(os.path.join(cwd, "own.yaml"), "w", encoding="utf-8") as file:
        file.write("output: kept\n")
    fails(*FLAGS, "--lr", "auto", "--config", "own.yaml", cwd=cwd, code=USAGE, says="give --output as a flag")
    assert not os.path.exists(os.path.join(cwd, "kept"))
    fails(*FLAGS, "--lr", "automatic", cwd=cwd, code=USAGE, says="automatic")
    run(*FLAGS, "--lr", "0.1", "--output", "used", "--max-steps", "1", cwd=cwd)
    fails(*FLAGS, "--lr", "auto", "--output", "used", cwd=cwd, code=USAGE, says="used: holds a run")


def trials_leave_out_what_belongs_to_the_run(cwd):
    few = [*NOISE, *SMALL, "--epochs", "1", "--optim", "sgd", "--lr", "auto"]
    first = [*few, "--output", "kept", "--resume", "auto", "--data-changed", "continue"]
    texts = [run(*words, cwd=cwd).stderr for words in (
        [*few, "--early-stop", "val_loss:3"], [*few, "--sched", "plateau"], [*few, "--target-top1", "99"], first,
        [*few, "--output", "stats", "--optim-stats", "5", "--optim-stats-params", "fc"], [*few, "-oshort"], [*few, "-o", "apart"])]
    for text in texts:
        assert text.count(LINE) >= 3 and "in steps 7 to 12" in text, text
    assert os.path.exists(os.path.join(cwd, "stats", "optim_stats.bin"))
    for folder in "short", "apart", "kept":
        same(cwd, folder, "stats", 12)
    assert LINE not in run(*first, cwd=cwd).stderr


def a_trial_is_no_longer_than_the_run(cwd):
    text = run(*FLAGS, "--max-steps", "8", "--lr", "auto", cwd=cwd).stderr
    assert text.count("in steps 5 to 8 at") >= 3 and "loss inf" not in text, text
    assert "in steps 1 to 1 at" in run(*FLAGS, "--max-steps", "1", "--lr", "auto", cwd=cwd).stderr


ROWS = [the_rate_is_that_of_the_lowest_loss, a_resume_repeats_no_trial, bad_input_is_named, trials_leave_out_what_belongs_to_the_run,
        a_trial_is_no_longer_than_the_run]

sys.exit(run_rows(ROWS, "lather-auto-lr-", *sys.argv[2:3]))
