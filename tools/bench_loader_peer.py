#!/usr/bin/env python3
"""Times random-resized-crop from JPEG files here and with its peers, by turns: a Markdown table.

    tools/bench_loader_peer.py --build build --python PYTHON [--dali PYTHON] [--ffcv PYTHON] --data DIR [--rounds 5]

PYTHON of --python must have torch, torchvision and Pillow; --dali: an interpreter with NVIDIA DALI (its CPU pipeline, antialiased
resizing); --ffcv: one with FFCV. What is not given, or cannot be imported, is left out and named. DIR is an image folder; packs of it
(lossless, and JPEG of at most SIDE pixels, quality 90, as files and as a lossless pack) are made in a temporary folder.

Every contestant has one worker and is held on one core with all its threads, all files in the page cache. Ours ends with u8 pixels, as
the device normalises; the peers end with normalised f32, as their users run them; rows without that are there too.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 16


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'an unknown CPU'}, {len(os.sched_getaffinity(0))} cores"


def timed(count, work):
    """Images per second of count images, and per second of the processor."""
    begin, cpu = time.monotonic(), time.process_time()
    work()
    return {"rate": count / (time.monotonic() - begin), "cpu_rate": count / (time.process_time() - cpu)}


def child_pillow(folder, size, passes, normalise):
    import torch
    from PIL import Image
    from torchvision import transforms

    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    if normalise:
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    else:
        steps += [transforms.PILToTensor()]
    run = transforms.Compose(steps)
    files = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in sorted(names)]

    def work():
        for _ in range(passes):
            for path in files:
                with open(path, "rb") as file:
                    run(Image.open(file).convert("RGB"))
    return timed(len(files) * passes, work)


def child_dali(folder, size, passes, normalise):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=1)
    def build():
        files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
        x = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
        x = fn.resize(x, size=[size, size], interp_type=types.INTERP_LINEAR, antialias=True)
        flip = fn.random.coin_flip()
        if not normalise:
            return fn.flip(x, horizontal=flip), labels
        return fn.crop_mirror_normalize(x, dtype=types.FLOAT, output_layout="CHW", mirror=flip, mean=[255 * m for m in MEAN],
                                        std=[255 * d for d in DEVIATION]), labels
    pipe = build()
    pipe.build()
    steps = max(1, pipe.epoch_size("files") * passes // BATCH)
    for _ in range(4):  # what it makes ahead
        pipe.run()
    return timed(steps * BATCH, lambda: [pipe.run() for _ in range(steps)])


def child_ffcv(folder, size, passes, normalise):
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    with tempfile.TemporaryDirectory() as temp:
        path = os.path.join(temp, "images.beton")
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}, num_workers=1)
        writer.from_indexed_dataset(ImageFolder(folder))
        steps = [RandomResizedCropRGBImageDecoder((size, size)), RandomHorizontalFlip()]
        if normalise:
            steps.append(NormalizeImage(255 * numpy.array(MEAN), 255 * numpy.array(DEVIATION), numpy.float32))
        loader = Loader(path, batch_size=BATCH, num_workers=1, order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                        pipelines={"image": steps, "label": [IntDecoder()]})
        count = sum(len(b[1]) for b in loader)  # compiles
        one_core()
        return timed(count * passes, lambda: [b for _ in range(passes) for b in loader])


CHILDREN = {"pillow": child_pillow, "dali": child_dali, "ffcv": child_ffcv}


def one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def peer(args, python, kind, folder, normalise):
    line = [python, os.path.abspath(__file__), "--child", kind, folder, str(args.size), str(args.passes), str(int(normalise))]
    # FFCV compiles for long: it goes to the one core itself, when that is done.
    hold = None if kind == "ffcv" else one_core
    out = subprocess.run(line, check=True, capture_output=True, text=True, preexec_fn=hold).stdout
    return json.loads(out.splitlines()[-1])


def ours(args, folder, flags=()):
    line = [os.path.join(args.build, "tools", "bench"), "loader", "--data", folder, "--size", str(args.size), "--threads", "1",
            "--batch-size", str(BATCH), "--json", *flags]
    runs = []
    for _ in range(args.passes):
        result = json.loads(subprocess.run(line, check=True, capture_output=True, text=True, preexec_fn=one_core).stdout)
        runs.append({"rate": result["images_per_second"], "cpu_rate": 1e3 / result["cpu_milliseconds"]})
    return {key: statistics.median(r[key] for r in runs) for key in ("rate", "cpu_rate")}


def shrink(python, source, target, side):
    """The images of a folder at SIDE pixels, quality 90, by Pillow."""
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


def importable(python, module):
    return bool(python) and subprocess.run([python, "-c", "import " + module], capture_output=True, check=False).returncode == 0


def contestants(args, temp):
    small = os.path.join(temp, "small")
    shrink(args.python, args.data, small, args.side)
    rows = []
    for name, folder in (("the files", args.data), (f"{args.side} px, quality 90", small)):
        packed = pack(args, folder, os.path.join(temp, "pack-" + str(len(rows))))
        runs = {"Pillow + torchvision": lambda f=folder: peer(args, args.python, "pillow", f, True),
                "the same, not normalised": lambda f=folder: peer(args, args.python, "pillow", f, False)}
        for kind, module, title, python in (("dali", "nvidia.dali", "DALI, CPU", args.dali), ("ffcv", "ffcv", "FFCV, quality 90", args.ffcv)):
            if importable(python, module):
                runs[title] = lambda k=kind, p=python, f=folder: peer(args, p, k, f, True)
                runs[title + ", not normalised"] = lambda k=kind, p=python, f=folder: peer(args, p, k, f, False)
        runs["Lather, the files"] = lambda f=folder: ours(args, f)
        runs["Lather, --decode fast"] = lambda f=folder: ours(args, f, ["--decode", "fast"])
        runs["Lather, lossless pack"] = lambda f=packed: ours(args, f)
        rows.append((name, runs))
    return rows


def table(args, name, runs):
    seen = {who: [] for who in runs}
    for _ in range(args.rounds):
        for who, run in runs.items():
            seen[who].append(run())
    base = seen["Pillow + torchvision"]
    lines = [f"## {name}", "", "| | images/s, median | ratio to Pillow + torchvision, median of rounds (least, most) | images per second of CPU "
             "| ratio |", "| --- | --- | --- | --- | --- |"]
    for who, results in seen.items():
        cells = [who]
        for key in ("rate", "cpu_rate"):
            ratios = sorted(r[key] / b[key] for r, b in zip(results, base))
            cells += [f"{statistics.median(r[key] for r in results):.0f}",
                      f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f})"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


def main():
    if sys.argv[1:2] == ["--child"]:
        result = CHILDREN[sys.argv[2]](sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "1")
        print(json.dumps(result))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", required=True)
    parser.add_argument("--dali", help="an interpreter with NVIDIA DALI")
    parser.add_argument("--ffcv", help="an interpreter with FFCV")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--side", type=int, default=500)
    args = parser.parse_args()
    print(f"{cpu_name()}; one core; size {args.size}, {args.rounds} rounds of {args.passes} passes.")
    for python, module in ((args.dali, "nvidia.dali"), (args.ffcv, "ffcv")):
        if not importable(python, module):
            print(f"Not here: {module}.")
    print(f"\n    tools/bench_loader_peer.py {' '.join(sys.argv[1:])}\n")
    with tempfile.TemporaryDirectory() as temp:
        for name, runs in contestants(args, temp):
            print("\n".join(table(args, name, runs)), flush=True)


if __name__ == "__main__":
    main()
