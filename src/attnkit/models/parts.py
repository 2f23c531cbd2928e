"""Parts of models, by the names of parameters. Torch-free."""

import re
from collections.abc import Callable, Iterable
from typing import Literal

PartName = Literal["embeddings", "encoder", "decoder", "output"]
LanguagePartName = Literal["embeddings", "layers", "output"]
_LAYER = re.compile(r"(?:(encoder|decoder)\.)?(?:layers|forwards|backwards)\.(\d+)\.")
_LANGUAGE_EMBEDDINGS = ("embedding.", "embedding_norm.", "embedding_map.", "places.", "segments.")
_LANGUAGE_HEADS = ("output.", "predictor.", "next_sentence.", "detector.", "generator.")


def part_of(name: str) -> PartName:
    """Return the part of a translator's parameter; tied matrices are embeddings.

    >>> [part_of(name) for name in ("encoder.embedding.words.weight", "bridge.maps.0.weight", "output.bias")]
    ['embeddings', 'decoder', 'output']
    """
    if name.startswith(("src_embedding.", "tgt_embedding.", "encoder.embedding.", "decoder.embedding.")):
        return "embeddings"
    if name.startswith("encoder."):
        return "encoder"
    return "output" if name.startswith("output.") else "decoder"


def language_part_of(name: str) -> LanguagePartName:
    """Return the part of a parameter of BERT or GPT; tied matrices are embeddings.

    The final norm belongs to the layers; all of an ELECTRA but its encoder is output.

    >>> [language_part_of(name) for name in ("places.table.table", "layers.1.norm.bias", "predictor.norm.bias")]
    ['embeddings', 'layers', 'output']
    """
    name = name.removeprefix("encoder.")
    if name.startswith(_LANGUAGE_EMBEDDINGS):
        return "embeddings"
    return "output" if name.startswith(_LANGUAGE_HEADS) else "layers"


def is_in_lowest_layers(name: str, n_layers: int) -> bool:
    """Return whether a parameter is in one of the lowest layers of BERT or GPT."""
    match = _LAYER.match(name)
    return match is not None and int(match[2]) < n_layers


def layerwise_rates(names: Iterable[str], decay: float, part: Callable[[str], str] = part_of) -> dict[str, float]:
    """Return the learning-rate multipliers of parameters, given by name.

    ``part`` names the part of a parameter. A layer of encoder, decoder or language model has ``decay`` times that of
    the layer above it, the embeddings ``decay`` times the lowest (Howard and Ruder 2018, section 3.2). The top layers
    and everything above have 1.
    """
    names = list(names)
    found = {name: (match[1], int(match[2])) for name in names if (match := _LAYER.match(name))}
    tops: dict[str | None, int] = {}
    for stack, number in found.values():
        tops[stack] = max(tops.get(stack, 0), number)
    rates = {name: decay ** (tops[stack] - number) for name, (stack, number) in found.items()}
    lowest = decay ** (1 + max(tops.values(), default=0))
    return rates | {name: lowest for name in names if part(name) == "embeddings"}
