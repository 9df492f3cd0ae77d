//! The texts in a file of Rust.

/// A string literal.
pub(crate) struct Text {
    /// The line on which it begins.
    pub(crate) line: usize,
    /// What it says, escapes resolved.
    pub(crate) text: String,
    /// The name that it is given to: `reason` of `reason = "…"`; empty if there is none.
    pub(crate) named: String,
}

impl Text {
    /// Whether it is a sentence, or a good part of one, and no name.
    pub(crate) fn says_something(&self) -> bool {
        let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() >= 2;
        self.fixed().iter().flat_map(|piece| piece.split_whitespace()).filter(is_word).count() >= 3
    }

    /// Whether it is said to somebody else, or below a headline that is looked for.
    pub(crate) fn is_aside(&self) -> bool {
        matches!(self.named.as_str(), "reason" | "must_use" | "label" | "note")
    }

    /// What stands between its placeholders (`{}`, `{name:?}`) and line breaks.
    pub(crate) fn fixed(&self) -> Vec<&str> {
        let mut pieces = Vec::new();
        let mut rest = self.text.as_str();
        let mut from = 0;
        while let Some(at) = rest[from..].find('{').map(|at| at + from) {
            let end = rest[at..].find('}').map(|end| at + end);
            match end.filter(|end| !rest[at..*end].contains(char::is_whitespace)) {
                Some(end) => {
                    pieces.push(&rest[..at]);
                    rest = &rest[end + 1..];
                    from = 0;
                }
                None => from = at + 1,
            }
        }
        pieces.push(rest);
        pieces
            .into_iter()
            .flat_map(|piece| piece.split('\n'))
            .filter(|piece| !piece.trim().is_empty())
            .collect()
    }
}

/// The code without its comments and without the tests at its end; the lines stay where they are.
pub(crate) fn without_comments(code: &str) -> String {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    code.lines().map(|line| if is_comment(line) { "\n".to_owned() } else { format!("{line}\n") }).collect()
}

/// All texts of a file, but those of its comments and tests.
pub(crate) fn of(code: &str) -> Vec<Text> {
    let code = without_comments(code);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(length) = length_of_char(rest) {
            at += length;
        } else if let Some((text, length)) = raw(rest).or_else(|| plain(rest)) {
            let line = 1 + code[..at].matches('\n').count();
            found.push(Text { line, text, named: name_before(&code[..at]) });
            at += length;
        } else {
            at += c.len_utf8();
        }
    }
    found
}

/// The name in `name = ` at the end of what stands before a text.
fn name_before(before: &str) -> String {
    let Some(before) = before.trim_end().strip_suffix('=') else { return String::new() };
    let before = before.trim_end();
    let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
    before[start..].to_owned()
}

/// The length of the character literal that `code` begins with; `None` for a lifetime and anything else.
fn length_of_char(code: &str) -> Option<usize> {
    let inner = code.strip_prefix('\'')?;
    let end = match inner.strip_prefix('\\') {
        Some(escaped) => 2 + escaped.get(1..)?.find('\'')? + 1,
        None => 1 + inner.chars().next()?.len_utf8(),
    };
    code[end..].starts_with('\'').then_some(end + 1)
}

/// The raw text that `code` begins with, and its length.
fn raw(code: &str) -> Option<(String, usize)> {
    let inner = code.strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let text = inner[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", &inner[..hashes]);
    let end = text.find(&close)?;
    Some((text[..end].to_owned(), 1 + hashes + 1 + end + close.len()))
}

/// The text that `code` begins with, and its length.
fn plain(code: &str) -> Option<(String, usize)> {
    let inner = code.strip_prefix('"')?;
    let mut text = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((text, at + 2)),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                // The line goes on with the next word.
                '\n' => {
                    let rest = chars.as_str();
                    let blank = rest.len() - rest.trim_start().len();
                    chars.by_ref().take(rest[..blank].chars().count()).for_each(drop);
                }
                other => text.push(other),
            },
            c => text.push(c),
        }
    }
    None
}

#[test]
fn texts_are_found_as_they_are_said() {
    let code = r####"
        // "no text of a comment"
        #[must_use = "a name before it"]
        let a = 'b'; let quote = '"'; let escaped = '\'';
        f("one \"quoted\" \
           {line:?}", r#"a "raw" one"#); // "nor this"
    "####;
    let found: Vec<_> = of(code).into_iter().map(|text| (text.line, text.named, text.text)).collect();
    let expected =
        [(3, "must_use", "a name before it"), (5, "", "one \"quoted\" {line:?}"), (6, "", "a \"raw\" one")];
    assert_eq!(found, expected.map(|(line, named, text)| (line, named.to_owned(), text.to_owned())));
    let text = Text { line: 1, text: "say { it } to {who:?}, {} \n now".into(), named: String::new() };
    assert_eq!(text.fixed(), ["say { it } to ", ", ", " now"]);
}
