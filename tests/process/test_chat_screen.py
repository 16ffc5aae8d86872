"""`webpte chat` in a pseudo-terminal: all its keys and commands. The model's answers are a script."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys

import pytest

from tests.support.harness import scripted_chat
from tests.support.harness.gate import slow_rows_but
from tests.support.harness.screen import SRC, Screen

SIZES = [(80, 24, "long"), (60, 15, "long"), (80, 24, "code"), (60, 15, "code")]
CHAT = ["tests.support.harness.scripted_chat", "chat", "model.pte"]


class Chat(Screen):
    """Asked and answered, one by one."""

    def __init__(self, state, *options, columns=80, rows=24, **environment):
        fields = {"XDG_STATE_HOME": str(state), "HOME": str(state), **environment}
        super().__init__([*CHAT, *options], columns, rows, fields)

    def __enter__(self):
        super().__enter__()
        self.ready()
        return self

    def ready(self):
        """Until a message may be typed."""
        self.wait(lambda screen: screen.prompt_line == ">" and " tokens " in screen.lines[-1])

    def turn(self, text, seen):
        """Send a message; the answer must appear after it."""
        before = self.text.count(seen)
        self.say(text)
        self.wait(lambda screen: screen.text.count(seen) > before)
        self.ready()

    def typed(self, expected):
        self.wait(lambda screen: screen.prompt_line == f"> {expected}".rstrip())

    def begin_anew(self):
        """Check that there are no messages and only the prompt on the screen."""
        self.ready()
        self.turn("/system -", "(no system message)")
        self.turn("/reset", "(started over)")
        self.press("ctrl-l")
        self.wait(lambda screen: not any("(started over)" in line for line in screen.lines))
        self.ready()
        self.pyte.history.top.clear()
        self.bytes = b""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Yield the program that `chat` gives to test after test: it takes seconds to start."""
    running: list[Chat] = []
    yield running, tmp_path_factory.mktemp("state")
    for screen in running:
        screen.__exit__()


@pytest.fixture
def chat(kept, request):
    running, state = kept
    if running:
        running[0].begin_anew()
    else:
        running.append(Chat(state).__enter__())
    failed = request.session.testsfailed
    yield running[0]
    if running[0].process.poll() is not None or request.session.testsfailed > failed:
        running.pop().__exit__()


@pytest.fixture
def own_chat(tmp_path):
    """Yield one that no other test uses: for tests that leave settings or a size after."""
    with Chat(tmp_path) as screen:
        yield screen


def test_chat_line_editing_keys_edit_the_prompt(chat):
    chat.type("bcd")
    chat.press("home")
    chat.type("a")
    chat.press("end")
    chat.type("e")
    chat.typed("abcde")
    chat.press("left", "left", "backspace", "delete")
    chat.typed("abe")
    chat.press("ctrl-a")
    chat.type("1 ")
    chat.press("ctrl-e")
    chat.type(" two three")
    chat.typed("1 abe two three")
    chat.press("ctrl-w")
    chat.typed("1 abe two")
    chat.press("ctrl-u")
    chat.typed("")
    chat.type("keep this")
    chat.press("left", "left", "left", "left", "ctrl-k", "right")
    chat.typed("keep")
    chat.press("backspace")
    chat.turn("", "You said 'keep', turn 1.")


def test_chat_thought_is_folded_when_the_answer_begins(chat):
    chat.say("think 9")
    chat.wait(lambda screen: any("step 4 of my thought" in line for line in screen.lines))
    assert b"\x1b[2mstep 4 of my thought\x1b[0m" in chat.bytes
    chat.wait("The answer.")
    chat.ready()
    assert any("▸ thought, 45 words" in line for line in chat.lines)
    assert not any("of my thought" in line for line in chat.lines)
    chat.turn("/thought", "step 0 of my thought")
    chat.turn("/undo", "removed the last turn")
    chat.turn("/thought", "(no thought)")


