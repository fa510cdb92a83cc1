#!/usr/bin/env python3
"""examples/one_file.c computes the losses of the training programs on the reference device.

    one_file.py TRAIN_RESNET50 TRAIN_GPT [ROW]
"""
import atexit
import functools
import json
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from rows import run_rows  # noqa: E402

PROGRAMS = dict(zip(("resnet", "gpt"), map(os.path.abspath, sys.argv[1:3])))
SOURCE = os.path.join(HERE, "..", "..", "examples", "one_file.c")
STEPS, SIDE, TOLERANCE = 20, 8, 1e-6
COMMON = ["--no-shuffle", "--sched", "constant", "--device", "ref", "--threads", "1", "--workers", "1", "--log-every", "1", "--eval-every", "0",
          "--progress", "off", "--no-tensorboard"]
MODELS = {"resnet": ["--data", "images", "--arch", "resnet10", "--width", "8", "--stem", "small", "--batch-size", "8", "--augment", "none",
                     "--label-smoothing", "0", "--no-zero-init-last"],
          "gpt": ["--data", "text.txt", "--layers", "2", "--width", "16", "--heads", "2", "--seq-len", "8", "--positions", "8", "--batch-size", "2"]}
OWN = {"resnet": ["--data", "images", "--width", "8", "--batch", "8"],
       "gpt": ["--data", "text.txt", "--layers", "2", "--width", "16", "--heads", "2", "--length", "8", "--batch", "2"]}
OPTIMIZERS = {"sgd": (["--optim", "sgd", "--lr", "0.05"], []),
              "adamw": (["--optim", "adamw", "--lr", "0.003"], []),
              "shampoo": (["--optim", "shampoo", "--lr", "0.003", "--preset", "transformer", "--split", "none", "--root-solver", "eigh", "--refresh",
                           "reference", "--precondition-frequency", "4", "--max-preconditioner-dim", "32"], ["--frequency", "4", "--block", "32"])}


@functools.lru_cache(maxsize=None)
def compiled():
    """Compiles the example without a warning. -ffp-contract=off: as the reference device, where processors have a fused multiply-add."""
    folder = tempfile.mkdtemp(prefix="lather-one-file-")
    atexit.register(shutil.rmtree, folder)
    program = os.path.join(folder, "one_file")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-O3", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", SOURCE, "-lm", "-o", program],
                   check=True, timeout=250)
    return program


