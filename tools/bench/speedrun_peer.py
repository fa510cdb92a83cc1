#!/usr/bin/env python3
"""Core-seconds of a training step of train_speedrun's network, interleaved with the same network in PyTorch.

    tools/bench/speedrun_peer.py --train build/models/speedrun/train_speedrun [--python PYTHON] [--rounds 3] [--steps 8] [--widths 32,64,128]

Each round runs ours and PyTorch's eager and compiled network, in f32 (ours: --reproducible and without) and in bf16, with one thread,
batches of 512 images of 28 x 28 and SGD. Time is CPU time, so that other load matters little. Prints medians.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys

BATCH, FIRST = 512, 4


def peer(widths, dtype, compiled, steps):
    """Runs in PYTHON: prints core-seconds of a step."""
    import time  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel,import-error
    from torch import nn  # pylint: disable=import-outside-toplevel,import-error
    torch.set_num_threads(1)
    layers, channels = [nn.Conv2d(1, 8, 2, bias=False), nn.ReLU()], 8
    layers[0].weight.requires_grad = False
    for width in widths:
        for i in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False)] + [nn.MaxPool2d(2)] * (i == 0) + [nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
    model = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, 10)).to(memory_format=torch.channels_last)
    run = torch.compile(model) if compiled else model
    optim = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9, nesterov=True)
    images = torch.randn(BATCH, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (BATCH,))
    for step in range(FIRST + steps):
        if step == FIRST:
            start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = run(images)
        nn.functional.cross_entropy(logits.float() / 9, labels, label_smoothing=0.1).backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
    print((time.process_time() - start) / steps)


def seconds_of(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(args, flags):
    """The difference of a long and a short run is that of the steps."""
    command = [args.train, "--data", "fashion-mnist", "--threads", "1", "--workers", "1", "--limit-eval-batches", "1", "--widths", args.widths,
               "--batch-size", str(BATCH), *flags, "--max-steps"]
    return (seconds_of([*command, str(FIRST + args.steps)]) - seconds_of([*command, str(FIRST)])) / args.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--widths", default="32,64,128")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        dtype, mode = args.peer.split()
        peer([int(w) for w in args.widths.split(",")], dtype, mode == "compiled", args.steps)
        return
    rows = {"ours f32 --reproducible": ["--reproducible"], "ours f32": [], "ours bf16": ["--amp", "bf16"]}
    rows.update({f"PyTorch {dtype} {mode}": f"{dtype} {mode}" for dtype in ("f32", "bf16") for mode in ("eager", "compiled")})
    found = {name: [] for name in rows}
    for _ in range(args.rounds):
        for name, how in rows.items():
            again = [args.python, os.path.abspath(__file__), "--train", args.train, "--widths", args.widths, "--steps", str(args.steps), "--peer"]
            found[name].append(ours(args, how) if isinstance(how, list)
                               else float(subprocess.run([*again, how], check=True, capture_output=True, text=True).stdout))
    for name, values in found.items():
        print(f"{name:24} {statistics.median(values):.4f} core-seconds a step ({min(values):.4f} to {max(values):.4f})")


if __name__ == "__main__":
    main()
