"""Join the methods of a program whose language model takes embeddings: a lookup of tokens, and a decoder of its result.

ExecuTorch's runners call `token_embedding`, replace rows by those of an encoder, and call `text_decoder`.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedError
from ..graph import Call, DType, Graph, Jump, Step, TensorSpec, Value, ValueList
from .batching import TOKENS, embedding_pool, with_replaced_rows
from .llm_rewrites import add_value
from .row_axes import REPLACED_ROWS

INTEGERS = (DType.INT32, DType.INT64)


def joined(embedding: Graph, decoder: Graph, rows: int = 0) -> Graph:
    """Return the graph of tokens and positions: `decoder` with its embeddings computed by `embedding`.

    The decoder's other input is positions, before or after the embeddings. With `rows`, the state has that many rows of
    embeddings, which replace the result of `embedding` for tokens below 0: those of an encoder are not scaled.
    """
    embedded, position = _decoder_inputs(decoder)
    (tokens,), (output,) = _ids(embedding, "input", embedding.inputs), _ids(embedding, "output", embedding.outputs)
    ours, theirs = decoder.tensor(embedded), embedding.tensor(output)
    if (ours.dims, ours.dtype) != (theirs.dims, theirs.dtype):
        raise _other(embedding, f"embeddings {ours} as the input of {decoder.name}", str(theirs))
    first = len(decoder.values)
    place = {output: embedded}
    moved = [place.get(number, first + number) for number in range(len(embedding.values))]
    values: list[Value] = [*decoder.values, *(_moved_value(value, moved) for value in embedding.values)]
    values[embedded] = replace(theirs, host_dtype=ours.host_dtype)
    steps: list[Step] = [_moved_step(step, moved) for step in embedding.steps]
    if rows:
        looked_up = add_value(values, values[embedded])
        pool = add_value(values, replace(theirs, dims=(rows, theirs.dims[-1]), dynamic=False, mutable=True))
        steps = [
            replace(step, outs=tuple(looked_up if out == embedded else out for out in step.outs))
            if isinstance(step, Call)
            else step
            for step in steps
        ]
        steps.append(Call(REPLACED_ROWS, (looked_up, moved[tokens], pool), (embedded,), steps[-1].origin))
    count = len(steps)
    steps += [replace(step, target=step.target + count) if isinstance(step, Jump) else step for step in decoder.steps]
    names = {value_id: name for value_id, name in decoder.names.items() if value_id != embedded}
    return replace(
        decoder,
        values=tuple(values),
        steps=tuple(steps),
        inputs=(moved[tokens], position),
        delegates=(*decoder.delegates, *embedding.delegates),
        names=names | {moved[tokens]: embedding.names.get(tokens, "tokens")},
    )


def with_single_pool(graph: Graph, rows: int) -> Graph:
    """Give the graph of one sequence a state with rows of embeddings: a token below 0 is one of them."""
    if not rows or embedding_pool(graph) is not None:
        return graph
    return with_replaced_rows(graph, graph.inputs[TOKENS], rows, lambda reason, code: _refused(graph, reason, code))


def _refused(graph: Graph, reason: str, code: str) -> UnsupportedError:
    return UnsupportedError(f"{graph.name} cannot take embeddings: {reason}", code=code)


def _decoder_inputs(decoder: Graph) -> tuple[int, int]:
    """Return the ids of the embeddings and of the positions."""
    specs = {value_id: decoder.values[value_id] for value_id in decoder.inputs}
    tensors = {value_id: spec for value_id, spec in specs.items() if isinstance(spec, TensorSpec)}
    embedded = [value_id for value_id, spec in tensors.items() if len(spec.dims) == 3]
    positions = [value_id for value_id, spec in tensors.items() if len(spec.dims) == 1 and spec.host_dtype in INTEGERS]
    if len(specs) != 2 or len(embedded) != 1 or len(positions) != 1:
        raise _other(decoder, "two inputs: embeddings (1, n, N) and positions", ", ".join(map(str, specs.values())))
    return embedded[0], positions[0]


def _ids(graph: Graph, what: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    if len(ids) != 1:
        raise _other(graph, f"one {what}", str(len(ids)))
    return ids


def _other(graph: Graph, expected: str, got: str) -> UnsupportedError:
    return UnsupportedError(argument=graph.name, expected=expected, got=got, code="other_embedding")


def _moved_value(value: Value, moved: list[int]) -> Value:
    return ValueList(tuple(moved[value_id] for value_id in value.ids)) if isinstance(value, ValueList) else value


def _moved_step(step: Step, moved: list[int]) -> Step:
    if isinstance(step, Jump):
        return replace(step, condition=moved[step.condition])
    call: Call = replace(step, args=tuple(moved[a] for a in step.args), outs=tuple(moved[out] for out in step.outs))
    return call
