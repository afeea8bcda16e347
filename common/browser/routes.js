// A panel for vehicle routing: customers on a map, and the tours of all solvers in one picture.

const STEP = 4, COLOURS = 10, MOST_SHOWN = 200, MOST_CAPACITY = 2 ** 24;
const EXAMPLE = [  // x, y, demand
  [12, 22, 7], [20, 14, 3], [33, 9, 5], [27, 31, 8], [41, 26, 2], [58, 12, 6], [71, 8, 4], [83, 19, 9], [90, 33, 3], [76, 36, 5],
  [64, 41, 7], [93, 55, 2], [85, 68, 6], [72, 62, 8], [88, 87, 4], [66, 83, 5], [48, 91, 3], [36, 72, 9], [19, 80, 6], [9, 58, 4], [24, 52, 2],
];
const ALWAYS = [0, 1e9];  // minutes
const FAR = 10;  // degrees; a table with a place farther from 0, 0 has none there
const WIDEST = 10;  // degrees that columns x and y span at most to be taken for longitude and latitude
// Each column's usual names, without case, accents, spaces and signs; the first one present counts. As JSON, which
// pipelines/workloads/cvrp/instances/customers.py reads here. `marks` are the entries of the column depot that mark one.
const { marks: MARKS, forms: FORMS, ...COLUMNS } = {
  "lon": ["lon", "lng", "long", "longitude", "laengengrad", "langengrad", "laenge", "lange", "longitud", "longitudine", "geolon", "geolng"],
  "lat": ["lat", "latitude", "breitengrad", "breite", "latitud", "latitudine", "geolat"],
  "x": ["x", "xcoord", "xcoordinate", "coordx", "east", "easting"],
  "y": ["y", "ycoord", "ycoordinate", "coordy", "north", "northing"],
  "demand": ["demand", "quantity", "qty", "weight", "weightkg", "kg", "load", "amount", "volume", "units", "parcels", "packages", "pallets", "boxes",
    "items", "orderweight", "load1", "packagecount", "bedarf", "menge", "gewicht", "pakete", "demanda", "cantidad", "peso", "quantite", "poids", "quantita",
    "domanda", "quantidade"],
  "name": ["name", "customer", "customername", "label", "stop", "address", "place", "locationname", "city", "town", "id", "kunde", "firma", "nombre", "cliente", "nom", "client", "nome"],
  "capacity": ["capacity", "vehiclecapacity", "maxload", "kapazitat", "kapazitaet"],
  "open": ["open", "opens", "opening", "opensat", "openingtime", "earliest", "readytime", "from", "start", "timefrom", "windowstart",
    "timewindowstart", "offnet", "oeffnet", "geoffnetvon", "geoeffnetvon", "offnungszeit", "von", "lieferzeitab", "lieferzeitvon", "ab", "beginn",
    "fruhestens", "fruehestens", "zeitfenstervon", "deliverywindowstart", "twstart", "earliestarrivaltime"],
  "close": ["close", "closes", "closing", "closesat", "closingtime", "latest", "duedate", "duetime", "until", "end", "to", "timeto", "windowend",
    "timewindowend", "deliverywindowend", "twend", "latestarrivaltime", "zeitfensterbis", "schliesst", "geoffnetbis", "geoeffnetbis", "schliesszeit", "bis", "lieferzeitbis", "ende", "spatestens", "spaetestens"],
  "hours": ["hours", "openinghours", "timewindow", "window", "zeitfenster", "lieferfenster", "offnungszeiten"],
  "service": ["service", "servicetime", "serviceminutes", "unloading", "stoptime", "visitduration", "duration", "timeatstop", "servicezeit", "standzeit", "entladezeit"],
  "prize": ["prize", "penalty", "profit", "reward"],
  "depot": ["depot", "isdepot", "type", "kind", "role"],
  "marks": ["1", "1.0", "true", "yes", "y", "x", "depot", "dépôt", "depósito", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "sì", "verdadero", "vero",
    "sim", "verdadeiro", "waar", "tak", "prawda", "✓", "warehouse", "hub", "lager", "zentrale", "entrepot", "entrepôt", "almacén", "almacen",
    "armazém", "magazzino", "magazijn"],
  "forms": ["(?=.*\\D|0\\d{3}$)(\\d{1,2})(?:[:h]?([0-5]\\d)?(?::00)?)? ?(?:uhr|([ap])\\.?m\\.?)?", "\\s*(?:[-–—~]|to|bis|à)\\s*",
    "^(?:(1?\\d|2[0-4])|(\\d\\d?)\\.([0-5]\\d)|([0-2]\\d)([0-5]\\d))(?= ?uhr|$)", "[(\\[]\\s*(?:s|secs?|seconds?|sekunden|h|hrs?|hours?|std|stunden)\\.?\\s*[)\\]]"]
};
// Forms of: a time of day; the dash between two; an hour, 8.30 or 0830 in such a span; a column's unit other than minutes.
const [CLOCK, DASH, HOUR, OTHER_UNIT] = FORMS.map((form, i) => new RegExp(i ? form : `^(?:${form})$`));

