#!/usr/bin/env python3
"""report draws optim_stats.bin: the numbers of the file, in the order of the network, on a page of bounded size.

    test_report_optim.py REPORT-PROGRAM
"""
import base64
import math
import os
import re
import struct
import subprocess
import sys
import zlib

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"), os.path.dirname(os.path.realpath(sys.argv[1]))]

import optim_stats_files as files  # noqa: E402
from report_lib.optim_stats import read_optim_stats  # noqa: E402
from report_lib.optimizer import SEQUENTIAL  # noqa: E402
from rows import run_rows  # noqa: E402

REPORT = os.path.abspath(sys.argv[1])
NAMES = ["conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "fc.weight"]
SHAPES = [(NAMES[0], [8, 9]), (NAMES[1], [8]), (NAMES[2], [16, 72]), (NAMES[3], [10, 64])]
LIMIT = 4 << 20  # bytes of a page of ResNet-50's size


def ratio(step):
    """update_ratio: 1, 10, 100, 1000 for the parameters, at the second record ten times as large."""
    return lambda i, row: (math.nan if i == 1 else math.inf) if step == 30 and i < 2 else 10.0 ** (i % 4) * (10 if step == 20 else 1)


def made(folder, steps=(10, 20, 30), name="optim_stats.bin", shapes=SHAPES, **more):
    os.makedirs(folder, exist_ok=True)
    files.write(f"{folder}/{name}", files.header(shapes, **more), [(step, files.healthy({("parameter", "update_ratio"): ratio(step)})) for step in steps])
    with open(f"{folder}/metrics.jsonl", "w", encoding="utf-8") as file:
        file.write('{"event":"step","step":1,"loss":1}\n{"event":"step","step":2,"loss":1}\n')
    return folder


def page(*runs):
    out = os.path.join(runs[0], "page.html")
    done = subprocess.run([REPORT, *runs, "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(out, encoding="utf-8") as file:
        return file.read()


def pixels(data):
    """Rows of colours of a PNG image as the page has it; None where it is transparent."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        kind, body = data[at + 4:at + 8], data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + body) == int.from_bytes(data[at + 8 + length:at + 12 + length], "big"), kind
        chunks[kind], at = body, at + 12 + length
    width, height = (int.from_bytes(chunks[b"IHDR"][i:i + 4], "big") for i in (0, 4))
    plain = zlib.decompress(chunks[b"IDAT"])
    assert len(plain) == height * (width + 1)
    return [[tuple(chunks[b"PLTE"][3 * i:3 * i + 3]) if i else None for i in plain[row * (width + 1) + 1:(row + 1) * (width + 1)]] for row in range(height)]


def image(text, index):
    return pixels(base64.b64decode(re.findall(r'src="data:image/png;base64,([^"]*)"', text)[index]))


def reads_files_oldest_first_and_joins_those_of_the_same_tables(folder):
    made(folder, (10, 20), "optim_stats.10.bin", shapes=SHAPES[:2])
    made(folder, (30, 40), "optim_stats.2.bin", every=5)
    made(folder, (50, 60))
    found = read_optim_stats(folder)
    assert [stats.steps for stats in found] == [[30, 40], [10, 20], [50, 60]], [stats.steps for stats in found]
    os.remove(f"{folder}/optim_stats.10.bin")
    found = read_optim_stats(folder)
    assert [stats.steps for stats in found] == [[30, 40, 50, 60]]
    assert found[0].series("parameter", 3, "update_ratio") == [1000] * 4 and found[0].series("parameter", 0, "none")[0] != 0
    assert found[0].series("factor", 5, "effective_rank")[0] == struct_float(64 / 3)
    assert found[0].name("factor", 3) == "layer1.0.conv1.weight dim 1" and found[0].rule(2) == "root" and found[0].rule(math.nan) == ""


def struct_float(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def draws_the_numbers_names_and_rules_of_the_file(folder):
    text = page(made(folder))
    assert "<h2>Optimizer</h2>" in text and "<script" not in text and "url(" not in text
    rows = image(text, 0)  # update_ratio is the first
    assert len(rows) == 4 and len(rows[0]) == 3
    assert rows[0][0] == SEQUENTIAL[0] and rows[3][1] == SEQUENTIAL[-1] and rows[1][2] is None and rows[0][2] == SEQUENTIAL[-1], rows
    assert rows[0][1] == rows[1][0] and rows[2][1] == rows[3][0]  # ten times the number of the parameter before
    for said in ("layer1.0.conv1.weight, step 20: 1000", "bn1.weight, step 30: does not apply", "conv1.weight, step 30: inf", "update ratio, logarithmic",
                 "<tr><td>root<td>3<td>conv1.weight, layer1.0.conv1.weight, fc.weight</tr>", "<tr><td>diagonal<td>1<td>bn1.weight</tr>"):
        assert said in text, said
    labels = re.findall(r'class="name" text-anchor="end">([^<]*)</text>', text)
    assert labels[:4] == NAMES, labels[:4]
    assert text.count('class="band f2"') == 4 * 6 and text.count('<polyline class="s1 thin"') == 6


def keeps_the_page_of_161_parameters_small(folder):
    shapes = [(f"layer{i}.conv.weight", [64, 576]) if i % 2 else (f"layer{i}.bn<b>.weight", [64]) for i in range(161)]
    text = page(made(folder, range(50, 20050, 50), shapes=shapes))
    assert len(text) < LIMIT, len(text)
    assert "Drawn: 201 of 400 records." in text and "layer0.bn&lt;b&gt;.weight" in text and "<b>" not in text
    assert len(image(text, 0)[0]) <= 241
    assert "the worst 24 of 160 factors" in text


def has_no_such_part_without_the_file_and_compares_summaries(folder):
    runs = [made(f"{folder}/{name}") for name in "ab"]
    for run in runs:
        os.remove(f"{run}/optim_stats.bin")
    assert "Optimizer" not in page(runs[0])
    assert "<title>Update ratio" not in page(*runs)
    for step in (1, 2):
        with open(f"{runs[0]}/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(f'{{"event":"optim_stats","step":{step},"update_ratio_median":0.001,"rule_root":7}}\n')
    assert re.search(r"<title>Update ratio, median of parameters</title>(?:(?!</svg>).)*<polyline class=\"s0\"", page(*runs), re.S)


if __name__ == "__main__":
    sys.exit(run_rows([reads_files_oldest_first_and_joins_those_of_the_same_tables, draws_the_numbers_names_and_rules_of_the_file,
                       keeps_the_page_of_161_parameters_small, has_no_such_part_without_the_file_and_compares_summaries], "lather-report-"))
