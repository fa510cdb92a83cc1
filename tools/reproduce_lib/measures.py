"""The numbers of a plan's finished cells: curves, accuracies, epochs to a target, ratios, time and memory."""
import statistics

from .compact import MUON_KEY, SHAMPOO_KEYS
from .stats import bootstrap, deviation, mean


ELEMENTWISE = ("sgd", "adagrad", "adam", "adamw", "lars", "lamb", "lion", "adafactor", "prodigy")  # their work is not timed and small: relative_step() counts it as 0
ROOTS, USE = SHAMPOO_KEYS.index("shampoo_root_seconds"), SHAMPOO_KEYS.index("shampoo_apply_seconds")


class Run:
    """A finished final run: curve is [(epoch, score, seconds of training so far)]."""

    def __init__(self, metrics, metric):
        self.metrics = metrics
        keys = metrics["epoch_keys"]
        at = {key: keys.index(key) for key in ("epoch", "step", metric.key, "seconds")}
        rows = [row for row in metrics["epochs"] if row[at[metric.key]] is not None]
        budget, ended = float(metrics["settings"]["epochs"]), rows[-1][at["epoch"]] + 1 if rows else 0
        per_step = ended / rows[-1][at["step"]] if 0 < ended < budget else budget / max(1, metrics["steps"])  # a run may end early
        self.steps_per_epoch = 1 / per_step
        self.curve = [(row[at["step"]] * per_step, metric.score(row[at[metric.key]]), row[at["seconds"]]) for row in rows]
        self.is_whole = metrics["status"] == "done" and bool(self.curve)
        self.score = self.curve[-1][1] if self.is_whole else metric.worst
        clock = metrics.get("clock") or {}
        self.step_seconds = clock.get("step_seconds") or 0.0
        self.data_share = clock.get("data_share") or 0.0
        timed = clock.get("share", {})
        self.share = [timed.get(key, 0.0) for key in SHAMPOO_KEYS]
        self.share[USE] += timed.get(MUON_KEY, 0.0)
        self.own = sum(self.share)
        self.has_own = any(key in timed for key in (*SHAMPOO_KEYS, MUON_KEY))  # its optimizer's own work was timed
        self.is_elementwise = metrics["settings"].get("optim", "sgd") in ELEMENTWISE
        found = metrics.get("roots") or {}
        self.roots = found.get("shampoo_roots")
        self.evaluated = metrics.get("evaluated", {})
        self.bytes = metrics.get("optimizer_bytes") or 0


def mean_curve(runs):
    """Mean curve of runs evaluated at the same epochs, up to the end of the shortest: [(epoch, mean score, mean seconds)]."""
    return [(points[0][0], mean([p[1] for p in points]), mean([p[2] for p in points])) for points in zip(*(r.curve for r in runs))]


def crossing(curve, target):
    """The first epoch at which a curve reaches the target, linear between evaluations; None if it never does."""
    before = None
    for epoch, score, _ in curve:
        if score >= target:
            if before is None:
                return epoch
            share = (target - before[1]) / (score - before[1])
            return before[0] + share * (epoch - before[0])
        before = (epoch, score)
    return None


def epochs_to(groups, target):
    """The fewest epochs over an arm's budgets in which the mean of its seeds reaches the target. groups: runs by budget."""
    found = [crossing(mean_curve(runs), target) for runs in groups if runs]
    found = [f for f in found if f is not None]
    return min(found) if found else None


