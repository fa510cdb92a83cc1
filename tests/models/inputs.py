#!/usr/bin/env python3
"""Input preprocessing in the weights' metadata: written by training, used by --eval, predict and fine-tuning,
overridden by flags, with defaults if absent.

    inputs.py TRAIN_RESNET50 [ROW]
"""
import os
import sys

from trainer import SMALL, checkpoint, fails, folders, metadata_of, read_header, run, run_rows, write_header, write_image

TRAIN = ["--data", "data", *SMALL, "--optim", "sgd", "--max-steps", "1"]


def with_metadata(source, target, **changes):
    """Copies a weights file with changed metadata; None removes a key."""
    header, data = read_header(source)
    changed = {**header["__metadata__"], **changes}
    header["__metadata__"] = {key: value for key, value in changed.items() if value is not None}
    write_header(target, header, data)


KEYS = ("image_size", "crop_pct", "interpolation", "stem", "augment")


def trained(cwd, name, *flags):
    run(*TRAIN, *flags, "--output", name, cwd=cwd)
    return os.path.join(cwd, name, "model.safetensors")


def model_line(p):
    """Returns the logged line on network and input, without its area."""
    lines = [line.split("info model: ")[1] for line in p.stderr.splitlines() if "info model: " in line]
    assert len(lines) == 1, p.stderr
    return lines[0]


def weights_contain_the_preprocessing(cwd):
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
            found = metadata_of(file)
            assert " ".join(found[k] for k in KEYS) == want, f"{flags}: {found}"


def evaluation_and_prediction_use_the_metadata(cwd):
    folders(cwd, side=40)
    weights = trained(cwd, "run", "--image-size", "28", "--crop-pct", "0.8", "--interpolation", "bicubic")
    bare = os.path.join(cwd, "bare.safetensors")
    with_metadata(weights, bare, **dict.fromkeys(KEYS))
    spelled = ["--image-size", "28", "--crop-pct", "0.8", "--interpolation", "bicubic"]
    for command in (["predict", "data/val/class0/1.bmp", "--weights"],
                    ["--data", "data", "--threads", "1", "--progress", "off", "--eval", "--weights"]):
        said, asked, plain, other = (run(*command, *more, cwd=cwd) for more in (
            [weights], [bare, *spelled], [bare], [weights, "--image-size", "20"]))
        assert said.stdout == asked.stdout != plain.stdout, f"{command}: {said.stdout} {asked.stdout} {plain.stdout}"
        assert other.stdout != said.stdout
        arch = "resnet10 of width 4, small stem, "
        assert model_line(said) == arch + "28 x 28 pixels (weights), crop 0.8 (weights), bicubic (weights)", said.stderr
        assert model_line(asked) == arch + "28 x 28 pixels (flag), crop 0.8 (flag), bicubic (flag)", asked.stderr
        side = 32 if command[0] == "predict" else 40
        assert model_line(plain) == arch + f"{side} x {side} pixels (default), crop 1 (default), bilinear (default)", plain.stderr
        assert model_line(other) == arch + ("20 x 20 pixels (flag), crop 0.8 (weights), bicubic (weights); the weights were "
                                      "trained at 28 x 28"), other.stderr


def the_default_crop_of_a_size_is_exact(cwd):
    os.makedirs(os.path.join(cwd, "data", "a"))
    write_image(os.path.join(cwd, "data", "a", "0.bmp"), 300, 7)
    image, base = "data/a/0.bmp", trained(cwd, "run", "--image-size", "96", "--batch-size", "1")
    for size, crop in (("96", "0.87"), ("224", "0.875"), ("160", "0.87")):
        with_metadata(base, os.path.join(cwd, "w"), image_size=size, crop_pct=crop)
        with_metadata(base, os.path.join(cwd, "b"), image_size=size, crop_pct=None)
        a, b = (run("predict", "--weights", w, image, cwd=cwd) for w in "wb")
        assert a.stdout == b.stdout, f"{size}: {a.stdout} {b.stdout}"
        assert f"crop {crop} (default)" in model_line(b), b.stderr


def fine_tuning_uses_the_size_of_the_weights(cwd):
    folders(cwd, side=100)
    weights = trained(cwd, "first", "--image-size", "24", "--augment", "none")
    tuned = trained(cwd, "second", "--weights", weights)
    assert " ".join(metadata_of(tuned)[k] for k in KEYS) == "24 1 bilinear small none", metadata_of(tuned)
    p = run(*TRAIN, "--weights", weights, "--image-size", "32", "--output", "third", cwd=cwd)
    assert model_line(p).startswith("resnet10 of width 4, small stem, "), p.stderr
    assert model_line(p).endswith("32 x 32 pixels (flag), crop 1 (weights), bilinear (weights); the weights were trained at 24 x 24"), p.stderr
    assert metadata_of(os.path.join(cwd, "third", "model.safetensors"))["augment"] == "small"


def invalid_metadata_is_rejected_unless_a_flag_overrides_it(cwd):
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
        fails("--data", "data", "--eval", "--weights", bad, cwd=cwd, says=f"{key} '{shown}', expected ")
    with_metadata(weights, bad, mean="2")
    test = ["--data", "data", "--eval", "--weights", bad]
    run(*test, "--mean", "0.5,0.5,0.5", cwd=cwd)
    fails(*test, cwd=cwd, says="the weights' metadata: mean: '2' is not R,G,B in 0..1, of 3 channels; --mean overrides it")


ROWS = [weights_contain_the_preprocessing, evaluation_and_prediction_use_the_metadata,
        the_default_crop_of_a_size_is_exact, fine_tuning_uses_the_size_of_the_weights,
        invalid_metadata_is_rejected_unless_a_flag_overrides_it]

sys.exit(run_rows(ROWS, "lather-inputs-", *sys.argv[2:3]))
