//! A report in a real browser: headless Chromium from the distribution. Without one, the test prints SKIPPED.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidewater_tests::html::{drawable, elements, marks};
use tidewater_tests::{root, run, run_well, skipped};

/// Names under which distributions and vendors install it.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A Chromium that runs; Ubuntu's `chromium-browser` may be a script that only points to a snap.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| BROWSERS.iter().map(move |name| folder.join(name))).find(|file| {
        file.is_file()
            && Command::new(file)
                .arg("--version")
                .stderr(Stdio::null())
                .output()
                .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    })
}

/// A page once its scripts ran, and its messages on the console.
struct Opened {
    dom: String,
    console: Vec<String>,
}

fn open(browser: &Path, page: &Path) -> Opened {
    open_with(browser, page, &[])
}

/// The same, with options of the browser's.
fn open_with(browser: &Path, page: &Path, more: &[&str]) -> Opened {
    let data = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
        ])
        .args(more)
        .arg(format!("--user-data-dir={}", data.path().display()))
        .arg(format!("file://{}", page.display()))
        // The browser's own settings and caches stay in the temporary folder, too.
        .env("HOME", data.path())
        .env("XDG_CONFIG_HOME", data.path())
        .env("XDG_CACHE_HOME", data.path())
        .stdin(Stdio::null())
        .output()
        .expect("the browser starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the browser ended with {}:\n{log}", output.status);
    Opened {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        // `[...:INFO:CONSOLE:7] "message", source: file://... (7)`: errors and warnings come under INFO as well.
        console: log.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect(),
    }
}

/// Faults of an opened report, in words.
fn complaints(opened: &Opened) -> Vec<String> {
    let mut wrong = opened.console.clone();
    // A legend's key is one line or dot beside a word, and no plot.
    let is_key = |svg: &&str| svg.split('>').next().is_some_and(|head| head.contains("class=\"key"));
    let plots: Vec<&str> = elements(&opened.dom, "svg").into_iter().filter(|svg| !is_key(svg)).collect();
    if plots.is_empty() {
        wrong.push("no plot in the page".to_owned());
    }
    for (index, plot) in plots.iter().enumerate() {
        let head: String = plot.chars().take(120).collect();
        if marks(plot) < 2 {
            wrong.push(format!("plot {index} is empty: {head}"));
        }
        if !drawable(plot) {
            wrong.push(format!("plot {index} has numbers that cannot be drawn: {head}"));
        }
    }
    wrong
}

/// The browser, or a line that says what is left out for want of one.
fn browser_or_skip() -> Option<PathBuf> {
    let browser = browser();
    if browser.is_none() {
        skipped(1, "no Chromium here, so no page was opened in a browser (apt-get install chromium)");
    }
    browser
}

#[test]
fn a_broken_page_is_caught() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("broken.html");
    std::fs::write(&page, "<!doctype html><svg><path d=''></path></svg><script>missing()</script>").expect("written");
    let found = complaints(&open(&browser, &page));
    assert!(found.iter().any(|line| line.contains("missing is not defined")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("plot 0 is empty")), "{found:?}");
}

#[test]
fn a_report_opens_without_errors_and_shows_its_plots() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "report.html"]);
    let opened = open(&browser, &folder.path().join("report.html"));
    let found = complaints(&opened);
    assert!(found.is_empty(), "{found:#?}");
    for (what, words) in [
        ("a latency distribution", ["atency", "99.9 %"]),
        ("the channel x die map", ["hannel", "die"]),
        ("the profile that reproduces it", ["generic", "seed"]),
    ] {
        assert!(words.iter().all(|word| opened.dom.contains(word)), "the report does not show {what}");
    }
}

#[test]
fn the_page_of_a_log_opens_without_errors_and_shows_its_plots() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["log", "--seconds", "0.02", "--warm-up", "0.005", "--report", "log.html"]);
    let opened = open(&browser, &folder.path().join("log.html"));
    let found = complaints(&opened);
    assert!(found.is_empty(), "{found:#?}");
    let plots = elements(&opened.dom, "svg").into_iter().filter(|svg| svg.starts_with("<svg class=\"plot\"")).count();
    assert_eq!(plots, 6, "two of commits, two of transactions, the ring, and what waits for flash");
}

