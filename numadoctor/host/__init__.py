"""Where facts come from: roots, parsers, and the host that remembers what it read."""

from numadoctor.host.host import Host, sysctl_path
from numadoctor.host.root import FolderRoot, LiveRoot, Root, open_root, sample_names

__all__ = ["FolderRoot", "Host", "LiveRoot", "Root", "open_root", "sample_names", "sysctl_path"]