class Measured:
    """Measurements from a Cells object and a store. finals[arm][budget] -> [Run of each finished seed]."""

    def __init__(self, cells, store):
        self.cells, self.store, self.plan, self.metric = cells, store, cells.plan, store.metric
        self.finals = {arm: {budget: [Run(m, store.metric) for m in (store.metrics(c.id) for c in row) if m] for budget, row in rows.items()}
                       for arm, rows in cells.finals.items()}
        self.ratios = {}

    def scores(self, arm, budget):
        return [run.score for run in self.finals[arm][budget]]

    def has_seeds(self):
        """True if baseline and challenger have several seeds at every budget."""
        return all(len(self.scores(arm, b)) > 1 for arm in (self.plan.baseline, self.plan.challenger) for b in self.plan.budgets)

    def runs(self, arm):
        return [run for runs in self.finals[arm].values() for run in runs]

    def gain(self, arm, budget, base_budget):
        """(value, low, high) in the metric's unit: the arm's mean final score minus the baseline's, each at its budget; None if missing."""
        a, b = self.scores(arm, budget), self.scores(self.plan.baseline, base_budget)
        if not a or not b:
            return None
        return (mean(a) - mean(b), *bootstrap(lambda x, y: mean(x) - mean(y), a, b))

    def epochs_ratio(self, arm, budget):
        """(ratio, low, high, epochs or None): the baseline's epochs, over those the arm needs for the baseline's mean final
        score at that budget. Not reached counts as 0. None if runs are missing."""
        if (arm, budget) not in self.ratios:
            self.ratios[arm, budget] = self.find_ratio(arm, budget)
        return self.ratios[arm, budget]

    def find_ratio(self, arm, budget):
        base = self.finals[self.plan.baseline][budget]
        groups = [runs for runs in self.finals[arm].values() if runs]
        if not base or not groups:
            return None

        def ratio(base_runs, *arm_runs):
            epochs = epochs_to(arm_runs, mean([run.score for run in base_runs]))
            return budget / epochs if epochs else 0.0

        if arm == self.plan.baseline:
            return 1.0, 1.0, 1.0, budget
        epochs = epochs_to(groups, mean([run.score for run in base]))
        return (budget / epochs if epochs else 0.0, *bootstrap(ratio, base, *groups), epochs)

    def step_seconds(self, arm):
        """Median over the arm's final runs of their median step; None without any."""
        found = [run.step_seconds for run in self.runs(arm) if run.step_seconds]
        return statistics.median(found) if found else None

    def own_share(self, runs):
        """Mean share of the runs' step time spent on factors, roots and their use, or on orthogonal updates."""
        return mean([run.own for run in runs])

    def has_step(self, arm):
        """True if the length of the arm's steps is known: see relative_step()."""
        runs = self.timed(arm) + self.timed(self.plan.baseline)
        return self.plan.clock != "indicative" or (all(run.has_own or run.is_elementwise for run in runs)
                                                   and (arm == self.plan.baseline or any(run.has_own for run in runs)))

    def relative_step(self, own, base):
        """How many times as long a step takes in some runs as in others. Where seconds are indicative, other load on the machine
        would decide that: there a step is taken to be as long as the other's but for its optimizer's own work, whose share
        was timed within the same steps."""
        if self.plan.clock == "indicative":
            return (1 - self.own_share(base)) / (1 - self.own_share(own))
        return statistics.median(r.step_seconds for r in own) / statistics.median(r.step_seconds for r in base)

    def timed(self, arm):
        return [run for run in self.runs(arm) if run.step_seconds]

    def seconds_ratio(self, arm, budget):
        """epochs_ratio, divided by how many times as long a step takes."""
        ratio, own, base = self.epochs_ratio(arm, budget), self.timed(arm), self.timed(self.plan.baseline)
        if not ratio or not own or not base or not self.has_step(arm):
            return None
        times = self.relative_step(own, base)
        return tuple(value / times for value in ratio[:3])

    def overhead(self, arm):
        """(value, low, high): per cent that a step takes longer than the baseline's."""
        own, base = self.timed(arm), self.timed(self.plan.baseline)
        if not own or not base or not self.has_step(arm):
            return None

        def more(a, b):
            return 100 * (self.relative_step(a, b) - 1)
        return (more(own, base), *bootstrap(more, own, base))

    def root_time(self, runs):
        """Time in roots, looks included, over what the same steps took without the optimizer's own work."""
        return mean([run.share[ROOTS] for run in runs]) / (1 - self.own_share(runs))

    def roots_ratio(self, arm):
        """(value, low, high): per cent of the baseline's time in roots that the arm takes; None where one of them has none."""
        own, base = self.timed(arm), self.timed(self.plan.baseline)
        if not own or not base or not all(run.share[ROOTS] for run in own + base):
            return None

        def share(a, b):
            return 100 * self.root_time(a) / self.root_time(b)
        return (share(own, base), *bootstrap(share, own, base))

    def breakdown(self, arm):
        """Shares of an arm's step time: loader, factors, roots, their use (or Muon's updates), and the rest (forward, backward, update)."""
        runs = [run for run in self.runs(arm) if run.step_seconds]
        if not runs:
            return None
        parts = [mean([run.data_share for run in runs])] + [mean([run.share[i] for run in runs]) for i in range(len(SHAMPOO_KEYS))]
        return parts + [max(0.0, 1 - sum(parts))]

    def optimizer_bytes(self, arm):
        found = [run.bytes for run in self.runs(arm) if run.bytes]
        return max(found) if found else None

    def sweep(self, name):
        """[(values as written, score or None)]"""
        return [(point, self.store.score(cell.id)) for point, cell in self.cells.sweeps.get(name, [])]

    def drop(self, name):
        """How far the points of a sweep are from its best in the mean; None while points are missing."""
        values = [v for _, v in self.sweep(name)]
        if not values or None in values:
            return None
        return max(values) - mean(values)

    def at_the_edge(self, arm):
        """[(flag, 'largest' or 'smallest')] of tuned values that no trial went beyond: tuning may not be at its end there."""
        best, tried = self.cells.best[arm], [values for values, _ in self.cells.trials[arm]]
        ends = {"largest": max, "smallest": min}
        return [(key, word) for key in sorted(best or {}) for word, end in ends.items()
                if len(tried) > 2 and best[key] == end(values[key] for values in tried)]

    def transfers(self):
        """[(arm, other, scores of both with the settings that were best for the arm, the other's own best)] of arms whose trials
        had the same settings. A score is None while its trial is missing."""
        tried = {arm: [values for values, _ in trials] for arm, trials in self.cells.trials.items() if trials}

        def score(arm, i):
            return self.store.score(self.cells.trials[arm][i][1].id)
        found = []
        for arm, values in tried.items():
            for other in (name for name in tried if name != arm and tried[name] == values):
                if self.cells.best[arm] and self.cells.best[other]:
                    at, own = values.index(self.cells.best[arm]), values.index(self.cells.best[other])
                    found.append((arm, other, score(arm, at), score(other, at), score(other, own)))
        return found

    def summary(self, arm, budget):
        """(mean, deviation, each) of final scores."""
        values = self.scores(arm, budget)
        return (mean(values), deviation(values), values) if values else None
