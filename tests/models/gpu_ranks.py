#!/usr/bin/env python3
"""train_resnet50 --device cuda on two ranks with simulated devices: results equal those of one rank; recorded updates,
sharded optimizers, a killed rank.

    tests/models/gpu_ranks.py BUILD/models/resnet50/train_resnet50 BUILD [MPIRUN [ROW]]

Prints cmocka's lines; rows that need a launcher are skipped without one."""
import json
import os
import re
import shutil
import signal
import sys
import time

from trainer import ERROR, OK, PROGRAM, USAGE, Skip, complete_steps, read_header, steps_of
from standin_ranks import ENV, TIMEOUT, Ranks, by_mpi, expect, run_rows  # after trainer, which adds its folder to the path

LAUNCHER = sys.argv[3] if len(sys.argv) > 3 else "mpirun"
FLAGS = ["--device", "cuda", "--data", "synthetic:48:16:3", "--arch", "resnet10", "--width", "4", "--progress", "off",
         "--no-tensorboard", "--eval-every", "0", "--deterministic", "--lr", "0.01", "--epochs", "3"]
ENV["LATHER_STANDIN_PROTECT"] = "0"  # slow; tests/cuda/standin checks that the host does not access device memory
UNGRAPHED = "run without a graph"


def train(ranks, cwd, output, *args, order="now", batch=4, steps=6, code=OK):
    command = [PROGRAM, *FLAGS, "--batch-size", str(batch), "--max-steps", str(steps), "--output", output, "--overwrite", *args]
    got = Ranks(ranks, command, cwd, order).finish()
    expect(got, code)
    return " ".join(said for _, said in got)


def weights(cwd, output):
    return read_header(os.path.join(cwd, output, "model.safetensors"))[1]


def losses(cwd, output):
    return [r["loss"] for r in steps_of(cwd, output)]


def near(a, b, bound):
    return all(abs(x - y) <= bound * abs(x) for x, y in zip(a, b)) and len(a) == len(b)


# --- rows ---------------------------------------------------------------------------------------

def two_ranks_train_like_one(cwd):
    says = train(2, cwd, "two", "--optim", "sgd", "--sync-bn", order="late")
    train(2, cwd, "eager", "--optim", "sgd", "--sync-bn", "--no-graph", order="shuffled")
    assert UNGRAPHED not in says and weights(cwd, "two") == weights(cwd, "eager"), says
    train(1, cwd, "one", "--optim", "sgd", batch=8)
    train(2, cwd, "apart", "--optim", "sgd")
    one, two, apart = (losses(cwd, f) for f in ("one", "two", "apart"))
    assert near(one[:1], two[:1], 1e-5) and near(one, two, 5e-3), (one, two)
    assert not near(one[:1], apart[:1], 1e-4), "control: separate batch norms should differ"


def recorded_updates_equal_eager_ones(cwd):
    rows = [("late", "--optim", "sgd"), ("shuffled", "--optim", "adamw", "--grad-accum", "2", "--grad-comm-dtype", "bf16"),
            ("main-last", "--optim", "adamw", "--amp", "f16")]
    for order, *flags in rows:
        says = train(2, cwd, "graph", *flags, order=order)
        train(2, cwd, "eager", *flags, "--no-graph")
        assert weights(cwd, "graph") == weights(cwd, "eager"), flags
        graph, eager = steps_of(cwd, "graph"), steps_of(cwd, "eager")
        assert UNGRAPHED not in says and not graph[5]["comm_exposed_seconds"] and eager[5]["comm_exposed_seconds"] > 0, says
        assert graph[5]["comm_bytes"] == eager[5]["comm_bytes"] > 0, (graph[5], eager[5])
        for output in ("graph", "eager"):
            shutil.rmtree(os.path.join(cwd, output))


