"""Where instances of an engine belong on a machine, and plans that people write.

``machine`` gathers what can be handed out, ``partition`` chooses the GPUs, ``memory`` and
``cpus`` the rest, ``proposing`` puts them together, ``explaining`` and ``refusing`` tell why,
``launchers`` and ``engines`` print how to start. ``documents`` and ``intent`` read plans from
files.
"""
