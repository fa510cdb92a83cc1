#!/usr/bin/env python3
"""Runs train_resnet50 --device cuda on the stand-in: the same bits in every order of queued work,
recorded or not; what is missing, too old, too little or broken is said.

    train.py TRAIN_RESNET50 FOLDER_OF_THE_MODULE [ROW]

Every row gets a fresh folder. Prints cmocka's lines.
"""
import filecmp
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, MODULE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SMALL = ["--data", "synthetic:24:16:3", "--arch", "resnet10", "--width", "4", "--batch-size", "4", "--epochs", "2",
         "--max-steps", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--no-tensorboard", "--deterministic",
         "--lr", "0.02"]
CUDA = ["--device", "cuda"]
TIMEOUT = 120
COUNTS = re.compile(r"(\d+) works, (\d+) copies, (\d+) waits \((\d+) dropped\), (\d+) captures, (\d+) launches")


def run(cwd, name, *args, code=0, **wishes):
    """A run into cwd/name; wishes: LATHER_..., by the rest of their names. Returns the process, with counts."""
    env = dict(os.environ, OMP_WAIT_POLICY="passive", LATHER_MODULE_PATH=MODULE, LATHER_STANDIN_LOG="1",
               XDG_CACHE_HOME=os.path.join(cwd, "cache"))
    env.update({"LATHER_" + key: str(value) for key, value in wishes.items()})
    p = subprocess.run([PROGRAM, *SMALL, *args, "--output", os.path.join(cwd, name)], env=env, capture_output=True,
                       text=True, timeout=TIMEOUT)
    assert code is None or p.returncode == code, f"{name}: exit {p.returncode}, want {code}: {p.stderr[-600:]}"
    found = COUNTS.search(p.stderr)
    p.works, p.copies, p.waits, p.drops, p.captures, p.launches = map(int, found.groups()) if found else [0] * 6
    return p


def same(cwd, a, b):
    return filecmp.cmp(*(os.path.join(cwd, name, "model.safetensors") for name in (a, b)), shallow=False)


def numbers(cwd, name, event="step"):
    with open(os.path.join(cwd, name, "metrics.jsonl"), encoding="utf-8") as f:
        return [row for row in map(json.loads, f) if row["event"] == event]


def agrees(cwd, *args, recorded=True):
    """The same bits eager, recorded, and in the orders of the stand-in."""
    run(cwd, "eager", *CUDA, *args, "--no-graph", STANDIN="now")
    p = run(cwd, "recorded", *CUDA, *args, STANDIN="late")
    assert not recorded or (p.captures and p.launches), f"{p.captures} captures, {p.launches} launches"
    run(cwd, "shuffled", *CUDA, *args, STANDIN="shuffled")
    run(cwd, "main-first", *CUDA, *args, STANDIN="main-first")
    run(cwd, "main-last", *CUDA, *args, STANDIN="main-last")
    for name in ("recorded", "shuffled", "main-first", "main-last"):
        assert same(cwd, "eager", name), f"{name} differs from eager"


def every_order(cwd):
    agrees(cwd, "--optim", "sgd")
    for seed in (2, 3):
        run(cwd, f"seed{seed}", *CUDA, "--optim", "sgd", STANDIN="shuffled", STANDIN_SEED=seed)
        assert same(cwd, "eager", f"seed{seed}")


def a_forgotten_wait(cwd):
    """The control: without its waits for events a run must differ, or end."""
    run(cwd, "right", *CUDA, STANDIN="late")
    p = run(cwd, "wrong", *CUDA, STANDIN="late", STANDIN_DROP=-1, code=None)
    assert p.drops > 0 and (p.returncode or not same(cwd, "right", "wrong")), "nobody noticed"


def one_forgotten_wait(cwd):
    """The same for single waits, where one of the two streams runs ahead of the other: few, such as the first
    ones of all, are there for nothing."""
    more = [*CUDA, "--max-steps", "6", "--eval-every", "0"]
    right = run(cwd, "right", *more, STANDIN="main-first")
    found = {}
    for wait in range(3, min(right.waits, 9) + 1):
        for order in ("main-first", "main-last"):
            name = f"{order}{wait}"
            p = run(cwd, name, *more, STANDIN=order, STANDIN_DROP=wait, code=None)
            found[wait] = found.get(wait) or p.returncode != 0 or not same(cwd, "right", name)
    assert sum(found.values()) >= 2 * len(found) // 3 and found, f"found: {found}"


