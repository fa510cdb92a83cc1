"""Fingerprint of a data set, 16 hexadecimal digits: a hash over the names and sizes of its files, and over the contents of small
ones. Re-encoded images change sizes; an image added, lost or renamed changes names."""
import hashlib
import os

SMALL = 64 << 20  # a file up to here is read when the set has few files
FEW = 64


class DataError(Exception):
    """The data is not there."""


def folder_of(data):
    """Folder or file of the data; None for synthetic data."""
    if data.startswith("synthetic"):
        return None
    named = {"fashion-mnist": ("LATHER_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"),
             "kjv": ("LATHER_KJV", "/usr/lib/bible.data")}
    return os.environ.get(*named[data]) if data in named else data


def list_files(top):
    """(relative name, path, size) in byte order of the names; without the indexes that readers write next to tar files."""
    if os.path.isfile(top):
        return [(os.path.basename(top), top, os.path.getsize(top))]
    found = []
    for folder, _, names in os.walk(top, followlinks=True):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(".index"):
                found.append((os.path.relpath(path, top), path, os.path.getsize(path)))
    return sorted(found, key=lambda entry: entry[0].encode())


def fingerprint_of_name(data):
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def fingerprint(data):
    """Errors: DataError."""
    top = folder_of(data)
    if top is None:
        return fingerprint_of_name(data)
    files = list_files(top) if os.path.exists(top) else []
    if not files:
        raise DataError(f"{top}: no data there")
    digest = hashlib.sha256()
    for name, path, size in files:
        digest.update(f"{name}\0{size}\0".encode())
        if len(files) <= FEW and size <= SMALL:
            with open(path, "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def images(data):
    """(in the training set, held back), or None where only a reader could tell (tar files, packs)."""
    if data == "fashion-mnist":
        return 60000, 10000
    if data.startswith("synthetic"):
        parts = data.split(":")
        count = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 1000
        return count, count
    sizes = []
    for part in ("train", "val"):
        top = os.path.join(data, part)
        folders = [entry.path for entry in os.scandir(top) if entry.is_dir()] if os.path.isdir(top) else []
        sizes.append(sum(len(os.listdir(folder)) for folder in folders))
    return tuple(sizes) if all(sizes) else None


def upper_bits(value):
    """A fingerprint of metrics.jsonl as earlier versions recorded it, a number of 53 bits. Other values remain."""
    return int(value, 16) >> 11 | 1 if isinstance(value, str) else value


def are_equal(one, other):
    """Compares two values of a record `data`; if one fingerprint is a number, as numbers."""
    return one == other if isinstance(one, str) and isinstance(other, str) else upper_bits(one) == upper_bits(other)
