#!/usr/bin/env python3
"""Times whole programs alternately, and prints Markdown tables.

    tools/bench/programs.py slow-links --build BUILD [--python PYTHON] [--nodes 4 --ranks 2 --rate 400mbit] [--only 'flat;topk']
    tools/bench/programs.py tp-overlap --build BUILD [--ranks 2] [--link 200,2]
    tools/bench/programs.py meshes --build BUILD [--rate 50mbit] [--meshes '4x4;2x2x4']
    tools/bench/programs.py divided --build BUILD [--rate 10gbit] [--every 50]
    tools/bench/programs.py share --build BUILD [--part spin|program] [--jobs 2,3] [--ratios .05,.2,.5,1]
    tools/bench/programs.py data-service --build BUILD [--workers 1,2]
    tools/bench/programs.py loader-scaling --build BUILD --data DIR
    tools/bench/programs.py loader-training --build BUILD --data DIR [--rate R]

Every contestant runs once in each round, so that a slow minute of the machine affects all equally; tables have medians over rounds
and the median of the ratios within rounds. Exit status 77: this machine or this build lacks a requirement.

slow-links: training and the exchange of gradients over slow links, here and by PyTorch's DistributedDataParallel (gloo).
Brings up nodes on this machine with tools/netbed (so root) and takes them down. PYTHON must have torch and torchvision; without
it there are no rows of PyTorch. A contestant that fails has a row with the reason; the others stand. --only 'WORD;...' selects rows
with one of these in their name; the first is the base.

tp-overlap: how much of the exchange of activations is waited for, with products that begin before it is done and without
(--tp-overlap), over a modelled link (--comm-model): seconds of a step less those without the link, with all else equal. An update
has --grad-accum micro-batches, so that the optimizer's own exchange, once an update, is a small part of it.

meshes: bytes that a rank sends for a layer, next to lt_mesh_cost_layer()'s formula, and seconds of a step, for several meshes of
the same number of ranks, each rank a node of tools/netbed with a separate network interface. A layer's bytes are those of a model of two less those of
one. A run counts with its fastest step.

divided: seconds of a step with optimizers of matrices over those with AdamW divided in the same way; each rank a node of
tools/netbed. The mean of --every steps has one refresh of roots and bases.

share: jobs that take turns on a device against one alone, and against all at once. A job is a process whose step is a time C of
computing, in a turn, and a time rC of communicating, outside it. The speed-up of k jobs is the sum of their rates over the rate of
one alone, both measured; turns promise k(1+r) / max(k, 1+r, kr), as the device is never idle or the slowest part is the only one.
Part spin: computing is C seconds of processor time, all jobs on one processor. Part program: train_vit on two ranks, each bound to
a processor, communicating by --comm-model.

data-service: training that waits for images, with one worker of serve-data and with two. A worker is `train_vit serve-data` with
one thread, bound to a separate processor, and images whose resampling takes milliseconds; the network is next to nothing.

loader-scaling, loader-training: bounds that need a quiet machine; exit status 1 if one is missed. 2 threads against 1: processor
time of an image at most 1.05 times as much, and in the best round at least 1.8 times as many images a second. train_resnet50 on
DIR against --data synthetic: medians of steps within 3 %; and what the loader's processor time of an image makes of that. --rate:
images a second of another device, for the number of cores that keep it busy."""

import ctypes
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from turns import MPI, QUIET, Failed, all_of, bench, cannot, command, cpu_name, head, main, median, nodes, play, ratio, row, run, steps_of, telling_line, train

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
RESNET, VIT, GPT = "models/resnet50/train_resnet50", "models/vit/train_vit", "models/gpt/train_gpt"


# --- slow-links -------------------------------------------------------------------------------------------------------


