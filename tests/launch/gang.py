#!/usr/bin/env python3
"""A gang that loses a rank: it continues from the newest checkpoint with one rank fewer and the same global batch.

    gang.py LATHER TRAIN_MLP MPIRUN [ROW]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "..", "tools")]
from rows import SKIPPED, run_rows  # noqa: E402
from stormlib import complete_steps  # noqa: E402

LATHER, TRAIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MPIRUN = sys.argv[3]
TIMEOUT = 240
ENV = dict(os.environ, OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_base_warn_component_unused="0", OMP_WAIT_POLICY="passive")
STEPS, EVERY = 80, 4
FLAGS = ["--data", "synthetic:96:8:3", "--optim", "sgd", "--progress", "off", "--no-tensorboard", "--threads", "1", "--workers", "1",
         "--deterministic", "--eval-every", "0", "--hidden", "4", "--batch-size", "2", "--max-steps", str(STEPS),
         "--checkpoint-every", str(EVERY), "--keep", "0", "--comm-timeout", "60", "--resume", "auto"]
PROGRAM = """
[program]
name = gang
[trainer]
kind = gang
ranks = 4
command = {train} {flags} --output run --grad-accum ${{grad-accum}}
batch-size = 2
global-batch = {batch}
supervise = shrink {restarts}
backoff = 0.01
"""


def begin(cwd, batch, restarts, more=""):
    path = os.path.join(cwd, "program.ini")
    with open(path, "w") as f:
        f.write(PROGRAM.format(train=TRAIN, flags=" ".join(FLAGS), batch=batch, restarts=restarts) + more)
    return subprocess.Popen([LATHER, "launch", path], cwd=cwd, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rank_process(cwd, rank):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                variables = f.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                program = f.read().split(b"\0")[0]
            if os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(cwd) and program == TRAIN.encode() \
                    and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                return int(pid)
        except OSError:
            pass
    return None


def kill_rank(cwd, rank, launch, by=signal.SIGKILL):
    """Waits for the first checkpoint."""
    deadline = time.monotonic() + TIMEOUT
    while not os.path.exists(os.path.join(cwd, "run", "checkpoints", f"step-{EVERY}", "state.json")):
        assert time.monotonic() < deadline and launch.poll() is None, launch.communicate()[0]
        time.sleep(0.01)
    os.kill(rank_process(cwd, rank), by)


def records(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


def losses(folder, after):
    """The last record of each step after a step: repeated steps override earlier ones."""
    return {r["step"]: (r["loss"], r["lr"]) for r in records(folder) if r["event"] == "step" and r["step"] > after}


def resume_by_hand(cwd, step):
    """Resumes a copy of the run from the gang's checkpoint, with 3 ranks and the same batch."""
    run = os.path.join(cwd, "hand")
    shutil.copytree(os.path.join(cwd, "run"), run, symlinks=True)
    folder = os.path.join(run, "checkpoints")
    for later in complete_steps(run):
        if later > step:
            shutil.rmtree(os.path.join(folder, f"step-{later}"))
    for at in (run, folder):
        if os.path.lexists(os.path.join(at, "latest")):
            os.remove(os.path.join(at, "latest"))
            os.symlink(f"step-{step}" if at == folder else f"checkpoints/step-{step}", os.path.join(at, "latest"))
    with open(os.path.join(run, "metrics.jsonl")) as f:
        lines = [line for line in f if json.loads(line).get("step", 0) <= step and json.loads(line)["event"] != "resume"]
    with open(os.path.join(run, "metrics.jsonl"), "w") as f:
        f.writelines(lines)
    subprocess.run([MPIRUN, "-n", "3", TRAIN, *FLAGS, "--output", "hand", "--grad-accum", "4"], cwd=cwd, env=ENV, check=True,
                   capture_output=True, timeout=TIMEOUT)
    return run


def from_4_to_3_ranks_the_losses_are_those_of_a_run_resumed_by_hand(cwd):
    launch = begin(cwd, 24, 2)
    kill_rank(cwd, 2, launch)
    out = launch.communicate(timeout=TIMEOUT)[0]
    assert launch.returncode == 0, out
    assert "launch| trainer continues with 3 ranks, grad-accum 4" in out and "launch| trainer.2 failed" in out, out
    resumes = [r for r in records(os.path.join(cwd, "run")) if r["event"] == "resume"]
    assert len(resumes) == 1 and EVERY <= resumes[0]["step"] < STEPS, resumes
    step = resumes[0]["step"]
    hand = resume_by_hand(cwd, step)
    got, want = losses(os.path.join(cwd, "run"), step), losses(hand, step)
    assert len(got) == STEPS - step and got == want, (len(got), len(want))
    with open(os.path.join(cwd, "run", "model.safetensors"), "rb") as a, open(os.path.join(hand, "model.safetensors"), "rb") as b:
        a, b = a.read(), b.read()
    assert a[8 + int.from_bytes(a[:8], "little"):] == b[8 + int.from_bytes(b[:8], "little"):], "the weights differ"


def a_batch_that_fewer_ranks_cannot_make_takes_the_next_number_that_can(cwd):
    """16 = 2 x 2 x 4; of 3 ranks it cannot be made, of 2 with 4 micro-batches it can."""
    launch = begin(cwd, 16, 2)
    kill_rank(cwd, 1, launch)
    out = launch.communicate(timeout=TIMEOUT)[0]
    assert launch.returncode == 0 and "trainer continues with 2 ranks, grad-accum 4" in out, out


def a_stopped_rank_is_named_and_the_gang_goes_on(cwd):
    launch = begin(cwd, 24, 1, "heartbeat = 2\n")
    kill_rank(cwd, 2, launch, signal.SIGSTOP)
    out = launch.communicate(timeout=TIMEOUT)[0]
    assert launch.returncode == 0 and "launch| trainer.2 has sent no heartbeat for" in out, out
    assert "trainer continues with 3 ranks, grad-accum 4" in out and rank_process(cwd, 2) is None, out


def a_rank_that_makes_no_progress_ends_the_gang(cwd):
    """It may be stopped where it waits for the others: then all have made as much."""
    launch = begin(cwd, 24, 1, "progress = 12\n")
    kill_rank(cwd, 1, launch, signal.SIGSTOP)
    out = launch.communicate(timeout=TIMEOUT)[0]
    assert launch.returncode == 0 and re.search(r"launch\| trainer(\.1)? has made no progress for .*; ending it", out), out
    assert "trainer continues with 3 ranks, grad-accum 4" in out, out


ROWS = (from_4_to_3_ranks_the_losses_are_those_of_a_run_resumed_by_hand,
        a_batch_that_fewer_ranks_cannot_make_takes_the_next_number_that_can, a_stopped_rank_is_named_and_the_gang_goes_on,
        a_rank_that_makes_no_progress_ends_the_gang)

if __name__ == "__main__":
    if MPIRUN == "none":
        sys.exit(SKIPPED)
    sys.exit(run_rows(ROWS, "lather-gang-", sys.argv[4] if len(sys.argv) > 4 else None))
