"""A figure of ours as one page of PDF: the few elements of its SVG, drawn with a font that every reader has.

The SVG is the figure, and this file only says it again: lines, polylines, circles, the paths of intervals,
and text in Helvetica, whose widths are those of Adobe's metrics. Anything else is refused, so that a figure
in a paper is the one on the page. No date is written: the same figure gives the same bytes.
"""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_STEP = re.compile(r"([MhVm])\s*(-?[\d.]+)?[ ,]*(-?[\d.]+)?")
_CIRCLE = 0.5523  # how far a Bezier curve's handles reach for a quarter of a circle
# Widths of Helvetica from the blank to the tilde, in thousandths of its size.
_WIDTHS = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *[556] * 10,
    *(278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833),
    *(722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333),
    *(556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278),
    *(556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
Style = Mapping[str, str]


def pdf_of(svg: str) -> bytes:
    """Return the PDF of a figure that :func:`~graphveil.runs.sweeps.sweep_chart.sweep_chart` drew.

    Raises:
        ValueError: the figure has an element that is not known here.

    >>> pdf_of('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><style></style></svg>')[:8]
    b'%PDF-1.4'
    """
    root = ElementTree.fromstring(svg)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    styles = _styles(root)
    drawn = [f"1 0 0 -1 0 {height:g} cm 1 j"]  # y grows downwards, as on a screen
    for element in root:
        drawn += _drawn(element, _style_of(element, styles))
    return _page("\n".join(drawn), width, height)


def _styles(root: ElementTree.Element) -> dict[str, dict[str, str]]:
    """Return the style sheet: what each selector, a class or an element's name, says."""
    sheet = root.findtext(f"{_SVG}style") or ""
    found = dict[str, dict[str, str]]()
    for selectors, rules in _RULE.findall(sheet):
        pairs = (rule.split(":", 1) for rule in rules.split(";") if ":" in rule)
        declarations = {name.strip(): value.strip() for name, value in pairs}
        for selector in selectors.split(","):
            found.setdefault(selector.strip(), {}).update(declarations)
    return found


def _style_of(element: ElementTree.Element, styles: Mapping[str, Style]) -> dict[str, str]:
    names = [element.tag.removeprefix(_SVG), *(f".{one}" for one in element.get("class", "").split())]
    found = {key: value for name in names for key, value in styles.get(name, {}).items()}
    return found | {key: element.attrib[key] for key in ("fill", "stroke") if key in element.attrib}


def _drawn(element: ElementTree.Element, style: Style) -> list[str]:
    """Return the operators that draw one element."""
    at, kind = element.attrib, element.tag.removeprefix(_SVG)
    if kind in ("style", "title"):
        return []
    if kind == "text":
        return _text(element, style)
    if kind == "rect":
        x, y = at.get("x", "0"), at.get("y", "0")
        return [_color(style["fill"], "rg"), f"{x} {y} {at['width']} {at['height']} re f"]
    if kind == "circle":
        return [_color(style["fill"], "rg"), _circle(float(at["cx"]), float(at["cy"]), float(at["r"])), "f"]
    if kind == "line":
        return [*_pen(style), f"{at['x1']} {at['y1']} m {at['x2']} {at['y2']} l S"]
    if kind == "polyline":
        first, *others = (point.replace(",", " ") for point in at["points"].split())
        return [*_pen(style), f"{first} m", *(f"{point} l" for point in others), "S"]
    if kind == "path":
        return [*_pen(style), *_steps(at["d"]), "S"]
    raise ValueError(f"a figure has an element {kind!r}, which this page cannot draw")


def _steps(path: str) -> list[str]:
    """Return the steps of an interval's path: to a place, sideways, up or down, a jump."""
    x = y = 0.0
    steps = []
    for letter, first, second in _STEP.findall(path):
        if letter == "M":
            x, y = float(first), float(second)
        elif letter == "m":
            x, y = x + float(first), y + float(second)
        elif letter == "h":
            x += float(first)
        else:
            y = float(first)
        steps.append(f"{x:.2f} {y:.2f} {'m' if letter in 'Mm' else 'l'}")
    return steps


def _circle(x: float, y: float, r: float) -> str:
    k = _CIRCLE * r
    corners = [(r, 0, r, k, k, r), (0, r, -k, r, -r, k), (-r, 0, -r, -k, -k, -r), (0, -r, k, -r, r, -k)]
    ends = [*corners[1:], corners[0]]
    steps = [f"{x + r:.2f} {y:.2f} m"]
    for (_, _, *handles), (to_x, to_y, *_) in zip(corners, ends, strict=True):
        points = (*handles, to_x, to_y)
        steps.append(
            " ".join(f"{(x, y)[place % 2] + value:.2f}" for place, value in enumerate(points)) + " c"
        )
    return " ".join(steps)


def _pen(style: Style) -> list[str]:
    dash = style.get("stroke-dasharray", "")
    return [_color(style["stroke"], "RG"), f"{style.get('stroke-width', '1')} w [{dash}] 0 d"]


def _text(element: ElementTree.Element, style: Style) -> list[str]:
    """Return a text at its anchor; one that is turned stands where its transform moves it."""
    words, size = element.text or "", float(style["font-size"].removesuffix("px"))
    wide = (
        sum(_WIDTHS[ord(letter) - 32] if 32 <= ord(letter) < 127 else 556 for letter in words) * size / 1000
    )
    aside = {"middle": -wide / 2, "end": -wide}.get(element.get("text-anchor", ""), 0.0)
    moved = re.match(r"translate\(([\d.]+) ([\d.]+)\) rotate\(-90\)", element.get("transform", ""))
    if moved is not None:
        place = f"0 -1 -1 0 {moved[1]} {float(moved[2]) - aside:.2f}"
    else:
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        place = f"1 0 0 -1 {x + aside:.2f} {y:.2f}"
    escaped = re.sub(r"([\\()])", r"\\\1", words.encode("cp1252", "replace").decode("cp1252"))
    return [_color(style["fill"], "rg"), f"BT /F {size:g} Tf {place} Tm ({escaped}) Tj ET"]


def _color(text: str, operator: str) -> str:
    digits = text.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = (int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))
    return " ".join(f"{part:.4g}" for part in parts) + f" {operator}"


def _page(drawn: str, width: float, height: float) -> bytes:
    """Return a document of one page."""
    stream = drawn.encode("cp1252")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:g} {height:g}] /Contents 4 0 R "
        "/Resources << /Font << /F 5 0 R >> >> >>".encode(),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)
