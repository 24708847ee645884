// Draws the moments of /events, four a second.
import {
  $, bytes, cells, connect, count, dark, happened, make, painter, percent, progress, say, seconds, themes, tiles, wall,
} from "./common.js";

const KEPT = 2400; // Ten minutes at four a second: more is forgotten.
const GAP_MS = 1500; // Longer without a word is a gap, and no line is drawn over it.
function clock(at) {
  return about.kind === "device" ? wall(at * 1000) : seconds(at);
}

// What is known.
let about = { kind: "device", title: "", promise: "" };
let samples = []; // {x, at, row, dies, moment}: only the newest, and one that is held, has its moment.
let last = null; // The last whole moment.
let events = []; // {x, what, level}
let lost = null; // Since when nothing comes.
let held = null; // While paused, the sample whose figures stand.
let zoom_before = null; // What was shown before the pause, if it was a part.
const view = { span: 600, paused: false, from: null, to: null, work: "all" };

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SOURCES = [["host", "hosts"], ["log", "log"], ["collection", "collection"], ["folding", "folding"],
  ["map", "map"], ["padding", "padding"]];

// One row of a moment: what the plots draw. Without a moment before, rates are unknown.
function row(now, before) {
  const dt = now.dt;
  const rate = (get) => (before && dt > 0 ? Math.max(0, get(now) - get(before)) / dt : null);
  const kinds = [0, 1, 2, 3].map((kind) => rate((moment) => moment.commands[kind]));
  const others = kinds[2] === null ? null : kinds[2] + kinds[3];
  const result = {
    reads: kinds[0], writes: kinds[1], others, out: rate((m) => m.bytes[0]), into: rate((m) => m.bytes[1]),
    outstanding: now.outstanding, deepest: about.kind === "device" ? now.outstanding_in_a_queue : null,
  };
  now.waits.forEach((spread, level) => { result["wait" + level] = spread ? spread.p99 : null; });
  for (const [name, spread] of [["r", now.spreads[0]], ["w", now.spreads[1]]]) {
    for (const part of ["p50", "p99", "p999"]) result[name + part] = spread ? spread[part] : null;
  }
  const drive = now.drive;
  if (!drive) return result;
  const had = before && before.drive && before.power_cuts === now.power_cuts ? before.drive : null;
  const units = (name) => (had && dt > 0 ? Math.max(0, drive.units[name] - had.units[name]) : null);
  const wanted = had ? units("host") + units("log") : 0;
  for (const [name] of SOURCES) result["u_" + name] = wanted > 0 ? units(name) / wanted : null;
  result.waf = wanted > 0 ? SOURCES.reduce((sum, [name]) => sum + units(name), 0) / wanted : null;
  result.collections = had && dt > 0 ? Math.max(0, drive.collections - had.collections) / dt : null;
  [result.least, result.mean, result.most] = [drive.wear.least, drive.wear.mean, drive.wear.most];
  result.free = drive.free_superblocks[0];
  result.buffer = drive.write_buffer.size ? drive.write_buffer.used / drive.write_buffer.size : null;
  result.dirty = drive.write_buffer.size ? drive.write_buffer.dirty / drive.write_buffer.size : null;
  result.ring = drive.lanes.length ? Math.max(...drive.lanes.map((lane) => lane.ring_used / lane.ring)) : null;
  return result;
}

