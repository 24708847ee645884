// Values under the pointer. The page is complete without it.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const short = v => {
    const m = Math.abs(v), d = m >= 99.95 ? 0 : m >= 9.995 ? 1 : m >= 0.9995 ? 2 : 3;
    return m > 0 && m < 0.09995 ? String(Number(v.toPrecision(2))) : String(Number(v.toFixed(d)));
  };
  const step = (v, steps) => {
    const [, by, unit] = steps.find(s => Math.abs(v) < s[0]) || steps[steps.length - 1];
    return short(v / by) + unit;
  };
  const us = v => step(v, [[1, 1e-3, " ns"], [1e3, 1, " µs"], [1e6, 1e3, " ms"], [12e7, 1e6, " s"], [72e8, 6e7, " min"], [1 / 0, 36e8, " h"]]);
  const units = {
    us, s: v => us(v * 1e6), ratio: short,
    n: v => step(v, [[1e3, 1, ""], [1e6, 1e3, " k"], [1e9, 1e6, " M"], [1 / 0, 1e9, " G"]]),
    share: v => Number((v * 100).toPrecision(v > 0.99 ? 6 : 3)) + " %",
    mib: v => step(v, [[1e3, 1, " MiB/s"], [1 / 0, 1024, " GiB/s"]]),
  };
  const axis = words => {
    const [scale, low, high, unit] = words.split(" ");
    const a = Number(low), b = Number(high);
    // At the upper edge of the tail are all that lie beyond it.
    const value = scale === "log" ? p => a * Math.pow(b / a, p) : scale === "nines" ? p => p > 0.9999 ? 1 : 1 - Math.pow(10, -p * b) : p => a + p * (b - a);
    return p => units[unit](value(p));
  };
  for (const svg of document.querySelectorAll("svg[data-box]")) {
    const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
    const sayX = axis(svg.dataset.x), sayY = axis(svg.dataset.y);
    const lines = Array.from(svg.querySelectorAll("path[data-name]"), path => ({
      name: path.dataset.name,
      points: path.getAttribute("d").split(/[ML]/).slice(1).map(p => p.split(" ").map(Number)),
    }));
    if (!lines.length) continue;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
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
  // A folded list would be lost on paper.
  addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });
})();
