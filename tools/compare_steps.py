#!/usr/bin/env python3
"""Does Shampoo reach the accuracy of SGD with Nesterov momentum in two thirds of the steps? A Markdown page.

    tools/compare_steps.py --train build/models/resnet50/train_resnet50 --data DIR|fashion-mnist --state DIR
                           [--out docs/results/NAME.md] [--epochs 6] [--batches 200] [--width 8] [--trials 6] [--seeds 3]

Three arms: Nesterov for EPOCHS, Shampoo for two thirds of them, and as a control Nesterov for two thirds. Each arm is tuned
by itself with the same trials (learning rate and decay, log-uniform, drawn with a fixed seed); the best trial by validation
top-1 of seed 0 is trained again with the other seeds. Every finished run is kept in STATE and not run twice.
"""
import argparse
import datetime
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

from table_optimizers import cpu_name

RATES = (0.03, 3.0)
DECAYS = (1e-5, 3e-3)


def log_uniform(rng, bounds):
    return float(f"{math.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]))):.3g}")


def draw_trials(count):
    rng = random.Random(2309)
    return [(log_uniform(rng, RATES), log_uniform(rng, DECAYS)) for _ in range(count)]


def command(args, arm, trial, seed):
    return [args.train, "--data", args.data, "--arch", "resnet18", "--width", str(args.width), "--batch-size", "128", "--epochs",
            f"{arm['epochs']:g}", "--limit-train-batches", str(args.batches), "--eval-every", "0", "--progress", "off", "--lr",
            f"{trial[0]:g}", "--weight-decay", f"{trial[1]:g}", "--warmup-epochs", "0.5", "--seed", str(seed)] + arm["flags"]


def measure(line):
    """The last epoch's record of a run."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(line + ["--output", folder, "--keep", "1"], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(text) for text in file]
    last = [r for r in records if r["event"] == "epoch"][-1]
    steps = [r["step"] for r in records if r["event"] == "step"]
    return {"top1": last["val_top1"], "steps": max(steps)}


def run(args, arm, trial, seed):
    line = command(args, arm, trial, seed)
    key = " ".join([os.path.basename(args.data)] + line[3:])
    path = os.path.join(args.state, "runs.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for text in file:
                record = json.loads(text)
                if record["key"] == key:
                    return record
    record = measure(line)
    record["key"] = key
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(f"{record['top1']:.2f} %  {key}", file=sys.stderr, flush=True)
    return record


def run_arm(args, arm, trials):
    """Tunes with seed 0, adds the other seeds to the best trial."""
    tried = [run(args, arm, t, 0) for t in trials]
    best = max(range(len(trials)), key=lambda i: tried[i]["top1"])
    rest = [run(args, arm, trials[best], seed) for seed in range(1, args.seeds)]
    top1 = [r["top1"] for r in [tried[best]] + rest]
    return {"name": arm["name"], "steps": tried[best]["steps"], "trial": trials[best], "top1": top1,
            "tried": [t["top1"] for t in tried], "mean": statistics.mean(top1),
            "deviation": statistics.stdev(top1) if len(top1) > 1 else 0.0}


def verdict(full, shampoo):
    """Noise: the standard error of the difference of two means, doubled."""
    gap = shampoo["mean"] - full["mean"]
    seeds = len(full["top1"])
    noise = 2 * math.sqrt((full["deviation"] ** 2 + shampoo["deviation"] ** 2) / seeds)
    word = "holds" if gap >= -noise else "does not hold"
    return (f"Shampoo in {shampoo['steps']} steps against Nesterov in {full['steps']}: {gap:+.2f} points, noise (twice the standard "
            f"error of the difference) {noise:.2f}: the claim **{word}** here.")


def arms(args):
    nesterov = ["--optim", "sgd", "--momentum", "0.9"]
    shampoo = ["--optim", "shampoo", "--precondition-frequency", str(args.frequency)]
    short = args.epochs * 2 / 3
    return [{"name": "Nesterov", "epochs": args.epochs, "flags": nesterov},
            {"name": "Shampoo, 2/3 of the steps", "epochs": short, "flags": shampoo},
            {"name": "Nesterov, 2/3 of the steps", "epochs": short, "flags": nesterov}]


def page(args, rows, trials):
    name = os.path.basename(args.data.rstrip("/"))
    lines = [f"# Steps to accuracy: {name}", "",
             f"{datetime.date.today()}, {cpu_name()}. ResNet-18 with a small-image stem, {args.width} channels wide, f32, batch 128, "
             f"{args.batches} batches an epoch, cosine schedule, half an epoch of warm-up, label smoothing 0.1; roots every "
             f"{args.frequency} steps, SGD grafting; {args.seeds} seeds.", "",
             "    tools/compare_steps.py " + " ".join(sys.argv[1:]), "",
             "Each arm is tuned by itself with the same trials of learning rate and decay (seed 0); the best is trained with the",
             "other seeds too.", "", verdict(rows[0], rows[1]), "",
             "| arm | steps | lr, decay | top-1 %, mean ± deviation | each seed | top-1 of each trial |",
             "| --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        lines.append(f"| {r['name']} | {r['steps']} | {r['trial'][0]:g}, {r['trial'][1]:g} | {r['mean']:.2f} ± {r['deviation']:.2f} | "
                     f"{', '.join(f'{t:.2f}' for t in r['top1'])} | {', '.join(f'{t:.2f}' for t in r['tried'])} |")
    lines += ["", "Trials (lr, decay): " + "; ".join(f"{a:g}, {b:g}" for a, b in trials) + "."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--out", default="-")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--frequency", type=int, default=20)
    args = parser.parse_args()
    os.makedirs(args.state, exist_ok=True)
    trials = draw_trials(args.trials)
    text = page(args, [run_arm(args, arm, trials) for arm in arms(args)], trials)
    if args.out == "-":
        print(text, end="")
        return
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
