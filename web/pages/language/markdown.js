/** Render a subset of Markdown: code blocks, inline code and bold. Everything else is text, never HTML. */
import { copyButton, make } from "./shared.js";

const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;

function inline(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, match.index), make(match[1] ? "code" : "strong", { textContent: match[1] ?? match[2] }));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)];
}

/** Return a block of code. Its first line is the language's name. */
function codeBlock(piece) {
  const language = piece.split("\n", 1)[0].trim();
  const code = piece.replace(/^[^\n]*\n?/, "").trimEnd();
  const bar = make("div", { className: "row bar quiet" }, make("span", { textContent: language }));
  bar.append(copyButton("Copy code", () => code));
  return make("div", { className: "code" }, bar, make("pre", { tabIndex: 0 }, make("code", { textContent: code })));
}

/** Return the nodes of an answer. A code block that is not closed yet extends to the end. */
export function renderMarkdown(text) {
  return text
    .split(/^```/m)
    .map((piece, number) =>
      number % 2 ? codeBlock(piece) : make("div", { className: "text" }, ...inline(piece.trim())),
    )
    .filter((node) => node.textContent);
}
