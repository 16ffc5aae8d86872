"""Memory trace: the bytes that every invocation of a kernel loads and stores, and how well they use the memory system.

    python -m bench.trace PROGRAM.pte [--method forward] [--kernel NAME] [--workgroups 4] [--json]
    python -m bench.trace.programs [--write]  # the summary of whole language models in docs/compilers.md

`rewrite` changes a kernel's WGSL: every access to a storage buffer or a workgroup variable also appends a record to one
more buffer. `run` executes the result on the adapter, for a kernel with its arrays (`trace`) or for the first dispatch
of each kernel of a call (`trace_call`). `analyse` computes the figures. The traced kernel computes the same bits.

A record has workgroup, invocation, access site, the number of earlier accesses of this invocation at this site, and the
byte address. Invocations of a subgroup execute the same site together, so the accesses that have the same site and
number form one *instruction* of a subgroup. Subgroups are 32 or 64 consecutive invocations, whatever the adapter has:
the trace says what a GPU would have to do, and needs none. If control flow diverges inside a loop, invocations that
skip an iteration fall back, and their instruction is counted with a later one.

Many GPUs execute accesses of 8 and 16 bytes to workgroup memory in two and four parts of a subgroup. The degree counts
all words of the instruction, so a conflict of vectors that lie in different parts costs less than the figure says.

| figure | meaning |
|---|---|
| requested | bytes of all accesses |
| unique | bytes that are accessed at least once |
| active | share of the invocations of a subgroup that take part in an instruction |
| share | bytes that an instruction uses of the 64-byte segments that it touches; a broadcast of 4 bytes uses 1/16 |
| segments | segments touched, relative to the number that the same bytes would need if they were contiguous |
| degree | largest number of distinct words in one of 32 banks (workgroup memory); equal addresses are a broadcast |
| conflicts | sum of the degrees, relative to the sum that the same number of words would need without conflicts |
| ways | the largest degree relative to the minimum of its instruction; 1 is not a conflict |
| use | share of the bytes of the segments that all traced workgroups touch: what is left if a cache catches the rest |
| rereads | requested bytes relative to the unique bytes of each workgroup |
| cached | the same after the accesses of an instruction are merged: the part that a cache or a register must catch |
| across | unique bytes of each workgroup, added up, relative to the unique bytes of all traced workgroups |
"""

from .analyse import Figures, by_site, by_variable
from .rewrite import RewriteError, Site, rewrite
from .run import Trace, trace, trace_call

__all__ = ["Figures", "RewriteError", "Site", "Trace", "by_site", "by_variable", "rewrite", "trace", "trace_call"]
