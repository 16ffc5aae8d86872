"""Where the time of a call goes: host spans, and the device's by op, kernel and module."""

from .profile import DispatchTime, Profile, profile, profile_file, write_trace

__all__ = ["DispatchTime", "Profile", "profile", "profile_file", "write_trace"]
