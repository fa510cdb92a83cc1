#!/usr/bin/env python3
"""Times entries of the cpu backend beside PyTorch's kernels, by turns, and prints a Markdown table.

    tools/bench_entries_peer.py --conform build/tests/conform/conform [--rounds 5] [--filter TEXT]

Run it with a Python that has torch. Each round runs every row of `conform --bench` once, then PyTorch's
kernel on operands of the same shapes; a round's number is the fastest of 50 calls, or of as many as fit
into a tenth of a second, into memory that is there (PyTorch's out= forms). The table has the fastest round
of each, their ratio, and the median of the ratios within rounds, which a loaded machine disturbs."""

import argparse
import os
import re
import statistics
import subprocess
import time

SHAPES = {"ViT-S/16, 32 images": (6304, 384), "GPT-2, 4 x 256": (1024, 768)}
DTYPES = ("f32", "bf16")


def best_of(call):
    fastest, end = float("inf"), time.perf_counter() + 0.1
    for _ in range(50):
        begin = time.perf_counter()
        call()
        now = time.perf_counter()
        fastest = min(fastest, now - begin)
        if now > end:
            break
    return fastest * 1e6


class Peer:
    """PyTorch's kernels: a function that makes a call for each entry."""

    def __init__(self, threads):
        import torch
        torch.set_num_threads(threads)
        self.torch, self.aten = torch, torch.ops.aten

    def tensors(self, shape, dtype, count):
        kind = {"f32": self.torch.float32, "bf16": self.torch.bfloat16}[dtype]
        return [self.torch.randn(shape).to(kind) for _ in range(count)]

    def layernorm(self, shape, dtype, grad):
        x, dy, y = self.tensors(shape, dtype, 3)
        width = shape[-1:]
        # Its norm of mixed dtypes has parameters and statistics in f32, as here.
        gamma, beta, dgamma, dbeta = self.tensors(width, "f32", 4)
        mean, rstd = self.torch.empty(shape[0], 1), self.torch.empty(shape[0], 1)
        self.aten.native_layer_norm.out(x, width, gamma, beta, 1e-5, out0=y, out1=mean, out2=rstd)
        if not grad:
            return lambda: self.aten.native_layer_norm.out(x, width, gamma, beta, 1e-5, out0=y, out1=mean, out2=rstd)
        return lambda: self.aten.native_layer_norm_backward.out(dy, x, width, mean, rstd, gamma, beta, [True] * 3,
                                                                out0=y, out1=dgamma, out2=dbeta)

    def gelu(self, shape, dtype, grad, how="none"):
        x, dy, y = self.tensors(shape, dtype, 3)
        if grad:
            return lambda: self.aten.gelu_backward.grad_input(dy, x, approximate=how, grad_input=y)
        return lambda: self.aten.gelu.out(x, approximate=how, out=y)

    def gelu_tanh(self, shape, dtype, grad):
        return self.gelu(shape, dtype, grad, "tanh")

    def topk(self, shape, dtype, grad):
        """Of magnitudes that are there; its places have no order."""
        x, = self.tensors(shape, dtype, 1)
        x.abs_()
        count = shape[0] // 100
        values, places = x[:count].clone(), self.torch.empty(count, dtype=self.torch.int64)
        return lambda: self.torch.topk(x, count, sorted=False, out=(values, places))


# conform's entry and the beginning of its rows' names; PyTorch's call; shapes by the rest of the names; with gradients.
ROWS = [("layernorm", "", Peer.layernorm, SHAPES, True), ("pointwise", "gelu, ", Peer.gelu, SHAPES, True),
        ("pointwise", "gelu by tanh, ", Peer.gelu_tanh, SHAPES, True),
        ("topk_select", "", Peer.topk, {"a bucket": (6400000,), "ResNet-50": (25600000,)}, False)]


def cases(text):
    for entry, prefix, make, shapes, has_grad in ROWS:
        for place, shape in shapes.items():
            for grad in (False, True)[:1 + has_grad]:
                for dtype in DTYPES if has_grad else DTYPES[:1]:
                    name = f"{entry}{'_grad' if grad else ''} {dtype} {prefix}{place}"
                    if text in name:
                        yield name, place, make, shape, dtype, grad


def run_conform(a, filters):
    """Microseconds by the name of the row."""
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    found = {}
    for text in filters:
        done = subprocess.run([a.conform, "--backend", "cpu", "--bench", "--filter", text], env=env, check=True,
                              capture_output=True, text=True)
        for number, name in re.findall(r"^ *([0-9.]+) us  (.*)$", done.stdout, re.M):
            found[name] = float(number)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conform", default="build/tests/conform/conform")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--filter", default="", help="rows whose name contains it")
    a = p.parse_args()
    peer = Peer(a.threads)
    chosen = list(cases(a.filter))
    calls = {name: make(peer, shape, dtype, grad) for name, _, make, shape, dtype, grad in chosen}
    filters = sorted({name.split(" ", 2)[2] for name in calls})
    here, there = {n: [] for n in calls}, {n: [] for n in calls}
    for _ in range(a.rounds):
        found = run_conform(a, filters)
        for name, call in calls.items():
            here[name].append(found[name])
            there[name].append(best_of(call))
    print(f"PyTorch {peer.torch.__version__}, {a.threads} threads, {a.rounds} rounds; microseconds")
    print("\n| entry | lather | PyTorch | faster by | median of rounds |\n| --- | --- | --- | --- | --- |")
    for name in calls:
        ratios = [t / h for h, t in zip(here[name], there[name])]
        best, peers = min(here[name]), min(there[name])
        print(f"| {name} | {best:.0f} | {peers:.0f} | {peers / best:.2f} | {statistics.median(ratios):.2f} |")


if __name__ == "__main__":
    main()
