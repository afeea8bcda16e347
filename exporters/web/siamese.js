// The siamese comparator (models/images/comparator/siamese.py), scores from its answers by Davidson's model
// (models/images/ranking.py), and the scorer (scorer.py), tempered by what is known beforehand (models/images/reliability.py).

const FIRST = 0, SECOND = 1, SIMILAR = 2, START = 8, MORE = 4, TOLERANCE = 0.25, FINEST = 1e-3, Z95 = 1.959963984540054;

// `config.attributes`: what the model ranks by, each with a head of its own; images are encoded once for all of them.
async function openModel(config, files) {
  const first = readTensors(files["model.safetensors"]), square = async image => image.pixels ?? fitted(await decodedImage(image), config.size, config.channels, config.fit);
  const views = config.attributes.map((own, i) => view({ ...config, ...own }, i ? readTensors(files[`model-${i}.safetensors`]) : first));
  const chosen = ({ attribute } = {}) => {
    const found = attribute == null ? views[0] : views.find(each => each.attribute == attribute);
    if (!found) throw new Unusable(`attribute is '${attribute}'; the model ranks by ${views.map(each => each.attribute).join(", ")}`);
    return found;
  };
  const named = ({ attribute }, ends) => views.length > 1 ? { attribute, ...ends } : {};
  const seen = async (image, by) => {
    const found = await square(image);
    return { encoded: encode(first, config, found), note: by.noted(found) };
  };

  async function ranking(images, by) {
    if (!by.scores) throw new Unusable("this model has no references of known score; compare two images instead");
    const rows = [], errors = [];
    for (const [number, image] of images.entries()) {
      const { encoded, note, error: wrong } = await seen(image, by).catch(error => ({ error }));
      if (wrong && !(wrong instanceof Unusable)) throw wrong;
      if (wrong) errors.push({ image: number, error: wrong.message });
      else {
        const each = Object.fromEntries(views.map(view => [view.attribute, view.scored(encoded)])), ends = {};
        for (const end of ["score", "low", "high"]) ends[`${end}s`] = Object.fromEntries(views.map(({ attribute }) => [attribute, each[attribute][end]]));
        rows.push({ image: number, ...each[by.attribute], ...named(by, ends), ...note });
      }
    }
    return { ranking: rows.sort((a, b) => b.score - a.score), ...(errors.length ? { errors } : {}) };
  }

  async function comparison({ first, second }, by) {
    const [one, other] = [await seen(first, by), await seen(second, by)];
    const [is_first, is_second, tie] = by.answer(one.encoded, other.encoded);
    return { first_is_higher: is_first, second_is_higher: is_second, tie, ...named(by), ...one.note, ...other.note };
  }

  return {
    square: fitted,
    predict: async (input, settings) => {
      try {
        return input.images ? await ranking(input.images, chosen(settings)) : await comparison(input, chosen(settings));
      } catch (error) {
        return answered(() => { throw error; });
      }
    },
  };
}

// Answers and scores for one attribute, by its head, references and scale.
function view(config, tensors) {
  const count = config.references.length, known = config.references.map(units => units * config.unit);
  const rows = ({ data }) => known.map((_, i) => data.subarray(i * data.length / count, (i + 1) * data.length / count));
  const references = count ? rows(tensors.encoded_references) : [];  // by PyTorch
  const answer = (one, other) => config.standard ? fromScores(tensors, ownScore(config, one), ownScore(config, other), config) : answers(tensors, one, other);
  const noted = config.note ? familiarity(config, rows(tensors.reference_levels)) : () => ({});
  const scored = encoded => {
    const { score, error } = tempered(config, config.standard ? ownScore(config, encoded) : placed(config, known, i => answer(encoded, references[i])));
    return { score, low: score - Z95 * error, high: score + Z95 * error };
  };
  return { attribute: config.attribute, scores: count || config.standard, answer, noted, scored };
}

