#!/usr/bin/env python3
"""Makes the data of each row of the first table of docs/guides/data.md, and runs the row's command.

    data_guide.py TRAIN_RESNET50
"""
import json
import os
import struct
import subprocess
import sys
import tarfile

from trainer import SMALL, SOURCE, TIMEOUT, TOOLS, folders, guide_table, run, run_rows, try_table, write_image


def typed(folder, words, **names):
    """Runs the row's words, with names of the test's data for the guide's, for one step; no evaluation uses training images."""
    words = [names.get(word, word) for word in words]
    said = run(*SMALL, *words, "--image-size", "16", "--max-steps", "1", "--limit-eval-batches", "1", "--progress", "lines", cwd=folder).stderr
    assert "evaluations use the training images" not in said, (words, said)


def moved(source, target):
    def make(folder, words):
        folders(folder, images=6)
        os.rename(os.path.join(folder, source), os.path.join(folder, target))
        typed(folder, words, DIR="data" if target.startswith("data/") else target)
    return make


def whole(folder, words):
    folders(folder)
    typed(folder, words, DIR="data")


def flat_val(folder, words):
    folders(folder)
    with open(os.path.join(folder, "labels.txt"), "w") as f:
        for c in range(3):
            for i in range(4):
                os.rename(os.path.join(folder, f"data/val/class{c}/{i}.bmp"), os.path.join(folder, f"data/val/{c}-{i}.bmp"))
                f.write(f"{c}-{i}.bmp class{c}\n")
            os.rmdir(os.path.join(folder, f"data/val/class{c}"))
    typed(folder, words, DIR="data", FILE="labels.txt")


def tables(folder, words):
    os.makedirs(os.path.join(folder, "flat/more"))
    for name, images in ("train.csv", 18), ("val.csv", 6), ("FILE.csv", 24):
        with open(os.path.join(folder, name), "w") as f:
            f.write("id,label\n")
            for i in range(images) if name != "val.csv" else range(18, 24):
                write_image(os.path.join(folder, f"flat/{'more/' if i % 2 else ''}{i}.bmp"), 20, 9 * i)
                f.write(f"{i},{'abc'[i % 3]}\n")
    typed(folder, words, DIR="flat")


def shards(folder, words):
    for part in "train", "val":
        os.makedirs(os.path.join(folder, "data", part))
        with tarfile.open(os.path.join(folder, "data", part, "0.tar"), "w") as tar:
            for i in range(6):
                write_image(os.path.join(folder, "image"), 20, 9 * i)
                with open(os.path.join(folder, "class"), "w") as f:
                    f.write(str(i % 3))
                tar.add(os.path.join(folder, "image"), f"{i}.bmp")
                tar.add(os.path.join(folder, "class"), f"{i}.cls")
    typed(folder, words, DIR="data")


def one_tar(folder, words):
    folders(folder, images=6)
    with tarfile.open(os.path.join(folder, "FILE.tar"), "w") as tar:
        tar.add(os.path.join(folder, "data/train"), "train")
    typed(folder, words)


def pack(folder, words):
    folders(folder)
    subprocess.run([os.path.join(TOOLS, "pack"), "--quiet", "data", "packed"], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT)
    typed(folder, words, DIR="packed")


def idx(folder, words):
    if "fashion-mnist" in words and not os.path.isdir("/usr/share/datasets/fashion-mnist"):
        return
    os.mkdir(os.path.join(folder, "data"))
    for part, count in ("train", 12), ("t10k", 6):
        for kind, head, size in ("images-idx3", struct.pack(">IIII", 0x803, count, 20, 20), 400), ("labels-idx1", struct.pack(">II", 0x801, count), 1):
            with open(os.path.join(folder, "data", f"{part}-{kind}-ubyte"), "wb") as f:
                f.write(head + b"".join(bytes([i % 3] * size) for i in range(count)))
    subprocess.run([os.path.join(TOOLS, "pack"), "--quiet", "data", "packed"], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT)
    samples = []
    for part in "train", "val":
        with open(os.path.join(folder, "packed", part, "manifest.json"), encoding="utf-8") as f:
            samples.append(json.load(f)["samples"])
    assert samples == [12, 6], samples
    typed(folder, words, DIR="data")


