#!/usr/bin/env python3
"""Writes the golden vectors of bicubic resampling and of whole evaluation transforms of photographs.

Needs Pillow, numpy, torch and torchvision; the tests only read what is written here.
"""
import datetime
import pathlib

import numpy
import PIL
import torchvision
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode

here = pathlib.Path(__file__).parent
made = (f"# Pillow {PIL.__version__}, torchvision {torchvision.__version__}, "
        f"tests/golden/data/make_filters.py, {datetime.date.today()}\n")
MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}
EVERY = 32  # large results keep one row in this many


def noise(width, height, channels):
    """The same bytes as noise() of test_resize.c."""
    seed, out = 1000 * width + height, []
    for _ in range(width * height * channels):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(seed >> 24)
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(numpy.array(out, dtype=numpy.uint8).reshape(shape))


def resize_vectors():
    rows = [  # width height channels, box, output
        (7, 5, 3, None, (7, 5)), (40, 30, 3, None, (16, 16)), (33, 21, 3, None, (10, 40)),
        (33, 21, 1, None, (10, 8)), (9, 9, 3, None, (31, 29)), (1, 1, 3, None, (4, 4)), (2, 3, 3, None, (9, 8)),
        (64, 9, 3, None, (5, 5)), (50, 40, 3, (3, 4, 37, 33), (12, 14)),
        (50, 40, 3, (2.25, 4.5, 30.75, 39.125), (13, 11)), (50, 40, 1, (10.5, 0, 12, 40), (6, 9)),
        (120, 90, 3, None, (7, 6)), (90, 120, 3, None, (36, 48)),
    ]
    with open(here / "resize_bicubic.txt", "w") as f:
        f.write(made)
        for width, height, channels, box, size in rows:
            box = box or (0, 0, width, height)
            result = noise(width, height, channels).resize(size, Image.BICUBIC, box=box)
            edges = " ".join(float(b).hex() for b in box)
            f.write(f"{width} {height} {channels} {edges} {size[0]} {size[1]}\n")
            f.write(result.tobytes().hex() + "\n")


def transformed(path, resize, size, mode):
    run = transforms.Compose([transforms.Resize(resize, interpolation=MODES[mode]), transforms.CenterCrop(size)])
    return numpy.asarray(run(Image.open(path).convert("RGB")))


def eval_vectors():
    with open(here / "eval_bicubic.txt", "w") as f:
        f.write(made)
        for path in sorted(p for p in (here / "images").iterdir() if p.suffix != ".gif"):
            f.write(f"{path.name}\n{transformed(path, 36, 32, 'bicubic').tobytes().hex()}\n")


def photo_vectors():
    """FILE size resize filter, then every 32nd row. Resize 235 is --crop-pct 0.95, 224 is 1."""
    jobs = [(224, 256, "bilinear"), (224, 235, "bicubic"), (224, 224, "bilinear"), (128, 146, "bicubic")]
    with open(here / "eval_photos.txt", "w") as f:
        f.write(made)
        for path in sorted((here / "photos").glob("*.jpg")):
            for size, resize, mode in jobs:
                result = transformed(path, resize, size, mode)[::EVERY]
                f.write(f"{path.name} {size} {resize} {mode}\n{result.tobytes().hex()}\n")


resize_vectors()
eval_vectors()
photo_vectors()
