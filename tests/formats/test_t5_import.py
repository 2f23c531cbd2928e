"""An imported T5 or mT5 computes, searches, learns and cuts text as it did in transformers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import torch
from hub_runs import check_refusal
from t5_folders import T5_SHAPES, t5_folder
from translators import sentences, three_steps

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.seq2seq import pad_sources
from attnkit.errors import AttnkitError
from attnkit.models.transformer import Transformer
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.translation.engines import Engine
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.translator import load_translator

ENGINES: tuple[Engine, ...] = ("torch", "compiled")


class ImportedT5:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, name: str, prefix: str = "", **more: Any) -> None:
        self.folder, self.place = place / "hub", place
        self.theirs = t5_folder(self.folder, **{**T5_SHAPES[name], **more})
        self.path = import_huggingface(self.folder, place / "run", source_prefix=prefix).path
        self.run: LoadedRun = load_run(self.path, device="cpu")
        pieces = self.run.src_tokenizer.pieces
        assert pieces is not None
        self.order = torch.tensor(pieces.order)


@pytest.fixture(scope="module", params=T5_SHAPES)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ImportedT5:
    return ImportedT5(tmp_path_factory.mktemp("t5"), request.param)


def test_logits_are_those_of_transformers(imported: ImportedT5) -> None:
    """Up to lengths of which the last buckets hold many distances."""
    source, run = random.Random(1), imported.run
    n = run.src_tokenizer.vocab_size
    for length in (1, 3, 10, 40, 200, 300):
        src = [source.randrange(4, n) for _ in range(length)]
        tgt = [source.randrange(2, n) for _ in range(source.randint(0, length))]
        with torch.no_grad():
            ours = run.model.head(run.model.hidden(torch.tensor([[*src, 2]]), None, torch.tensor([[1, *tgt]])))[0]
            ids = {"input_ids": imported.order[[*src, 2]][None], "decoder_input_ids": imported.order[[1, *tgt]][None]}
            theirs = imported.theirs(**ids).logits[0]
        torch.testing.assert_close(ours[:, 1:], theirs[:, imported.order[1:]], rtol=0, atol=1e-4)
        assert sorted(imported.order[1:].tolist()) == list(range(theirs.shape[1])), "each of their words is one of ours"
        assert float(theirs.std()) > 0.3, "the weights say nothing"
        assert bool((ours[:, 0] < -1e8).all()), "our padding has no logit"


def test_three_hundred_beams_are_those_of_transformers(imported: ImportedT5) -> None:
    theirs, run, lines, lengths = imported.theirs, imported.run, sentences()[:300], set()
    settings: dict[str, Any] = {"beam_size": 4, "max_length": 20, "length_penalty": 1.0}
    texts = {engine: load_translator([imported.path], engine=engine).translate(lines, **settings) for engine in ENGINES}
    assert texts["torch"] == texts["compiled"]
    ours = {id: number for number, id in enumerate(imported.order.tolist()) if number}
    rows = run.src_tokenizer.encode(lines)
    # attnkit never writes padding, nor ids without a name, which round the size of T5's tables.
    barred = [[0], *([int(id)] for id in imported.order[run.tgt_tokenizer.n_words :])]
    assert len(barred) == 6
    options = {"num_beams": 4, "max_length": 21, "early_stopping": True, "bad_words_ids": barred}
    for first in range(0, len(lines), 100):
        src, real = pad_sources(rows[first : first + 100], torch.device("cpu"))
        assert real is not None
        given = torch.where(real, imported.order[src], 0)
        expected = theirs.generate(input_ids=given, attention_mask=real.long(), **options)
        for text, row in zip(texts["torch"][first : first + 100], expected.tolist(), strict=True):
            assert row[0] == 0
            ids = [ours[id] for id in row[1:] if id > 1]
            assert run.tgt_tokenizer.decode([ids]) == [text]
            lengths.add(len(ids))
    assert len(texts["torch"]) == 300
    assert len(set(texts["torch"])) > 30 and len(lengths) > 2, "the sentences are alike"


def test_three_steps_of_training_are_those_of_transformers(imported: ImportedT5) -> None:
    config, sizes = imported.run.config.model, (len(imported.order),) * 2
    assert config.kind == "transformer"
    ours, theirs = Transformer(config, *sizes).train(), imported.theirs.__class__.from_pretrained(imported.folder)
    if config.tie_embeddings == "inputs":
        assert theirs.lm_head.weight is not theirs.shared.weight
    ours.load_state_dict(imported.run.model.state_dict())
    rows = [imported.run.src_tokenizer.encode(sentences())] * 2
    losses = three_steps(ours, theirs.train(), rows, (imported.order, imported.order), 0)
    assert np.allclose(*zip(*losses, strict=True), rtol=0, atol=1e-5), losses
    assert losses[2][0] < losses[0][0] - 0.01, "nothing was learned"
    trained = {name: tensor.detach() for name, tensor in theirs.state_dict().items()}
    words = ours.decoder.embedding.words.weight[BOS_ID:]
    torch.testing.assert_close(words, trained["shared.weight"][imported.order[BOS_ID:]], rtol=0, atol=1e-4)


def test_pickled_weights_give_the_same_run(imported: ImportedT5) -> None:
    """The first files have copies of tied matrices, and a table that nothing reads."""
    hub = imported.place / "pickled"
    hub.mkdir()
    for name in ("spiece.model", "tokenizer_config.json", "config.json"):
        (hub / name).write_bytes((imported.folder / name).read_bytes())
    state = dict(imported.theirs.state_dict())
    state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(32, 4)
    torch.save(state, hub / "pytorch_model.bin")
    run = load_run(import_huggingface(hub, imported.place / "of pickle").path, device="cpu")
    state, expected = run.model.state_dict(), imported.run.model.state_dict()
    assert run.config.model == imported.run.config.model
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_ties_are_those_of_the_weights(tmp_path: Path) -> None:
    """Newer versions of transformers write that all is tied, whatever is in the file."""
    for name, tied, scaled in (("t5", "all", True), ("t5 v1.1", "inputs", False)):
        folder = tmp_path / name
        t5_folder(folder, **T5_SHAPES[name])
        tree = json.loads((folder / "config.json").read_text())
        tree |= {"tie_word_embeddings": True, "scale_decoder_outputs": scaled}
        (folder / "config.json").write_text(json.dumps(tree))
        config = load_run(import_huggingface(folder, tmp_path / f"run {name}").path, device="cpu").config.model
        assert (config.tie_embeddings, config.scaled_output) == (tied, scaled)


STRANGE: dict[str, tuple[str, dict[str, Any], str]] = {
    "code": ("config.json", {"auto_map": {"AutoModel": "evil.M"}}, "the model is code of the folder"),
    "tokenizer code": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": []}}, "the tokenizer is code of the"),
    "unit": ("config.json", {"feed_forward_proj": "gated-tanh"}, "unsupported feed_forward_proj gated-tanh for t5"),
    "gates": ("config.json", {"feed_forward_proj": "double-gelu"}, "unsupported feed_forward_proj double-gelu"),
    "gate": ("config.json", {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"}, "the weights lack"),
    "two units": ("config.json", {"dense_act_fn": "silu"}, "unsupported dense_act_fn silu for t5"),
    "start": ("config.json", {"decoder_start_token_id": 1}, "unsupported decoder_start_token_id 1 for t5"),
    "two buckets": ("config.json", {"relative_attention_num_buckets": 2}, "relative_attention_num_buckets: Input sho"),
    "distance": ("config.json", {"relative_attention_max_distance": 16}, r"relative_distance \(16\) must be above"),
    "more buckets": (
        "config.json",
        {"relative_attention_num_buckets": 64},
        "relative_attention_bias.weight' has shape",
    ),
    "absurd": ("config.json", {"d_kv": 10**9}, "d_kv: Input should be less"),
    "wider": ("config.json", {"d_kv": 16}, "has shape"),
    "deeper": ("config.json", {"num_layers": 4}, "the weights lack 'encoder.block.3"),
    "shallower": ("config.json", {"num_decoder_layers": 1}, "unexpected weight 'decoder.block.1"),
    "text": ("config.json", {"num_heads": "4"}, "num_heads: Input should be a valid integer"),
    "no end": ("config.json", {"eos_token_id": 0}, "a special token is not in the vocabulary, or twice"),
    "far pad": (
        "config.json",
        {"pad_token_id": 999, "decoder_start_token_id": 999},
        "pad_token_id 999 of config.json is not in the tok",
    ),
    "fewer rows": ("config.json", {"vocab_size": 100}, "has shape"),
    "sentinels": ("tokenizer_config.json", {"extra_ids": 10**9}, "extra_ids is 1000000000, expected"),
    "untied": ("config.json", {"tie_word_embeddings": "no"}, "tie_word_embeddings: Input should be a valid boolean"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_t5_is_refused(name: str, tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub", **T5_SHAPES["t5"])
    file, changes, reason = STRANGE[name]
    tree = json.loads((tmp_path / "hub" / file).read_text())
    if name != "two units":
        tree.pop("dense_act_fn", None)
    (tmp_path / "hub" / file).write_text(json.dumps({**tree, **changes}))
    with pytest.raises(AttnkitError, match=reason) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_damaged_piece_file_is_refused(tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub")
    raw = (tmp_path / "hub/spiece.model").read_bytes()
    for data, reason in ((raw[: len(raw) // 2], "spiece.model|imported"), (b"", "imported|piece")):
        (tmp_path / "hub/spiece.model").write_bytes(data)
        with pytest.raises(AttnkitError, match=reason) as damaged:
            import_huggingface(tmp_path / "hub", tmp_path / "run")
        check_refusal(damaged.value)
    (tmp_path / "hub/spiece.model").unlink()
    with pytest.raises(AttnkitError, match="no tokenizer in") as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert str(caught.value.help).startswith("supported files: spiece.model or tokenizer.json; model types: bert, ")


def test_padding_and_end_have_their_ids(imported: ImportedT5) -> None:
    assert imported.order[[BOS_ID, EOS_ID]].tolist() == [0, 1]
