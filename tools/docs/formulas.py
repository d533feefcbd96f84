"""Formulas of docstrings as MathML, which a browser draws without a script.

A docstring contains its formulas as an indented block of text. `Formulas`, an extension of Python-Markdown,
replaces such a block by one <math> element. Words that the notation does not know stay words.
"""

import re
from collections.abc import Iterator
from html import unescape
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

_NAMES = "alpha beta gamma delta epsilon zeta eta theta lambda mu nu pi rho sigma tau phi psi omega Gamma"
_GREEK = dict(zip(_NAMES.split(), "αβγδεζηθλμνπρστφψωΓ", strict=True))
_UNDER = {"sum", "max", "min", "argmin", "argmax", "mean"}  # their index is below them
_FUNCTIONS = {"log", "ln", "exp", "cos", "max", "min", "softmax", "softplus", "sigmoid", "relu", "diag", "tr"}
_KNOWN = {*_GREEK, *_UNDER, *_FUNCTIONS, "sqrt", "in", "loss"}
_SIGNS = {"!=": "≠", "<=": "≤", ">=": "≥", "->": "→", "<-": "←", "+-": "±", "||": "‖", "-": "−", "*": "∗"}
_INDEXES = ("max", "min", "nn")  # subscripts that are words; others of up to three letters are indexes
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(r"\s+|[^\W\d_]+(?:'s\b|'*)|\d+(?:\.\d+)?(?:e-?\d+)?|!=|<=|>=|->|<-|\+-|\|\||.")
_NAME = re.compile(r"`[^`]+`|\b[a-z]{3,}_[a-z]{3,}\b|\b\w+(?:_\w+){2,}\b")  # names of the code
_FORMULA = re.compile(r"(?m)^.*\S = .*(?:sum|[A-Za-z]_|\^|/|\|\||exp|log|mean|softmax)")
_CODE = re.compile(r"""["#@]|\bimport |\w\(\)|==""")


def is_formula(text: str) -> bool:
    """Whether a block consists of formulas: it is no code, and fewer than half of its signs are words."""
    words = [word for word in re.findall(r"(?<![\w])[a-z]{2,}(?!\w)", text) if word not in _KNOWN]
    signs = len(_TOKEN.findall(re.sub(r"\s+", "", text)))
    return bool(_FORMULA.search(text)) and not _CODE.search(text) and 2 * len(words) < signs


def mathml(text: str) -> Element:
    """The block as <math>: one row for each line; two columns if the second is aligned in all lines."""
    lines = text.rstrip().strip("\n").splitlines()
    starts = [{gap.end() for gap in re.finditer(r"(?<=\S)  +", line)} for line in lines]
    common = set.intersection(*starts) if len(lines) > 1 else set()
    math = Element("math", {"display": "block"})
    table = SubElement(math, "mtable", {"displaystyle": "true"})
    for line in lines:
        row = SubElement(table, "mtr")
        column = min(common) if common else 0
        for part in filter(str.strip, (line[:column], line[column:])):
            SubElement(row, "mtd", {"style": "text-align: left"}).append(_Reader(part.rstrip()).everything())
    return math


