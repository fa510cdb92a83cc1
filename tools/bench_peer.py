#!/usr/bin/env python3
"""Times a ResNet-50 training step here and in PyTorch, by turns, and prints a Markdown table.

    tools/bench_peer.py --bench build/tools/bench --python PYTHON [--rounds 3] [--also 'NAME=COMMAND']

PYTHON must have torch and torchvision. Each round runs every contestant once, one after the other,
so that a slow minute of the machine hits all alike; the table has medians over rounds and the
median of the ratios within rounds. Peak memory is VmHWM minus VmRSS just before the first step.
--also adds a command that prints '... N img/s', with {dtype} replaced by f32 or bf16."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time


def status_bytes(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def child(dtype, layout, batch, steps, warmup):
    """One PyTorch run; prints a JSON line."""
    import torch
    import torchvision

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = torchvision.models.resnet50().to(memory_format=form).train()
    images = torch.randn(batch, 3, 224, 224).to(memory_format=form)
    labels = torch.randint(0, 1000, (batch,))
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optim = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    before, seconds = status_bytes("VmRSS"), []
    for _ in range(warmup + steps):
        begin = time.monotonic()
        optim.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = loss_of(model(images), labels)
        loss.backward()
        optim.step()
        seconds.append(time.monotonic() - begin)
    rate = batch / statistics.median(seconds[warmup:])
    print(
        json.dumps(
            {
                "images_per_second": rate,
                "peak_memory_bytes": status_bytes("VmHWM") - before,
                "version": torch.__version__,
            }
        )
    )


def run_json(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    if out.returncode:
        sys.exit("failed: " + " ".join(command))
    return out.stdout.decode()


def contestants(a, dtype):
    amp = "bf16" if dtype == "bf16" else "off"
    common = ["--batch-size", str(a.batch), "--steps", str(a.steps), "--warmup", str(a.warmup)]
    ours = [a.bench, "train", "--amp", amp, "--threads", str(a.threads), "--json", *common]
    yield "lather", lambda: json.loads(run_json(ours, a.threads))
    for layout in a.layout or ["channels_last", "contiguous"]:
        peer = [a.python, __file__, "--child", dtype, layout, *common]
        yield "PyTorch " + layout, lambda peer=peer: json.loads(run_json(peer, a.threads))
    for extra in a.also:
        name, command = extra.split("=", 1)
        words = command.replace("{dtype}", dtype).split()
        yield name, lambda words=words: {
            "images_per_second": float(re.search(r"([\d.]+) img/s", run_json(words, a.threads))[1])
        }


def compare(a, dtype):
    runs = {}
    for _ in range(a.rounds):
        for name, run in contestants(a, dtype):
            result = run()
            runs.setdefault(name, []).append(result)
            print(dtype, name, result, file=sys.stderr)
    ours = [r["images_per_second"] for r in runs["lather"]]
    for name, results in runs.items():
        rates = [r["images_per_second"] for r in results]
        peak = [r["peak_memory_bytes"] for r in results if "peak_memory_bytes" in r]
        memory = f"{statistics.median(peak) / 1e9:.2f} GB" if peak else ""
        ratio = statistics.median(o / r for o, r in zip(ours, rates))
        spread = f"{min(rates):.2f}-{max(rates):.2f}"
        print(
            f"| {dtype} | {name} | {statistics.median(rates):.2f} | {spread} | {ratio:.2f} | {memory} |"
        )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bench", default="build/tools/bench")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch-size", dest="batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--layout", action="append", choices=["channels_last", "contiguous"])
    p.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("--child", nargs=2, metavar=("DTYPE", "LAYOUT"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        return child(*a.child, a.batch, a.steps, a.warmup)
    print("| dtype | what | images/s, median | range | lather is faster by | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dtype in ["f32", "bf16"]:
        compare(a, dtype)


if __name__ == "__main__":
    main()
