"""Reads what --optim-stats wrote: RUN/optim_stats.bin, and optim_stats.1.bin, .2.bin, ... of earlier settings of the run.

A file has a JSON header with tables (parameter, block, factor), then records of one size: a step, and the numbers of all rows.
Little endian; NaN means that a number does not apply. A last record that is cut off is ignored, a file with a header that is, too."""
import array
import math
import os
import re
import stat
import struct
import sys

from .checked import MOST_COUNT, Problem, items, members, number, parse, text, wrong

MAGIC, FORMAT = b"LTSTATS1", 1


def count(value, where):
    number(0, MOST_COUNT)(value, where)
    if not isinstance(value, int):
        raise wrong(value, where, "a whole number")


ROWS = {"parameter": members(name=text, shape=items(count)), "block": members(parameter=count, shape=items(count)),
        "factor": members(block=count, dim=count, size=count)}
OWNERS = {"block": "parameter", "factor": "block"}  # the table that a row's member of this name points into


class Table:
    def __init__(self, columns, rows, start):
        self.columns, self.rows, self.start = columns, rows, start


class Stats:
    """Records of one header: steps, and series of numbers by table, row and column."""

    def __init__(self, path, header):
        self.path, self.header, self.steps, self.values, self.width, self.tables = path, header, [], array.array("f"), 0, {}
        for table in header["tables"]:
            self.tables[table["name"]] = Table(table["columns"], table["rows"], self.width)
            self.width += len(table["columns"]) * len(table["rows"])
        for name, owner in OWNERS.items():
            for i, row in enumerate(self.rows(name)):
                if row[owner] >= len(self.rows(owner)):
                    raise Problem(f"{path}: {name}[{i}].{owner} is {row[owner]}, want less than {len(self.rows(owner))}")

    def rows(self, table):
        return self.tables[table].rows if table in self.tables else []

    def columns(self, table):
        return self.tables[table].columns if table in self.tables else []

    def series(self, table, row, column):
        """The number in every record; NaN if the file has no such column."""
        if column not in self.columns(table):
            return [math.nan] * len(self.steps)
        t = self.tables[table]
        return self.values[t.start + row * len(t.columns) + t.columns.index(column)::self.width].tolist()

    def rule(self, value):
        """The name of a rule's number, or "" for NaN and numbers without a name."""
        names = self.header["rules"]
        return names[int(value)] if 0 <= value < len(names) else ""

    def owner(self, table, row):
        """The parameter's number of a row of any table."""
        while table in OWNERS:
            row, table = self.rows(table)[row][OWNERS[table]], OWNERS[table]
        return row

    def name(self, table, row):
        """As "conv1.weight", for a block "conv1.weight block 2" if it has several."""
        of, name = self.owner(table, row), self.rows("parameter")[self.owner(table, row)]["name"]
        if table == "factor":
            return f"{self.name('block', self.rows('factor')[row]['block'])} dim {self.rows('factor')[row]['dim']}"
        blocks = [i for i, block in enumerate(self.rows("block")) if block["parameter"] == of] if table == "block" else []
        return f"{name} block {blocks.index(row)}" if len(blocks) > 1 else name


def check_table(table, where):
    members(name=text, columns=items(text), rows=items(lambda row, at: None))(table, where)
    items(ROWS.get(table["name"], lambda row, at: None))(table["rows"], f"{where}.rows")


def read_header(file, path, size):
    """None if it is cut off, as a kill leaves it."""
    head = file.read(16)
    if not MAGIC.startswith(head[:8]):
        raise Problem(f"{path}: begins with {head[:8]!r}, want {MAGIC!r}: not a file of --optim-stats")
    length = struct.unpack("<Q", head[8:])[0] if len(head) == 16 else size
    if length > 2 ** 30:
        raise Problem(f"{path}: a header of {length} bytes: not a file of --optim-stats")
    if length > size - 16:
        return None
    try:
        header = parse(file.read(length).decode("utf-8", "surrogateescape"), path)
    except ValueError as error:
        raise Problem(f"{path}: the header is not JSON: {error}") from None
    if isinstance(header, dict) and header.get("format") != FORMAT:
        raise Problem(f"{path}: format {header.get('format')}, this program reads {FORMAT}; use the lather that wrote the run")
    members(rules=items(text), tables=items(check_table))(header, f"{path}: header")
    return header


def read_file(path):
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "is not a regular file", path)
    with open(path, "rb") as file:
        header = read_header(file, path, os.fstat(file.fileno()).st_size)
        stats = Stats(path, header or {"rules": [], "tables": []})
        while header and len(record := file.read(8 + 4 * stats.width)) == 8 + 4 * stats.width:
            stats.steps.append(struct.unpack("<q", record[:8])[0])
            count(stats.steps[-1], f"{path}: the step of record {len(stats.steps)}")
            stats.values.frombytes(record[8:])
    if sys.byteorder == "big":
        stats.values.byteswap()
    return stats


def read_optim_stats(run):
    """Stats of a run folder, oldest first; files with the same tables are joined. Raises Problem, OSError."""
    names = [name for name in os.listdir(run) if re.fullmatch(r"optim_stats(\.\d+)?\.bin", name)]
    found = []
    for name in sorted(names, key=lambda name: int(name.split(".")[1]) if name.count(".") == 2 else math.inf):
        stats = read_file(os.path.join(run, name))
        if found and found[-1].header["tables"] == stats.header["tables"] and found[-1].header["rules"] == stats.header["rules"]:
            stats.steps, stats.values = found[-1].steps + stats.steps, found[-1].values + stats.values
            found.pop()
        found.append(stats)
    return [stats for stats in found if stats.steps]
