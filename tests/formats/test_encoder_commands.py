"""Commands run on imported encoders, and folders of encoders with a fault are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import torch
import transformers
from hub_encoders import ENCODERS

from attnkit.cli.main import main
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.errors import RunError
from attnkit.models.layers import PackedLayout

TEXT = ["the quick fox", "größer été don't", "chien der 日本語 x=1;", "the fox, unlikely 3.14"]
TAGGED = "".join("".join(f"{word} {'A' if len(word) > 3 else 'O'}\n" for word in line.split()) + "\n" for line in TEXT)


def called(*arguments: object) -> None:
    """Run a command, which must succeed."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["attnkit", *map(str, arguments)])
        main()
    assert not ended.value.code, arguments


@pytest.fixture(scope="module", params=ENCODERS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("commands")
    ENCODERS[request.param](place / "hub")
    called("import", "huggingface", place / "hub", "-o", place / "run")
    return place / "run"


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_masks_are_filled(imported: Path, precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the [MASK] fox", "[MASK] der", "chien[MASK]", "日[MASK]語, the [MASK]"]
    called("fill-mask", imported, *texts, "--json", "--precision", precision, "--top", 2)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["masks"]) for one in found] == [1, 1, 1, 2]
    for text, one in zip(texts, found, strict=True):
        start, _, end = text.partition("[MASK]")
        assert one["filled"].startswith(start.rstrip()) and one["filled"].endswith(end.rpartition("[MASK]")[2])
        for mask in one["masks"]:
            assert len(mask) == 2 and mask[0]["probability"] >= mask[1]["probability"] > 0


def test_lines_are_embedded(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in [*TEXT, ""]))
    rows = []
    for precision in ("float32", "int8"):
        called("embed", imported, tmp_path / "in", "-o", tmp_path / "out.npy", "--precision", precision)
        rows.append(np.load(tmp_path / "out.npy"))
    assert rows[0].shape[0] == len(TEXT) + 1 and not rows[0][-1].any() and rows[0][:-1].any(axis=1).all()
    near = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(*rows, strict=True) if a.any()]
    assert min(near) > 0.98, near