class _Reader:
    """One cell, read from left to right."""

    def __init__(self, cell: str) -> None:
        cell = re.sub(r"<\s?([^<>=]*?,[^<>=]*?)\s?>", r"⟨\1⟩", cell)
        self.names: list[str] = []
        cell = _NAME.sub(self._keep, cell)
        self.tokens = [*_TOKEN.findall(cell), ""]
        self.place = 0
        self.depth = 0  # open parentheses

    def everything(self) -> Element:
        return _row(self._until(""))

    def _keep(self, name: re.Match[str]) -> str:
        """Replaces a name of the code by one character."""
        self.names.append(name[0].strip("`"))
        return chr(0xE000 + len(self.names) - 1)

    @property
    def token(self) -> str:
        return self.tokens[self.place]

    def _next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]

    def _until(self, closing: str) -> Iterator[Element]:
        """Elements before the token `closing`, or before the end."""
        while self.token not in (closing, ""):
            yield self._fraction()

    def _enclosed(self) -> list[Element]:
        """Elements between parentheses; a line may end before the closing one."""
        opening = self._next()
        self.depth += 1
        inner = list(self._until(_CLOSING[opening]))
        self.depth -= 1
        closing = [_mark(self._next())] if self.token else []
        return [_mark(opening), *inner, *closing]

    def _fraction(self) -> Element:
        """a/b without blanks is a fraction; a / b is a division."""
        above = self._scripts()
        while self.token == "/" and above.tag not in ("mo", "mspace") and self.tokens[self.place + 1].strip():
            self._next()
            above = _element("mfrac", _bare(above), _bare(self._scripts()))
        return above

    def _scripts(self) -> Element:
        """An atom with its sub- and superscripts."""
        start = self.token
        base = self._atom()
        scripts = {}
        if self.token == "+" and start.isalpha() and self.tokens[self.place + 1] in ("_", "|", "}", ";", ":"):
            self._next()
            scripts["^"] = _text("mo", "+")
        while self.token in ("_", "^"):
            place = self._next()
            scripts[place] = self._script()
        below, above = scripts.get("_"), scripts.get("^")
        under = start in _UNDER
        if below is not None and above is not None:
            return _element("munderover" if under else "msubsup", base, below, above)
        if below is not None:
            return _element("munder" if under else "msub", base, below)
        return base if above is None else _element("msup", base, above)

    def _script(self) -> Element:
        if self.token in ("{", "("):
            return _row(self._enclosed()[1:-1])
        if self.token == "-":
            return _row([_text("mo", _SIGNS[self._next()]), self._script()])
        if not self.token.rstrip("'").isalnum():
            return _text("mo", self._next())
        parts = []
        while self.token.rstrip("'").isalnum():
            word = self._next()
            letters = word.isalpha() and len(word) <= 3 and word not in _GREEK and word not in _INDEXES
            parts += [_text("mi", letter) for letter in word] if letters else [_word(word)]
        return _row(parts)

    def _atom(self) -> Element:
        if self.token in _CLOSING:
            return _row(self._enclosed())
        token = self._next()
        if not token.strip():
            alone = len(token) > 4 or (len(token) > 1 and self.tokens[self.place - 2] == ",")
            return Element("mspace", {"width": "2em" if alone and not self.depth else "0.3em"})
        if 0xE000 <= ord(token[0]) < 0xF000:
            return _text("mtext", self.names[ord(token[0]) - 0xE000])
        if token == "sqrt" and self.token == "(":
            return _element("msqrt", *self._enclosed()[1:-1])
        if token == "|" and self.tokens[self.place - 2] == "/":
            size = [_mark(token), *self._until("|"), _mark(token)]
            self._next()
            return _row(size)
        if token[0].isdigit():
            return _text("mn", token)
        if token[0].isalpha():
            if token in _UNDER and (self.token == "_" or self._following()[:1] == ["pi"]):
                return _text("mo", "∑" if token == "sum" else token)
            return self._membership(token) if token in ("in", "not") else _word(token)
        between = self.place >= 2 and not self.tokens[self.place - 2].strip() and not self.token.strip()
        return _mark("⋅" if token == "." and between else _SIGNS.get(token, token))

    def _membership(self, token: str) -> Element:
        """`p in P_i` is a membership; `in` before a word is a word."""
        words = self._following()
        negated = token == "not" and words[:1] == ["in"]
        if (token == "not" and not negated) or re.match("[a-z]{3}|$", "".join(words[negated:][:1])):
            return _word(token)
        self.place += 2 * negated
        return _mark("∉" if negated else "∈")

    def _following(self) -> list[str]:
        return [token for token in self.tokens[self.place : self.place + 4] if token.strip()]


def _word(word: str) -> Element:
    name = word.rstrip("'")
    primes = "′" * (len(word) - len(name))
    symbol = len(name) == 1 or name in _GREEK or name in _FUNCTIONS
    letter = _text("mi" if symbol else "mtext", _GREEK.get(name, name))
    return _element("msup", letter, _text("mo", primes)) if primes else letter


def _bare(group: Element) -> Element:
    """A numerator or denominator without its parentheses."""
    marks = [child.text for child in (group[0], group[-1])] if group.tag == "mrow" and len(group) > 2 else []
    return _row(list(group)[1:-1]) if marks == ["(", ")"] else group


def _text(tag: str, text: str) -> Element:
    element = Element(tag)
    element.text = text
    return element


def _mark(sign: str) -> Element:
    """An operator or a parenthesis in the size of the text."""
    operator = _text("mo", sign)
    operator.set("stretchy", "false")
    return operator


def _element(tag: str, *children: Element) -> Element:
    element = Element(tag)
    element.extend(children)
    return element


def _row(children: Iterator[Element] | list[Element]) -> Element:
    return _element("mrow", *children)


class _Blocks(Treeprocessor):
    def run(self, root: Element) -> None:
        for parent in root.iter():
            for place, block in enumerate(parent):
                if block.tag == "pre" and len(block) == 1 and block[0].tag == "code":
                    text = unescape(block[0].text or "")
                    if is_formula(text):
                        parent[place] = Element("div", {"class": "formula"})
                        parent[place].append(mathml(text))


class Formulas(Extension):
    """Draws the formulas of a page, before code is highlighted (priority 30 of Pygments' extensions)."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_Blocks(md), "formulas", 40)


def makeExtension(**settings: object) -> Formulas:
    return Formulas(**settings)
