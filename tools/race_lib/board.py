"""The board of a task: entries ranked by their median steps to the target, and their curves. The page is a function of the
results: `--check` redraws it and compares bytes."""
import os
import re
import statistics
import sys

from charts import LEFT, RIGHT, Chart
from reproduce_lib.figures import bands, score_range, titled
from reproduce_lib.main import say
from reproduce_lib.plan import PlanError
from reproduce_lib.stats import bootstrap, mean, sign_flip
from reproduce_lib.store import write_whole
from reproduce_lib.tables import Table, count, words

from . import result
from .task import find_task

LEGEND = """Steps: median over seeds, with the 95 % interval of a bootstrap over seeds; a seed that fails counts as twice the most steps. p: exact
sign-flip permutation test of the steps of common seeds, against the row below. Core-seconds to the target: median, indicative.
Final: mean over seeds with its interval."""
CURVE_POINTS = 14  # most percentage points, or their like, on the axis of scores


class Standing:
    """An entry's results on the board. reached: results at the target; steps: per seed; builds: seed -> builds that gave its last
    hash; verified: processors on which a verification was equal."""

    def __init__(self, task, entry, results):
        self.entry, self.results, self.reached = entry, results, [r for r in results if r.is_reached()]
        self.steps = {r.seed: min(r.steps, 2 * task.max_steps) for r in results}
        self.median = statistics.median(self.steps.values())
        self.final = mean([r.final for r in results])
        self.builds, self.verified = {r.seed: {r.build, *(build for build, _ in r.verified)} for r in results}, []
        for r in results:
            self.verified += [f"seed {r.seed}: {cpu}" for _, cpu in r.verified]

    def interval(self):
        return bootstrap(statistics.median, list(self.steps.values()))


