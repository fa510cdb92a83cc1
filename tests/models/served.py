#!/usr/bin/env python3
"""Training on images from `train_mlp serve-data`: --data service:ADDRESS.

    served.py TRAIN_MLP [ROW]
"""
import os
import signal
import subprocess
import sys

from trainer import ERROR, OK, PROGRAM, TIMEOUT, USAGE, digest, fails, finish, folders, run, run_rows

QUIET = ["--batch-size", "4", "--threads", "1", "--workers", "2", "--progress", "off", "--deterministic", "--hidden", "8", "--epochs", "3",
         "--auto-augment", "ta_wide", "--mixup", "0.2", "--seed", "5"]


def serve(cwd, *args, env=None):
    p = subprocess.Popen([PROGRAM, "serve-data", *args], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    address = p.stdout.readline().strip()
    if not address:
        raise AssertionError(p.communicate(timeout=TIMEOUT)[1])
    return p, address


def end(p):
    p.send_signal(signal.SIGTERM)
    return finish(p, OK)[1]


def weights(cwd, name):
    return digest(os.path.join(cwd, name, "model.safetensors"))


def served_data_gives_bitwise_identical_runs(cwd):
    folders(cwd)
    with open(os.path.join(cwd, "data", "train", "class1", "corrupt.png"), "w", encoding="utf-8") as f:
        f.write("not an image")
    run("--data", "data", *QUIET, "--output", "local", cwd=cwd)
    services = [serve(cwd, "--data", "data", "--threads", "2") for _ in range(2)]
    run("--data", "service:" + ",".join(address for _, address in services), *QUIET, "--output", "served", cwd=cwd)
    for p, _ in services:
        text = end(p)
        assert "images made" in text and not text.splitlines()[-1].startswith("0 "), text
    assert weights(cwd, "served") == weights(cwd, "local")
    lists = [open(os.path.join(cwd, name, "bad_images.txt"), encoding="utf-8").read() for name in ("local", "served")]
    assert "corrupt.png" in lists[0] and lists[0] == lists[1], lists


def remote_addresses_need_a_secret(cwd):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LATHER_JOB")}
    p = subprocess.run([PROGRAM, "serve-data", "--data", "synthetic:8:16:2", "--address", "tcp://0.0.0.0:0"], cwd=cwd, capture_output=True, text=True,
                       timeout=TIMEOUT, env=env)
    assert p.returncode == USAGE and "secret" in p.stderr, p.stderr
    p, address = serve(cwd, "--data", "synthetic:24:16:3", env=dict(env, LATHER_JOB_TOKEN="hidden from others"))
    try:
        fails("--data", f"service:{address}", *QUIET, cwd=cwd, code=ERROR, says="secret")
        os.environ["LATHER_JOB_TOKEN"] = "hidden from others"
        run("--data", f"service:{address}", *QUIET, cwd=cwd)
    finally:
        os.environ.pop("LATHER_JOB_TOKEN", None)
        end(p)


ROWS = [served_data_gives_bitwise_identical_runs, remote_addresses_need_a_secret]

sys.exit(run_rows(ROWS, "lather-served-", *sys.argv[2:3]))
