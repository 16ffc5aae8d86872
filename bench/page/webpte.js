// A bundle's own player behind the bench's questions.
const TOKENS = 0, PLACES = 1;

let method, script;

/** Loads the bundle; nothing is kept for the next visit. */
export async function open(folder, given) {
  const { openProgram } = await import(`${folder}/player/src/index.js`);
  script = given;
  const program = await openProgram(`${folder}/`);
  method = await program.method("forward", script.slots);
  return { adapter: program.adapter };
}

/** What comes before the calls that count. An output is read, so that it is done when this is. */
export async function begin() {
  for (const args of script.before) await method.run(args, { outputs: [script.timed] });
}

/** The output of the row's call, and `count` further ones where there is a cache: milliseconds each. */
export async function run(count, compare) {
  const outputs = compare ? [script.compared, script.timed] : [script.timed];
  const times = [];
  const tokens = [];
  let args = script.call;
  let output;
  for (let i = 0; i <= count; i++) {
    const began = performance.now();
    const found = await method.run(args, { outputs });
    times.push(performance.now() - began);
    if (compare) output ??= Array.from(found[0].data);
    tokens.push(Number(found[outputs.length - 1].data[0]));
    if (script.grows) args = next(args, tokens[i]);
  }
  return { times, tokens, output };
}

function next(args, token) {
  const after = [...args];
  const [slot, position] = args[PLACES].data;
  after[TOKENS] = { data: [token], dims: [1, 1] };
  after[PLACES] = { data: [slot, position + 1], dims: [1, 2] };
  return after;
}
