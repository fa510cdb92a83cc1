#!/usr/bin/env python3
"""Runs train_resnet50 on hostile checkpoints and data: counters out of range, names that are not UTF-8.

    hostile.py TRAIN_RESNET50
"""
import json
import os
import re
import shutil
import subprocess
import sys

from trainer import (ERROR, NOISE, SMALL, TIMEOUT, TOOLS, USAGE, checkpoint, content, crc32c, fails, metadata_of, read_header, run, run_rows, same,
                     write_header, write_image, write_state)

NAMES = [b"a\\x41", b"b\xff", b"esc\x1b[2J", "gr\u00fcn".encode(), b"new\nline", b"o" * 255, b"plain"]  # sorted
SHOWN = [r"a\\x41", r"b\xff", r"esc\x1b[2J", "gr\u00fcn", r"new\x0aline", "o" * 255, "plain"]
IMAGES = ["--image-size", "16", "--optim", "sgd", "--sched", "constant", "--lr", "0.01", "--no-tensorboard"]


def class_folders(cwd, names):
    for part in (b"train", b"val"):
        for c, name in enumerate(names):
            folder = os.path.join(os.fsencode(cwd), b"data", part, name)
            os.makedirs(folder)
            for i in range(2):
                write_image(os.path.join(folder, b"%d.bmp" % i), 18, c * 30 + i * 5)


def class_names(path):
    return metadata_of(path)["class_names"].split("\n")


def class_names_may_be_any_bytes(cwd):
    class_folders(cwd, NAMES)
    flags = ["--data", "data", *SMALL, *IMAGES]
    run(*flags, "--max-steps", "2", "--output", "run", cwd=cwd)
    run(*flags, "--max-steps", "5", "--output", "run", "--resume", "auto", cwd=cwd)
    run(*flags, "--max-steps", "5", "--output", "whole", cwd=cwd)
    same(cwd, "run", "whole", 5)
    last = os.path.join(cwd, "run", "model.safetensors")
    assert class_names(last) == SHOWN == class_names(checkpoint(cwd, "run", 5)), class_names(last)
    test = ["--eval", "--weights", last, "--image-size", "16", "--threads", "1", "--progress", "off"]
    p = run("--data", "data", *test, cwd=cwd)
    assert "class" not in p.stderr, p.stderr
    flat = os.path.join(cwd, "flat", "val")
    os.makedirs(flat)
    write_image(os.path.join(flat, "0.bmp"), 18, 7)
    with open(os.path.join(cwd, "labels"), "wb") as f:
        f.write(b"0.bmp b\xff\n")
    run("--data", "flat", *test, "--val-labels", "labels", cwd=cwd)
    said = run("predict", "--weights", last, "--top", "7", "flat/val/0.bmp", cwd=cwd).stdout
    assert all(name in said for name in SHOWN) and not re.search(r"[^\n -~\u00fc]", said), said
    with open(os.path.join(cwd, "names"), "wb") as f:
        f.write(b"\n".join(name.replace(b"\n", b" ") for name in NAMES))
    said = run("predict", "--weights", last, "--top", "7", "--class-names", "names", "flat/val/0.bmp", cwd=cwd).stdout
    assert all(name.replace("\\x0a", " ") in said for name in SHOWN), said
    json_names = run("predict", "--weights", last, "--top", "7", "--json", "flat/val/0.bmp", cwd=cwd).stdout
    assert sorted(one["class"] for one in json.loads(json_names)["predictions"]) == SHOWN, json_names
    name = NAMES[1]
    for new, shown in ((b"b\xfe", r"b\xfe"), (b"b\\xff", r"b\\xff")):  # the last is valid text
        for part in (b"train", b"val"):
            folder = os.path.join(os.fsencode(cwd), b"data", part)
            os.rename(os.path.join(folder, name), os.path.join(folder, new))
        name = new
        said = rf"class 1 was 'b\xff', but is now '{shown}'"
        fails(*flags, "--max-steps", "6", "--output", "run", "--resume", "auto", cwd=cwd, says=said, code=USAGE)
        fails("--data", "data", *test, cwd=cwd, says=f"data: classes that {last} does not have: {shown}", code=ERROR)


