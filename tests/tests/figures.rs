//! Figures as files: what `tidewater report --figure` writes, of a run, a comparison and a sweep.

use std::path::Path;

use tidewater_tests::html::drawable;
use tidewater_tests::{run_refused, run_well};

/// A run of some milliseconds.
const JOB: &str = "rw=randrw,bs=4k,iodepth=8,size=64m,number_ios=20000";

fn names(list: &str) -> Vec<&str> {
    list.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

fn holds(folder: &Path, file: &str) -> Vec<u8> {
    std::fs::read(folder.join(file)).expect("the file was written")
}

#[test]
fn every_figure_that_is_listed_is_written_in_each_format() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &["replay", "--job", JOB, "--json", "run.json"]);
    let list = run_well(folder.path(), &["report", "run.json", "--list-figures"]);
    let names = names(&list);
    assert!(names.contains(&"latency-tail") && names.contains(&"flash-writes") && names.len() > 5, "{list}");
    for name in names {
        for (file, start) in [("f.svg", &b"<svg "[..]), ("f.pdf", b"%PDF-"), ("f.png", b"\x89PNG")] {
            let said = run_well(folder.path(), &["report", "run.json", "--figure", name, "-o", file]);
            assert!(said.starts_with(&format!("figure: {file} (")) && said.contains(" (") && said.lines().count() == 2);
            assert!(holds(folder.path(), file).starts_with(start), "{name} as {file}");
        }
        let svg = String::from_utf8(holds(folder.path(), "f.svg")).expect("text");
        assert!(svg.contains("width=\"83.80mm\"") && drawable(&svg) && svg.contains("@font-face"), "{name}");
    }
    let wide = ["report", "run.json", "--figure", "wear", "-o", "wide.svg", "--width", "page"];
    assert!(run_well(folder.path(), &wide).contains("177.8 x "));
}

#[test]
fn what_is_no_figure_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &["replay", "--job", JOB, "--json", "run.json"]);
    let refused = |more: &[&str]| run_refused(folder.path(), &[&["report", "run.json"][..], more].concat());
    let unknown = refused(&["--figure", "tail", "-o", "f.pdf"]);
    assert!(unknown.contains("\"tail\"") && unknown.contains("latency-tail, requests-over-time"), "{unknown}");
    let ending = refused(&["--figure", "wear", "-o", "f.jpg"]);
    assert!(ending.contains("f.jpg") && ending.contains(".svg, .pdf or .png"), "{ending}");
    assert!(refused(&["-o", "f.pdf"]).contains("--figure"), "a page is no PDF");
    assert!(refused(&["-o", "f.csv"]).contains("f.csv: an HTML page"), "a page is no table");
    assert!(refused(&["--x", "seed", "-o", "page.html"]).contains("several runs only"));
    assert!(refused(&["--figure", "wear", "-o", "f.pdf", "--width", "2"]).contains("millimetres"));
    assert!(!folder.path().join("f.pdf").exists());
}

#[test]
fn a_sweep_has_a_page_figures_over_its_settings_and_links_to_its_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let vary = ["--vary", "nand.channels=1,2,4", "--vary", "buffer.write_size=64KiB,256KiB", "--vary", "seed=1..3"];
    run_well(folder.path(), &[&["sweep", "--out", "s", "--job", JOB][..], &vary].concat());
    run_well(folder.path(), &["report", "s", "--pages", "-o", "s.html"]);
    let page = String::from_utf8(holds(folder.path(), "s.html")).expect("text");
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    // Those of the contents lead to places of the page itself.
    let links: Vec<&str> = links.filter(|link| !link.starts_with('#')).collect();
    assert_eq!(links.len(), 18, "each run's row leads to its page");
    for link in &links {
        assert!(String::from_utf8(holds(folder.path(), link)).expect("text").starts_with("<!DOCTYPE html>"), "{link}");
    }
    assert!(page.contains("Median over seeds (3 runs each); whiskers from the lowest to the highest."));
    let list = run_well(folder.path(), &["report", "s", "--list-figures"]);
    assert!(names(&list).contains(&"iops-map"), "{list}");
    let line = ["report", "s", "--x", "nand.channels", "--colour", "buffer.write_size", "--y", "read_p99_us"];
    let said = run_well(folder.path(), &[&line[..], &["-o", "p99.pdf"]].concat());
    assert!(said.contains("p99.pdf (PDF, 83.8 x ") && said.contains("Read p99. Median over seeds"), "{said}");
    run_well(folder.path(), &[&line[..], &["-o", "p99.svg"]].concat());
    let svg = String::from_utf8(holds(folder.path(), "p99.svg")).expect("text");
    assert_eq!(svg.matches("class=\"dot ring\"").count(), 6, "a dot for each variant");
    assert!(svg.contains(">256 KiB</text>") && svg.contains(">nand.channels"), "{svg}");
    let refused = run_refused(folder.path(), &["report", "s", "--x", "nand.planes", "-o", "x.html"]);
    assert!(refused.contains("these were: ") && refused.contains("nand.channels"), "{refused}");
    let refused = run_refused(folder.path(), &["report", "s", "--y", "speed", "-o", "x.html"]);
    assert!(refused.contains("no figure speed") && refused.contains("read_p99_us"), "{refused}");
    let refused = run_refused(folder.path(), &["report", ".", "-o", "x.html"]);
    assert!(refused.contains("without sweep.json"), "{refused}");
}

/// The numbers of a figure are those of the table.
#[test]
fn the_data_of_a_page_is_that_of_the_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &["replay", "--job", JOB, "--json", "run.json"]);
    run_well(folder.path(), &["report", "run.json", "-o", "run.html"]);
    let page = String::from_utf8(holds(folder.path(), "run.html")).expect("text");
    let data = |name: &str| {
        let (_, figure) = page.split_once(&format!("id=\"figure-{name}\"")).expect("the figure");
        let (_, data) = figure.split_once("<pre class=\"data\" hidden>").expect("its numbers");
        data.split("</pre>").next().expect("an end").to_owned()
    };
    let table = |name: &str| run_well(folder.path(), &["report", "run.json", "--table", name, "-o", "-"]);
    assert_eq!(data("wear"), table("wear"));
    let of_operations: String =
        table("latencies").lines().filter(|line| !line.starts_with("all,")).map(|line| format!("{line}\n")).collect();
    assert_eq!(sorted(&data("latency-distribution")), sorted(&of_operations));
    let series = table("time-series");
    let column = |csv: &str, name: &str| -> Vec<String> {
        let at = csv.lines().next().unwrap().split(',').position(|head| head == name).expect("the column");
        csv.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().to_owned()).collect()
    };
    for name in ["time_s", "read_iops", "write_iops"] {
        assert_eq!(column(&data("requests-over-time"), name), column(&series, name), "{name}");
    }
}

fn sorted(csv: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = csv.lines().collect();
    lines.sort_unstable();
    lines
}
