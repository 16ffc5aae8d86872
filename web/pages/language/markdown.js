/** A little Markdown as nodes: code blocks, inline code and bold. Everything else is text, and none of it HTML. */
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

/** The nodes of an answer; a code block that is not closed yet goes on to the end. */
export function rendered(text) {
  return text
    .split(/^```/m)
    .map((piece, number) => {
      if (number % 2 === 0) return make("div", { className: "text" }, ...inline(piece.trim()));
      const code = piece.replace(/^[^\n]*\n?/, ""); // without the language's name
      return make("pre", { tabIndex: 0 }, make("code", { textContent: code.trimEnd() }));
    })
    .filter((node) => node.textContent);
}
