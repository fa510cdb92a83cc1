#!/usr/bin/env python3
"""Predictions of --eval: eval.json compared with the logits of the same evaluation.

    evaluation.py TRAIN_RESNET50 [ROW]
"""
import array
import base64
import json
import math
import os
import struct
import sys

from trainer import NOISE, SMALL, USAGE, content, fails, folders, metadata_of, read_safetensors, records, run, run_rows, write_image, write_safetensors

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


def softmax(row):
    e = [math.exp(x - max(row)) for x in row]
    return [x / sum(e) for x in e]


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def ranking(score, positive):
    """Area under the ROC curve by pairs, and average precision by thresholds: scikit-learn's definitions."""
    yes, no = ([s for s, p in zip(score, positive) if p == wanted] for wanted in (True, False))
    auc = sum((a > b) + (a == b) / 2 for a in yes for b in no) / len(yes) / len(no)
    steps = [(sum(s >= t for s in yes), sum(s >= t for s in score)) for t in sorted(set(score), reverse=True)]
    return auc, sum((b[0] - a[0]) / len(yes) * b[0] / b[1] for a, b in zip([(0, 0), *steps], steps))


def class_results_and_confusion_match_the_logits(cwd):
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
        assert abs(c["f1"] - 200 * want[i][i] / (30 + column)) < 1e-9, c
    scores = [[f32(softmax(row)[k]) for row in rows] for k in range(3)]  # rounded as by the program: equal ones are one threshold
    auc, ap = zip(*(ranking(score, [label == k for label in labels]) for k, score in enumerate(scores)))
    for key, value in (("auc", sum(auc) / 3), ("map", sum(ap) / 3), ("f1_micro", said["top1"] / 100), ("f1_macro", sum(c["f1"] for c in said["classes"]) / 300)):
        assert abs(said[key] - 100 * value) < 1e-4, (key, said[key], 100 * value)
    assert 40 < said["auc"] < 99.9, said["auc"]
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


def rearranged(cwd, folder, rows, columns):
    """Writes the evaluation images with these rows, counted from the bottom, and columns to a folder."""
    for root, _, names in os.walk(os.path.join(cwd, "data/val")):
        for name in names:  # 20 x 20 pixels of 24 bits in rows of 60 bytes
            data = content(root, name)
            path = os.path.join(root, name).replace("/data/", f"/{folder}/")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data[:54] + b"".join(data[54 + 60 * y + 3 * x:][:3] for y in rows for x in columns))


def mirrored_and_shifted_images_are_averaged_by_tta(cwd):
    folders(cwd)
    trained(cwd)
    rearranged(cwd, "mirrored", range(20), range(19, -1, -1))
    before, after = [1, *range(19)], [*range(1, 20), 18]  # pixels beyond the edge are reflected; files store the bottom row first
    rearranged(cwd, "left", before, after)
    rearranged(cwd, "right", after, before)

    def logits(*flags):
        run(*EVAL, "--image-size", "20", "--crop-pct", "1", "--save-logits", "l", *flags, cwd=cwd)
        return array.array("f", read_safetensors(os.path.join(cwd, "l"))["logits"][2])
    plain, other, both = logits(), logits("--data", "mirrored"), logits("--tta", "hflip")
    errors = max(abs((a + b) / 2 - c) for a, b, c in zip(plain, other, both)), max(abs(a - c) for a, c in zip(plain, both))
    assert errors[0] < 1e-5 < errors[1], errors
    moved = [logits("--tta", "hflip", "--data", folder) for folder in ("left", "right")]
    want = [a / 2 + (b + c) / 4 for a, b, c in zip(both, *moved)]
    shifted = logits("--tta", "shift")
    errors = max(abs(a - b) for a, b in zip(want, shifted)), max(abs(a - b) for a, b in zip(both, shifted))
    assert errors[0] < 1e-5 < errors[1], errors


def tta_fits_the_input_that_the_weights_choose(cwd):
    folders(cwd, side=16)
    trained(cwd, "--stem", "imagenet")
    tensors = read_safetensors(os.path.join(cwd, "run/model.safetensors"))
    write_safetensors(os.path.join(cwd, "bare.safetensors"), tensors, {})  # only the stem determines the size, 224

    def logits(*flags):
        run(*EVAL, "--weights", "bare.safetensors", "--save-logits", "l", *flags, cwd=cwd)
        return read_safetensors(os.path.join(cwd, "l"))["logits"]
    for kind in "hflip", "shift":
        assert logits("--tta", kind) == logits("--tta", kind, "--image-size", "224") != logits(), kind


