#!/usr/bin/env python3
"""Exported ONNX models: onnxruntime and examples/onnx.c reproduce the trainer's logits; damaged files are handled safely.

    exported.py TRAIN_RESNET50 EXAMPLE [ROW]
"""
import array
import os
import random
import struct
import subprocess
import sys
import tempfile

from trainer import ERROR, PROGRAM, SMALL, TIMEOUT, USAGE, Skip, content, read_safetensors, run, run_rows

EXAMPLE = os.path.abspath(sys.argv[2])
IMAGES, TOLERANCE = 3, 1e-5
# name, image size, channels, training flags
MODELS = [("colour", 24, 3, ["--arch", "resnet18", "--width", "8"]), ("grey", 28, 1, ["--arch", "resnet18", "--width", "8"]),
          ("photo", 70, 3, ["--arch", "resnet50", "--width", "8", "--crop-pct", "1"]),
          ("plain", 32, 3, ["--arch", "resnet34", "--width", "4", "--stem", "imagenet", "--mean", "0.1,0.2,0.3", "--std", "0.3,0.4,0.5"]),
          ("groups", 32, 3, ["--arch", "resnext50_32x4d", "--width", "16", "--depths", "1,1,1,1"])]


def pixels(image, side, channels):
    rng = random.Random(100 * image + side + channels)
    return bytes(rng.randrange(256) for _ in range(side * side * channels))


