"""N lines in, N lines out, whatever the lines are; what comes with them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from attnkit.data.loader import Batching
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.translation.stream import TranslateRequest, translate_stream
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.text import lines as stream_module
from attnkit.text.lines import flush_interval, line_batches
from attnkit.text.sentences import split_line


@pytest.fixture(scope="module")
def translator(trained: Path) -> TranslationPipeline:
    return load_translator([trained])


def stream(trained: Path, content: bytes, folder: Path, **options: Any) -> tuple[list[str], list[str]]:
    """Return the lines that come out for these bytes, and the warnings."""
    source = folder / "input.txt"
    source.write_bytes(content)
    warnings: list[str] = []
    request = TranslateRequest([trained], source, device="cpu", threads=1, **options)
    return [line for _, lines in translate_stream(request, warnings.append) for line in lines], warnings


ODD = ["1 2 3", "", "4\u20285", "  ", "\t6\t7", "8\x0c9\x85", "\ufeff1", "😀 e\u0301", "<s> </s> <pad>", "1\x002"]


@pytest.mark.parametrize(
    ("content", "n"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"\n", 1, id="one blank line"),
        pytest.param(b"1 2", 1, id="no line break at the end"),
        pytest.param(b"1\n2\n", 2, id="two lines"),
        pytest.param(b"1\r\n2\r\n\r\n", 3, id="carriage returns"),
        pytest.param(b"1\r2\n3", 2, id="a carriage return inside"),
        pytest.param("".join(line + "\n" for line in ODD).encode(), len(ODD), id="odd characters"),
    ],
)
def test_as_many_lines_come_out_as_go_in(trained: Path, tmp_path: Path, content: bytes, n: int) -> None:
    lines, _ = stream(trained, content, tmp_path)
    assert len(lines) == n
    assert not any("\n" in line for line in lines)
    threefold, _ = stream(trained, content, tmp_path, search={"num_hypotheses": 3})
    assert len(threefold) == 3 * n
    assert threefold[::3] == lines


def test_blank_lines_stay_blank(trained: Path, tmp_path: Path) -> None:
    lines, warnings = stream(trained, b"1 2\n\n  \n3\n", tmp_path)
    assert [bool(line) for line in lines] == [True, False, False, True]
    assert warnings == []


def test_a_carriage_return_at_the_end_of_a_line_changes_nothing_but_is_counted(trained: Path, tmp_path: Path) -> None:
    plain, _ = stream(trained, b"1 2\n3\n", tmp_path)
    dropped, warnings = stream(trained, b"1 2\r\n3\r\n", tmp_path)
    assert dropped == plain
    assert len(warnings) == 1 and warnings[0].startswith("2 lines") and "carriage return" in warnings[0]


def test_bad_bytes_become_replacement_characters_with_one_warning(trained: Path, tmp_path: Path) -> None:
    content = b"1 2\n3 \xff 4\n\xc3\n5\n"
    lines, warnings = stream(trained, content, tmp_path)
    assert lines == stream(trained, content.decode(errors="replace").encode(), tmp_path)[0]
    assert len(warnings) == 1
    assert "2 lines" in warnings[0] and f"{tmp_path / 'input.txt'}:2" in warnings[0]
    with pytest.raises(DataError) as caught:
        stream(trained, content, tmp_path, strict=True)
    assert caught.value.exit_code == 3
    assert caught.value.where == f"{tmp_path / 'input.txt'}:2"


def test_scores_and_json(trained: Path, tmp_path: Path) -> None:
    content = b"1 2 3\n\n4 5\n"
    plain, _ = stream(trained, content, tmp_path, search={"num_hypotheses": 2})
    scored, _ = stream(trained, content, tmp_path, search={"num_hypotheses": 2}, scores=True)
    assert [line.split("\t", 1)[1] for line in scored] == plain
    assert float(scored[0].split("\t")[0]) >= float(scored[1].split("\t")[0])
    objects = [json.loads(line) for line in stream(trained, content, tmp_path, as_json=True)[0]]
    assert [found["source"] for found in objects] == ["1 2 3", "", "4 5"]
    assert all(set(found) == {"source", "signs", "confidence", "translations"} for found in objects)
    assert all(set(output) == {"text", "score", "log_prob"} for found in objects for output in found["translations"])
    assert objects[0]["translations"][0]["text"] == plain[0]
    assert objects[1]["translations"] == [{"text": "", "score": 0, "log_prob": 0}]


def test_attention_has_a_row_per_target_and_a_column_per_source_token(trained: Path, tmp_path: Path) -> None:
    lines, _ = stream(trained, b"1 2 3\n4\n", tmp_path, as_json=True, attention=True)
    for found in map(json.loads, lines):
        source = found["source_tokens"][0]
        output = found["translations"][0]
        weights = output["attention"][0]
        assert len(weights) in (len(output["tokens"][0]), len(output["tokens"][0]) + 1)  # the end, if it came
        assert all(len(row) == len(source) + 1 for row in weights)
        assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in weights)


def test_the_score_is_the_log_probability_over_the_length(translator: TranslationPipeline) -> None:
    for alpha in (0.0, 1.0):
        config = translator.configure({"length_penalty": alpha, "num_hypotheses": 3})
        for output in next(translator.stream(["1 2 3 4"], config)).outputs:
            lengths = (len(output.tokens[0]) + 1, len(output.tokens[0]))  # finished or cut at the longest length
            assert any(output.score == pytest.approx(output.log_prob / n**alpha, abs=1e-5) for n in lengths)


def test_prefixes_begin_the_translations(trained: Path, translator: TranslationPipeline, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("9 9\n\n0\n\n")
    lines, _ = stream(trained, b"1 2 3\n4 5\n\n6\n", tmp_path, prefixes=tmp_path / "prefixes")
    assert len(lines) == 4
    assert lines[0].startswith("9 9")
    assert lines[1] == translator.translate(["4 5"])[0]
    assert lines[2] == ""  # a blank line has no translation to begin
    assert lines[3] == translator.translate(["6"])[0]  # a blank prefix leaves it free


def test_an_over_long_line_is_split_and_rejoined(translator: TranslationPipeline) -> None:
    short = TranslationPipeline(translator.runs, translator.searcher)
    short.segmenter.max_length, short.segmenter.policy = 12, "lines"
    line = "1 2 3 4. 5 6 7 8 9 0 1 2, 3 4 5 6 7 " + "8" * 30
    texts = split_line(line, 12, lambda text: len(translator.src_tokenizer.encode([text])[0]))
    assert len(texts) > 3
    (whole,) = short.stream([line], record=True)
    parts = list(translator.stream(texts, record=True))
    (output,) = whole.outputs
    assert output.text == " ".join(part.outputs[0].text for part in parts)
    assert output.score == pytest.approx(sum(part.outputs[0].score for part in parts), abs=1e-4)
    assert output.log_prob == pytest.approx(sum(part.outputs[0].log_prob for part in parts), abs=1e-4)
    assert output.attention is not None and len(output.attention) == len(texts) == len(whole.source_tokens)
    for weights, part in zip(output.attention, parts, strict=True):
        torch.testing.assert_close(torch.tensor(part.outputs[0].attention), torch.tensor([weights]))


def test_a_prefix_begins_the_first_part_alone(translator: TranslationPipeline) -> None:
    short = TranslationPipeline(translator.runs, translator.searcher)
    short.segmenter.max_length, short.segmenter.policy = 12, "lines"
    (found,) = short.stream(["1 2 3 4. 5 6 7 8"], prefixes=["9 9"])
    first, *others = (translator.tgt_tokenizer.decode(translator.tgt_tokenizer.encode(["9 9"]))[0], *found.outputs)
    tokens = others[0].tokens
    assert len(tokens) == 2
    beginning = translator.tgt_tokenizer.tokens(translator.tgt_tokenizer.encode([first])[0])
    assert tokens[0][: len(beginning)] == beginning
    assert tokens[1] == next(translator.stream(["5 6 7 8"])).outputs[0].tokens[0]


@pytest.mark.parametrize("limit", [1, 3, 7])
@pytest.mark.parametrize(
    "line", ["a b c d e f", "one. two, three; four", "x" * 20, "一二三。四五，六七", "  a   b  ", "a. b"]
)
def test_splitting_loses_no_character(line: str, limit: int) -> None:
    parts = split_line(line, limit, len)
    assert all(len(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(line.split())
    assert split_line(line, 1000, len) == [line]


def test_a_line_is_answered_before_the_next_one_comes() -> None:
    answered = threading.Event()

    def typed() -> Iterator[str]:
        yield "first"
        assert answered.wait(60)
        yield "second"
        raise DataError("the reader failed")

    groups = line_batches(typed(), 4096)
    assert next(groups) == ["first"]
    answered.set()
    assert next(groups) == ["second"]
    with pytest.raises(DataError, match="the reader failed"):
        next(groups)
    assert list(line_batches(iter("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]


def test_the_windows_of_a_file_are_full_however_slowly_it_is_read(tmp_path: Path) -> None:
    def slowly() -> Iterator[str]:
        for line in "abcde":
            time.sleep(0.05)
            yield line

    (tmp_path / "file").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    assert flush_interval(tmp_path / "pipe") is not None
    assert flush_interval(tmp_path / "file") is None
    assert list(line_batches(slowly(), 2, None)) == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize("patience", [None, 60.0])
def test_windows_of_long_lines_are_short(patience: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines a window may have, what is held at once has few characters."""
    monkeypatch.setattr(stream_module, "MAX_CHARACTERS", 10)
    lines = ["a" * 4, "b" * 4, "c" * 2, "d" * 30, "e", "f" * 9, "g"]
    assert list(line_batches(iter(lines), 100, patience)) == [lines[:3], lines[3:4], lines[4:6], lines[6:]]
    pairs = [("a", "b" * 8), ("c", "d"), ("e" * 12, "")]
    found = line_batches(iter(pairs), 100, patience, lambda pair: len(pair[0]) + len(pair[1]))
    assert list(found) == [pairs[:2], pairs[2:]]


