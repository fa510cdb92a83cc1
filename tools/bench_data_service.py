#!/usr/bin/env python3
"""Times training that waits for images, with one worker of serve-data and with two; prints a Markdown table.

    tools/bench_data_service.py --build BUILD [--rounds 3] [--side 1200] [--workers 1,2]

A worker is `train_vit serve-data` with one thread, bound to a processor of its own, and images whose resampling takes
milliseconds; the trainer's network is next to nothing. By turns: each round times every number of workers. Exit status
77: fewer processors than workers."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

CANNOT = 77
NET = ["--patch-size", "16", "--depth", "1", "--width", "8", "--heads", "1", "--image-size", "32", "--batch-size", "8", "--augment", "imagenet", "--optim", "sgd",
       "--threads", "1", "--workers", "8", "--progress", "off", "--no-tensorboard", "--epochs", "1", "--limit-eval-batches", "1"]
WARM = 4


def start_worker(a, cpu):
    words = ["taskset", "-c", str(cpu), a.program, "serve-data", "--data", f"synthetic:{a.images}:{a.side}:4", "--threads", "1"]
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return p, p.stdout.readline().strip()


def measure(a, count):
    """Images a second behind the first steps, which find the loader's queue filled."""
    cpus = sorted(os.sched_getaffinity(0))
    workers = [start_worker(a, cpus[i]) for i in range(count)]
    if not all(address for _, address in workers):
        sys.exit(CANNOT)
    with tempfile.TemporaryDirectory() as folder:
        data = "service:" + ",".join(address for _, address in workers)
        subprocess.run([a.program, "--data", data, *NET, "--output", folder + "/run"], check=True, stdout=subprocess.DEVNULL)
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as f:
            seconds = [1 / r["images_per_second"] for r in map(json.loads, f) if r["event"] == "step"][WARM:]
    for p, _ in workers:
        p.send_signal(signal.SIGTERM)
        p.wait()
    return 1 / statistics.mean(seconds)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--images", type=int, default=320)
    p.add_argument("--side", type=int, default=1200)
    p.add_argument("--workers", default="1,2", type=lambda t: [int(n) for n in t.split(",")])
    a = p.parse_args()
    a.program = os.path.join(a.build, "models/vit/train_vit")
    if max(a.workers) > len(os.sched_getaffinity(0)):
        print(f"{len(os.sched_getaffinity(0))} processors for {max(a.workers)} workers", file=sys.stderr)
        return CANNOT
    found = {n: [] for n in a.workers}
    for _ in range(a.rounds):
        for n in a.workers:
            found[n].append(measure(a, n))
    print("| workers | images / s | to one worker, median of rounds |\n|---|---|---|")
    for n in a.workers:
        ratio = statistics.median(x / y for x, y in zip(found[n], found[a.workers[0]]))
        print(f"| {n} | {statistics.median(found[n]):.1f} | {ratio:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
