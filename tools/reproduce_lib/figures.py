"""The figures of a report: each a drawing and the numbers it shows."""
from . import measures
from .compact import SHAMPOO_KEYS
from charts import LEFT, RIGHT, Chart, Drawing, Scale
from .tables import csv_text

PART_NAMES = ["waiting for data", "factors", "roots", "use of roots, or orthogonal updates", "forward, backward, update"]


class Figure:
    """name: of its files. rows: header first. is_clock: shows seconds."""

    def __init__(self, name, drawing, rows, caption, is_clock=False):
        self.name, self.drawing, self.rows, self.caption, self.is_clock = name, drawing, rows, caption, is_clock

    def csv(self):
        return csv_text(self.rows)


def titled(metric):
    """The metric's title in a chart: 'Top-1 accuracy in %'."""
    name = metric.called()
    return f"{name[0].upper()}{name[1:]} in {metric.unit}"


def numbers(arms):
    return {name: i for i, name in enumerate(arms)}


def names_of(plan, arms):
    order = numbers(plan.arms)
    return [(order[a], plan.arms[a].label) for a in arms]


def score_range(metric, scores, most):
    """Begin and end of an axis of scores, which shows at most the upper `most` points."""
    top, bottom = max(scores), min(scores)
    low = max(bottom, top - most * metric.point)
    margin = max(0.2 * metric.point, 0.06 * (top - low))
    return low - margin, min(metric.top, top + margin)


def clipped(scale, floor, value):
    return scale(max(value, floor))


def above(points, floor):
    """The parts of a line above the floor (pixels: smaller is higher), cut where the line crosses it."""
    pieces, piece = [], []
    for a, b in zip([None] + points, points):
        if a and (a[1] > floor) != (b[1] > floor):
            share = (floor - a[1]) / (b[1] - a[1])
            piece.append((a[0] + share * (b[0] - a[0]), floor))
        if b[1] <= floor:
            piece.append(b)
        elif piece:
            pieces, piece = pieces + [piece], []
    return pieces + [piece] if piece else pieces


def bands(chart, floor, runs, colour, x_at):
    """Mean line of runs, and an area from their lowest to their highest."""
    curves = [run.curve for run in runs]
    points = list(zip(*curves))
    xs = [chart.x(measures.mean([p[x_at] for p in group])) for group in points]
    low = [clipped(chart.y, floor, min(p[1] for p in group)) for group in points]
    high = [clipped(chart.y, floor, max(p[1] for p in group)) for group in points]
    chart.area(list(zip(xs, low)) + list(zip(xs, high))[::-1], f"band f{colour}")
    middle = [chart.y(measures.mean([p[1] for p in group])) for group in points]
    for piece in above(list(zip(xs, middle)), chart.y(floor)):
        chart.path(piece, f"s{colour}")


class Timed:
    """A run whose curve has another unit of time: epochs of the baseline."""

    def __init__(self, run, per_epoch):
        self.metrics = run.metrics
        self.curve = [(epoch, score, epoch * per_epoch) for epoch, score, _ in run.curve]


def runs_in_time(measured, arm, runs):
    """The runs with their epochs scaled by the cost of the arm's steps, timed within the steps, relative to the baseline's."""
    base = measured.timed(measured.plan.baseline)
    if not base:
        return runs
    per_epoch = measured.relative_step(measured.timed(arm), base)
    return [Timed(run, per_epoch) for run in runs]