// Plots: each with its series as [key, label, color], and how values are written.
const PLOTS = [
  { name: "Commands", note: "a second", rate: true, always: true, write: count,
    series: [["reads", "reads", "--p0"], ["writes", "writes", "--p1"], ["others", "others", "--p4"]] },
  { name: "Data", note: "a second", rate: true, always: true, write: bytes,
    series: [["out", "to hosts", "--p0"], ["into", "from hosts", "--p1"]] },
  { name: "Read latency", note: "median to 99.9 %", log: true, band: true, write: seconds,
    series: [["rp50", "median", "--p0"], ["rp99", "99 %", "--p0"], ["rp999", "99.9 %", "--p0"]] },
  { name: "Write latency", note: "median to 99.9 %", log: true, band: true, write: seconds,
    series: [["wp50", "median", "--p1"], ["wp99", "99 %", "--p1"], ["wp999", "99.9 %", "--p1"]] },
  { name: "Write amplification", note: "flash units programmed per unit of hosts and log, by cause", stacked: true,
    series: SOURCES.map(([key, label], at) => ["u_" + key, label, "--p" + at]),
    write: (value) => (value === null || value === undefined ? "–" : value.toFixed(2)) },
  { name: "Memories", note: "share that is full", top: 1, write: percent, series: [["buffer", "write buffer", "--p0"],
    ["dirty", "of it not on flash", "--p3"], ["ring", "log ring", "--p2"]] },
  { name: "Waits for the log", note: "99 % of those that programs made", log: true, write: seconds,
    series: [["wait0", "on flash", "--p0"], ["wait1", "on replicas", "--p1"],
      ["wait2", "on flash of replicas", "--p2"]] },
  { name: "Commands under way", note: "", series: [["outstanding", "under way", "--p4"],
    ["deepest", "in the busiest queue", "--p1"]], write: count },
  { name: "Free superblocks", note: "", series: [["free", "free", "--p2"]], write: count },
  { name: "Wear", note: "erasures of a superblock", series: [["most", "most", "--p3"], ["mean", "mean", "--p0"],
    ["least", "least", "--p2"]], write: count },
];

function build(plot) {
  const figure = make("figure");
  const caption = make("figcaption", "", plot.name + " ");
  plot.noted = make("small", "", plot.note);
  caption.append(plot.noted);
  plot.box = make("div");
  plot.box.tabIndex = 0;
  plot.box.setAttribute("role", "group");
  plot.box.setAttribute("aria-label", plot.name + " over time; arrow keys move the cursor");
  figure.append(caption, plot.box);
  $("plots").append(figure);
  plot.figure = figure;
  plot.box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot.chart || !plot.chart.data[0].length) return;
    event.preventDefault();
    const xs = plot.chart.data[0];
    const chosen = plot.chosen === null ? -1 : xs.findIndex((x) => x >= plot.chosen);
    const at = chosen >= 0 ? chosen : plot.chart.cursor.idx ?? xs.length - 1;
    plot.chosen = xs[Math.min(xs.length - 1, Math.max(0, at + step * (event.shiftKey ? 20 : 1)))];
    point(plot);
  });
  // A cursor that keys have set stays at its moment while the axis moves, until a pointer takes it.
  plot.chosen = null;
  plot.box.addEventListener("pointermove", () => { plot.chosen = null; });
  plot.box.addEventListener("blur", () => { plot.chosen = null; });
  new ResizeObserver(() => {
    if (plot.chart && plot.box.clientWidth) plot.chart.setSize({ width: plot.box.clientWidth, height: 170 });
  }).observe(plot.box);
}

function point(plot) {
  plot.chart.setCursor({ left: plot.chart.valToPos(plot.chosen, "x"), top: 10 });
}

