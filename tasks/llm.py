"""The frozen language model of the settings, loaded once a process."""

import threading
from functools import lru_cache
from pathlib import Path

import torch

from models.graph_tokens import LLMConfig
from models.llm import FrozenLLM, load_llm
from tasks.settings import Settings


def wants_llm_readout(settings: Settings, device: str) -> bool:
    """Whether a training trains ``gtool-llm`` too."""
    return settings.train_llm_readout == "always" or (
        settings.train_llm_readout == "auto" and device == "cuda"
    )


def llm_configuration(settings: Settings) -> LLMConfig:
    """The LLM readout's configuration, with what the settings override."""
    config = LLMConfig()
    steps = settings.max_llm_steps
    candidates = settings.llm_candidates
    return LLMConfig(
        mode=settings.llm_mode,
        ablation=settings.llm_ablation,
        tool_list=settings.llm_tool_list,
        candidates=config.candidates if candidates is None else candidates,
        align_steps=min(config.align_steps, steps or config.align_steps),
        plan_steps=steps or config.plan_steps,
    )


def shared_llm(settings: Settings, device: str) -> FrozenLLM:
    """The LLM of the settings; a GGUF file is converted into the home on first use."""
    with _LOADING:
        return _shared(settings.llm, settings.llms, device, llm_dtype(settings, device))


def llm_dtype(settings: Settings, device: str) -> torch.dtype:
    """Type of the LLM's weights and activations."""
    if settings.llm_dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.bfloat16 if settings.llm_dtype == "bfloat16" else torch.float32


_LOADING = threading.Lock()
"""Two threads that ask at once would both load it."""


@lru_cache(maxsize=1)
def _shared(name: str, folder: Path, device: str, dtype: torch.dtype) -> FrozenLLM:
    return load_llm(name, folder, device=device, dtype=dtype)
