"""A finished run as one small file: what the report needs, at most 20 kB.

Curves of steps are thinned to means over equal parts; epochs are kept whole while they fit."""
import json
import os
import statistics
import struct

from report_lib.records import read_settings

POINTS = 100  # points of the loss curve
EPOCHS = 120  # rows of the table of epochs
EPOCH_KEYS = ("epoch", "step", "train_loss", "train_top1", "val_loss", "val_top1", "val_top5", "seconds", "eval_seconds")
SHAMPOO_KEYS = ("shampoo_factor_seconds", "shampoo_root_seconds", "shampoo_apply_seconds")
MUON_KEY = "muon_seconds"
ROOT_KEYS = ("shampoo_roots",)


def read_records(path):
    records = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                records.append(json.loads(line))
            except ValueError:
                continue  # cut by a kill
    return records


def rounded(value, digits=6):
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def thin(steps, most):
    """[[last step of a part, its mean loss], ...]"""
    parts = [steps[len(steps) * i // most:len(steps) * (i + 1) // most] for i in range(most)]
    return [[p[-1]["step"], rounded(statistics.fmean(r["loss"] for r in p))] for p in parts if p]


def epoch_rows(epochs):
    """Rows of EPOCH_KEYS for all epochs, or for evenly chosen ones with the last; seconds are sums from the start."""
    rows, total = [], 0.0
    for e in epochs:
        total += e.get("seconds", 0.0)
        rows.append([rounded(total if k == "seconds" else e.get(k)) for k in EPOCH_KEYS])
    stride = -(-len(rows) // EPOCHS)
    return [row for i, row in enumerate(reversed(rows)) if i % stride == 0][::-1]


def state_bytes(folder, epochs):
    """Bytes of the optimizer's state, as the last epoch's record has them. Records of older trainers do not: then those in the
    newest checkpoint, averaged weights not counted."""
    if epochs and epochs[-1].get("optimizer_bytes") is not None:
        return int(epochs[-1]["optimizer_bytes"])
    path = os.path.join(folder, "checkpoints", "latest", "optim.safetensors")
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    except (OSError, ValueError, struct.error):
        return None
    return sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items()
               if name != "__metadata__" and not name.startswith("ema."))


def read_env(folder):
    keys = ("version", "git_commit", "build", "cpu", "cpu_threads", "os")
    try:
        with open(os.path.join(folder, "env.json"), encoding="utf-8") as file:
            env = json.load(file)
    except (OSError, ValueError):
        return {}
    return {k: env[k] for k in keys if k in env}


def clock(steps):
    """Medians of a step's seconds; share: of all step time, in each part of the optimizer's own work."""
    total = sum(s["seconds"] for s in steps)
    parts = {k: rounded(sum(s.get(k, 0.0) for s in steps) / total, 4) for k in (*SHAMPOO_KEYS, MUON_KEY) if any(k in s for s in steps)}
    return {"step_seconds": rounded(statistics.median(s["seconds"] for s in steps), 4),
            "data_share": rounded(sum(s.get("data_seconds", 0.0) for s in steps) / total, 4), "share": parts}


def roots(steps):
    """Numbers of roots that all steps computed, and of refreshes that were skipped; {} for runs without roots."""
    return {k: int(sum(s.get(k, 0) for s in steps)) for k in ROOT_KEYS if any(k in s for s in steps)}


def compact(cell, folder, status):
    """status: done, or diverged (a gradient or running statistic that was not finite ended the run)."""
    records = read_records(os.path.join(folder, "metrics.jsonl"))
    steps = [r for r in records if r.get("event") == "step"]
    epochs = [r for r in records if r.get("event") == "epoch"]
    last = next((r for r in reversed(epochs) if "val_loss" in r), {})
    part = {k: last[k] for k in ("val_samples", "val_total", "val_is_train") if k in last}  # not of all samples that were held back
    return {"id": cell.id, "status": status, "data": cell.fingerprint, "settings": cell.settings, "config": read_settings(folder),
            "env": read_env(folder), "epoch_keys": list(EPOCH_KEYS), "epochs": epoch_rows(epochs), "loss": thin(steps, POINTS),
            "steps": steps[-1]["step"] if steps else 0, "roots": roots(steps), "optimizer_bytes": state_bytes(folder, epochs), "clock": clock(steps) if steps else None,
            **({"evaluated": part} if part else {})}


def text_of(metrics):
    """One line per entry and per epoch, so that differences can be read."""
    lines = []
    for key, value in metrics.items():
        if key == "epochs":
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f'"{key}": [\n  {rows}]' if value else f'"{key}": []')
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{" + ",\n".join(lines) + "}\n"
