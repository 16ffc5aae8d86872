import assert from "node:assert/strict";
import { test } from "node:test";
import { renderChat } from "../src/language/template.js";

const user = [{ role: "user", content: "hi" }];

test("messages, special tokens and the generation prompt are known to a template", () => {
  const template =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}{% if add_generation_prompt %}>{% endif %}";
  assert.equal(renderChat(template, user, { bos_token: "<s>" }), "<s>user=hi;>");
});

test("text of a message is never read as a template", () => {
  const tricky = [{ role: "user", content: "{{ 1 + 1 }}{% for %}" }];
  assert.equal(renderChat("{{ messages[0].content }}", tricky), "{{ 1 + 1 }}{% for %}");
});

test("range counts up and down, as in Python", () => {
  const counted = (args) => renderChat(`{% for i in range(${args}) %}{{ i }},{% endfor %}`, []);
  assert.equal(counted("3"), "0,1,2,");
  assert.equal(counted("2, 5"), "2,3,4,");
  assert.equal(counted("0, 7, 3"), "0,3,6,");
  assert.equal(counted("3, 0, -1"), "3,2,1,");
  assert.equal(counted("5, 2"), "");
});

test("generation marks do not show, with and without their dashes", () => {
  const template = "a {%- generation -%} b {%- endgeneration %} c{% generation %}d{% endgeneration %}";
  assert.equal(renderChat(template, []), "ab cd");
});

test("a template sees tools and documents as none", () => {
  assert.equal(renderChat("{{ tools is none }}{% if documents %}x{% endif %}", []).toLowerCase(), "true");
});

test("special tokens may replace what templates find by default", () => {
  assert.equal(renderChat("{{ tools }}", [], { tools: "T" }), "T");
});

test("messages without role or content are refused by position", () => {
  const wrong = (messages) => () => renderChat("x", messages);
  assert.throws(wrong("hi"), { code: "input" });
  assert.throws(wrong([...user, { role: "user" }]), { code: "input", message: /messages\[1\]/ });
  assert.throws(wrong([null]), { code: "input", message: /messages\[0\]/ });
});

test("a template's own refusal arrives with its text", () => {
  const template = "{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}ok";
  assert.equal(renderChat(template, user), "ok");
  assert.throws(() => renderChat(template, [...user, ...user]), { code: "input", message: /one message only/ });
});
