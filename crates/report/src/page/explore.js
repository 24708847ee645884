// Theme, order of tables, series, and zoom of time lines. The page is complete without it.
"use strict";
(() => {
  const button = (words, act, parent) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = words;
    made.addEventListener("click", act);
    parent.append(made);
    return made;
  };
  // The rules for dark screens apply always, never, or as the system asks.
  const header = document.querySelector("header");
  const dark = Array.from(document.styleSheets[0].cssRules).find(r => r.media && r.media.mediaText.includes("dark"));
  if (header && dark) {
    const system = dark.media.mediaText, bar = document.createElement("p");
    const media = { system, light: "not all", dark: "screen" };
    bar.className = "theme";
    bar.innerHTML = "<label>Theme <select><option>system<option>light<option>dark</select></label>";
    const choice = bar.querySelector("select");
    choice.addEventListener("change", () => {
      dark.media.mediaText = media[choice.value];
      document.documentElement.dataset.theme = choice.value;
    });
    header.prepend(bar);
  }
  // A column is sorted where all its values measure the same.
  const units = {
    ns: ["t", 1e-9], "µs": ["t", 1e-6], us: ["t", 1e-6], ms: ["t", 1e-3], s: ["t", 1], min: ["t", 60], h: ["t", 3600],
    B: ["b", 1], KiB: ["b", 1024], MiB: ["b", 1048576], GiB: ["b", 2 ** 30], TiB: ["b", 2 ** 40], "%": ["p", 1],
    "MiB/s": ["r", 1], "GiB/s": ["r", 1024], k: ["", 1e3], M: ["", 1e6], G: ["", 1e9], "": ["", 1],
  };
  const value = cell => {
    const words = (cell.firstChild ? cell.firstChild.textContent : "")
      .replace(/[★\s]+$/, "").replace(/,(?=\d{3})/g, "");
    const found = /^([+-]?[\d.]+)[\s\u00a0]*(\S*)$/.exec(words), unit = found && units[found[2]];
    return unit ? { of: unit[0], is: Number(found[1]) * unit[1] } : { of: "words", is: words };
  };
  for (const table of document.querySelectorAll("table")) {
    const heads = table.tHead ? Array.from(table.tHead.rows[0].cells) : [], body = table.tBodies[0];
    const rows = body ? Array.from(body.rows) : [];
    if (rows.length < 3 || rows.some(row => row.cells.length !== heads.length)) continue;
    const columns = heads.map((_, i) => rows.map(row => value(row.cells[i])));
    const alike = columns.map(column => column.every(one => one.of === column[0].of || one.is === 0));
    if (!columns.some((column, i) => alike[i] && column[0].of !== "words")) continue;
    heads.forEach((head, i) => {
      if (!alike[i] || !head.textContent) return;
      const words = head.textContent;
      head.textContent = "";
      button(words, () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = new Map(rows.map((row, at) => [row, columns[i][at].is]));
        const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b
          : String(a).localeCompare(String(b));
        body.append(...rows.slice().sort((a, b) => order(key.get(a), key.get(b)) * (up ? 1 : -1)));
      }, head).className = "sort";
    });
  }
  // An entry of a legend switches its series.
  for (const figure of document.querySelectorAll("figure")) {
    // The plot, and the same for narrow screens.
    const plots = Array.from(figure.querySelectorAll(".plot"), plot => plot.querySelectorAll("g[class^=c]"));
    const entries = Array.from(figure.querySelectorAll(".legend li")).filter(li => li.querySelector(".key"));
    if (!plots.length || plots.some(series => entries.length !== series.length)) continue;
    entries.forEach((entry, i) => {
      const parts = Array.from(entry.childNodes);
      const made = button("", () => {
        const on = made.getAttribute("aria-pressed") !== "true";
        made.setAttribute("aria-pressed", on);
        for (const series of plots) {
          if (on) series[i].removeAttribute("display"); else series[i].setAttribute("display", "none");
        }
      }, entry);
      made.className = "series";
      made.setAttribute("aria-pressed", "true");
      made.append(...parts);
    });
  }
  // Time lines are zoomed together: what is read off one is looked for in the others.
  const lines = Array.from(document.querySelectorAll("svg.plot[data-x]"))
    .filter(svg => /^linear .* s$/.test(svg.dataset.x));
  const views = new Map();
  for (const svg of lines) {
    const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
    const key = svg.dataset.x, [, low, high] = key.split(" ").map(Number);
    if (!views.has(key)) views.set(key, { from: low, to: high, draw: [], low, high });
    const view = views.get(key), width = right - left;
    const shapes = Array.from(svg.querySelectorAll("path[data-name], circle"), shape =>
      [shape, shape.getAttribute(shape.tagName === "path" ? "d" : "cx")]);
    const marks = Array.from(svg.querySelectorAll("path.grid, text.tick[text-anchor=middle]"))
      .filter(mark => mark.tagName === "text" || mark.getAttribute("d").includes("V"));
    const clip = document.createElementNS(svg.namespaceURI, "clipPath");
    const frame = document.createElementNS(svg.namespaceURI, "path");
    clip.id = `clip-${svg.closest("figure").id}-${svg.classList.contains("narrow") ? "narrow" : "wide"}`;
    frame.setAttribute("d", `M${left} ${top - 4}H${right}V${bottom + 1}H${left}z`);
    clip.append(frame);
    svg.prepend(clip);
    const drawn = [];
    view.draw.push(() => {
      const whole = view.from <= low && view.to >= high;
      const at = x => left + ((low + (x - left) / width * (high - low)) - view.from) / (view.to - view.from) * width;
      for (const [shape, was] of shapes) {
        const moved = () => was.replace(/([ML])([\d.]+)/g, (_, c, x) => c + at(+x).toFixed(1));
        if (shape.tagName === "path") shape.setAttribute("d", moved());
        else shape.setAttribute("cx", at(+was).toFixed(1));
        if (whole) shape.removeAttribute("clip-path"); else shape.setAttribute("clip-path", `url(#${clip.id})`);
      }
      for (const mark of marks) mark.setAttribute("display", whole ? "inline" : "none");
      for (const mark of drawn.splice(0)) mark.remove();
      svg.dataset.x = `linear ${view.from} ${view.to} s`;
      svg.dispatchEvent(new Event("zoomed"));
      if (whole) return;
      const rough = (view.to - view.from) / 6, ten = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find(s => s * ten >= rough) * ten;
      const [by, unit] = view.to < 1e-3 ? [1e6, "µs"] : view.to < 1 ? [1e3, "ms"] : [1, "s"];
      for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
        const text = document.createElementNS(svg.namespaceURI, "text");
        text.setAttribute("class", "tick");
        text.setAttribute("text-anchor", "middle");
        text.setAttribute("x", (left + (t - view.from) / (view.to - view.from) * width).toFixed(1));
        text.setAttribute("y", bottom + 17);
        text.textContent = Number((t * by).toPrecision(6)) + " " + unit;
        svg.append(text);
        drawn.push(text);
      }
    });
    const show = (from, to) => {
      const wide = Math.min(Math.max(to - from, (high - low) / 1000), high - low);
      view.from = Math.min(Math.max(from, low), high - wide);
      view.to = view.from + wide;
      for (const draw of view.draw) draw();
    };
    view.show = show;
    // With a mouse, what is dragged over is shown.
    let start = null;
    const place = event => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const time = x => view.from + (Math.min(Math.max(x, left), right) - left) / width * (view.to - view.from);
    svg.addEventListener("pointerdown", event => { start = event.pointerType === "touch" ? null : place(event); });
    svg.addEventListener("pointerup", event => {
      const end = place(event);
      if (start !== null && Math.abs(end - start) > 6) show(time(Math.min(start, end)), time(Math.max(start, end)));
      start = null;
    });
    svg.addEventListener("dblclick", () => show(low, high));
  }
  const tools = document.querySelector(".tools");
  if (lines.length && tools) {
    const bar = document.createElement("span");
    bar.className = "zoom";
    bar.textContent = "Time";
    // Parts of what is shown, from its start: where the next view begins and ends.
    for (const [sign, words, from, to] of [["+", "zoom in", 0.25, 0.75], ["−", "zoom out", -0.5, 1.5],
      ["←", "earlier", -0.5, 0.5], ["→", "later", 0.5, 1.5], ["all", "whole run", -1e9, 1e9]]) {
      const made = button(sign, () => views.forEach(view => {
        const span = view.to - view.from, at = view.from;
        view.show(at + from * span, at + to * span);
      }), bar);
      made.setAttribute("aria-label", `${words}, all plots over time`);
      made.title = words;
    }
    tools.append(bar);
  }
})();