def test_not_much_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_CHARACTERS", 10)
    n_read = 0

    def lines() -> Iterator[str]:
        nonlocal n_read
        for _ in range(40):
            n_read += 1
            yield "x" * 6

    groups = line_batches(lines(), 100, 60.0)
    assert next(groups) == ["x" * 6] * 2
    time.sleep(0.2)
    assert n_read <= 5, "two in the window, two waiting, one that waits for room"
    assert sum(map(len, groups)) == 38


def test_runs_of_different_vocabularies_cannot_vote(workshop: Any, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    workshop.train(workshop.configure(limits__max_steps=1, vocabulary__byte_fallback=False), other)
    with pytest.raises(RunError, match="identical vocabularies"):
        load_translator([trained, other])


def test_settings_of_the_search_are_checked(translator: TranslationPipeline) -> None:
    with pytest.raises(UsageError, match="unknown key 'beam'") as caught:
        translator.translate(["1"], beam=3)
    assert caught.value.help == "did you mean 'beam_size'?"
    with pytest.raises(UsageError, match="num_hypotheses cannot exceed beam_size"):
        translator.translate(["1"], beam_size=2, num_hypotheses=3)
    with pytest.raises(UsageError, match="beam_size"):
        translator.translate(["1"], beam_size=0)


def test_the_library_translates(trained: Path, translator: TranslationPipeline) -> None:
    import attnkit

    lines = ["1 2 3", "", "4 5 6"]
    loaded = attnkit.Translator.load(trained)
    found = loaded.translate(lines, beam_size=5)
    assert found == attnkit.Translator.load(str(trained), device="cpu").translate(lines, beam_size=5)
    assert [one.text for one in found] == [str(one) for one in found] == translator.translate(lines, beam_size=5)
    assert list(loaded.translate_stream(iter(lines), beam_size=5)) == found
    several = loaded.translate(lines, beam_size=5, num_hypotheses=2)
    assert [one.text for one in several] == [one.text for one in found]
    both = [[one.text, *(other.text for other in one.alternatives)] for one in several]
    assert [text for texts in both for text in texts] == translator.translate(lines, beam_size=5, num_hypotheses=2)
    assert loaded.translate([]) == []
    plain = found[0].to_dict()
    assert plain["source"] == "1 2 3" and "attention" not in plain
    (weights,) = loaded.translate(["1 2 3"], attention=True)[0].attention or []
    assert len(weights) == len(found[0].tokens) + ("cut" not in found[0].signs), "with the end symbol, if it ends"
    assert len(weights[0]) == len(found[0].source_tokens) + 1
    with pytest.raises(DataError, match="3 lines, but 1 prefixes"):
        loaded.translate(lines, prefixes=["1"])


def test_lengths_beyond_learned_positions_are_refused(workshop: Any, trained: Path) -> None:
    from attnkit.engine.seq2seq import LocalSearch

    run = workshop.random_run(trained, "transformer", model__positions="learned", model__max_length=300)
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    assert translator.configure({"max_length": 300}).max_length == 300
    for options in ({"max_length": 301}, {"max_ratio": 5.0}, {"min_length": 300, "max_length": 400}):
        with pytest.raises(UsageError, match="the model has 300"):
            translator.configure(options)
    with pytest.raises(DataError, match="target prefix 1 has"):
        list(translator.stream(["1 2"], prefixes=["1" * 400]))


def test_a_text_file_in_the_place_of_a_run_is_told_apart(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text.en").write_text("1 2\n")
    with pytest.raises(RunError, match="is a file, not a run folder") as caught:
        list(translate_stream(TranslateRequest([trained, tmp_path / "text.en"], Path("-")), print))
    assert "-i" in (caught.value.help or "")
    with pytest.raises(RunError) as caught:  # as the shell expands: -i *.en
        list(translate_stream(TranslateRequest([trained, tmp_path / "text.en"], tmp_path / "a.en"), print))
    assert f"-i '{tmp_path}/*.en' -o FOLDER" in (caught.value.help or "")


def test_target_prefixes_left_over_are_told(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("1\n2\n3\n")
    lines, warnings = stream(trained, b"1 2\n3\n", tmp_path, prefixes=tmp_path / "prefixes")
    assert len(lines) == 2 and [text for text in warnings if "more lines than" in text]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_progress_counts_lines(trained: Path, tmp_path: Path, engine: Any) -> None:
    source = tmp_path / "input.txt"
    source.write_text("1 2 3\n\n4\n" * 4)
    counts: list[int] = []
    batching = Batching(2, window=6)
    request = TranslateRequest([trained], source, device="cpu", threads=1, engine=engine, batching=batching)
    lines = [line for _, group in translate_stream(request, print, counts.append) for line in group]
    assert len(lines) == counts[-1] == 12
    assert counts == sorted(counts) and {0, 6, 12} <= {*counts}
    if engine == "torch":
        assert {3, 9} <= {*counts}  # batch by batch


def test_a_person_is_asked_for_each_line(trained: Path) -> None:
    """On a terminal a greeting comes when everything is loaded, and a prompt before each line; on stderr only."""
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-m", "attnkit", "translate", str(trained), "--device", "cpu"]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        assert process.stdout is not None and process.stderr is not None
        asked = process.stderr.readline() + process.stderr.read(2)
        os.write(keyboard, b"1 2 3\n")
        answer = process.stdout.readline()
        asked += process.stderr.read(2)
        os.write(keyboard, b"\x04")
        assert process.wait(60) == 0
    os.close(keyboard)
    assert asked == b"type a line to translate; Ctrl-D ends\n> > "
    assert answer.endswith(b"\n")
