"""Seccomp filters: what a profile, or the filters of a process, do to the six NUMA calls.

``evaluate`` answers for a profile as a file, ``default_profile_answer`` for the
profile that a container engine brings along. Neither runs anything.
"""

from numadoctor.kernel.seccomp.actions import Action, Verdict
from numadoctor.kernel.seccomp.defaults import default_profile_answer
from numadoctor.kernel.seccomp.evaluate import RUNTIMES, evaluate
from numadoctor.kernel.seccomp.profile import Profile, ProfileError, parse_profile, profile_of

__all__ = [
    "RUNTIMES",
    "Action",
    "Profile",
    "ProfileError",
    "Verdict",
    "default_profile_answer",
    "evaluate",
    "parse_profile",
    "profile_of",
]
