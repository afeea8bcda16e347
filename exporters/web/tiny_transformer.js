// Stories by the firmware's own integer code, in WebAssembly: the same tokens as on the chip.

async function openModel(config, files) {
  const { instance } = await WebAssembly.instantiate(files["runtime.wasm"]);
  const runtime = instance.exports, room = size => (size + 63) & ~15;
  let place = room(runtime.__heap_base.value);
  const bytes = () => new Uint8Array(runtime.memory.buffer);  // anew each time, as growing replaces the buffer
  const reserve = size => {
    const start = place;
    place += room(size);
    const missing = place - runtime.memory.buffer.byteLength;
    if (missing > 0) runtime.memory.grow(Math.ceil(missing / 65536));
    return start;
  };
  const put = content => {
    const start = reserve(content.length);
    bytes().set(content, start);
    return start;
  };
  const model = put(files["model.bin"]), vocabulary = put(files["vocabulary.bin"]);
  const size = runtime.arena_size(model, files["model.bin"].length), arena = reserve(size);
  const refusal = runtime.open(model, files["model.bin"].length, vocabulary, files["vocabulary.bin"].length, arena, size);
  if (refusal) throw new Error(new TextDecoder().decode(bytes().subarray(refusal, bytes().indexOf(0, refusal))));
  const text = reserve(3 * config.longest_prompt), newDecoder = () => new TextDecoder("utf-8", { ignoreBOM: true });
  let newest = 0;  // number of the story in the runtime, which holds one at a time

  function begin({ prompt }, { seed, temperature }) {
    const encoded = new TextEncoder().encode(config.lower_case ? prompt.toLowerCase() : prompt);
    if (temperature != 0 && !(0.05 <= temperature && temperature <= 10))
      throw new Unusable(`the temperature is ${temperature}; it must be 0 or 0.05 to 10`);
    if (encoded.length > config.longest_prompt)
      throw new Unusable(`the prompt has ${encoded.length} bytes; give at most ${config.longest_prompt}`);
    newest++;
    const start = (text + 1) & ~1, tokens = start + ((encoded.length + 1) & ~1);
    bytes().set(encoded, start);
    return [...new Uint16Array(runtime.memory.buffer, tokens, runtime.begin(start, encoded.length, tokens, seed))];
  }

  function* tokens(settings) {
    const { length, temperature, top_k } = settings, mine = newest;
    for (let count = 0; count < length && mine == newest; count++) {
      const token = runtime.next(Math.round(256 * temperature), top_k);
      if (!token) return;
      yield token;
    }
  }

  function spelled(token) {
    const start = runtime.token_bytes(token);
    return bytes().slice(start, start + runtime.token_length());
  }

  return {
    // The text and, as proof of equality, its tokens.
    predict: (input, settings) => answered(() => {
      const all = { ...config.settings, ...settings }, decoder = newDecoder();
      const prompt_tokens = begin(input, all), told = [...tokens(all)];
      const text = told.map(token => decoder.decode(spelled(token), { stream: true })).join("") + decoder.decode();
      return { prompt: input.prompt, text, prompt_tokens, tokens: told };
    }),

    // The pieces of what follows the prompt.
    *stream(input, settings) {
      const all = { ...config.settings, ...settings }, decoder = newDecoder();
      begin(input, all);
      for (const token of tokens(all)) yield decoder.decode(spelled(token), { stream: true });
      yield decoder.decode();
    },
  };
}