function draw(plot, range) {
  const shown = plot.series.map(([key]) => samples.some((sample) => sample.row[key] > 0));
  const is_known = (key) => samples.some((sample) => (sample.row[key] ?? null) !== null);
  const used = plot.series.filter(([key], at) => shown[at] || (!plot.stacked && (is_known(key) || plot.always)));
  plot.figure.hidden = !plot.always && !shown.some(Boolean);
  if (plot.figure.hidden) return;
  const look = [document.documentElement.dataset.theme, dark.matches, about.kind];
  const key = JSON.stringify([used.map(([name]) => name), look]);
  const xs = samples.map((sample) => sample.x);
  const raw = used.map(([name]) => samples.map((sample) => sample.row[name] ?? null));
  let drawn = raw;
  if (plot.stacked) {
    // The last of the stack is drawn first, so each is seen above those below.
    const sums = xs.map(() => 0);
    drawn = raw.map((values) => values.map((value, at) => (value === null ? null : (sums[at] += value))));
  }
  if (plot.log) drawn = drawn.map((values) => values.map((value) => (value > 0 ? value : null)));
  if (plot.key !== key) {
    if (plot.chart) plot.chart.destroy();
    plot.key = key;
    plot.chart = new uPlot(options(plot, used), [xs, ...drawn], plot.box);
  } else {
    plot.chart.setData([xs, ...drawn], false);
  }
  plot.raw = raw;
  plot.chart.setScale("x", { min: range[0], max: range[1] });
  // A chart that is new sets its legend once more when this is over.
  queueMicrotask(() => {
    if (plot.chosen !== null && xs.includes(plot.chosen)) point(plot);
    // Without a cursor, the newest values.
    if ((plot.chart.cursor.idx ?? null) !== null) return;
    const at = view.paused && held ? samples.indexOf(held) : samples.length - 1;
    plot.chart.setLegend({ idx: at < 0 ? null : at });
  });
}

