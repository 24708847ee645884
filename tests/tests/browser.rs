//! A report in a real browser: headless Chromium from the distribution. Without one, the test prints SKIPPED.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidewater_tests::html::{drawable, elements, marks};
use tidewater_tests::{run, run_well, skipped};

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

/// What a page became once its scripts ran, and what it said on the console.
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

/// What is wrong with an opened report, in words.
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
        all.open = true; const wide = [...document.querySelectorAll('.words')].map(cell => cell.offsetWidth);
        document.body.dataset.narrowest = Math.min(...wide); document.body.dataset.columns = wide.length;
        document.body.dataset.screen = innerWidth; });</script></body>";
    for name in ["report.html", "papers.html"] {
        let page = std::fs::read_to_string(folder.path().join(name)).expect("it was written");
        let copy = folder.path().join("measured.html");
        std::fs::write(&copy, page.replace("</body>", MEASURE)).expect("the folder is writable");
        let dom = open_with(&browser, &copy, &["--window-size=500,1500"]).dom;
        let number = |what: &str| {
            let (_, rest) = dom.split_once(&format!("data-{what}=\"")).expect("the page was measured");
            rest.split('"').next().expect("a value").parse::<u32>().expect("a number")
        };
        assert!(number("screen") <= 600 && number("columns") > 2, "{name}: the screen is narrow");
        assert!(number("narrowest") >= 90, "{name}: a column of words is {} pixels wide", number("narrowest"));
    }
}

/// Each figure can be taken along: its buttons are shown, can be reached by the keyboard, and do what they say.
#[test]
fn figures_are_saved_as_svg_and_copied_as_data() {
    let Some(browser) = browser_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_well(folder.path(), &["replay", "--trace", "sample", "--report", "report.html"]);
    const TAKE: &str = "<script>addEventListener('load', async () => {
        const say = (what, text) => { document.body.dataset[what] = text; };
        const bars = [...document.querySelectorAll('.save')], buttons = [...document.querySelectorAll('.save button')];
        say('shown', bars.filter(bar => bar.offsetHeight > 0).length);
        buttons[0].focus();
        say('reached', document.activeElement === buttons[0] && buttons.every(button => button.tabIndex === 0));
        const saved = [];
        URL.createObjectURL = blob => { saved.push(blob); return 'about:blank#'; };
        const followed = [];
        HTMLAnchorElement.prototype.click = function () { followed.push(this.download); };
        const copied = [];
        Object.defineProperty(navigator, 'clipboard', { value: { writeText: async text => { copied.push(text); } } });
        for (const button of buttons) button.click();
        await new Promise(done => setTimeout(done));
        say('files', followed.join(' '));
        say('copied', copied.length);
        say('tables', copied.filter(text => /^[a-z_0-9]+(,[a-z_0-9]+)+\\n/.test(text)).length);
        const texts = await Promise.all(saved.map(blob => blob.text()));
        const parsed = texts.map(text => new DOMParser().parseFromString(text, 'image/svg+xml'));
        say('documents', parsed.filter(svg => !svg.querySelector('parsererror') && svg.querySelector('text')).length);
        const words = svg => [...svg.querySelectorAll('text')].map(text => text.textContent);
        say('legends', parsed.filter(svg => words(svg).includes('write')).length);
    });</script></body>";
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("it was written");
    let copy = folder.path().join("taken.html");
    std::fs::write(&copy, page.replace("</body>", TAKE)).expect("the folder is writable");
    let opened = open_with(&browser, &copy, &["--virtual-time-budget=5000"]);
    assert!(opened.console.is_empty(), "{:#?}", opened.console);
    let said = |what: &str| {
        let (_, rest) = opened.dom.split_once(&format!("data-{what}=\"")).expect("the page said it");
        rest.split('"').next().expect("a value").to_owned()
    };
    let figures = page.matches("<p class=\"save\"").count();
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
