#!/usr/bin/env python3
"""Runs a training program like a user: bitwise resume, evaluation, prediction, invalid input.

    tests/models/program.py BUILD/models/resnet50/train_resnet50 [ROW]
    tests/models/program.py BUILD/models/vit/train_vit [ROW]        rows that hold for any network

Every row runs in a new folder and writes its own BMP images. Prints cmocka's lines.
"""
import array
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

from trainer import (ERROR, INTERRUPTED, NAME, NOISE, OK, PROGRAM, SMALL, SOURCE, TIMEOUT, TOOLS, USAGE, checkpoint, comparable, digest,
                     epochs_of, fails, finish, folders, full, has_step, metadata_of, needs_plain_memory, read_safetensors, run, run_rows, same, start, steps_of, wait_for,
                     write_image)


# --- rows ---------------------------------------------------------------------------------------

def a_resumed_run_is_bitwise_identical(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "2", "--grad-accum", "2", "--ema-decay", "0.9", "--optim",
             "shampoo", "--precondition-frequency", "2", "--keep", "0", "--warmup-epochs", "0.5"]
    run(*flags, "--max-steps", "10", "--output", "whole", cwd=cwd)
    run(*flags, "--max-steps", "5", "--output", "parts", cwd=cwd)  # 5 of 6 steps of the first epoch
    run(*flags, "--max-steps", "10", "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", 10)
    losses = [[r["loss"] for r in steps_of(cwd, f)] for f in ("whole", "parts")]
    assert losses[0] == losses[1] and len(losses[0]) == 10, losses
    run(*flags, "--max-steps", "10", "--seed", "1", "--output", "other", cwd=cwd)  # control
    other = checkpoint(cwd, "other", 10), checkpoint(cwd, "whole", 10)
    assert digest(other[0]) != digest(other[1]), "the seed changes nothing"


def largest_changes(cwd, folder, before, names):
    """Index and value of the largest change of each parameter since `before`."""
    after = read_safetensors(os.path.join(cwd, folder, "model.safetensors"))
    found = {}
    for name in names:
        changes = [b - a for a, b in zip(*(array.array("f", w[name][2]) for w in (before, after)))]
        found[name] = max(enumerate(changes), key=lambda one: abs(one[1]))
    return found


def layers_learn_at_the_rates_of_timm(cwd):
    """One step of SGD: the ratio of updates with and without --layer-decay is the scale that timm gives."""
    with open(os.path.join(SOURCE, "tests/golden/layer_decay.json")) as f:
        golden = json.load(f)
    scales, depth = golden[NAME], ["--depth", "4"] if NAME == "train_vit" else ["--arch", "resnet18", "--no-zero-init-last"]
    flags = [*NOISE, *SMALL, *depth, "--optim", "sgd", "--momentum", "0", "--weight-decay", "0", "--warmup-epochs", "0", "--sched", "constant",
             "--eval-every", "-1"]
    run(*flags, "--lr", "0.1", "--max-steps", "4", "--output", "made", cwd=cwd)  # so that no layer is zero
    flags += ["--max-steps", "1", "--weights", "made/model.safetensors"]
    run(*flags, "--lr", "1", "--output", "plain", cwd=cwd)
    decay = ["--layer-decay", str(golden["decay"])]
    last = "heads.head" if NAME == "train_vit" else "fc"
    run(*flags, "--lr", "1", *decay, "--param-group", f"^{last}:lr=0.5", "--param-group", ".*:weight_decay=0", "--output", "decayed", cwd=cwd)
    before = read_safetensors(os.path.join(cwd, "made", "model.safetensors"))
    plain, decayed = (largest_changes(cwd, folder, before, scales) for folder in ("plain", "decayed"))
    for name, scale in scales.items():
        scale *= 0.5 if name.startswith(last) else 1  # its own group's, not --layer-decay's
        (i, change), after = plain[name], decayed[name]
        assert abs(change) > 1e-4, (name, change)
        assert i == after[0] and abs(after[1] / change - scale) <= 1e-3 * scale + 1e-6 / abs(change), (name, change, after, scale)
    for value in "1.5", "-1", "x":
        fails(*flags, "--layer-decay", value, cwd=cwd, code=USAGE, says="--layer-decay: ")


