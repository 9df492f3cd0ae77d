//! Numbers as Prometheus reads them: its text format, version 0.0.4.
//!
//! Names are OpenTelemetry's, translated as its specification of compatibility with Prometheus says: dots become
//! underscores, the unit is written out, and what only grows ends with `_total`.

use std::fmt::Write;

use super::family::{Family, Kind, Labels, Shape, Value};
use super::meter::BOUNDS;

/// The media type of what is written.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of them, one after the other.
pub(crate) fn write(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.points.is_empty()) {
        // Writing to a text does not fail.
        let _ = write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &Family) -> std::fmt::Result {
    let name = name_of(family.kind);
    let shape = match family.kind.shape {
        Shape::Counter => "counter",
        Shape::Gauge => "gauge",
        Shape::Histogram => "histogram",
    };
    writeln!(text, "# HELP {name} {}.\n# TYPE {name} {shape}", family.kind.about)?;
    for point in &family.points {
        let labels = labels_of(&point.labels);
        let all = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        match &point.value {
            Value::Count(count) => writeln!(text, "{name}{all} {count}")?,
            Value::Level(level) => writeln!(text, "{name}{all} {level}")?,
            Value::Distribution(counts, sum) => {
                let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
                for (bound, count) in bounds.zip(counts) {
                    writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
                }
                writeln!(text, "{name}_sum{all} {sum}")?;
                writeln!(text, "{name}_count{all} {}", counts[BOUNDS.len()])?;
            }
        }
    }
    Ok(())
}

fn name_of(kind: &Kind) -> String {
    let unit = if kind.unit == "s" { "_seconds" } else { "" };
    let total = if kind.shape == Shape::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", kind.name.replace('.', "_"))
}

fn labels_of(labels: &Labels) -> String {
    let one = |(name, value): &(&str, String)| format!("{}=\"{}\"", name.replace('.', "_"), escaped(value));
    labels.0.iter().map(one).collect::<Vec<_>>().join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Meter, family};
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::message::{Endpoint, Verdict};

    #[test]
    fn each_bucket_counts_those_below_it_too() {
        let meter = Meter::default();
        let endpoint = Endpoint::queue("q").unwrap_or_else(|e| panic!("{e}"));
        let runs = meter.runs("de\"fault\n\\", &endpoint);
        for millis in [5, 6, 20_000] {
            runs.ended(Duration::from_millis(millis), &Verdict::Complete);
        }
        let failed = Verdict::Retry { after: None, error: Error::new(ErrorKind::Handler, "no") };
        runs.ended(Duration::from_millis(300), &failed);
        let text = write(&family::counted(&meter));
        let of = r#"messaging_system="bus",messaging_destination_name="q",bus_transport="de\"fault\n\\",messaging_operation_name="process",messaging_operation_type="process""#;
        let name = "messaging_process_duration_seconds";
        for line in [
            format!("# TYPE {name} histogram"),
            format!("{name}_bucket{{{of},le=\"0.005\"}} 1"),
            format!("{name}_bucket{{{of},le=\"0.01\"}} 2"),
            format!("{name}_bucket{{{of},le=\"10\"}} 2"),
            format!("{name}_bucket{{{of},le=\"+Inf\"}} 3"),
            format!("{name}_sum{{{of}}} 20.011"),
            format!("{name}_count{{{of}}} 3"),
            format!("{name}_count{{{of},error_type=\"Handler\"}} 1"),
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\nis not in\n{text}");
        }
    }
}
