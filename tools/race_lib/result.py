"""A finished run of an entry as a small file, RESULTS/TASK/ENTRY/seed-K.json, and its score."""
import glob
import math
import os

from reproduce_lib import plugins
from reproduce_lib.compact import read_records, state_bytes
from reproduce_lib.plan import PlanError
from reproduce_lib.store import read_json, sha256_of
from report_lib.records import read_settings

KEYS = ("epoch", "step", "train_loss", "val_loss", "val_top1", "val_top5", "seconds", "eval_seconds", "cpu_seconds")
ENV = ("version", "build_id", "compiler", "build", "jpeg", "cpu", "cpu_model", "cpu_isa", "cpu_threads", "os")
PLACES = ("data", "output", "plugin")  # keys of a config that are paths
BUILD = ("version", "build_id", "compiler")  # the keys of ENV by which builds are told apart


def with_cpu_seconds_of_all(records):
    """The records of epochs, each step's last one; cpu_seconds of a resumed run include those of its earlier processes."""
    epochs, earlier, last = {}, 0.0, 0.0
    for r in records:
        if r.get("event") == "resume":
            earlier = last
        elif r.get("event") == "epoch":
            if r.get("cpu_seconds") is not None:
                r = {**r, "cpu_seconds": earlier + r["cpu_seconds"]}
                last = r["cpu_seconds"]
            epochs[r["step"]] = r
    return list(epochs.values())


def summarize(cell, folder, status):
    """The result of the run in a folder. A resume repeats no record, but adds a hash of the state that it started from: hashes
    are those of an unbroken run, at the start, at evaluations and every hash-every steps."""
    records, config = read_records(os.path.join(folder, "metrics.jsonl")), read_settings(folder)
    epochs = with_cpu_seconds_of_all(records)
    keys = [key for key in KEYS if any(key in r for r in epochs)]
    every, ends = int(config.get("hash-every", "0")), {0, *(r["step"] for r in epochs)}
    hashes = {r["step"]: r["sha256"] for r in records if r.get("event") == "hash"}
    data = next((r for r in records if r.get("event") == "data"), {})
    env = read_json(os.path.join(folder, "env.json")) or {}
    weights = os.path.join(folder, "model.safetensors")
    return {"id": cell.id, "status": status, "settings": {k: v for k, v in cell.settings.items() if k != plugins.FILES}, "data": {k: data.get(k) for k in ("samples", "fingerprint", "bytes")},
            "config": {k: v for k, v in config.items() if k not in PLACES}, "env": {k: env[k] for k in ENV if k in env}, "epoch_keys": keys,
            "epochs": [[r.get(key) for key in keys] for r in epochs], "optimizer_bytes": state_bytes(folder, epochs),
            "hashes": [[step, value] for step, value in hashes.items() if step in ends or (every and step % every == 0)],
            "weights_sha256": sha256_of(weights) if os.path.exists(weights) else None}


def cpu_seconds(rows, threads):
    """CPU seconds of each epoch with its evaluation. Older results have those since the start of a process: a resumed run begins
    at 0 again. Programs that do not record them: seconds times threads."""
    if any(row.get("cpu_seconds") is None for row in rows):
        return [threads * ((row["seconds"] or 0.0) + (row["eval_seconds"] or 0.0)) for row in rows]
    totals = [row["cpu_seconds"] for row in rows]
    return [total - before if total >= before else total for before, total in zip([0.0, *totals], totals)]


def build_of(env):
    return ", ".join(f"{key} {env[key]}" for key in BUILD if env.get(key))


class Result:
    """A result and its score. steps: at the first evaluation that reached the target, inf if none did; core_seconds: of the
    process up to there; curve: [(step, score)]; final: the last score. verified: [(build, processor)] of equal repetitions."""

    def __init__(self, task, seed, content, verified=None):
        self.seed, self.content, metric = seed, content, task.metric
        rows = [dict(zip(content["epoch_keys"], row)) for row in content["epochs"]]
        self.curve = [(r["step"], metric.score(r[metric.key])) for r in rows if r.get(metric.key) is not None]
        is_whole = content["status"] == "done" and self.curve
        self.final = self.curve[-1][1] if is_whole else metric.worst
        self.steps = next((step for step, score in self.curve if score >= task.target and step <= task.max_steps), math.inf)
        spent = cpu_seconds(rows, int(content["config"].get("threads", "0")) or content["env"].get("cpu_threads", 1))
        self.core_seconds = sum(s for s, r in zip(spent, rows) if r["step"] <= self.steps)
        self.all_core_seconds = sum(spent)
        self.bytes = content["optimizer_bytes"]
        self.last_hash = content["hashes"][-1][1] if content["hashes"] else ""
        self.build, is_equal = build_of(content["env"]), verified and verified["sha256"] == self.last_hash
        self.verified = [(build_of(verified["env"]), f"{verified['env'].get('cpu')}, {verified['env'].get('cpu_isa')}")] if is_equal else []

    def is_reached(self):
        return self.steps < math.inf


def path_of(results, task, entry, seed, kind="seed"):
    return os.path.join(results, task, entry, f"{kind}-{seed}.json")


def differing(one, other):
    """(key, value of one, of the other) where two dictionaries differ."""
    return [(key, one.get(key, "(absent)"), other.get(key, "(absent)")) for key in sorted({**one, **other}) if one.get(key) != other.get(key)]


def load(results, task, entry):
    """The results of an entry's seeds, in order. Errors: PlanError if they are of other data or settings than the files."""
    found = []
    for path in glob.glob(os.path.join(glob.escape(os.path.join(results, task.name, entry.name)), "seed-*.json")):
        word, content = os.path.basename(path)[5:-5], read_json(path)
        try:
            lack, settings = task.lacks(content["data"]["samples"], content["data"]["fingerprint"]), content["settings"]
            found.append(Result(task, int(word), content, read_json(path_of(results, task.name, entry.name, word, "verified"))))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise PlanError(f"{path}: not a result of `lather race run`: remove it, and run the seed again") from None
        if lack:
            raise PlanError(f"{path}: {lack}")
        for key, was, now in differing(settings, entry.all_settings(int(word)))[:1]:
            raise PlanError(f"{path}: {key} is {was} in the result, {now} in {entry.path}: run the seed again")
    return sorted(found, key=lambda result: result.seed)
