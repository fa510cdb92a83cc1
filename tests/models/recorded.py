#!/usr/bin/env python3
"""Runs train_resnet50 on the stand-in for a device: recorded steps and results that are read late
change no number, whatever the order in which the device does what is queued.

    tests/models/recorded.py BUILD/models/resnet50/train_resnet50 [ROW]

LATHER_PLUGIN_PATH names the stand-in's folder. Prints cmocka's lines.
"""
import hashlib
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import run_rows  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
SMALL = ["--data", "synthetic:32:16:3", "--arch", "resnet10", "--width", "5", "--batch-size", "4", "--threads", "1",
         "--workers", "1", "--progress", "off", "--deterministic", "--device", "cuda", "--epochs", "2", "--keep", "0",
         "--lr", "0.01"]
EAGER = ["--no-graph", "--run-ahead", "off"]
SHAMPOO = ["--optim", "shampoo", "--precondition-frequency", "3"]
TIMES = "seconds", "queue", "starved", "images_per_second", "run"
STEPS, TIMEOUT = 16, 240


def run(cwd, folder, *flags, order="now", code=0):
    env = dict(os.environ, LATHER_STANDIN=order, XDG_CACHE_HOME=os.path.join(cwd, "plans"))
    p = subprocess.run([PROGRAM, *SMALL, *flags, "--output", folder], cwd=cwd, env=env, capture_output=True,
                       text=True, timeout=TIMEOUT)
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stderr[-500:]}"
    assert "without a graph" not in p.stderr, p.stderr
    return p.stderr


def records(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl")) as f:
        rows = [json.loads(line) for line in f]
    return [{k: v for k, v in r.items() if not any(t in k for t in TIMES)} for r in rows]


def digests(cwd, folder, step):
    at = os.path.join(cwd, folder, "checkpoints", f"step-{step}")
    files = [open(os.path.join(at, f), "rb").read() for f in ("model.safetensors", "optim.safetensors")]
    return [hashlib.sha256(data).hexdigest() for data in files]


def same(cwd, a, b, step=STEPS):
    want, got = records(cwd, a), records(cwd, b)
    assert want == got, f"{[(x, y) for x, y in zip(want, got) if x != y][:1]}"
    assert digests(cwd, a, step) == digests(cwd, b, step), f"checkpoints of {a} and {b} differ"
    return want


def check(cwd, *flags, order="now"):
    run(cwd, "recorded", *flags, order=order)
    run(cwd, "eager", *flags, *EAGER)
    return same(cwd, "eager", "recorded")


def adamw_in_f16_with_averages(cwd):
    check(cwd, "--optim", "adamw", "--amp", "f16", "--ema-decay", "0.5", order="shuffled")


def momentum_in_bf16_of_two_micro_batches(cwd):
    run(cwd, "recorded", "--optim", "sgd", "--amp", "bf16", "--grad-accum", "2", "--ema-decay", "0.5")
    run(cwd, "eager", "--optim", "sgd", "--amp", "bf16", "--grad-accum", "2", "--ema-decay", "0.5", *EAGER)
    same(cwd, "eager", "recorded", STEPS // 2)


def adagrad_with_skipped_steps(cwd):
    rows = check(cwd, "--optim", "adagrad", "--amp", "f16", "--lr", "5", "--on-nan", "skip")
    assert any(r.get("skipped") for r in rows), "no step was skipped"


def shampoo_between_and_in_refreshes(cwd):
    check(cwd, *SHAMPOO, "--amp", "bf16", order="late")


def shampoo_with_a_thread_for_its_roots(cwd):
    check(cwd, *SHAMPOO, "--refresh", "async", "--amp", "f16", "--ema-decay", "0.5", "--checkpoint-every", "5")


def shampoo_with_some_roots_in_each_step(cwd):
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


def a_resumed_run_goes_on_bit_for_bit(cwd):
    flags = [*SHAMPOO, "--refresh", "async", "--amp", "f16"]
    run(cwd, "whole", *flags)
    run(cwd, "parts", *flags, "--max-steps", "7")
    run(cwd, "parts", *flags, "--resume", "auto")
    assert digests(cwd, "whole", STEPS) == digests(cwd, "parts", STEPS)
    assert digests(cwd, "whole", 8) != digests(cwd, "whole", STEPS), "nothing changes"  # control


def a_gradient_that_is_not_finite_ends_the_run_at_its_step(cwd):
    flags = ["--optim", "sgd", "--lr", "1e5", "--momentum", "0", "--weight-decay", "1e5", "--norm-weight-decay"]
    said = [run(cwd, "recorded", *flags, order="late", code=1), run(cwd, "eager", *flags, *EAGER, code=1)]
    tell = [re.search(r"step (\d+): a gradient is not finite.*", text) for text in said]
    assert tell[0] and tell[1] and tell[0].group(0) == tell[1].group(0), said
    assert len(records(cwd, "recorded")) == int(tell[0].group(1)) - 1
    assert records(cwd, "recorded") == records(cwd, "eager")


ROWS = [adamw_in_f16_with_averages, momentum_in_bf16_of_two_micro_batches, adagrad_with_skipped_steps,
        shampoo_between_and_in_refreshes, shampoo_with_a_thread_for_its_roots, shampoo_with_some_roots_in_each_step,
        soap, muon_with_skipped_steps, lars, lamb, shampoo_with_rules_for_some_parameters, a_resumed_run_goes_on_bit_for_bit,
        a_gradient_that_is_not_finite_ends_the_run_at_its_step]


sys.exit(run_rows(ROWS, "lather-recorded-", *sys.argv[2:3]))
