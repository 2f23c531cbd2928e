"""Sources of text: whatever a corpus is stored as, the same lines come out; faults name their place."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.data.prepared_dir import fingerprint, is_prepared, write_index
from attnkit.engine.resolve import resolve
from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.quality.check import check_pair
from attnkit.text.files import LineCounts
from attnkit.text.lines import LineReader, check_not_overwriting, count_lines, open_binary, opened, read_lines
from attnkit.text.parallel import read_parallel
from attnkit.text.sources import read_head, source_stats, split_field, text_name

EN = ["one two", "", 'he said "no", then left', "3 < 4 & 5 > 2", "né 日本 \U0001f600", "last"]
DE = ["eins zwei", "nichts", "er sagte „nein“, und ging", "drei", "geb. 日本", "letzter"]
XML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escaped(text: str) -> str:
    return "".join(XML.get(sign, sign) for sign in text)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def tmx(pairs: list[tuple[str | None, str | None]]) -> str:
    def variant(code: str, text: str | None) -> str:
        return "" if text is None else f'<tuv xml:lang="{code}"><seg>{escaped(text)}</seg></tuv>'

    units = "".join(f"<tu>{variant('en-US', en)}{variant('de', de)}</tu>\n" for en, de in pairs)
    return f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><header/><body>{units}</body></tmx>'


PAIRS = list(zip(EN, DE, strict=True))
TABLES: dict[str, tuple[str, str, str]] = {
    "a.jsonl": ("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in PAIRS), "en", "de"),
    "b.ndjson": ("".join(json.dumps({"id": 7, "t": {"en": a, "de": b}}) + "\n" for a, b in PAIRS), "t.en", "t.de"),
    "a.tsv": ("id\ten\tde\n" + "".join(f"x\t{a}\t{b}\n" for a, b in PAIRS), "en", "de"),
    "b.tsv": ("".join(f"{a}\t{b}\n" for a, b in PAIRS), "1", "2"),
    "a.csv": ("en,de\n" + "".join(f"{quoted(a)},{quoted(b)}\n" for a, b in PAIRS), "en", "de"),
    "b.csv": ("".join(f"{quoted(a)};{quoted(b)}\r\n" for a, b in PAIRS), "1", "2"),
    "a.tmx": (tmx([(a, b) for a, b in PAIRS]), "en", "de"),
}
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", TABLES)
def test_fields_of_tables_are_lines(tmp_path: Path, name: str, packed: str) -> None:
    text, en, de = TABLES[name]
    path = tmp_path / (name + packed)
    path.write_bytes(PACK[packed](text.encode()))
    assert list(read_parallel(Path(f"{path}:{en}"), Path(f"{path}:{de}"))) == PAIRS
    assert count_lines(Path(f"{path}:{en}")) == len(EN)


def test_shards_of_patterns_and_folders_follow_each_other_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "en"
    folder.mkdir()
    (folder / "b.txt").write_text("\ufeffthree\nfour")  # no line feed at the end
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (folder / "c.txt").write_text("")
    (folder / "d.txt").write_text("five\n")
    (folder / ".hidden").write_text("no\n")
    expected = ["one", "two", "three", "four", "five"]
    for source in (folder, folder / "*", tmp_path / "**" / "*.txt*"):
        assert list(read_lines(source)) == expected, source
    for packed in "ab":
        (tmp_path / f"{packed}.jsonl").write_text("".join(f'{{"x": "{packed}{n}"}}\n' for n in range(2)))
    assert list(read_lines(tmp_path / "*.jsonl:x")) == ["a0", "a1", "b0", "b1"]


def test_a_file_that_has_the_name_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"en": "no"}\n')
    for name in ("a.jsonl:en", "[ab].txt", "*.txt"):
        (tmp_path / name).write_text("itself\n")
        assert list(read_lines(tmp_path / name)) == ["itself"]
    assert split_field("a:b:c.txt") == ("a:b:c.txt", None)


def test_what_is_missing_in_a_row_is_an_empty_line_on_that_side(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(tmx([("one", None), (None, "zwei"), ("three", "drei")]))
    pairs = [("one", ""), ("", "zwei"), ("three", "drei")]
    assert list(read_parallel(Path(f"{path}:en"), Path(f"{path}:de"))) == pairs
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"en": "one", "de": null}\n{"en": null, "de": "zwei"}\n\n{"en": "three", "de": "drei"}\n')
    assert list(read_parallel(Path(f"{rows}:en"), Path(f"{rows}:de"))) == pairs
    report = check_pair(Path(f"{path}:en"), Path(f"{path}:de"))
    assert (report.n_src, report.n_usable) == (3, 1)


def test_tmx_takes_text_without_codes_and_the_exact_language(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    segment = 'a <hi>b</hi> <bpt i="1">&lt;b&gt;<sub>no</sub></bpt>c<ept i="1">&lt;/b&gt;</ept>'
    unit = f'<tu><tuv lang="DE_AT"><seg>x</seg></tuv><tuv xml:lang="EN"><seg>{segment}</seg></tuv></tu>'
    path.write_bytes(f'<?xml version="1.0" encoding="UTF-16"?><tmx><body>{unit}</body></tmx>'.encode("utf-16"))
    assert list(read_lines(Path(f"{path}:en"))) == ["a b c"]
    assert list(read_lines(Path(f"{path}:de"))) == list(read_lines(Path(f"{path}:de-at"))) == ["x"]


def test_line_breaks_in_values_become_spaces_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"x": text}) + "\n" for text in ("a\nb\r\nc", "d\n", "\re", "f")))
    reader = LineReader(Path(f"{path}:x"))
    assert list(reader) == ["a b c", "d", "e", "f"]
    assert reader.counts.n_line_breaks == 1
    table = tmp_path / "a.csv"
    table.write_text('x,y\n"one\ntwo",z\n')
    assert list(read_lines(Path(f"{table}:x"))) == ["one two"]


def test_bytes_that_are_not_utf8_are_found_in_cells_as_in_text(tmp_path: Path) -> None:
    for name, delimiter in (("a.tsv", b"\t"), ("a.csv", b",")):
        path = tmp_path / name
        path.write_bytes(b"x%sy\ngood%s1\nb\xe9d%s2\n" % (delimiter, delimiter, delimiter))
        assert list(read_lines(Path(f"{path}:x"), on_bad="replace")) == ["good", "b\ufffdd"]
        with pytest.raises(DataError, match="byte 0xE9 is not UTF-8"):
            list(read_lines(Path(f"{path}:x")))


LONG = '{"x": "' + "y" * (1 << 26) + '"}\n'
FAULTS: dict[str, tuple[str, bytes, str, str, str]] = {
    # name and field, content, exception's text, place, help
    "no field": ("a.jsonl:z", b'{"en": "a", "t": {"de": "b"}}\n', "no field 'z'", "a.jsonl:1", "fields: en, t.de"),
    "later row": ("a.jsonl:x", b'{"x": "a"}\n{"y": "b"}\n', "no field 'x'", "a.jsonl:2", "fields: y"),
    "number": ("a.jsonl:x", b'{"x": 3, "y": "b"}\n', "field 'x' is a number, not text", "a.jsonl:1", "fields: x, y"),
    "object": ("a.jsonl:t", b'{"t": {"en": "a"}}\n', "field 't' is an object, not text", "a.jsonl:1", "fields: t.en"),
    "no object": ("a.jsonl:x", b"[1]\n", "this row is not a JSON object", "a.jsonl:1", "one JSON object"),
    "no JSON": ("a.jsonl:x", b"hello\n", "this line is not valid JSON", "a.jsonl:1", "one JSON object"),
    "duplicate": ("a.jsonl:x", b'{"x": "a", "x": "b"}\n', "duplicate key", "a.jsonl:1", ""),
    "deep": ("a.jsonl:x", b'{"x": ' + b"[" * 100000 + b"\n", "nested too deeply", "a.jsonl:1", ""),
    "surrogate": ("a.jsonl:x", b'{"x": "\\ud800"}\n', "half of a surrogate pair", "a.jsonl:1", ""),
    "bad UTF-8": ("a.jsonl:x", b'{"x": "\xff"}\n', "byte 0xFF is not UTF-8", "a.jsonl:1", "iconv"),
    "huge line": ("a.jsonl:x", LONG.encode(), "more than 67,108,864 bytes", "a.jsonl:1", ""),
    "no column": ("a.tsv:z", b"en\tde\na\tb\n", "no column 'z'", "a.tsv:1", "columns: en, de"),
    "twice": ("a.tsv:en", b"en\ten\na\tb\n", "several columns are called 'en'", "a.tsv:1", ""),
    "number of column": ("a.tsv:3", b"en\tde\na\tb\n", "2 columns, not 3", "a.tsv:1", ""),
    "ragged": ("a.tsv:en", b"en\tde\na\tb\nc\n", "this row has 1 columns, the first one 2", "a.tsv:3", ""),
    "open quote": ("a.csv:x", b'x,y\n"' + b"z,z\n" * 100000, "not valid CSV", "a.csv:", "quote text"),
    "no XML": ("a.tmx:en", b"<tmx><tu>", "not well-formed", "a.tmx:1", ""),
    "no TMX": ("a.tmx:en", b"<xliff/>", "its first element is not 'tmx'", "a.tmx:1", ""),
    "empty TMX": ("a.tmx:en", b"", "not well-formed", "a.tmx:1", ""),
    "no language": ("a.tmx:fr", tmx([("a", "b")]).encode(), "no language 'fr'", "a.tmx", "languages: de, en-us"),
    "laughs": (
        "a.tmx:en",
        b'<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><tmx><tu>&b;</tu></tmx>',
        "it defines an entity, 'a'",
        "a.tmx:1",
        "",
    ),
    "deep XML": ("a.tmx:en", b"<tmx>" + b"<a>" * 1000, "nested more than 64 levels", "a.tmx:1", ""),
    "huge tag": ("a.tmx:en", b'<tmx a="' + b"y" * ((1 << 22) + (1 << 17)), "more than 4,194,304 bytes", "a.tmx:", ""),
    "huge segment": (
        "a.tmx:en",
        b'<tmx><tu><tuv lang="en"><seg>' + b"y\n" * ((1 << 25) + (1 << 18)),
        "more than 67,108,864",
        "a.tmx:",
        "",
    ),
    "gzip": ("a.jsonl:x", gzip.compress(b'{"x": "a"}\n'), "is not UTF-8", "a.jsonl:1", "add .gz to its name"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_name_their_place(tmp_path: Path, case: str) -> None:
    name, content, what, where, help = FAULTS[case]
    (tmp_path / name.split(":")[0]).write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path / name))
    assert what in caught.value.what
    assert f"{tmp_path}/{where}" in str(caught.value.where)
    assert help in str(caught.value.help)
    assert len(caught.value.lines()) <= 3 and max(map(len, caught.value.lines())) < 300


def test_a_truncated_archive_names_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"x": "abc"}\n' * 100)[:-20])
    with pytest.raises(DataError, match="damaged or truncated"):
        list(read_lines(Path(f"{path}:x")))


def test_misuse_says_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"en": "a"}\n')
    Path("a.en").write_text("a\n")
    Path("mixed").mkdir()
    Path("mixed/a.en").write_text("a\n")
    Path("mixed/a.de").write_text("a\n")
    cases = {
        "a.jsonl": ("a.jsonl is a table of several fields", "a.jsonl:FIELD"),
        "*.jsonl": ("is a table of several fields", "'*.jsonl:FIELD'"),
        "mixed": ("several kinds (suffixes: .de, .en)", "'mixed/*.en'"),
        "*.fr": ("no file matches *.fr", "spelling"),
        "a[1": ("no such file: a[1", "spelling"),
        "b.jsonl:en": ("no such file: b.jsonl", "did you mean a.jsonl"),
        "*.en:x": ("a.en is not a table", ".jsonl"),
        "a.en:x": ("no such file: a.en:x", "did you mean a.en"),
        "mixed:x": ("mixed is a folder without tables", ".jsonl"),
    }
    for name, (what, help) in cases.items():
        with pytest.raises(UsageError) as caught:
            open_binary(Path(name))
        assert what in caught.value.what, name
        assert help in str(caught.value.help), name


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="can be read only once"):
        open_binary(tmp_path / "a.jsonl:x")


def test_configuration_takes_fields_as_mappings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"en": f"{n} x", "de": f"{n} y"}) + "\n" for n in range(30)))
    given = [f"data.{side}={{path: {path}, field: {field}}}" for side, field in (("src", "en"), ("tgt", "de"))]
    config = resolve({}, sets=given).config
    assert config.data.src == (f"{path}:en",) and config.data.tgt == (f"{path}:de",)
    both = resolve({}, sets=[f"data.src=[{{path: {path}, field: en}}]", f"data.tgt=['{path}:de']"]).config
    assert both.data == config.data
    named = resolve({}, sets=[*given, "data.bidirectional=true"]).config
    assert named.data.directions == ("en:de",)
    with pytest.raises(UsageError, match="a source of text is a name, or"):
        resolve({}, sets=["data.src={path: a.jsonl, column: en}", given[1]])


def test_changed_files_of_a_source_are_noticed(tmp_path: Path) -> None:
    shards, table = tmp_path / "en", tmp_path / "a.jsonl"
    shards.mkdir()
    (shards / "1.txt").write_text("one\n")
    table.write_text('{"x": "a"}\n')
    sources = [shards, shards / "*.txt", Path(f"{table}:x")]
    folder = tmp_path / "data"
    folder.mkdir()
    write_index(folder, sources, None, {})
    assert is_prepared(folder, list(map(str, sources)), None)
    before = [fingerprint(source) for source in sources]
    (shards / "2.txt").write_text("two\n")
    assert [fingerprint(source) == old for source, old in zip(sources, before, strict=True)] == [False, False, True]
    with pytest.raises(UsageError, match="the file has changed"):
        is_prepared(folder, [str(shards)], None)
    table.write_text('{"x": "b"}\n')
    with pytest.raises(UsageError, match="the file has changed"):
        is_prepared(folder, [f"{table}:x"], None)
    table.unlink()
    assert is_prepared(folder, [f"{table}:x"], None)  # the prepared data replaces a missing file


def test_names_sizes_and_outputs_of_sources(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": {"en": "a"}}\n')
    source = Path(f"{path}:t.en")
    assert text_name(source) == "a.en"
    assert text_name(tmp_path / "shards*" / "*.de.gz") == f"{tmp_path.name}.de"
    assert source_stats(path)[:2] == ["a.jsonl", path.stat().st_size]
    assert source_stats(source)[0] == "a.en" and source_stats(source) != source_stats(Path(f"{path}:t.de"))
    with pytest.raises(UsageError, match="is also an input"):
        check_not_overwriting(path, [source])
    assert read_head(source, 1 << 20) == (b"a\n", 1.0)


def test_large_tables_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """A block of lines at a time is taken from the table, however long it is."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": "' + "y" * 1000 + '"}\n' * 1 + ('{"x": "' + "y" * 1000 + '"}\n') * 2000)
    with opened(Path(f"{path}:x"), LineCounts()) as stream:
        raw: Any = stream
        assert isinstance(raw, io.BufferedReader)
        first = raw.read(10)
        assert first == b"y" * 10
        rest = raw.raw._rest
    assert len(rest) < 1 << 19


def test_errors_reach_whoever_opens_the_source(tmp_path: Path) -> None:
    """The first lines are read when a source is opened, so that commands fail before they begin."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n')
    with pytest.raises(AttnkitError, match="is a number"):
        open_binary(Path(f"{path}:x"))
