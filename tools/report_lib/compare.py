"""Several runs on one page: a curve of each in every chart, the settings that differ, the last numbers."""
import math

from .page import chart, of_which, title_of
from .records import last
from .text import fill, html, join

BEST = {"top1": max, "top5": max, "accuracy": max}  # for others, losses and perplexities, the lowest
OPTIM_STATS = (("update_ratio_median", "Update ratio, median of parameters"), ("update_cosine_median", "Update cosine, median of parameters"),
               ("below_epsilon_max", "Share of a spectrum below epsilon, largest"), ("effective_rank_min", "Effective rank of a factor, smallest"))


def key(index, run):
    return fill('<svg class="key" viewBox="0 0 9 9"><rect width="9" height="9" class="f{}"/></svg> {}', index, html(run, backslash=True))


def heads(runs):
    return fill('<div class="wide"><table>\n<tr><th>{}</tr>\n', join(fill("<th>{}", key(i, run)) for i, run in enumerate(runs)))


def rows_of(metrics):
    """Name, unit, digits, and a function of a run's metrics."""
    def best(series, choose):
        return choose((v for _, v in series), default=math.nan)

    rows = []
    names = {name: None for m in metrics for name in m.names() if name != "loss"}
    for name in names:
        title, unit = title_of(name)
        title, unit = title[:1].lower() + title[1:], f" {unit}" if unit else ""
        rows.append((f"{title}, last", unit, 2, lambda m, n=name: last(m.of(f"val_{n}"))))
        if name != "top5":
            rows.append((f"{title}, best", unit, 2, lambda m, n=name: best(m.of(f"val_{n}"), BEST.get(n, min))))
    return rows + [("evaluation loss, last", "", 4, lambda m: last(m.of("val_loss"))),
                   ("training loss, last epoch", "", 4, lambda m: last(m.of("train_loss"))),
                   ("steps", "", 0, lambda m: m.steps["loss"][-1][0] if m.steps.get("loss") else math.nan),
                   ("epochs", "", 0, lambda m: len(m.numbers_of_epochs)),
                   ("training", " s", 1, lambda m: m.seconds),
                   ("speed", f" {metrics[0].rate}/s", 0, lambda m: m.speed())]


def numbers(runs, metrics):
    rows = []
    for name, unit, digits, value in rows_of(metrics):
        found = [f"{v:.{digits}f}{unit}" if math.isfinite(v) else "" for v in map(value, metrics)]
        rows.append(fill("<tr><td>{}{}</tr>\n", name, join(fill("<td>{}", v) for v in found)))
    samples = [f"{of_which(m) or 'all '}{'training' if m.on_training_data else 'held-back'} samples" for m in metrics]
    if any(of_which(m) or m.on_training_data for m in metrics):
        rows.append(fill("<tr><td>evaluated on{}</tr>\n", join(fill("<td>{}", one) for one in samples)))
    return fill("<h2>Last numbers</h2>\n{}{}</table></div>\n", heads(runs), join(rows))


def settings_table(runs, settings):
    names = {name: None for one in settings for name in one if name != "output"}
    differ = [name for name in names if len({one.get(name) for one in settings}) > 1]
    if not differ:
        return fill("<h2>Settings that differ</h2>\n<p>None.</p>\n")
    rows = [fill("<tr><td>{}{}</tr>\n", name, join(fill("<td>{}", one.get(name, "–")) for one in settings)) for name in differ]
    return fill("<h2>Settings that differ</h2>\n{}{}</table></div>\n", heads(runs), join(rows))


def curves(runs, metrics):
    def lines(series, marked):
        return [(run, series(m), marked) for run, m in zip(runs, metrics)]

    parts = [chart("Loss of steps", "", lines(lambda m: m.steps.get("loss", []), False), named=False),
             chart("Evaluation loss", "", lines(lambda m: m.of("val_loss"), True), named=False)]
    for name in {name: None for m in metrics for name in m.names() if name not in ("loss", "top5")}:
        title, unit = title_of(name)
        parts.append(chart(f"{title} of evaluations", unit, lines(lambda m, n=name: m.of(f"val_{n}"), True), named=False))
        parts.append(chart(f"{title} in training", unit, lines(lambda m, n=name: m.of(f"train_{n}"), True), named=False))
    parts += [chart("Learning rate", "", lines(lambda m: m.steps.get("lr", []), False), True, False),
              chart("Speed", f"{metrics[0].rate}/s", lines(lambda m: m.steps.get("speed", []), False), True, False)]
    parts += [chart(title, "", lines(lambda m, k=name: m.optim_stats.get(k, []), False), named=False) for name, title in OPTIM_STATS]
    return join(parts)


def several_runs(runs, metrics, settings):
    keys = join(fill("{}<br>\n", key(i, run)) for i, run in enumerate(runs))
    return fill("<p>{}</p>\n{}{}{}", keys, numbers(runs, metrics), settings_table(runs, settings), curves(runs, metrics))
