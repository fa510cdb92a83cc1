#!/usr/bin/env python3
"""What a user types and reads: names of options, contradictions, messages that say what to do next.

    usage.py TRAIN_RESNET50 [ROW]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from rows import run_rows  # noqa: E402
from trainer import NOISE, OK, SMALL, USAGE, fails, run  # noqa: E402


def options_have_the_names_that_people_type(cwd):
    typed = ["--learning_rate", "0.25", "--wd", "0.5", "--mixup", "0.2", "--cutmix=0.3", "--bs", "8", "--ep", "7"]
    config = run(*NOISE, *typed, "--print-config", cwd=cwd, code=OK).stdout.splitlines()
    for line in ("lr: 0.25", "weight-decay: 0.5", "mixup-alpha: 0.2", "cutmix-alpha: 0.3", "batch-size: 8",
                 "epochs: 7"):
        assert line in config, line
    fails(*NOISE, "--learnin-rate", "1", cwd=cwd, code=USAGE, says="the nearest is --learning-rate (--lr)")


def a_schedule_of_milestones_has_some(cwd):
    fails(*NOISE, *SMALL, "--sched", "multistep", cwd=cwd, code=USAGE, says="--sched multistep: needs --milestone")
    run(*NOISE, *SMALL, "--sched", "multistep", "--milestone", "1", "--max-steps", "1", "--eval-every", "0", cwd=cwd)


def mistakes_in_a_config_count_under_the_command_line_too(cwd):
    with open(os.path.join(cwd, "run.yaml"), "w") as f:
        f.write("arch: resnet10\nbatch-size: big\n")
    fails(*NOISE, "--config", "run.yaml", "--batch-size", "4", cwd=cwd, code=USAGE,
          says="run.yaml: line 2: --batch-size: 'big' is no integer")


ROWS = [options_have_the_names_that_people_type, a_schedule_of_milestones_has_some,
        mistakes_in_a_config_count_under_the_command_line_too]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-usage-", sys.argv[2] if len(sys.argv) > 2 else None))
