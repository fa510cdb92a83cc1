#!/usr/bin/env python3
"""Writes the images of parquet files, as HuggingFace's hub has them, as folders that --data reads. Needs pyarrow.

    examples/parquet_images.py FOLDER OUT [--image COLUMN] [--label COLUMN]

FOLDER/train-00000-of-00004.parquet gives OUT/train/CLASS/00000000.jpg and so on. A column of images has the files' bytes, alone or as
{bytes, path}. Classes have the names of the files' metadata, otherwise the label. No image is decoded.
"""
import argparse
import glob
import json
import os
import re
import sys

import pyarrow.parquet

SUFFIX = {b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp", b"II*\0": ".tif", b"MM\0*": ".tif"}


def class_names(schema, column):
    """The names by label, or None."""
    features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    return features.get(column, {}).get("names")


def first_column(schema, wanted, default):
    for name in [wanted] if wanted else default:
        if name in schema.names:
            return name
    sys.exit(f"no column {wanted or ' or '.join(default)}; there are: {', '.join(schema.names)}")


def convert(path, out, args, count):
    """Writes the images of a file; count has the number so far by split."""
    file = pyarrow.parquet.ParquetFile(path)
    schema = file.schema_arrow
    image = first_column(schema, args.image, ["image", "img"])
    label = first_column(schema, args.label, ["label", "labels", "fine_label"])
    names = class_names(schema, label)
    split = re.split(r"[-.]", os.path.basename(path))[0]
    for batch in file.iter_batches(256, columns=[image, label]):
        for cell, value in zip(batch.column(image).to_pylist(), batch.column(label).to_pylist()):
            data = cell["bytes"] if isinstance(cell, dict) else cell
            number = count[split] = count.get(split, -1) + 1
            if not data or value is None:
                sys.exit(f"{path}: image {number} of {split} has no bytes or no label")
            name = str(names[value] if names else value).replace("/", "_")
            os.makedirs(os.path.join(out, split, name), exist_ok=True)
            suffix = next((suffix for first, suffix in SUFFIX.items() if data.startswith(first)), ".jpg")
            with open(os.path.join(out, split, name, f"{number:08}{suffix}"), "wb") as f:
                f.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--image")
    parser.add_argument("--label")
    args = parser.parse_args()
    if os.path.exists(args.out):
        sys.exit(f"{args.out} exists")
    files, count = sorted(glob.glob(os.path.join(args.folder, "**", "*.parquet"), recursive=True)), {}
    for path in files:
        convert(path, args.out, args, count)
    print(f"{len(files)} files, images:", ", ".join(f"{split} {last + 1}" for split, last in count.items()) or "none")


if __name__ == "__main__":
    main()
