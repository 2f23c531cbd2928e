"""Export of imported M2M100, NLLB-200 and mBART-50 to transformers, as they came."""

from typing import Any

from attnkit.conversion.export_contents import ExportContents
from attnkit.errors import RunError
from attnkit.formats.exportable import Coded
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import translation_layout as layout
from attnkit.formats.huggingface.layout import to_theirs
from attnkit.formats.huggingface.piece_tokenizer import (
    added_symbols,
    added_tokens,
    piece_names,
    pieces_cut_again,
    tokenizer_tree,
)
from attnkit.models.config import TransformerConfig
from attnkit.tasks.translation.loading import LoadedRun
from attnkit.text.piece_vocabulary import PieceVocabulary

_NO_BIAS = """\
train with --set 'finetuning.freeze=[output]', which leaves it at zero; --to ctranslate2 keeps it"""
_ONE_LANGUAGE = """\
NllbTokenizer of transformers puts a space behind added symbols: the tokenizer is a {tokenizer}, which always \
puts {code} before texts"""
_CUT_AGAIN = "transformers does not cut words that are exactly '{}', as sentencepiece does ({:,} such pieces)"
_WMT21 = 8  #: languages of the models of WMT 2021, which M2M100Tokenizer knows beside its hundred
_USE = """\
from transformers import AutoModelForSeq2SeqLM, {tokenizer}

tokenizer = {tokenizer}.from_pretrained("."{languages})
model = AutoModelForSeq2SeqLM.from_pretrained(".")
first = tokenizer.convert_tokens_to_ids("{code}")
inputs = tokenizer(["A dog runs."], return_tensors="pt", padding=True)
ids = model.generate(**inputs, num_beams=5, forced_bos_token_id=first)
print(*tokenizer.batch_decode(ids, skip_special_tokens=True), sep="\\n")"""


def coded_contents(
    loaded: LoadedRun, config: TransformerConfig, kind: Coded, src: PieceVocabulary, tgt: PieceVocabulary
) -> ExportContents:
    """Convert an imported model with language codes back; sides share a vocabulary.

    Raises ``RunError`` if the run has trained an output bias that the model type lacks, or its vocabulary is none of
    such a model.
    """
    if None in (src.code, tgt.code, *src.roles.values()):
        what = f"the vocabulary has no language codes, or lacks a special token, unlike that of every {kind}"
        raise RunError(what, where="vocabulary", help="supported: vocabularies of imported models, and attnkit's own")
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    if kind == "m2m_100" and bool(state["output.bias"].any()):
        what = "M2M100 and NLLB-200 have no bias of the output layer, but this run has trained one"
        raise RunError(what, where="output.bias", help=_NO_BIAS)
    for name in layout.WORDS:
        state[name] = layout.to_their_order(state[name], src.order)
    roles = {role: str(name) for role, name in src.roles.items()}
    ids: dict[str, int | None] = {f"{role}_token_id": src.vocabulary[roles[role]] for role in ("pad", "bos", "eos")}
    ids["decoder_start_token_id"] = ids["eos_token_id"]
    longest = config.max_length if config.positions == "learned" else loaded.config.data.max_length + 1
    codes = [str(side.code) for side in (src, tgt)]
    of_m2m = codes[0].startswith("__")
    tokenizer = "MBart50Tokenizer" if kind == "mbart" else "M2M100Tokenizer" if of_m2m else "NllbTokenizer"
    languages = dict(zip(("src_lang", "tgt_lang"), (code.strip("_") for code in codes), strict=True))
    special: dict[str, Any] = {f"{role}_token": roles[role] for role in ("bos", "eos", "unk", "pad")}
    special |= {"sep_token": roles["eos"], "cls_token": roles["bos"]} | {"additional_special_tokens": list(src.symbols)}
    if "<mask>" in src.vocabulary:
        special["mask_token"] = "<mask>"
    warnings: tuple[str, ...] = ()
    if tokenizer == "NllbTokenizer" and added_symbols(src):
        tokenizer, languages = "PreTrainedTokenizerFast", {}
        cut = pieces_cut_again(src)
        warnings = (_ONE_LANGUAGE.format(tokenizer=tokenizer, code=codes[0]),)
        warnings += (_CUT_AGAIN.format(cut[0], len(cut)),) if cut else ()
    settings = {"tokenizer_class": tokenizer, "model_max_length": longest, **languages, **special}
    settings["added_tokens_decoder"] = {str(token["id"]): token for token in added_tokens(src)}
    trees: dict[str, dict[str, Any]] = {
        "config.json": configs.coded_json(config, kind, len(src.order), longest, ids),
        "generation_config.json": {
            **ids,
            "max_length": longest,
            "num_beams": loaded.config.decoding.beam_size,
            "forced_bos_token_id": tgt.vocabulary[codes[1]],
            "bad_words_ids": [[ids["bos_token_id"]], [src.vocabulary[roles["pad"]]]],
        },
        "tokenizer_config.json": settings,
        "special_tokens_map.json": special,
    }
    if of_m2m:
        settings |= {"language_codes": "wmt21" if len(src.symbols) == _WMT21 else "m2m100", "num_madeup_words": 8}
        trees["vocab.json"] = piece_names(src)
    elif kind == "m2m_100":
        trees["tokenizer.json"] = tokenizer_tree(src, codes[0])
    tensors = to_theirs(layout.LINKS[kind](config), state)
    if layout.BIAS in tensors:
        tensors[layout.BIAS] = tensors[layout.BIAS][None]  # (V,) to (1, V)
    given = "".join(f', {name}="{language}"' for name, language in languages.items())
    use = _USE.format(tokenizer=tokenizer, languages=given, code=codes[1])
    return ExportContents(trees, tensors, use, warnings, files={"sentencepiece.bpe.model": src.raw})
