#!/usr/bin/env python3
"""NCCL's communicator on stand-in devices, with all that its plugin calls.

    tests/dist/gpu_ranks.py BUILD/tests/dist/gpu_ranks BUILD [MPIRUN [ROW]]

Ranks are started by MPIRUN, or by torchrun's variables, which leave each of them to be looked at. Prints cmocka's
lines; rows that need a launcher are skipped without one."""
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import Skip  # noqa: E402
from standin_ranks import ENV, TIMEOUT, Ranks, by_mpi, expect, run_rows  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
LAUNCHER = sys.argv[3] if len(sys.argv) > 3 else "mpirun"


def run(mode, ranks, cwd, order="now", **more):
    return Ranks(ranks, [PROGRAM, mode, str(ranks)], cwd, order, **more).finish()


# --- rows ---------------------------------------------------------------------------------------

def every_collective_on_one_to_four_ranks(cwd):
    for ranks, order in ((1, "late"), (2, "late"), (3, "now"), (4, "now")):
        expect(run("cases", ranks, cwd, order), 0)


def wrong_values_are_found(cwd):
    expect(run("wrong", 3, cwd), 0)


def captured_steps_talk_in_every_order(cwd):
    for ranks, order in ((1, "late"), (2, "now"), (2, "late"), (2, "shuffled"), (3, "shuffled")):
        expect(run("recorded", ranks, cwd, order), 0)


def missing_waits_are_found(cwd):
    """A control for the row above: without the events that order the streams, results are others."""
    ENV["LATHER_STANDIN_DROP"] = "-1"
    try:
        got = run("recorded", 2, cwd, "late")
    finally:
        del ENV["LATHER_STANDIN_DROP"]
    assert any(c for c, _ in got), got


def a_rank_that_dies_in_a_replay_is_named(cwd):
    for order in ("late", "now"):
        expect(run("killed", 2, cwd, order), 0, -signal.SIGKILL)
    expect(run("killed", 3, cwd, "shuffled"), 0, 0, -signal.SIGKILL)


def a_silent_rank_ends_a_replay(cwd):
    expect(run("silent", 2, cwd, "late"), 0)


def mpi_brings_ranks_together(cwd):
    if not shutil.which(LAUNCHER):
        raise Skip("no " + LAUNCHER)
    p = by_mpi(LAUNCHER, 2, [PROGRAM, "recorded", "2"], cwd, "shuffled")
    assert p.returncode == 0, p.stderr[-500:]


def more_ranks_than_devices_are_refused(cwd):
    ranks = Ranks(2, [PROGRAM, "cases", "2"], cwd, devices=1)
    ranks.process[1].wait(TIMEOUT)
    ranks.process[0].kill()  # as a launcher does, when one has ended; it waits for the other
    got = ranks.finish()
    assert got[1][0] == 77 and "cuda:1" in got[1][1], got


ROWS = [every_collective_on_one_to_four_ranks, wrong_values_are_found, captured_steps_talk_in_every_order,
        missing_waits_are_found, a_rank_that_dies_in_a_replay_is_named, a_silent_rank_ends_a_replay,
        mpi_brings_ranks_together, more_ranks_than_devices_are_refused]


sys.exit(run_rows(ROWS, os.path.abspath(sys.argv[2]), "lather-gpu-ranks-", *sys.argv[4:5]))
