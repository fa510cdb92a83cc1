"""OUT/PLAN/: report.html, tables/, figures/, all of them functions of the finished cells' metrics; and --check."""
import json
import os
import sys

from .claims import bands_of, compare, find_bands, verdicts_of, write_bands
from .figures import all_figures
from .measures import Measured
from .page import page
from .store import is_own_file, read_json, remove, write_whole
from .tables import all_tables


def write_all(folder, files):
    """Writes the files and their list, drawn.json, after removing files that only the earlier list has."""
    record = os.path.join(folder, "drawn.json")
    for name in set(read_json(record) or ()) - set(files):
        if os.path.dirname(name) in ("tables", "figures") and is_own_file(os.path.join(folder, name)):
            remove(os.path.join(folder, name))
    write_whole(record, json.dumps(sorted(files), indent=0) + "\n")
    for name, text in files.items():
        write_whole(os.path.join(folder, name), text)


def draw(work):
    """Returns the exit status: 1 if --check finds something worse."""
    args, with_clock = work.args, not work.args.no_clock
    measured = Measured(work.cells(), work.store)
    verdicts = verdicts_of(measured)
    figures = {group: [f for f in found if with_clock or not f.is_clock] for group, found in all_figures(measured).items()}
    tables = all_tables(measured, verdicts, with_clock)
    files = {"report.html": page(measured, verdicts, figures, tables, with_clock)}
    for figure in [f for group in figures.values() for f in group]:
        files[f"figures/{figure.name}.svg"] = figure.drawing.document()
        files[f"figures/{figure.name}.csv"] = figure.csv()
    for table in tables.values():
        files[f"tables/{table.name}.csv"] = table.csv()
        files[f"tables/{table.name}.md"] = table.markdown()
    folder = os.path.join(args.out, work.plan.name)
    write_all(folder, files)
    print(os.path.join(folder, "report.html"), flush=True)
    for verdict in verdicts:
        print(f"{verdict.verdict}: {verdict.claim['text']} {verdict.text()}" + (f" ({verdict.note})" if verdict.note else ""))
    bands = bands_of(measured, verdicts)
    if args.write_bands:
        write_bands(folder, bands)
    return check(args, work.plan.name, folder, bands) if args.check else 0


def check(args, plan, folder, bands):
    stored = find_bands([folder] + [os.path.join(source, plan) for source in args.sources])
    if not stored:
        print(f"reproduce: --check: no bands.json in {folder}", file=sys.stderr)
        return 1
    problems = compare(stored, bands)
    for problem in problems:
        print(f"reproduce: --check: {problem}", file=sys.stderr)
    return 1 if problems else 0
