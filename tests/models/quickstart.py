#!/usr/bin/env python3
"""./quickstart with the build replaced by a script: its output, and the commands that it suggests.

    quickstart.py TRAIN_RESNET50 [ROW]
"""
import os
import re
import shutil
import subprocess
import sys

from trainer import BUILD, PROGRAM, SOURCE, TOOLS, run_rows, write_image

GPT = os.path.join(BUILD, "models", "gpt", "train_gpt")
REPORT = os.path.join(TOOLS, "report")
STEPS = 60


def script(path, *lines):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
    os.chmod(path, 0o755)


def place(cwd, *ninja):
    """Prepares a clone that is already built; ninja: lines of a script that prints like ninja."""
    shutil.copy(os.path.join(SOURCE, "quickstart"), cwd)
    script(os.path.join(cwd, "tools", "packages"), "exit 0")
    script(os.path.join(cwd, "bin", "meson"), "exit 0")
    script(os.path.join(cwd, "bin", "ninja"), "echo \"ninja: Entering directory\"", *ninja)
    for tool, real in (("models/resnet50/train_resnet50", PROGRAM), ("models/gpt/train_gpt", GPT), ("tools/report", REPORT)):
        path = os.path.join(cwd, "build-quickstart", tool)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.abspath(real), path)
    with open(os.path.join(cwd, "build-quickstart", "build.ninja"), "w"):
        pass


def quickstart(cwd, *flags):
    env = {**os.environ, "PATH": os.path.join(cwd, "bin") + ":" + os.environ["PATH"]}
    return subprocess.run(["./quickstart", *flags], cwd=cwd, env=env, capture_output=True, text=True, timeout=120,
                          check=False)


def progress_speed_and_next_steps_are_shown(cwd):
    place(cwd, f"for i in $(seq {STEPS}); do echo \"[$i/{STEPS}] Compiling file $i\"; done")
    p = quickstart(cwd, "--data", "synthetic:64:16:4", "--arch", "resnet10", "--width", "4", "--batch-size", "8",
                   "--threads", "1", "--progress", "off")
    assert p.returncode == 0, p.stderr[-500:] + p.stdout[-500:]
    assert re.findall(r"\[(\d+)/60\]", p.stdout) == ["25", "50", "60"], p.stdout
    assert re.search(r"Images a second: \d+ in epoch 1, \d+ in epoch 2\. The first steps are the slowest", p.stdout), p.stdout
    assert "a fiftieth of Shampoo's roots" in p.stdout, p.stdout
    for name in ("cats", "dogs"):
        os.makedirs(os.path.join(cwd, "my-images", name))
        for i in range(16):
            write_image(os.path.join(cwd, "my-images", name, f"{i}.bmp"), 24, 100 * (name == "dogs") + i)
    commands = re.findall(r"^  (build-quickstart/.*)$", p.stdout, re.M)
    assert len(commands) == 3, commands
    for command in commands:
        command = command.replace("--epochs 10", "--epochs 1 --width 8")  # shortened
        done = subprocess.run("exec " + command, shell=True, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr[-500:]}"
    assert os.path.exists(os.path.join(cwd, "runs", "mine", "report.html"))


def option_gpt_trains_a_language_model(cwd):
    place(cwd, f"for i in $(seq {STEPS}); do echo \"[$i/{STEPS}] Compiling file $i\"; done", "echo \"$@\" >asked")
    for name, words in (("corpus.txt", "And God saw every thing that he had made. "), ("my-text.txt", "To be, or not to be: that is the question. ")):
        with open(os.path.join(cwd, name), "w") as f:
            f.write(words * 400)
    small = ["--layers", "1", "--width", "16", "--heads", "2", "--threads", "1", "--progress", "off"]
    p = quickstart(cwd, "--gpt", "--data", "corpus.txt", *small, "--seq-len", "16", "--epochs", "2")
    assert p.returncode == 0, p.stderr[-500:] + p.stdout[-500:]
    with open(os.path.join(cwd, "asked")) as f:
        assert "models/gpt/train_gpt" in f.read(), "a different program was built"
    perplexity = re.search(r"^Perplexity (\d+\.\d\d) a character after \d+ s", p.stdout, re.M)
    assert perplexity and 1 < float(perplexity.group(1)) < 12, p.stdout  # 21 characters of unequal frequency
    assert re.search(r"Tokens a second: \d+ in epoch 1, \d+ in epoch 2\.", p.stdout), p.stdout
    assert re.search(r"of 400 characters:\nAnd God said.", p.stdout), p.stdout
    assert os.path.exists(os.path.join(cwd, "runs", "quickstart-gpt", "report.html"))
    commands = re.findall(r"^  (build-quickstart/.*)$", p.stdout, re.M)
    assert len(commands) == 3 and "Next, a text of your own" in p.stdout and "images" not in p.stdout.lower(), p.stdout
    for command in commands:
        command = command.replace("--epochs 10", "--epochs 1 --seq-len 32 --width 32")  # shortened
        done = subprocess.run("exec " + command, shell=True, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr[-500:]}"
    assert os.path.exists(os.path.join(cwd, "runs", "my-text", "report.html"))


def a_failed_build_shows_the_error(cwd):
    place(cwd, "echo '[1/60] Compiling a'", "echo 'FAILED: a.o'", "echo 'a.c:1: error: no'", "exit 1")
    p = quickstart(cwd)
    assert p.returncode == 1 and "FAILED: a.o\na.c:1: error: no\n" in p.stdout and "3/4" not in p.stdout, p.stdout


ROWS = [progress_speed_and_next_steps_are_shown, option_gpt_trains_a_language_model, a_failed_build_shows_the_error]

sys.exit(run_rows(ROWS, "lather-quickstart-", *sys.argv[2:3]))