function options(plot, used) {
  const line = { stroke: color("--muted"), grid: { stroke: color("--rule"), width: 1 }, ticks: { show: false } };
  // A logarithmic axis has a line for each power of ten, not for each step between.
  const powers = plot.log ? (_, ticks) => ticks.map((tick) => (isDecade(tick) ? tick : null)) : undefined;
  const faded = (name, part) => color(name) + Math.round(part * 255).toString(16).padStart(2, "0");
  const series = used.map(([, label, paint], at) => ({
    label,
    stroke: color(paint),
    width: plot.band && at === 0 ? 2 : 1.5,
    dash: plot.band && at === 2 ? [4, 3] : undefined,
    fill: plot.stacked && at === 0 ? faded(paint, 0.35) : undefined,
    points: { show: false },
    value: (_, __, ___, index) => plot.write(index === null ? null : plot.raw[at][index]),
  }));
  const bands = plot.band && used.length === 3 ? [{ series: [3, 1], fill: faded(used[0][2], 0.15) }] : [];
  if (plot.stacked) {
    for (let at = 1; at < used.length; at += 1) bands.push({ series: [at + 1, at], fill: faded(used[at][2], 0.35) });
  }
  return {
    width: plot.box.clientWidth || 420,
    height: 170,
    scales: {
      x: { time: about.kind === "device", auto: false },
      y: plot.log ? { distr: 3, range: (_, min, max) => decades(min, max) }
        : { range: (_, min, max) => [0, top(plot, plot.top ?? (max > 0 ? max : 1))] },
    },
    axes: [
      { ...line, size: 32, values: about.kind === "device" ? WALL : (_, ticks) => ticks.map(seconds) },
      { ...line, grid: { ...line.grid, ...(powers && { filter: powers }) }, size: 74, space: 34,
        splits: plot.log ? undefined : (_, __, ___, max) => {
          const by = step(plot, max);
          return Array.from({ length: Math.round(max / by) + 1 }, (_, at) => at * by);
        },
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : plot.write(tick))),
        filter: powers },
    ],
    series: [{ label: "at", value: (_, x) => (x === null ? "–" : clock(x)) }, ...series],
    bands,
    cursor: { sync: { key: "time" }, drag: { x: true, y: false, setScale: false } },
    legend: { live: true },
    hooks: {
      setSelect: [(chart) => {
        if (chart.select.width < 5) return;
        zoom(chart.posToVal(chart.select.left, "x"), chart.posToVal(chart.select.left + chart.select.width, "x"));
        chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      ready: [(chart) => chart.over.addEventListener("dblclick", () => zoom(null, null))],
      draw: [marks],
    },
  };
}
// The step of an axis up to `max`, in at most four of them: a power of two for bytes, a whole number for counts. The
// last step has a name, too.
function step(plot, max) {
  const least = max / 4;
  if (plot.write === bytes) return Math.max(1, 2 ** Math.ceil(Math.log2(least)));
  const ten = 10 ** Math.floor(Math.log10(least));
  const by = [1, 2, 5, 10].find((one) => one * ten >= least * (1 - 1e-9)) * ten;
  return plot.write === count ? Math.max(1, by) : by;
}
function top(plot, max) {
  const by = step(plot, max);
  return Math.ceil(max / by - 1e-9) * by;
}
// Times of the day, by how far apart they are.
const pad = (number) => String(number).padStart(2, "0");
const WALL = (_, ticks, __, ___, step) => ticks.map((tick) => {
  const at = new Date(tick * 1000);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}` + (step < 60 ? `:${pad(at.getSeconds())}` : "");
});
const isDecade = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;
function decades(min, max) {
  if (!(min > 0) || !(max > 0)) return [1e-6, 1e-2];
  return [10 ** Math.floor(Math.log10(min)), 10 ** Math.ceil(Math.log10(max) + 1e-9)];
}

// A line for each event.
function marks(chart) {
  const { left, top, width, height } = chart.bbox;
  chart.ctx.save();
  for (const event of events) {
    const at = chart.valToPos(event.x, "x", true);
    if (at < left || at > left + width) continue;
    chart.ctx.strokeStyle = color(event.level === "bad" ? "--alert" : "--muted");
    chart.ctx.setLineDash([3, 3]);
    chart.ctx.beginPath();
    chart.ctx.moveTo(at, top);
    chart.ctx.lineTo(at, top + height);
    chart.ctx.stroke();
  }
  chart.ctx.restore();
}

// What time is shown.
function range() {
  if (view.from !== null) return [view.from, view.to];
  const newest = (view.paused && held) || samples[samples.length - 1];
  const end = newest ? newest.x : 0;
  // What came before this page knew of it is left out, but for a short axis.
  const begin = samples.length ? Math.min(samples[0].x, end - 30) : end - view.span;
  if (about.kind === "device") return [Math.max(end - view.span, begin), end];
  // A simulation's clock is not ours: of what is kept, the last part.
  const until = newest ? samples.indexOf(newest) + 1 : 0;
  const first = samples[Math.max(0, (until || samples.length) - view.span * 4)];
  return [first ? first.x : 0, Math.max(end, (first ? first.x : 0) + 1e-9)];
}
function zoom(from, to) {
  [view.from, view.to] = [from, to];
  // A view that stands has its ends in the link.
  if (view.paused && from === null) [view.from, view.to] = range();
  remember();
  paint(true);
}
function scaled(factor) {
  const [from, to] = range();
  const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
  zoom(middle - half, middle + half);
}

// Around the map of dies: names of channels, as wide as the axes of the plots, and times.
const [BESIDE, BELOW] = [74, 20];
function heat([from, to]) {
  const dies = last && last.drive ? samples.reduce((most, sample) => Math.max(most, sample.dies.length / 4), 0) : 0;
  $("heat").hidden = dies === 0;
  if (!dies) return;
  const canvas = $("dies");
  const ratio = window.devicePixelRatio || 1;
  const sizes = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.max(1, Math.round(size * ratio)));
  if (canvas.width !== sizes[0] || canvas.height !== sizes[1]) [canvas.width, canvas.height] = sizes;
  const beside = Math.round(BESIDE * ratio);
  const [width, height] = [Math.max(1, sizes[0] - beside), Math.max(1, sizes[1] - Math.round(BELOW * ratio))];
  const ctx = canvas.getContext("2d");
  ctx.clearRect(0, 0, sizes[0], sizes[1]);
  const channels = last.drive.channels || 1;
  const rows = order(dies, channels);
  const shown = samples.filter((sample) => sample.x >= from && sample.x <= to && sample.dies.length);
  // One picture of a point for each cell, drawn larger: of many dies several fall on one line, and are averaged.
  const lines = Math.min(rows.length, height);
  const columns = Math.min(shown.length, width);
  if (!columns) return;
  const [red, green, blue] = color("--heat").split(",").map(Number);
  const picture = ctx.createImageData(columns, lines);
  for (let column = 0; column < columns; column += 1) {
    const sample = shown[Math.floor((column * shown.length) / columns)];
    for (let line = 0; line < lines; line += 1) {
      const [first, end] = [Math.floor((line * rows.length) / lines), Math.ceil(((line + 1) * rows.length) / lines)];
      let share = 0;
      for (let row = first; row < end; row += 1) share += worked(sample.dies, rows[row]) / (end - first);
      picture.data.set([red, green, blue, Math.min(255, Math.sqrt(share) * 255)], (line * columns + column) * 4);
    }
  }
  const small = document.createElement("canvas");
  [small.width, small.height] = [columns, lines];
  small.getContext("2d").putImageData(picture, 0, 0);
  ctx.imageSmoothingEnabled = false;
  // From where to where, piece by piece: where nothing came there is a gap.
  const place = (x) => ((x - from) / (to - from)) * width;
  const at = (column) => shown[Math.floor((column * shown.length) / columns)];
  for (let column = 0; column < columns; column += 1) {
    const right = place(at(column).x);
    const before = column ? at(column - 1) : null;
    const near = before && at(column).at - before.at <= GAP_MS * Math.ceil(shown.length / columns);
    const left = near ? place(before.x) : right - 2;
    ctx.drawImage(small, column, 0, 1, lines, beside + left, 0, Math.max(1, right - left), height);
  }
  // A line between channels, and names as far as there is room.
  ctx.font = `${12 * ratio}px Inter, system-ui, sans-serif`;
  [ctx.fillStyle, ctx.strokeStyle, ctx.lineWidth] = [color("--muted"), color("--muted"), 1];
  [ctx.textAlign, ctx.textBaseline] = ["right", "middle"];
  const tall = height / channels;
  const every = Math.max(1, Math.ceil((15 * ratio) / tall));
  ctx.beginPath();
  for (let channel = 0; channel <= channels; channel += 1) {
    const y = Math.min(height - 0.5, Math.round(channel * tall) + 0.5);
    if (channel % every === 0 || channel === channels) {
      ctx.moveTo(beside - 4 * ratio, y);
      ctx.lineTo(beside + width, y);
    }
    if (channel < channels && channel % every === 0) {
      ctx.fillText(channel ? String(channel) : "channel 0", beside - 8 * ratio, y + Math.min(tall / 2, 8 * ratio));
    }
  }
  ctx.stroke();
  const marked = Math.max(1, Math.min(5, Math.floor(width / (110 * ratio))));
  for (let mark = 0; mark <= marked; mark += 1) {
    ctx.textAlign = mark === 0 ? "left" : mark === marked ? "right" : "center";
    ctx.fillText(clock(from + ((to - from) * mark) / marked), beside + (width * mark) / marked, height + 11 * ratio);
  }
  $("heat-note").textContent = `${dies} dies in rows, channel by channel (${channels}). The stronger the busier: `
    + "full colour is all of the time, half of it a quarter.";
}
function order(dies, channels) {
  const rows = [];
  for (let channel = 0; channel < channels; channel += 1) {
    for (let die = channel; die < dies; die += channels) rows.push(die);
  }
  return rows;
}
function worked(dies, die) {
  const part = (at) => (dies[die * 4 + at] || 0) / 255;
  return view.work === "all" ? part(0) + part(1) + part(2) + part(3) : part(Number(view.work));
}
$("dies").addEventListener("pointermove", (event) => {
  const box = event.currentTarget.getBoundingClientRect();
  const [from, to] = range();
  const [left, wide] = [box.left + BESIDE, Math.max(1, box.width - BESIDE)];
  const x = from + ((event.clientX - left) / wide) * (to - from);
  const sample = samples.find((one) => one.x >= x && one.dies.length);
  if (!sample || !last || !last.drive) return;
  const rows = order(sample.dies.length / 4, last.drive.channels || 1);
  const at = Math.floor(((event.clientY - box.top) / Math.max(1, box.height - BELOW)) * rows.length);
  const die = rows[Math.max(0, Math.min(rows.length - 1, at))];
  const parts = ["reads", "programs", "erases", "suspending"].map(
    (name, at) => `${name} ${Math.round((sample.dies[die * 4 + at] / 255) * 100)} %`);
  const channel = die % (last.drive.channels || 1);
  $("die").textContent = `die ${die}, channel ${channel}, ${clock(sample.x)}: ${parts.join(", ")}`;
});

function figures(now, rates) {
  const drive = now.drive;
  const wear = drive && drive.wear;
  // A simulated drive has a clock of its own.
  const clocked = about.kind === "device" ? "" : "on the drive's clock, ";
  const all = [
    ["Commands a second", count(sum(rates.reads, rates.writes, rates.others)),
      `${clocked}${count(sum(...now.commands))} in all`],
    ["Read, 99 %", seconds(rates.rp99), `median ${seconds(rates.rp50)}`],
    ["Write, 99 %", seconds(rates.wp99), `median ${seconds(rates.wp50)}`],
    ["Data a second", bytes(sum(rates.out, rates.into)), `${clocked}${bytes(now.bytes[0] + now.bytes[1])} in all`],
    ["Errors", count(now.errors), now.faults.length ? `${now.faults.length} faults armed` : "no faults armed"],
    ...Object.entries(now.faults_struck).map(([kind, times]) => [`Struck: ${kind}`, count(times), "injected faults"]),
  ];
  if (drive) {
    const units = SOURCES.reduce((total, [name]) => total + drive.units[name], 0);
    const wanted = drive.units.host + drive.units.log;
    const factor = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
    // Its counters begin anew with the power.
    const since = about.kind === "device" && now.power_cuts ? ", all since the power cut" : "";
    all.push(["Write amplification", factor(wanted ? units / wanted : null), `now ${factor(rates.waf)}${since}`]);
    all.push(["Free superblocks", count(drive.free_superblocks[0]), `of ${count(drive.free_superblocks[1])}`]);
    all.push(["Erasures, mean", count(wear.mean), `least ${count(wear.least)}, most ${count(wear.most)}`]);
    if (drive.host_memory) all.push(["Host memory", bytes(drive.host_memory), "lent by the host"]);
  }
  tiles($("tiles"), all);
}
const sum = (...values) => (values.every((value) => value === null || value === undefined) ? null
  : values.reduce((total, value) => total + (value || 0), 0));

function log(now, before) {
  const lanes = now.drive ? now.drive.lanes : [];
  $("log").hidden = lanes.length === 0;
  const old = before && before.drive ? before.drive.lanes : [];
  const groups = (now.peers && now.peers.groups) || [];
  // Only a primary acknowledges.
  const follows = (lane) => groups.some((group) => group.function === lane.function && group.role === "secondary");
  cells($("lanes"), lanes.map((lane, at) => {
    const ring = make("div", "ring");
    const part = (value) => Math.min(100, Math.max(0, (100 * (lane.tail - value)) / lane.ring));
    // From the right: each mark ends before the one behind it. What is on flash may be ahead of the credit: on a
    // secondary, and while a replica is away.
    const credit = Math.max(lane.credit, lane.destaged);
    const begin = part(Math.max(lane.trimmed, lane.tail - lane.ring));
    for (const [name, to, from] of [["destaged", part(lane.destaged), begin], ["credited", part(credit),
      part(lane.destaged)], ["came", 0, part(credit)]]) {
      const mark = make("i", name);
      mark.style.right = `${to}%`;
      mark.style.width = `${Math.max(0, from - to)}%`;
      ring.append(mark);
    }
    ring.setAttribute("role", "img");
    ring.setAttribute("aria-label", `${percent(lane.ring_used / lane.ring)} of the ring in use`);
    const rate = old[at] && now.dt > 0 ? Math.max(0, lane.tail - old[at].tail) / now.dt : null;
    return [`${lane.function}.${lane.lane}`, ring, lane.tail.toLocaleString("en"),
      follows(lane) ? "–" : lane.credit.toLocaleString("en"),
      lane.destaged.toLocaleString("en"), lane.trimmed.toLocaleString("en"), bytes(rate)];
  }));
  const entries = now.drive ? now.drive.window : [];
  $("window").hidden = entries.length === 0;
  cells($("entries"), entries.map((entry) => [String(entry.name), entry.state, bytes(entry.bytes)]));
}

function peers(now) {
  const known = now.peers;
  $("peers").hidden = !known;
  if (!known) return;
  const groups = known.groups || [];
  $("role").textContent = groups.map((group) =>
    `Function ${group.function}: ${group.role}, epoch ${group.epoch}, group of ${group.members.length} (${group.mode})`
  ).join("; ");
  const flows = groups.flatMap((group) => group.replicas || []);
  cells($("nodes"), (known.links || []).map((link) => {
    const flow = flows.find((one) => one.node === link.node);
    const away = link.up ? "connected" : `away for ${seconds(link.since_ms / 1000)}: ${link.why || "no answer"}`;
    return [`${link.node}`, away, link.round_trip_us === undefined ? "–" : seconds(link.round_trip_us / 1e6),
      flow ? flow.state : "–", flow ? `${bytes(flow.behind_bytes)}, ${seconds(flow.behind_ms / 1000)}` : "–"];
  }));
}

function far(now) {
  const run = now.progress;
  $("progress").hidden = !run;
  if (!run) return;
  const parts = [run.share === null ? null : percent(run.share), `${count(run.requests)} requests`,
    `${count(run.requests_per_s)} simulated per second of your time`, `${seconds(now.time_s)} of the drive's time`,
    run.left_s === null || run.ended ? null : `${seconds(run.left_s)} left`, run.ended ? "ended" : null];
  progress(run.share, parts.filter(Boolean).join(" · "));
}

