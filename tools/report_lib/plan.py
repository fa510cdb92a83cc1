"""The page of a plan: predictions of the two models with the measured points, and the table of candidates."""
import charts
from .checked import MOST_COUNT, Problem, flag, items, maybe, members, number, one_of, pair, parse, text
from .page import HEIGHT, WIDTH
from .text import Markup, fill, join, read_lines

LINES = 6  # settings in a chart
ROWS = 30
CURVE = 40  # parts of a line
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us"))
RESTS_ON = {"measured": "measured", "interpolated": "interpolated", "extrapolated": "extrapolated", "model": "model only", "unknown": "not enough measurements"}
ORDER = ["measured", "interpolated", "extrapolated", "model", "beyond", "unknown"]
BEYOND = 2  # times what runs measured: known less well than by the model alone


COUNT, VALUE = number(1, MOST_COUNT), maybe(number())
POINTS = items(pair(number(0, MOST_COUNT), VALUE))
ESTIMATE = members(value=VALUE, rests_on=one_of(*RESTS_ON), beyond=number(), why=maybe(text))
CANDIDATE = members(setting=text, batch_size=COUNT, batch=COUNT, ranks=COUNT, step_seconds=ESTIMATE, steps=ESTIMATE, ernest_seconds=VALUE,
                    modelled=members(seconds=VALUE), price=VALUE, seconds=VALUE, epoch_seconds=VALUE, memory_bytes=VALUE, command=text)
PLAN = members(format=number(1, 1), program=text, goal=members(metric=maybe(text), value=VALUE, deadline_seconds=VALUE), goal_is_known=flag,
               candidates=items(CANDIDATE), dropped=items(members(why=text, ranks=COUNT)),
               runs=items(members(setting=text, batch_size=COUNT, ranks=COUNT, step_seconds=VALUE, points=POINTS, fitted=POINTS)),
               steps_of_batch=maybe(items(members(setting=text, why=text, least_steps=number(), noise_scale=VALUE, samples=number(),
                                                  points=items(pair(COUNT, number()))))))


def is_plan(path):
    return path.endswith(".json")


def read_plan(path):
    """The object of a file that `plan --json` wrote. Raises Problem, OSError."""
    try:
        found = parse("\n".join(read_lines(path)), path)
    except ValueError as error:
        raise Problem(f"{path}: no plan: {error}; train_* plan --json FILE writes one") from None
    if not isinstance(found, dict) or "candidates" not in found:
        raise Problem(f"{path}: no plan: train_* plan --json FILE writes one")
    PLAN(found, f"{path}: plan")
    return found


def duration(seconds):
    if seconds is None:
        return "?"
    unit, name = next(((u, n) for u, n in UNITS if seconds >= u), UNITS[-1])
    return f"{seconds / unit:.3g} {name}"


def rests_on(estimate):
    name = RESTS_ON.get(estimate["rests_on"], "?")
    return f"{name} x{estimate['beyond']:.3g}" if estimate["beyond"] > 1 else name


def weaker(candidate):
    """The less certain of a candidate's two estimates, seconds of a step and number of steps."""
    def weakness(e):
        return ORDER.index("beyond" if e["rests_on"] != "unknown" and e["beyond"] > BEYOND else e["rests_on"]), e["beyond"]
    return max((candidate["step_seconds"], candidate["steps"]), key=weakness)


def name_of(item):
    return f"{item['setting']}, batch {item['batch_size']}"


def draw(title, x_title, lines, dots, names, log_x=False, log_y=False):
    """lines and dots: (index, points, note). "" where there is no point."""
    places = [p for _, points, _ in lines + dots for p in points if p[1] is not None and (not log_y or p[1] > 0)]
    if not places:
        return ""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    low, high = min(ys), max(ys)
    around = (low * 0.9, high * 1.1) if log_y else (min(0, low), high * 1.05 or 1)
    drawn = charts.Chart(title, (min(xs), max(max(xs), min(xs) * 1.01)), around, x_title, names, log_x, log_y, width=WIDTH, height=HEIGHT, x_least=1)
    for index, points, _ in lines:
        drawn.path([(drawn.x(x), drawn.y(y)) for x, y in points if y is not None and (not log_y or y > 0)], f"s{index}")
    for index, points, note in dots:
        for x, y in points:
            if y is not None and (not log_y or y > 0):
                drawn.dot(drawn.x(x), drawn.y(y), 3.5, f"f{index}", f"{note}: {x:g}, {y:.4g}")
    return Markup(drawn.inline())


def by_setting(plan):
    """Candidates of the first settings, by ranks; and the measured runs of each."""
    found = {}
    for c in plan["candidates"]:
        found.setdefault(name_of(c), []).append(c)
    names = list(found)[:LINES]
    return [(i, name, sorted(found[name], key=lambda c: c["ranks"]), [r for r in plan["runs"] if name_of(r) == name])
            for i, name in enumerate(names)]


def time_chart(plan):
    """Seconds of a step: the planner's model, Ernest's as a thin line, and runs as dots."""
    groups = by_setting(plan)
    lines = [(i, [(c["ranks"], c["step_seconds"]["value"]) for c in some], "") for i, _, some, _ in groups]
    dots = [(i, [(r["ranks"], r["step_seconds"]) for r in runs if r["step_seconds"]], "measured") for i, _, _, runs in groups]
    return draw("Seconds of a step: planned (lines), measured (dots)", "ranks", lines, dots, [(i, name) for i, name, _, _ in groups],
                log_x=True, log_y=True)