def curves(measured, budget, against):
    """Scores at one budget, all arms, against epochs, seconds, or time: seconds, or the relative cost of steps where seconds are indicative."""
    plan, order, metric = measured.plan, numbers(measured.plan.arms), measured.metric
    arms = [a for a in plan.arms if measured.finals[a][budget] and all(r.curve for r in measured.finals[a][budget])]
    runs = {a: measured.finals[a][budget] for a in arms}
    is_relative = against == "time" and plan.clock == "indicative"
    if not arms or (against == "seconds" and plan.clock != "indicative"):
        return None  # there time is seconds
    at = 0 if against == "epochs" else 2
    what = "epochs" if against == "epochs" else "seconds of training"
    if is_relative:
        runs = {a: runs_in_time(measured, a, rs) for a, rs in runs.items()}
        what = f"time in epochs of {plan.arms[plan.baseline].label}"
    shown = [p for rs in runs.values() for r in rs for p in r.curve]
    y = score_range(metric, [p[1] for p in shown], 14)  # lines lie close at their ends
    chart = Chart(f"{titled(metric)}, {budget:g} epochs", (0, max(p[at] for p in shown)), y, what, names_of(plan, arms),
                  y_sign=metric.sign)
    rows = [["arm", "seed", what, metric.name]]
    for arm in arms:
        bands(chart, y[0], runs[arm], order[arm], at)
        for run in runs[arm]:
            rows += [[arm, run.metrics["settings"]["seed"], f"{point[at]:.6g}", metric.text(point[1], 4)] for point in run.curve]
    note = {"epochs": "", "time": " Time: epochs times the cost of a step relative to the baseline's." if is_relative else "",
            "seconds": " Measured seconds, including the effect of other load on the machine."}[against]
    name = f"{metric.noun}-{'time' if is_relative else 'seconds' if at else 'epochs'}-{budget:g}"
    return Figure(name, chart, rows, "Line: mean of seeds. Area: from the lowest to the highest seed." + note, at > 0)


def budgets(measured):
    """Final scores against the budget."""
    plan, order, metric = measured.plan, numbers(measured.plan.arms), measured.metric
    points = {a: [(b, measured.scores(a, b)) for b in plan.budgets if measured.scores(a, b)] for a in plan.arms}
    points = {a: rows for a, rows in points.items() if rows}
    if not points:
        return None
    y = score_range(metric, [v for rows in points.values() for _, values in rows for v in values], 40)  # all but what diverged
    span = plan.budgets[-1] - plan.budgets[0] or 1
    x = (plan.budgets[0] - 0.06 * span, plan.budgets[-1] + 0.06 * span)
    chart = Chart(f"Final {metric.called()} in {metric.unit} against the budget", x, y, "epochs of the whole run", names_of(plan, points),
                  y_sign=metric.sign)
    rows = [["arm", "budget"] + [f"{metric.name}_{what}" for what in ("mean", "lowest", "highest")]]
    for arm, entries in points.items():
        colour = order[arm]
        for piece in above([(chart.x(b), chart.y(measures.mean(v))) for b, v in entries], chart.y(y[0])):
            chart.path(piece, f"s{colour}")
        for budget, values in entries:
            middle = measures.mean(values)
            chart.line(chart.x(budget), clipped(chart.y, y[0], min(values)), chart.x(budget), clipped(chart.y, y[0], max(values)),
                       f"s{colour}")
            if middle >= y[0]:
                chart.dot(chart.x(budget), chart.y(middle), 3.2, f"f{colour}", f"{plan.arms[arm].label}: {metric.text(middle)} {metric.unit}")
            lowest, highest = sorted((min(values), max(values)), key=lambda v: metric.sign * v)
            rows.append([arm, f"{budget:g}"] + [metric.text(v, 4) for v in (middle, lowest, highest)])
    return Figure(f"{metric.noun}-budget", chart, rows, "Each point is a separate run, annealed to its end. Bars: lowest to highest seed.")


