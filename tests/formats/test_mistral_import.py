"""Mistral: logits and ids are those of transformers, and it leaves as it came; a short window is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import safetensors.torch
import transformers
from hub_runs import check_refusal, shaken
from test_llama_import import LINEAR, imported, llama_tokenizer
from test_llama_pieces import N_ROWS, lines_of, write

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.errors import RunError
from attnkit.models.layers import PackedLayout

SHAPES: dict[str, dict[str, Any]] = {
    "version 0.3": {"num_key_value_heads": 2, "rope_theta": 1e6, "sliding_window": None},
    "wide heads, as Nemo": {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": None, "hidden_act": "gelu"},
    "a window as long as its texts": {"num_key_value_heads": 4, "sliding_window": 64, "rope": LINEAR},
}
PIECES = "version 0.3"  #: the shape with a SentencePiece tokenizer


def mistral_folder(folder: Path, name: str, **changes: Any) -> Any:
    shape = {**SHAPES[name], **changes}
    rope = {"rope_type": "default", "rope_theta": shape.pop("rope_theta", 10000.0), **shape.pop("rope", {})}
    if name == PIECES:
        n_rows, ids = N_ROWS, {"bos_token_id": 1, "eos_token_id": 2}
        write(folder, "published")
    else:
        tokenizer = llama_tokenizer()
        n_rows = len(tokenizer) + 5
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"max_position_embeddings": 64, **ids, **shape}
    config = transformers.MistralConfig(vocab_size=n_rows, rope_parameters=rope, **sizes)
    torch.manual_seed(1)
    model: Any = shaken(transformers.MistralForCausalLM(config))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_the_same(name: str, tmp_path: Path) -> None:
    theirs = mistral_folder(tmp_path / "hub", name)
    opened = imported(tmp_path / "hub", tmp_path / "run")
    order = read_vocabulary(tmp_path / "hub", "mistral", theirs.config.vocab_size).order
    known = [i for i, id in enumerate(order) if id is not None]
    ours = torch.tensor(known)[torch.randint(4, len(known), (3, 60))]
    ids = torch.tensor([[order[id] for id in row] for row in ours.tolist()])
    with torch.no_grad():
        expected = theirs(ids).logits[..., [order[i] for i in known]]
        found = opened.model.head(opened.model.hidden(ours, PackedLayout.unpacked(3)))[..., known]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert float(expected.std()) > 0.1, "the test needs logits that differ"


@pytest.mark.parametrize("name", SHAPES)
def test_it_leaves_as_it_came(name: str, tmp_path: Path) -> None:
    mistral_folder(tmp_path / "hub", name)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    export_huggingface(tmp_path / "run", tmp_path / "back")
    before, after = (safetensors.torch.load_file(tmp_path / d / "model.safetensors") for d in ("hub", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "hub" / file).read_bytes() == (tmp_path / "back" / file).read_bytes()
    ids = torch.randint(0, 400, (2, 60))
    models = [transformers.AutoModelForCausalLM.from_pretrained(tmp_path / d) for d in ("hub", "back")]
    assert [type(model).__name__ for model in models] == ["MistralForCausalLM"] * 2
    with torch.no_grad():
        torch.testing.assert_close(*(model(ids).logits for model in models), rtol=0, atol=0)


def test_pieces_give_the_ids_of_transformers(tmp_path: Path) -> None:
    mistral_folder(tmp_path, PIECES)
    found, theirs = read_vocabulary(tmp_path, "mistral", N_ROWS), transformers.AutoTokenizer.from_pretrained(tmp_path)
    lines = [line for line in lines_of(200) if not line.startswith((" ", "▁"))]  # which transformers reads otherwise
    for line, ids in zip(lines, found.tokenizer.encode(lines), strict=True):
        assert [found.order[id] for id in ids] == theirs(line, add_special_tokens=False).input_ids, repr(line)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a window": ({"sliding_window": 63}, "sliding_window 63 is below max_position_embeddings 64"),
    "the window that transformers assumes": ({"max_position_embeddings": 8192}, "sliding_window 4096 is below"),
    "no window": ({"sliding_window": 0}, "sliding_window: Input should be greater than 0"),
    "text": ({"sliding_window": "64"}, "sliding_window: Input should be a valid integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_window_shorter_than_its_texts_is_refused(name: str, tmp_path: Path) -> None:
    mistral_folder(tmp_path / "hub", PIECES)
    change, said = REFUSED[name]
    path = tmp_path / "hub/config.json"
    tree = {key: value for key, value in json.loads(path.read_text()).items() if key != "sliding_window"}
    path.write_text(json.dumps(tree | change))
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()
