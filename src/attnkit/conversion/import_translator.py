"""Import of translation models from Hugging Face folders: Marian of OPUS-MT.

As for other models, the names and shapes of all tensors are derived from ``config.json`` before any is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.checkpoints.weights import tensors_of
from attnkit.config import validate
from attnkit.conversion.import_pieces import ForeignVocabulary, read_vocabularies
from attnkit.conversion.import_vocabulary import read_tree
from attnkit.conversion.imported_run import ImportedModel
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import TASKS
from attnkit.engine.vocabularies import Vocabularies
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface import translation_layout as layout
from attnkit.formats.huggingface import weights
from attnkit.formats.huggingface.layout import Link, their_shapes
from attnkit.formats.huggingface.translation_config import ForeignTranslator, read_translator
from attnkit.models.transformer import MASKED, Transformer
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

_TOGETHER = "check that config.json and the weights belong together"
MAX_LENGTH = 512  #: tokens of a line, with EOS; Marian was not trained on longer ones
_DRIFTED = """\
the vector from which the decoder starts is zero now; it had a norm of {norm:.3g}, since transformers changes it in \
training, unlike Marian and CTranslate2"""


def convert_translator(folder: Path, tree: Mapping[str, Any]) -> ImportedModel:
    """Convert the translation model of a folder, whose ``config.json`` is ``tree``.

    Raises ``RunError`` if it is unsupported or damaged.
    """
    found = read_translator(tree, str(folder / "config.json"))
    path = weights.find_weights(folder)
    with weights.opened(path) as opened:
        links = layout.marian_links(found.config)
        has_bias = _check_tensors(found, links, opened, str(path))
        sides = read_vocabularies(folder, found)
        config = _run_config(folder, found, sides)
        model = Transformer(config.model, *(side.tokenizer.vocab_size for side in sides))
        warnings = _fill(model, links, opened, sides, has_bias)
    tokenizers = Vocabularies(*(side.tokenizer for side in sides))
    size = tokenizers.tgt.vocab_size
    return ImportedModel("translation", config, tokenizers.files(), model, size, warnings)


def _check_tensors(found: ForeignTranslator, links: list[Link], opened: weights.TensorFile, where: str) -> bool:
    """Check names and shapes of tensors; return whether there is an output bias.

    Raises ``RunError`` if they do not match ``config.json``.
    """
    with torch.device("meta"), SkipWeightInit():  # shapes only
        outline = Transformer(found.config, *found.vocab_sizes).state_dict()
    expected = their_shapes(links, outline)
    expected[layout.BIAS] = (1, found.vocab_sizes[1])
    entries = opened.entries
    has_bias = layout.BIAS in entries
    if not has_bias:
        del expected[layout.BIAS]
    for name, shape in expected.items():
        if name not in entries:
            what = f"the weights lack '{name}'"
        elif (entry := entries[name]).shape != shape:
            what = f"'{name}' has shape {list(entry.shape)}, but config.json implies {list(shape)}"
        elif entry.dtype not in weights.DTYPES:
            what = f"'{name}' has the unsupported dtype {entry.dtype}"
        else:
            continue
        raise RunError(what, where=where, help=_TOGETHER)
    opened.check_size(expected)
    left = entries.keys() - expected.keys() - layout.redundant_names(found.config)
    if strange := sorted(name for name in left if not layout.BUFFERS.fullmatch(name)):
        what = f"unexpected weight '{strange[0][:80]}' for a {found.kind} with this config.json"
        raise RunError(what, where=where, help=_TOGETHER)
    return has_bias


def _run_config(folder: Path, found: ForeignTranslator, sides: tuple[ForeignVocabulary, ForeignVocabulary]) -> Any:
    """Return the run configuration that matches the imported weights."""
    spec = TASKS["translation"]
    generation = read_tree(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    n_beams = generation.get("num_beams", found.n_beams)
    tree = spec.preset("base", found.config.kind) | {
        "task": "translation",
        "data": {"src": [str(folder)], "tgt": [str(folder)], "max_length": min(MAX_LENGTH, found.max_positions) - 1},
        "model": found.config.model_dump(mode="json"),
        "vocabulary": sides[0].tokenizer.config.model_dump(mode="json"),
        "joint_vocabulary": found.config.tie_embeddings == "all",
        "decoding": {"beam_size": n_beams} if type(n_beams) is int and 1 <= n_beams <= 64 else {},
        "preset": "base",
    }
    try:
        return validate(spec.config, tree)
    except UsageError as error:
        raise RunError(f"the model cannot be imported: {error.what}", where=str(folder / "config.json")) from error


def _fill(
    model: Transformer,
    links: list[Link],
    opened: weights.TensorFile,
    sides: tuple[ForeignVocabulary, ForeignVocabulary],
    has_bias: bool,
) -> tuple[str, ...]:
    """Copy the imported weights into our model; return warnings."""
    own, warnings = tensors_of(model), list[str]()
    zero = model.first_target == EOS_ID
    with torch.no_grad():
        for link in links:
            if link.theirs == (layout.BIAS,) and not has_bias:
                continue
            tensor = link.join({name: opened.read(name) for name in link.theirs})
            if link.ours in layout.WORDS:
                side = sides[0] if link.ours == layout.WORDS[0] else sides[1]
                tensor = layout.to_our_order(tensor.reshape(-1, *own[_known(own, link.ours)].shape[1:]), side.order)
                if zero and link.ours == "decoder.embedding.words.weight" and (norm := float(tensor[BOS_ID].norm())):
                    warnings.append(_DRIFTED.format(norm=norm))
                if zero:
                    tensor[PAD_ID:EOS_ID] = MASKED if link.ours == "output.bias" else 0
            own[_known(own, link.ours)].copy_(tensor)
    return tuple(warnings)


def _known(own: Mapping[str, Tensor], name: str) -> str:
    """Return the name of a tensor in a checkpoint, which names tied ones once."""
    return name if name in own else "encoder.embedding.words.weight"