WARM = 4  # steps in which buckets, residuals and warm starts come to be
CLASSES = 100
ROUND = 8  # local steps between two exchanges
# Name, flags of the trainer; few local steps have an exchange, so their mean over a round counts.
OURS = {"flat": ["--allreduce", "flat"], "two-level": ["--allreduce", "two-level"], "topk 1 %": ["--compress", "topk:0.01"],
        "powersgd 1": ["--compress", "powersgd:1"], "powersgd 2": ["--compress", "powersgd:2"], "powersgd 4": ["--compress", "powersgd:4"],
        "shard-gradients": ["--shard-optimizer", "--shard-gradients"], f"local steps, {ROUND}": ["--local-steps", str(ROUND)]}
DDP = "PyTorch DDP"
THEIRS = {DDP: "none", **{f"{DDP}, PowerSGD {rank}": f"powersgd:{rank}" for rank in (1, 2, 4)}}
REDUCERS = ["flat", "two-level", "topk:0.01", "topk:0.001", "powersgd:1", "powersgd:2", "powersgd:4"]


def our_step(a, launcher, flags):
    is_local = "--local-steps" in flags
    records = train(os.path.join(a.build, RESNET), "--data", f"synthetic:{CLASSES * 100}:{a.image_size}:{CLASSES}", "--arch", a.arch,
                    "--batch-size", a.batch_size, "--optim", "sgd", "--max-steps", WARM + (max(a.steps, ROUND) if is_local else a.steps),
                    "--threads", a.threads, "--workers", "1", *flags, launcher=[*launcher, "--"], skipped=WARM, patience=a.patience)
    seconds = [r["seconds"] for r in records]
    return {"seconds": statistics.mean(seconds[:ROUND]) if is_local else median(seconds)}


def their_step(a, launcher, *flags):
    said = run([*launcher, "--each", "--", a.python, PEER, "ddp", "--steps", a.steps, "--threads", a.threads,
                *flags], a.patience)
    return {"seconds": median(json.loads(said)["seconds"])}


def our_exchange(a, launcher, reducer):
    said = bench(a.build, "exchange", "--elements", a.elements, "--threads", a.threads, "--steps", a.steps, "--reducer", reducer,
                 launcher=[*launcher, "--"], patience=a.patience)
    found = said["reducers"][0]
    return {"seconds": found["milliseconds"] / 1e3, "bytes": (found["bytes_within"], found["bytes_between"])}


def link_table(found, bytes_too):
    runs, why = found
    base, peer = next(iter(runs.values()), None), runs.get(DDP)
    more = ["MB within", "MB between"] if bytes_too else []
    head("", "ms", "times as fast as the first", "as DDP", *more)
    for name, results in runs.items():
        against = [f"{ratio(other, results, 'seconds'):.2f}" if other else "-" for other in (base, peer)]
        sent = [f"{b / 1e6:.2f}" for b in results[-1].get("bytes", ())] or ["-", "-"]
        row(name, f"{1e3 * median(results, 'seconds'):.0f}", *against, *(sent if bytes_too else []))
    for name, failure in why.items():
        row(name, failure, *[""] * (2 + len(more)))


def wanted(a, names):
    """The names that --only selects; a word that is the whole name of a row selects only that row."""
    every = {*OURS, *THEIRS, *REDUCERS}
    return [n for n in names if not a.only or any(word == n if word in every else word in n for word in a.only.split(";"))]


@command(build="build", rounds=3, python=None, nodes=4, ranks=2, rate="400mbit", arch="resnet18", image_size=32, batch_size=4, elements=6400000,
         threads=1, steps=6, what=("both", "exchange", "steps"), only="", patience=240)
