"""The built-in checks, one module a topic; they reach the machine through their host alone.

The first word of a module's name tells the family of its checks: a command loads the families
that it may run, and no others.
"""

FAMILY = {
    "topology": "T",
    "devices": "G",
    "kernel": "K",
    "envelope": "E",
    "process": "P",
    "expect": "P",
    "deployment": "D",
}
