#!/usr/bin/env python3
"""The command predict, and exit statuses: 1 for errors, 2 for invalid command lines.

    predict.py TRAIN_RESNET50 [ROW]
"""
import csv
import json
import os
import shutil
import subprocess
import sys

from trainer import ERROR, NOISE, OK, PROGRAM, SMALL, TIMEOUT, USAGE, content, folders, run, run_rows


def predict(*args, cwd, code=OK, stdin=None):
    p = subprocess.run([PROGRAM, "predict", *args], cwd=cwd, capture_output=True, timeout=TIMEOUT, input=stdin)
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stderr[-500:]}"
    return p


def trained(cwd):
    folders(cwd)
    run("--data", "data", *SMALL, "--image-size", "16", "--max-steps", "1", "--optim", "sgd", "--output", "run", cwd=cwd)
    return ["--weights", "run/model.safetensors"]


def an_invalid_command_line_exits_with_2(cwd):
    weights = trained(cwd)
    image = "data/val/class0/0.bmp"
    for flags in (["--bogus"], [], [image, "--device", "tpu"], [image, "--mean", "2"], [image, "--top", "0"]):
        assert predict(*weights, *flags, cwd=cwd, code=USAGE).stderr.count(b"train_resnet50 predict: ") == 1
    predict(image, cwd=cwd, code=USAGE)
    for flags in (["--arch", "resnet19"], ["--device", "tpu"], ["--param-group", "(:lr=1"], ["--freeze", "["], ["--optim", "tiger"],
                  ["--depths", "1,2"], ["--batch-size", "1000"]):
        run(*NOISE, *SMALL, *flags, cwd=cwd, code=USAGE)
    predict("--weights", "none", image, cwd=cwd, code=ERROR)
    run("--data", "nowhere", *SMALL, cwd=cwd, code=ERROR)
    run(*NOISE, *SMALL, "--weights", "none", cwd=cwd, code=ERROR)


def prediction_continues_after_corrupt_images(cwd):
    weights = trained(cwd)
    good = ["data/val/class0/0.bmp", "data/val/class2/1.bmp"]
    for name, data in (("empty.bmp", b""), ("text\x1b.png", b"hello")):
        with open(os.path.join(cwd, name), "wb") as f:
            f.write(data)
    os.mkdir(os.path.join(cwd, "hollow"))
    alone = [predict(*weights, name, cwd=cwd).stdout for name in good]
    p = predict(*weights, "empty.bmp", good[0], "none.jpg", "text\x1b.png", "hollow", good[1], "empty.bmp", cwd=cwd, code=ERROR)
    assert p.stdout == b"".join(alone), p.stdout
    lines = [line.split("predict: ", 1)[1] for line in p.stderr.decode().splitlines() if "predict: " in line]
    assert [line.split(": ")[0] for line in lines] == ["empty.bmp", "none.jpg", "text\\x1b.png", "hollow", "empty.bmp"], lines
    assert lines[0] == "empty.bmp: the file is empty" and "No such file" in lines[1], lines
    predict(*weights, "empty.bmp", cwd=cwd, code=ERROR)
    many = [f"none{i}" for i in range(1100)]  # more in a row than the loader tries to replace
    assert predict(*weights, *many, good[0], cwd=cwd, code=ERROR).stdout == alone[0]