def test_chat_history_recalls_messages_across_sessions(tmp_path):
    with Chat(tmp_path) as chat:
        chat.turn("first", "turn 1.")
        chat.turn("second", "turn 2.")
        chat.press("up")
        chat.typed("second")
        chat.press("up")
        chat.typed("first")
        chat.press("down")
        chat.typed("second")
        chat.press("ctrl-u")
        chat.say("/exit")
        assert chat.ended() == 0
    history = tmp_path / "webpte" / "chat-history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    with Chat(tmp_path) as chat:
        chat.press("ctrl-r")
        chat.type("sec")
        chat.wait(lambda screen: "> second" in screen.lines)
        chat.press("enter", "enter")
        chat.wait("You said 'second', turn 1.")
        chat.ready()
        chat.press("up", "up", "up", "up")
        chat.typed("first")


@pytest.mark.slow
def test_chat_unwritable_history_still_works(tmp_path):
    (tmp_path / "file").write_text("")
    with Chat(tmp_path / "file" / "below") as chat:
        chat.turn("hi", "You said 'hi', turn 1.")
        chat.press("up")
        chat.typed("hi")


def test_chat_pasted_lines_are_one_message(chat):
    chat.paste("one\ntwo\r\nthree\rfour")
    chat.wait(lambda screen: screen.prompt_line == "  four")
    chat.press("enter")
    chat.wait(r"You said 'one\ntwo\nthree\nfour', turn 1.")
    chat.ready()
    assert "turn 2" not in chat.text


def test_chat_multiline_message_alt_enter_and_backslash(chat):
    chat.type("one")
    chat.press("alt-enter")
    chat.say("two\\")
    chat.wait(lambda screen: screen.prompt_line == "" and screen.pyte.cursor.x == 2)
    chat.say("three")
    chat.wait(r"You said 'one\ntwo\nthree', turn 1.")
    chat.ready()
    chat.press("up")
    chat.wait(lambda screen: screen.prompt_line == "  three")
    chat.press("up", "up", "home", "ctrl-k")
    chat.wait(lambda screen: screen.prompt_line == ">")
    chat.press("enter")
    chat.wait(r"You said '\ntwo\nthree', turn 2.")


def test_tab_completes_commands_settings_and_files(chat, tmp_path):
    chat.type("/un")
    chat.press("tab")
    chat.typed("/undo")
    chat.press("ctrl-u")
    chat.type("/set top_")
    chat.press("tab")
    chat.wait(lambda screen: {"top_k", "top_p"} <= {line.strip() for line in screen.lines})
    chat.press("tab", "enter")  # chosen
    chat.type(" 5")
    chat.press("enter")
    chat.wait("(top_k = 5)")
    chat.ready()
    (tmp_path / "conversation.json").write_text("[]")
    chat.type(f"/load {tmp_path}/conv")
    chat.press("tab")
    chat.wait(lambda screen: "conversation.json" in "".join(line.strip() for line in screen.lines))
    chat.press("ctrl-u")


def test_chat_commands_do_what_help_states(chat, tmp_path):
    saved = tmp_path / "talk.json"
    chat.turn("/help", "or Ctrl-D, to leave.")
    for name in ["/help", "/system", "/retry", "/undo", "/save", "/load", "/tokens", "/set", "/reset", "/exit"]:
        assert any(line.startswith(name) for line in chat.all_lines), name
    chat.turn("/system", "(no system message)")
    chat.turn("/system Be brief.", "(system: Be brief.)")
    chat.turn("system", "System 'Be brief.'.")
    chat.turn("two", "You said 'two', turn 2.")
    chat.turn("/retry", "You said 'two', turn 2.")
    chat.turn("/tokens", "of 4,096 tokens, ")
    assert "; 5 messages)" in chat.text
    chat.turn(f"/save {saved}", f"(saved 5 messages to {saved})"[:70])
    roles = [message["role"] for message in json.loads(saved.read_text())]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    chat.turn("/undo", "(removed the last turn; ")
    chat.turn("again", "You said 'again', turn 2.")
    chat.turn("/reset", "(started over)")
    chat.turn("new", "You said 'new', turn 1.")
    chat.turn("/system -", "(no system message)")
    chat.turn(f"/load {saved}", "(loaded 5 messages from ")
    chat.turn("system", "System 'Be brief.'.")
    chat.turn("three", "You said 'three', turn 4.")
    chat.turn("//slash", "You said '/slash', turn 5.")
    chat.say("/exit")
    assert chat.ended() == 0


