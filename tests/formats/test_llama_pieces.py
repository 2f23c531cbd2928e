"""The SentencePiece tokenizer of Llama 2 gives the ids and texts of sentencepiece and of transformers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import sentencepiece
import transformers
from hub_encoders import odd_lines
from hub_runs import ODD, TEXT, shaken

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.models.layers import PackedLayout
from attnkit.text.tokenizer import Tokenizer

SPACES = [" a", " ▁a", "▁a", "a▁ b", "  a  ", "   ", "-" * 37, " " * 33 + "x", "aaaaa", "\n\n", "a\tb", "\u0000"]
SPECIALS = ("<s>", "</s>", "<unk>")
CHAT = ["<|user|>", "<|end|>"]
N_ROWS = 720
LINES = pytest.mark.parametrize("n_lines", [300, pytest.param(5000, marks=pytest.mark.slow)])


@cache
def pieces() -> bytes:
    """Return a file made like Llama 2's."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT + odd_lines(300, 3)),
        model_writer=out,
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        pad_id=-1,
        character_coverage=0.99,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return out.getvalue()


def write(folder: Path, form: str, symbols: list[str] | None = None) -> Path:
    """Write a tokenizer: its SentencePiece file alone, as published with Llama 2, or as transformers 5 saves it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.model").write_bytes(pieces())
    if form == "file":
        return folder
    made: Any = transformers.AutoTokenizer.from_pretrained(folder)
    made.add_special_tokens({"additional_special_tokens": symbols or []})
    made.save_pretrained(folder)
    (folder / "tokenizer.model").unlink()
    path = folder / "tokenizer.json"
    tree = json.loads(path.read_text())
    if form == "published":
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        tree["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}
        tree["pre_tokenizer"] = None
        tree["model"]["unk_token"] = "<unk>"
    elif form != "saved":  # with another scheme of prefixes
        tree["pre_tokenizer"]["prepend_scheme"] = form
        if form == "never":
            tree["decoder"]["decoders"].pop()
    path.write_text(json.dumps(tree, ensure_ascii=False))
    return folder


def lines_of(n: int, symbols: list[str] | None = None) -> list[str]:
    lines = [line for line in [*ODD, *SPACES, *odd_lines(n)] if not any(name in line for name in SPECIALS)]
    if symbols is not None:
        mixed = [f"{line}{symbols[i % 2]}{line[::-1]}" for i, line in enumerate(lines[:150])]
        lines += [*mixed, *(f"{symbols[0]}{line} {symbols[1]} {line}" for line in lines[:150])]
    return lines


def compare(tokenizer: Tokenizer, order: list[Any], lines: list[str], encode: Any, decode: Any) -> None:
    for line, ids in zip(lines, tokenizer.encode(lines), strict=True):
        assert [order[id] for id in ids] == encode(line), repr(line)
        assert tokenizer.decode([ids])[0] == decode(encode(line)), repr(line)


@LINES
@pytest.mark.parametrize("form", ["file", "published"])
def test_ids_and_texts_are_those_of_sentencepiece(form: str, n_lines: int, tmp_path: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=pieces())
    found = read_vocabulary(write(tmp_path, form), "llama", N_ROWS)
    compare(found.tokenizer, found.order, lines_of(n_lines), reference.encode, reference.decode)


@LINES
@pytest.mark.parametrize("form", ["published", "saved", "always", "never"])
def test_ids_and_texts_are_those_of_transformers(form: str, n_lines: int, tmp_path: Path) -> None:
    """Of the file as it is; the class LlamaTokenizer replaces its normalizer by that of the form "saved"."""
    folder = write(tmp_path, form, CHAT)
    theirs: Any = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    found = read_vocabulary(folder, "llama", N_ROWS)
    assert found.tokenizer.config.symbols == tuple(CHAT)
    lines = lines_of(n_lines, CHAT)
    for line, ids in zip(lines, found.tokenizer.encode(lines), strict=True):
        assert [found.order[id] for id in ids] == theirs(line, add_special_tokens=False).input_ids, repr(line)
    plain = [line for line in lines_of(n_lines) if line]
    for line in plain:
        ids = theirs(line, add_special_tokens=False).input_ids
        assert found.tokenizer.decode([[found.order.index(id) for id in ids]])[0] == theirs.decode(ids), repr(line)
    if form == "saved":
        native: Any = transformers.AutoTokenizer.from_pretrained(folder)
        assert type(native).__name__ == "LlamaTokenizer"
        assert all(native(line).input_ids == theirs(line).input_ids for line in lines)


def test_the_vocabulary_file_gives_the_same_tokenizer(tmp_path: Path) -> None:
    for form in ("published", "saved", "never"):
        found = read_vocabulary(write(tmp_path / form, form, CHAT), "llama", N_ROWS).tokenizer
        again, lines = Tokenizer.from_json(found.to_json()), lines_of(100, CHAT)
        assert again.encode(lines) == found.encode(lines)
        assert again.fingerprint == found.fingerprint


@pytest.mark.parametrize("form", ["file", "published", "saved"])
def test_a_llama_2_comes_and_leaves_with_its_tokenizer(form: str, tmp_path: Path) -> None:
    hub = write(tmp_path / "hub", form)
    kept = {path.name: path.read_bytes() for path in hub.iterdir() if path.name.startswith("tokenizer")}
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=N_ROWS, max_position_embeddings=64, **sizes)
    theirs: Any = shaken(transformers.LlamaForCausalLM(config))
    theirs.save_pretrained(hub)
    import_huggingface(hub, tmp_path / "run")
    opened = load_model(tmp_path / "run", "clm", device="cpu")
    tokenizer = read_tokenizer(RunFolder(tmp_path / "run").checkpoint()[0])
    origin = tokenizer.origin
    assert origin is not None and origin.order[:5] == [0, 1, 2, 0, 3]  # padding is a copy of the unknown token
    ours = tokenizer.encode(["the quick brown fox é", " the 日本"])
    for ids in ours:
        with torch.no_grad():
            found = opened.model.head(opened.model.hidden(torch.tensor([ids]), PackedLayout.unpacked(1)))
            expected = theirs(torch.tensor([[origin.order[id] for id in ids]])).logits
        torch.testing.assert_close(found, expected[..., origin.order], rtol=0, atol=1e-4)
    export_huggingface(tmp_path / "run", tmp_path / "back")
    assert {name: (tmp_path / "back" / name).read_bytes() for name in kept} == kept
    back: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert all(torch.equal(tensor, back.state_dict()[name]) for name, tensor in theirs.state_dict().items())


def _tree(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tree = json.loads((folder / "tokenizer.json").read_text())
        change(tree)
        (folder / "tokenizer.json").write_text(json.dumps(tree))

    return apply


def _file(content: bytes) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(content)

    return apply


def _unigram() -> bytes:
    out = io.BytesIO()
    options = {"model_type": "unigram", "hard_vocab_limit": False, "minloglevel": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=out, vocab_size=60, **options)
    return out.getvalue()


def _torn(tree: dict[str, Any]) -> None:
    """Move one of two merges that make the same piece to the end."""
    merges = tree["model"]["merges"]
    made = ["".join(pair) for pair in merges]
    merges.append(merges.pop(next(i for i, piece in enumerate(made) if made.count(piece) > 1)))


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no file": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer in"),
    "empty file": (_file(b""), "exactly one unknown piece"),
    "text as file": (_file(b"IQ== 0\nIg== 1\n"), "a file of tiktoken"),
    "truncated file": (_file(pieces()[:-9]), "truncated"),
    "no start": (_file(_unigram()), "it has no bos_token"),
    "a merge less": (_tree(lambda t: t["model"]["merges"].pop()), "merges are not all pairs"),
    "merges swapped": (_tree(_torn), "not ordered by pieces"),
    "merge of three": (_tree(lambda t: t["model"]["merges"].append(["a", "b", "c"])), "not a pair"),
    "text for merges": (_tree(lambda t: t["model"].update(merges="a b")), "not a list"),
    "ids of text": (_tree(lambda t: t["model"]["vocab"].update(the="1")), "no valid ids"),
    "id beyond the rows": (_tree(lambda t: t["model"]["vocab"].update({"zzzz": 9999})), "embeddings"),
    "same id twice": (_tree(lambda t: t["model"]["vocab"].update({"zzzz": 9})), "two have the same"),
    "no bytes": (_tree(lambda t: t["model"]["vocab"].pop("<0x41>")), "pieces of bytes"),
    "no unknown token": (_tree(lambda t: t["model"]["vocab"].pop("<unk>")), "no unk_token"),
    "random merges": (_tree(lambda t: t["model"].update(dropout=0.5)), "dropout 0.5"),
    "ignored merges": (_tree(lambda t: t["model"].update(ignore_merges=True)), "ignore_merges"),
    "lower case": (_tree(lambda t: t.update(normalizer={"type": "Lowercase"})), "normalizer and pre_tokenizer"),
    "splitter": (_tree(lambda t: t["pre_tokenizer"].update(split=True)), "normalizer and pre_tokenizer"),
    "scheme": (_tree(lambda t: t["pre_tokenizer"].update(prepend_scheme="last")), "normalizer and pre_tokenizer"),
    "decoder": (_tree(lambda t: t["decoder"]["decoders"].pop()), "its decoder is not"),
    "no decoder": (_tree(lambda t: t.update(decoder=None)), "its decoder is not"),
    "greedy symbol": (_tree(lambda t: t["added_tokens"][1].update(rstrip=True)), "has rstrip"),
    "lone surrogate": (_tree(lambda t: t["model"]["vocab"].update({"\ud800": 650})), "cannot be imported"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_odd_about_a_tokenizer_is_said(name: str, tmp_path: Path) -> None:
    change, said = BAD[name]
    change(write(tmp_path, "saved", CHAT))
    with pytest.raises(RunError, match=said):
        read_vocabulary(tmp_path, "llama", N_ROWS)


def test_added_tokens_beside_the_file_are_symbols(tmp_path: Path) -> None:
    folder = write(tmp_path, "file")
    n = sentencepiece.SentencePieceProcessor(model_proto=pieces()).vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<|user|>": n}))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"added_tokens_decoder": {str(n + 1): {"content": "<pad>"}}, "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    found = read_vocabulary(folder, "llama", N_ROWS)
    assert found.tokenizer.config.symbols == ("<|user|>",)
    assert found.order[:5] == [n + 1, 1, 2, 0, n]
