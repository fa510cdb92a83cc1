#!/usr/bin/env python3
"""Bounds on the loader that need a quiet machine; exit status 1 if one is missed.

    tools/bench_loader_checks.py scaling  --data DIR [--build build] [--rounds 5] [--steps 150]
        2 threads against 1, by turns: processor time of an image at most 1.05 times as much, and in the best round at least 1.8 times
        as many images a second.

    tools/bench_loader_checks.py training --data DIR [--build build] [--arch resnet50] [--batch-size 16] [--steps 12] [--rate R]
        train_resnet50 on DIR against --data synthetic, by turns: medians of steps within 3 %; and what the loader's processor time of
        an image makes of that. --rate: images a second of another device, for the number of cores that keep it busy.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from bench_loader_peer import cpu_name

QUIET = {**os.environ, "OMP_WAIT_POLICY": "passive"}


def bench_loader(args, threads):
    line = [os.path.join(args.build, "tools", "bench"), "loader", "--data", args.data, "--threads", str(threads), "--batch-size", "16",
            "--warmup", "4", "--steps", str(args.steps), "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True, env=QUIET).stdout)


def verdict(name, value, bound, holds):
    print(f"{'ok' if holds else 'MISSED'}: {name}: {value:.3f}, bound {bound}")
    return holds


def scaling(args):
    cpu, wall = [], []
    print("| round | images/s, 1 thread | 2 threads | ratio | CPU ms an image, 1 thread | 2 threads | ratio |\n| --- " + "| --- " * 6 + "|")
    for i in range(args.rounds):
        one, two = bench_loader(args, 1), bench_loader(args, 2)
        wall.append(two["images_per_second"] / one["images_per_second"])
        cpu.append(two["cpu_milliseconds"] / one["cpu_milliseconds"])
        print(f"| {i + 1} | {one['images_per_second']:.0f} | {two['images_per_second']:.0f} | {wall[-1]:.3f} "
              f"| {one['cpu_milliseconds']:.4f} | {two['cpu_milliseconds']:.4f} | {cpu[-1]:.3f} |", flush=True)
    print()
    fine = verdict("CPU of an image, median ratio of 2 threads to 1", statistics.median(cpu), "1.05 at most", statistics.median(cpu) <= 1.05)
    return verdict("images a second, best ratio of 2 threads to 1", max(wall), "1.8 at least", max(wall) >= 1.8) and fine


def classes_of(folder):
    train = os.path.join(folder, "train")
    return len(os.listdir(train if os.path.isdir(train) else folder))


def step_seconds(args, data, skipped=3):
    """The median step of a run, and the loader's share of waiting."""
    with tempfile.TemporaryDirectory() as temp:
        line = [os.path.join(args.build, "models", "resnet50", "train_resnet50"), "--data", data, "--arch", args.arch, "--batch-size",
                str(args.batch_size), "--max-steps", str(args.steps), "--image-size", "224", "--stem", "imagenet", "--augment", "imagenet",
                "--optim", "sgd", "--lr", "0.001", "--amp", args.amp, "--limit-eval-batches", "1", "--progress", "off",
                "--no-tensorboard", "--output", temp]
        subprocess.run(line, check=True, capture_output=True, text=True, env=QUIET)
        with open(os.path.join(temp, "metrics.jsonl"), encoding="utf-8") as file:
            steps = [r for r in map(json.loads, file) if r["event"] == "step"][skipped:]
    seconds = [args.batch_size / r["images_per_second"] for r in steps]
    return statistics.median(seconds), sum(r["data_seconds"] for r in steps) / sum(seconds)


def training(args):
    synthetic = f"synthetic:{args.batch_size * (args.steps + 1)}:224:{classes_of(args.data)}"
    ratios, real_ms = [], []
    loader = bench_loader(args, 1)
    print("| round | synthetic, ms a step | real, ms a step | ratio | real: waited |\n| --- | --- | --- | --- | --- |")
    for i in range(args.rounds):
        base, _ = step_seconds(args, synthetic)
        real, waited = step_seconds(args, args.data)
        ratios.append(real / base)
        real_ms.append(1e3 * real)
        print(f"| {i + 1} | {1e3 * base:.1f} | {1e3 * real:.1f} | {ratios[-1]:.3f} | {100 * waited:.1f} % |", flush=True)
    cores = len(os.sched_getaffinity(0))
    image = statistics.median(real_ms) / args.batch_size
    print(f"\nThe loader takes {loader['cpu_milliseconds']:.3f} ms of CPU an image, a step {image:.1f} ms an image on {cores} cores: "
          f"{100 * loader['cpu_milliseconds'] / (image * cores):.2f} % of them.")
    if args.rate:
        print(f"{args.rate:g} images a second need {args.rate * loader['cpu_milliseconds'] / 1e3:.1f} such cores.")
    return verdict("a step on images, median ratio to synthetic data", statistics.median(ratios), "1.03 at most",
                   statistics.median(ratios) <= 1.03)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=["scaling", "training"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--amp", default="bf16")
    parser.add_argument("--rate", type=float)
    args = parser.parse_args()
    args.steps = args.steps or {"scaling": 150, "training": 12}[args.check]
    print(f"{cpu_name()}; {args.rounds} rounds.\n\n    tools/bench_loader_checks.py {' '.join(sys.argv[1:])}\n")
    return 0 if (scaling if args.check == "scaling" else training)(args) else 1


sys.exit(main())
