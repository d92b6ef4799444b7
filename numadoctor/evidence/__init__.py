"""What people paste: the output of other programs, read as evidence about a machine.

``recognise`` finds the outputs in a text, the module of each format reads one,
and ``merge`` makes a topology of what they say.
"""
