"""The chat page: loading, talking, stopping, errors in words, by keyboard and for screen readers."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from .fake_pages import is_ready, open_settings, opened

HANG = "{ progress: [23_550_000], hang: true }"


def send(page, text):
    page.fill("#message", text)
    page.press("#message", "Enter")


def settled(page):
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")


def test_chat_page_download_shows_progress_cancels_and_resumes(browser):
    with opened(browser, "language", HANG) as page:
        load = page.locator("#load")
        expect(load).to_contain_text("Downloading the model: 24 MB of 94 MB, 35 s left")
        assert page.locator("progress").evaluate("bar => bar.value") == 0.25
        expect(page.locator("#announcer")).to_contain_text("24 MB")
        page.get_by_role("button", name="Cancel").click()
        expect(load).to_contain_text("continues with the missing ones")
        expect(load).to_have_class("card")
        page.evaluate("fake.hang = false")
        page.get_by_role("button", name="Continue").press("Enter")
        is_ready(page)
        expect(page.locator("#message")).to_be_focused()
        assert page.evaluate("loads") == 2


def test_chat_page_cached_model_shows_no_download(browser):
    with opened(browser, "language", "{ progress: [1e6], hang: true, cached: true }") as page:
        expect(page.locator("#load")).to_contain_text("Loading the model from this device")


def test_chat_page_message_before_ready_is_queued(browser):
    with opened(browser, "language", HANG) as page:
        send(page, "early")
        expect(page.locator("#log .user")).to_contain_text("early")
        expect(page.locator("#log .assistant")).to_contain_text("queued")
        expect(page.locator("#announcer")).to_contain_text("queued")
        expect(page.locator("#send")).to_be_disabled()
        page.get_by_role("button", name="Cancel").click()
        page.evaluate("fake.hang = false")
        page.get_by_role("button", name="Continue").click()
        is_ready(page)
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")
        expect(page.locator("#log")).not_to_contain_text("queued")
        assert page.evaluate("model.requests[0].messages") == [{"role": "user", "content": "early"}]


def test_escape_removes_a_queued_message_from_the_queue(browser):
    with opened(browser, "language", HANG) as page:
        send(page, "early")
        page.keyboard.press("Escape")
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("(stopped)")
        expect(page.locator("#log")).not_to_contain_text("queued")
        page.get_by_role("button", name="New chat").click()
        expect(page.locator("#log article")).to_have_count(0)


@pytest.mark.parametrize("code", ["webgpu-missing", "no-adapter", "unsupported"])
def test_chat_page_no_gpu_hides_composer_until_retry(browser, code):
    with opened(browser, "language", f"{{ loadFailures: [['{code}', 'none']] }}") as page:
        expect(page.get_by_role("alert").first).to_be_visible()
        expect(page.locator("#composer")).to_be_hidden()
        expect(page.locator("#settings")).to_be_hidden()
        page.get_by_role("button", name="Try again").click()
        is_ready(page)
        expect(page.locator("#composer")).to_be_visible()


def test_chat_page_network_error_keeps_composer(browser):
    with opened(browser, "language", "{ loadFailures: [['network', 'none']] }") as page:
        expect(page.get_by_role("alert").first).to_be_visible()
        expect(page.locator("#composer")).to_be_visible()


CODES = {
    "no-adapter": "update the GPU driver",
    "unsupported": "Try another device",
    "damaged": "It was not stored",
    "network": "continues with the missing ones",
    "out-of-memory": "Close other tabs",
    "device-lost": "Close other pages",
}


def test_chat_page_load_error_shows_remedy_and_retry(browser):
    failures = json.dumps([[code, f"{code} and <b>how many</b>"] for code in CODES])
    with opened(browser, "language", f"{{ loadFailures: {failures} }}") as page:
        alert = page.get_by_role("alert").first
        for code, remedy in CODES.items():
            expect(alert).to_contain_text(f"{code} and <b>how many</b>")
            expect(alert).to_contain_text(remedy)
            page.get_by_role("button", name="Try again").click()
        is_ready(page)


def test_chat_page_missing_webgpu_shows_fix_for_browser(browser):
    failures = "[['webgpu-missing', 'Use a current Chrome.']]"
    with opened(browser, "language", f"{{ loadFailures: {failures} }}") as page:
        expect(page.locator("#load")).to_contain_text("Update the browser (to 113")
        expect(page.locator("#load")).not_to_contain_text("Use a current Chrome.")


@pytest.mark.parametrize(
    ("agent", "remedy"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "about:config"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "iOS 26"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.0 Safari/605.1.15",
            "Safari 26",
        ),
    ],
)
def test_chat_page_missing_webgpu_remedy_per_browser(browser, agent, remedy):
    with opened(browser, "language", "{ loadFailures: [['webgpu-missing', 'none']] }", user_agent=agent) as page:
        expect(page.locator("#load")).to_contain_text(remedy)


def test_chat_page_streams_response_and_statistics(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        expect(page.locator("#context")).to_have_text("512 of 512 tokens of context left")
        send(page, "Hi")
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")
        expect(page.locator("#announcer")).to_have_text("Hello there")
        expect(page.locator("#context")).to_have_text("497 of 512 tokens of context left")
        expect(page.locator("#speed")).to_contain_text("tokens/s")
        expect(page.locator("#adapter")).to_have_text("ACME GPU 9000")
        send(page, "And?")
        settled(page)
        said = [message["role"] for message in page.evaluate("model.requests[1].messages")]
        assert said == ["user", "assistant", "user"]


def test_text_of_a_model_is_never_html(browser):
    code = "**<b>bold</b>** `<i>` \n```html\n<script>fake.hit=1</script>\n```\nend"
    pieces = json.dumps(["<img src=x onerror=fake.hit=1>", code])
    with opened(browser, "language", f"{{ pieces: {pieces} }}") as page:
        is_ready(page)
        send(page, "<iframe src=x></iframe>")
        settled(page)
        log = page.locator("#log")
        expect(log).to_contain_text("<img src=x onerror=fake.hit=1>")
        expect(log.locator("pre code")).to_have_text("<script>fake.hit=1</script>")
        expect(log.locator("strong")).to_have_text("<b>bold</b>")
        assert log.locator("img, b, i, script, iframe").count() == 0
        assert page.evaluate("fake.hit") is None


def test_chat_page_escape_stops_and_keeps_text(browser):
    with opened(browser, "language", "{ pieces: Array(50_000).fill('word '), pace: 5 }") as page:
        is_ready(page)
        send(page, "Go")
        expect(page.locator("#log .assistant")).to_contain_text("word word")
        expect(page.locator("#send")).to_be_disabled()
        page.keyboard.press("Escape")
        settled(page)
        kept = page.locator("#log .assistant .text").last.inner_text()
        assert kept.count("word") < 50_000
        page.evaluate("fake.pieces = ['fine']")
        send(page, "More")
        settled(page)
        assert page.evaluate("model.requests[1].messages[1].content").strip() == kept.strip()


def test_escape_before_the_first_token_leaves_a_note(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        page.evaluate("fake.pace = 1e9")
        send(page, "Go")
        expect(page.locator("#log")).to_have_attribute("aria-busy", "true")
        page.keyboard.press("Escape")
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("(stopped)")
        expect(page.locator("#announcer")).to_have_text("(stopped)")
        page.evaluate("fake.pace = 1")
        page.get_by_role("button", name="Regenerate").click()
        settled(page)
        expect(page.locator("#log .assistant")).to_have_count(1)
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")


def test_regenerate_replaces_the_last_answer(browser):
    with opened(browser, "language", "{ pieces: ['one'] }") as page:
        is_ready(page)
        send(page, "Say")
        settled(page)
        page.evaluate("fake.pieces = ['two']")
        page.get_by_role("button", name="Regenerate").click()
        settled(page)
        expect(page.locator("#log .assistant")).to_have_count(1)
        expect(page.locator("#log .assistant")).to_contain_text("two")
        assert page.evaluate("model.requests[1].messages") == [{"role": "user", "content": "Say"}]


def test_chat_page_generate_error_can_be_retried(browser):
    with opened(browser, "language", "{ pieces: ['half'], failures: [['device-lost', 'gone']] }") as page:
        is_ready(page)
        send(page, "Say")
        settled(page)
        expect(page.get_by_role("alert")).to_contain_text("Close other pages")
        page.get_by_role("button", name="Try again").click()
        settled(page)
        expect(page.locator("#log .assistant")).to_have_count(1)


def test_chat_page_device_lost_and_recovered_are_shown(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        page.evaluate("model.dispatchEvent(new Event('lost'))")
        expect(page.locator("#lost")).to_contain_text("loaded again from this device")
        page.evaluate("model.dispatchEvent(new Event('recovered'))")
        expect(page.locator("#lost")).to_contain_text("ready again")


def test_chat_page_full_context_is_shown(browser):
    with opened(browser, "language", "{ reason: 'length', used: 512 }") as page:
        is_ready(page)
        send(page, "Say")
        settled(page)
        expect(page.locator("#log")).to_contain_text("The context is full. Start a new chat to continue.")
        expect(page.locator("#context")).to_have_text("0 of 512 tokens of context left")
        page.get_by_role("button", name="New chat").click()
        expect(page.locator("#log article")).to_have_count(0)
        expect(page.locator("#context")).to_have_text("512 of 512 tokens of context left")


def test_chat_page_settings_sent_and_invalid_schema_refused(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        open_settings(page)
        page.fill("[name=temperature]", "0")
        page.fill("[name=seed]", "7")
        page.fill("#system", "Be brief.")
        page.fill("#schema", "{")
        send(page, "Where?")
        expect(page.locator("#error")).to_contain_text("The schema is not valid JSON")
        expect(page.locator("#schema")).to_be_focused()
        expect(page.locator("#message")).to_have_value("Where?")
        page.fill("#schema", '{"type": "object"}')
        page.press("#message", "Enter")
        settled(page)
        asked = page.evaluate("(({signal, ...rest}) => rest)(model.requests[0])")
        assert asked["temperature"] == 0
        assert asked["seed"] == 7
        assert "top_k" not in asked
        assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
        assert asked["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_chat_page_keyboard_only_and_controls_have_names(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        page.keyboard.type("first line")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("second")
        page.keyboard.press("Enter")
        settled(page)
        assert page.evaluate("model.requests[0].messages[0].content") == "first line\nsecond"
        reached = []
        for _ in range(6):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id"))
        assert reached[:2] == ["Send", "Regenerate"]
        nameless = page.evaluate(
            """[...document.querySelectorAll("button, input, textarea, select, progress")]
               .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map((e) => e.outerHTML)"""
        )
        assert nameless == []


@pytest.mark.parametrize("width", [320, 1280])
def test_chat_page_long_content_does_not_scroll_sideways(browser, width):
    pieces = "['x'.repeat(400), '\\n```\\n' + 'y'.repeat(400) + '\\n```']"
    with opened(browser, "language", f"{{ pieces: {pieces} }}", viewport={"width": width, "height": 700}) as page:
        is_ready(page)
        open_settings(page)
        send(page, "z" * 300)
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_conversations_survive_a_reload_and_can_be_opened_and_deleted(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        send(page, "first")
        settled(page)
        page.get_by_role("button", name="New chat").click()
        expect(page.locator("#log article")).to_have_count(0)
        send(page, "second")
        settled(page)
        page.reload()
        expect(page.locator("#log article")).to_have_count(2)
        expect(page.locator("#log .user")).to_contain_text("second")
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")
        is_ready(page)
        send(page, "third")
        settled(page)
        contents = [message["content"] for message in page.evaluate("model.requests[0].messages")]
        assert contents == ["second", "Hello there", "third"]
        page.get_by_role("button", name="first", exact=True).click()
        expect(page.locator("#log .user")).to_have_count(1)
        expect(page.locator("#log .user")).to_contain_text("first")
        page.get_by_role("button", name="Delete chat: first").click()
        expect(page.locator("#log article")).to_have_count(0)
        page.reload()
        expect(page.locator("#log .user").first).to_contain_text("second")
        expect(page.locator("#list li")).to_have_count(1)


def test_stopped_answer_is_shown_as_stopped_after_a_reload_and_not_sent(browser):
    with opened(browser, "language", "{ pace: 300 }") as page:
        is_ready(page)
        send(page, "long")
        page.keyboard.press("Escape")
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("(stopped)")
        page.reload()
        expect(page.locator("#log .assistant")).to_contain_text("(stopped)")
        is_ready(page)
        page.evaluate("fake.pace = 1")
        send(page, "next")
        settled(page)
        contents = [message["content"] for message in page.evaluate("model.requests[0].messages")]
        assert contents == ["long", "next"]


def test_damaged_storage_is_ignored(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        page.evaluate("""localStorage.setItem(`webpte chats ${location.pathname}`, '[{"id": 3}, {"id": "a"}, null]')""")
        page.reload()
        is_ready(page)
        expect(page.locator("#log article")).to_have_count(0)
        send(page, "works")
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")


def test_header_of_a_narrow_page_stays_within_the_window(browser):
    with opened(browser, "language", viewport={"width": 390, "height": 700}) as page:
        is_ready(page)
        page.evaluate("document.getElementById('name').textContent = 'Qwen3.5-0.8B-a-rather-long-name-of-a-model'")
        for text in ("What is it, and where would one buy a thing like that for a fair price?", "x" * 200):
            send(page, text)
            settled(page)
            page.get_by_role("button", name="New chat").click()
        page.locator("#chats > summary").click()
        expect(page.get_by_role("button", name="Delete chat").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.get_by_role("button", name="x" * 60, exact=True).click()
        expect(page.locator("#chats")).not_to_have_attribute("open", "")


def test_edited_message_replaces_itself_and_what_follows(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        for text in ("one", "two"):
            send(page, text)
            settled(page)
        page.get_by_role("button", name="Edit").first.click()
        expect(page.locator("#message")).to_have_value("one")
        expect(page.locator("#message")).to_be_focused()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#message")).to_have_value("")
        expect(page.locator("#log article")).to_have_count(4)
        page.get_by_role("button", name="Edit").first.click()
        send(page, "three")
        settled(page)
        expect(page.locator("#log article")).to_have_count(2)
        assert page.evaluate("model.requests[2].messages") == [{"role": "user", "content": "three"}]
        page.reload()
        expect(page.locator("#log .user")).to_have_text(["YouthreeEdit"])


def test_answer_and_code_are_copied(browser):
    pieces = json.dumps(["Here:\n```python\nx = 1\n```\ndone"])
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, "language", f"{{ pieces: {pieces} }}", permissions=permissions) as page:
        is_ready(page)
        send(page, "Say")
        settled(page)
        expect(page.locator(".bar span")).to_have_text("python")
        for name, text in (("Copy code", "x = 1"), ("Copy answer", "Here:\n```python\nx = 1\n```\ndone")):
            page.get_by_role("button", name=name).click()
            expect(page.locator("#announcer")).to_have_text("Copied")
            assert page.evaluate("navigator.clipboard.readText()") == text
            page.evaluate("document.getElementById('announcer').textContent = ''")


def test_suggestion_is_sent(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        suggestion = page.locator("#suggestions button").first
        text = suggestion.inner_text()
        suggestion.click()
        settled(page)
        assert page.evaluate("model.requests[0].messages") == [{"role": "user", "content": text}]
        expect(page.locator("#suggestions")).to_be_hidden()


def test_prompt_progress_is_shown_until_the_first_text(browser):
    with opened(browser, "language", "{ promptProgress: [[64, 300], [128, 300]], hold: true }") as page:
        is_ready(page)
        send(page, "long")
        expect(page.locator("#log .assistant")).to_contain_text("Reading the prompt: 128 of 300 tokens")
        assert page.locator("#log progress").evaluate("bar => bar.value / bar.max") == pytest.approx(128 / 300)
        page.evaluate("fake.hold = false")
        settled(page)
        expect(page.locator("#log .assistant")).not_to_contain_text("Reading the prompt")
        assert page.evaluate("model.requests[0].return_progress") is True


def test_download_is_asked_for_with_its_name_and_size(browser):
    with opened(browser, "language", "{ about: { name: 'SmolLM2 135M', cached: 30_000_000 } }") as page:
        load = page.locator("#load")
        expect(load).to_contain_text("SmolLM2 135M, 64 MB")
        expect(load).to_contain_text("30 MB of it are stored here already")
        expect(page.locator("#name")).to_have_text("SmolLM2 135M")
        assert page.title() == "SmolLM2 135M"
        send(page, "early")
        expect(page.locator("#log .assistant")).to_contain_text("queued")
        assert page.evaluate("globalThis.loads") is None
        page.get_by_role("button", name="Load", exact=True).click()
        is_ready(page)
        settled(page)
        expect(page.locator("#log .assistant")).to_contain_text("Hello there")


def test_small_or_stored_model_is_loaded_at_once(browser):
    for about in ("{}", "{ bytes: 1_500_000, cached: 0 }"):
        with opened(browser, "language", f"{{ about: {about} }}") as page:
            is_ready(page)


def test_theme_is_chosen_and_kept(browser):
    with opened(browser, "language", color_scheme="light") as page:
        is_ready(page)
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_label("Theme").select_option("Dark theme")
        dark = page.evaluate(ground)
        assert dark != light
        page.reload()
        is_ready(page)
        assert page.evaluate(ground) == dark
        page.get_by_label("Theme").select_option("System theme")
        assert page.evaluate(ground) == light


def test_link_carries_the_settings_that_are_set(browser):
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, "language", permissions=permissions) as page:
        is_ready(page)
        open_settings(page)
        page.fill("[name=temperature]", "0.5")
        page.fill("#system", "Be <b>brief</b> & kind.")
        page.get_by_role("button", name="Copy as a link").click()
        expect(page.locator("#announcer")).to_have_text("Copied")
        link = page.evaluate("navigator.clipboard.readText()")
        page.goto("about:blank")
        page.goto(link)
        is_ready(page)
        expect(page.locator("#linked")).to_be_visible()
        send(page, "Hi")
        settled(page)
        request = page.evaluate("(({signal, ...rest}) => rest)(model.requests[0])")
        assert request["temperature"] == 0.5
        assert request["messages"][0] == {"role": "system", "content": "Be <b>brief</b> & kind."}
        assert "top_p" not in request
        open_settings(page)
        page.get_by_role("button", name="Reset").click()
        expect(page.locator("#system")).to_have_value("")
        expect(page.locator("#linked")).to_be_hidden()


@pytest.mark.parametrize("value", ["%", "3", "null", '{"nonsense": 1, "temperature": {}}', '{"temperature": "x"}'])
def test_link_with_other_values_is_ignored(browser, value):
    with opened(browser, "language") as page:
        is_ready(page)
        page.evaluate("value => (location.hash = 'settings=' + encodeURIComponent(value))", value)
        page.reload()
        is_ready(page)
        send(page, "Hi")
        settled(page)
        assert "temperature" not in page.evaluate("(({signal, ...rest}) => rest)(model.requests[0])")


def test_chats_are_exported_and_deleted(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        send(page, "keep")
        settled(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        exported = json.loads(download.value.path().read_text(encoding="utf-8"))
        assert [message["content"] for message in exported[0]["messages"]] == ["keep", "Hello there"]
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete all").click()
        expect(page.locator("#log article")).to_have_count(0)
        expect(page.locator("#chats")).to_be_hidden()
        assert page.evaluate("localStorage.length") == 0
