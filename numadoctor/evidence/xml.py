"""XML from strangers, as a small tree: no entities, no outside documents, bounded in every way."""

from dataclasses import dataclass, field
from xml.parsers import expat

from numadoctor.evidence.pasted import Refused

# A machine of 4096 CPUs makes some 60,000 elements, nested 20 deep.
_MOST_ELEMENTS, _DEEPEST, _LONGEST_VALUE = 1 << 19, 128, 1 << 16


@dataclass
class Element:
    """An element with what stands in it; ``line`` counts from 1 in the document."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: "list[Element]" = field(default_factory=list)
    text: str = ""

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    def all(self, tag: str) -> "list[Element]":
        return [child for child in self.children if child.tag == tag]


def read_xml(text: str, first_line: int = 1) -> Element:
    """The root element of the document in ``text``.

    A DOCTYPE that names a document type (lstopo writes one) is never fetched.

    :param first_line: the line at which the document begins
    :raises Refused: it is not well formed, declares an entity, or is larger than any genuine one
    """
    builder = _Builder(first_line)
    parser = expat.ParserCreate(encoding="utf-8")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = builder.entity
    parser.ExternalEntityRefHandler = builder.entity
    parser.SkippedEntityHandler = builder.entity
    builder.parser = parser
    try:
        # As bytes: what a declaration says of the encoding held before it was pasted.
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        line = first_line + error.lineno - 1
        raise Refused(line, f"not well-formed XML: {expat.ErrorString(error.code)}") from None
    if builder.root is None:
        raise Refused(first_line, "no XML element")
    return builder.root


class _Builder:
    def __init__(self, first_line: int) -> None:
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.offset = first_line - 1
        self.parser: expat.XMLParserType | None = None

    @property
    def _line(self) -> int:
        return self.offset + (self.parser.CurrentLineNumber if self.parser else 1)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > _MOST_ELEMENTS or len(self.open) >= _DEEPEST:
            raise Refused(self._line, "more elements than any genuine file has")
        if any(len(value) > _LONGEST_VALUE for value in attributes.values()):
            raise Refused(self._line, "a longer value than any genuine file has")
        element = Element(tag, attributes, self._line)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def end(self, _tag: str) -> None:
        self.open.pop()

    def data(self, text: str) -> None:
        element = self.open[-1]
        if len(element.text) < _LONGEST_VALUE:
            element.text += text

    def entity(self, *_: object) -> int:
        raise Refused(self._line, "it declares or uses an entity, which no genuine file does")
