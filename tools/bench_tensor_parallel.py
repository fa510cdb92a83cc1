#!/usr/bin/env python3
"""Times training of a model that is divided over ranks, by turns; prints Markdown tables.

    tools/bench_tensor_parallel.py --build BUILD overlap [--ranks 2] [--link 200,2]
    tools/bench_tensor_parallel.py --build BUILD meshes [--rate 50mbit] [--meshes '4x4;2x2x4']

overlap: how much of the exchange of activations is waited for, with products that begin before it is done and without
(--tp-overlap), over a modelled link (--comm-model): seconds of a step less those without the link, with all else equal. An update has --grad-accum micro-batches, so that the optimizer's own exchange,
once an update, is a small part of it.
meshes: bytes that a rank sends for a layer, beside lt_mesh_cost_layer()'s formula, and seconds of a step, of several meshes of as
many ranks, each rank a node of tools/netbed (so root) with a card of its own. A layer's bytes are those of a model of two less those
of one. Every contestant runs once in each round, so that a slow minute hits all alike; a run counts with its fastest step, and
tables have medians over rounds.
Exit status 77: no MPI, or no nodes can be had here."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NETBED = [os.path.join(HERE, "netbed"), "--name", "mesh"]
CANNOT = 77
WARM = 2
BYTES = 4  # of an element
ENV = dict(os.environ, OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_base_warn_component_unused="0", OMP_WAIT_POLICY="passive",
           OMPI_MCA_mpi_yield_when_idle="1")


def train(a, launcher, tp, layers, *flags):
    """The step records behind the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        text, out = os.path.join(folder, "text.txt"), os.path.join(folder, "run")
        with open(text, "w", encoding="utf-8") as f:
            f.write("the quick brown fox jumps over the lazy dog. " * (a.tokens * a.batch_size * a.grad_accum * (a.steps + WARM + 4) // 40 + 100))
        words = [*launcher, os.path.join(a.build, "models/gpt/train_gpt"), "--data", text, "--seq-len", str(a.tokens), "--positions",
                 str(a.tokens), "--layers", str(layers), "--width", str(a.width), "--heads", str(a.heads), "--batch-size", str(a.batch_size),
                 "--grad-accum", str(a.grad_accum), "--optim", "sgd", "--tensor-parallel", tp, "--max-steps", str(a.steps + WARM), "--limit-eval-batches", "1", "--progress", "off",
                 "--no-tensorboard", "--threads", "1", "--workers", "1", "--output", out, *flags]
        done = subprocess.run(words, capture_output=True, text=True, timeout=a.patience, env=ENV, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "train_gpt" in line]
            raise SystemExit(f"{' '.join(words)}: {(said or done.stderr.splitlines() or ['said nothing'])[0]}")
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            return [r for r in map(json.loads, f) if r["event"] == "step"][WARM:]


def seconds(records):
    """Of the fastest step: what else runs on the machine only adds to one."""
    return min(r["seconds"] for r in records)


def rounds(a, contestants):
    """{name: [seconds of each round]}"""
    found = {name: [] for name, _ in contestants}
    for turn in range(a.rounds):
        for name, play in contestants:
            found[name].append(seconds(play()))
            print(f"round {turn + 1}, {name}: {1e3 * found[name][-1]:.0f} ms", file=sys.stderr, flush=True)
    return found


def overlap(a):
    launcher = ["mpirun", "-n", str(a.ranks)]
    link = ["--comm-model", a.link]
    tp, layers = str(a.ranks), a.layers
    found = rounds(a, [(f"{name}{where}", lambda f=flags, l=more: train(a, launcher, tp, layers, *f, *l))
                       for name, flags in (("on", []), ("off", ["--tp-overlap", "off"])) for where, more in (("", []), (", link", link))])
    exposed = {name: statistics.median(b - c for b, c in zip(found[f"{name}, link"], found[name])) for name in ("on", "off")}
    print(f"{a.ranks} ranks, {a.layers} layers of width {a.width}, {a.grad_accum} x {a.batch_size} x {a.tokens} tokens, a link of {a.link} (us, Gbit/s), "
          f"{a.rounds} rounds of {a.steps} steps\n")
    print("| --tp-overlap | no link | link | exposed |\n| --- | --- | --- | --- |")
    for name in ("on", "off"):
        without, linked = (1e3 * statistics.median(found[f"{name}{where}"]) for where in ("", ", link"))
        print(f"| {name} | {without:.0f} ms | {linked:.0f} ms | {1e3 * exposed[name]:.0f} ms |")
    print(f"\nexposed with overlap: {100 * exposed['on'] / exposed['off']:.0f} % of what it is without")


def cost(tp, tokens, width):
    """Elements that a rank receives for a layer: lt_mesh_cost_layer()."""
    sizes = [int(x) for x in tp.split("x")]
    if len(sizes) == 1:
        return 8 * (sizes[0] - 1) / sizes[0] * tokens * width
    q, d = sizes[0], sizes[2] if len(sizes) == 3 else 1
    return 3 * (q - 1) * (7 * tokens * width / (d * q * q) + 12 * width ** 2 / q ** 2) + 24 * (d - 1) * width ** 2 / (d * q * q)


def size(tp):
    total = 1
    for x in tp.split("x"):
        total *= int(x)
    return total


def sent(a, launcher, tp, layers, *flags):
    """Bytes of rank 0 in a step; all ranks send as many where sizes divide."""
    return statistics.median(r["tp_bytes"] for r in train(a, launcher, tp, layers, *flags))


def meshes(a):
    tps = a.meshes.split(";")
    ranks = size(tps[0])
    tokens = a.batch_size * a.tokens
    up = subprocess.run([*NETBED, "up", str(ranks), "--ranks", "1", "--rate", a.rate], capture_output=True, text=True, check=False)
    if up.returncode:
        print(up.stderr.strip(), file=sys.stderr)
        sys.exit(up.returncode)
    launcher = [*NETBED, "run", "--"]
    try:
        layer = {tp: (sent(a, launcher, tp, 2, "--force") - sent(a, launcher, tp, 1, "--force")) / a.grad_accum for tp in tps}
        found = rounds(a, [(tp, lambda tp=tp: train(a, launcher, tp, a.layers, "--force")) for tp in tps])
    finally:
        subprocess.run([*NETBED, "down"], capture_output=True, check=False)
    print(f"{ranks} ranks, each a node of {a.rate}; T = {tokens} tokens, h = {a.width}, T/h = {tokens / a.width:.2f}; {a.rounds} rounds of {a.steps} steps of "
          f"{a.layers} layers\n")
    print("| mesh | bytes of a layer, counted | formula | to the last | step | to the last |\n| --- | --- | --- | --- | --- | --- |")
    last = tps[-1]
    for tp in tps:
        times = statistics.median(x / y for x, y in zip(found[tp], found[last]))
        print(f"| {tp} | {layer[tp]:.0f} | {BYTES * cost(tp, tokens, a.width):.0f} | {layer[tp] / layer[last]:.3f} (formula "
              f"{cost(tp, tokens, a.width) / cost(last, tokens, a.width):.3f}) | {1e3 * statistics.median(found[tp]):.0f} ms | {times:.2f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--tokens", type=int, default=101, help="of a sequence")
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--grad-accum", type=int, default=4, help="micro-batches of an update")
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--patience", type=float, default=400, help="seconds for one run")
    kinds = p.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("overlap")
    one.add_argument("--ranks", type=int, default=2)
    one.add_argument("--link", default="200,2", help="microseconds, Gbit/s")
    two = kinds.add_parser("meshes")
    two.add_argument("--meshes", default="4x4;2x2x4")
    two.add_argument("--rate", default="50mbit")
    a = p.parse_args()
    if not shutil.which("mpirun"):
        print("no mpirun", file=sys.stderr)
        sys.exit(CANNOT)
    (overlap if a.kind == "overlap" else meshes)(a)


main()
