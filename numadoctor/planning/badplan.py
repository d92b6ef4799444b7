"""How a plan is refused that cannot be used."""


class BadPlan(ValueError):
    """A plan that cannot be used: which file, where in it, and why, on one line."""

    def __init__(self, file: str, place: str, reason: str) -> None:
        where = ": ".join(part for part in (file, place) if part)
        super().__init__(f"{where}: {' '.join(reason.split())}")