def a_group_of_one_rank_equals_no_group(cwd):
    """Also checked by tools/gpu_check on a machine with one GPU."""
    for flags in (["--optim", "adamw", "--shard-optimizer"], ["--optim", "shampoo"]):
        says = train(1, cwd, "one", *flags, "--dist", "mpi", order="late")
        train(1, cwd, "none", *flags, "--dist", "off", order="shuffled")
        assert weights(cwd, "one") == weights(cwd, "none") and UNGRAPHED not in says, says
        assert "comm_bytes" in steps_of(cwd, "one")[0] and "comm_bytes" not in steps_of(cwd, "none")[0]
        for output in ("one", "none"):
            shutil.rmtree(os.path.join(cwd, output))


def dropped_waits_are_detected(cwd):
    """Control for the row above: without waits between streams, results differ or the run fails."""
    train(2, cwd, "right", "--optim", "sgd", order="late")
    ENV["LATHER_STANDIN_DROP"] = "-1"
    try:
        command = [PROGRAM, *FLAGS, "--batch-size", "4", "--max-steps", "6", "--optim", "sgd", "--output", "wrong"]
        got = Ranks(2, command, cwd, "late").finish()
    finally:
        del ENV["LATHER_STANDIN_DROP"]
    assert any(code for code, _ in got) or weights(cwd, "right") != weights(cwd, "wrong"), "dropped waits had no effect"


def sharded_optimizers_are_recorded(cwd):
    train(2, cwd, "replicated", "--optim", "adamw", "--no-graph")
    train(2, cwd, "sharded", "--optim", "adamw", "--shard-optimizer", order="late")
    assert weights(cwd, "replicated") == weights(cwd, "sharded")
    says = train(2, cwd, "blocks", "--optim", "shampoo", "--precondition-frequency", "3", steps=10, order="shuffled")
    train(2, cwd, "eager", "--optim", "shampoo", "--precondition-frequency", "3", "--no-graph", steps=10)
    assert weights(cwd, "blocks") == weights(cwd, "eager") and UNGRAPHED not in says, says
    train(1, cwd, "alone", "--optim", "shampoo", "--precondition-frequency", "3", batch=8, steps=4)
    train(2, cwd, "both", "--optim", "shampoo", "--precondition-frequency", "3", "--sync-bn", steps=4)
    assert near(losses(cwd, "alone"), losses(cwd, "both"), 5e-3), (losses(cwd, "alone"), losses(cwd, "both"))


def powersgd_is_independent_of_the_order(cwd):
    flags = ["--optim", "sgd", "--compress", "powersgd:1", "--amp", "f16"]
    train(2, cwd, "late", *flags, order="late")
    train(2, cwd, "eager", *flags, "--no-graph")
    assert weights(cwd, "late") == weights(cwd, "eager")
    train(2, cwd, "whole", *flags[:2])
    low, whole = (steps_of(cwd, f) for f in ("late", "whole"))
    assert 3 * low[1]["comm_bytes"] < whole[1]["comm_bytes"], (low[1], whole[1])
    assert near(losses(cwd, "late")[:1], losses(cwd, "whole")[:1], 1e-2)


def computed(cwd, output):
    """Returns the number of micro-batches of each rank, per step."""
    with open(os.path.join(cwd, output, "metrics.jsonl")) as f:
        return [list(map(int, r["computed"].split())) for r in map(json.loads, f) if r["event"] == "micro_batches"]