/// Columns of words were one letter wide on a telephone.
#[test]
fn a_column_of_words_stays_readable_on_a_narrow_screen() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "report.html"]);
    // Its checks may fail: a quick run measures little.
    let quick = ["experiment", "run", "x-ssd/movements", "x-ssd/fig10", "--quick", "--report", "papers.html"];
    let done = run(folder.path(), &quick);
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&done.stderr));
    const MEASURE: &str =
        "<script>addEventListener('load', () => { for (const all of document.querySelectorAll('details'))
        all.open = true; const wide = [...document.querySelectorAll('.words')]
        .filter(cell => cell.offsetParent).map(cell => cell.offsetWidth);
        document.body.dataset.narrowest = Math.min(...wide); document.body.dataset.columns = wide.length;
        document.body.dataset.screen = innerWidth; });</script></body>";
    for name in ["report.html", "papers.html"] {
        let page = std::fs::read_to_string(folder.path().join(name)).expect("the file was written");
        let copy = folder.path().join("measured.html");
        std::fs::write(&copy, page.replace("</body>", MEASURE)).expect("the folder is writable");
        let dom = open_with(&browser, &copy, &["--window-size=500,1500"]).dom;
        let number = |what: &str| {
            let (_, rest) = dom.split_once(&format!("data-{what}=\"")).expect("the page was measured");
            rest.split('"').next().expect("a value").parse::<u32>().expect("a number")
        };
        assert!(number("screen") <= 600 && number("columns") > 0, "{name}: the screen is narrow");
        assert!(number("narrowest") >= 90, "{name}: a column of words is {} pixels wide", number("narrowest"));
    }
}

/// Each figure can be taken along: one bar has the buttons for all; the keyboard reaches them, and they do what they
/// say.
#[test]
fn figures_are_saved_as_svg_and_copied_as_data() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "report.html"]);
    const TAKE: &str = "<script>addEventListener('load', async () => {
        const say = (what, text) => { document.body.dataset[what] = text; };
        const [bar, ...more] = document.querySelectorAll('.tools'), choice = bar.querySelector('select');
        const buttons = [...bar.querySelectorAll('button')].slice(0, 2);
        say('shown', bar.offsetHeight > 0 && !more.length ? choice.options.length : 0);
        buttons[0].focus();
        say('reached', document.activeElement === buttons[0] && buttons.every(button => button.tabIndex === 0));
        const saved = [];
        window.Blob = class { constructor(parts) { this.words = parts.join(''); } };
        URL.createObjectURL = blob => { saved.push(blob); return 'about:blank#'; };
        const followed = [];
        HTMLAnchorElement.prototype.click = function () { followed.push(this.download); };
        const copied = [];
        Object.defineProperty(navigator, 'clipboard', { value: { writeText: async text => { copied.push(text); } } });
        for (const option of choice.options) {
            choice.value = option.value;
            for (const button of buttons) button.click();
            await new Promise(done => setTimeout(done));
        }
        say('files', followed.join(' '));
        say('copied', copied.length);
        say('tables', copied.filter(text => /^[a-z_0-9]+(,[a-z_0-9]+)+\\n/.test(text)).length);
        const parsed = saved.map(blob => new DOMParser().parseFromString(blob.words, 'image/svg+xml'));
        say('documents', parsed.filter(svg => !svg.querySelector('parsererror') && svg.querySelector('text')).length);
        const words = svg => [...svg.querySelectorAll('text')].map(text => text.textContent);
        say('legends', parsed.filter(svg => words(svg).includes('write')).length);
    });</script></body>";
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("the file was written");
    let copy = folder.path().join("taken.html");
    std::fs::write(&copy, page.replace("</body>", TAKE)).expect("the folder is writable");
    let opened = open_with(&browser, &copy, &["--virtual-time-budget=5000"]);
    assert!(opened.console.is_empty(), "{:#?}", opened.console);
    let said = |what: &str| {
        let (_, rest) = opened.dom.split_once(&format!("data-{what}=\"")).expect("the page said it");
        rest.split('"').next().expect("a value").to_owned()
    };
    let figures = page.matches("<svg class=\"plot narrow\"").count();
    assert!(figures >= 8, "{figures} figures");
    for what in ["shown", "copied", "tables", "documents"] {
        assert_eq!(said(what), figures.to_string(), "{what}");
    }
    assert_eq!(said("reached"), "true");
    assert!(said("files").contains("latency-tail.svg"), "{}", said("files"));
    assert!(said("legends").parse::<usize>().expect("a number") >= 4, "legends are in the files");
}