let listed = null;
function list(until) {
  const shown = events.filter((event) => event.x <= until);
  const newest = shown.length ? shown[shown.length - 1] : null;
  if (listed === newest) return;
  listed = newest;
  happened(shown, (event) => clock(event.x));
}

// States in which nothing is wrong.
const GOOD = ["serving", "preparing the drive", "warming up", "running", "ended"];

const paint = painter((whole) => {
  say(about.title, last ? last.state : "connecting", last !== null && !GOOD.includes(last.state), lost);
  if (view.paused && !whole) return false;
  const shown = range();
  PLOTS.forEach((plot) => draw(plot, shown));
  heat(shown);
  const sample = (view.paused && held) || samples[samples.length - 1];
  if (!last || !sample || !sample.moment) return true;
  list(view.paused ? sample.x : Infinity);
  figures(sample.moment, sample.row);
  log(sample.moment, sample.moment.before);
  peers(sample.moment);
  far(sample.moment);
  return true;
});

// A moment has come.
function take(moment) {
  let before = last;
  const at = moment.at_ms;
  lost = moment.silent ? lost || at : null;
  if (moment.silent) return paint();
  const x = about.kind === "device" ? at / 1000 : moment.time_s;
  let dies = Uint8Array.from(atob(moment.dies || ""), (letter) => letter.charCodeAt(0));
  const previous = samples[samples.length - 1];
  let gap = previous && at - previous.at > GAP_MS;
  const stands = previous && x === previous.x && about.kind !== "device";
  if (previous && x < previous.x) { // Another run began, or the host's clock was set back.
    [samples, events, held, before, gap] = [[], [], null, null, false];
  } else if (stands) { // Its clock stands: what was measured stays.
    samples.pop();
    gap = false;
    moment.dt = last.dt;
    moment.spreads = moment.spreads.map((spread, kind) => spread || last.spreads[kind]);
    moment.waits = moment.waits.map((spread, level) => spread || last.waits[level]);
    if (!dies.length) dies = previous.dies;
    before = last.before;
  }
  if (gap) samples.push({ x: x - 1e-6, at: at - 1, row: {}, dies: new Uint8Array(0), moment: null });
  moment.before = gap ? null : before;
  if (before && !(held && held.moment === before)) before.before = null;
  const sample = { x, at, row: row(moment, moment.before), dies, moment };
  if (previous && previous !== held) previous.moment = null;
  samples.push(sample);
  if (samples.length > KEPT) samples.splice(0, samples.length - KEPT);
  for (const event of moment.events) events.push({ x, level: event.level, what: event.what });
  if (events.length > 1000) events.splice(0, events.length - 1000);
  last = moment;
  // Up to its end, a view that a link has brought back still fills.
  const fills = view.paused && (held === null || (stands && held === previous) || x <= view.to + 1e-6);
  if (fills) {
    if (held) held.moment = null;
    held = sample;
  }
  paint(fills);
}

