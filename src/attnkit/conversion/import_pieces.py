"""Import of the vocabularies of translation models: SentencePiece files and ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from attnkit.conversion.import_t5_pieces import read_t5_vocabularies
from attnkit.conversion.import_vocabulary import read_own_vocabulary
from attnkit.conversion.piece_vocabularies import ForeignVocabulary, make_piece_vocabulary
from attnkit.conversion.vocabulary_files import read_file, read_settings, read_tree
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface.t5 import T5_KINDS
from attnkit.formats.huggingface.translation_config import ForeignTranslator
from attnkit.text.config import LANGUAGE_CODE
from attnkit.text.sentencepiece_file import MAX_FILE_BYTES, read_sentencepiece
from attnkit.text.tags import code_of
from attnkit.text.vocabulary_schema import MAX_BYTES

T = TypeVar("T")
_MOST_CODES = 4096
_MBART_50 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)  #: languages of mBART-50 in the order of their ids, which follow those of the pieces
_NAMED_IN_TEXT = "T5 and mT5 have no language codes: what to do stands before the text"
_PREFIX = """\
leave them out, and give the words that the model knows, e.g. --source-prefix "translate English to German:\""""
_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  #: first ids of fairseq


def read_vocabularies(
    folder: Path,
    found: ForeignTranslator,
    languages: tuple[str | None, str | None] = (None, None),
    source_prefix: str = "",
) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Read the vocabularies of source and target; one object if both share it.

    ``languages`` are codes of the model; None: that side has no usual language. ``source_prefix`` is text before the
    sources of a T5. Raises ``UsageError`` if it lacks one or has none, ``RunError`` if files are missing, damaged, or
    do not fit ``config.json``.
    """
    read_settings(folder)  # refuses a tokenizer that is code of the folder
    if found.kind in T5_KINDS:
        if languages != (None, None):
            raise UsageError(_NAMED_IN_TEXT, where="--src-lang, --tgt-lang", help=_PREFIX)
        return read_t5_vocabularies(folder, found, source_prefix)
    if source_prefix:
        what = f"the sources of a {found.kind} have no prefix in words"
        raise UsageError(what, where="--source-prefix", help="leave it out; it is for t5 and mt5")
    if found.kind != "marian":
        return _read_coded(folder, found, languages)
    if languages != (None, None):
        what = "the languages of a Marian are in its files, or codes such as >>fra<< at the start of lines"
        raise UsageError(
            what, where="--src-lang, --tgt-lang", help="leave them out; M2M100, NLLB-200 and mBART-50 take them"
        )
    if found.config.decoder_start == "bos":  # only attnkit's own exports start from a token of its own
        return _read_own(folder, found)
    settings = read_settings(folder)
    separate = settings.get("separate_vocabs") is True
    files = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    raw = [read_file(folder / name, MAX_FILE_BYTES, bytes) for name in ("source.spm", "target.spm")]
    if raw[0] == raw[1] and not separate:
        both = _marian(folder, "source.spm", raw[0], files[0], settings, found, found.vocab_sizes[0])
        return both, both
    src = _marian(folder, "source.spm", raw[0], files[0], settings, found, found.vocab_sizes[0])
    return src, _marian(folder, "target.spm", raw[1], files[1], settings, found, found.vocab_sizes[1])


def _marian(
    folder: Path, spm: str, raw: bytes, file: str, settings: Mapping[str, Any], found: ForeignTranslator, n_rows: int
) -> ForeignVocabulary:
    """Return the vocabulary of one side of Marian."""
    vocabulary = read_tree(folder / file, MAX_BYTES)
    names = {id: name for name, id in vocabulary.items() if type(id) is int}
    unknown = settings.get("unk_token", "<unk>")
    unknown = unknown.get("content") if isinstance(unknown, Mapping) else unknown
    roles = {"pad": names.get(found.pad_id), "bos": None, "eos": names.get(found.eos_id), "unk": unknown}
    for role, id in (("pad", found.pad_id), ("eos", found.eos_id)):
        if roles[role] is None:
            what = f"{role}_token_id {id} of config.json is not in {file}"
            raise RunError(what, where=str(folder / file), help="use the files of one model")
    codes = sorted((id, name) for id, name in names.items() if name.startswith(">>") and name.endswith("<<"))
    symbols = [name for _, name in codes if len(name) <= 100 and name.split() == [name]][:_MOST_CODES]
    return make_piece_vocabulary(folder / spm, raw, vocabulary, roles, n_rows, symbols, "marked")


def _read_coded(
    folder: Path, found: ForeignTranslator, languages: tuple[str | None, str | None]
) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Read the vocabulary of a model with language codes, with any language per side.

    Raises ``UsageError`` if a language is unknown, ``RunError`` as ``read_vocabularies``.
    """
    raw = read_file(folder / "sentencepiece.bpe.model", MAX_FILE_BYTES, bytes)
    vocabulary, added = (_mbart_names if found.kind == "mbart" else _m2m_names)(folder)
    vocabulary |= {name: id for name, id in added.items() if name not in vocabulary}
    names = {id: name for name, id in vocabulary.items()}
    roles = {"pad": names.get(found.pad_id), "bos": names.get(0), "eos": names.get(found.eos_id), "unk": "<unk>"}
    if missing := [role for role, name in roles.items() if name is None]:
        what = f"the vocabulary has no entry for the {missing[0]} token"
        raise RunError(what, where=str(folder), help="use the files of one model")
    used = {*roles.values(), "<mask>"}
    language_codes = filter(LANGUAGE_CODE.fullmatch, added.keys() - used)
    symbols = sorted(language_codes, key=vocabulary.__getitem__)
    sides = []
    for option, language in zip(("--src-lang", "--tgt-lang"), languages, strict=True):
        code = None if language is None else code_of(symbols, language, option)
        path, sizes = folder / "sentencepiece.bpe.model", found.vocab_sizes
        sides.append(make_piece_vocabulary(path, raw, vocabulary, roles, sizes[0], symbols, "spaced", code))
    return (sides[0], sides[0]) if languages == (None, None) else (sides[0], sides[1])


