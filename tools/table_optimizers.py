#!/usr/bin/env python3
"""Top-1 on Fashion-MNIST after equal training and equal tuning, for every optimizer: a Markdown table.

    tools/table_optimizers.py --train build/models/resnet50/train_resnet50 [--out docs/results/fashion-mnist-optimizers.md]
                              [--epochs 2] [--batches 200] [--width 8] [--seeds 3]

Each optimizer gets the same four trials with seed 0: its usual learning rate times 1/3, 1, 3 and 9. The best of them by validation
top-1 is trained again with the other seeds. Reported: mean and sample deviation over all seeds of that rate.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

RATES = {"sgd": 0.1, "adagrad": 0.01, "adam": 0.001, "adamw": 0.001, "shampoo": 0.1}
FACTORS = (1 / 3, 1, 3, 9)
EXTRA = {"shampoo": ["--precondition-frequency", "10"]}


def command(args, optim, rate, seed):
    return [args.train, "--data", "fashion-mnist", "--arch", "resnet18", "--width", str(args.width), "--batch-size", "128",
            "--epochs", str(args.epochs), "--limit-train-batches", str(args.batches), "--eval-every", "0", "--progress", "off",
            "--optim", optim, "--lr", f"{rate:g}", "--seed", str(seed)] + EXTRA.get(optim, [])


def run(args, optim, rate, seed):
    """The last epoch's record."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command(args, optim, rate, seed) + ["--output", folder, "--keep", "1"], check=True)
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    epochs = [r for r in records if r["event"] == "epoch"]
    steps = sorted(r["seconds"] for r in records if r["event"] == "step")
    print(f"{optim} lr {rate:g} seed {seed}: {epochs[-1]['val_top1']:.2f} %", file=sys.stderr, flush=True)
    return {"top1": epochs[-1]["val_top1"], "loss": epochs[-1]["val_loss"], "ms": 1e3 * steps[len(steps) // 2]}


def row(args, optim):
    """Tunes the rate with seed 0, then adds the other seeds."""
    trials = {RATES[optim] * f: run(args, optim, RATES[optim] * f, 0) for f in FACTORS}
    rate = max(trials, key=lambda r: trials[r]["top1"])
    results = [trials[rate]] + [run(args, optim, rate, seed) for seed in range(1, args.seeds)]
    top1 = [r["top1"] for r in results]
    spread = statistics.stdev(top1) if len(top1) > 1 else 0.0
    tried = ", ".join(f"{r:g}: {t['top1']:.2f}" for r, t in sorted(trials.items()))
    return (f"| {optim} | {rate:g} | {statistics.mean(top1):.2f} ± {spread:.2f} | {', '.join(f'{t:.2f}' for t in top1)} | "
            f"{statistics.median(r['ms'] for r in results):.0f} | {tried} |")


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--out", default="docs/results/fashion-mnist-optimizers.md")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    lines = ["# Optimizers on Fashion-MNIST", "",
             f"{datetime.date.today()}, {cpu_name()}. ResNet-18, {args.width} channels wide, f32, batch 128, {args.epochs} epochs of "
             f"{args.batches} batches, cosine schedule, label smoothing 0.1; {args.seeds} seeds.", "",
             "    tools/table_optimizers.py " + " ".join(sys.argv[1:]), "",
             "Equal tuning: four learning rates with seed 0; the best is trained with the other seeds. Everything else is the",
             "program's default (Shampoo: SGD grafting, new roots every 10 steps).", "",
             "| optimizer | lr | top-1 %, mean ± deviation | each seed | ms a step | tuning: lr: top-1 % |",
             "| --- | --- | --- | --- | --- | --- |"]
    lines += [row(args, optim) for optim in RATES]
    with open(args.out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
