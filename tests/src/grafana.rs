//! The dashboard for Grafana and the alert rules for Prometheus that `packaging/grafana` has: both are written from the
//! lists in `grafana/lists.rs`, and `tests/tests/metrics.rs` tries each expression of them.

mod json;
mod lists;

use serde_json::{Value, json};

pub use lists::{ALERTS, ROWS};

/// The job that the alert rules expect devices to be scraped by.
pub const JOB: &str = "tidewater";

/// A row of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its title.
    pub title: &'static str,
    /// Its panels.
    pub panels: &'static [Panel],
}

/// A panel: a time series for each sample of its queries.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Its title.
    pub title: &'static str,
    /// Its quantity, and how to judge it.
    pub description: &'static str,
    /// Grafana's identifier of a unit.
    pub unit: &'static str,
    /// Expressions, each with the name of its series. `{$i}` selects the instances that the viewer chose, `[$r]` is
    /// the time that Grafana thinks right for a rate.
    pub queries: &'static [(&'static str, &'static str)],
    /// Whether one of its samples is above zero while a device is at work.
    pub moves: bool,
}

/// An alert: it fires when its expression passes its threshold.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// The compared expression.
    pub expression: &'static str,
    /// A comparison, such as `> 0.9`.
    pub threshold: &'static str,
    /// How long it has to be so.
    pub lasts: &'static str,
    /// `critical` or `warning`.
    pub severity: &'static str,
    /// The event, in a few words.
    pub summary: &'static str,
    /// Its meaning, and the remedy.
    pub description: &'static str,
}

impl Alert {
    /// The expression that Prometheus evaluates.
    pub fn rule(&self) -> String {
        format!("{} {}", self.expression, self.threshold)
    }
}

/// An expression of a panel as Prometheus takes it, of instances that match, with rates over so long.
pub fn expression(query: &str, instance: &str, over: &str) -> String {
    query.replace("$i", &format!("instance=~\"{instance}\"")).replace("$r", over)
}

/// Columns of a dashboard in Grafana.
const COLUMNS: usize = 24;
/// Width and height of a panel.
const SIZE: [usize; 2] = [8, 7];

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panel(panel: &Panel, id: usize, at: [usize; 2]) -> Value {
    let targets = panel.queries.iter().zip(b'A'..).map(|((query, legend), letter)| {
        json!({
            "datasource": source(),
            "expr": expression(query, "$instance", "$__rate_interval"),
            "legendFormat": legend,
            "range": true,
            "refId": char::from(letter).to_string(),
        })
    });
    let custom = json!({"drawStyle": "line", "fillOpacity": 10, "showPoints": "never", "spanNulls": false});
    json!({
        "datasource": source(),
        "description": panel.description,
        "fieldConfig": {"defaults": {"custom": custom, "min": 0, "unit": panel.unit}, "overrides": []},
        "gridPos": {"h": SIZE[1], "w": SIZE[0], "x": at[0], "y": at[1]},
        "id": id,
        "options": {
            "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": targets.collect::<Vec<_>>(),
        "title": panel.title,
        "type": "timeseries",
    })
}

/// The dashboard, as Grafana imports it.
pub fn dashboard() -> String {
    let (mut panels, mut y) = (Vec::new(), 0);
    for row in ROWS {
        let id = panels.len() + 1;
        panels.push(json!({
            "collapsed": false,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "id": id,
            "panels": [],
            "title": row.title,
            "type": "row",
        }));
        for (place, one) in row.panels.iter().enumerate() {
            let in_line = COLUMNS / SIZE[0];
            let at = [place % in_line * SIZE[0], y + 1 + place / in_line * SIZE[1]];
            panels.push(panel(one, panels.len() + 1, at));
        }
        y += 1 + row.panels.len().div_ceil(COLUMNS / SIZE[0]) * SIZE[1];
    }
    let instances = "label_values(tidewater_powered, instance)";
    json::text(&json!({
        "annotations": {"list": []},
        "description": "Devices of Tidewater: hosts, flash, memories, log, image and peers.",
        "editable": true,
        "graphTooltip": 1,
        "id": null,
        "links": [],
        "panels": panels,
        "refresh": "10s",
        "schemaVersion": 39,
        "tags": ["tidewater", "nvme"],
        "templating": {"list": [
            {"label": "Data source", "name": "datasource", "query": "prometheus", "refresh": 1, "type": "datasource"},
            {
                "allValue": ".*",
                "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
                "datasource": source(),
                "definition": instances,
                "includeAll": true,
                "label": "Device",
                "multi": true,
                "name": "instance",
                "query": {"query": instances, "refId": "instance"},
                "refresh": 2,
                "sort": 1,
                "type": "query",
            },
        ]},
        "time": {"from": "now-15m", "to": "now"},
        "timezone": "browser",
        "title": "Tidewater",
        "uid": "tidewater",
        "version": 1,
    }))
}

/// The alert rules, as Prometheus loads them.
pub fn rules() -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut text = String::from(
        "# Alert rules of Tidewater, for `rule_files` of Prometheus. Generated from tests/src/grafana/lists.rs:\n\
         # UPDATE_DOCS=1 cargo test -p tidewater-tests --test devices metrics\n\
         groups:\n  - name: tidewater\n    rules:\n",
    );
    for alert in ALERTS {
        text += &format!(
            "      - alert: {}\n        expr: >-\n          {}\n          {}\n        for: {}\n        \
             labels:\n          severity: {}\n        annotations:\n          summary: {}\n          \
             description: >-\n            {}\n",
            alert.name,
            alert.expression.replace(" / ", " /\n          "),
            alert.threshold,
            alert.lasts,
            alert.severity,
            quoted(alert.summary),
            alert.description,
        );
    }
    text
}
