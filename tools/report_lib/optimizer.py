"""The part of a page about the optimizer: heat maps of parameters over steps, spectra, rules, the worst factors.

Maps are PNG images of a pixel per number, under an SVG with names, scale and the numbers to hover over."""
import base64
import math
import struct
import zlib

import charts
from .text import Markup, fill, html, join

MOST_STEPS, MOST_HITS, MOST_SPECTRA, MOST_WORST = 240, 16000, 24, 12  # columns, places to hover over on the page, charts, rows
WIDTH, LEFT, TOP, BOTTOM = 720, 200, 34, 24  # of a map, in pixels
SEQUENTIAL = ((70, 50, 126), (54, 92, 141), (39, 127, 142), (31, 161, 135), (74, 193, 109), (173, 220, 48))  # viridis, without ends near the page's colours
DIVERGING = ((200, 85, 61), (226, 160, 140), (160, 160, 156), (128, 168, 208), (47, 111, 183))
# A map shows the worst number of a parameter's blocks and factors.
WORST = (("block", "graft_ratio", max), ("factor", "below_epsilon", max), ("factor", "condition", max), ("factor", "effective_rank", min),
         ("factor", "off_diagonal", max), ("factor", "root_age", max), ("factor", "residual", max))
SHARES = ("zero_gradient_rows", "below_epsilon", "off_diagonal")

STYLE = """.maps input{position:absolute;opacity:0}.maps label{display:inline-block;margin:.15em .3em .15em 0;padding:.05em .6em;border:1px solid #8886;
border-radius:1em;font-size:13px;cursor:pointer}.maps input:checked+label{background:#2a6fdb;border-color:#2a6fdb;color:#fff}
.maps input:focus-visible+label{outline:2px solid #8ab4f8}.map{display:none;position:relative;margin-top:.6em}.map rect{shape-rendering:crispEdges}.map svg{position:relative;margin:0;display:block}
.map img{position:absolute;image-rendering:pixelated}.map .hit{fill:transparent}.map .hit:hover{stroke:var(--ink)}.map .name{font-size:10px}
.spectra{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:.2em 1em;align-items:end}.spectra svg{margin:0;overflow:visible}
.spectra figcaption{font-size:11px;font-weight:600;overflow-wrap:anywhere}.spectra text{font-size:11px}.factors td,.factors th{font-size:13px;padding-right:.9em;white-space:nowrap}
"""


def png(rows, width, palette):
    """A PNG image of rows of indices into at most 256 colours, the first of which is transparent."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0))
            + chunk(b"PLTE", bytes(c for colour in palette for c in colour)) + chunk(b"tRNS", b"\0")
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)) + chunk(b"IEND", b""))


def blend(anchors, share):
    at = min(max(share, 0), 1) * (len(anchors) - 1)
    i = min(int(at), len(anchors) - 2)
    return tuple(round(a + (b - a) * (at - i)) for a, b in zip(anchors[i], anchors[i + 1]))


class Colours:
    """A scale for a quantity: shares from 0 to 1, cosines from -1 to 1, others from lowest to highest, logarithmic over two decades."""

    def __init__(self, name, rows):
        found = [v for row in rows for v in row if math.isfinite(v)]
        positive = [v for v in found if v > 0]
        self.anchors = DIVERGING if "cosine" in name else SEQUENTIAL
        self.low, self.high = (-1, 1) if "cosine" in name else (0, 1) if name in SHARES else (min(found), max(found))
        self.log = name not in SHARES and self.low >= 0 and bool(positive) and max(positive) > 100 * min(positive)
        if self.log:
            self.low = min(positive)

    def share(self, value):
        """Position of a finite number on the scale, from 0 to 1."""
        if self.high <= self.low:
            return 0.5
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def index(self, value):
        return 1 + round(254 * min(max(self.share(value), 0), 1)) if not math.isnan(value) else 0

    def ticks(self):
        return charts.powers(self.low, self.high) if self.log else charts.ticks(self.low, self.high, most=5)


def number_text(value):
    return "–" if math.isnan(value) else f"{value:.4g}"


def quantities(stats, records):
    """Name, and a row of numbers per parameter, of each quantity that applies to some parameter."""
    count = range(len(stats.rows("parameter")))
    for name in sorted(stats.columns("parameter"), key=lambda name: name != "update_ratio"):
        rows = [[series[r] for r in records] for series in (stats.series("parameter", i, name) for i in count)]
        if name != "rule":
            yield name, rows
    for table, name, worst in WORST:
        rows = [[[] for _ in records] for _ in count]
        for i in range(len(stats.rows(table))):
            series = stats.series(table, i, name)
            for found, r in zip(rows[stats.owner(table, i)], records):
                if not math.isnan(series[r]):
                    found.append(series[r])
        yield name, [[worst(found) if found else math.nan for found in row] for row in rows]


def legend(drawn, colours):
    """The scale's colours with their numbers, above the map."""
    left, wide = LEFT + 180, WIDTH - LEFT - 210
    for i in range(64):
        drawn.add(f'<rect x="{charts.fixed(left + wide * i / 64)}" y="6" width="{charts.fixed(wide / 64 + 0.3)}" height="8" '
                  f'fill="rgb{blend(colours.anchors, i / 63)}"/>')
    for value, text in zip(colours.ticks(), charts.tick_texts(colours.ticks())):
        drawn.text(left + wide * colours.share(value), 26, text, "name", "middle")


