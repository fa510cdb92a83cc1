"""The one reader of JSON that is not trusted: numbers that no chart can hold, and members of another type than a page needs,
raise a Problem with the file, the line or the member, the value found and the one expected. A checker is called with a value and
its source."""
import json
import math

MOST = 1e100  # largest number accepted: sums and products of a few of them remain finite
MOST_COUNT = 1e15  # largest count: up to here each integer is a double


class Problem(Exception):
    """One line for standard error."""


def said(value):
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 40 else text[:40] + "..."


def parse(text, path, line=1):
    """The value of a JSON text that begins in that line of a file. NaN and infinities become None, a fraction that is too
    large infinity, as the perplexity of a run that diverged is. Raises Problem for an integer that is too large, ValueError
    for text that is not JSON."""
    def number(token):
        value = float(token)
        if abs(value) > MOST and not token.lstrip("-").isdigit():
            return math.copysign(math.inf, value)
        if abs(value) > MOST:
            at = line + text[:text.find(token)].count("\n")
            raise Problem(f"{path}:{at}: the number {said(token)} is beyond {MOST:g}")
        return int(token) if token.lstrip("-").isdigit() else value

    try:
        return json.loads(text, parse_int=number, parse_float=number, parse_constant=lambda name: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def wrong(value, where, want):
    return Problem(f"{where} is {said(value)}, want {want}")


def number(low=-MOST, high=MOST):
    def check(value, where):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise wrong(value, where, f"a number from {low:.6g} to {high:.6g}")
    return check


def text(value, where):
    if not isinstance(value, str):
        raise wrong(value, where, "a text")


def flag(value, where):
    if not isinstance(value, bool):
        raise wrong(value, where, "true or false")


def one_of(*names):
    def check(value, where):
        if value not in names:
            raise wrong(value, where, "one of " + ", ".join(names))
    return check


def maybe(checker):
    """A member that may be null or missing."""
    def check(value, where):
        if value is not None:
            checker(value, where)
    return check


def items(checker):
    def check(value, where):
        if not isinstance(value, list):
            raise wrong(value, where, "a list")
        for i, item in enumerate(value):
            checker(item, f"{where}[{i}]")
    return check


def pair(first, second):
    def check(value, where):
        if not isinstance(value, list) or len(value) != 2:
            raise wrong(value, where, "two numbers")
        first(value[0], f"{where}[0]")
        second(value[1], f"{where}[1]")
    return check


def members(**checkers):
    """Checks an object's members by name; a missing one becomes None."""
    def check(value, where):
        if not isinstance(value, dict):
            raise wrong(value, where, "an object")
        for key, checker in checkers.items():
            checker(value.setdefault(key), f"{where}.{key}")
    return check
