#!/usr/bin/env python3
"""Writes policy.txt: what Pillow and torchvision make of one picture by every operation of colour.c.

    tests/golden/data/make_policy.py > tests/golden/data/policy.txt

A line: channels, operation (its number in lt_pixel_op), value, CRC-32 of the pixels. The picture is the formula in picture().
"""
import math
import zlib

import numpy as np
import PIL
import torchvision
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import functional as F

SIDE = 40


def picture(channels):
    y, x, c = np.meshgrid(np.arange(SIDE), np.arange(SIDE), np.arange(channels), indexing="ij")
    value = 40 + x * 3 + y * 2 + c * 29 + (x * y) % 17 * 3 + (x // 5 + y // 4) % 2 * 30 * (c + 1) // 2
    value = np.minimum(value, 250).astype(np.uint8)
    return Image.fromarray(value[:, :, 0] if channels == 1 else value)


def affine(image, shear, translate):
    return F.affine(image, angle=0.0, translate=translate, scale=1.0, shear=shear, center=[0, 0] if any(shear) else None)


OPS = [lambda im, v: im,
       lambda im, v: affine(im, [math.degrees(math.atan(v)), 0.0], [0, 0]),
       lambda im, v: affine(im, [0.0, math.degrees(math.atan(v))], [0, 0]),
       lambda im, v: affine(im, [0.0, 0.0], [int(v), 0]),
       lambda im, v: affine(im, [0.0, 0.0], [0, int(v)]),
       lambda im, v: F.rotate(im, v),
       lambda im, v: ImageEnhance.Brightness(im).enhance(v),
       lambda im, v: ImageEnhance.Color(im).enhance(v),
       lambda im, v: ImageEnhance.Contrast(im).enhance(v),
       lambda im, v: ImageEnhance.Sharpness(im).enhance(v),
       lambda im, v: ImageOps.posterize(im, int(v)),
       lambda im, v: ImageOps.solarize(im, v),
       lambda im, v: ImageOps.autocontrast(im),
       lambda im, v: ImageOps.equalize(im),
       lambda im, v: F.adjust_hue(im, v)]
BLENDS = [0.01, 0.3, 0.7, 1.0, 1.25, 1.99]
VALUES = [[0], [-0.99, -0.2, 0.066, 0.99], [-0.99, -0.2, 0.066, 0.99], [-32, -3.2, 7.4, 32], [-32, -3.2, 7.4, 32],
          [-135, -90, -4.5, 0, 9, 31.5, 90, 135], BLENDS, BLENDS, BLENDS, BLENDS, [2, 4, 7, 8], [0, 100.5, 128, 255], [0], [0],
          [-0.5, -0.1, 0.03, 0.4]]

print(f"Pillow {PIL.__version__}, torchvision {torchvision.__version__}: channels, operation, value, CRC-32")
for channels in (1, 3):
    for op, (run, values) in enumerate(zip(OPS, VALUES)):
        for value in values:
            print(channels, op, value, zlib.crc32(np.asarray(run(picture(channels), value)).tobytes()))
