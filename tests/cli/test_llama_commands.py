"""Commands with a Llama that was trained here from nothing, exported and imported again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attnkit

STEADY = ["--preset", "tiny", "--device", "cpu", "--set", "vocabulary.size=300", "--set", "data.sequence_length=24"]
LLAMA = ["positions=rotary", "rope_base=5000", "glu=true", "activation=silu", "normalization=rms", "bias=false"]
SCALED = ["head_width=24", "rope_scaling.kind=llama3", "rope_scaling.factor=2", "rope_scaling.original_length=16"]


def test_a_llama_goes_through_the_commands(call: Any, workshop: Any, tmp_path: Path) -> None:
    sets = [word for one in [*LLAMA, *SCALED, "n_key_value_heads=1"] for word in ("--set", f"model.{one}")]
    text = workshop.file("text.txt")
    code, _, err = call("pretrain-clm", text, "-o", tmp_path / "run", *STEADY, "--max-steps", "4", *sets)
    assert code == 0, err
    code, _, err = call("export", tmp_path / "run", "--to", "huggingface", tmp_path / "hub")
    assert code == 0, err
    assert json.loads((tmp_path / "hub/config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    code, _, err = call("import", "huggingface", tmp_path / "hub", "-o", tmp_path / "back")
    assert code == 0, err
    texts = []
    for run in ("run", "back"):
        code, out, err = call("generate", tmp_path / run, "the", "--max-new-tokens", "8")
        assert code == 0, err
        assert "using torch" not in err
        scores = [
            score.log_prob for score in attnkit.CausalLM.load(tmp_path / run, engine="torch").score(["the fox", "a"])
        ]
        code, _, err = call("embed", tmp_path / run, text, "-o", tmp_path / f"{run}.npy")
        assert code == 0, err
        texts.append((out, scores))
    assert texts[0] == texts[1]
    further = ["--init-from", tmp_path / "back", "--max-steps", "2", "--device", "cpu"]
    code, _, err = call("pretrain-clm", text, "-o", tmp_path / "more", *further)
    assert code == 0, err
