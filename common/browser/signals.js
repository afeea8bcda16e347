// A panel for market signals: SHORT, NO_TRADE or LONG after each of the last candles.

const CANDLE_COLUMNS = ["time", "open", "high", "low", "close", "volume"], SIGNALS_SHOWN = 24, DRAWN_CANDLES = 240;
const OLDEST_CANDLE = 1230940800000;  // 2009-01-03, Bitcoin's first block
const SIGNAL_COLOURS = { SHORT: "var(--bad)", NO_TRADE: "var(--muted)", LONG: "var(--good)" };
const OF_THE_EXAMPLE = "These candles are simulated, with a planted signal that no real market gives";

// `about`: `headline`, the run's verdict, `coins`, `timeframe_ms`, `candles_needed` for a signal, `horizon` of a signal in
// candles, a `note` shown with every answer, and the `rules` of files and columns (models/market/candle_tables.py).
function signalsPanel(place, backend, about) {
  const report = reporting(), drawn = element("div");
  const coin = element("select", {}, ...about.coins.map(name => element("option", { value: name }, name || "any coin")));
  const text = element("textarea", { rows: 6, placeholder: CANDLE_COLUMNS.join(","), spellcheck: "false" });
  let seed = 13, example = false;  // the first example has all three signals
  text.addEventListener("input", () => example = false);
  const file = element("input", { type: "file", accept: ".csv,.json,text/csv,application/json", change: async () => {
    if (!file.files.length) return;
    const [given] = file.files, found = await asked(report, () => namedCandles(given.name, about));
    if (!found) return;
    if (about.coins.includes(found.coin)) coin.value = found.coin;
    text.value = await given.text();
    example = false;
    judge();
  } });

  let wanted = 0;

  // Drops outdated answers.
  async function judge(event) {
    event?.preventDefault();
    const mine = ++wanted;
    drawn.replaceChildren();
    const found = await asked(report, async () => {
      report.say("computing");
      const { candles, said } = readCandles(text.value, about), signals = await backend.signals({ coin: coin.value, candles }, SIGNALS_SHOWN);
      return signals.error ? signals : { candles, said, signals };
    });
    if (!found || mine != wanted) return;
    const { candles, said, signals } = found, last = signals.at(-1), names = Object.keys(last.probabilities);
    const rows = signals.toReversed().map(each => [new Date(each.time).toISOString().slice(5, 16).replace("T", "\u00a0"),
      each.signal, ...names.map(name => each.probabilities[name].toFixed(3)), ...(about.horizon ? [moveAfter(candles, each.time, about.horizon)] : [])]);
    const later = about.horizon ? [`${about.horizon} later`] : [];
    drawn.append(candlePlot(candles, signals), element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "probabilities" }, table(
      `Signals and probabilities as each candle closed (month, day and UTC of its opening)${about.horizon ? `, and the price ${about.horizon} candles later` : ""}`, ["candle", "signal", ...names, ...later], rows)));
    report.say([...new Set([last.headline, last.verdict].filter(Boolean)), `after the newest candle: ${last.signal}${last.reason ? ` (${last.reason})` : ""}`, ...said, ...(example ? [OF_THE_EXAMPLE] : []), ...(about.note ? [about.note] : [])].map(sentence => `${sentence[0].toUpperCase()}${sentence.slice(1)}.`).join(" "));
  }

  function simulate() {
    const candles = simulatedCandles(about, ++seed);
    text.value = [CANDLE_COLUMNS.join(","), ...candles.time.map((_, i) => CANDLE_COLUMNS.map(name => candles[name][i]).join(","))].join("\n");
    example = true;
    judge();
  }

  place.append(
    element("p", { class: "verdict" }, about.headline),
    element("p", {}, `The chart shows candles and, below the last ${SIGNALS_SHOWN}, the model's signal as each closed; the table has its probabilities.`),
    ...report.parts, drawn,
    element("form", { submit: judge },
      ...(about.coins.length > 1 ? [labelled("coin", coin)] : []),
      labelled("your candles: a CSV or JSON file", file),
      labelled(`or as text: ${CANDLE_COLUMNS.join(", ")}; ${about.candles_needed} candles or more`, text, { class: "whole" }),
      element("button", { class: "main" }, "Show signals"),
      button("Simulate candles", simulate)));
  simulate();
}

