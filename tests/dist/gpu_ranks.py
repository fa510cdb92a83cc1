#!/usr/bin/env python3
"""Ranks on devices cuda:0, cuda:1, ... that are stand-ins on the host (tests/cuda/standin): NCCL's communicator with
all that its module calls.

    tests/dist/gpu_ranks.py BUILD/tests/dist/gpu_ranks BUILD [MPIRUN [ROW]]

Ranks are started by MPIRUN, or by torchrun's variables, which leave each of them to be looked at. Prints cmocka's
lines; rows that need a launcher are skipped without one."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
BUILD = os.path.abspath(sys.argv[2])
LAUNCHER = sys.argv[3] if len(sys.argv) > 3 else "mpirun"
TIMEOUT = 100
ENV = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1",
           OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_ALLOW_RUN_AS_ROOT="1",
           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_btl_base_warn_component_unused="0",
           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")


def modules(folder):
    """The stand-in's module and MPI's, in one folder."""
    ENV["LATHER_MODULE_PATH"] = folder
    for path in ("tests/cuda/standin/liblather-cuda.so", "liblather-mpi.so"):
        if os.path.exists(os.path.join(BUILD, path)):
            os.symlink(os.path.join(BUILD, path), os.path.join(folder, os.path.basename(path)))
    return os.path.exists(os.path.join(folder, "liblather-cuda.so"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Ranks:
    """As torchrun starts them: each a process of its own."""

    def __init__(self, count, args, cwd, order="now", devices=None):
        env = dict(ENV, LATHER_STANDIN=order, LATHER_STANDIN_DEVICES=str(devices or count), WORLD_SIZE=str(count),
                   LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TMPDIR=cwd)
        self.process = [
            subprocess.Popen([*args], cwd=cwd, env=dict(env, RANK=str(r), LOCAL_RANK=str(r), LATHER_STANDIN_SEED=str(r + 1)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(count)]

    def kill(self, rank):
        self.process[rank].kill()

    def finish(self):
        """(exit status, what it said) of each."""
        end = time.monotonic() + TIMEOUT
        try:
            said = [p.communicate(timeout=max(1, end - time.monotonic()))[1] for p in self.process]
        except subprocess.TimeoutExpired:
            for p in self.process:
                p.kill()
            said = [p.communicate()[1] for p in self.process]
            raise AssertionError("hangs: " + " | ".join(s[-300:] for s in said)) from None
        return [(p.returncode, s) for p, s in zip(self.process, said)]


def expect(got, *codes):
    want = codes if len(codes) > 1 else codes * len(got)
    assert tuple(c for c, _ in got) == tuple(want), f"{[c for c, _ in got]}, want {list(want)}: " + " | ".join(
        s[-400:] for _, s in got)


def run(mode, ranks, cwd, order="now", **more):
    return Ranks(ranks, [PROGRAM, mode, str(ranks)], cwd, order, **more).finish()


# --- rows ---------------------------------------------------------------------------------------

def every_collective_on_one_to_four_ranks(cwd):
    for ranks, order in ((1, "late"), (2, "late"), (3, "now"), (4, "now")):
        expect(run("cases", ranks, cwd, order), 0)


def wrong_values_are_found(cwd):
    expect(run("wrong", 3, cwd), 0)


def recorded_steps_talk_in_every_order(cwd):
    for ranks, order in ((1, "late"), (2, "now"), (2, "late"), (2, "shuffled"), (3, "shuffled")):
        expect(run("recorded", ranks, cwd, order), 0)


def forgotten_waits_are_found(cwd):
    """A control for the row above: without the events that order the streams, results are others."""
    os.environ["LATHER_STANDIN_DROP"] = ENV["LATHER_STANDIN_DROP"] = "-1"
    try:
        got = run("recorded", 2, cwd, "late")
    finally:
        del ENV["LATHER_STANDIN_DROP"], os.environ["LATHER_STANDIN_DROP"]
    assert any(c for c, _ in got), got


def a_rank_that_dies_in_a_replay_is_named(cwd):
    for order in ("late", "now"):
        expect(run("killed", 2, cwd, order), 0, -signal.SIGKILL)
    expect(run("killed", 3, cwd, "shuffled"), 0, 0, -signal.SIGKILL)


def a_silent_rank_ends_a_replay(cwd):
    expect(run("silent", 2, cwd, "late"), 0)


def mpi_brings_ranks_together(cwd):
    if not shutil.which(LAUNCHER):
        return "no " + LAUNCHER
    env = dict(ENV, LATHER_STANDIN="shuffled", LATHER_STANDIN_DEVICES="2", TMPDIR=cwd)
    p = subprocess.run([LAUNCHER, "-n", "2", PROGRAM, "recorded", "2"], cwd=cwd, env=env, capture_output=True, text=True,
                       timeout=TIMEOUT)
    assert p.returncode == 0, p.stderr[-500:]
    return None


def more_ranks_than_devices_are_refused(cwd):
    ranks = Ranks(2, [PROGRAM, "cases", "2"], cwd, devices=1)
    ranks.process[1].wait(TIMEOUT)
    ranks.kill(0)  # as a launcher does, when one has ended; it waits for the other
    got = ranks.finish()
    assert got[1][0] == 77 and "cuda:1" in got[1][1], got


ROWS = [every_collective_on_one_to_four_ranks, wrong_values_are_found, recorded_steps_talk_in_every_order,
        forgotten_waits_are_found, a_rank_that_dies_in_a_replay_is_named, a_silent_rank_ends_a_replay,
        mpi_brings_ranks_together, more_ranks_than_devices_are_refused]


def main():
    with tempfile.TemporaryDirectory(prefix="lather-modules-") as folder:
        if not modules(folder):
            print(f"{BUILD}: no stand-in")
            return 77
        return run_rows()


def run_rows():
    failed, chosen = 0, [r for r in ROWS if len(sys.argv) < 5 or r.__name__ == sys.argv[4]]
    for row in chosen:
        name = row.__name__.replace("_", " ")
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lather-gpu-ranks-") as cwd:
            try:
                why = row(cwd)
                print(f"[  SKIPPED ] {name}: {why}" if why else f"[       OK ] {name} ({time.monotonic() - begin:.1f} s)",
                      flush=True)
            except (AssertionError, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as e:
                failed += 1
                print(f"{type(e).__name__}: {e}\n[  FAILED  ] {name}", flush=True)
    return 1 if failed or not chosen else 0


sys.exit(main())