// Returns a function that gives a note on pixels (C, S, S) far from the mean levels of all references, as models/images/comparator/familiarity.py.
function familiarity({ channels, size, cells, note, farthest }, known) {
  const borders = Array.from({ length: cells }, (_, i) => [Math.floor(i * size / cells), Math.ceil((i + 1) * size / cells)]);
  const levels = pixels => Array.from({ length: channels }, (_, channel) => borders.flatMap(([top, bottom]) => borders.map(([left, right]) => {
    let sum = 0;
    for (let row = top; row < bottom; row++) for (let column = left; column < right; column++) sum += pixels[(channel * size + row) * size + column];
    return sum / (bottom - top) / (right - left);
  }))).flat();
  const apart = (a, b) => Math.sqrt(a.reduce((sum, value, i) => sum + (value - b[i]) ** 2, 0));
  return pixels => {
    const found = levels(pixels);
    return Math.min(...known.map(each => apart(found, each))) > farthest ? { note } : {};
  };
}

// The encoding of pixels (C, S, S) from 0 to 255.
function encode(tensors, { channels, size, layers }, pixels) {
  let x = Float32Array.from(pixels, value => value / 255), side = size;
  for (let layer = 0; layer < layers; layer++) {
    const of = (place, name) => tensors[`encoder.${3 * layer + place}.${name}`], weight = of(0, "weight");
    x = halved(x, channels, side, weight, of(0, "bias"));
    [channels, side] = [weight.shape[0], side / 2];
    x = groupNorm(x, channels, of(1, "weight"), of(1, "bias")).map(value => Math.max(value, 0));
  }
  const last = 3 * layers + 1;  // after the flattening
  const seen = linear(x, tensors[`encoder.${last}.weight`], tensors[`encoder.${last}.bias`]).map(value => Math.max(value, 0));
  return tensors["head.weight"] ? linear(seen, tensors["head.weight"], tensors["head.bias"]) : seen;
}

// A scorer's own score and its information, on the user's scale, from an encoding (2 A).
function ownScore({ standard: [centre, spread], place, log_errors: [least, most] }, encoded) {
  const log_error = Math.min(Math.max(encoded[2 * place + 1], least), most);
  return { score: centre + spread * encoded[2 * place], information: Math.exp(-2 * log_error) / spread ** 2 };
}

// A scorer's probabilities that one image ranks higher, that the other does, and that they are similar.
function fromScores(tensors, one, other, { standard: [, spread] }) {
  const half = Math.exp(tensors.log_discrimination.data[0]) / 2 * (one.score - other.score) / spread;
  return [...softmax([half, -half, tensors.tie.data[0]])];
}

// A convolution by 4 x 4 kernels with stride 2 and a border of zeros of width 1.
function halved(x, channels, side, weight, bias) {
  const outputs = weight.shape[0], half = side / 2, y = new Float32Array(outputs * half * half), kernel = weight.data;
  for (let out = 0; out < outputs; out++)
    for (let row = 0; row < half; row++)
      for (let column = 0; column < half; column++) {
        let sum = bias.data[out];
        for (let channel = 0; channel < channels; channel++)
          for (let i = 0; i < 4; i++) {
            const from = 2 * row + i - 1;
            if (from < 0 || from >= side) continue;
            for (let j = 0; j < 4; j++) {
              const at = 2 * column + j - 1;
              if (at >= 0 && at < side) sum += kernel[((out * channels + channel) * 4 + i) * 4 + j] * x[(channel * side + from) * side + at];
            }
          }
        y[(out * half + row) * half + column] = sum;
      }
  return y;
}

function groupNorm(x, channels, weight, bias) {
  const size = x.length / 4, each = x.length / channels, y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += size) {
    const part = x.subarray(start, start + size), mean = part.reduce((a, b) => a + b, 0) / size;
    const scale = 1 / Math.sqrt(part.reduce((sum, value) => sum + (value - mean) ** 2, 0) / size + 1e-5);
    for (let i = start; i < start + size; i++) {
      const channel = Math.floor(i / each);
      y[i] = (x[i] - mean) * scale * weight.data[channel] + bias.data[channel];
    }
  }
  return y;
}

// Probabilities that one image ranks higher, that the other does, and that they are similar: the mean of both orders.
function answers(tensors, one, other) {
  const project = (x, name) => linear(x, tensors[`${name}.weight`], tensors[`${name}.bias`]);
  const meet = (a, b) => {
    const second = project(b, "as_second");
    return project(a, "as_first").map((value, i) => Math.max(value + second[i], 0));
  };
  const forwards = meet(one, other), backwards = meet(other, one);
  const dot = (x, { data }) => x.reduce((sum, value, i) => sum + value * data[i], 0);
  const similar = dot(forwards.map((value, i) => value + backwards[i]), tensors.similar) + tensors.similar_bias.data[0];
  const [, gain, more] = tensors.share?.data ?? [0, 0, 0];  // older models have none
  // The other order swaps the first two sums, so both orders agree.
  return [...softmax([(1 + gain) * dot(forwards, tensors.higher), (1 + gain) * dot(backwards, tensors.higher), (1 + gain) * similar + more])];
}