// The price's move after `horizon` candles; empty while it is unknown.
function moveAfter({ time, close }, when, horizon) {
  const place = time.indexOf(when), later = close[place + horizon];
  return later === undefined ? "" : `${later < close[place] ? "−" : "+"}${Math.abs(100 * (later / close[place] - 1)).toFixed(2)}\u00a0%`;
}

// The pair and timeframe in the name of a file; throws for a file that cannot be read here.
function namedCandles(name, { timeframe_ms, rules }) {
  const [, stem, ending] = name.match(/^(.*?)(\.[^.]*)?$/), minute = 60000;
  if (![".csv", ".json"].includes(ending?.toLowerCase()))
    throw new Error(`${name}: a page reads CSV and JSON; predict.py also reads .json.gz, .zip, .parquet and .feather`);
  const found = candleFileName(stem, rules), length = found.timeframe && found.timeframe.slice(0, -1) * rules.minutes[found.timeframe.at(-1)] * minute;
  if (length && length != timeframe_ms) throw new Error(`${name}: ${found.timeframe} candles; the model needs those of ${timeframe_ms / minute} minutes`);
  return found;
}

// What the name of a file says, as file_name of candle_tables.py.
function candleFileName(stem, { copy, date, other, timeframes, lengths, minutes, quotes, contracts, reasons }) {
  const rest = stem.replace(new RegExp(copy, "g"), " ").replace(new RegExp(date, "g"), " ").replace(/^[ _,-]+|[ _,-]+$/g, "");
  if (new RegExp(other, "i").test(rest)) return { reason: reasons.other };
  const found = timeframes.map(rule => rest.match(new RegExp(rule, "i"))).find(each => each);
  if (!found) return { reason: reasons.timeframe };
  if (found[0] == "1M") return { reason: reasons.month };
  const unit = found[2].slice(0, 1).toLowerCase(), total = (found[1] || 1) * minutes[unit];
  const timeframe = lengths.find(name => name.slice(0, -1) * minutes[name.at(-1)] == total) ?? `${found[1]}${unit || "m"}`;
  const before = rest.slice(0, found.index), after = rest.slice(found.index + found[0].length);
  const coin = pairAmong(`${before} ${after}`.toUpperCase().match(/[A-Z0-9]+/g) ?? [], quotes, contracts)
    || (/[-_]$/.test(before) ? before.toUpperCase().replace(/[^A-Z0-9]/g, "") : "");
  return coin ? { coin, timeframe, part: new RegExp(date).test(stem) } : { reason: reasons.pair };
}

function pairAmong(words, quotes, contracts) {
  for (let place = words.length - 1; place >= 0; place--) {
    const word = words[place], contract = contracts.includes(words[place + 1]) ? words[place + 1] : "";
    if (quotes.includes(word) && place)
      return words.slice(words[place - 1] == word && place > 1 ? place - 2 : place - 1, place + 1).join("") + contract;
    if (quotes.some(quote => word.endsWith(quote) && word.length > quote.length + 1)) return word + contract;
  }
  return "";
}

