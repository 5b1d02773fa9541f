"""Keys and values as a frozen LLM keeps them, and attention over them without copies.

Loaded with transformers, so only where a language model is used.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

GROUPED = "toolatlas_grouped"
"""Name of :func:`grouped_attention` among the attention implementations of transformers."""

ROOM = 256
"""Least number of tokens for which a buffer gets room at a time."""


class KeyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, in a buffer with room for more.

    A pass that needs no gradients writes behind what is there instead of copying all of it. A fork
    shares what was read and copies it on its first own pass.
    """

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None
        if keys is not None and values is not None:
            self.lazy_initialization(keys, values)
            self.keys, self.values = keys, values

    def fork(self) -> "KeyLayer":
        """The same keys, to be continued on their own."""
        return KeyLayer(self.keys, self.values)

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Add keys and values of shape ``[1, heads, tokens, channels]``; all of them."""
        if torch.is_grad_enabled() or not self.is_initialized:
            self._buffers = None
            return super().update(keys, values)  # type: ignore[no-any-return]
        before, after = self.keys.size(2), self.keys.size(2) + keys.size(2)
        if self._buffers is None or self._buffers[0].size(2) < after:
            size = after + max(ROOM, keys.size(2))
            self._buffers = (_roomy(self.keys, size), _roomy(self.values, size))
        for buffer, new in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, before:after] = new
        self.keys, self.values = (buffer[:, :, :after] for buffer in self._buffers)
        return self.keys, self.values


def _roomy(tensor: Tensor, size: int) -> Tensor:
    """A copy with room for ``size`` tokens."""
    out = tensor.new_empty(*tensor.shape[:2], size, tensor.size(3))
    out[:, :, : tensor.size(2)] = tensor
    return out


def new_cache() -> Cache:
    """An empty cache; layers of full length, whatever the model's kind."""
    return Cache(layer_class_to_replicate=KeyLayer)


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attention of query heads that share key heads, with the groups as further queries.

    Heads that share keys become rows of one head, so keys and values are read where they lie; the
    stock implementation copies them for every query head in every pass. It takes over where the
    mask has no row for each head of a group, as in an ordinary forward pass.
    """
    groups = query.size(1) // key.size(1)
    rows = groups * query.size(2)
    if attention_mask is None or groups == 1 or attention_mask.size(2) != rows:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **rest
        )
    folded = query.reshape(query.size(0), key.size(1), rows, query.size(3))
    out = F.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return out.reshape(query.shape).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)
