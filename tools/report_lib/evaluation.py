"""The part of a page about an evaluation: eval.json, as --eval writes it. The file is not trusted: numbers are checked,
text is escaped, of images only BMP, PNG and JPEG in base64 are taken."""
import os
import re

from .checked import Problem, parse
from .text import Markup, fill, html, join, read_lines

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
    return value if isinstance(value, str) else ""


class Classes:
    def __init__(self, root, path):
        self.kinds = items(root, "classes")
        if not self.kinds:
            raise Problem(f"{path}: no classes in it")

    def name(self, index):
        """The name of a class, else its number."""
        kind = self.kinds[int(index)] if 0 <= index < len(self.kinds) else None
        name = kind.get("name") if isinstance(kind, dict) else None
        return name if isinstance(name, str) else f"class {index:.0f}"

    def row(self, index):
        kind = self.kinds[index]
        accuracy, images = number(kind, "top1"), number(kind, "images")
        bar = accuracy if 0 <= accuracy <= 100 else 0
        shown = fill('{:.2f} %<td><span class="bar" style="width:{:.0f}px"></span>', accuracy, bar) if images > 0 else Markup("<td>")
        precision = kind.get("precision") if isinstance(kind, dict) else None
        right = f"{number(kind, 'precision'):.2f} %" if isinstance(precision, (int, float)) else ""
        return fill("<tr><td>{}<td>{}<td>{:.0f} of {:.0f}<td>{}</tr>\n", self.name(index), shown, number(kind, "correct"), images, right)

    def table(self):
        """All classes, or, if there are many, the worst that have images."""
        many, order = len(self.kinds) > MATRIX_CLASSES, list(range(len(self.kinds)))
        if many:
            order = [i for i in order if number(self.kinds[i], "images") > 0]
            order = sorted(order, key=lambda i: number(self.kinds[i], "top1"))[:WORST]
        title = "Classes with the least accuracy" if many else "Classes"
        return fill('<h2>{}</h2>\n<div class="wide"><table>\n<tr><th>class<th>accuracy<th><th>images'
                    '<th title="correct share of the images predicted as this class">precision</tr>\n'
                    "{}</table></div>\n", title, join(self.row(i) for i in order))


def cell(count, images, hit):
    count = count if isinstance(count, (int, float)) and not isinstance(count, bool) else 0
    style = ""
    if 0 < count <= images:
        style = fill(' style="background:rgba({},{:.2f})"', "58,157,93" if hit else "181,64,58", 0.85 * count / images)
    return fill("<td{}{}>{}", Markup(' class="hit"') if hit else "", style, f"{count:.0f}" if count > 0 else "")


def matrix(classes, rows):
    indices = range(len(classes.kinds))
    body = []
    for i, row in zip(indices, rows):
        cells = zip(indices, row if isinstance(row, list) else [])
        body.append(fill("<tr><th>{}{}</tr>\n", classes.name(i),
                         join(cell(count, number(classes.kinds[i], "images"), i == k) for k, count in cells)))
    return fill("<h2>Confusion matrix</h2>\n<p>Rows: true class. Columns: predicted class.</p>\n"
                '<div class="wide"><table class="matrix">\n<tr><th>{}</tr>\n{}</table></div>\n',
                join(fill('<th class="up">{}', classes.name(k)) for k in indices), join(body))


def pairs(classes, found):
    return fill('<h2>Most confused classes</h2>\n<div class="wide"><table>\n<tr><th>true class<th>predicted class<th>images</tr>\n{}</table></div>\n',
                join(fill("<tr><td>{}<td>{}<td>{:.0f}</tr>\n", classes.name(number(p, "label")), classes.name(number(p, "predicted")),
                          number(p, "count")) for p in found[:MOST_PAIRS]))


def sample(classes, found):
    image = found.get("image") if isinstance(found, dict) else None
    guesses = items(found, "predictions")
    if not isinstance(image, str) or not IMAGE.fullmatch(image) or not guesses:
        return ""
    label = number(found, "label")
    kind = "right" if label == number(guesses[0], "index") else "wrong"
    guessed = join(fill("<br>{:.1f} % {}", 100 * number(g, "probability"), classes.name(number(g, "index"))) for g in guesses[:MOST_GUESSES])
    return fill('<figure class="{}"><img alt="" src="{}" title="{}"><figcaption><b>{}</b> {:.1f} %{}</figcaption></figure>\n',
                kind, image, text(found, "path"), classes.name(label), 100 * number(found, "probability"), guessed)


def samples(classes, found):
    return fill("<h2>Sample images</h2>\n<p>Images after preprocessing; in bold the true class and its predicted probability, below it the "
                "best predictions. First the misclassified images (red), the worst first; then the correct "
                'ones (green), the least certain first.</p>\n<div class="samples">\n{}</div>\n',
                join(sample(classes, s) for s in found[:MOST_SAMPLES])) if found else ""


def evaluation(path):
    """Nothing if there is no such file. Raises OSError and Problem."""
    if not os.path.exists(path):
        return ""
    try:
        root = parse("\n".join(read_lines(path)), path)
    except ValueError as error:
        raise Problem(f"{path}: {error}") from None
    classes = Classes(root, path)
    found, confused = items(root, "confusion"), items(root, "confused")
    what = matrix(classes, found) if found and len(classes.kinds) <= MATRIX_CLASSES else pairs(classes, confused) if confused else ""
    more = "".join(f"{label} {number(root, key):.2f} %, " for key, label in (("f1_macro", "macro F1"), ("auc", "AUC"), ("map", "mAP"))
                   if isinstance(root.get(key), (int, float)))
    return fill("<h2>Evaluation of {}</h2>\n<p>top-1 {:.2f} %, {}{}loss {:.4f} over {:.0f} images, of {}</p>\n{}{}{}",
                text(root, "data"), number(root, "top1"), f"top-5 {number(root, 'top5'):.2f} %, " if len(classes.kinds) > 5 else "", more, number(root, "loss"), number(root, "images"),
                text(root, "weights"), classes.table(), what, samples(classes, items(root, "samples")))
