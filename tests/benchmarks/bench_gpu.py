"""GTool's LLM readout on one GPU: a training with a small LLM, timed steps with one of 7B.

PYTHONPATH=. python tests/benchmarks/bench_gpu.py --data FILE [--tiny]

Takes under five minutes on one GPU, and needs this checkout, FILE (UltraTool's
trajectories.jsonl.gz, 0.5 MB) and a Python with the packages of ``NEEDED``, no weights: both LLMs
have random weights in the shape of SmolLM2-135M and LLaMA-7B, their tokenizer is learnt from FILE,
and text vectors are hashed bags of words. Random LLMs say how fast a step is and that it learns,
not how well GTool plans. ``--tiny`` shrinks both LLMs, to try the script on a CPU.

Prints one JSON object. ``mfu`` is the share of ``--peak-tflops`` that the arithmetic of the LLM's
layers needs: 2 floating point operations a weight and token that is only read, 4 where gradients
come back through it (weights are frozen). ``limit_ms`` is a step at the whole peak, for what our
step reads, and ``limit_whole_prompt_ms`` for one that reads whole prompts with gradients.
"""

import argparse
import gzip
import importlib.metadata
import itertools
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

NEEDED = {
    "torch": "2.8",
    "torch_geometric": "2.6",
    "transformers": "5.24",
    "tokenizers": "0.22",
    "safetensors": "0.5",
    "jaxtyping": "0.3",
    "filelock": "3",
    "jinja2": "3",
}
"""Packages and the least version of each."""

SMALL = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
LARGE = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def require_packages() -> None:
    """End with one sentence where a package is missing or too old."""
    faults = []
    for name, least in NEEDED.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            faults.append(f"{name}>={least} (missing)")
            continue
        if [int(p) for p in found.split(".")[:2] if p.isdigit()] < [
            int(p) for p in least.split(".")
        ]:
            faults.append(f"{name}>={least} (found {found})")
    if faults:
        sys.exit(f"expected packages that {sys.executable} lacks: {', '.join(faults)}")


if __name__ == "__main__":
    require_packages()

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from models.candidates import embed_requests  # noqa: E402
from models.graph_tokens import LLMConfig  # noqa: E402
from models.gtool import GToolConfig, GToolPlanner  # noqa: E402
from models.llm import FrozenLLM  # noqa: E402
from models.llm_training import train_llm_readout  # noqa: E402
from models.training import train_gtool  # noqa: E402
from models.types import Example, ToolGraph  # noqa: E402


def read_examples(path: Path) -> list[Example]:
    """Rows of a set of trajectories; every tenth training row is for validation."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = [json.loads(line) for line in file if line.strip()]
    parts = itertools.cycle(["train"] * 9 + ["validation"])
    return [
        Example(
            row["id"],
            row["request"],
            tuple(f"bench/{step['tool']}" for step in row["steps"]),
            split="test" if row["split"] == "test" else next(parts),
        )
        for row in rows
    ]


def mine_graph(examples: Sequence[Example]) -> ToolGraph:
    """All tools of the rows, with the adjacent pairs of the training rows."""
    keys = tuple(sorted({key for example in examples for key in example.tools}))
    row = {key: i for i, key in enumerate(keys)}
    counts = Counter(
        (row[a], row[b])
        for example in examples
        if example.split == "train"
        for a, b in itertools.pairwise(example.tools)
        if a != b
    )
    pairs = sorted(counts)
    return ToolGraph(
        "bench",
        keys,
        tuple(key.split("/")[1].replace("_", " ") for key in keys),
        torch.tensor(pairs).T.contiguous(),
        torch.tensor([[float(counts[pair]), 0.0] for pair in pairs]),
    )


def embed(texts: Sequence[str], channels: int = 384) -> Tensor:
    """Hashed bags of words, of length 1."""
    out = torch.zeros(len(texts), channels)
    for i, text in enumerate(texts):
        for word in text.lower().split():
            digest = zlib.crc32(word.encode())
            out[i, digest % channels] += 1.0 if digest & (1 << 20) else -1.0
    return torch.nn.functional.normalize(out, dim=1)


def learnt_tokenizer(texts: Sequence[str], size: int) -> Any:
    """Byte-level BPE with a chat template, learnt from the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = TEMPLATE
    return fast


