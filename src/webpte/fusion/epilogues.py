"""Elementwise calls on the result of a product or a convolution, in the call that makes it: ops/matmul/epilogue.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..graph import Call, Double, DType, Graph, Null, String, TensorSpec, ValueList
from ..graph.programs import (
    CONVOLUTION,
    ELEMENTWISE,
    LINEAR,
    MATMUL,
    PLAIN,
    ProgramStep,
    parse_program,
)
from ..lowering.dim_rules import Dims
from .dims import LiveDims
from .elementwise import Group, Joined, Members
from .rewriter import Rewriter

OPERANDS = 3  # beside the result: what is left of the bindings
NUMBERS = 16  # and of the parameter block

# The elements of the first argument in the same order.
_VIEWS = {
    "aten.squeeze_copy.dims",
    "aten.unsqueeze_copy.default",
    "aten.view_copy.default",
    "aten::view_copy.out",
    "executorch_prim::et_view.default",
}
# Products, and the axes of their results along which an operand of the program may vary while it repeats along others.
_PRODUCTS = {
    "aten.linear.default": (-1,),
    "aten.mm.default": (-2, -1),
    "aten.addmm.default": (-2, -1),
    "aten.bmm.default": (-3, -2, -1),
    "aten.baddbmm.default": (-3, -2, -1),
    "aten.convolution.default": (),  # that of the channels, which depends on how many others there are
    "et_vk.conv_with_clamp.default": (),
    "aten::convolution.out": (),
}
_FLOATS = {DType.FLOAT32, DType.FLOAT16, DType.WIDE_FLOAT16}


def finish_products(graph: Graph) -> Graph:
    """Let products take over the elementwise work on their results. Views between the two are passed over."""
    rewriter = Rewriter(graph)
    if not rewriter.straight:
        return graph
    dims, members = LiveDims(graph), Members(rewriter)
    for index in range(len(graph.steps)):
        ending = _ending(rewriter, dims, _program(members, dims, index), index)
        if ending is not None:
            ending.join()
    return rewriter.done()


def _program(members: Members, dims: LiveDims, index: int) -> Joined | None:
    """The elementwise program at a step, if it has one output."""
    rewriter = members.rewriter
    call = rewriter.call(index)
    if call is not None and call.name == ELEMENTWISE and len(call.outs) == 1:
        match [rewriter.values[a] for a in call.args]:
            case [String(text), ValueList(tensors), ValueList(numbers)]:
                steps, outputs = parse_program(text)
                return Joined(list(steps), list(tensors), list(numbers), list(outputs))
    return Group(members, dims, index).program() if members.at(index) is not None else None


def _ending(rewriter: Rewriter, dims: LiveDims, program: Joined | None, index: int) -> _Ending | None:
    """The program of step `index` with the latest product among its operands that it can be done with."""
    if program is None:
        return None
    found = []
    for seen in program.tensors:
        views: list[int] = []
        made, user = seen, index
        while (maker := rewriter.maker(made)) is not None and _sole(rewriter, made, user):
            user, call = maker
            if call.name in _PRODUCTS:
                found.append(_Ending(rewriter, dims, index, program, seen, user, tuple(views)))
            if call.name not in _VIEWS:
                break
            views.insert(0, user)
            made = call.args[0]
    return next((e for e in sorted(found, key=lambda e: -e.product) if e.fits()), None)


def _sole(rewriter: Rewriter, value_id: int, user: int) -> bool:
    """Whether nobody else sees a value."""
    return rewriter.users[value_id] == [user] and value_id not in rewriter.outputs


@dataclass(frozen=True)
class _Ending:
    """A product and the elementwise program that follows it."""

    rewriter: Rewriter
    dims: LiveDims
    index: int  # of the program
    program: Joined
    seen: int  # the product's result as the program reads it
    product: int  # the step that makes it
    views: tuple[int, ...]  # the steps between

    def _call(self, index: int) -> Call:
        call = self.rewriter.call(index)
        assert call is not None
        return call

    def _spec(self, value_id: int) -> TensorSpec:
        spec = self.rewriter.values[value_id]
        assert isinstance(spec, TensorSpec)
        return spec

    @property
    def made(self) -> int:
        return self._call(self.product).outs[0]

    @property
    def out(self) -> int:
        return self._call(self.index).outs[0]

    @property
    def others(self) -> list[int]:
        return [value_id for value_id in self.program.tensors if value_id != self.seen]

    @property
    def like(self) -> int | None:
        """An operand of the shape that the views give the result, if there are views."""
        return next((v for v in self.others if self.views and self.dims.same(v, self.seen)), None)

    def fits(self) -> bool:
        settled = self.rewriter.settled
        tensors = [v for v in self._call(self.product).args if isinstance(self.rewriter.values[v], TensorSpec)]
        return (
            self._spec(self.made).dtype in _FLOATS
            and len(self.others) <= OPERANDS
            and self.program.compiled(self.rewriter).numbers <= NUMBERS
            and self._spec(self.out).dims == self._spec(self.seen).dims
            and all(map(settled, (*tensors, *self.others)))
            and all(map(self._readable, self.others))
            and (not self.views or self.like is not None or self._early())
        )

    def _early(self) -> bool:
        """Whether the program could run before the views."""
        makers = [self.rewriter.makers.get(value_id, []) for value_id in self.others]
        same = self._spec(self.out).dtype is self._spec(self.made).dtype
        return same and all(not steps or max(steps) < self.views[0] for steps in makers)

    def _readable(self, value_id: int) -> bool:
        """Whether an operand has the result's elements in their order, or repeats along whole axes of the product."""
        pairs = zip(self.dims.of(value_id), self._spec(value_id).dims, strict=True)
        own = _stripped(tuple(1 if bound == 1 else size for size, bound in pairs))  # at 0 there would be no result
        made, seen = self.dims.of(self.made), self.dims.of(self.seen)
        if not own or self.dims.same(value_id, self.seen):
            return True
        if _stripped(made) != _stripped(seen) or len(own) > len(made):
            return False
        own = (1,) * (len(made) - len(own)) + own
        varying = [axis for axis, size in enumerate(own) if size != 1]
        axes = self._axes()
        return all(own[axis] == made[axis] and axis - len(made) in axes for axis in varying)

    def _axes(self) -> tuple[int, ...]:
        call = self._call(self.product)
        return _PRODUCTS[call.name] or (1 - len(self._spec(call.args[1]).dims),)

    def join(self) -> None:
        call, rewriter = self._call(self.product), self.rewriter
        name, args = _finished(rewriter, call)
        like = rewriter.add(Null()) if self.like is None else self.like
        args = (*args, *self._renamed().add_to(rewriter), like)
        if self.like is not None or not self.views:
            steps = {self.product, *self.views, self.index}
            rewriter.replace(steps, Call(name, args, (self.out,), call.origin), self.index)
            return
        # The product stands where the first view did, and each view a place further on.
        calls = [self._call(step) for step in self.views]
        source = rewriter.add(self._spec(self.made))
        rewriter.replace({self.product, self.views[0]}, Call(name, args, (source,), call.origin), self.views[0])
        for view, step in zip(calls, (*self.views[1:], self.index), strict=True):
            outs = (self.out,) if step == self.index else view.outs
            rewriter.replace({step}, replace(view, args=(source, *view.args[1:]), outs=outs), step)
            (source,) = outs

    def _renamed(self) -> Joined:
        """The program with the result as its first input."""
        order = [self.seen, *self.others]
        names = {f"x{i}": f"x{order.index(value_id)}" for i, value_id in enumerate(self.program.tensors)}
        steps = [
            ProgramStep(step.dtype, step.name, tuple(names.get(arg, arg) for arg in step.args))
            for step in self.program.steps
        ]
        return Joined(steps, self.others, self.program.numbers, self.program.outputs)


def _stripped(dims: Dims) -> Dims:
    """Without the ones in front."""
    first = next((axis for axis, size in enumerate(dims) if size != 1), len(dims))
    return dims[first:]


def _finished(rewriter: Rewriter, call: Call) -> tuple[str, tuple[int, ...]]:
    """The op that does what `call` does and more, and the arguments it takes from it."""
    if call.name == "aten.linear.default":
        return LINEAR, call.args
    if call.name in ("aten.addmm.default", "aten.baddbmm.default"):
        return MATMUL, (rewriter.add(String(PLAIN)), *call.args)
    if call.name == "et_vk.conv_with_clamp.default":
        return CONVOLUTION, call.args
    null = rewriter.add(Null())
    if "convolution" in call.name:
        return CONVOLUTION, (*call.args, null, null)
    one = rewriter.add(Double(1.0))
    return MATMUL, (rewriter.add(String(PLAIN)), null, *call.args, one, one)
