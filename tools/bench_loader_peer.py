#!/usr/bin/env python3
"""Times random-resized-crop from JPEG files here and with Pillow + torchvision, by turns: a Markdown table.

    tools/bench_loader_peer.py --build build --python PYTHON --data DIR [--rounds 5] [--size 224] [--side 500]

PYTHON must have torch, torchvision and Pillow. DIR is an image folder; packs of it (lossless, and JPEG of at most SIDE pixels,
quality 90, as files and as a lossless pack) are made in a temporary folder. Everything is one thread on one core, all files in the
page cache. Ours ends with u8 pixels, as the device normalises; the peer's ends with normalised f32, as its users run it; a row
without its normalisation is there too.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


def child(folder, size, passes, normalise):
    """Pillow + torchvision over all files of a folder; prints images per second."""
    import torch
    from PIL import Image
    from torchvision import transforms

    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    if normalise:
        steps += [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    else:
        steps += [transforms.PILToTensor()]
    run = transforms.Compose(steps)
    files = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in sorted(names)]
    begin = time.monotonic()
    for _ in range(passes):
        for path in files:
            with open(path, "rb") as file:
                run(Image.open(file).convert("RGB"))
    print(len(files) * passes / (time.monotonic() - begin))


def peer(args, folder, normalise):
    line = [args.python, os.path.abspath(__file__), "--child", folder, str(args.size), str(args.passes), str(int(normalise))]
    return float(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def ours(args, folder):
    line = [os.path.join(args.build, "tools", "bench"), "loader", "--data", folder, "--size", str(args.size), "--threads", "1",
            "--steps", "0", "--batch-size", "16", "--json"]
    runs = [json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout) for _ in range(args.passes)]
    return statistics.median(r["images_per_second"] for r in runs)


def shrink(python, source, target, side):
    """The pictures of a folder at SIDE pixels, quality 90, by Pillow."""
    code = ("import os,sys\nfrom PIL import Image\nsource,target,side=sys.argv[1],sys.argv[2],int(sys.argv[3])\n"
            "for where,_,names in os.walk(source):\n"
            "    for name in names:\n"
            "        im=Image.open(os.path.join(where,name)).convert('RGB'); im.thumbnail((side,side))\n"
            "        to=os.path.join(target,os.path.relpath(where,source)); os.makedirs(to,exist_ok=True)\n"
            "        im.save(os.path.join(to,name),quality=90)\n")
    subprocess.run([python, "-c", code, source, target, str(side)], check=True)


def pack(args, source, target):
    subprocess.run([os.path.join(args.build, "tools", "pack"), "--quiet", "--mode", "lossless", source, target], check=True,
                   stdout=subprocess.DEVNULL)
    return target


def contestants(args, temp):
    small = os.path.join(temp, "small")
    shrink(args.python, args.data, small, args.side)
    rows = []
    for name, folder in (("the files", args.data), (f"{args.side} px, quality 90", small)):
        packed = pack(args, folder, os.path.join(temp, "pack-" + str(len(rows))))
        rows.append((name, {"Pillow + torchvision": lambda f=folder: peer(args, f, True),
                            "the same, not normalised": lambda f=folder: peer(args, f, False),
                            "Lather, the files": lambda f=folder: ours(args, f),
                            "Lather, lossless pack": lambda f=packed: ours(args, f)}))
    return rows


def table(args, name, runs):
    seen = {who: [] for who in runs}
    for _ in range(args.rounds):
        for who, run in runs.items():
            seen[who].append(run())
    base = seen["Pillow + torchvision"]
    lines = [f"## {name}", "", "| | images/s, median | ratio to Pillow + torchvision, median of rounds (least, most) |", "| --- | --- | --- |"]
    for who, rates in seen.items():
        ratios = sorted(r / b for r, b in zip(rates, base))
        lines.append(f"| {who} | {statistics.median(rates):.0f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) |")
    return lines + [""]


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--side", type=int, default=500)
    args = parser.parse_args()
    print(f"{cpu_name()}; one thread; size {args.size}, {args.rounds} rounds of {args.passes} passes.\n\n"
          f"    tools/bench_loader_peer.py {' '.join(sys.argv[1:])}\n")
    with tempfile.TemporaryDirectory() as temp:
        for name, runs in contestants(args, temp):
            print("\n".join(table(args, name, runs)), flush=True)


if __name__ == "__main__":
    main()
