"""The pages of the documentation, taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^<!-- (test|file): (.+?) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Block:
    """A marked block: `<!-- file: NAME -->` is to be saved as NAME, `<!-- test: ... -->` is to be run.

    Attributes:
        kind: "file" or "test".
        words: what the mark says.
        text: the block's lines.
    """

    kind: str
    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Page:
    """One page, by its path."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        """The marked blocks, in order."""
        return [Block(kind, tuple(words.split()), text) for kind, words, text in _MARKED.findall(self.text)]

    @property
    def fences(self) -> list[tuple[str, str]]:
        """Language and text of the fenced blocks."""
        return _FENCE.findall(self.text)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What a link may name after its #."""
        return {_slug(title) for _, title in _HEADING.findall(self.prose)} | set(_ANCHOR.findall(self.text))

    def sections(self, level: int) -> dict[str, str]:
        """Title -> text of the sections at a level, up to the next heading of that level or a higher one."""
        found = [(len(match[1]), match[2], match.start(), match.end()) for match in _HEADING.finditer(self.prose)]
        ends = [next((s for n, _, s, _ in found[i + 1 :] if n <= found[i][0]), None) for i in range(len(found))]
        return {title: self.prose[end:stop] for (n, title, _, end), stop in zip(found, ends) if n == level}


def pages() -> list[Page]:
    """All pages, by path."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md"))]


def page(name: str) -> Page:
    """The page of that path below docs/."""
    return Page(DOCS / name)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of the tables in `text`, headings and rules left out."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_rule = set(line) <= set("|-: ") and "-" in line
        is_heading = number + 1 < len(lines) and lines[number + 1].startswith("|-")
        if line.startswith("|") and not is_rule and not is_heading:
            yield [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The rows of the tables whose first column is headed so."""
    found = re.finditer(rf"^\| {re.escape(heading)} \|.*\n\|-.*\n((?:\|.*\n?)*)", text, re.MULTILINE)
    return [row for table in found for row in rows(table[1])]


def quoted(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def keys(text: str) -> set[str]:
    """The names in backquotes in the first column of the tables in `text`."""
    return {name for row in rows(text) for name in quoted(row[0])}


def _slug(title: str) -> str:
    """GitHub's name of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