def test_settings_are_shown_changed_and_put_back(own_chat):
    chat = own_chat
    chat.turn("/set", "(not set: ")
    assert "= null" not in chat.text and "speculate" in chat.text.split("(not set: ")[1]
    assert "(temperature = 0.0)" in chat.text and "(max_new_tokens = 1024)" in chat.text
    chat.turn("/set temperature 0.5", "(temperature = 0.5)")
    chat.turn("/set seed 7", "(seed = 7)")
    chat.turn("settings temperature seed", "temperature=0.5, seed=7")
    chat.turn("/retry", "temperature=0.5, seed=8")  # the same seed would say the same
    chat.turn("/set temperature default", "(temperature = 0.0)")
    chat.turn('/set stop ["END", "."]', '(stop = ["END", "."])')
    chat.turn("/set stop END", '(stop = "END")')
    chat.turn("/set max_new_tokens 1", "(max_new_tokens = 1)")
    chat.turn("hi", "1 generated")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nonsense", "unknown command /nonsense. /help lists the commands"),
        ("/rety", "unknown command /rety. Did you mean /retry?"),
        ("/help me", "/help: expected no argument, got 'me'"),
        ("/retry 3", "/retry: expected no argument"),
        ("/undo 3", "/undo: expected no argument"),
        ("/tokens 3", "/tokens: expected no argument"),
        ("/reset all", "/reset: expected no argument"),
        ("/exit now", "/exit: expected no argument"),
        ("/retry", "there is no question yet"),
        ("/undo", "there is no question yet"),
        ("/save", "/save: expected FILE: write the conversation as JSON, got nothing"),
        ("/load", "/load: expected FILE: continue a saved conversation, got nothing"),
        ("/save no/such/folder.json", "cannot write no/such/folder.json: No such file"),
        ("/load no/such/folder.json", "cannot read no/such/folder.json: No such file"),
        ("/load pyproject.toml", "pyproject.toml is not valid JSON"),
        ("/load web/package.json", "web/package.json: expected a list of messages"),
        ("/set tempurature 1", "/set: unknown setting tempurature. Did you mean temperature?"),
        ("/set xyz", "/set: unknown setting xyz. The settings are max_new_tokens"),
        ("/set temperature hot", "temperature: expected a finite number, got 'hot'"),
        ("/set temperature -1", "temperature: expected 0, or a number from 1e-06 to 1e+06, got -1"),
        ("/set max_new_tokens 0", "max_new_tokens: expected an integer from 1 to"),
        ("/set top_p null", "top_p: expected a finite number, got None"),
        ("fail", "the script says so; ask something else"),
        ("x" * 5000, "the prompt has 5003 tokens"),
    ],
)
def test_chat_wrong_command_reports_error_and_keeps_state(line, message, wrong_chat):
    wrong_chat.paste(line)
    wrong_chat.press("enter")
    wrong_chat.wait(lambda screen: message in screen.text.replace("\n", "").replace("  ", " "))
    wrong_chat.ready()
    assert "Error: " not in wrong_chat.text  # a class of Python says nothing to a person
    wrong_chat.turn("/tokens", "(0 of 4,096 tokens, 4,096 left; 0 messages)")


@pytest.fixture(scope="module")
def wrong_chat(tmp_path_factory):
    with Chat(tmp_path_factory.mktemp("state"), columns=120) as screen:
        yield screen


def test_chat_ctrl_c_stops_answer_and_keeps_partial_text(chat, tmp_path):
    chat.say("forever")
    chat.wait("word10 ")
    chat.press("ctrl-c")
    chat.wait("(stopped)")  # within half a second: tests.studies.soak.signals measures it
    chat.ready()
    assert "cancelled]" in chat.text
    chat.turn(f"/save {tmp_path}/talk.json", "(saved 2 messages to ")
    question, answer = json.loads((tmp_path / "talk.json").read_text())
    assert question["content"] == "forever" and answer["content"].startswith("word0 word1 word2 ")
    shown = " ".join(chat.text.split("> forever")[1].split("[")[0].split())
    assert shown == answer["content"].strip()  # whole, and once
    chat.turn("go on", "You said 'go on', turn 2.")


