#!/usr/bin/env python3
"""A model family defined outside the trainer: tests/models/mlp.c supports everything that train_resnet50 does.

    family.py TRAIN_MLP MPIRUN|none [ROW]
"""
import json
import os
import subprocess
import sys

from trainer import (ERROR, NOISE, OK, PROGRAM, USAGE, Skip, checkpoint, content, digest, epochs_of, fails, folders, metadata_of, run, run_ranks,
                     run_rows)

LAUNCHER = sys.argv[2]
QUIET = ["--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic"]
WEIGHTS = os.path.join("made", "model.safetensors")


def made(cwd, *flags):
    run(*NOISE, *QUIET, "--max-steps", "6", "--output", "made", *flags, cwd=cwd)


def evaluated(cwd, weights=WEIGHTS, data=NOISE):
    return run("--eval", "--weights", weights, *data, "--threads", "1", cwd=cwd).stdout


def evaluation_equals_that_of_training(cwd):
    made(cwd, "--hidden", "24")
    last = epochs_of(cwd, "made")[-1]
    assert f"top-1 {last['val_top1']:.3f} %" in evaluated(cwd), last
    found = metadata_of(os.path.join(cwd, WEIGHTS))
    assert (found["hidden"], found["image_size"], found["channels"], found["classes"]) == ("24", "16", "3", "3"), found


def training_on_fashion_mnist_succeeds(cwd):
    if not os.path.isdir("/usr/share/datasets/fashion-mnist"):
        raise Skip("dataset-fashion-mnist is not installed")
    text = run("--data", "fashion-mnist", *QUIET, "--batch-size", "64", "--limit-train-batches", "150", "--epochs", "1", "--optim", "shampoo",
               "--lr", "0.05", "--limit-eval-batches", "20", "--output", "made", cwd=cwd)
    assert epochs_of(cwd, "made")[-1]["val_top1"] > 65, text.stderr


def a_resumed_run_is_bitwise_identical(cwd):
    flags = [*NOISE, *QUIET, "--optim", "shampoo", "--ema-decay", "0.9", "--epochs", "3"]
    run(*flags, "--max-steps", "9", "--output", "whole", cwd=cwd)
    for steps in ("4", "9"):
        run(*flags, "--max-steps", steps, "--output", "parts", "--resume", "auto", cwd=cwd)
    assert digest(checkpoint(cwd, "whole", 9)) == digest(checkpoint(cwd, "parts", 9))
    assert digest(os.path.join(cwd, "whole", "model.safetensors")) == digest(os.path.join(cwd, "parts", "model.safetensors"))
    assert digest(checkpoint(cwd, "whole", 9)) != digest(os.path.join(cwd, "whole", "model.safetensors")), "no average"


def a_resume_uses_the_checkpoints_model(cwd):
    made(cwd, "--hidden", "24")
    text = run(*NOISE, *QUIET, "--max-steps", "8", "--output", "made", "--resume", "auto", "--verbose", cwd=cwd)
    assert metadata_of(os.path.join(cwd, WEIGHTS))["hidden"] == "24", text.stderr
    fails(*NOISE, *QUIET, "--hidden", "16", "--max-steps", "9", "--output", "made", "--resume", "auto", cwd=cwd,
          says="'body.weight' is [24,768], but the model needs [16,768]")


def predict_supports_the_family(cwd):
    folders(cwd)
    run("--data", "data", *QUIET, "--batch-size", "4", "--max-steps", "4", "--output", "made", cwd=cwd)
    lines = run("predict", "--json", "--weights", WEIGHTS, "data/val", cwd=cwd).stdout.splitlines()
    assert len(lines) == 12 and json.loads(lines[0])["predictions"][0]["class"].startswith("class"), lines


def inputs_without_augmentation_equal_those_of_evaluation(cwd):
    folders(cwd)
    flags = ["--data", "data", *QUIET, "--batch-size", "4", "--epochs", "1", "--optim", "sgd", "--lr", "1e-12", "--sched", "constant", "--warmup-epochs", "0", "--label-smoothing", "0"]
    for name, more, equal in (("usual", ["--augment", "none"], True), ("part", ["--augment", "none", "--crop-pct", "0.7"], True), ("augmented", [], False)):
        run(*flags, *more, "--output", name, cwd=cwd)
        last = epochs_of(cwd, name)[-1]
        assert (abs(last["train_loss"] - last["val_loss"]) < 1e-5 * last["val_loss"]) == equal, (name, last)


def the_family_has_recipes(cwd):
    config = run("--recipe", "short", *NOISE, "--lr", "0.5", "--print-config", cwd=cwd).stdout.splitlines()
    assert {"hidden: 24", "optim: adamw", "lr: 0.5", "epochs: 2"} <= set(config), config
    fails("--recipe", "shampoo-paper", *NOISE, cwd=cwd, code=USAGE, says="unknown recipe 'shampoo-paper'")


