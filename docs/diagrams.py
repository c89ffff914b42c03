"""Draw the diagrams of the pages: `python docs/diagrams.py`, or `make docs`.

Each diagram has boxes and arrows between them. All texts lie on fills of their own, so that one
picture is readable on light and on dark pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
FONTS = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
FILLS = {"own": "#0b6b5d", "other": "#e8ecef", "soft": "#d5efe9"}
INKS = {"own": "#ffffff", "other": "#22272c", "soft": "#0b3d36"}
LINE = "#7f8b95"


@dataclass(frozen=True, slots=True)
class Box:
    """A box with a title and further lines."""

    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]
    kind: str = "other"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A straight arrow, with a label in its middle if there is one."""

    x1: int
    y1: int
    x2: int
    y2: int
    label: str = ""
    is_double: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """A picture; its title is what people read who cannot see it."""

    title: str
    width: int
    height: int
    parts: tuple[Box | Arrow, ...]


DIAGRAMS = {
    "request": Diagram(
        "Without toolscout a request carries every definition; with it, three tools and a list.",
        760,
        250,
        (
            Box(10, 10, 350, 230, ("A request without toolscout",), "other"),
            Box(30, 50, 310, 34, ("system prompt and messages",), "soft"),
            Box(
                30,
                92,
                310,
                134,
                ("every definition of every tool", "used or not, each time"),
                "own",
            ),
            Box(400, 10, 350, 230, ("A request with toolscout",), "other"),
            Box(420, 50, 310, 34, ("system prompt and messages",), "soft"),
            Box(
                420,
                92,
                310,
                60,
                ("tool_search, tool_describe, tool_call", "and what there is"),
                "own",
            ),
            Box(
                420,
                160,
                310,
                66,
                ("a few lines for each search", "only when the model asks"),
                "soft",
            ),
        ),
    ),
    "conversation": Diagram(
        "The model searches, reads a short reply, and calls the tool through toolscout.",
        760,
        360,
        (
            Box(10, 10, 150, 40, ("model",), "other"),
            Box(305, 10, 150, 40, ("toolscout",), "own"),
            Box(600, 10, 150, 40, ("server or function",), "other"),
            Arrow(85, 50, 85, 350),
            Arrow(380, 50, 380, 350),
            Arrow(675, 50, 675, 350),
            Arrow(85, 90, 376, 90, 'tool_search "open a pull request"'),
            Arrow(380, 140, 89, 140, "the tools that fit, in a few lines"),
            Arrow(85, 190, 376, 190, "tool_call github__create_pull_request"),
            Arrow(380, 235, 671, 235, "checked arguments"),
            Arrow(675, 280, 384, 280, "result"),
            Arrow(380, 325, 89, 325, "result, cut if it is long"),
        ),
    ),
    "gateway": Diagram(
        "Several clients share one gateway in the background, which runs each server once.",
        760,
        300,
        (
            Box(10, 20, 160, 50, ("Claude Code",), "other"),
            Box(10, 125, 160, 50, ("Cursor",), "other"),
            Box(10, 230, 160, 50, ("your own agent",), "other"),
            Box(
                290,
                20,
                190,
                260,
                ("gateway", "index and search", "policy and approvals", "sessions", "audit record"),
                "own",
            ),
            Box(600, 20, 150, 50, ("MCP server", "over stdio"), "other"),
            Box(600, 125, 150, 50, ("MCP server", "over HTTP"), "other"),
            Box(600, 230, 150, 50, ("HTTP API", "from OpenAPI"), "other"),
            Arrow(170, 45, 286, 80, is_double=True),
            Arrow(170, 150, 286, 150, "3 tools", is_double=True),
            Arrow(170, 255, 286, 220, is_double=True),
            Arrow(480, 80, 596, 45, is_double=True),
            Arrow(480, 150, 596, 150, "all tools", is_double=True),
            Arrow(480, 220, 596, 255, is_double=True),
        ),
    ),
    "search": Diagram(
        "Words and vectors each find candidates; signals of both are added up to one order.",
        760,
        210,
        (
            Box(10, 75, 130, 60, ("request",), "other"),
            Box(210, 20, 160, 70, ("words", "stems, names, typos"), "soft"),
            Box(210, 120, 160, 70, ("meaning", "vectors of texts"), "soft"),
            Box(440, 65, 150, 80, ("one score", "signals, weighted"), "own"),
            Box(660, 75, 90, 60, ("hits", "with labels"), "other"),
            Arrow(140, 95, 206, 60),
            Arrow(140, 115, 206, 150),
            Arrow(370, 60, 436, 90),
            Arrow(370, 150, 436, 120),
            Arrow(590, 105, 656, 105),
        ),
    ),
}


def draw_diagram(diagram: Diagram) -> str:
    """Return a diagram as an SVG file."""
    width, height = diagram.width, diagram.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="{FONTS}" text-anchor="middle">'
    )
    mark = (
        '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0 0 8 4 0 8Z" fill="{LINE}"/></marker>'
    )
    parts = [text for part in diagram.parts for text in draw_part(part)]
    return "\n".join([head, f"<title>{escape(diagram.title)}</title>", mark, *parts, "</svg>", ""])


def draw_part(part: Box | Arrow) -> Iterator[str]:
    """Yield the shapes of a box or an arrow."""
    if isinstance(part, Box):
        yield from draw_box(part)
    else:
        yield from draw_arrow(part)


def draw_box(box: Box) -> Iterator[str]:
    """Yield a box with its lines; a box around others has its title at the top."""
    x = box.x + box.width // 2
    is_frame = box.height > 200 and len(box.lines) == 1
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8" '
        f'fill="{FILLS[box.kind]}"/>'
    )
    middle = box.y + (20 if is_frame else box.height // 2)
    first = middle - 10 * (len(box.lines) - 1) + 5
    for number, line in enumerate(box.lines):
        weight = ' font-weight="600"' if number == 0 else ""
        yield (
            f'<text x="{x}" y="{first + 20 * number}" font-size="14"{weight} '
            f'fill="{INKS[box.kind]}">{escape(line)}</text>'
        )


def draw_arrow(arrow: Arrow) -> Iterator[str]:
    """Yield an arrow, and its label on a fill that is readable on any page."""
    is_lifeline = arrow.x1 == arrow.x2
    ends = ' stroke-dasharray="4 5"' if is_lifeline else ' marker-end="url(#a)"'
    begins = ' marker-start="url(#a)"' if arrow.is_double else ""
    yield (
        f'<path d="M{arrow.x1} {arrow.y1} {arrow.x2} {arrow.y2}" stroke="{LINE}" '
        f'stroke-width="1.6"{ends}{begins}/>'
    )
    if arrow.label:
        x = (arrow.x1 + arrow.x2) // 2
        y = (arrow.y1 + arrow.y2) // 2
        width = len(arrow.label) * 7 + 12
        yield (
            f'<rect x="{x - width // 2}" y="{y - 12}" width="{width}" height="23" rx="6" '
            f'fill="{FILLS["other"]}"/>'
        )
        yield (
            f'<text x="{x}" y="{y + 4}" font-size="13" fill="{INKS["other"]}">'
            f"{escape(arrow.label)}</text>"
        )


def main() -> None:
    """Write all diagrams."""
    for name, diagram in DIAGRAMS.items():
        path = IMAGES / f"diagram-{name}.svg"
        path.write_text(draw_diagram(diagram), encoding="utf-8")


if __name__ == "__main__":
    main()
