#!/usr/bin/env python3
"""Steps of lather.torch's optimizers next to PyTorch's and to Meta's Distributed Shampoo: equal numbers, and processor time.

    PYTHONPATH=python LATHER_LIBRARY=build/liblather.so.0 tools/compare_torch.py [CHECKOUT] [--threads 1] [--rounds 5]

CHECKOUT is a clone of github.com/facebookresearch/optimizers. Parameters are those of a transformer of four layers and width 512, gradients
are random. Rounds alternate; a figure is the median. `difference` is the largest one after ten steps, relative to the largest weight."""
import argparse
import logging
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(77)
import lather.torch

WIDTH = 512
LAYER = [(3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,), (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,), (WIDTH,), (WIDTH,)]
SMALL = [(64, 48), (32, 16, 3, 3), (100, 70)]
MATRICES = [s for s in LAYER if len(s) == 2]
SHAMPOO = {"lr": 0.01, "betas": (0.9, 0.999), "epsilon": 1e-8, "weight_decay": 1e-2, "max_preconditioner_dim": 1024, "use_bias_correction": True}


def meta(checkout, frequency, soap=False):
    sys.path.insert(0, checkout)
    logging.disable(logging.CRITICAL)
    import distributed_shampoo as ds
    kind = ({"preconditioner_config": ds.DefaultEigenvalueCorrectedShampooConfig} if soap else
            {"grafting_config": ds.AdamPreconditionerConfig(beta2=0.999, epsilon=1e-8)})
    return lambda p: ds.DistributedShampoo(p, **SHAMPOO, precondition_frequency=frequency, start_preconditioning_step=frequency, **kind)


def ours(frequency, soap=False):
    kind = {"preconditioner": "eigenvalue_corrected"} if soap else {"grafting": "adam", "grafting_beta2": 0.999, "grafting_epsilon": 1e-8}
    return lambda p: lather.torch.Shampoo(p, **SHAMPOO, precondition_frequency=frequency, start_preconditioning_step=frequency, **kind)


def muon(**settings):
    return lambda p: lather.torch.Muon(p, lr=1e-3, **settings)


def rows(checkout):
    """(name, PyTorch's or Meta's, ours, steps before the measurement)"""
    optim, here = torch.optim, lather.torch
    yield "AdamW, torch.optim", lambda p: optim.AdamW(p, lr=1e-3), lambda p: here.AdamW(p, lr=1e-3), 1
    yield "AdamW, torch.optim fused", lambda p: optim.AdamW(p, lr=1e-3, fused=True), lambda p: here.AdamW(p, lr=1e-3), 1
    yield "SGD with momentum, torch.optim", lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: here.SGD(p, lr=0.1, momentum=0.9), 1
    yield "Muon, torch.optim, in bf16; ours in f32", lambda p: optim.Muon(p, lr=1e-3), muon(), 1
    yield "Muon, torch.optim, both in bf16", lambda p: optim.Muon(p, lr=1e-3), muon(bf16_orthogonalization=True), 1
    for title, soap in (("Shampoo", False), ("SOAP", True)) if checkout else ():
        yield f"{title}, Meta's, between refreshes", meta(checkout, 10, soap), ours(10, soap), 10
        yield f"{title}, Meta's, a refresh in each step", meta(checkout, 1, soap), ours(1, soap), 0


class Side:
    """An optimizer over its own parameters."""

    def __init__(self, make, shapes):
        rng = torch.Generator().manual_seed(0)
        self.params = [torch.randn(*s, generator=rng).mul(0.1).requires_grad_() for s in shapes]
        self.optimizer, self.steps = make(self.params), 0

    def step(self):
        """Processor seconds of a step."""
        rng = torch.Generator().manual_seed(1000 + self.steps)
        self.steps += 1
        for p in self.params:
            p.grad = torch.randn(p.shape, generator=rng)
        start = time.process_time()
        self.optimizer.step()
        return time.process_time() - start


def difference(theirs, here, shapes):
    a, b = Side(theirs, shapes), Side(here, shapes)
    for _ in range(10):
        a.step()
        b.step()
    return max((p - q).abs().max().item() for p, q in zip(a.params, b.params)) / max(p.abs().max().item() for p in a.params)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("checkout", nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="1 to 9")
    parser.add_argument("--layers", type=int, default=4)
    a = parser.parse_args()
    if not 1 <= a.rounds <= 9:
        parser.error(f"--rounds {a.rounds} is not 1 to 9: the tenth step would be a refresh")
    torch.set_num_threads(a.threads)
    print("| optimizer | theirs, ms | Lather, ms | ratio | difference |\n| --- | --: | --: | --: | --: |")
    for name, theirs, here, warm in rows(a.checkout):
        only_matrices = name.startswith("Muon")
        sides = [Side(make, (MATRICES if only_matrices else LAYER) * a.layers) for make in (theirs, here)]
        for side in sides:
            for _ in range(warm):
                side.step()
        found = [[side.step() for side in sides] for _ in range(a.rounds)]
        x, y = (1e3 * statistics.median(pair[i] for pair in found) for i in (0, 1))
        print(f"| {name} | {x:.1f} | {y:.1f} | **{x / y:.1f}x** | {difference(theirs, here, SMALL[::2] if only_matrices else SMALL):.0e} |",
              flush=True)


main()