def slow_links(a):
    a.build = os.path.abspath(a.build)
    model = ["--arch", a.arch, "--image-size", a.image_size, "--classes", CLASSES, "--batch-size", a.batch_size, "--warm", WARM]
    with nodes("slow", a.nodes, a.ranks, a.rate) as to:
        print(f"{os.cpu_count()} processors for all ranks together.")
        if a.what != "steps":
            print(f"\nOne mean of {a.elements} f32 over {a.nodes} x {a.ranks} ranks, {a.rate} between nodes; all ranks' bytes:\n")
            contestants = {r: lambda r=r: our_exchange(a, to, r) for r in wanted(a, REDUCERS)}
            for name in wanted(a, [DDP] if a.python else []):
                contestants[name] = lambda: their_step(a, to, "--exchange", a.elements, "--warm", "2")
            link_table(play(contestants, a.rounds), True)
        if a.what != "exchange":
            print(f"\nA step of {a.arch} on {a.image_size} x {a.image_size}, {a.batch_size} images a rank, f32, {a.nodes} x {a.ranks} ranks, "
                  f"{a.rate} between nodes:\n")
            contestants = {name: lambda n=name: our_step(a, to, OURS[n]) for name in wanted(a, OURS)}
            for name in wanted(a, THEIRS if a.python else []):
                contestants[name] = lambda n=name: their_step(a, to, *model, "--hook", THEIRS[n])
            link_table(play(contestants, a.rounds), False)


# --- tp-overlap, meshes: a model that is divided over ranks -----------------------------------------------------------


WARM_GPT = 2
MESH_ENV = dict(MPI, OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_MCA_mpi_yield_when_idle="1")
BYTES = 4  # bytes of an element


