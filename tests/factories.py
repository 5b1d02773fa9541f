"""The smallest believable deliveries, written as files."""

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path


def trajectory(native_id, *tools, request=None, split=None, **meta):
    """A normalised line: tools are names, or (name, observation) or (name, observation, error)."""
    steps = []
    for tool in tools:
        name, *rest = (tool,) if isinstance(tool, str) else tool
        step = {"tool": name, "arguments": {"n": len(steps)}}
        if rest:
            step["observation"] = rest[0]
        if len(rest) > 1:
            step["error"] = rest[1]
        steps.append(step)
    line = {
        "request": request or f"please do {native_id}",
        "steps": steps,
        "links": [],
        "meta": meta,
    }
    if native_id is not None:
        line["id"] = native_id
    if split:
        line["split"] = split
    return line


def tool(name, description="does it", **fields):
    """A line of tools.jsonl."""
    return {"name": name, "description": description, "parameters": [], **fields}


def write_lines(path: Path, lines) -> Path:
    """JSON lines; text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path


CHORES = {
    "find_flight": "Search for flights between two cities on a date",
    "book_flight": "Book a flight that was found",
    "find_hotel": "Search for hotels in a city",
    "book_hotel": "Book a room in a hotel",
    "get_weather": "Weather forecast of a city",
    "send_mail": "Send an e-mail to a person",
    "read_mail": "Read the newest e-mails",
    "add_event": "Add an event to the calendar",
    "list_events": "List the events in the calendar",
    "translate": "Translate a text into another language",
}
"""Ten small tools with what they do."""

_PLANS = {
    ("find_flight", "book_flight"): "book me a flight to {}",
    ("find_flight", "book_flight", "add_event"): "book a flight to {} and put it in my calendar",
    ("find_hotel", "book_hotel"): "I need a room in {}",
    ("find_hotel", "book_hotel", "send_mail"): "reserve a hotel in {} and mail it to my wife",
    ("get_weather",): "will it rain in {}",
    ("get_weather", "send_mail"): "mail me the forecast of {}",
    ("read_mail", "translate"): "read me the mail from {} in English",
    ("list_events", "send_mail"): "mail my events in {} to my boss",
    ("list_events", "add_event"): "plan a meeting in {} when I am free",
    ("translate", "send_mail"): "tell our partner in {} in their language",
    ("find_flight", "find_hotel"): "what would a trip to {} cost",
    ("read_mail", "add_event"): "put the invitation from {} in my calendar",
}
_CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Paris", "Perth", "Kyiv")


def chores(folder: Path, *, cities: int = 10, without: str | None = None) -> Path:
    """A small source: ten tools, 21 kinds of plan, one trajectory a city and kind."""
    tools = [tool(name, text) for name, text in CHORES.items() if name != without]
    kinds = list(_PLANS.items())
    kinds += [
        (a + b, f"{first}, then {second}")
        for (a, first), (b, second) in zip(kinds, kinds[3:], strict=False)
    ]
    # The source's own split: rows of every kind are tested.
    plans = [
        trajectory(
            f"{kind}-{city}",
            *plan,
            request=text.replace("{}", city),
            split="test" if (kind + place) % 4 == 0 else "train",
        )
        for kind, (plan, text) in enumerate(kinds)
        for place, city in enumerate(_CITIES[:cities])
        if without not in plan
    ]
    write_lines(folder / "tools.jsonl", tools)
    write_lines(folder / "trajectories.jsonl", plans)
    return folder


_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
_TEMPLATES = {
    "system": _TURNS,
    "no system": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}" + _TURNS,
    "llama2": "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} "
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}",
    "dated": "{{ strftime_now('%H:%M:%S.%f') }} " + _TURNS,
    "deaf": "{% for m in messages %}<|im_start|>{{ m['role'] }}<|im_end|>{% endfor %}",
    None: None,
}


def byte_tokenizer(template: str | None = "system"):
    """One token a byte, two control tokens; with a chat template, one without system role, none."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|im_start|>", "<|im_end|>"]
    vocabulary = {token: i for i, token in enumerate(specials + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = _TEMPLATES[template]
    return fast


def tiny_lm(kind: str = "llama", seed: int = 0):
    """A causal language model of transformers with random weights, two or more layers."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        Gemma2Config,
        Gemma3TextConfig,
        LlamaConfig,
        MistralConfig,
        Qwen2Config,
        Qwen3Config,
    )

    sizes = {
        "vocab_size": 258,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
        "initializer_range": 0.3,
    }
    if kind in ("gemma2", "gemma3"):  # every second layer looks back 24 tokens only
        kinds = ["sliding_attention", "full_attention"]
        made = Gemma2Config if kind == "gemma2" else Gemma3TextConfig
        config = made(num_hidden_layers=2, sliding_window=24, layer_types=kinds, **sizes)
    elif kind == "mistral":  # every layer does
        config = MistralConfig(num_hidden_layers=2, sliding_window=24, **sizes)
    else:
        sizes["num_hidden_layers"] = 2
        plain = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
        config = plain[kind](**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config)


def tiny_llm(kind: str = "llama", template: str | None = "system"):
    """A tiny frozen language model that reads bytes."""
    from models.llm import FrozenLLM

    return FrozenLLM(tiny_lm(kind), byte_tokenizer(template), name=f"tiny-{kind}", digest=kind)


def letter_vectors(texts):
    """Unit vectors of letter counts, in place of a text encoder."""
    import torch

    rows = torch.tensor(
        [[text.lower().count(chr(97 + i)) + 0.1 for i in range(26)] for text in texts]
    )
    return torch.nn.functional.normalize(rows, dim=1)


@lru_cache(maxsize=1)
def chores_planner():
    """A trained graph readout on the ten chores, its examples, and the vectors of their requests.

    What is made here is shared by tests, which must not change it.
    """
    import torch

    from models.candidates import embed_requests
    from models.gtool import GToolConfig, GToolPlanner
    from models.training import train_gtool
    from models.types import Example, ToolGraph

    keys = tuple(sorted(f"chores/{name}" for name in CHORES))
    row = {key: i for i, key in enumerate(keys)}
    plans = [
        ("find_flight", "book_flight"),
        ("find_hotel", "book_hotel", "send_mail"),
        ("get_weather",),
        ("read_mail", "translate"),
    ]
    pairs = sorted(
        {(row[f"chores/{a}"], row[f"chores/{b}"]) for plan in plans for a, b in pairwise(plan)}
    )
    graph = ToolGraph(
        "v",
        keys,
        tuple(CHORES[key.split("/")[1]] for key in keys),
        torch.tensor(pairs).T.contiguous(),
        torch.tensor([[4.0, 0.0]]).repeat(len(pairs), 1),
    )
    examples = [
        Example(
            f"{n}-{city}",
            f"{' then '.join(plan)} in {city}",
            tuple(f"chores/{name}" for name in plan),
            split="validation" if city == "Rome" else "train",
        )
        for n, plan in enumerate(plans)
        for city in ("Oslo", "Rome", "Lima", "Cairo")
    ]
    tool_x = letter_vectors(graph.texts)
    vectors = embed_requests([e.request for e in examples], letter_vectors)
    config = GToolConfig(hidden_channels=16, epochs=2, batch_size=8, min_steps=1)
    model = train_gtool(graph, tool_x, examples, vectors, config, seed=0).model
    return GToolPlanner(model, graph, tool_x, letter_vectors), examples, vectors