// `about.rivals`: the backend has `rivals(input, milliseconds)`; `about.milliseconds`: the user may choose that time, which is
// the model's own by default.
function routesPanel(place, backend, about) {
  const report = reporting(), tours = element("g"), dots = element("g"), map = element("svg", {
    class: "map", viewBox: "0 0 100 100", tabindex: 0, role: "application", "aria-roledescription": "map",
    "aria-label": "Map of customers. Arrow keys move the cross, Enter adds a customer, Backspace removes the last one.",
    click: clicked, keydown: pressed,
  }, tours, dots);
  const results = element("div", { class: "wide" }), times = element("div", { class: "wide" });
  const capacity = numberField(about.capacity ?? 30, { min: 1, max: 1e6, step: "any", change: solve });
  const speed = numberField(60, { min: 1, max: 1e6, step: "any", change: solve });
  const count = numberField(20, { min: 1, max: MOST_SHOWN });
  const milliseconds = numberField("", { min: 1, max: 2000, change: solve, placeholder: "as the model" });
  const file = element("input", { type: "file", accept: ".csv,text/csv", change: () => file.files[0] && opened(file.files[0]) });
  const square = { depot: [50, 50], scale: 0.01, unit: "" }, cross = [50, 40];  // scale: length of one unit of the map
  let where = square, customers = EXAMPLE.map(([x, y, demand]) => ({ at: [x, y], demand })), wanted = 0, chosen = "model", ways = [];

  const random = () => ({ at: [0, 1].map(() => Math.round(4 + 92 * Math.random())), demand: 1 + Math.floor(9 * Math.random()) });

  // Places in the unit square; demands and the capacity as whole numbers.
  function instance() {
    const most = Number(capacity.value), high = customers.findIndex(each => each.demand > most);
    if (high >= 0) throw new Error(`customer ${high + 1} asks for ${customers[high].demand}; a vehicle must carry at least as much`);
    const [whole, ...demands] = wholeNumbers([most, ...customers.map(each => each.demand)]);
    const at = place => place.map(each => each / 100);
    const plain = { depot: at(where.depot), customers: customers.map(each => at(each.at)), demands, capacity: whole };
    if (where.depots?.length) plain.depots = where.depots.map(each => at(each.at));
    if (where.prizes) plain.prizes = customers.map(each => each.prize === undefined ? null : each.prize / (100 * where.scale));
    if (!where.hours) return plain;
    return { ...plain, hours: where.hours, depot_hours: (where.depots ?? []).map(each => each.hours), windows: customers.map(each => each.hours ?? ALWAYS), service_times: customers.map(each => each.service ?? 0), speed: Number(speed.value) / (100 * where.scale) };
  }

  function draw() {
    dots.replaceChildren(...places(depotsOf(where), customers), element("path", { class: "cursor", d: `M${cross[0] - 3} ${cross[1]}h6M${cross[0]} ${cross[1] - 3}v6` }));
  }

  function add(at) {
    if (customers.length >= MOST_SHOWN) return report.fail(`there are ${MOST_SHOWN} customers; remove some`);
    customers.push({ ...random(), at });
    changed(`customer ${customers.length} at ${at[0]}, ${at[1]}, demand ${customers.at(-1).demand}`);
  }

  function changed(said) {
    draw();
    tours.replaceChildren();
    report.say(said);
    solve();
  }

  function replaced(by, said) {
    [where, customers] = [by.where ?? square, by.customers];
    changed(said);
  }

  async function opened(csv) {
    try {
      const found = readCustomers(decoded(await csv.arrayBuffer()));
      if (found.capacity) capacity.value = found.capacity;
      const unsaid = found.capacity ? "" : `; it names no capacity: a vehicle carries ${capacity.value} unless you type another`;
      replaced(found, `${csv.name}: ${found.customers.length} customers${found.taken ? "; x and y are read as longitude and latitude" : ""}${unsaid}${found.unused.length ? `; not used: ${found.unused.join(", ")}` : ""}`);
    } catch (error) {
      replaced({ customers: [] }, "no customers");
      report.fail(`${csv.name}: ${error.message}`);
    }
  }

  function clicked(event) {
    if (!event.detail) return;
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    add([x, y].map(each => Math.round(Math.max(0, Math.min(each, 100)))));
  }

  function pressed(event) {
    const move = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    if (move) move.forEach((by, axis) => cross[axis] = Math.max(0, Math.min(cross[axis] + by, 100)));
    else if (event.key == "Enter" || event.key == " ") add([...cross]);
    else if (event.key == "Backspace" && customers.length) changed(`removed customer ${customers.length}`, customers.pop());
    else return;
    event.preventDefault();
    draw();
  }

  // Asks once customers stop changing; drops outdated answers.
  async function solve() {
    const mine = ++wanted;
    await new Promise(resolve => setTimeout(resolve, 150));
    if (mine != wanted) return;
    if (!customers.length) return results.replaceChildren();
    const found = await asked(report, async () => about.rivals
      ? await backend.rivals(instance(), Number(milliseconds.value) || null)
      : { model: await backend.predict(instance()) });
    if (!found || mine != wanted) return;
    ways = Object.entries(found.outputs ?? found);
    if (!ways.some(([name]) => name == chosen)) chosen = "model";
    const length = ({ cost }) => `${shortNumber(cost * 100 * where.scale)}${where.unit}`;
    const least = Math.min(...ways.map(([, way]) => way.cost ?? Infinity));
    results.replaceChildren(table(`Tours through ${customers.length} customers; choose which to colour`,
      ["solver", "length", "longer by", "routes", "ms"],
      ways.map(([name, way]) => [choice(name), ...(way.error ? [way.error, "", "", ""] : [
        length(way), `${(100 * (way.cost / least - 1)).toFixed(1)}\u00a0%`, way.routes.length, way.milliseconds === undefined ? "" : shortNumber(way.milliseconds)])])));
    report.say(ways.map(([name, way]) => `${name}: ${way.error ?? length(way)}`).join("; "));
    show();
  }

  function choice(name) {
    const radio = element("input", { type: "radio", name: "solver", checked: name == chosen, change: () => { chosen = name; show(); } });
    return element("label", { class: "choice" }, radio, name == "model" && beyond() ? "own search" : name);
  }

  // Draws the chosen solver's tours in colour, over those of the others.
  function show() {
    const order = [...ways].sort(([a], [b]) => (a == chosen) - (b == chosen));
    tours.replaceChildren(...order.map(([name, way]) => tour(name, way, depotsOf(where), customers, name == chosen)));
    const { routes, arrivals, left_out } = ways.find(([name]) => name == chosen)?.[1] ?? {};
    times.replaceChildren(...(left_out ? [element("p", {}, `Not worth their detour: ${left_out.map(each => customers[each - 1].name || each).join(", ") || "none"}`)] : []), ...(arrivals ? [table("Times of departure, service and return", ["route", "leaves", "customers", "returns"], routes.map((route, i) =>
      [i + 1, clock(arrivals[i][0]), route.map((each, k) => `${customers[each - 1].name || each} ${clock(arrivals[i][k + 1])}`).join(", "), clock(arrivals[i].at(-1))]))] : []));
  }

  // No policy has learnt hours, prizes or several depots: only the native search handles them.
  const beyond = () => Boolean(where.hours || where.prizes || where.depots?.length);

  const dropped = event => { event.preventDefault(); if (event.dataTransfer.files[0]) opened(event.dataTransfer.files[0]); };
  place.append(
    element("p", {}, "Vehicles start from the square, serve all customers and carry no more than their capacity. The chosen solver's tours are in colour, those of the others faint beneath. With opening hours, prizes or several depots, a search answers instead of the trained policy."),
    element("div", { class: "row" },
      labelled("vehicle's capacity", capacity),
      labelled("km/h, for opening hours", speed),
      ...(about.milliseconds ? [labelled("milliseconds for each solver", milliseconds)] : []),
      labelled("customers", count),
      button("Place at random", () => replaced({ customers: Array.from({ length: Math.min(Number(count.value), MOST_SHOWN) }, random) }, `${count.value} customers`), { class: "main" }),
      button("Clear", () => replaced({ customers: [] }, "no customers")),
      labelled("your customers (CSV)", file)),
    element("p", { class: "note" }, "Click on the map to add a customer with a demand of 1 to 9. A CSV, opened or dropped on the map, has columns lon and lat (or x and y) and demand; its first row is the depot, or every row with 1 in a column depot. Columns open, close (8:30) and service (minutes) set opening hours and service times; a customer with a prize is left out if the detour costs more."),
    ...report.parts,
    element("div", { class: "tours", dragover: event => event.preventDefault(), drop: dropped }, map, results), times);
  draw();
  solve();
}