def hits(drawn, name, steps, row, y, tall, budget):
    """Places to hover over, at most budget: the number of a step, or the range of several."""
    cuts = [len(steps) * i // min(budget, len(steps)) for i in range(min(budget, len(steps)) + 1)]
    wide = (WIDTH - LEFT) / len(steps)
    for a, b in zip(cuts, cuts[1:]):
        found = [v for v in row[a:b] if not math.isnan(v)]
        when = f"step {steps[a]}" if b == a + 1 else f"steps {steps[a]} to {steps[b - 1]}"
        said = " to ".join(dict.fromkeys(map(number_text, (min(found), max(found))))) if found else "does not apply"
        drawn.add(f'<rect x="{charts.fixed(LEFT + a * wide)}" y="{charts.fixed(y)}" width="{charts.fixed((b - a) * wide)}" height="{charts.fixed(tall)}" '
                  f'class="hit"><title>{html(f"{name}, {when}: {said}")}</title></rect>')


def heat_map(quantity, rows, names, steps, budget):
    colours = Colours(quantity, rows)
    tall = max(4, min(14, 560 / len(rows)))
    height, floor = TOP + tall * len(rows) + BOTTOM, TOP + tall * len(rows)
    drawn = charts.Drawing(quantity.replace("_", " "), WIDTH, math.ceil(height))
    drawn.text(4, 14, f"{drawn.title}{', logarithmic' if colours.log else ''}", "title")
    legend(drawn, colours)
    for i, (name, row) in enumerate(zip(names, rows)):
        if i % math.ceil(10 / tall) == 0:
            drawn.text(LEFT - 5, TOP + (i + 0.5) * tall + 3.5, name if len(name) < 37 else f"…{name[-35:]}", "name", "end")
        hits(drawn, name, steps, row, TOP + i * tall, tall, budget)
    for i in sorted({(len(steps) - 1) * tick // 4 for tick in range(5)}):
        drawn.text(LEFT + (i + 0.5) * (WIDTH - LEFT) / len(steps), floor + 16, str(steps[i]), "name", "end" if i and i == len(steps) - 1 else "middle" if i else "start")
    palette = [(0, 0, 0)] + [blend(colours.anchors, i / 254) for i in range(255)]
    data = base64.b64encode(png([[colours.index(v) for v in row] for row in rows], len(steps), palette)).decode()
    place = f"left:{100 * LEFT / WIDTH:.3f}%;top:{100 * TOP / drawn.height:.3f}%;width:{100 - 100 * LEFT / WIDTH:.3f}%;height:{100 * (floor - TOP) / drawn.height:.3f}%"
    return fill('<img alt="" style="{}" src="data:image/png;base64,{}">{}', place, data, Markup(drawn.inline()))


def maps(stats, part):
    """All heat maps, of which the one is shown whose name is selected: no script is needed for that."""
    every = math.ceil(len(stats.steps) / MOST_STEPS)
    records = list(range(0, len(stats.steps), every))
    if records[-1] != len(stats.steps) - 1:
        records.append(len(stats.steps) - 1)
    found = [(name, rows) for name, rows in quantities(stats, records) if any(math.isfinite(v) for row in rows for v in row)]
    if not found:
        return ""
    names, steps = [row["name"] for row in stats.rows("parameter")], [stats.steps[r] for r in records]
    budget = max(1, MOST_HITS // (len(found) * len(names)))
    ids = [f"map-{part}-{i}" for i in range(len(found))]
    style = "".join(f"#{one}:checked~.{one}{{display:block}}" for one in ids)
    buttons = join(fill('<input type="radio" name="map-{}" id="{}"{}><label for="{}">{}</label>', part, one, Markup("" if i else " checked"), one,
                        name.replace("_", " ")) for i, (one, (name, _)) in enumerate(zip(ids, found)))
    drawn = join(fill('<div class="map {}">{}</div>\n', one, heat_map(name, rows, names, steps, budget)) for one, (name, rows) in zip(ids, found))
    thinned = f" Drawn: {len(records)} of {len(stats.steps)} records." if every > 1 else ""
    return fill('<style>{}</style>\n<p>Parameters in the order of the network, over steps; of several blocks and factors the worst. Empty: does not apply.{}'
                '</p>\n<div class="maps">{}\n{}</div>\n', Markup(style), thinned, buttons, drawn)


def worst_factors(stats):
    """Numbers of factors, those with most of their spectrum below epsilon first, then the worst conditioned; NaN last."""
    last = {name: [stats.series("factor", i, name)[-1] for i in range(len(stats.rows("factor")))] for name in ("below_epsilon", "condition")}
    orders = [[-v if v == v else math.inf for v in last[name]] for name in last]
    return sorted(range(len(stats.rows("factor"))), key=lambda i: [order[i] for order in orders])


def spectrum(stats, i):
    """Eigenvalues of a factor over steps: bands between quantiles, the median, epsilon as a dashed line."""
    quantiles = [[v if 0 < v < math.inf else 0 for v in stats.series("factor", i, f"q{q}")] for q in range(9)]
    epsilon, high = stats.series("factor", i, "epsilon"), max(quantiles[8], default=0)
    known = [r for r in range(len(stats.steps)) if quantiles[8][r] > 0]
    known = known[::1 + len(known) // 100]
    if not known:
        return ""
    floor = max(high * 1e-10, min([v for q in quantiles for v in q if v > 0] + [e for e in epsilon if e > 0]))
    ends = (stats.steps[known[0]], max(stats.steps[known[-1]], stats.steps[known[0]] + 1))
    chart = charts.Chart("", ends, (floor, max(high, floor * 10)), "step", log_y=True, width=240, height=170,
                         x_least=max(1, (ends[1] - ends[0]) / 4))

    def points(values):
        return [(chart.x(stats.steps[r]), chart.y(min(max(values[r], floor), max(high, floor * 10)))) for r in known if values[r] == values[r]]

    for q in range(4):
        chart.area(points(quantiles[8 - q]) + points(quantiles[q])[::-1], "band f2")
    chart.path(points(quantiles[4]), "s2")
    if points(epsilon):
        chart.path(points(epsilon), "s1 thin")
    return fill("<figure><figcaption>{} ({})</figcaption>{}</figure>\n", stats.name("factor", i), stats.rows("factor")[i]["size"], Markup(chart.inline()))


def spectra(stats, order):
    drawn = join(spectrum(stats, i) for i in sorted(order[:MOST_SPECTRA]))
    worst = f" Drawn: the worst {MOST_SPECTRA} of {len(order)} factors." if len(order) > MOST_SPECTRA else ""
    return drawn and fill('<h3>Spectra</h3>\n<p>Eigenvalues of factors: line: median; bands: between their eighths, lowest to highest; dashed: epsilon.{}</p>\n'
                          '<div class="spectra">{}</div>\n', worst, drawn)


def rules(stats):
    """How many parameters got which rule at the last record, and their names."""
    found = {}
    for i, row in enumerate(stats.rows("parameter")):
        found.setdefault(stats.rule(stats.series("parameter", i, "rule")[-1]) or "unknown", []).append(row["name"])
    lines = [fill("<tr><td>{}<td>{}<td>{}</tr>\n", rule.replace("_", " "), len(names),
                  fill("<details><summary>{}, …</summary>{}</details>", names[0], ", ".join(names)) if len(names) > 3 else ", ".join(names))
             for rule, names in sorted(found.items(), key=lambda one: -len(one[1]))]
    return fill('<h3>Rules at step {}</h3>\n<table>\n<tr><th>rule<th>parameters<th>names</tr>\n{}</table>\n', stats.steps[-1], join(lines))


def factor_table(stats, order):
    columns = [name for name in ("below_epsilon", "epsilon", "condition", "effective_rank", "off_diagonal", "root_age", "residual", "failures")
               if any(math.isfinite(stats.series("factor", i, name)[-1]) for i in order)]
    if not columns:
        return ""
    lines = [fill("<tr><td>{}<td>{}{}</tr>\n", stats.name("factor", i), stats.rows("factor")[i]["size"],
                  join(fill("<td>{}", number_text(stats.series("factor", i, name)[-1])) for name in columns)) for i in order[:MOST_WORST]]
    return fill('<h3>Factors with most of their spectrum below epsilon</h3>\n<div class="wide"><table class="factors">\n<tr><th>factor<th>size{}</tr>\n'
                "{}</table></div>\n", join(fill("<th>{}", name.replace("_", " ")) for name in columns), join(lines))


def one_optimizer(stats, part):
    order = worst_factors(stats)
    optim, steps = stats.header.get("optim"), f"steps {stats.steps[0]} to {stats.steps[-1]}"
    return join([fill("<h2>Optimizer</h2>\n<p>{}, {}, in {} records.</p>\n", optim if isinstance(optim, str) else "unknown", steps, len(stats.steps)),
                 rules(stats), fill("<h3>Parameters over steps</h3>\n"), maps(stats, part), spectra(stats, order), factor_table(stats, order)])


def optimizer(found):
    """found: what read_optim_stats() returned; "" if there was nothing."""
    parts = [one_optimizer(stats, part) for part, stats in enumerate(found) if stats.rows("parameter")]
    return join([fill("<style>{}</style>\n", Markup(STYLE)), *parts]) if parts else ""
