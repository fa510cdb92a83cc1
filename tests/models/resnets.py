#!/usr/bin/env python3
"""Relatives of residual networks give the logits of torchvision and timm; runs with LATHER_PYTHON, or a python3, that has both.

    resnets.py TRAIN_RESNET50 [ROW]
"""
import array
import json
import os
import subprocess
import sys

from trainer import MODEL, SMALL, SOURCE, Skip, read_safetensors, run, run_rows

MAKER = os.path.join(SOURCE, "tests", "golden", "make_resnets.py")
PLAIN = ["--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25", "--crop-pct", "1", "--image-size", "70", "--threads", "1"]
TOLERANCE = 1e-5


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / max(abs(y) for y in b)


def logits_are_those_of_torchvision_and_timm(cwd):
    python = os.environ.get("LATHER_PYTHON") or sys.executable
    made = subprocess.run([python, MAKER, cwd], capture_output=True, text=True)
    if made.returncode and "ModuleNotFoundError" in made.stderr:
        raise Skip(f"{python} has no timm and torchvision")
    assert not made.returncode, made.stderr
    with open(os.path.join(cwd, "logits.json")) as file:
        wanted = json.load(file)
    found = {}
    for name, rows in wanted.items():
        said = run("--eval", "--weights", f"{name}.pth", "--data", "data", "--num-classes", "5", *PLAIN, "--save-logits", "l.safetensors", cwd=cwd)
        assert name.removesuffix("50_2") in said.stderr or "1-1-1-1" in said.stderr, said.stderr
        values = array.array("f", read_safetensors(os.path.join(cwd, "l.safetensors"))["logits"][2])
        found[name] = difference(values, [x for row in rows for x in row])
    assert len(found) == 5 and max(found.values()) <= TOLERANCE, found
    assert difference(values, [1.001 * x for row in rows for x in row]) > TOLERANCE


def a_network_of_groups_is_trained_and_read_again(cwd):
    noise = ["--data", "synthetic:24:32:3"]
    for flags, title in ((["--arch", "resnext50_32x4d", "--width", "16"], "resnext50_32x4d"), (["--arch", "resnet18d", "--width", "8", "--stem", "imagenet"], "resnet18d")):
        run(*noise, *SMALL, *flags, "--max-steps", "2", "--output", "run", "--overwrite", cwd=cwd)
        said = run(*noise, "--eval", "--weights", "run/model.safetensors", "--threads", "1", cwd=cwd)
        assert title in said.stderr, said.stderr
        run(*noise, *SMALL[len(MODEL):], "--weights", "run", "--max-steps", "1", cwd=cwd)


sys.exit(run_rows([logits_are_those_of_torchvision_and_timm, a_network_of_groups_is_trained_and_read_again], "lather-resnets-", *sys.argv[2:3]))