def cross_check(plan):
    lines = [(i, [(c["ranks"], c["ernest_seconds"]) for c in some if c["ernest_seconds"]], "") for i, _, some, _ in by_setting(plan)]
    dots = [(i, [(c["ranks"], c["modelled"]["seconds"]) for c in some if c["modelled"]["seconds"]], "system model") for i, _, some, _ in by_setting(plan)]
    if not any(points for _, points, _ in lines):
        return ""
    return draw("Cross-check: Ernest's model (lines), the system model (dots)", "ranks", lines, dots,
                [(i, name) for i, name, _, _ in by_setting(plan)], log_x=True, log_y=True)


def loss_chart(plan):
    runs = [r for r in plan["runs"] if r["points"]][:charts.COLOURS]
    lines = [(i, r["fitted"], "") for i, r in enumerate(runs) if r["fitted"]]
    dots = [(i, r["points"], "measured") for i, r in enumerate(runs)]
    names = [(i, f"{r['ranks']} ranks, {r['setting']}") for i, r in enumerate(runs)]
    return draw(f"{plan['goal']['metric'] or 'loss'}: fitted (lines), measured (dots)", "step", lines, dots, names)


def batch_chart(plan):
    """steps(B) = S_min (1 + phi / B) of each convergence class, and the runs that reached the goal."""
    lines, dots, names = [], [], []
    for i, curve in enumerate((plan.get("steps_of_batch") or [])[:LINES]):
        batches = [b for b, _ in curve["points"]] + [c["batch"] for c in plan["candidates"]]
        low, high = min(batches), max(batches)
        phi = "" if curve["noise_scale"] is None else f", phi {curve['noise_scale']:.3g}"
        at = [low * (high / low) ** (k / CURVE) for k in range(CURVE + 1)]
        lines.append((i, [(b, curve["least_steps"] + curve["samples"] / b) for b in at], ""))
        dots.append((i, curve["points"], "reached"))
        names.append((i, f"{curve['setting']}: S_min {curve['least_steps']:.4g}{phi}, {curve['why']}"))
    return draw("Steps to the goal: S_min (1 + phi / batch) (lines), measured (dots)", "batch", lines, dots, names, log_x=True, log_y=True)


def table(plan):
    known = plan["goal_is_known"]
    heads = ["ranks", "batch", "setting", "step", "steps", "time" if known else "an epoch", "cost", "GiB", "rests on"]
    rows = []
    for c in plan["candidates"][:ROWS]:
        steps, price = c["steps"]["value"], c["price"]
        cells = [c["ranks"], c["batch"], c["setting"], duration(c["step_seconds"]["value"]), "?" if steps is None else f"{steps:.0f}",
                 duration(c["seconds"] if known else c["epoch_seconds"]), "" if price is None else f"{price:.2f}",
                 "?" if c["memory_bytes"] is None else f"{c['memory_bytes'] / 2**30:.3g}", rests_on(weaker(c))]
        rows.append(fill("<tr>{}</tr>\n", join(fill("<td>{}", cell) for cell in cells)))
    more = len(plan["candidates"]) - ROWS
    return fill('<h2>Candidates</h2>\n<div class="wide"><table>\n<tr>{}</tr>\n{}</table></div>\n{}', join(fill("<th>{}", h) for h in heads),
                join(rows), fill("<p>And {} more.</p>\n", more) if more > 0 else "")


def dropped(plan):
    reasons = {}
    for d in plan["dropped"]:
        reasons.setdefault(d["why"], []).append(d["ranks"])
    if not reasons:
        return ""
    rows = join(fill("<tr><td>{}<td>{}</tr>\n", len(ranks), why) for why, ranks in reasons.items())
    return fill("<h2>Dropped</h2>\n<table>\n<tr><th>candidates<th>reason</tr>\n{}</table>\n", rows)


def goal_text(goal):
    parts = [f"{goal['metric']} {goal['value']:g}"] if goal["metric"] and goal.get("value") is not None else []
    if goal.get("deadline_seconds"):
        parts.append(f"within {duration(goal['deadline_seconds'])}")
    return ", ".join(parts)


def one_plan(plan):
    if not plan["candidates"]:
        return fill("<p>No candidate is left. Goal: {}.</p>\n{}", goal_text(plan["goal"]), dropped(plan))
    best = plan["candidates"][0]
    seconds = best["seconds"] if plan["goal_is_known"] else best["epoch_seconds"]
    head = "to the goal" if plan["goal_is_known"] else f"an epoch; steps to the goal: {best['steps']['why']}"
    first = fill('<p><span class="big">{}</span><br>{}, on {} ranks: {}, {}</p>\n<p>Goal: {}.</p>\n<pre>{}</pre>\n', duration(seconds), head,
                 best["ranks"], best["setting"], rests_on(weaker(best)), goal_text(plan["goal"]), best["command"])
    return join([first, time_chart(plan), cross_check(plan), batch_chart(plan), loss_chart(plan), table(plan), dropped(plan)])
