// Looks at a live page as a person would, in a real browser. `node live.mjs SCENARIO CHROMIUM URL`: a line of JSON says
// what was seen. Lines on standard input tell it to go on where the test has to do something in between.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [scenario, executablePath, url, modules] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { chromium } = require("playwright-core");
// Where pictures of what was looked at go, if they are wanted.
const pictures = process.env.TIDEWATER_PICTURES;
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async () => (await lines.next()).value;
const say = (what) => console.log(JSON.stringify(what));

const complaints = [];
const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc"];
const browser = await chromium.launch({ executablePath, args, timeout: 600_000 });
async function open(options = {}, at = url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  // A busy machine may take its time.
  page.setDefaultTimeout(600_000);
  page.on("console", (message) => {
    // That a device is away is no fault of the page.
    if (["error", "warning"].includes(message.type()) && !/ERR_CONNECTION|ERR_INCOMPLETE/.test(message.text())) {
      complaints.push(message.text());
    }
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) complaints.push(request.url());
  });
  await page.goto(at, { waitUntil: "load" });
  return page;
}
const known = (page) => page.evaluate(() => globalThis.tidewater.known());
const until = (page, what, argument) => page.waitForFunction(what, argument, { timeout: 600_000, polling: 50 });
const moved = (page) => until(page, () => globalThis.tidewater.known().last !== null);
const samples = (page, count) => until(page, (count) => globalThis.tidewater.known().samples >= count, count);

// As if the tab were hidden, or seen again; quietly: without an event of it.
const hide = (page, hidden, quietly) => page.evaluate(([hidden, quietly]) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  if (!quietly) document.dispatchEvent(new Event("visibilitychange"));
}, [hidden, quietly]);
// A page of a device without its stream: only what is fed comes.
async function alone(page) {
  await hide(page, true);
  await hide(page, false, true);
}

// What axe finds, light and dark, narrow and wide, and whether the page is wider than the screen.
async function faultsOf(ready) {
  const faults = [];
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 1280]) {
      const look = await open({ colorScheme, viewport: { width, height: 900 } });
      await ready(look);
      const wide = await look.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) faults.push(`${width}: ${wide} pixels too wide`);
      // In the page's own world scripts of others are kept out by its policy: axe comes in beside it.
      await look.evaluate(axe);
      const { violations } = await look.evaluate(() => globalThis.axe.run());
      for (const { id, impact, nodes } of violations) {
        if (["serious", "critical"].includes(impact)) faults.push(`${colorScheme} ${width}: ${id} ${nodes[0].html}`);
      }
      const path = `${pictures}/${scenario}-${colorScheme}-${width}.png`;
      if (pictures) await look.screenshot({ path, fullPage: true });
      await look.context().close();
    }
  }
  return faults;
}