#[test]
fn experiments_open_without_errors_and_show_their_figures() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["experiment", "run", "--all", "--quick", "--report", "papers.html", "--json", "papers.json"];
    let output = run(folder.path(), &arguments);
    // A quick run measures little: whether every check holds is not asked here.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let opened = open(&browser, &folder.path().join("papers.html"));
    let found = complaints(&opened);
    assert!(found.is_empty(), "{found:#?}");
    let documents = std::fs::read_to_string(folder.path().join("papers.json")).expect("the documents");
    let documents: serde_json::Value = serde_json::from_str(&documents).expect("the documents are JSON");
    let figures: usize =
        documents.as_array().expect("an array").iter().map(|d| d["figures"].as_array().unwrap().len()).sum();
    let plots = elements(&opened.dom, "svg").into_iter().filter(|svg| svg.starts_with("<svg class=\"plot\"")).count();
    assert_eq!(plots, figures, "every figure is a plot");
    for words in ["the paper says", "Differences from the paper", "class=\"box\"", "class=\"bar\"", "data-name="] {
        assert!(opened.dom.contains(words), "the page has no {words:?}");
    }
    for line in run_well(folder.path(), &["experiment", "list"]).lines() {
        let name = line.split_whitespace().next().expect("a name");
        assert!(opened.dom.contains(name), "the page does not name {name}");
    }
}

#[test]
fn a_report_needs_nothing_but_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "report.html"]);
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("the report is UTF-8 text");
    for loaded in ["<link ", "<script src", "<img src=\"http", "<iframe", "@import", "url(http", "src=\"http", "fetch("]
    {
        assert!(!page.contains(loaded), "the report loads something: {loaded}");
    }
}

/// axe-core as `scripts/setup.sh --browser` fetches it.
fn axe() -> Option<String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    std::fs::read_to_string(target.join("browser/node_modules/axe-core/axe.min.js")).ok()
}

/// Each kind of page, small.
fn every_page(folder: &Path) -> [&'static str; 5] {
    run_well(folder, &["replay", "--trace", "sample", "--report", "run.html"]);
    let vary = ["--vary", "buffer.write_size=64KiB,256KiB", "--vary", "seed=1..2", "--report", "compare.html"];
    run_well(folder, &[&["compare", "--trace", "sample"][..], &vary].concat());
    let done = run(folder, &["experiment", "run", "x-ssd/fig9", "x-ssd/fig10", "--quick", "--report", "papers.html"]);
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&done.stderr));
    run_well(folder, &["log", "--seconds", "0.02", "--warm-up", "0.005", "--report", "log.html"]);
    let stages = ["--stages", "read-cache,map-cache", "--report", "probe.html"];
    run_well(folder, &[&["probe", "generic", "--capacity", "1GiB"][..], &stages].concat());
    ["run.html", "compare.html", "papers.html", "log.html", "probe.html"]
}