def packs_keep_names_that_are_not_utf8(cwd):
    class_folders(cwd, NAMES)
    p = subprocess.run([os.path.join(TOOLS, "pack"), "data", "packs"], cwd=cwd, check=True, capture_output=True, timeout=TIMEOUT)
    assert b"\x1b" not in p.stdout + p.stderr, p
    with open(os.path.join(cwd, "packs", "train", "manifest.json"), encoding="utf-8") as f:
        assert json.load(f)["class_names"] == SHOWN
    run("--data", "data", *SMALL, *IMAGES, "--max-steps", "2", "--output", "run", cwd=cwd)
    run("--data", "packs", *SMALL, *IMAGES, "--max-steps", "4", "--output", "run", "--resume", "auto", cwd=cwd)
    assert class_names(checkpoint(cwd, "run", 4)) == SHOWN


def update_checksums(folder):
    """Updates state.json for a changed model.safetensors: size, checksum, and its own checksum."""
    data = content(folder, "model.safetensors")
    path = os.path.join(folder, "state.json")
    text = content(path).decode()
    text = re.sub(r'("model.safetensors":{"bytes":)\d+,"crc32c":"\w+"', rf'\g<1>{len(data)},"crc32c":"{crc32c(data):08x}"', text)
    write_state(path, text)


def class_names_of_earlier_versions_resume(cwd):
    """They did not escape backslashes."""
    class_folders(cwd, [b"back\\slash", b"plain"])
    flags = ["--data", "data", *SMALL, *IMAGES, "--output", "run"]
    run(*flags, "--max-steps", "1", cwd=cwd)
    model = checkpoint(cwd, "run", 1)
    header, data = read_header(model)
    assert header["__metadata__"]["class_names"] == "back\\\\slash\nplain"
    header["__metadata__"]["class_names"] = "back\\slash\nplain"
    write_header(model, header, data)
    update_checksums(os.path.dirname(model))
    run(*flags, "--max-steps", "2", "--resume", "auto", cwd=cwd)
    assert class_names(checkpoint(cwd, "run", 2)) == ["back\\\\slash", "plain"]


def forge(folder, **fields):
    """Sets numbers of a checkpoint's state.json, with a valid checksum."""
    path = os.path.join(folder, "state.json")
    text = content(path).decode()
    for field, value in fields.items():
        text, count = re.subn(rf'"{re.escape(field)}":-?\d+', f'"{field}":{value}', text)
        assert count == 1, field
    write_state(path, text)


def counters_of_a_checkpoint_are_range_checked(cwd):
    flags = [*NOISE, *SMALL, "--no-tensorboard", "--optim", "shampoo", "--precondition-frequency", "2", "--sched", "constant",
             "--checkpoint-every", "2", "--max-steps", "4"]
    run(*flags, "--output", "run", cwd=cwd)
    forged = os.path.join(cwd, "forged")
    resume = [*flags, "--max-steps", "6", "--output", "again", "--resume"]
    contradict = "'batch' 2 and 'epoch_images' 9 contradict each other, with 4 images per update"
    for field, value, says in (  # tests/train/checkpoint_bounds.c has all fields
            ("epoch", 2**63 - 1, "'epoch' 9223372036854775807 is not in [0,2]"),
            ("batch", 2**53, "contradict each other"),
            ("epoch_images", 9, contradict)):
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(os.path.join(cwd, "run", "checkpoints", "step-2"), forged)
        forge(forged, **{field: value})
        if "contradict" in says:
            forge(forged, images=2**53)
        fails(*resume, "forged", cwd=cwd, says=says)
    forge(os.path.join(cwd, "run", "checkpoints", "step-4"), epoch=2**63 - 1)
    said = run(*flags, "--max-steps", "6", "--output", "run", "--resume", "auto", cwd=cwd).stderr
    assert "DAMAGED CHECKPOINT" in said and "'epoch' 9223372036854775807 is not in [0,4]" in said, said
    run(*flags, "--max-steps", "6", "--output", "whole", cwd=cwd)
    same(cwd, "run", "whole", 6)


ROWS = [counters_of_a_checkpoint_are_range_checked, class_names_may_be_any_bytes, packs_keep_names_that_are_not_utf8, class_names_of_earlier_versions_resume]

sys.exit(run_rows(ROWS, "lather-hostile-", *sys.argv[2:3]))
