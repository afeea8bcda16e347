// Three experts on a window of market features, pooled (models/market/pooled_experts.py), starting from candles.

const CLASSES = ["SHORT", "NO_TRADE", "LONG"], COLUMNS = ["time", "open", "high", "low", "close", "volume"];

async function openModel(config, files) {
  const tensors = readTensors(files["model.safetensors"]);
  return {
    predict: input => answered(() => {
      const { coin, candles } = checkedCandles(config, input);
      const [probabilities] = pooled(tensors, config, scaledRows(config, coin, candles), placeOf(config, coin), 1);
      return answer(config, coin, candles.time.at(-1), probabilities);
    }),

    // The answers after each of the last `count` candles, to draw.
    signals: (input, count) => {
      const { coin, candles } = checkedCandles(config, input), rows = scaledRows(config, coin, candles);
      const number = Math.min(count, rows.length / config.features.length - config.lookback + 1);
      return pooled(tensors, config, rows, placeOf(config, coin), number)
        .map((each, i) => answer(config, coin, candles.time.at(i - number), each));
    },
  };
}

function answer(config, coin, time, probabilities) {
  const named = Object.fromEntries(CLASSES.map((name, i) => [name, probabilities[i]]));
  const date = `${new Date(time).toISOString().slice(0, 16).replace("T", " ")} UTC`;
  return { coin: coin || null, time, date, probabilities: named, ...signalled(config, coin, probabilities), ...config.warning };
}

// The signal by the evaluated rule, as in signal_model.py.
function signalled(config, coin, probabilities) {
  const { rule } = config, own = rule.coins?.[config.coins[placeOf(config, coin)]];
  if (!own) return { signal: CLASSES[probabilities.indexOf(Math.max(...probabilities))], verdict: rule.never };
  const recalibration = own.recalibration ? { recalibration: config.uncorrected } : {};
  const worth = { verdict: own.verdict, headline: rule.headline, ...recalibration }, [short, , long] = probabilities;
  if (own.threshold !== null && Math.max(short, long) >= own.threshold && short != long) {
    const why = `from ${+own.threshold.toPrecision(6)} on, best on validation; the verdict is the test's`;
    return { signal: long > short ? "LONG" : "SHORT", signal_is: why, ...worth };
  }
  return { signal: "NO_TRADE", reason: own.reason || `no side reaches ${+own.threshold?.toPrecision(6)}, the best threshold`, ...worth };
}

// The number of a coin; a model whose only coin has no name takes any.
const placeOf = ({ coins }, coin) => coins.length == 1 && !coins[0] ? 0 : coins.indexOf(coin);

function checkedCandles(config, { coin = config.coins.length == 1 ? config.coins[0] : null, candles }) {
  if (placeOf(config, coin) < 0) throw new Unusable(`this model does not know the coin ${coin}; give one of ${config.coins.join(", ")}`);
  const missing = COLUMNS.filter(name => !Array.isArray(candles[name]));
  if (missing.length) throw new Unusable(`the candles lack ${missing.join(", ")}; give the columns ${COLUMNS.join(", ")}`);
  const count = candles.time.length, step = config.timeframe_ms;
  if (COLUMNS.some(name => candles[name].length != count)) throw new Unusable("the columns must be of one length");
  if (count < config.candles_needed) throw new Unusable(`there are only ${count} candles; give ${config.candles_needed} or more`);
  const apart = candles.time[1] - candles.time[0];
  if (apart != step && candles.time.every((time, i) => !i || time - candles.time[i - 1] == apart))
    throw new Unusable(`these candles are of ${apart / 60000} minutes, the model learnt from candles of ${step / 60000}; give those, or train on these`);
  const gap = candles.time.findIndex((time, i) => i && time - candles.time[i - 1] != step);
  if (gap > 0) {
    const [before, after] = candles.time.slice(gap - 1, gap + 1);
    throw new Unusable(`there is a gap: the candle after ${before} ms is ${after} ms, not ${before + step}; give candles without gaps`);
  }
  candles.time.forEach((time, i) => {
    const [open, high, low, close] = ["open", "high", "low", "close"].map(name => candles[name][i]), volume = candles.volume[i];
    const good = [open, high, low, close, volume].every(Number.isFinite) && low > 0 && volume >= 0;
    if (!good || high != Math.max(open, high, low, close) || low != Math.min(open, high, low, close))
      throw new Unusable(`the candle of ${time} ms is impossible: prices must be finite, above 0 and between low and high, and the volume not negative`);
  });
  return { coin, candles };
}

// Standardised features (N, F) of the candles that have a whole warm-up before them.
function scaledRows({ coins, features, scalers, memory }, coin, candles) {
  const columns = candleFeatures(candles), { mean, std } = scalers[coins[placeOf({ coins }, coin)]];
  return Float32Array.from({ length: (candles.time.length - memory + 1) * features.length }, (_, i) => {
    const place = i % features.length, row = (i - place) / features.length + memory - 1;
    return (Math.fround(columns[features[place]][row]) - mean[place]) / std[place];
  });
}

