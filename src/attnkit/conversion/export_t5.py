"""Export of imported T5 and mT5 to transformers, as they came."""

from __future__ import annotations

import json
from typing import Any

from attnkit.conversion.export_contents import ExportContents
from attnkit.errors import RunError
from attnkit.formats.huggingface import t5
from attnkit.formats.huggingface import translation_layout as layout
from attnkit.formats.huggingface.layout import to_theirs
from attnkit.models.config import TransformerConfig
from attnkit.protocols import EOS_ID
from attnkit.tasks.translation.loading import LoadedRun
from attnkit.text.piece_vocabulary import PieceVocabulary

_OTHER_IDS = "the entries of its vocabulary are not SentencePiece's pieces with sentinels behind them, as T5's are"
_TOLD = "transformers does not put '{}' before texts: do so, as README.md shows"
_USE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
lines = [{prefix}line for line in ["A dog runs."]]
ids = model.generate(**tokenizer(lines, return_tensors="pt", padding=True), num_beams=5)
print(*tokenizer.batch_decode(ids, skip_special_tokens=True), sep="\\n")"""


def t5_contents(loaded: LoadedRun, config: TransformerConfig, src: PieceVocabulary) -> ExportContents:
    """Convert an imported T5 back, with all tensors and pieces as they were.

    Raises ``RunError`` if the run has another vocabulary.
    """
    names, pieces = src.vocabulary, [piece.text for piece in src.model.pieces]
    n = len(src.symbols)
    usual = {name: id for id, name in enumerate(pieces)}
    usual |= {f"<extra_id_{i}>": len(pieces) + n - 1 - i for i in range(n)}
    if src.roles["pad"] is not None or src.codes != "anywhere" or names != usual:
        raise RunError(_OTHER_IDS, where="vocabulary", help="supported: vocabularies of imported T5 and mT5")
    # The sentinels of mT5 are pieces.
    kind = "t5" if n or config.scaled_output else "mt5"
    roles = {role: str(src.roles[own]) for role, own in (("pad", "bos"), ("eos", "eos"), ("unk", "unk"))}
    pad, eos = names[roles["pad"]], names[roles["eos"]]
    ids: dict[str, int | None] = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": pad}
    n_rows, longest = max(src.order) + 1, loaded.config.data.max_length + 1
    unnamed = sorted({*range(n_rows)} - {*names.values()})
    special = {f"{role}_token": name for role, name in roles.items()}
    sentinels = [f"<extra_id_{i}>" for i in range(n)]
    trees: dict[str, dict[str, Any]] = {
        "config.json": t5.t5_json(config, kind, n_rows, ids),
        "generation_config.json": {
            **ids,
            "max_length": longest,
            "num_beams": loaded.config.decoding.beam_size,
            "suppress_tokens": [pad, *unnamed],
        },
        "tokenizer_config.json": {
            "tokenizer_class": "T5Tokenizer",
            "model_max_length": longest,
            "extra_ids": n,
            "additional_special_tokens": sentinels,
            **special,
        },
        "special_tokens_map.json": {**special, "additional_special_tokens": sentinels},
    }
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    for name in layout.WORDS:
        state[name] = layout.to_their_order(state[name], src.order)
    before = json.dumps(f"{src.before} ", ensure_ascii=False) + " + " if src.before else ""
    use = _USE.format(prefix=before)
    warnings = (_TOLD.format(src.before),) if src.before else ()
    assert src.order[EOS_ID] == eos
    return ExportContents(trees, to_theirs(layout.t5_links(config), state), use, warnings, {"spiece.model": src.raw})