def test_ctrl_c_twice_at_the_prompt_leaves(chat):
    chat.type("half a message")
    chat.press("ctrl-c")
    chat.wait("(press Ctrl-C again, or /exit or Ctrl-D, to leave)")
    chat.ready()
    chat.turn("hello", "You said 'hello', turn 1.")  # and the first one is forgotten
    chat.press("ctrl-c")
    chat.wait(lambda screen: screen.text.count("(press Ctrl-C again, or /exit or Ctrl-D, to leave)") == 2)
    chat.ready()
    chat.press("ctrl-c")
    assert chat.ended() == 130


def test_chat_sigint_acts_like_ctrl_c(chat):
    for turn in range(1, 3):
        chat.say("forever")
        chat.wait(lambda screen, turn=turn: screen.text.count("word10 ") == turn)
        chat.process.send_signal(2)
        chat.wait(lambda screen, turn=turn: screen.text.count("(stopped)") == turn)
        chat.ready()
    chat.process.send_signal(2)
    chat.wait("(press Ctrl-C again, or /exit or Ctrl-D, to leave)")
    chat.ready()
    chat.process.send_signal(2)
    assert chat.ended() == 130


def test_ctrl_d_leaves_an_empty_prompt_only(chat):
    chat.type("ab")
    chat.press("left", "left", "ctrl-d")
    chat.typed("b")
    chat.press("ctrl-k", "ctrl-d")
    assert chat.ended() == 0


def test_chat_markdown_streams_and_is_shown_once(chat):
    chat.turn("markdown", "The end.")
    shown = chat.text.split("> markdown\n")[1].split("\n[")[0].splitlines()
    assert shown[0] == "A title"
    assert [line.strip() for line in shown] == [
        "A title", "",
        "Some bold words and code, over", "two lines.", "",
        "• one", "• two", "• inside", "",
        "name  number", "────────────", "a     1", "",
        "def f(x):", "return x + 1", "",
        "The end.",
    ]  # fmt: skip
    assert b"\x1b[1m" in chat.bytes  # bold


@pytest.mark.parametrize(("columns", "rows", "kind"), slow_rows_but([(60, 15, "long")], SIZES))
def test_chat_long_response_scrolls_each_line_once(tmp_path, columns, rows, kind):
    with Chat(tmp_path, columns=columns, rows=rows) as chat:
        chat.turn(f"{kind} 50", "50 generated" if kind == "long" else "52 generated")
        expected = [f"line {n} of a long answer" if kind == "long" else f"code line {n}" for n in range(50)]
        assert [line for line in chat.all_lines if line in expected] == expected
        assert chat.lines[-1].startswith(" ") and "of 4,096 tokens" in chat.lines[-1]
        assert max(map(len, chat.lines)) <= columns


def test_chat_redraw_writes_only_changed_text(chat):
    before = len(chat.bytes)
    chat.turn("long 100", "100 generated")
    assert len(chat.bytes) - before < 40_000  # the text has 2,700; drawn whole each time it would be a million


def test_chat_status_line_shows_context_in_use(chat):
    assert chat.lines[-1] == " 0 of 4,096 tokens   /help, Alt-Enter: another line"
    chat.turn("hello", "turn 1.")
    assert chat.lines[-1].startswith(" 36 of 4,096 tokens ")  # "u:hello;a:You said 'hello', turn 1.;"


def test_chat_response_escape_codes_do_not_move_cursor(chat):
    chat.turn("evil", "end")
    assert "owned" in chat.text and "<b>tag</b> end" in chat.text  # as text
    for code in (b"\x1b[31m", b"\x1b]0;", b"\x1b[2J", b"\x08\x08"):
        assert code not in chat.bytes.split(b"evil", 1)[1].split(b"generated")[0]


def test_chat_typed_during_response_waits_for_prompt(chat):
    chat.say("markdown")
    chat.wait("bold words")
    chat.say("typed ahead")
    chat.wait("You said 'typed ahead', turn 2.")
    chat.ready()
    assert chat.text.count("typed ahead") == 2  # the question and the answer: it did not stand between the lines


def test_first_answer_shows_why_it_takes_longer(own_chat):
    own_chat.turn("hello", "turn 1.")
    assert own_chat.bytes.count(b"compiling kernels") == 1 and "compiling" not in own_chat.text
    own_chat.turn("bye", "turn 2.")
    assert own_chat.bytes.count(b"compiling kernels") == 1


