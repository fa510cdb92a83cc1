"""Reads the folders of training runs: lather.runs.read("runs/a").

    run = lather.runs.read("runs/a")
    run.settings["lr"], run.steps[-1]["loss"], run.epochs[-1]["val_top1"]
    run.frame()                                   # a pandas data frame of the steps
"""
import json
import os

_EVENTS = ("metrics.jsonl", "metrics-eval.jsonl")


class Run:
    """A run: `settings` of config.yaml, `environment` of env.json, `records` of metrics.jsonl in their order (lists of dicts)."""

    def __init__(self, path, settings, environment, records):
        self.path, self.settings, self.environment, self.records = path, settings, environment, records

    def of(self, event):
        """The records of one kind of event, such as "step", "epoch", "evaluation", "optim_stats"."""
        return [r for r in self.records if r.get("event") == event]

    @property
    def steps(self):
        return self.of("step")

    @property
    def epochs(self):
        return self.of("epoch")

    def frame(self, event="step"):
        """A pandas data frame of the records of one event; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("lather.runs: frame() needs pandas; .records, .steps and .epochs are lists of dicts without it") from error
        return pandas.DataFrame(self.of(event)).drop(columns=["event", "run"], errors="ignore")

    def __repr__(self):
        last = self.steps[-1] if self.steps else {}
        return f"lather.runs.Run({self.path!r}: {len(self.steps)} steps, {len(self.epochs)} epochs, loss {last.get('loss')})"


def _value(text):
    """The value of a setting: number, true or false, else its text."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _settings(lines):
    """The settings of a config.yaml, which is flat: `name: value`, or a list whose items follow in lines with a dash."""
    found, name = {}, None
    for line in lines:
        item = line.strip()
        if not item or item.startswith("#"):
            continue
        if line[:1] in (" ", "-") and name:
            if not isinstance(found[name], list):
                found[name] = []
            found[name].append(_value(item.lstrip("- ")))
        elif ":" in line:
            name, _, value = line.partition(":")
            found[name] = _value(value)
    return found


def _records(path):
    """The objects of a file of lines; a line that a kill cut off is left out."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                found.append(record)
    return found


def read(path):
    """The run in a folder. A separate evaluation's records follow those of the training, ordered by step. Errors: FileNotFoundError,
    with the name of the missing file."""
    path = os.fspath(path)
    metrics, separate = (os.path.join(path, name) for name in _EVENTS)
    if not os.path.isfile(metrics):
        raise FileNotFoundError(f"{path}: no metrics.jsonl there; a run folder is what --output names")
    records = _records(metrics)
    if os.path.exists(separate):
        records += sorted(_records(separate), key=lambda r: r.get("step") or 0)
    settings, environment = {}, {}
    if os.path.exists(os.path.join(path, "config.yaml")):
        with open(os.path.join(path, "config.yaml"), encoding="utf-8", errors="replace") as file:
            settings = _settings(file)
    if os.path.exists(os.path.join(path, "env.json")):
        with open(os.path.join(path, "env.json"), encoding="utf-8") as file:
            environment = json.load(file)
    return Run(path, settings, environment, records)
