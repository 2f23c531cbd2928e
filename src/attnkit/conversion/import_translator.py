"""Import of translation models from Hugging Face folders.

As for other models, the names and shapes of all tensors are derived from ``config.json`` before any is read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.checkpoints.weights import safetensors_header
from attnkit.config import validate
from attnkit.conversion.import_pieces import read_vocabularies
from attnkit.conversion.imported_run import ImportedModel
from attnkit.conversion.piece_vocabularies import ForeignVocabulary
from attnkit.conversion.prune_vocabulary import prune_vocabularies
from attnkit.conversion.vocabulary_files import read_tree
from attnkit.decoding.config import SearchConfig
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import TASKS
from attnkit.engine.vocabularies import Vocabularies
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface import translation_layout as layout
from attnkit.formats.huggingface import weights
from attnkit.formats.huggingface.layout import Link, their_shapes
from attnkit.formats.huggingface.t5 import T5_KINDS
from attnkit.formats.huggingface.translation_config import ForeignTranslator, read_translator
from attnkit.models.config import TransformerConfig
from attnkit.models.layer_config import ties_sides
from attnkit.models.parameter_shapes import transformer_shapes
from attnkit.models.transformer import MASKED, Transformer
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.text.tags import language_of_code

_TOGETHER = "check that config.json and the weights belong together"
MAX_LENGTH = 512  #: tokens of a line, with EOS; Marian was not trained on longer ones
_ROWS = 4096  #: words whose vectors are in memory at once
_UNKNOWN = "the vocabulary lacks characters of '{text}', before all sources: they are read as unknown"
_DRIFTED = """\
the vector from which the decoder starts is zero now; it had a norm of {norm:.3g}, since transformers changes it in \
training, unlike Marian and CTranslate2"""

_NO_LANGUAGES = "the run has no usual {what}: name {them} when it translates ({options}), and both to train it (--pair)"


def convert_translator(
    folder: Path,
    tree: Mapping[str, Any],
    languages: tuple[str | None, str | None] = (None, None),
    text: Sequence[Path] = (),
    source_prefix: str = "",
) -> ImportedModel:
    """Convert the translation model of a folder, whose ``config.json`` is ``tree``.

    ``languages`` are the codes of source and target, for a model with codes of its own. With files of ``text``, entries
    that they do not use are left out. ``source_prefix`` is put before all sources of a T5.

    Raises ``RunError`` if it is unsupported or damaged, ``DataError`` if text cannot be read.
    """
    found = read_translator(tree, str(folder / "config.json"))
    path = weights.find_weights(folder)
    with weights.opened(path) as opened:
        if found.kind in T5_KINDS:
            found = replace(found, config=_as_tied(found.config, opened))
        links = layout.LINKS[found.kind](found.config)
        has_bias = _check_tensors(found, links, opened, str(path))
        whole = read_vocabularies(folder, found, languages, source_prefix)
        sides = prune_vocabularies(whole, text) if text else whole
        config = _run_config(folder, found, sides)
        source = WeightSource(path, config.model, links, sides, has_bias)
        warnings = source.warnings(opened)
    warning, command = _missing_languages(sides)
    warnings = (*warnings, *warning)
    if UNK_ID in sides[0].tokenizer.code_ids:
        warnings = (*warnings, _UNKNOWN.format(text=source_prefix))
    tokenizers = Vocabularies(*(side.tokenizer for side in sides))
    n_parameters = sum(map(math.prod, source.shapes.values()))
    sizes = [side.tokenizer.vocab_size for side in sides]
    content = "translation", config, tokenizers.files(), source.chunks, n_parameters, sizes[1], warnings
    n_dropped = len(whole[1].order) - sizes[1] if text else 0
    before = transformer_shapes(config.model, *(len(side.order) for side in whole))
    n_bytes = 4 * (sum(map(math.prod, before.values())) - n_parameters) if text else 0
    return ImportedModel(*content, n_dropped, n_bytes, command)


def _missing_languages(sides: Sequence[ForeignVocabulary]) -> tuple[list[str], str | None]:
    """Return a warning and a command for sides without a usual language, if any.

    The command names one of the model's languages for each of these sides.
    """
    codes = sides[0].tokenizer.language_codes
    usual = [side.tokenizer.pieces.code for side in sides if side.tokenizer.pieces is not None]
    if not codes or None not in usual:
        return [], None
    rest = [code for code in codes if code not in usual] or codes
    names = ("source language", "--src-lang", rest[0]), ("target language", "--tgt-lang", rest[:2][-1])
    missing = [own for own, code in zip(names, usual, strict=True) if code is None]
    what, them = ("languages", "them") if len(missing) == 2 else (missing[0][0], "it")
    options = ", ".join(option for _, option, _ in missing)
    command = " ".join(["translate", *(f"{option} {language_of_code(code)}" for _, option, code in missing)])
    return [_NO_LANGUAGES.format(what=what, them=them, options=options)], command


@dataclass(frozen=True)
class WeightSource:
    """Weights of a run, made of a file tensor by tensor to save memory."""

    path: Path
    config: TransformerConfig
    links: list[Link]
    sides: tuple[ForeignVocabulary, ForeignVocabulary]
    has_bias: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each tensor of our checkpoint."""
        return transformer_shapes(self.config, *(side.tokenizer.vocab_size for side in self.sides))

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield a safetensors file; raise ``RunError`` if a tensor is damaged."""
        shapes = dict(sorted(self.shapes.items()))  # the order in which trained weights are saved
        yield safetensors_header(shapes)
        links = {link.ours if link.ours in shapes else layout.WORDS[0]: link for link in self.links}
        links.setdefault("output.bias", Link("output.bias", (layout.BIAS,)))
        with weights.opened(self.path) as opened:
            for name, shape in shapes.items():
                n_floats = 0
                for tensor in self._parts(links[name], opened):
                    n_floats += tensor.numel()
                    yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
                assert n_floats == math.prod(shape)

    def _parts(self, link: Link, opened: weights.TensorFile) -> Iterator[Tensor]:
        """Yield one of our tensors in parts: rows of words in the order of our ids."""
        order = self.sides[link.ours != layout.WORDS[0]].order
        n_fixed = EOS_ID if self.config.decoder_start == "zero" else PAD_ID
        fixed = slice(PAD_ID, n_fixed if self.config.output_bias else BOS_ID)
        if link.ours == "output.bias":
            known = link.theirs == (layout.BIAS,) and self.has_bias
            tensor = opened.read(layout.BIAS)[0] if known else torch.zeros(max(order) + 1)  # (1, V) to (V,)
            tensor = layout.to_our_order(tensor, order)
            tensor[fixed] = MASKED
            yield tensor
        elif link.ours in layout.WORDS:  # the largest tensors: not all rows are in memory at once
            for first in range(0, len(order), _ROWS):
                rows = order[first : first + _ROWS]
                tensor = link.join({name: opened.read_rows(name, rows) for name in link.theirs})
                if first == 0:
                    tensor[fixed] = 0
                yield tensor
        else:
            yield link.join({name: opened.read(name) for name in link.theirs})

    def warnings(self, opened: weights.TensorFile) -> tuple[str, ...]:
        """Return a warning if the decoder of the file does not start from zero."""
        if self.config.decoder_start != "zero":
            return ()
        (name,) = next(link.theirs for link in self.links if link.ours == "decoder.embedding.words.weight")
        norm = float(opened.read_rows(name, [self.sides[1].order[BOS_ID]]).norm())
        return (_DRIFTED.format(norm=norm),) if norm else ()


def _as_tied(config: TransformerConfig, opened: weights.TensorFile) -> TransformerConfig:
    """Return the configuration of a T5 with the embeddings that its weights tie.

    Newer versions of transformers write that all are tied, whatever is in the file.
    """
    names = ("lm_head.weight", "shared.weight")
    if names[0] not in opened.entries:
        return config.model_copy(update={"tie_embeddings": "all"})
    if config.tie_embeddings == "inputs":
        return config
    shapes = {opened.entries[name].shape if name in opened.entries else () for name in names}
    same = len(shapes) == 1 and all(
        torch.equal(*(opened.read_rows(name, rows) for name in names))
        for n_rows in [next(iter(shapes))[0]]
        for rows in (range(first, min(n_rows, first + _ROWS)) for first in range(0, n_rows, _ROWS))
    )
    return config if same else config.model_copy(update={"tie_embeddings": "inputs"})


def _check_tensors(found: ForeignTranslator, links: list[Link], opened: weights.TensorFile, where: str) -> bool:
    """Check names and shapes of tensors; return whether there is an output bias.

    Raises ``RunError`` if they do not match ``config.json``.
    """
    with torch.device("meta"), SkipWeightInit():  # shapes only
        outline = Transformer(found.config, *found.vocab_sizes).state_dict()
    expected = their_shapes(links, outline)
    expected[layout.BIAS] = (1, found.vocab_sizes[1])
    entries = opened.entries
    has_bias = found.config.output_bias and layout.BIAS in entries
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
    decoding = {"beam_size": n_beams} if type(n_beams) is int and 1 <= n_beams <= 64 else {}
    longest, most = min(MAX_LENGTH, found.max_positions), found.config.max_positions
    if most is not None and SearchConfig().limit(longest) > most:
        decoding["max_length"] = most
    tree = spec.preset("base", found.config.kind) | {
        "task": "translation",
        "data": {"src": [str(folder)], "tgt": [str(folder)], "max_length": longest - 1},
        "model": found.config.model_dump(mode="json"),
        "vocabulary": sides[0].tokenizer.config.model_dump(mode="json"),
        "joint_vocabulary": ties_sides(found.config.tie_embeddings),
        "decoding": decoding,
        "preset": "base",
    }
    try:
        return validate(spec.config, tree)
    except UsageError as error:
        raise RunError(f"the model cannot be imported: {error.what}", where=str(folder / "config.json")) from error
