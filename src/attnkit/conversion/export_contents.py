"""Contents of a folder that is exported to transformers."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class ExportContents:
    """Contents of an exported folder."""

    trees: dict[str, dict[str, Any]]  #: JSON files by name; ``target/`` contains a separate target tokenizer
    tensors: dict[str, Tensor]
    use: str  #: Python example for the model card
    warnings: tuple[str, ...] = ()  #: parts that are not exported
    files: dict[str, bytes] = field(default_factory=dict)  #: other files by name