/// Opens copies of pages in frames of these widths, each with a script appended that posts one line to the page around
/// it; returns the lines. A window cannot be as narrow as a telephone, a frame can.
fn in_frames(browser: &Path, folder: &Path, frames: &[(String, u32)]) -> Vec<String> {
    let list: Vec<String> = frames.iter().map(|(name, width)| format!("['{name}', {width}]")).collect();
    let around = format!(
        "<!doctype html><pre id=said></pre><script>const frames = [{}];
        function next() {{ document.querySelectorAll('iframe').forEach(frame => frame.remove());
        const first = frames.shift(); if (!first) return; const frame = document.createElement('iframe');
        [frame.src, frame.width] = first; frame.height = 900; document.body.append(frame); }}
        addEventListener('message', event => {{ said.textContent += event.data + '\\n'; next(); }});
        next();</script>",
        list.join(", ")
    );
    let page = folder.join("frames.html");
    std::fs::write(&page, around).expect("the folder is writable");
    let dom = open_with(browser, &page, &["--virtual-time-budget=600000", "--window-size=1400,1000"]).dom;
    let (_, said) = dom.split_once("<pre id=\"said\">").expect("the list");
    said.split("</pre>").next().expect("the list has an end").lines().map(str::to_owned).collect()
}

/// The script of a reader who chooses a theme.
fn choose(theme: &str) -> String {
    format!(
        "const theme = document.querySelector('.theme select'); theme.value = '{theme}';
        theme.dispatchEvent(new Event('change'));
        for (const fold of document.querySelectorAll('details')) fold.open = true;"
    )
}

#[test]
fn axe_finds_no_serious_fault_on_any_page_light_or_dark_wide_or_narrow() {
    let Some(browser) = browser_or_skip() else { return };
    let Some(axe) = axe() else {
        return skipped(1, "no axe-core here, so no page was checked with it (scripts/setup.sh --browser)");
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let axe = axe.replace("</script", "<\\/script");
    let mut frames = Vec::new();
    let broken = "<!doctype html><p class=theme><select aria-label=x><option>light<option>dark</select>\
                  <p style='color:#ccc;background:#fff'>pale</p></body>";
    std::fs::write(folder.path().join("broken.html"), broken).expect("written");
    for page in every_page(folder.path()).into_iter().chain(["broken.html"]) {
        let html = std::fs::read_to_string(folder.path().join(page)).expect("the file was written");
        for (theme, width) in [("light", 360), ("light", 1280), ("dark", 360), ("dark", 1280)] {
            let name = format!("{theme}-{width}-{page}");
            let check = format!(
                "<script>{axe}</script><script>addEventListener('load', async () => {{ {}
                const found = (await axe.run()).violations.filter(v => ['serious', 'critical'].includes(v.impact));
                const wide = document.documentElement.scrollWidth > innerWidth ? 'wider than the screen' : '';
                const ground = getComputedStyle(document.body).backgroundColor;
                parent.postMessage(['{name}', ground, wide, ...found.map(v => v.id + ' ' +
                v.nodes.map(node => node.target))].join('|'), '*'); }});</script></body>",
                choose(theme)
            );
            std::fs::write(folder.path().join(&name), html.replace("</body>", &check)).expect("written");
            frames.push((name, width));
        }
    }
    let said = in_frames(&browser, folder.path(), &frames);
    assert_eq!(said.len(), frames.len(), "{said:#?}");
    for line in said {
        let parts: Vec<&str> = line.split('|').collect();
        if parts[0].ends_with("broken.html") {
            assert!(line.contains("color-contrast"), "a fault is found: {line}");
            continue;
        }
        let paper = if parts[0].starts_with("dark") { "rgb(18, 22, 27)" } else { "rgb(252, 252, 250)" };
        assert_eq!(parts[1..], [paper, ""], "{line}");
    }
}

