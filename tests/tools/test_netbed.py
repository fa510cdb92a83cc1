#!/usr/bin/env python3
"""tools/netbed: nodes with names and cards of their own, bytes that are counted, a rate that is kept, nothing left behind.
$1: netbed, $2: bench, $3: train_resnet50, $4: folder of the build for `lather launch`, or another word: without the rows that take long. Exit status 77 without root, iproute2 or Open MPI."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

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


# --- `lather launch --on slurm` ---------------------------------------------------------------------------

GANG = """[trainer]
kind = gang
ranks = 4
command = {train} --data synthetic:96:8:3 --optim sgd --progress off --no-tensorboard --threads 1 --workers 1 --deterministic --eval-every 0
    --hidden 4 --batch-size 2 --max-steps 400 --checkpoint-every 4 --keep 1 --comm-timeout 60 --resume auto --output run --grad-accum ${{grad-accum}}
batch-size = 2
global-batch = 24
supervise = shrink 2
backoff = 0.01
"""
PLACES = """[asked]
kind = service
command = sh -c 'trap "echo asked > asked; exit 0" TERM; hostname > place.asked; while :; do sleep 0.1; done'
[one]
command = sh -c 'hostname > place.one; sleep 1; test -e place.asked'
[two]
command = sh -c 'hostname > place.two'
"""


def begin_launch(cwd, path, *flags):
    """In an allocation of both nodes, as a user has it."""
    conf = f"/run/netbed/{NAME}/slurm/slurm.conf"
    return subprocess.Popen([NETBED, "--name", NAME, "run", "--on", "0", "--", "env", f"SLURM_CONF={conf}", "salloc", "-Q", "-N", "2", "-n", "4",
                             os.path.join(SLURM_BUILD, "tools", "lather"), "launch", path, "--on", "slurm", *flags],
                            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def launched(cwd, content, *flags):
    with open(os.path.join(cwd, "program.ini"), "w", encoding="utf-8") as f:
        f.write(content)
    p = begin_launch(cwd, "program.ini", *flags)
    out = p.communicate(timeout=120)[0]
    return p.returncode, out


def slurm_or_skip():
    if not shutil.which("slurmctld") or not shutil.which("munged"):
        raise Skip("no Slurm")
    if not os.path.exists(os.path.join(SLURM_BUILD, "tests", "launch", "producers.so")):
        raise Skip("no build")
    up()
    netbed("slurm")


def a_program_runs_by_steps_of_srun(cwd):
    slurm_or_skip()
    p = begin_launch(cwd, os.path.join(SLURM_BUILD, "tests", "launch", "producers.ini"))
    out = p.communicate(timeout=120)[0]
    assert p.returncode == 0 and "consumed 400 of 400 items, 0 twice" in out and "Warning" not in out, out
    assert not os.listdir(cwd), os.listdir(cwd)
    status, out = launched(cwd, PLACES)
    assert status == 0 and os.path.exists(os.path.join(cwd, "asked")), out
    places = {}
    for name in ("one", "two", "asked"):
        with open(os.path.join(cwd, f"place.{name}"), encoding="utf-8") as f:
            places[name] = f.read().strip()
    assert places["asked"] == places["two"] and {places["one"], places["two"]} == {"test0", "test1"}, places
    status, out = launched(cwd, "[victim]\ncount = 2\ncommand = sh -c 'test ${index} = 0 || kill -9 $$; sleep 60'\n")
    assert status == 1 and "launch: victim.1 failed" in out, out


def pids_of_rank(rank):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f, open(f"/proc/{pid}/cmdline", "rb") as g:
                if f"SLURM_PROCID={rank}".encode() in f.read().split(b"\0") and g.read().split(b"\0")[0].endswith(b"/train_mlp"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def a_gang_on_two_nodes_goes_on_without_a_killed_rank(cwd):
    slurm_or_skip()
    with open(os.path.join(cwd, "program.ini"), "w", encoding="utf-8") as f:
        f.write(GANG.format(train=os.path.join(SLURM_BUILD, "tests", "models", "train_mlp")))
    p = begin_launch(cwd, "program.ini")
    end = time.monotonic() + 120
    while not os.path.exists(os.path.join(cwd, "run", "checkpoints", "latest")) and p.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    for pid in pids_of_rank(2):
        os.kill(pid, signal.SIGKILL)
    out = p.communicate(timeout=240)[0]
    assert p.returncode == 0, out
    assert "launch| trainer.2 failed" in out and "trainer goes on with 3 ranks, grad-accum 4" in out, out
    assert [r["step"] for r in records(cwd, "run")][-1] == 400


PLAN = """[plan]
data = synthetic:32:16:4
budgets = 1
trials = 2
seeds = 1
baseline = one
challenger = two
[common]
arch = resnet10
width = 4
batch-size = 16
deterministic = true
[arm one]
optim = sgd
lr = 0.01 .. 1
[arm two]
optim = adamw
lr = 1e-4 .. 1e-2
"""


def cells_of_reproduce_run_by_srun(cwd):
    if not shutil.which("slurmctld") or not shutil.which("munged"):
        raise Skip("no Slurm")
    up()
    netbed("slurm")
    plan, tool = os.path.join(cwd, "plan.ini"), os.path.join(os.path.dirname(NETBED), "reproduce")
    with open(plan, "w", encoding="utf-8") as f:
        f.write(PLAN)
    pages = []
    for out, start in (("local", []), ("slurm", ["env", f"SLURM_CONF=/run/netbed/{NAME}/slurm/slurm.conf", "salloc", "-Q", "-N", "2", "-n", "4"])):
        netbed("run", "--on", "0", "--", *start, sys.executable, tool, plan, "--on", out, "--out", os.path.join(cwd, out), "--train", TRAIN,
               "--threads", "1", "--no-clock")
        with open(os.path.join(cwd, out, "plan", "report.html"), "rb") as f:
            pages.append(f.read())
    assert pages[0] == pages[1], "the reports differ"
    folder = os.path.join(cwd, "slurm", "cells")
    logs = "".join(open(os.path.join(folder, cell, "log.txt"), encoding="utf-8").read() for cell in os.listdir(folder))
    assert " -r 0 -n 1 " in logs and " -r 1 -n 1 " in logs, logs[:500]


# --- Data on another node: sshfs without ssh, a file system over the network ------------------------------

SFTP_SERVER, PORT = "/usr/lib/openssh/sftp-server", 7022
LISTENER = f"""import socket, subprocess
s = socket.create_server(("", {PORT}))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    subprocess.Popen(["{SFTP_SERVER}"], stdin=c, stdout=c)
    c.close()"""


def noise(path, seed):
    """A PNG of 48 x 48 pixels that compression leaves at 7 kB."""
    side, rng = 48, random.Random(seed)
    rows = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_images(folder):
    """Bytes of all, and of the training images."""
    sizes = {}
    for part, count in (("train", 64), ("val", 8)):
        sizes[part] = 0
        for i in range(count):
            place = os.path.join(folder, part, "ab"[i % 2])
            os.makedirs(place, exist_ok=True)
            noise(os.path.join(place, f"{i}.png"), f"{part}{i}")
            sizes[part] += os.path.getsize(os.path.join(place, f"{i}.png"))
    return sum(sizes.values()), sizes["train"]


def sent_by_node(node, work):
    """Bytes that its card sends while work runs."""
    with tempfile.NamedTemporaryFile("w") as before:
        before.write(netbed("bytes").stdout)
        before.flush()
        work()
        return json.loads(netbed("bytes", "--since", before.name).stdout)[f"{NAME}{node}"]


def train_on_two_nodes(cwd, output, epochs, *flags):
    words = " ".join([TRAIN, "--data", os.path.join(cwd, "on-$(hostname)"), *flags, "--arch resnet10 --width 4 --image-size 32 --optim sgd",
                      "--batch-size 4 --threads 1 --workers 1 --progress off --no-tensorboard --epochs", str(epochs), "--output",
                      os.path.join(cwd, output)])
    netbed("run", "-n", "4", "--", "sh", "-c", f"exec {words}")


def data_of_another_node_cross_once(cwd):
    lacks = [tool for tool in ("sshfs", "fusermount3", "mpirun.openmpi", SFTP_SERVER) if not shutil.which(tool)]
    if lacks or not os.access("/dev/fuse", os.W_OK):
        raise Skip(f"missing: {', '.join(lacks) or '/dev/fuse'}")
    data = os.path.join(cwd, "data")
    size, training = make_images(data)
    up(3)  # no ranks run on the last
    address = netbed("run", "--on", "2", "--", "hostname", "-I").stdout.split()[0]
    cache = ["--cache-dir", os.path.join(cwd, "cache-$(hostname)")]
    server = subprocess.Popen([NETBED, "--name", NAME, "run", "--on", "2", "--", sys.executable, "-c", LISTENER], stdout=subprocess.PIPE)
    places = [os.path.join(cwd, f"on-{NAME}{node}") for node in (0, 1)]
    try:
        server.stdout.readline()
        for node, place in enumerate(places):
            os.mkdir(place)
            network = f"--net=/run/netbed/{NAME}/{node}/net"  # of the node; the mount is seen by all
            subprocess.run(["nsenter", network, "--", "sshfs", f"{address}:{data}", place, "-o", f"directport={PORT},ro"], check=True)
        plain = sent_by_node(2, lambda: train_on_two_nodes(cwd, "plain", 3))
        assert plain > 3 * training, f"{plain} bytes without a cache: these are not three epochs of {training}"
        first = sent_by_node(2, lambda: train_on_two_nodes(cwd, "first", 3, *cache))
        again = sent_by_node(2, lambda: train_on_two_nodes(cwd, "again", 3, *cache))
    finally:
        for place in places:
            subprocess.run(["fusermount3", "-u", place], check=False, stderr=subprocess.DEVNULL)
        server.kill()
    print(f"  the data: {size} bytes; its node sent {plain} in 3 epochs without a cache, {first} with one, {again} with what that left")
    assert first < 1.25 * 2 * size, "a node read an image twice"
    assert again < 0.25 * size, "copies are there, and images were read"
    with open(os.path.join(cwd, "again", "metrics.jsonl"), encoding="utf-8") as f:
        reads = [r["cache_dir_reads"] for r in map(json.loads, f) if r["event"] == "epoch"]
    assert reads == [0, 0, 0], reads


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
    SLURM_BUILD = os.path.abspath(sys.argv[4]) if sys.argv[4:] else "none"
    LONG = [] if sys.argv[4:] == ["short"] else [bytes_are_those_of_the_exchange, slurm_starts_the_ranks,
                                       a_program_runs_by_steps_of_srun, a_gang_on_two_nodes_goes_on_without_a_killed_rank,
                                       cells_of_reproduce_run_by_srun, data_of_another_node_cross_once]
    STATUS = run_rows([each_rank_is_on_its_node, statuses_and_wrong_arguments, down_leaves_nothing,
                       up_replaces_what_a_kill_left, *LONG], "netbed-", sys.argv[5] if sys.argv[5:] else None)
finally:
    if not os.geteuid():
        subprocess.run([NETBED, "--name", NAME, "down"], check=False)
sys.exit(STATUS)
