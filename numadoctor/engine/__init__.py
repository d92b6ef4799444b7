"""Finds checks, runs them, and says with which code to exit.

A module of checks needs ``check``, ``Requires`` and ``Scope`` from here and
the findings of ``numadoctor.model``; nothing else.
"""

from numadoctor.engine.registry import Check, Requires, Scope, check

__all__ = ["Check", "Requires", "Scope", "check"]
