#!/usr/bin/env python3
"""Rows specific to train_vit: options of the network, weights of other grids, metadata, invalid input.

    vit.py BUILD/models/vit/train_vit [ROW]
"""
import array
import os
import subprocess
import sys

from trainer import (ERROR, NOISE, PROGRAM, SMALL, SOURCE, USAGE, checkpoint, digest, epochs_of, fails, folders, metadata_of, read_safetensors, run,
                     run_rows, steps_of, write_safetensors)

WEIGHTS = os.path.join("made", "model.safetensors")
POSITIONS = "encoder.pos_embedding"


def made(cwd, *flags, folder="made"):
    run(*NOISE, *SMALL, "--optim", "adamw", "--max-steps", "6", "--output", folder, *flags, cwd=cwd)


def evaluated(cwd, *flags, weights=WEIGHTS, data=NOISE):
    run("--eval", "--weights", weights, *data, "--threads", "1", "--progress", "off", "--save-logits", "l.safetensors", *flags, cwd=cwd)
    return array.array("f", read_safetensors(os.path.join(cwd, "l.safetensors"))["logits"][2]).tolist()


def rewrite(cwd, source, target, change, metadata=True):
    """Copies a weights file with changed tensors, with or without metadata."""
    tensors = read_safetensors(os.path.join(cwd, source))
    change(tensors)
    write_safetensors(os.path.join(cwd, target), tensors, metadata_of(os.path.join(cwd, source)) if metadata else None)


def evaluation_equals_that_of_training(cwd):
    for pool in ("cls", "mean"):
        made(cwd, "--pool", pool, folder=pool)
        last = epochs_of(cwd, pool)[-1]
        weights = os.path.join(pool, "model.safetensors")
        text = run("--eval", "--weights", weights, *NOISE, "--threads", "1", cwd=cwd).stdout
        assert f"top-1 {last['val_top1']:.3f} %" in text, (text, last)
        tensors = read_safetensors(os.path.join(cwd, weights))
        assert tensors[POSITIONS][1] == [1, 17 if pool == "cls" else 16, 8], tensors[POSITIONS][1]
        assert ("class_token" in tensors) == (pool == "cls")


