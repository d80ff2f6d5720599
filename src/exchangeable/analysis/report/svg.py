"""Matplotlib figures as inline SVG: text stays text, and colours follow the page between light and dark.

Names, styles and metadata are removed, so that nothing affects the page around it or differs between runs.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from exchangeable import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE, ALARM = plots.COLOURS[:2]
LINES = (LINE, "#8e5ea2", "#2e7d32", "#b8860b", "#555555")
BAND, GRID, INK, MUTED = "#e0a526", "#e3e5e8", "#333a42", "#666666"
HREF = "{http://www.w3.org/1999/xlink}href"
PALETTE: Mapping[str, str] = MappingProxyType(  # colour in the figure -> variable of the style sheet
    {
        **{colour: f"--xch-line{i}" for i, colour in enumerate(LINES)},
        ALARM: "--xch-alarm",
        BAND: "--xch-band",
        GRID: "--xch-grid",
        INK: "--xch-ink",
        MUTED: "--xch-muted",
        "#888888": "--xch-edge",  # alarm levels and change points in `plots`
        "#cccccc": "--xch-rule",
        "#dddddd": "--xch-bars",
        "#ffffff": "--xch-ground",
    }
)


def to_svg(ax: Axes, description: str) -> str:
    """Return a chart as one element of a page; ``description`` is for screen readers."""
    figure: Any = ax.figure
    for background in (ax.patch, figure.patch):
        background.set_visible(False)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has other fonts
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())  # noqa: S314  # written by matplotlib
    _strip(root)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": description}
    text = ET.tostring(root, encoding="unicode")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]  # ids must differ between the charts of a page
    names = dict.fromkeys(re.findall(r' id="([^"]*)"', text))
    for i, name in enumerate(names):
        text = text.replace(f' id="{name}"', f' id="x{digest}-{i}"').replace(f"#{name}", f"#x{digest}-{i}")
    return text


def _strip(root: ET.Element) -> None:
    """Remove namespaces, metadata, style sheets, unused ids, and needless digits."""
    shapes = {node.attrib["id"]: node.attrib.get("d", "") for node in root.iter() if "id" in node.attrib}
    for parent in root.iter():
        for child in [*parent]:
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
        _join_dots(parent, shapes)
    used = set(re.findall(r"#([\w-]+)", " ".join(value for node in root.iter() for value in node.attrib.values())))
    for node in root.iter():
        node.tag, node.tail = node.tag.rpartition("}")[2], None
        node.text = node.text if node.tag == "text" else None
        attributes = {name.rpartition("}")[2]: _shorten(name, value) for name, value in node.attrib.items()}
        node.attrib = {name: value for name, value in attributes.items() if value and (name != "id" or value in used)}


def _join_dots(group: ET.Element, shapes: Mapping[str, str]) -> None:
    """Replace many round markers of one colour by a single path of dots, which is much shorter."""
    keys = {(node.tag, node.attrib.get(HREF), node.attrib.get("style")) for node in group}
    _, name, style = keys.pop() if len(keys) == 1 and len(group) > 1 else ("", "", "")
    circle = re.match(r"M 0 ([\d.]+)\s+C", shapes.get((name or "")[1:], ""))
    colour = re.match(r"fill: (#\w{6})(?:; fill-opacity: ([\d.]+))?", style or "")
    if circle is None or colour is None:
        return
    dots = "".join(f"M{float(node.attrib['x']):.1f} {float(node.attrib['y']):.1f}h0" for node in group)
    for node in [*group]:
        group.remove(node)
    pen = f"stroke-width: {2.0 * float(circle[1]):.2f}; stroke-linecap: round; stroke-opacity: {colour[2] or 1}"
    ET.SubElement(group, "path", d=dots, style=f"fill: none; stroke: {colour[1]}; {pen}")


def _shorten(name: str, value: str) -> str:
    """Shorten the value of an attribute; the font and the colours are those of the page."""
    if name == "style":
        value = re.sub(r"font-family:[^;]*(; |$)", "", value)
        value = re.sub(r"font: (?:[a-z]+ )*([\d.]+px)[^;]*", r"font-size: \1", value)
        return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _css_colour(colour[0]), value).replace("; ", ";")
    if name == "d":
        value = " ".join(re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", value).split())
        return _straighten(value) if set(re.findall("[A-Za-z]", value)) <= {*"MLz"} else value
    if name == "transform":
        return re.sub(r"rotate\(-?0 [^)]*\)", "", value).strip()
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", value)


def _straighten(path: str) -> str:
    """Write horizontal and vertical lines of a path with one number.

    >>> _straighten("M 1 2 L 3 2 L 3 4 L 5 6 z")
    'M 1 2 H 3 V 4 L 5 6 z'
    """
    words, x, y = list[str](), "", ""
    for command, right, down in re.findall(r"([MLz])(?: (\S+) (\S+))?", path):
        if command == "L" and right == x:
            words.append(f"V {down}")
        elif command == "L" and down == y:
            words.append(f"H {right}")
        else:
            words.append(f"{command} {right} {down}".strip())
        x, y = right, down
    return " ".join(words)


def _css_colour(colour: str) -> str:
    return f"var({PALETTE[colour]},{colour})" if colour in PALETTE else colour
