"""Cells and recurrent layers."""

import torch
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program


@program
def grucell() -> Case:
    """Six steps unrolled, from zeros of a dynamic batch."""

    def forward(self, x):
        h, results = torch.zeros(x.shape[0], 9), []
        for t in range(6):
            h = self.cell(x[:, t], h)
            results.append(self.out(h))
        return torch.stack(results, 1), h

    model = module(forward, cell=nn.GRUCell(5, 9), out=nn.Linear(9, 3))
    return case(model, [(randn(k, 6, 5),) for k in (7, 5, 2, 1)], {0: Dim("b", max=7)})


@program
def grucell_static() -> Case:
    """Six steps unrolled, from a state that is an input."""

    def forward(self, x, h):
        results = []
        for t in range(6):
            h = self.cell(x[:, t], h)
            results.append(self.out(h))
        return torch.stack(results, 1), h

    model = module(forward, cell=nn.GRUCell(5, 9), out=nn.Linear(9, 3))
    b = Dim("b", max=7)
    return case(model, [(randn(k, 6, 5), randn(k, 9)) for k in (7, 5, 2, 1)], {0: b}, {0: b})


@program
def lstm() -> Case:
    """Two layers in both directions."""

    def forward(self, x):
        y, (h, c) = self.layers(x)
        return y, h, c

    layers = nn.LSTM(5, 7, num_layers=2, batch_first=True, bidirectional=True)
    return case(module(forward, layers=layers), [(randn(2, 6, 5),) for _ in range(4)])


@program
def gru() -> Case:
    def forward(self, x):
        return self.layer(x)

    return case(module(forward, layer=nn.GRU(5, 7, batch_first=True)), [(randn(2, 6, 5),) for _ in range(4)])


@program
def rnn() -> Case:
    """tanh, one direction, six steps."""
    return case(nn.RNN(5, 7, batch_first=True), [(randn(2, 6, 5),) for _ in range(4)])
