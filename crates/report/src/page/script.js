// Values under the pointer, and figures to take along. The page is complete without it.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const svgNs = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const element = document.createElementNS(svgNs, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };
  const short = v => {
    const m = Math.abs(v), d = m >= 99.95 ? 0 : m >= 9.995 ? 1 : m >= 0.9995 ? 2 : 3;
    return m > 0 && m < 0.09995 ? String(Number(v.toPrecision(2))) : String(Number(v.toFixed(d)));
  };
  const step = (v, steps) => {
    const [, by, unit] = steps.find(s => Math.abs(v) < s[0]) || steps[steps.length - 1];
    return short(v / by) + unit;
  };
  const us = v => step(v, [[1, 1e-3, " ns"], [1e3, 1, " µs"], [1e6, 1e3, " ms"], [12e7, 1e6, " s"], [72e8, 6e7, " min"],
    [1 / 0, 36e8, " h"]]);
  const units = {
    us, s: v => us(v * 1e6), ratio: short,
    n: v => Math.abs(v) < 1e4 ? short(v) : step(v, [[1e6, 1e3, " k"], [1e9, 1e6, " M"], [1 / 0, 1e9, " G"]]),
    share: v => Number((v * 100).toPrecision(v > 0.99 ? 6 : 3)) + " %",
    mib: v => step(v, [[1e3, 1, " MiB/s"], [1 / 0, 1024, " GiB/s"]]),
  };
  const axis = words => {
    const [scale, low, high, unit] = words.split(" ");
    const a = Number(low), b = Number(high);
    // At the upper edge of the tail are all that lie beyond it.
    const value = scale === "log" ? p => a * Math.pow(b / a, p) : scale === "nines"
      ? p => p > 0.9999 ? 1 : 1 - Math.pow(10, -p * b) : p => a + p * (b - a);
    return p => units[unit](value(p));
  };
  for (const svg of document.querySelectorAll("svg[data-box]")) {
    const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
    let sayX = axis(svg.dataset.x), lines = [];
    const sayY = axis(svg.dataset.y);
    const read = () => Array.from(svg.querySelectorAll("path[data-name]"), path => ({
      name: path.dataset.name,
      points: path.getAttribute("d").split(/[ML]/).slice(1).map(p => p.split(" ").map(Number)),
    }));
    lines = read();
    if (!lines.length) continue;
    svg.addEventListener("zoomed", () => { sayX = axis(svg.dataset.x); lines = read(); });
    const cursor = make("path", { class: "cursor" }, svg);
    const away = () => { tip.hidden = true; cursor.removeAttribute("d"); };
    svg.addEventListener("pointerleave", away);
    svg.addEventListener("pointermove", event => {
      const matrix = svg.getScreenCTM();
      if (!matrix) return;
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse()).x;
      if (x < left || x > right) return away();
      cursor.setAttribute("d", `M${x.toFixed(1)} ${top}V${bottom}`);
      const rows = lines.map(({ name, points }) => {
        // The last point at or before the pointer: right for steps, and close enough for lines.
        let found = points[0];
        for (const point of points) if (point[0] <= x) found = point;
        return `${name}: ${sayY((bottom - found[1]) / (bottom - top))}`;
      });
      tip.textContent = [sayX((x - left) / (right - left)), ...rows].join("\n");
      tip.hidden = false;
      const wide = tip.offsetWidth, room = document.documentElement.clientWidth;
      tip.style.left = (event.clientX + 16 + wide > room ? event.clientX - 16 - wide : event.clientX + 16) + "px";
      tip.style.top = (event.clientY + 14) + "px";
    });
  }
  // A figure as a document of its own, on a light ground: the plot, and its legend above or below as it stands here.
  const pen = document.createElement("canvas").getContext("2d");
  const drawLegend = (legend, width, into) => {
    let x = 2, y = 0;
    pen.font = "12px Inter, Helvetica, Arial, sans-serif";
    for (const item of legend ? legend.children : []) {
      const key = item.querySelector("svg"), words = item.textContent.trim();
      const box = key ? key.viewBox.baseVal : { width: -6, height: 0 };
      const wide = box.width + 6 + pen.measureText(words).width * 1.05;
      if (x > 2 && x + wide > width) { x = 2; y += 17; }
      if (key) {
        const place = `translate(${x} ${y + (17 - box.height) / 2})`;
        const mark = make("g", { class: key.getAttribute("class"), transform: place }, into);
        for (const part of key.children) mark.append(part.cloneNode(true));
      }
      make("text", { x: x + box.width + 6, y: y + 12.5 }, into).textContent = words;
      x += wide + 16;
    }
    return legend ? y + 23 : 0;
  };
  const standalone = figure => {
    const plot = figure.querySelector("svg.plot"), legend = figure.querySelector(".legend");
    const { width, height } = plot.viewBox.baseVal;
    const whole = make("svg", { xmlns: svgNs });
    make("title", {}, whole).textContent = plot.getAttribute("aria-label");
    make("desc", {}, whole).textContent = figure.querySelector("figcaption").innerText;
    make("style", {}, whole).textContent = document.getElementById("paper").textContent;
    const ground = make("path", { fill: "#fff" }, whole), keys = make("g", {}, whole), body = make("g", {}, whole);
    for (const part of plot.children) if (part.getAttribute("class") !== "cursor") body.append(part.cloneNode(true));
    const rows = drawLegend(legend, width, keys), all = height + rows, edge = 8;
    const below = legend && legend.compareDocumentPosition(plot) & Node.DOCUMENT_POSITION_PRECEDING;
    (below ? keys : body).setAttribute("transform", `translate(0 ${below ? height + 6 : rows})`);
    const [w, h] = [width + 2 * edge, all + 2 * edge];
    const size = { width: w, height: h, viewBox: `${-edge} ${-edge} ${w} ${h}` };
    for (const [key, value] of Object.entries(size)) whole.setAttribute(key, value);
    ground.setAttribute("d", `M${-edge} ${-edge}h${w}v${h}h${-w}z`);
    return new XMLSerializer().serializeToString(whole);
  };
  const save = (figure, name) => {
    const link = document.createElement("a"), file = new Blob([standalone(figure)], { type: "image/svg+xml" });
    const address = URL.createObjectURL(file);
    link.href = address;
    link.download = name + ".svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };
  // Where a browser has no clipboard for pages from files, a selected text is copied.
  const copySelected = text => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("not copied");
  };
  const copy = async text => {
    try { await navigator.clipboard.writeText(text); } catch (_) { copySelected(text); }
  };
  // One bar for all figures: it is about the one that the pointer was over last, or that was chosen.
  const figures = Array.from(document.querySelectorAll("figure")).filter(figure => figure.querySelector(".plot"));
  if (figures.length) {
    const bar = document.createElement("nav");
    bar.className = "tools";
    bar.setAttribute("aria-label", "Figures");
    bar.innerHTML = "<span><label>Figure <select></select></label> <button type=button>save SVG</button> "
      + "<button type=button>copy data</button></span>";
    const choice = bar.querySelector("select"), [saves, copies] = bar.querySelectorAll("button");
    figures.forEach((figure, at) => {
      choice.append(new Option(figure.querySelector("h3").textContent, at));
      figure.addEventListener("pointerenter", () => { choice.value = at; });
    });
    choice.addEventListener("change", () => figures[choice.value].scrollIntoView({ block: "nearest" }));
    const acts = (button, done, act) => {
      const words = button.textContent;
      button.addEventListener("click", async () => {
        try { await act(figures[choice.value]); button.textContent = done; }
        catch (_) { button.textContent = "the browser does not allow it"; }
        setTimeout(() => { button.textContent = words; }, 1500);
      });
    };
    acts(saves, "saved", figure => save(figure, figure.id.replace("figure-", "")));
    acts(copies, "copied", figure =>
      copy(document.getElementById(figure.dataset.from || figure.id).querySelector(".data").textContent));
    document.querySelector("main").append(bar);
  }
  // A folded list would be lost on paper.
  addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });
})();
