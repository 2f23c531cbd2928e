"""Imported encoders compute, learn and cut text as they did in transformers, and are exported as they were."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
from hub_encoders import ENCODERS, LOST, SHAPES, odd_lines, rewrite
from tokenizers import decoders

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.models.layers import PackedLayout
from attnkit.protocols import UNK_ID
from attnkit.text.tokenizer import Tokenizer

NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-4}
CASES = [(kind, shape) for kind in ENCODERS for shape in range(len(SHAPES))]


class Imported:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, kind: str, shape: int = 0, **changes: Any) -> None:
        self.kind, self.folder = kind, place / "hub"
        self.theirs: Any = ENCODERS[kind](self.folder, shape, **changes)
        self.done = import_huggingface(self.folder, place / "run")
        self.path = self.done.path
        self.run: LoadedModel = load_model(self.path, "mlm", device="cpu")
        self.tokenizer: Tokenizer = read_tokenizer(self.run.checkpoint)
        assert self.tokenizer.origin is not None
        self.order = torch.tensor([-1 if id is None else id for id in self.tokenizer.origin.order])

    def batch(self, seed: int, n: int = 4, width: int = 30) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return ids of random texts, which are real, and the second segment of those that are pairs."""
        generator = torch.Generator().manual_seed(seed)
        first = len(self.tokenizer.config.symbols) + 4
        ids = torch.randint(first, self.tokenizer.vocab_size, (n, width), generator=generator)
        lengths = torch.tensor([width, 17, 1, 23, *torch.randint(2, 30, (n,), generator=generator)])[:n]
        real = torch.arange(width) < lengths[:, None]
        ids[:, 0] = 1
        ids[:, 9:11] = 2  # pairs of texts
        segments = (torch.arange(width) >= 11).long().expand(n, width) if self.run.config.model.n_segments > 1 else None
        return torch.where(real, ids, 0), real, segments

    def given(self, ids: torch.Tensor, real: torch.Tensor, segments: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Return the inputs of the other model."""
        others = {} if segments is None else {"token_type_ids": segments}
        return {"input_ids": self.order[ids], "attention_mask": real.long(), **others}


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]} {case[1]}")
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(tmp_path_factory.mktemp("encoder"), *request.param)


def test_logits_are_equal(imported: Imported) -> None:
    assert not imported.done.warnings
    model = imported.run.model
    with torch.no_grad():
        for seed in range(5):
            ids, real, segments = imported.batch(seed)
            ours = model.head(model.hidden(ids, PackedLayout.padded(real), segments))
            theirs = imported.theirs(**imported.given(ids, real, segments)).logits
            torch.testing.assert_close(ours[real], theirs[real][:, imported.order], **NEAR)
            assert theirs[real].std() > 0.3, "the weights say nothing"


def test_three_steps_of_training_are_equal(imported: Imported) -> None:
    ours, theirs = (load_model(imported.path, "mlm", device="cpu").model.train(), imported.theirs.train())
    for name, parameter in theirs.named_parameters():
        if name.endswith("token_type_embeddings.weight") and len(parameter) == 1:
            parameter.requires_grad_(False)  # attnkit has added the only segment to the positions
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0) for model in (ours, theirs)]
    losses = []
    for step in range(3):
        ids, real, segments = imported.batch(step, 8)
        masked = real & (torch.rand(real.shape, generator=torch.Generator().manual_seed(step)) < 0.3)
        shown = torch.where(masked, 4, ids)
        logits = ours.head(ours.hidden(shown, PackedLayout.padded(real), segments))
        labels = torch.where(masked, imported.order[ids], -100)
        found = theirs(**imported.given(shown, real, segments), labels=labels).loss
        term = F.cross_entropy(logits[masked], ids[masked])
        losses.append((float(term.detach()), float(found.detach())))
        for value, optimizer in zip((term, found), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    theirs.load_state_dict(before)
    theirs.eval()
    assert all(abs(own - other) < 1e-5 for own, other in losses), losses
    assert losses[2] != losses[0]


def test_every_tensor_and_every_file_comes_back(imported: Imported, tmp_path: Path) -> None:
    folder = export_huggingface(imported.path, tmp_path / "back").path
    was, now = (safetensors.torch.load((path / "model.safetensors").read_bytes()) for path in (imported.folder, folder))
    unused = {"lm_head.bias", "cls.predictions.bias"} if not imported.theirs.config.tie_word_embeddings else set()
    assert was.keys() <= now.keys()
    for name in was.keys() - unused:
        unread = 2 if name.endswith("position_embeddings.weight") and "roberta" in imported.kind else 0
        assert torch.equal(was[name][unread:], now[name][unread:]), name
    files = {path.name for path in imported.folder.iterdir()} - {"config.json", "model.safetensors"}
    assert all((folder / name).read_bytes() == (imported.folder / name).read_bytes() for name in files) and files
    again = type(imported.theirs).from_pretrained(folder)
    inputs = imported.given(*imported.batch(3))
    with torch.no_grad():
        real = inputs["attention_mask"].bool()
        logits = [model.eval()(**inputs).logits[real] for model in (again, imported.theirs)]
    torch.testing.assert_close(*logits, rtol=0, atol=0)
    assert not import_huggingface(folder, tmp_path / "run").warnings
    second = load_model(tmp_path / "run", "mlm", device="cpu").model.state_dict()
    assert all(torch.equal(tensor, second[name]) for name, tensor in imported.run.model.state_dict().items())


def special(line: str) -> bool:
    """Return whether a line has what transformers takes for a special token."""
    return any(mark in line for mark in ("<s>", "</s>", "[SEP]", "[CLS]"))


@pytest.mark.parametrize("n", [400, pytest.param(9000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ENCODERS)
def test_odd_lines_are_cut_as_they_are_there(kind: str, n: int, tmp_path: Path) -> None:
    imported = Imported(tmp_path, kind)
    theirs = transformers.AutoTokenizer.from_pretrained(imported.folder)
    lines = list(dict.fromkeys(line for line in odd_lines(n) if not special(line)))
    rows = imported.tokenizer.encode(lines)
    expected = theirs(lines, add_special_tokens=False).input_ids
    if kind == "xlm-roberta":
        check_pieces(imported, lines, rows)
        both = [place for place, line in enumerate(lines) if not any(mark in line for mark in LOST)]
        assert len(both) > 0.6 * len(lines)
    else:
        both = list(range(len(lines)))
    different = [lines[i] for i in both if imported.order[rows[i]].tolist() != expected[i]]
    assert not different, list(map(ascii, different[:5]))
    # Texts: unknown words, whose signs differ, are left out.
    unknown, n_texts = theirs.unk_token_id, 0
    for i in both:
        known = [id for id in expected[i] if id != unknown]
        (text,) = imported.tokenizer.decode([[id for id in rows[i] if id != UNK_ID]])
        wanted = joined(theirs, kind, known)
        # Of pieces behind an unknown one, the space before the first is kept by transformers alone.
        assert text == wanted or (len(known) < len(rows[i]) and text.strip() == wanted.strip()), ascii(lines[i])
        n_texts += text != ""
    assert n_texts > 0.8 * len(both) and (n < 9000 or len(both) > 5000)


def joined(theirs: Any, kind: str, ids: list[int]) -> str:
    """Return the text of ids; as transformers decodes word pieces, but with the spaces before punctuation."""
    if kind in ("roberta", "modernbert", "xlm-roberta"):
        return str(theirs.decode(ids, clean_up_tokenization_spaces=False))
    return str(decoders.WordPiece(prefix="##", cleanup=False).decode(theirs.convert_ids_to_tokens(ids)))


def check_pieces(imported: Imported, lines: list[str], rows: list[list[int]]) -> None:
    """Check ids by sentencepiece and fairseq's offset, and the text by sentencepiece."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(imported.folder / "sentencepiece.bpe.model"))
    for line, row in zip(lines, rows, strict=True):
        if "...." in unicodedata.normalize("NFKC", line):  # ties in runs of one character may be cut differently
            continue
        pieces = model.encode(line)
        assert imported.order[row].tolist() == [3 if piece == 0 else piece + 1 for piece in pieces], ascii(line)
        if 3 not in row:
            assert imported.tokenizer.decode([row]) == [model.decode(pieces)]


def test_a_discriminator_is_an_encoder_without_a_head(tmp_path: Path) -> None:
    theirs = ENCODERS["electra"](tmp_path / "hub", 0, transformers.ElectraForPreTraining)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert any("no masked-LM head" in text for text in done.warnings)
    assert "the head 'discriminator_predictions' was not imported" in done.warnings
    run = load_model(done.path, "mlm", device="cpu")
    origin = read_tokenizer(run.checkpoint).origin
    assert origin is not None
    ids = torch.randint(5, len(origin.order), (2, 20))
    with torch.no_grad():
        given = torch.tensor([id or 0 for id in origin.order])[ids]
        expected = theirs.electra(given).last_hidden_state
        torch.testing.assert_close(run.model.hidden(ids, PackedLayout.unpacked(2)), expected, **NEAR)


def test_sinusoids_that_are_none_are_refused(tmp_path: Path) -> None:
    ENCODERS["distilbert"](tmp_path / "hub")
    rewrite(tmp_path / "hub", sinusoidal_pos_embds=True)
    with pytest.raises(RunError, match="has other values than the sinusoids") as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert str(caught.value.help).startswith("set sinusoidal_pos_embds to false; model types: bert, ")


@pytest.mark.parametrize(("kind", "key"), [("distilbert", "activation"), ("electra", "hidden_act")])
def test_layers_of_another_activation(kind: str, key: str, tmp_path: Path) -> None:
    """DistilBERT's head follows the layers; that of ELECTRA's generator does not, so that it is refused."""
    ENCODERS[kind](tmp_path / "hub", 0, **{key: "relu"})
    if kind == "electra":
        with pytest.raises(RunError, match="hidden_act: Input should be 'gelu'"):
            import_huggingface(tmp_path / "hub", tmp_path / "run")
    else:
        path = import_huggingface(tmp_path / "hub", tmp_path / "run").path
        assert load_model(path, "mlm", device="cpu").config.model.activation == "relu"
