"""The objects of a device that a method uses, for tests that observe or lose it."""

from __future__ import annotations

from webpte.device import Gpu, Session
from webpte.runtime import Method


def session_of(method: Method) -> Session:
    """Return the state and bind groups of a method on its device."""
    with method.exclusive() as state:
        assert state.session is not None, f"{method.name} runs nothing on a device"
        return state.session


def gpu_of(method: Method) -> Gpu:
    """Return the device that a method runs on. Call it before the device is lost, or after the recovery."""
    return session_of(method).gpu


def destroy_device(method: Method) -> None:
    """Lose the device of a method, as a driver would."""
    gpu_of(method).device.destroy()
