#!/usr/bin/env python3
"""tools/netbed: nodes with names and cards of their own, bytes that are counted, a rate that is kept, nothing left behind.
$1: netbed, $2: bench, $3: train_resnet50, and a fourth word: without the rows that take long. Exit status 77 without root, iproute2 or Open MPI."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import SKIPPED, Skip, run_rows  # noqa: E402

NETBED, BENCH, TRAIN = (os.path.abspath(path) for path in sys.argv[1:4])
NAME = "test"
RATE = 400  # Mbit/s


def netbed(*args, code=0, timeout=120):
    done = subprocess.run([NETBED, "--name", NAME, *args], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == code, f"netbed {args[0]}: exit {done.returncode}: {done.stderr[-500:]}"
    return done


def up(nodes=2, ranks=2, *more):
    done = subprocess.run([NETBED, "--name", NAME, "up", str(nodes), "--ranks", str(ranks), *more], capture_output=True,
                          text=True, timeout=60)
    if done.returncode == SKIPPED:
        raise Skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as f:
        return [line.split()[1] for line in f if f"/netbed/{NAME}/" in line]


def places_by_rank(*how):
    lines = netbed("run", *how, "--", "sh", "-c", 'echo "${RANK:-$OMPI_COMM_WORLD_RANK}" "$(hostname)"').stdout
    return dict(line.split() for line in lines.splitlines())


WANTED = {"0": "test0", "1": "test0", "2": "test1", "3": "test1"}


def each_rank_is_on_its_node(cwd):
    del cwd
    up()
    assert places_by_rank("--each") == WANTED
    text = netbed("run", "--each", "-n", "3", "--", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR").stdout
    address = text.split()[-1]
    assert sorted(text.splitlines()) == [f"0 3 0 2 {address}", f"1 3 1 2 {address}", f"2 3 0 1 {address}"], text
    assert netbed("run", "--on", "1", "--", "hostname").stdout == "test1\n"
    if not shutil.which("mpirun.openmpi"):
        raise Skip("no Open MPI")
    assert places_by_rank() == WANTED


def statuses_and_wrong_arguments(cwd):
    del cwd
    up()
    netbed("run", "--each", "--", "sh", "-c", "test $RANK != 2 || exit 5; sleep 30", code=5, timeout=20)
    for wrong in (("run", "-n", "5", "--", "true"), ("run", "--on", "2", "--", "true"), ("run",), ("bytes", "--since", "/nowhere"),
                  ("up", "0")):
        netbed(*wrong, code=2)


def bytes_are_those_of_the_exchange(cwd):
    if not shutil.which("mpirun.openmpi"):
        raise Skip("no Open MPI")
    up(2, 2, "--rate", f"{RATE}mbit")

    def sent_in(steps):
        before = os.path.join(cwd, f"before-{steps}")
        with open(before, "w", encoding="utf-8") as f:
            f.write(netbed("bytes").stdout)
        out = netbed("run", "--", BENCH, "exchange", "--elements", "7500000", "--steps", str(steps), "--json").stdout
        counts = json.loads(netbed("bytes", "--since", before).stdout)
        return sum(counts.values()), json.loads(out)["reducers"][0]

    few, _ = sent_in(1)  # the rest of a run: start, parameters, buckets
    many, exchange = sent_in(3)
    ratio = (many - few) / 2 / exchange["bytes_between"]
    assert 0.999 < ratio < 1.01, f"cards sent {ratio:.4f} of what the counters say"
    bits = 8 * exchange["bytes_between"] / 2  # of a card; the two send at once
    rate = bits / (1e3 * exchange["milliseconds"])  # Mbit/s
    assert 0.3 * RATE < rate < 1.05 * RATE, f"{rate:.0f} Mbit/s"


def down_leaves_nothing(cwd):
    del cwd
    up()
    p = subprocess.Popen([NETBED, "--name", NAME, "run", "--each", "--", "sleep", "1000"])
    while not os.path.exists("/proc/%d/task/%d/children" % (p.pid, p.pid)) or p.poll() is None and len(sleepers()) < 4:
        time.sleep(0.02)
    assert mounts(), "nothing to clean up"
    os.kill(p.pid, signal.SIGKILL)  # as after a crash: the ranks stay
    p.wait()
    netbed("down")
    assert not sleepers() and not mounts() and not os.path.exists(f"/run/netbed/{NAME}")
    netbed("down")  # again
    netbed("bytes", code=2)


def slurm_starts_the_ranks(cwd):
    lacks = [tool for tool in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(tool)]
    if lacks:
        raise Skip(f"missing: {', '.join(lacks)}")
    up()
    netbed("slurm")
    lines = netbed("run", "--slurm", "--", "sh", "-c", 'echo "$SLURM_PROCID" "$(hostname)"').stdout
    assert dict(line.split() for line in lines.splitlines()) == WANTED, lines
    flags = ["--data", "synthetic:32:16:3", "--arch", "resnet10", "--width", "4", "--progress", "off", "--optim", "sgd", "--no-tensorboard",
             "--batch-size", "4", "--max-steps", "2", "--threads", "1", "--workers", "1"]
    for how, folder in (("--slurm", "srun"), (None, "mpirun")):
        netbed("run", *([how] if how else []), "--", TRAIN, *flags, "--output", os.path.join(cwd, folder))
    one, two = ([r["loss"] for r in records(cwd, f)] for f in ("srun", "mpirun"))
    assert one == two and len(one) == 2, (one, two)
    netbed("down")
    assert not mounts() and not os.path.exists(f"/run/netbed/{NAME}")


def records(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def sleepers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if f.read() == b"sleep\x001000\x00":
                    found.append(pid)
        except OSError:
            continue
    return found


def up_replaces_what_a_kill_left(cwd):
    del cwd
    up(3, 1)
    up(2, 1)
    assert sorted(json.loads(netbed("bytes").stdout)) == ["test0", "test1"]
    assert len(mounts()) == 6, mounts()  # of two nodes and the switch


try:
    LONG = [] if sys.argv[4:] else [bytes_are_those_of_the_exchange, slurm_starts_the_ranks]
    STATUS = run_rows([each_rank_is_on_its_node, statuses_and_wrong_arguments, down_leaves_nothing,
                       up_replaces_what_a_kill_left, *LONG], "netbed-")
finally:
    if not os.geteuid():
        subprocess.run([NETBED, "--name", NAME, "down"], check=False)
sys.exit(STATUS)