def ratios(measured, is_clock):
    """Dots with intervals: how many times fewer epochs (seconds) than the baseline."""
    plan, order = measured.plan, numbers(measured.plan.arms)
    entries = []
    for arm in plan.arms:
        for budget in plan.budgets:
            found = measured.seconds_ratio(arm, budget) if is_clock else measured.epochs_ratio(arm, budget)
            if arm != plan.baseline and found:
                entries.append((arm, budget, found[:3]))
    if not entries:
        return None
    most = max([2.0] + [high for _, _, (_, _, high) in entries]) * 1.04
    height = 62 + 20 * len(entries) + 24 * len({e[0] for e in entries})
    what = "seconds" if is_clock else "epochs"
    drawing = Drawing(f"Times fewer {what}", height=height)
    drawing.text(LEFT, 16, f"Times fewer {what} to the {measured.metric.noun} of {plan.arms[plan.baseline].label}", "title")
    x, y, before = Scale(0, most, 150, drawing.width - RIGHT), 34, None
    drawing.line(x(1), 28, x(1), height - 34, "axis")
    rows = [["arm", "baseline_budget", "ratio", "low", "high"]]
    for arm, budget, (value, low, high) in entries:
        if arm != before:
            y += 24
            drawing.text(12, y - 4, plan.arms[arm].label, "ink")
            before = arm
        y += 20
        drawing.text(140, y - 6, f"of its {budget:g} epochs", anchor="end")
        if value > 0:
            drawing.line(x(low), y - 10, x(high), y - 10, f"s{order[arm]}")
            drawing.dot(x(value), y - 10, 4, f"f{order[arm]}", f"{value:.2f} [{low:.2f}, {high:.2f}]")
        else:
            drawing.text(x(0), y - 6, "not reached")
        rows.append([arm, f"{budget:g}", f"{value:.4f}", f"{low:.4f}", f"{high:.4f}"])
    for value in [v * 0.5 for v in range(int(most / 0.5) + 1)]:
        drawing.text(x(value), height - 18, f"{value:g}", anchor="middle")
    return Figure(f"ratio-{what}", drawing, rows, "Line: 95 % bootstrap interval over seeds. An interval that begins at 0 includes "
                  f"resamples that never reach the {measured.metric.noun}.", is_clock)


def breakdown(measured):
    """Breakdown of the time of a step."""
    plan = measured.plan
    entries = [(arm, measured.breakdown(arm), measured.step_seconds(arm)) for arm in plan.arms if measured.breakdown(arm)]
    if not entries:
        return None
    drawing = Drawing("Step time", height=64 + 30 * len(entries))
    drawing.text(LEFT, 16, "Breakdown of a step's time", "title")
    top = drawing.legend(list(zip((3, 4, 1, 2, 7), PART_NAMES)), 34)
    drawing.height += int(top) - 34
    x = Scale(0, 1, 180, drawing.width - 76)
    rows = [["arm", "step_seconds", "data"] + [k.replace("_seconds", "") for k in SHAMPOO_KEYS] + ["rest"]]
    for i, (arm, parts, seconds) in enumerate(entries):
        y, at = top + 16 + 30 * i, 0.0
        drawing.text(172, y + 13, plan.arms[arm].label, "ink", "end")
        for colour, part in zip((3, 4, 1, 2, 7), parts):
            drawing.box(x(at), y, x(at + part) - x(at), 18, f"f{colour}")
            at += part
        drawing.text(x(1) + 6, y + 13, f"{1000 * seconds:.1f} ms")
        rows.append([arm, f"{seconds:.5f}"] + [f"{p:.5f}" for p in parts])
    return Figure("step-time", drawing, rows, "Shares of the summed time of all steps; right: the median step.", True)


def trials(measured, arm):
    """All trials of an arm: position in the search space, and score."""
    metric = measured.metric
    entries = [(v, c, measured.store.score(c.id)) for v, c in measured.cells.trials[arm.name]]
    keys = sorted(arm.tuned)
    if not entries or len(keys) != 2:
        return None
    reached = [t for _, _, t in entries if t is not None]
    chart = Chart(f"{arm.label}: {metric.label} in {metric.unit} of each trial", arm.tuned[keys[0]], arm.tuned[keys[1]], f"{keys[0]} (up: {keys[1]})",
                  log_x=True, log_y=True)
    rows = [["trial"] + keys + [metric.name]]
    best = measured.cells.best[arm.name]
    for i, (values, _, score) in enumerate(entries):
        x, y = chart.x(values[keys[0]]), chart.y(values[keys[1]])
        rows.append([str(i + 1)] + [f"{values[k]:.6g}" for k in keys] + ["" if score is None else metric.text(score, 4)])
        if score is None:
            chart.text(x, y + 4, "failed", anchor="middle")
            continue
        shade = 0.25 + 0.75 * max(0.0, 1 - (max(reached) - score) / (10 * metric.point))
        chart.dot(x, y, 6, "f2", f"{metric.text(score)} {metric.unit}", shade)
        if values == best:
            chart.dot(x, y, 8.5, "ring")
        high = x > chart.width - RIGHT - 44
        chart.text(x + (-11 if high else 11), y + 4, metric.text(score), anchor="end" if high else "start")
    return Figure(f"trials-{arm.name}", chart, rows, "The ring marks the best trial, whose values the final runs use.")