// Amounts times the least power of ten that makes all of them whole, as whole_numbers of customers.py.
function wholeNumbers(amounts) {
  const decimals = Math.max(...amounts.map(each => (String(each).split(".")[1] ?? "").length)), most = Math.max(...amounts);
  if (most * 10 ** decimals > MOST_CAPACITY) throw new Error(`demands and capacity have ${decimals} decimals and go up to ${most}; round them so that, written without the point, none is above ${MOST_CAPACITY}`);
  return amounts.map(each => Math.round(each * 10 ** decimals));
}

// A file's text, decoded as UTF-8, else as windows-1252.
function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// The depot and customers of a CSV on the map. Longitudes and latitudes are projected around their middle, in km.
function readCustomers(text) {
  const lines = text.replace(/^\ufeff/, "").replace(/^(\s*)"?sep=[,;|\t]"?[ \t]*(?=\r?\n)/i, "$1").split(/\r?\n/).map((line, i) => [i + 1, line]).filter(([, line]) => line.trim());
  if (lines.length < 3) throw new Error("it must have a header, a row for the depot and one for each customer");
  const divider = [",", ";", "\t"].reduce((a, b) => lines[0][1].split(b).length > lines[0][1].split(a).length ? b : a);
  const cells = line => (line + divider).match(new RegExp(`("([^"]|"")*"|[^${divider}]*)${divider}`, "g")).map(cell => cell.slice(0, -1).trim().replace(/^"(.*)"$/, "$1").replaceAll('""', '"'));
  const named = cells(lines[0][1]);
  const header = named.map(name => name.replace(/[([].*/, "").toLowerCase().replaceAll("ß", "ss").normalize("NFKD").replace(/[^0-9a-z]/g, ""));
  const at = Object.fromEntries(Object.entries(COLUMNS).map(([what, names]) => [what, header.indexOf(names.find(each => header.includes(each)) ?? NaN)]));
  const degrees = at.lon >= 0 && at.lat >= 0, axes = degrees ? ["lon", "lat"] : ["x", "y"];
  for (const what of [...axes, "demand"]) if (at[what] < 0) throw new Error(`there is no column ${what == "x" ? "lon or x" : what == "y" ? "lat or y" : what}; the first row must name the columns, as in name,lon,lat,demand`);
  const unit = ["open", "close", "service"].map(what => named[at[what]]).find(name => OTHER_UNIT.test((name ?? "").toLowerCase()));
  if (unit) throw new Error(`the column ${unit} is not in minutes; give minutes, without a unit`);
  const written = lines.flatMap(([number, line]) => cells(line).map(cell => [number, cell]));  // as _read_csv of customers.py
  const either = divider != "," && written.some(([, cell]) => /^[-+]?\d*,\d+\D*$/.test(cell)) && written.find(([, cell]) => /^[-+]?\d{1,3}(\.\d{3})+$/.test(cell));
  if (either) throw new Error(`row ${either[0]}: ${either[1]} may be ${either[1].replaceAll(".", "")} or ${either[1]}, as other cells have decimal commas; write numbers without thousands`);
  const rows = lines.slice(1).map(([number, line]) => {
    const row = cells(line), value = what => {
      const cell = divider == "," ? row[at[what]] : row[at[what]]?.replace(",", "."), found = Number(cell);
      if (!cell || !Number.isFinite(found) || found < 0 && !axes.includes(what)) throw new Error(`row ${number}: ${what} is ${cell ? `"${cell}"` : "empty"}; type a number`);
      return found;
    };
    const minutes = (what, missing, text = row[at[what]] ?? "") => {
      const clock = CLOCK.exec(text.toLowerCase());
      const found = clock && 60 * (clock[3] ? clock[1] % 12 + 12 * (clock[3] == "p") : Number(clock[1])) + Number(clock[2] ?? 0);
      if (clock && (what != "service" || found <= 480)) return found;  // 15:00 is mm:ss
      if (clock || text != (row[at[what]] ?? "")) throw new Error(`row ${number}: ${what} is "${text}"; type ${what == "service" ? "minutes, such as 15" : "a time, such as 8:30"}`);
      return text ? value(what) : missing;
    };
    const span = row[at.hours]?.toLowerCase().split(DASH).map(each => each.replace(HOUR, "$1$2$4:$3$5"));
    if (row[at.hours] && (span.length != 2 || span[1].includes("m") && !span[0].includes("m"))) throw new Error(`row ${number}: hours are "${row[at.hours]}"; type them as 8:00-17:30`);
    const hours = ["open", "close"].map((what, i) => minutes(what, ALWAYS[i], row[at.hours] ? span[i] : undefined));
    if (hours[0] > hours[1]) throw new Error(`row ${number}: opens after it closes`);
    const marked = MARKS.includes(row[at.depot]?.toLowerCase()), called = row[at.name]?.toLowerCase() == "depot";
    const [prize, capacity] = ["prize", "capacity"].map(what => row[at[what]] ? value(what) : undefined);
    return { number, cells: row, place: axes.map(value), marked, called, hours, prize, service: minutes("service", 0), name: row[at.name], demand: () => value("demand"), capacity };
  });
  if (rows.length > MOST_SHOWN + 1) throw new Error(`it has ${rows.length - 1} customers; at most ${MOST_SHOWN} can be shown`);
  const marked = rows.filter(rows.some(each => each.marked) ? each => each.marked : each => each.called), depot = marked[0] ?? rows[0];
  const others = rows.filter(each => each != depot && !marked.includes(each));
  const loaded = [depot, ...marked].find(each => each.cells[at.demand] && each.demand());
  if (loaded) throw new Error(`row ${loaded.number} is the depot, ${marked.length ? "as it says" : "being the first"}, but its demand is ${loaded.demand()}; give your own place a first row with demand 0, or add a column depot with 1 in its row`);
  const [first, ...more] = rows.filter(each => each.capacity !== undefined), another = more.find(each => each.capacity != first.capacity);
  if (another) throw new Error(`capacity is ${first.capacity} in row ${first.number} and ${another.capacity} in row ${another.number}; all vehicles are alike here, so type one number`);
  const given = rows.flatMap(({ cells }) => ["open", "close"].map(what => cells[at[what]])).filter(cell => cell);
  const numbers = given.filter(cell => /^(?!0\d)\d+[.,]?\d*$/.test(cell)).map(cell => Number(cell.replace(",", "."))), most = Math.max(...numbers);
  if (degrees && numbers.length && (numbers.length < given.length || !(most > 24 && most <= 1440))) throw new Error(`opening hours such as ${most} would mean minutes; type times, such as 8:30`);
  const columns = divider == "," ? [] : named.map((_, i) => lines.map(([, line]) => cells(line)[i] ?? ""));  // as cells of sheets.py
  for (const column of columns) {
    const numbers = column.filter(cell => /^[\d.,]+$/.test(cell)), large = numbers.find(cell => /^[1-9]\d{0,2}([.,]\d{3})+$/.test(cell));
    if (large && numbers.some(cell => /^\d{3}$/.test(cell)) && numbers.every(cell => /^(\d{1,3}|[1-9]\d{0,2}([.,]\d{3})+)$/.test(cell))) throw new Error(`${large} among whole numbers may be thousands; write numbers without separators`);
  }
  const nowhere = degrees && rows.some(({ place }) => place.some(each => Math.abs(each) > FAR)) && rows.find(({ place }) => place.every(each => each == 0));
  if (nowhere) throw new Error(`row ${nowhere.number} is at 0, 0, as no address is; type its lon and lat`);
  const far = degrees && rows.find(({ place: [lon, lat] }) => Math.abs(lon) > 180 || Math.abs(lat) > 90);
  if (far) throw new Error(`row ${far.number}: ${far.place.join(", ")} is not a longitude and latitude; are they swapped?`);
  const bounds = axis => [Math.min(...rows.map(each => each.place[axis])), Math.max(...rows.map(each => each.place[axis]))];
  const [[west, east], [south, north]] = [bounds(0), bounds(1)], km = 6371.0088 * Math.PI / 180;
  // As _looks_like_degrees of customers.py: in range, near each other, fine, off the unit square.
  const fine = rows.filter(({ place }) => place.some(each => Math.abs(100 * each - Math.round(100 * each)) > 1e-6)).length > rows.length / 2;
  const inRange = Math.max(-west, east) <= 180 && Math.max(-south, north) <= 90 && Math.max(east - west, north - south) <= WIDEST;
  const taken = !degrees && fine && inRange && (Math.min(west, south) < 0 || Math.max(east, north) > 1), sphere = degrees || taken;
  const [across, up] = sphere ? [km * Math.cos((south + north) / 2 * Math.PI / 180), km] : [1, 1];
  const extent = Math.max(across * (east - west), up * (north - south)) || 1;
  const onMap = ([x, y]) => [4 + 92 * across * (x - west) / extent, 4 + 92 * up * (north - y) / extent];
  return {
    where: { depot: onMap(depot.place), depots: marked.slice(1).map(each => ({ at: onMap(each.place), hours: each.hours })), scale: extent / 92, unit: sphere ? "\u00a0km" : "", hours: Math.max(at.open, at.close, at.hours) >= 0 ? depot.hours : null, prizes: at.prize >= 0 },
    customers: others.map(each => ({ at: onMap(each.place), demand: each.demand(), hours: each.hours, service: each.service, prize: each.prize, name: each.name })),
    capacity: first?.capacity || null, taken,
    unused: named.filter((name, i) => name && !Object.values(at).includes(i)),
  };
}

function clock(minutes) {
  const whole = Math.round(minutes);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// The places of all depots; `way.depots` numbers the one at which each route begins and ends.
function depotsOf(where) {
  return [where.depot, ...(where.depots ?? []).map(each => each.at)];
}

function places(depots, customers) {
  return [
    ...customers.map(({ at: [x, y], demand }) => element("circle", { class: "dot", cx: x, cy: y, r: 0.8 + 0.12 * demand })),
    ...depots.map(([x, y]) => element("rect", { class: "depot", x: x - 1.6, y: y - 1.6, width: 3.2, height: 3.2 })),
  ];
}

// A solver's tours: those in colour grow customer by customer.
function tour(name, way, depots, customers, coloured) {
  const lines = (way.routes ?? []).map((route, number) => {
    const depot = depots[way.depots?.[number] ?? 0], points = [depot, ...route.map(customer => customers[customer - 1].at), depot];
    const line = element("path", { class: coloured ? "route" : "route faint", d: `M${points.map(each => each.join(" ")).join("L")}`, stroke: coloured ? `var(--c${number % COLOURS})` : "var(--muted)" });
    return { line, stops: points.length };
  });
  const drawn = element("g", { "data-solver": name }, ...lines.map(({ line }) => line));
  if (!coloured || matchMedia("(prefers-reduced-motion: reduce)").matches) return drawn;
  const began = performance.now(), starts = [];
  const total = lines.reduce((sum, { stops }) => (starts.push(sum), sum + stops), 0);
  const grow = now => {
    const reached = (now - began) / 20;
    lines.forEach(({ line, stops }, i) => {
      const length = line.getTotalLength(), share = Math.max(0, Math.min((reached - starts[i]) / stops, 1));
      line.style.strokeDasharray = reached < total ? `${length * share} ${length}` : "";
    });
    if (reached < total) requestAnimationFrame(grow);
  };
  requestAnimationFrame(grow);
  return drawn;
}
