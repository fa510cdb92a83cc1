"""Text for a page: what came from files is shown with lt_text_line()'s escapes, then those of HTML. A page is made of
Markup by fill() and join(), which escape all other values: no caller has to."""
import string
from html import escape

# Unicode 15, section 23.2: what ends a line, and what changes the order of the text around it.
LAYOUT = {0x61c, 0x200e, 0x200f, *range(0x2028, 0x202f), *range(0x2066, 0x206a)}


def shown(text, backslash=False):
    """Control characters, separators and bytes that are no UTF-8 become \\xHH; with backslash a backslash becomes two."""
    parts = []
    for c in text:
        code = ord(c)
        if c == "\\" and backslash:
            parts.append("\\\\")
        elif code < 0x20 or 0x7f <= code < 0xa0 or 0xd800 <= code < 0xe000 or code in LAYOUT:
            parts += [f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape")]
        else:
            parts.append(c)
    return "".join(parts)


class Markup(str):
    """HTML already, which is not escaped again."""


def html(text, backslash=False):
    return text if isinstance(text, Markup) else Markup(escape(shown(text, backslash)).replace("&#x27;", "'"))


class Filler(string.Formatter):
    def format_field(self, value, format_spec):
        return value if isinstance(value, Markup) else html(format(value, format_spec))


def fill(template, *values, **named):
    """str.format() whose values are escaped, unless they are Markup. The template is markup."""
    return Markup(Filler().vformat(template, values, named))


def join(parts, between=""):
    return Markup(between.join(html(part) for part in parts))


def read_lines(path):
    """Lines of a regular file; a pipe in its place would be waited for. Raises OSError."""
    import os
    import stat
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "is not a regular file", path)
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read().split("\n")
