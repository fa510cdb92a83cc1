#!/usr/bin/env python3
"""What turns an image into an input stands in the weights: training writes it, --eval, predict and fine-tuning use
it. Flags override it, weights without it behave as ever.

    inputs.py TRAIN_RESNET50 [ROW]
"""
import json
import os
import struct
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")]
from rows import run_rows  # noqa: E402
from trainer import SMALL, checkpoint, fails, folders, write_image, run  # noqa: E402

TRAIN = ["--data", "data", *SMALL, "--optim", "sgd", "--max-steps", "1"]


def metadata(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size))["__metadata__"]


def with_metadata(source, target, **changes):
    """A copy of a weights file; None: without this key."""
    with open(source, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    notes = header["__metadata__"]
    for key, value in changes.items():
        notes.pop(key, None)
        if value is not None:
            notes[key] = value
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


NOTES = ("image_size", "crop_pct", "interpolation", "stem", "augment")


def trained(cwd, name, *flags):
    run(*TRAIN, *flags, "--output", name, cwd=cwd)
    return os.path.join(cwd, name, "model.safetensors")


def told(p):
    """The line on network and input, without its area."""
    lines = [line.split("info model: ")[1] for line in p.stderr.splitlines() if "info model: " in line]
    assert len(lines) == 1, p.stderr
    return lines[0]


def weights_tell_how_an_image_becomes_an_input(cwd):
    folders(cwd)
    rows = [
        (["--image-size", "16"], "16 1 bilinear small small"),
        (["--image-size", "96"], "96 0.87 bilinear imagenet imagenet"),
        (["--image-size", "48", "--crop-pct", "0.8", "--interpolation", "bicubic", "--stem", "imagenet", "--augment", "none"],
         "48 0.8 bicubic imagenet none"),
        (["--image-size", "24", "--overfit-batches", "1"], "24 1 bilinear small none"),
    ]
    for i, (flags, want) in enumerate(rows):
        path = trained(cwd, f"run{i}", *flags)
        for file in (path, checkpoint(cwd, f"run{i}", 1)):
            found = metadata(file)
            assert " ".join(found[k] for k in NOTES) == want, f"{flags}: {found}"


def evaluation_and_prediction_use_what_the_weights_tell(cwd):
    folders(cwd, side=40)
    weights = trained(cwd, "run", "--image-size", "28", "--crop-pct", "0.8", "--interpolation", "bicubic")
    bare = os.path.join(cwd, "bare.safetensors")
    with_metadata(weights, bare, **dict.fromkeys(NOTES))
    spelled = ["--image-size", "28", "--crop-pct", "0.8", "--interpolation", "bicubic"]
    for command in (["predict", "data/val/class0/1.bmp", "--weights"],
                    ["--data", "data", "--threads", "1", "--progress", "off", "--eval", "--weights"]):
        said, asked, plain, other = (run(*command, *more, cwd=cwd) for more in (
            [weights], [bare, *spelled], [bare], [weights, "--image-size", "20"]))
        assert said.stdout == asked.stdout != plain.stdout, f"{command}: {said.stdout} {asked.stdout} {plain.stdout}"
        assert other.stdout != said.stdout
        arch = "resnet10 of width 4, small stem, "
        assert told(said) == arch + "28 x 28 pixels (weights), crop 0.8 (weights), bicubic (weights)", said.stderr
        assert told(asked) == arch + "28 x 28 pixels (flag), crop 0.8 (flag), bicubic (flag)", asked.stderr
        side = 32 if command[0] == "predict" else 40
        assert told(plain) == arch + f"{side} x {side} pixels (default), crop 1 (default), bilinear (default)", plain.stderr
        assert told(other) == arch + ("20 x 20 pixels (flag), crop 0.8 (weights), bicubic (weights); the weights were "
                                      "trained at 28 x 28"), other.stderr


def the_usual_crop_of_a_size_is_told_exactly(cwd):
    os.makedirs(os.path.join(cwd, "data", "a"))
    write_image(os.path.join(cwd, "data", "a", "0.bmp"), 300, 7)
    image, base = "data/a/0.bmp", trained(cwd, "run", "--image-size", "96", "--batch-size", "1")
    for size, crop in (("96", "0.87"), ("224", "0.875"), ("160", "0.87")):
        with_metadata(base, os.path.join(cwd, "w"), image_size=size, crop_pct=crop)
        with_metadata(base, os.path.join(cwd, "b"), image_size=size, crop_pct=None)
        a, b = (run("predict", "--weights", w, image, cwd=cwd) for w in "wb")
        assert a.stdout == b.stdout, f"{size}: {a.stdout} {b.stdout}"
        assert f"crop {crop} (default)" in told(b), b.stderr


def fine_tuning_goes_on_at_the_size_of_the_weights(cwd):
    folders(cwd, side=100)
    weights = trained(cwd, "first", "--image-size", "24", "--augment", "none")
    tuned = trained(cwd, "second", "--weights", weights)
    assert " ".join(metadata(tuned)[k] for k in NOTES) == "24 1 bilinear small none", metadata(tuned)
    p = run(*TRAIN, "--weights", weights, "--image-size", "32", "--output", "third", cwd=cwd)
    assert told(p).startswith("resnet10 of width 4, small stem, "), p.stderr
    assert told(p).endswith("32 x 32 pixels (flag), crop 1 (weights), bilinear (weights); the weights were trained at 24 x 24"), p.stderr
    assert metadata(os.path.join(cwd, "third", "model.safetensors"))["augment"] == "small"


def metadata_that_makes_no_sense_is_refused_unless_a_flag_overrides_it(cwd):
    folders(cwd)
    weights, bad = trained(cwd, "run", "--image-size", "16"), os.path.join(cwd, "bad.safetensors")
    image = "data/val/class0/1.bmp"
    for key, value, flag, good in (("image_size", "big", "--image-size", "16"), ("image_size", "1e9", "--image-size", "16"),
                                   ("crop_pct", "7", "--crop-pct", "1"), ("interpolation", "lan\x1bczos", "--interpolation", "bilinear")):
        with_metadata(weights, bad, **{key: value})
        shown = value.replace("\x1b", "\\x1b")
        for command in (["predict", image], ["--data", "data", "--eval"]):
            p = run(*command, "--weights", bad, flag, good, cwd=cwd)
            assert p.stdout, p.stderr
        fails("--data", "data", "--eval", "--weights", bad, cwd=cwd, says=f"{key} '{shown}', want ")
    with_metadata(weights, bad, mean="2")
    test = ["--data", "data", "--eval", "--weights", bad]
    run(*test, "--mean", "0.5,0.5,0.5", cwd=cwd)
    fails(*test, cwd=cwd, says="the weights' metadata: mean: '2' is not R,G,B in 0..1, of 3 channels; --mean overrides it")


ROWS = [weights_tell_how_an_image_becomes_an_input, evaluation_and_prediction_use_what_the_weights_tell,
        the_usual_crop_of_a_size_is_told_exactly, fine_tuning_goes_on_at_the_size_of_the_weights,
        metadata_that_makes_no_sense_is_refused_unless_a_flag_overrides_it]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-inputs-", sys.argv[2] if len(sys.argv) > 2 else None))
