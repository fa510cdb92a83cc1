#!/usr/bin/env python3
"""--eval tells what its images were taken for: eval.json, against the logits of the same evaluation.

    evaluation.py TRAIN_RESNET50 [ROW]
"""
import array
import base64
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import run_rows  # noqa: E402
from trainer import NOISE, SMALL, USAGE, fails, folders, write_image, read_safetensors, run  # noqa: E402

EVAL = ["--data", "data", "--threads", "1", "--progress", "off", "--eval", "--weights", "run/model.safetensors"]


def trained(cwd, *flags):
    run("--data", "data", *SMALL, "--image-size", "16", "--max-steps", "6", "--lr", "0.02", "--optim", "sgd", "--output", "run",
        *flags, cwd=cwd)


def load(cwd, name):
    with open(os.path.join(cwd, name), encoding="utf-8") as f:
        return json.load(f)


def bmp_of(sample):
    kind, data = sample["image"].split(",", 1)
    assert kind == "data:image/bmp;base64", kind
    data = base64.b64decode(data, validate=True)
    size, offset, side, height, bits = (*struct.unpack_from("<I", data, 2), *struct.unpack_from("<I", data, 10),
                                        *struct.unpack_from("<ii", data, 18), *struct.unpack_from("<H", data, 28))
    assert data[:2] == b"BM" and size == len(data) == 54 + height * (-(-3 * side // 4) * 4) and (offset, bits) == (54, 24)
    return side, data[54:]


def each_class_and_confusion_are_those_of_the_logits(cwd):
    folders(cwd, images=30)
    os.rename(os.path.join(cwd, "data/val/class1"), os.path.join(cwd, "data/val/<b>&\x1b"))
    os.rename(os.path.join(cwd, "data/train/class1"), os.path.join(cwd, "data/train/<b>&\x1b"))
    trained(cwd)
    run(*EVAL, "--batch-size", "7", "--save-logits", "l", "--eval-json", "e.json", cwd=cwd)
    said, logits = load(cwd, "e.json"), read_safetensors(os.path.join(cwd, "l"))
    values, labels = array.array("f", logits["logits"][2]), array.array("q", logits["labels"][2])
    rows = [list(values[3 * i:3 * i + 3]) for i in range(len(labels))]
    guess = [row.index(max(row)) for row in rows]
    want = [[sum(1 for a, b in zip(labels, guess) if (a, b) == (i, j)) for j in range(3)] for i in range(3)]
    assert said["confusion"] == want and said["images"] == 90, said["confusion"]
    assert [c["name"] for c in said["classes"]] == ["<b>&\\x1b", "class0", "class2"], said["classes"]
    for i, c in enumerate(said["classes"]):
        column = sum(row[i] for row in want)
        assert (c["images"], c["correct"], c["predicted"]) == (30, want[i][i], column), c
        assert abs(c["top1"] - want[i][i] / 0.3) < 1e-9 and (c["precision"] is None) == (column == 0), c
    pairs = sorted(((-want[i][j], i, j) for i in range(3) for j in range(3) if i != j and want[i][j]))
    assert [(-p["count"], p["label"], p["predicted"]) for p in said["confused"]] == pairs, said["confused"]
    shown = said["samples"]
    wrong = [s for s in shown if s["predictions"][0]["index"] != s["label"]]
    assert len(wrong) == min(16, 90 - sum(want[i][i] for i in range(3))) and shown[:len(wrong)] == wrong and len(shown) <= 24
    for part in (wrong, shown[len(wrong):]):
        assert [s["probability"] for s in part] == sorted(s["probability"] for s in part)
        assert all(labels[s["sample"]] == s["label"] and guess[s["sample"]] == s["predictions"][0]["index"] for s in part)
        assert all(bmp_of(s)[0] == 16 for s in part)
    assert len({s["path"] for s in shown}) == len(shown)


def sample_images_are_those_of_the_files(cwd):
    folders(cwd)  # green and red are one shade each, blue rises to the right
    trained(cwd)
    run(*EVAL, "--eval-json", "e.json", cwd=cwd)
    for s in load(cwd, "e.json")["samples"]:
        shade = int(s["path"][len("data/val/class")]) * 80 + int(os.path.basename(s["path"])[:-len(".bmp")]) * 5
        side, data = bmp_of(s)
        blue, green, red = (data[i::3] for i in range(3))  # rows of 48 bytes are not padded
        assert set(green) == {shade} and set(red) == {255 - shade}, (s["path"], shade, set(green), set(red))
        assert len(blue) == side * side and blue[:side] == bytes(sorted(blue[:side])) and blue[0] < blue[side - 1], (shade, blue[:side])


def a_used_folder_gets_the_file_and_every_batch_size_the_same(cwd):
    folders(cwd, images=10)
    trained(cwd)
    files = []
    for batch in ("1", "4", "30"):
        run(*EVAL, "--batch-size", batch, "--output", "run", cwd=cwd)
        files.append(load(cwd, "run/eval.json"))
    for f in files:
        for s in f["samples"]:
            s["probability"] = round(s["probability"], 4)
            s["predictions"] = [[p["index"], round(p["probability"], 4)] for p in s["predictions"]]
        f["loss"] = round(f["loss"], 4)
    assert files[0] == files[1] == files[2]
    run(*EVAL, "--output", "run", "--eval-json", "also.json", cwd=cwd)  # written to both
    assert load(cwd, "also.json") == load(cwd, "run/eval.json") and load(cwd, "also.json")["samples"]
    fails(*NOISE, *SMALL, "--eval-json", "x", cwd=cwd, code=USAGE, says="--eval-json: needs --eval")


def many_classes_have_no_matrix_and_large_images_become_small(cwd):
    run("--data", "synthetic:300:16:300", *SMALL, "--max-steps", "1", "--optim", "sgd", "--output", "run", cwd=cwd)
    run("--data", "synthetic:300:16:300", *EVAL[2:], "--image-size", "150", "--eval-json", "e.json", cwd=cwd)
    said = load(cwd, "e.json")
    assert "confusion" not in said and len(said["classes"]) == 300 and said["confused"], said.keys()
    assert {bmp_of(s)[0] for s in said["samples"]} == {50}


def broken_images_do_not_shift_the_others(cwd):
    folders(cwd, images=3)
    trained(cwd)
    with open(os.path.join(cwd, "data/val/class0/1.bmp"), "wb"):
        pass
    write_image(os.path.join(cwd, "data/val/class2/2.bmp"), 20, 250)
    run(*EVAL, "--eval-json", "e.json", cwd=cwd)
    said = load(cwd, "e.json")
    assert said["images"] == 9 and [c["images"] for c in said["classes"]] == [3, 3, 3], said["classes"]
    names = [s["path"] for s in said["samples"]]
    assert "data/val/class0/1.bmp" not in names and names.count("data/val/class0/2.bmp") == 2, names  # in its place
    for s in said["samples"]:
        assert s["path"].startswith(f"data/val/class{s['label']}/"), s["path"]


ROWS = [each_class_and_confusion_are_those_of_the_logits, sample_images_are_those_of_the_files,
        a_used_folder_gets_the_file_and_every_batch_size_the_same,
        many_classes_have_no_matrix_and_large_images_become_small, broken_images_do_not_shift_the_others]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-evaluation-", *sys.argv[2:3]))
