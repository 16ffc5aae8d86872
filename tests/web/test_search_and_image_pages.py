"""Search by meaning, and what a vision program makes of an image."""

from __future__ import annotations

import io

from PIL import Image
from playwright.sync_api import FilePayload, expect

from .fake_pages import is_ready, opened


def test_results_are_ranked_while_one_types(browser):
    with opened(browser, "encoder") as page:
        is_ready(page)
        expect(page.locator("#results li")).to_have_count(12)  # of the example
        page.fill("#texts", "aaaa\n\n<b>bbb</b>\naaab\naaab")
        page.fill("#query", "")
        expect(page.locator("#state")).to_have_text("Enter a query.")
        page.locator("#query").press_sequentially("aaa")
        expect(page.locator("#results li span:first-child")).to_have_text(["aaaa", "aaab", "<b>bbb</b>"])
        expect(page.locator("#results li").nth(0)).to_contain_text("1.000")
        expect(page.locator("#results li").nth(1)).to_contain_text("0.949")
        page.fill("#texts", "")
        expect(page.locator("#state")).to_have_text("Enter texts to search.")


def test_search_page_latest_query_wins_and_texts_embed_once(browser):
    with opened(browser, "encoder", "{ pace: 60 }") as page:
        is_ready(page)
        expect(page.locator("#results li")).to_have_count(12)
        page.evaluate("""() => {
          const embed = model.embed;
          fake.seen = [];
          model.embed = (texts, options) => (fake.seen.push(...texts), embed(texts, options));
        }""")
        page.fill("#texts", "aaa\nbbb")
        page.fill("#query", "b")
        expect(page.locator("#results li").first).to_contain_text("bbb")
        page.fill("#query", "a")
        expect(page.locator("#results li").first).to_contain_text("aaa")
        assert sorted(page.evaluate("fake.seen")) == ["a", "aaa", "b", "bbb"]


def image_file() -> FilePayload:
    file = io.BytesIO()
    Image.new("RGB", (40, 20), (255, 0, 0)).save(file, "PNG")
    return {"name": "red.png", "mimeType": "image/png", "buffer": file.getvalue()}


INFO = "{ image: { height: 8, width: 8, mean: [0.5, 0.25, 0], std: [0.5, 0.25, 1], labels: 'labels' } }"
FILES = "{ labels: new TextEncoder().encode('cat\\n<i>dog</i>\\nsloth\\n') }"


def test_image_page_shows_planes_and_top_labels(browser):
    outputs = "() => [{ data: new Float32Array([0, 2, 1]), dims: [1, 3], dtype: 'f32' }]"
    with opened(browser, "image", f"{{ info: {INFO}, files: {FILES}, outputs: {outputs} }}") as page:
        page.set_input_files("#file", image_file())
        is_ready(page)
        expect(page.locator("tbody th")).to_have_text(["<i>dog</i>", "sloth", "cat"])
        expect(page.locator("tbody tr").first).to_contain_text("66.5 %")
        inputs = page.evaluate("(({ data, dims }) => ({ data: Array.from(data), dims }))(model.requests[0].inputs[0])")
        assert inputs["dims"] == [1, 3, 8, 8]
        assert inputs["data"] == [1.0] * 64 + [-1.0] * 64 + [0.0] * 64
        expect(page.locator("#preview")).to_have_attribute("aria-label", "red.png, as the model sees it")


def test_image_page_maps_numbers_shown_and_non_image_refused(browser):
    outputs = """() => [
      { data: Float32Array.from({ length: 128 }, (_, at) => at), dims: [1, 2, 8, 8], dtype: 'f32' },
      { data: [7, 8, 9, 10], dims: [2, 2], dtype: 'i32' }]"""
    info = INFO.replace("'labels'", "null")
    with opened(browser, "image", f"{{ info: {info}, outputs: {outputs} }}") as page:
        is_ready(page)
        page.set_input_files("#file", {**image_file(), "buffer": b"no image"})
        expect(page.get_by_role("alert")).to_contain_text("red.png: expected an image")
        page.set_input_files("#file", image_file())
        expect(page.locator("figcaption")).to_have_text(["plane 0, 0 to 63", "plane 1, 64 to 127"])
        expect(page.locator("#outputs")).to_contain_text("7, 8, 9, 10")
        expect(page.locator("#error")).to_be_hidden()


def test_image_page_accepts_drop_and_paste(browser):
    outputs = "() => [{ data: new Float32Array([0, 2, 1]), dims: [1, 3], dtype: 'f32' }]"
    with opened(browser, "image", f"{{ info: {INFO}, files: {FILES}, outputs: {outputs} }}") as page:
        is_ready(page)
        fire = """async ([kind, bytes]) => {
          const data = new DataTransfer();
          data.items.add(new File([Uint8Array.from(bytes)], "new.png", { type: "image/png" }));
          const init = { bubbles: true, cancelable: true };
          const event = kind === "drop" ? new DragEvent("drop", { ...init, dataTransfer: data })
            : new ClipboardEvent("paste", { ...init, clipboardData: data });
          document.getElementById("drop").dispatchEvent(event);
        }"""
        for count, kind in enumerate(("drop", "paste"), 1):
            page.evaluate(fire, [kind, list(image_file()["buffer"])])
            page.wait_for_function("count => model.requests.length === count", arg=count)
        expect(page.locator("tbody tr")).to_have_count(3)