def squad(path: Path) -> Path:
    """Write questions whose answers are words of their contexts."""
    paragraphs = []
    for number, line in enumerate(TEXT * 5):
        word = line.split()[number % 2]
        answer = {"text": word, "answer_start": line.index(word)}
        questions = [{"id": str(number), "question": "what fox?", "answers": [answer]}]
        paragraphs.append({"context": line, "qas": questions})
    path.write_text(json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("task", ["text-classification", "token-classification", "question-answering"])
def test_it_is_fine_tuned_predicts_and_leaves(
    imported: Path, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What transformers says after the export equals what ``predict`` says."""
    table = "label\ttext\ttext2\n" + "".join(f"{'ab'[i % 2]}\t{line}\tfox\n" for i, line in enumerate(TEXT * 6))
    train = tmp_path / ("in.tsv" if task == "text-classification" else "in.conll")
    train.write_text(table if task == "text-classification" else TAGGED * 6)
    train = squad(tmp_path / "in.json") if task == "question-answering" else train
    out, settings = tmp_path / "tuned", ["--preset", "tiny", "--max-steps", "2", "--precision", "float32", "-q"]
    called("finetune", imported, "--task", task, "--train", train, "-o", out, *settings)
    capsys.readouterr()
    (tmp_path / "lines").write_text("".join(f"{line}\tfox\n" if "text" in task else f"{line}\n" for line in TEXT))
    given = train if task == "question-answering" else tmp_path / "lines"
    called("predict", out, given, "--json", "-q")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == (20 if task == "question-answering" else len(TEXT))
    back = export_huggingface(out, tmp_path / "back").path
    pipe = transformers.pipeline(task, model=str(back)) if task == "text-classification" else None
    for line, one in zip(TEXT, found, strict=False):
        if pipe is not None:
            said = pipe({"text": line, "text_pair": "fox"}, top_k=1)[0]
            assert said["label"] == one["label"]
            assert said["score"] == pytest.approx(one["probability"], abs=1e-4)
    load_model(import_huggingface(back, tmp_path / "again").path, task, device="cpu")


NEW = {
    "electra": ["model.positions=learned", "model.d_embedding=8", "model.pooler=gelu"],
    "distilbert": [*("model.positions=learned", "model.pooler=relu", "model.n_segments=1", "model.norm_eps=1e-12")],
    "modernbert": [
        *("model.norm=pre", "model.embedding_norm=true", "model.norm_bias=false", "model.positions=rotary"),
        *("model.rope_base=160000", "model.local_window=8", "model.global_every=2", "model.glu=true"),
        *("model.bias=false", "model.head_bias=false", "model.n_segments=1", "model.pooler=mlm_head"),
    ],
}


@pytest.mark.parametrize("kind", NEW)
def test_a_model_of_these_options_is_trained_from_nothing(kind: str, tmp_path: Path) -> None:
    """And leaves as the model type that has them."""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT * 12))
    sizes = ["d_model=16", "n_heads=2", "n_layers=2", "d_ff=32", "max_length=24"]
    sets = ["data.sequence_length=24", "vocabulary.size=300", *(f"model.{size}" for size in sizes), *NEW[kind]]
    flags = [flag for one in sets for flag in ("--set", one)]
    run = tmp_path / "run"
    called("pretrain-mlm", tmp_path / "text", "-o", run, "--preset", "tiny", "--max-steps", 3, "-q", *flags)
    back = export_huggingface(run, tmp_path / "hub").path
    config = json.loads((back / "config.json").read_text())
    assert config["model_type"] == kind and config.get("embedding_size", 8) == 8
    ours, theirs = load_model(run, "mlm", device="cpu").model, transformers.AutoModelForMaskedLM.from_pretrained(back)
    ids = torch.randint(5, config["vocab_size"], (2, 20))
    with torch.no_grad():
        logits = ours.head(ours.hidden(ids, PackedLayout.unpacked(2)))
        torch.testing.assert_close(logits, theirs(ids).logits, rtol=0, atol=1e-4)
    again = load_model(import_huggingface(back, tmp_path / "again").path, "mlm", device="cpu")
    assert again.config.model == load_model(run, "mlm", device="cpu").config.model


def test_pieces_leave_with_the_model_type_that_has_them(tmp_path: Path) -> None:
    """A model of one's own with an imported vocabulary is one of these, or is refused."""
    ENCODERS["xlm-roberta"](tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "xlm")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT * 12))
    sizes = ["d_model=16", "n_heads=2", "n_layers=1", "d_ff=32", "max_length=24"]
    for positions in ("learned", "rotary"):
        sets = ["data.sequence_length=24", *(f"model.{one}" for one in (*sizes, f"positions={positions}"))]
        flags = ["--vocab", tmp_path / "xlm/tokenizer.json", *(flag for one in sets for flag in ("--set", one))]
        run = tmp_path / positions
        called("pretrain-mlm", tmp_path / "text", "-o", run, "--preset", "tiny", "--max-steps", 2, "-q", *flags)
    back = export_huggingface(tmp_path / "learned", tmp_path / "back").path
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(back)
    assert type(theirs).__name__ == "XLMRobertaForMaskedLM"
    pairs = tmp_path / "in.tsv"
    pairs.write_text("label\ttext\ttext2\n" + "".join(f"{'ab'[i % 2]}\t{one}\tfox\n" for i, one in enumerate(TEXT * 6)))
    for n, said in ((1, "puts 2 between two texts, the model was fine-tuned with 1"), (2, "")):
        tuned = ["--task", "text-classification", "--train", pairs, "--preset", "tiny", "--max-steps", 1, "-q"]
        out = tmp_path / f"tuned{n}"
        called("finetune", tmp_path / "learned", *tuned, "-o", out, "--set", f"model.separators={n}")
        warnings = export_huggingface(out, tmp_path / f"tuned{n}-hub").warnings
        assert said in warnings[0] if said else not warnings
    with pytest.raises(RunError, match="a SentencePiece vocabulary leaves with an XLM-RoBERTa alone"):
        export_huggingface(tmp_path / "rotary", tmp_path / "other")
