#!/usr/bin/env python3
"""Runs a training program on several ranks: results equal those of one rank; agreement, signals, killed ranks.

    tests/models/ranks.py BUILD/models/resnet50/train_resnet50 [MPIRUN [ROW]]
    tests/models/ranks.py BUILD/models/vit/train_vit [MPIRUN [ROW]]     rows that depend on the network

MPIRUN: the launcher of the build's MPI. Exit status 77 without it, or if the build has no MPI. Prints
cmocka's lines.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from trainer import (ERROR, INTERRUPTED, MODEL, NAME, NOISE, OK, PROGRAM, SKIPPED, TOOLS, USAGE, checkpoint, complete_steps, content, copy_until, crc32c, finish, full, has_mpi,
                     read_header, read_safetensors, records, run_ranks, run_rows, start_ranks, wait_for, write_safetensors, write_state)

LAUNCHER = sys.argv[2] if len(sys.argv) > 2 else "mpirun"
VIT = NAME == "train_vit"
SYNC = [] if VIT else ["--sync-bn"]  # with batch norm, two ranks equal one only with it
SMALL = [*MODEL, "--progress", "off", "--optim", "sgd", "--no-tensorboard"]


def start(*groups, cwd):
    return start_ranks(LAUNCHER, *groups, cwd=cwd)


def run(ranks, *args, cwd, code=OK):
    return run_ranks(LAUNCHER, ranks, *args, cwd=cwd, code=code)


def rejects(cwd, *args, says, ranks=1):
    """Checks an invalid command line. One rank suffices for errors found before a communicator is opened."""
    err = run(ranks, *args, cwd=cwd, code=USAGE)[1]
    assert says in err, f"'{err[-600:]}' lacks '{says}'"


SHARED = tempfile.TemporaryDirectory(prefix="lather-ranks-shared-")


def shared(name, ranks, *args):
    """Path of a run that several rows read; the first of them runs it."""
    path = os.path.join(SHARED.name, name)
    if not os.path.exists(path):
        run(ranks, *args, "--output", name, cwd=SHARED.name)
    return path


def weights(cwd, folder, step):
    return read_header(checkpoint(cwd, folder, step))[1]


def near(a, b, bound, what):
    assert abs(a - b) <= bound, f"{what}: {a} and {b}"


def programs(p):
    """Returns the process ids of the ranks in start order."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                name = f.read().split(b"\0")[0].decode()
            with open(f"/proc/{pid}/stat") as f:
                session = int(f.read().rsplit(")", 1)[1].split()[3])
            with open(f"/proc/{pid}/environ", "rb") as f:
                is_rank = any(line.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=", b"PMIX_RANK="))
                          for line in f.read().split(b"\0"))
        except (OSError, IndexError, ValueError):
            continue
        if name == PROGRAM and is_rank and (session == p.pid or is_below(int(pid), p.pid)):
            found.append(int(pid))
    return sorted(found)


def all_end(p, seconds=30):
    """Waits until all ranks have ended; on a busy machine they may outlive the launcher briefly."""
    end = time.monotonic() + seconds
    while programs(p) and time.monotonic() < end:
        time.sleep(0.05)
    return not programs(p)