// Probabilities after each of the last `count` rows.
function pooled(tensors, config, rows, coin, count) {
  const { features, lookback, return_place, volatility_place } = config, width = features.length;
  const x = rows.subarray(rows.length - (lookback - 1 + count) * width), length = x.length / width;
  const of = (name, place = 0) => tensors[name].data[place];
  const at = place => Float32Array.from({ length }, (_, i) => x[i * width + place]);
  const returns = at(return_place).map(each => each + of("drift", coin));
  const volatility = at(volatility_place).map(each => Math.max(Math.fround(1 + Math.fround(each * of("spread", coin))), config.least_volatility));
  const scaled = returns.map((each, i) => each / volatility[i]);
  const network = convolved(tensors, config, x, scaled, volatility);
  return Array.from({ length: count }, (_, row) => {
    const last = row + lookback - 1, now = volatility[last], newest = x.subarray(last * width, (last + 1) * width);
    const thresholds = [0, 1].map(side => of("thresholds", side) + of("slopes", side) * now), level = of("level");
    const [location, logScale] = linearExpert(tensors, newest, returns.subarray(row, last + 1), scaled.subarray(row, last + 1), now);
    const lags = Math.min(config.tree_lags, lookback);
    const experts = [
      classLogProbabilities(config, location, logScale + level, thresholds),
      classLogProbabilities(config, network[row][0] * now, level + clamped(network[row][1], 2), thresholds),
      treeLogProbabilities(tensors, config.tree_depth, [...newest, ...scaled.subarray(last + 1 - lags, last + 1)]),
    ];
    return [...softmax(CLASSES.map((_, i) => experts.reduce((sum, expert, k) => sum + of("weights", k) * expert[i], 0)))];
  });
}

const clamped = (value, most) => Math.max(-most, Math.min(value, most));

function linearExpert(tensors, newest, returns, scaled, now) {
  const dot = (inputs, { data }) => inputs.reduce((sum, each, i) => sum + each * data[i], data[inputs.length]);
  const size = rows => rows.reduce((sum, each) => sum + Math.abs(each), 0) / rows.length;
  const location = [...returns, ...scaled.map(each => each * now), ...newest.map(each => each * now)];
  const moved = [Math.log(now), Math.log(size(returns) + 1e-3), Math.log(size(returns.subarray(-5)) + 1e-2)];
  return [dot(location, tensors.location), clamped(dot([...moved, ...newest], tensors.scale), 3)];
}

// Location and log scale of each row by gated causal convolutions.
function convolved(tensors, config, x, scaled, volatility) {
  const { lookback, dilations } = config, inputs = config.features.length, length = volatility.length;
  const rows = length - lookback + 1, weights = name => flat(tensors[`network.${name}.weight`]), bias = name => tensors[`network.${name}.bias`];
  const entered = Array.from({ length }, (_, i) => [
    ...x.subarray(i * inputs, (i + 1) * inputs), clamped(scaled[i], config.largest_return),
    Math.abs(clamped(scaled[i], config.largest_return)) - 0.75, Math.log(volatility[i])].map(each => clamped(each, config.largest)));
  let steps = entered.map(each => linear(each, weights("enter"), bias("enter")));
  dilations.forEach((dilation, layer) => {
    steps = steps.slice(2 * dilation).map((own, i) => {
      const taps = steps[i].length, seen = new Float32Array(3 * taps);  // by channel, as the weights are
      for (let tap = 0; tap < 3; tap++) steps[i + tap * dilation].forEach((each, channel) => seen[3 * channel + tap] = each);
      const both = linear(seen, weights(`gated.${layer}`), bias(`gated.${layer}`)), half = both.length / 2;
      const gated = both.subarray(0, half).map((signal, c) => Math.tanh(signal) * sigmoid(both[half + c]));
      return linear(gated, weights(`mixed.${layer}`), bias(`mixed.${layer}`)).map((each, c) => each + own[c]);
    });
  });
  return steps.slice(-rows).map(each => linear(linear(each, weights("head"), bias("head")).map(gelu), weights("out"), bias("out")));
}

const flat = ({ data, shape: [outputs] }) => ({ data, shape: [outputs, data.length / outputs] });

// x times the standard normal distribution, by Abramowitz and Stegun's series of the error function for small x and the
// continued fraction of its complement for others.
function gelu(x) {
  const z = Math.abs(x) / Math.SQRT2;
  let upper;
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n++) {
      term *= -z * z / n;
      sum += term / (2 * n + 1);
    }
    upper = 0.5 - sum / Math.sqrt(Math.PI);
  } else {
    let fraction = 0;
    for (let n = 60; n; n--) fraction = n / 2 / (z + fraction);
    upper = Math.exp(-z * z) / (z + fraction) / Math.sqrt(Math.PI) / 2;
  }
  return x * (x < 0 ? upper : 1 - upper);
}

function classLogProbabilities({ least_side, least_rest }, mean, logScale, [above, below]) {
  const precision = Math.exp(-logScale), long = sigmoid((mean - above) * precision), short = sigmoid((-mean - below) * precision);
  const sides = [Math.max(short, least_side), Math.max(1 - long - short, least_rest), Math.max(long, least_side)];
  const total = sides[0] + sides[1] + sides[2];
  return sides.map(side => Math.log(side / total));
}

function treeLogProbabilities(tensors, depth, inputs) {
  const of = name => tensors[`trees.${name}`].data, nodes = tensors["trees.left"].shape[1];
  const sums = [...of("start")];
  for (let tree = 0; tree < tensors["trees.left"].shape[0]; tree++) {
    let node = 0;
    for (let level = 0; level < depth; level++) {
      const place = tree * nodes + node;
      node = (inputs[of("feature")[place]] <= of("threshold")[place] ? of("left") : of("right"))[place];
    }
    sums[tree % CLASSES.length] += of("value")[tree * nodes + node];
  }
  return [...softmax(sums)].map(Math.log);
}
