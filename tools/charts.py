"""Charts as SVG text: one scale, one frame, a handful of marks. Colours are classes, so that a page can be light or dark.

A figure stands alone as a file (with STYLE inside) and inline in the report (which has STYLE once)."""
from html import escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 40
DIGIT = 7.7  # width of a digit
COLOURS = 8

STYLE = """svg{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;--ink:#20242b;--soft:#6d7480;--line:#d9dce1;--paper:#fff;
--c0:#33415c;--c1:#c8553d;--c2:#2f7f86;--c3:#b98a1f;--c4:#7a5a9e;--c5:#5b8c3e;--c6:#a04a6a;--c7:#7d7d7d}
@media(prefers-color-scheme:dark){svg{--ink:#e4e6ea;--soft:#9aa1ac;--line:#363b44;--paper:#15181d;
--c0:#a9b9d9;--c1:#ee8a72;--c2:#66bdc4;--c3:#dfb95a;--c4:#b79bd6;--c5:#9ccb7c;--c6:#dd8fae;--c7:#ababab}}
svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .title{font-size:13px;font-weight:600;fill:var(--ink)}svg .ink{fill:var(--ink)}
svg .grid{stroke:var(--line);stroke-width:1}svg .axis{stroke:var(--soft);stroke-width:1}
svg polyline{fill:none;stroke-width:2;stroke-linejoin:round}svg .thin{stroke-width:1.2;stroke-dasharray:4 3}
svg .band{stroke:none;fill-opacity:.16}svg .ring{fill:none;stroke:var(--ink);stroke-width:1.6}
""" + "".join(f"svg .s{i}{{stroke:var(--c{i})}}svg .f{i}{{fill:var(--c{i})}}" for i in range(COLOURS)) + "\n"


