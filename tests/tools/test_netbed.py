#!/usr/bin/env python3
"""tools/netbed: nodes with separate names and interfaces, bytes that are counted, a rate that is kept, a clean end.
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
PACK = os.path.join(os.path.dirname(BENCH), "pack")
NAME = "t" + "".join("abcdefghij"[int(d)] for d in str(os.getpid() % 100000))  # several runs may share the machine
SLEEP = str(1000 + os.getpid())
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


WANTED = {"0": f"{NAME}0", "1": f"{NAME}0", "2": f"{NAME}1", "3": f"{NAME}1"}


def each_rank_is_on_its_node(cwd):
    del cwd
    up()
    assert places_by_rank("--each") == WANTED
    text = netbed("run", "--each", "-n", "3", "--", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR").stdout
    address = text.split()[-1]
    assert sorted(text.splitlines()) == [f"0 3 0 2 {address}", f"1 3 1 2 {address}", f"2 3 0 1 {address}"], text
    assert netbed("run", "--on", "1", "--", "hostname").stdout == f"{NAME}1\n"
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
    bits = 8 * exchange["bytes_between"] / 2  # bits of one interface; the two send at once
    rate = bits / (1e3 * exchange["milliseconds"])  # Mbit/s
    assert 0.3 * RATE < rate < 1.05 * RATE, f"{rate:.0f} Mbit/s"


def down_leaves_nothing(cwd):
    del cwd
    up()
    p = subprocess.Popen([NETBED, "--name", NAME, "run", "--each", "--", "sleep", SLEEP])
    while not os.path.exists("/proc/%d/task/%d/children" % (p.pid, p.pid)) or p.poll() is None and len(sleepers()) < 4:
        time.sleep(0.02)
    assert mounts(), "nothing to clean up"
    os.kill(p.pid, signal.SIGKILL)  # as after a crash: the ranks keep running
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


def slurm_words(tasks=4):
    """The words before a command that runs in an allocation of both nodes, as a user has it."""
    return ["env", f"SLURM_CONF=/run/netbed/{NAME}/slurm/slurm.conf", "salloc", "-Q", "-N", "2", "-n", str(tasks)]


def mpirun_words():
    """The words before a command that has a user's settings for Open MPI: hosts and a shell that reaches them."""
    return ["env", f"OMPI_MCA_plm_rsh_agent=/run/netbed/{NAME}/agent", f"OMPI_MCA_orte_default_hostfile=/run/netbed/{NAME}/hostfile"]


