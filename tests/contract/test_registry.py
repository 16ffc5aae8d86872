"""Our list of what the partitioner may emit is the installed ExecuTorch's."""

from __future__ import annotations

from tests.support.harness.vulkan_registry import NAMES


def test_names_equal_wheel():
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops

    results = {key if isinstance(key, str) else getattr(key, "__name__", str(key)) for key in vulkan_supported_ops}
    assert results == set(NAMES)
