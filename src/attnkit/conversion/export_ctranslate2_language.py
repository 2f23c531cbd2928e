"""Contents of a CTranslate2 folder of an encoder or a generator."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.conversion import ctranslate2_readme as readme
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.formats.ctranslate2 import Arrays, entry_names, names_in, tokenizer_file
from attnkit.formats.ctranslate2_language import make_encoder_spec, make_generator_spec, n_positions
from attnkit.formats.huggingface.tokenizer import GPT, bert_roles
from attnkit.models.electra import Electra
from attnkit.models.language_config import BertConfig
from attnkit.tasks.language_modeling.config import MASK
from attnkit.text.tokenizer import Tokenizer

_PIECES = "sentencepiece.model"
_NO_HEAD = "the masked-LM head is not exported: CTranslate2 runs an encoder up to its features"
_NO_GENERATOR = "the encoder is exported: neither the generator nor the head that detects replaced tokens"
_NO_JUDGE = "the next-sentence head is exported up to its pooler, which is where CTranslate2 ends"


@dataclass(frozen=True)
class CTranslate2Contents:
    """A model specification of CTranslate2 and the files beside it."""

    spec: Any
    files: dict[str, bytes]
    warnings: tuple[str, ...] = ()  #: parts that are not exported


def language_contents(run: Path, chosen: Checkpoint, task: str, quantization: str | None) -> CTranslate2Contents:
    """Convert a BERT, with or without a task head, or a GPT that passed the check.

    Raises ``RunError`` if the run is damaged, or two entries of its vocabulary would have the same name.
    """
    opened = load_model(run, task, device="cpu", checkpoint=chosen.name)
    tokenizer = read_tokenizer(chosen)
    state: dict[str, Tensor] = opened.model.state_dict()
    arrays = {name: tensor.detach().numpy() for name, tensor in state.items()}
    if task == "clm":
        return _generator(opened, tokenizer, arrays, quantization)
    return _encoder(opened, tokenizer, task, arrays, quantization)


def _generator(
    opened: LoadedModel, tokenizer: Tokenizer, arrays: Arrays, quantization: str | None
) -> CTranslate2Contents:
    config = opened.config.model
    if tokenizer.pieces is not None:  # the file that was imported
        files, names = {_PIECES: tokenizer.pieces.raw}, entry_names(tokenizer)
    else:
        files = {"tokenizer.json": tokenizer_file(tokenizer, GPT)}
        names = names_in(files["tokenizer.json"])
    spec = make_generator_spec(config, arrays, names, quantization)
    card = readme.generator_card(
        opened.checkpoint.name, tokenizer, n_positions(config), opened.config.data.sequence_length
    )
    return CTranslate2Contents(spec, {**files, "README.md": card})


def _encoder(
    opened: LoadedModel, tokenizer: Tokenizer, task: str, arrays: Arrays, quantization: str | None
) -> CTranslate2Contents:
    config: BertConfig = opened.config.model
    if tokenizer.pieces is not None:
        files, names = {_PIECES: tokenizer.pieces.raw}, entry_names(tokenizer)
    else:
        roles = bert_roles(config.separators, segments=config.n_segments > 1)
        mask = MASK if MASK in tokenizer.config.symbols else None
        files = {"tokenizer.json": tokenizer_file(tokenizer, roles, mask)}
        names = names_in(files["tokenizer.json"])
    warnings: tuple[str, ...] = ()
    if task == "mlm":
        pooler = "next_sentence.pooler.linear" if config.next_sentence else None
        warnings = (_NO_HEAD, *([_NO_JUDGE] if config.next_sentence else []))
        limit = config.max_text_length
        if isinstance(opened.model, Electra):
            arrays = {name.removeprefix("encoder."): array for name, array in arrays.items()}
            warnings = (_NO_GENERATOR,)
    else:
        arrays = {name.removeprefix("encoder."): array for name, array in arrays.items()}
        pooler = "pooler.linear" if task == "text-classification" else None
        limit = opened.config.max_row_length
        files["head.npz"] = _packed({kind: arrays[f"output.{kind}"] for kind in ("weight", "bias")})
    if task in ("text-classification", "token-classification"):
        labels = read_labels(opened.checkpoint).labels
        files["labels.json"] = (json.dumps(list(labels), indent=2, ensure_ascii=False) + "\n").encode()
    limit = min(limit, n_positions(config) or limit)
    spec = make_encoder_spec(config, arrays, names, pooler, quantization)
    files["README.md"] = readme.encoder_card(opened.checkpoint.name, task, config, tokenizer, limit)
    return CTranslate2Contents(spec, files, warnings)


def _packed(arrays: dict[str, Any]) -> bytes:
    """Return arrays as an ``.npz`` file, which numpy reads."""
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()