def random_llm(shape: dict[str, Any], tokenizer: Any, device: str, dtype: torch.dtype) -> FrozenLLM:
    """A LLaMA of some shape with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        **shape, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1, pad_token_id=1
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return FrozenLLM(model, tokenizer, name="random", digest=json.dumps(shape, sort_keys=True))


class Step(NamedTuple):
    """What there was when a step ended: a time, tokens so far."""

    time: float
    kept: int
    read: int
    planning: bool


@dataclass
class Meter:
    """Tokens that an LLM reads, by whether gradients come back, and when each step ended."""

    llm: FrozenLLM
    kept: int = 0
    read: int = 0
    steps: list[Step] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Count from now on."""
        self.llm.model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        vectors = kwargs["inputs_embeds"]
        if vectors.requires_grad:
            self.kept += vectors.shape[0] * vectors.shape[1]
        else:
            self.read += vectors.shape[0] * vectors.shape[1]

    def step(self, _: int, metrics: dict[str, float]) -> None:
        """A step has ended."""
        if self.llm.device.type == "cuda":
            torch.cuda.synchronize()
        planning = "train_loss" in metrics
        self.steps.append(Step(time.perf_counter(), self.kept, self.read, planning))
        self.losses += [metrics["train_loss"]] if planning else []

    def report(self, batch: int, peak: float) -> dict[str, Any]:
        """Times and limits of the planning steps that read new requests, and of the others."""
        weights = sum(w.numel() for w in self.llm.model.get_decoder().layers.parameters())
        groups: dict[str, list[tuple[float, int, int]]] = {"new_requests": [], "known_requests": []}
        for a, b in itertools.pairwise(self.steps):
            if b.planning:
                name = "new_requests" if b.read > a.read else "known_requests"
                groups[name].append((b.time - a.time, b.kept - a.kept, b.read - a.read))
        request_tokens = median(read for _, _, read in groups["new_requests"])
        shared = self.steps[0].read
        out: dict[str, Any] = {"layer_parameters": weights, "shared_tokens": shared}
        for name, steps in groups.items():
            if not steps:
                continue
            seconds, kept, read = (median(step[i] for step in steps) for i in range(3))
            limit = weights * (4 * kept + 2 * read) / peak
            whole = kept + request_tokens + batch * shared
            out[name] = {
                "steps": len(steps),
                "step_ms": round(1000 * seconds, 1),
                "tokens_with_gradient": round(kept),
                "tokens_read": round(read),
                "limit_ms": round(1000 * limit, 3),
                "mfu": round(limit / seconds, 4),
                "whole_prompt_tokens": round(whole),
                "limit_whole_prompt_ms": round(1000 * 4 * weights * whole / peak, 1),
            }
        return out


def graph_readout(
    graph: ToolGraph, examples: Sequence[Example], device: str, epochs: int
) -> GToolPlanner:
    """A briefly trained graph readout, which the LLM readout builds on."""
    tool_x = embed(graph.texts)
    vectors = embed_requests([example.request for example in examples], embed)
    config = GToolConfig(epochs=epochs)
    model = train_gtool(graph, tool_x, examples, vectors, config, seed=0, device=device).model
    return GToolPlanner(model.cpu(), graph, tool_x, embed)


def main() -> None:
    """Train small, time large, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="trajectories.jsonl or .jsonl.gz")
    parser.add_argument("--tiny", action="store_true", help="small LLMs and few steps")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=150, help="planning steps of the small LLM")
    parser.add_argument("--timed", type=int, default=24, help="steps of the large LLM")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="dense bf16 of the device")
    args = parser.parse_args()
    if args.tiny:
        args.batch, args.steps, args.timed = 4, 6, 8
    print(json.dumps(measure(args), indent=1))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All numbers."""
    started = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    peak = args.peak_tflops * 1e12
    examples = read_examples(args.data)
    graph = mine_graph(examples)
    train = [example for example in examples if example.split == "train"]
    validation = [example for example in examples if example.split == "validation"]
    if args.tiny:
        train, validation = train[:64], validation[:8]
    rows = train + validation
    planner = graph_readout(graph, rows, device, epochs=1 if args.tiny else 3)
    texts = [example.request for example in rows] + list(graph.texts)
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "versions": {name: importlib.metadata.version(name) for name in NEEDED},
        "rows": len(rows),
        "tools": graph.num_tools,
        "batch": args.batch,
        "peak_tflops": args.peak_tflops,
        "graph_readout_s": round(time.perf_counter() - started, 1),
    }
    aligning = 4 if args.tiny else 100
    small = LLMConfig(
        batch_size=args.batch, align_steps=aligning, plan_steps=args.steps, save_every=1,
        validate_every=max(1, args.steps // 3), fusion_rows=0,
    )  # fmt: skip
    # Few rows, so that requests come again: the first passes read them, the later ones know them.
    again = train[: args.batch * max(1, args.timed // 3)] + validation[:2]
    large = LLMConfig(
        batch_size=args.batch, align_steps=1, plan_steps=args.timed, save_every=1,
        validate_every=args.timed, validation_rows=2, fusion_rows=0,
    )  # fmt: skip
    for name, shape, config, part in (
        ("small", SMALL, small, rows),
        ("large", LARGE, large, again),
    ):
        begun = time.perf_counter()
        shape = TINY if args.tiny else shape
        tokenizer = learnt_tokenizer(texts, min(shape["vocab_size"], 16384))
        llm = random_llm(shape, tokenizer, device, torch.bfloat16)
        meter = Meter(llm)
        made = time.perf_counter()
        vectors = embed_requests([example.request for example in part], embed)
        result = train_llm_readout(llm, planner, part, vectors, config, seed=0, on_step=meter.step)
        report[name] = {
            "seconds": round(time.perf_counter() - begun, 1),
            "made_s": round(made - begun, 1),
            "train_loss": [round(sum(s) / len(s), 3) for s in thirds(meter.losses)],
            "validation_loss": [round(r["validation_loss"], 3) for r in result.history],
            **meter.report(args.batch, peak),
        }
        if device == "cuda":
            report[name]["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
            torch.cuda.reset_peak_memory_stats()
        del llm, meter
    report["seconds"] = round(time.perf_counter() - started, 1)
    report["under_five_minutes"] = report["seconds"] < 300
    return report


def thirds(values: Sequence[float]) -> list[Sequence[float]]:
    """The first, middle and last third of some values."""
    size = max(1, len(values) // 3)
    return [part for part in (values[:size], values[size:-size], values[-size:]) if part]


if __name__ == "__main__":
    main()
