"""The tables of a report, each as CSV, Markdown and HTML with the same numbers."""
from html import escape

from .cells import text_of
from .claims import HOLDS, UNTESTED
from .stats import mean


def csv_text(rows):
    def field(value):
        return '"' + value.replace('"', '""') + '"' if any(c in value for c in ',"\n') else value
    return "".join(",".join(field(v) for v in row) + "\n" for row in rows)


class Table:
    """columns: (title, is a number, is measured in seconds). rows: lists of text."""

    def __init__(self, name, columns, rows, caption=""):
        self.name, self.columns, self.rows, self.caption = name, columns, rows, caption

    def without_clock(self):
        keep = [i for i, (_, _, clock) in enumerate(self.columns) if not clock]
        return Table(self.name, [self.columns[i] for i in keep], [[row[i] for i in keep] for row in self.rows], self.caption)

    def csv(self):
        return csv_text([[title for title, _, _ in self.columns]] + self.rows)

    def markdown(self):
        lines = ["| " + " | ".join(title for title, _, _ in self.columns) + " |",
                 "| " + " | ".join("--:" if number else "---" for _, number, _ in self.columns) + " |"]
        lines += ["| " + " | ".join(v.replace("|", "\\|") for v in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def html(self):
        def cell(tag, text, number):
            return f'<{tag} class="n">{escape(text)}</{tag}>' if number else f"<{tag}>{escape(text)}</{tag}>"
        head = "".join(cell("th", title, number) for title, number, _ in self.columns)
        body = "\n".join("<tr>" + "".join(cell("td", v, c[1]) for v, c in zip(row, self.columns)) + "</tr>" for row in self.rows)
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<figure class="table"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>{caption}</figure>\n'


def words(title):
    return (title, False, False)


def count(title):
    return (title, True, False)


def seconds(title):
    return (title, True, True)


def interval(found):
    value, low, high = found[:3]
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def claims(verdicts):
    """The table of claims."""
    rows = [[v.claim["text"], v.claim["source"] or "–", v.bound_text(), v.text(), v.verdict + (f" ({v.note})" if v.note else "")]
            for v in verdicts]
    return Table("claims", [words("claim"), words("from"), words("holds if"), words("measured"), words("verdict")], rows)


def spread(summary, metric):
    centre, width, each = summary
    middle = metric.text(centre)
    return f"{middle} ± {width:.{metric.digits}f}" if len(each) > 1 else middle


def finals(measured):
    plan, metric = measured.plan, measured.metric
    columns = [words("optimizer")] + [count(f"{b:g} epochs") for b in plan.budgets] + [words("tuned"), count("seeds")]
    rows = []
    for name, arm in plan.arms.items():
        cells = [measured.summary(name, b) for b in plan.budgets]
        best = measured.cells.best[name]
        tuned = "not yet" if best is None else ", ".join(f"{k} {text_of(v)}" for k, v in sorted(best.items())) or "nothing"
        seeds = {len(c[2]) if c else 0 for c in cells}
        rows.append([arm.label] + [spread(c, measured.metric) if c else "–" for c in cells]
                    + [tuned, "–".join(str(s) for s in sorted({min(seeds), max(seeds)}))])
    return Table(metric.noun, columns, rows,
                 f"Final {metric.called()} in {metric.unit}, mean ± sample deviation over seeds that were not used in trials.{evaluated_on(measured)}")


def evaluated_on(measured):
    """A sentence for each kind of evaluation: number of samples, training or held-back."""
    kinds = {tuple(run.evaluated.get(k) for k in ("val_samples", "val_total", "val_is_train"))
             for arm in measured.plan.arms for run in measured.runs(arm) if run.evaluated}
    return "".join(f" Evaluated on {f'{some:g} of {total:g}' if some else 'all'} {'training' if train else 'held-back'} samples."
                   for some, total, train in sorted(kinds, key=str))


def ratio_text(found):
    if not found:
        return "–"
    return interval(found) if found[0] > 0 else "not reached"


def epochs_to_target(measured):
    plan, noun = measured.plan, measured.metric.noun
    columns = [words("optimizer")]
    for budget in plan.budgets:
        columns += [count(f"epochs to the {budget:g}-epoch {noun}"), count("times fewer")]
    rows = []
    for name, arm in plan.arms.items():
        row = [arm.label]
        for budget in plan.budgets:
            found = measured.epochs_ratio(name, budget)
            row += [f"{found[3]:.1f}" if found and found[3] else "–", ratio_text(found)]
        rows.append(row)
    base = plan.arms[plan.baseline].label
    return Table("epochs-to-target", columns, rows,
                 f"The target is the mean final {noun} of {base} at that budget; epochs are the fewest over an arm's own budgets in which "
                 "the mean of its seeds reaches it. Brackets: 95 % bootstrap interval over seeds.")


def longer(measured, arm):
    """Percentage by which the arm's steps are longer than the baseline's."""
    found = measured.overhead(arm)
    if found:
        return f"{found[0]:+.1f} [{found[1]:+.1f}, {found[2]:+.1f}]"
    return "–" if measured.has_step(arm) else "not recorded"


def target(measured):
    """Steps and seconds side by side."""
    plan, noun = measured.plan, measured.metric.noun
    budget = plan.budgets[-1]
    columns = [words("optimizer"), count(f"steps to the {budget:g}-epoch {noun}"), count("times fewer steps"),
               seconds("step longer than the baseline's, %"), seconds("times fewer seconds")]
    rows = []
    for name, arm in plan.arms.items():
        found, runs = measured.epochs_ratio(name, budget), measured.runs(name)
        steps = f"{found[3] * runs[0].steps_per_epoch:.0f}" if found and found[3] and runs else "–"
        recorded = measured.has_step(name)
        rows.append([arm.label, steps, ratio_text(found), longer(measured, name),
                     ratio_text(measured.seconds_ratio(name, budget)) if recorded
                     else "not reached" if found and found[0] <= 0 else "not recorded"])
    how = ("by the share of factors, roots and their use, or of orthogonal updates, in the same steps, since other load on the machine would "
           "distort the whole step; not recorded: the work of neither optimizer was timed" if plan.clock == "indicative" else "by medians of runs")
    return Table("target", columns, rows, f"Steps and seconds to the baseline's {noun} at the longest budget. Lengths of steps are compared {how}. Seconds: steps times their length.")


def cost(measured):
    rows = []
    for name, arm in measured.plan.arms.items():
        step, size = measured.step_seconds(name), measured.optimizer_bytes(name)
        rows.append([arm.label, f"{1000 * step:.1f}" if step else "–", f"{size / 2 ** 20:.2f}" if size else "–"])
    return Table("cost", [words("optimizer"), seconds("ms a step"), count("optimizer state, MiB")], rows, "Milliseconds: median over runs of their median step.")


def roots(measured):
    """Roots computed and their time, for arms whose cells counted them."""
    rows = []
    for name, arm in measured.plan.arms.items():
        runs = [run for run in measured.runs(name) if run.roots]
        if runs:
            ratio = measured.roots_ratio(name)
            rows.append([arm.label, f"{mean([run.roots for run in runs]):.0f}", f"{100 * measured.root_time(runs):.2f}",
                         f"{ratio[0]:.0f} [{ratio[1]:.0f}, {ratio[2]:.0f}]" if ratio else "–"])
    base = measured.plan.arms[measured.plan.baseline].label
    columns = [words("optimizer"), count("roots computed in a run"),
               seconds("time in roots, % of forward and backward"), seconds(f"of that of {base}, %")]
    return Table("roots", columns, rows, "Matrices whose roots were recomputed; time in roots over the rest of the same steps without the "
                 "optimizer's own work.")


def transfers(measured):
    plan, metric = measured.plan, measured.metric
    rows = [[plan.arms[arm].label, ", ".join(f"{k} {text_of(v)}" for k, v in sorted(measured.cells.best[arm].items())), metric.text(own),
             plan.arms[other].label, metric.text(score), metric.text(best)] for arm, other, own, score, best in measured.transfers()]
    return Table("transfer", [words("settings of"), words("best of its trials"), count(metric.headed()), words("taken by"), count("with these"),
                              count("with its own best")], rows,
                 "Optimizers whose trials drew the same settings: result with the settings that were best for another, without separate "
                 "tuning. One seed, that of the trials.")


def all_trials(measured):
    rows = []
    for name, arm in measured.plan.arms.items():
        for i, (values, cell) in enumerate(measured.cells.trials[name]):
            found, score = measured.store.metrics(cell.id), measured.store.score(cell.id)
            state = found["status"] if found else "failed" if measured.store.failure(cell.id) else "to do"
            best = "chosen" if values == measured.cells.best[name] else ""
            rows.append([arm.label, str(i + 1), ", ".join(f"{k} {text_of(v)}" for k, v in sorted(values.items())),
                         "–" if score is None else measured.metric.text(score), state, best, cell.id])
    return Table("trials", [words("optimizer"), count("trial"), words("settings"), count(measured.metric.headed()), words("state"), words(""),
                            words("cell")], rows)


def sweeps(measured):
    rows = []
    for sweep in measured.plan.sweeps:
        for point, score in measured.sweep(sweep.name):
            rows.append([sweep.label, ", ".join(f"{k} {v}" for k, v in point.items()), "–" if score is None else measured.metric.text(score)])
    return Table("sweeps", [words("sweep"), words("settings"), count(measured.metric.headed())], rows)


def runs(measured):
    """Every final run."""
    rows = []
    for name, by_budget in measured.cells.finals.items():
        for budget, row in by_budget.items():
            for cell in row:
                score, found = measured.store.score(cell.id), measured.store.metrics(cell.id)
                rows.append([name, f"{budget:g}", cell.settings["seed"], "–" if score is None else measured.metric.text(score),
                             str(found["steps"]) if found else "–", found["status"] if found else "missing", cell.id,
                             f"{found['epochs'][-1][7]:.1f}" if found and found["epochs"] else "–"])
    return Table("runs", [words("arm"), count("epochs"), count("seed"), count(measured.metric.headed()), count("steps"), words("state"), words("cell"),
                          seconds("seconds of training")], rows)


def all_tables(measured, verdicts, with_clock):
    """The tables in the order of the report."""
    if not with_clock:
        verdicts = [v for v in verdicts if not v.is_clock]
    found = [claims(verdicts)] if verdicts else []
    found += [finals(measured), epochs_to_target(measured), target(measured), cost(measured), roots(measured), sweeps(measured), transfers(measured), all_trials(measured), runs(measured)]
    found = found if with_clock else [t.without_clock() for t in found]
    return {t.name: t for t in found if t.rows}


def verdict_class(verdict):
    return "good" if verdict == HOLDS else "none" if verdict == UNTESTED else "bad"
