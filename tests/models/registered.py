#!/usr/bin/env python3
"""A program's registered optimizer, data set and communicator are available by --optim, --data and --dist.

    registered.py TRAIN_REGISTERED [ROW]
"""
import os
import sys

import trainer
from trainer import USAGE, digest, epochs_of, fails, run, run_rows

trainer.NAME = "train_mlp"  # name in the family's messages

FLAGS = ["--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic"]
MINE = ["--data", "shades:64", "--optim", "average", *FLAGS]


def they_train_and_resume(cwd):
    run(*MINE, "--dist", "alone", "--memory", "0.75", "--epochs", "12", "--output", "whole", cwd=cwd)
    assert epochs_of(cwd, "whole")[-1]["val_top1"] > 60
    with open(os.path.join(cwd, "whole", "config.yaml")) as file:
        assert {"optim: average", "memory: 0.75", "dist: alone", "lr: 0.5", "data: \"shades:64\""} <= set(file.read().splitlines())
    for steps in ("40", "96"):
        run(*MINE, "--dist", "alone", "--memory", "0.75", "--epochs", "12", "--max-steps", steps, "--output", "parts", "--resume",
            "auto", cwd=cwd)
    assert digest(os.path.join(cwd, "whole", "model.safetensors")) == digest(os.path.join(cwd, "parts", "model.safetensors"))
    run(*MINE, "--memory", "0.5", "--epochs", "12", "--output", "other", cwd=cwd)
    assert digest(os.path.join(cwd, "whole", "model.safetensors")) != digest(os.path.join(cwd, "other", "model.safetensors"))


def help_and_messages_name_them(cwd):
    text = " ".join(run("--help", "all", cwd=cwd).stdout.split())
    assert "--optim sgd|adagrad|adam|adamw|shampoo|soap|muon|lars|lamb|lion|adafactor|prodigy|average" in text and "average=0.5" in text
    assert "--dist auto|off|mpi|alone" in text
    assert "Average: --memory X decay rate of the average [0.5] (average only)" in text, text
    assert "--momentum X momentum [sgd=0.9 shampoo=0.9 soap=0 muon=0.95 lars=0.9] (sgd shampoo soap muon lars only)" in text
    fails("--data", "nowhere", cwd=cwd, says="is not a folder, a .tar file, 'fashion-mnist', 'synthetic:COUNT:SIZE:CLASSES', 'service:ADDRESS[,ADDRESS]' or 'shades:COUNT'")
    fails(*MINE, "--optim", "averag", cwd=cwd, code=USAGE, says="--optim: unknown value 'averag'; valid: ")
    fails(*MINE, "--memory", "1", cwd=cwd, code=USAGE, says="--memory: 1 is not in [0, 1)")
    fails(*MINE, "--optim", "sgd", "--memory", "0.5", cwd=cwd, code=USAGE, says="(read by: average)")
    fails(*MINE, "--weight-decay", "1", cwd=cwd, code=USAGE, says="--optim average does not read it")


def a_flag_that_plan_has_too_is_its_optimizers(cwd):
    trainer.NAME = "train_mlp plan"
    flags = ["--goal", "deadline=1h", *MINE, "--max-steps", "9", "--profile_seconds", "0.01"]
    said = run("plan", *flags, "--memory", "0.75", "--plan-memory", "64", cwd=cwd).stdout
    assert "average" in said and "--memory 0.75" in said and "plan-memory" not in said, said
    run("plan", *flags, "--plan-memory", "1e-6", cwd=cwd, code=USAGE)
    fails("plan", *flags, "--memory", "64", cwd=cwd, code=USAGE, says="--memory: 64 is not in [0, 1)")
    text = " ".join(run("plan", "--help", "all", cwd=cwd).stdout.split())
    assert "--plan-memory X GiB per rank" in text and "--memory X decay rate of the average" in text, text


sys.exit(run_rows([they_train_and_resume, help_and_messages_name_them, a_flag_that_plan_has_too_is_its_optimizers], "lather-registered-", *sys.argv[2:3]))