def _m2m_names(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ids of pieces, and those of added tokens such as language codes."""
    settings, pieces_path = read_settings(folder), folder / "vocab.json"
    if not pieces_path.exists():  # NLLB-200
        tree = read_tree(folder / "tokenizer.json", MAX_BYTES)
        model, listed = tree.get("model"), tree.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if not isinstance(vocabulary, dict) or not isinstance(listed, list):
            what = "tokenizer.json has no vocabulary, or no added tokens"
            raise RunError(what, where=str(folder), help="use a folder of NLLB-200 as it was published")
        entries = [(token.get("content"), token.get("id")) for token in listed if isinstance(token, dict)]
    else:
        vocabulary = read_tree(pieces_path, MAX_BYTES)
        decoder = settings.get("added_tokens_decoder")
        if isinstance(decoder, dict):
            pairs = [(token, id) for id, token in decoder.items() if isinstance(token, dict) and id.isdecimal()]
            entries = [(token.get("content"), int(id)) for token, id in pairs if len(id) < 8]
        else:  # the codes follow the pieces in the order in which they are listed
            names = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
            if not isinstance(names, list):
                what = "the codes of languages are not a list (additional_special_tokens)"
                raise RunError(what, where=str(folder / "tokenizer_config.json"), help="use the published file")
            entries = [(name, len(vocabulary) + number) for number, name in enumerate(names)]
    added = {name: id for name, id in entries if isinstance(name, str) and type(id) is int}
    return {name: id for name, id in vocabulary.items() if type(id) is int}, added


def _mbart_names(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ids of mBART-50: special tokens and pieces, then languages and mask."""
    settings, path = read_settings(folder), folder / "sentencepiece.bpe.model"
    kind = settings.get("tokenizer_class")
    if kind in ("MBartTokenizer", "MBartTokenizerFast"):
        what = f"{kind} has codes after the text, and the decoder starts from one"
        raise RunError(
            what, where=str(folder / "tokenizer_config.json"), help="supported: mBART-50, with MBart50Tokenizer"
        )
    pieces = read_file(path, MAX_FILE_BYTES, read_sentencepiece).pieces
    # The first three pieces are <unk>, <s> and </s> of SentencePiece.
    names = [*_SPECIALS, *(piece.text for piece in pieces[3:])]
    added = {name: id for id, name in enumerate([*_MBART_50.split(), "<mask>"], len(names))}
    return {name: id for id, name in enumerate(names)}, added


def _read_own(folder: Path, found: ForeignTranslator) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Return the vocabularies of a folder that attnkit exported."""
    sides: list[ForeignVocabulary] = []
    for place, n_rows in zip((folder, folder / "target"), found.vocab_sizes, strict=True):
        if place != folder and not place.exists():
            return sides[0], sides[0]
        tokenizer = read_own_vocabulary(place, n_rows)
        if tokenizer is None:
            what = "the decoder starts from neither padding nor EOS, and the tokenizer is not attnkit's"
            raise RunError(what, where=str(place), help="supported: Marian as of OPUS-MT, and attnkit's own exports")
        sides.append(ForeignVocabulary(tokenizer, list(range(tokenizer.vocab_size))))
    return sides[0], sides[1]