def fixed(value):
    """A coordinate: two digits, no negative zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def ticks(low, high, most=6, least=0):
    """Round numbers from low to high, least apart at least."""
    if not high > low:
        return [low]
    power = 1e-12
    while (high - low) / power > most * 10:
        power *= 10
    step = next((power * m for m in (1, 2, 5, 10, 20, 50, 100) if (high - low) / (power * m) <= most and power * m >= least), least)
    first = int(low / step) - 1
    values = [step * (first + i) for i in range(2 * most + 4)]
    return [v for v in values if low - 1e-9 * step <= v <= high + 1e-9 * step]


def tick_texts(values, whole=False):
    """Labels of ticks: of whole numbers all digits, of others as few as make them different."""
    if whole:
        return [f"{value:.0f}" for value in values]
    for digits in range(6, 18):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(values):
            break
    return texts


class Scale:
    """From values to pixels, linear or logarithmic."""

    def __init__(self, low, high, start, end, log=False):
        import math
        self.function = math.log10 if log else float
        self.low, self.high = self.function(low), self.function(high)
        if self.high <= self.low:
            self.high = self.low + 1
        self.start, self.end = start, end

    def __call__(self, value):
        share = (self.function(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


class Drawing:
    """Marks, collected; document() makes them a file, inline() a part of a page."""

    def __init__(self, title, width=WIDTH, height=HEIGHT):
        self.title, self.width, self.height, self.parts = title, width, height, []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, text, kind="", anchor="start"):
        kind = f' class="{kind}"' if kind else ""
        anchor = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.add(f'<text x="{fixed(x)}" y="{fixed(y)}"{kind}{anchor}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind):
        self.add(f'<line x1="{fixed(x1)}" y1="{fixed(y1)}" x2="{fixed(x2)}" y2="{fixed(y2)}" class="{kind}"/>')

    def path(self, points, kind):
        self.add(f'<polyline class="{kind}" points="{" ".join(f"{fixed(x)},{fixed(y)}" for x, y in points)}"/>')

    def area(self, points, kind):
        self.add(f'<polygon class="{kind}" points="{" ".join(f"{fixed(x)},{fixed(y)}" for x, y in points)}"/>')

    def dot(self, x, y, radius, kind, note="", opacity=None):
        faint = f' fill-opacity="{opacity:.2f}"' if opacity is not None else ""
        inside = f"<title>{escape(note)}</title></circle>" if note else "</circle>"
        self.add(f'<circle cx="{fixed(x)}" cy="{fixed(y)}" r="{fixed(radius)}" class="{kind}"{faint}>{inside}')

    def box(self, x, y, width, height, kind, opacity=None):
        faint = f' fill-opacity="{opacity:.2f}"' if opacity is not None else ""
        self.add(f'<rect x="{fixed(x)}" y="{fixed(y)}" width="{fixed(width)}" height="{fixed(height)}" class="{kind}"{faint}/>')

    def legend(self, names, top=None):
        """Names with their colours, from the left, in as many lines as it takes; returns the height it took."""
        x, y = LEFT, (TOP if top is None else top)
        most = int((self.width - 4 - LEFT - 24) / 7.1)
        for index, name in names:
            name = name if len(name) <= most else name[:most - 1] + "…"
            wide = 24 + 7.1 * len(name)
            if x + wide > self.width - 4 and x > LEFT:
                x, y = LEFT, y + 16
            self.box(x, y - 8, 9, 9, f"f{index % COLOURS}")
            self.text(x + 13, y, name)
            x += wide + 6
        return y

    def body(self):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">'
        return head, f"<title>{escape(self.title)}</title>\n" + "\n".join(self.parts) + "\n</svg>\n"

    def inline(self):
        return "".join(self.body())

    def document(self):
        head, rest = self.body()
        return f"{head}<style>{STYLE}</style>\n{rest}"


class Chart(Drawing):
    """A drawing with axes. x and y are (low, high); x may be logarithmic. y_sign: factor of the y axis' labels. x_least: least distance of x ticks, which are
    whole numbers if it is 1 or more."""

    def __init__(self, title, x, y, x_title, names=(), log_x=False, log_y=False, width=WIDTH, height=HEIGHT, y_sign=1, x_least=0):
        super().__init__(title, width, height)
        self.y_sign = y_sign
        self.y_ticks = powers(*y) if log_y else ticks(*y, most=6)
        self.y_texts = tick_texts([y_sign * value for value in self.y_ticks])
        self.left = max(LEFT, 10 + DIGIT * max(map(len, self.y_texts), default=0))  # wide enough for the longest label
        self.text(LEFT, 16, title, "title")
        top = self.legend(names, 34) + 12 if names else TOP
        self.x = Scale(*x, self.left, self.width - RIGHT, log_x)
        self.y = Scale(*y, self.height - BOTTOM, top, log_y)
        self.axes(powers(*x, x_least) if log_x else ticks(*x, most=7, least=x_least), x_title, x_least >= 1)

    def axes(self, x_ticks, x_title, whole):
        floor, free = self.height - BOTTOM, 0  # free: from where there is no label
        for value, text in zip(self.y_ticks, self.y_texts):
            self.line(self.left, self.y(value), self.width - RIGHT, self.y(value), "grid")
            self.text(self.left - 6, self.y(value) + 4, text, anchor="end")
        for value, text in zip(x_ticks, tick_texts(x_ticks, whole)):
            half = DIGIT * len(text) / 2
            at = min(self.x(value), self.width - half)
            self.line(self.x(value), floor, self.x(value), floor + 4, "axis")
            if at - half >= free:
                self.text(at, floor + 17, text, anchor="middle")
                free = at + half + DIGIT
        self.line(self.left, floor, self.width - RIGHT, floor, "axis")
        self.text(self.width - RIGHT, floor + 33, x_title, anchor="end")


def powers(low, high, least=0):
    """Powers of ten, and their halves on the way, within a logarithmic axis; round numbers if it has fewer than two."""
    found = []
    for exponent in range(-14, 10):
        for digit in (1, 3):
            value = float(f"{digit}e{exponent}")
            if low * 0.999 <= value <= high * 1.001:
                found.append(value)
    if len(found) < 2:
        return ticks(low, high, least=least)
    tens = [v for v in found if f"{v:e}".startswith("1")]
    return found if len(found) <= 7 else tens[::1 + len(tens) // 9]