def train_gpt(a, launcher, tp, layers, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("the quick brown fox jumps over the lazy dog. " * (a.tokens * a.batch_size * a.grad_accum * (a.steps + WARM_GPT + 4) // 40 + 100))
        text.flush()
        return train(os.path.join(a.build, GPT), "--data", text.name, "--seq-len", a.tokens, "--positions", a.tokens, "--layers", layers, "--width",
                     a.width, "--heads", a.heads, "--batch-size", a.batch_size, "--grad-accum", a.grad_accum, "--optim", "sgd",
                     "--tensor-parallel", tp, "--max-steps", a.steps + WARM_GPT, "--threads", "1", "--workers", "1", *flags,
                     launcher=launcher, skipped=WARM_GPT, patience=a.patience, env=MESH_ENV)


def fastest(records):
    """Milliseconds of the fastest step: other load on the machine only lengthens a step."""
    return 1e3 * min(r["seconds"] for r in records)


OF_GPT = {"build": "build", "rounds": 3, "layers": 2, "width": 128, "heads": 4, "tokens": 101, "batch_size": 8, "grad_accum": 4, "steps": 6,
          "patience": 400}


@command(**OF_GPT, ranks=2, link="200,2")
def tp_overlap(a):
    launcher, modes = ["mpirun", "-n", a.ranks], {"on": [], "off": ["--tp-overlap", "off"]}
    links = {"": [], ", link": ["--comm-model", a.link]}
    if not shutil.which("mpirun"):
        cannot("no mpirun")
    found = all_of(play({mode + where: lambda f=[*flags, *more]: fastest(train_gpt(a, launcher, a.ranks, a.layers, *f))
                         for mode, flags in modes.items() for where, more in links.items()}, a.rounds))
    exposed = {mode: median(b - c for b, c in zip(found[mode + ", link"], found[mode])) for mode in modes}
    print(f"{a.ranks} ranks, {a.layers} layers of width {a.width}, {a.grad_accum} x {a.batch_size} x {a.tokens} tokens, a link of {a.link} (us, Gbit/s), "
          f"{a.rounds} rounds of {a.steps} steps\n")
    head("--tp-overlap", "no link", "link", "exposed")
    for mode in modes:
        row(mode, f"{median(found[mode]):.0f} ms", f"{median(found[mode + ', link']):.0f} ms", f"{exposed[mode]:.0f} ms")
    print(f"\nexposed with overlap: {100 * exposed['on'] / exposed['off']:.0f} % of that without overlap")


def sides(mesh):
    return [int(x) for x in mesh.split("x")]


def cost(mesh, tokens, width):
    """Elements that a rank receives for a layer: lt_mesh_cost_layer()."""
    q, *rest = sides(mesh)
    if not rest:
        return 8 * (q - 1) / q * tokens * width
    d = rest[1] if len(rest) == 2 else 1
    return 3 * (q - 1) * (7 * tokens * width / (d * q * q) + 12 * width ** 2 / q ** 2) + 24 * (d - 1) * width ** 2 / (d * q * q)


@command(**OF_GPT, meshes="4x4;2x2x4", rate="50mbit")
def meshes(a):
    all_meshes, tokens = a.meshes.split(";"), a.batch_size * a.tokens
    ranks, last = math.prod(sides(all_meshes[0])), all_meshes[-1]

    def sent(to, mesh, layers):
        """Bytes of rank 0 in a step; all ranks send as many where sizes divide."""
        return median(train_gpt(a, [*to, "--"], mesh, layers, "--force"), "tp_bytes") / a.grad_accum

    if not shutil.which("mpirun"):
        cannot("no mpirun")
    with nodes("mesh", ranks, 1, a.rate) as to:
        layer = {m: sent(to, m, 2) - sent(to, m, 1) for m in all_meshes}
        found = all_of(play({m: lambda m=m: fastest(train_gpt(a, [*to, "--"], m, a.layers, "--force")) for m in all_meshes}, a.rounds))
    print(f"{ranks} ranks, each a node of {a.rate}; T = {tokens} tokens, h = {a.width}, T/h = {tokens / a.width:.2f}; {a.rounds} rounds of {a.steps} steps of "
          f"{a.layers} layers\n")
    head("mesh", "bytes of a layer, counted", "formula", "to the last", "step", "to the last")
    for m in all_meshes:
        formula = cost(m, tokens, a.width)
        row(m, f"{layer[m]:.0f}", f"{BYTES * formula:.0f}", f"{layer[m] / layer[last]:.3f} (formula {formula / cost(last, tokens, a.width):.3f})",
            f"{median(found[m]):.0f} ms", f"{ratio(found[m], found[last]):.2f}")


WAYS = {"copies": ("1",), "--shard-optimizer": ("1", "--shard-optimizer"), "--shard-params": ("1", "--shard-params"),
        "--tensor-parallel 2x2": ("2x2",)}
RULES = {"adamw": ["adamw"], "shampoo": ["shampoo", "--preset", "transformer", "--precondition-frequency"],
         "soap": ["soap", "--precondition-frequency"], "muon": ["muon"]}  # a frequency follows


@command(**{**OF_GPT, "layers": 4, "width": 256, "heads": 8, "tokens": 256, "grad_accum": 1, "rounds": 2}, ranks=4, rate="10gbit", every=50)
def divided(a):
    a.steps = a.every

    def step(to, rule, way):
        (tp, *flags), words = WAYS[way], RULES[rule]
        records = train_gpt(a, [*to, "--"], tp, a.layers, *flags, "--optim", *words, *[a.every] * (words[-1] != rule))
        return 1e3 * statistics.mean(r["seconds"] for r in records)

    with nodes("divide", a.ranks, 1, a.rate) as to:
        found = all_of(play({(rule, way): lambda r=rule, w=way: step(to, r, w) for way in WAYS for rule in RULES}, a.rounds))
    print(f"{a.ranks} ranks, each a node of {a.rate}; {a.layers} layers of width {a.width}, {a.batch_size} x {a.tokens} tokens a rank; {a.rounds} rounds of "
          f"{a.every} steps\n")
    base, *rules = RULES
    head("", f"{base}, ms a step", *rules)
    for way in WAYS:
        row(way, f"{median(found[base, way]):.0f}", *(f"{ratio(found[rule, way], found[base, way]):.3f}" for rule in rules))


# --- share ------------------------------------------------------------------------------------------------------------


NAME = 64  # LT_SHARE_NAME
SECONDS = 0.02  # C of spin
SHARED_VIT = ["--data", "synthetic:4096:32:10", "--batch-size", "32", "--patch-size", "4", "--depth", "2", "--width", "96", "--heads", "2", "--optim", "sgd", "--threads",
       "1", "--workers", "1", "--progress", "off", "--no-tensorboard", "--no-overlap", "--epochs", "1000"]
SHARE_ENV = dict(MPI, OMPI_MCA_hwloc_base_binding_policy="none")


class ShareConfig(ctypes.Structure):
    """lt_share_config of include/lather/share.h."""
    _fields_ = [("session", ctypes.c_char * NAME), ("weight", ctypes.c_int), ("comm", ctypes.c_void_p), ("device", ctypes.c_char_p),
                ("folder", ctypes.c_char_p), ("deadline", ctypes.c_double)]


class ShareTurn(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64), ("seconds", ctypes.c_double)]


def promised(k, r):
    return k * (1 + r) / max(k, 1 + r, k * r)


def spin():
    end = time.thread_time() + SECONDS
    while time.thread_time() < end:
        pass


def spin_job(library, steps, r, session):
    """Runs a job of spin in this process and prints when its steps ended."""
    lib = ctypes.CDLL(library)
    share, turn, ends = ctypes.c_void_p(), ShareTurn(), []
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if session:
        config = ShareConfig(session=session.encode(), weight=1, device=b"bench", deadline=60)
        assert lib.lt_share_open(ctypes.byref(share), ctypes.byref(config)) == 0, "lt_share_open"
    for _ in range(steps):
        assert not session or lib.lt_share_begin(share, ctypes.byref(turn)) == 0, "lt_share_begin"
        spin()
        assert not session or lib.lt_share_end(share) == 0, "lt_share_end"
        time.sleep(SECONDS * r)
        ends.append(time.monotonic())
    lib.lt_share_close(ctypes.byref(share))
    print(json.dumps(ends))


def start_program(a, r, session, folder):
    link = f"{1e6 * r * a.compute / 2:.0f},1000"  # the gradients' exchange, and that of the losses
    words = ["mpirun.openmpi", "-n", "2", "sh", "-c", 'exec taskset -c $OMPI_COMM_WORLD_LOCAL_RANK "$@"', "sh", os.path.join(a.build, VIT),
             *SHARED_VIT, "--max-steps", str(a.steps), "--output", folder, "--comm-model", link, *(["--share-device", session] if session else [])]
    return subprocess.Popen(words, env=SHARE_ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def stamps(folder):
    """Times at which steps ended, from the time of the last record and the steps' seconds."""
    last, out = os.path.getmtime(os.path.join(folder, "metrics.jsonl")), []
    for record in reversed(steps_of(folder)):
        out.insert(0, last)
        last -= record["seconds"]
    return out


def ends_of_spins(a, k, r, session):
    settings = json.dumps([os.path.join(a.build, "liblather.so"), a.steps, r, session])
    jobs = [subprocess.Popen([sys.executable, __file__, "--child", settings], stdout=subprocess.PIPE, text=True) for _ in range(k)]
    return [json.loads(p.communicate(timeout=600)[0]) for p in jobs]


def ends_of_programs(a, k, r, session):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, str(i)) for i in range(k)]
        for p in [start_program(a, r, session, path) for path in paths]:
            err = p.communicate(timeout=900)[1]
            if p.returncode:
                raise Failed(telling_line(err))
        return [stamps(path) for path in paths]


def rate_of(a, k, r, session):
    """Steps per second of k jobs together, counted between the last start and the first end, while all are running.
    session "": no turns."""
    ends = (ends_of_spins if a.part == "spin" else ends_of_programs)(a, k, r, session)
    first, last = max(e[1] for e in ends), min(e[-1] for e in ends)
    own = [[t for t in e if first <= t <= last] for e in ends]
    if min(map(len, own)) < 8:
        raise Failed("the jobs overlapped in fewer than 8 steps: give more --steps")
    return sum((len(t) - 1) / (t[-1] - t[0]) for t in own)


@command(build="build", rounds=3, part=("spin", "program"), jobs="2,3", ratios=".05,.2,.5,1", steps=80)
def share(a):
    need = os.path.join(a.build, "liblather-mpi.so" if a.part == "program" else "liblather.so")
    if not os.path.exists(need):
        cannot(f"there is no {need}")
    if a.part == "program":  # communication that it does in any case counts as compute time
        a.compute = 0.0
        ends = ends_of_programs(a, 1, 0, "")[0]
        a.compute = median(later - earlier for earlier, later in zip(ends[4:], ends[5:]))
        print(f"C = {1e3 * a.compute:.1f} ms\n")
    head("jobs", "r", "turns", "promised", "turns / promised", "all at once")
    for k in map(int, a.jobs.split(",")):
        for r in map(float, a.ratios.split(",")):
            runs = all_of(play({"alone": lambda r=r: rate_of(a, 1, r, ""),
                                "turns": lambda k=k, r=r: rate_of(a, k, r, f"bench-{os.getpid()}-{time.monotonic_ns()}"),
                                "at once": lambda k=k, r=r: rate_of(a, k, r, "")}, a.rounds))
            found, want = ratio(runs["turns"], runs["alone"]), promised(k, r)
            row(k, f"{r:g}", f"{found:.3f}", f"{want:.3f}", f"{found / want:.3f}", f"{ratio(runs['at once'], runs['alone']):.3f}")


# --- data-service -----------------------------------------------------------------------------------------------------


SMALL_VIT = ["--patch-size", "16", "--depth", "1", "--width", "8", "--heads", "1", "--image-size", "32", "--batch-size", "8", "--augment", "imagenet", "--optim",
             "sgd", "--threads", "1", "--workers", "8", "--epochs", "1"]


def start_worker(a, cpu):
    words = ["taskset", "-c", str(cpu), os.path.join(a.build, VIT), "serve-data", "--data", f"synthetic:{a.images}:{a.side}:4",
             "--threads", "1"]
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return p, p.stdout.readline().strip()


def images_per_second(a, count):
    """Images per second of steps after the first ones, for which the loader's queue was already filled."""
    workers = [start_worker(a, cpu) for cpu in sorted(os.sched_getaffinity(0))[:count]]
    try:
        if not all(address for _, address in workers):
            cannot("a worker did not start")
        data = "service:" + ",".join(address for _, address in workers)
        records = train(os.path.join(a.build, VIT), "--data", data, *SMALL_VIT, skipped=WARM)
    finally:
        for p, _ in workers:
            p.send_signal(signal.SIGTERM)
            p.wait()
    return statistics.harmonic_mean([r["images_per_second"] for r in records])


@command(build="build", rounds=3, images=320, side=1200, workers="1,2")
def data_service(a):
    cores, counts = len(os.sched_getaffinity(0)), [int(n) for n in a.workers.split(",")]
    if max(counts) > cores:
        cannot(f"{cores} processors for {max(counts)} workers")
    found = all_of(play({n: lambda n=n: images_per_second(a, n) for n in counts}, a.rounds))
    head("workers", "images / s", "to one worker, median of rounds")
    for n in counts:
        row(n, f"{median(found[n]):.1f}", f"{ratio(found[n], found[counts[0]]):.2f}")


# --- loader-scaling, loader-training ----------------------------------------------------------------------------------


def bench_loader(a, threads, steps=150):
    return bench(a.build, "loader", "--data", a.data, "--threads", threads, "--batch-size", "16", "--warmup", "4", "--steps", steps, env=QUIET)


def verdict(name, value, bound, holds):
    """Prints the verdict on a bound; returns the exit status."""
    print(f"{'ok' if holds else 'MISSED'}: {name}: {value:.3f}, bound {bound}")
    return int(not holds)


@command(build="build", rounds=5, data=str, steps=150)
def loader_scaling(a):
    print(f"{cpu_name()}; {a.rounds} rounds.\n")
    found = all_of(play({n: lambda n=n: bench_loader(a, n, a.steps) for n in (1, 2)}, a.rounds))
    rates, cores = "images_per_second", "cpu_milliseconds"
    head("round", "images/s, 1 thread", "2 threads", "ratio", "CPU ms an image, 1 thread", "2 threads", "ratio")
    for i, (one, two) in enumerate(zip(found[1], found[2])):
        row(i + 1, f"{one[rates]:.0f}", f"{two[rates]:.0f}", f"{two[rates] / one[rates]:.3f}", f"{one[cores]:.4f}", f"{two[cores]:.4f}",
            f"{two[cores] / one[cores]:.3f}")
    print()
    cpu, wall = ratio(found[2], found[1], cores), max(two[rates] / one[rates] for one, two in zip(found[1], found[2]))
    return (verdict("CPU of an image, median ratio of 2 threads to 1", cpu, "1.05 at most", cpu <= 1.05)
            | verdict("images a second, best ratio of 2 threads to 1", wall, "1.8 at least", wall >= 1.8))


def resnet_step(a, data):
    """Milliseconds of the median step, and the loader's share of waiting."""
    records = train(os.path.join(a.build, RESNET), "--data", data, "--arch", a.arch, "--batch-size", a.batch_size, "--max-steps", a.steps,
                    "--image-size", "224", "--stem", "imagenet", "--augment", "imagenet", "--optim", "sgd", "--lr", "0.001", "--amp", a.amp, skipped=3)
    seconds = [a.batch_size / r["images_per_second"] for r in records]
    return {"ms": 1e3 * median(seconds), "waited": sum(r["data_seconds"] for r in records) / sum(seconds)}


@command(build="build", rounds=5, data=str, steps=12, arch="resnet50", batch_size=16, amp="bf16", rate=0.0)
def loader_training(a):
    train_folder = os.path.join(a.data, "train")
    classes = len(os.listdir(train_folder if os.path.isdir(train_folder) else a.data))
    print(f"{cpu_name()}; {a.rounds} rounds.\n")
    cpu_ms = bench_loader(a, 1, a.steps)["cpu_milliseconds"]
    found = all_of(play({"synthetic": lambda: resnet_step(a, f"synthetic:{a.batch_size * (a.steps + 1)}:224:{classes}"),
                         "real": lambda: resnet_step(a, a.data)}, a.rounds))
    head("round", "synthetic, ms a step", "real, ms a step", "ratio", "real: waited")
    for i, (base, real) in enumerate(zip(found["synthetic"], found["real"])):
        row(i + 1, f"{base['ms']:.1f}", f"{real['ms']:.1f}", f"{real['ms'] / base['ms']:.3f}", f"{100 * real['waited']:.1f} %")
    cores, image = len(os.sched_getaffinity(0)), median(found["real"], "ms") / a.batch_size
    print(f"\nThe loader takes {cpu_ms:.3f} ms of CPU an image, a step {image:.1f} ms an image on {cores} cores: {100 * cpu_ms / (image * cores):.2f} % of them.")
    if a.rate:
        print(f"{a.rate:g} images a second need {a.rate * cpu_ms / 1e3:.1f} such cores.")
    times = ratio(found["real"], found["synthetic"], "ms")
    return verdict("a step on images, median ratio to synthetic data", times, "1.03 at most", times <= 1.03)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(spin_job(*json.loads(sys.argv[2])))
    sys.exit(main(__doc__, slow_links, tp_overlap, meshes, divided, share, data_service, loader_scaling, loader_training))