def test_chat_long_prompt_shows_how_much_of_it_is_read(chat):
    chat.turn("short", "turn 1.")
    assert b"reading the prompt" not in chat.bytes
    chat.turn("/reset", "(started over)")
    chat.turn(f"say {'x' * 1194}", "turn 1.")  # 1,200 tokens
    shown = re.findall(rb"reading the prompt: ([\d,]+) of ([\d,]+) tokens", chat.bytes)
    assert shown == [(computed, b"1,201") for computed in (b"256", b"512", b"768", b"1,024")]
    assert "reading the prompt" not in chat.text  # the text replaced it


def test_keys_typed_before_ctrl_c_wait_for_the_prompt(chat):
    chat.say("forever 1")
    chat.wait("word2")
    chat.type("kept")
    chat.press("ctrl-c")
    chat.wait("(stopped)")
    chat.typed("kept")
    chat.turn("", "You said 'kept', turn 2.")


def test_chat_window_resize_keeps_working(own_chat):
    chat = own_chat
    chat.turn("hello", "turn 1.")
    chat.type("a message")
    chat.typed("a message")
    chat.resize(60, 15)
    chat.wait(lambda screen: screen.lines[-1].startswith(" 36 of") and "> a message" in screen.lines)
    chat.press("enter")
    chat.wait("You said 'a message', turn 2.")
    chat.ready()
    chat.say("forever")
    chat.wait("word30 ")
    chat.resize(100, 30)
    chat.wait("word80 ")
    chat.press("ctrl-c")
    chat.wait("(stopped)")
    chat.ready()
    chat.turn("bye", "You said 'bye', turn 4.")


@pytest.mark.slow
def test_chat_no_color_prints_no_color_codes(tmp_path):
    with Chat(tmp_path, NO_COLOR="1") as chat:
        chat.turn("markdown", "The end.")
        codes = chat.bytes.replace(b"\x1b[0", b"").split(b"\x1b[")
        numbers = {n for code in codes if b"m" in code[:12] for n in code.split(b"m")[0].split(b";") if n.isdigit()}
        assert not [n for n in numbers if 30 <= int(n) <= 49 or 90 <= int(n) <= 107], numbers


def test_chat_dumb_terminal_prints_plain_text(tmp_path):
    with Screen(CHAT, environment={"XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}) as chat:
        chat.wait(lambda screen: screen.prompt_line == ">")
        chat.type("markdown\n")
        chat.wait("The end.")
        chat.wait(lambda screen: screen.prompt_line == ">")
        assert "**bold** words" in chat.text and b"\x1b" not in chat.bytes
        chat.type("forever\n")
        chat.wait("word10 ")
        chat.press("ctrl-c")
        chat.wait("(stopped)")
        chat.wait(lambda screen: screen.prompt_line == ">")
        chat.press("ctrl-d")
        assert chat.ended() == 0


def piped(text, *options):
    environment = {**os.environ, "PYTHONPATH": f"{SRC}:{SRC.parent}"}
    command = [sys.executable, "-m", *CHAT, *options]
    return subprocess.run(command, input=text, capture_output=True, env=environment, timeout=60)


def test_piped_lines_go_in_and_plain_text_comes_out():
    done = piped(b"hello\n\nmarkdown\ntwo\\\nlines\n/tokens\nevil\n")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert text.startswith(
        "You said 'hello', turn 1.\n" + scripted_chat.MARKDOWN + "\nYou said 'two\\nlines', turn 3.\n("
    )
    assert "\x1b" not in text and ">" not in text.splitlines()[0] and b"prompt tokens" in done.stderr


def test_chat_piped_failure_sets_exit_code():
    done = piped(b"fail\nhello\n/nonsense\n")
    assert done.returncode == 1 and done.stdout == b"You said 'hello', turn 1.\n"
    assert b"the script says so" in done.stderr and b"unknown command /nonsense" in done.stderr
    assert piped(b"hello\n/exit\nnever\n").stdout == b"You said 'hello', turn 1.\n"
    wrong = piped(b"\xff\xfe\n")
    assert wrong.returncode == 1 and (b"InputError" in wrong.stderr) and b"Traceback" not in wrong.stderr
