"""The cells of a plan: trials, final runs and sweeps, each the settings of one run, a seed and a budget.

names.py names the cells. The values of an arm's final runs follow from its trials' scores, so the same metrics always give
the same cells."""
import math
import random

from .launch import LaunchError
from .names import key_of
from .plan import PlanError

TUNE_SEED = 0  # seed of all trials; final runs have seeds 1, 2, ..., so that a lucky trial is not reported as accuracy
DRAW_SEED = 2309  # seed of the starting point of the search


class Cell:
    """settings: flag -> text. roles: what for, such as 'final sgd 12 seed 2'."""

    def __init__(self, cell_id, settings, fingerprint):
        self.id, self.fingerprint, self.roles = cell_id, fingerprint, []
        self.settings = dict(sorted(settings.items()))


def text_of(value):
    return f"{value:.6g}"


def radical_inverse(index, base):
    """The digits of index mirrored at the radix point: 6 = 110 in base 2 gives 0.011."""
    value, place = 0.0, 1.0
    while index:
        place /= base
        value += place * (index % base)
        index //= base
    return value


def draws(trial, count):
    """The numbers in [0, 1) of one trial: Halton's low-discrepancy sequence, shifted by random numbers of a fixed seed. The
    first trials of a longer search are those of a shorter one, and eight trials have eight rates in even distances."""
    start = random.Random(DRAW_SEED)
    return [(start.random() + radical_inverse(trial, base)) % 1.0 for base in (2, 3, 5, 7, 11, 13)[:count]]


def trial_values(arm, trial):
    """flag -> number of an arm's trial, log-uniform over its ranges."""
    keys = sorted(arm.tuned)
    values = {}
    for key, u in zip(keys, draws(trial, len(keys))):
        low, high = arm.tuned[key]
        values[key] = float(f"{math.exp(math.log(low) + u * (math.log(high) - math.log(low))):.3g}")
    return values


def settings_of(plan, arm, budget, seed, values):
    """Everything a run is told, but where it runs."""
    settings = {**plan.common, **arm.fixed, **{k: text_of(v) if isinstance(v, float) else v for k, v in values.items()}}
    settings["epochs"], settings["seed"] = text_of(budget), str(seed)
    warmup = settings.get("warmup-epochs", "0")
    if warmup.endswith("%"):
        settings["warmup-epochs"] = text_of(float(warmup[:-1]) / 100 * budget)
    if plan.global_batch:
        settings["global-batch"] = str(plan.global_batch)
    return settings


def sweep_points(sweep, best):
    """[(values as written, values of the arm)], best: what the arm is tuned to."""
    points = [()]
    for key, values in sweep.axes:
        points = [p + ((key, v),) for p in points for v in values]
    found = []
    for point in points:
        values = dict(best)
        for key, text in point:
            base = best.get(key, sweep.arm.fixed.get(key))
            values[key] = float(f"{float(base) * float(text[1:]):.3g}") if text.startswith("x") else text
        found.append((dict(point), values))
    return found


def role_of(sweep, point):
    return f"sweep {sweep.name} " + " ".join(f"{k}={v}" for k, v in point.items())


class Cells:
    """All cells known so far, in the order to run them; name(settings) gives an id, final_score(id) a finished run's
    score or None.

    trials[arm] -> [(values, cell)], best[arm] -> values or None (some of its trials are unfinished),
    finals[arm][budget] -> [cell of seed 1, ...], sweeps[name] -> [(values as written, cell)]"""

    def __init__(self, plan, name, seeds, final_score, given_up):
        self.plan, self.name, self.fingerprint, self.seeds = plan, name, name.fingerprint, seeds
        self.by_id, self.trials, self.best, self.finals, self.sweeps = {}, {}, {}, {}, {}
        self.names = {}  # key of settings -> name
        for arm in plan.arms.values():
            self.tune(arm, final_score, given_up)
        self.add_finals()
        for sweep in plan.sweeps:
            if self.best[sweep.arm.name] is not None:
                self.add_sweep(sweep)
        self.pending = self.count_pending()

    def add(self, arm, budget, seed, values, role):
        settings = settings_of(self.plan, arm, budget, seed, values)
        try:
            cell_id = self.name(settings)
        except LaunchError as error:
            raise PlanError(f"{self.plan.path}: {role}: {error}") from None
        self.names[key_of(settings, self.fingerprint)] = cell_id
        cell = self.by_id.setdefault(cell_id, Cell(cell_id, settings, self.fingerprint))
        cell.roles.append(role)
        return cell

    def tune(self, arm, final_score, given_up):
        """An arm's trials; its best when all are through: finished, or given up."""
        name, at = arm.name, self.plan.tune_at
        if not arm.tuned:
            self.trials[name], self.best[name] = [], {}
            return
        self.trials[name] = [(v, self.add(arm, at, TUNE_SEED, v, f"trial {name} {at:g} {i + 1}"))
                             for i, v in enumerate(trial_values(arm, t) for t in range(self.plan.trials))]
        scores = [final_score(cell.id) for _, cell in self.trials[name]]
        through = all(t is not None or given_up(cell.id) for t, (_, cell) in zip(scores, self.trials[name]))
        reached = [i for i, t in enumerate(scores) if t is not None]
        self.best[name] = None
        if through and reached:
            self.best[name] = self.trials[name][max(reached, key=lambda i: (scores[i], -i))][0]

    def add_finals(self):
        self.finals = {name: {b: [] for b in self.plan.budgets} for name in self.plan.arms}
        for seed in range(1, self.seeds + 1):
            for budget in self.plan.budgets:
                for name, arm in self.plan.arms.items():
                    if self.best[name] is not None:
                        role = f"final {name} {budget:g} seed {seed}"
                        self.finals[name][budget].append(self.add(arm, budget, seed, self.best[name], role))

    def add_sweep(self, sweep):
        self.sweeps[sweep.name] = [(point, self.add(sweep.arm, sweep.budget, 1, values, role_of(sweep, point)))
                                   for point, values in sweep_points(sweep, self.best[sweep.arm.name])]

    def count_pending(self):
        """Cells that only the end of some arm's tuning will tell: (cells, epochs)."""
        open_arms = [name for name, best in self.best.items() if best is None]
        count = len(open_arms) * self.seeds * len(self.plan.budgets)
        epochs = len(open_arms) * self.seeds * sum(self.plan.budgets)
        for sweep in self.plan.sweeps:
            if sweep.arm.name in open_arms:
                points = math.prod(len(values) for _, values in sweep.axes)
                count, epochs = count + points, epochs + points * sweep.budget
        return count, epochs
