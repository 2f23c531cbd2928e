"""The verdict of `check`, what `train` makes of it, and languages and scripts of lines."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.errors import UsageError
from attnkit.progress import console
from attnkit.quality.check import is_copy
from attnkit.quality.damage import find_damage, repair_mojibake
from attnkit.quality.doctor import Expected, examine_pair
from attnkit.quality.findings import CheckReport
from attnkit.quality.language_names import check_language, find_language
from attnkit.quality.languages import SCRIPTS, count_scripts, find_other_scripts
from attnkit.quality.lines import _WORD
from attnkit.text.toy.corpus import Kind, make_files

N = 1200


@cache  # half a second
def made(kind: Kind, n: int) -> list[list[str]]:
    files = make_files(kind, n, 5, n_valid=2, n_test=2)
    return [files[name] for name in files if name.startswith("train")]


def toy(kind: Kind, n: int = N) -> tuple[list[str], list[str]]:
    src, tgt = map(list, made(kind, n))
    return src, tgt


def examine(folder: Path, src: list[str], tgt: list[str], training: tuple[list[str], list[str]] | None = None) -> Any:
    paths = write(folder, src, tgt)
    return examine_pair(*paths, others=write(folder, *training, name="training") if training else None)


def write(folder: Path, src: list[str], tgt: list[str], name: str = "a") -> tuple[Path, Path]:
    paths = folder / f"{name}.src", folder / f"{name}.tgt"
    for path, lines in zip(paths, (src, tgt), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


def count(report: CheckReport, name: str) -> tuple[int, int | None]:
    return next(((f.count, f.first_line) for f in report.findings if f.name == name), (0, None))


def test_a_clean_corpus_has_a_good_verdict(tmp_path: Path) -> None:
    report = examine(tmp_path, *toy("english-french"))
    assert (report.severity, report.stretches, report.remedy) == ("good", [], ())
    assert report.separation > 5 and "aligned" in report.verdict


def test_the_verdict_says_from_where_on_and_by_how_much(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    report = examine(tmp_path, src[:-1], tgt[:500] + tgt[501:])
    (shifted,) = [stretch for stretch in report.stretches if stretch.kind == "shifted"]
    assert abs(shifted.first - 502) <= 3 and (shifted.last, shifted.shift) == (N - 1, -1)
    percent = round(100 * shifted.n_lines / (N - 1))
    start = f"From line {shifted.first:,} on, the target is one line ahead"
    assert report.verdict == f"{start}: {percent} % of the corpus is misaligned."
    assert report.severity == "stop" and report.remedy[0] == "clean" and report.remedy[-1] == "--realign"


def test_large_files_are_judged_alike_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = toy("english-french")
    tgt[10] = "большой дом стоит там"
    here = examine(tmp_path, src[:-1], tgt[:500] + tgt[501:])
    monkeypatch.setattr("attnkit.quality.doctor._APART", 0)
    monkeypatch.setattr("attnkit.quality.doctor.usable_cpus", lambda: 2)
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.quality.doctor.judge_files", lambda *_: pytest.fail("judged in this process"))
        assert examine(tmp_path, src[:-1], tgt[:500] + tgt[501:]) == here
    # A process that fails is replaced by this one.
    monkeypatch.setattr("attnkit.quality.doctor.python_command", lambda *_: ["false"])
    assert examine(tmp_path, src[:-1], tgt[:500] + tgt[501:]) == here


def test_missing_targets_are_said_to_be_missing(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    report = examine(tmp_path, src, tgt[:500] + tgt[520:])
    kinds = [(stretch.kind, stretch.n_lines) for stretch in report.stretches[:2]]
    assert kinds[0] == ("no_target", pytest.approx(20, abs=3)) and kinds[1][0] == "shifted"
    assert count(report, "mismatch")[1] == report.stretches[1].first


def test_swapped_pairs_and_swapped_files_are_found(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    mixed = src[:700] + tgt[700:800] + src[800:], tgt[:700] + src[700:800] + tgt[800:]
    report = examine(tmp_path, *mixed)
    n, first = count(report, "swapped_pairs")
    assert 90 <= n <= 100 and first is not None and abs(first - 701) <= 5
    assert "swapped" in report.verdict and report.severity == "warning"
    report = examine(tmp_path, tgt[600:], src[600:], (src[:600], tgt[:600]))
    assert report.severity == "stop" and "swapped" in report.verdict
    assert examine(tmp_path, src[600:], tgt[600:], (src[:600], tgt[:600])).severity == "good"


@pytest.mark.parametrize("side", [0, 1])
def test_a_block_in_the_other_language_is_found(tmp_path: Path, side: int) -> None:
    src, tgt = toy("english-french")
    strange = toy("english-french", 2 * N)[1 - side][-60:]
    pair = [src, tgt]
    pair[side] = pair[side][:400] + strange + pair[side][460:]
    report = examine(tmp_path, *pair)
    name = ("source_in_target_language", "target_in_source_language")[side]
    (found,) = report.stretches
    assert found.kind == name and abs(found.first - 401) <= 5 and abs(found.last - 460) <= 5


def test_a_block_in_a_third_language_is_found(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    phrases = "der große Hund", "zwischen Häusern und Wäldern", "läuft über schwarze Straßen", "schläft nicht"
    words = [word for phrase in phrases for word in phrase.split()]
    strange = [" ".join(words[i * k % len(words)] for k in (1, 2, 5, 7, 3)) for i in range(1, 61)]
    report = examine(tmp_path, src, tgt[:400] + strange + tgt[460:])
    (found,) = report.stretches
    assert found.kind == "target_in_other_language" and abs(found.first - 401) <= 5


def test_copies_are_counted_and_judged(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    report = examine(tmp_path, src, src)
    assert report.severity == "stop" and report.remedy == ()
    wanted = f"The target is a copy of the source in all {N:,} pairs. Is {tmp_path / 'a.tgt'} the right file?"
    assert report.verdict == wanted
    report = examine(tmp_path, src, tgt[:-100] + src[-100:])
    assert count(report, "copied") == (100, N - 99) and report.severity == "warning"
    # Copies say nothing about the alignment of the few other pairs.
    assert examine(tmp_path, src, src[:-100] + tgt[-100:]).stretches == []


def test_few_pairs_are_said_to_be_few(tmp_path: Path) -> None:
    """A small file may be a test set: it is few for training only, and blank pairs do not count."""
    src, tgt = ["a dog", "a cat", "a house", ""], ["un chien", "un chat", "une maison", ""]
    report = examine(tmp_path, src, tgt)
    assert report.severity == "good" and report.verdict.endswith(" 3 pairs are few to learn from.")
    assert count(report, "few") == (0, None)
    report = examine_pair(*write(tmp_path, src, tgt), expected=Expected(is_training=True))
    assert report.severity == "warning" and count(report, "few") == (3, None)
    assert report.verdict == "3 usable pairs are few to learn from: expect a weak model."
    report = examine(tmp_path, src, tgt, toy("english-french"))
    assert report.severity == "good" and "few" not in report.verdict


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6])
def test_untranslated_targets_are_counted_whatever_their_share(tmp_path: Path, share: float) -> None:
    """Targets in the source language teach the target's model that language, too."""
    src, tgt = toy("english-french", 2 * N)
    chosen = random.Random(1).sample(range(N), int(share * N))
    for line in chosen:
        tgt[line] = src[N + line]
    report = examine(tmp_path, src[:N], tgt[:N])
    found, _ = count(report, "other_side")
    long = sum(len(tgt[line]) >= 20 for line in chosen)
    assert 0.97 * long <= found <= len(chosen)
    assert report.severity == ("stop" if share > 0.5 else "warning")