def a_distant_deadline_drops_nothing(cwd):
    """With NCCL, weights are bitwise identical to those without a deadline, and losses match those of CPU ranks with MPI."""
    flags = ["--optim", "adamw", "--grad-accum", "2"]
    deadline = ["--drop-compute", "1000"]
    says = train(2, cwd, "far", *flags, *deadline, order="late")
    train(2, cwd, "none", *flags, "--no-graph", order="shuffled")
    assert weights(cwd, "far") == weights(cwd, "none"), says
    assert computed(cwd, "far") == [[2, 2]] * 6 and all(r["micro_dropped"] == 0 for r in steps_of(cwd, "far"))
    train(2, cwd, "sharded", "--optim", "adamw", "--grad-accum", "2", "--shard-optimizer", *deadline)
    assert weights(cwd, "sharded") == weights(cwd, "none")
    if shutil.which(LAUNCHER):
        words = [PROGRAM, *FLAGS, *flags, *deadline, "--device", "cpu", "--batch-size", "4", "--max-steps", "6", "--output", "mpi"]
        p = by_mpi(LAUNCHER, 2, words, cwd, "now")
        assert p.returncode == OK and computed(cwd, "mpi") == computed(cwd, "far"), p.stderr[-500:]
        far, mpi = losses(cwd, "far"), losses(cwd, "mpi")
        assert near(far[:1], mpi[:1], 1e-4) and near(far, mpi, 2e-2), (far, mpi)


def a_late_rank_drops_micro_batches_over_nccl(cwd):
    """Stops a rank repeatedly for longer than the deadline, until it drops micro-batches."""
    accum, batch = 4, 4
    ranks = Ranks(2, [PROGRAM, *FLAGS, "--optim", "sgd", "--batch-size", str(batch), "--grad-accum", str(accum), "--drop-compute", "0.5",
                      "--epochs", "100000", "--max-steps", "4000", "--output", "late"], cwd)
    metrics, end = os.path.join(cwd, "late", "metrics.jsonl"), time.monotonic() + TIMEOUT
    while not (os.path.exists(metrics) and any(c[1] < accum for c in computed(cwd, "late"))):
        assert time.monotonic() < end and ranks.process[0].poll() is None, [p.kill() for p in ranks.process] and ranks.finish()
        if os.path.exists(metrics) and len(steps_of(cwd, "late")) > 2:
            ranks.process[1].send_signal(signal.SIGSTOP)
            time.sleep(0.7)
            ranks.process[1].send_signal(signal.SIGCONT)
        time.sleep(0.05)
    ranks.process[0].send_signal(signal.SIGINT)
    got = ranks.finish()
    expect(got, 3)
    counts, step = computed(cwd, "late"), steps_of(cwd, "late")
    assert len(counts) == len(step) and all(1 <= c <= accum for pair in counts for c in pair), (len(counts), len(step))
    for pair, r in zip(counts, step):
        samples = batch * sum(pair)
        assert round(r["images_per_second"] * r["seconds"]) == samples and r["micro_dropped"] == 2 * accum - sum(pair), (pair, r)
        right = r["top1"] * samples / 100
        assert r["loss"] > 0 and abs(right - round(right)) < 1e-6 and not r.get("skipped"), (pair, r)


def backup_workers_are_rejected_with_nccl(cwd):
    says = train(2, cwd, "run", "--optim", "sgd", "--backup-workers", "1", code=USAGE)
    assert "--backup-workers" in says and "NCCL" in says, says


def ranks_skip_the_same_updates(cwd):
    """Both ranks skip an overflow at the first loss scale; otherwise their next collectives would not match."""
    huge = ["--optim", "sgd", "--amp", "f16", "--lr", "1e4", "--momentum", "0", "--on-nan", "skip"]
    train(2, cwd, "run", *huge, steps=8)
    step = steps_of(cwd, "run")
    assert len(step) == 8 and step[7]["skipped_steps"] > 0 and step[7]["loss_scale"] < 65536, step[7]


def a_failed_nccl_call_ends_all_ranks(cwd):
    """A group of one rank calls NCCL too, for the broadcast of the gradients' order."""
    try:
        for ranks, call in ((2, "ncclAllReduce:9"), (2, "ncclGroupEnd:12"), (1, "ncclBroadcast:1"), (2, "ncclCommInitRank:1")):
            ENV["LATHER_STANDIN_FAIL"] = call
            says = train(ranks, cwd, "run", "--optim", "sgd", "--dist", "mpi" if ranks == 1 else "auto", code=ERROR)
            assert call.split(":")[0] in says and "NCCL says: nccl" in says and "told to fail" in says, says
    finally:
        del ENV["LATHER_STANDIN_FAIL"]


