#!/usr/bin/env python3
"""Times Shampoo beside the reference implementation on ResNet-50's parameters, by turns, and prints a Markdown table.

    tools/bench_shampoo_peer.py --bench BUILD/tools/bench --python PYTHON --reference DIR [--rounds 3] [--threads 2]

PYTHON has PyTorch, DIR is a checkout of github.com/facebookresearch/optimizers. Both keep the reference's settings
(`--optim shampoo-reference`): f32, blocks of 1024, no grafting, roots by eigendecomposition. Gradients are random numbers
of deviation 0.01, the same in every step, so a factor has the rank that one gradient gives it: that of a vector has rank 1.
Rows: a step between refreshes; a refresh, which is the step that has one less a step that has none; the same by our
preset `recommended`, which keeps only diagonals for vectors; state. Numbers are medians of the rounds, a ratio is the median
of the rounds' ratios. Exit status 77: a program, PyTorch or the checkout is missing."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
STAGES = [(64, 3), (128, 4), (256, 6), (512, 3)]  # ResNet-50: width and number of its bottlenecks


def resnet50_shapes():
    """Its parameters: filters, each with a scale and an offset, and the last layer."""
    filters, inputs = [(64, 3, 7, 7)], 64
    for width, count in STAGES:
        for i in range(count):
            filters += [(width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if i == 0:
                filters.append((4 * width, inputs, 1, 1))
            inputs = 4 * width
    return [s for f in filters for s in (f, f[:1], f[:1])] + [(1000, inputs), (1000,)]


def tensors_in(value, found):
    """All tensors below a value of the optimizer's state, by where they lie."""
    if hasattr(value, "untyped_storage"):
        value = getattr(value, "_local_tensor", value)
        found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    elif isinstance(value, dict):
        for v in value.values():
            tensors_in(v, found)
    elif isinstance(value, (list, tuple)):
        for v in value:
            tensors_in(v, found)
    elif hasattr(value, "__dict__"):
        tensors_in(vars(value), found)


def run_reference(a):
    """In a process of its own: prints one JSON object."""
    sys.path.insert(0, a.reference)
    try:
        import torch
        from distributed_shampoo import DistributedShampoo
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(77)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    params = [torch.nn.Parameter(torch.randn(s)) for s in resnet50_shapes()]
    for p in params:
        p.grad = torch.randn(p.shape) * 1e-2
    every = a.steps + 1
    optim = DistributedShampoo(params, lr=1e-3, precondition_frequency=every, start_preconditioning_step=every)
    seconds = []
    for _ in range(2 * every):  # before the first refresh there is nothing to precondition with
        begin = time.perf_counter()
        optim.step()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[every:-1])
    refresh = statistics.median([seconds[every - 1], seconds[-1]]) - step
    state = {}
    tensors_in({k: dict(v) for k, v in optim.state.items()}, state)
    print(json.dumps({"torch": torch.__version__, "step": 1e3 * step, "refresh": 1e3 * refresh, "state": sum(state.values())}))


def call(words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    except FileNotFoundError:
        print(f"{words[0]}: not there", file=sys.stderr)
        sys.exit(77)
    if done.returncode == 77:
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(77)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {(done.stderr.splitlines() or ['said nothing'])[-1]}")
    return done.stdout


def read_bench(text, name):
    """The numbers of one optimizer in `bench optim --json`, as run_reference() names them."""
    r = json.loads(text)["optimizers"][name]
    return {"step": r["plain_milliseconds"], "refresh": r["refresh_milliseconds"], "state": r["state_bytes"], "roots": r["roots"]}


def run_bench(a, name):
    return read_bench(call([a.bench, "optim", "--optim", name, "--steps", str(a.steps), "--threads", str(a.threads), "--json"]), name)


def row(name, ours, theirs, places=0):
    ratio = statistics.median(t / o for o, t in zip(ours, theirs))
    return f"| {name} | {statistics.median(ours):.{places}f} | {statistics.median(theirs):.{places}f} | {ratio:.2f} |"


def table(rounds):
    """rounds: (reference's settings, recommended, theirs) each."""
    same, best, peer = zip(*rounds)
    pick = lambda runs, key, unit=1: [r[key] / unit for r in runs]
    return ["| | ours | theirs | theirs / ours |", "| --- | --: | --: | --: |",
            row("a step between refreshes, ms", pick(same, "step"), pick(peer, "step")),
            row(f"refresh of {same[0]['roots']} roots by eigendecomposition, ms", pick(same, "refresh"), pick(peer, "refresh")),
            row(f"refresh by `recommended`, {best[0]['roots']} roots, ms", pick(best, "refresh"), pick(peer, "refresh")),
            row("a step between refreshes by `recommended`, ms", pick(best, "step"), pick(peer, "step")),
            row("state, MiB", pick(same, "state", MIB), pick(peer, "state", MIB)),
            row("state by `recommended`, MiB", pick(best, "state", MIB), pick(peer, "state", MIB))]


def self_test():
    failed = []

    def expect(name, ok):
        print("[       OK ]" if ok else "[  FAILED  ]", name)
        if not ok:
            failed.append(name)

    shapes = resnet50_shapes()
    expect("ResNet-50 has 161 parameters of 25,557,032 elements", (len(shapes), sum(map(math.prod, shapes))) == (161, 25557032))
    text = json.dumps({"optimizers": {"shampoo": {"plain_milliseconds": 2, "refresh_milliseconds": 30, "state_bytes": MIB, "roots": 135}}})
    ours = read_bench(text, "shampoo")
    expect("bench's object is read", ours == {"step": 2, "refresh": 30, "state": MIB, "roots": 135})
    slow = dict(ours, step=4)  # of three rounds the second was disturbed
    theirs = [{"step": s, "refresh": 90, "state": MIB} for s in (8, 8, 10)]
    lines = table(list(zip((ours, slow, ours), (ours,) * 3, theirs)))
    expect("medians, and the median of the rounds' ratios", lines[2] == "| a step between refreshes, ms | 2 | 8 | 4.00 |")
    expect("refreshes are divided theirs by ours", lines[3] == "| refresh of 135 roots by eigendecomposition, ms | 30 | 90 | 3.00 |")
    missing = subprocess.run([sys.executable, os.path.abspath(__file__), "--bench", "/nowhere/bench", "--python", sys.executable, "--reference", "/nowhere"],
                             capture_output=True, text=True, check=False)
    expect("what is missing is named, with status 77", missing.returncode == 77 and "/nowhere" in missing.stderr)
    return bool(failed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", default="build/tools/bench")
    p.add_argument("--python", default=sys.executable, help="with PyTorch")
    p.add_argument("--reference", default="optimizers", help="checkout of facebookresearch/optimizers")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3, help="measured in a round")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--run-reference", action="store_true", help="only that, in this process")
    p.add_argument("--self-test", action="store_true")
    a = p.parse_args()
    if a.self_test:
        sys.exit(self_test())
    if a.run_reference:
        sys.exit(run_reference(a))
    peer = [a.python, os.path.abspath(__file__), "--run-reference", "--reference", a.reference, "--steps", str(a.steps), "--threads", str(a.threads)]
    rounds = []
    for i in range(a.rounds):
        rounds.append((run_bench(a, "shampoo-reference"), run_bench(a, "shampoo"), json.loads(call(peer))))
        print(f"round {i + 1} of {a.rounds}", file=sys.stderr)
    print(f"PyTorch {rounds[0][2]['torch']}, {a.threads} threads, {a.rounds} rounds of {a.steps} steps\n")
    print("\n".join(table(rounds)))


if __name__ == "__main__":
    main()
