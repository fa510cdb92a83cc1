"""Metrics by which runs are compared. Cells and measures compare *scores*, of which the larger is the better: values, negated
where less is better."""


class Metric:
    """name: the field in records of epochs, without its prefix 'val_'. noun: in sentences. unit: of values. digits: after the decimal
    point. point: the difference that corresponds to one percentage point, for the spans of axes and shades. sign: 1, or -1 where
    less is better. worst: the score of a run that diverged. top: the largest possible score."""

    def __init__(self, name, noun, label, unit, digits, point, sign, worst, top):
        self.name, self.key, self.noun, self.label, self.unit = name, f"val_{name}", noun, label, unit
        self.digits, self.point, self.sign, self.worst, self.top = digits, point, sign, worst, top
        self.points = "points" if unit == "%" else unit  # unit of differences

    def score(self, value):
        return self.sign * value

    def text(self, score, digits=None):
        """The value of a score."""
        return f"{self.sign * score + 0.0:.{self.digits if digits is None else digits}f}"

    def called(self):
        """In full: 'top-1 accuracy'."""
        return self.noun if self.label == self.noun else f"{self.label} {self.noun}"

    def headed(self):
        """Above a column: 'top-1, %'."""
        return f"{self.label}, {self.unit}"


METRICS = {m.name: m for m in (
    Metric("top1", "accuracy", "top-1", "%", 2, 1.0, 1, 0.0, 100.0),
    Metric("loss", "loss", "loss", "nats", 4, 0.02, -1, -100.0, 0.0))}
