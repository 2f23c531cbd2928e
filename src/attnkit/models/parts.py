"""Parts of translation models, by the names of parameters. Torch-free."""

import re
from collections.abc import Iterable
from typing import Literal

PartName = Literal["embeddings", "encoder", "decoder", "output"]
_LAYER = re.compile(r"(encoder|decoder)\.(?:layers|forwards|backwards)\.(\d+)\.")


def part_of(name: str) -> PartName:
    """Return the part of a parameter; tied matrices belong to the embeddings.

    >>> [part_of(name) for name in ("encoder.embedding.words.weight", "bridge.maps.0.weight", "output.bias")]
    ['embeddings', 'decoder', 'output']
    """
    if name.startswith(("src_embedding.", "tgt_embedding.", "encoder.embedding.", "decoder.embedding.")):
        return "embeddings"
    if name.startswith("encoder."):
        return "encoder"
    return "output" if name.startswith("output.") else "decoder"


def layerwise_rates(names: Iterable[str], decay: float) -> dict[str, float]:
    """Return the learning-rate multipliers of parameters, given by name.

    A layer of encoder or decoder has ``decay`` times that of the layer above it, the embeddings ``decay`` times the
    lowest (Howard and Ruder 2018, section 3.2). The top layers and everything above have 1.
    """
    names = list(names)
    found = {name: (match[1], int(match[2])) for name in names if (match := _LAYER.match(name))}
    tops: dict[str, int] = {}
    for stack, number in found.values():
        tops[stack] = max(tops.get(stack, 0), number)
    rates = {name: decay ** (tops[stack] - number) for name, (stack, number) in found.items()}
    lowest = decay ** (1 + max(tops.values(), default=0))
    return rates | {name: lowest for name in names if part_of(name) == "embeddings"}
