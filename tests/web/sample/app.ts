// A user's program: its types are checked, and the result runs in a page.
import { load, WebpteError, type ChatCompletionChunk, type ChatMessage, type ContentPart, type Model, type ProgressEvent, type Tensor } from "webpte";

async function talk(model: Model, signal: AbortSignal): Promise<string> {
  let text = "";
  const chunks = await model.chat.completions.create({
    messages: [{ role: "user", content: "Hello" }],
    stream: true,
    temperature: 0,
    signal,
  });
  for await (const chunk of chunks satisfies AsyncIterable<ChatCompletionChunk>) text += chunk.choices[0]?.delta.content ?? "";
  const image: ContentPart = { type: "image", image: new ImageData(1, 1) };
  const question: ChatMessage = { role: "user", content: [image, { type: "text", text: "What is it?" }] };
  const answer = await model.chat.completions.create({ messages: [question] });
  return text + answer.choices[0].message.content + answer.usage?.total_tokens;
}

async function main(): Promise<void> {
  const stages: ProgressEvent["stage"][] = [];
  const model = await load("/site/", { onProgress: ({ stage }) => stages.push(stage) });
  model.addEventListener("lost", () => stages.push("recover"));
  const results: Tensor[] = await model.run([{ data: new Float32Array(32).fill(1), dims: [4, 8] }]);
  let code = "";
  try {
    await talk(model, AbortSignal.timeout(1000));
  } catch (error) {
    if (error instanceof WebpteError) code = error.code;
  }
  const vectors: Promise<Float32Array[]> = model.embed(["a"]);
  await vectors.catch(() => {});
  document.body.dataset.found = JSON.stringify({ data: Array.from(results[0].data), stages, code, kind: model.kind });
}

void main();