def weights_contain_the_networks_options(cwd):
    made(cwd, "--mlp-ratio", "1.5")
    found = metadata_of(os.path.join(cwd, WEIGHTS))
    want = {"patch-size": "4", "width": "8", "depth": "2", "heads": "2", "mlp-ratio": "1.5", "pool": "cls", "arch": "", "image_size": "16"}
    assert {key: found.get(key) for key in want} == want, found
    rewrite(cwd, WEIGHTS, "bare.safetensors", lambda tensors: None, metadata=False)
    pixels = ["--crop-pct", "1"]
    known, bare = evaluated(cwd, *pixels), evaluated(cwd, *pixels, "--heads", "1", weights="bare.safetensors")
    assert max(abs(a - b) for a, b in zip(known, bare)) > 1e-9, "--heads was ignored"
    assert known == evaluated(cwd, *pixels, "--heads", "2", weights="bare.safetensors"), "--heads was ignored"
    folders(cwd)
    image = ["--json", "--image-size", "16", *pixels, "data/val/class0/0.bmp", "--weights"]
    said = [run("predict", *image, *which, cwd=cwd).stdout for which in ([WEIGHTS], ["bare.safetensors", "--heads", "2"], ["bare.safetensors", "--heads", "1"])]
    assert said[0] == said[1] != said[2], "predict ignores --heads"
    unknown = "bare.safetensors: its heads is unknown: not in its metadata"
    for flags in (["--eval", *NOISE, "--weights"], [*NOISE, *SMALL[8:], "--max-steps", "1", "--weights"]):
        fails(*flags, "bare.safetensors", cwd=cwd, code=USAGE, says=unknown)
    p = subprocess.run([PROGRAM, "predict", *image, "bare.safetensors"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == USAGE and unknown in p.stderr, p.stderr
    p = subprocess.run([PROGRAM, "predict", *image, WEIGHTS, "--heads", "4"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == USAGE and f"--heads 4: {WEIGHTS} has 2, by its metadata" in p.stderr, p.stderr
    fails("--eval", "--weights", WEIGHTS, *NOISE, "--depth", "5", cwd=cwd, says="--depth 5: made/model.safetensors has 2, by its tensors", code=USAGE)
    text = run(*NOISE, *SMALL[8:], "--max-steps", "1", "--weights", WEIGHTS, "--output", "fine", cwd=cwd).stderr  # no options of the network
    assert metadata_of(os.path.join(cwd, "fine", "model.safetensors"))["mlp-ratio"] == "1.5", text


TIMM = (("class_token", "cls_token"), ("encoder.pos_embedding", "pos_embed"), ("conv_proj", "patch_embed.proj"), ("encoder.layers.encoder_layer_", "blocks."),
        (".ln_1", ".norm1"), (".ln_2", ".norm2"), ("self_attention.in_proj_", "attn.qkv."), ("self_attention.out_proj", "attn.proj"),
        (".mlp.0", ".mlp.fc1"), (".mlp.3", ".mlp.fc2"), ("encoder.ln", "norm"), ("heads.head", "head"))
HUGGINGFACE = (("class_token", "vit.embeddings.cls_token"), ("encoder.pos_embedding", "vit.embeddings.position_embeddings"),
               ("conv_proj", "vit.embeddings.patch_embeddings.projection"), ("encoder.layers.encoder_layer_", "vit.encoder.layer."),
               (".ln_1", ".layernorm_before"), (".ln_2", ".layernorm_after"), ("self_attention.out_proj", "attention.output.dense"),
               (".mlp.0", ".intermediate.dense"), (".mlp.3", ".output.dense"), ("encoder.ln", "vit.layernorm"), ("heads.head", "classifier"))


def names_of_timm_and_huggingface_are_read(cwd):
    made(cwd)
    pixels = ["--crop-pct", "1", "--image-size", "16"]
    want = evaluated(cwd, *pixels)
    os.mkdir(os.path.join(cwd, "hf"))

    def rename(table):
        def change(tensors):
            for name, tensor in list(tensors.items()):
                to = name
                for ours, theirs in table:
                    to = to.replace(ours, theirs)
                tensors[to] = tensors.pop(name)
                if table is HUGGINGFACE and "in_proj_" in to:  # query, key and value
                    dtype, shape, data = tensors.pop(to)
                    for i, part in enumerate(("query", "key", "value")):
                        tensors[to.replace("self_attention.in_proj_", f"attention.attention.{part}.")] = (
                            dtype, [shape[0] // 3, *shape[1:]], data[i * len(data) // 3:(i + 1) * len(data) // 3])
        return change
    rewrite(cwd, WEIGHTS, "timm.safetensors", rename(TIMM), metadata=False)
    assert evaluated(cwd, *pixels, "--heads", "2", weights="timm.safetensors") == want
    rewrite(cwd, WEIGHTS, "hf/model.safetensors", rename(HUGGINGFACE), metadata=False)
    with open(os.path.join(cwd, "hf", "config.json"), "w") as f:
        f.write('{"model_type": "vit", "num_attention_heads": 2}')
    for path in ("hf", "hf/model.safetensors"):
        assert evaluated(cwd, *pixels, weights=path) == want
    fails("--eval", *NOISE, "--weights", "hf", "--heads", "4", cwd=cwd, code=USAGE, says="--heads 4: hf has 2, by its config.json")
    key = "vit.encoder.layer.0.attention.attention.key.weight"
    rewrite(cwd, "hf/model.safetensors", "short.safetensors", lambda tensors: tensors.pop(key), metadata=False)
    fails("--eval", *NOISE, "--weights", "short.safetensors", cwd=cwd, says="query, key and value of 'encoder.layers.encoder_layer_0.self_attention.in_proj_weight' differ")


def weights_contain_the_architectures_name(cwd):
    text = run(*NOISE, "--arch", "vit_ti_16", "--depth", "12", "--batch-size", "2", "--max-steps", "1", "--limit-eval-batches", "1",
               "--progress", "lines", "--output", "made", cwd=cwd).stderr
    found = metadata_of(os.path.join(cwd, WEIGHTS))
    assert (found["arch"], found["width"], found["heads"]) == ("vit_ti_16", "192", "3"), found
    assert "vit_ti_16" in text, text


def positions_of_another_grid_are_resized_on_request(cwd):
    made(cwd)
    data = ["--data", "synthetic:48:32:3"]
    says = "'encoder.pos_embedding' is for 4x4 patches, but images of 32 pixels have 8x8; --interpolate-pos-embed resizes it"
    fails("--eval", "--weights", WEIGHTS, *data, "--image-size", "32", cwd=cwd, says=says)
    fine = [*data, *SMALL, "--weights", WEIGHTS, "--image-size", "32", "--max-steps", "1"]
    fails(*fine, cwd=cwd, says=says)
    assert len(evaluated(cwd, "--image-size", "32", "--interpolate-pos-embed", data=data)) == 48 * 3
    run(*fine, "--interpolate-pos-embed", "--lr", "1e-9", "--optim", "adamw", "--output", "large", cwd=cwd)
    small, large = (read_safetensors(os.path.join(cwd, folder, "model.safetensors"))[POSITIONS] for folder in ("made", "large"))
    assert large[1] == [1, 65, 8], large[1]
    a, b = (array.array("f", t[2]) for t in (small, large))
    for row, other in ((0, 0), (1, 1), (4, 8), (13, 57), (16, 64)):  # the class token and the corners are unchanged
        assert all(abs(x - y) < 1e-5 for x, y in zip(a[8 * row:8 * row + 8], b[8 * other:8 * other + 8])), (row, other)
    run(*data, *SMALL, "--max-steps", "2", "--output", "large", "--resume", "auto", "--image-size", "32", "--optim", "adamw", cwd=cwd)
    assert [r["step"] for r in steps_of(cwd, "large")] == [1, 2]


def names_of_earlier_torchvision_are_loaded(cwd):
    made(cwd)
    want = evaluated(cwd)

    def rename(tensors):
        for name in list(tensors):
            tensors[name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2.")] = tensors.pop(name)
    rewrite(cwd, WEIGHTS, "old.safetensors", rename)
    assert "encoder.layers.encoder_layer_1.mlp.linear_2.bias" in read_safetensors(os.path.join(cwd, "old.safetensors"))
    assert evaluated(cwd, weights="old.safetensors") == want


def the_head_can_be_reset(cwd):
    made(cwd)
    other = ["--data", "synthetic:48:16:4", *SMALL, "--max-steps", "1", "--weights", WEIGHTS]
    fails(*other, cwd=cwd, says="'heads.head.weight' is [3,8], but the model needs [4,8]; --reset-head keeps the rest")
    run(*other, "--reset-head", "--freeze", "^(class_token|conv_proj|encoder)", "--output", "fine", cwd=cwd)
    a, b = (read_safetensors(os.path.join(cwd, folder, "model.safetensors")) for folder in ("made", "fine"))
    assert a["conv_proj.weight"] == b["conv_proj.weight"] and b["heads.head.weight"][1] == [4, 8]
    rewrite(cwd, WEIGHTS, "heads.safetensors", lambda tensors: tensors.update({"heads.weight": tensors.pop("heads.head.weight")}))
    fails("--eval", "--weights", "heads.safetensors", *NOISE, cwd=cwd, says="the last layer, 'heads.*', is missing or has other names: rename it, or train with")


def drop_path_drops_whole_branches(cwd):
    flags = ["--epochs", "1", "--drop-path", "0.4", "--drop", "0.1"]
    made(cwd, *flags[:2], folder="plain")
    made(cwd, *flags, folder="whole")
    run(*NOISE, *SMALL, "--optim", "adamw", *flags, "--max-steps", "3", "--output", "parts", cwd=cwd)
    run(*NOISE, *SMALL, "--optim", "adamw", *flags, "--max-steps", "6", "--output", "parts", "--resume", "auto", cwd=cwd)
    plain, whole, parts = (digest(checkpoint(cwd, folder, 6)) for folder in ("plain", "whole", "parts"))
    assert whole == parts, "a resume drops other branches"
    assert whole != plain, "nothing is dropped"


def threads_change_no_bit(cwd):
    for threads in ("1", "2"):
        for amp in ("off", "bf16"):
            run("--data", "synthetic:48:32:3", "--patch-size", "4", "--depth", "3", "--width", "64", "--heads", "2", "--batch-size", "16",
                "--max-steps", "6", "--epochs", "2", "--threads", threads, "--workers", "1", "--deterministic", "--optim", "adamw",
                "--amp", amp, "--progress", "off", "--output", amp + threads, cwd=cwd)
    one, two = ([digest(os.path.join(cwd, amp + threads, "model.safetensors")) for amp in ("off", "bf16")] for threads in "12")
    assert one == two and one[0] != one[1], (one, two)


def invalid_input_is_rejected(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "1"]
    fails(*flags, "--patch-size", "5", cwd=cwd, says="images of 16x16 pixels; their side must be a multiple of the patch, 5 (--image-size, --patch-size)", code=USAGE)
    fails(*flags, "--heads", "3", cwd=cwd, says="3 heads do not divide the width, 8", code=USAGE)
    fails(*flags, "--arch", "vit_x_16", cwd=cwd, says="no architecture 'vit_x_16'", code=USAGE)
    fails(*flags, "--drop-path", "1", cwd=cwd, says="--drop-path", code=USAGE)
    fails(*flags, "--image-size-schedule", "0:8,1:16", "--epochs", "2", cwd=cwd, says="vit: images of 8x8 pixels, the positions are for 16x16")
    made(cwd)
    p = subprocess.run([PROGRAM, "export", "--weights", WEIGHTS, "--output", "m.onnx"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == ERROR and "train_vit export: vit models have no ONNX graph" in p.stderr, p.stderr
    assert "export" not in run("--help", "all", cwd=cwd).stdout.split("Data:")[0], "--help lists export"
    rewrite(cwd, WEIGHTS, "none.safetensors", lambda tensors: tensors.pop("conv_proj.weight"))
    fails("--eval", "--weights", "none.safetensors", *NOISE, cwd=cwd, says="no 'conv_proj.weight': not the weights of a vision transformer")
    rewrite(cwd, WEIGHTS, "odd.safetensors", lambda tensors: tensors.update({POSITIONS: ("F32", [1, 16, 8], bytes(4 * 16 * 8))}))
    fails("--eval", "--weights", "odd.safetensors", *NOISE, "--image-size", "16", "--interpolate-pos-embed", cwd=cwd, says="'encoder.pos_embedding' is [1,16,8]")
    rewrite(cwd, WEIGHTS, "token.safetensors", lambda tensors: tensors.update({POSITIONS: ("F32", [1, 1, 8], bytes(4 * 8))}))
    fails("--eval", "--weights", "token.safetensors", *NOISE, "--image-size", "16", "--interpolate-pos-embed", cwd=cwd, says="'encoder.pos_embedding' is [1,1,8]")


def every_recipe_loads(cwd):
    names = sorted(n[:-5] for n in os.listdir(os.path.join(SOURCE, "models", "vit", "recipes")))
    assert names == ["vit-b16-torchvision", "vit-s16-algoperf"], names
    for name in names:
        config = run("--recipe", name, *NOISE, "--lr", "0.5", "--print-config", cwd=cwd).stdout.splitlines()
        assert "lr: 0.5" in config and "optim: adamw" in config, config


ROWS = [evaluation_equals_that_of_training, weights_contain_the_networks_options, weights_contain_the_architectures_name, names_of_timm_and_huggingface_are_read,
        positions_of_another_grid_are_resized_on_request, names_of_earlier_torchvision_are_loaded, the_head_can_be_reset, drop_path_drops_whole_branches, threads_change_no_bit, invalid_input_is_rejected,
        every_recipe_loads]

sys.exit(run_rows(ROWS, "lather-vit-", *sys.argv[2:3]))
