#!/usr/bin/env python3
"""report on damaged and hostile records: a page without foreign markup or one line that names the file, never a traceback.

    test_report_damaged.py REPORT-PROGRAM [SEED]
"""
import contextlib
import copy
import html.parser
import io
import json
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(sys.argv[1])))

import optim_stats_files as stats_files  # noqa: E402
from report_lib import main as program, text  # noqa: E402

TRIES = 250  # tries per kind of file
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "br", "pre", "div", "table", "tr", "th", "td", "details",
        "summary", "figure", "figcaption", "img", "b", "svg", "text", "line", "polyline", "polygon", "rect", "circle", "h3", "input", "label"}
HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</style><script>", "{0.__class__}", "a\nb\x1b[2J", "", None, True, [], {},
           [[]], -1, 0, 0.5, 1e308, -1e308, 5e-324, 2 ** 53 + 1, 10 ** 400, -10 ** 400, 1e99, float("nan"), float("inf"), "1", [1e308], {"a": 1}]
POINTS = [[1, 4.0], [10, 2.0], [100, 1.5]]
ESTIMATE = {"value": 0.5, "rests_on": "measured", "beyond": 1, "error": 0.1, "why": "because"}
CANDIDATE = {"setting": "adamw", "batch_size": 16, "batch": 32, "ranks": 2, "step_seconds": ESTIMATE, "steps": ESTIMATE, "ernest_seconds": 0.4,
             "modelled": {"seconds": 0.6}, "price": 1.5, "seconds": 100, "epoch_seconds": 10, "memory_bytes": 1e9, "command": "train --x"}
PLAN = {"format": 1, "program": "train_x", "goal": {"metric": "val_loss", "value": 2, "deadline_seconds": None}, "goal_is_known": True,
        "candidates": [CANDIDATE, dict(CANDIDATE, ranks=4, price=None, memory_bytes=None)], "dropped": [{"ranks": 8, "why": "no memory"}],
        "runs": [{"setting": "adamw", "batch_size": 16, "ranks": 2, "step_seconds": 0.5, "points": POINTS, "fitted": POINTS}],
        "steps_of_batch": [{"setting": "adamw", "why": "two runs", "least_steps": 10, "noise_scale": 8, "samples": 80, "points": [[32, 15]]}]}
KIND = {"name": "cat", "images": 2, "correct": 1, "predicted": 3, "top1": 50, "precision": 33.3}
EVALUATION = {"weights": "w", "data": "d", "images": 4, "top1": 50, "top5": 100, "loss": 1.5, "classes": [KIND, dict(KIND, name=None)],
              "confusion": [[1, 1], [2, 0]], "confused": [{"label": 1, "predicted": 0, "count": 2}],
              "samples": [{"path": "p", "label": 0, "probability": 0.25, "predictions": [{"index": 1, "probability": 0.75}],
                           "image": "data:image/bmp;base64,Qk0="}]}
METRICS = [{"event": "step", "step": i, "epoch": 0, "loss": 3.0 - i, "lr": 0.1, "images_per_second": 100.0} for i in (1, 2, 3)]
METRICS += [{"event": "epoch", "epoch": 0, "step": 3, "train_loss": 1.0, "val_loss": 0.5, "val_top1": 87.25, "val_top5": 99, "seconds": 4}]
STATS = stats_files.header([("conv1.weight", [4, 9]), ("bn1.weight", [4])])
CONFIG = "lr: 0.1\nname: x\n"


class Page(html.parser.HTMLParser):
    """Collects markup that no page of the tool has."""

    def __init__(self, page):
        super().__init__()
        self.foreign = []
        self.rawdata = page
        self.goahead(True)

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS or any(name.startswith("on") or name in ("href", "srcdoc") for name, _ in attrs):
            self.foreign.append(self.get_starttag_text())
        if tag == "img" and not dict(attrs)["src"].startswith("data:image/"):
            self.foreign.append(self.get_starttag_text())


def places(value, found):
    """All (container, key) of a JSON value."""
    for key in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
        found.append((value, key))
        places(value[key], found)
    return found


