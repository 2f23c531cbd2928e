"""A model of OPUS-MT's size, imported: memory, speed beside CTranslate2's int8, memory of adapting by LoRA.

    PYTHONPATH=src python benchmarks/imported_models.py --data MULTI30K [--rounds 5]

MULTI30K has train and test_2016_flickr, .en and .de. The model is a Marian of transformers with random weights: 6 + 6
layers of 512, 8 heads, inner width 2048, 60,000 entries, of which a SentencePiece model of the text uses 8,000. Every
translation is 25 tokens long (attnkit counts its end), since random weights never end. Both systems go from text to
text in one process, in turns; CTranslate2 has each split of the cores (workers x threads) and batch size of its probe,
and the fastest counts. Needs transformers, sentencepiece and ctranslate2 in this environment. Figures go to
benchmarks/results/imported_models.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import WORK, Message, machine
from word2vec_runs import measured

HERE = Path(__file__).resolve().parent
HOME = WORK / "imported"
RESULT = HERE / "results" / "imported_models.json"
ENTRIES, PIECES, LENGTH = 60_000, 8000, 25


def make_folder(data: Path, folder: Path) -> None:
    """Write the model as transformers stores it."""
    import sentencepiece
    import torch
    import transformers

    folder.mkdir(parents=True)
    known: dict[str, None] = dict.fromkeys(["</s>", "<unk>"])
    for side, name in (("en", "source.spm"), ("de", "target.spm")):
        prefix = folder / name.removesuffix(".spm")
        sentencepiece.SentencePieceTrainer.train(input=str(data / f"train.{side}"), model_prefix=str(prefix),
                                                 vocab_size=PIECES // 2, minloglevel=2)  # fmt: skip
        (folder / f"{prefix.name}.model").rename(folder / name)
        (folder / f"{prefix.name}.vocab").unlink()
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
        known |= dict.fromkeys(processor.id_to_piece(number) for number in range(processor.get_piece_size()))
    names = [name for name in known if name != "<s>"]
    names += [f"other{number}" for number in range(ENTRIES - 1 - len(names))] + ["<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    torch.manual_seed(1)
    config = transformers.MarianConfig(
        vocab_size=ENTRIES, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        encoder_attention_heads=8, decoder_attention_heads=8, max_position_embeddings=512, scale_embedding=True,
        activation_function="swish", pad_token_id=ENTRIES - 1, decoder_start_token_id=ENTRIES - 1, eos_token_id=0,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.model.shared.weight[ENTRIES - 1] = 0
    model.save_pretrained(folder)


def attnkit(*arguments: object) -> Message:
    """Run a command; return its time and memory."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    return measured([sys.executable, "-m", "attnkit", *arguments], environment, HOME / f"{arguments[0]}.log")[1]


class Theirs:
    """CTranslate2 between SentencePiece's pieces."""

    def __init__(self, folder: Path, source: Path, workers: int, threads: int, batch: int) -> None:
        import ctranslate2
        import sentencepiece

        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type="int8", inter_threads=workers, intra_threads=threads
        )
        self.batch = batch
        self.src, self.tgt = (
            sentencepiece.SentencePieceProcessor(model_file=str(source / name)) for name in ("source.spm", "target.spm")
        )

    def __call__(self, lines: list[str], beam: int) -> list[str]:
        """Translate lines."""
        found = self.translator.translate_batch(
            self.src.encode(lines, out_type=str), beam_size=beam, min_decoding_length=LENGTH, max_batch_size=self.batch,
            max_decoding_length=LENGTH, length_penalty=1,
        )  # fmt: skip
        return [self.tgt.decode(result.hypotheses[0]) for result in found]


def clock(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def speeds(run: Path, hub: Path, lines: list[str], rounds: int) -> Message:
    """Return lines a second of both systems, greedily and with beam 5."""
    import ctranslate2

    from attnkit import Translator

    cores = len(os.sched_getaffinity(0))
    folder = HOME / "ctranslate2"
    if not folder.exists():
        ctranslate2.converters.TransformersConverter(str(hub)).convert(str(folder), quantization="int8")
    own = Translator.load(run, device="cpu", engine="compiled", precision="int8", threads=cores)
    made: Message = {}
    for beam in (1, 5):
        part = lines if beam == 1 else lines[: len(lines) // 4]
        splits = [(w, cores // w) for w in range(1, cores + 1) if cores % w == 0]
        probes = {(w, t, b): Theirs(folder, hub, w, t, b) for w, t in splits for b in (16, 32, 64)}
        probe = part[: len(part) // 3]
        best = min(probes, key=lambda key: clock(lambda: probes[key](probe, beam)))  # noqa: B023
        theirs = probes[best]
        probes.clear()
        options = {"beam_size": beam, "min_length": LENGTH - 1, "max_length": LENGTH, "length_penalty": 1.0}
        own.translate_texts(probe, **options)
        times: dict[str, list[float]] = {"attnkit": [], "ctranslate2": []}
        for _ in range(rounds):
            times["attnkit"].append(clock(lambda: own.translate_texts(part, **options)))  # noqa: B023
            times["ctranslate2"].append(clock(lambda: theirs(part, beam)))  # noqa: B023
        rates = {name: [round(len(part) / each, 2) for each in found] for name, found in times.items()}
        made[f"beam {beam}"] = {
            **rates, "ctranslate2 workers, threads, batch": best,
            "ratio": round(statistics.median(times["ctranslate2"]) / statistics.median(times["attnkit"]), 3),
        }  # fmt: skip
        print(f"beam {beam}: {made[f'beam {beam}']}", flush=True)
    return made


def main() -> None:
    """Make what is missing and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of Multi30k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=400, help="of the test set; a quarter of them with beam 5")
    parser.add_argument("--only", choices=("import", "speed", "adapt"), help="measure this part alone")
    options = parser.parse_args()
    hub, run = HOME / "hub", HOME / "run"
    rows: Message = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    rows["machine"] = machine()
    if not hub.exists():
        make_folder(options.data, hub)
    if options.only in (None, "import") or not run.exists():
        import shutil

        shutil.rmtree(run, ignore_errors=True)
        rows["import"] = {**attnkit("import", "huggingface", hub, "-o", run),
                          "file MB": round((hub / "model.safetensors").stat().st_size / 1e6, 1)}  # fmt: skip
        print(rows["import"], flush=True)
    if options.only in (None, "speed"):
        lines = (options.data / "test_2016_flickr.en").read_text().splitlines()[: options.lines]
        rows["speed"] = speeds(run, hub, lines, options.rounds)
    if options.only in (None, "adapt"):
        data = [value for side, name in (("src", "en"), ("tgt", "de")) for value in (
            f"--{side}", options.data / f"train.{name}", f"--valid-{side}", options.data / f"val.{name}")]  # fmt: skip
        rows["adapt"] = attnkit(
            "train", *data, "-o", HOME / "adapted", "--init-from", run, "--set", "adapter.kind=lora", "--max-steps", 30,
            "--set", "evaluation.every_steps=1000", "--overwrite", "--quiet",
        )  # fmt: skip
        print(rows["adapt"], flush=True)
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