def optimizers(cwd):
    for optim in ("adamw", "adam", "adagrad"):
        run(cwd, optim, *CUDA, "--optim", optim, "--no-graph", STANDIN="now")
        run(cwd, optim + "2", *CUDA, "--optim", optim, STANDIN="shuffled")
        assert same(cwd, optim, optim + "2"), optim


def shampoo(cwd):
    for optim in ("shampoo", "soap"):
        more = ["--max-steps", "5", "--precondition-frequency", "2", "--start-preconditioning-step", "2"]
        run(cwd, optim, *CUDA, "--optim", optim, *more, "--no-graph", STANDIN="now")
        run(cwd, optim + "2", *CUDA, "--optim", optim, *more, STANDIN="shuffled")
        assert same(cwd, optim, optim + "2"), optim


def precisions(cwd):
    for amp in (["--amp", "f16"], ["--amp", "bf16"], ["--tf32", "on"], ["--amp", "bf16", "--fused", "on"]):
        name = "".join(amp).replace("-", "")
        run(cwd, name, *CUDA, *amp, "--no-graph", STANDIN="now")
        run(cwd, name + "2", *CUDA, *amp, STANDIN="late")
        assert same(cwd, name, name + "2"), amp


def features(cwd):
    for args in (["--ema-decay", "0.9"], ["--mixup-alpha", "0.4"], ["--grad-accum", "2"], ["--recompute", "off"],
                 ["--clip-grad", "1"], ["--eval-batch-size", "3"]):
        name = args[0].strip("-")
        run(cwd, name, *CUDA, *args, "--no-graph", STANDIN="now")
        run(cwd, name + "2", *CUDA, *args, STANDIN="shuffled")
        assert same(cwd, name, name + "2"), args
        assert numbers(cwd, name, "epoch")[-1]["val_loss"] == numbers(cwd, name + "2", "epoch")[-1]["val_loss"], args


def reruns(cwd):
    run(cwd, "a", *CUDA, STANDIN="late")
    run(cwd, "b", *CUDA, STANDIN="late")
    assert same(cwd, "a", "b")


def resumes(cwd):
    more = ["--amp", "f16", "--optim", "adamw", "--checkpoint-every", "1"]
    run(cwd, "whole", *CUDA, *more, STANDIN="late")
    run(cwd, "half", *CUDA, *more, "--max-steps", "3", STANDIN="late")
    run(cwd, "half", *CUDA, *more, "--resume", "auto", STANDIN="shuffled")
    assert same(cwd, "whole", "half")


def killed(cwd):
    more = ["--checkpoint-every", "1", "--optim", "adamw"]
    run(cwd, "whole", *CUDA, *more, STANDIN="late")
    env = dict(os.environ, LATHER_MODULE_PATH=MODULE, LATHER_STANDIN="late", XDG_CACHE_HOME=os.path.join(cwd, "cache"))
    with subprocess.Popen([PROGRAM, *SMALL, *CUDA, *more, "--output", os.path.join(cwd, "cut")], env=env) as p:
        end = time.monotonic() + TIMEOUT
        while p.poll() is None and not os.path.exists(os.path.join(cwd, "cut", "latest")) and time.monotonic() < end:
            time.sleep(0.002)
        p.send_signal(signal.SIGKILL)
    run(cwd, "cut", *CUDA, *more, "--resume", "auto", STANDIN="late")
    assert same(cwd, "whole", "cut")


def crosses(cwd):
    """A checkpoint of one device goes on on the other, with nearly its losses."""
    for here, there in (("cuda", "cpu"), ("cpu", "cuda")):
        name = f"{here}-{there}"
        run(cwd, here, "--device", here, "--optim", "adamw", STANDIN="late")
        run(cwd, name, "--device", here, "--optim", "adamw", "--max-steps", "4", STANDIN="late")
        run(cwd, name, "--device", there, "--optim", "adamw", "--resume", "auto", STANDIN="late")
        want, got = numbers(cwd, here)[-1]["loss"], numbers(cwd, name)[-1]["loss"]
        assert abs(got - want) <= 0.01 * want, f"{name}: {got}, want {want}"