def test_languages_are_named_and_wrong_ones_found(tmp_path: Path) -> None:
    src, tgt = toy("english-french")

    def found(languages: tuple[str | None, str | None], *sides: list[str]) -> CheckReport:
        return examine_pair(*write(tmp_path, *(sides or (src, tgt))), expected=Expected(languages=languages))

    report = found((None, None))
    assert (report.src_language, report.tgt_language, report.severity) == ("en", "fr", "good")
    assert found(("en-GB", "fr")).severity == "good"
    report = found(("en", "de"))
    assert (report.severity, report.verdict) == (
        "stop",
        "The target seems to be French, not German. Is it the right file?",
    )
    assert report.tgt_language == "fr"  # what it is, not what it should be
    assert found(("en-US", "x-own")).tgt_language == "x-own"
    report = found(("en", "fr"), tgt, src)
    assert report.verdict == "Source and target are swapped: the source seems to be French, the target English."
    assert found(("en", "xx")).severity == "good"  # of a language that is not known, nothing can be said
    report = found((None, None), *toy("reverse"))
    assert (report.src_language, report.tgt_language) == (None, None)
    assert found(("en", "ru")).severity == "stop"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Der Hund und die Katze sind nicht mit dem Mann auf der Straße, das ist für ein Kind zu viel.", "de"),
        ("Le chien et le chat ne sont pas dans la maison, et il est avec une femme sur le pont.", "fr"),
        ("De hond en de kat zijn niet in het huis, maar het kind is met een man op de brug.", "nl"),
        ("Собака и кошка не в доме, но он с ней на мосту, и это было так.", "ru"),
        ("Собака і кішка не в будинку, але він з нею на мосту, що це було за так.", "uk"),
        ("犬と猫は家の中にいません。男の人と橋の上にいます。", "ja"), ("狗和猫不在家里，他和一个男人在桥上。", "zh"),
        ("개와 고양이는 집에 없습니다. 남자와 다리 위에 있습니다.", "ko"),
        ("Ο σκύλος και η γάτα δεν είναι στο σπίτι, είναι στη γέφυρα.", "el"),
        ("x = y + 12 ; print ( z ) ; return w + q", None),
    ],
)  # fmt: skip
def test_a_language_is_recognized(text: str, code: str | None) -> None:
    assert find_language([text] * 20) == code


