#!/usr/bin/env python3
"""Runs train_resnet50 on a simulated device: recorded steps and delayed reads of results change no number, for
any order in which the device executes its queue.

    tests/models/recorded.py BUILD/models/resnet50/train_resnet50 [ROW]

LATHER_PLUGIN_PATH is the folder of the simulated device's module. Prints cmocka's lines.
"""
import os
import re
import sys

import trainer
from trainer import checkpoint, comparable, digest, run_rows

SMALL = ["--data", "synthetic:32:16:3", "--arch", "resnet10", "--width", "5", "--batch-size", "4", "--threads", "1",
         "--workers", "1", "--progress", "off", "--deterministic", "--device", "cuda", "--epochs", "2", "--keep", "0",
         "--lr", "0.01"]
EAGER = ["--no-graph", "--run-ahead", "off"]
SHAMPOO = ["--optim", "shampoo", "--precondition-frequency", "3"]
STEPS = 16


def run(cwd, folder, *flags, order="now", code=0):
    env = {"LATHER_STANDIN": order, "XDG_CACHE_HOME": os.path.join(cwd, "plans")}
    p = trainer.run(*SMALL, *flags, "--output", folder, cwd=cwd, env=env, code=code)
    assert "without a graph" not in p.stderr, p.stderr
    return p.stderr


def same(cwd, a, b, step=STEPS):
    want, got = comparable(cwd, a), comparable(cwd, b)
    assert want == got, f"{[(x, y) for x, y in zip(want, got) if x != y][:1]}"
    trainer.same(cwd, a, b, step)
    return want


def check(cwd, *flags, order="now"):
    run(cwd, "recorded", *flags, order=order)
    run(cwd, "eager", *flags, *EAGER)
    return same(cwd, "eager", "recorded")


def adamw_in_f16_with_averages(cwd):
    check(cwd, "--optim", "adamw", "--amp", "f16", "--ema-decay", "0.5", order="shuffled")


def momentum_in_bf16_with_two_micro_batches(cwd):
    run(cwd, "recorded", "--optim", "sgd", "--amp", "bf16", "--grad-accum", "2", "--ema-decay", "0.5")
    run(cwd, "eager", "--optim", "sgd", "--amp", "bf16", "--grad-accum", "2", "--ema-decay", "0.5", *EAGER)
    same(cwd, "eager", "recorded", STEPS // 2)


def adagrad_with_skipped_steps(cwd):
    rows = check(cwd, "--optim", "adagrad", "--amp", "f16", "--lr", "5", "--on-nan", "skip")
    assert any(r.get("skipped") for r in rows), "no step was skipped"


def shampoo_with_synchronous_refreshes(cwd):
    check(cwd, *SHAMPOO, "--amp", "bf16", order="late")


def shampoo_with_asynchronous_roots(cwd):
    check(cwd, *SHAMPOO, "--refresh", "async", "--amp", "f16", "--ema-decay", "0.5", "--checkpoint-every", "5")


def shampoo_with_staggered_roots(cwd):
    check(cwd, *SHAMPOO, "--refresh", "staggered", "--amp", "f16", "--lr", "5", "--on-nan", "skip")


def soap(cwd):
    check(cwd, "--optim", "soap", "--precondition-frequency", "4")


def muon_with_skipped_steps(cwd):
    rows = check(cwd, "--optim", "muon", "--amp", "f16", "--lr", "5", "--on-nan", "skip", "--checkpoint-every", "5",
                 order="shuffled")
    assert any(r.get("skipped") for r in rows), "no step was skipped"


def lars(cwd):
    check(cwd, "--optim", "lars", "--lr", "1", "--nesterov")


def lamb(cwd):
    check(cwd, "--optim", "lamb", "--amp", "f16", "--lr", "0.01", "--opt-kwargs", "always-adapt=true")


def shampoo_with_rules_for_some_parameters(cwd):
    check(cwd, *SHAMPOO, "--preset", "transformer", "--split", "^conv1:0:5", "--one-sided", "fc.weight", "--diagonal", "layer4",
          order="late")


def a_resumed_run_is_bitwise_identical(cwd):
    flags = [*SHAMPOO, "--refresh", "async", "--amp", "f16"]
    run(cwd, "whole", *flags)
    run(cwd, "parts", *flags, "--max-steps", "7")
    run(cwd, "parts", *flags, "--resume", "auto")
    trainer.same(cwd, "whole", "parts", STEPS)
    assert digest(checkpoint(cwd, "whole", 8)) != digest(checkpoint(cwd, "whole", STEPS)), "training changed nothing"  # control


def a_non_finite_gradient_ends_the_run_at_its_step(cwd):
    flags = ["--optim", "sgd", "--lr", "1e5", "--momentum", "0", "--weight-decay", "1e5", "--norm-weight-decay"]
    said = [run(cwd, "recorded", *flags, order="late", code=1), run(cwd, "eager", *flags, *EAGER, code=1)]
    tell = [re.search(r"step (\d+): a gradient is not finite.*", text) for text in said]
    assert tell[0] and tell[1] and tell[0].group(0) == tell[1].group(0), said
    assert len(comparable(cwd, "recorded")) == int(tell[0].group(1)) - 1
    assert comparable(cwd, "recorded") == comparable(cwd, "eager")


ROWS = [adamw_in_f16_with_averages, momentum_in_bf16_with_two_micro_batches, adagrad_with_skipped_steps,
        shampoo_with_synchronous_refreshes, shampoo_with_asynchronous_roots, shampoo_with_staggered_roots,
        soap, muon_with_skipped_steps, lars, lamb, shampoo_with_rules_for_some_parameters, a_resumed_run_is_bitwise_identical,
        a_non_finite_gradient_ends_the_run_at_its_step]


sys.exit(run_rows(ROWS, "lather-recorded-", *sys.argv[2:3]))
