"""Finds checks, runs them, and says with which code to exit.

A module of checks needs ``check``, ``Requires`` and ``Scope`` from here and
the findings of ``numadoctor.model``; nothing else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numadoctor.engine.registry import Check, Requires, Scope, check

__all__ = ["Check", "Requires", "Scope", "check"]


def __getattr__(name: str) -> object:
    # Commands that run no check need the exit codes alone.
    if name in __all__:
        from numadoctor.engine import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
