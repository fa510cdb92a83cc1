"""The page of one run, and the shared parts of all pages."""
import math
import os

import charts
from .evaluation import evaluation
from .optim_stats import read_optim_stats
from .optimizer import optimizer
from .records import last
from .text import Markup, fill, join, read_lines

WIDTH, HEIGHT = 720, 260  # size of a chart in pixels
POINTS = 600  # at most, per curve, so that one of a million steps makes a small file
MOST_RUNS = charts.COLOURS

STYLE = charts.STYLE + """body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#1c2430;background:#fff}
svg{width:100%;height:auto;margin:.6em 0}svg.key{width:.7em;margin:0}.big{font-size:3em;font-weight:700;line-height:1.1}
table{border-collapse:collapse}td,th{padding:.15em 1.2em .15em 0;text-align:left;overflow-wrap:anywhere}.wide{overflow-x:auto}
.matrix td,.matrix th{padding:.1em .45em;text-align:right;font-size:13px;white-space:nowrap}
.matrix .hit{outline:1px solid #3a9d5d;outline-offset:-1px}.matrix .up{writing-mode:vertical-rl;text-align:left}
.bar{display:inline-block;height:.7em;background:#2a6fdb;border-radius:2px}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:1em;
font-size:13px;line-height:1.35;overflow-wrap:anywhere}
.samples img{width:96px;height:96px;image-rendering:pixelated;display:block;
border:3px solid #3a9d5d}.samples .wrong img{border-color:#b5403a}figure{margin:0}h2{margin:1.4em 0 .3em}
pre{overflow:auto;background:#8881;padding:.8em;border-radius:6px;font-size:13px}
@media(prefers-color-scheme:dark){body{background:#15181d;color:#e4e6ea}}
"""

# Title and unit of metrics of epochs; other metrics are titled by their name.
TITLES = {"loss": ("Loss", ""), "top1": ("Top-1 accuracy", "%"), "top5": ("Top-5 accuracy", "%"),
          "accuracy": ("Accuracy", "%")}


def title_of(name):
    return TITLES.get(name, (name[:1].upper() + name[1:].replace("_", " "), ""))


def thin(points, most=POINTS):
    """Means over at most `most` stretches of equal length."""
    if len(points) <= most:
        return points
    cuts = [len(points) * i // most for i in range(most + 1)]
    return [tuple(sum(values) / (b - a) for values in zip(*points[a:b])) for a, b in zip(cuts, cuts[1:])]


def chart(title, unit, lines, from_zero=False, named=True):
    """An <svg> of lines (label, points, whether each point is marked); "" if no line has a point."""
    lines = [(index, label, thin(points), marked) for index, (label, points, marked) in enumerate(lines)]
    xs = [x for line in lines for x, _ in line[2]]
    ys = [y for line in lines for _, y in line[2]]
    if not xs:
        return ""
    low, high = min([0, *ys] if from_zero else ys), max(ys)
    around = (high - low) * 0.05 or max(1e-12, 0.1 * abs(high))
    names = [(index, label) for index, label, points, _ in lines if points] if named else ()
    drawn = charts.Chart(f"{title}, {unit}" if unit else title, (min(xs), max(max(xs), min(xs) + 1)),
                         (low if from_zero else low - around, high + around), "step", names, width=WIDTH, height=HEIGHT, x_least=1)
    for index, _, points, marked in lines:
        places = [(drawn.x(x), drawn.y(y)) for x, y in points]
        if points:
            drawn.path(places, f"s{index}")
        for (x, y), place in zip(points, places):
            if marked:
                drawn.dot(*place, 3, f"f{index}", f"step {x:.0f}: {y:.4g}")
    return Markup(drawn.inline())


def begin(title):
    return fill('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
                "<title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n", title, Markup(STYLE))


def of_which(metrics):
    """"64 of 300 ", or "" for all."""
    some, total = metrics.evaluated
    return "" if math.isnan(some) else f"{some:.0f} of {total:.0f} "


def headline(metrics):
    """The last value of the metric by which the task compares checkpoints; none where no data was held back."""
    if metrics.on_training_data:
        top1 = f": {last(metrics.of('val_top1')):.2f} % top-1 there" if metrics.of("val_top1") else ""
        return fill("<p><b>Evaluated on {}training images{}.</b> The data had no split, so nothing was held back, and how well "
                    "other images are classified was not measured.</p>\n", of_which(metrics), top1)
    if metrics.of("val_top1"):
        return fill('<p><span class="big">{:.2f} %</span><br>top-1 accuracy on {}images held back for evaluation</p>\n',
                    last(metrics.of("val_top1")), of_which(metrics) or "the ")
    names = metrics.names()
    for name in names[1:] + names[:1]:
        if metrics.of(f"val_{name}"):
            return fill('<p><span class="big">{:.4g}</span><br>{} in evaluation{}</p>\n', last(metrics.of(f"val_{name}")), name,
                        f" on {of_which(metrics)}samples" if of_which(metrics) else "")
    return ""


def seconds(value):
    return f"{value:.1f} s" if value >= 1 or not value else f"{value:.2g} s"


def numbers(metrics):
    loss = metrics.steps.get("loss")
    rows = [("steps", f"{loss[-1][0]:.0f}")] if loss else []
    rows += [("epochs", str(len(metrics.numbers_of_epochs))), ("training", seconds(metrics.seconds)), ("evaluation", seconds(metrics.eval_seconds))]
    if not math.isnan(metrics.speed()):
        rows.append(("speed", f"{metrics.speed():.{int(metrics.speed() < 100)}f} {metrics.rate}/s"))
    if metrics.of("val_top5"):
        rows.append(("top-5 accuracy", f"{last(metrics.of('val_top5')):.2f} %"))
    return fill("{}<table>\n{}</table>\n", headline(metrics), join(fill("<tr><td>{}<td>{}</tr>\n", *row) for row in rows))


def curves(metrics):
    steps, evaluated = metrics.steps, f"evaluation on {of_which(metrics)}".strip() if of_which(metrics) else "evaluation"
    parts = [chart("Loss", "", [("of steps", steps.get("loss", []), False), (evaluated, metrics.of("val_loss"), True)])]
    for name in metrics.names():
        if name not in ("loss", "top5"):
            parts.append(chart(*title_of(name), [(evaluated, metrics.of(f"val_{name}"), True),
                                                 ("training", metrics.of(f"train_{name}"), True)]))
    parts += [chart("Learning rate", "", [("of steps", steps.get("lr", []), False)], from_zero=True),
              chart("Speed", f"{metrics.rate}/s", [("of steps", steps.get("speed", []), False)], from_zero=True)]
    return join(parts)


def folded(run, name):
    """A file of the run folder, if it exists."""
    try:
        lines = read_lines(os.path.join(run, name))
    except OSError:
        return ""
    return fill("<details><summary>{}</summary><pre>{}</pre></details>\n", name, join(lines, "\n"))


def one_run(run, metrics):
    return join([numbers(metrics), curves(metrics), optimizer(read_optim_stats(run)), evaluation(os.path.join(run, "eval.json")),
                 folded(run, "config.yaml"), folded(run, "env.json")])