// The view stands in the link.
function remember() {
  const parts = new URLSearchParams({ span: view.span, work: view.work });
  if (view.paused) parts.set("paused", "1");
  if (view.from !== null) { parts.set("from", view.from.toFixed(6)); parts.set("to", view.to.toFixed(6)); }
  history.replaceState(null, "", "#" + parts);
}
function restore() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (parts.has(name) && isFinite(parts.get(name)) ? Number(parts.get(name)) : null);
  if (["60", "180", "600"].includes(parts.get("span"))) view.span = Number(parts.get("span"));
  if (["all", "0", "1", "2", "3"].includes(parts.get("work"))) view.work = parts.get("work");
  if (number("from") < number("to")) [view.from, view.to] = [number("from"), number("to")];
  view.paused = parts.has("paused") && view.from !== null;
  $("span").value = view.span;
  $("work").value = view.work;
  paused();
}
function paused() {
  $("pause").setAttribute("aria-pressed", String(view.paused));
  $("pause").textContent = view.paused ? "Go on" : "Pause";
}

$("pause").addEventListener("click", () => {
  if (!samples.length) return;
  view.paused = !view.paused;
  const newest = samples[samples.length - 1];
  if (view.paused) {
    held = newest;
    zoom_before = view.from === null ? null : [view.from, view.to];
    if (zoom_before === null) [view.from, view.to] = range();
  } else {
    if (held && held !== newest) held.moment = null;
    held = null;
    [view.from, view.to] = zoom_before || [null, null];
  }
  paused();
  remember();
  paint(true);
});
$("span").addEventListener("change", (event) => {
  view.span = Number(event.target.value);
  zoom(null, null);
});
$("work").addEventListener("change", (event) => {
  view.work = event.target.value;
  remember();
  paint(true);
});
$("in").addEventListener("click", () => scaled(0.5));
$("out").addEventListener("click", () => (view.from === null ? null : scaled(2)));
document.addEventListener("visibilitychange", () => paint(true));
addEventListener("resize", () => paint(true));

PLOTS.forEach(build);
restore();
themes(() => paint(true));
connect((told) => {
  about = told;
  $("title").textContent = about.title;
  $("promise").textContent = about.promise;
  for (const plot of PLOTS) {
    if (plot.rate) plot.noted.textContent = plot.note + (about.kind === "device" ? "" : " of the drive's time");
  }
}, take, () => {
  lost = lost || Date.now();
  paint();
}, () => about.kind === "device");
// For a test: what is known, and a moment more.
const known = () => ({ samples: samples.length, events: events.length, last, lost, view, about });
const rows = (key) => samples.map((sample) => sample.row[key] ?? null);
const plots = () => PLOTS.filter((plot) => plot.chart && !plot.figure.hidden).map(
  (plot) => ({ points: plot.chart.data[0].length, from: plot.chart.scales.x.min, to: plot.chart.scales.x.max }));
globalThis.tidewater = { take, known, rows, plots, xs: () => samples.map((sample) => sample.x) };
