"""The kernel's NUMA interface as this process sees it: call numbers, nodemasks, calls, probes.

Importing the package costs nothing; take what you need from its modules.
"""
