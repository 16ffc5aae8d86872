// What the player uses of the vendored module.
export function tokenize(source: string, options: { lstrip_blocks?: boolean; trim_blocks?: boolean }): unknown[];
export function parse(tokens: unknown[]): object;
export class Environment {
  set(name: string, value: unknown): unknown;
}
export class Interpreter {
  constructor(environment: Environment);
  run(program: object): { value: string };
}