def input_sizes_follow_the_schedule(cwd):
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--epochs", "3", "--keep", "0", "--image-size-schedule", "0:8,1:12,2:16", "--amp", "bf16",
             "--repeated-aug", "3", "--augment", "imagenet"]
    run(*flags, "--output", "whole", cwd=cwd)
    run(*flags, "--max-steps", "17", "--output", "parts", cwd=cwd)  # 5 of 12 steps of the second epoch
    run(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", 36)
    for folder in ("whole", "parts"):
        sizes = [r["image_size"] for r in steps_of(cwd, folder)]
        assert sizes == [8] * 12 + [12] * 12 + [16] * 12, sizes
        assert all(r["loader_queue"] in range(5) for r in steps_of(cwd, folder))
    run(*flags, "--repeated-aug", "1", "--output", "once", cwd=cwd)  # control
    assert digest(checkpoint(cwd, "once", 36)) != digest(checkpoint(cwd, "whole", 36)), "repeated augmentation changes nothing"


def a_resume_with_pending_roots_is_bitwise_identical(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "2", "--optim", "shampoo", "--preset", "reference", "--refresh", "async",
             "--precondition-frequency", "2", "--keep", "0", "--epsilon", "1e-3", "--lr", "1e-3"]
    run(*flags, "--max-steps", "8", "--output", "whole", cwd=cwd)
    run(*flags, "--max-steps", "5", "--output", "parts", cwd=cwd)
    run(*flags, "--max-steps", "8", "--output", "parts", "--resume", "auto", cwd=cwd)
    assert any("pending.0" in key for key in read_safetensors(checkpoint(cwd, "parts", 5, "optim.safetensors")))
    same(cwd, "whole", "parts", 8)
    for folder in ("whole", "parts"):
        records = steps_of(cwd, folder)
        roots = [r["shampoo_roots"] > 0 for r in records]
        assert roots == [t in (2, 6, 8) for t in range(1, 9)], roots  # synchronous at 2; then started at 4, 6
        assert [r["shampoo_root_age"] for r in records] == [0, 0, 1, 2, 3, 2, 3, 2], records
        for key in ("factor", "root", "apply", "wait", "worker"):
            assert all(r[f"shampoo_{key}_seconds"] >= 0 for r in records), records
        assert all(r["shampoo_root_failures"] == 0 for r in records)


def muon_records_its_time(cwd):
    for name in ("muon", "sgd"):
        run(*NOISE, *SMALL, "--optim", name, "--lr", "1e-3", "--epochs", "1", "--max-steps", "3", "--output", name, cwd=cwd)
    assert all(0 < r["muon_seconds"] < r["seconds"] for r in steps_of(cwd, "muon")), steps_of(cwd, "muon")
    assert not any("muon_seconds" in r for r in steps_of(cwd, "sgd"))


def peak(cwd, *flags):
    """Returns the peak memory of a short run in bytes, and the estimate that it printed."""
    with open(os.path.join(cwd, "said"), "w+b") as said:
        p = subprocess.Popen([PROGRAM, "--data", "synthetic:128:64:10", "--arch", "resnet10", "--stem", "imagenet", "--width", "32",
                              "--max-steps", "2", "--limit-eval-batches", "1", "--progress", "lines", *flags], cwd=cwd, stdout=said,
                             stderr=said)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    assert p.returncode == OK, text
    return usage.ru_maxrss * 1024, float(re.search(r"about ([0-9.]+) GiB more in a step", text).group(1)) * 2**30


def the_memory_estimate_is_within_a_factor_of_two(cwd):
    needs_plain_memory()
    for amp in ("off", "bf16"):
        small, said_small = peak(cwd, "--batch-size", "4", "--amp", amp)
        large, said_large = peak(cwd, "--batch-size", "128", "--amp", amp)
        ratio = (said_large - said_small) / (large - small)
        assert 0.5 <= ratio <= 2, f"amp {amp}: {ratio:.2f} of the {large - small} bytes measured"


def outputs_are_recomputed_if_memory_is_scarce(cwd):
    """--recompute auto: the choice is logged, changes no result, and is repeated at a resume."""
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--epochs", "1"]
    auto = [*flags, "--recompute", "auto", "--output", "auto"]
    said = run(*auto, "--max-steps", "2", cwd=cwd).stderr
    assert re.search(r"--recompute auto: off: a step that keeps all activations may need [0-9.]+ MiB, which are free\n", said), said
    assert "--recompute auto: off, as in the resumed run\n" in run(*auto, "--max-steps", "4", "--resume", "auto", cwd=cwd).stderr
    run(*flags, "--recompute", "cheap", "--max-steps", "4", "--output", "cheap", cwd=cwd)
    same(cwd, "auto", "cheap", 4)


def tf32_is_f32_on_the_cpu(cwd):
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--epochs", "1", "--max-steps", "2"]
    run(*flags, "--output", "a", cwd=cwd)
    run(*flags, "--output", "b", "--amp", "tf32", cwd=cwd)
    same(cwd, "a", "b", 2)


def resume_takes_a_path_or_starts_new(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "1", "--optim", "adamw"]
    run(*flags, "--max-steps", "2", "--output", "a", "--resume", "auto", cwd=cwd)
    run(*flags, "--max-steps", "4", "--output", "b", "--resume", "a", cwd=cwd)
    run(*flags, "--max-steps", "4", "--output", "a", "--resume", "a/checkpoints/step-2", cwd=cwd)
    same(cwd, "a", "b", 4)
    fails(*flags, "--output", "c", "--resume", "none", cwd=cwd, says="none")


def a_signal_saves_a_checkpoint_and_exits_with_3(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "100000", "--max-steps", "100000", "--optim", "sgd"]
    p = start(*flags, "--output", "run", cwd=cwd)
    wait_for(p, lambda: has_step(cwd, "run", 1))
    p.send_signal(signal.SIGTERM)
    finish(p, INTERRUPTED)
    step = len(steps_of(cwd, "run"))
    assert os.path.exists(checkpoint(cwd, "run", step)), f"no checkpoint of step {step}"


def an_interrupted_evaluation_is_repeated_on_resume(cwd):
    """The last step of an epoch, or of the run, is done, but not its evaluation and record."""
    flags = ["--data", "synthetic:800:16:3", "--limit-train-batches", "6", *SMALL, "--epochs", "2", "--optim", "sgd",
             "--eval-batch-size", "1", "--log-every", "1"]
    run(*flags, "--output", "whole", cwd=cwd)
    want = epochs_of(cwd, "whole")
    last = [r["step"] for r in want]
    for step in last:  # at the end of the first epoch, then at the end of the run
        p = start(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
        wait_for(p, lambda step=step: has_step(cwd, "parts", step))
        p.send_signal(signal.SIGTERM)
        finish(p)
        assert p.returncode in (OK, INTERRUPTED), p.returncode
    run(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    got = epochs_of(cwd, "parts")
    for key in ("epoch", "step", "train_loss", "train_top1", "val_loss", "val_top1"):
        assert [r.get(key) for r in got] == [r.get(key) for r in want], f"{key}: {got} and {want}"
    same(cwd, "whole", "parts", last[-1])


def eight_images_are_overfit(cwd):
    folders(cwd, classes=2, images=4)
    run("--data", "data", *SMALL, "--batch-size", "8", "--image-size", "16", "--overfit-batches", "1",
        "--epochs", "100", "--optim", "sgd", "--lr", "0.05", "--label-smoothing", "0", "--eval-every", "0", "--output",
        "run", cwd=cwd)
    last = epochs_of(cwd, "run")[-1]
    assert last["val_top1"] == 100 and last["train_loss"] < 0.05, last
    few = [*NOISE, *SMALL, "--max-steps", "4", "--overfit-batches", "3", "--output"]
    random = ["--mixup-alpha", "1", "--cutmix-alpha", "1", "--repeated-aug", "2"]
    losses = []
    for name, flags in ("plain", []), ("without", random):
        run(*few, name, *flags, cwd=cwd)
        losses.append([r["loss"] for r in steps_of(cwd, name)])
    assert losses[0] == losses[1], losses
    run(*few, "halves", "--grad-accum", "2", cwd=cwd)
    assert {r["val_samples"] for r in epochs_of(cwd, "halves")} == {8}  # two batches, as an update takes


def evaluation_saves_logits_in_file_order(cwd):
    folders(cwd, classes=3, images=3)
    run("--data", "data", *SMALL, "--image-size", "16", "--max-steps", "2", "--optim", "sgd",
        "--output", "run", cwd=cwd)
    weights = checkpoint(cwd, "run", 2)
    flags = ["--eval", "--weights", weights, "--data", "data", "--image-size", "16", "--threads", "1",
             "--progress", "off", "--save-logits"]
    p = run(*flags, "a.safetensors", "--batch-size", "4", cwd=cwd)
    assert "top-1" in p.stdout, p.stdout
    run(*flags, "b.safetensors", "--batch-size", "3", cwd=cwd)
    a, b = (read_safetensors(os.path.join(cwd, f"{n}.safetensors")) for n in "ab")
    assert a["logits"][:2] == ("F32", [9, 3]) and a["labels"][1] == [9], a
    labels = array.array("q", a["labels"][2]).tolist()
    assert labels == [0, 0, 0, 1, 1, 1, 2, 2, 2], labels
    x, y = (array.array("f", t["logits"][2]) for t in (a, b))
    assert max(abs(i - j) for i, j in zip(x, y)) < 1e-5, "logits depend on the batch size"
    for name, flag, value in (("c", "--crop-pct", "0.8"), ("d", "--interpolation", "bicubic"), ("e", "--crop-pct", "1"), ("f", "--decode", "fast")):
        run(*flags, f"{name}.safetensors", "--batch-size", "4", flag, value, cwd=cwd)
        z = array.array("f", read_safetensors(os.path.join(cwd, f"{name}.safetensors"))["logits"][2])
        same_logits = z == x
        assert same_logits == (name in "ef"), f"{flag} {value}: {x} and {z}"  # images up to 64 pixels are not cropped; evaluation ignores --decode fast


def prediction_prints_the_top_classes(cwd):
    folders(cwd)
    run("--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd",
        "--output", "run", cwd=cwd)
    weights = checkpoint(cwd, "run", 1)
    images = ["data/val/class0/0.bmp", "data/val/class2/1.bmp"]
    p = run("predict", "--weights", weights, "--image-size", "16", *images, cwd=cwd)
    lines = p.stdout.splitlines()
    assert lines[0] == images[0] and lines[4] == images[1] and len(lines) == 8, p.stdout
    assert abs(sum(float(line.split()[0]) for line in lines[1:4]) - 100) < 0.05, p.stdout
    with open(os.path.join(cwd, "names"), "w") as f:
        f.write("shirt\nboot\nbag\n")
    p = run("predict", "--weights", weights, "--class-names", "names", images[0], cwd=cwd)
    assert sorted(line.split()[2] for line in p.stdout.splitlines()[1:]) == ["bag", "boot", "shirt"]
    p = subprocess.run([PROGRAM, "predict", "--weights", weights, "none.bmp"], cwd=cwd,
                       capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == ERROR and "none.bmp" in p.stderr, p.stderr


def weights_contain_class_names_and_normalization(cwd):
    folders(cwd)
    flags = ["--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd"]
    run(*flags, "--output", "run", cwd=cwd)
    last = os.path.join(cwd, "run", "model.safetensors")
    want = {"format": "pt", "class_names": "class0\nclass1\nclass2", "mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225",
            "image_size": "16", "crop_pct": "1", "interpolation": "bilinear", "stem": "small", "augment": "small",
            "arch": "resnet10", "depths": "1,1,1,1", "width": "4", "channels": "3", "classes": "3"}
    assert metadata_of(last) == want == metadata_of(checkpoint(cwd, "run", 1)), metadata_of(last)
    image = "data/val/class2/1.bmp"

    def predict(weights, *more):
        p = run("predict", "--weights", weights, "--image-size", "16", *more, image, cwd=cwd)
        return p.stdout.splitlines()[1:]

    assert sorted(line.split()[2] for line in predict(last)) == ["class0", "class1", "class2"]
    pixels = ["--mean", "0.1,0.2,0.3", "--std", "0.5,0.6,0.123456"]
    run(*flags, *pixels, "--output", "other", cwd=cwd)
    other = os.path.join(cwd, "other", "model.safetensors")
    assert metadata_of(other)["mean"] == "0.1,0.2,0.3" and metadata_of(other)["std"] == "0.5,0.6,0.123456"
    assert predict(other) == predict(other, *pixels) != predict(other, "--mean", "0,0,0"), "the metadata is not used"
    test = ["--data", "data", "--image-size", "16", "--threads", "1", "--progress", "off", "--eval", "--weights"]
    a, b, c = (run(*test, other, *more, cwd=cwd).stdout for more in ([], pixels, ["--std", "1,1,1"]))
    assert a == b != c, f"{a} {b} {c}"
    resume = [*flags, "--max-steps", "2", "--output", "again", "--resume", "other"]
    fails(*resume, "--mean", "0.485,0.456,0.406", cwd=cwd, says="was trained with --mean 0.1,0.2,0.3, but this run has 0.485,0.456,0.406",
          code=USAGE)
    fails(*resume, *pixels[:2], "--std", "1,1,1", cwd=cwd, says="was trained with --std 0.5,0.6,0.123456, but this run has",
          code=USAGE)
    run(*resume, cwd=cwd)  # without these flags: uses the checkpoint's
    assert metadata_of(checkpoint(cwd, "again", 2)) == metadata_of(other)
    for part in ("train", "val"):
        os.rename(os.path.join(cwd, "data", part, "class1"), os.path.join(cwd, "data", part, "class10"))
    fails(*resume, *pixels, cwd=cwd, says="class 1 was 'class1', but is now 'class10'", code=USAGE)
    fails(*test, other, cwd=cwd, says=f"data: classes that {other} does not have: class10; evaluate images of its classes")
    for bad in (["--mean", "0.1"], ["--mean", "0.1,0.2,3"], ["--std", "0,1,1"], ["--std", "a"]):
        fails(*flags, *bad, cwd=cwd, says=bad[0], code=USAGE)
    fails(*NOISE, *SMALL, "--mean", "0.5", cwd=cwd, says="of 3 channels", code=USAGE)


def fine_tuning_keeps_frozen_layers(cwd):
    run(*NOISE, *SMALL, "--max-steps", "1", "--optim", "sgd", "--output", "base", cwd=cwd)
    weights = checkpoint(cwd, "base", 1)
    flags = ["--data", "synthetic:16:16:5", *SMALL[4:], "--weights", weights, "--max-steps", "2",
             "--optim", "sgd"]  # no --arch: the weights contain it
    run(*flags, "--reset-head", "--freeze", "^(conv1|layer)", "--param-group", "^fc:lr=0.5",
        "--output", "run", cwd=cwd)
    a, b = read_safetensors(weights), read_safetensors(checkpoint(cwd, "run", 2))
    assert a["layer3.0.conv1.weight"][2] == b["layer3.0.conv1.weight"][2], "frozen, but changed"
    assert b["fc.weight"][1][0] == 5 and a["fc.weight"][1][0] == 3
    assert a["bn1.weight"][2] != b["bn1.weight"][2], "not frozen, but not changed"
    fails(*flags, cwd=cwd, says="[3,")  # the head's shapes differ: the message has both
    fails(*flags, "--reset-head", "--freeze", "^nothing$", cwd=cwd, says="^nothing$", code=USAGE)


def the_final_weights_are_the_average(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "4", "--optim", "sgd", "--output"]
    run(*flags, "plain", cwd=cwd)
    run(*flags, "averaged", "--ema-decay", "0.5", cwd=cwd)
    last, plain = checkpoint(cwd, "plain", 4), os.path.join(cwd, "plain", "model.safetensors")
    averaged = read_safetensors(os.path.join(cwd, "averaged", "model.safetensors"))
    assert read_safetensors(last) == read_safetensors(plain)
    assert averaged != read_safetensors(plain), "no average"
    assert read_safetensors(last) == read_safetensors(checkpoint(cwd, "averaged", 4)), "training used the average"


def batch_norm_statistics_are_recomputed_for_averaged_weights(cwd):
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--momentum", "0", "--iterate-averaging", "schedule-free", "--epochs", "2", "--keep", "0"]
    for folder, more in (("recomputed", []), ("trained", ["--update-bn", "0"]), ("few", ["--update-bn", "3"]), ("once", ["--eval-every", "0"])):
        run(*flags, *more, "--output", folder, cwd=cwd)
    recomputed, trained, few = (read_safetensors(checkpoint(cwd, folder, 24)) for folder in ("recomputed", "trained", "few"))
    for name, tensor in recomputed.items():
        is_statistic = ".running_" in name
        assert (tensor != trained[name]) == is_statistic, f"{name}: recomputed: {is_statistic}"
        assert (tensor != few[name]) == is_statistic, f"{name}: equal for 3 and 12 batches"
    losses = [epochs_of(cwd, folder)[-1]["val_loss"] for folder in ("recomputed", "trained")]
    assert losses[0] != losses[1], losses
    same(cwd, "recomputed", "once", 24)  # evaluation does not affect training
    run(*flags, "--max-steps", "17", "--output", "parts", cwd=cwd)  # 5 of 12 steps of the second epoch
    run(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "recomputed", "parts", 24)
    fails(*NOISE, *SMALL, "--opt-kwargs", "tail-start=3", cwd=cwd, says="--tail-start: needs --iterate-averaging tail", code=USAGE)
    fails(*flags, "--iterate-averaging", "tail", "--opt-kwargs", "train-interp-coeff=0.5", cwd=cwd, code=USAGE,
          says="--train-interp-coeff: needs --iterate-averaging schedule-free or primal")
    fails(*NOISE, *SMALL, "--opt-kwargs", "hyperball=true", "--opt-kwargs", "cautious-weight-decay=true", cwd=cwd, code=USAGE,
          says="--cautious-weight-decay and --hyperball contradict each other")
    fails(*NOISE, *SMALL, "--opt-kwargs", "lookahead-end=3", cwd=cwd, says="--lookahead-end: needs --iterate-averaging ema-nesterov", code=USAGE)
    fails(*NOISE, *SMALL, "--update-bn", "3", cwd=cwd, says="--update-bn: needs --iterate-averaging", code=USAGE)
    fails(*flags, "--update-bn", "3", "--ema-decay", "0.9", cwd=cwd, says="--update-bn and --ema-decay contradict", code=USAGE)


def a_profile_is_a_trace(cwd):
    p = run(*NOISE, *SMALL, "--max-steps", "2", "--optim", "sgd", "--profile", "trace.json", cwd=cwd)
    with open(os.path.join(cwd, "trace.json")) as f:
        trace = json.load(f)
    names = {e.get("name") for e in (trace["traceEvents"] if isinstance(trace, dict) else trace)}
    assert "step" in names and "conv2d" in " ".join(map(str, names)), names
    assert "conv2d" in p.stderr, "no table of times"


def the_config_file_is_reloadable(cwd):
    run(*NOISE, *SMALL, "--max-steps", "2", "--optim", "adam", "--output", "a", cwd=cwd)
    run("--config", "a/config.yaml", "--output", "b", cwd=cwd)
    same(cwd, "a", "b", 2)
    p = run(*NOISE, "--print-config", cwd=cwd)
    assert "synthetic:48:16:3" in p.stdout
    assert run("--version", cwd=cwd).stdout and "--precondition-frequency" in run("--help", "all", cwd=cwd).stdout


def invalid_data_is_rejected(cwd):
    fails("--data", "nowhere", *SMALL, cwd=cwd, says="nowhere")
    folders(cwd)
    for c in range(3):
        shutil.rmtree(os.path.join(cwd, f"data/train/class{c}"))
        os.mkdir(os.path.join(cwd, f"data/train/class{c}"))
    fails("--data", "data", *SMALL, cwd=cwd, says="in 3 class folders: class")


def a_flat_validation_folder_needs_a_label_file(cwd):
    folders(cwd)
    flags = ["--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd", "--seed", "3"]
    test = ["--data", "data", "--image-size", "16", "--threads", "1", "--progress", "off", "--eval", "--weights",
            checkpoint(cwd, "run", 1), "--save-logits"]
    run(*flags, "--output", "run", cwd=cwd)
    run(*test, "a.safetensors", cwd=cwd)
    val = os.path.join(cwd, "data/val")
    with open(os.path.join(cwd, "labels"), "w") as f:
        for c in (2, 0, 1):
            for i in range(4):
                os.rename(f"{val}/class{c}/{i}.bmp", f"{val}/{c}-{i}.bmp")
                f.write(f"val/{c}-{i}.bmp class{c}\n")
            os.rmdir(f"{val}/class{c}")
    fails(*flags, cwd=cwd, says="--val-labels")
    run(*flags, "--val-labels", "labels", "--output", "flat", cwd=cwd)
    run(*test, "b.safetensors", "--val-labels", "labels", cwd=cwd)
    a, b = (read_safetensors(os.path.join(cwd, f"{n}.safetensors")) for n in "ab")
    assert a == b, "the flat folder's logits differ from those of class folders"
    epochs = [[r["val_loss"] for r in epochs_of(cwd, f)] for f in ("run", "flat")]
    assert epochs[0] == epochs[1] and len(epochs[0]) == 1, epochs
    fails(*flags, "--val-labels", "none", cwd=cwd, says="none")
    os.rename(os.path.join(cwd, "data/train/class2"), os.path.join(cwd, "data/train/class9"))
    fails(*flags, "--val-labels", "labels", cwd=cwd, says="'class2' is not one of the 3 classes")


def caches_change_nothing(cwd):
    folders(cwd)
    flags = ["--data", "data", *SMALL, "--image-size", "16", "--epochs", "3", "--optim", "sgd", "--keep", "0"]
    run(*flags, "--output", "plain", cwd=cwd)
    run(*flags, "--cache-ram", "9K", "--output", "cached", cwd=cwd)
    same(cwd, "plain", "cached", 9)
    epochs = epochs_of(cwd, "cached")
    count = {key: sum(r[key] for r in epochs) for key in epochs[0] if key.startswith("cache_")}
    assert count["cache_ram_hits"] > 0 < count["cache_ram_misses"], count
    assert all(0 < r["cache_ram_bytes"] <= 9 * 1024 for r in epochs), epochs
    fails(*flags, "--cache-ram", "9X", cwd=cwd, says="--cache-ram", code=USAGE)
    fails(*flags, "--cache-dir", "near", cwd=cwd, says="--cache-dir is gone since 0.2: use lather-pack", code=USAGE)


def tar_files_and_packs_train_and_evaluate(cwd):
    folders(cwd)
    tool = os.path.join(TOOLS, "pack")
    os.mkdir(os.path.join(cwd, "tars"))
    for part in ("train", "val"):
        subprocess.run(["tar", "--sort=name", "-cf", f"tars/{part}-0.tar", "-C", "data", part], cwd=cwd, check=True)
    forms = {"folders": "data", "tars": "tars"}
    if os.path.exists(tool):
        subprocess.run([tool, "--quiet", "data", "packs"], cwd=cwd, check=True, capture_output=True, timeout=TIMEOUT)
        forms["packs"] = "packs"
    flags = [*SMALL, "--image-size", "16", "--epochs", "2", "--optim", "sgd", "--keep", "0"]
    logits = {}
    for name, data in forms.items():
        run("--data", data, *flags, "--output", name, cwd=cwd)
        same(cwd, "folders", name, 6)
        weights = os.path.join(cwd, name, "model.safetensors")
        assert metadata_of(weights)["class_names"] == "class0\nclass1\nclass2", metadata_of(weights)
        p = run("--data", data, "--image-size", "16", "--threads", "1", "--progress", "off", "--eval", "--weights", weights,
                "--save-logits", "l.safetensors", cwd=cwd)
        logits[name] = p.stdout, read_safetensors(os.path.join(cwd, "l.safetensors"))
        assert logits[name] == logits["folders"], f"{name}: {p.stdout}"
    for part, number in (("train", 2), ("val", 1)):  # class numbers only; val lacks class 2
        folder = os.path.join(cwd, "numbers", part)
        os.makedirs(folder)
        for i in range(8):
            write_image(os.path.join(folder, f"{i}.bmp"), 20, 30 * i)
            with open(os.path.join(folder, f"{i}.cls"), "w") as f:
                f.write(str(i % (number + 1)))
        subprocess.run(f"cd numbers/{part} && tar --sort=name -cf ../{part}.tar .", shell=True, cwd=cwd, check=True)
    run("--data", "numbers", *flags, "--output", "n", cwd=cwd)
    p = run("--data", "numbers", "--image-size", "16", "--progress", "off", "--eval", "--weights", "n/model.safetensors", cwd=cwd)
    assert "over 8 images" in p.stdout, p.stdout


def different_class_sets_are_named(cwd):
    folders(cwd)
    flags = ["--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd"]
    os.rename(os.path.join(cwd, "data/val/class1"), os.path.join(cwd, "data/val/other"))
    fails(*flags, cwd=cwd, says="data: classes only in the training data: class1; only in the validation data: other")


def invalid_checkpoints_are_rejected(cwd):
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--epochs", "1"]
    run(*flags, "--max-steps", "2", "--output", "run", cwd=cwd)
    resume = ["--output", "again", "--resume", "run/checkpoints/step-2"]
    wide = [f if f != "4" else "5" for f in flags]
    fails(*wide, "--batch-size", "4", *resume, cwd=cwd, code=USAGE, says="--width 5: run/checkpoints/step-2/model.safetensors has 4, by its tensors")
    assert not os.path.exists(os.path.join(cwd, "again", "checkpoints", "step-2"))
    fails(*flags, "--optim", "adam", *resume, cwd=cwd, says="sgd", code=USAGE)
    path = checkpoint(cwd, "run", 2)
    with open(path, "r+b") as f:
        f.seek(-40, os.SEEK_END)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes((byte[0] ^ 4,)))
    fails(*flags, *resume, cwd=cwd, says="model.safetensors")
    fails(*flags, "--output", "run", "--resume", "auto", cwd=cwd, says="checkpoint")
    os.truncate(path, os.path.getsize(path) - 8)
    fails(*flags, *resume, cwd=cwd, says="model.safetensors")


def invalid_weights_are_rejected(cwd):
    def write(name, header, data=b""):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(os.path.join(cwd, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
        return name

    def entry(begin, end):
        return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}

    huge = os.path.join(cwd, "huge")
    with open(huge, "wb") as f:
        f.write(struct.pack("<Q", 1 << 60) + b"{}")
    one = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    for name in ("none", "huge", write("overlap", {"a": entry(0, 8), "b": entry(4, 12)}, b"\0" * 12),
                 write("twice", ("{%s,%s}" % (one, one)).encode(), b"\0" * 4),
                 write("other", {"a": entry(0, 4)}, b"\0" * 4)):
        fails(*NOISE, *SMALL, "--weights", name, cwd=cwd, says=name)


def invalid_command_lines_are_rejected(cwd):
    rows = [
        (["--batchsize", "3"], "--batch-size"),
        (["--batch-size", "0"], "--batch-size"),
        (["--lr", "x"], "--lr"),
        (["--optim", "adam", "--nesterov"], "--nesterov"),
        (["--optim", "sgd", "--precondition-frequency", "3"], "--precondition-frequency"),
        (["--optim", "soap", "--preset", "paper"], "--preset"),
        (["--optim", "adamw", "--preset", "paper"], "--preset"),
        (["--optim", "shampoo", "--preset", "best"], "recommended|paper|reference|transformer|soap"),
        (["--optim", "shampoo", "--opt-kwargs", "peak-lr=1"], "--weight-decay-type"),
        (["--optim", "shampoo", "--opt-kwargs", "refresh-threads=2"], "--refresh async"),
        (["--optim", "shampoo", "--grafting-epsilon", "1e-3"], "--grafting"),
        (["--optim", "shampoo", "--merge-order", "forward", "--target-dimensionality", "2"], "--merge-order"),
        (["--optim", "shampoo", "--opt-kwargs", "ignored-basis-change-dims=2:0"], "--preconditioner"),
        (["--optim", "shampoo", "--opt-kwargs", "solver-iterations=10001"], "0..10000"),
        (["--optim", "shampoo", "--opt-kwargs", "solver-order=4"], "--root-solver higher_order"),
        (["--eval"], "--weights"),
        (["--resume", "auto"], "--output"),
        (["--optim", "sgd", "--nesterov", "--momentum", "0"], "--momentum"),
        (["--save-logits", "x"], "--eval"),
        (["--epochs", "1", "--warmup-epochs", "2"], "--warmup-epochs"),
        (["--image-size-schedule", "0:32,5"], "--image-size-schedule"),
        (["--image-size-schedule", "1:32"], "the first must begin at 0"),
        (["--crop-pct", "1.1"], "--crop-pct"),
        (["--auto-augment", "ra:2:9:1"], "expected none, ta_wide, ra, ra:N"),
        (["--auto-augment", "ra:0"], "got 'ra:0'"),
        (["--auto-augment", "ra:2x"], "got 'ra:2x'"),
        (["--auto-augment", "ra:2:"], "got 'ra:2:'"),
        (["--auto-augment", "ra:2:32"], "M from 0 to"),
        (["--interpolation", "nearest"], "bilinear|bicubic"),
        (["--gradient-noise"], "--grad-accum 2 with --batch-size 16"),
        (["--optim-stats", "0", "--output", "x"], "--optim-stats 0: must be at least 1"),
        (["--optim-stats", "-1", "--output", "x"], "--optim-stats: -1 is not in"),
        (["--optim-stats", "5"], "--optim-stats: needs --output"),
        (["--optim-stats-params", "fc", "--output", "x"], "--optim-stats-params: needs --optim-stats"),
        (["--optim-stats", "5", "--output", "x", "--tensor-parallel", "2"], "--tensor-parallel and --optim-stats contradict"),
        (["--gradient-noise", "--tensor-parallel", "2"], "--tensor-parallel and --gradient-noise contradict"),
        (["--gradient-noise", "--local-steps", "2"], "--local-steps and --gradient-noise contradict"),
        (["--gradient-noise", "--compress", "topk:0.1"], "--compress and --gradient-noise contradict"),
    ]
    # A single process rejects the same values of flags that need several ranks.
    rows += [
        (["--compress", "topk:0"], "with a density in (0,1]"),
        (["--compress", "topk:1.1"], "with a density in (0,1]"),
        (["--compress", "powersgd:0"], "1 to 64"),
        (["--compress", "powersgd:65"], "1 to 64"),
        (["--compress", "zip"], "unknown reducer 'zip'"),
        (["--compress", "two-level:2"], "takes no argument"),
        (["--comm-model", "5"], "'5' is not LATENCY,RATE"),
        (["--comm-model", "0,0"], "'0,0' is not LATENCY,RATE"),
    ]
    tiny = ["--arch", "resnet10", "--width", "4"]  # where a network is made before the flag is read
    for flags, says in rows:
        fails(*NOISE, *tiny, *flags, cwd=cwd, says=says, code=USAGE)
    fails(cwd=cwd, says="--data", code=USAGE)


def flags_without_effect_on_one_rank_are_noted(cwd):
    line = "no effect with one rank: "
    rows = [
        ([], None),
        (["--compress", "topk:1"], "--compress"),
        (["--compress", "powersgd:64"], "--compress"),
        (["--compress", "two-level"], "--compress"),
        (["--comm-model", "0,0.1"], "--comm-model"),
        (["--sums", "engine"], "--sums"),
        (["--dist-bn", "none", "--sync-bn", "--bucket-mib", "24", "--no-overlap", "--grad-comm-dtype", "bf16", "--allreduce", "flat",
          "--compress", "plain", "--shard-optimizer", "--comm-dtype", "f16", "--communicate-params", "--num-trainers-per-group", "1",
          "--balance", "bytes", "--ranks-per-node", "2", "--comm-model", "5,1"],
         "--dist-bn, --sync-bn, --bucket-mib, --no-overlap, --grad-comm-dtype, --allreduce, --compress, --shard-optimizer, --comm-dtype, "
         "--communicate-params, --num-trainers-per-group, --balance, --ranks-per-node, --comm-model"),
    ]
    for flags, noted in rows:
        text = run(*NOISE, *SMALL, "--progress", "lines", "--max-steps", "1", "--no-shuffle", *flags, cwd=cwd).stderr.splitlines()
        assert [x.split(line)[1] for x in text if line in x] == ([noted] if noted else []), (flags, text)


def printed(cwd, *flags):
    text = run("--data", "x", *flags, "--print-config", cwd=cwd).stdout
    lists = re.sub(r":((?:\n  - .*)+)", lambda m: ": [" + ", ".join(re.findall(r"\n  - (.*)", m.group(1))) + "]", text)
    return dict(line.split(": ", 1) for line in lists.splitlines() if ": " in line)


def presets_set_defaults_that_flags_override(cwd):
    rows = [
        (["--optim", "shampoo"], {"preset": "recommended", "lr": "0.1", "grafting": "sgd", "beta2": "0.999",
                                  "epsilon-rule": "relative", "momentum": "0.9", "diagonal-vectors": "true"}),
        (["--optim", "soap"], {"preset": "soap", "preconditioner": "eigenvalue_corrected", "beta1": "0.95",
                               "precondition-frequency": "10", "momentum": "0", "nesterov": "false"}),
        (["--optim", "shampoo", "--preset", "paper"], {"grafting": "adagrad", "grafting-epsilon": "0.001", "beta2": "1",
                                                       "merge-order": "forward", "epsilon-rule": "after", "momentum": "0"}),
        (["--optim", "shampoo", "--preset", "reference"], {"grafting": "none", "merge-order": "backward", "epsilon": "1e-12",
                                                           "precondition-frequency": "1", "lr": "0.01"}),
        (["--optim", "shampoo", "--preset", "paper", "--beta2", "0.9", "--merge-order", "backward"],
         {"beta2": "0.9", "merge-order": "backward", "grafting": "adagrad"}),
        (["--optim", "shampoo", "--momentum", "0"], {"nesterov": "false"}),
        (["--optim", "shampoo", "--preset", "transformer"], {"inverse-exponent": '["2:0.5,0.5"]', "grafting": "adam"}),
        (["--optim", "shampoo", "--preset", "transformer", "--inverse-exponent", "2:0.25,0.25", "--inverse-exponent", "3:1,1,1"],
         {"inverse-exponent": '["2:0.25,0.25", "3:1,1,1"]'}),
    ]
    for flags, want in rows:
        got = printed(cwd, *flags)
        for key, value in want.items():
            assert got[key] == value, f"{flags}: {key} is {got[key]}, want {value}"
        with open(os.path.join(cwd, "c.yaml"), "w") as f:
            f.write("".join(f"{k}: {v}\n" for k, v in got.items() if k != "data"))
        assert printed(cwd, "--config", "c.yaml") == got, f"{flags}: the printed file has different values"


def shampoo_lists_its_blocks(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "1", "--output", "run"]
    run(*flags, "--optim", "soap", "--max-preconditioner-dim", "8", cwd=cwd)
    with open(os.path.join(cwd, "run", "blocks.txt")) as f:
        head, columns, *rows = f.read().splitlines()
    assert head.startswith("blocks: ") and columns.split()[:2] == ["shape", "blocks"], head
    total, factors = int(head.split()[1]), int(head.split()[3])
    counts = [row.split()[1:3] for row in rows if row.strip().startswith("[")]
    assert sum(int(a) for a, _ in counts) == total > 20, f"{counts} do not sum to {total} blocks"
    assert sum(int(b) for _, b in counts) == factors > 20, f"{counts} do not sum to {factors} factors"


def each_parameter_has_a_rule(cwd):
    """blocks.txt and the line at the start: rules, matrices and learning rates."""
    flags = [*NOISE, *SMALL, "--max-steps", "1", "--eval-every", "0", "--progress", "lines"]
    rows = {
        "muon": (["--split", "^layer1[.]0[.]conv2[.]weight$:0:2", "--opt-kwargs", "adamw-lr-scale=0.5", "--lr", "0.01", "--param-group", "^conv1[.]weight:lr=0.001"],
                 {"conv1.weight": "orthogonal 1 of 0.1", "layer1.0.conv2.weight": "orthogonal 2 of 1", "bn1.weight": "adamw - 0.5",
                  "fc.weight": "adamw - 0.5"}),
        "soap": ([], {"layer4.0.conv2.weight": "eigenbasis 1 of 1", "bn1.weight": "diagonal 1 of 1"}),
        "shampoo": (["--diagonal", "^fc[.]weight$"], {"layer4.0.conv2.weight": "root 1 of 1", "fc.weight": "diagonal 1 of 1"}),
    }
    for name, (more, want) in rows.items():
        text = run(*flags, "--optim", name, *more, "--output", name, cwd=cwd).stderr
        with open(os.path.join(cwd, name, "blocks.txt")) as f:
            lines = f.read().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("rules: "))
        assert lines[at] in text and lines[at + 1].split()[:3] == ["parameter", "shape", "rule"], lines[at:at + 2]
        found = {p: " ".join([rule, *blocks[:2], blocks[-1]] if len(blocks) > 2 else [rule, *blocks])
                 for p, _, rule, *blocks in map(str.split, lines[at + 2:])}
        assert len(found) == len(lines) - at - 2 and {p: found[p] for p in want} == want, (name, found)
        counted = dict(re.findall(r"(\w+) (\d+) parameters", lines[at]))
        assert counted == {r: str([f.split()[0] for f in found.values()].count(r)) for r in counted} and sum(map(int, counted.values())) == len(found), lines[at]
    run(*flags, "--optim", "sgd", "--output", "sgd", cwd=cwd)
    assert not os.path.exists(os.path.join(cwd, "sgd", "blocks.txt"))


def every_recipe_loads_and_flags_override_it(cwd):
    folder = os.path.join(SOURCE, "models", "resnet50", "recipes")
    names = sorted(f[:-5] for f in os.listdir(folder))
    assert {"nesterov-90e", "shampoo-paper", "shampoo-60e", "torchvision-v1", "torchvision-v2", "ffcv-16e"} <= set(names), names
    for name in names:
        with open(os.path.join(folder, f"{name}.yaml"), encoding="utf-8") as file:
            text = file.read()
        assert all(word in text for word in ("# Source ", "# Known accuracy ", "# Global batch ")), name
        config = dict(line.split(": ", 1) for line in run("--recipe", name, *NOISE, "--print-config", cwd=cwd).stdout.splitlines() if ": " in line)
        for key, value in re.findall(r"^([a-z0-9-]+): (\S+)$", text, re.M):
            same = config[key].strip('"') == value or float(config[key]) == float(value)
            assert same, f"{name}: {key} is {config[key]}, the recipe has {value}"
    first = run("--recipe", "nesterov-90e", *NOISE, "--lr", "0.7", "--epochs", "30", "--print-config", cwd=cwd).stdout
    assert "\nlr: 0.7\n" in first and "\nepochs: 30\n" in first, first
    with open(os.path.join(cwd, "c.yaml"), "w", encoding="utf-8") as file:
        file.write("lr: 0.6\n")
    second = run("--config", "c.yaml", "--recipe=nesterov-90e", *NOISE, "--print-config", cwd=cwd).stdout
    assert "\nlr: 0.6\n" in second and "\nwarmup-epochs: 5\n" in second and "nesterov-90e" not in second, second
    fails("--recipe", "nesterov", *NOISE, cwd=cwd, says="unknown recipe 'nesterov'", code=USAGE)
    fails("--recipe", "nesterov-90e", "--optim", "adamw", *NOISE, cwd=cwd, says="momentum", code=USAGE)
    with open(os.path.join(cwd, "c.yaml"), "w", encoding="utf-8") as file:
        file.write("recipe: nesterov-90e\n")
    fails("--config", "c.yaml", *NOISE, cwd=cwd, says="--recipe", code=USAGE)


def reproduce_is_a_subcommand(cwd):
    said = run("reproduce", "smoke", "--dry-run", "--out", "out", cwd=cwd).stdout
    assert "cells to run" in said and PROGRAM in said, said
    p = subprocess.run([PROGRAM, "reproduce", "nothing"], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    assert p.returncode == USAGE and "no plan" in p.stderr, p.stderr


def help_shows_the_defaults_of_presets(cwd):
    text = run("--help", "all", cwd=cwd).stdout
    rows = [" ".join(row.split()) for row in re.split(r"\n(?=  \S)", text)]
    for optim in ("shampoo", "soap"):
        seen = 0
        for key, value in printed(cwd, "--optim", optim).items():
            row = next((r for r in rows if re.match(rf"(--(\[no-\])?{key} |{key}=)", r) and f"{optim}" in r), "")
            shown = re.findall(r"\[([^\]]+)\] \(", row)
            if not shown or key in ("nesterov", "newton-schulz-iterations"):  # unset without momentum or Newton-Schulz
                continue
            shown = dict(x.split("=") for x in shown[-1].split() if "=" in x).get(optim, shown[-1])
            seen += 1
            shown = {"on": "true", "off": "false", "1e-6": "1e-06", "1e-8": "1e-08"}.get(shown, shown)
            assert shown == value, f"{optim}: --{key} is {value}, --help shows {shown}"
        assert seen > 20, f"only {seen} defaults were found"


def measuring_the_noise_scale_does_not_change_training(cwd):
    flags = [*NOISE, *SMALL, "--optim", "sgd", "--lr", "1e-3", "--grad-accum", "2", "--epochs", "2", "--keep", "0"]
    run(*flags, "--output", "plain", cwd=cwd)
    run(*flags, "--gradient-noise", "--output", "noise", cwd=cwd)
    same(cwd, "plain", "noise", 12)
    assert not any("noise_scale" in r for r in steps_of(cwd, "plain"))
    scales = [r["noise_scale"] for r in steps_of(cwd, "noise") if "noise_scale" in r]
    assert scales and all(0 <= s < 1e6 for s in scales), scales
    run(*flags, "--gradient-noise", "--max-steps", "5", "--output", "parts", cwd=cwd)
    run(*flags, "--gradient-noise", "--output", "parts", "--resume", "auto", cwd=cwd)
    assert scales == [r["noise_scale"] for r in steps_of(cwd, "parts") if "noise_scale" in r]


def invalid_settings_are_rejected(cwd):
    fails(*NOISE, *SMALL, "--device", "cuda", cwd=cwd, says="cuda")
    fails(*NOISE, *SMALL, "--optim", "shampoo", "--inverse-exponent", "2:0.5", cwd=cwd,
          says="--inverse-exponent", code=USAGE)
    fails(*NOISE, *SMALL, "--optim", "soap", "--opt-kwargs", "ignored-basis-change-dims=2:2", cwd=cwd, says="[0,1]", code=USAGE)
    fails(*NOISE, *SMALL, "--arch", "resnet51", cwd=cwd, says="resnet51", code=USAGE)
    fails(*NOISE, *SMALL, "--num-classes", "2", cwd=cwd, says="3", code=USAGE)
    fails(*NOISE, *SMALL, "--batch-size", "64", cwd=cwd, says="--batch-size", code=USAGE)
    fails("--data", "synthetic:100000:224:10", "--arch", "resnet10", "--width", "8", "--batch-size", "65536", cwd=cwd, says="GiB")


def a_run_without_finite_gradients_stops(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "8", "--optim", "sgd", "--lr", "1e5", "--momentum", "0",
             "--weight-decay", "1e5", "--norm-weight-decay"]
    fails(*flags, cwd=cwd, says="not finite")
    run(*flags, "--on-nan", "skip", "--output", "run", cwd=cwd)
    assert any(r.get("skipped") for r in steps_of(cwd, "run")), "no step was skipped"


def f16_adapts_its_loss_scale(cwd):
    """The scale decreases until it no longer overflows; a resumed run is bitwise identical."""
    flags = [*NOISE, *SMALL, "--device", "ref", "--amp", "f16", "--width", "2", "--lr", "0.01", "--epochs", "1", "--keep", "0"]
    run(*flags, "--max-steps", "10", "--output", "whole", cwd=cwd)
    steps = steps_of(cwd, "whole")
    scales = [r["loss_scale"] for r in steps]
    skipped = [bool(r.get("skipped")) for r in steps]
    before = 65536
    for scale, skip in zip(scales, skipped):
        assert scale == (before / 2 if skip else before), f"{before} -> {scale}, skipped: {skip}"
        before = scale
    assert steps[-1]["skipped_steps"] == sum(skipped) < 10
    run(*flags, "--max-steps", "4", "--output", "part", cwd=cwd)
    run(*flags, "--max-steps", "10", "--output", "part", "--resume", "auto", cwd=cwd)
    assert scales == [r["loss_scale"] for r in steps_of(cwd, "part")]
    same(cwd, "whole", "part", 10)
    fails(*NOISE, *SMALL, "--amp", "f16", cwd=cwd, says="--amp f16", code=USAGE)


def running_ahead_changes_no_result(cwd):
    """Queueing the next step before reading results does not change records, checkpoints and failures."""
    common = [*NOISE, *SMALL, "--epochs", "2", "--keep", "0", "--lr", "0.01"]
    cases = [["--optim", "adamw", "--grad-accum", "2", "--ema-decay", "0.9", "--checkpoint-every", "4"],
             ["--optim", "sgd", "--on-nan", "skip", "--lr", "1e5", "--momentum", "0", "--weight-decay", "1e5", "--norm-weight-decay"],
             ["--optim", "adagrad", "--device", "ref", "--amp", "f16", "--width", "2", "--lr", "3", "--max-steps", "14"]]
    for number, flags in enumerate(cases):
        for way in ("off", "on"):
            run(*common, *flags, "--run-ahead", way, "--output", f"{way}{number}", cwd=cwd)
        want, got = comparable(cwd, f"off{number}"), comparable(cwd, f"on{number}")
        assert want == got, f"{flags}: {[(a, b) for a, b in zip(want, got) if a != b][:1]}"
        steps = len(steps_of(cwd, f"on{number}"))
        same(cwd, f"off{number}", f"on{number}", steps)
    assert any(r.get("skipped") for r in comparable(cwd, "on1")), "no step was skipped"
    assert any(r.get("skipped") for r in comparable(cwd, "on2")), "no step overflowed"
    flags = [*common, "--optim", "sgd", "--lr", "1e5", "--momentum", "0", "--weight-decay", "1e5", "--norm-weight-decay"]
    said = [run(*flags, "--run-ahead", way, "--output", f"nan-{way}", cwd=cwd, code=ERROR).stderr for way in ("off", "on")]
    tell = [re.search(r"step (\d+): a gradient is not finite.*", text) for text in said]
    assert tell[0] and tell[1] and tell[0].group(0) == tell[1].group(0), said
    rows = comparable(cwd, "nan-on")
    assert rows == comparable(cwd, "nan-off") and len(rows) == int(tell[1].group(1)) - 1, rows
    run(*common, "--optim", "adamw", "--run-ahead", "on", "--max-steps", "5", "--output", "parts", cwd=cwd)
    run(*common, "--optim", "adamw", "--run-ahead", "on", "--max-steps", "9", "--output", "parts", "--resume", "auto", cwd=cwd)
    run(*common, "--optim", "adamw", "--run-ahead", "off", "--max-steps", "9", "--output", "whole", cwd=cwd)
    same(cwd, "parts", "whole", 9)


ROWS = [f16_adapts_its_loss_scale, measuring_the_noise_scale_does_not_change_training, running_ahead_changes_no_result, the_memory_estimate_is_within_a_factor_of_two, outputs_are_recomputed_if_memory_is_scarce, a_resumed_run_is_bitwise_identical,
        layers_learn_at_the_rates_of_timm, input_sizes_follow_the_schedule, a_resume_with_pending_roots_is_bitwise_identical, muon_records_its_time, tf32_is_f32_on_the_cpu, resume_takes_a_path_or_starts_new,
        a_signal_saves_a_checkpoint_and_exits_with_3, an_interrupted_evaluation_is_repeated_on_resume, eight_images_are_overfit,
        evaluation_saves_logits_in_file_order, prediction_prints_the_top_classes,
        weights_contain_class_names_and_normalization,
        fine_tuning_keeps_frozen_layers, the_final_weights_are_the_average, batch_norm_statistics_are_recomputed_for_averaged_weights, a_profile_is_a_trace, the_config_file_is_reloadable, invalid_data_is_rejected, a_flat_validation_folder_needs_a_label_file, caches_change_nothing, tar_files_and_packs_train_and_evaluate,
        different_class_sets_are_named, invalid_checkpoints_are_rejected,
        invalid_weights_are_rejected, invalid_command_lines_are_rejected, flags_without_effect_on_one_rank_are_noted,
        presets_set_defaults_that_flags_override, every_recipe_loads_and_flags_override_it, reproduce_is_a_subcommand,
        help_shows_the_defaults_of_presets, shampoo_lists_its_blocks, each_parameter_has_a_rule,
        invalid_settings_are_rejected, a_run_without_finite_gradients_stops]

# Rows that hold for any network; those that hardly depend on it run only with --full.
if NAME != "train_resnet50":
    ROWS = [f16_adapts_its_loss_scale, measuring_the_noise_scale_does_not_change_training, running_ahead_changes_no_result, a_resumed_run_is_bitwise_identical, a_resume_with_pending_roots_is_bitwise_identical,
            layers_learn_at_the_rates_of_timm, eight_images_are_overfit, evaluation_saves_logits_in_file_order, a_run_without_finite_gradients_stops]
    ROWS += map(full, [resume_takes_a_path_or_starts_new, a_signal_saves_a_checkpoint_and_exits_with_3, an_interrupted_evaluation_is_repeated_on_resume,
                       prediction_prints_the_top_classes, the_final_weights_are_the_average, the_config_file_is_reloadable, caches_change_nothing, tar_files_and_packs_train_and_evaluate])

sys.exit(run_rows(ROWS, "lather-program-", *sys.argv[2:3]))
