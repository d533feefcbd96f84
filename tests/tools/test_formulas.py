"""Formulas of docstrings as MathML: what each sign becomes, and that no part of a text is lost."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import pytest
from markdown import markdown

from tools.docs.formulas import is_formula, mathml

ROOT = Path(__file__).resolve().parents[2]


def _shape(element: Element) -> str:
    """The element in a short form: tag(children) or text."""
    if not len(element):
        return element.text or ""
    inner = " ".join(filter(None, map(_shape, element)))
    return inner if element.tag in ("mrow", "mtd", "math", "mtable") else f"{element.tag}({inner})"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("v = 1/P sum_p f_p", "mtr(v = mfrac(1 P) munder(∑ p) msub(f p))"),
        ("a_ij^2 = b", "mtr(msubsup(a i j 2) = b)"),
        ("x = (a / b)^(1/p)", "mtr(x = msup(( a / b ) mfrac(1 p)))"),
        ("q = sqrt(s_p)", "mtr(q = msqrt(msub(s p)))"),
        ("L = sum_{p in P_i} exp(-alpha s)", "mtr(L = munder(∑ p ∈ msub(P i)) exp ( − α s ))"),
        ("n = sum_{x not in X} 1", "mtr(n = munder(∑ x ∉ X) 1)"),
        ("d = 1/|P+| sum_p d_p", "mtr(d = mfrac(1 | msup(P +) |) munder(∑ p) msub(d p))"),
        ("s = z_i . z_j", "mtr(s = msub(z i) ⋅ msub(z j))"),
        ("t = [ d - positive_margin ]_+", "mtr(t = msub([ d − positive_margin ] +))"),
        ("a = 1/2 ( b\n     + c )", "mtr(a = mfrac(1 2) ( b) mtr(+ c ))"),
    ],
)
def test_a_formula(text: str, shape: str) -> None:
    assert _shape(mathml(text)) == shape


def test_two_columns_where_all_lines_have_them() -> None:
    rows = mathml("mean     m = 1/N sum_i x_i\nspread   s = sum_i (x_i - m)^2")[0]
    assert [len(row) for row in rows] == [2, 2]


@pytest.mark.parametrize(
    "text", ['loss("ms")(vectors, labels)', "from a import b", "photos/1.jpg   the photo of a class", "x: 1"]
)
def test_code_and_prose_stay_as_they_are(text: str) -> None:
    assert not is_formula(text)


def test_a_page() -> None:
    text = "Text\n\n    N = { n : s_n < 1 }\n\nand\n\n    import a\n"
    page = markdown(text, extensions=["tools.docs.formulas"])
    assert page.count("<math") == page.count("<code>") == 1
    assert "&lt;" in page
    assert "&amp;" not in page


def _blocks() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.glob("pipeline/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for block in re.findall(r"(?:(?<=\n\n)|^)((?:    .*\n?)+)", ast.get_docstring(node) or ""):
                    yield str(path.relative_to(ROOT)), re.sub("(?m)^    ", "", block)


def test_no_letter_or_digit_of_the_projects_formulas_is_lost() -> None:
    formulas = [(path, text) for path, text in _blocks() if is_formula(text)]
    assert {"pipeline/losses/multi_similarity.py", "pipeline/poolings/crow.py"} <= {
        path for path, _ in formulas
    }
    for path, text in formulas:
        drawn = re.sub("<[^>]*>", "", tostring(mathml(text), encoding="unicode"))
        letters = [re.sub(r"[^A-Z0-9]", "", signs.replace("Gamma", "")) for signs in (text, drawn)]
        assert letters[0] == letters[1], path
