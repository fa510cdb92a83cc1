#!/usr/bin/env python3
"""Runs train_vit or train_gpt with --tensor-parallel: what one rank does, from checkpoints of any mesh.

    tests/models/ranks_tp.py BUILD/models/vit/train_vit MPIRUN [ROW]
    tests/models/ranks_tp.py BUILD/models/gpt/train_gpt MPIRUN [ROW]
    tests/models/ranks_tp.py --long ...        rows of eight ranks

Exit status 77 without MPIRUN, or if the build has no MPI. Prints cmocka's lines.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import MPI, SKIPPED, full, run_rows  # noqa: E402

LONG = "--long" in sys.argv
ARGS = [a for a in sys.argv[1:] if a != "--long"]
PROGRAM, LAUNCHER = os.path.abspath(ARGS[0]), ARGS[1]
GPT = os.path.basename(PROGRAM) == "train_gpt"
RESNET = os.path.join(os.path.dirname(PROGRAM), "..", "resnet50", "train_resnet50")
TIMEOUT = 240
OK, USAGE = 0, 2
# Sizes that 2, 3 and 4 ranks divide; an uneven vocabulary, and classes.
MODEL = ["--layers", "1", "--positions", "16"] if GPT else ["--patch-size", "8", "--depth", "1"]
MODEL += ["--width", "24", "--heads", "6"]
COMMON = [*MODEL, "--progress", "off", "--no-tensorboard", "--workers", "1", "--threads", "1", "--eval-every", "0", "--keep", "0"]


def data(cwd):
    if not GPT:
        return ["--data", "synthetic:64:16:5"]
    with open(os.path.join(cwd, "text.txt"), "w", encoding="utf-8") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 60)
    return ["--data", "text.txt", "--seq-len", "16"]


def run(ranks, *args, cwd, code=OK, program=PROGRAM):
    words = [*([LAUNCHER, "-n", str(ranks)] if ranks > 1 else []), program, *args]
    with subprocess.Popen(words, cwd=cwd, env={**os.environ, **MPI}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as p:
        try:
            out, err = p.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            raise AssertionError(f"hangs: {p.communicate()[1][-500:]}") from None
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {err[-1500:]}"
    return out, err


def steps(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def epochs(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "epoch"]


def path(cwd, folder, step, name="model.safetensors"):
    return os.path.join(cwd, folder, "checkpoints", f"step-{step}", name)


def content(name):
    with open(name, "rb") as f:
        return f.read()


def header(name):
    """Names, dtypes, shapes and places of a safetensors file's tensors."""
    head = content(name)
    found = json.loads(head[8:8 + int.from_bytes(head[:8], "little")])
    found.pop("__metadata__", None)
    return found


def same_losses(a, b, first=1, bound=1e-5):
    """Relative: losses begin near log(257) with GPT."""
    assert len(a) == len(b) and a[first - 1]["step"] == first, (len(a), len(b))
    for x, y in zip(a[first - 1:], b[first - 1:]):
        assert abs(x["loss"] - y["loss"]) <= bound * max(1, x["loss"]), (x["step"], x["loss"], y["loss"])
        assert abs(x["gradient_norm"] - y["gradient_norm"]) <= 1e-3 * x["gradient_norm"], (x["step"], x["gradient_norm"], y["gradient_norm"])


def once(cwd, tp, ranks, flags, output, batch):
    run(ranks, *data(cwd), *COMMON, *flags, "--tensor-parallel", tp, "--batch-size", str(batch), "--output", output, cwd=cwd)


