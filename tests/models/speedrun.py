#!/usr/bin/env python3
"""Rows specific to train_speedrun: the whitened layer, widths, weights, invalid input.

    speedrun.py BUILD/models/speedrun/train_speedrun [ROW]
"""
import array
import os
import sys

from trainer import NOISE, SOURCE, USAGE, epochs_of, fails, folders, metadata_of, read_safetensors, run, run_rows

SMALL = ["--widths", "8,8,16", "--batch-size", "16", "--threads", "1"]
RECIPES = os.path.join(SOURCE, "models", "speedrun", "recipes")
WEIGHTS = os.path.join("made", "model.safetensors")


def made(cwd):
    run(*NOISE, *SMALL, "--max-steps", "3", "--output", "made", cwd=cwd)
    return {name: (shape, array.array("f", values)) for name, (dtype, shape, values) in read_safetensors(os.path.join(cwd, WEIGHTS)).items()
            if dtype == "F32"}


def first_layer_whitens_and_is_not_trained(cwd):
    """In images whose pixels and channels correlate by 0.9 with the next one, outputs are nearly uncorrelated and of variance 1."""
    shape, w = made(cwd)["whiten.weight"]
    n = 12
    assert shape == [2 * n, 3, 2, 2], shape
    assert all(w[n * n + i] == -w[i] for i in range(n * n)), "the second half is not the first one negated"
    place = [(i // 4, i // 2 % 2, i % 2) for i in range(n)]
    correlation = [[0.9 ** sum(abs(a - b) for a, b in zip(p, q)) for q in place] for p in place]
    for i in range(n):
        for j in range(i + 1):
            found = sum(w[n * i + a] * correlation[a][b] * w[n * j + b] for a in range(n) for b in range(n))
            assert abs(found) < 0.1 if i != j else 0 < found < 1, (i, j, found)


def evaluation_equals_that_of_training(cwd):
    weights = made(cwd)
    last = epochs_of(cwd, "made")[-1]
    text = run("--eval", "--weights", WEIGHTS, *NOISE, "--threads", "1", cwd=cwd).stdout
    assert f"top-1 {last['val_top1']:.3f} %" in text, (text, last)
    assert metadata_of(os.path.join(cwd, WEIGHTS))["widths"] == "8,8,16"
    assert weights["stage3.conv2.weight"][0] == [16, 16, 3, 3] and weights["fc.weight"][0][1] == 16
    count = sum(len(values) for name, (_, values) in weights.items() if "running" not in name)
    said = run(*NOISE, *SMALL, "--widths", "8,8,160", "--max-steps", "1", cwd=cwd).stderr
    count += (160 - 16) * (9 * 8 + 2 + 2 + 3) + (160**2 - 16**2) * 9
    assert f"speedrun: {count / 1e6:.2f} M parameters" in said, (count, said)


def images_of_a_folder_are_classified(cwd):
    folders(cwd)
    run("--data", "data", *SMALL, "--batch-size", "4", "--max-steps", "2", "--output", "made", cwd=cwd)
    assert run("predict", "--weights", WEIGHTS, "data/val/class0/0.bmp", cwd=cwd).stdout


def every_recipe_loads(cwd):
    for name in sorted(os.listdir(RECIPES)):
        config = run("--recipe", name[:-5], *NOISE, "--lr", "0.5", "--print-config", cwd=cwd).stdout.splitlines()
        assert "lr: 0.5" in config and "optim: muon" in config, config


def invalid_input_is_rejected(cwd):
    for flags, message in ((("--widths", "8,8"), "--widths: '8,8' is not A,B,C"), (("--widths", "8,8,8,8"), "'8,8,8,8' is not A,B,C"),
                           (("--widths", "8,0,8"), "stage 2 has 0 channels, want 1 to 4096"), (("--image-size", "8"), "images of 8 pixels, want at least 9")):
        fails(*NOISE, *SMALL, *flags, cwd=cwd, says=message, code=USAGE)


ROWS = [first_layer_whitens_and_is_not_trained, evaluation_equals_that_of_training, images_of_a_folder_are_classified, every_recipe_loads,
        invalid_input_is_rejected]

sys.exit(run_rows(ROWS, "lather-speedrun-", *sys.argv[2:3]))