def heat_map(measured, sweep):
    """Scores over one or two settings."""
    found, metric = measured.sweep(sweep.name), measured.metric
    if not found:
        return None
    (row_key, row_values), (key, values) = sweep.axes if len(sweep.axes) == 2 else (("", [""]), sweep.axes[0])
    at = {(point.get(row_key, ""), point[key]): score for point, score in found}
    reached = [t for t in at.values() if t is not None]
    left = 24 + 7 * max(len(v) for v in row_values)
    drawing = Drawing(sweep.label, height=66 + 40 * len(row_values))
    drawing.text(12, 16, f"{sweep.label}: {metric.label} in {metric.unit}", "title")
    wide = (drawing.width - left - RIGHT) / len(values)
    rows = [[row_key, key, metric.name] if row_key else [key, metric.name]]
    for i, row_value in enumerate(row_values):
        y = 28 + 40 * i
        drawing.text(left - 8, y + 23, row_value, anchor="end")
        for j, value in enumerate(values):
            score = at.get((row_value, value))
            rows.append(([row_value] if row_key else []) + [value, "" if score is None else metric.text(score, 4)])
            if score is not None:
                shade = 0.06 + 0.5 * max(0.0, 1 - (max(reached) - score) / (metric.point * max(1.0, min(10.0, (max(reached) - min(reached)) / metric.point))))
                drawing.box(left + j * wide + 1, y, wide - 2, 38, "f2", shade)
            text = "–" if score is None else metric.text(score)
            drawing.text(left + (j + 0.5) * wide, y + 23, text, "ink", "middle")
    y = 28 + 40 * len(row_values)
    for j, value in enumerate(values):
        drawing.text(left + (j + 0.5) * wide, y + 14, value, anchor="middle")
    drawing.text(drawing.width - RIGHT, y + 32, key + (f" (down: {row_key})" if row_key else ""), anchor="end")
    caption = f"{sweep.arm.label}, {sweep.budget:g} epochs, seed 1."
    return Figure(f"sweep-{sweep.name}", drawing, rows, caption)


def memory(measured):
    plan, order = measured.plan, numbers(measured.plan.arms)
    entries = [(a, measured.optimizer_bytes(a)) for a in plan.arms if measured.optimizer_bytes(a)]
    if not entries:
        return None
    drawing = Drawing("Optimizer memory", height=36 + 26 * len(entries))
    drawing.text(LEFT, 16, "State of the optimizer", "title")
    x = Scale(0, max(b for _, b in entries), 180, drawing.width - 80)
    rows = [["arm", "bytes"]]
    for i, (arm, size) in enumerate(entries):
        y = 28 + 26 * i
        drawing.text(172, y + 13, plan.arms[arm].label, "ink", "end")
        drawing.box(x(0), y, x(size) - x(0), 16, f"f{order[arm]}")
        drawing.text(x(size) + 6, y + 13, f"{size / 2 ** 20:.2f} MiB")
        rows.append([arm, str(size)])
    return Figure("optimizer-memory", drawing, rows, "Bytes of the optimizer's tensors in a checkpoint.")


def all_figures(measured):
    plan = measured.plan
    found = {"result": [budgets(measured), ratios(measured, False)],
             "curves": [curves(measured, b, "epochs") for b in plan.budgets],
             "seconds": [curves(measured, plan.budgets[-1], "time"), ratios(measured, True), breakdown(measured)],
             "clock": [curves(measured, plan.budgets[-1], "seconds")],
             "sweeps": [heat_map(measured, s) for s in plan.sweeps],
             "trials": [trials(measured, arm) for arm in plan.arms.values()],
             "memory": [memory(measured)]}
    return {group: [f for f in figures if f] for group, figures in found.items()}
