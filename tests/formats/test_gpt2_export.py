"""An imported GPT-2 leaves as it came, with its one entry for BOS and EOS, as long as training keeps them one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import safetensors.torch
import transformers
from hub_runs import ODD, TEXT, shaken
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from attnkit.analysis.verify import verify_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.formats.huggingface.layout import keeps_shared_rows
from attnkit.models.layers import PackedLayout

SHAPES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied, rows without entries": {"tie_word_embeddings": False, "n_more": 3, "activation_function": "relu"},
    "an end, a beginning and padding of their own": {"names": {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}},
    "padding that is the end": {"names": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "pad": "<|endoftext|>"}},
    "further symbols": {"added": ["<|user|>", "<|bot|>"], "n_inner": 48},
}
STEADY = ["--device", "cpu", "--max-steps", "3", "--set", "data.sequence_length=24", "--quiet"]
LORA = ["--set", "adapter.kind=lora", "--set", "adapter.rank=2", "--set", "optimization.learning_rate=0.01"]


def gpt2_tokenizer(names: dict[str, str], added: list[str]) -> Any:
    """Return a tokenizer like GPT-2's: bytes, with the special token behind all others."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    engine.add_special_tokens([*dict.fromkeys(names.values()), *added])
    roles = {f"{role}_token": name for role, name in names.items()}
    return transformers.GPT2TokenizerFast(tokenizer_object=engine, clean_up_tokenization_spaces=False, **roles)


def gpt2_folder(folder: Path, **changes: Any) -> Any:
    names = changes.pop("names", dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"))
    tokenizer, n_more = gpt2_tokenizer(names, changes.pop("added", [])), changes.pop("n_more", 0)
    ids = {f"{role}_token_id": tokenizer.convert_tokens_to_ids(names[role]) for role in ("bos", "eos")}
    shape = {"n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, **ids, **changes}
    config = transformers.GPT2Config(vocab_size=len(tokenizer) + n_more, **shape)
    torch.manual_seed(1)
    model: Any = shaken(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def files(folder: Path) -> dict[str, bytes]:
    own = ("config.json", "generation_config.json", "model.safetensors", "README.md")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in own}


def logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = transformers.AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_it_leaves_as_it_came(name: str, tmp_path: Path) -> None:
    theirs = gpt2_folder(tmp_path / "hub", **SHAPES[name])
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert verify_run(tmp_path / "run").n_bad == 0
    done = export_huggingface(tmp_path / "run", tmp_path / "back")
    assert not done.warnings
    before, after = tensors(tmp_path / "hub"), tensors(tmp_path / "back")
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    assert {"tokenizer.json", "tokenizer_config.json"} <= files(tmp_path / "hub").keys()
    assert files(tmp_path / "hub") == files(tmp_path / "back")
    config = json.loads((tmp_path / "back/config.json").read_text())
    for key in ("vocab_size", "bos_token_id", "eos_token_id", "n_positions", "n_inner", "activation_function"):
        theirs_value = getattr(theirs.config, key) or (4 * 32 if key == "n_inner" else None)
        assert config[key] == theirs_value, key
    ids = torch.randint(0, 256, (2, 9))
    assert torch.equal(*(logits(tmp_path / folder, ids) for folder in ("hub", "back")))
    readers = [transformers.AutoTokenizer.from_pretrained(tmp_path / folder) for folder in ("hub", "back")]
    assert readers[0](ODD).input_ids == readers[1](ODD).input_ids


@pytest.mark.parametrize("more", [LORA, ["--set", "finetuning.freeze=embeddings"]], ids=["LoRA", "frozen embeddings"])
def test_training_may_keep_the_entry_that_begins_and_ends_texts(
    call: Callable[..., Any], tmp_path: Path, more: list[str]
) -> None:
    gpt2_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "base")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT))
    begun = ["--init-from", tmp_path / "base", *STEADY]
    code, _, err = call("pretrain-clm", tmp_path / "text", "-o", tmp_path / "run", *begun, *more)
    assert code == 0, err
    assert not export_huggingface(tmp_path / "run", tmp_path / "back").warnings
    before, after = tensors(tmp_path / "hub"), tensors(tmp_path / "back")
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert before.keys() == after.keys() and files(tmp_path / "hub") == files(tmp_path / "back")
    assert changed and all(".h." in name or ".ln_f" in name for name in changed)


def test_training_that_sets_begin_and_end_apart_leaves_with_two_entries(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    gpt2_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "base")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT))
    code, _, err = call(
        "pretrain-clm", tmp_path / "text", "-o", tmp_path / "run", "--init-from", tmp_path / "base", *STEADY
    )
    assert code == 0, err
    code, _, err = call("export", tmp_path / "run", "--to", "huggingface", tmp_path / "back")
    assert code == 0 and "training has set BOS and EOS apart" in err
    opened = load_model(tmp_path / "run", "clm", device="cpu")
    words = read_tokenizer(opened.checkpoint)
    ids = torch.tensor([[1, *words.encode(["the quick fox"])[0], 2]])
    with torch.no_grad():
        expected = opened.model.head(opened.model.hidden(ids, PackedLayout.unpacked(1)))
    torch.testing.assert_close(logits(tmp_path / "back", ids), expected, rtol=0, atol=1e-4)
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert reader("the quick fox", add_special_tokens=False).input_ids == ids[0, 1:-1].tolist()
    assert (reader.bos_token_id, reader.eos_token_id) == (1, 2)


def test_shared_rows_are_compared() -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    order = [None, 2, 2, 0]
    assert not keeps_shared_rows({"embedding.weight": rows}, order)
    rows[2] = rows[1]
    assert keeps_shared_rows({"embedding.weight": rows, "norm.weight": torch.arange(4.0)}, order)
    assert not keeps_shared_rows({"embedding.weight": rows, "output.weight": torch.arange(4.0)}, order)
    assert keeps_shared_rows({"embedding.weight": torch.arange(4.0)}, [None, None, 1, 0])  # missing ones share nothing


def test_a_damaged_file_of_the_tokenizer_is_refused(tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "hub")
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    from attnkit.conversion import export_huggingface as module

    opened = load_model(tmp_path / "run", "clm", device="cpu")
    words = read_tokenizer(opened.checkpoint)
    assert words.origin is not None
    words.origin = type(words.origin)("gpt2", words.origin.order, {"tokenizer.json": "AAAA"})
    with pytest.raises(RunError, match="a file of its origin is damaged"):
        module._gpt2(opened.config.model, opened.model.state_dict(), words)
