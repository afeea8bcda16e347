// A character LSTM that continues a text (models/plans/char_lstm.py), alone or mixed with counted contexts.

const PAD = 0, UNKNOWN = 1, END = 2, LEAST = -16;
const LONGEST_SUGGESTION = 24;

async function openModel(config, files) {
  const tensors = readTensors(files["model.safetensors"]);
  for (const name of ["keys", "offsets", "copies"]) if (tensors[name]) tensors[name].data = summed(tensors[name].data);
  const begin = first => new (config.mixture ? MixtureReader : Reader)(tensors, config, first);

  function* continued({ prompt, document }, settings) {
    const { length, temperature, seed } = { ...config.settings, ...settings };
    const text = (document ?? "") + prompt, random = randomNumbers(seed);
    if (!prompt || prompt.length > config.longest_prompt)
      throw new Unusable(`a prompt has 1 to ${config.longest_prompt} characters (given ${prompt.length})`);
    const [first, ...others] = encoded(config, text), reader = begin(first);
    reader.skim(others);
    for (let count = 0, written = []; count < length; ) {
      const logProbs = Float64Array.from(reader.ahead());
      let token, piece;
      do {
        token = drawn(logProbs, temperature, random);
        piece = config.texts[token];
        if (token == END || count + piece.length > length) return;
        logProbs[token] = -Infinity;  // in case another one must be drawn
      } while (copied(tensors.copies, config.powers, [...written, ...piece], [...piece].length));
      yield piece;
      reader.follow(token);
      count += piece.length;
      written = [...written, ...piece].slice(-config.powers?.length);
    }
  }

  return {
    predict: (input, settings) => answered(() => ({ prompt: input.prompt, text: [...continued(input, settings)].join("") })),
    stream: continued,

    // The likeliest continuations of a text, up to the end of a word.
    suggest({ prompt }) {
      const [first, ...others] = encoded(config, prompt.slice(-config.longest_suggested)), reader = begin(first);
      reader.skim(others);
      const logProbs = Float64Array.from(reader.ahead(), (each, token) => token <= END ? -Infinity : each);
      const ways = [];
      for (let number = 0; number < config.suggested; number++) {
        const token = logProbs.indexOf(Math.max(...logProbs));
        ways.push(wordFrom(token, logProbs[token], reader.copy(), config.texts));
        logProbs[token] = -Infinity;
      }
      return ways.sort((a, b) => b.likelihood - a.likelihood);
    },

    // Log-probabilities of the next character after a text, as proof of equality.
    ahead(text) {
      const [first, ...others] = encoded(config, text), reader = begin(first);
      reader.skim(others);
      return [...reader.ahead()];
    },
  };
}

// The word that begins with a token, continued greedily, and its likelihood per character, the geometric mean.
function wordFrom(token, logProb, reader, texts) {
  let text = texts[token], length = 1;
  while (!/\s$/.test(text) && length < LONGEST_SUGGESTION) {
    reader.follow(token);
    const logProbs = reader.ahead();
    token = logProbs.indexOf(Math.max(...logProbs));
    if (token <= END) break;
    logProb += logProbs[token];
    text += texts[token];
    length++;
  }
  return { text, likelihood: Math.exp(logProb / length) };
}

function encoded({ texts, ids, lower_case }, text) {
  return [...(lower_case ? text.toLowerCase() : text)].map(character => ids[character] ?? UNKNOWN);
}

// Whether one of the last `fresh` characters ends a piece copied from stored documents; `copies` are the sorted, mixed hashes
// of all their pieces, of as many characters as there are powers. A page without such documents has no hashes.
function copied(copies, powers, written, fresh) {
  if (!copies) return false;
  const codes = written.map(character => BigInt(character.codePointAt(0))), span = powers.length;
  for (let end = Math.max(codes.length - fresh + 1, span); end <= codes.length; end++) {
    const hash = powers.reduce((sum, power, i) => sum + codes[end - span + i] * BigInt(power), 0n);
    if (placeOf(mixed(wrap(hash)), copies.data) >= 0) return true;
  }
  return false;
}

function drawn(logProbs, temperature, random) {
  const logits = Float64Array.from(logProbs, (each, token) => token == PAD || token == UNKNOWN ? -Infinity : each);
  if (!temperature) return logits.indexOf(Math.max(...logits));
  const probabilities = softmax(logits.map(each => each / temperature)), threshold = random();
  let sum = 0;
  const token = probabilities.findIndex(each => (sum += each) > threshold);
  return token < 0 ? END : token;
}

function logSoftmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = logits.reduce((sum, each) => sum + Math.exp(each - largest), 0);
  return Float64Array.from(logits, each => each - largest - Math.log(total));
}

// The network's state after the text read so far, and its prediction of the next token.
class Reader {
  constructor(tensors, config, first) {
    Object.assign(this, { tensors, config });
    this.state = Array.from({ length: config.layers }, () => ({ h: new Float32Array(config.width), c: new Float32Array(config.width) }));
    this.step(first);
  }

  step(token) {
    const { tensors, config } = this, channels = config.embedding;
    let x = tensors["embedding.weight"].data.subarray(token * channels, (token + 1) * channels);
    this.state.forEach((state, layer) => {
      const of = name => tensors[`lstm.${name}_l${layer}`], width = config.width;
      const a = linear(x, of("weight_ih"), of("bias_ih")), b = linear(state.h, of("weight_hh"), of("bias_hh"));
      const gate = (number, i) => a[number * width + i] + b[number * width + i];
      state.c = state.c.map((each, i) => sigmoid(gate(1, i)) * each + sigmoid(gate(0, i)) * Math.tanh(gate(2, i)));
      state.h = state.c.map((each, i) => sigmoid(gate(3, i)) * Math.tanh(each));
      x = state.h;
    });
    this.network = null;
  }

