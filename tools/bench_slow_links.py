#!/usr/bin/env python3
"""Times training and the exchange of gradients over slow links, here and in PyTorch, by turns; prints Markdown tables.

    tools/bench_slow_links.py --build BUILD [--python PYTHON] [--nodes 4 --ranks 2 --rate 400mbit] [--rounds 3]
    tools/bench_slow_links.py --build BUILD --only 'flat;two-level;topk'

Brings up nodes on this machine with tools/netbed (so root), runs every contestant once in each round, one after the
other, so that a slow minute hits all alike, and takes the nodes down. The tables have medians over rounds, and the
median of the ratios within rounds to the first row and to PyTorch's DistributedDataParallel (gloo). PYTHON must have
torch and torchvision; without it there are no rows of PyTorch. A contestant that fails has a row that says why; the
others stand. Exit status 77: no nodes can be had here."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NETBED = [os.path.join(HERE, "netbed"), "--name", "slow"]
PEER = os.path.join(HERE, "bench_ddp_peer.py")
CANNOT = 77
WARM = 4  # steps in which buckets, residuals and warm starts come to be
CLASSES = 100
ROUND = 8  # local steps between two exchanges
# Name, flags of the trainer; few local steps have an exchange, so their mean over a round counts.
OURS = [("flat", ["--allreduce", "flat"]),
        ("two-level", ["--allreduce", "two-level"]),
        ("topk 1 %", ["--compress", "topk:0.01"]),
        ("powersgd 1", ["--compress", "powersgd:1"]),
        ("powersgd 2", ["--compress", "powersgd:2"]),
        ("powersgd 4", ["--compress", "powersgd:4"]),
        ("shard-gradients", ["--shard-optimizer", "--shard-gradients"]),
        (f"local steps, {ROUND}", ["--local-steps", str(ROUND)])]
THEIRS = [("PyTorch DDP", "none"), ("PyTorch DDP, PowerSGD 1", "powersgd:1"), ("PyTorch DDP, PowerSGD 2", "powersgd:2"),
          ("PyTorch DDP, PowerSGD 4", "powersgd:4")]
REDUCERS = ["flat", "two-level", "topk:0.01", "topk:0.001", "powersgd:1", "powersgd:2", "powersgd:4"]


class Failed(Exception):
    """A contestant's, with the last line that it said."""


def run(words, timeout):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"no answer in {timeout} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["said nothing"]
        known = [line for line in said if line.startswith(("train_", "bench ", "lather")) or "Error" in line]
        raise Failed((known or said)[0][:160])
    return done.stdout


# --- Contestants: each gives seconds of a step --------------------------------------------------------


def ours(a, flags):
    images = CLASSES * 100
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run([*NETBED, "run", "--", os.path.join(a.build, "models/resnet50/train_resnet50"), "--data",
             f"synthetic:{images}:{a.image_size}:{CLASSES}", "--arch", a.arch, "--batch-size", str(a.batch_size), "--optim", "sgd",
             "--max-steps", str(WARM + (max(a.steps, ROUND) if "--local-steps" in flags else a.steps)), "--limit-eval-batches", "1", "--progress", "off", "--no-tensorboard", "--threads",
             str(a.threads), "--workers", "1", "--output", out, *flags], a.patience)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            steps = [r["seconds"] for r in map(json.loads, f) if r["event"] == "step"]
    if "--local-steps" in flags:  # a whole round of them
        return statistics.mean(steps[WARM:WARM + int(flags[flags.index("--local-steps") + 1])])
    return statistics.median(steps[WARM:])


def theirs(a, hook):
    out = run([*NETBED, "run", "--each", "--", a.python, PEER, "--arch", a.arch, "--image-size", str(a.image_size), "--classes",
               str(CLASSES), "--batch-size", str(a.batch_size), "--steps", str(a.steps), "--warm", str(WARM), "--threads",
               str(a.threads), "--hook", hook], a.patience)
    return statistics.median(json.loads(out)["seconds"])


def their_exchange(a):
    out = run([*NETBED, "run", "--each", "--", a.python, PEER, "--exchange", str(a.elements), "--steps", str(a.steps), "--warm",
               "2", "--threads", str(a.threads)], a.patience)
    return statistics.median(json.loads(out)["seconds"])


def our_exchange(a, reducer):
    """Seconds, and bytes inside nodes and between them."""
    out = run([*NETBED, "run", "--", os.path.join(a.build, "tools/bench"), "exchange", "--elements", str(a.elements), "--threads",
               str(a.threads), "--steps", str(a.steps), "--json", "--reducer", reducer], a.patience)
    found = json.loads(out)["reducers"][0]
    return found["milliseconds"] / 1e3, found["bytes_within"], found["bytes_between"]


