/** Render a subset of Markdown: code blocks, inline code and bold. Everything else is text, never HTML. */
import { make } from "./shared.js";

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

/** Return the nodes of an answer. A code block that is not closed yet extends to the end. */
export function renderMarkdown(text) {
  return text
    .split(/^```/m)
    .map((piece, number) => {
      if (number % 2 === 0) return make("div", { className: "text" }, ...inline(piece.trim()));
      const code = piece.replace(/^[^\n]*\n?/, ""); // without the language's name
      return make("pre", { tabIndex: 0 }, make("code", { textContent: code.trimEnd() }));
    })
    .filter((node) => node.textContent);
}