def class_weights_scale_the_loss_of_training(cwd):
    folders(cwd)
    train = ["--data", "data", *SMALL, "--epochs", "2", "--eval-every", "2", "--overwrite", "--output"]

    def losses(name, *flags):
        run(*train, name, *flags, cwd=cwd)
        return [r["loss"] for r in records(cwd, name, "step")]
    plain, equal = losses("plain"), losses("equal", "--class-weights", "class0=2,class1=2,class2=2")
    assert max(abs(a - b) for a, b in zip(plain, equal)) < 1e-4 and losses("balanced", "--class-weights", "balanced") == losses("ones", "--class-weights", "class0=1")
    assert max(abs(a - b) for a, b in zip(plain, losses("one", "--class-weights", "class1=0.1"))) > 1e-2
    for name, flags in ("tuned", ["--weights", "plain"]), ("ones", ["--resume", "auto", "--epochs", "3"]):
        weight = ["--class-weights", "class0=1"]
        run("--data", "data", *SMALL, "--epochs", "2", "--output", name, *weight, *flags, cwd=cwd)
        assert len(records(cwd, name, "step")) == (9 if name == "ones" else 6), name
    for text, says in (("cat=2", "no class 'cat' in the data"), ("class0", "is not NAME=WEIGHT"), ("class0=-1", "is not NAME=WEIGHT")):
        fails("--data", "data", *SMALL, "--class-weights", text, cwd=cwd, code=USAGE, says=says)
    fails("--data", "data", *SMALL, "--class-weights", "balanced", "--mixup-alpha", "1", cwd=cwd, code=USAGE, says="--mixup-alpha contradict")


def sample_images_match_the_files(cwd):
    folders(cwd)  # green and red are constant, blue increases to the right
    trained(cwd)
    run(*EVAL, "--eval-json", "e.json", cwd=cwd)
    for s in load(cwd, "e.json")["samples"]:
        shade = int(s["path"][len("data/val/class")]) * 80 + int(os.path.basename(s["path"])[:-len(".bmp")]) * 5
        side, data = bmp_of(s)
        blue, green, red = (data[i::3] for i in range(3))  # rows of 48 bytes are not padded
        assert set(green) == {shade} and set(red) == {255 - shade}, (s["path"], shade, set(green), set(red))
        assert len(blue) == side * side and blue[:side] == bytes(sorted(blue[:side])) and blue[0] < blue[side - 1], (shade, blue[:side])


def the_report_is_written_and_independent_of_the_batch_size(cwd):
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


def many_classes_omit_the_matrix_and_large_images_are_reduced(cwd):
    run("--data", "synthetic:300:16:300", *SMALL, "--max-steps", "1", "--optim", "sgd", "--output", "run", cwd=cwd)
    run("--data", "synthetic:300:16:300", *EVAL[2:], "--image-size", "150", "--eval-json", "e.json", cwd=cwd)
    said = load(cwd, "e.json")
    assert "confusion" not in said and len(said["classes"]) == 300 and said["confused"], said.keys()
    assert {bmp_of(s)[0] for s in said["samples"]} == {50}


def corrupt_images_do_not_shift_the_others(cwd):
    folders(cwd, images=3)
    trained(cwd)
    with open(os.path.join(cwd, "data/val/class0/1.bmp"), "wb"):
        pass
    write_image(os.path.join(cwd, "data/val/class2/2.bmp"), 20, 250)
    run(*EVAL, "--eval-json", "e.json", cwd=cwd)
    said = load(cwd, "e.json")
    assert said["images"] == 9 and [c["images"] for c in said["classes"]] == [3, 3, 3], said["classes"]
    names = [s["path"] for s in said["samples"]]
    assert "data/val/class0/1.bmp" not in names and names.count("data/val/class0/2.bmp") == 2, names  # its replacement
    for s in said["samples"]:
        assert s["path"].startswith(f"data/val/class{s['label']}/"), s["path"]


def reordered(cwd, order, names):
    """Writes the weights with the rows of their last layer reordered, with these class names."""
    path = os.path.join(cwd, "run/model.safetensors")
    tensors, metadata = read_safetensors(path), metadata_of(path)
    for name in ("fc.weight", "fc.bias"):
        kind, shape, data = tensors[name]
        size = len(data) // 3
        tensors[name] = (kind, shape, b"".join(data[i * size:(i + 1) * size] for i in order))
    write_safetensors(os.path.join(cwd, "other.safetensors"), tensors, {**metadata, "class_names": "\n".join(names)})
    return ["--weights", "other.safetensors", *EVAL[2:6], "--image-size", "16"]