const scenarios = {
  // What is seen first, at rest, and what axe finds.
  async rest() {
    const page = await open();
    await samples(page, 3);
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
    const seen = await known(page);
    const faults = await faultsOf((look) => samples(look, 2));
    const title = await page.textContent("#title");
    const images = await page.locator("img").count();
    const tiles = await page.locator(".tile").allTextContents();
    say({ paint, last: seen.last, faults, title, images, tiles });
  },

  // The device goes and comes back.
  async killed() {
    const page = await open();
    await samples(page, 4);
    say({ ready: true });
    await told();
    await until(page, () => document.getElementById("state").textContent.startsWith("no answer since"));
    const before = await known(page);
    const state = await page.textContent("#state");
    say({ state });
    await told();
    await until(page, (count) => {
      const now = globalThis.tidewater.known();
      return !now.lost && now.samples >= count + 4 && document.getElementById("state").textContent === "serving";
    }, before.samples);
    const rows = await page.evaluate(() => globalThis.tidewater.rows("outstanding"));
    say({ state: await page.textContent("#state"), rows });
  },

  // A run that waits for the rest of its load, and its end.
  async run() {
    const page = await open();
    await until(page, () => (globalThis.tidewater.known().last?.progress?.requests ?? 0) > 0);
    const faults = await faultsOf(moved);
    say({ faults });
    await told();
    await until(page, () => globalThis.tidewater.known().last.state === "ended");
    await until(page, () => document.getElementById("state").textContent === "ended");
    const newest = (key) => page.evaluate((key) => globalThis.tidewater.rows(key).at(-1), key);
    say({ last: (await known(page)).last, far: await page.textContent("#far"), reads: await newest("reads"),
      tiles: await page.locator(".tile .figure").allTextContents() });
    // The program is gone by now, or soon: what has ended owes no answer.
    await until(page, () => globalThis.tidewater.known().lost !== null);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    say({ state: await page.textContent("#state"), bad: await page.evaluate(() => document.title.startsWith("(!)")) });
  },

  // A sweep that waits for its last run, and its end.
  async sweep() {
    const page = await open();
    await until(page, () => {
      const [done, under_way] = globalThis.tidewater.known().last?.tiles ?? [];
      return done?.[1] === "5" && under_way[1] === "0";
    });
    const faults = await faultsOf(moved);
    const texts = (what) => page.locator(what).allTextContents();
    await page.click("#pause");
    say({ faults, board: (await known(page)).last, tiles: await texts(".tile .figure") });
    await told();
    await until(page, () => globalThis.tidewater.known().last.state === "ended");
    const held = await texts(".tile .figure");
    await page.click("#pause");
    await until(page, () => document.getElementById("state").textContent === "ended");
    say({ held, board: (await known(page)).last, tiles: await texts(".tile .figure"), headings: await texts("h2"),
      cells: await texts("td"), images: await page.locator("img").count() });
  },

  // Eight hours and a thousand dies, by a clock of our own.
  async long() {
    const page = await open();
    await samples(page, 2);
    await alone(page);
    const result = await page.evaluate(async () => {
      const last = globalThis.tidewater.known().last;
      const busy = (dies) => btoa(String.fromCharCode(...Array.from({ length: dies * 4 }, (_, at) => at % 60)));
      let dies = busy(16);
      const heap = async () => {
        globalThis.gc();
        await new Promise((done) => setTimeout(done, 50));
        globalThis.gc();
        return performance.memory.usedJSHeapSize;
      };
      const start = Date.now() + 1e6;
      const feed = (from, to) => {
        for (let at = from; at < to; at += 1) {
          const moment = structuredClone(last);
          Object.assign(moment, { at_ms: start + at * 250, time_s: at / 4, dt: 0.25, dies, events: [] });
          if (at % 100 === 0) moment.events.push({ level: "note", what: `event ${at}` });
          moment.commands[0] = at * 100;
          globalThis.tidewater.take(moment);
        }
      };
      feed(0, 5000);
      const early = await heap();
      const hours = 8 * 3600 * 4;
      for (let at = 5000; at < hours; at += 5000) {
        feed(at, Math.min(hours, at + 5000));
        await new Promise((done) => setTimeout(done, 0));
      }
      const late = await heap();
      dies = busy(1000);
      feed(hours, hours + 2400);
      await new Promise((done) => setTimeout(done, 500));
      const begun = performance.now();
      feed(hours + 2400, hours + 2401);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return { early, late, frame: performance.now() - begun, ...globalThis.tidewater.known() };
    });
    const { early, late, frame, samples: kept, events } = result;
    say({ early, late, frame, samples: kept, events });
  },

  // A page that is paused, the link to it, a tab that is hidden for a while, and moments of other devices.
  async held() {
    const page = await open();
    await samples(page, 8);
    await page.click("#pause");
    const texts = (page) => page.locator(".tile").allTextContents();
    const frames = (page) => page.evaluate(
      () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    const feed = (change) => page.evaluate((change) => {
      const moment = structuredClone(globalThis.tidewater.known().last);
      Object.assign(moment, change, { at_ms: moment.at_ms + 1 });
      if (change.lane) moment.drive.lanes = [change.lane];
      globalThis.tidewater.take(moment);
    }, change);
    await frames(page);
    const before = await texts(page);
    await feed({ commands: [1e6, 1e6, 0, 0] });
    await page.setViewportSize({ width: 1200, height: 900 });
    await frames(page);
    const after = await texts(page);
    const legends = await page.locator(".u-legend").allTextContents();
    const other = await open({}, page.url());
    await samples(other, 8);
    await until(other, () => globalThis.tidewater.plots().some((plot) => plot.points > 0));
    await frames(other);
    const restored = { tiles: await texts(other),
      legends: await other.locator(".u-legend").allTextContents(), view: (await known(other)).view,
      plots: await other.evaluate(() => globalThis.tidewater.plots()) };
    await page.selectOption("#span", "60");
    const link = page.url();
    await page.click("#pause");
    // A tab that is hidden has no stream, and gets all that came when it is seen again.
    await hide(page, true);
    const hidden = (await known(page)).samples;
    const seen = (await known(other)).samples;
    await samples(other, seen + 8);
    const meanwhile = (await known(page)).samples - hidden;
    await hide(page, false);
    await samples(page, hidden + 8);
    const xs = await page.evaluate(() => globalThis.tidewater.xs());
    const rises = xs.every((x, at) => at === 0 || x > xs[at - 1]);
    // Without a stream only what is fed comes.
    await alone(page);
    await feed({ state: "preparing the drive" });
    await frames(page);
    const calm = await page.getAttribute("#state", "class");
    const lane = { function: 0, lane: 0, tail: 400, credit: 0, destaged: 300, trimmed: 0, ring: 400, ring_used: 100 };
    const group = { function: 0, role: "secondary", epoch: "1@1", members: [1, 2], mode: "eager" };
    await feed({ lane, peers: { links: [], groups: [group] } });
    await frames(page);
    const widths = await page.evaluate(() => ["destaged", "credited", "came"].map(
      (name) => document.querySelector(`#lanes .${name}`).style.width));
    const cells = await page.locator("#lanes td").allTextContents();
    say({ before, after, legends, restored, link, meanwhile, rises, calm, widths, cells });
  },

  // By keyboard alone; what is shown stands in the link; a tab that nobody sees; two tabs.
  async hands() {
    const page = await open();
    await samples(page, 8);
    await page.keyboard.press("Tab");
    const first = await page.evaluate(() => document.activeElement.id);
    await page.keyboard.press("Enter");
    const pressed = await page.getAttribute("#pause", "aria-pressed");
    await page.focus("#plots figure:first-child div[tabindex]");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    const legend = await page.textContent("#plots figure:first-child .u-legend");
    const link = page.url();
    const other = await open({}, link);
    await samples(other, 3);
    const [view, again] = [(await known(page)).view, (await known(other)).view];
    await page.keyboard.press("Escape");
    await page.click("#pause");
    const box = await page.locator("#plots figure:first-child .u-over").boundingBox();
    await page.mouse.move(box.x + box.width * 0.9, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.99, box.y + 40, { steps: 5 });
    await page.mouse.up();
    const zoomed = (await known(page)).view;
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
      globalThis.frames_drawn = 0;
      const plain = requestAnimationFrame;
      globalThis.requestAnimationFrame = (draw) => { globalThis.frames_drawn += 1; return plain(draw); };
    });
    const hidden = (await known(page)).samples;
    await samples(page, hidden + 4);
    const drawn = await page.evaluate(() => globalThis.frames_drawn);
    say({ first, pressed, legend, view, again, zoomed, drawn });
  },
};

await scenarios[scenario]();
await browser.close();
say({ complaints });
process.exit(0);
