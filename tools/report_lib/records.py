"""Reads the contents of a run folder: metrics.jsonl, one flat object a line, and config.yaml."""
import math
import os

from .checked import MOST_COUNT, Problem, number, parse
from .text import read_lines

COUNTS = ("step", "epoch", "seconds", "eval_seconds")


def objects_in(lines, path):
    """Line number and object of each record; lines that are torn by a kill, or being written, are left out."""
    for i, line in enumerate(lines):
        try:
            record = parse(line, path, i + 1)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield i + 1, record


class Metrics:
    """Series of (step, value): of steps by key, of epochs by key (train_loss, val_top1, val_perplexity, ...)."""

    def __init__(self, path):
        self.optim_stats = {}  # summaries of --optim-stats by key
        self.steps, self.epochs, self.seconds, self.eval_seconds, self.last_step = {}, {}, 0.0, 0.0, math.nan
        self.rate = "images"  # unit of speeds
        self.samples = self.step_seconds = 0.0  # sums over all steps
        self.numbers_of_epochs = set()  # a resumed run has an epoch twice
        self.evaluated = (math.nan, math.nan)  # samples of the last evaluation, of those in its data set, if fewer
        self.on_training_data = False  # True: evaluations use the training data
        lines = read_lines(path)
        for file, found in ((path, lines), separate_evaluations(path)):
            for line, record in objects_in(found, file):
                self.add(record, f"{file}:{line}")
        for series in self.epochs.values():
            series.sort(key=lambda point: point[0])
        if not self.steps.get("loss") and not self.epochs:
            count = len(lines) - (not lines[-1])
            raise Problem(f"{path}: no steps and no epochs in {count} lines")

    def add(self, record, where):
        event = record.get("event")
        if event in ("step", "epoch", "evaluation", "optim_stats"):
            numbers = {k: float(v) for k, v in record.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
            for key in COUNTS:
                if key in numbers:
                    number(0, MOST_COUNT)(numbers[key], f"{where}: {key}")
            numbers = {k: v for k, v in numbers.items() if math.isfinite(v)}
            {"step": self.add_step, "epoch": self.add_epoch, "evaluation": self.add_evaluation,
             "optim_stats": self.add_optim_stats}[event](numbers)

    def add_optim_stats(self, numbers):
        step = numbers.pop("step", math.nan)
        for key, value in numbers.items():
            if not math.isnan(step):
                self.optim_stats.setdefault(key, []).append((step, value))

    def add_step(self, numbers):
        self.last_step = step = numbers.pop("step", math.nan)
        for key, value in numbers.items():
            of, per, _ = key.partition("_per_second")
            if per:
                self.rate, key = of, "speed"
                self.samples += value * numbers.get("seconds", 0)
                self.step_seconds += numbers.get("seconds", 0)
            if key in ("loss", "lr", "speed") and not math.isnan(step):
                self.steps.setdefault(key, []).append((step, value))

    def add_epoch(self, numbers):
        after = self.last_step if self.steps.get("loss") else numbers.get("epoch", math.nan) + 1
        step = numbers.pop("step", after)  # an epoch ends where the last step was
        self.numbers_of_epochs.add(numbers.get("epoch", len(self.numbers_of_epochs)))
        self.evaluated = (numbers.pop("val_samples", math.nan), numbers.pop("val_total", math.nan))
        self.on_training_data = bool(numbers.pop("val_is_train", 0))
        self.seconds += numbers.get("seconds", 0)
        self.eval_seconds += numbers.get("eval_seconds", 0)
        for key, value in numbers.items():
            if key.startswith(("train_", "val_")) and not math.isnan(step):
                self.epochs.setdefault(key, []).append((step, value))

    def add_evaluation(self, numbers):
        """Adds a record of a separate evaluation process; its seconds are not part of the run's time."""
        self.add_epoch({key: value for key, value in numbers.items() if key != "eval_seconds"})

    def speed(self):
        """Samples over the seconds of the steps; for logs without these, the mean of the steps' speeds."""
        if self.step_seconds > 0:
            return self.samples / self.step_seconds
        found = self.steps.get("speed", [])
        return sum(v for _, v in found) / len(found) if found else math.nan

    def of(self, key):
        return self.epochs.get(key, [])

    def names(self):
        """Metrics of epochs without their train_ and val_: loss first."""
        found = {}
        for key in self.epochs:
            found[key.split("_", 1)[1]] = None
        return sorted(found, key=lambda name: name != "loss")


def separate_evaluations(path):
    """Path and lines of metrics-eval.jsonl in the folder of a metrics.jsonl, which a separate evaluation process writes."""
    other = os.path.join(os.path.dirname(path), "metrics-eval.jsonl")
    return other, read_lines(other) if os.path.basename(path) == "metrics.jsonl" and os.path.exists(other) else []


def last(series):
    return series[-1][1] if series else math.nan


def read_metrics(run):
    return Metrics(os.path.join(run, "metrics.jsonl"))


def settings_in(lines):
    """Name and value of each setting of a config.yaml, in its order; a list's values with commas between."""
    found, name = {}, None
    for line in lines:
        if line[:1] in (" ", "-"):
            item = line.lstrip(" -")
            if name and item:
                found[name] += (", " if found[name] else "") + item
        elif line[:1] != "#" and ":" in line:
            name, value = line.split(":", 1)
            found[name] = value.lstrip(" ")
    return found


def read_settings(run):
    """The settings of the run's config.yaml; none if it cannot be read."""
    try:
        return settings_in(read_lines(os.path.join(run, "config.yaml")))
    except OSError:
        return {}
