"""Damaged tables, one field of which is read as text; Parquet and Arrow only where pyarrow is installed."""

from __future__ import annotations

import json
import random
from importlib.util import find_spec
from pathlib import Path

from mutations import mutate_bytes

from attnkit.text.lines import count_lines, read_lines
from attnkit.text.sources import read_head
from attnkit.text.table_rows import read_rows

ROWS = [(f"{i} one", f"{i} \U0001f600 é") for i in range(60)]
UNITS = "".join(
    f'<tu><tuv xml:lang="en"><seg>{a}</seg></tuv><tuv xml:lang="de"><seg><ph>x</ph>{b}</seg></tuv></tu>\n'
    for a, b in ROWS
)
TEXTS = {
    "a.jsonl": "".join(json.dumps({"id": 1, "t": {"en": a, "de": b}}) + "\n" for a, b in ROWS),
    "a.csv": "t.en,t.de\n" + "".join(f'"{a}","{b}"\n' for a, b in ROWS),
    "a.tsv": "t.en\tt.de\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS),
    "a.tmx": f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><body>{UNITS}</body></tmx>',
}


def make_tables(place: Path) -> None:
    """Write the good tables."""
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    if find_spec("pyarrow") is not None:
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"t": [{"en": a, "de": b} for a, b in ROWS], "word": [a for a, _ in ROWS]})
        parquet.write_table(table, place / "a.parquet")
        saved = place / "saved"
        saved.mkdir()
        path = str(saved / "data-00000-of-00001.arrow")
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


def read_damaged(place: Path, folder: Path, source: random.Random) -> None:
    """Damage a table, and read a field of it."""
    name = source.choice([name for name in (*TEXTS, "a.parquet", "saved") if (place / name).exists()])
    folder.mkdir(exist_ok=True)
    field = "de" if name == "a.tmx" else "t.de"
    if name == "saved":
        damaged = source.choice(("state.json", "data-00000-of-00001.arrow", "data-00000-of-00001.arrow"))
        for file in (place / name).iterdir():
            raw = file.read_bytes()
            (folder / file.name).write_bytes(mutate_bytes(raw, source) if file.name == damaged else raw)
        path = Path(f"{folder}:{field}")
    else:
        (folder / name).write_bytes(mutate_bytes((place / name).read_bytes(), source))
        path = Path(f"{folder / name}:{field}")
    if name != "a.tmx" and source.random() < 0.3:
        whole = folder if name == "saved" else folder / name
        assert all("\n" not in cell for _, row in read_rows(whole) for cell in row)
        return
    for line in read_lines(path, on_bad="replace"):
        assert "\n" not in line
    count_lines(path)
    read_head(path, 1000)
