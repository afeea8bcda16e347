// A panel for market signals: SHORT, NO_TRADE or LONG after each of the last candles.

const CANDLE_COLUMNS = ["time", "open", "high", "low", "close", "volume"], SHOWN = 24;
const SIGNAL_COLOURS = { SHORT: "var(--bad)", NO_TRADE: "var(--muted)", LONG: "var(--good)" };

// `about`: `coins`, `timeframe_ms`, and `candles_needed` for a signal.
function signalsPanel(place, backend, about) {
  const report = reporting(), drawn = element("div");
  const coin = element("select", {}, ...about.coins.map(name => element("option", { value: name }, name || "any coin")));
  const text = element("textarea", { rows: 6, placeholder: CANDLE_COLUMNS.join(","), spellcheck: "false" });
  const file = element("input", { type: "file", accept: ".csv,text/csv", change: async () => {
    if (!file.files.length) return;
    text.value = await file.files[0].text();
    judge();
  } });

  async function judge(event) {
    event?.preventDefault();
    drawn.replaceChildren();
    const found = await asked(report, async () => {
      report.say("computing");
      const candles = readCandles(text.value), input = { coin: coin.value, candles };
      const signals = await backend.signals(input, SHOWN);
      return signals.error ? signals : { candles, signals };
    });
    if (!found) return;
    const last = found.signals.at(-1), names = Object.keys(last.probabilities);
    const rows = found.signals.toReversed().map(each => [new Date(each.time).toISOString().slice(0, 16).replace("T", " "),
      ...names.map(name => each.probabilities[name].toFixed(3)), each.signal]);
    drawn.append(candlePlot(found.candles, found.signals),
      element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "probabilities" },
        table("Probabilities after each candle (UTC), the newest first", ["closed candle of", ...names, "signal"], rows)));
    report.say(`after the newest candle: ${last.signal}`);
  }

  place.append(
    element("form", { submit: judge },
      ...(about.coins.length > 1 ? [labelled("coin", coin)] : []),
      labelled("a CSV file of candles", file),
      labelled(`or candles as text: ${CANDLE_COLUMNS.join(", ")}; times in ms since 1970, ${about.candles_needed} candles or more`, text, { class: "whole" }),
      element("button", { class: "main" }, "Show signals"),
      button("Invent candles", () => { text.value = writtenCandles(inventedCandles(about)); judge(); })),
    element("p", { class: "note" }, "Invented candles are a random walk, on which no model can win: they only show how it works."),
    ...report.parts, drawn);
}

// Parses lines of numbers below a line of names into {column: values}.
function readCandles(text) {
  const [head, ...lines] = text.trim().split(/\r?\n/).map(line => line.split(/[,;\t]/).map(cell => cell.trim()));
  const names = head.map(name => name.toLowerCase());
  const missing = CANDLE_COLUMNS.filter(name => !names.includes(name));
  if (missing.length) throw new Error(`the first line lacks ${missing.join(", ")}; it names the columns ${CANDLE_COLUMNS.join(",")}`);
  const wrong = lines.findIndex(cells => cells.length != names.length || !cells.every(cell => cell !== "" && Number.isFinite(Number(cell))));
  if (wrong >= 0) throw new Error(`line ${wrong + 2} is not ${names.length} numbers: ${lines[wrong].join(",").slice(0, 60)}`);
  return Object.fromEntries(CANDLE_COLUMNS.map(name => [name, lines.map(cells => Number(cells[names.indexOf(name)]))]));
}

function writtenCandles(candles) {
  return [CANDLE_COLUMNS.join(","), ...candles.time.map((_, i) => CANDLE_COLUMNS.map(name => candles[name][i]).join(","))].join("\n");
}

function inventedCandles({ candles_needed, timeframe_ms }) {
  const candles = Object.fromEntries(CANDLE_COLUMNS.map(name => [name, []])), now = Math.floor(Date.now() / timeframe_ms) * timeframe_ms;
  const count = candles_needed + SHOWN - 1;
  for (let i = 0, price = 100; i < count; i++) {
    const path = [price, ...Array.from({ length: 4 }, () => price *= 1 + 0.002 * (Math.random() - 0.5))].map(each => Number(each.toFixed(4)));
    price = path.at(-1);
    const row = [now - (count - i) * timeframe_ms, path[0], Math.max(...path), Math.min(...path), price, Number((100 * Math.random()).toFixed(2))];
    CANDLE_COLUMNS.forEach((name, column) => candles[name].push(row[column]));
  }
  return candles;
}

function candlePlot({ open, high, low, close, time }, signals) {
  const count = Math.min(60, time.length), from = time.length - count, width = 600, height = 220, step = width / count;
  const least = Math.min(...low.slice(from)), most = Math.max(...high.slice(from));
  const y = price => 12 + (height - 40) * (1 - (price - least) / (most - least || 1));
  const bySignal = new Map(signals.map(each => [each.time, each.signal])), parts = [];
  for (let i = from; i < time.length; i++) {
    const x = (i - from + 0.5) * step, colour = close[i] >= open[i] ? "var(--good)" : "var(--bad)", signal = bySignal.get(time[i]);
    parts.push(element("line", { x1: x, x2: x, y1: y(high[i]), y2: y(low[i]), stroke: colour }),
      element("rect", { x: x - step / 3, width: 2 * step / 3, fill: colour,
        y: Math.min(y(open[i]), y(close[i])), height: Math.max(Math.abs(y(open[i]) - y(close[i])), 1) }));
    const marks = { LONG: `M${x - 4} ${height - 6}h8l-4 -9z`, SHORT: `M${x - 4} ${height - 15}h8l-4 9z`, NO_TRADE: `M${x - 3} ${height - 10}h6` };
    if (signal) parts.push(element("path", { d: marks[signal], fill: SIGNAL_COLOURS[signal], stroke: SIGNAL_COLOURS[signal] }));
  }
  const counts = Object.keys(SIGNAL_COLOURS).map(name => `${signals.filter(each => each.signal == name).length} ${name}`).join(", ");
  return element("figure", {}, element("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", width,
    "aria-label": `The last ${count} candles, from ${least} to ${most}, with the signals after ${signals.length} of them: ${counts}` }, ...parts),
    element("figcaption", {}, `The last ${count} candles; below them the signals: ▲ LONG, ▼ SHORT, – NO_TRADE (${counts})`));
}
