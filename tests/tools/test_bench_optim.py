#!/usr/bin/env python3
"""bench optim: one JSON object, whose parts add up; names that it does not know are refused.

    test_bench_optim.py BENCH
"""
import json, os, subprocess, sys

FLAGS = ["--arch", "resnet10", "--steps", "2", "--warmup", "0", "--threads", "1"]
failed = []


def expect(name, ok):
    print("[       OK ]" if ok else "[  FAILED  ]", name)
    if not ok:
        failed.append(name)


def run(*flags):
    return subprocess.run([sys.argv[1], "optim", *FLAGS, *flags], capture_output=True, text=True)


def adds_up(r):
    share = r["refresh_milliseconds"] / r["precondition_frequency"]
    return abs(r["milliseconds"] - r["plain_milliseconds"] - share) <= 1e-4 * r["milliseconds"]


done = run("--optim", "sgd", "--json")
whole = json.loads(done.stdout)
expect("stdout is one object", done.returncode == 0 and whole["benchmark"] == "optim" and whole["arch"] == "resnet10")
expect("one optimizer was asked for", list(whole["optimizers"]) == ["sgd"] and whole["milliseconds"] > 0)
expect("the table is on stderr", done.stderr.startswith("sgd "))
blocks = ["--max-preconditioner-dim", "64"]
soap = json.loads(run("--optim", "soap", *blocks, "--json").stdout)["optimizers"]["soap"]
expect("a refresh is measured apart", soap["roots"] > 10 and soap["refresh_milliseconds"] > 0)
expect("a step has its share of it", soap["precondition_frequency"] == 10 and adds_up(soap))
expect("control: another frequency does not add up", not adds_up(dict(soap, precondition_frequency=5)))
expect("parts are parts of a step", 0 < soap["factor_milliseconds"] + soap["apply_milliseconds"] <= 1.5 * soap["plain_milliseconds"])
staggered = json.loads(run("--optim", "soap", *blocks, "--refresh", "staggered", "--json").stdout)["optimizers"]["soap"]
# a round of 2 + 2 steps: on the cpu each of them has some of the roots, and every root is in one of them
expect("by the staggered timing a round has the same roots", (staggered["roots"], staggered["root_steps"]) == (soap["roots"], 4) and adds_up(staggered))
expect("by the reference timing one step has them", soap["root_steps"] == 1)
if os.environ.get("LATHER_TEST_FULL") == "1":  # seconds of roots
    tiny = json.loads(run("--arch", "vit_ti_16", "--optim", "shampoo-transformer", "--json").stdout)["optimizers"]["shampoo-transformer"]
    # 12 layers: two factors of each of 6 blocks (queries, keys, values, output, and two of the MLP), and conv_proj, positions, head
    expect("a transformer's joined parameters fall into blocks", tiny["roots"] == 12 * 2 * 6 + 2 + 1 + 2)
two = json.loads(run("--settings", '{"optim": "sgd", "lr": 0.1}', "--settings", '{"optim": "soap", "lr": 0.1, "max_preconditioner_dim": 64}', "--json").stdout)["optimizers"]
expect("settings are compared with the first ones", list(two) == ["0", "1"] and two["0"]["of_first"] == 1 < two["1"]["of_first"])
expect("settings are checked", "sgd has no key 'bet1'" in run("--settings", '{"optim": "sgd", "lr": 0.1, "bet1": 1}').stderr)
refused = run("--optim", "shampoo-best")
expect("an unknown name is refused with the list", refused.returncode != 0 and "shampoo-transformer|soap" in refused.stderr)
expect("both benchmarks know the same names", "sgd|adagrad|adam|adamw|shampoo|shampoo-paper|shampoo-reference|shampoo-transformer|soap|muon|lars|lamb|lion|adafactor|prodigy" in
       "".join(subprocess.run([sys.argv[1], "train", "--help"], capture_output=True, text=True).stdout.split()))
sys.exit(bool(failed))
