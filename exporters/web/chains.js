// Contexts of characters, their hashes and counts (models/plans/chains.py). Hashes are integers modulo 2^64. `constants` are
// those of models/plans/chains.py and models/plans/char_mixture.py.

const wrap = value => BigInt.asUintN(64, value);

// The finaliser of SplitMix64.
function mixed(value) {
  value = wrap((value ^ (value >> 30n)) * 0xbf58476d1ce4e5b9n);
  value = wrap((value ^ (value >> 27n)) * 0x94d049bb133111ebn);
  return value ^ (value >> 31n);
}

// The hash of tokens from `begin` to `end`.
function hashed(tokens, begin, end, base) {
  let hash = 0n;
  for (let i = end - 1; i >= begin; i--) hash = wrap(hash * base + BigInt(tokens[i] + 1));
  return hash;
}

const HASH_BITS = 43n, SIGN = 1n << 63n;  // a page carries the leading bits of hashes, sorted as signed numbers

// Ascending numbers from what a page carries instead: the first, and each one's difference from the one before it.
function summed(differences) {
  let sum = 0;
  return Float64Array.from(differences, each => sum += Number(each));
}

// The place of a hash among sorted ones, -1 if it is not there.
function placeOf(hash, sorted) {
  const wanted = Number((hash ^ SIGN) >> (64n - HASH_BITS));
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low < sorted.length && sorted[low] == wanted ? low : -1;
}

class Chains {
  constructor(constants, classes) {
    Object.assign(this, constants);
    this.base = BigInt(constants.base);
    this.classes = classes;
    this.tag = BigInt(constants.tag);
  }

  is(token, kind) {
    return (this.classes[token] & this.kinds[kind]) > 0;
  }

  // Keys of the contexts of the token at a place, below a heading, in the document at hand.
  keys(tokens, place, section) {
    const byOrder = {};
    for (const order of this.orders) byOrder[order] = hashed(tokens, Math.max(place - order, 0), place, this.base);
    const words = this.words(tokens, place);
    const below = [...this.section_orders.map(order => byOrder[order]), words[1]].map(each => mixed(wrap(section + each)));
    const own = this.own_orders.map(order => wrap(byOrder[order] + this.base));
    return [...this.orders.map(order => byOrder[order]), ...words, ...below, ...own].map((hash, i) => mixed(hash ^ wrap(BigInt(i + 1) * this.tag)));
  }

  // Hashes of the current word, or of the last token between words, with none, one and two words before it.
  words(tokens, place) {
    const inside = i => i >= 0 && this.is(tokens[i], "word");
    let end = place;
    const backOver = whether => {
      while (end > 0 && inside(end - 1) == whether) end--;
      return end;
    };
    const current = inside(place - 1) ? backOver(true) : Math.max(place - 1, 0);
    const hashes = [hashed(tokens, current, place, this.base)];
    for (let number = 1; number < this.num_words; number++) {
      const stop = backOver(false), start = backOver(true);
      const before = stop > start ? mixed(hashed(tokens, start, stop, this.base)) : 0n;
      hashes.push(mixed(wrap(hashes.at(-1) + BigInt(number))) ^ before);
    }
    return hashes;
  }

  // The hash of a heading's letters, given a line without its end; null if the line is no heading.
  heading(line) {
    const letters = line.filter(token => this.is(token, "letter"));
    const closed = line.length && this.is(line.at(-1), "closing");
    return letters.length && line.length <= this.longest_heading && !closed ? mixed(hashed(letters, 0, letters.length, this.base)) : null;
  }
}

// How often tokens followed contexts: in the model's training text, and in what was read since.
class Counts {
  constructor(tensors) {
    this.stored = tensors;
    this.read = new Map();
  }

  // Calls `each` with every token that followed the context, and how often.
  after(key, each) {
    const { keys, offsets, tokens, counts } = this.stored, place = placeOf(key, keys.data);
    if (place >= 0)
      for (let i = offsets.data[place]; i < offsets.data[place + 1]; i++) each(tokens.data[i], counts.data[i]);
    this.read.get(key)?.forEach((count, token) => each(token, count));
  }

  has(key, token) {
    let found = false;
    this.after(key, each => found ||= each == token);
    return found;
  }

  add(key, token) {
    const tokens = this.read.get(key) ?? this.read.set(key, new Map()).get(key);
    tokens.set(token, (tokens.get(token) ?? 0) + 1);
  }
}