def classes_are_matched_by_name(cwd):
    folders(cwd, images=6)
    trained(cwd)
    want = run(*EVAL, "--eval-json", "e.json", cwd=cwd).stdout
    classes = {c["name"]: c for c in load(cwd, "e.json")["classes"]}
    assert len({c["correct"] for c in classes.values()}) > 1, "equal results would hide a mistake"
    other = reordered(cwd, (2, 0, 1), ["class2", "class0", "class1"])
    p = run("--data", "data", *other, "--eval", "--eval-json", "e.json", cwd=cwd)
    assert p.stdout == want and "data: 3 of the 3 classes of other.safetensors, matched by name; all 3 outputs are used" in p.stderr, (p.stdout, want, p.stderr)
    assert {c["name"]: c for c in load(cwd, "e.json")["classes"]} == classes
    assert [c["name"] for c in load(cwd, "e.json")["classes"]] == ["class2", "class0", "class1"]
    p = run("--data", "data", *other, "--max-steps", "1", "--lr", "1e-9", "--batch-size", "4", "--workers", "1", "--output", "fine", cwd=cwd)
    assert metadata_of(os.path.join(cwd, "fine/model.safetensors"))["class_names"] == "class2\nclass0\nclass1"
    run("--data", "data", *other, "--max-steps", "2", "--lr", "1e-9", "--batch-size", "4", "--workers", "1", "--output", "fine",
        "--resume", "auto", cwd=cwd)


def a_subset_of_the_classes_is_evaluated_among_all(cwd):
    folders(cwd, images=6)
    trained(cwd)
    run(*EVAL, "--save-logits", "l", cwd=cwd)
    values = array.array("f", read_safetensors(os.path.join(cwd, "l"))["logits"][2])
    rows = [(i, values[3 * i:3 * i + 3]) for i in range(6, 18)]  # class1 and class2
    right = sum(max(range(3), key=lambda k, row=row: row[k]) == i // 6 for i, row in rows)
    for part in ("train", "val"):
        os.rename(os.path.join(cwd, "data", part, "class0"), os.path.join(cwd, part))
    p = run(*EVAL, cwd=cwd)
    assert f"top-1 {100 * right / 12:.3f} %" in p.stdout and "over 12 images" in p.stdout, (p.stdout, right)
    assert "data: 2 of the 3 classes of run/model.safetensors, matched by name; all 3 outputs are used" in p.stderr, p.stderr
    fails(*SMALL, "--data", "data", "--weights", "run", "--max-steps", "1", cwd=cwd, says="--reset-head")


def unknown_classes_are_rejected(cwd):
    folders(cwd)
    trained(cwd)
    for part in ("train", "val"):
        for c in (0, 2):
            os.rename(os.path.join(cwd, "data", part, f"class{c}"), os.path.join(cwd, "data", part, f"other{c}"))
    says = "data: classes that run/model.safetensors does not have: other0, other2; "
    fails(*EVAL, cwd=cwd, says=says + "evaluate images of its classes, or train on these with --reset-head")
    tune = [*SMALL, "--data", "data", "--image-size", "16", "--weights", "run/model.safetensors", "--max-steps", "1"]
    fails(*tune, cwd=cwd, says=says + "--reset-head makes a new last layer for them")
    run(*tune, "--reset-head", cwd=cwd)
    assert not run(*EVAL, "--save-logits", "l", cwd=cwd).stdout, "printed an accuracy for other classes"
    assert read_safetensors(os.path.join(cwd, "l"))["logits"][1] == [12, 3]


ROWS = [classes_are_matched_by_name, a_subset_of_the_classes_is_evaluated_among_all, unknown_classes_are_rejected,
        class_results_and_confusion_match_the_logits, mirrored_and_shifted_images_are_averaged_by_tta, tta_fits_the_input_that_the_weights_choose,
        class_weights_scale_the_loss_of_training, sample_images_match_the_files,
        the_report_is_written_and_independent_of_the_batch_size,
        many_classes_omit_the_matrix_and_large_images_are_reduced, corrupt_images_do_not_shift_the_others]

sys.exit(run_rows(ROWS, "lather-evaluation-", *sys.argv[2:3]))