def write_bmp(path, data, side, channels):
    """data: [side][side][channels]; grey values are repeated for three channels."""
    row = -(-3 * side // 4) * 4
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + row * side, 0, 0, 54, 40, side, side, 1, 24, 0, row * side, 2835, 2835, 0, 0)
    with open(path, "wb") as f:
        f.write(head)
        for y in reversed(range(side)):
            line = b"".join(bytes(reversed(data[(y * side + x) * channels:][:channels] * (3 // channels))) for x in range(side))
            f.write(line + b"\0" * (row - 3 * side))


def write_idx(cwd, side):
    for part, count in (("train", 12), ("t10k", IMAGES)):
        with open(os.path.join(cwd, "data", f"{part}-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, count, side, side) + b"".join(pixels(i, side, 1) for i in range(count)))
        with open(os.path.join(cwd, "data", f"{part}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 0x801, count) + bytes(i % 3 for i in range(count)))


MADE, FOLDER = {}, tempfile.TemporaryDirectory(prefix="lather-exported-")


def make(name, side, channels, flags):
    """Returns the folder of a trained and exported model, and the trainer's logits; trains it on the first call."""
    if name not in MADE:
        MADE[name] = make_new(os.path.join(FOLDER.name, name), side, channels, flags)
    return MADE[name]


def make_new(cwd, side, channels, flags):
    os.makedirs(os.path.join(cwd, "data", "val"))
    for i in range(12):
        for part in ("train/", "val/") if channels == 3 else ("",):
            folder = os.path.join(cwd, "data", part, f"class{i % 3}") if channels == 3 else cwd
            os.makedirs(folder, exist_ok=True)
            if i < IMAGES or part == "train/":
                write_bmp(os.path.join(folder, f"{i}.bmp"), pixels(i, side, channels), side, channels)
    if channels == 1:
        os.rmdir(os.path.join(cwd, "data", "val"))
        write_idx(cwd, side)
    run("--data", "data", *SMALL, "--image-size", str(side), "--max-steps", "3", "--optim", "sgd", *flags, "--output", "run", cwd=cwd)
    run("export", "--weights", "run/model.safetensors", "--output", "m.onnx", cwd=cwd)
    run("--data", "data", "--eval", "--threads", "1", "--progress", "off", "--weights", "run/model.safetensors", "--save-logits", "l", cwd=cwd)
    tensor = read_safetensors(os.path.join(cwd, "l"))["logits"]
    values = array.array("f", tensor[2]).tolist()
    return cwd, [values[3 * i:3 * i + 3] for i in range(IMAGES)]


def near(got, want, what):
    most, off = max(map(abs, want)), max(abs(a - b) for a, b in zip(got, want))
    assert len(got) == len(want) and off <= TOLERANCE * most, f"{what}: {got}, want {want}"


def an_error_of_1e_4_exceeds_the_tolerance(cwd):
    try:
        near([1.0, 2.0002], [1.0, 2.0], cwd)
    except AssertionError:
        return
    raise AssertionError("1e-4 passes for 1e-5")


def image_of(cwd, i, channels):
    return os.path.join(cwd, "data/val", f"class{i % 3}" if channels == 3 else "", f"{i}.bmp") if channels == 3 else os.path.join(cwd, f"{i}.bmp")


def the_example_reproduces_the_trainers_logits(_):
    for name, side, channels, flags in MODELS:
        folder, want = make(name, side, channels, flags)
        for i in range(IMAGES):
            p = subprocess.run([EXAMPLE, os.path.join(folder, "m.onnx"), image_of(folder, i, channels)], capture_output=True, text=True, timeout=TIMEOUT)
            assert p.returncode == 0, p.stderr
            near([float(line.split()[1]) for line in p.stdout.splitlines()], want[i], f"{name} {i}")


def onnxruntime_reproduces_the_trainers_logits(_):
    try:
        import numpy
        import onnx
        import onnxruntime
    except ImportError as why:
        raise Skip(str(why)) from None
    for name, side, channels, flags in MODELS:
        folder, want = make(name, side, channels, flags)
        path = os.path.join(folder, "m.onnx")
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        metadata = {p.key: p.value for p in model.metadata_props}
        assert metadata["image_size"] == str(side) and metadata["crop_pct"] == "1", metadata
        assert metadata.get("class_names") == ("class0\nclass1\nclass2" if channels == 3 else None), metadata
        mean, deviation = (numpy.array([float(x) for x in metadata[k].split(",")]).reshape(-1, 1, 1) for k in ("mean", "std"))
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        assert session.get_inputs()[0].shape == ["N", channels, side, side], session.get_inputs()[0].shape
        x = [numpy.frombuffer(pixels(i, side, channels), numpy.uint8).reshape(side, side, channels).transpose(2, 0, 1) for i in range(IMAGES)]
        x = ((numpy.stack(x) / 255 - mean) / deviation).astype(numpy.float32)
        for got, row in zip(session.run(["logits"], {"images": x})[0], want):
            near(got.tolist(), row, name)
        weights = read_safetensors(os.path.join(folder, "run/model.safetensors"))
        for t in model.graph.initializer:
            assert weights[t.name][1:] == (list(t.dims), t.raw_data), f"{t.name} differs from the weights"


def damaged_models_are_rejected_or_computed_safely(_):
    folder, _ = make("small", 24, 3, ["--arch", "resnet10", "--width", "2"])
    whole = content(folder, "m.onnx")
    damaged, image, rng = os.path.join(folder, "d.onnx"), image_of(folder, 0, 3), random.Random(4)
    head = whole.find(b"fc.bias") + 400  # the nodes; weights follow
    refused = 0
    for i in range(40):
        data = bytearray(whole)
        if i < 10:
            del data[rng.randrange(len(data)):]
        for _ in range(rng.choice((1, 3))):
            if data:
                data[rng.randrange(min(head, len(data)))] = rng.randrange(256)
        with open(damaged, "wb") as f:
            f.write(data)
        p = subprocess.run([EXAMPLE, damaged, image], capture_output=True, timeout=TIMEOUT)
        assert p.returncode in (0, ERROR), f"{i}: {p.returncode}: {p.stderr[-500:]}"
        refused += p.returncode == ERROR
    assert refused > 12, refused


def invalid_exports_are_rejected(_):
    folder, _ = make("small", 24, 3, ["--arch", "resnet10", "--width", "2"])
    rows = [(["--weights", "run/model.safetensors"], USAGE), (["--output", "x"], USAGE), (["--bogus"], USAGE),
            (["--weights", "none", "--output", "x"], ERROR), (["--weights", "run/model.safetensors", "--output", "no/x"], ERROR)]
    for flags, code in rows:
        p = subprocess.run([PROGRAM, "export", *flags], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
        assert p.returncode == code and p.stderr.count("train_resnet50 export: ") == 1, f"{flags}: {p.returncode} {p.stderr}"
    assert not os.path.exists(os.path.join(folder, "x"))


ROWS = [an_error_of_1e_4_exceeds_the_tolerance, the_example_reproduces_the_trainers_logits, onnxruntime_reproduces_the_trainers_logits,
        damaged_models_are_rejected_or_computed_safely, invalid_exports_are_rejected]

sys.exit(run_rows(ROWS, "lather-onnx-", *sys.argv[3:4]))
