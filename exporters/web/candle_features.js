// The default set of features of candles without a gap (models/market/candle_features.py), by name; NaN during the warm-up.

const TAIL = 1e-3, DAY = 86400000;

function candleFeatures({ time, open, high, low, close, volume }) {
  const ratio = (a, b, otherwise) => a.map((each, i) => b[i] == 0 ? otherwise : each / b[i]);
  const each = (f, ...columns) => columns[0].map((_, i) => f(...columns.map(column => column[i])));
  const logs = close.map(Math.log), moves = change(logs, 1);
  const averages = Object.fromEntries([12, 26, 50].map(span => [span, average(close, 2 / (span + 1))]));
  const macd = each((a, b) => a - b, averages[12], averages[26]);
  const mean = plainMean(close, 20), deviation = standardDeviation(close, 20), spread = each((a, b) => a - b, high, low);
  const above = Object.entries(averages).map(([span, values]) => [`close_over_ema_${span}`, each((a, b) => a / b - 1, close, values)]);
  const hour = time.map(at => 2 * Math.PI * (at % DAY) / DAY);
  const weekday = time.map(at => 2 * Math.PI * ((Math.floor(at / DAY) + 3) % 7) / 7);  // 1970 began on a Thursday
  return {
    ...Object.fromEntries([1, 3, 12].map(lag => [`log_return_${lag}`, change(logs, lag)])),
    ...Object.fromEntries(above),
    atr_14: each((a, b) => a / b, average(trueRange(high, low, close), 1 / 14), close),
    percent_b_20: ratio(each((c, m, d) => c - (m - 2 * d), close, mean, deviation), deviation.map(d => 4 * d), 0.5),
    band_width_20: each((m, d) => 4 * d / m, mean, deviation),
    rsi_14: strength(change(close, 1)),
    macd: each((a, b) => a / b, macd, close),
    macd_histogram: each((a, b, c) => (a - b) / c, macd, average(macd, 2 / 10), close),
    volume_z_50: ratio(each((a, b) => a - b, volume, plainMean(volume, 50)), standardDeviation(volume, 50), 0),
    volatility_20: standardDeviation(moves, 20),
    volatility_50: average(moves.map(move => move ** 2), 2 / 51).map(Math.sqrt),
    body: ratio(each((a, b) => a - b, close, open), spread, 0),
    upper_wick: ratio(each((h, o, c) => h - Math.max(o, c), high, open, close), spread, 0),
    lower_wick: ratio(each((l, o, c) => Math.min(o, c) - l, low, open, close), spread, 0),
    hour_sin: hour.map(Math.sin),
    hour_cos: hour.map(Math.cos),
    weekday_sin: weekday.map(Math.sin),
    weekday_cos: weekday.map(Math.cos),
  };
}

// Applies a function to every window of `rows` values, after the leading NaNs.
function windowed(values, rows, compute) {
  const start = values.findIndex(value => !Number.isNaN(value));
  return values.map((_, i) => start >= 0 && i >= start + rows - 1 ? compute(values, i - rows + 1, i) : NaN);
}

// Exponential averages, cut off where little weight is left.
function average(values, share) {
  const rows = Math.ceil(Math.log(TAIL) / Math.log(1 - share));
  const weights = Array.from({ length: rows }, (_, i) => (1 - share) ** i), total = weights.reduce((a, b) => a + b);
  return windowed(values, rows, (all, _, last) => weights.reduce((sum, weight, back) => sum + weight / total * all[last - back], 0));
}

function meanOf(values, first, last) {
  let sum = 0;
  for (let i = first; i <= last; i++) sum += values[i];
  return sum / (last - first + 1);
}

const plainMean = (values, rows) => windowed(values, rows, meanOf);

const standardDeviation = (values, rows) => windowed(values, rows, (all, first, last) => {
  const mean = meanOf(all, first, last);
  let squares = 0, equal = true;
  for (let i = first; i <= last; i++) {
    squares += (all[i] - mean) ** 2;
    equal &&= all[i] == all[first];
  }
  return equal ? 0 : Math.sqrt(squares / (last - first + 1));
});

const change = (values, lag) => values.map((value, i) => i < lag ? NaN : value - values[i - lag]);

const trueRange = (high, low, close) => high.map((top, i) => i ? Math.max(top - low[i], Math.abs(top - close[i - 1]), Math.abs(low[i] - close[i - 1])) : NaN);

function strength(moves) {
  const gains = average(moves.map(move => Math.max(move, 0)), 1 / 14), losses = average(moves.map(move => Math.max(-move, 0)), 1 / 14);
  return gains.map((gain, i) => 100 * (gain + losses[i] == 0 ? 0.5 : gain / (gain + losses[i])));
}
