//! Any bytes as a few plain characters, for stores that take no others in their names: `~` and two hexadecimal digits stand for what is not kept as it is.

/// The bytes as text, `keep` saying which stay as they are. They must be ASCII, and not `~`.
pub fn escape(bytes: &[u8], keep: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match keep(*byte) {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("~{byte:02X}")),
        }
    }
    text
}

/// The bytes that [`escape`] wrote; `None` if it did not write that.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'~' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            kept => kept,
        });
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escape(&all, |byte| byte.is_ascii_alphanumeric());
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'~'), "{text}");
        assert_eq!(unescape(&text), Some(all));
    }

    #[test]
    fn what_was_not_written_here_is_not_read() {
        for text in ["~", "~4", "~4g", "~4a"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }
}
