// What the player uses of the vendored module.
export class Tokenizer {
  decoder: any;
  constructor(tokenizer: object, config: object);
  encode(text: string, options?: { add_special_tokens?: boolean; text_pair?: string | null }): { ids: (number | undefined)[] };
  decode(ids: number[], options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean }): string;
  token_to_id(token: string): number | undefined;
  id_to_token(id: number): string | undefined;
  get_added_tokens_decoder(): Map<number, { content: string; special: boolean }>;
}
