#!/usr/bin/env python3
"""Writes formats/ and formats.txt: small pictures of the formats that tests/data/test_formats.c reads, and their pixels
by Pillow. Needs Pillow with WebP and AVIF, and numpy.

A line of formats.txt: file, width, height, how far a channel may be off, red, green and blue of all pixels in hexadecimal.
"""
import datetime
import pathlib
import struct
import sys
import zlib

import numpy
import PIL
from PIL import Image

here = pathlib.Path(__file__).parent
out = here / "formats"
W, H = 37, 22
EXACT, ROUNDED, CONVERTED = 0, 1, 4  # CONVERTED: from YCbCr, by one of several libraries


def scene():
    y, x = numpy.mgrid[0:H, 0:W]
    return numpy.stack([(x * 6 + y) % 256, (y * 11) % 256, ((x // 5 + y // 4) % 2) * 180 + 30], -1).astype(numpy.uint8)


def tiled_tiff():
    """Tiles of 16 x 16, big-endian, deflate: TIFF 6.0, sections 2 and 15. (libtiff 4.5.0 of Debian 12 reads none that are
    not compressed through TIFFRGBAImage.)"""
    pixels, tiles = scene(), []
    for ty in range(0, H, 16):
        for tx in range(0, W, 16):
            tile = numpy.zeros((16, 16, 3), numpy.uint8)
            part = pixels[ty:ty + 16, tx:tx + 16]
            tile[:part.shape[0], :part.shape[1]] = part
            tiles.append(zlib.compress(tile.tobytes()))
    short, long = 3, 4
    entries = [(256, short, [W]), (257, short, [H]), (258, short, [8, 8, 8]), (259, short, [8]), (262, short, [2]),
               (277, short, [3]), (322, short, [16]), (323, short, [16]), (324, long, None),
               (325, long, [len(t) for t in tiles])]
    at = 8 + 2 + 12 * len(entries) + 4
    head, extra = b"MM\0*" + struct.pack(">IH", 8, len(entries)), b""
    sizes = [len(v or tiles) * (2 if t == short else 4) for _, t, v in entries]
    size = sum(s for s in sizes if s > 4)
    for tag, kind, values in entries:
        if values is None:
            values = [at + size + sum(map(len, tiles[:i])) for i in range(len(tiles))]
        data = struct.pack(f">{len(values)}{'H' if kind == short else 'I'}", *values)
        head += struct.pack(">HHI", tag, kind, len(values))
        head += data.ljust(4, b"\0") if len(data) <= 4 else struct.pack(">I", at + len(extra))
        extra += data if len(data) > 4 else b""
    return head + b"\0\0\0\0" + extra + b"".join(tiles)


def main():
    out.mkdir(exist_ok=True)
    rgb = Image.fromarray(scene())
    alpha = rgb.copy()
    alpha.putalpha(Image.fromarray((scene()[:, :, 0] // 2 + 20).astype(numpy.uint8)))
    wide = scene()[:, :, 0].astype(numpy.uint16) * 257 + 40
    rows = {}

    def keep(name, tolerance, picture=None, expected=None, **options):
        path = out / name
        if picture is not None:
            picture.save(path, **options)
        pixels = expected if expected is not None else numpy.asarray(Image.open(path).convert("RGB"))
        rows[name] = (tolerance, pixels)

    keep("lossy.webp", EXACT, rgb, quality=70)
    keep("lossless.webp", EXACT, rgb, lossless=True)
    keep("alpha.webp", EXACT, alpha, lossless=True, exact=True)
    keep("420.avif", CONVERTED, rgb, quality=80, subsampling="4:2:0")
    keep("444.avif", CONVERTED, rgb, quality=90, subsampling="4:4:4")
    keep("alpha.avif", CONVERTED, alpha, quality=90, subsampling="4:4:4")
    keep("strips.tif", EXACT, rgb, strip_size=W * 3 * 4)
    keep("lzw.tif", EXACT, rgb, compression="tiff_lzw")
    keep("deflate.tif", EXACT, rgb, compression="tiff_adobe_deflate")
    keep("alpha.tif", EXACT, alpha)
    keep("palette.tif", EXACT, rgb.quantize(30))
    keep("grey.tif", EXACT, rgb.convert("L"))
    keep("bilevel.tif", EXACT, rgb.convert("1"), compression="group4")
    (out / "tiles.tif").write_bytes(tiled_tiff())
    keep("tiles.tif", EXACT)
    shown = numpy.repeat(((wide.astype(numpy.int64) * 255 + 32767) // 65535)[:, :, None], 3, -1)
    keep("deep.tif", ROUNDED, Image.fromarray(wide), expected=shown)  # Pillow would clip 16 bits to white
    keep("raw.ppm", EXACT, rgb)
    keep("raw.pgm", EXACT, rgb.convert("L"))
    deep = (scene().astype(numpy.uint32) * 1000 // 255).astype(">u2")
    (out / "deep.ppm").write_bytes(f"P6\n# a comment\n{W} {H}\n1000\n".encode() + deep.tobytes())
    keep("deep.ppm", EXACT)
    small = scene()[:5, :7]
    (out / "plain.ppm").write_bytes(f"P3 7 #7\n5\n255\n{' '.join(map(str, small.ravel()))}\n".encode())
    keep("plain.ppm", EXACT)
    levels = small[:, :, 0] % 16
    (out / "plain.pgm").write_bytes(f"P2\n7 5 15\n{' '.join(map(str, levels.ravel()))}".encode())
    keep("plain.pgm", EXACT, expected=numpy.repeat((levels.astype(int) * 17)[:, :, None], 3, -1))
    with open(here / "formats.txt", "w") as f:
        f.write(f"# Pillow {PIL.__version__}, {pathlib.Path(sys.argv[0]).name}, {datetime.date.today()}\n")
        for name, (tolerance, pixels) in rows.items():
            f.write(f"{name} {pixels.shape[1]} {pixels.shape[0]} {tolerance} {pixels.astype(numpy.uint8).tobytes().hex()}\n")


main()
