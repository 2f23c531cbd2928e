"""Export of imported translation models to transformers, in their own layout."""

from typing import Any

from attnkit.conversion.export_contents import ExportContents
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import translation_layout as layout
from attnkit.models.config import TransformerConfig
from attnkit.protocols import PAD_ID
from attnkit.tasks.translation.loading import LoadedRun
from attnkit.text.piece_vocabulary import PieceVocabulary

_USE = """\
from transformers import MarianMTModel, MarianTokenizer

tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
ids = model.generate(**tokenizer(["A dog runs."], return_tensors="pt", padding=True), num_beams=5)
print(*tokenizer.batch_decode(ids, skip_special_tokens=True), sep="\\n")"""


def marian_contents(
    loaded: LoadedRun, config: TransformerConfig, src: PieceVocabulary, tgt: PieceVocabulary
) -> ExportContents:
    """Convert an imported Marian back, with all tensors and files as they were."""
    special: dict[str, Any] = {f"{role}_token": tgt.roles[role] for role in ("pad", "eos", "unk")}
    pad, eos = tgt.order[PAD_ID], tgt.vocabulary[str(tgt.roles["eos"])]
    ids: dict[str, int | None] = {"pad_token_id": pad, "bos_token_id": None, "eos_token_id": eos}
    ids |= {"decoder_start_token_id": pad, "forced_eos_token_id": eos}
    longest = loaded.config.data.max_length + 1
    separate = src.vocabulary != tgt.vocabulary
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "model_max_length": longest,
        **special,
    }
    generation = {**ids, "max_length": longest, "bad_words_ids": [[pad]], "num_beams": loaded.config.decoding.beam_size}
    trees = {
        "config.json": configs.marian_json(config, (len(set(src.order)), len(set(tgt.order))), longest, ids),
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer,
        "special_tokens_map.json": special,
        "vocab.json": src.vocabulary,
        **({"target_vocab.json": tgt.vocabulary} if separate else {}),
    }
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    for name in layout.WORDS:
        state[name] = layout.to_their_order(state[name], (src if name == layout.WORDS[0] else tgt).order)
    files = {"source.spm": src.raw, "target.spm": tgt.raw}
    return ExportContents(trees, layout.to_marian(config, state), _USE, files=files)
