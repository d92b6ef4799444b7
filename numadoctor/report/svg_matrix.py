"""Tables of figures in a picture: distances between nodes, connections between devices."""

from dataclasses import dataclass, field

from numadoctor.model import Topology
from numadoctor.report.connections import COMPUTING, by_kind, connection, short_name, word
from numadoctor.report.svg_canvas import Canvas, fitted, width

_TITLE, _SIZE = 26, 9.5
# Larger tables are for programs: -o json has them.
_MOST = 72

_SHADES = {"NV#": 0.55, "XGMI": 0.55, "PIX": 0.55, "PXB": 0.4, "PHB": 0.28, "NODE": 0.12}


@dataclass
class Matrix:
    """A table before it has its place.

    :ivar cells: text, class and shade (0 to 1) of each cell
    :ivar words: the words of connections that need an explanation
    """

    title: str
    part: str
    rows: list[str]
    columns: list[str]
    cells: list[list[tuple[str, str, float]]]
    cell: tuple[float, float]
    slanted: bool
    words: set[str] = field(default_factory=set)
    x: float = 0
    y: float = 0

    @property
    def side(self) -> float:
        """Room for the names of the rows."""
        return max(width(name, _SIZE, mono=True) for name in self.rows) + 10

    @property
    def head(self) -> float:
        """Room for the names of the columns."""
        longest = max(width(name, _SIZE, mono=True) for name in self.columns)
        return longest + 8 if self.slanted else 16

    @property
    def width(self) -> float:
        title = width(self.title, 12, bold=True)
        return max(title, self.side + len(self.columns) * self.cell[0])

    @property
    def height(self) -> float:
        return _TITLE + self.head + len(self.rows) * self.cell[1]


def distances(topology: Topology) -> Matrix | None:
    """Nodes × nodes; the farther, the darker."""
    nodes = topology.nodes
    if not 2 <= len(nodes) <= _MOST or not any(node.distances for node in nodes):
        return None
    known = [d for node in nodes for d in node.distances.values()]
    near, far = min(known), max(known)

    def cell(distance: int | None) -> tuple[str, str, float]:
        if distance is None:
            return "?", "open dashed", 0
        return str(distance), "far", (distance - near) / (far - near or 1) * 0.5

    names = [str(node.id) for node in nodes]
    longest = max(len(str(d)) for d in [*known, *(node.id for node in nodes)])
    return Matrix(
        "Distances between nodes (10 is local)",
        "distances",
        names,
        names,
        [[cell(node.distances.get(other.id)) for other in nodes] for node in nodes],
        (max(24.0, longest * 6 + 8), 20.0),
        slanted=False,
    )


def connections(topology: Topology) -> Matrix | None:
    """GPUs × GPUs and NICs; the nearer, the darker."""
    gpus = by_kind(topology, *COMPUTING)
    others = [*(gpus if len(gpus) > 1 else ()), *by_kind(topology, "nic")]
    if not gpus or not others or len(gpus) > _MOST or len(others) > _MOST:
        return None
    told = [[connection(topology, gpu, other) for other in others] for gpu in gpus]
    words = {word(cell) for row in told for cell in row}
    if not words - {"X", "?"}:
        return None
    return Matrix(
        "Connections of GPUs",
        "connections",
        [gpu.address.removeprefix("0000:") for gpu in gpus],
        [
            _name(others[at].kind, short_name(others[at]), others[at].address)
            for at in range(len(others))
        ],
        [[_shaded(cell) for cell in row] for row in told],
        (34.0, 20.0),
        slanted=True,
        words=words,
    )


def _name(kind: str, name: str, address: str) -> str:
    return (address if kind in COMPUTING else name).removeprefix("0000:")


def _shaded(cell: str) -> tuple[str, str, float]:
    if cell == "?":
        return cell, "open dashed", 0
    if cell == "X":
        return "", "near", 0
    if cell == "SYS":
        return cell, "far", 0.22
    return cell, "near", _SHADES.get(word(cell), 0.2)


def draw(canvas: Canvas, matrix: Matrix) -> None:
    """Draw the table at its place."""
    canvas.group(matrix.part)
    canvas.text(matrix.x, matrix.y + 13, matrix.title, 12, "ink bold")
    left, top = matrix.x + matrix.side, matrix.y + _TITLE + matrix.head
    w, h = matrix.cell
    group = canvas.into
    canvas.subgroup(class_="faint mono", font_size=f"{_SIZE}")
    for number, name in enumerate(matrix.columns):
        x = left + (number + 0.5) * w
        if matrix.slanted:
            turn = f"rotate(-90 {x + 3.5:.1f} {top - 5:.1f})"
            canvas.text(x + 3.5, top - 5, name, transform=turn)
        else:
            canvas.text(x, top - 6, name, text_anchor="middle")
    for number, name in enumerate(matrix.rows):
        canvas.text(left - 6, top + (number + 0.5) * h + 3.5, name, text_anchor="end")
    canvas.into = group
    _draw_cells(canvas, matrix, left, top)


def _draw_cells(canvas: Canvas, matrix: Matrix, left: float, top: float) -> None:
    """The cells: what has one colour is one shape, so that 36 × 36 of them stay small."""
    w, h = matrix.cell
    shapes: dict[tuple[str, float], list[str]] = {}
    for row, line in enumerate(matrix.cells):
        for column, (_, class_, shade) in enumerate(line):
            x, y = left + column * w + 1, top + row * h + 1
            if "open" in class_:
                canvas.box(x + 0.5, y + 0.5, w - 3, h - 3, class_, 3)
            else:
                square = f"M{x:g} {y:g}h{w - 2:g}v{h - 2:g}h{2 - w:g}z"
                shapes.setdefault((class_, max(shade, 0.05)), []).append(square)
    for (class_, shade), squares in shapes.items():
        canvas.area("".join(squares), class_, shade)
    canvas.subgroup(class_="ink mono", font_size=f"{_SIZE}", text_anchor="middle")
    for row, line in enumerate(matrix.cells):
        for column, (text, _, _) in enumerate(line):
            if text:
                x, y = left + (column + 0.5) * w, top + (row + 0.5) * h + 3.5
                canvas.text(x, y, fitted(text, w - 2, _SIZE, mono=True))