def begin_launch(cwd, path, on="slurm", tasks=4):
    words = slurm_words(tasks) if on == "slurm" else mpirun_words()
    return subprocess.Popen([NETBED, "--name", NAME, "run", "--on", "0", "--", *words,
                             os.path.join(SLURM_BUILD, "tools", "lather"), "launch", path, "--on", on, "--grace", "2"],
                            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def launched(cwd, content, on="slurm", tasks=4):
    with open(os.path.join(cwd, "program.ini"), "w", encoding="utf-8") as f:
        f.write(content)
    p = begin_launch(cwd, "program.ini", on, tasks)
    out = p.communicate(timeout=240)[0]
    return p.returncode, out


def slurm_or_skip(ranks=2, slurm=True):
    if slurm and (not shutil.which("slurmctld") or not shutil.which("munged")):
        raise Skip("no Slurm")
    if not os.path.exists(os.path.join(SLURM_BUILD, "tests", "launch", "producers.so")):
        raise Skip("no build")
    up(2, ranks)
    if slurm:
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
    assert places["asked"] == places["two"] and {places["one"], places["two"]} == {f"{NAME}0", f"{NAME}1"}, places
    status, out = launched(cwd, "[victim]\ncount = 2\ncommand = sh -c 'test ${index} = 0 || kill -9 $$; sleep 60'\n")
    assert status == 1 and "launch: victim.1 failed" in out, out


STOPPED = """[slow]
command = sleep 20
heartbeat = 4
[it]
count = 3
heartbeat = 2
command = sh -c 'test ${index} != 1 || kill -STOP $$; sleep 60'
"""


def a_stopped_node_is_named_by_the_beats_that_srun_hands_on(cwd):
    slurm_or_skip()
    status, out = launched(cwd, STOPPED)
    assert status == 1 and "launch: it.1 has sent no heartbeat for" in out and "slow.0 has" not in out, out


def the_same_items_of_1_and_of_64_producers_under_srun(cwd):
    slurm_or_skip(32)
    with open(os.path.join(SLURM_BUILD, "tests", "launch", "producers.ini"), encoding="utf-8") as f:
        content = f.read().replace("entry = ", f"entry = {os.path.join(SLURM_BUILD, 'tests', 'launch')}/")
    for count in (1, 64):
        status, out = launched(cwd, content.replace("count = 4", f"count = {count}").replace("--items 100", "--items 5"), tasks=64)
        assert status == 0 and f"consumed {5 * count} of {5 * count} items, 0 twice" in out, out


def pids_of_rank(rank, variable):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f, open(f"/proc/{pid}/cmdline", "rb") as g:
                if f"{variable}={rank}".encode() in f.read().split(b"\0") and g.read().split(b"\0")[0].endswith(b"/train_mlp"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def gang_goes_on(cwd, on, variable, by=signal.SIGKILL, more="", says="trainer.2 failed"):
    with open(os.path.join(cwd, "program.ini"), "w", encoding="utf-8") as f:
        f.write(GANG.format(train=os.path.join(SLURM_BUILD, "tests", "models", "train_mlp")) + more)
    p = begin_launch(cwd, "program.ini", on)
    end = time.monotonic() + 120
    while not os.path.exists(os.path.join(cwd, "run", "checkpoints", "latest")) and p.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    for pid in pids_of_rank(2, variable):
        os.kill(pid, by)
    out = p.communicate(timeout=240)[0]
    assert p.returncode == 0, out
    assert f"launch| {says}" in out and "trainer continues with 3 ranks, grad-accum 4" in out, out
    assert [r["step"] for r in records(cwd, "run")][-1] == 400
    assert not pids_of_rank(2, variable), "a rank is still running"


def a_gang_on_two_nodes_goes_on_without_a_killed_rank(cwd):
    slurm_or_skip()
    gang_goes_on(cwd, "slurm", "SLURM_PROCID")


def programs_of_mpirun_on_two_nodes(cwd):
    slurm_or_skip(slurm=False)
    with open(f"/run/netbed/{NAME}/hostfile", "w", encoding="utf-8") as f:
        f.writelines(f"{NAME}{node} slots=2\n" for node in range(2))
    status, out = launched(cwd, "[it]\ncount = 4\ncommand = sh -c 'echo ${index} $(hostname)'\n", "mpirun")
    lines = {line.split("| ")[1] for line in out.splitlines() if not line.startswith(f"launch| host {NAME}")}
    assert status == 0 and lines == {f"{r} {h}" for r, h in WANTED.items()}, out
    p = begin_launch(cwd, os.path.join(SLURM_BUILD, "tests", "launch", "producers.ini"), "mpirun")
    out = p.communicate(timeout=120)[0]
    assert p.returncode == 0 and "consumed 400 of 400 items, 0 twice" in out, out
    status, out = launched(cwd, STOPPED, "mpirun")
    assert status == 1 and "launch: it.1 has sent no heartbeat for" in out and "slow.0 has" not in out, out


def a_gang_of_mpirun_on_two_nodes_goes_on(cwd):
    slurm_or_skip(slurm=False)
    with open(f"/run/netbed/{NAME}/hostfile", "w", encoding="utf-8") as f:
        f.writelines(f"{NAME}{node} slots=2\n" for node in range(2))
    gang_goes_on(cwd, "mpirun", "OMPI_COMM_WORLD_RANK", says=f"trainer.2 on {NAME}1 failed")
    shutil.rmtree(os.path.join(cwd, "run"))
    gang_goes_on(cwd, "mpirun", "OMPI_COMM_WORLD_RANK", signal.SIGSTOP, "heartbeat = 3\n", f"trainer.2 on {NAME}1 has sent no heartbeat for")


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


def begin_reproduce(cwd, plan, out):
    tool = os.path.join(os.path.dirname(NETBED), "reproduce")
    start = slurm_words() if out == "slurm" else []
    return subprocess.Popen([NETBED, "--name", NAME, "run", "--on", "0", "--", *start, sys.executable, tool, plan, "--on", out, "--out",
                             os.path.join(cwd, out), "--train", TRAIN, "--threads", "1", "--no-clock"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes(program, *words):
    """Whose command line has these words; program: its first one's end."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().decode().split("\0")
        except OSError:
            continue
        if line[0].endswith(program) and all(any(word in part for part in line) for word in words):
            found.append(int(pid))
    return found


def a_cell_trains(cwd):
    """The folder of a cell that has made a step and is not done."""
    cells = os.path.join(cwd, "slurm", "cells")
    for cell in os.listdir(cells) if os.path.isdir(cells) else []:
        at, run = os.path.join(cells, cell), os.path.join(cells, cell, "run", "metrics.jsonl")
        if os.path.exists(run) and not os.path.exists(os.path.join(at, "DONE")) and '"step"' in open(run, encoding="utf-8").read() \
                and processes("/train_resnet50", at):
            return at
    return None


def interrupt(cwd, plan, whom, how):
    """Exit status and output of a call of which the processes whom(cell's folder) get a signal while a cell trains."""
    running, end = begin_reproduce(cwd, plan, "slurm"), time.monotonic() + 120
    hit = []
    while not hit and running.poll() is None and time.monotonic() < end:
        cell = a_cell_trains(cwd)
        hit = whom(cell) if cell else []
        time.sleep(0.01)
    assert hit, running.communicate(timeout=60)[0]
    for pid in hit:
        os.kill(pid, how)
    out = running.communicate(timeout=120)[0]
    return running.returncode, out


def an_interrupted_reproduce_of_srun_goes_on(cwd):
    """Ctrl-C, a kill of the tool, a kill of a cell's step: the next call resumes, and the report is that of an uninterrupted run."""
    if not shutil.which("slurmctld") or not shutil.which("munged"):
        raise Skip("no Slurm")
    up()
    netbed("slurm")
    plan = os.path.join(cwd, "plan.ini")
    with open(plan, "w", encoding="utf-8") as f:
        f.write(PLAN.replace("synthetic:32:16:4", "synthetic:960:16:4"))
    tool = lambda cell: processes(os.path.basename(sys.executable), "reproduce", os.path.join(cwd, "slurm"))  # noqa: E731
    status, out = interrupt(cwd, plan, tool, signal.SIGINT)
    assert status == 3 and "interrupted: the same command resumes" in out, (status, out)
    status, out = interrupt(cwd, plan, tool, signal.SIGKILL)
    assert status not in (0, 3), (status, out)
    end = time.monotonic() + 60
    while processes("/train_resnet50", os.path.join(cwd, "slurm")):
        assert time.monotonic() < end, "steps are still running"
        time.sleep(0.05)
    status, out = interrupt(cwd, plan, lambda cell: processes("/train_resnet50", cell), signal.SIGKILL)
    assert status == 1 and "FAILED with exit status" in out, (status, out)
    pages = []
    for on in ("slurm", "local"):
        last = begin_reproduce(cwd, plan, on)
        out = last.communicate(timeout=240)[0]
        assert last.returncode == 0, out
        with open(os.path.join(cwd, on, "plan", "report.html"), "rb") as f:
            pages.append(f.read())
    assert pages[0] == pages[1], "the reports differ"


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


def train_on_two_nodes(cwd, output, epochs, data):
    words = " ".join([TRAIN, "--data", os.path.join(cwd, f"{data}-$(hostname)"), "--arch resnet10 --width 4 --image-size 32 --optim sgd",
                      "--batch-size 4 --threads 1 --workers 1 --progress off --no-tensorboard --epochs", str(epochs), "--output",
                      os.path.join(cwd, output)])
    netbed("run", "-n", "4", "--", "sh", "-c", f"exec {words}")


def pack_on_each_node(cwd, places):
    for node, place in enumerate(places):
        netbed("run", "--on", str(node), "--", PACK, "--mode", "original", place, os.path.join(cwd, f"pack-{NAME}{node}"))


def packed_data_of_another_node_cross_once(cwd):
    lacks = [tool for tool in ("sshfs", "fusermount3", "mpirun.openmpi", SFTP_SERVER) if not shutil.which(tool)]
    if lacks or not os.access("/dev/fuse", os.W_OK):
        raise Skip(f"missing: {', '.join(lacks) or '/dev/fuse'}")
    data = os.path.join(cwd, "data")
    size, training = make_images(data)
    up(3)  # no ranks run on the last
    address = netbed("run", "--on", "2", "--", "hostname", "-I").stdout.split()[0]
    server = subprocess.Popen([NETBED, "--name", NAME, "run", "--on", "2", "--", sys.executable, "-c", LISTENER], stdout=subprocess.PIPE)
    places = [os.path.join(cwd, f"on-{NAME}{node}") for node in (0, 1)]
    try:
        server.stdout.readline()
        for node, place in enumerate(places):
            os.mkdir(place)
            network = f"--net=/run/netbed/{NAME}/{node}/net"  # the node's network; the mount is visible to all
            subprocess.run(["nsenter", network, "--", "sshfs", f"{address}:{data}", place, "-o", f"directport={PORT},ro"], check=True)
        plain = sent_by_node(2, lambda: train_on_two_nodes(cwd, "plain", 3, "on"))
        assert plain > 3 * training, f"{plain} bytes without packs: these are not three epochs of {training}"
        first = sent_by_node(2, lambda: pack_on_each_node(cwd, places))
        again = sent_by_node(2, lambda: train_on_two_nodes(cwd, "again", 3, "pack"))
    finally:
        for place in places:
            subprocess.run(["fusermount3", "-u", place], check=False, stderr=subprocess.DEVNULL)
        server.kill()
    print(f"  the data: {size} bytes; its node sent {plain} in 3 epochs, {first} to packs on two nodes, {again} in 3 epochs from these")
    assert first < 1.25 * 2 * size, "a node read an image twice"
    assert again < 0.25 * size, "packs are there, and images were read"


def records(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def sleepers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if f.read() == f"sleep\0{SLEEP}\0".encode():
                    found.append(pid)
        except OSError:
            continue
    return found


def up_replaces_what_a_kill_left(cwd):
    del cwd
    up(3, 1)
    up(2, 1)
    assert sorted(json.loads(netbed("bytes").stdout)) == [f"{NAME}0", f"{NAME}1"]
    assert len(mounts()) == 6, mounts()  # mounts of two nodes and the switch


try:
    SLURM_BUILD = os.path.abspath(sys.argv[4]) if sys.argv[4:] else "none"
    LONG = [] if sys.argv[4:] == ["short"] else [bytes_are_those_of_the_exchange, slurm_starts_the_ranks,
                                       a_program_runs_by_steps_of_srun, a_stopped_node_is_named_by_the_beats_that_srun_hands_on,
                                       the_same_items_of_1_and_of_64_producers_under_srun, programs_of_mpirun_on_two_nodes,
                                       a_gang_of_mpirun_on_two_nodes_goes_on, a_gang_on_two_nodes_goes_on_without_a_killed_rank,
                                       cells_of_reproduce_run_by_srun, an_interrupted_reproduce_of_srun_goes_on,
                                       packed_data_of_another_node_cross_once]
    STATUS = run_rows([each_rank_is_on_its_node, statuses_and_wrong_arguments, down_leaves_nothing,
                       up_replaces_what_a_kill_left, *LONG], "netbed-", sys.argv[5] if sys.argv[5:] else None)
finally:
    if not os.geteuid():
        subprocess.run([NETBED, "--name", NAME, "down"], check=False)
sys.exit(STATUS)
