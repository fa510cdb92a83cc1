#!/usr/bin/env python3
"""The command predict as its users run it, and exit statuses: 1 an error, 2 a wrong command line.

    predict.py TRAIN_RESNET50 [ROW]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import run_rows  # noqa: E402
from trainer import ERROR, NOISE, OK, PROGRAM, SMALL, TIMEOUT, USAGE, folders, run  # noqa: E402


def predict(*args, cwd, code=OK, stdin=None):
    p = subprocess.run([PROGRAM, "predict", *args], cwd=cwd, capture_output=True, timeout=TIMEOUT, input=stdin)
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stderr[-500:]}"
    return p


def trained(cwd):
    folders(cwd)
    run("--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd", "--output", "run", cwd=cwd)
    return ["--weights", "run/model.safetensors"]


def a_wrong_command_line_ends_with_2(cwd):
    weights = trained(cwd)
    image = "data/val/class0/0.bmp"
    for flags in (["--bogus"], [], [image, "--device", "tpu"], [image, "--mean", "2"], [image, "--top", "0"]):
        assert predict(*weights, *flags, cwd=cwd, code=USAGE).stderr.count(b"train_resnet50 predict: ") == 1
    predict(image, cwd=cwd, code=USAGE)
    for flags in (["--arch", "resnet19"], ["--device", "tpu"], ["--param-group", "(:lr=1"], ["--freeze", "["], ["--optim", "lamb"],
                  ["--depths", "1,2"], ["--batch-size", "1000"]):
        run(*NOISE, *SMALL, *flags, cwd=cwd, code=USAGE)
    predict("--weights", "none", image, cwd=cwd, code=ERROR)
    run("--data", "nowhere", *SMALL, cwd=cwd, code=ERROR)
    run(*NOISE, *SMALL, "--weights", "none", cwd=cwd, code=ERROR)


ROWS = [a_wrong_command_line_ends_with_2]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-predict-", *sys.argv[2:3]))