def learns(cwd):
    run(cwd, "learn", *CUDA, "--overfit-batches", "2", "--epochs", "40", "--max-steps", "80", "--eval-every", "40",
        "--lr", "0.05", "--label-smoothing", "0", STANDIN="late")
    first, last = numbers(cwd, "learn")[0]["loss"], numbers(cwd, "learn", "epoch")[-1]
    assert last["train_top1"] == 100 and last["train_loss"] < first / 2, f"from {first} to {last}"


def overflows(cwd):
    """Infinite gradients: the scale is halved, the step is skipped and counted, the others go on."""
    run(cwd, "f16", *CUDA, "--amp", "f16", "--lr", "30", "--on-nan", "skip", STANDIN="late", code=None)
    rows = numbers(cwd, "f16")
    assert rows and rows[-1]["skipped_steps"] > 0, rows[-1:]
    assert rows[-1]["loss_scale"] < 65536, rows[-1]


def says(cwd, *words, args=(), **wishes):
    p = run(cwd, "bad", *CUDA, *args, code=1, **wishes)
    last = [line for line in p.stderr.splitlines() if line.startswith("train_resnet50: ")][-1]
    for word in words:
        assert re.search(word, last), f"'{last}' does not say '{word}'"


def no_driver(cwd):
    says(cwd, "no NVIDIA driver", STANDIN_DEVICES=-1)


def old_driver(cwd):
    says(cwd, r"the driver is for CUDA \d+\.0, want one for", STANDIN_OLD=1)


def no_device(cwd):
    says(cwd, "there is a driver, but no device", STANDIN_DEVICES=0)


def no_such_device(cwd):
    says(cwd, r"device cuda:1: there are 1 devices", args=["--device", "cuda:1"])


def the_second_device(cwd):
    run(cwd, "one", *CUDA, STANDIN="late", STANDIN_DEVICES=2)
    run(cwd, "two", "--device", "cuda:1", STANDIN="late", STANDIN_DEVICES=2)
    assert same(cwd, "one", "two")


def no_memory(cwd):
    """Too large a batch: the tensor, the bytes, what is free, and a batch that may fit."""
    says(cwd, r"no [\d.]+ MiB of device memory", r"[\d.]+ of 20\.0 MiB are free", r"f32 \[\d+,\d+,\d+,\d+\]",
         r"a batch of \d+ instead of 64 may fit", args=["--data", "synthetic:64:64:3", "--batch-size", "64"],
         STANDIN_MEMORY=20)


def a_fault(cwd):
    says(cwd, "illegal memory access", "LATHER_SYNC=1 names it", STANDIN="late", STANDIN_FAULT=1200)


def a_fault_has_a_name(cwd):
    """The same work is at fault in both: with LATHER_SYNC=1 the operation that queued it is named."""
    names = set()
    for n in (300, 303, 310, 317):
        p = run(cwd, f"bad{n}", *CUDA, STANDIN="late", STANDIN_FAULT=n, SYNC=1, code=1)
        found = re.findall(r"train_resnet50: cuda:0: (\w+): \w+: CUDA says: an illegal", p.stderr)
        names.update(found)
    assert names - {"upload", "sync", "copy"}, f"names: {names}"


ROWS = [every_order, a_forgotten_wait, one_forgotten_wait, optimizers, shampoo, precisions, features, reruns, resumes,
        killed, crosses, learns, overflows, no_driver, old_driver, no_device, no_such_device, the_second_device, no_memory,
        a_fault, a_fault_has_a_name]


def main():
    failed, chosen = 0, [row for row in ROWS if row.__name__ == (sys.argv[3:] or [row.__name__])[0]]
    print(f"[==========] Running {len(chosen)} test(s).")
    for row in chosen:
        print(f"[ RUN      ] {row.__name__}", flush=True)
        try:
            with tempfile.TemporaryDirectory() as cwd:
                row(cwd)
            print(f"[       OK ] {row.__name__}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired, OSError, IndexError, KeyError) as e:
            failed += 1
            print(f"{row.__name__}: {e!r}"[:1500])
            print(f"[  FAILED  ] {row.__name__}", flush=True)
    print(f"[  PASSED  ] {len(chosen) - failed} test(s).")
    return 1 if failed or not chosen else 0


sys.exit(main())