  // An independent reader that goes on from here; counts stay shared, as following a token counts nothing.
  copy() {
    return Object.assign(Object.create(Object.getPrototypeOf(this)), this, { state: this.state.map(each => ({ ...each })), line: [...this.line ?? []] });
  }

  // The network's log-probabilities of the next token, computed on first use.
  expected() {
    return this.network ??= logSoftmax(linear(this.state.at(-1).h, this.tensors["output.weight"], this.tensors["output.bias"]));
  }

  skim(tokens) {
    tokens.forEach(token => this.step(token));
  }

  ahead() {
    return this.expected();
  }

  follow(token) {
    this.step(token);
  }
}

// The same, mixed with counts of the contexts of training text and of what was read (models/plans/char_mixture.py).
class MixtureReader extends Reader {
  constructor(tensors, config, first) {
    super(tensors, config, first);
    this.chains = new Chains(config.mixture, config.classes);
    this.counts = new Counts(tensors);
    this.tail = [first];
    this.section = 0n;
    this.line = [first];
  }

  skim(tokens) {
    for (let start = 0; start < tokens.length; start += this.config.mixture.at_once) this.count(tokens.slice(start, start + this.config.mixture.at_once));
  }

  // Reads a piece, counting each token after its longest context, and after a shorter one if it is new after the next longer.
  count(piece) {
    const whole = [...this.tail, ...piece], seen = new Set(), added = [];
    piece.forEach((token, i) => {
      const keys = this.chains.keys(whole, this.tail.length + i, this.section);
      for (const [from, to] of this.config.mixture.chains) {
        let counts = true;
        for (let level = to - 1; level >= from; level--) {
          if (counts) added.push([keys[level], token]);
          const pair = mixed(wrap(keys[level] + BigInt(token + 1) * this.chains.base));
          counts &&= !seen.has(pair) && !this.counts.has(keys[level], token);
          seen.add(pair);
        }
      }
      this.pass(token);
    });
    added.forEach(pair => this.counts.add(...pair));
    this.tail = whole.slice(-this.config.mixture.reach);
  }

  follow(token) {
    this.pass(token);
    this.tail = [...this.tail, token].slice(-this.config.mixture.reach);
  }

  // Keeps the heading above the next token, and the current line.
  pass(token) {
    this.step(token);
    if (this.chains.is(token, "line_end")) {
      this.section = this.chains.heading(this.line) ?? this.section;
      this.line = [];
    } else this.line.push(token);
  }

  // Log-probabilities of the next token: a product of powers of the network's probabilities and of each context's change.
  ahead() {
    const network = this.expected(), { mixture } = this.config;
    const keys = this.chains.keys([...this.tail, 0], this.tail.length, this.section);
    const layers = keys.map((key, level) => this.layer(key, mixture.discounts[level], network.length));
    const features = [network.map(each => Math.max(each, LEAST)), ...this.sharpened(layers, network)];
    const weights = this.weights(network, layers.map(each => each.state));
    return logSoftmax(network.map((_, token) => weights.reduce((sum, weight, i) => sum + weight * features[i][token], 0)));
  }

  // How a context changes a distribution p: to own + share p.
  layer(key, [once, twice, more], size) {
    const { mixture } = this.config, own = new Float64Array(size), lowered = count => [0, once, twice][count] ?? more;
    this.counts.after(key, (token, count) => own[token] += count);
    const total = own.reduce((a, b) => a + b), kinds = own.filter(each => each).length;
    if (!total) return { own, share: 1, state: 0 };
    const share = own.reduce((sum, count) => sum + lowered(count), 0) / total;
    const state = 1 + bordersBelow(mixture.totals, total) * (mixture.kinds_borders.length + 1) + bordersBelow(mixture.kinds_borders, kinds);
    return { own: own.map(count => (count - lowered(count)) / total), share, state };
  }

  // By how much log-probabilities change with each context of its chain.
  sharpened(layers, network) {
    const { chains, bases, least } = this.config.mixture, size = network.length, ratios = [];
    const begins = { 0: new Float64Array(size).fill(1 / size), [chains.length - 1]: network.map(each => Math.exp(each) + least) };
    chains.forEach(([from, to], number) => {
      let before = begins[number];
      for (let level = from; level < to; level++) {
        const { own, share } = layers[level], given = before;
        before = own.map((each, token) => each + share * given[token]);
        ratios[level] = before.map((each, token) => Math.log(each / given[token]));
        for (const [chain, base] of Object.entries(bases)) if (base == level) begins[chain] = before;
      }
    });
    return ratios;
  }

  // A weight for each feature, looked up by the longest contexts that were seen, the entropy, and the feature's state.
  weights(network, states) {
    const { chains, entropies, fine_entropies, lengths } = this.config.mixture, num = 1 + states.length;
    const entropy = -network.reduce((sum, each) => sum + Math.exp(each) * Math.max(each, LEAST), 0);
    const longest = chains.map(([from, to]) => states.slice(from, to).findLastIndex(state => state > 0) + 1);
    const first = longest[0] * (entropies.length + 1) + bordersBelow(entropies, entropy);
    const second = longest.slice(1).reduce((place, length, i) => place * lengths[i + 1] + length, 0);
    const rows = [bordersBelow(fine_entropies, entropy), ...states], adapting = 1;
    const entry = (name, ...places) => {
      const { data, shape } = this.tensors[name];
      return data[[adapting, ...places].reduce((place, index, i) => place * shape[i] + index, 0)];
    };
    return rows.map((state, feature) => entry("common", feature) + entry("by_length", first, feature) +
      entry("by_lengths", second, feature) + entry("by_state", feature, state));
  }
}
