"""Folders of encoders with a fault are refused with a reason, and other forms of the same files give the same run."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

from hub_encoders import ENCODERS, odd_lines, rewrite
from hub_runs import check_refusal

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import AttnkitError, RunError
from attnkit.text.tokenizer import Tokenizer

MUTATIONS: Any = importlib.util.spec_from_file_location(
    "mutations", Path(__file__).parent.parent / "durability/mutations.py"
)


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder per model type."""
    place = tmp_path_factory.mktemp("hubs")
    for kind, make in ENCODERS.items():
        make(place / kind)
    return {kind: place / kind for kind in ENCODERS}


def tokenizer_of(folder: Path, run: Path) -> Tokenizer:
    done = import_huggingface(folder, run)
    return read_tokenizer(load_model(done.path, "mlm", device="cpu").checkpoint)


def edit(hub: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a ``tokenizer.json`` that has no SentencePiece file beside it."""
    (hub / "sentencepiece.bpe.model").unlink(missing_ok=True)
    tree = json.loads((hub / "tokenizer.json").read_text())
    change(tree)
    (hub / "tokenizer.json").write_text(json.dumps(tree))


BIG = 1 << 19
EVERY: dict[str, tuple[Callable[[Path], object], str]] = {
    "enormous": (lambda hub: rewrite(hub, vocab_size=BIG), "config.json implies"),
    "no number of words": (lambda hub: rewrite(hub, vocab_size=None), "vocab_size"),
    "too many words": (lambda hub: rewrite(hub, vocab_size=1 << 40), "vocab_size"),
    "code": (lambda hub: rewrite(hub, auto_map={"AutoModel": "evil.Model"}), "code of the folder .auto_map."),
    "code of a tokenizer": (
        lambda hub: rewrite(hub, "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}),
        "code of the folder .auto_map.",
    ),
    "no mask": (lambda hub: rewrite(hub, "tokenizer_config.json", mask_token="<hide>"), "it has no mask_token"),
    "another activation": (
        lambda hub: rewrite(hub, **dict.fromkeys(("hidden_act", "activation", "hidden_activation"), "mish")),
        "mish|Input should be 'gelu'",
    ),
    "a dropout of 2": (
        lambda hub: rewrite(hub, **dict.fromkeys(("hidden_dropout_prob", "dropout", "mlp_dropout"), 2.0)),
        "less than 1",
    ),
}
PIECES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no tokenizer": (
        lambda hub: [(hub / name).unlink() for name in ("tokenizer.json", "sentencepiece.bpe.model")],
        "no tokenizer in",
    ),
    "no pieces": (lambda hub: (hub / "sentencepiece.bpe.model").write_bytes(b"\x0a\x02"), "truncated, or not"),
    "byte pairs": (lambda hub: edit(hub, lambda tree: tree["model"].update(type="BPE")), "its model is BPE"),
    "no map": (lambda hub: edit(hub, lambda tree: tree.update(normalizer=None)), "not a character map"),
    "another step": (
        lambda hub: edit(hub, lambda tree: tree.update(normalizer={"type": "Lowercase"})),
        "not a character map",
    ),
    "a damaged map": (
        lambda hub: edit(hub, lambda tree: tree["normalizer"].update(precompiled_charsmap="AAAA")),
        "its character map is damaged",
    ),
    "other words": (
        lambda hub: edit(hub, lambda tree: tree.update(pre_tokenizer={"type": "BertPreTokenizer"})),
        "pre-tokenizer is not that of XLM-RoBERTa: BertPreTokenizer",
    ),
    "no scores": (lambda hub: edit(hub, lambda tree: tree["model"].update(vocab=[["a"]])), "no name or no score"),
    "no finite score": (
        lambda hub: edit(hub, lambda tree: tree["model"]["vocab"][9].__setitem__(1, 1e300)),
        "no finite score",
    ),
    "the same piece twice": (
        lambda hub: edit(hub, lambda tree: tree["model"]["vocab"].append(["<s>", 0.0])),
        "duplicate vocabulary entry",
    ),
    "more pieces than rows": (
        lambda hub: edit(hub, lambda tree: tree["model"]["vocab"].append(["new", -1.0])),
        "entry 'new' has id .* but the model has",
    ),
    "no unknown": (lambda hub: edit(hub, lambda tree: tree["model"].update(unk_id=-1)), "unknown token is missing"),
}
CASES = [(kind, name) for kind in ENCODERS for name in EVERY] + [("xlm-roberta", name) for name in PIECES]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_is_wrong_with_a_folder_is_said(kind: str, name: str, hubs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(hubs[kind], tmp_path / "hub"))
    change, said = (EVERY | PIECES)[name]
    change(folder)
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(folder, tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


def test_pieces_come_from_either_file(hubs: dict[str, Path], tmp_path: Path) -> None:
    """From SentencePiece's file by fairseq's ids, from ``tokenizer.json``, or from both."""
    found = []
    for name, lacks in (("both", ""), ("pieces", "tokenizer.json"), ("listed", "sentencepiece.bpe.model")):
        folder = Path(shutil.copytree(hubs["xlm-roberta"], tmp_path / name))
        if lacks:
            (folder / lacks).unlink()
        found.append(tokenizer_of(folder, tmp_path / f"{name}-run"))
    lines = odd_lines(300)
    assert found[0].to_json() != found[2].to_json() and found[0].config == found[2].config
    for other in found[1:]:
        assert other.encode(lines) == found[0].encode(lines)
        assert other.origin is not None and other.origin.order == found[0].origin.order  # type: ignore[union-attr]


def damage(folder: Path, source: random.Random, mutations: Any) -> None:
    """Damage one file of a folder."""
    path = source.choice([path for path in sorted(folder.iterdir()) if path.suffix != ".md"])
    raw = path.read_bytes()
    if path.suffix == ".json" and source.random() < 0.8:
        path.write_bytes(mutations.mutate_json(raw, source))
    elif path.suffix == ".safetensors":
        path.write_bytes(mutations.mutate_safetensors(raw, source))
    else:
        path.write_bytes(mutations.mutate_bytes(raw, source))


@pytest.mark.parametrize("n", [25, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ENCODERS)
def test_damaged_folders_end_in_a_documented_error(kind: str, n: int, hubs: dict[str, Path], tmp_path: Path) -> None:
    mutations = importlib.util.module_from_spec(MUTATIONS)
    MUTATIONS.loader.exec_module(mutations)
    source, refused = random.Random(f"{kind} {n}"), 0
    for number in range(n):
        folder, run = Path(shutil.copytree(hubs[kind], tmp_path / "hub")), tmp_path / f"run{number}"
        damage(folder, source, mutations)
        try:
            tokenizer = tokenizer_of(folder, run)
            tokenizer.decode(tokenizer.encode(["the [MASK] fox", ""]))
        except AttnkitError as error:
            assert error.exit_code in (3, 4) and len(error.lines()) <= 3
            refused += 1
        shutil.rmtree(folder)
    assert refused > n // 5
