"""A page as a tree of elements."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "wbr", "input", "path", "line", "use", "rect"}


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element] = []
        self.parts: list[Element | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    def descendants(self) -> Iterator["Element"]:
        for child in self.children:
            yield child
            yield from child.descendants()

    def all(self, tag: str, **attributes: str | None) -> list["Element"]:
        """Descendants with the tag and the attributes; None matches any value."""
        return [
            e
            for e in self.descendants()
            if e.tag == tag
            and all(
                name in e.attributes and value in (None, e.attributes[name])
                for name, value in attributes.items()
            )
        ]

    def first(self, tag: str, **attributes: str | None) -> "Element":
        return self.all(tag, **attributes)[0]

    def text(self) -> str:
        """Its text with single spaces, including the titles of code elements."""
        pieces = [part if isinstance(part, str) else part.text() for part in self.parts]
        return " ".join("".join(pieces).split()) + self.attributes.get("title", "") * (self.tag == "code")


def read_page(html: str) -> Element:
    root = Element("root", {})
    stack = [root]

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            element = Element(tag, {name: value or "" for name, value in attrs})
            stack[-1].children.append(element)
            stack[-1].parts.append(element)
            if tag not in VOID:
                stack.append(element)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            element = Element(tag, {name: value or "" for name, value in attrs})
            stack[-1].children.append(element)

        def handle_endtag(self, tag: str) -> None:
            if tag not in VOID:
                stack.pop()

        def handle_data(self, data: str) -> None:
            stack[-1].parts.append(data)

    Reader().feed(html)
    return root


def pictures_of(html: str) -> dict[str, str]:
    """The data URI of each class of pictures."""
    return dict(re.findall(r"\.(p\d+)\{background-image:url\((data:image/jpeg;base64,[\w+/=]+)\)\}", html))