// The newest candles without a gap in a table, {candles: {column: values}, said: what was left out}.
function readCandles(text, { timeframe_ms, rules }) {
  const { rows, places } = /^\s*\[/.test(text) ? candleArray(text, rules) : candleTable(text, rules), said = [];
  const times = candleTimes(candleDays(rows, places, rules), rules), number = candleNumbers(rows, places, rules);
  const read = rows.map(([line, cells], i) => {
    const values = CANDLE_COLUMNS.map(name => {
      const cell = cells[places[name]], value = name == "time" ? times[i] : number(cell, name);
      if (!Number.isFinite(value) || typeof cell == "object") throw new Error(`row ${line}, column ${name}: ${JSON.stringify(cell)} is no ${name == "time" ? "time, or may be several; give one like 2024-01-31 13:45:00, or numbers since 1970" : "number"}`);
      return value;
    });
    const [time, open, high, low, close, volume] = values, why = time < OLDEST_CANDLE ? "before there were coins to trade" : time > Date.now() ? "in the future; is its time zone UTC?" : "";
    if (why) throw new Error(`row ${line} opens at ${new Date(time).toISOString().slice(0, 19)}Z, which is ${why}`);
    const { not_positive, inconsistent, off_grid } = rules.faults;
    const fault = Math.min(open, high, low, close) <= 0 || volume < 0 ? not_positive : high < Math.max(open, low, close) || low > Math.min(open, close) ? inconsistent
      : time % timeframe_ms ? off_grid.replace("{timeframe}", `${timeframe_ms / 60000} minutes`) : "";
    if (fault) throw new Error(`row ${line} has ${fault}: ${values.slice(1).join(", ")}; download the file again`);
    return values;
  }).sort((a, b) => a[0] - b[0]);
  let known = read.filter((row, i) => !i || row.some((value, column) => value != read[i - 1][column]));
  const twice = known.find((row, i) => i && row[0] == known[i - 1][0]);
  if (twice) throw new Error(`there are two candles of ${new Date(twice[0]).toISOString()} that differ; keep one of them`);
  if (known.length && known.at(-1)[0] + timeframe_ms > Date.now()) {
    known = known.slice(0, -1);
    said.push("the newest candle had not closed and is left out");
  }
  const steps = known.slice(1).map((row, i) => row[0] - known[i][0]), least = steps.reduce((a, b) => Math.min(a, b), Infinity);
  if (steps.length && least != timeframe_ms) throw new Error(`these candles are ${least / 60000} minutes apart; the model needs ${timeframe_ms / 60000}`);
  const gap = steps.findLastIndex(step => step != timeframe_ms) + 1;
  if (gap) said.push(`${gap} candles before a gap are left out`);
  return { candles: Object.fromEntries(CANDLE_COLUMNS.map((name, column) => [name, known.slice(gap).map(row => row[column])])), said };
}

const CANDLE_ORDER = Object.fromEntries(CANDLE_COLUMNS.map((name, column) => [name, column]));

// The array of rows of ccxt and freqtrade, or of objects, as _json of files.py.
function candleArray(text, rules) {
  const rows = JSON.parse(text), wanted = "[time, open, high, low, close, volume]";
  if (rows.length && rows.every(row => row && typeof row == "object" && !Array.isArray(row))) {
    const head = [...new Set(rows.flatMap(Object.keys))];
    const cells = rows.map((row, i) => [i + 1, head.map(name => row[name])]);
    ofOneCoin(cells, head, rules);
    return { rows: cells, places: candleColumns(head, rules) };
  }
  if (!rows.every(row => Array.isArray(row) && row.length >= CANDLE_COLUMNS.length)) throw new Error(`JSON must be an array of rows ${wanted}, or of objects with these names`);
  if (rows.some(row => row.length == 8)) throw new Error(`rows of 8 may have an average price before the volume; give rows ${wanted}`);
  return { rows: rows.map((cells, i) => [i + 1, cells]), places: CANDLE_ORDER };
}

// The rows of a CSV, with their numbers, and the places of the columns.
function candleTable(text, rules) {
  const lines = text.replace(/^\ufeff/, "").split(/\r\n?|\n/), start = lines.findIndex(line => /[,;\t]/.test(line) && !/^\s*(#|sep=)/.test(line));
  if (start < 0) throw new Error(`there is no table; its first line names the columns ${CANDLE_COLUMNS.join(",")}`);
  const count = mark => lines[start].split(mark).length, separator = [";", "\t", ","].reduce((a, b) => count(b) > count(a) ? b : a);
  const form = new RegExp(`${separator} *("([^"]|"")*"|[^${separator}]*)`, "g");
  const cellsOf = line => (separator + line).match(form).map(cell => cell.slice(1).trim().replace(/^"(.*)"$/, "$1"));
  const rows = lines.map((line, i) => [i + 1, cellsOf(line)]).slice(start)
    .filter(([, cells]) => cells.some(cell => cell));
  // pandas' further levels of a header end with the name of the index alone.
  const alone = rows.slice(1, 3).find(([, [first, ...others]]) => first && !/^\d/.test(first) && others.length && others.every(cell => !cell));
  const head = alone ? [alone[1][0], ...rows[0][1].slice(1)] : rows[0][1], uneven = rows.find(([, cells]) => cells.length != head.length);
  if (uneven) throw new Error(`line ${uneven[0]} has ${uneven[1].length} columns, not ${head.length}: ${uneven[1].join(separator).slice(0, 60)}`);
  if (/^\d/.test(head[0])) {
    const names = head[1]?.includes(":") ? ["date", ...CANDLE_COLUMNS] : CANDLE_COLUMNS;  // MetaTrader has the time of day in a column of its own
    if (![0, 1, 6].includes(head.length - names.length)) throw new Error(`line ${rows[0][0]} has ${head.length} columns and there is no header; add this first line: ${names.join(",")}`);
    return { rows, places: candleColumns(names, rules) };
  }
  const titles = rows.slice(0, alone ? rows.indexOf(alone) + 1 : 1).map(([, cells]) => cells.join());
  const body = rows.filter(([, cells]) => !titles.includes(cells.join()));  // files joined with cat
  ofOneCoin(body, head, rules);
  return { rows: body, places: candleColumns(head, rules) };
}

// Throws if rows are of several coins or timeframes, as _select of checks.py.
function ofOneCoin(rows, head, { alike }) {
  for (const [i, name] of head.entries()) {
    if (!alike.includes(name.trim().toLowerCase())) continue;
    const kinds = [...new Set(rows.map(([, cells]) => String(cells[i] ?? "").toUpperCase().replace(/[^A-Z0-9]/g, "")).filter(kind => kind))].sort();
    if (kinds.length > 1) throw new Error(`${name} is ${kinds.slice(0, 3).join(" and ")}; write the rows of each into a file`);
  }
}

// The places of columns by their names, as columns_of of candle_tables.py.
function candleColumns(head, { columns, volume_of, ending, zone }) {
  const exact = head.map(name => name.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_|_$/g, ""));
  const places = Object.fromEntries(CANDLE_COLUMNS.map(ours => {
    const trimmed = ours == "time" ? exact.map(name => name.replace(new RegExp(ending), "")) : exact;
    const name = columns[ours].find(each => exact.includes(each) || trimmed.includes(each));
    if (exact.indexOf(name) != exact.lastIndexOf(name)) throw new Error(`there are two columns ${name} or more; keep only one of them`);
    return [ours, name !== undefined ? (exact.includes(name) ? exact : trimmed).indexOf(name) : ours == "volume" ? exact.indexOf(volume_of.flatMap(form => exact.filter(each => each.match(`^${form}`)))[0]) : -1];
  }));
  places.clock = exact.findIndex(name => columns.clock.includes(name));
  const missing = CANDLE_COLUMNS.filter(name => places[name] < 0);
  if (missing.length) throw new Error(`there is no column for ${missing.join(", ")} (columns: ${head.join(", ")}); name it ${missing.map(name => columns[name][0]).join(", ")}${missing.includes("time") ? zone : ""}`);
  return places;
}

// Returns a function that reads 41,718.2, 42.000,50 and a volume of 1.2M, as _with_points of checks.py; throws where commas may be decimal or thousands separators.
function candleNumbers(rows, places, { marks, units }) {
  const written = (cell, name) => {
    const text = String(cell ?? "").trim(), unit = name == "volume" && text.match(/^(.*\d) ?([KMB])$/i);
    return unit ? unit[1] + units[unit[2].toUpperCase()] : text;
  };
  const known = CANDLE_COLUMNS.slice(1).flatMap(name => rows.map(([line, cells]) => ({ line, name, text: written(cells[places[name]], name) }))).filter(({ text }) => text);
  const fit = Object.entries(marks).map(([mark, form]) => [mark, new RegExp(form, "i")]).filter(([, form]) => known.every(({ text }) => form.test(text))).map(([mark]) => mark);
  const either = fit.length > 1 && known.find(({ text }) => text.includes(","));
  if (either) throw new Error(`row ${either.line}, column ${either.name}: "${either.text}" may be ${either.text.replaceAll(",", "")} or ${either.text.replaceAll(",", ".")}; write numbers without thousands`);
  const plain = text => fit.length ? text.replaceAll(fit[0] == "," ? "." : ",", "").replaceAll(",", ".") : text;
  return (cell, name) => {
    const value = String(plain(fit.length ? written(cell, name) : cell));
    return /^[-+.\de]+$/i.test(value) ? Number(value) : NaN;
  };
}

// The cells of times, joined if date and time of day have a column each, as _select of checks.py.
function candleDays(rows, places, { times: { days, clock }, missing }) {
  const trimmed = name => rows.map(([, cells]) => String(cells[places[name]] ?? "").trim()), found = trimmed("time");
  if (!(places.clock >= 0) || places.clock == places.time) return found;
  const hours = trimmed("clock"), present = cells => cells.filter(cell => !missing.includes(cell.toLowerCase()));
  if (!present(hours).length || present(found).some(day => !day.match(days))) return found;
  const form = new RegExp(clock), wrong = hours.findIndex(hour => !form.test(hour));
  if (wrong >= 0 && new Set(found).size == found.length) return found;  // the dates are unique: no time of day is needed
  if (wrong >= 0) throw new Error(`row ${rows[wrong][0]}, column time: ${JSON.stringify(hours[wrong])} is no time of day; give one like 13:45:00 or 01:45 PM`);
  return found.map((day, i) => `${day} ${hours[i]}`);
}

// ms since 1970 of times; 31.01.2024, 01/31/2024 and the like are read if just one form fits all of them, or just one without future times.
function candleTimes(given, { plain, dates, hours, times: { day } }) {
  const forms = Object.entries(plain).map(([form, other]) => [new RegExp(form, "i"), other]);
  const cells = given.map(cell => forms.reduce((text, [form, other]) => text.replace(form, other), cell));
  const short = new RegExp(day), own = cells.map(cell => candleTime(cell, short));
  if (own.some(Number.isFinite)) return own;
  const found = dates.flatMap(date => hours.map(hour => cells.map(strptime(date + hour)))).filter(times => times.every(Number.isFinite));
  const possible = found.length > 1 ? found.filter(times => times.every(time => time <= Date.now())) : found;
  return possible.length == 1 ? possible[0] : own;
}

// A function that reads a date by a form of Python's strptime, with or without a zone.
function strptime(form) {
  const parts = { Y: "\\d{4}", y: "\\d\\d", m: "\\d\\d?", d: "\\d\\d?", b: "[a-z]{3}", H: "\\d\\d?", I: "\\d\\d?", M: "\\d\\d?", S: "\\d\\d?", f: "\\d{1,6}", p: "[ap]m" };
  const pattern = form.replaceAll(".", "\\.").replaceAll(" ", "\\s+").replace(/%(\w)/g, (_, letter) => `(?<${letter}>${parts[letter]})`);
  const whole = new RegExp(`^${pattern} ?(?<zone>Z|[+-]\\d\\d:?\\d\\d)?$`, "i");
  const months = "jan feb mar apr may jun jul aug sep oct nov dec".split(" ");
  return cell => {
    const { y, Y = y && (y < 69 ? 20 : 19) + y, m, d, b, H, I, M = 0, S = 0, f = 0, p, zone } = cell.match(whole)?.groups ?? {};
    if (!Y || I && (I < 1 || I > 12)) return NaN;
    const hour = I ? I % 12 + (p.toLowerCase() == "pm" ? 12 : 0) : H ?? 0;
    return moment([Y, b ? months.indexOf(b.toLowerCase()) + 1 : m, d, hour, M, `${S}.${f}`], zone);
  };
}

// ms since 1970, NaN for an impossible date or time. Without a zone it is UTC.
function moment(parts, zone = "Z") {
  const [year, month, day, hour, minute, second] = parts.map(Number), midnight = new Date(Date.UTC(year, month - 1, day));
  if (midnight.getUTCMonth() != month - 1 || midnight.getUTCDate() != day || hour > 23 || minute > 59 || second >= 60) return NaN;
  const [, sign, hours, minutes = 0] = zone.match(/^([+-])(\d\d?):?(\d\d)?$/) ?? [, "+", 0, 0];
  if (hours > 23 || minutes > 59) return NaN;
  return +midnight + hour * 3600000 + minute * 60000 + Math.floor(second * 1000) - `${sign}1` * (hours * 60 + +minutes) * 60000;
}

const CANDLE_CLOCK = String.raw`(?:[T ](\d\d?)(?::?(\d\d)(?::?(\d\d(?:\.\d+)?))?)?)? ?(Z|[+-]\d\d?(?::?\d\d)?)?$`;
const ISO_8601 = [String.raw`^(\d{4})[-/.](\d\d?)[-/.](\d\d?)`, String.raw`^(\d{4})(\d\d)(\d\d)`].map(date => new RegExp(date + CANDLE_CLOCK, "i"));

// ms since 1970 of a number, in s, ms, us or ns by its size, or of a date; NaN for anything else.
function candleTime(cell, short) {
  if (cell !== "" && Number.isFinite(Number(cell)) && !short.test(cell)) {
    const unit = [1000, 1, 1e-3, 1e-6].find(each => cell * each >= OLDEST_CANDLE && cell * each <= 4102444800000);
    return unit ? Math.round(cell * unit) : NaN;
  }
  const found = cell.match(ISO_8601[0]) ?? cell.match(ISO_8601[1]);
  return found ? moment([...found.slice(1, 4), ...found.slice(4, 7).map(each => each ?? 0)], found[7]) : NaN;
}

// Candles of a market like that of pipelines/workloads/crypto/candles/simulated.py, by the same planted signal.
function simulatedCandles({ candles_needed, timeframe_ms }, seed, count = Math.max(candles_needed + SIGNALS_SHOWN - 1, DRAWN_CANDLES)) {
  let state = seed;
  const uniform = () => {  // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), 61 | bits);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const heavy = () => normal() * Math.sqrt(3 / Array.from({ length: 5 }, () => normal() ** 2).reduce((a, b) => a + b));  // Student's t of 5
  const turn = Math.PI / 8, decay = 0.9, warm = 200, scale = 0.0035 * Math.sqrt(timeframe_ms / 900000), waiting = new Array(9).fill(0);
  let gain = 0, variance = 1, now = 0, before = 0, price = 100;
  for (let lag = 1; lag < 200; lag++) gain += (decay ** lag * Math.sin(turn * lag)) ** 2;
  const candles = Object.fromEntries(CANDLE_COLUMNS.map(name => [name, []])), start = Date.UTC(2024, 5, 3);
  for (let i = -warm; i < count; i++) {
    const surprise = Math.max(-8, Math.min(heavy(), 8)), shock = surprise + 0.5 * Math.tanh(now), sigma = scale * Math.sqrt(variance);
    const walk = [];
    while (walk.length < 8) walk.push((walk.at(-1) ?? 0) + normal() / Math.sqrt(8));
    const path = walk.map((each, k) => price * Math.exp(sigma * (each + (k + 1) / 8 * (shock - walk[7])) - (k + 1) / 8 * sigma ** 2 / 2));
    const volume = Math.exp(5 + 0.4 * Math.log(variance) + 0.4 * Math.abs(shock) + 0.5 * normal());
    const row = [price, ...path].map(each => Number(each.toFixed(4)));
    if (i >= 0) [start + i * timeframe_ms, row[0], Math.max(...row), Math.min(...row), row[8], Number(volume.toFixed(2))].forEach((value, column) => candles[CANDLE_COLUMNS[column]].push(value));
    price = path[7];
    variance = 0.03 + variance * (0.9 + 0.07 * surprise ** 2);
    waiting.push(shock);
    waiting.shift();
    [now, before] = [2 * decay * Math.cos(turn) * now - decay ** 2 * before + decay * Math.sin(turn) / Math.sqrt(gain) * waiting[0], now];
  }
  return candles;
}

function candlePlot({ open, high, low, close, time }, signals) {
  const count = Math.min(DRAWN_CANDLES, time.length), from = time.length - count, width = 960, height = 300, step = width / count;
  const least = Math.min(...low.slice(from)), most = Math.max(...high.slice(from));
  const y = price => 12 + (height - 40) * (1 - (price - least) / (most - least || 1));
  const bySignal = new Map(signals.map(each => [each.time, each.signal])), parts = [];
  for (let i = from; i < time.length; i++) {
    const x = (i - from + 0.5) * step, colour = close[i] >= open[i] ? "var(--good)" : "var(--bad)", signal = bySignal.get(time[i]);
    parts.push(element("line", { x1: x, x2: x, y1: y(high[i]), y2: y(low[i]), stroke: colour }),
      element("rect", { x: x - step / 3, width: 2 * step / 3, fill: colour,
        y: Math.min(y(open[i]), y(close[i])), height: Math.max(Math.abs(y(open[i]) - y(close[i])), 1) }));
    const [top, tall] = { LONG: [24, 12], SHORT: [12, 12], NO_TRADE: [13, 2] }[signal] ?? [];
    if (signal) parts.push(element("rect", { x: x - step / 2, width: step, y: height - top, height: tall, fill: SIGNAL_COLOURS[signal] }));
  }
  const counts = Object.keys(SIGNAL_COLOURS).map(name => `${signals.filter(each => each.signal == name).length} ${name}`).join(", ");
  return element("figure", {}, element("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", width,
    "aria-label": `The last ${count} candles, from ${least} to ${most}, with the signals after ${signals.length} of them: ${counts}` }, ...parts),
    element("figcaption", {}, `The last ${count} candles; below them the signals: bars up LONG, bars down SHORT, line NO_TRADE (${counts})`));
}
