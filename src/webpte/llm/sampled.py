"""A model's graph with the sampler behind it: the token is chosen where the logits are."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedError
from ..graph import Call, DType, Graph, Int, Origin, SymFloat, SymInt, TensorSpec, Value

LOGITS, TOKEN, LOG_PROBABILITY = range(3)  # positions of the outputs
ALL_HIDDEN = -2  # in a token's place: every logit is minus infinity; any other negative number: NaN or infinity
SETTINGS = ("temperature", "top_k", "top_p", "seed", "step")  # inputs behind the model's own


def with_sampler(graph: Graph) -> Graph:
    """Outputs become logits, token and log probability; the sampler's settings become further inputs."""
    values: list[Value] = list(graph.values)
    steps = list(graph.steps)
    origin = Origin(steps[-1].origin.instruction if steps else 0)

    def add(value: Value) -> int:
        values.append(value)
        return len(values) - 1

    logits = graph.outputs[0]
    spec = values[logits]
    if not isinstance(spec, TensorSpec) or len(spec.dims) not in (2, 3) or spec.dims[0] != 1:
        raise UnsupportedError(f"{graph.name} returns {spec}; a language model returns logits of one sequence")
    last = logits
    if len(spec.dims) == 3:  # (1, S, V): the last position's
        last = add(TensorSpec(spec.dtype, (1, spec.dims[2]), spec.host_dtype))
        steps.append(Call("aten.select_copy.int", (logits, add(Int(1)), add(Int(-1))), (last,), origin))
    kinds: list[Value] = [SymFloat(), SymInt(), SymFloat(), SymInt(), SymInt()]
    settings = tuple(add(kind) for kind in kinds)
    token = add(TensorSpec(DType.INT32, (1,), DType.INT32))
    log_probability = add(TensorSpec(DType.FLOAT32, (1,), DType.FLOAT32))
    steps.append(Call("webpte.sample", (last, *settings), (token, log_probability), origin))
    return replace(
        graph,
        values=tuple(values),
        steps=tuple(steps),
        inputs=(*graph.inputs, *settings),
        outputs=(last, token, log_probability),
    )
