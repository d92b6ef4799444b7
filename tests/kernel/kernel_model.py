"""What get_nodes() of mm/mempolicy.c makes of a mask, written bit by bit.

An independent model: it walks addresses and bits as the kernel's C does and
shares no code with numadoctor.kernel.nodemask.
"""

MAX_NUMNODES = 1024
PAGE_SIZE = 4096


class Fault(Exception):
    """EFAULT: the kernel read past the end of the mask."""


class Invalid(Exception):
    """EINVAL."""


def bit(mask: bytes, number: int, word_size: int, byteorder: str) -> bool:
    """One bit of an array of words; reading past the end faults, as before an unmapped page."""
    word, shift = divmod(number, word_size * 8)
    if (word + 1) * word_size > len(mask):
        raise Fault
    place, inner = divmod(shift, 8)
    if byteorder == "big":
        place = word_size - 1 - place
    return bool(mask[word * word_size + place] & (1 << inner))


def get_nodes(mask: bytes | None, maxnode: int, word_size: int, byteorder: str) -> set[int]:
    """The nodes the kernel takes from ``mask`` (None: a null pointer).

    Source: get_nodes() and get_bitmap() in mm/mempolicy.c, Linux 6.1.
    """
    maxnode = (maxnode - 1) % (1 << 8 * word_size)  # --maxnode on an unsigned long
    if maxnode == 0 or mask is None:
        return set()
    if maxnode > PAGE_SIZE * 8:
        raise Invalid
    width = 8 * word_size
    words_read = -(-maxnode // width)
    nodes = set()
    # Whole words are copied (and may fault) before the bits above maxnode are cut off.
    for number in reversed(range(words_read * width)):
        present = bit(mask, number, word_size, byteorder)
        if not present or number >= maxnode:
            continue
        if number >= MAX_NUMNODES:
            raise Invalid
        nodes.add(number)
    return nodes
