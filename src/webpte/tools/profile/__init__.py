"""Where the time of a call goes: host spans, and the device's by op, kernel and module."""

from .file import profile_file
from .profile import DispatchTime, Profile, profile
from .trace import write_trace

__all__ = ["DispatchTime", "Profile", "profile", "profile_file", "write_trace"]
