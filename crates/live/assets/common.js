// What all pages have: numbers in words, tables and tiles that change in place, the theme, and the stream of /events.
// All text goes through textContent: labels may hold anything.
export const $ = (id) => document.getElementById(id);
export const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

// Numbers in words.
const PREFIXES = ["", " k", " M", " G", " T", " P"];
export function count(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  let step = 0;
  if (Math.abs(value) >= 99950) while (Math.abs(value) >= 999.5 && step < 5) { value /= 1000; step += 1; }
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits }) + PREFIXES[step];
}
export function bytes(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  while (Math.abs(value) >= 1024 && step < 5) { value /= 1024; step += 1; }
  return value.toLocaleString("en", { maximumFractionDigits: value >= 100 || step === 0 ? 0 : value >= 10 ? 1 : 2 })
    + " " + units[step];
}
export function seconds(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const [unit, name] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  const scaled = value / unit;
  const digits = scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  return scaled.toLocaleString("en", { maximumFractionDigits: digits }) + " " + name;
}
export const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1) + " %");
export const wall = (ms) => new Date(ms).toLocaleTimeString("en-GB");

const write = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
const fit = (box, count) => {
  while (box.children.length > count) box.lastChild.remove();
};

// Rows of a table. What stays as it is is left alone, so that a selection lives. On a narrow screen each cell has its
// heading beside it.
export function cells(body, lines) {
  const headings = [...body.parentElement.tHead.rows[0].cells].map((cell) => cell.textContent);
  fit(body, lines.length);
  lines.forEach((line, at) => {
    const row = body.children[at] || body.appendChild(make("tr"));
    fit(row, line.length);
    line.forEach((cell, column) => {
      const td = row.children[column] || row.appendChild(make("td"));
      if (td.dataset.label !== headings[column]) td.dataset.label = headings[column];
      if (cell instanceof Node) td.replaceChildren(cell);
      else write(td, cell);
    });
  });
}

// Figures, each with what it is and more on it.
export function tiles(box, all) {
  fit(box, all.length);
  all.forEach((texts, at) => {
    let tile = box.children[at];
    if (!tile) {
      tile = make("div", "tile");
      tile.append(make("div", "what"), make("div", "figure"), make("div", "more"));
      box.append(tile);
    }
    texts.forEach((text, part) => write(tile.children[part], text));
  });
}

// The share that is done, and words on it.
export function progress(share, words) {
  $("done").style.width = `${100 * (share ?? 0)}%`;
  write($("far"), words);
}

// Events, the newest first: texts of their times, what happened, how bad it is.
export function happened(events, at) {
  $("calm").hidden = events.length > 0;
  $("events").replaceChildren(...events.slice(-200).reverse().map((event) => {
    const line = make("li", event.level);
    line.append(make("time", "", at(event)), document.createTextNode(event.what));
    return line;
  }));
}

// What is watched does not answer since `lost`, in milliseconds, or is in a state. What has ended owes no answer.
export function say(title, state, bad, since) {
  const lost = state === "ended" ? null : since;
  write($("state"), lost ? `no answer since ${wall(lost)}` : state);
  $("state").className = lost || bad ? "state bad" : "state";
  document.title = `${lost ? "(!) " : ""}${title || "Tidewater"}`;
}

// The stream: what is watched, each message, and that none comes any more. While `rests()`, a hidden tab has no
// stream: a browser has only six connections to a host for all of its tabs.
export function connect(about, take, gone, rests = () => false) {
  let source = null;
  let seen = ""; // The last message: what came before is not sent again.
  const close = () => {
    if (source) source.close();
    source = null;
  };
  const open = () => {
    close();
    const mine = new EventSource(seen === "" ? "events" : `events?after=${seen}`);
    source = mine;
    mine.addEventListener("about", (event) => {
      about(JSON.parse(event.data));
      look();
    });
    mine.onmessage = (event) => {
      seen = event.lastEventId;
      take(JSON.parse(event.data));
    };
    mine.onerror = () => {
      gone();
      // The browser tries again by itself, but not after an answer that was refused.
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => source === mine && open(), 1000);
    };
  };
  const look = () => {
    if (document.hidden && rests()) close();
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", look);
  open();
}

// What draws once a frame at most, and not while the page is hidden unless it is called with true: then `draw` is given
// true, too, until it answers true (all was drawn).
export function painter(draw) {
  let drawn = null;
  let whole = false;
  return (always) => {
    if (document.hidden && !always) return;
    whole = whole || Boolean(always);
    drawn = drawn || requestAnimationFrame(() => {
      drawn = null;
      if (draw(whole)) whole = false;
    });
  };
}

// Light or dark: as the system has it, or as it was chosen.
export const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["system", "light", "dark"];
export function themes(paint) {
  const choose = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    $("theme").textContent = `Theme: ${name}`;
    try { localStorage.setItem("theme", name); } catch { /* Not kept, then. */ }
    paint();
  };
  $("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "system";
    choose(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  });
  dark.addEventListener("change", paint);
  let kept = "system";
  try { kept = localStorage.getItem("theme") || "system"; } catch { /* As the system has it. */ }
  choose(THEMES.includes(kept) ? kept : "system");
}
