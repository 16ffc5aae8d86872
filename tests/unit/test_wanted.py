"""What is asked of rows, and the files they are in: told apart and refused before a model is loaded."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import webpte
from webpte.batch.made import Made, text_or_tokens
from webpte.batch.output import block_name, check_job, read_note, sweep, with_made, write_block
from webpte.batch.tables import Block, Inputs
from webpte.batch.wanted import Wanted, template_fields, wanted_from
from webpte.batch.worker import columns_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "embbed"}, "task is one of 'embed', 'generate'.*did you mean 'embed'"),
        ({"colum": "x"}, "no option 'colum'.*did you mean 'column'"),
        ({"column": 3}, "column is a text"),
        ({"truncate": 1, "task": "embed"}, "truncate is True or False"),
        ({"truncate": True}, "truncate is an option of the task 'embed', and this one is 'generate'"),
        ({"task": "embed", "system": "x"}, "system is an option of the task 'generate'"),
        ({"task": "embed", "settings": {"seed": 3}}, "settings is an option of the task 'generate'"),
        ({"task": "embed", "prompt": "a", "prefix": "b"}, "prompt and prefix are both given"),
        ({"system": "x", "raw": True}, "system is for the chat template, which raw leaves out"),
        ({"settings": {"temprature": 1}}, "did you mean temperature"),
        ({"settings": 3}, "settings are those of generate"),
        ({"prompt_template": "Say hello"}, "names no column"),
        ({"prompt_template": "{text.__class__}"}, "the name of a column and no more"),
        ({"prompt_template": "{text!r}"}, "the name of a column and no more"),
        ({"prompt_template": '{"a": {text}}'}, "the name of a column and no more"),
        ({"prompt_template": "{text"}, "other braces are doubled"),
        ({"column": "error"}, "error is read and written"),
        ({"output_column": "text"}, "text is read and written"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, options, message):
    with pytest.raises(webpte.InputError, match=message):
        wanted_from(tmp_path / "model.pte", options)


def test_the_task_is_what_the_program_is_for(tmp_path):
    program = tmp_path / "model.pte"
    assert wanted_from(program, {}).task == "generate"
    (tmp_path / "model.task.json").write_text('{"task": "embedding"}')
    assert wanted_from(program, {}).task == "embed"
    (tmp_path / "model.task.json").write_text('{"task": "speech"}')
    with pytest.raises(webpte.InputError, match="is for the task 'speech'"):
        wanted_from(program, {})
    (tmp_path / "model.task.json").write_text("[")
    with pytest.raises(webpte.FormatError, match="not a JSON object that names its task"):
        wanted_from(program, {})


def test_options_that_mean_the_same_are_the_same(tmp_path):
    plain = Wanted("generate")
    assert plain.identity() == Wanted("generate", settings={"seed": 0, "stop": [], "max_new_tokens": 256}).identity()
    assert plain.identity() != Wanted("generate", settings={"seed": 1}).identity()
    biased = Wanted("generate", settings={"logit_bias": {3: -1.0}})
    assert wanted_from(tmp_path / "model.pte", biased.options()) == biased


def test_a_template_names_columns():
    assert template_fields("{a} and {b}: {{not this}} {a}") == ("a", "b")
    assert Wanted("generate", prompt_template="{title}: {body}").columns == ("title", "body")


@pytest.mark.parametrize(
    ("value", "found"),
    [("ä", "ä"), ("ä".encode(), "ä"), ([1, 2], [1, 2]), ((3,), [3])],
)
def test_values_that_are_texts_or_tokens(value, found):
    assert text_or_tokens(value) == found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "is null"),
        (float("nan"), "is null"),
        (b"a\xff", "no UTF-8"),
        (3, "not 3"),
        ([], "not"),
        ([True], "not"),
        (["a"], "not"),
        ({"a": 1}, "not a dict"),
    ],
)
def test_values_that_are_neither_tell_why(value, message):
    with pytest.raises(webpte.InputError, match=message):
        text_or_tokens(value)


# ---------------------------------------------------------------- files


def test_blocks_are_rows_of_row_groups_in_the_order_of_files(tmp_path):
    for name, count in (("b.parquet", 7), ("a/c.parquet", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [f"{name} {n}" for n in range(count)]}), tmp_path / name, row_group_size=5)
    (tmp_path / "notes.txt").write_text("no table")
    inputs = Inputs(tmp_path)
    blocks = list(inputs.blocks(3))
    assert inputs.files == ["a/c.parquet", "b.parquet"]
    assert [(b.file[0], b.group, b.first, b.rows) for b in blocks] == [
        ("a", 0, 0, 3), ("b", 0, 0, 3), ("b", 0, 3, 2), ("b", 1, 0, 2)
    ]  # fmt: skip
    read = [text for block in blocks for text in inputs.read(block)["text"].to_pylist()]
    assert read == [f"a/c.parquet {n}" for n in range(3)] + [f"b.parquet {n}" for n in range(7)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", b'{"id": 1, "text": "a\\nb"}\n{"id": 2, "text": "a\xff"}\n{"id": 3, "text": null}\n'),
        ("x.csv", b'id,text\n1,"a\nb"\n2,a\xff\n'),
    ],
)
def test_bad_utf8_in_a_file_is_the_affair_of_its_row(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    inputs = Inputs(tmp_path / name)
    (block,) = inputs.blocks(100)
    values = columns_of(inputs.read(block), Wanted("embed"))["text"]
    assert values[:2] == [b"a\nb", b"a\xff"] and values[2:] in ([], [None])


def test_a_long_line_is_read(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "x" * 3_000_000}) + "\n" + json.dumps({"text": "y"}) + "\n")
    inputs = Inputs(tmp_path / "x.jsonl")
    assert [block.rows for block in inputs.blocks(10)] == [2]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("x.parquet", b"PAR1nothing", webpte.FormatError, "cannot be read as parquet"),
        ("x.jsonl", b'{"t": 1}\n{"t": "a"}\n', webpte.FormatError, "cannot be read as json.*changed from number"),
        ("x.csv", b"", webpte.FormatError, "cannot be read as csv"),
        ("x.txt", b"a", webpte.InputError, "is no table.*.parquet"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, name, content, kind, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(kind, match=message):
        list(Inputs(tmp_path / name).blocks(10))
    with pytest.raises(webpte.InputError, match="there is no input"):
        Inputs(tmp_path / "y.parquet")


# ---------------------------------------------------------------- the folder


def block_of(*values):
    return Block("x.parquet", 0, 0, len(values)), pa.table({"text": list(values)})


def test_a_name_tells_rows_and_job_apart_and_nothing_else(tmp_path):
    block, table = block_of("a", None, "c")
    name = block_name(block, table, "job")
    pq.write_table(table, tmp_path / "again.parquet", compression="gzip", row_group_size=1)
    assert block_name(block, pq.read_table(tmp_path / "again.parquet"), "job") == name
    assert block_name(block, pa.concat_tables([table.slice(0, 1), table.slice(1)]), "job") == name
    assert block_name(block, table, "other") != name
    assert block_name(block, block_of("a", "", "c")[1], "job") != name


def test_a_block_is_written_whole_and_says_what_it_holds(tmp_path):
    block, table = block_of("a", "b")
    made = Made({"generated": ["x", None], "prompt_tokens": [1, None]}, [None, "no"], tokens=5, computed_tokens=8)
    name = block_name(block, table, "job")
    write_block(tmp_path, name, with_made(table, made))
    assert read_note(tmp_path, name) == {"rows": 2, "failed": 1, "tokens": 5, "computed_tokens": 8}
    first = (tmp_path / name).read_bytes()
    write_block(tmp_path, name, with_made(table, made))
    assert (tmp_path / name).read_bytes() == first and len(list(tmp_path.rglob("*.*"))) == 2
    (tmp_path / name).write_bytes(first[:-20])
    with pytest.raises(webpte.FormatError, match="Delete it, and it is made again"):
        read_note(tmp_path, name)


def test_a_folder_belongs_to_one_job(tmp_path):
    check_job(tmp_path / "out", {"model": "a", "options": {"task": "embed"}})
    check_job(tmp_path / "out", {"model": "a", "options": {"task": "embed"}})
    with pytest.raises(webpte.InputError, match='belongs to another job: model was "a", now "b"'):
        check_job(tmp_path / "out", {"model": "b", "options": {"task": "embed"}})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(webpte.InputError, match="holds other files"):
        check_job(tmp_path / "mine", {"model": "a"})


def test_sweeping_takes_what_is_ours_and_left_over(tmp_path):
    block, table = block_of("a")
    keep, old = block_name(block, table, "now"), block_name(block, table, "then")
    for name in (keep, old):
        write_block(tmp_path, name, table)
    (tmp_path / "x.parquet" / ".g00000-r000000000-abc.parquet.123.tmp").write_text("half")
    (tmp_path / "x.parquet" / "notes.txt").write_text("somebody's")
    (tmp_path / "gone.parquet").mkdir()
    assert sweep(tmp_path, {keep}) == 1
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == sorted(["x.parquet", keep, "x.parquet/notes.txt"])