def fine_tuning_with_a_new_head(cwd):
    made(cwd, "--hidden", "24")
    other = ["--data", "synthetic:48:16:4", *QUIET, "--max-steps", "1", "--weights", WEIGHTS]
    fails(*other, cwd=cwd, says="'head.weight' is [3,24], but the model needs [4,24]; --reset-head keeps the rest")
    run(*other, "--reset-head", "--freeze", "^body", "--output", "fine", cwd=cwd)
    assert "over 48 images" in evaluated(cwd, "fine/model.safetensors", ["--data", "synthetic:48:16:4"])


def layer_decay_needs_blocks(cwd):
    fails(*NOISE, *QUIET, "--max-steps", "1", "--layer-decay", "0.5", cwd=cwd, code=USAGE, says="--layer-decay: no parameter has a block's name, such as layer1.0.")


def a_text_flag_overrides_the_weights(cwd):
    made(cwd, "--note", "first")
    run(*NOISE, *QUIET, "--max-steps", "1", "--weights", WEIGHTS, "--note", "second", "--output", "fine", cwd=cwd)
    notes = [metadata_of(os.path.join(cwd, folder, "model.safetensors"))["note"] for folder in ("made", "fine")]
    assert notes == ["first", "second"], notes


def mup_needs_a_width(cwd):
    fails(*NOISE, *QUIET, "--max-steps", "1", "--mup", "8", cwd=cwd, code=USAGE, says="--mup: mlp models have no option --width")


def a_text_too_long_for_the_weights_is_rejected(cwd):
    made(cwd, "--note", 63 * "x")
    fails(*NOISE, *QUIET, "--max-steps", "1", "--note", 64 * "x", cwd=cwd, code=USAGE, says="--note: a text longer than 63 bytes")


def more_options_than_facts_are_rejected(cwd):
    for options, code, says in ((16, OK, ""), (17, USAGE, "family mlp: has 17 options; without describe() at most 16 are possible")):
        p = subprocess.run([PROGRAM, *NOISE, *QUIET, "--max-steps", "1"], cwd=cwd, env={**os.environ, "MLP_OPTIONS": str(options)},
                           capture_output=True, text=True, timeout=60)
        assert p.returncode == code and says in p.stderr, (options, p.stderr)


def unsupported_commands_are_reported(cwd):
    made(cwd)
    p = subprocess.run([PROGRAM, "export", "--weights", WEIGHTS, "--output", "m.onnx"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == ERROR and "train_mlp export: mlp models have no ONNX graph" in p.stderr, p.stderr
    assert not os.path.exists(os.path.join(cwd, "m.onnx"))
    text = run("--help", "all", cwd=cwd, code=OK).stdout
    assert "--hidden N" in text and "--arch" not in text and "train_mlp" in text and "resnet" not in text, text


def batch_norm_flags_are_rejected(cwd):
    for flags in (["--sync-bn"], ["--dist-bn", "broadcast"]):
        fails(*NOISE, *QUIET, *flags, cwd=cwd, code=USAGE, says=f"{flags[0]}: the model, mlp, has no batch norm")
    made(cwd)
    run(*NOISE, *QUIET, "--config", "made/config.yaml", "--max-steps", "2", "--output", "again", cwd=cwd)  # control: the file has all flags


def duplicate_option_names_are_rejected(cwd):
    p = subprocess.run([PROGRAM, "--help"], cwd=cwd, env={**os.environ, "MLP_OPTIONS": "18"}, capture_output=True, text=True, timeout=60)
    assert p.returncode == USAGE and not p.stdout, p.stdout
    assert p.stderr == ("train_mlp: options: duplicate name --learning-rate: --lr (Optimizer) and --learning-rate "
                        "(Model)\n"), p.stderr


def two_ranks(cwd, *flags):
    """Trains on two ranks; returns the state of their checkpoint of step 3."""
    run_ranks(LAUNCHER, 2, *NOISE, *QUIET, *flags, "--max-steps", "3", "--output", "made", cwd=cwd)
    return json.loads(content(checkpoint(cwd, "made", 3, "state.json")))


def two_ranks_train_with_local_steps(cwd):
    """The program aborts if a round is not freed before the device closes."""
    assert two_ranks(cwd, "--local-steps", "2", "--ranks-per-node", "1")["ranks"] == 2


ROWS = [evaluation_equals_that_of_training, training_on_fashion_mnist_succeeds, a_resumed_run_is_bitwise_identical,
        a_resume_uses_the_checkpoints_model, predict_supports_the_family, inputs_without_augmentation_equal_those_of_evaluation, the_family_has_recipes,
        fine_tuning_with_a_new_head, layer_decay_needs_blocks, a_text_flag_overrides_the_weights,
        mup_needs_a_width, a_text_too_long_for_the_weights_is_rejected, more_options_than_facts_are_rejected, unsupported_commands_are_reported,
        batch_norm_flags_are_rejected, duplicate_option_names_are_rejected, two_ranks_train_with_local_steps]

sys.exit(run_rows(ROWS, "lather-family-", *sys.argv[3:4]))
