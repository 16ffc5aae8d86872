"""The report in a real browser: it reads well, searches, jumps, and lets nothing in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.export.exporting import export
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.faults import largest_key, plant, renamed
from tests.support.harness.gate import slow_but, slow_rows_but
from tests.support.models.smollm import smollm2
from tests.unit.test_report import whole
from tests.unit.test_report_page import HOSTILE, hostile_graph
from webpte.cli import main
from webpte.debug.report import method_data, render_page, report_data

pytestmark = pytest.mark.contract  # the programs are ExecuTorch's
PROGRAMS = ["llama", "minilm", "mtcnn_pnet"]
LOOKS = [(name, scheme) for name in PROGRAMS for scheme in ("light", "dark")]
TABS = ["graph", "memory", "constants", "transfers"]


@cache
def report(name):
    if name == "smollm2":
        return report_data(smollm2("4w").path)
    exported = export(name)
    return report_data(exported.path, exported.data)


@contextmanager
def opened(browser: Browser, folder, data, scheme="light", width=1280) -> Iterator[Page]:
    """The page of a report; whatever it logs or asks the network for is a failure."""
    path = folder / "report.html"
    path.write_text(render_page(data), encoding="utf-8")
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        yield page
    finally:
        context.close()
    assert complaints == []


def unfold(page: Page) -> None:
    if page.locator("#fold").count():
        page.click("#fold")


# Boxes of text inside each row that cut into each other, rows that cut into the next, and text that sticks out.
OVERLAPS = """() => {
  const wrong = [], rows = [...document.querySelectorAll(".call, .block summary, .heading")];
  const cuts = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
                      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
  const boxes = [];
  for (const row of rows) {
    const box = row.getBoundingClientRect();
    if (!box.height) continue;
    boxes.push([row, box]);
    const parts = [...row.querySelectorAll(".row, .op, .outs > *, .args > *, .origin, .title, .flow > .v")]
      .filter((part) => part.checkVisibility());
    const found = parts.map((part) => part.getBoundingClientRect());
    found.forEach((a, i) => {
      if (a.left < box.left - 0.5 || a.right > box.right + 0.5) wrong.push(["sticks out", parts[i].textContent]);
      for (const [j, b] of found.entries())
        if (j > i && cuts(a, b)) wrong.push(["overlaps", parts[i].textContent, parts[j].textContent]);
    });
  }
  for (let i = 1; i < boxes.length; i++)
    if (cuts(boxes[i - 1][1], boxes[i][1])) wrong.push(["rows", boxes[i - 1][0].textContent, boxes[i][0].textContent]);
  return [boxes.length, wrong.slice(0, 5)];
}"""

# Every visible piece of text that is too small or too pale for what is after it (WCAG's 4.5 to 1).
ILLEGIBLE = """() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  const wrong = [];
  let seen = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    seen++;
    const style = getComputedStyle(element);
    const [a, b] = [light(numbers(style.color)), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5 || parseFloat(style.fontSize) < 11)
      wrong.push([texts.currentNode.data, style.color, behind(element).join(), style.fontSize]);
  }
  return [seen, wrong.slice(0, 5)];
}"""


def check_reading(page: Page, data) -> None:
    """All views: no scrolling sideways, nothing overlaps, everything can be read."""
    unfold(page)
    count, wrong = page.evaluate(OVERLAPS)
    assert count >= len(data["calls"]) and wrong == []
    for tab in TABS:
        page.click(f"[data-tab={tab}]")
        expect(page.locator(f"#{tab}")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        seen, illegible = page.evaluate(ILLEGIBLE)
        assert seen > 10 and illegible == [], tab


@pytest.mark.parametrize(("name", "scheme"), slow_rows_but([("llama", "dark"), ("mtcnn_pnet", "light")], LOOKS))
def test_report_is_readable(browser, tmp_path, name, scheme):
    data = report(name)
    with opened(browser, tmp_path, data, scheme) as page:
        assert page.locator(".call").count() == len(data["calls"])
        check_reading(page, data)


# Values that are cut to a letter or two a line: taller than four lines of their text.
SQUEEZED = "(values) => values.filter((v) => v.getBoundingClientRect().height > 76).map((v) => v.textContent)"


@pytest.mark.parametrize(("name", "scheme"), slow_rows_but([("llama", "light"), ("mtcnn_pnet", "dark")], LOOKS))
def test_report_on_phone_is_readable(browser, tmp_path, name, scheme):
    data = report(name)
    with opened(browser, tmp_path, data, scheme, width=390) as page:
        expect(page.locator("#details")).not_to_be_visible()
        page.click("#c0 .op")
        expect(page.locator("#details h3")).to_be_in_viewport()
        check_reading(page, data)
        page.click("[data-tab=graph]")
        assert page.locator(".call:visible .v").evaluate_all(SQUEEZED) == []


@pytest.mark.parametrize("width", slow_but([700], [700, 1920]))
def test_report_narrow_widths_do_not_scroll_sideways(browser, tmp_path, width):
    with opened(browser, tmp_path, report("minilm"), width=width) as page:
        for tab in TABS:
            page.click(f"[data-tab={tab}]")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


@pytest.mark.parametrize("name", slow_but(["llama"], PROGRAMS))
def test_searching_narrows_the_list(browser, tmp_path, name):
    data = report(name)
    op = data["calls"][-1]["name"]
    # A fused call names what it does in its program.
    expected = [call["row"] for call in data["calls"] if op in call["name"] or op in str(call["args"])]
    with opened(browser, tmp_path, data) as page:
        folded = page.locator(".call:visible").count()
        page.keyboard.press("/")
        expect(page.locator("#search")).to_be_focused()
        page.keyboard.type(op.upper())  # case does not matter
        shown = page.locator(".call:visible").evaluate_all("rows => rows.map(row => Number(row.dataset.row))")
        assert shown == expected and len(shown) < len(data["calls"])
        expect(page.locator("#found")).to_have_text(f"{len(expected)} of {len(data['calls'])} calls")
        page.keyboard.press("Escape")
        assert page.locator(".call:visible").count() == folded and page.input_value("#search") == ""


def test_searching_by_value_type_and_row(browser, tmp_path):
    data = report("minilm")
    value = max((v for v in data["values"].values() if v["kind"] == "activation"), key=lambda v: len(v["read"]))
    with opened(browser, tmp_path, data) as page:

        def rows_matching(query):
            page.fill("#search", query)
            return page.locator(".call:visible").evaluate_all("rows => rows.map(row => Number(row.dataset.row))")

        mentions = sorted({*value["made"], *value["read"]})
        assert rows_matching(f"%{value['id']}") == mentions  # and not %630 for %63
        assert set(mentions) < set(rows_matching(f"{value['dtype']}[{', '.join(map(str, value['dims']))}]"))
        assert rows_matching("#7") == [7]
        assert rows_matching("linear f32[1536, 384]") and rows_matching("no such thing") == []
        expect(page.locator("#none")).to_be_visible()


@pytest.mark.parametrize("name", slow_but(["llama"], PROGRAMS))
def test_clicking_a_value_jumps_to_its_maker_and_an_output_to_its_reader(browser, tmp_path, name):
    data = report(name)
    values = data["values"]
    tensors = [(c["row"], a["parts"][0]) for c in data["calls"] for a in c["args"] if isinstance(a["parts"][0], int)]
    # The longest edge of the graph.
    row, value = max(tensors, key=lambda pair: pair[0] - min(values[pair[1]]["made"], default=pair[0]))
    maker = values[value]["made"][0]
    assert maker < row
    with opened(browser, tmp_path, data) as page:
        unfold(page)
        page.click(f"#c{row} .args [data-v='{value}']")
        assert page.url.endswith(f"#v{value}")
        expect(page.locator(f"#c{maker}")).to_have_class(re.compile("selected"))
        expect(page.locator(f"#c{maker}")).to_be_in_viewport()
        expect(page.locator("#details")).to_contain_text(f"%{value}")
        assert page.locator("#details [data-c]").count() >= 2
        page.click(f"#c{maker} .outs [data-v='{value}']")
        reader = next(r for r in values[value]["read"] if r > maker)
        expect(page.locator(f"#c{reader}")).to_have_class(re.compile("selected"))
        expect(page.locator(f"#c{reader}")).to_be_in_viewport()
        page.go_back()
        expect(page.locator(f"#c{maker}")).to_be_in_viewport()


def test_report_link_into_folded_block_opens_it(browser, tmp_path):
    data = report("minilm")
    row = data["repeats"][0][3]["first"] + 5
    with opened(browser, tmp_path, data) as page:
        expect(page.locator(f"#c{row}")).not_to_be_visible()
        page.click("[data-tab=constants]")
        page.evaluate(f"location.hash = '#c{row}'")
        expect(page.locator(f"#c{row}")).to_be_in_viewport()
        assert page.locator("#edges path").count() > 0


def test_report_page_number_keys_select_tabs(browser, tmp_path):
    with opened(browser, tmp_path, report("llama")) as page:
        for number, tab in enumerate(TABS, 1):
            page.keyboard.press(str(number))
            expect(page.locator(f"#{tab}")).to_be_visible()
        page.keyboard.press("1")
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        expect(page.locator("#c1")).to_have_class(re.compile("selected"))
        expect(page.locator("#details h3")).to_contain_text("#1 ")


BARS = """(lanes) => lanes.map((lane) => [...lane.querySelectorAll("a.v")].map((bar) => {
  const { left, right } = bar.getBoundingClientRect();
  return [left, right];
}))"""


def test_report_timeline_shows_shared_buffers(browser, tmp_path):
    data = report("minilm")
    with opened(browser, tmp_path, data) as page:
        page.click("[data-tab=memory]")
        lanes = page.locator(".lane:has(a.v)").evaluate_all(BARS)
        buffers = [b for b in data["memory"]["buffers"] if b["kind"] == "activation"]
        assert [len(lane) for lane in lanes] == [len(b["tensors"]) for b in buffers]
        for (_, right), (left, _) in (pair for lane in lanes for pair in itertools.pairwise(lane)):
            assert right <= left + 2.5  # what lives for one call of hundreds is still drawn 2 px wide
        bar = page.locator(".track a.v.input").first
        bar.hover()
        expect(page.locator("#tip")).to_contain_text(f"%{bar.get_attribute('data-v')}")
        page.fill("#zoom", "10")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        bar.click()
        expect(page.locator("#graph")).to_be_visible()


def test_report_page_hostile_names_run_no_script(browser, tmp_path):
    data = whole(method_data(hostile_graph(), None, HOSTILE), method=HOSTILE)
    with opened(browser, tmp_path, data) as page:
        page.click("#c0 .op")
        for tab in TABS:
            page.click(f"[data-tab={tab}]")
        page.fill("#search", HOSTILE[:30])
        assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0
        assert page.locator("#c0 .op").get_attribute("title") == HOSTILE
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_report_broken_program_shows_calls_and_reason(browser, tmp_path):
    plant(export("minilm").path, tmp_path / "broken.pte", renamed("aten.linear.default", "aten.lineal.default"))
    data = report_data(tmp_path / "broken.pte")
    with opened(browser, tmp_path, data) as page:
        expect(page.locator(".problem")).to_contain_text("aten.lineal.default (x13) has no kernel")
        assert page.locator(".call").count() == 311
        page.fill("#search", "lineal")
        assert page.locator(".call:visible").count() == 13
        page.keyboard.press("Escape")
        check_reading(page, data)


def test_report_missing_constant_key_is_named(tmp_path, capsys):
    key = largest_key(export("minilm").path)
    plant(export("minilm").path, tmp_path / "broken.pte", drop=key)
    assert main(["inspect", str(tmp_path / "broken.pte"), "--html", str(tmp_path / "out.html")]) == 0
    assert f"key {key} has no data" in capsys.readouterr().out and (tmp_path / "out.html").exists()


@pytest.mark.slow
def test_report_large_language_model_is_usable(browser, tmp_path):
    data = report("smollm2")
    assert data["exported_calls"] > 600 and len(data["repeats"][0]) == 30
    with opened(browser, tmp_path, data) as page:
        assert page.locator(".call:visible").count() < 100  # folded to one layer and what is around them
        check_reading(page, data)
        page.click("[data-tab=graph]")
        page.fill("#search", "state")  # the KV caches, one attention in each layer
        touching = {row for v in data["values"].values() if v["kind"] == "state" for row in v["read"]}
        assert page.locator(".call:visible").count() == len(touching) == 30