def is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            with open(f"/proc/{pid}/stat") as f:
                pid = int(f.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return False


def wait_for_steps(p, cwd, folder, count):
    metrics = os.path.join(cwd, folder, "metrics.jsonl")
    wait_for(p, lambda: os.path.exists(metrics) and content(metrics).count(b"\n") >= count)


# --- rows ---------------------------------------------------------------------------------------

def two_ranks_train_like_one(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "2", "--warmup-epochs", "1", "--lr", "0.05"]
    run(2, *flags, "--batch-size", "4", *SYNC, "--output", "two", cwd=cwd)
    run(1, *flags, "--batch-size", "8", "--output", "one", cwd=cwd)
    run(2, *flags, "--batch-size", "4", *(["--seed", "1"] if VIT else []), "--output", "apart", cwd=cwd)  # control: separate batch norms, or a different seed
    one, two, apart = (records(cwd, f, "step") for f in ("one", "two", "apart"))
    assert len(one) == len(two) == 12, (len(one), len(two))
    for a, b in zip(one, two):
        near(a["loss"], b["loss"], 2e-3 * a["loss"], f"loss of step {a['step']}")
    near(one[0]["loss"], two[0]["loss"], 2e-6 * one[0]["loss"], "the first loss")
    last = -1 if VIT else 0  # the first logits are 0
    assert abs(one[last]["loss"] - apart[last]["loss"]) > 1e-4 * one[last]["loss"], "the control is equal"
    assert two[0]["comm_bytes"] > 0 and "comm_bytes" not in one[0], two[0]
    assert "comm_exposed_seconds" in two[0]
    a, b = (records(cwd, f, "epoch")[0] for f in ("one", "two"))
    near(a["val_loss"], b["val_loss"], 2e-2 * a["val_loss"], "val_loss")
    assert a["epoch"] == b["epoch"] == 0 and len(records(cwd, "two", "epoch")) == 2


def runs_resume_on_the_same_and_other_rank_counts(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "2", *SYNC, "--keep", "0", "--lr", "0.05", "--threads", "1",
             "--checkpoint-every", "3"]
    run(2, *flags, "--batch-size", "4", "--max-steps", "8", "--output", "whole", cwd=cwd)
    for copy in ("parts", "single", "wrong"):
        copy_until(cwd, "whole", copy, 3)
    run(2, *flags, "--batch-size", "4", "--max-steps", "8", "--output", "parts", "--resume", "auto", cwd=cwd)
    assert weights(cwd, "whole", 8) == weights(cwd, "parts", 8), "not bitwise identical"
    run(1, *flags, "--batch-size", "8", "--max-steps", "8", "--output", "single", "--resume", "auto", cwd=cwd)
    whole, single = records(cwd, "whole", "step"), records(cwd, "single", "step")
    assert [r["step"] for r in single] == list(range(1, 9)), single
    for a, b in zip(whole, single):
        near(a["loss"], b["loss"], 2e-3 * a["loss"], f"loss of step {a['step']}")
    _, err = run(1, *flags, "--batch-size", "4", "--output", "wrong", "--resume", "auto", cwd=cwd, code=USAGE)
    assert "8 images per update" in err, err
    shutil.copytree(os.path.join(cwd, "single"), os.path.join(cwd, "again"))
    run(2, *flags, "--batch-size", "2", "--grad-accum", "2", "--max-steps", "10", "--output", "again",
        "--resume", "auto", cwd=cwd)
    assert len(records(cwd, "again", "step")) == 10


def a_group_of_one_rank_equals_no_group(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "3", "--batch-size", "4", "--threads", "1"]
    finish(start((1, [*flags, "--dist", "mpi", "--output", "mpi"]), cwd=cwd), OK)
    run(1, *flags, "--dist", "off", "--output", "off", cwd=cwd)
    assert weights(cwd, "mpi", 3) == weights(cwd, "off", 3)
    assert records(cwd, "mpi", "step")[2]["loss"] == records(cwd, "off", "step")[2]["loss"]


def evaluation_counts_every_image_once(cwd):
    run(1, "--data", "synthetic:10:16:3", *SMALL, "--batch-size", "2", "--max-steps", "1", "--output", "run",
        cwd=cwd)
    flags = ["--data", "synthetic:10:16:3", "--eval", "--weights", "run/model.safetensors", "--progress", "off",
             "--batch-size", "2"]
    one = run(1, *flags, "--eval-json", "1", cwd=cwd)[0]
    out = run(3, *flags, "--eval-json", "3", cwd=cwd)[0]
    for key in ("images", "classes", "confusion", "confused"):
        a, b = (json.load(open(os.path.join(cwd, name), encoding="utf-8"))[key] for name in ("1", "3"))
        assert a == b and a, f"{key}: {a} and {b}"
    assert "over 10 images" in out and out.count("top-1") == 1, out
    assert out.split("loss")[0] == one.split("loss")[0], (out, one)
    few = ["--data", "synthetic:2:16:3", *flags[2:]]
    assert "over 2 images" in run(3, *few, "--eval-json", "few", cwd=cwd)[0]  # a rank without any


DIFFERENT = [
    (["--lr", "0.1"], ["--lr", "0.2"], "--lr is 0.1 on rank 0, 0.2 on rank 1"),
    ([], ["--output", "run"], "--output is missing on rank 0, given on rank 1"),
    ([], ["--data", "synthetic:56:16:3"], "is 48 on rank 0, 56 on rank 1"),
    ([], ["--seed", "3"], "--seed is 0 on rank 0, 3 on rank 1"),
    ([], ["--data", "synthetic:48:16:4"], "is 3 on rank 0, 4 on rank 1"),
]


def name_differences(cwd, rows):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--max-steps", "1"]
    for a, b, says in rows:
        p = start((1, flags + a), (1, flags + b), cwd=cwd)
        err = finish(p)[1]
        assert p.returncode and says in err, f"'{err[-600:]}' lacks '{says}'"
        assert err.count(says) == 1, f"reported more than once: {err}"
    return flags


def different_flags_of_ranks_are_named(cwd):
    flags = name_differences(cwd, DIFFERENT[:3])
    p = start((2, flags + ["--ranks-per-node", "3"]), cwd=cwd)
    err = finish(p)[1]
    says = "--ranks-per-node: 2 ranks are not a multiple of 3 ranks per node"
    assert p.returncode == USAGE and err.count(says) == 1, err
    flags += ["--ranks-per-node", "1"]
    p = start((1, flags + ["--threads", "1"]), (1, flags + ["--threads", "2", "--workers", "1"]), cwd=cwd)
    err = finish(p)[1]
    assert p.returncode == OK, err  # --threads and --workers may differ


@full
def more_different_flags_of_ranks_are_named(cwd):
    name_differences(cwd, DIFFERENT[3:])


def hierarchical_allreduce_trains_like_flat(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "2", "--max-steps", "2", "--threads", "1", "--ranks-per-node", "2", "--bucket-mib", "0.01"]
    for mode in ("auto", "flat"):
        run(4, *flags, "--allreduce", mode, "--output", mode, cwd=cwd)
    two, flat = (records(cwd, mode, "step") for mode in ("auto", "flat"))  # two nodes of two ranks
    for a, b in zip(two, flat):
        near(a["loss"], b["loss"], 1e-4, "loss")
        near(b["grad_bytes_between"] / a["grad_bytes_between"], 2, 0.01, "bytes between nodes, of 2 ranks each")
        near(a["comm_bytes"] / b["comm_bytes"], 1, 0.01, "all bytes")
    said = run(2, *flags[:-4], "--ranks-per-node", "1", "--allreduce", "flat", "--compress", "zip", cwd=cwd, code=USAGE)[1]
    assert said.count("unknown reducer 'zip'") == 1, said


@full
def auto_selects_hierarchical_allreduce(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "2", "--max-steps", "2", "--threads", "1", "--ranks-per-node", "2", "--bucket-mib", "0.01"]
    for mode in ("auto", "two-level"):
        run(4, *flags, "--allreduce", mode, "--output", mode, cwd=cwd)
    assert weights(cwd, "auto", 2) == weights(cwd, "two-level", 2)
    assert [r["grad_bytes_between"] for r in records(cwd, "auto", "step")] == [r["grad_bytes_between"] for r in records(cwd, "two-level", "step")]


def powersgd_resumes_bitwise_identically(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "8", "--epochs", "3", "--compress", "powersgd:1", "--threads", "1",
             "--compress-warmup-epochs", "1", "--keep", "0"]
    run(2, *flags, "--output", "whole", cwd=cwd)
    copy_until(cwd, "whole", "parts", 6)
    run(2, *flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    assert weights(cwd, "whole", 9) == weights(cwd, "parts", 9), "resumed at the end of an epoch"
    sent = [r["comm_bytes"] for r in records(cwd, "whole", "step")]
    assert min(sent[:3]) > 3 * max(sent[3:]), sent  # the first epoch is dense
    said = run(2, *flags, "--output", "parts", "--resume", "auto", "--compress", "powersgd:2", "--epochs", "4", cwd=cwd, code=ERROR)[1]
    assert "@powersgd.q' is [1," in said and "the model needs [2," in said, said


def residuals(cwd, folder, step):
    """Returns the data of a checkpoint's reducer state, by name."""
    tensors = read_safetensors(checkpoint(cwd, folder, step, "optim.safetensors"))
    return {name: data for name, (_, _, data) in tensors.items() if "@" in name}


TOPK = [*NOISE, *SMALL, "--batch-size", "4", "--epochs", "3", "--threads", "1", "--keep", "0", "--ranks-per-node", "1", "--deterministic",
        "--lr", "0.05", "--warmup-epochs", "0", "--checkpoint-every", "8"]
COMPRESS = [*TOPK, "--compress", "topk:0.05", "--compress-warmup-epochs", "1", "--compress-until", "2"]


def compressed_runs_resume_with_their_residuals(cwd):
    assert "gradient statistics" not in run(2, *COMPRESS, "--output", "whole", cwd=cwd)[1]
    err = run(2, *COMPRESS, "--optim", "adamw", "--compress-warmup-epochs", "0", "--max-steps", "1", "--output", "adamw", cwd=cwd)[1]
    assert err.count("--compress topk:0.05 with --optim adamw: its gradient statistics") == 1, err
    whole = records(cwd, "whole", "step")
    sent = [r["grad_bytes_between"] for r in whole]
    assert len(whole) == 18 and sent[:6] == sent[12:], sent  # dense in the first and the last epoch
    assert 5 * max(sent[6:12]) < sent[0], sent
    left = residuals(cwd, "whole", 8)
    assert left and {k.split(".")[-1] for k in left} == {"0", "1"}, left.keys()
    assert any(any(v) for v in left.values()), "no residual after an applied update"
    copy_until(cwd, "whole", "parts", 8)
    run(2, *COMPRESS, "--resume", "auto", "--output", "parts", cwd=cwd)
    assert weights(cwd, "parts", 18) == weights(cwd, "whole", 18), "a resumed run differs"
    assert residuals(cwd, "parts", 16) == residuals(cwd, "whole", 16)
    err = run(2, *TOPK, "--resume", "whole/checkpoints/step-8", "--output", "without", "--max-steps", "9", cwd=cwd)[1]
    assert err.count("tensors of compressed gradients, such as residuals, are dropped") == 1, err
    for args, says in ((["--shard-optimizer", "--shard-gradients"], "contradict"), (["--local-steps", "2"], "contradict")):
        rejects(cwd, *COMPRESS, *args, "--output", "wrong", says=says)
    rejects(cwd, *COMPRESS, "--compress", "topk:0", "--output", "wrong", says="topk", ranks=2)


@full
def compression_starts_after_its_warmup(cwd):
    run(2, *TOPK, "--max-steps", "8", "--output", "dense", cwd=cwd)
    run(2, *COMPRESS, "--max-steps", "8", "--output", "whole", cwd=cwd)
    dense, whole = (records(cwd, f, "step") for f in ("dense", "whole"))
    assert [r["loss"] for r in whole[:7]] == [r["loss"] for r in dense[:7]], "the first epoch is dense"
    assert weights(cwd, "dense", 6) == weights(cwd, "whole", 6) and weights(cwd, "dense", 8) != weights(cwd, "whole", 8)
    near(whole[0]["grad_bytes_between"] / dense[0]["grad_bytes_between"], 1, 0.01, "dense bytes")  # except small flag messages
    assert not residuals(cwd, "dense", 8)
    err = run(2, *COMPRESS, "--resume", "dense/checkpoints/step-8", "--output", "with", "--max-steps", "9", cwd=cwd)[1]
    assert err.count("residuals start at zero") == 1, err


def local_steps_resume_within_a_round(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--epochs", "2", "--threads", "1", "--keep", "0", "--ranks-per-node", "1", "--deterministic",
             "--checkpoint-every", "3", "--ema-decay", "0.9"]
    local = [*flags, "--local-steps", "4", "--outer-compress", "topk:0.05,2bit"]
    run(2, *local, "--output", "whole", cwd=cwd)
    steps = records(cwd, "whole", "step")
    assert [r["step"] for r in steps if "outer_bytes" in r] == [4, 10], steps  # an epoch has 6 steps; no outer step at its end
    assert max(r["comm_bytes"] for r in steps if "outer_bytes" not in r) < 200, "a step within a round sends more than its sums"
    run(2, *local, "--output", "parts", "--resume", "whole/checkpoints/step-3", cwd=cwd)
    assert weights(cwd, "parts", 12) == weights(cwd, "whole", 12), "a run resumed within a round differs"
    assert weights(cwd, "parts", 9) == weights(cwd, "whole", 9)
    err = run(2, *flags, "--output", "without", "--resume", "whole/checkpoints/step-3", cwd=cwd, code=USAGE)[1]
    assert "was saved 3 steps after an outer step of 2 groups, but this run has 1" in err, err
    run(2, *flags, "--output", "without", "--resume", "whole/checkpoints/step-6", cwd=cwd)  # at an outer step
    for args, says in ((["--ranks-per-node", "2"], "all 2 ranks are on one node"), (["--outer-compress", "topk:2"], "'topk:2'")):
        rejects(cwd, *flags, "--local-steps", "4", *args, "--output", "wrong", says=says, ranks=2)
    for args, says in ((["--outer-lr", "1"], "needs --local-steps"), (["--local-steps", "4", "--compress", "topk:0.1"], "contradict"), (["--local-steps", "-1"], "--local-steps")):
        rejects(cwd, *flags, *args, "--output", "wrong", says=says)
    err = run(1, *flags, "--local-steps", "4", "--dist", "off", "--output", "wrong", cwd=cwd, code=USAGE)[1]
    assert "one process alone" in err, err


def damaged_state_of_groups_is_named(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--max-steps", "3", "--ranks-per-node", "1", "--local-steps", "4", "--checkpoint-every", "2", "--keep", "0"]
    run(2, *flags, "--output", "good", cwd=cwd)
    folder = checkpoint(cwd, "good", 2, "")
    state = content(folder, "state.json").decode()
    parts = {}
    for name in os.listdir(folder):
        if name.startswith("optim-"):
            parts.update(read_safetensors(os.path.join(folder, name)))
    _, shape, numbers = parts["group.1.numbers"]
    for name, changed, says in (("group.1.numbers", None, "state 'group.1.numbers' is missing, or no list"),
                                ("group.1.numbers", ("I64", [1], numbers[:8]), "'group.1.numbers' has no 'applied'"),
                                ("group.1.numbers", ("I64", shape, b"\xff" * 8 + numbers[8:]), "'attempt' of 'group.1.numbers' is -1, not in [2,2]"),
                                ("group.1.scaling", ("F64", [1], bytes(8)), "'group.1.scaling' has 8 bytes, want 16"),
                                ("fc.bias#outer.start", None, "state 'fc.bias#outer.start' is missing")):
        assert name in parts, sorted(parts)
        write_safetensors(os.path.join(folder, "optim.safetensors"), {k: v for k, v in {**parts, name: changed}.items() if v})
        whole = content(folder, "optim.safetensors")
        write_state(os.path.join(folder, "state.json"),
                    re.sub(r'"optim.safetensors.*?}', f'"optim.safetensors":{{"bytes":{len(whole)},"crc32c":"{crc32c(whole):08x}"}}', state))
        err = run(2, *flags, "--output", "bad", "--resume", folder, cwd=cwd, code=ERROR)[1]
        assert says in err, err


def slow_ranks_do_not_block_updates(cwd):
    flags = [*NOISE, *SMALL, "--optim", "shampoo", "--batch-size", "2", "--grad-accum", "2", "--epochs", "2", "--threads", "1", "--deterministic",
             "--checkpoint-every", "3", "--keep", "0"]
    run(3, *flags, "--backup-workers", "1", "--output", "first", cwd=cwd)
    sets = [r["ranks"].split() for r in records(cwd, "first", "contributors")]
    assert len(sets) == 8 and all(len(set(s)) == 2 for s in sets), sets
    assert all(r["micro_dropped"] == 2 for r in records(cwd, "first", "step"))
    log = ["--backup-workers", "1", "--contributors", "first/metrics.jsonl"]
    run(3, *flags, *log, "--output", "parts", "--resume", "first/checkpoints/step-3", cwd=cwd)
    assert [r["ranks"].split() for r in records(cwd, "parts", "contributors")][-5:] == sets[-5:]
    assert weights(cwd, "parts", 8) == weights(cwd, "first", 8), "not bitwise identical"
    run(2, *flags, "--drop-compute", "1000", "--max-steps", "2", "--output", "far", cwd=cwd)
    assert [r["computed"] for r in records(cwd, "far", "micro_batches")] == ["2 2"] * 2
    for args, says in ((["--backup-workers", "2"], "2 of 2 ranks"), (["--drop-compute", "1e-6"], "shorter than one micro-batch")):
        err = finish(start((2, [*flags, *args, "--output", "wrong", "--overwrite"]), cwd=cwd))[1]
        assert says in err, f"{args}: {err[-500:]}"
    backup = ["--backup-workers", "1"]
    for args, says in ((["--contributors", "x"], "needs --backup-workers"), (["--drop-compute", "soon"], "'soon'"),
                       (["--drop-compute", "1", *backup], "contradict"), (["--drop-compute", "1", "--grad-comm-dtype", "bf16"], "contradict"),
                       ([*backup, "--sync-bn"], "contradict"), ([*backup, "--compress", "topk:0.1"], "contradict"),
                       ([*backup, "--shard-gradients"], "contradict"), ([*backup, "--local-steps", "2"], "contradict"),
                       ([*backup, "--tensor-parallel", "3"], "contradict"), ([*backup, "--dist", "off"], "one process alone")):
        rejects(cwd, *flags, *args, "--output", "other", says=says)


def an_error_on_one_rank_ends_all(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--max-steps", "3"]
    p = start((1, flags), (1, flags + ["--data", "nowhere"]), cwd=cwd)
    err = finish(p, timeout=60)[1]
    assert p.returncode and "rank 1" in err and "nowhere" in err, err


def a_signal_to_one_rank_stops_all(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--epochs", "100000", "--output", "run"]
    p = start((2, flags), cwd=cwd)
    wait_for_steps(p, cwd, "run", 2)
    ranks = programs(p)
    assert len(ranks) == 2, ranks
    said = run(2, *flags, "--resume", "auto", cwd=cwd, code=ERROR)[1]  # both ranks fail on the lock, one reports it
    assert said.count("run: is being written by pid ") == 1, said
    os.kill(ranks[1], signal.SIGTERM)
    err = finish(p, timeout=60)[1]
    assert p.returncode == INTERRUPTED, (p.returncode, err)
    step = records(cwd, "run", "step")[-1]["step"]
    assert weights(cwd, "run", step)
    assert err.count(f"saved step {step}; --resume auto continues") == 1, err
    said = run(2, *flags, cwd=cwd, code=USAGE)[1]
    assert said.count("run: holds a run") == 1, said
    before = len(records(cwd, "run"))
    p = start((2, [*flags, "--resume", "auto"]), cwd=cwd)
    wait_for_steps(p, cwd, "run", before + 4)
    os.kill(programs(p)[1], signal.SIGUSR2)
    err = finish(p, timeout=60)[1]
    last = [r for r in records(cwd, "run") if r["event"] in ("step", "epoch")][-1]
    assert p.returncode == INTERRUPTED and last["event"] == "epoch" and last["step"] % 6 == 0, (p.returncode, last, err)
    assert weights(cwd, "run", last["step"])


def a_lost_checkpoint_fails_on_all_ranks(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--max-steps", "3", "--output", "run"]
    os.makedirs(os.path.join(cwd, "run", "checkpoints", "latest"))  # blocks the link
    err = run(2, *flags, cwd=cwd, code=ERROR)[1]
    assert err.count("checkpoint of step 3 not written: ") == 1 and err.count("is missing") == 1, err
    assert [r["step"] for r in records(cwd, "run", "checkpoint_failed")] == [3]


def non_finite_gradients_end_the_run_or_are_skipped(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--max-steps", "8", "--lr", "1e5", "--momentum", "0",
             "--weight-decay", "1e5", "--norm-weight-decay"]
    _, err = run(2, *flags, cwd=cwd, code=ERROR)
    assert err.count("is not finite") == 1, err  # on all ranks in the same step; one reports it
    run(2, *flags, "--on-nan", "skip", "--output", "run", cwd=cwd)
    assert len(records(cwd, "run", "step")) == 8 and any(r.get("skipped") for r in records(cwd, "run", "step"))


SHARDED = [*NOISE, *SMALL, "--batch-size", "4", "--keep", "0", "--max-steps", "6", "--threads", "1", "--deterministic", "--checkpoint-every", "3"]
SHAMPOO = [*SHARDED, "--optim", "shampoo", "--precondition-frequency", "2"]


def shampoo_of_two_ranks():
    return shared("shampoo", 2, *SHAMPOO, "--ema-decay", "0.9")


def shampoo_with_sharded_gradients():
    return shared("gradients", 2, *SHAMPOO, "--ema-decay", "0.9", "--shard-gradients")


def statistics(cwd, folder):
    """The records of --optim-stats, without the header, which has the run's id."""
    with open(os.path.join(cwd, folder, "optim_stats.bin"), "rb") as f:
        data = f.read()
    return data[16 + int.from_bytes(data[8:16], "little"):]


def sharded_state_changes_no_result(cwd):
    adam = [*SHARDED, "--optim", "adamw", "--optim-stats", "3"]
    run(2, *adam, "--output", "copies", cwd=cwd)
    run(2, *adam, "--shard-optimizer", "--output", "sharded", cwd=cwd)
    assert weights(cwd, "copies", 6) == weights(cwd, "sharded", 6)
    assert statistics(cwd, "copies") == statistics(cwd, "sharded") != b"", "statistics of the owners"
    two = shampoo_of_two_ranks()
    run(2, *SHAMPOO, "--ema-decay", "0.9", "--comm-dtype", "bf16", "--output", "rounded", cwd=cwd)
    assert weights(cwd, two, 6) != weights(cwd, "rounded", 6), "bf16 changes nothing"
    whole, half = (records(cwd, f, "step")[5]["comm_bytes"] for f in (two, "rounded"))
    assert half < whole, (half, whole)
    copy_until(cwd, two, "back", 3)
    one = [*SHAMPOO, "--ema-decay", "0.9"]
    one[one.index("--batch-size") + 1] = "8"
    run(1, *one, "--output", "back", "--resume", "back/checkpoints/step-3", cwd=cwd)
    assert records(cwd, "back", "step")[-1]["step"] == 6


def state_is_shared_within_nodes(cwd):
    """Two nodes of two ranks: auto has a copy of the state in each, and no update crosses; same weights for any groups."""
    flags = [*SHAMPOO, "--batch-size", "2", "--max-steps", "3", "--ranks-per-node", "2"]
    err = {groups: run(4, *flags, "--num-trainers-per-group", groups, "--output", groups, "--progress", "lines", cwd=cwd)[1] for groups in ("auto", "0", "2")}
    assert "optimizer state: 2 x 2 ranks that share a copy (--num-trainers-per-group auto)" in err["auto"], err
    assert "optimizer state: 1 x 4 ranks that share a copy (--num-trainers-per-group 0)" in err["0"], err
    assert weights(cwd, "auto", 3) == weights(cwd, "0", 3) == weights(cwd, "2", 3), "not bitwise identical"
    sent = {groups: records(cwd, groups, "step")[2]["comm_bytes"] for groups in err}
    assert sent["auto"] == sent["2"] < sent["0"], sent
    assert [records(cwd, groups, "sharded_state")[0]["state_ranks"] for groups in err] == [2, 4, 2]
    for groups in ("auto", "0"):  # a checkpoint of either continues with the other
        run(4, *flags, "--max-steps", "6", "--num-trainers-per-group", groups, "--resume", f"{'0' if groups == 'auto' else 'auto'}/checkpoints/step-3", "--output", f"{groups}6", cwd=cwd)
    assert weights(cwd, "auto6", 6) == weights(cwd, "06", 6), "not bitwise identical after a resume"


def mpi_adds_gradients(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "2", "--max-steps", "4", "--threads", "1", "--ranks-per-node", "2"]
    for sums in ("ordered", "engine"):
        run(4, *flags, "--sums", sums, "--output", sums, cwd=cwd)
    ordered, engine = (records(cwd, sums, "step") for sums in ("ordered", "engine"))
    for a, b in zip(ordered, engine, strict=True):
        near(a["loss"], b["loss"], 1e-4, "loss")
    near(engine[3]["grad_bytes_between"] / ordered[3]["grad_bytes_between"], 2, 0.01, "counted as over all ranks at once")


def soap_equals_shampoo_with_preset_soap(cwd):
    """Both shard their state equally, so results are bitwise identical on any number of ranks, also with sharded gradients."""
    flags = [*NOISE, *SMALL, "--epochs", "2", "--max-steps", "3", "--checkpoint-every", "3", "--precondition-frequency", "2", "--threads", "1", "--deterministic"]
    for ranks, batch, more in ((1, "8", []), (2, "4", ["--shard-gradients"])):
        run(ranks, *flags, "--batch-size", batch, "--optim", "soap", *more, "--output", f"soap{ranks}", cwd=cwd)
        run(ranks, *flags, "--batch-size", batch, "--optim", "shampoo", "--preset", "soap", "--output", f"preset{ranks}", cwd=cwd)
        assert weights(cwd, f"soap{ranks}", 3) == weights(cwd, f"preset{ranks}", 3), f"{ranks} ranks: different weights"
    whole, part = (records(cwd, f"preset{ranks}", "epoch")[-1]["optimizer_bytes"] for ranks in (1, 2))
    assert part < whole, f"not sharded: {part} bytes on one of 2 ranks, {whole} on one"


def sharded_gradients_change_no_result(cwd):
    whole, parts = shampoo_of_two_ranks(), shampoo_with_sharded_gradients()
    assert weights(cwd, whole, 6) == weights(cwd, parts, 6), "not bitwise identical"
    whole, parts = records(cwd, whole, "step"), records(cwd, parts, "step")
    for a, b in zip(whole, parts):
        assert abs(a["gradient_norm"] - b["gradient_norm"]) <= 1e-12 * a["gradient_norm"], (a, b)
    ratio = parts[5]["comm_bytes"] / whole[5]["comm_bytes"]  # bytes of one rank, including other messages
    assert 0.6 < ratio < 0.75, ratio
    clipped = [*SHAMPOO, "--shard-gradients", "--clip-grad", "0.5", "--grad-accum", "2"]
    run(2, *clipped, "--output", "two", cwd=cwd)
    copy_until(cwd, "two", "back", 3)
    run(2, *clipped, "--output", "back", "--resume", "auto", cwd=cwd)
    assert weights(cwd, "two", 6) == weights(cwd, "back", 6), "not bitwise identical"
    run(1, *SHAMPOO, "--shard-gradients", "--max-steps", "2", "--output", "one", cwd=cwd)
    assert len(records(cwd, "one", "step")) == 2


def saved(cwd, name, step, file="optim.safetensors"):
    return content(checkpoint(cwd, name, step, file))


def sharded_weights_change_no_result(cwd):
    shampoo = [*SHAMPOO, "--ema-decay", "0.9", "--shard-params", "--bucket-mib", "0.001"]
    whole = shampoo_with_sharded_gradients()
    run(2, *shampoo, "--output", "parts", cwd=cwd)
    for step in (3, 6):
        for file in ("model.safetensors", "optim.safetensors"):
            assert saved(cwd, whole, step, file) == saved(cwd, "parts", step, file), f"{file} of step {step}"
    whole, parts = (records(cwd, f, "step") for f in (whole, "parts"))
    assert [r["loss"] for r in whole] == [r["loss"] for r in parts]
    assert [r["gradient_norm"] for r in whole] == [r["gradient_norm"] for r in parts]
    copy_until(cwd, "parts", "back", 3)
    copy_until(cwd, "parts", "alone", 3)
    run(2, *shampoo, "--output", "back", "--resume", "auto", cwd=cwd)
    assert weights(cwd, "parts", 6) == weights(cwd, "back", 6), "not bitwise identical"
    one = list(shampoo)
    one[one.index("--batch-size") + 1] = "8"
    assert "must keep all of it" not in "".join(run(1, *one, "--progress", "lines", "--output", "alone", "--resume", "auto", cwd=cwd))
    assert records(cwd, "alone", "step")[-1]["step"] == 6
    adam = [*SHARDED, "--optim", "adamw", "--max-steps", "4", "--ema-decay", "0.9", "--clip-grad", "0.5", "--grad-accum", "2", "--batch-size", "2",
            "--optim-stats", "2"]
    run(3, *adam, "--shard-optimizer", "--shard-gradients", "--output", "a", cwd=cwd)
    said = "".join(run(3, *adam, "--shard-params", "--bucket-mib", "0.001", "--progress", "lines", "--output", "b", cwd=cwd))
    assert VIT or "must keep all of it, more than 1/3" in said, said  # a parameter is not split
    assert saved(cwd, "a", 4) == saved(cwd, "b", 4) and weights(cwd, "a", 4) == weights(cwd, "b", 4), "adamw"
    assert statistics(cwd, "a") == statistics(cwd, "b") != b"", "statistics of the owners"


def a_killed_rank_ends_all_and_the_run_resumes(cwd):
    flags = [*NOISE, *SMALL, "--batch-size", "4", "--checkpoint-every", "2", "--output", "run"]
    p = start((2, [*flags, "--epochs", "100000"]), cwd=cwd)
    wait_for_steps(p, cwd, "run", 5)
    ranks = programs(p)
    begin = time.monotonic()
    os.kill(ranks[1], signal.SIGKILL)
    out, err = finish(p, timeout=60)
    assert time.monotonic() - begin < 30, "too slow"
    # reported by the launcher: Open MPI names the rank, MPICH the process
    assert p.returncode and ("rank 1" in err or str(ranks[1]) in out + err), (p.returncode, out, err)
    assert all_end(p), "a rank is still running"
    step = complete_steps(os.path.join(cwd, "run"))[-1]
    run(2, *flags, "--epochs", "100000", "--max-steps", str(step + 3), "--resume", "auto", cwd=cwd)
    assert [r["step"] for r in records(cwd, "run", "step")] == list(range(1, step + 4))


def corrupt_images_of_all_ranks_are_listed(cwd):
    row = bytes(3 * 16)
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(row) * 16, 0, 0, 54, 40, 16, 16, 1, 24, 0,
                       len(row) * 16, 2835, 2835, 0, 0)
    for part in ("train", "val"):
        for c in "ab":
            folder = os.path.join(cwd, "data", part, c)
            os.makedirs(folder)
            for i in range(6):
                with open(os.path.join(folder, f"{i}.bmp"), "wb") as f:
                    f.write(b"BM corrupt" if part == "train" and i == 3 else head + row * 16)
    run(2, "--data", "data", *SMALL, "--image-size", "16", "--batch-size", "3", "--epochs", "1", "--no-shuffle",
        "--output", "run", cwd=cwd)
    with open(os.path.join(cwd, "run", "bad_images.txt")) as f:
        lines = f.read().splitlines()
    assert len(lines) == 2 and "a/3.bmp" in lines[0] + lines[1] and "b/3.bmp" in lines[0] + lines[1], lines


def a_profile_has_a_trace_of_each_rank(cwd):
    run(2, *NOISE, *SMALL, "--batch-size", "4", "--max-steps", "2", "--profile", "trace.json", cwd=cwd)
    for name in ("trace.json", "trace.rank1.json"):
        with open(os.path.join(cwd, name)) as f:
            trace = json.load(f)
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        assert "gradients" in {e.get("name") for e in events}, name


@full
def a_profile_that_cannot_be_written_is_an_error_on_all_ranks(cwd):
    with open(os.path.join(cwd, "t"), "w"):
        pass
    run(2, *NOISE, *SMALL, "--batch-size", "4", "--max-steps", "2", "--profile", "t/trace.json", cwd=cwd, code=ERROR)  # t is a file


@full
def ranks_on_the_cpu_load_no_cuda(cwd):
    os.environ["LD_DEBUG"] = "libs"
    try:
        said = run(2, *NOISE, *SMALL, "--max-steps", "1", "--batch-size", "4", "--output", "run", cwd=cwd)[1]
    finally:
        del os.environ["LD_DEBUG"]
    names = [line.rsplit("/", 1)[-1] for line in said.splitlines() if "calling init:" in line]
    assert names.count("liblather-mpi.so") == 2, "no output of the dynamic linker"
    assert not [name for name in names if name.startswith("liblather-cuda")], names


def invalid_command_lines_are_rejected(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "1", "--batch-size", "4"]
    rejects(cwd, *flags, "--batch-size", "25", says="2 ranks", ranks=2)
    rejects(cwd, *flags, "--comm-model", "5", says="--comm-model", ranks=2)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    run(1, *flags, "--output", "saved", cwd=cwd)
    for args, says in ((["--device", "cuda"], "of 2 on this machine: device cuda"),
                       (["--eval", "--weights", "saved", "--save-logits", "l"], "--save-logits: needs a single rank, got 2")):
        err = run(2, *flags, *args, cwd=cwd, code=ERROR)[1]
        assert says in err, err
    del os.environ["CUDA_VISIBLE_DEVICES"]
    for args, says in ((["--balance", "polynomial"], "'polynomial': expected cost, memory, bytes, or polynomial:C0,C1,"),
                       (["--balance", "polynomial:1:2:3"], "'polynomial:1:2:3': expected"), (["--balance-min-cost", "1"], "use --balance polynomial:C0,C1,..:LEAST"),
                       (["--balance", "polynomial:1,-2"], "'polynomial:1,-2': expected")):
        rejects(cwd, *flags, "--optim", "shampoo", *args, says=says)
    for args in (["--allreduce", "two-level"], ["--grad-comm-dtype", "bf16"], ["--compress", "topk:0.1"], ["--local-steps", "2"],
                 ["--shard-gradients", "--shard-optimizer"]):
        rejects(cwd, *flags, "--sums", "engine", *args, says=args[0])
    for groups in ("all", "1.5", "-2"):
        rejects(cwd, *flags, "--optim", "shampoo", "--num-trainers-per-group", groups, says=f"'{groups}': expected auto, or a whole number of 0 to 1e+06")
    rejects(cwd, *flags, "--comm-dtype", "bf16", says="--shard-optimizer")
    for args in (["--optim", "adamw"], ["--allreduce", "two-level"], ["--compress", "topk:0.1"], ["--num-trainers-per-group", "1"]):
        optim = [] if "--optim" in args else ["--optim", "shampoo"]
        says = "--shard-optimizer" if "--optim" in args else args[0]
        err = run(1, *flags, *optim, "--shard-gradients", *args, cwd=cwd, code=USAGE)[1]
        assert says in err and "--shard-gradients" in err, err
    for args in (["--local-steps", "2"], ["--compress", "topk:0.1"], ["--allreduce", "two-level"], ["--num-trainers-per-group", "1"],
                 ["--comm-dtype", "bf16"], ["--balance", "bytes"], ["--graph"]):
        err = run(1, *flags, "--optim", "adamw", "--shard-params", *args, cwd=cwd, code=USAGE)[1]
        assert f"{args[0]} and --shard-params contradict" in err.replace(" two-level", ""), err


def reproducible_runs_depend_on_no_split(cwd):
    flags = [*NOISE, *SMALL, "--reproducible", "--batch-size", "4", "--epochs", "1", "--optim", "adamw", "--clip-grad", "0.5", "--threads", "1", "--shard-params"]
    run(1, *flags, "--grad-accum", "2", "--output", "one", cwd=cwd)
    run(2, *flags, "--output", "two", cwd=cwd)
    one, two = ([content(checkpoint(cwd, f, 6, part)) for part in ("model.safetensors", "optim.safetensors")] for f in ("one", "two"))
    assert one == two
    for a, b in zip(records(cwd, "one", "step"), records(cwd, "two", "step"), strict=True):
        assert a["loss"] == b["loss"] and a["gradient_norm"] == b["gradient_norm"], (a, b)
    rejects(cwd, *flags, "--grad-accum", "2", says="3 ranks with 2 micro-batches", ranks=3)


def a_missing_part_is_named_and_the_checkpoint_before_taken(cwd):
    flags = [*SHARDED, "--shard-params", "--optim", "adamw"]
    run(2, *flags, "--output", "whole", cwd=cwd)
    copy_until(cwd, "whole", "back", 6)
    folder = checkpoint(cwd, "back", 6, "")
    names = sorted(os.listdir(folder))
    assert names == [f"{file}{end}" for file in ("model", "optim") for end in
                     ("-00001-of-00002.safetensors", "-00002-of-00002.safetensors", ".safetensors.index.json")] + ["state.json"], names
    listed = subprocess.run([os.path.join(TOOLS, "inspect"), folder], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "checksums hold" in listed and "fc.weight " in listed and "fc.weight#" in listed, listed
    evaluate = [*NOISE, "--eval", "--threads", "1", "--progress", "off", "--weights"]
    assert run(1, *evaluate, folder, cwd=cwd)[0].split(" of ")[-1] == run(1, *evaluate, "whole/model.safetensors", cwd=cwd)[0].split(" of ")[-1]
    os.remove(os.path.join(folder, "model-00002-of-00002.safetensors"))
    said = "".join(run(2, *flags, "--output", "back", "--resume", "auto", cwd=cwd))
    assert "DAMAGED CHECKPOINT, trying the one before" in said and "step-6/model-00002-of-00002.safetensors: No such file" in said, said
    assert weights(cwd, "whole", 6) == weights(cwd, "back", 6), "not bitwise identical"


ROWS = [two_ranks_train_like_one, runs_resume_on_the_same_and_other_rank_counts, evaluation_counts_every_image_once,
        a_group_of_one_rank_equals_no_group, different_flags_of_ranks_are_named, an_error_on_one_rank_ends_all, a_signal_to_one_rank_stops_all, a_lost_checkpoint_fails_on_all_ranks,
        more_different_flags_of_ranks_are_named, auto_selects_hierarchical_allreduce, hierarchical_allreduce_trains_like_flat, powersgd_resumes_bitwise_identically, compressed_runs_resume_with_their_residuals,
        compression_starts_after_its_warmup, local_steps_resume_within_a_round, damaged_state_of_groups_is_named, slow_ranks_do_not_block_updates,
        non_finite_gradients_end_the_run_or_are_skipped, sharded_state_changes_no_result, state_is_shared_within_nodes, mpi_adds_gradients, soap_equals_shampoo_with_preset_soap, sharded_gradients_change_no_result, sharded_weights_change_no_result,
        a_killed_rank_ends_all_and_the_run_resumes, corrupt_images_of_all_ranks_are_listed,
        a_missing_part_is_named_and_the_checkpoint_before_taken, a_profile_has_a_trace_of_each_rank, a_profile_that_cannot_be_written_is_an_error_on_all_ranks, ranks_on_the_cpu_load_no_cuda, reproducible_runs_depend_on_no_split,
        invalid_command_lines_are_rejected]


# The other rows do not depend on the network.
OF_VIT = [two_ranks_train_like_one, runs_resume_on_the_same_and_other_rank_counts]
FULL_OF_VIT = [a_group_of_one_rank_equals_no_group, evaluation_counts_every_image_once, non_finite_gradients_end_the_run_or_are_skipped, sharded_state_changes_no_result,
               sharded_gradients_change_no_result, sharded_weights_change_no_result, a_killed_rank_ends_all_and_the_run_resumes]
if VIT:
    ROWS = OF_VIT + [full(row) for row in FULL_OF_VIT]


TINY = [*NOISE, *SMALL, "--max-steps", "1", "--batch-size", "4"]
sys.exit(run_rows(ROWS, "lather-ranks-", *sys.argv[3:4]) if has_mpi(LAUNCHER, lambda _: TINY) else SKIPPED)
