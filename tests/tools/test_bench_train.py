#!/usr/bin/env python3
"""bench train, eval, ops, attention and ceilings: one JSON object each, in every precision that the device has.

    test_bench_train.py BENCH
"""
import json, os, subprocess, sys

SMALL = ["--arch", "resnet10", "--image-size", "16", "--batch-size", "2", "--num-classes", "3", "--steps", "1",
         "--warmup", "1", "--threads", "1", "--json"]
failed = []


def expect(name, ok):
    print("[       OK ]" if ok else "[  FAILED  ]", name)
    if not ok:
        failed.append(name)


def run(*flags):
    return subprocess.run([sys.argv[1], *flags], capture_output=True, text=True)


def train(*flags):
    return json.loads(run("train", *SMALL, *flags).stdout)


plain = train()
expect("a step is timed", plain["benchmark"] == "train" and plain["images_per_second"] > 0)
version = run("--version").stdout
expect("the version is that of train", version and run("train", "--version").stdout.endswith(version))
memory = run("train", *SMALL, "--memory")
rows = [line.split() for line in memory.stderr.splitlines() if line.split()[-1].replace(".", "").isdigit()]
held = {tuple(row[:-1]): float(row[-1]) for row in rows if len(row) > 1}
peak = held.pop(("all",), 0)
expect("--memory divides the peak of tensors", abs(peak - json.loads(memory.stdout)["tensor_peak_bytes"] / 1e6) < 0.06
       and abs(sum(held.values()) - peak) < 0.06 * len(held) and held[("parameters,", "state")] > 0)
expect("bytes moved are those of a sample", train("--steps", "4")["moved_bytes_per_sample"] == plain["moved_bytes_per_sample"] > 0)
expect("the first step too", plain["cold_start_seconds"] > 0)
expect("no graph on this device", plain["replayed_steps"] == 0 and train("--no-graph")["loss"] == plain["loss"])
if os.environ.get("LATHER_TEST_FULL") == "1":  # in f16 ref is slow, and the only one here
    half = train("--device", "ref", "--amp", "f16")
    expect("f16 with a loss scale", half["dtype"] == "f16" and half["loss"] > 0)
fast = train("--optim", "shampoo", "--precondition-frequency", "1", "--max-preconditioner-dim", "64")
slow = train("--optim", "shampoo")
expect("Shampoo's settings arrive", fast["loss"] != slow["loss"])  # roots in each step against none yet
expect("factors are counted by size", fast["factor_sides"].startswith("64x") and plain["factor_sides"] == "")
again = ["--deterministic", "--optim", "adamw"]
expect("reruns with --deterministic end with the same loss", train(*again)["loss"] == train(*again)["loss"])
small = train("--stem", "small")["moved_bytes_per_sample"]
expect("the small stem leaves larger maps", small > 1.1 * plain["moved_bytes_per_sample"])
c = json.loads(run("ceilings", "--megabytes", "1", "--side", "32", "--repeats", "2", "--json").stdout)
expect("copies and products have a rate", c["copy_gigabytes_per_second"] > 0 and c["f32_gigaflops"] > 0)
ops = ["ops", "--batch-size", "1", "--steps", "1", "--warmup", "0"]
two = run(*ops, "--filter", "small: conv 512->512", "--beside", "onednn", "--json")
layer = [op for op in json.loads(two.stdout)["ops"] if op["name"].startswith("small: conv 512->512")]
expect("each direction of a layer has a time, and the network's the two kernels'",
       len(layer) == 1 and layer[0]["forward_milliseconds"] > 0 and layer[0]["grad_w_milliseconds"] > 0
       and "ResNet-18, grad w:" in two.stderr and "ResNet-50" not in two.stderr)
evaluated = json.loads(run("eval", *SMALL).stdout)
expect("an evaluation is timed", evaluated["benchmark"] == "eval" and evaluated["images_per_second"] > 0 and evaluated["loss"] > 0)
heads = json.loads(run("attention", "--batch-size", "1", "--queries", "8", "--heads", "2", "--steps", "2", "--json").stdout)
expect("attention is timed by itself and with backward", heads["forward_milliseconds"] > 0 and heads["step_milliseconds"] > 0)
refused = run(*ops, "--device", "ref", "--beside", "builtin")
expect("other kernels are those of the device cpu", refused.returncode != 0 and "--beside builtin: needs --device cpu, got ref" in refused.stderr)
expect("a device that is not there is refused", run("train", "--device", "cuda:99").returncode != 0)
sys.exit(bool(failed))
