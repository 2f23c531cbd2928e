"""Runs of random weights and folders of transformers, for the tests of what goes from one to the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import tensors_of, to_bytes
from attnkit.config import dump_yaml, validate
from attnkit.errors import AttnkitError
from attnkit.tasks.language_modeling.config import MASK, ClmConfig, MlmConfig, clm_preset, mlm_preset
from attnkit.text.config import VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "the lazy dog sleeps, the fox doesn't",
    "l'homme voit le chien brun à l'été",
    "größer als der größte Hund",
    "if x:    return  the fox",
    "if\t  x:\t   return\t  the",  # for entries of tabs with spaces, by which a wrong cut is seen
] * 4
ODD = [
    "",
    " ",
    "   ",
    "the",
    " the",
    "   the  fox ",
    "the\t  fox",
    "\tthe\n\n fox\r\n",
    "a\u00a0b",
    "the\u3000\u2003 fox",
    "a\t\u00a0\u00a0 b",
    "👩‍🚀 flies 🚀🚀",
    "ﬁne ① ½ Å é",
    "Ångström ÉTÉ ß İstanbul",
    "日本語のテキスト。",
    "Это текст, да?",
    "شكرا جزيلا",
    "नमस्ते दुनिया",
    "e\u0301t\u0301 \u0301x",
    "don't l'homme 3.14 x=1;",
    "</s> <s> <pad> <unk> <symbol0> <unused0> ‿ing Ġthe ##s ▁",
    "\ufeff\u200b\u2028\u0000",
    "zz" * 300,
]
"""Blank, odd spaces, other scripts, marks, what looks special and is not."""
SIZES: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 40}


def vocabulary(kind: str = "bpe", **options: Any) -> Tokenizer:
    config = {"kind": kind, "size": 640, "symbols": [MASK], **options}
    return train_vocabulary(TEXT, VocabularyConfig.model_validate_json(json.dumps(config)))


def shaken(model: nn.Module) -> nn.Module:
    """Return a model in which every number is random: norms, biases, all that is trained."""
    width = getattr(getattr(model, "config", None), "hidden_size", 0)  # of a model of transformers
    scale = 0.15 * min(1.0, (64 / max(width, 1)) ** 0.5)  # layers of any width should say as much
    with torch.no_grad():
        for parameter in (each for each in model.parameters() if each.requires_grad):
            parameter.add_(torch.randn_like(parameter), alpha=scale)
    return model.eval()


def configure(task: str, vocabulary: Tokenizer, **model: Any) -> MlmConfig | ClmConfig:
    """Return the configuration of a run of that vocabulary; ``direction`` is the run's and not the model's."""
    preset, config = (mlm_preset, MlmConfig) if task == "mlm" else (clm_preset, ClmConfig)
    tree = preset("tiny", "bert" if task == "mlm" else "gpt")
    tree |= {key: model.pop(key) for key in ("direction",) if key in model}
    return validate(
        config,
        {
            **tree,
            "task": task,
            "data": {"files": ["text.txt"], "sequence_length": 16},
            "model": {**tree["model"], **SIZES, **model},
            "vocabulary": vocabulary.config.model_dump(mode="json"),
        },
    )


def save_run(path: Path, config: Any, model: nn.Module, vocabulary: Tokenizer) -> Path:
    """Write a run of a model as it is, with no more than opening it takes."""
    folder = RunFolder(path)
    contents = {
        "config.yaml": dump_yaml(config).encode(),
        "tokenizer.json": vocabulary.to_json().encode(),
        "model.safetensors": to_bytes(tensors_of(model)),
    }
    with folder.lock():
        folder.save(3, contents)
        folder.write_status(Status(state="stopped", step=3))
    return path


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows as one tensor, and which of it is real."""
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])


def random_rows(vocab_size: int) -> list[list[int]]:
    """Return three rows of different lengths."""
    return [torch.randint(4, vocab_size, (n,)).tolist() for n in (13, 7, 1)]


MODEL_TYPES = ["bert", "roberta", "xlm-roberta", "roformer", "distilbert", "electra", "modernbert", "gpt2", "llama"]
MODEL_TYPES += ["mistral", "marian", "m2m_100", "mbart", "t5", "mt5"]


def check_refusal(error: AttnkitError) -> None:
    """Check that a refused folder has at most three lines, of which the last names all model types that are taken."""
    help = str(error.help)
    assert len(error.lines()) <= 3 and help.count(", ".join(MODEL_TYPES)) == 1, error.lines()
    assert help.endswith(", ".join(MODEL_TYPES)) and help.count("model types: ") + help.count("supported: bert, ") == 1
