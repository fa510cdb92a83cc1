"""Records of a run folder, as the rules of doctor need them."""
import math
import os
import statistics

from .checked import Problem, parse as parse_json
from .optim_stats import read_optim_stats
from .records import objects_in, read_settings
from .text import read_lines


def finite(values):
    return [v for v in values if math.isfinite(v)]


def median(values):
    found = finite(values)
    return statistics.median(found) if found else math.nan


class Run:
    """Numbers that a record does not have are NaN, settings that are not known "".

    matrices: elements of the parameters with two dimensions or more, by number. rules: of parameters at the last record.
    is_finished: it has its final weights."""

    def __init__(self, path):
        self.path, self.events, self.notes, self.stats = path, {}, [], None
        file = os.path.join(path, "metrics.jsonl")
        if os.path.exists(path) and not os.path.exists(file):
            raise Problem(f"{path}: is not a run folder, which has a metrics.jsonl; --output DIR of a training program writes one")
        self.is_finished = os.path.exists(os.path.join(path, "model.safetensors"))
        for _, record in objects_in(read_lines(file), file):
            if isinstance(record.get("event"), str):
                self.events.setdefault(record["event"], []).append(record)
        self.steps = [record for record in self.events.get("step", []) if isinstance(record.get("step"), int)]
        self.epochs = self.events.get("epoch", [])
        if not self.steps:
            raise Problem(f"{file}: no steps in it")
        self.settings = read_settings(path)
        self.optim = self.text("optim")
        self.last_step, self.lr = max(self.of(self.steps, "step")), dict(zip(self.of(self.steps, "step"), self.of(self.steps, "lr")))
        try:
            self.stats = (read_optim_stats(path) or [None])[-1]  # the newest settings
        except Problem as problem:
            self.notes.append(str(problem))
        parameters = list(enumerate(self.stats.rows("parameter"))) if self.stats else []
        self.matrices = {i: math.prod(row["shape"]) for i, row in parameters if sum(n > 1 for n in row["shape"]) > 1}
        self.rules = [self.last_rule(i) for i, _ in parameters]

    def last_rule(self, parameter):
        """The rule of the last record that changed the parameter."""
        names = [self.stats.rule(value) for value in reversed(self.stats.series("parameter", parameter, "rule"))]
        return next((name for name in names if name not in ("", "skipped", "no_gradient")), "")

    def of(self, records, key):
        """A number of each record."""
        return [float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else math.nan for v in (r.get(key) for r in records)]

    def text(self, name):
        return self.settings.get(name, "").strip('"')

    def number(self, name):
        try:
            return float(self.text(name))
        except ValueError:
            return math.nan

    def classes(self):
        try:
            path = os.path.join(self.path, "checkpoints", "latest", "state.json")
            found = parse_json("\n".join(read_lines(path)), path)
            return found["classes"] if isinstance(found, dict) and isinstance(found.get("classes"), int) else 0
        except (OSError, ValueError):
            return 0

    def at_full_lr(self):
        """Numbers of the records whose lr is not low, as at the end of a schedule."""
        peak = max(finite(self.lr.values()), default=math.nan)
        return [r for r, step in enumerate(self.stats.steps if self.stats else []) if not self.lr.get(step, peak) < 0.1 * peak]

    def recent(self, table, column):
        """Median of each row over the later half of the records at full lr; if none is in that half, the last one before it."""
        if not self.stats:
            return []
        high, late = self.at_full_lr(), range(len(self.stats.steps) // 2, len(self.stats.steps))
        used = [r for r in high if r in late] or high[-1:] or late
        return [median([series[r] for r in used]) for series in (self.stats.series(table, i, column) for i in range(len(self.stats.rows(table))))]

    def named(self, table, rows):
        names = [self.stats.name(table, i) for i in rows]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def losses(self):
        """First loss, and the mean of the last tenth of the steps."""
        loss = finite(self.of(self.steps, "loss"))
        return (loss[0], statistics.fmean(loss[-max(1, len(loss) // 10):])) if loss else (math.nan, math.nan)

    def ratios(self):
        """Update over weight of the median matrix at each record; -inf: none."""
        series = [self.stats.series("parameter", i, "update_ratio") for i in self.matrices]
        return [median(found) if any(map(math.isfinite, found)) else -math.inf for found in zip(*series)]

    def at_end(self, key):
        """A number of the last epoch."""
        return self.of(self.epochs[-1:], key)[0] if self.epochs else math.nan