def losses_are_those_of_one_rank(cwd, tp, ranks, copies, flags):
    flags = [*flags, "--max-steps", "12"]
    once(cwd, "1", 1, flags, "one", 8)
    once(cwd, tp, ranks, flags, "many", 8 // copies)
    one, many = steps(cwd, "one"), steps(cwd, "many")
    assert len(one) == 12 and abs(one[-1]["loss"] - one[0]["loss"]) > 1e-3, "nothing was trained"
    same_losses(one, many)
    assert all(0 < r["tp_bytes"] < r["comm_bytes"] for r in many) and "tp_bytes" not in one[0], many[0]
    rate = "tokens_per_second" if GPT else "images_per_second"
    assert abs(many[0][rate] * many[0]["seconds"] - one[0][rate] * one[0]["seconds"]) < 1e-6, (many[0], one[0])
    a, b = epochs(cwd, "one")[-1], epochs(cwd, "many")[-1]
    for key in ("val_loss", "train_loss"):
        assert abs(a[key] - b[key]) <= 2e-5 * max(1, a[key]), (key, a[key], b[key])
    for name in ("model.safetensors", "optim.safetensors"):
        assert header(path(cwd, "one", 12, name)) == header(path(cwd, "many", 12, name)), name
    assert len(content(os.path.join(cwd, "many", "model.safetensors"))) == len(content(os.path.join(cwd, "one", "model.safetensors")))
    return many


SHAMPOO = ["--optim", "shampoo", "--lr", "0.01", "--precondition-frequency", "5", "--start-preconditioning-step", "5"]


def copies_of_two_ranks_do_what_one_does(cwd):
    copies = 1 if GPT else 2  # two means over labels are not one where some are ignored
    losses_are_those_of_one_rank(cwd, "2", 2 * copies, copies, [*SHAMPOO, "--ema-decay", "0.9", "--clip-grad", "1"])
    with open(path(cwd, "many", 12, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    assert (state["ranks"], state["global_batch"]) == (2 * copies, 8), state
    with open(os.path.join(cwd, "many", "config.yaml"), encoding="utf-8") as f:
        assert "tensor-parallel: 2\n" in f.read()


def a_grid_does_what_one_rank_does(cwd):
    losses_are_those_of_one_rank(cwd, "2x2", 4, 1, ["--optim", "adamw", "--lr", "0.002"])


def a_grid_in_depth_does_what_one_rank_does(cwd):
    losses_are_those_of_one_rank(cwd, "2x2x2", 8, 1, SHAMPOO)


def killed_after(cwd, copy, step):
    """A copy of the run "whole" as if it had been killed right after the checkpoint of a step."""
    copy = os.path.join(cwd, copy)
    shutil.copytree(os.path.join(cwd, "whole"), copy, symlinks=True)
    os.remove(os.path.join(copy, "model.safetensors"))
    folder = os.path.join(copy, "checkpoints")
    for name in os.listdir(folder):
        entry = os.path.join(folder, name)
        if os.path.islink(entry):
            os.unlink(entry)
        elif int(name[5:]) > step:
            shutil.rmtree(entry)


def go_on_with(cwd, meshes):
    flags = [*data(cwd), *COMMON, *SHAMPOO, "--precondition-frequency", "3", "--deterministic", "--epochs", "2", "--max-steps", "12", "--checkpoint-every", "6"]
    run(4, *flags, "--batch-size", "8", "--tensor-parallel", "2x2", "--output", "whole", cwd=cwd)
    for ranks, tp, batch, accum in meshes:
        name = f"{ranks}-{tp}"
        killed_after(cwd, name, 6)
        run(ranks, *flags, "--batch-size", str(batch), "--grad-accum", str(accum), "--tensor-parallel", tp, "--output", name, "--resume", "auto", cwd=cwd)
        for file in ("model.safetensors", "optim.safetensors"):
            assert header(path(cwd, name, 12, file)) == header(path(cwd, "whole", 12, file)), (name, file)
        same_losses(steps(cwd, "whole"), steps(cwd, name))


def a_run_goes_on_with_any_mesh(cwd):
    go_on_with(cwd, ((4, "2x2", 8, 1), (3, "3", 4, 2), (1, "1", 8, 1)))
    for file in ("model.safetensors", "optim.safetensors"):
        assert content(path(cwd, "whole", 12, file)) == content(path(cwd, "4-2x2", 12, file)), f"{file}: not bit for bit"


@full
def a_run_of_a_grid_goes_on_with_copies(cwd):
    go_on_with(cwd, ((4, "2", 4, 1),))


def overlap_changes_no_bit(cwd):
    ranks, tp = (2, "2") if GPT else (4, "2x2")
    for switch in ("on", "off"):
        once(cwd, tp, ranks, ["--tp-overlap", switch, "--optim", "sgd", "--lr", "0.1", "--max-steps", "3", "--deterministic"], switch, 4)
    assert content(path(cwd, "on", 3)) == content(path(cwd, "off", 3))
    assert [r["tp_bytes"] for r in steps(cwd, "on")] == [r["tp_bytes"] for r in steps(cwd, "off")]


def elementwise_updates_of_boxes_are_those_of_owners(cwd):
    """Files bit for bit, also of a run that went on; nothing of the update is sent but norms."""
    flags = ["--optim", "adamw", "--ema-decay", "0.9", "--deterministic", "--epochs", "4", "--max-steps"]
    once(cwd, "2", 4, [*flags, "6", "--checkpoint-every", "3"], "whole", 4)
    once(cwd, "2", 4, [*flags, "6", "--shard-optimizer"], "owners", 4)
    killed_after(cwd, "half", 3)
    once(cwd, "2", 4, [*flags, "6", "--resume", "auto"], "half", 4)
    for file in ("model.safetensors", "optim.safetensors"):
        assert content(path(cwd, "whole", 6, file)) == content(path(cwd, "owners", 6, file)) == content(path(cwd, "half", 6, file)), file
    boxes, owners = (steps(cwd, f)[4]["comm_bytes"] for f in ("whole", "owners"))
    assert 1.5 * boxes < owners, (boxes, owners)


def evaluation_counts_each_sample_once(cwd):
    once(cwd, "1", 1, ["--optim", "sgd", "--max-steps", "2"], "run", 8)
    flags = [*data(cwd), "--eval", "--weights", "run/model.safetensors", "--progress", "off", "--batch-size", "6", "--threads", "1"]
    out = [run(ranks, *flags, "--tensor-parallel", tp, cwd=cwd)[0] for ranks, tp in ((1, "1"), (2, "2") if GPT else (4, "2x2"))]
    numbers = [[float(x) for x in re.findall(r"\d+\.?\d*", line)] for line in out]
    assert len(numbers[0]) == len(numbers[1]) > 3 and numbers[0][-1] == numbers[1][-1] > 1, out  # how many they are
    assert all(abs(x - y) <= 1e-4 * y for x, y in zip(*numbers)), out


def what_does_not_divide_is_named(cwd):
    flags = [*data(cwd), *COMMON, "--batch-size", "8", "--max-steps", "1"]
    heads = ["--heads", "8", "--width", "32"]
    for ranks, args, says in ((3, ["--tensor-parallel", "3", *heads], ("--tensor-parallel 3: ", "8 heads", "use 9")),
                              (4, ["--tensor-parallel", "2x2", "--batch-size", "3"], ("--tensor-parallel 2x2: ", "a batch of 3", "use 2")),
                              (3, ["--tensor-parallel", "2"], ("3 ranks are not a multiple of the 2",))):
        _, err = run(ranks, *flags, *args, cwd=cwd, code=USAGE)
        assert all(word in err for word in says), err


def what_contradicts_is_named(cwd):
    flags = [*data(cwd), *COMMON, "--max-steps", "1", "--optim", "shampoo"]
    for tp, args in (("2", ["--local-steps", "2"]), ("2", ["--compress", "topk:0.1"]), ("2", ["--shard-gradients"]), ("2", ["--num-trainers-per-group", "1"]),
                     ("2", ["--allreduce", "two-level"]), ("2", ["--share-device", "name"]), ("2x2", ["--amp", "bf16"]), ("2x2", ["--sequence-parallel", "off"])):
        _, err = run(1, *flags, "--tensor-parallel", tp, *args, cwd=cwd, code=USAGE)
        assert args[0] in err and f"--tensor-parallel {tp}" in err and "alone" not in err, err
    for args in (["--tp-overlap", "off"], ["--sequence-parallel", "off"], ["--force"]):
        _, err = run(1, *flags, *args, cwd=cwd, code=USAGE)
        assert f"{' '.join(args)}: needs --tensor-parallel" in err, err
    _, err = run(1, *flags, "--tensor-parallel", "2", cwd=cwd, code=USAGE)
    assert "one process alone: start 2" in err, err


def ranks_disagree(cwd):
    flags = [*data(cwd), *COMMON, "--batch-size", "8", "--max-steps", "1"]
    words = [LAUNCHER, "-n", "1", PROGRAM, *flags, "--tensor-parallel", "2", ":", "-n", "1", PROGRAM, *flags]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode and "--tensor-parallel is 2 on rank 0, 1 on rank 1" in done.stderr, done.stderr


def residual_networks_say_that_they_have_no_form(cwd):
    _, err = run(2, "--data", "synthetic:64:16:5", "--arch", "resnet10", "--width", "4", "--max-steps", "1", "--tensor-parallel", "2", cwd=cwd,
                 code=USAGE, program=RESNET)
    assert "has no tensor-parallel form" in err, err


def where_data_parallelism_moves_less_it_says_so_once(cwd):
    flags = [*data(cwd), *COMMON, "--optim", "sgd", "--max-steps", "2", "--progress", "lines", "--tensor-parallel", "2"]
    _, err = run(2, *flags, "--batch-size", "32", cwd=cwd)
    assert err.count("--tensor-parallel 1 --batch-size 16, which fits into memory") == 1, err
    _, err = run(2, *flags, "--batch-size", "1", cwd=cwd)  # no sample for the second rank
    assert "would be faster" not in err, err


ROWS = [copies_of_two_ranks_do_what_one_does, a_grid_does_what_one_rank_does, overlap_changes_no_bit, evaluation_counts_each_sample_once]
OF_VIT = [a_run_goes_on_with_any_mesh, a_run_of_a_grid_goes_on_with_copies, elementwise_updates_of_boxes_are_those_of_owners, what_does_not_divide_is_named, what_contradicts_is_named, ranks_disagree,
          residual_networks_say_that_they_have_no_form, where_data_parallelism_moves_less_it_says_so_once]


def can_run():
    if not shutil.which(LAUNCHER):
        print(f"no {LAUNCHER}")
        return False
    with tempfile.TemporaryDirectory(prefix="lather-tp-") as cwd:
        words = [LAUNCHER, "-n", "2", PROGRAM, *data(cwd), *COMMON, "--max-steps", "1", "--batch-size", "4"]
        done = subprocess.run(words, cwd=cwd, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    missing = done.returncode and ("not in this build" in done.stderr or "unknown communicator" in done.stderr)
    if missing:
        print(done.stderr)
    return not missing


ALL = [a_grid_in_depth_does_what_one_rank_does] if LONG else ROWS if GPT else ROWS + OF_VIT
sys.exit(run_rows(ALL, "lather-tp-", *ARGS[2:3]) if can_run() else SKIPPED)
