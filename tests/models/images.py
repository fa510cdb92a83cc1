#!/usr/bin/env python3
"""train_resnet50 with images of many formats, hostile ones, and folders that hold other files too.

    tests/models/images.py BUILD/models/resnet50/train_resnet50 [ROW]

Prints cmocka's lines.
"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from rows import Skip, run_rows  # noqa: E402
from trainer import ERROR, PROGRAM, SMALL, TIMEOUT, fails, folders, run  # noqa: E402

FORMATS = os.path.join(HERE, "../golden/data/formats")
ONE_STEP = [*SMALL, "--data", "data", "--image-size", "16", "--max-steps", "1", "--output"]
# A screen of 11500 x 11500 in 35 bytes.
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
    if "this build has no lib" in p.stderr:
        raise Skip("a build without all formats")
    assert p.returncode == 0, p.stderr


def files_left_out_are_counted(cwd):
    folders(cwd)
    for name in "class0/a.heic", "class1/b.heic", "class2/notes.txt":
        with open(os.path.join(cwd, "data/train", name), "w") as f:
            f.write("x")
    text = run(*ONE_STEP, "out", cwd=cwd).stderr
    assert "data/train: 3 files left out: .heic 2, .txt 1\n" in text, text
    assert "data/val" not in text, text


def a_bomb_among_good_images_is_skipped(cwd):
    folders(cwd)
    for part in "train", "val":
        with open(os.path.join(cwd, "data", part, "class1/bomb.gif"), "wb") as f:
            f.write(BOMB)
    fails(*ONE_STEP, "refused", "--max-bad-images", "0", cwd=cwd,
          says="bomb.gif: image: 11500 x 11500 pixels are more than the 100000000 allowed")
    run(*ONE_STEP, "out", cwd=cwd)
    with open(os.path.join(cwd, "out/bad_images.txt")) as f:
        assert "val/class1/bomb.gif" in f.read()


def the_limit_of_pixels_is_an_option(cwd):
    folders(cwd)  # of 20 x 20
    fails(*ONE_STEP, "refused", "--max-image-pixels", "399", "--max-bad-images", "0", cwd=cwd,
          says="20 x 20 pixels are more than the 399 allowed")
    run(*ONE_STEP, "out", "--max-image-pixels", "400", "--max-bad-images", "0", cwd=cwd)
    image = "data/val/class0/0.bmp"
    run("predict", "--weights", "out/model.safetensors", image, cwd=cwd)
    p = attempt("predict", "--weights", "out/model.safetensors", "--max-image-pixels", "399", image, cwd=cwd)
    assert p.returncode == ERROR and "more than the 399 allowed" in p.stderr, p.stderr


def permission_denied_is_said(cwd):
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


def help_names_tar_files_and_packs(cwd):
    text = " ".join(run("--help", cwd=cwd).stdout.split())
    begin = text.index("--data DIR image folder")
    for word in "tar", "pack", "WebDataset":
        assert word in text[begin:begin + 400], text[begin:begin + 400]


ROWS = [images_of_all_formats_are_trained_on, files_left_out_are_counted, a_bomb_among_good_images_is_skipped,
        the_limit_of_pixels_is_an_option, permission_denied_is_said, help_names_tar_files_and_packs]
sys.exit(run_rows(ROWS, "lather-images-", sys.argv[2] if len(sys.argv) > 2 else None))
