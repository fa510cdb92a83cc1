#!/usr/bin/env python3
"""train_resnet50 with images of many formats, hostile images, and folders with other files.

    tests/models/images.py BUILD/models/resnet50/train_resnet50 [ROW]

Prints cmocka's lines.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from trainer import ERROR, PROGRAM, SMALL, SOURCE, TIMEOUT, USAGE, Skip, content, epochs_of, fails, folders, full, records, run, run_rows, write_image

FORMATS = os.path.join(SOURCE, "tests/golden/data/formats")
ONE_STEP = [*SMALL, "--data", "data", "--image-size", "16", "--max-steps", "1", "--output"]
# An image of 11500 x 11500 pixels in 35 bytes.
BOMB = b"GIF89a" + b"\xec\x2c\xec\x2c\x80\0\0" + b"\0\0\0\xff\xff\xff" + b",\0\0\0\0\xec\x2c\xec\x2c\0\2\2\x4c\1\0;"
UNPRIVILEGED = 65534


def attempt(*args, cwd, **more):
    return subprocess.run([PROGRAM, *args], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, **more)


def images_of_all_formats_are_trained_on(cwd):
    folders(cwd, classes=2, images=2)
    for part in "train", "val":
        for name in os.listdir(FORMATS):
            shutil.copy(os.path.join(FORMATS, name), os.path.join(cwd, "data", part, "class0"))
    p = attempt(*ONE_STEP, "out", "--max-bad-images", "0", cwd=cwd)
    if "which this build lacks" in p.stderr:
        raise Skip("a build without all formats")
    assert p.returncode == 0, p.stderr


def ignored_files_are_counted(cwd):
    folders(cwd)
    for name in "class0/a.heic", "class1/b.heic", "class2/notes.txt":
        with open(os.path.join(cwd, "data/train", name), "w") as f:
            f.write("x")
    text = run(*ONE_STEP, "out", cwd=cwd).stderr
    assert "data/train: 3 files left out: .heic 2, .txt 1\n" in text, text
    assert "data/val" not in text, text


def evaluating_on_the_training_images_is_reported(cwd):
    folders(cwd)
    flags = [*SMALL, "--image-size", "16", "--max-steps", "1", "--output"]
    text = run(*flags, "split", "--data", "data", cwd=cwd).stderr
    assert "training images" not in text and "val_is_train" not in epochs_of(cwd, "split")[-1], text
    text = run(*flags, "same", "--data", "data/train", "--progress", "lines", cwd=cwd).stderr
    assert "val loss" in text and "top-5" not in text, text  # three classes have no top-5
    assert text.count("data/train has no split") == 2 and "evaluations use the training images" in text, text
    assert epochs_of(cwd, "same")[-1]["val_is_train"] == 1, epochs_of(cwd, "same")
    shutil.copytree(os.path.join(cwd, "data/val"), os.path.join(cwd, "other/valid"))
    shutil.copytree(os.path.join(cwd, "data/train"), os.path.join(cwd, "other/train"))
    subprocess.run(["tar", "-C", "data/train", "-cf", "one.tar", "."], cwd=cwd, check=True)
    assert "has no split" in run(*flags, "tar", "--data", "one.tar", cwd=cwd).stderr
    assert "has no split" not in run(*flags, "valid", "--data", "other", cwd=cwd).stderr
    assert "has no split" not in run(*flags, "unseen", "--data", "data/train", "--eval-every", "-1", cwd=cwd).stderr


def classes_without_images_are_left_out(cwd):
    folders(cwd)
    data = os.path.join(cwd, "data")
    os.mkdir(os.path.join(data, "train/class00"))  # sorted before class1
    shutil.rmtree(os.path.join(data, "val/class1"))
    os.mkdir(os.path.join(data, "val/class1"))
    flags = [*SMALL, "--image-size", "16", "--max-steps", "1", "--progress", "lines"]
    text = run(*flags, "--data", "data", "--output", "out", cwd=cwd).stderr
    for says in ("data/train: no .jpg", "1 class folder: class00; left out, 3 classes remain", "1 class folder: class1; left out, 2 classes",
                 "data: classes only in the training data: class1; the others are matched by name"):
        assert text.count(says) == 1, (says, text)
    # The label of class2 is still 2.
    run("--eval", "--weights", "out/model.safetensors", "--data", "data", "--save-logits", "l.safetensors", cwd=cwd)
    with open(os.path.join(cwd, "l.safetensors"), "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        at = json.loads(f.read(size))["labels"]
        f.seek(8 + size + at["data_offsets"][0])
        found = list(f.read(at["data_offsets"][1] - at["data_offsets"][0])[::8 if at["dtype"] == "I64" else 4])
    assert found == [0] * 4 + [2] * 4, found


def held_back_images_are_evaluated_and_never_trained_on(cwd):
    folders(cwd, images=8)
    flags = [*SMALL, "--image-size", "16", "--max-steps", "6", "--output", "out"]
    split = ["--data", "data/train", "--val-split", "0.25"]
    text = run(*flags, *split, "--max-steps", "3", "--progress", "lines", cwd=cwd).stderr
    assert "trains on 18 images, evaluates on 6, the same share of each class, seed 0\n" in text, text
    assert "training images" not in text and "val_is_train" not in epochs_of(cwd, "out")[-1], text
    state = json.loads(content(cwd, "out/checkpoints/latest/state.json"))
    assert state["val_split"] == "0.25 seed 0" and "val-split: 0.25" in content(cwd, "out/config.yaml").decode(), state
    for other in [], ["--val-split", "0.5"], ["--val-split", "0.25", "--val-split-seed", "1"]:
        fails(*flags, "--data", "data/train", *other, "--resume", "auto", cwd=cwd,
              says="was trained with --val-split 0.25 seed 0, this start has", code=USAGE)
    text = run(*flags, *split, "--resume", "auto", cwd=cwd).stderr
    assert "data that changed" not in text, text
    write_image(os.path.join(cwd, "data/val/class0/0.bmp"), 20, 200)  # otherwise the same data as train
    # Weights know the images that were held back, if the data are the same.
    last = epochs_of(cwd, "out")[-1]["val_loss"]
    evaluate = ["--eval", "--weights", "out/model.safetensors", "--threads", "1", "--data"]
    for data, more, images in (("data/train", [], 6), ("data/train", split[2:], 6), ("data/val", [], 24), ("data", [], 24),
                               ("data", split[2:], 6)):
        text = run(*evaluate, data, *more, cwd=cwd).stdout
        assert f"over {images} images" in text, (data, more, text)
        assert images != 6 or f"loss {last:.5f}" in text, (text, last)
    run(*flags, *split, "--output", "watched", "--eval-every", "-1", cwd=cwd)
    run("evaluate", "--watch", "watched", "--threads", "1", "--deterministic", cwd=cwd)
    watched = [r for r in records(cwd, "watched", file="metrics-eval.jsonl") if r["event"] == "evaluation"][-1]
    text = run("--eval", "--weights", "watched/model.safetensors", "--threads", "1", "--data", "data/train", cwd=cwd).stdout
    assert f"loss {watched['val_loss']:.5f} over 6 images" in text and "val_is_train" not in watched, (watched, text)


def labels_from_a_table_are_trained_evaluated_and_split(cwd):
    folders(cwd, images=8)
    os.makedirs(os.path.join(cwd, "flat/images"))
    with open(os.path.join(cwd, "train.csv"), "w") as train, open(os.path.join(cwd, "val.csv"), "w") as val:
        train.write("id,breed\n")
        val.write("id,breed\n")
        for c in range(3):
            for i in range(8):
                os.rename(os.path.join(cwd, f"data/train/class{c}/{i}.bmp"), os.path.join(cwd, f"flat/images/{c}-{i}.bmp"))
                (train if i < 6 else val).write(f"{c}-{i},class{c}\n")
    flags = [*SMALL, "--data", "flat", "--labels", "train.csv", "--image-size", "16", "--max-steps", "3", "--progress", "lines", "--output"]
    text = run(*flags, "all", cwd=cwd).stderr
    assert "train.csv: no label for 6 of the 24 images of flat, left out: images/0-6.bmp, images/0-7.bmp, images/1-6.bmp, ..." in text, text
    assert text.count("no label for") == 1 and "flat has no split: evaluations use the training images" in text, text
    text = run(*flags, "both", "--val-labels", "val.csv", cwd=cwd).stderr
    assert "no split" not in text, text
    text = run(*flags, "split", "--val-split", "0.34", cwd=cwd).stderr
    assert "trains on 12 images, evaluates on 6" in text, text
    evaluate = ["--eval", "--weights", "both/model.safetensors", "--threads", "1", "--deterministic", "--data", "flat", "--labels", "train.csv"]
    last = epochs_of(cwd, "both")[-1]["val_loss"]
    assert f"loss {last:.5f} over 6 images" in run(*evaluate, "--val-labels", "val.csv", cwd=cwd).stdout
    run("evaluate", "--watch", "both", "--threads", "1", "--deterministic", cwd=cwd)
    assert "over 18 images" in run(*evaluate, cwd=cwd).stdout
    with open(os.path.join(cwd, "val.csv"), "a") as val:
        val.write("3-0,class3\n")
    fails(*flags, "bad", "--val-labels", "val.csv", cwd=cwd, says="val.csv: 1 of 7 labels are for images that flat does not have: 3-0")


def a_split_without_images_is_an_error(cwd):
    folders(cwd)
    flags = [*SMALL, "--image-size", "16", "--max-steps", "1"]
    want = "want the fraction of each class's training images"
    for value in "0", "1", "-0.5", "x", "nan":
        fails(*flags, "--data", "data/train", "--val-split", value, cwd=cwd, says=want, code=USAGE)
    fails(*flags, "--data", "data/train", "--val-split", "0.1", cwd=cwd,
          says="--val-split: 0.1 of class 'class0' with its 4 samples leaves 4 to train on and 0 to evaluate; a fraction from 0.126", code=USAGE)
    fails(*flags, "--data", "data/train", "--val-split-seed", "1", cwd=cwd, says="needs --val-split", code=USAGE)
    text = run(*flags, "--data", "data", "--val-fraction", "0.5", "--progress", "lines", cwd=cwd).stderr
    assert "evaluates on 6, the same share of each class, seed 0; the data's own validation part is not used" in text, text


@full  # 20 s until the service is given up
def a_split_of_a_missing_service_is_an_error(cwd):
    fails(*SMALL, "--image-size", "16", "--max-steps", "1", "--data", "service:tcp://127.0.0.1:9", "--val-split", "0.5", cwd=cwd, says="tcp://127.0.0.1:9")


def a_limited_evaluation_is_reported(cwd):
    folders(cwd)
    once = ["--data", "data", "--image-size", "16", "--max-steps", "1", "--eval-batch-size", "2", "--output"]
    said = run(*SMALL, *once, "all", "--limit-eval-batches", "6", cwd=cwd).stderr
    assert "evaluations on" not in said and "val_samples" not in epochs_of(cwd, "all")[-1], said
    said = run(*SMALL, *once, "some", "--limit-eval-batches", "2", "--progress", "lines", cwd=cwd).stderr
    found = epochs_of(cwd, "some")[-1]
    assert (found["val_samples"], found["val_total"]) == (4, 12), found
    assert "evaluations on 4 of 12 images, evenly spread" in said and re.search(r"^epoch 1: .* % on 4 of 12 \| 0:", said, re.M), said
    said = run("--data", "data", "--eval", "--weights", "some/model.safetensors", "--batch-size", "2", "--limit-eval-batches", "2", cwd=cwd).stdout
    assert said.endswith(" over 4 of 12 images\n"), said


def weighted_sampling_is_resumed_and_named(cwd):
    folders(cwd)
    flags = [*SMALL, "--data", "data", "--image-size", "16", "--sampler", "weighted", "--epochs", "3"]
    run(*flags, "--output", "whole", cwd=cwd)
    run(*flags, "--max-steps", "4", "--output", "parts", cwd=cwd)
    run(*flags, "--resume", "auto", "--output", "parts", cwd=cwd)
    run(*flags, "--sampler", "random", "--output", "random", cwd=cwd)
    weights = [content(os.path.join(cwd, folder, "model.safetensors")) for folder in ("whole", "parts", "random")]
    assert weights[0] == weights[1] != weights[2]
    for flag in ["--no-shuffle"], ["--overfit-batches", "1"]:
        fails(*flags, *flag, cwd=cwd, code=USAGE, says="weighted sampling needs shuffle and all samples, and no service")
    fails(*flags, "--sampler", "balanced", cwd=cwd, code=USAGE, says="--sampler: ")


def corrupt_images_are_listed_once_and_counted_on_the_console(cwd):
    folders(cwd)
    for part in "train", "val":
        with open(os.path.join(cwd, "data", part, "class1/0.bmp"), "wb") as f:
            f.write(b"none")
    again = [*SMALL, "--data", "data", "--image-size", "16", "--output", "out", "--resume", "auto", "--epochs"]
    text = run(*again, "2", cwd=cwd).stderr
    assert text.count("2 images could not be read and were replaced by others: out/bad_images.txt\n") == 2, text
    text = run(*again, "3", cwd=cwd).stderr
    lines = content(cwd, "out/bad_images.txt").decode().splitlines()
    assert len(lines) == len(set(lines)) == 2 and "2 images could not be read" in text, (lines, text)


def an_unsaved_run_and_a_finished_run_are_reported(cwd):
    folders(cwd)
    flags = [*SMALL, "--data", "data", "--image-size", "16", "--max-steps", "1", "--progress", "lines"]
    done = "step 1 of 1: all steps are done"
    assert "no --output: this run will not be saved" in run(*flags, cwd=cwd).stderr
    for resumes in False, True:
        text = run(*flags, "--output", "out", "--resume", "auto", cwd=cwd).stderr
        assert (done in text) == resumes and "will be saved" not in text, text


def a_decompression_bomb_is_skipped(cwd):
    folders(cwd)
    for part in "train", "val":
        with open(os.path.join(cwd, "data", part, "class1/bomb.gif"), "wb") as f:
            f.write(BOMB)
    fails(*ONE_STEP, "refused", "--max-bad-images", "0", cwd=cwd,
          says="bomb.gif: image: 11500 x 11500 pixels are more than the 100000000 allowed")
    run(*ONE_STEP, "out", cwd=cwd)
    assert b"val/class1/bomb.gif" in content(cwd, "out/bad_images.txt")


def the_pixel_limit_is_an_option(cwd):
    folders(cwd)  # 20 x 20 pixels each
    fails(*ONE_STEP, "refused", "--max-image-pixels", "399", "--max-bad-images", "0", cwd=cwd,
          says="20 x 20 pixels are more than the 399 allowed")
    run(*ONE_STEP, "out", "--max-image-pixels", "400", "--max-bad-images", "0", cwd=cwd)
    image = "data/val/class0/0.bmp"
    run("predict", "--weights", "out/model.safetensors", image, cwd=cwd)
    p = attempt("predict", "--weights", "out/model.safetensors", "--max-image-pixels", "399", image, cwd=cwd)
    assert p.returncode == ERROR and "more than the 399 allowed" in p.stderr, p.stderr


def permission_errors_are_reported(cwd):
    folders(cwd)
    os.chmod(cwd, 0o755)
    os.chmod(os.path.join(cwd, "data/train/class0/0.bmp"), 0)
    os.mkdir(os.path.join(cwd, "secret"), 0)
    os.mkdir(os.path.join(cwd, "w"), 0o777)
    os.chmod(os.path.join(cwd, "w"), 0o777)
    as_who = {"user": UNPRIVILEGED, "group": UNPRIVILEGED} if os.getuid() == 0 else {}
    try:
        for data, says in ("../secret/x", "../secret/x: Permission denied"), ("../data", "0.bmp: Permission denied"):
            p = attempt(*ONE_STEP, "out", "--data", data, "--max-bad-images", "0", "--batch-size", "12",
                        cwd=os.path.join(cwd, "w"), **as_who)
            assert p.returncode == ERROR and says in p.stderr, p.stderr
    except PermissionError:
        raise Skip("another user cannot reach the program")
    finally:
        os.chmod(os.path.join(cwd, "secret"), 0o755)


def help_mentions_tar_files_and_packs(cwd):
    text = " ".join(run("--help", "all", cwd=cwd).stdout.split())
    begin = text.index("--data DIR image folder")
    for word in "tar", "pack", "WebDataset":
        assert word in text[begin:begin + 400], text[begin:begin + 400]


ROWS = [images_of_all_formats_are_trained_on, ignored_files_are_counted, evaluating_on_the_training_images_is_reported,
        classes_without_images_are_left_out, held_back_images_are_evaluated_and_never_trained_on, a_split_without_images_is_an_error,
        labels_from_a_table_are_trained_evaluated_and_split,
        a_limited_evaluation_is_reported, weighted_sampling_is_resumed_and_named, corrupt_images_are_listed_once_and_counted_on_the_console,
        an_unsaved_run_and_a_finished_run_are_reported, a_decompression_bomb_is_skipped,
        the_pixel_limit_is_an_option, permission_errors_are_reported, help_mentions_tar_files_and_packs]
sys.exit(run_rows(ROWS, "lather-images-", *sys.argv[2:3]))
