//! How times, tables, bodies and other people's texts are written for a person at a terminal.

use std::time::Duration;

use serde::de::IgnoredAny;

use crate::clock::Timestamp;

/// A moment as of RFC 3339, in UTC, with milliseconds.
pub(super) fn time(moment: Timestamp) -> String {
    moment.to_rfc3339()
}

/// A time that passes, as exactly as a person wants it: `19.4s`, `2m 5s`.
pub(super) fn passing(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        seconds => format!("{}m {}s", seconds / 60, seconds % 60),
    }
}

/// A time that may be long, in its two largest units: `19.4s`, `2m 5s`, `3h 12m`, `9d 4h`.
pub(super) fn long(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0..60 => passing(time),
        60..1440 => format!("{}h {}m", minutes / 60, minutes % 60),
        _ => format!("{}d {}h", minutes / 1440, minutes / 60 % 24),
    }
}

/// `text` without anything that a terminal would take for a command. Ends of lines stay.
pub(super) fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => harmless.push(c),
            c if c.is_control() => harmless.extend(c.escape_default()),
            c => harmless.push(c),
        }
    }
    harmless
}

/// The first line of `text`, cut where it gets too long for a table.
pub(super) fn brief(text: &str) -> String {
    const LONGEST: usize = 100;
    let line = text.lines().next().unwrap_or_default();
    let mut brief: String = line.chars().take(LONGEST).collect();
    if brief.len() < text.trim_end().len() {
        brief.push('…');
    }
    harmless(&brief)
}

/// `text` with all of its lines moved to the right.
pub(super) fn indented(text: &str, by: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{:by$}{line}", "")).collect();
    lines.join("\n")
}

/// Columns below their headings, numbers to the right.
pub(super) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let shapes: Vec<(usize, bool)> = (0..columns.len())
        .map(|column| {
            let cells = || rows.iter().map(|row| cell(row, column));
            let width = cells().chain([cell(&head, column)]).map(|cell| cell.chars().count()).max();
            (width.unwrap_or(0), cells().all(|cell| is_number(&cell)))
        })
        .collect();
    let line = |row: &[String]| {
        let cells = shapes.iter().enumerate().map(|(column, &(width, is_number))| match is_number {
            true => format!("{:>width$}", cell(row, column)),
            false => format!("{:width$}", cell(row, column)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(line(&head)).chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit())
}

/// What a body is, in a word, and the body as a person reads it.
pub(super) fn body(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => ("JSON", harmless(&json(text))),
        Ok(text) => ("text", harmless(text)),
        Err(_) => ("binary", dump(body)),
    }
}

/// Valid JSON with its lines broken and indented. Everything else stays as it is written: read and written again,
/// numbers would lose digits and keys their order.
fn json(text: &str) -> String {
    let mut pretty = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if in_string {
            pretty.push(c);
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                pretty.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    pretty.push(end);
                } else {
                    depth += 1;
                    break_line(&mut pretty, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                break_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            c => {
                in_string = c == '"';
                pretty.push(c);
            }
        }
    }
    pretty
}

fn break_line(pretty: &mut String, depth: usize) {
    pretty.push('\n');
    pretty.extend(std::iter::repeat_n("  ", depth));
}

/// Bytes in hexadecimal, as one word.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes in hexadecimal, sixteen a line, with where they stand and what of them can be read.
fn dump(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(number, chunk)| {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let readable: String =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        format!("{:08x}  {:47}  {readable}", number * 16, hex.join(" "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_numbers_its_order_and_its_strings() {
        let (kind, pretty) = body(br#"{"b":12345678901234567890123,"a":[1,{ }],"text":"{\"x\":[1,2]} \\"}"#);
        assert_eq!(kind, "JSON");
        assert_eq!(
            pretty,
            r#"{
  "b": 12345678901234567890123,
  "a": [
    1,
    {}
  ],
  "text": "{\"x\":[1,2]} \\"
}"#
        );
    }

    #[test]
    fn what_is_no_text_is_dumped() {
        assert_eq!(body(b"no json"), ("text", "no json".to_owned()));
        let (kind, dumped) = body(&[0xff, b'a', b'b']);
        assert_eq!((kind, dumped.starts_with("00000000  ff 61 62 ")), ("binary", true));
        assert!(dumped.ends_with("  .ab"), "{dumped}");
        assert_eq!(hex(&[0, 0xff]), "00ff");
    }

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(harmless("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\nc");
        assert_eq!(brief("first\nsecond"), "first…");
        assert_eq!(brief("only\n"), "only");
    }

    #[test]
    fn a_table_is_as_wide_as_what_is_in_it() {
        let rows = [vec!["å".to_owned(), "7".to_owned()], vec!["long".to_owned(), "1234".to_owned()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME     N\nå        7\nlong  1234");
    }
}
