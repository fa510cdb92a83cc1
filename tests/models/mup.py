#!/usr/bin/env python3
"""--mup BASE_WIDTH of a training program: no bit changes at the base width, a resumed run is bitwise identical and
needs its base, attention is scaled where heads grow.

    tests/models/mup.py BUILD/models/resnet50/train_resnet50|vit/train_vit|gpt/train_gpt [ROW]
"""
import math
import os
import struct
import sys

from trainer import ERROR, NAME, NOISE, SMALL, USAGE, checkpoint, digest, fails, metadata_of, read_safetensors, run, run_rows, same

GPT = ["--layers", "1", "--heads", "2", "--seq-len", "8", "--batch-size", "2", "--threads", "1", "--progress", "off", "--deterministic"]
HIDDEN = {"train_resnet50": "layer1.0.conv1.weight", "train_vit": "encoder.layers.encoder_layer_0.mlp.0.weight",
          "train_gpt": "h.0.mlp.c_fc.weight"}[NAME]


def flags(cwd, width):
    if NAME != "train_gpt":
        return [*NOISE, *SMALL, "--width", str(width), "--eval-every", "-1", "--epochs", "1", "--optim", "adamw", "--lr", "0.01"]
    with open(os.path.join(cwd, "text.txt"), "w", encoding="utf-8") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 40)
    return ["--data", "text.txt", *GPT, "--width", str(width), "--eval-every", "-1", "--epochs", "1", "--optim", "adamw", "--lr", "0.01"]


def the_base_width_changes_nothing(cwd):
    for folder, more in (("without", []), ("with", ["--mup", "8"])):
        run(*flags(cwd, 8), "--max-steps", "3", "--output", folder, *more, cwd=cwd)
    same(cwd, "without", "with", 3)
    for folder, more in (("wide", []), ("scaled", ["--mup", "8"])):  # control
        run(*flags(cwd, 16), "--max-steps", "1", "--output", folder, *more, cwd=cwd)
    assert digest(checkpoint(cwd, "wide", 1)) != digest(checkpoint(cwd, "scaled", 1))


def a_resumed_run_is_identical_and_needs_its_base(cwd):
    own = [*flags(cwd, 16), "--mup", "8"]
    run(*own, "--max-steps", "4", "--output", "whole", cwd=cwd)
    run(*own, "--max-steps", "2", "--output", "parts", cwd=cwd)
    for other, base in ((["--mup", "4"], 4), ([], 0)):
        fails(*flags(cwd, 16), *other, "--max-steps", "4", "--output", "parts", "--resume", "auto", cwd=cwd, code=USAGE,
              says=f"was trained with --mup 8, but this run has {base}")
    run(*own, "--max-steps", "4", "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", 4)


def hidden_layers_learn_as_slowly_as_they_are_wide(cwd):
    """The first step of AdamW changes each weight by its learning rate."""
    lr = {}
    for width, base in ((8, 8), (32, 8)):
        values = []
        for rate in ("0", "0.01"):
            folder = f"{width}-{rate}"
            run(*flags(cwd, width), "--mup", str(base), "--lr", rate, "--max-steps", "1", "--weight-decay", "0", "--output", folder, cwd=cwd)
            _, _, data = read_safetensors(checkpoint(cwd, folder, 1))[HIDDEN]
            values.append(struct.unpack(f"<{len(data) // 4}f", data))
        lr[width] = max(abs(a - b) for a, b in zip(*values))
    assert math.isclose(lr[8], 4 * lr[32], rel_tol=1e-3), lr


def weight_decay_follows_the_width_in_cautious_updates(cwd):
    """The first step of AdamW has the gradient's signs: no element is masked."""
    values = []
    for folder, more in (("usual", []), ("cautious", ["--opt-kwargs", "cautious_mask=true"]), ("none", [])):  # the last one is a control
        run(*flags(cwd, 32), "--mup", "8", "--max-steps", "1", "--weight-decay", "0" if folder == "none" else "1", "--output", folder, *more, cwd=cwd)
        _, _, data = read_safetensors(checkpoint(cwd, folder, 1))[HIDDEN]
        values.append(struct.unpack(f"<{len(data) // 4}f", data))
    usual, cautious, none = values
    distance = [max(abs(a - b) for a, b in zip(usual, other)) for other in (cautious, none)]
    assert 20 * distance[0] < distance[1], distance


def heads_that_grow_scale_attention(cwd):
    if NAME == "train_resnet50":
        return
    run(*flags(cwd, 32), "--mup", "8", "--max-steps", "1", "--output", "grown", cwd=cwd)
    run(*flags(cwd, 32), "--mup", "8", "--heads", "2", "--max-steps", "1", "--output", "again", cwd=cwd)
    scale = float(metadata_of(checkpoint(cwd, "grown", 1))["attention-scale"])
    assert math.isclose(scale, math.sqrt(8 / 2) / (32 / 2)), scale  # sqrt(base) / now, two heads in both
    same(cwd, "grown", "again", 1)


def bad_input_is_named(cwd):
    fails(*flags(cwd, 16), "--mup", "8", "--opt-kwargs", "hyperball=true", cwd=cwd, says="--mup and --opt-kwargs hyperball=true", code=USAGE)
    fails(*flags(cwd, 16), "--mup", "8", "--optim", "lars", cwd=cwd, says="no rule for the learning rate of lars", code=ERROR)
    fails(*flags(cwd, 16), "--mup", "-1", cwd=cwd, says="--mup", code=USAGE)
    if NAME != "train_resnet50":
        fails(*flags(cwd, 16), "--mup", "7", cwd=cwd, says="--mup 7: the base model", code=USAGE)


ROWS = [the_base_width_changes_nothing, a_resumed_run_is_identical_and_needs_its_base, hidden_layers_learn_as_slowly_as_they_are_wide,
        weight_decay_follows_the_width_in_cautious_updates, heads_that_grow_scale_attention, bad_input_is_named]

sys.exit(run_rows(ROWS, "lather-mup-", *sys.argv[2:3]))
