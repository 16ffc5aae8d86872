"""A partitioner that also looks inside the branches of `torch.cond`.

VulkanPartitioner tags the nodes of the top graph only; ExecuTorch then lowers tags wherever it finds them, branches
included.  So each branch is shown to VulkanPartitioner's own operator support, with tags that differ from the others'.
"""

from __future__ import annotations

from typing import Any

from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner, VulkanSupportedOperators
from executorch.backends.vulkan.utils import DEFAULT_BUFFER_LIMIT, DEFAULT_TEXTURE_LIMITS
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner


class BranchPartitioner(Partitioner):
    def __init__(self, options: dict[str, Any]):
        self.options = options
        self.outer = VulkanPartitioner(options)

    def ops_to_not_decompose(self, ep):
        return self.outer.ops_to_not_decompose(ep)

    def partition(self, exported_program) -> PartitionResult:
        result = self.outer.partition(exported_program)
        for name, branch, _ in get_control_flow_submodules(exported_program.graph_module):
            supported = VulkanSupportedOperators(
                DEFAULT_TEXTURE_LIMITS,
                DEFAULT_BUFFER_LIMIT,
                require_dynamic_shape=self.options.get("require_dynamic_shapes", False),
            )
            proposed = CapabilityBasedPartitioner(branch, supported, allows_single_node_partition=True)
            for part in proposed.propose_partitions():
                tag = f"{name}.tag{part.id}"
                result.partition_tags[tag] = self.outer.delegation_spec
                for node in part.nodes:
                    node.meta["delegation_tag"] = tag
        return result
