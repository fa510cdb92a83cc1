#!/usr/bin/env python3
"""Times jobs that take turns on a device against one after the other, and against all at once; prints Markdown tables.

    tools/bench_share.py --build BUILD [--part sleep|spin|program] [--jobs 2,3] [--ratios .05,.2,.5,1] [--rounds 3]

A job is a process whose step is a time C of computing, in a turn, and a time rC of communicating, outside it. The
speed-up of k jobs is the sum of their rates over the rate of one alone, both measured; turns promise
k(1+r) / max(k, 1+r, kr), as the device is never idle or the slowest part is the only one.

  sleep    computing is sleeping too: what turns themselves cost, on a machine with other work as well
  spin     computing is C seconds of processor time, all jobs on one processor; also all at once without turns
  program  train_vit on two ranks, each bound to a processor, communicating by --comm-model; also without turns

Exit status 77: the build has not what a part needs."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CANNOT = 77
NAME = 64  # LT_SHARE_NAME
SECONDS = 0.02  # C of sleep and spin
NET = ["--data", "synthetic:4096:32:10", "--batch-size", "32", "--patch-size", "4", "--depth", "2", "--width", "96", "--heads", "2", "--optim", "sgd", "--threads",
       "1", "--workers", "1", "--progress", "off", "--no-tensorboard", "--no-overlap", "--epochs", "1000"]
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_btl_base_warn_component_unused="0", OMP_WAIT_POLICY="passive")


class ShareConfig(ctypes.Structure):
    """lt_share_config of include/lather/share.h."""
    _fields_ = [("session", ctypes.c_char * NAME), ("weight", ctypes.c_int), ("comm", ctypes.c_void_p), ("device", ctypes.c_char_p),
                ("folder", ctypes.c_char_p), ("deadline", ctypes.c_double)]


class ShareTurn(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64), ("seconds", ctypes.c_double)]


def predicted(k, r):
    return k * (1 + r) / max(k, 1 + r, k * r)


# --- A job of sleep and spin: a process that prints when its steps ended ---


def compute(how):
    if how == "sleep":
        time.sleep(SECONDS)
        return
    end = time.thread_time() + SECONDS
    while time.thread_time() < end:
        pass


def work(a):
    lib = ctypes.CDLL(os.path.join(a.build, "liblather.so"))
    share, turn, ends = ctypes.c_void_p(), ShareTurn(), []
    if a.part == "spin":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if a.session:
        config = ShareConfig(session=a.session.encode(), weight=1, device=b"bench", deadline=60)
        assert lib.lt_share_open(ctypes.byref(share), ctypes.byref(config)) == 0, "lt_share_open"
    for _ in range(a.steps):
        assert not a.session or lib.lt_share_begin(share, ctypes.byref(turn)) == 0, "lt_share_begin"
        compute(a.part)
        assert not a.session or lib.lt_share_end(share) == 0, "lt_share_end"
        time.sleep(SECONDS * a.work)
        ends.append(time.monotonic())
    lib.lt_share_close(ctypes.byref(share))
    print(json.dumps(ends))


def start_work(a, r, session):
    words = [sys.executable, __file__, "--build", a.build, "--part", a.part, "--steps", str(a.steps), "--work", str(r), "--session", session]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def ends_of_work(jobs):
    return [json.loads(p.communicate(timeout=600)[0]) for p in jobs]


# --- A job of program: metrics of a run ---


def start_program(a, r, session, folder):
    link = f"{1e6 * r * a.compute / 2:.0f},1000"  # the gradients' exchange, and that of the losses
    words = ["mpirun.openmpi", "-n", "2", "sh", "-c", 'exec taskset -c $OMPI_COMM_WORLD_LOCAL_RANK "$@"', "sh", os.path.join(a.build, "models/vit/train_vit"),
             *NET, "--max-steps", str(a.steps), "--output", folder, "--comm-model", link, *(["--share-device", session] if session else [])]
    return subprocess.Popen(words, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), folder


def steps_of(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def stamps(folder):
    """When steps ended, by the sums of their seconds up to the last record's time."""
    last, out = os.path.getmtime(os.path.join(folder, "metrics.jsonl")), []
    for record in reversed(steps_of(folder)):
        out.insert(0, last)
        last -= record["seconds"]
    return out


# --- What comes of them ---


def rates(ends):
    """Steps a second of all jobs together, while all are at work: of each what it did between the last start and the first end."""
    first, last = max(e[1] for e in ends), min(e[-1] for e in ends)
    own = [[t for t in e if first <= t <= last] for e in ends]
    if min(map(len, own)) < 8:
        raise RuntimeError("the jobs were hardly ever at work together: more --steps")
    return sum((len(t) - 1) / (t[-1] - t[0]) for t in own)


def measure(a, k, r, session):
    """Steps a second of k jobs; session "": no turns."""
    if a.part != "program":
        return rates(ends_of_work([start_work(a, r, session) for _ in range(k)]))
    with tempfile.TemporaryDirectory() as folder:
        jobs = [start_program(a, r, session, os.path.join(folder, str(i))) for i in range(k)]
        for p, _ in jobs:
            err = p.communicate(timeout=900)[1]
            if p.returncode:
                raise RuntimeError(err[-300:])
        return rates([stamps(path) for _, path in jobs])


def find_compute(a):
    """C of the program, and what it communicates anyway: seconds of a step without a model of the link."""
    with tempfile.TemporaryDirectory() as folder:
        a.compute = 0.0
        p, path = start_program(a, 0, "", os.path.join(folder, "solo"))
        p.communicate(timeout=900)
        return statistics.median(r["seconds"] for r in steps_of(path)[5:])


def table(a):
    together = a.part != "sleep"
    print(f"| jobs | r | turns | promised | turns / promised |{' all at once |' if together else ''}\n|---|---|---|---|---|{'---|' if together else ''}")
    for k in a.jobs:
        for r in a.ratios:
            turns, loose = [], []
            for i in range(a.rounds):
                alone = measure(a, 1, r, "")
                turns.append(measure(a, k, r, f"bench-{os.getpid()}-{i}") / alone)
                if together:
                    loose.append(measure(a, k, r, "") / alone)
            found, want = statistics.median(turns), predicted(k, r)
            more = f" {statistics.median(loose):.3f} |" if together else ""
            print(f"| {k} | {r:g} | {found:.3f} | {want:.3f} | {found / want:.3f} |{more}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--part", choices=["sleep", "spin", "program"], default="sleep")
    p.add_argument("--jobs", default="2,3", type=lambda t: [int(n) for n in t.split(",")])
    p.add_argument("--ratios", default=".05,.2,.5,1", type=lambda t: [float(n) for n in t.split(",")])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--work", type=float, help=argparse.SUPPRESS)
    p.add_argument("--session", default="", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.work is not None:
        work(a)
        return 0
    need = "liblather-mpi.so" if a.part == "program" else "liblather.so"
    if not os.path.exists(os.path.join(a.build, need)):
        print(f"{a.build} has no {need}", file=sys.stderr)
        return CANNOT
    if a.part == "program":
        a.compute = find_compute(a)
        print(f"C = {1e3 * a.compute:.1f} ms\n")
    table(a)
    return 0


if __name__ == "__main__":
    sys.exit(main())
