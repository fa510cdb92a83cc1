"""The part of a page about an evaluation: eval.json, as --eval writes it. The file is not trusted: numbers are checked,
text is escaped, of images only BMP, PNG and JPEG in base64 are taken."""
import json
import os
import re

from .records import Problem
from .text import html

MATRIX_CLASSES, WORST, MOST_PAIRS, MOST_SAMPLES, MOST_GUESSES = 40, 20, 20, 24, 3
IMAGE = re.compile(r"data:image/(bmp|png|jpeg);base64,[A-Za-z0-9+/=]*")


def number(found, key):
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def items(found, key):
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else []


def text(found, key):
    value = found.get(key)
    return html(value) if isinstance(value, str) else ""


class Classes:
    def __init__(self, root, path):
        self.kinds = items(root, "classes")
        if not self.kinds:
            raise Problem(f"{path}: no classes in it")

    def name(self, index):
        """Of a class, else its number."""
        kind = self.kinds[int(index)] if 0 <= index < len(self.kinds) else None
        name = kind.get("name") if isinstance(kind, dict) else None
        return html(name) if isinstance(name, str) else f"class {index:.0f}"

    def row(self, index):
        kind = self.kinds[index]
        accuracy, images = number(kind, "top1"), number(kind, "images")
        bar = accuracy if 0 <= accuracy <= 100 else 0
        shown = f'{accuracy:.2f} %<td><span class="bar" style="width:{bar:.0f}px"></span>' if images > 0 else "<td>"
        precision = kind.get("precision") if isinstance(kind, dict) else None
        right = f"{number(kind, 'precision'):.2f} %" if isinstance(precision, (int, float)) else ""
        return f"<tr><td>{self.name(index)}<td>{shown}<td>{number(kind, 'correct'):.0f} of {images:.0f}<td>{right}</tr>\n"

    def table(self):
        """All, or of many the worst that have images."""
        many, order = len(self.kinds) > MATRIX_CLASSES, list(range(len(self.kinds)))
        if many:
            order = [i for i in order if number(self.kinds[i], "images") > 0]
            order = sorted(order, key=lambda i: number(self.kinds[i], "top1"))[:WORST]
        title = "Classes with the least accuracy" if many else "Classes"
        return (f'<h2>{title}</h2>\n<div class="wide"><table>\n<tr><th>class<th>accuracy<th><th>images'
                '<th title="of the images taken for this class, those that are of it">precision</tr>\n'
                + "".join(self.row(i) for i in order) + "</table></div>\n")


def cell(count, images, hit):
    count = count if isinstance(count, (int, float)) and not isinstance(count, bool) else 0
    style = ""
    if 0 < count <= images:
        style = f' style="background:rgba({"58,157,93" if hit else "181,64,58"},{0.85 * count / images:.2f})"'
    return f'<td{" class=" + chr(34) + "hit" + chr(34) if hit else ""}{style}>' + (f"{count:.0f}" if count > 0 else "")


def matrix(classes, rows):
    indices = range(len(classes.kinds))
    body = ""
    for i, row in zip(indices, rows):
        cells = row if isinstance(row, list) else []
        body += f"<tr><th>{classes.name(i)}" + "".join(
            cell(count, number(classes.kinds[i], "images"), i == k) for k, count in zip(indices, cells)) + "</tr>\n"
    return ("<h2>Confusion matrix</h2>\n<p>Rows: what images show. Columns: what they are taken for.</p>\n"
            '<div class="wide"><table class="matrix">\n<tr><th>'
            + "".join(f'<th class="up">{classes.name(k)}' for k in indices) + "</tr>\n" + body + "</table></div>\n")


def pairs(classes, found):
    return ('<h2>Most confused classes</h2>\n<div class="wide"><table>\n<tr><th>images of<th>taken for<th>times</tr>\n'
            + "".join(f"<tr><td>{classes.name(number(p, 'label'))}<td>{classes.name(number(p, 'predicted'))}"
                      f"<td>{number(p, 'count'):.0f}</tr>\n" for p in found[:MOST_PAIRS]) + "</table></div>\n")


def sample(classes, found):
    image = found.get("image") if isinstance(found, dict) else None
    guesses = items(found, "predictions")
    if not isinstance(image, str) or not IMAGE.fullmatch(image) or not guesses:
        return ""
    label = number(found, "label")
    kind = "right" if label == number(guesses[0], "index") else "wrong"
    guessed = "".join(f"<br>{100 * number(g, 'probability'):.1f} % {classes.name(number(g, 'index'))}" for g in guesses[:MOST_GUESSES])
    return (f'<figure class="{kind}"><img alt="" src="{image}" title="{text(found, "path")}"><figcaption>'
            f"<b>{classes.name(label)}</b> {100 * number(found, 'probability'):.1f} %{guessed}</figcaption></figure>\n")


def samples(classes, found):
    return ("<h2>Sample images</h2>\n<p>As the network sees them; in bold what they show and the probability given to that, "
            "below what they are taken for. First those that are taken for something else (red), the worst first; then those "
            'right (green), the least certain first.</p>\n<div class="samples">\n'
            + "".join(sample(classes, s) for s in found[:MOST_SAMPLES]) + "</div>\n") if found else ""


def evaluation(path):
    """Nothing if there is no such file. Raises OSError and Problem."""
    if not os.path.exists(path):
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
    except ValueError as error:
        raise Problem(f"{path}: {error}") from None
    classes = Classes(root, path)
    found, confused = items(root, "confusion"), items(root, "confused")
    what = matrix(classes, found) if found and len(classes.kinds) <= MATRIX_CLASSES else pairs(classes, confused) if confused else ""
    return (f"<h2>Evaluation of {text(root, 'data')}</h2>\n<p>top-1 {number(root, 'top1'):.2f} %, top-5 {number(root, 'top5'):.2f} %, "
            f"loss {number(root, 'loss'):.4f} over {number(root, 'images'):.0f} images, of {text(root, 'weights')}</p>\n"
            + classes.table() + what + samples(classes, items(root, "samples")))