def own(cwd, *args, code=0):
    p = subprocess.run([compiled(), *args], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert p.returncode == code, f"exit {p.returncode}: {p.stderr}"
    return p.stdout if code == 0 else p.stderr


def write_data(cwd):
    """Images whose bright column is their class, with noise, and lines of sums."""
    noise = random.Random(1)
    os.mkdir(os.path.join(cwd, "images"))
    for part, count in (("train", 24), ("t10k", 6)):
        labels = bytes(n % 3 for n in range(count))
        pixels = bytes(int(noise.uniform(0, 120)) + (100 if x // 3 == label else 0) for label in labels for _ in range(SIDE) for x in range(SIDE))
        for name, head, data in (("images-idx3", (2051, count, SIDE, SIDE), pixels), ("labels-idx1", (2049, count), labels)):
            with open(os.path.join(cwd, "images", f"{part}-{name}-ubyte"), "wb") as f:
                f.write(struct.pack(f">{len(head)}I", *head) + data)
    with open(os.path.join(cwd, "text.txt"), "w") as f:
        f.writelines(f"{a}+{b}={a + b}\n" for a in range(9, 21) for b in range(3, 9))


def library(cwd, model, output, *flags, steps=STEPS):
    """Trains, and returns the losses of all steps."""
    command = [PROGRAMS[model], *MODELS[model], *COMMON, *flags, "--max-steps", str(steps), "--output", output]
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)
    assert p.returncode == 0, f"{' '.join(command)}: {p.stderr[-500:]}"
    with open(os.path.join(cwd, output, "metrics.jsonl")) as f:
        return [row["loss"] for row in map(json.loads, f) if row["event"] == "step"]


def initial_weights(cwd, model):
    """Returns a file of the weights that the library begins with: one step of learning rate 0."""
    library(cwd, model, "start", "--optim", "sgd", "--lr", "0", steps=1)
    return os.path.join("start", "checkpoints", "step-1", "model.safetensors")


def own_losses(cwd, model, weights, *flags):
    text = own(cwd, model, *OWN[model], "--weights", weights, "--steps", str(STEPS), "--log", "1", "--shuffle", "0", *flags)
    return [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", text, re.M)]


def difference(a, b):
    assert len(a) == len(b) == STEPS, (a, b)
    return max(abs(x - y) / abs(x) for x, y in zip(a, b))


def row(model, optimizer):
    flags, more = OPTIMIZERS[optimizer]

    def same_losses(cwd):
        write_data(cwd)
        want = library(cwd, model, "run", *flags)
        found = own_losses(cwd, model, initial_weights(cwd, model), *flags[:4], *more)
        assert want[-1] < 0.8 * want[0], f"not trained: {want}"
        assert difference(want, found) < TOLERANCE, list(zip(want, found))
    same_losses.__name__ = f"{model}_with_{optimizer}_has_the_losses_of_the_reference_device"
    return same_losses


def control_another_learning_rate_has_other_losses(cwd):
    write_data(cwd)
    weights = initial_weights(cwd, "gpt")
    a, b = (own_losses(cwd, "gpt", weights, "--lr", lr) for lr in ("0.003", "0.00301"))
    assert difference(a, b) > TOLERANCE, "the comparison sees no difference"


def both_networks_learn_without_data(cwd):
    text = own(cwd, "gpt", "--width", "16", "--length", "16", "--epochs", "2")
    losses = [float(x) for x in re.findall(r"loss (\S+),", text)]
    assert losses[1] < losses[0] < 5.55, text  # log(257)
    text = own(cwd, "resnet", "--optim", "shampoo", "--images", "64", "--batch", "8", "--epochs", "2")
    assert re.search(r"epoch 2: loss \S+, accuracy \S+ %, of test images \S+ %", text), text


def wrong_input_is_named(cwd):
    write_data(cwd)
    weights = initial_weights(cwd, "gpt")
    for args, want in (((("gpt", *OWN["gpt"], "--weights", weights, "--width", "32")), f"{weights}: tensor 'wte.weight' has 16448 bytes, the network's has 32896"),
                       (("resnet", *OWN["resnet"], "--weights", weights), f"{weights}: no tensor 'conv1.weight' of F32"),
                       (("gpt", *OWN["gpt"], "--weights", "text.txt"), "text.txt: a header of"),
                       (("gpt", "--data", "none.txt"), "none.txt: not found"),
                       (("resnet", "--data", "none"), "none/train-images-idx3-ubyte: not an idx file"),
                       (("gpt", "--learning-rate", "1"), "--learning-rate is unknown"),
                       (("gpt", "--lr", "fast"), "--lr: 'fast' is not a number"),
                       (("gpt", "--width", "30"), "--width 30 is not a multiple of --heads 4"),
                       (("gpt", "--data", "text.txt", "--batch", "99"), "8 samples are fewer than --batch 99"),
                       (("vit",), "'vit' is not resnet or gpt")):
        text = own(cwd, *args, code=1)
        assert f"one_file: {want}" in text, f"{args}: {text}"


sys.exit(run_rows([*(row(*r) for r in (("resnet", "sgd"), ("resnet", "shampoo"), ("gpt", "adamw"), ("gpt", "shampoo"))),
                   control_another_learning_rate_has_other_losses, both_networks_learn_without_data, wrong_input_is_named],
                  "lather-one-file-", sys.argv[3] if len(sys.argv) > 3 else None))
