// Shows a board: how far it is, figures, tables and events, as /events gives them whole each time.
import { $, cells, connect, happened, make, painter, progress, say, themes, tiles, wall } from "./common.js";

let about = { title: "" };
let last = null;
let lost = null; // Since when nothing comes.
let paused = false;
let held = null; // While paused, the board that stands.

// A cell with a share is a bar under its text.
function cell({ text, share, bad }) {
  if (share === null && !bad) return text;
  const box = make("div", bad ? "bad" : "", text);
  if (share === null) return box;
  const bar = make("div", "bar");
  const done = make("div");
  done.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  bar.append(done);
  box.append(bar);
  return box;
}

// A section of the page for each table; those that were there stay.
function table({ title, note, columns, rows }, at) {
  let section = $("tables").children[at];
  if (!section) {
    section = make("section");
    const scroll = make("div", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    const whole = make("table");
    const head = make("thead");
    head.append(make("tr"));
    whole.append(head, make("tbody"));
    scroll.append(whole);
    section.append(make("h2"), make("p", "muted"), scroll);
    $("tables").append(section);
  }
  const [name, words, scroll] = section.children;
  if (name.textContent !== title) name.textContent = title;
  if (words.textContent !== note) words.textContent = note;
  scroll.setAttribute("aria-label", title);
  scroll.hidden = rows.length === 0;
  const head = scroll.querySelector("tr");
  const names = columns.map((column) => column[0].toUpperCase() + column.slice(1));
  if (head.children.length !== names.length) head.replaceChildren(...names.map((text) => make("th", "", text)));
  cells(scroll.querySelector("tbody"), rows.map((row) => row.map(cell)));
}

let listed = "";
const paint = painter((whole) => {
  say(about.title, last ? last.state : "connecting", last !== null && last.bad, lost);
  const board = paused && held ? held : last;
  if (!board || (paused && !whole)) return false;
  $("note").textContent = board.note;
  $("progress").hidden = board.share === null;
  progress(board.share, board.far);
  tiles($("tiles"), board.tiles);
  board.tables.forEach(table);
  const newest = JSON.stringify(board.events);
  if (newest !== listed) happened(board.events, (event) => wall(event.at_ms));
  listed = newest;
  return true;
});

$("pause").addEventListener("click", () => {
  paused = !paused;
  held = paused ? last : null;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
  paint(true);
});
document.addEventListener("visibilitychange", () => paint(true));
themes(() => paint(true));
connect((told) => {
  about = told;
  $("title").textContent = about.title;
}, (board) => {
  [last, lost] = [board, null];
  paint();
}, () => {
  lost = lost || Date.now();
  paint();
});
// For a test: what is known.
globalThis.tidewater = { known: () => ({ last, lost, about }) };
