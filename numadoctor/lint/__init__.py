"""Deployment files before anything runs: read with positions, recognised, and understood.

``reading`` finds files and reads them within bounds, ``documents`` recognises
their kinds, a module a format parses them into ``nodes``, and ``workloads``
gives one picture of a container, whoever starts it. Nothing here judges: the
checks do.
"""
