"""The state of an unfinished training in one safetensors file, found again or ignored whole."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

STATE_FILE = "state.safetensors"
"""Name of a stored training state: all tensors, and the rest as JSON in the metadata."""


def write_state(
    folder: Path, mark: str, head: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Store a whole state: complete under its own name first, then renamed into place.

    Args:
        folder: Where to; made if needed.
        mark: What tells this training from any other one.
        head: JSON values.
        tensors: Everything else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"state.{uuid.uuid4().hex}.tmp"
    metadata = {"head": json.dumps({"fingerprint": mark, **head})}
    save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, unfinished, metadata)
    unfinished.replace(folder / STATE_FILE)


def read_state(folder: Path, mark: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """A stored state of this very training; None where there is none, or one of another."""
    path = folder / STATE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {}).get("head", "{}"))
            if head.get("fingerprint") != mark:
                return None
            return head, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError):
        return None


def weight_tensors(
    weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Weights and what the optimizer keeps for each, under names of their own."""
    tensors = {f"weight/{name}": weight.detach() for name, weight in weights.items()}
    for name, weight in weights.items():
        for key, value in optimizer.state[weight].items():
            tensors[f"adam.{key}/{name}"] = value
    return tensors


@torch.no_grad()
def restore_weights(
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    device: torch.device,
) -> None:
    """Put back what :func:`weight_tensors` gave; Adam counts its steps on the CPU."""
    for name, weight in weights.items():
        weight.copy_(tensors[f"weight/{name}"])
        prefix, suffix = "adam.", f"/{name}"
        optimizer.state[weight] = {
            key.removeprefix(prefix).removesuffix(suffix): (
                value if key.startswith("adam.step/") else value.to(device)
            )
            for key, value in tensors.items()
            if key.startswith(prefix) and key.endswith(suffix)
        }