# --- Rounds and tables --------------------------------------------------------------------------------


def play(contestants, rounds):
    """{name: [value or Failed of each round]}; who failed once does not play again."""
    found = {name: [] for name, _ in contestants}
    for turn in range(rounds):
        for name, play_one in contestants:
            if any(isinstance(v, Failed) for v in found[name]):
                continue
            try:
                found[name].append(play_one())
            except Failed as why:
                found[name].append(why)
            last = found[name][-1]
            print(f"round {turn + 1}, {name}: {last if isinstance(last, Failed) else f'{1e3 * first(last):.0f} ms'}", file=sys.stderr,
                  flush=True)
    return found


def first(value):
    return value[0] if isinstance(value, tuple) else value


def ratio(base, own):
    """Median over rounds of how many times less time it takes."""
    pairs = [first(b) / first(o) for b, o in zip(base, own) if not isinstance(b, Failed) and not isinstance(o, Failed)]
    return f"{statistics.median(pairs):.2f}" if pairs else "-"


def table(found, bytes_too):
    base, peer = next(iter(found.values())), found.get("PyTorch DDP", [])
    head = ["", "ms", "times as fast as the first", "as DDP"] + (["MB within", "MB between"] if bytes_too else [])
    print("| " + " | ".join(head) + " |\n|" + " --- |" + " ---: |" * (len(head) - 1))
    for name, values in found.items():
        why = next((v for v in values if isinstance(v, Failed)), None)
        if why or not values:
            print(f"| {name} | {why or 'not run'} |" + " |" * (len(head) - 2))
            continue
        cells = [name, f"{1e3 * statistics.median(map(first, values)):.0f}", ratio(base, values), ratio(peer, values)]
        if bytes_too:
            cells += [f"{b / 1e6:.2f}" for b in values[-1][1:]] if isinstance(values[-1], tuple) else ["-", "-"]
        print("| " + " | ".join(cells) + " |")


def wanted(a, name):
    """A word that is the whole name of a row stands for that row only."""
    names = {row for row, _ in OURS + THEIRS} | set(REDUCERS)
    return not a.only or any(word == name if word in names else word in name for word in a.only.split(";"))


def exchanges(a):
    rows = [(r, lambda r=r: our_exchange(a, r)) for r in REDUCERS if wanted(a, r)]
    if a.python and wanted(a, "PyTorch DDP"):
        rows.append(("PyTorch DDP", lambda: their_exchange(a)))
    print(f"\nOne mean of {a.elements} f32 over {a.nodes} x {a.ranks} ranks, {a.rate} between nodes; all ranks' bytes:\n")
    table(play(rows, a.rounds), True)


def steps(a):
    rows = [(name, lambda f=flags: ours(a, f)) for name, flags in OURS if wanted(a, name)]
    if a.python:
        rows += [(name, lambda h=hook: theirs(a, h)) for name, hook in THEIRS if wanted(a, name)]
    print(f"\nA step of {a.arch} on {a.image_size} x {a.image_size}, {a.batch_size} images a rank, f32, {a.nodes} x {a.ranks} ranks, "
          f"{a.rate} between nodes:\n")
    table(play(rows, a.rounds), False)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True, help="folder with models/resnet50/train_resnet50 and tools/bench")
    p.add_argument("--python", help="of an environment with torch and torchvision")
    p.add_argument("--nodes", type=int, default=4)
    p.add_argument("--ranks", type=int, default=2, help="per node")
    p.add_argument("--rate", default="400mbit")
    p.add_argument("--arch", default="resnet18")
    p.add_argument("--image-size", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=4, help="per rank")
    p.add_argument("--elements", type=int, default=6400000, help="of the exchange")
    p.add_argument("--threads", type=int, default=1, help="of a rank")
    p.add_argument("--steps", type=int, default=6, help="measured, of a round")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--what", choices=("both", "exchange", "steps"), default="both")
    p.add_argument("--only", default="", metavar="'WORD;...'", help="rows with one of these in their name; the first is the base")
    p.add_argument("--patience", type=int, default=240, metavar="SECONDS", help="for one run")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    return a


def main():
    a = parse()
    up = subprocess.run([*NETBED, "up", str(a.nodes), "--ranks", str(a.ranks), "--rate", a.rate], capture_output=True, text=True)
    if up.returncode:
        print(up.stderr.strip(), file=sys.stderr)
        return up.returncode
    try:
        print(f"{os.cpu_count()} processors for all ranks together.")
        if a.what != "steps":
            exchanges(a)
        if a.what != "exchange":
            steps(a)
    finally:
        subprocess.run([*NETBED, "down"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
