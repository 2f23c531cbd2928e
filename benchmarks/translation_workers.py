"""The systems of speed_translation.py, each in a process that translates when it is told to.

Run by that script: attnkit under its own interpreter, the peers under theirs; imports stay inside the classes.
All get source ids that end with EOS and hand back target ids, but attnkit, which goes from text to text.
"""

from __future__ import annotations

import argparse
import json
from itertools import chain
from pathlib import Path
from typing import Any

from peers import Conversation, Message

BOS, EOS = 1, 2


class Attnkit:
    """attnkit as a library, text to text."""

    def __init__(self, work: Path, n_lines: int) -> None:
        source = json.loads((work / "source.json").read_text())
        self.run, self.lines = Path(source["run"]), source["lines"][:n_lines]
        self.translators: dict[tuple[str, int], Any] = {}
        self.lexicon = source.get("lexicon")
        self.shortlist: Any = None

    def answer(self, message: Message) -> Message:
        """Return the texts of the first lines."""
        from attnkit.data.loader import Batching
        from attnkit.decoding.config import SearchConfig
        from attnkit.tasks.translation.translator import load_translator

        # Threads of one process: a split into workers makes no difference.
        kind = (message["precision"], message["threads"] * message["workers"])
        if kind not in self.translators:
            self.translators[kind] = load_translator([self.run], device="cpu", precision=kind[0], threads=kind[1])
        translator = self.translators[kind]
        translator.shortlist = self.words(translator) if message["shortlist"] else None
        # A greedy text needs no normalised scores; no system here is asked for any.
        config = SearchConfig(beam_size=message["beam"], max_length=message["cap"], scores=message["beam"] > 1)
        found = translator.stream(self.lines[: message["n"]], config, Batching(message["batch"]))
        return {"texts": [translation.outputs[0].text for translation in found]}

    def words(self, translator: Any) -> Any:
        """Return the shortlist, which is read the first time."""
        if self.shortlist is None:
            from attnkit.tasks.translation.shortlist import LexiconShortlist

            self.shortlist = LexiconShortlist(Path(self.lexicon), translator.src_tokenizer, translator.tgt_tokenizer)
        return self.shortlist


class HuggingFace:
    """MarianMTModel.generate on the batches that it is given."""

    def __init__(self, work: Path, n_lines: int) -> None:
        from marian import load_marian

        self.ids = json.loads((work / "source.json").read_text())["ids"][:n_lines]
        self.load = lambda: load_marian(work / "marian", 0.0).eval()
        self.models: dict[str, Any] = {}
        self.work = work

    def model(self, precision: str) -> Any:
        """Return the model in a precision."""
        import torch

        if precision not in self.models:
            self.models[precision] = self.load().to(getattr(torch, precision))
        return self.models[precision]

    def answer(self, message: Message) -> Message:
        """Return the target ids of each batch, or how far the logits are from attnkit's."""
        import torch
        from marian import PAD, pad

        if message.get("check"):
            return self.check()
        torch.set_num_threads(message["threads"])
        model = self.model(message["precision"])
        beams = {"early_stopping": True, "length_penalty": 1.0} if message["beam"] > 1 else {}
        found = []
        for batch in message["batches"]:
            inputs = pad([self.ids[i] for i in batch])
            with torch.inference_mode():
                rows = model.generate(
                    input_ids=inputs, attention_mask=(inputs != PAD).long(), do_sample=False,
                    num_beams=message["beam"], max_new_tokens=message["cap"], **beams,
                ).tolist()  # fmt: skip
            found += [until_end(row[1:]) for row in rows]
        return {"ids": found}

    def check(self) -> Message:
        """Return the largest difference of teacher-forced logits from attnkit's."""
        import torch
        from marian import PAD
        from safetensors.torch import load_file

        given = load_file(self.work / "logits.safetensors")
        with torch.inference_mode():
            logits = self.model("float32")(
                input_ids=given["src"], attention_mask=(given["src"] != PAD).long(), decoder_input_ids=given["tgt_in"]
            ).logits
        real = given["tgt_in"] != PAD
        return {"largest difference": float((logits - given["logits"])[real].abs().max())}


class CTranslate2:
    """A CTranslate2 translator on the exported folder; it sorts by length and splits among workers itself."""

    def __init__(self, work: Path, n_lines: int) -> None:
        self.work = work
        shared = work / "ctranslate2" / "shared_vocabulary.json"
        sides = (
            [shared, shared]
            if shared.exists()
            else [shared.with_name(f"{s}_vocabulary.json") for s in ("source", "target")]
        )
        src, tgt = (json.loads(path.read_text()) for path in sides)
        ids = json.loads((work / "source.json").read_text())["ids"][:n_lines]
        self.tokens = [[src[i] for i in row[:-1]] for row in ids]
        self.target_ids = {name: id for id, name in enumerate(tgt)}
        self.translators: dict[tuple[str, int, int], Any] = {}

    def answer(self, message: Message) -> Message:
        """Return the target ids of the first lines."""
        import ctranslate2

        kind = (message["precision"], message["workers"], message["threads"])
        if kind not in self.translators:
            self.translators[kind] = ctranslate2.Translator(
                str(self.work / "ctranslate2"), compute_type=kind[0], inter_threads=kind[1], intra_threads=kind[2]
            )
        results = self.translators[kind].translate_batch(
            self.tokens[: message["n"]], beam_size=message["beam"], length_penalty=1,
            max_decoding_length=message["cap"], max_batch_size=message["batch"],
        )  # fmt: skip
        return {"ids": [[self.target_ids[name] for name in result.hypotheses[0]] for result in results]}


SYSTEMS = {"attnkit": Attnkit, "huggingface": HuggingFace, "ctranslate2": CTranslate2}


def until_end(row: list[int]) -> list[int]:
    """Return ids up to the first end symbol."""
    return row[: row.index(EOS)] if EOS in row else row


def make_batches(lengths: list[int], size: int, *, by_length: bool) -> list[list[int]]:
    """Return line numbers in batches, in file order or longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i]) if by_length else list(range(len(lengths)))
    return [order[start : start + size] for start in range(0, len(order), size)]


def in_line_order(batches: list[list[int]], found: list[list[int]]) -> list[list[int]]:
    """Put the results of batches back in the order of the lines."""
    return [ids for _, ids in sorted(zip(chain(*batches), found, strict=True))]


def main() -> None:
    """Answer until the driver has no more questions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("work", type=Path)
    parser.add_argument("--lines", type=int, required=True)
    options = parser.parse_args()
    talk = Conversation()
    system = SYSTEMS[options.system](options.work, options.lines)
    while (message := talk.listen()) is not None:
        talk.reply(system.answer(message))


if __name__ == "__main__":
    main()
