"""docs/models.md lists every family that is found in the folder, and nothing that is not right."""

from __future__ import annotations

from tests.studies.families import gguf_page, states
from tests.studies.families.page import (
    DOCS,
    HEAD,
    HEADING,
    REFUSED_HEADING,
    Errors,
    described,
    known,
    refused_section,
    rows,
    section,
)
from tests.support.harness.markdown_tables import named_rows, parts
from tests.support.models.families import MAX_DIVERGENCE, max_divergence, tinies
from tests.support.models.gguf_blocks import FORMATS
from tests.support.models.gguf_families import QUANTIZED
from webpte.checkpoints.families import UNSUPPORTED, families

WRITE = "run python -m tests.studies families --write"
GGUF_WRITE = "run python -m tests.studies families --gguf --write"


def test_families_page_equals_family_files():
    results = [tuple(row.values())[:-2] for row in rows(DOCS.read_text())]
    assert sorted(results) == sorted(map(described, families())), WRITE


def test_families_page_errors_are_small():
    assert set(known()) == set(families())
    errors = [error for result in known().values() for error in result if error is not None]
    assert all(0 <= error <= 1e-4 for error in errors), WRITE


def test_families_have_tiny_checkpoints():
    assert list(tinies()) == list(families())


def test_families_model_types_are_disjoint():
    for names in ([f.model_types for f in families().values()], [f.gguf_types for f in families().values()]):
        claimed = [name for types in names for name in types]
        assert len(claimed) == len(set(claimed))


def test_families_page_round_trips():
    text = section(dict.fromkeys(families(), Errors(1e-7, 2e-7)))
    page = f"before\n{text}## behind\n"
    assert parts(page, HEADING) == ("before\n", text, "## behind\n")
    assert [(row["f32"], row["4w"]) for row in rows(page)] == [("1.0e-07", "2.0e-07")] * len(families())
    assert {tuple(row) for row in rows(page)} == {HEAD}


def test_refused_models_equal_the_code_and_are_in_no_family():
    assert parts(DOCS.read_text(), REFUSED_HEADING)[1] == refused_section(), WRITE
    supported = {name for family in families().values() for name in (*family.model_types, *family.gguf_types)}
    names = [name for names in UNSUPPORTED.values() for name in names]
    assert len(names) == len(set(names)) and not supported & set(names)


def test_families_and_gguf_names_are_as_many_as_promised():
    """With the largest error that the tables have."""
    assert len(families()) >= 22
    assert len({name for family in families().values() for name in family.gguf_types}) >= 14
    f32 = [errors.f32 for errors in known().values()]
    assert None not in f32 and max(error for error in f32 if error is not None) <= 1e-5
    files = [errors.floats for errors in gguf_page.known().values() if errors is not None]
    assert len(files) == len(QUANTIZED) * len(FORMATS) and max(files) <= 1e-5


def test_gguf_table_has_every_family_in_every_format():
    assert set(gguf_page.known()) == {(name, kind) for name in QUANTIZED for kind in FORMATS}, GGUF_WRITE
    results = [
        (row["Family"], row["Architecture"]) for row in named_rows(parts(DOCS.read_text(), gguf_page.HEADING)[1])
    ]
    assert sorted(results) == sorted(map(gguf_page.described, QUANTIZED)), GGUF_WRITE


def test_gguf_table_has_errors_within_their_bounds():
    measured = [(key, errors) for key, errors in gguf_page.known().items() if errors is not None]
    assert measured and all(errors.are_right(*key) for key, errors in measured), GGUF_WRITE


def test_gguf_bounds_are_near_what_families_have():
    """A bound that is far above what was measured would hide a mistake."""
    for name in QUANTIZED:
        worst = max(errors.divergence for (family, _), errors in gguf_page.known().items() if family == name and errors)
        assert worst <= max_divergence(name) <= max(MAX_DIVERGENCE, 1.6 * worst), name


def test_gguf_table_equals_its_generated_text():
    assert parts(DOCS.read_text(), gguf_page.HEADING)[1] == gguf_page.section(gguf_page.known()), GGUF_WRITE


STATES_WRITE = "run python -m tests.studies families --states --write"


def test_state_table_has_every_family_with_the_tokens_of_each_alone():
    results, _, _ = states.known(DOCS.read_text())
    assert set(results) == set(families()), STATES_WRITE
    assert all(state.batch and state.drafts and state.reused >= states.SHARED - 1 for state in results.values())
    assert {name for name, state in results.items() if state.rewind} == {"qwen3_5", "qwen3_5_moe"}  # from checkpoints


def test_published_models_are_within_their_limits_of_dispatches():
    _, counts, _ = states.known(DOCS.read_text())
    assert set(counts) == set(states.PUBLISHED), STATES_WRITE
    assert not [name for name, model in states.PUBLISHED.items() if counts[name].decode > model.limit]


def test_turns_of_chats_compute_what_is_new():
    """A question, an answer, and the part of the answer before it that stands in another place now."""
    _, _, chats = states.known(DOCS.read_text())
    assert list(chats) == list(states.CHATS), STATES_WRITE
    new = states.QUESTION + states.ANSWER - 1
    assert all(chat.first == new for chat in chats.values())
    assert all(chat.most == new + states.ANSWER - states.THOUGHT for chat in chats.values())


def test_state_tables_equal_their_generated_text():
    text = DOCS.read_text()
    assert parts(text, states.HEADING)[1] == states.section(*states.known(text)), STATES_WRITE