def cifar(folder, words):
    os.mkdir(os.path.join(folder, "data"))
    for name in *(f"data_batch_{i}" for i in range(1, 6)), "test_batch":
        with open(os.path.join(folder, "data", f"{name}.bin"), "wb") as f:
            f.write(b"".join(bytes([i % 10] * 3073) for i in range(10)))
    with open(os.path.join(folder, "data", "batches.meta.txt"), "w") as f:
        f.write("".join(f"class{i}\n" for i in range(10)))
    typed(folder, words, DIR="data")


def parquet(folder, words):
    data = os.path.join(folder, "data")
    os.mkdir(data)
    with open(os.path.join(data, "train-0.parquet"), "wb"):
        pass
    for name in "data", "data/train-0.parquet":
        said = run(*SMALL, "--data", name, "--max-steps", "1", cwd=folder, code=1).stderr
        assert f"{name}: parquet files are not read; examples/parquet_images.py" in said, said
    try:
        import pyarrow.parquet  # pylint: disable=import-outside-toplevel
    except ImportError:
        return
    names = {"info": {"features": {"label": {"names": ["a/b", "c"]}}}}
    for part, count in ("train", 12), ("validation", 4):
        images = []
        for i in range(count):
            write_image(os.path.join(folder, "image.bmp"), 20, 9 * i)
            with open(os.path.join(folder, "image.bmp"), "rb") as f:
                images.append({"bytes": f.read(), "path": None})
        table = pyarrow.table({"image": images, "label": [i % 2 for i in range(count)]})
        pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(names)}), os.path.join(data, f"{part}-0.parquet"))
    made = subprocess.run([sys.executable, os.path.join(SOURCE, "examples", "parquet_images.py"), "data", "OUT"], cwd=folder, check=True,
                          capture_output=True, text=True, timeout=TIMEOUT).stdout
    assert made == "2 files, images: train 12, validation 4\n" and sorted(os.listdir(os.path.join(folder, "OUT/train"))) == ["a_b", "c"], made
    typed(folder, words)


def in_test(test, text):
    def look(folder, words):
        assert words, "no command"
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), test)) as f:
            assert text in f.read(), (test, text)
    return look


def every_row_of_the_data_guide_runs(cwd):
    situations = {
        "`val` may be": moved("data/val", "data/validation"), "or only `DIR/train/CLASS/FILE`": moved("data/train", "only"),
        "the same, and do not": moved("data/train", "only"), "a flat `DIR/val/FILE`": flat_val, "CSV or JSON lines": tables,
        "another file of labels": tables, "WebDataset": shards, "one tar file": one_tar, "a pack": pack, "very different sizes": whole, "in EXIF": whole, "slow disk": whole, "MNIST's four": idx, "CIFAR-10": cifar, "parquet": parquet,
        "data service": in_test("served.py", '"--data", f"service:{address}"'), "as a plugin": in_test("plugins.py", '"--plugin"'),
        "nothing yet": lambda folder, words: typed(folder, words, **{"synthetic:COUNT:SIZE:CLASSES": "synthetic:24:16:3"})}
    try_table(guide_table("data.md"), situations, cwd)


def a_row_without_a_test_is_found(cwd):
    for rows, situations in ([("data that no test makes", [])], {}), ([], {"no row has this": None}):
        try:
            try_table(rows, situations, cwd)
        except AssertionError:
            continue
        raise AssertionError(f"accepted: {rows}, {situations}")


ROWS = [a_row_without_a_test_is_found, every_row_of_the_data_guide_runs]

sys.exit(run_rows(ROWS, "lather-data-guide-", *sys.argv[2:3]))