def test_sides_swapped_against_validation_files(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    valid = write(tmp_path, tgt[900:], src[900:], name="valid")
    report = examine_pair(*write(tmp_path, src[:900], tgt[:900]), others=valid, expected=Expected(others="validation"))
    assert report.severity == "stop"
    assert report.verdict == "Source and target are swapped, compared with the validation files."
    assert report.remedy == ("check", report.tgt, report.src)


def test_an_empty_file_has_a_verdict_in_words(tmp_path: Path) -> None:
    src, _ = toy("english-french")
    assert examine(tmp_path, src, []).verdict == f"{tmp_path / 'a.tgt'} is empty."


def test_lines_in_another_script_are_found(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    tgt[10], tgt[20] = "большой дом стоит там", "ένα μεγάλο σπίτι εδώ"
    assert count(examine(tmp_path, src, tgt), "other_script") == (2, 11)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("The dog.", "Latin"), ("Ein Mädchen läuft", "Latin"), ("большой дом", "Cyrillic"), ("σπίτι μου", "Greek"),
        ("قط صغير هنا", "Arabic"), ("犬が走っている", "Han or kana"), ("개가 달리고 있다", "Hangul"),
        ("बिल्ली यहाँ", "Devanagari"),
        ("12 + 3", ""), ("", ""), ("ab", ""), ("one two три", "Latin"),
    ],
)  # fmt: skip
def test_scripts(line: str, script: str) -> None:
    (counts,) = count_scripts([line])
    assert (SCRIPTS[counts.argmax()] if counts.max() >= 5 else "") == script


def test_names_in_latin_letters_make_no_other_script() -> None:
    lines = ["今日はとても良い天気です", "猫が窓の前で寝ています"] * 40 + [
        "Galaxy Ultra Pro 0を買う",
        "only Latin here",
    ]
    script, flags = find_other_scripts(lines)
    assert script == "Han or kana" and flags.nonzero()[0].tolist() == [81]