class Board:
    """A task, its standings from the best to the worst, and the build of most results."""

    def __init__(self, task, results):
        self.task, self.results, found = task, results, []
        folder = os.path.join(results, task.name)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if os.path.isdir(os.path.join(folder, name)):
                copy = os.path.join(folder, f"{name}.ini")
                entry = task.entry(name if name in task.entries() or not os.path.isfile(copy) else copy)
                loaded = result.load(results, task, entry)
                found += [Standing(task, entry, loaded)] if loaded else []
        if not found:
            raise PlanError(f"{folder}: no results of task {task.name}: `lather race run {task.name} ENTRY` makes them")
        self.standings = sorted(found, key=lambda s: (s.median, -s.final, s.entry.name))
        builds = [r.build for s in self.standings for r in s.results]
        self.build = max(builds, key=lambda build: (builds.count(build), build))

    def steps_text(self, value):
        return f"> {self.task.max_steps}" if value > self.task.max_steps else f"{value:.0f}"

    def p_text(self, i):
        if i + 1 == len(self.standings):
            return ""
        one, other = self.standings[i].steps, self.standings[i + 1].steps
        seeds = sorted(one.keys() & other.keys())
        return f"{sign_flip([one[seed] - other[seed] for seed in seeds]):.3f} ({len(seeds)})" if seeds else "no common seeds"

    def marks(self, standing):
        is_other = any(self.build not in builds for builds in standing.builds.values())
        is_long = statistics.median(r.all_core_seconds for r in standing.results) > 60 * self.task.core_minutes
        return ("\u2020" if is_other else "") + ("\u2021" if is_long else "")

    def ranks(self):
        metric, rows = self.task.metric, []
        for i, s in enumerate(self.standings):
            low, high = (self.steps_text(value) for value in s.interval())
            finals = [r.final for r in s.results]
            ends = sorted((metric.text(end) for end in bootstrap(mean, finals)), key=float)
            seconds = f"{statistics.median(r.core_seconds for r in s.reached):.1f}" if s.reached else "–"
            rows.append([f"{i + 1}", s.entry.title + self.marks(s), f"{len(s.reached)} of {len(s.results)}", f"{self.steps_text(s.median)} [{low}, {high}]",
                         self.p_text(i), seconds, f"{metric.text(s.final)} [{', '.join(ends)}]", "; ".join(s.verified) or "no"])
        return Table("ranks", [count(""), words("entry"), count("seeds at the target"), count("steps"), count("p (seeds)"), count("core-seconds"),
                               count(f"final {metric.headed()}"), words("verified")], rows)

    def settings(self):
        rows = []
        for s in self.standings:
            size, last = s.results[0].bytes, s.results[-1]
            flags = " ".join(f"{k}={v}" for k, v in sorted(s.entry.settings.items())) + (f" plugin={os.path.basename(s.entry.plugin)}" if s.entry.plugin else "")
            rows.append([s.entry.title, f"`{flags}`", str(s.entry.tuning_runs), f"{size:,}" if size is not None else "–", f"{last.seed}: `{last.last_hash[:16]}`",
                         f"`{last.content['weights_sha256'][:16]}`" if last.content["weights_sha256"] else "–"])
        return Table("settings", [words("entry"), words("settings"), count("runs of tuning"), count("bytes of state"), words("last hash of a seed"),
                                  words("SHA-256 of model.safetensors")], rows)

    def curves(self):
        """Mean scores of the seeds by steps, with areas from the lowest to the highest seed."""
        task, metric = self.task, self.task.metric
        shown = [s for s in self.standings if all(r.curve for r in s.results)]
        scores = [point[1] for s in shown for r in s.results for point in r.curve] + [task.target]
        y, last = score_range(metric, scores, CURVE_POINTS), max((point[0] for s in shown for r in s.results for point in r.curve), default=1)
        chart = Chart(f"{task.title}: {titled(metric)}", (0, last), y, "steps", [(i, s.entry.title) for i, s in enumerate(shown)], y_sign=metric.sign)
        chart.line(chart.left, chart.y(task.target), chart.width - RIGHT, chart.y(task.target), "axis thin")
        chart.text(chart.left + LEFT / 8, chart.y(task.target) - 4, "target")
        for i, s in enumerate(shown):
            bands(chart, y[0], s.results, i, 0)
        return chart.document()

    def notes(self):
        marks = "".join(self.marks(s) for s in self.standings)
        others = sorted({build for s in self.standings for builds in s.builds.values() if self.build not in builds for build in builds})
        return ([f"\u2020 Another build than the others' ({self.build}): {'; '.join(others)}. `lather race verify` with one build shows whether both "
                 "give the same bits."] if "\u2020" in marks else []) + (
                [f"\u2021 Longer than the task's {self.task.core_minutes:g} core-minutes (median of whole runs)."] if "\u2021" in marks else [])

    def text(self, image):
        task, metric = self.task, self.task.metric
        bound = "at least" if metric.sign > 0 else "at most"
        head = (f"Target: {metric.called()} {bound} {metric.text(task.target)} {metric.unit} within {task.max_steps} steps. Data: `{task.data}`, {task.samples} samples,\n"
                f"fingerprint {task.fingerprint}. `lather race run {task.name} ENTRY`; `lather race verify {task.name} ENTRY`.")
        return "\n\n".join([f"## {task.title}", *([task.about] if task.about else []), head, self.ranks().markdown().rstrip("\n"), LEGEND, *self.notes(),
                            f"![Curves of {task.name}]({image})", self.settings().markdown().rstrip("\n")])


def merged(page, name, text):
    """The page with the section of a task replaced, or added at its end."""
    begin, end = f"<!-- race {name} -->", f"<!-- end of race {name} -->"
    section = f"{begin}\n{text}\n{end}"
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    return found.sub(lambda _: section, page, 1) if found.search(page) else f"{page.rstrip()}\n\n{section}\n"


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def board(args):
    """Draws the page and the curves; with --check compares them with those that are there. Returns the exit status."""
    results = os.path.normpath(args.results or os.path.join(args.out, "results"))
    page = args.page or f"{results}.md"
    names = [args.task] if args.task else sorted(os.listdir(results)) if os.path.isdir(results) else []
    tasks = [find_task(name) for name in names if args.task or os.path.isdir(os.path.join(results, name))]
    if not tasks:
        raise PlanError(f"{results}: no results: `lather race run TASK ENTRY` makes them, --results names another folder")
    files, text = {}, read_text(page) or "# Race\n"
    for task in tasks:
        found, image = Board(task, results), os.path.join(results, task.name, "curves.svg")
        files[image] = found.curves()
        text = merged(text, task.name, found.text(os.path.relpath(image, os.path.dirname(page) or ".")))
    files[page] = text
    changed = [path for path, content in files.items() if read_text(path) != content]
    for path in changed if args.check else ():
        print(f"race: --check: {path} is not what the results give: draw it without --check", file=sys.stderr)
    if not args.check:
        for path in changed:
            write_whole(path, files[path])
        say(page)
    return 1 if args.check and changed else 0
