"""Files in the format of --optim-stats, for tests of report and doctor: written here from the description of the format, not by the library."""
import json
import math
import struct

NAN = math.nan
RULES = ["none", "elementwise", "root", "eigenbasis", "diagonal", "grafted", "adamw", "orthogonal", "sign", "frozen", "no_gradient", "skipped"]
COLUMNS = {
    "parameter": ["rule", "weight_norm", "gradient_norm", "update_norm", "update_ratio", "update_cosine", "consecutive_cosine", "zero_gradient_rows"],
    "block": ["rule", "graft_ratio", "weight_norm", "gradient_norm", "update_norm", "update_cosine"],
    "factor": ["eigenvalue_min", "eigenvalue_max", "condition", "effective_rank", "below_epsilon", "off_diagonal", "epsilon", "root_age", "residual",
               "failures", "spectrum_age"] + [f"q{i}" for i in range(9)]}


def header(shapes, blocks=True, **more):
    """Tables of parameters (name, shape): each with one block and a factor per dimension, if it has two."""
    parameters = [{"name": name, "shape": shape} for name, shape in shapes]
    rows = [{"parameter": i, "shape": shape} for i, (_, shape) in enumerate(shapes)] if blocks else []
    factors = [{"block": i, "dim": d, "size": size} for i, row in enumerate(rows) if len(row["shape"]) > 1 for d, size in enumerate(row["shape"])]
    tables = [{"name": name, "columns": COLUMNS[name], "rows": found}
              for name, found in (("parameter", parameters), ("block", rows), ("factor", factors))]
    return {"format": 1, "lather": "0.2.0", "run": "0" * 32, "every": 10, "optim": "shampoo", "rules": RULES, "tables": tables, **more}


def encode(head, records):
    """records: (step, function of a table's name, its row's number, its row and a column: the number)."""
    text = json.dumps(head)
    text += " " * (-len(text.encode()) % 8)
    data = b"LTSTATS1" + struct.pack("<Q", len(text.encode())) + text.encode()
    for step, value in records:
        numbers = [value(t["name"], i, row, column) for t in head["tables"] for i, row in enumerate(t["rows"]) for column in t["columns"]]
        data += struct.pack(f"<q{len(numbers)}f", step, *numbers)
    return data


def write(path, head, records):
    with open(path, "wb") as file:
        file.write(encode(head, records))


def healthy(changes=None):
    """A function for encode() with the numbers of a run in which nothing is wrong; changes: {(table, column): number or function of (row number, row)}."""
    sound = {("parameter", "weight_norm"): 5, ("parameter", "gradient_norm"): 0.1, ("parameter", "update_norm"): 0.01, ("parameter", "update_ratio"): 2e-3,
             ("parameter", "update_cosine"): 0.3, ("parameter", "consecutive_cosine"): 0.6, ("parameter", "zero_gradient_rows"): 0,
             ("block", "graft_ratio"): 0.05, ("block", "weight_norm"): 5, ("block", "gradient_norm"): 0.1, ("block", "update_norm"): 0.01,
             ("block", "update_cosine"): 0.3, ("factor", "eigenvalue_min"): 1e-6, ("factor", "eigenvalue_max"): 1e-2, ("factor", "condition"): 1e4,
             ("factor", "effective_rank"): lambda i, row: row["size"] / 3, ("factor", "below_epsilon"): 0, ("factor", "off_diagonal"): 0.05,
             ("factor", "epsilon"): 1e-8, ("factor", "root_age"): 10, ("factor", "residual"): 1e-5, ("factor", "failures"): 0, ("factor", "spectrum_age"): 0}
    sound.update({("factor", f"q{i}"): 1e-6 * 10 ** (i / 2) for i in range(9)})
    for table in ("parameter", "block"):
        sound[table, "rule"] = lambda i, row: RULES.index("root" if len(row["shape"]) > 1 else "diagonal")
    sound.update(changes or {})

    def value(table, i, row, column):
        found = sound.get((table, column), NAN)
        return found(i, row) if callable(found) else found
    return value