#[test]
fn readers_sort_tables_switch_series_zoom_and_follow_the_contents() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "run.html"]);
    const USE: &str = "<script>addEventListener('load', () => {
        const all = what => [...document.querySelectorAll(what)], said = [];
        said.push(all('.contents a').every(link => document.getElementById(link.hash.slice(1))));
        const cell = document.querySelector('td[data-label]');
        said.push(getComputedStyle(cell).display);
        const sort = all('.sort').find(button => button.textContent === '99 %'), table = sort.closest('table');
        const column = () => [...table.tBodies[0].rows].map(row => parseFloat(row.cells[6].textContent));
        sort.click();
        const up = column();
        sort.click();
        const down = column();
        said.push(up.every((v, i) => !i || v >= up[i - 1]) && down.every((v, i) => !i || v <= down[i - 1]));
        const series = document.querySelector('.series'), group = series.closest('figure').querySelector('.plot g');
        series.click();
        said.push(series.getAttribute('aria-pressed') + getComputedStyle(group).display);
        series.click();
        said.push(series.getAttribute('aria-pressed') + getComputedStyle(group).display);
        const [zoom] = all('.zoom'), over_time = all('svg[data-x]').find(svg => /^linear .* s$/.test(svg.dataset.x));
        const line = over_time.querySelector('path[data-name]');
        const whole = line.getAttribute('d'), press = i => zoom.querySelectorAll('button')[i].click();
        press(0);
        said.push(line.getAttribute('d') !== whole);
        press(4);
        said.push(line.getAttribute('d') === whole);
        said.push(all('.sort, .series, .zoom button, .theme select').every(one => one.tabIndex === 0));
        parent.postMessage(said.join(' '), '*'); });</script></body>";
    let page = std::fs::read_to_string(folder.path().join("run.html")).expect("the file was written");
    assert!(page.matches("<a href=\"#").count() >= 5, "contents");
    std::fs::write(folder.path().join("used.html"), page.replace("</body>", USE)).expect("written");
    let frames = [("used.html".to_owned(), 360), ("used.html".to_owned(), 1280)];
    let said = in_frames(&browser, folder.path(), &frames);
    let expected = |cell: &str| format!("true {cell} true falsenone trueinline true true true");
    assert_eq!(said, [expected("flow-root"), expected("table-cell")]);
}

/// On a telephone, every plot is the one that was drawn for it: whole, with words that can be read, and one bar below.
#[test]
fn plots_fit_a_narrow_screen_without_being_cut() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    const LOOK: &str = "<script>addEventListener('load', () => {
        const all = what => [...document.querySelectorAll(what)], wrong = [];
        const seen = all('svg.plot').filter(svg => svg.getBoundingClientRect().width > 0);
        for (const svg of seen) {
            const name = svg.closest('figure').id, frame = svg.closest('figure').getBoundingClientRect();
            if (svg.getBoundingClientRect().right > frame.right + 1) wrong.push(name + ' is cut');
            for (const text of svg.querySelectorAll('text')) {
                const box = text.getBoundingClientRect();
                if (box.right > innerWidth || box.left < 0) wrong.push(name + ' cuts ' + text.textContent);
                if (innerWidth < 700 && parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a < 9.4)
                    wrong.push(name + ' has small words');
            }
        }
        const moves = all('main *').filter(one => one.scrollWidth > one.clientWidth + 1 &&
            getComputedStyle(one).overflowX === 'auto' && one.querySelector('svg'));
        if (moves.length) wrong.push('a plot moves');
        const figures = all('figure').filter(figure => figure.querySelector('.plot')).length;
        if (all('.tools').length !== Math.min(1, figures)) wrong.push('not one bar');
        parent.postMessage([seen.length === figures, figures, ...new Set(wrong)].join('|'), '*'); });
        </script></body>";
    let mut frames = Vec::new();
    for page in every_page(folder.path()) {
        let html = std::fs::read_to_string(folder.path().join(page)).expect("the file was written");
        let name = format!("looked-{page}");
        std::fs::write(folder.path().join(&name), html.replace("</body>", LOOK)).expect("written");
        frames.extend([360, 400, 1000].map(|width| (name.clone(), width)));
    }
    let said = in_frames(&browser, folder.path(), &frames);
    assert_eq!(said.len(), frames.len(), "{said:#?}");
    let mut figures = 0;
    for (frame, said) in frames.iter().zip(&said) {
        let shown = said.strip_prefix("true|").and_then(|rest| rest.parse::<u32>().ok());
        figures += shown.unwrap_or_else(|| panic!("{frame:?}: {said}"));
    }
    assert!(figures > 30, "{figures} figures");
}
