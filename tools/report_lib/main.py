"""The command line of report."""
import argparse
import os
import sys

from .checked import Problem, parse as parse_json
from .compare import several_runs
from .page import MOST_RUNS, begin, one_run
from .plan import is_plan, one_plan, read_plan
from .records import read_metrics, read_settings
from .text import Markup, fill, join, read_lines, shown

EPILOG = """RUN is a folder that a training program's --output wrote. If it holds eval.json, which --eval --output RUN writes, the
page shows the accuracy of each class, the most confused classes, and sample images. Several runs are compared: their
curves in one chart, the settings that differ, their last numbers. A file PLAN.json, which train_* plan --json wrote, becomes
a separate page: the models' curves with the measured points, and the table of candidates.

Exit status: 0 done, 1 an error, 2 a wrong command line."""

END = Markup("</body></html>\n")


def parse(argv):
    parser = argparse.ArgumentParser(prog="report", description="Makes an HTML page with the curves of a training run, or of several.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", metavar="RUN", help=f"1 to {MOST_RUNS} run folders, or a plan")
    parser.add_argument("-o", "--output", metavar="FILE", help="the page to write; else RUN/report.html, of several runs comparison.html, of a plan PLAN.html")
    parser.add_argument("--title", metavar="TEXT", help="heading of the page")
    args = parser.parse_args(argv)
    if len(args.run) > MOST_RUNS:
        parser.error(f"{len(args.run)} run folders, want 1 to {MOST_RUNS}")
    if len(args.run) > 1 and any(is_plan(run) for run in args.run):
        parser.error("a plan becomes a separate page: give it alone")
    return args


def written_by(run):
    """A line with the version of lather that trained the run."""
    path = os.path.join(run, "env.json")
    try:
        version = parse_json("\n".join(read_lines(path)), path)
    except (OSError, ValueError):
        version = None
    version = version.get("version") if isinstance(version, dict) else None
    return fill("<p>Trained with lather {}.</p>\n", version) if isinstance(version, str) else ""


def make(args):
    if is_plan(args.run[0]):
        plan = read_plan(args.run[0])
        return join([begin(args.title or f"A plan of {plan['program']}"), one_plan(plan), END])
    several = len(args.run) > 1
    metrics = [read_metrics(run) for run in args.run]
    if several:
        body = several_runs(args.run, metrics, [read_settings(run) for run in args.run])
    else:
        body = one_run(args.run[0], metrics[0])
    return join([begin(args.title or ("Training runs" if several else "A training run")), body, written_by(args.run[0]), END])


def save(path, text):
    """Writes the page completely, or not at all."""
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "x", encoding="utf-8", errors="surrogateescape") as file:  # not through a link that another user made
            file.write(text)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


def page_of(runs):
    if is_plan(runs[0]):
        return runs[0][:-len(".json")] + ".html"
    return "comparison.html" if len(runs) > 1 else os.path.join(runs[0], "report.html")


def main(argv):
    args = parse(argv)
    page = args.output or page_of(args.run)
    try:
        save(page, make(args))
        print(shown(page), flush=True)
    except Problem as problem:
        print(f"report: {shown(str(problem))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"report: {shown(str(error.filename or page))}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
