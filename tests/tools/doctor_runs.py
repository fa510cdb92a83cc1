#!/usr/bin/env python3
"""Trains small networks with deliberately wrong settings and with good ones, and shows the findings of doctor: docs/results/doctor.md.

    doctor_runs.py TRAIN-RESNET50 DOCTOR --out DIR [--only NAME]... [--keep]

Ends with 1 if fewer than seven of eight wrong runs have a wrong setting as their first finding, or if a good run has an error or a warning."""
import argparse
import gzip
import json
import os
import subprocess
import sys

SOURCE = "/usr/share/datasets/fashion-mnist"
# The network and schedule of docs/results/ablation.md on Fashion-MNIST, 8 epochs of 40 batches.
COMMON = ("--data fashion-mnist --arch resnet10 --width 8 --batch-size 64 --limit-train-batches 40 --epochs 6 --eval-every 4 --limit-eval-batches 8 "
          "--amp bf16 --warmup-epochs 0.4 --optim-stats 10 --threads 1 --progress off")
SHAMPOO, ADAMW = "--optim shampoo --lr 0.709 --weight-decay 0.00159", "--lr 0.0224 --weight-decay 0.0237"
ABSOLUTE = "--opt-kwargs epsilon-rule=before"
# Name, flags, rules of which one must come first.
WRONG = [("no grafting, epsilon 1e-10, f 100, two-sided", f"{SHAMPOO} --grafting none --epsilon 1e-10 {ABSOLUTE} --precondition-frequency 100",
          ("grafting_missing", "epsilon_small", "frequency")),
         ("epsilon 1", f"{SHAMPOO} --epsilon 1 {ABSOLUTE}", ("epsilon_large",)),
         ("lr 100 times too high", f"{SHAMPOO} --lr 70.9", ("lr_high",)),
         ("lr 1000 times too low", f"{SHAMPOO} --lr 0.000709", ("lr_low",)),
         ("beta2 0.9, f 200", f"{SHAMPOO} --beta2 0.9 --precondition-frequency 200", ("frequency",)),
         ("blocks of 8", f"{SHAMPOO} --max-preconditioner-dim 8", ("small_blocks",)),
         ("warm-up of 5 steps, roots from 200", f"{SHAMPOO} --warmup-epochs 0.125 --start-preconditioning-step 200", ("late_roots",)),
         ("Muon, all by AdamW", f"--optim muon {ADAMW} --opt-kwargs adamw-params=.", ("fallback",)),
         ("Shampoo without a limit of blocks", f"{SHAMPOO} --max-preconditioner-dim 0", ("fallback",)),
         ("512 images, seen 40 times each", f"--optim adamw {ADAMW} --data FEW --augment none --label-smoothing 0 --epochs 40 --eval-every 5", ("overfit",))]
GOOD = [("SGD, Nesterov", "--optim sgd --lr 0.709 --weight-decay 0.00159"), ("AdamW", f"--optim adamw {ADAMW}"), ("Shampoo, recommended", SHAMPOO),
        ("Shampoo, beta2 0.99", f"{SHAMPOO} --beta2 0.99"), ("Shampoo, a sum", f"{SHAMPOO} --beta2 1"), ("Shampoo, epsilon 1e-3", f"{SHAMPOO} --epsilon 1e-3"),
        ("SOAP", f"--optim soap {ADAMW}"), ("Muon", f"--optim muon {ADAMW}")]


def few_images(folder, images=512):
    """Writes Fashion-MNIST with its first training images only."""
    os.makedirs(folder, exist_ok=True)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        with gzip.open(f"{SOURCE}/{name}.gz") as file:
            data = file.read()
        header, size = (16, 28 * 28) if "images" in name else (8, 1)
        if name.startswith("train"):
            data = data[:4] + images.to_bytes(4, "big") + data[8:header + images * size]
        with open(f"{folder}/{name}", "wb") as file:
            file.write(data)


def findings(options, name, flags):
    folder = os.path.join(options.out, name.replace(" ", "-").replace(",", "").replace("/", ""))
    few = os.path.join(options.out, "few")
    if "FEW" in flags and not os.path.exists(few):
        few_images(few)
    if not (options.keep and os.path.exists(f"{folder}/model.safetensors")):
        done = subprocess.run([options.train, *COMMON.split(), *flags.replace("FEW", few).split(), "--output", folder, "--overwrite"], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{name}: {done.stderr[-500:]}")
    return json.loads(subprocess.run([options.doctor, "--json", folder], check=True, capture_output=True, text=True).stdout)["runs"][0]["findings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("doctor")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", action="append", help="name of a run")
    parser.add_argument("--keep", action="store_true", help="examine runs that are in DIR again, without training")
    options = parser.parse_args()
    named, alarms, wrong = 0, 0, [row for row in WRONG if not options.only or row[0] in options.only]
    print("| wrong | first finding | rule | others |\n| --- | --- | --- | --- |")
    for name, flags, rules in wrong:
        found = [one for one in findings(options, name, flags) if one["severity"] != "note"]
        named += bool(found) and found[0]["rule"] in rules
        first = f"{found[0]['text']} | `{found[0]['rule']}`" if found else "none |"
        print(f"| {name} | {first} | {', '.join(one['rule'] for one in found[1:])} |", flush=True)
    print("\n| good | errors and warnings | notes |\n| --- | --- | --- |")
    for name, flags in GOOD:
        if not options.only or name in options.only:
            found = findings(options, name, flags)
            said = [f"{one['rule']}: {one['text']}" for one in found if one["severity"] != "note"]
            alarms += bool(said)
            print(f"| {name} | {'; '.join(said) or 'none'} | {', '.join(one['rule'] for one in found if one['severity'] == 'note')} |", flush=True)
    print(f"\nThe wrong setting is named first in {named} of {len(wrong)} runs; {alarms} good runs have an alarm.")
    return 0 if not alarms and named >= len(wrong) - len(WRONG) // 8 else 1


if __name__ == "__main__":
    sys.exit(main())
