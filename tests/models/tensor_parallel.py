#!/usr/bin/env python3
"""Runs train_vit or train_gpt with --tensor-parallel: results equal those of one rank, also resumed on another mesh.

    tests/models/tensor_parallel.py BUILD/models/vit/train_vit MPIRUN [ROW]
    tests/models/tensor_parallel.py BUILD/models/gpt/train_gpt MPIRUN [ROW]

Exit status 77 without MPIRUN, or if the build has no MPI. Prints cmocka's lines.
"""
import json
import os
import re
import sys

from trainer import (BUILD, NAME, SKIPPED, USAGE, checkpoint, content, copy_until, epochs_of, finish, full, has_mpi, read_header, run_ranks,
                     run_rows, start_ranks, steps_of)

LAUNCHER = sys.argv[2]
GPT = NAME == "train_gpt"
RESNET = os.path.join(BUILD, "models", "resnet50", "train_resnet50")
# Sizes divisible by 2, 3 and 4 ranks, with an indivisible vocabulary or class count.
MODEL = ["--layers", "1", "--positions", "16"] if GPT else ["--patch-size", "8", "--depth", "1"]
MODEL += ["--width", "24", "--heads", "6"]
COMMON = [*MODEL, "--progress", "off", "--no-tensorboard", "--workers", "1", "--threads", "1", "--eval-every", "0", "--keep", "0"]


def data(cwd):
    if not GPT:
        return ["--data", "synthetic:64:16:5"]
    with open(os.path.join(cwd, "text.txt"), "w", encoding="utf-8") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 60)
    return ["--data", "text.txt", "--seq-len", "16"]


def run(ranks, *args, cwd, **more):
    return run_ranks(LAUNCHER, ranks, *args, cwd=cwd, **more)


def header(name):
    """Returns names, dtypes, shapes and offsets of a safetensors file's tensors."""
    found = read_header(name)[0]
    found.pop("__metadata__", None)
    return found


def same_losses(a, b, first=1, bound=1e-5):
    """Compares losses, relative above 1, and gradient norms."""
    assert len(a) == len(b) and a[first - 1]["step"] == first, (len(a), len(b))
    for x, y in zip(a[first - 1:], b[first - 1:]):
        assert abs(x["loss"] - y["loss"]) <= bound * max(1, x["loss"]), (x["step"], x["loss"], y["loss"])
        assert abs(x["gradient_norm"] - y["gradient_norm"]) <= 1e-3 * x["gradient_norm"], (x["step"], x["gradient_norm"], y["gradient_norm"])


def once(cwd, tp, ranks, flags, output, batch):
    run(ranks, *data(cwd), *COMMON, *flags, "--tensor-parallel", tp, "--batch-size", str(batch), "--output", output, cwd=cwd)


