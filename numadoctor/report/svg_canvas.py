"""What a picture is drawn with: shapes, words whose width is known, colours of two themes."""

import math
from xml.etree.ElementTree import Element, SubElement, tostring

from numadoctor.report.terminal import columns, sanitise

SANS = "'DejaVu Sans', Verdana, 'Segoe UI', system-ui, sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"

# Of the em, in DejaVu Sans, the widest of the fonts named above; bold adds a tenth.
_NARROW, _WIDE = "iIjl.,:;'|!()[]/ -", "mwMWO@%&QG"
_EM_NARROW, _EM, _EM_WIDE, _EM_MONO = 0.40, 0.66, 0.99, 0.605

# Kind of a node or device, or word of a connection, to its hue on light and on dark ground.
_HUES = {
    "host": ("#2563c9", "#6ea2f7"),
    "gpu": ("#23824a", "#5cc98a"),
    "hbm": ("#7a3fc0", "#b78af0"),
    "cxl": ("#b06a00", "#e0a548"),
    "cpu-only": ("#c23434", "#f08080"),
    "memory-only": ("#0f7c86", "#56c2cc"),
    "empty": ("#7b8491", "#8c97a6"),
    "unknown": ("#7b8491", "#8c97a6"),
    "accelerator": ("#7a3fc0", "#b78af0"),
    "nic": ("#2563c9", "#6ea2f7"),
    "storage": ("#96701a", "#d5b057"),
    "near": ("#23824a", "#5cc98a"),
    "far": ("#c2571a", "#f0945a"),
}


def _theme(dark: bool) -> str:
    ground, card, frame, ink, faint = (
        ("#11151b", "#1a2029", "#3b4656", "#e7ebf1", "#9da8b7")
        if dark
        else ("#ffffff", "#f6f8fa", "#c8d0da", "#1c2129", "#59636f")
    )
    rules = [
        f".ground{{fill:{ground}}}",
        f".card{{fill:{card};stroke:{frame}}}",
        f".open{{fill:none;stroke:{faint}}}",
        f".track{{fill:{frame}}}",
        f".line{{stroke:{faint}}}",
        f".ink{{fill:{ink}}}",
        f".faint{{fill:{faint}}}",
        # Words on lines: the ground is drawn around each letter first.
        f".halo{{stroke:{card};stroke-width:4px;paint-order:stroke;stroke-linejoin:round}}",
    ]
    for name, hues in _HUES.items():
        hue = hues[dark]
        rules.append(f".{name}{{fill:{hue};stroke:{hue}}}")
        rules.append(f".{name}-ink{{fill:{hue}}}")
    return "".join(rules)


STYLE = (
    f"svg{{font-family:{SANS}}}.mono{{font-family:{MONO}}}"
    ".bold{font-weight:700}.dashed{stroke-dasharray:4 3}"
    f"{_theme(False)}@media(prefers-color-scheme:dark){{{_theme(True)}}}"
)


def width(text: str, size: float, *, mono: bool = False, bold: bool = False) -> float:
    """How wide ``text`` is at most, in pixels; a bound that holds for the fonts that are named."""
    if mono:
        return columns(text) * size * _EM_MONO
    ems = sum(
        _EM_NARROW if c in _NARROW else _EM_WIDE if c in _WIDE else _EM * columns(c) for c in text
    )
    return ems * size * (1.1 if bold else 1)


def fitted(text: str, room: float, size: float, *, mono: bool = False, bold: bool = False) -> str:
    """``text`` on one line with nothing that acts on a reader, cut to ``room`` pixels."""
    text = sanitise(text)
    if width(text, size, mono=mono, bold=bold) <= room:
        return text
    while text and width(text + "…", size, mono=mono, bold=bold) > room:
        text = text[:-1]
    return text + "…"


def folded(text: str, room: float, size: float, most: int) -> list[str]:
    """A list such as ``0-3,8`` in lines of ``room`` pixels, broken after commas; ``most`` lines."""
    lines = [""]
    for part in sanitise(text).replace(",", ",\n").split("\n"):
        if lines[-1] and width(lines[-1] + part, size, mono=True) > room:
            lines.append("")
        lines[-1] += part
    if len(lines) > most:
        lines = [*lines[: most - 1], "".join(lines[most - 1 :])]
    return [fitted(line, room, size, mono=True) for line in lines]


class Canvas:
    """A picture in the making. Positions and sizes are pixels; every text has its room."""

    def __init__(self) -> None:
        self.root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        self.into = self.root

    def group(self, class_: str, title: str = "") -> Element:
        """Start a group below the picture; what is drawn goes into it. A title is a tooltip."""
        self.into = SubElement(self.root, "g", {"data-part": class_})
        if title:
            SubElement(self.into, "title").text = sanitise(title)
        return self.into

    def subgroup(self, **attributes: str) -> None:
        """Start a group inside the present one, whose attributes hold for all of it."""
        named = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
        self.into = SubElement(self.into, "g", named)

    def box(
        self, x: float, y: float, w: float, h: float, class_: str, radius: float = 0, **more: str
    ) -> None:
        attributes = {"x": _n(x), "y": _n(y), "width": _n(w), "height": _n(h), "class": class_}
        if radius:
            attributes["rx"] = _n(radius)
        SubElement(
            self.into, "rect", attributes | {k.replace("_", "-"): v for k, v in more.items()}
        )

    def text(
        self, x: float, y: float, text: str, size: float = 0, class_: str = "", **more: str
    ) -> None:
        """Words with their baseline at ``y``; cut them with ``fitted`` first.

        :param size: 0: that of the group, and so is the class
        """
        attributes = {"x": _n(x), "y": _n(y)}
        attributes |= {"font-size": _n(size), "class": class_} if size else {}
        SubElement(
            self.into, "text", attributes | {k.replace("_", "-"): v for k, v in more.items()}
        ).text = sanitise(text)

    def area(self, d: str, class_: str, opacity: float) -> None:
        """Filled shapes of one colour."""
        SubElement(
            self.into,
            "path",
            {"d": d, "class": class_, "style": "stroke:none", "fill-opacity": f"{opacity:.2f}"},
        )

    def path(self, d: str, class_: str, thick: float) -> None:
        SubElement(
            self.into,
            "path",
            {
                "d": d,
                "class": class_,
                "fill": "none",
                "style": "fill:none",
                "stroke-width": _n(thick),
            },
        )

    def finish(self, w: float, h: float, title: str) -> str:
        """The document."""
        w, h = math.ceil(w), math.ceil(h)
        self.root.attrib |= {
            "width": _n(w),
            "height": _n(h),
            "viewBox": f"0 0 {_n(w)} {_n(h)}",
        }
        style = Element("style")
        style.text = STYLE
        name = Element("title")
        name.text = sanitise(title)
        ground = Element("rect", {"class": "ground", "width": _n(w), "height": _n(h)})
        for place, element in enumerate((name, style, ground)):
            self.root.insert(place, element)
        return tostring(self.root, encoding="unicode") + "\n"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