// The most likely score of an image and its Fisher information, from comparisons with the most informative references.
function placed({ fitted: [discrimination, tie], theta, unit, budget }, known, answer) {
  const moments = difference => {
    const [first, second] = softmax([discrimination / 2 * difference, -discrimination / 2 * difference, tie]);
    return [first - second, first + second - (first - second) ** 2];
  };
  const distinct = [...new Set(known)].sort((a, b) => a - b);
  const counts = theta > 0 ? theta * unit : Math.min(...distinct.slice(1).map((value, i) => value - distinct[i]));
  const order = known.map((_, i) => i).sort((a, b) => known[a] - known[b]), wins = new Map();
  const number = Math.min(START, budget, known.length);
  let asked = new Set(Array.from({ length: number }, (_, i) => order[rounded(i * (known.length - 1) / (number - 1))]));
  let found = mostLikely(moments, discrimination / 2, known, wins);
  while (asked.size) {
    for (const i of asked) {
      const [first, second] = answer(i);
      wins.set(i, first - second);
    }
    found = mostLikely(moments, discrimination / 2, known, wins);
    const left = found.information ** -0.5 <= counts * TOLERANCE ? 0 : Math.min(budget - wins.size, MORE);
    const free = known.map((value, i) => [moments(found.score - value)[1], i]).filter(([, i]) => !wins.has(i));
    asked = new Set(free.sort((a, b) => b[0] - a[0]).slice(0, left).map(([, i]) => i));
  }
  return found;
}

// Mean and standard error of the posterior, whose prior is a mixture of one normal distribution per quantile.
function tempered({ fitted: [, , offset, slope, floor, dispersion, factor], prior }, { score, information }) {
  const noise = floor + dispersion / information, last = prior.length - 1, gap = i => prior[i + 1] - prior[i];
  const parts = prior.map((value, i) => {
    const square = Math.min(gap(Math.max(i - 1, 0)), gap(Math.min(i, last - 1))) ** 2, total = noise + slope ** 2 * square;
    const residual = score - offset - slope * value;
    return {
      log: -(residual ** 2 / total + Math.log(total)) / 2,
      mean: value + slope * square / total * residual,
      variance: square * noise / total,
    };
  });
  const weights = softmax(parts.map(({ log }) => log)), sum = f => parts.reduce((all, part, i) => all + weights[i] * f(part), 0);
  const mean = sum(part => part.mean), variance = sum(part => part.variance + (part.mean - mean) ** 2);
  const centre = prior.reduce((a, b) => a + b) / prior.length;
  const spread = Math.sqrt(prior.reduce((all, value) => all + (value - centre) ** 2, 0) / last);
  return { score: mean, error: factor * Math.max(Math.sqrt(variance), FINEST * Math.max(spread, 1e-9)) };
}

// The most likely score and its Fisher information, by Newton's method within a bracket.
function mostLikely(moments, slopeUnit, known, wins) {
  const centre = known.reduce((a, b) => a + b) / known.length, precision = (Math.max(...known) - Math.min(...known)) ** -2;
  const reach = 2 * Math.abs(slopeUnit) * wins.size / precision + 1e-9;
  let low = centre - reach, high = centre + reach, score = centre;
  const at = score => {
    let slope = precision * (centre - score), information = precision;
    wins.forEach((win, i) => {
      const [expected, variance] = moments(score - known[i]);
      slope += slopeUnit * (win - expected);
      information += slopeUnit ** 2 * variance;
    });
    return { slope, information };
  };
  for (let round = 0; round < 100; round++) {
    const { slope, information } = at(score);
    if (slope > 0) low = score;
    if (slope < 0) high = score;
    let better = score + slope / information;
    if (better < low || better > high) better = (low + high) / 2;
    const moved = Math.abs(better - score);
    score = better;
    if (moved < 1e-10 / Math.sqrt(precision)) break;
  }
  return { score, information: at(score).information };
}
