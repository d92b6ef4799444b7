"""NUMA memory placement on Linux: will it work here, where are the pages, what is the fix.

Importing the package costs nothing: every module is loaded by the command
that needs it.
"""

__version__ = "0.1.0"