def mutate(value, rng):
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        container, key = rng.choice(places(value, []) or [([0], 0)])
        kind = rng.randrange(8)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            prefix = rng.choice(("", "val_", "train_"))
            container[prefix + "<script>k</script>" + rng.choice(("", "_per_second"))] = container.pop(key)
        else:
            container[key] = copy.deepcopy(rng.choice(HOSTILE))
    return value


def damage(data, rng):
    """Bytes flipped, cut or doubled, now and then."""
    data = bytearray(data)
    kind = rng.randrange(8)
    if kind == 0 and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data) + 1):]
    elif kind == 2:
        data += b"[" * 100000 if rng.randrange(4) == 0 else bytes(data)
    return bytes(data)


def run(words):
    """Exit status and standard error of report, in this process; an exception is one of report's."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = program.main(words)
    return code, said.getvalue()


def fault(words, page, folder, start=run):
    """Runs report; returns None, or a description of its fault."""
    if os.path.exists(page):
        os.remove(page)
    try:
        code, said = start(words)
    except Exception as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {error}"
    if code == 1:
        fine = said.startswith(f"report: {folder}") and said.count("\n") == 1 and said.endswith("\n") and "\x1b" not in said
        return None if fine and not os.path.exists(page) else f"its message is {said!r}"
    with open(page, encoding="utf-8", errors="surrogateescape") as file:
        whole = file.read()
    foreign = Page(whole).foreign
    return f"foreign markup: {foreign}" if foreign else None


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def stats_of(header):
    """A file of --optim-stats with that header: as many numbers in a record as the sound one has."""
    data = stats_files.encode(STATS, [(step, stats_files.healthy()) for step in (10, 20, 30)])
    said = json.dumps(header).encode()
    return data[:8] + len(said).to_bytes(8, "little") + said + data[16 + int.from_bytes(data[8:16], "little"):]


def lines_of(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def try_all(folder, rng):
    """Mutates each kind of file TRIES times; returns the faults and the numbers of exit statuses."""
    run_folder, plan, page = f"{folder}/run", f"{folder}/plan.json", f"{folder}/page.html"
    os.mkdir(run_folder)
    sound = {"metrics.jsonl": lines_of(METRICS), "eval.json": json.dumps(EVALUATION, indent=1).encode(), "config.yaml": CONFIG.encode(),
             "env.json": b'{"version": "1"}', "plan.json": json.dumps(PLAN, indent=1).encode(), "optim_stats.bin": stats_of(STATS)}
    made = {"metrics.jsonl": lambda: lines_of(mutate(METRICS, rng)), "eval.json": lambda: json.dumps(mutate(EVALUATION, rng), indent=1).encode(),
            "env.json": lambda: json.dumps(mutate({"version": "1"}, rng)).encode(), "plan.json": lambda: json.dumps(mutate(PLAN, rng), indent=1).encode(),
            "optim_stats.bin": lambda: stats_of(mutate(STATS, rng))}
    faults, pages = [], 0
    for name, data in sound.items():
        write(plan if name == "plan.json" else f"{run_folder}/{name}", data)
    for words in ([plan], [run_folder], [run_folder, run_folder]):  # undamaged
        found = fault([*words, "-o", page], page, folder)
        if found or not os.path.exists(page):
            faults.append(f"sound: {found}")
    os.remove(f"{run_folder}/optim_stats.bin")  # pages with it are large
    for name, make in made.items():
        path = plan if name == "plan.json" else f"{run_folder}/{name}"
        for i in range(TRIES // {"env.json": 5, "optim_stats.bin": 3}.get(name, 1)):
            data = damage(make(), rng)
            write(path, data)
            words = [plan] if path == plan else [run_folder] * (1 + i % 2)
            found = fault([*words, "-o", page], page, folder)
            pages += os.path.exists(page)
            if found:
                faults.append(f"{name}, {len(data)} bytes {data[:2000]!r}: {found}")
        write(path, sound[name])
    return faults, pages


def controls(folder):
    """Faults that must be found: markup of a helper that does not escape, an exception, a message that names no file."""
    page, plan = f"{folder}/page.html", f"{folder}/control.json"
    write(plan, json.dumps(dict(PLAN, program="<script>")).encode())
    whole = text.Filler.format_field
    text.Filler.format_field = lambda self, value, spec: text.Markup(format(value, spec))
    unescaped = fault([plan, "-o", page], page, folder)
    text.Filler.format_field = whole
    return [unescaped, fault([], page, folder, start=lambda words: 1 // 0), fault([], page, folder, start=lambda words: (1, "report: no\n"))]


def messages(folder):
    """One for each kind, with the file, the line, the member, both numbers."""
    os.mkdir(f"{folder}/said")
    rows = [("metrics.jsonl", lines_of(METRICS) + b'{"event":"step","step":1e308,"loss":1}\n', "metrics.jsonl:5: step is Infinity, want a number from 0 to 1e+15"),
            ("metrics.jsonl", lines_of(METRICS) + b'{"event":"step","step":1e17,"loss":1}\n', "metrics.jsonl:5: step is 1e+17, want a number from 0 to 1e+15"),
            ("optim_stats.bin", stats_of(dict(STATS, format=2)), "optim_stats.bin: format 2, this program reads 1"),
            ("optim_stats.bin", stats_of(STATS).replace(b'"block": 0', b'"block": 7'), "optim_stats.bin: factor[0].block is 7, want less than 2"),
            ("optim_stats.bin", stats_of(STATS)[:8] + b"\xff" * 40, "optim_stats.bin: a header of 18446744073709551615 bytes: not a file"),
            ("eval.json", b'{"classes": [{"images": 1,\n"top1": 1' + b"0" * 400 + b"}]}", "eval.json:2: the number 1000000000000000000000000000000000000000... is beyond"),
            ("plan.json", json.dumps({k: v for k, v in PLAN.items() if k != "program"}).encode(), "plan.json: plan.program is null, want a text"),
            ("plan.json", json.dumps(dict(PLAN, candidates=[dict(CANDIDATE, ranks="<b>")])).encode(),
             "plan.json: plan.candidates[0].ranks is <b>, want a number from 1 to 1e+15")]
    for name, data, want in rows:
        write(f"{folder}/said/metrics.jsonl", lines_of(METRICS))
        write(f"{folder}/said/{name}", data)
        words = [f"{folder}/said/plan.json" if name == "plan.json" else f"{folder}/said"]
        code, said = run([*words, "-o", f"{folder}/page.html"])
        yield code == 1 and want in said, f"'{want}' is not in {said!r}"
        os.remove(f"{folder}/said/{name}")
    diverged = b'{"event":"step","step":4,"loss":701.5,"perplexity":8.5e+302}\n'  # written by a trainer: a gap, as null is
    write(f"{folder}/said/metrics.jsonl", lines_of(METRICS) + diverged)
    code, said = run([f"{folder}/said", "-o", f"{folder}/page.html"])
    yield code == 0, f"a diverged run has no page: {said!r}"
    for size in (0, 5, 8, 12, 16, 40):
        write(f"{folder}/said/optim_stats.bin", stats_of(STATS)[:size])
        code, said = run([f"{folder}/said", "-o", f"{folder}/page.html"])
        yield code == 0, f"a run whose optim_stats.bin was cut off after {size} bytes has no page: {said!r}"


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 38
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        faults, pages = try_all(folder, random.Random(seed))
        failed += faults[:5]
        if not TRIES // 4 < pages < 3 * TRIES:
            failed.append(f"{pages} pages of {3 * TRIES} were made: the mutations are too mild or too wild")
        failed += [f"control {i} was not found" for i, found in enumerate(controls(folder)) if not found]
        failed += [said for fine, said in messages(folder) if not fine]
    for line in failed:
        print(f"failed (seed {seed}): {line}")
    print(f"{len(failed)} failures, {pages} pages from damaged records")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