def an_old_version_of_nccl_is_reported(cwd):
    """Each rank reports the version and its path at start."""
    try:
        ENV["LATHER_STANDIN_VERSION"] = "NCCL 1.3"
        says = train(2, cwd, "run", "--optim", "sgd", code=ERROR)
    finally:
        del ENV["LATHER_STANDIN_VERSION"]
    assert re.search(r"comm nccl: NCCL 1\.3 was found \(.+\), want \d+\.\d+ or a later", says), says


def a_killed_rank_is_named_and_the_run_resumes(cwd):
    flags = [PROGRAM, *FLAGS, "--optim", "sgd", "--batch-size", "4", "--checkpoint-every", "2", "--output", "run"]
    ranks = Ranks(2, [*flags, "--epochs", "100000"], cwd)
    metrics, end = os.path.join(cwd, "run", "metrics.jsonl"), time.monotonic() + TIMEOUT
    while not (os.path.exists(metrics) and len(steps_of(cwd, "run")) > 5) and time.monotonic() < end:
        time.sleep(0.02)
    ranks.process[1].kill()
    got = ranks.finish()
    expect(got, ERROR, -signal.SIGKILL)
    assert "rank 1" in got[0][1], got[0][1]
    last = complete_steps(os.path.join(cwd, "run"))[-1]
    more = Ranks(2, [*flags, "--epochs", "100000", "--max-steps", str(last + 3), "--resume", "auto"], cwd).finish()
    expect(more, OK)
    assert [r["step"] for r in steps_of(cwd, "run")] == list(range(1, last + 4))


def mpirun_and_torchrun_give_the_same_run(cwd):
    if not shutil.which(LAUNCHER):
        raise Skip("no " + LAUNCHER)
    p = by_mpi(LAUNCHER, 2, [PROGRAM, *FLAGS, "--optim", "sgd", "--batch-size", "4", "--max-steps", "6", "--output", "mpi"],
               cwd, "shuffled")
    assert p.returncode == OK, p.stderr[-500:]
    train(2, cwd, "torchrun", "--optim", "sgd")
    assert weights(cwd, "mpi") == weights(cwd, "torchrun")


def each_rank_needs_a_separate_device(cwd):
    ranks = Ranks(2, [PROGRAM, *FLAGS, "--optim", "sgd", "--max-steps", "1"], cwd, devices=1)
    ranks.process[1].wait(TIMEOUT)
    ranks.process[0].kill()  # like a launcher after a rank ended
    said = ranks.finish()[1]
    assert said[0] == ERROR and "rank 1 of 2 on this machine" in said[1] and "a separate GPU" in said[1], said
    ranks = Ranks(2, [PROGRAM, *FLAGS, "--device", "cuda:0", "--optim", "sgd", "--max-steps", "1"], cwd).finish()
    expect(ranks, USAGE)
    assert "ranks 0 and 1 have the same GPU" in ranks[0][1] + ranks[1][1], ranks


ROWS = [two_ranks_train_like_one, recorded_updates_equal_eager_ones, a_group_of_one_rank_equals_no_group, dropped_waits_are_detected, sharded_optimizers_are_recorded,
        powersgd_is_independent_of_the_order, a_distant_deadline_drops_nothing, a_late_rank_drops_micro_batches_over_nccl,
        backup_workers_are_rejected_with_nccl, ranks_skip_the_same_updates, a_failed_nccl_call_ends_all_ranks, an_old_version_of_nccl_is_reported, a_killed_rank_is_named_and_the_run_resumes, mpirun_and_torchrun_give_the_same_run,
        each_rank_needs_a_separate_device]

sys.exit(run_rows(ROWS, os.path.abspath(sys.argv[2]), "lather-gpu-models-", *sys.argv[4:5]))
