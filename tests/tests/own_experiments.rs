//! Experiments of one's own, as a user runs them: `tidewater experiment template`, and `experiment run FILE.toml`.

use tidewater_tests::{run, run_well};

#[test]
fn the_template_is_a_whole_experiment_and_a_check_that_does_not_hold_has_its_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = run_well(folder.path(), &["experiment", "template"]);
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("mine.toml", &template);
    let quick = ["experiment", "run", "mine.toml", "--quick", "--report", "mine.html", "--json", "mine.json"];
    let text = run_well(folder.path(), &quick);
    assert!(text.contains("All 2 checks hold."), "{text}");
    let page = std::fs::read_to_string(folder.path().join("mine.html")).expect("a page");
    assert!(page.contains("Write amplification by spare space") && page.contains("an example of a source"));
    let json = std::fs::read(folder.path().join("mine.json")).expect("a document");
    let document: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(3));

    // Its name is a path: that of a directory is part of it, and built-in experiments run beside it.
    std::fs::create_dir(folder.path().join("papers")).expect("a folder");
    write("papers/false.toml", &template.replace("measured < 0.5", "measured < 0.1"));
    let both = ["experiment", "run", "papers/false.toml", "x-ssd/movements", "--quick"];
    let output = run(folder.path(), &both);
    assert_eq!(output.status.code(), Some(3));
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("FAILED  From 7 to 28 %") && text.contains("x-ssd/movements"), "{text}");
    assert!(errors.contains("false (1)"), "{errors}");

    let output = run(folder.path(), &["experiment", "run", "absent.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("absent.toml: No such file"));
}