@pytest.mark.parametrize(
    ("line", "copied"),
    [("नमस्ते दुनिया", True), ("สวัสดี", True), ("你好", True), ("a dog", True), ("12 : 30 h", False), ("好", False)],
)
def test_copies_of_any_script_are_seen(line: str, copied: bool) -> None:
    assert is_copy(line, line) == copied


def test_words_have_their_vowel_signs() -> None:
    assert _WORD.findall("हिन्दी में, naïve") == ["हिन्दी", "में", ",", "naïve"]


def test_remedies_fit_what_is_found(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    unequal = examine(tmp_path, src, tgt[:-3])
    assert "without a partner" in unequal.verdict and unequal.remedy[0] == "clean"
    damaged = [line.encode().decode("cp1252", "replace") for line in tgt]
    report = examine(tmp_path, src, damaged)
    assert "Windows-1252" in report.verdict and report.remedy[-1] == "--repair"
    both = examine(tmp_path, src[:-1], [*damaged[:40], *tgt[41:]])
    assert "misaligned" in both.verdict and both.remedy[-2:] == ("--realign", "--repair")
    mixed = tgt[:400] + [tgt[(7 * i + 11) % N] for i in range(400, 800)] + tgt[800:]
    assert examine(tmp_path, src, mixed).severity == "stop"  # a third does not belong together


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ein MÃ¤dchen", ["mojibake"]), ("itâ\x80\x99s", ["mojibake"]), ("CAFÉ» là-bas, ÂME", []),
        ("Ð¿Ñ€Ð¸", ["mojibake"]), ("a &amp; b", ["reference"]), ("<b>now</b>", ["markup"]), ("a < b > c", []),
        ("p\u0430ss", ["mixed_script"]), ("5 kΩ, 3 μm", []),
        ("e\u0301t\u0301", ["decomposed"]), ("Ä Ö Ü ß é", []), ("x<y && y>z", []),
    ],
)  # fmt: skip
def test_damage_of_lines(line: str, names: list[str]) -> None:
    assert sorted(name for name, _ in find_damage(line)) == sorted(names)


@pytest.mark.parametrize("text", ["ein Mädchen läuft", "it’s “so”", "при", "Å–", "naïve café", "plain"])
def test_mojibake_is_repaired_to_what_was_meant(text: str) -> None:
    broken = "".join(
        chr(b) if b in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([b]).decode("cp1252") for b in text.encode()
    )
    assert repair_mojibake(broken) == text
    assert repair_mojibake(text) == text


@pytest.mark.parametrize(
    ("code", "help"),
    [("xx", "ISO 639"), ("german", "did you mean de?"), ("English", "did you mean en?"), ("x-", "ISO"), ("", "ISO")],
)
def test_unknown_language_codes_are_refused(code: str, help: str) -> None:
    with pytest.raises(UsageError, match="unknown language code") as caught:
        check_language(code, "--src-lang")
    assert help in str(caught.value.help) and caught.value.where == "--src-lang"


@pytest.mark.parametrize("code", ["en", "pt-BR", "de_DE", "zh-Hans", "yo", "gsw", "x-elvish", None])
def test_codes_of_languages_are_accepted(code: str | None) -> None:
    check_language(code, "--src-lang")


def test_what_check_finds_its_command_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = toy("english-french")
    for line, found in {
        3: "m\u0430ison",
        9: "<b>deux</b>",
        15: "l&eacute;on &amp; moi",
        21: "e\u0301te\u0301",
        27: "a\x01b",
    }.items():
        tgt[line] += f" {found}"
    src[30], tgt[30] = src[5].upper(), tgt[5].upper()
    tgt[33], tgt[40], tgt[46] = tgt[33] + " no no no no no", tgt[2], tgt[50] + "\u2028a\ufeffb"
    for line in range(100, 125):
        src[line] = "All rights of this page are reserved."
    monkeypatch.chdir(tmp_path)
    report = examine_pair(*write(Path(), src, tgt))
    names = {finding.name for finding in report.findings}
    assert {
        "mixed_script",
        "markup",
        "reference",
        "decomposed",
        "control",
        "near_duplicate",
        "repeated",
        "boilerplate",
    } <= names
    assert report.severity != "stop" and report.remedy[:5] == ("clean", "a.src", "a.tgt", "-o", "cleaned")
    assert call(monkeypatch, *report.remedy) == 0
    again = examine_pair(Path("cleaned/a.src"), Path("cleaned/a.tgt"))
    assert (again.findings, again.remedy) == ([], ()) and again.n_src > N - 30


