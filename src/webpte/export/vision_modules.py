"""Torch modules around models of pictures: tensors in, tensors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def classifying(model: Any) -> torch.nn.Module:
    """Pixels (B, 3, H, W) to logits (B, classes)."""
    import torch

    if model.config.model_type == "vit":
        model.vit.embeddings = _padded_embeddings(model.vit.embeddings)

    class Classifying(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any) -> Any:
            return self.model(pixel_values=pixels).logits

    return Classifying().eval()


def _padded_embeddings(vit: Any) -> torch.nn.Module:
    """The same without `cls_token.expand`: the exporter fails where a batch that varies is asked for by that alone."""
    import torch

    class PaddedEmbeddings(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patch_embeddings = vit.patch_embeddings  # by this name the model asks for its dtype
            positions = vit.position_embeddings.detach().clone()  # (1, 1 + N, C)
            positions[:, :1] += vit.cls_token.detach()
            self.register_buffer("positions", positions)

        def forward(self, pixel_values: Any, **unused: Any) -> Any:
            patches = self.patch_embeddings(pixel_values)  # (B, N, C)
            return torch.nn.functional.pad(patches, (0, 0, 1, 0)) + self.positions  # (B, 1 + N, C)

    return PaddedEmbeddings()


def detecting(model: Any, frame: tuple[int, int], masked: bool) -> tuple[torch.nn.Module, int]:
    """Pixels (1, 3, H, W), and with `masked` 1 (1, H, W) where they are picture, to logits (1, queries, classes + 1)
    and boxes (1, queries, 4); and how many queries there are."""
    import torch

    class Detecting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any, mask: Any = None) -> Any:
            found = self.model(pixel_values=pixels, **({} if mask is None else {"pixel_mask": mask}))
            return found.logits, found.pred_boxes

    if masked:
        return Detecting().eval(), int(model.config.num_queries)
    _fix_positions(model, frame)
    return Detecting().eval(), int(model.config.num_detection_tokens)


def _fix_positions(yolos: Any, frame: tuple[int, int]) -> None:
    """Its position embeddings are interpolated to the size of the picture at every call: always the same here."""
    import torch

    class Fixed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.register_buffer("value", value.detach().clone())

        def forward(self, *given: Any) -> Any:
            return self.value

    embeddings, encoder = yolos.vit.embeddings, yolos.vit.encoder
    embeddings.interpolation = Fixed(embeddings.interpolation(embeddings.position_embeddings, frame))
    if encoder.interpolation is not None:
        encoder.interpolation = Fixed(encoder.interpolation(frame))
