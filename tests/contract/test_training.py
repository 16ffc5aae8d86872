"""Training through exported programs: 50 steps, against autograd in eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.models import training as models

STEPS = 50


@pytest.fixture(scope="module")
def eager() -> list[float]:
    """Return the loss before each step. Nothing of ExecuTorch here: rounded weights, autograd, AdamW written out."""
    x, labels = models.samples()
    latents = [w.clone().requires_grad_() for w in models.start_weights()]
    scales = [models.scales_of(w).t().repeat_interleave(models.GROUP, 1) for w in models.start_weights()]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in latents]
    rate, beta1, beta2, eps, decay, _, _ = models.OPTIMIZER
    losses = []
    for _ in range(STEPS + 1):
        rounded = [(w / s).round().clamp(-8, 7) * s for w, s in zip(latents, scales, strict=True)]
        # The gradient passes as if nothing had been rounded.
        first, second = (w + (r - w).detach() for w, r in zip(latents, rounded, strict=True))
        loss = torch.nn.functional.cross_entropy(torch.relu(x @ first.t()) @ second.t(), labels)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, latents)
        with torch.no_grad():
            for w, (m, v), g in zip(latents, moments, gradients, strict=True):
                m.lerp_(g, 1 - beta1)
                v.lerp_(g * g, 1 - beta2)
                w.copy_(w * (1 - rate * decay) - rate * m / (v.sqrt() + eps))
    return losses


def test_training_task_is_learnable(eager):
    assert eager[0] > 2 and eager[-1] < 0.2 * eager[0]


def test_training_methods_equal_eager():
    exported = export(models.in_methods)
    with webpte.load(exported.path) as program:
        for step in exported.steps:
            outputs = program.method(step.method).run(step.inputs)
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                tolerance = 0 if want.dtype == np.uint8 else 1e-5
                assert_close(got, want, tolerance, 0, f"{step.method}, output {position}")


def test_fifty_steps_in_methods(eager):
    exported = export(models.in_methods)
    x, labels = (t.numpy() for t in models.samples())
    latents = [w.numpy() for w in models.start_weights()]
    scales = [models.scales_of(w).numpy() for w in models.start_weights()]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in latents]
    codes = [step.inputs[1] for step in exported.steps if step.method == "forward"]
    codes += [step.inputs[3] for step in exported.steps if step.method == "forward"]
    losses = []
    with webpte.load(exported.path) as program:
        forward, loss, backward = (program.method(name) for name in ("forward", "loss", "backward"))
        steps = [program.method("step1"), program.method("step2")]
        for _ in range(STEPS + 1):
            hidden, logits = forward(x, codes[0], scales[0], codes[1], scales[1])
            value, d_logits = loss(logits, labels)
            losses.append(float(value))
            gradients = backward(d_logits, x, hidden, codes[1], scales[1])
            for n, step in enumerate(steps):
                latents[n], m, v, codes[n] = step(latents[n], *moments[n], gradients[n], scales[n])
                moments[n] = (m, v)
    assert_close(np.array(losses), np.array(eager), 1e-3, 0, "losses")


def test_fifty_steps_in_one_method(eager):
    """The model and its optimizer stay on the device: samples go in, a loss comes out, in one submit."""
    exported = export(models.in_place)
    x, labels = (t.numpy() for t in models.samples())
    with webpte.load(exported.path) as program:
        step = program.method()
        for _ in range(2):
            losses = []
            for _ in range(STEPS + 1):
                before = step.counters.snapshot()
                losses.append(float(step(x, labels)))
                done = step.counters.since(before)
                assert (done.submits, done.output_bytes) == (1, 4)
            assert_close(np.array(losses), np.array(eager), 1e-3, 0, "losses")
            step.reset()
        for sequence in exported.sequences:
            step.reset()
            for golden in sequence:
                assert_close(step(*golden.inputs), golden.outputs[0], 1e-3, 0, "loss")
