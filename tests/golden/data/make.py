#!/usr/bin/env python3
"""Writes the golden vectors of tests/data: images, and what Pillow and torchvision make of them.

Needs Pillow, numpy, torch and torchvision; the tests only read what is written here.
"""
import datetime
import math
import pathlib
import random
import warnings

import numpy
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms

here = pathlib.Path(__file__).parent
made = (f"# Pillow {PIL.__version__}, torchvision {torchvision.__version__}, "
        f"tests/golden/data/make.py, {datetime.date.today()}\n")
MASK = 0xFFFFFFFF


def noise(width, height, channels, seed):
    """The same bytes as noise() of test_resize.c."""
    out = []
    for _ in range(width * height * channels):
        seed = (seed * 1664525 + 1013904223) & MASK
        out.append(seed >> 24)
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(numpy.array(out, dtype=numpy.uint8).reshape(shape))


def philox(key, high, low):
    """Salmon et al., SC 2011, written from the paper."""
    c = [low & MASK, low >> 32, high & MASK, high >> 32]
    k = [key & MASK, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


class Stream:
    def __init__(self, key):
        self.words, self.key, self.counter = [], key, 0

    def word(self):
        if not self.words:
            self.words = philox(self.key, 0, self.counter)
            self.counter += 1
        return self.words.pop(0)

    def uniform(self):
        high, low = self.word() >> 5, self.word() >> 6
        return (high << 26 | low) / 2 ** 53

    def below(self, bound):
        product = self.word() * bound
        if product & MASK < bound:
            while product & MASK < (2 ** 32 - bound) % bound:
                product = self.word() * bound
        return product >> 32


def resize_vectors():
    rows = [  # width height channels, box, output
        (7, 5, 3, None, (7, 5)), (40, 30, 3, None, (16, 16)), (33, 21, 3, None, (10, 40)),
        (33, 21, 1, None, (10, 8)), (9, 9, 3, None, (31, 29)), (1, 1, 3, None, (4, 4)),
        (64, 3, 3, None, (5, 5)), (50, 40, 3, (3, 4, 37, 33), (12, 14)),
        (50, 40, 3, (2.25, 4.5, 30.75, 39.125), (13, 11)), (50, 40, 1, (10.5, 0, 12, 40), (6, 9)),
        (120, 90, 3, None, (7, 3)), (90, 120, 3, None, (36, 48)),
    ]
    with open(here / "resize.txt", "w") as f:
        f.write(made)
        for width, height, channels, box, size in rows:
            image = noise(width, height, channels, 1000 * width + height)
            if box is None:
                box = (0, 0, width, height)
            result = image.resize(size, Image.BILINEAR, box=box)
            edges = " ".join(float(b).hex() for b in box)
            f.write(f"{width} {height} {channels} {edges} {size[0]} {size[1]}\n")
            f.write(result.tobytes().hex() + "\n")


def crop_vectors():
    """torchvision's own sampling, its random numbers replaced by a Philox stream."""
    sizes = [(500, 375), (375, 500), (224, 224), (32, 32), (1000, 20), (20, 1000), (3, 2), (1, 1),
             (640, 480)]
    ranges = [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.4, 0.5)), ((0.35, 1.0), (0.9, 1.1))]
    real = torch.empty, torch.randint
    with open(here / "crop.txt", "w") as f:
        f.write(made)
        for key in range(1, 9):
            for width, height in sizes:
                for scale, ratio in ranges:
                    s = Stream(key)

                    class Drawn:
                        def uniform_(self, low, high):
                            return torch.tensor([float(low) + (float(high) - float(low))
                                                 * s.uniform()], dtype=torch.float64)

                    torch.empty = lambda *_: Drawn()
                    torch.randint = lambda low, high, size: torch.tensor([low + s.below(high - low)])
                    try:
                        crop = crop_of(width, height, scale, ratio)
                    finally:
                        torch.empty, torch.randint = real
                    i, j, h, w = crop
                    f.write(f"{key} {width} {height} {scale[0].hex()} {scale[1].hex()} "
                            f"{ratio[0].hex()} {ratio[1].hex()} {j} {i} {w} {h}\n")


def crop_of(width, height, scale, ratio):
    # get_params keeps log(ratio) in float32; the library computes in double.
    real = torch.log
    torch.log = lambda t: torch.tensor([math.log(r) for r in ratio], dtype=torch.float64)
    try:
        return transforms.RandomResizedCrop.get_params(Image.new("L", (width, height)),
                                                       list(scale), list(ratio))
    finally:
        torch.log = real


def image(width, height, seed):
    """Smooth with edges and a little noise."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 80 * numpy.sin(x / (5 + c) + seed) * numpy.cos(y / (7 - c))
              + 40 * ((x // 9 + y // 6 + c) % 2) + rng.normal(0, 4, (height, width))
              for c in range(3)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, 2), 0, 255).astype(numpy.uint8))


def eval_vectors():
    folder = here / "images"
    folder.mkdir(exist_ok=True)
    image(83, 61, 1).save(folder / "420.jpg", quality=85, subsampling=2)
    image(52, 77, 2).save(folder / "444-progressive.jpg", quality=92, subsampling=0,
                            progressive=True)
    image(60, 60, 3).save(folder / "422.jpg", quality=70, subsampling=1)
    image(64, 50, 4).convert("L").save(folder / "grey.jpg", quality=80)
    image(45, 66, 5).convert("CMYK").save(folder / "cmyk.jpg", quality=90)
    rgba = image(40, 58, 6).convert("RGBA")
    rgba.putalpha(image(40, 58, 7).convert("L"))
    rgba.save(folder / "alpha.png")
    image(70, 41, 8).quantize(64).save(folder / "palette.png", bits=8)
    image(37, 36, 9).save(folder / "small.bmp")
    image(20, 30, 10).save(folder / "enlarged.png")
    image(30, 200, 11).save(folder / "tall.jpg", quality=88)
    transform = transforms.Compose([transforms.Resize(36), transforms.CenterCrop(32)])
    with open(here / "eval.txt", "w") as f:
        f.write(made)
        for path in sorted(folder.iterdir()):
            result = transform(Image.open(path).convert("RGB"))
            f.write(f"{path.name}\n{result.tobytes().hex()}\n")


random.seed(0)
warnings.simplefilter("ignore")
resize_vectors()
crop_vectors()
eval_vectors()