def folders_lists_and_standard_input_are_accepted(cwd):
    weights = trained(cwd)
    image = "data/val/class0/0.bmp"
    names = [f"data/val/class{c}/{i}.bmp" for c in range(3) for i in range(4)]
    every = predict(*weights, *names, cwd=cwd).stdout
    assert predict(*weights, "data/val", cwd=cwd).stdout == every
    with open(os.path.join(cwd, "list"), "w") as f:
        f.write("\n".join(names) + "\n\n")
    assert predict(*weights, "--files-from", "list", cwd=cwd).stdout == every
    assert predict(*weights, "--files-from", "-", cwd=cwd, stdin="\n".join(names).encode()).stdout == every
    data = content(cwd, image)
    said = predict(*weights, image, "-", cwd=cwd, stdin=data).stdout
    first = predict(*weights, image, cwd=cwd).stdout
    assert said == first + first.replace(image.encode(), b"-"), said
    p = predict(*weights, "-", cwd=cwd, stdin=data[:40], code=ERROR)
    assert b"predict: -: " in p.stderr and b"/proc" not in p.stderr, p.stderr
    predict(*weights, "-", "-", cwd=cwd, stdin=data, code=USAGE)
    predict(*weights, "-", "--files-from", "-", cwd=cwd, stdin=data, code=USAGE)
    predict(*weights, "--files-from", "none", cwd=cwd, code=ERROR)
    predict(*weights, "--files-from", "-", cwd=cwd, stdin=b"\n", code=ERROR)
    assert b"-: line 3 contains a NUL" in predict(*weights, "--files-from", "-", cwd=cwd, stdin=b"\n\na\0b\n", code=ERROR).stderr
    assert b"predict: : " in predict(*weights, "", cwd=cwd, code=ERROR).stderr
    assert b"predict: .: Is a directory" in predict(*weights, "--files-from", ".", cwd=cwd, code=ERROR).stderr
    assert b"predict: -: more than 268435456 bytes" in predict(*weights, "-", cwd=cwd, stdin=bytes(2 ** 28 + 1), code=ERROR).stderr
    at = os.open(cwd, os.O_RDONLY)
    p = subprocess.run([PROGRAM, "predict", *weights, "-"], cwd=cwd, capture_output=True, timeout=TIMEOUT, stdin=at)
    os.close(at)
    assert p.returncode == ERROR and b"predict: -: Is a directory" in p.stderr, p.stderr


def json_and_csv_are_valid(cwd):
    weights = trained(cwd)
    names = ['a,"b".bmp', "data/val/class1/2.bmp", b"\xff\x1b\\.bmp"]
    for name in names:
        if b"class1" not in os.fsencode(name):
            shutil.copy(os.path.join(cwd, "data/val/class0/0.bmp"), os.path.join(os.fsencode(cwd), os.fsencode(name)))
    with open(os.path.join(cwd, "names"), "w") as f:
        f.write('big, red\n"quoted"\n fi\\sh\x07 \n')
    shown = ["big, red", '"quoted"', " fi\\\\sh\\x07 "]
    paths = ['a,"b".bmp', "data/val/class1/2.bmp", "\\xff\\x1b\\\\.bmp"]
    flags = [*weights, "--class-names", "names"]
    lines = [json.loads(line) for line in predict(*flags, "--json", *names, cwd=cwd).stdout.decode().splitlines()]
    assert [line["path"] for line in lines] == paths, lines
    for line in lines:
        assert abs(sum(p["probability"] for p in line["predictions"]) - 1) < 1e-9, line
        assert all(p["class"] == shown[p["index"]] for p in line["predictions"]), line
        assert sorted(p["index"] for p in line["predictions"]) == [0, 1, 2]
    rows = list(csv.DictReader(predict(*flags, "--csv", *names, cwd=cwd).stdout.decode().splitlines()))
    flat = [(line["path"], i + 1, p["index"], p["class"]) for line in lines for i, p in enumerate(line["predictions"])]
    assert [(r["path"], int(r["rank"]), int(r["index"]), r["class"]) for r in rows] == flat, rows
    assert all(abs(float(r["probability"]) - p["probability"]) < 1e-6
               for r, p in zip(rows, (p for line in lines for p in line["predictions"])))
    text = predict(*flags, *names, cwd=cwd).stdout
    assert b"\x1b" not in text and b"\x07" not in text, text
    best = predict(*flags, "--json", "--top", "1", names[1], "none", cwd=cwd, code=ERROR).stdout.decode().splitlines()
    assert json.loads(best[0])["predictions"] == lines[1]["predictions"][:1], best
    assert json.loads(best[1]) == {"path": "none", "error": "No such file or directory"}, best
    predict(*flags, "--json", "--csv", names[1], cwd=cwd, code=USAGE)
    with open(os.path.join(cwd, "short"), "w") as f:
        f.write("one\ntwo\n")
    assert b"2 names, the weights have 3 classes" in predict(*weights, "--class-names", "short", names[1], cwd=cwd, code=ERROR).stderr


ROWS = [an_invalid_command_line_exits_with_2, prediction_continues_after_corrupt_images, folders_lists_and_standard_input_are_accepted,
        json_and_csv_are_valid]

sys.exit(run_rows(ROWS, "lather-predict-", *sys.argv[2:3]))