def losses_equal_those_of_one_rank(cwd, tp, ranks, copies, flags):
    flags = [*flags, "--max-steps", "12"]
    once(cwd, "1", 1, flags, "one", 8)
    once(cwd, tp, ranks, flags, "many", 8 // copies)
    one, many = steps_of(cwd, "one"), steps_of(cwd, "many")
    assert len(one) == 12 and abs(one[-1]["loss"] - one[0]["loss"]) > 1e-3, "training changed nothing"
    same_losses(one, many)
    assert all(0 < r["tp_bytes"] < r["comm_bytes"] for r in many) and "tp_bytes" not in one[0], many[0]
    rate = "tokens_per_second" if GPT else "images_per_second"
    assert abs(many[0][rate] * many[0]["seconds"] - one[0][rate] * one[0]["seconds"]) < 1e-6, (many[0], one[0])
    a, b = epochs_of(cwd, "one")[-1], epochs_of(cwd, "many")[-1]
    for key in ("val_loss", "train_loss"):
        assert abs(a[key] - b[key]) <= 2e-5 * max(1, a[key]), (key, a[key], b[key])
    for name in ("model.safetensors", "optim.safetensors"):
        assert header(checkpoint(cwd, "one", 12, name)) == header(checkpoint(cwd, "many", 12, name)), name
    assert len(content(os.path.join(cwd, "many", "model.safetensors"))) == len(content(os.path.join(cwd, "one", "model.safetensors")))
    return many


SHAMPOO = ["--optim", "shampoo", "--lr", "0.01", "--precondition-frequency", "5", "--start-preconditioning-step", "5"]


def replicas_of_two_ranks_train_like_one_rank(cwd):
    copies = 1 if GPT else 2  # with ignored labels, the mean of two replicas' means differs
    losses_equal_those_of_one_rank(cwd, "2", 2 * copies, copies, [*SHAMPOO, "--ema-decay", "0.9", "--clip-grad", "1"])
    with open(checkpoint(cwd, "many", 12, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    assert (state["ranks"], state["global_batch"]) == (2 * copies, 8), state
    with open(os.path.join(cwd, "many", "config.yaml"), encoding="utf-8") as f:
        assert "tensor-parallel: 2\n" in f.read()


def a_grid_trains_like_one_rank(cwd):
    losses_equal_those_of_one_rank(cwd, "2x2", 4, 1, ["--optim", "adamw", "--lr", "0.002"])


@full
def a_grid_with_depth_trains_like_one_rank(cwd):
    losses_equal_those_of_one_rank(cwd, "2x2x2", 8, 1, SHAMPOO)


def resume_on(cwd, meshes):
    flags = [*data(cwd), *COMMON, *SHAMPOO, "--precondition-frequency", "3", "--deterministic", "--epochs", "2", "--max-steps", "12", "--checkpoint-every", "6"]
    run(4, *flags, "--batch-size", "8", "--tensor-parallel", "2x2", "--output", "whole", cwd=cwd)
    for ranks, tp, batch, accum in meshes:
        name = f"{ranks}-{tp}"
        copy_until(cwd, "whole", name, 6)
        run(ranks, *flags, "--batch-size", str(batch), "--grad-accum", str(accum), "--tensor-parallel", tp, "--output", name, "--resume", "auto", cwd=cwd)
        for file in ("model.safetensors", "optim.safetensors"):
            assert header(checkpoint(cwd, name, 12, file)) == header(checkpoint(cwd, "whole", 12, file)), (name, file)
        same_losses(steps_of(cwd, "whole"), steps_of(cwd, name))


def a_run_resumes_on_any_mesh(cwd):
    resume_on(cwd, ((4, "2x2", 8, 1), (3, "3", 4, 2), (1, "1", 8, 1)))
    for file in ("model.safetensors", "optim.safetensors"):
        assert content(checkpoint(cwd, "whole", 12, file)) == content(checkpoint(cwd, "4-2x2", 12, file)), f"{file}: not bitwise identical"


@full
def a_grid_run_resumes_on_replicas(cwd):
    resume_on(cwd, ((4, "2", 4, 1),))


def overlap_changes_no_bit(cwd):
    ranks, tp = (2, "2") if GPT else (4, "2x2")
    for switch in ("on", "off"):
        once(cwd, tp, ranks, ["--tp-overlap", switch, "--optim", "sgd", "--lr", "0.1", "--max-steps", "3", "--deterministic"], switch, 4)
    assert content(checkpoint(cwd, "on", 3)) == content(checkpoint(cwd, "off", 3))
    assert [r["tp_bytes"] for r in steps_of(cwd, "on")] == [r["tp_bytes"] for r in steps_of(cwd, "off")]


def in_place_updates_of_shards_equal_those_of_owners(cwd):
    """Files are bitwise identical, also after a resume; an update sends only norms."""
    flags = ["--optim", "adamw", "--ema-decay", "0.9", "--deterministic", "--epochs", "4", "--max-steps"]
    once(cwd, "2", 4, [*flags, "6", "--checkpoint-every", "3"], "whole", 4)
    once(cwd, "2", 4, [*flags, "6", "--shard-optimizer"], "owners", 4)
    copy_until(cwd, "whole", "half", 3)
    once(cwd, "2", 4, [*flags, "6", "--resume", "auto"], "half", 4)
    for file in ("model.safetensors", "optim.safetensors"):
        assert content(checkpoint(cwd, "whole", 6, file)) == content(checkpoint(cwd, "owners", 6, file)) == content(checkpoint(cwd, "half", 6, file)), file
    in_place, owners = (steps_of(cwd, f)[4]["comm_bytes"] for f in ("whole", "owners"))
    assert 1.5 * in_place < owners, (in_place, owners)


def evaluation_counts_each_sample_once(cwd):
    once(cwd, "1", 1, ["--optim", "sgd", "--max-steps", "2"], "run", 8)
    flags = [*data(cwd), "--eval", "--weights", "run/model.safetensors", "--progress", "off", "--batch-size", "6", "--threads", "1"]
    out = [run(ranks, *flags, "--tensor-parallel", tp, cwd=cwd)[0] for ranks, tp in ((1, "1"), (2, "2") if GPT else (4, "2x2"))]
    numbers = [[float(x) for x in re.findall(r"\d+\.?\d*", line)] for line in out]
    assert len(numbers[0]) == len(numbers[1]) > 3 and numbers[0][-1] == numbers[1][-1] > 1, out  # the number of samples
    assert all(abs(x - y) <= 1e-4 * y for x, y in zip(*numbers)), out


def indivisible_sizes_are_named(cwd):
    flags = [*data(cwd), *COMMON, "--batch-size", "8", "--max-steps", "1"]
    heads = ["--heads", "8", "--width", "32"]
    for ranks, args, says in ((3, ["--tensor-parallel", "3", *heads], ("--tensor-parallel 3: ", "8 heads", "use 6 or 9")),
                              (4, ["--tensor-parallel", "2x2", "--batch-size", "3"], ("--tensor-parallel 2x2: ", "a batch of 3", "use 2")),
                              (2, ["--tensor-parallel", "2", "--mup", "8"], ("--mup cannot be combined with --tensor-parallel",)),
                              (3, ["--tensor-parallel", "2"], ("3 ranks are not a multiple of the 2",))):
        _, err = run(ranks, *flags, *args, cwd=cwd, code=USAGE)
        assert all(word in err for word in says), err


def contradicting_flags_are_named(cwd):
    flags = [*data(cwd), *COMMON, "--max-steps", "1", "--optim", "shampoo"]
    for tp, args in (("2", ["--local-steps", "2"]), ("2", ["--compress", "topk:0.1"]), ("2", ["--shard-gradients"]), ("2", ["--num-trainers-per-group", "1"]),
                     ("2", ["--allreduce", "two-level"]), ("2", ["--share-device", "name"]), ("2x2", ["--amp", "bf16"]), ("2x2", ["--sequence-parallel", "off"])):
        _, err = run(1, *flags, "--tensor-parallel", tp, *args, cwd=cwd, code=USAGE)
        assert args[0] in err and f"--tensor-parallel {tp}" in err and "alone" not in err, err
    for args in (["--tp-overlap", "off"], ["--sequence-parallel", "off"], ["--force"]):
        _, err = run(1, *flags, *args, cwd=cwd, code=USAGE)
        assert f"{args[0]}: needs --tensor-parallel" in err, err
    _, err = run(1, *flags, "--tensor-parallel", "2", cwd=cwd, code=USAGE)
    assert "one process alone: start 2" in err, err


def different_flags_of_ranks_are_named(cwd):
    flags = [*data(cwd), *COMMON, "--batch-size", "8", "--max-steps", "1"]
    p = start_ranks(LAUNCHER, (1, [*flags, "--tensor-parallel", "2"]), (1, flags), cwd=cwd)
    err = finish(p)[1]
    assert p.returncode and "--tensor-parallel is 2 on rank 0, 1 on rank 1" in err, err


def residual_networks_are_rejected(cwd):
    _, err = run(2, "--data", "synthetic:64:16:5", "--arch", "resnet10", "--width", "4", "--max-steps", "1", "--tensor-parallel", "2", cwd=cwd,
                 code=USAGE, program=RESNET)
    assert "has no tensor-parallel form" in err, err


def faster_data_parallelism_is_suggested_once(cwd):
    flags = [*data(cwd), *COMMON, "--optim", "sgd", "--max-steps", "2", "--progress", "lines", "--tensor-parallel", "2"]
    _, err = run(2, *flags, "--batch-size", "32", cwd=cwd)
    assert err.count("--tensor-parallel 1 --batch-size 16, which fits into memory") == 1, err
    _, err = run(2, *flags, "--batch-size", "1", cwd=cwd)  # no sample for the second rank of data parallelism
    assert "would be faster" not in err, err


ROWS = [replicas_of_two_ranks_train_like_one_rank, a_grid_trains_like_one_rank, overlap_changes_no_bit, evaluation_counts_each_sample_once]
OF_VIT = [a_grid_with_depth_trains_like_one_rank, a_run_resumes_on_any_mesh, a_grid_run_resumes_on_replicas, in_place_updates_of_shards_equal_those_of_owners, indivisible_sizes_are_named, contradicting_flags_are_named, different_flags_of_ranks_are_named,
          residual_networks_are_rejected, faster_data_parallelism_is_suggested_once]


def tiny(cwd):
    return [*data(cwd), *COMMON, "--max-steps", "1", "--batch-size", "4"]


sys.exit(run_rows(ROWS if GPT else ROWS + OF_VIT, "lather-tp-", *sys.argv[3:4]) if has_mpi(LAUNCHER, tiny) else SKIPPED)