def test_overlap_is_mended_in_the_training_text(tmp_path: Path) -> None:
    src, tgt = toy("english-french")
    training, test = write(tmp_path, src, tgt, "train"), write(tmp_path, src[:40], tgt[:40], "test")
    report = examine_pair(*test, others=training)
    assert report.remedy == (
        "clean",
        *map(str, training),
        "-o",
        "cleaned",
        "--test",
        str(test[0]),
        "--test",
        str(test[1]),
    )
    assert report.verdict == "40 of 40 lines also occur in the training source: scores on them are too good."
    assert report.severity == "warning"
    fresh = write(tmp_path, [*src[:3], *src[300:340]], [*tgt[:3], *tgt[300:340]], "fresh")
    few = write(tmp_path, src[:300], tgt[:300], "few")
    assert examine_pair(*fresh, others=few).severity == "good"  # 3 of 43
    report = examine_pair(*training, others=test, expected=Expected(others="validation"))
    assert report.remedy[:3] == ("clean", *map(str, training)) and report.remedy[-1] == str(test[1])
    assert (
        report.verdict == "40 lines also occur in the validation source, which has 40 lines: scores will be too good."
    )


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line and return its exit code."""
    monkeypatch.setattr("sys.argv", ["attnkit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_check_says_the_verdict_first_and_the_command_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    src, tgt = toy("english-french")
    paths = write(tmp_path, src[:-1], tgt[1:])
    assert call(monkeypatch, "check", *map(str, paths)) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("In all lines, the target is one line ahead")
    assert lines[-1].startswith("try: ") and lines[-1].endswith("--realign")
    assert call(monkeypatch, "check", "--json", *map(str, paths)) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["severity"] == "stop" and report["stretches"][0]["shift"] == -1
    assert report["remedy"].split()[-1] == "--realign"


def test_training_stops_for_misaligned_files_unless_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    src, tgt = toy("english-french", 400)
    monkeypatch.chdir(tmp_path)
    write(Path(), src[:-1], tgt[1:])
    command = ["train", "--src", "a.src", "--tgt", "a.tgt", "-o", "run", "--preset", "tiny", "--max-steps", "1"]
    command += ["--set", "vocabulary.size=300"]

    def run(*more: str) -> tuple[int, list[str]]:
        return call(monkeypatch, *command, *more), capsys.readouterr().err.splitlines()

    code, said = run()
    assert code == 3
    assert said[-3] == "error: In all lines, the target is one line ahead: 100 % of the corpus is misaligned."
    assert said[-2] == "  at a.src and a.tgt"
    assert said[-1] == "help: attnkit clean a.src a.tgt -o cleaned --realign mends it; --accept-data trains anyway"
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(console, "confirm", refuse)
    assert run()[0] == 3 and len(asked) == 1 and "Train anyway?" in asked[0]
    monkeypatch.setattr(console, "confirm", lambda question: True)
    assert run()[0] == 0
    monkeypatch.setattr(console, "confirm", lambda question: pytest.fail("asked although accepted"))
    assert run("--overwrite", "--accept-data")[0] == 0


def test_a_question_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not console.confirm("Go on?")
    answers = iter(["yes\n", "Y\n", "\n", "no\n", ""])

    class Terminal:
        isatty = staticmethod(lambda: True)
        readline = staticmethod(lambda: next(answers))
        write = staticmethod(lambda text: None)
        flush = staticmethod(lambda: None)

    monkeypatch.setattr("sys.stdin", Terminal)
    monkeypatch.setattr("sys.stderr", Terminal)
    assert [console.confirm("Go on?") for _ in range(5)] == [True, True, False, False, False]
